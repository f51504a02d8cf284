//! Storage servers of other machines: who they are, how they are, what they are asked.
//!
//! # Design
//!
//! ```text
//! manager                                             server that has joined
//!   members (servers.toml) <-- Register, every 2 s --   member
//!   Cluster: one Far each  --- Devices, every 2 s -->   storage
//!   tree::stores, manager::errands -- cuts, space, tickets -->
//! ```
//! A server and a client are on one floor and cannot know each other, so who starts a server gives
//! it a [`Line`]: a way to ask another server of the cluster something, within a time. Everything
//! above it is here: what is asked, how often, and what an answer means.
//!
//! Whether a server is there is what the last look at it said. One that is away is not asked at
//! all: what it should do fails at once and is done later by whoever wanted it, so nothing waits
//! for it time and again. What it has promised stays promised.

mod door;
mod far;
mod joined;
mod look;
mod manager;
mod objects;

pub(crate) use door::answer;
pub(crate) use far::StoreDevice;
pub(crate) use joined::Member as JoinedMember;
pub(crate) use look::start;
pub(crate) use objects::{Act, ActError};

use crate::data::Member;
use crate::storage::Storage;
use base::limits::TICKET_CLOCK_ERROR_MAX;
use base::ticket::{Grant, Place, Ticket, TicketError, verify};
use base::{ServerId, Time, WriteVerifier};
use far::Far;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Notify, watch};
use wire::identity::Credential;
use wire::message::{ObjectReply, ObjectRequest, Reply, Request, ServerSummary, StoreSummary};

/// An answer that is on its way.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Reply, String>> + Send + 'a>>;

/// Where another server of the cluster is, and as whom it is asked.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Which storage server; none for the manager.
    pub server: Option<ServerId>,
    /// HOST:PORT, to be tried one after the other.
    pub addresses: Vec<String>,
    /// Of the server that asks.
    pub credential: Arc<Credential>,
}

/// A way to ask other servers of the cluster. See the module's head.
pub trait Line: Send + Sync + std::fmt::Debug {
    /// Asks a server that proves to be the one that is meant; in words, why there is no answer.
    /// Ends within `time_max`. What was asked may have been done all the same.
    fn ask(&self, to: Elsewhere, request: Request, time_max: Duration) -> Answer<'_>;
}

/// Why another server has not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AwayError {
    /// Nobody of this identity has joined.
    #[error("there is no storage server {0}")]
    Unknown(ServerId),
    /// It was not there when it was last looked at.
    #[error("storage server {0} is away")]
    Away(ServerId),
    /// In words.
    #[error("storage server {0}: {1}")]
    Failed(ServerId, String),
}

/// This server's storage, and all storage servers that have joined if it is the manager.
pub(crate) struct Cluster {
    own: Arc<Storage>,
    line: Option<Arc<dyn Line>>,
    /// As whom others are asked.
    credential: OnceLock<Arc<Credential>>,
    runtime: Runtime,
    far: RwLock<BTreeMap<ServerId, Arc<Far>>>,
    /// Counts servers that have come or come back.
    arrivals: watch::Sender<u64>,
    /// A server has made itself known.
    news: Notify,
}

impl Cluster {
    pub(crate) fn new(own: Arc<Storage>, line: Option<Arc<dyn Line>>, runtime: Runtime) -> Self {
        Self {
            own,
            line,
            credential: OnceLock::new(),
            runtime,
            far: RwLock::default(),
            arrivals: watch::Sender::new(0),
            news: Notify::new(),
        }
    }

    /// From now on, others are asked as this.
    pub(crate) fn set_credential(&self, credential: Credential) {
        let _ = self.credential.set(Arc::new(credential));
    }

    /// The storage of this process.
    pub(crate) fn own(&self) -> &Arc<Storage> {
        &self.own
    }

    /// The time by which windows are judged.
    pub(crate) fn now(&self) -> Time {
        self.own.now()
    }

    /// A server has joined, or says something new of itself.
    pub(crate) fn know(&self, member: Member) {
        let mut all = self.far.write().unwrap_or_else(PoisonError::into_inner);
        let far = all
            .entry(member.server)
            .or_insert_with(|| Arc::new(Far::new(&member)));
        far.know(member);
        drop(all);
        self.news.notify_one();
    }

