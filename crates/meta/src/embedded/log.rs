//! The change log: the changes of each group, for watches.
//!
//! One record per group, written in the commit that makes the changes. The newest groups are also
//! kept in memory, so that a watch that keeps up does not read the file. What is over
//! `META_LOG_BYTES_MAX` is struck with the next commit, and a watch that needs it has lost history.

use super::format::Opened;
use super::{Shared, lock};
use crate::engine::{Answer, Revision};
use crate::watch::Source;
use crate::{Changes, KeyRange, MetaError};
use base::limits::{META_LOG_BYTES_MAX, META_LOG_MEMORY_BYTES_MAX};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// How far the log is.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub(super) latest: Revision,
    /// Everything after this is there.
    oldest: Revision,
    /// Nothing more comes.
    pub(super) is_over: bool,
}

/// What watches share.
pub(super) struct Log {
    news: watch::Sender<News>,
    memory: Mutex<Memory>,
}

/// The newest groups.
#[derive(Default)]
struct Memory {
    groups: VecDeque<Arc<Group>>,
    size_bytes: usize,
}

/// The changes of one group.
pub(super) struct Group {
    /// It has everything after this and up to `last`.
    pub(super) after: Revision,
    pub(super) last: Revision,
    pub(super) changes: Vec<Changes>,
    /// Bytes of its record.
    pub(super) size_bytes: usize,
}

impl Log {
    pub(super) fn new(opened: &Opened) -> Self {
        let news = News {
            latest: opened.revision,
            oldest: opened.oldest,
            is_over: false,
        };
        Self {
            news: watch::Sender::new(news),
            memory: Mutex::default(),
        }
    }

    pub(super) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    /// A group is durable, and the log has everything after `oldest`.
    pub(super) fn publish(&self, group: Group, oldest: Revision) {
        let latest = group.last;
        let mut memory = lock(&self.memory);
        memory.size_bytes += group.size_bytes;
        memory.groups.push_back(Arc::new(group));
        while memory.size_bytes > META_LOG_MEMORY_BYTES_MAX
            && let Some(group) = memory.groups.pop_front()
        {
            memory.size_bytes -= group.size_bytes;
        }
        drop(memory);
        self.news.send_modify(|news| {
            news.latest = latest;
            news.oldest = oldest;
        });
    }

    pub(super) fn end(&self) {
        self.news.send_modify(|news| news.is_over = true);
    }

    /// The group in memory that has what comes right after `after`.
    fn remembered(&self, after: Revision) -> Option<Arc<Group>> {
        let memory = lock(&self.memory);
        let at = memory.groups.partition_point(|group| group.last <= after);
        let group = memory.groups.get(at)?;
        (group.after <= after).then(|| Arc::clone(group))
    }
}

/// Which groups lie in the file, oldest first.
#[derive(Debug)]
pub(super) struct Groups {
    groups: VecDeque<(Revision, usize)>,
    size_bytes: u64,
    /// Everything after this is there.
    pub(super) oldest: Revision,
}

impl Groups {
    pub(super) fn new(opened: &Opened) -> Self {
        let sizes = opened.groups.iter().map(|(_, bytes)| *bytes as u64);
        Self {
            size_bytes: sizes.sum(),
            groups: opened.groups.iter().copied().collect(),
            oldest: opened.oldest,
        }
    }

    /// Notes a new group, and says which are to be struck for it.
    pub(super) fn push(&mut self, last: Revision, size_bytes: usize) -> Vec<Revision> {
        self.groups.push_back((last, size_bytes));
        self.size_bytes += size_bytes as u64;
        let mut struck = Vec::new();
        while self.size_bytes > META_LOG_BYTES_MAX
            && let Some((last, size_bytes)) = self.groups.pop_front()
        {
            self.size_bytes -= size_bytes as u64;
            self.oldest = last;
            struck.push(last);
        }
        struck
    }
}

/// The record of a group.
pub(super) fn encode(changes: &[Changes]) -> Vec<u8> {
    let plain: Vec<_> = changes
        .iter()
        .map(|Changes { revision, changed }| (revision.0, changed))
        .collect();
    postcard::to_stdvec(&plain).expect("bytes and numbers in memory can always be encoded")
}

/// The changes of a record.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Changes>, MetaError> {
    let plain: Vec<(u64, Vec<crate::Changed>)> = postcard::from_bytes(bytes)
        .map_err(|_| MetaError::Damaged("a record of the change log".to_owned()))?;
    let changes = plain.into_iter().map(|(revision, changed)| Changes {
        revision: Revision(revision),
        changed,
    });
    Ok(changes.collect())
}

/// The changes of a range, from the log.
pub(super) struct LogSource {
    shared: Arc<Shared>,
    range: KeyRange,
    news: watch::Receiver<News>,
    /// Everything up to this has been told or does not concern the range.
    after: Revision,
    /// What of the last group has not been told yet, the next last.
    left: Vec<Changes>,
}

impl LogSource {
    pub(super) fn new(shared: Arc<Shared>, range: KeyRange, after: Revision) -> Self {
        Self {
            news: shared.log.news(),
            shared,
            range,
            after,
            left: Vec::new(),
        }
    }

    async fn next_changes(&mut self) -> Result<Changes, MetaError> {
        loop {
            if let Some(changes) = self.left.pop() {
                return Ok(changes);
            }
            let news = *self.news.borrow_and_update();
            if news.oldest > self.after {
                let oldest = news.oldest;
                return Err(MetaError::HistoryLost { oldest });
            }
            if news.latest > self.after {
                self.read_group().await?;
                continue;
            }
            if news.is_over {
                return Err(MetaError::Closed);
            }
            self.news.changed().await.map_err(|_| MetaError::Closed)?;
        }
    }

    /// Reads the next group: from memory, or from the file by a thread that may block.
    async fn read_group(&mut self) -> Result<(), MetaError> {
        let after = self.after;
        if let Some(group) = self.shared.log.remembered(after) {
            let changes = group.changes.iter();
            self.take(
                group.last,
                changes.filter_map(|changes| self.wanted(changes)).collect(),
            );
            return Ok(());
        }
        let snapshot = self.shared.snapshots.latest();
        let reading = tokio::task::spawn_blocking(move || snapshot.changes(after));
        let group = reading.await.map_err(|_| MetaError::Closed)??;
        // What was struck since the news were read, the snapshot knows.
        if let Some((last, changes)) = group {
            let wanted = changes.iter().filter_map(|changes| self.wanted(changes));
            self.take(last, wanted.collect());
        }
        Ok(())
    }

    fn take(&mut self, last: Revision, mut changes: Vec<Changes>) {
        changes.reverse();
        self.left = changes;
        self.after = last;
    }

    /// What of these changes is in the range and was not told.
    fn wanted(&self, changes: &Changes) -> Option<Changes> {
        let is_wanted = |changed: &&crate::Changed| self.range.contains(changed.key());
        let changed: Vec<_> = changes.changed.iter().filter(is_wanted).cloned().collect();
        (changes.revision > self.after && !changed.is_empty()).then_some(Changes {
            revision: changes.revision,
            changed,
        })
    }
}

impl Source for LogSource {
    fn next(&mut self) -> Answer<'_, Changes> {
        Box::pin(self.next_changes())
    }
}
