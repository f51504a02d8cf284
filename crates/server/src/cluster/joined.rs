//! A server that has joined: it makes itself known to the manager, and knows whom the manager
//! knows.
//!
//! The manager's list of credentials is copied here and kept over restarts. So clients are let in
//! while the manager is away, and whoever was revoked is kept out within a moment while it is
//! there. A credential that is not in the copy is looked for at the manager before it is refused:
//! it may be a minute old.

use super::{Elsewhere, Line};
use crate::background::Task;
use crate::core::{Core, Ending};
use crate::data::DataDirectory;
use base::limits::{SERVER_ANSWER_TIME_MAX, SERVER_HEARTBEAT_INTERVAL, SERVER_LOOK_TIME_MAX};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use wire::identity::Credential;
use wire::message::{
    AdminReply, AdminRequest, ClusterReply, ClusterRequest, CredentialKind, Farewell, Registration,
    Reply, Request, SharedKey,
};

/// How often the list is looked at for a credential that is not in it. Strangers may come as often
/// as they like.
const LOOK_AGAIN_TIME: Duration = Duration::from_millis(500);

/// How often the managers are asked for, in times that this server makes itself known.
const LEARN_EVERY: u64 = 5;

/// See the module's head.
pub(crate) struct Member {
    line: Arc<dyn Line>,
    credential: Arc<Credential>,
    addresses: Vec<String>,
    copied: Mutex<Copied>,
    managers: std::sync::Mutex<Managers>,
}

/// What is known of the managers.
struct Managers {
    /// HOST:PORT of all of them.
    addresses: Vec<String>,
    /// The latest epoch of which one has led.
    epoch: u64,
}

/// What was copied.
#[derive(Default)]
struct Copied {
    /// The manager's number for it.
    changes: Option<u64>,
    looked: Option<Instant>,
}

impl Member {
    pub(crate) fn new(line: Arc<dyn Line>, data: &DataDirectory, addresses: Vec<String>) -> Self {
        Self {
            line,
            credential: Arc::new(data.server.clone()),
            addresses,
            copied: Mutex::default(),
            managers: std::sync::Mutex::new(Managers {
                addresses: data.managers.clone(),
                epoch: data.managers_epoch,
            }),
        }
    }

    fn managers(&self) -> std::sync::MutexGuard<'_, Managers> {
        self.managers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a manager that led at this epoch is obeyed: not after a later one. Those before are
    /// sent away. Blocks for a moment, if it is the first of its epoch.
    pub(crate) fn obeys(&self, core: &Arc<Core>, epoch: u64) -> bool {
        {
            let mut managers = self.managers();
            if epoch <= managers.epoch {
                return epoch == managers.epoch;
            }
            if let Err(error) = core.data.note_managers(&managers.addresses, epoch) {
                tracing::error!(%error, "a manager's epoch is not noted");
                return false;
            }
            managers.epoch = epoch;
        }
        for session in core.sessions.list() {
            let before = |kind| matches!(kind, CredentialKind::Manager { epoch: of } if of < epoch);
            if before(session.peer.kind) {
                core.end_session(&session, Ending::Broken(Farewell::Unauthenticated));
            }
        }
        tracing::info!(epoch, "another manager leads");
        true
    }

    /// Asks which managers there are.
    async fn learn(&self, core: &Arc<Core>) -> Result<(), String> {
        let request = Request::Cluster(ClusterRequest::Managers);
        let Reply::Cluster(ClusterReply::Managers(all)) =
            self.ask(request, SERVER_LOOK_TIME_MAX).await?
        else {
            return Err("the manager's answer makes no sense".to_owned());
        };
        let addresses: Vec<String> = all.into_iter().flat_map(|of| of.addresses).collect();
        let core = core.clone();
        let noting = tokio::task::spawn_blocking(move || {
            let Some(this) = &core.member else {
                return Ok(());
            };
            let mut managers = this.managers();
            if addresses.is_empty() || managers.addresses == addresses {
                return Ok(());
            }
            core.data.note_managers(&addresses, managers.epoch)?;
            tracing::info!(?addresses, "managers are known");
            managers.addresses = addresses;
            Ok(())
        });
        let noted: Result<(), crate::data::DataError> = noting
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        noted.map_err(|error| error.to_string())
    }

