//! A desk alone: which errand is back when is the test's to say.

use super::super::CAMPAIGN_TIME;
use super::super::book::{Book, Created};
use super::super::desk::{Asked, Asker, Desk, Question, Reply};
use super::super::errands::{Errand, Outcome, Progress, Returned, Task, run};
use super::super::ledger::Ledger;
use super::super::record::identity;
use super::super::reign::SEAT;
use super::super::servers::Servers;
use super::away::{NOW, fails, server};
use super::crashes::{Closing, Door, create, which};
use super::fake::Fake;
use super::model::anew;
use super::world::{MIB, VOLUME, device, id, terms, wish};
use base::StoreId;
use meta::{Embedded, Engine, campaign};
use reservation::Moment;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use wire::message::{
    ReserveError, ReserveLimits, ReserveReply, ReserveRequest, ReserveState, ReserveTerms,
};

const ADMIN: Asker = Asker {
    is_admin: true,
    uid: 0,
};

struct World {
    runtime: Runtime,
    servers: Arc<Fake>,
    left: Arc<AtomicI64>,
    engine: Arc<dyn Engine>,
    desk: Option<Desk>,
    errands: Receiver<Errand>,
    _directory: tempfile::TempDir,
}

impl World {
    fn new(count: u8) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let engine = runtime.block_on(engine(directory.path(), &left));
        let mut world = Self {
            runtime,
            servers: Fake::new(NOW, count),
            left,
            engine,
            desk: None,
            errands: sync_channel(0).1,
            _directory: directory,
        };
        world.begin();
        world
    }

    /// Reads the ledger, as a manager does that begins.
    fn begin(&mut self) {
        if let Some(desk) = self.desk.take() {
            self.runtime.block_on(desk.resign());
        }
        let (errands, errands_in) = sync_channel(100);
        let now = Moment::from_secs(NOW);
        let servers: Servers = self.servers.clone();
        let devices = servers.devices();
        let engine = self.engine.clone();
        let desk = self.runtime.block_on(async {
            let seat = campaign(&*engine, SEAT, "test", CAMPAIGN_TIME).await;
            let ledger = Ledger::new(engine.clone(), seat.unwrap());
            let book = ledger.read(|limits| {
                let mut book = Book::new(now, limits);
                book.set_devices(devices);
                book
            });
            let book = book.await.unwrap();
            Desk::new(book, ledger, servers, (0, errands))
        });
        (self.desk, self.errands) = (Some(desk), errands_in);
    }

    /// One round.
    fn round(&mut self, act: impl FnOnce(&mut Desk)) {
        let desk = self.desk.as_mut().unwrap();
        desk.look_at_the_clock();
        act(desk);
        self.runtime.block_on(desk.finish()).unwrap();
    }

    /// Asks something; the answer may be there later.
    fn ask(&mut self, request: ReserveRequest) -> oneshot::Receiver<ReserveReply> {
        self.put(Asked::Request(request))
    }

    fn put(&mut self, request: Asked) -> oneshot::Receiver<ReserveReply> {
        let (reply, answer): (Reply, _) = oneshot::channel();
        let question = Question {
            who: ADMIN,
            place: VOLUME.into(),
            request,
            reply,
        };
        self.round(|desk| desk.ask(question));
        answer
    }

    fn answer(&mut self, request: ReserveRequest) -> ReserveReply {
        self.ask(request).try_recv().unwrap()
    }

    /// What was sent to storage servers, looks at devices apart.
    fn sent(&self) -> Vec<Errand> {
        let sent = self.errands.try_iter();
        sent.filter(|errand| !matches!(errand.task, Task::Devices))
            .collect()
    }

    /// The only errand that was sent.
    #[track_caller]
    fn sent_one(&self) -> Errand {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1);
        sent.remove(0)
    }

    /// Has an errand done.
    fn go(&mut self, errand: Errand) {
        let (errands, errands_in) = sync_channel(1);
        let (back, mut returned) = tokio::sync::mpsc::channel(1);
        errands.send(errand).unwrap();
        drop(errands);
        let servers: Servers = self.servers.clone();
        run(&servers, &errands_in, &back);
        let back = returned.blocking_recv().unwrap();
        self.round(|desk| desk.returned(back));
    }

    /// Names of what keeps the volume.
    fn kept(&mut self) -> Vec<String> {
        match self.put(Asked::Kept { after: None }).try_recv().unwrap() {
            ReserveReply::Reservations { list, .. } => {
                list.into_iter().map(|one| one.name).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn state(&mut self) -> Option<ReserveState> {
        match self.answer(ReserveRequest::Show(which("run1"))) {
            ReserveReply::Reserved { summary, .. } => Some(summary.state),
            _ => None,
        }
    }
}

async fn engine(directory: &Path, left: &Arc<AtomicI64>) -> Arc<dyn Engine> {
    let engine = Embedded::open(directory.join("ledger")).await.unwrap();
    Arc::new(Door {
        engine,
        left: left.clone(),
        closing: Closing::Once,
    })
}

/// At each of the first stores so many MiB/s and a little space.
fn with_space(mib_per_second: u64, stores: u8) -> ReserveTerms {
    let mut asked = terms(mib_per_second * u64::from(stores), NOW, NOW + 60);
    asked.space_bytes = u64::from(stores) * MIB;
    asked.lifetime_secs = 600;
    asked.stores = (1..=stores).map(|store| StoreId([store; 16])).collect();
    asked
}

#[test]
fn what_is_asked_for_again_after_a_commit_failed_is_not_cleared_away() {
    let mut world = World::new(2);
    let request = create(1, with_space(10, 2));
    world.left.store(0, Ordering::SeqCst);
    let refused = world.answer(request.clone());
    fails(&refused, ReserveError::Unavailable);
    assert!(world.sent().is_empty());
    let mut answer = world.ask(request);
    let confirm = world.sent_one();
    assert!(matches!(confirm.task, Task::Confirm { .. }));
    world.round(Desk::tick);
    assert!(world.sent().is_empty(), "it is being confirmed");
    world.go(confirm);
    let made = answer.try_recv().unwrap();
    assert!(matches!(made, ReserveReply::Reserved { .. }), "{made:?}");
    world.round(Desk::tick);
    assert!(world.sent().is_empty());
    assert_eq!(world.state(), Some(ReserveState::Active));
    assert_eq!(world.servers.holders(), [1, 2].map(server));
}

#[test]
fn what_is_held_is_not_struck_by_what_was_sent_before() {
    let mut world = World::new(2);
    world.ask(create(1, with_space(10, 2)));
    let confirm = world.sent_one();
    world.go(confirm);
    world.round(Desk::tick);
    let late = Errand {
        task: Task::Leave {
            has_tickets: false,
            discard: true,
        },
        id: identity(ADMIN.uid, [1; 16]),
        row: None,
        now: Moment::from_secs(NOW),
        reign: 0,
        reply: None,
        progress: Progress::default(),
    };
    let outcome = Ok(Outcome::Done);
    world.round(|desk| {
        desk.returned(Returned {
            errand: late,
            outcome,
        });
    });
    assert_eq!(world.state(), Some(ReserveState::Active));
}

/// Of one store so much that the rate of [`with_space`] has to be free.
fn rate(store: u8) -> ReserveTerms {
    let mut asked = terms(60, NOW, NOW + 60);
    asked.stores = vec![StoreId([store; 16])];
    asked
}

fn is_reserved(reply: &ReserveReply) -> bool {
    matches!(reply, ReserveReply::Reserved { .. })
}

#[test]
fn what_was_refused_keeps_no_rate_while_a_server_is_silent() {
    let mut world = World::new(3);
    world.servers.set(|state| state.silent.extend([server(3)]));
    let request = create(1, with_space(60, 3));
    let mut answer = world.ask(request.clone());
    let confirm = world.sent_one();
    let before = world.answer(create(2, rate(1)));
    assert!(matches!(before, ReserveReply::Refused { .. }), "{before:?}");
    world.go(confirm);
    fails(&answer.try_recv().unwrap(), ReserveError::Away);
    for store in 1..=3 {
        let made = world.answer(create(1 + store, rate(store)));
        assert!(is_reserved(&made), "{store}: {made:?}");
    }
    // It is the same question for as long as something of it is held, and then a new one.
    let again = world.answer(request.clone());
    fails(&again, ReserveError::Unavailable);
    world.servers.set(|state| {
        state.silent.clear();
        state.now_secs += 10;
    });
    world.round(Desk::tick);
    let leave = world.sent_one();
    world.go(leave);
    assert_eq!(world.servers.holders(), []);
    drop(world.ask(request));
    assert!(matches!(world.sent_one().task, Task::Offers { .. }));
}

#[test]
fn what_was_being_confirmed_when_a_manager_ended_keeps_no_name_nor_rate() {
    let mut world = World::new(2);
    drop(world.ask(create(1, with_space(60, 2))));
    let confirm = world.sent_one();
    world.begin();
    world.servers.set(|state| state.silent.extend([server(2)]));
    let mut named = create(9, rate(1));
    if let ReserveRequest::Create { name, .. } = &mut named {
        *name = "run1".to_owned();
    }
    let before = world.answer(named.clone());
    fails(&before, ReserveError::Exists);
    drop(confirm);
    world.round(Desk::tick);
    let leave = world.sent_one();
    world.go(leave);
    assert!(is_reserved(&world.answer(named)));
    assert_eq!(world.state(), Some(ReserveState::Active));
    // Whoever reads the ledger then comes to the same.
    world.begin();
    assert_eq!(world.state(), Some(ReserveState::Active));
}

#[test]
fn what_is_free_of_a_row_that_was_asked_for_in_vain_follows_from_the_rows() {
    let mut book = Book::new(Moment::from_secs(NOW), ReserveLimits::default());
    let devices: Vec<_> = (1..=2).map(|one| device(one, one, 100)).collect();
    book.set_devices(devices.clone());
    let all = [1, 2].map(server).into();
    let asked = wish(1, with_space(60, 2));
    let other = wish(2, rate(1));
    for _ in 0..2 {
        // The second time as if it had never been asked for.
        assert!(matches!(
            book.create(id(1), &asked, &[]),
            Ok(Created::New(_))
        ));
        assert!(book == anew(&book, &devices));
        assert!(book.create(id(2), &other, &[]).is_err());
        book.free(id(1), &all);
        let mut read = anew(&book, &devices);
        assert!(read != book);
        read.free(id(1), &all);
        assert!(read == book);
        let unnamed = book.unname(id(1)).unwrap();
        assert!(matches!(
            book.create(id(2), &other, &[]),
            Ok(Created::New(_))
        ));
        book.remove(id(2)).unwrap();
        book.undo(unnamed);
        assert!(read == book);
        book.remove(id(1)).unwrap();
        assert!(book == anew(&book, &devices));
    }
}

#[test]
fn tickets_of_windows_that_began_while_a_release_waited_are_taken_back_too() {
    let mut world = World::new(1);
    let mut series = terms(10, NOW, NOW + 2);
    (series.every_secs, series.count) = (7, 100);
    assert!(is_reserved(&world.answer(create(1, series))));
    let release = ReserveRequest::Release {
        which: which("run1"),
        dry_run: false,
    };
    let mut answer = world.ask(release);
    // The first window and the next one are taken back, and there are tickets of the third.
    let revoke = world.sent_one();
    world.servers.set(|state| state.now_secs = NOW + 14);
    assert_eq!(world.state(), Some(ReserveState::Active));
    world.go(revoke);
    let revoke = world.sent_one();
    assert!(matches!(revoke.task, Task::Revoke));
    assert_eq!(revoke.now, Moment::from_secs(NOW + 14));
    // The next window may begin meanwhile.
    world.servers.set(|state| state.now_secs = NOW + 21);
    world.go(revoke);
    let released = answer.try_recv().unwrap();
    assert!(is_reserved(&released), "{released:?}");
    assert_eq!(world.state(), Some(ReserveState::Released));
    assert_eq!(world.servers.asked("revoke", server(1)), 2);
}

#[test]
fn what_is_being_confirmed_keeps_its_volume_and_what_was_refused_does_not() {
    let mut world = World::new(2);
    drop(world.ask(create(1, with_space(10, 1))));
    let confirm = world.sent_one();
    assert_eq!(world.kept(), ["run1"]);
    assert_eq!(world.state(), None, "nobody else is told of it");
    world.go(confirm);
    assert_eq!(world.kept(), ["run1"]);
    world.servers.set(|state| state.silent.extend([server(2)]));
    drop(world.ask(create(2, with_space(10, 2))));
    let confirm = world.sent_one();
    assert_eq!(world.kept().len(), 2);
    world.go(confirm);
    assert_eq!(world.kept(), ["run1"]);
}
