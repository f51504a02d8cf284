//! A manager that is killed at every commit of its engine, on a real store.
//!
//! The engine is one in a file behind a door that closes after some commits: either before the
//! next one is carried out, or after, without an answer. Then a new manager reads the ledger, and
//! who asked asks again. Whatever the moment: what was answered holds, and at the end everything
//! is as if nothing had happened.

use super::super::Manager;
use super::super::desk::Asker;
use super::super::plan::PlanDevice;
use super::super::reign::Open;
use super::super::servers::{StorageServers, StoreAt, Trouble};
use super::world::{MIB, VOLUME, terms};
use crate::storage::{Opening, SpaceRequest, SpaceTrial, Storage, Totals};
use base::ticket::{Head, Terms, Ticket};
use base::{ClusterId, ServerId, StoreId, TicketId, Time};
use meta::{
    Answer, Committed, Embedded, Engine, Entry, KeyRange, Leader, Leadership, MetaError, Page,
    Revision, Status, Transaction, TransactionId, Watch,
};
use reservation::Moment;
use reservation::scheduler::TicketSecond;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::message::{
    ReserveError, ReserveName, ReserveReply, ReserveRequest, ReserveState, ReserveTerms,
};

/// A storage server whose store counts as measured.
pub(super) struct Measured {
    storage: Arc<Storage>,
    /// What was asked of its stores about space, in order.
    pub(super) asked: Mutex<Vec<&'static str>>,
    /// What it answers when it is asked whether it has space, in place of its store.
    pub(super) trouble: Mutex<Option<Trouble>>,
    /// How long it takes to say what devices it has, the next time.
    pub(super) delay: Mutex<Duration>,
}

impl Measured {
    pub(super) fn new(storage: &Arc<Storage>) -> Arc<Self> {
        Arc::new(Self {
            storage: storage.clone(),
            asked: Mutex::default(),
            trouble: Mutex::default(),
            delay: Mutex::default(),
        })
    }

    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
}

impl StorageServers for Measured {
    fn now(&self) -> Time {
        self.storage.now()
    }

    fn devices(&self) -> Vec<PlanDevice> {
        std::thread::sleep(std::mem::take(&mut *self.delay.lock().unwrap()));
        let mut devices = StorageServers::devices(&*self.storage);
        devices
            .iter_mut()
            .for_each(|device| device.is_measured = true);
        devices
    }

    fn issue(&self, server: ServerId, head: &Head, terms: &Terms) -> Option<Ticket> {
        StorageServers::issue(&*self.storage, server, head, terms)
    }

    fn try_space(&self, at: StoreAt, trial: &SpaceTrial) -> Result<(), Trouble> {
        self.note("try");
        match self.trouble.lock().unwrap().clone() {
            Some(trouble) => Err(trouble),
            None => StorageServers::try_space(&*self.storage, at, trial),
        }
    }

    fn confirm(&self, at: StoreAt, request: &SpaceRequest) -> Result<(), Trouble> {
        self.note("confirm");
        self.storage.confirm(at, request)
    }

    fn extend(&self, at: StoreAt, ticket: TicketId, end: Moment) -> Result<(), Trouble> {
        self.storage.extend(at, ticket, end)
    }

    fn release(&self, at: StoreAt, ticket: TicketId) -> Result<(), Trouble> {
        self.note("release");
        self.storage.release(at, ticket)
    }

    fn used(&self, at: StoreAt, ticket: TicketId) -> Result<Option<(u64, u64)>, Trouble> {
        self.storage.used(at, ticket)
    }

    fn revoke(&self, server: ServerId, tickets: &[(TicketId, u64)]) -> Result<(), Trouble> {
        StorageServers::revoke(&*self.storage, server, tickets)
    }

    fn seconds(
        &self,
        at: StoreAt,
        ticket: TicketId,
        from_second: u64,
    ) -> Result<Option<(Vec<TicketSecond>, Totals)>, Trouble> {
        StorageServers::seconds(&*self.storage, at, ticket, from_second)
    }
}

/// What becomes of the commit at which a door closes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    Early,
    /// It is carried out.
    Late,
    /// It is refused, and those after it are not.
    Once,
}

/// An engine that answers so many commits and no more.
pub(super) struct Door {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) left: Arc<AtomicI64>,
    pub(super) closing: Closing,
}

impl Engine for Door {
    fn get<'a>(&'a self, key: &'a [u8]) -> Answer<'a, (Option<Entry>, Revision)> {
        self.engine.get(key)
    }