    /// Begins to make itself known, for as long as the server runs.
    pub(crate) fn start(task: Arc<Task>, core: &Arc<Core>) {
        core.runtime.spawn(run(task, Arc::downgrade(core)));
    }

    async fn ask(&self, request: Request, time_max: Duration) -> Result<Reply, String> {
        let to = Elsewhere {
            server: None,
            addresses: self.managers().addresses.clone(),
            credential: self.credential.clone(),
        };
        let asked = self.line.ask(to, request, time_max);
        match asked.await? {
            Reply::Refused(refusal) => Err(refusal.to_string()),
            reply => Ok(reply),
        }
    }

    /// Says how this server is reached, and looks whether the list has changed.
    async fn register(&self, core: &Arc<Core>) -> Result<(), String> {
        let (key_id, key, epoch) = core.storage.shared_key();
        let registration = Registration {
            addresses: self.addresses.clone(),
            epoch,
            key_id,
            key: SharedKey(key),
        };
        let request = Request::Cluster(ClusterRequest::Register(registration));
        match self.ask(request, SERVER_LOOK_TIME_MAX).await? {
            Reply::Cluster(ClusterReply::Registered { credentials }) => {
                self.copy(core, credentials).await
            }
            Reply::Cluster(ClusterReply::Failed(why)) => Err(why),
            _ => Err("the manager's answer makes no sense".to_owned()),
        }
    }

    /// Copies the list if it is another one than was copied last.
    async fn copy(&self, core: &Arc<Core>, changes: u64) -> Result<(), String> {
        let mut copied = self.copied.lock().await;
        if copied.changes == Some(changes) {
            return Ok(());
        }
        let mut all = Vec::new();
        loop {
            let skip = u32::try_from(all.len()).unwrap_or(u32::MAX);
            let request = Request::Admin(AdminRequest::CredentialList { skip });
            match self.ask(request, SERVER_ANSWER_TIME_MAX).await? {
                Reply::Admin(AdminReply::Credentials { list, more }) => {
                    let is_over = list.is_empty() || !more;
                    all.extend(list);
                    if is_over {
                        break;
                    }
                }
                Reply::Admin(AdminReply::Failed { message, .. }) => return Err(message),
                _ => return Err("the manager's answer makes no sense".to_owned()),
            }
        }
        let (this, count) = (core.clone(), all.len());
        let replaced = tokio::task::spawn_blocking(move || {
            let refused = this.registry().replace_credentials(all);
            let refused = refused.map_err(|error| error.to_string())?;
            for session in this.sessions.list() {
                if refused.contains(&session.peer.serial) {
                    this.end_session(&session, Ending::Broken(Farewell::Unauthenticated));
                }
            }
            Ok::<(), String>(())
        });
        replaced
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        tracing::debug!(count, "the list of credentials is copied");
        copied.changes = Some(changes);
        Ok(())
    }

    /// Somebody comes with a credential that is not in the list: it may be new.
    pub(crate) async fn look_again(&self, core: &Arc<Core>) {
        {
            let mut copied = self.copied.lock().await;
            let is_recent = |looked: Instant| looked.elapsed() < LOOK_AGAIN_TIME;
            if copied.looked.is_some_and(is_recent) {
                return;
            }
            copied.looked = Some(Instant::now());
        }
        if let Err(why) = self.register(core).await {
            tracing::debug!(why, "the manager cannot be asked about a credential");
        }
    }
}

async fn run(task: Arc<Task>, core: Weak<Core>) {
    let mut was_known = true;
    for beat in 0u64.. {
        {
            let Some(core) = core.upgrade() else { return };
            let Some(member) = &core.member else { return };
            match member.register(&core).await {
                Ok(()) => {
                    if beat.is_multiple_of(LEARN_EVERY)
                        && let Err(why) = member.learn(&core).await
                    {
                        tracing::debug!(why, "the managers are not known");
                    }
                    if !was_known {
                        tracing::info!("the manager is there again");
                    }
                    was_known = true;
                    task.add(1);
                    task.set_state("the manager knows this server");
                }
                Err(why) => {
                    if was_known {
                        tracing::warn!(why, "the manager cannot be told of this server");
                    }
                    was_known = false;
                    task.set_state(format!("the manager cannot be told: {why}"));
                }
            }
        }
        tokio::time::sleep(SERVER_HEARTBEAT_INTERVAL).await;
    }
}
