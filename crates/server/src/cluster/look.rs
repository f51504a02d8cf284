//! Looking after the servers that have joined: whether they are there, and how they are.

use super::far::Far;
use super::{AwayError, Cluster};
use crate::background::Task;
use base::limits::{SERVER_HEARTBEAT_INTERVAL, SERVER_LOOK_TIME_MAX};
use std::sync::{Arc, Weak};
use tokio::task::JoinSet;
use wire::message::{ObjectReply, ObjectRequest};

impl Cluster {
    /// Looks at all servers at once; ends within a time.
    pub(crate) async fn look(self: &Arc<Self>) {
        let mut looking = JoinSet::new();
        for far in self.far() {
            if far.is_known() {
                let this = self.clone();
                looking.spawn(async move { this.look_at(&far).await });
            }
        }
        while let Some(looked) = looking.join_next().await {
            if let Err(panic) = looked {
                std::panic::resume_unwind(panic.into_panic());
            }
        }
    }

    async fn look_at(&self, far: &Far) {
        let asked = self.ask_anyway(far, ObjectRequest::Devices, SERVER_LOOK_TIME_MAX);
        let seen = match asked.await {
            Ok(ObjectReply::Devices(devices)) => Ok(far.on_seen(devices)),
            Ok(ObjectReply::Failed(error)) => Err(error.to_string()),
            Ok(_) => Err("the answer makes no sense".to_owned()),
            Err(AwayError::Failed(_, why)) => Err(why),
            Err(other) => Err(other.to_string()),
        };
        let server = far.server;
        match seen {
            Ok(true) => {
                self.arrivals.send_modify(|arrivals| *arrivals += 1);
                tracing::info!(%server, "a storage server is there");
            }
            Ok(false) => {}
            Err(why) => {
                if far.on_missed() {
                    tracing::warn!(%server, why, "a storage server is away");
                } else {
                    tracing::debug!(%server, why, "a storage server is still away");
                }
            }
        }
    }

    /// How many servers have joined, and how many of them are there.
    fn count(&self) -> (usize, usize) {
        let far = self.far();
        let here = far.iter().filter(|far| far.is_here()).count();
        (far.len(), here)
    }
}

/// Begins to look after the servers, for as long as they are somebody's.
pub(crate) fn start(task: Arc<Task>, cluster: &Arc<Cluster>) {
    let weak = Arc::downgrade(cluster);
    cluster.runtime.spawn(run(task, weak));
}

async fn run(task: Arc<Task>, cluster: Weak<Cluster>) {
    loop {
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        cluster.look().await;
        task.add(1);
        let (all, here) = cluster.count();
        task.set_state(format!("{here} of {all} that have joined are there"));
        let news = cluster.news.notified();
        let _ = tokio::time::timeout(SERVER_HEARTBEAT_INTERVAL, news).await;
    }
}