    fn range<'a>(
        &'a self,
        range: &'a KeyRange,
        entries_max: usize,
        at: Option<Revision>,
    ) -> Answer<'a, Page> {
        self.engine.range(range, entries_max, at)
    }

    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        Box::pin(async move {
            let is_open = left > 0 || left < 0 && self.closing == Closing::Once;
            if is_open {
                return self.engine.commit(transaction).await;
            }
            if self.closing == Closing::Once {
                return Err(MetaError::Unavailable("not now".to_owned()));
            }
            if left == 0 && self.closing == Closing::Late {
                self.engine.commit(transaction).await?;
            }
            Err(MetaError::Poisoned("the power is off".to_owned()))
        })
    }

    fn outcome(&self, transaction: TransactionId) -> Answer<'_, Committed> {
        self.engine.outcome(transaction)
    }

    fn watch<'a>(&'a self, range: &'a KeyRange, after: Revision) -> Answer<'a, Watch> {
        self.engine.watch(range, after)
    }

    fn lead<'a>(&'a self, seat: &'a str, holder: &'a str) -> Answer<'a, Leadership> {
        Box::pin(async move {
            // Who is dead does not come back.
            if self.left.load(Ordering::SeqCst) < 0 && self.closing != Closing::Once {
                return Err(MetaError::Closed);
            }
            self.engine.lead(seat, holder).await
        })
    }

    fn leader<'a>(&'a self, seat: &'a str) -> Answer<'a, Option<Leader>> {
        self.engine.leader(seat)
    }

    fn depose<'a>(&'a self, seat: &'a str, epoch: Revision) -> Answer<'a, ()> {
        self.engine.depose(seat, epoch)
    }

    fn status(&self) -> Answer<'_, Status> {
        self.engine.status()
    }
}

pub(super) fn start(
    directory: &Path,
    storage: &Arc<Storage>,
    left: &Arc<AtomicI64>,
    is_late: bool,
) -> Manager {
    start_with(directory, Measured::new(storage), left, is_late)
}

pub(super) fn start_with(
    directory: &Path,
    servers: Arc<Measured>,
    left: &Arc<AtomicI64>,
    is_late: bool,
) -> Manager {
    let path = directory.join("ledger");
    let left = left.clone();
    let closing = match is_late {
        true => Closing::Late,
        false => Closing::Early,
    };
    let open: Open = Box::new(move || {
        let (path, left) = (path.clone(), left.clone());
        Box::pin(async move {
            let engine: Arc<dyn Engine> = Embedded::open(path).await?;
            Ok(Arc::new(Door {
                engine,
                left,
                closing,
            }) as Arc<dyn Engine>)
        })
    });
    Manager::start(
        open,
        servers,
        "test".to_owned(),
        super::super::CAMPAIGN_TIME,
    )
    .unwrap()
}

fn ask(manager: &Manager, request: ReserveRequest) -> ReserveReply {
    let who = Asker {
        is_admin: true,
        uid: 1000,
    };
    ask_as(manager, who, request)
}

pub(super) fn ask_as(manager: &Manager, who: Asker, request: ReserveRequest) -> ReserveReply {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(manager.ask(who, VOLUME, request))
}

pub(super) fn which(name: &str) -> ReserveName {
    ReserveName {
        volume: String::new(),
        name: name.to_owned(),
    }
}

pub(super) fn create(number: u8, terms: ReserveTerms) -> ReserveRequest {
    ReserveRequest::Create {
        request: [number; 16],
        volume: String::new(),
        name: format!("run{number}"),
        terms,
        dry_run: false,
    }
}

/// What somebody does, in order; all windows are in the future.
fn script(now: u64) -> Vec<ReserveRequest> {
    let at = |start, end| terms(20, now + start, now + end);
    let mut with_space = at(1000, 1100);
    with_space.space_bytes = 2 * MIB;
    let mut daily = at(2000, 2100);
    (daily.every_secs, daily.count, daily.space_bytes) = (86_400, 3, MIB);
    vec![
        create(1, at(1000, 1100)),
        create(2, with_space.clone()),
        create(3, daily),
        ReserveRequest::Extend {
            which: which("run1"),
            end_secs: now + 1200,
            dry_run: false,
        },
        ReserveRequest::Extend {
            which: which("run2"),
            end_secs: now + 1150,
            dry_run: false,
        },
        ReserveRequest::Release {
            which: which("run1"),
            dry_run: false,
        },
        create(4, with_space),
        ReserveRequest::Cancel {
            which: which("run2"),
            discard: false,
            dry_run: false,
        },
    ]
}

