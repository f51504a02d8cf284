//! The kernel's questions for attributes that are not answered yet.
//!
//! The kernel drops an answer about an inode if it was told of a change of this inode after it had
//! asked (Linux 6.18), and who reads a file then reads no further than the size that the kernel had
//! before. So what need not be told at once waits until nobody asks.

use super::Volume;
use crate::cache::NodeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Time in which the kernel has taken over an answer, as a rule.
const TAKEN_TIME: Duration = Duration::from_millis(20);
/// Time in which the kernel has taken over an answer, also on a busy machine. Who asks may wait for
/// a server that waits for us, so nothing waits longer.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_millis(500);

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Asked {
    questions: Mutex<HashMap<NodeId, usize>>,
    answered: Notify,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, usize>> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_asked(&self, node: NodeId) -> bool {
        self.lock().contains_key(&node)
    }

    async fn until_answered(&self, node: NodeId) {
        loop {
            let answered = self.answered.notified();
            tokio::pin!(answered);
            // Registered before the look, so that no answer is missed.
            answered.as_mut().enable();
            if !self.is_asked(node) {
                return;
            }
            answered.await;
        }
    }
}

/// A question, until it is dropped after its answer.
pub struct Question {
    volume: Arc<Volume>,
    node: NodeId,
}

impl Drop for Question {
    fn drop(&mut self) {
        let asked = &self.volume.asked;
        let mut questions = asked.lock();
        if let Some(count) = questions.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                questions.remove(&self.node);
                asked.answered.notify_waiters();
            }
        }
    }
}

impl Volume {
    /// The kernel asks for the attributes of a node.
    #[must_use]
    pub fn question(&self, node: NodeId) -> Question {
        *self.asked.lock().entry(node).or_default() += 1;
        Question {
            volume: self.arc(),
            node,
        }
    }

    /// Whether the kernel asks for the attributes of a node.
    pub(super) fn is_asked(&self, node: NodeId) -> bool {
        self.asked.is_asked(node)
    }

    /// Waits until the kernel has the answers that it asked for, but not for ever.
    pub(super) async fn until_answered(&self, nodes: &[NodeId]) {
        let answers = async {
            for node in nodes {
                self.asked.until_answered(*node).await;
            }
        };
        // Who has asked for longer may read what the kernel had.
        let _ = timeout(ANSWER_TIME_MAX, answers).await;
        sleep(TAKEN_TIME).await;
    }
}
