//! The role of a manager: who may have how much of which device when.
//!
//! # Design
//!
//! ```text
//! connection ─► Manager (a handle): a bounded queue ─► one thread that owns everything     desk
//!                                                        │  batch of questions
//!                      ┌─────────────────────────────────┤
//!                      ▼                                 ▼
//!                    book: rows, calendars             errands: a thread that asks storage
//!                      │  planner: which devices         servers for space, tickets, records
//!                      ▼
//!                    one transaction of the metadata engine for the whole batch: then answers
//! ```
//!
//! * **One owner.** The thread of the manager owns the book and decides one question after the
//!   other; it has a small runtime of its own for the engine, with a second thread that keeps the
//!   seat whatever this one computes. Nothing else locks or changes the book.
//! * **Memory first, then the ledger, then the answer.** A batch changes the book, goes to the
//!   engine in one transaction, and is answered when that is durable. If it cannot be made durable,
//!   the book goes back and nobody was told. If it is not known whether it was, the manager gives
//!   up its seat and reads the ledger anew before it says anything.
//! * **The ledger is rows.** One entry for each reservation has all that a manager knows of it. The
//!   calendars, the tickets and their numbers follow from the rows, so whoever reads them comes to
//!   the same calendar, and a manager that was killed is replaced by reading.
//! * **Space is the stores' to say.** The manager writes down that it is about to ask (`Pending`),
//!   asks the stores, and writes down that they have said yes (`Held`). A run that ends in between
//!   has told nobody; the next one gives that space back. Giving back goes the other way round: a
//!   row is `Leaving` until the last store has done it.
//! * **Data never passes here,** and a server judges a ticket alone. While the manager is down,
//!   tickets go on; only new questions wait.
//! * **One manager at a time.** Every transaction is guarded by the epoch of its seat, so one that
//!   has lost it cannot write any more, whatever it believes.
//!
//! | file | owns |
//! |---|---|
//! | `answers` | what is answered when something is refused |
//! | `record` | rows: their bytes, and what follows from one |
//! | `ask` | which questions and rows make sense |
//! | `plan` | which devices carry it; what would fit instead |
//! | `book` | all rows, with the calendars |
//! | `ledger` | rows in the metadata engine |
//! | `desk`, `reign` | questions and answers; the thread, its seat |
//! | `desk::back` | what errands came to |
//! | `desk::again` | what is done again, and when |
//! | `desk::renew` | the next ticket for who has one |
//! | `errands`, `servers` | what storage servers are asked for |
//! | `report` | what was delivered |
//! | `door` | what comes from a connection: who asks, about which volume |

mod answers;
mod ask;
mod book;
mod desk;
mod door;
mod errands;
mod ledger;
mod plan;
mod record;
mod reign;
mod report;
mod servers;
#[cfg(test)]
mod tests;

pub(crate) use door::answer;
pub use ledger::LedgerError;
pub use record::MANAGER_FORMAT_VERSION;
pub use reign::{ManagerError, Open, Opening};

use crate::cluster::Cluster;
use crate::lead::Lead;
use crate::storage::Storage;
use answers::failure;
use base::limits::{META_SEAT_TIME, RESERVE_QUEUE_MAX, RESERVE_TIME_MAX};
use base::{ServerId, StoreId, VolumeId};
use desk::{Asked, Asker, Place, Question};
use meta::{Embedded, Engine, Etcd};
pub(crate) use plan::PlanDevice;
use reign::{CAMPAIGN_TIME, Reign};
use servers::Servers;
pub(crate) use servers::{StorageServers, Trouble};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use wire::message::{ReservationSummary, ReserveError, ReserveReply, ReserveRequest, ReserveState};

/// Name of the ledger's file in the data directory.
const LEDGER: &str = "ledger.redb";

/// What a calendar is kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    /// The time of a store's device, in millionths.
    Device(StoreId),
    /// A server's network, in bytes a second.
    Line(ServerId),
}

/// A handle on the manager of this process. See the module's head.
pub struct Manager(Mutex<Option<At>>);

/// A manager at work.
struct At {
    questions: mpsc::Sender<Question>,
    thread: JoinHandle<()>,
}