/// Whether it was done, now or when it was asked before.
fn is_done(request: &ReserveRequest, reply: &ReserveReply) -> bool {
    let is_failure = |wanted| matches!(reply, ReserveReply::Failed { code, .. } if *code == wanted);
    match request {
        ReserveRequest::Release { .. } if is_failure(ReserveError::Over) => true,
        // It was cancelled when it was asked for the first time.
        ReserveRequest::Cancel { .. } if is_failure(ReserveError::NotFound) => true,
        ReserveRequest::Create { .. } if is_failure(ReserveError::Over) => true,
        ReserveRequest::Extend { which, .. }
            if is_failure(ReserveError::Invalid)
                || is_failure(ReserveError::Over)
                || (which.name == "run2" && is_failure(ReserveError::NotFound)) =>
        {
            true
        }
        _ => matches!(reply, ReserveReply::Done | ReserveReply::Reserved { .. }),
    }
}

/// Names, states, windows and the space that a store has for them.
fn end(manager: &Manager, storage: &Storage, store: StoreId) -> Vec<String> {
    let ReserveReply::Reservations { list, .. } =
        ask(manager, ReserveRequest::List { after: None })
    else {
        panic!("no list");
    };
    let mut all: Vec<_> = list
        .into_iter()
        .map(|one| {
            let space = storage.space_used(store, one.id).unwrap();
            format!(
                "{} {:?} {} {space:?}",
                one.name,
                one.state,
                one.end_secs - one.start_secs
            )
        })
        .collect();
    all.sort();
    let device = storage.device(store).unwrap();
    let held = device.store.reservations(0, 100).unwrap().len();
    all.push(format!("{held} spaces"));
    all
}

/// Does the script, is killed at a commit, does it again; says how it ends, and whether it was
/// killed.
fn run(cut: i64, is_late: bool) -> (Vec<String>, bool) {
    let (directory, store) = crate::storage::with_store(16);
    let storage = Storage::open(directory.path(), ClusterId([1; 16]), &Opening::default()).unwrap();
    let now = Moment::at_or_before(storage.now()).as_secs();
    let script = script(now);
    let left = Arc::new(AtomicI64::new(cut));
    let manager = start(directory.path(), &storage, &left, is_late);
    let mut acknowledged = Vec::new();
    for request in &script {
        let reply = ask(&manager, request.clone());
        if let ReserveReply::Reserved { summary, .. } = reply {
            acknowledged.push(summary);
        }
    }
    let was_killed = left.load(Ordering::SeqCst) < 0;
    drop(manager);
    left.store(i64::MAX, Ordering::SeqCst);
    let manager = start(directory.path(), &storage, &left, false);
    if was_killed {
        for known in &acknowledged {
            let again = ask(&manager, ReserveRequest::Show(which(&known.id.to_string())));
            let ReserveReply::Reserved { summary, .. } = again else {
                // Only what was asked for next can have taken it away.
                assert_eq!(known.name, "run2", "{again:?}");
                continue;
            };
            assert_eq!(summary.slices, known.slices);
            assert!(summary.end_secs >= known.end_secs, "{summary:?}");
        }
    }
    let begin = std::time::Instant::now();
    for request in &script {
        loop {
            let reply = ask(&manager, request.clone());
            if is_done(request, &reply) {
                break;
            }
            // What the run before had begun is being cleared away.
            let waits = matches!(
                reply,
                ReserveReply::Failed {
                    code: ReserveError::Unavailable,
                    ..
                }
            );
            assert!(
                waits && begin.elapsed().as_secs() < 60,
                "{request:?}: {reply:?}"
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    let end = end(&manager, &storage, store);
    drop(manager);
    storage.stop();
    (end, was_killed)
}

#[test]
fn a_manager_that_is_killed_at_any_commit_loses_nothing_that_it_has_answered() {
    let (expected, was_killed) = run(1 << 40, false);
    assert!(!was_killed);
    assert_eq!(expected.len(), 4, "{expected:?}");
    assert!(
        expected
            .iter()
            .any(|one| one.contains(&format!("{:?}", ReserveState::Released)))
    );
    for is_late in [false, true] {
        let mut cuts = 0;
        loop {
            let (end, was_killed) = run(cuts, is_late);
            assert_eq!(end, expected, "killed at commit {cuts}, late {is_late}");
            if !was_killed {
                break;
            }
            cuts += 1;
        }
        assert!(cuts >= 10, "{cuts} commits");
    }
}