    fn far(&self) -> Vec<Arc<Far>> {
        let all = self.far.read().unwrap_or_else(PoisonError::into_inner);
        all.values().cloned().collect()
    }

    fn find(&self, server: ServerId) -> Result<Arc<Far>, AwayError> {
        let all = self.far.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&server).cloned().ok_or(AwayError::Unknown(server))
    }

    /// Judges a ticket that is for a server which has joined, by that one's key; none if it is not.
    pub(crate) fn judge(&self, ticket: &[u8]) -> Option<Result<Grant, TicketError>> {
        let head = *Ticket::from_bytes(ticket).ok()?.head();
        let far = self.find(head.server).ok()?;
        let (key, _) = far.key()?;
        let place = Place {
            cluster: self.own.place().cluster,
            server: far.server,
        };
        let (now, error) = (self.now(), TICKET_CLOCK_ERROR_MAX);
        Some(verify(ticket, &[key], &place, now, error, |_, _| false))
    }

    /// Another number than before if servers have come or come back since.
    pub(crate) fn arrivals(&self) -> u64 {
        *self.arrivals.borrow()
    }

    /// Tells of servers that come or come back from now on.
    pub(crate) fn when_arrived(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    /// All storage servers, for whoever asks.
    pub(crate) fn summaries(&self) -> Vec<ServerSummary> {
        let own = self.own.summaries(false);
        let sum = |of: fn(&StoreSummary) -> u64| own.iter().map(of).sum();
        let here = ServerSummary {
            server: self.own.server(),
            label: String::new(),
            addresses: Vec::new(),
            is_here: true,
            seconds_away: None,
            stores: u32::try_from(own.len()).unwrap_or(u32::MAX),
            bytes: sum(|store| store.au_bytes * store.au_count),
            bytes_free: sum(|store| store.au_bytes * store.au_free),
        };
        let now = Instant::now();
        let far = self.far().into_iter().map(|far| far.summary(now));
        std::iter::once(here).chain(far).collect()
    }

    /// The stores of one server as they were last seen.
    pub(crate) fn stores_of(&self, server: ServerId) -> Option<Vec<StoreSummary>> {
        match server == self.own.server() {
            true => Some(self.own.summaries(true)),
            false => Some(self.find(server).ok()?.stores()),
        }
    }

    /// Asks a server that is not known to be away.
    async fn ask(&self, far: &Far, request: ObjectRequest) -> Result<ObjectReply, AwayError> {
        let server = far.server;
        // In this order: it is not missed if it is away in between.
        let gone = far.when_gone();
        if !far.is_here() {
            return Err(AwayError::Away(server));
        }
        let time_max = base::limits::SERVER_ANSWER_TIME_MAX;
        let asked = self.ask_anyway(far, request, time_max);
        tokio::select! {
            biased;
            answer = asked => answer,
            () = gone => Err(AwayError::Failed(server, "it is away since".to_owned())),
        }
    }

    async fn ask_anyway(
        &self,
        far: &Far,
        request: ObjectRequest,
        time_max: Duration,
    ) -> Result<ObjectReply, AwayError> {
        let server = far.server;
        let failed = |why: &str| AwayError::Failed(server, why.to_owned());
        let line = self.line.as_ref().ok_or_else(|| failed("no way there"))?;
        let credential = self
            .credential
            .get()
            .ok_or_else(|| failed("no credential"))?;
        let to = Elsewhere {
            server: Some(server),
            addresses: far.addresses(),
            credential: credential.clone(),
        };
        let reply = line.ask(to, Request::Object(request), time_max).await;
        match reply.map_err(|why| AwayError::Failed(server, why))? {
            Reply::Object(reply) => Ok(reply),
            Reply::Refused(refusal) => Err(AwayError::Failed(server, refusal.to_string())),
            _ => Err(failed("the answer makes no sense")),
        }
    }

    /// As [`Self::ask`]; blocks, and not within a task.
    fn ask_blocking(&self, far: &Far, request: ObjectRequest) -> Result<ObjectReply, AwayError> {
        self.runtime.block_on(self.ask(far, request))
    }
}

/// What was done at another server, in which of its runs.
type Run = WriteVerifier;