impl Manager {
    /// Starts the manager of a server; none if it has no store, and never had one to promise of.
    /// Blocks until the ledger was read.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub(crate) fn open(
        directory: &Path,
        cluster: &Arc<Cluster>,
        lead: Option<&Arc<Lead>>,
    ) -> Result<Self, ManagerError> {
        if let Some(lead) = lead {
            let address = lead.address.clone();
            let open: Open = Box::new(move || {
                let options = address.options();
                Box::pin(async move { Ok(Etcd::open(options).await? as Arc<dyn Engine>) })
            });
            let holder = cluster.own().server().to_string();
            // The one before has it for as long as the seat from which it led.
            return Self::start(open, cluster.clone(), holder, META_SEAT_TIME);
        }
        let is_new = !directory.join(LEDGER).exists();
        if cluster.devices().is_empty() && is_new {
            return Ok(Self::none());
        }
        Self::of_cluster(directory, cluster)
    }

    /// Starts a manager that was not needed so far, because there was nothing to reserve. Blocks.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub(crate) fn begin(
        &self,
        directory: &Path,
        cluster: &Arc<Cluster>,
    ) -> Result<(), ManagerError> {
        let mut at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_none() {
            let begun = Self::of_cluster(directory, cluster)?;
            let mut begun = begun.0.lock().unwrap_or_else(PoisonError::into_inner);
            *at = begun.take();
        }
        Ok(())
    }

    fn of_cluster(directory: &Path, cluster: &Arc<Cluster>) -> Result<Self, ManagerError> {
        let path = directory.join(LEDGER);
        let open: Open = Box::new(move || {
            let path = path.clone();
            Box::pin(async move { Ok(Embedded::open(path).await? as Arc<dyn Engine>) })
        });
        let holder = cluster.own().server().to_string();
        Self::start(open, cluster.clone(), holder, CAMPAIGN_TIME)
    }

    /// None: this server promises nothing.
    pub(crate) fn none() -> Self {
        Self(Mutex::new(None))
    }

    /// A manager of one server's stores on any engine, for who embeds one or measures it; `holder`
    /// is how it calls itself to others that want its seat. Blocks as [`Self::open`].
    ///
    /// # Errors
    /// [`ManagerError`].
    pub fn on_engine(
        open: Open,
        storage: Arc<Storage>,
        holder: &str,
    ) -> Result<Self, ManagerError> {
        Self::start(open, storage, holder.to_owned(), CAMPAIGN_TIME)
    }

    /// Asks as an administrator, for a user, about objects that belong to no volume.
    pub async fn reserve(&self, uid: u32, request: ReserveRequest) -> ReserveReply {
        let who = Asker {
            is_admin: true,
            uid,
        };
        self.ask(who, VolumeId([0; 16]), request).await
    }

    /// Starts a manager on an engine; blocks until the ledger was read, or somebody else has the
    /// seat.
    pub(crate) fn start(
        open: Open,
        servers: Servers,
        holder: String,
        campaign_time: Duration,
    ) -> Result<Self, ManagerError> {
        let (sender, questions) = mpsc::channel(RESERVE_QUEUE_MAX);
        let (told, begun) = std::sync::mpsc::channel();
        let reign = Reign {
            open,
            servers,
            holder,
            campaign_time,
            questions,
        };
        let thread = std::thread::Builder::new()
            .name("manager".to_owned())
            .spawn(move || reign.run(&told))
            .map_err(ManagerError::Thread)?;
        // It says something before it ends, unless it panics.
        let begun = begun.recv().unwrap_or_else(|_| {
            let why = std::io::Error::other("the manager ended by a panic");
            Err(ManagerError::Thread(why))
        });
        begun?;
        Ok(Self(Mutex::new(Some(At {
            questions: sender,
            thread,
        }))))
    }

    /// Whether somebody may reserve at all.
    async fn may_reserve(&self, who: Asker) -> bool {
        if who.is_admin {
            return true;
        }
        match self
            .ask(who, VolumeId([0; 16]), ReserveRequest::Limits)
            .await
        {
            ReserveReply::Limits(limits) => limits.users.contains(&who.uid),
            _ => false,
        }
    }

    /// The names of the reservations of a volume that are not over, those that are being confirmed,
    /// too; some of them if there are many.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) async fn live_of(&self, volume: VolumeId) -> Result<Vec<String>, String> {
        if self.sender().is_none() {
            return Ok(Vec::new());
        }
        let who = Asker {
            is_admin: true,
            uid: 0,
        };
        let mut after = None;
        loop {
            let kept = self.put(who, volume.into(), Asked::Kept { after });
            let (list, more) = match kept.await {
                ReserveReply::Reservations { list, more } => (list, more),
                ReserveReply::Failed { message, .. } => return Err(message),
                other => return Err(format!("{other:?}")),
            };
            let is_live = |one: &&ReservationSummary| {
                matches!(one.state, ReserveState::Planned | ReserveState::Active)
            };
            let live: Vec<_> = list.iter().filter(is_live).collect();
            if !live.is_empty() || !more {
                return Ok(live.into_iter().map(|one| one.name.clone()).collect());
            }
            after = list.last().map(|one| one.id);
        }
    }

    fn sender(&self) -> Option<mpsc::Sender<Question>> {
        let at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.as_ref().map(|at| at.questions.clone())
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask(
        &self,
        who: Asker,
        place: impl Into<Place>,
        request: ReserveRequest,
    ) -> ReserveReply {
        self.put(who, place.into(), Asked::Request(request)).await
    }

    async fn put(&self, who: Asker, place: Place, request: Asked) -> ReserveReply {
        let Some(sender) = self.sender() else {
            let why = "this server has no store that could be reserved";
            return failure(ReserveError::Unreservable, why);
        };
        let (reply, answer) = oneshot::channel();
        let question = Question {
            who,
            place,
            request,
            reply,
        };
        if sender.try_send(question).is_err() {
            return failure(ReserveError::Unavailable, "the manager is busy or stopping");
        }
        drop(sender);
        match tokio::time::timeout(RESERVE_TIME_MAX, answer).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => failure(ReserveError::Unavailable, "the manager is stopping"),
            // Asked again with the same number, it is answered as if it were the first time.
            Err(_) => failure(ReserveError::Unavailable, "no answer in time; ask again"),
        }
    }

    /// Ends it in order: what was asked is answered. Blocks.
    pub(crate) fn stop(&self) {
        let at = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(At { questions, thread }) = at {
            drop(questions);
            if thread.join().is_err() {
                tracing::error!("the manager ended by a panic");
            }
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.stop();
    }
}
