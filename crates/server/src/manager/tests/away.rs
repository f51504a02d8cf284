//! Servers that are away, or do half of what they are asked for: nothing is kept for good because
//! of them.

use super::super::Manager;
use super::super::desk::Asker;
use super::super::errands::{Errand, Outcome, Progress, Returned, Task, run};
use super::super::record::{Delivered, GUARD_SECONDS, Row, RowSlice, RowState};
use super::super::servers::{Servers, StorageServers, Trouble};
use super::crashes::{create, which};
use super::fake::{Fake, ask, await_that, manager};
use super::world::{MIB, VOLUME, id, terms};
use crate::storage::{Opening, Storage, with_store};
use base::limits::RESERVE_KEPT_TIME;
use base::{ClusterId, ServerId, StoreId, VolumeId};
use reservation::{Interval, Moment};
use std::sync::Arc;
use wire::message::{ReserveError, ReserveReply, ReserveRequest, ReserveState, Scarce};

const ADMIN: Asker = Asker {
    is_admin: true,
    uid: 0,
};
pub(super) const NO_VOLUME: VolumeId = VolumeId([0; 16]);
pub(super) const NOW: u64 = 1_700_000_000;

pub(super) fn server(number: u8) -> ServerId {
    ServerId([number; 16])
}

/// Space for files at three servers, in two windows.
pub(super) fn row() -> Row {
    let window = Interval::new(Moment::from_secs(NOW), Moment::from_secs(NOW + 100));
    Row {
        state: RowState::Held,
        volume: VOLUME,
        holder: 0,
        name: "run".to_owned(),
        asked: [0; 16],
        read_bytes_per_second: 0,
        write_bytes_per_second: 0,
        burst_millis: 0,
        space_bytes: 3 * MIB,
        window: window.unwrap(),
        every_secs: 1000,
        count: 2,
        lifetime_secs: 0,
        released: None,
        slices: (1..=3).map(slice).collect(),
        lines: Vec::new(),
        delivered: Delivered::default(),
        told: Vec::new(),
    }
}

fn slice(number: u8) -> RowSlice {
    RowSlice {
        server: server(number),
        store: StoreId([number; 16]),
        share_ppm: 0,
        stripe_unit_bytes: 0,
        aus: 2,
    }
}

/// What an errand comes to.
fn errand(servers: &Arc<Fake>, row: &Row, now_secs: u64, task: Task) -> Result<Outcome, Trouble> {
    returned(servers, row, now_secs, task, Progress::default()).outcome
}

/// What an errand comes to of which some is done.
pub(super) fn returned(
    servers: &Arc<Fake>,
    row: &Row,
    now_secs: u64,
    task: Task,
    progress: Progress,
) -> Returned {
    servers.set(|state| state.now_secs = now_secs);
    let (errands, errands_in) = std::sync::mpsc::sync_channel(1);
    let (back, mut returned) = tokio::sync::mpsc::channel(1);
    let errand = Errand {
        task,
        id: id(1),
        row: Some(row.clone()),
        now: Moment::from_secs(now_secs),
        reign: 0,
        reply: None,
        progress,
    };
    errands.send(errand).unwrap();
    drop(errands);
    let all: Servers = servers.clone();
    run(&all, &errands_in, &back);
    returned.blocking_recv().unwrap()
}

pub(super) fn hold(servers: &Fake, row: &Row) {
    servers.set(|state| {
        for slice in &row.slices {
            let windows = (0..row.count).map(|number| {
                let ticket = super::super::record::ticket_id(id(1), number);
                ((slice.at(), ticket), Moment::FOREVER)
            });
            state.held.extend(windows);
        }
    });
}

#[test]
fn a_server_that_is_away_keeps_nothing_of_the_others() {
    let servers = Fake::new(NOW, 3);
    let row = row();
    hold(&servers, &row);
    servers.set(|state| state.away.extend([server(1)]));
    let over = NOW + 100 + GUARD_SECONDS;
    let collected = errand(&servers, &row, over, Task::Collect);
    assert!(matches!(
        collected,
        Err(Trouble::Failed(_) | Trouble::Away { .. })
    ));
    // The other window is to come.
    assert_eq!(servers.holders(), [1, 1, 2, 3].map(server));
    servers.set(|state| state.away.clear());
    let Ok(Outcome::Delivered(delivered)) = errand(&servers, &row, over + 30, Task::Collect) else {
        panic!("everybody is there");
    };
    assert_eq!(servers.holders(), [1, 2, 3].map(server));
    // What was given back is not lost.
    assert!(delivered.windows == 1 && !delivered.space_lost);
    // So it is with what is cancelled, at servers before and behind the one.
    servers.set(|state| state.away.extend([server(2)]));
    let leave = || Task::Leave {
        has_tickets: true,
        discard: true,
    };
    assert!(errand(&servers, &row, NOW, leave()).is_err());
    assert_eq!(servers.holders(), [server(2)]);
    servers.set(|state| state.away.clear());
    assert!(errand(&servers, &row, NOW, leave()).is_ok());
    assert_eq!(servers.holders(), []);
}

#[test]
fn space_that_is_lost_is_told_in_the_account_of_its_window() {
    let servers = Fake::new(NOW, 3);
    let row = row();
    hold(&servers, &row);
    servers.set(|state| state.held.retain(|(at, _), _| at.0 != server(2)));
    let over = NOW + 100 + GUARD_SECONDS;
    let Ok(Outcome::Delivered(delivered)) = errand(&servers, &row, over, Task::Collect) else {
        panic!("everybody is there");
    };
    assert!(delivered.space_lost);
}

pub(super) struct World {
    directory: tempfile::TempDir,
    pub(super) servers: Arc<Fake>,
    manager: Option<Manager>,
}

impl World {
    pub(super) fn new(count: u8) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let servers = Fake::new(NOW, count);
        let manager = Some(manager(directory.path(), &servers));
        Self {
            directory,
            servers,
            manager,
        }
    }

    pub(super) fn ask(&self, volume: VolumeId, request: ReserveRequest) -> ReserveReply {
        ask(self.manager.as_ref().unwrap(), ADMIN, volume, request)
    }

    pub(super) fn begin_anew(&mut self) {
        self.manager = None;
        self.manager = Some(manager(self.directory.path(), &self.servers));
    }

    /// Two stores with a window of a minute.
    pub(super) fn reserve(&self, volume: VolumeId, lifetime_secs: u64) {
        let mut asked = terms(0, NOW, NOW + 60);
        asked.space_bytes = 2 * MIB;
        asked.lifetime_secs = lifetime_secs;
        asked.stores = [1, 2].map(|number| StoreId([number; 16])).into();
        let made = self.ask(volume, create(1, asked));
        assert!(matches!(made, ReserveReply::Reserved { .. }), "{made:?}");
    }

    pub(super) fn cancel(&self, discard: bool) -> ReserveReply {
        let cancel = ReserveRequest::Cancel {
            which: which("run1"),
            discard,
            dry_run: false,
        };
        self.ask(VOLUME, cancel)
    }

    pub(super) fn state(&self) -> Option<ReserveState> {
        match self.ask(VOLUME, ReserveRequest::Show(which("run1"))) {
            ReserveReply::Reserved { summary, .. } => Some(summary.state),
            _ => None,
        }
    }

    /// Has it extended by a year, which one of the two stores refuses.
    fn extend_in_vain(&self, volume: VolumeId) {
        self.servers
            .set(|state| state.no_longer.extend([server(2)]));
        let extend = ReserveRequest::Extend {
            which: which("run1"),
            end_secs: NOW + 365 * 86_400,
            dry_run: false,
        };
        let extended = self.ask(volume, extend);
        assert!(
            matches!(extended, ReserveReply::Failed { .. }),
            "{extended:?}"
        );
    }
}

#[track_caller]
pub(super) fn fails(reply: &ReserveReply, wanted: ReserveError) {
    let is_it = matches!(reply, ReserveReply::Failed { code, .. } if *code == wanted);
    assert!(is_it, "{reply:?}");
}

#[test]
fn what_an_extension_in_vain_has_made_longer_is_given_back_with_the_rest() {
    // At the end of its window, or when its row is struck.
    for (volume, lifetime, later) in [
        (NO_VOLUME, 0, 60 + GUARD_SECONDS),
        (VOLUME, 100, 160 + RESERVE_KEPT_TIME.as_secs()),
    ] {
        let world = World::new(2);
        world.reserve(volume, lifetime);
        world.extend_in_vain(volume);
        world.servers.set(|state| state.now_secs = NOW + later);
        await_that("it is given back", || world.servers.holders().is_empty());
        let is_gone = || {
            let shown = world.ask(volume, ReserveRequest::Show(which("run1")));
            matches!(shown, ReserveReply::Failed { .. })
        };
        if lifetime > 0 {
            await_that("its row is struck", is_gone);
        }
    }
}

#[test]
fn what_is_written_while_it_is_cancelled_stays_unless_it_is_to_be_thrown_away() {
    let world = World::new(2);
    world.reserve(VOLUME, 600);
    world.servers.set(|state| state.used_late = 3);
    fails(&world.cancel(false), ReserveError::InUse);
    assert_eq!(world.state(), Some(ReserveState::Released));
    assert_eq!(world.servers.holders().len(), 2);
    fails(&world.cancel(false), ReserveError::InUse);
    assert_eq!(world.cancel(true), ReserveReply::Done);
    assert_eq!(world.state(), None);
    assert!(world.servers.holders().is_empty());
}

#[test]
fn a_manager_that_begins_anew_throws_nothing_away_that_was_to_stay() {
    let mut world = World::new(2);
    world.reserve(VOLUME, 600);
    world.servers.set(|state| {
        state.used_late = 3;
        state.is_dumb = true;
    });
    // It is under way, and there is nothing that who asked could do.
    let cancelled = world.cancel(false);
    assert!(
        matches!(cancelled, ReserveReply::Later { .. }),
        "{cancelled:?}"
    );
    assert_eq!(world.state(), None);
    let asked = world.servers.asked("used", server(1));
    world.begin_anew();
    await_that("the new one has asked in vain", || {
        world.servers.asked("used", server(1)) > asked
    });
    assert_eq!(world.state(), None, "it is not known yet");
    world.servers.set(|state| state.is_dumb = false);
    // It asks again after a pause, well within the window.
    await_that("it is there again", || {
        world
            .servers
            .set(|state| state.now_secs = (state.now_secs + 1).min(NOW + 50));
        world.state().is_some()
    });
    assert_eq!(world.state(), Some(ReserveState::Released));
    assert_eq!(world.servers.holders().len(), 2);
}

#[test]
fn a_server_that_can_forget_no_ticket_keeps_no_space() {
    let world = World::new(2);
    world.reserve(VOLUME, 600);
    let full = Some(Trouble::TooManyRevoked);
    world.servers.set(|state| state.revoke = full);
    let cancelled = world.cancel(true);
    assert!(
        matches!(cancelled, ReserveReply::Later { .. }),
        "{cancelled:?}"
    );
    assert!(world.servers.holders().is_empty());
    // Its ticket may still be believed, so it is not gone.
    let again = || {
        let mut asked = terms(0, NOW, NOW + 60);
        asked.space_bytes = 2 * MIB;
        asked.lifetime_secs = 600;
        asked.stores = [1, 2].map(|number| StoreId([number; 16])).into();
        world.ask(VOLUME, create(1, asked))
    };
    fails(&again(), ReserveError::Unavailable);
    world.servers.set(|state| state.revoke = None);
    await_that("it is gone", || {
        // What could not be done is tried again some seconds later.
        world.servers.set(|state| state.now_secs += 1);
        matches!(again(), ReserveReply::Failed { code, .. } if code == ReserveError::Over)
    });
}

#[test]
fn nothing_is_offered_for_which_stores_lack_the_space() {
    let world = World::new(1);
    let made = world.ask(VOLUME, create(1, terms(60, NOW, NOW + 1000)));
    assert!(matches!(made, ReserveReply::Reserved { .. }), "{made:?}");
    let mut asked = terms(60, NOW + 100, NOW + 200);
    asked.space_bytes = MIB;
    let offers = || match world.ask(VOLUME, create(2, asked.clone())) {
        ReserveReply::Refused { short, offers } => {
            assert!(matches!(short.what, Scarce::Device(_)), "{short:?}");
            offers.len()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(offers(), 2, "later, or slower");
    world.servers.set(|state| state.is_full = true);
    assert_eq!(offers(), 0);
}

#[test]
fn nobody_waits_for_a_server_that_is_another_one_now() {
    let (directory, _) = with_store(16);
    let opening = Opening::default();
    let storage = Storage::open(directory.path(), ClusterId([1; 16]), &opening).unwrap();
    let other = server(9);
    let at = (other, StoreId([9; 16]));
    let revoked = StorageServers::revoke(&*storage, other, &[(id(1), NOW)]);
    assert_eq!(revoked, Ok(()));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let cluster = crate::cluster::Cluster::new(storage, None, runtime.handle().clone());
    let cluster: &dyn StorageServers = &cluster;
    assert_eq!(cluster.revoke(other, &[(id(1), NOW)]), Ok(()));
    assert_eq!(cluster.used(at, id(1)), Ok(None));
    assert!(matches!(cluster.seconds(at, id(1), 0), Ok(None)));
    assert_eq!(cluster.release(at, id(1)), Ok(()));
}

#[test]
fn what_is_cancelled_while_a_server_is_away_is_gone_and_follows_there() {
    let world = World::new(2);
    world.reserve(VOLUME, 600);
    world.servers.set(|state| state.away.extend([server(2)]));
    let done = world.cancel(true);
    assert!(matches!(done, ReserveReply::Later { .. }), "{done:?}");
    assert_eq!(world.state(), None);
    assert_eq!(world.servers.holders(), [server(2)]);
    // What is being given back has no name any more.
    let mut asked = terms(1, NOW, NOW + 60);
    asked.stores = vec![StoreId([1; 16])];
    let again = ReserveRequest::Create {
        request: [7; 16],
        volume: String::new(),
        name: "run1".to_owned(),
        terms: asked,
        dry_run: false,
    };
    let again = world.ask(VOLUME, again);
    assert!(matches!(again, ReserveReply::Reserved { .. }), "{again:?}");
    // Nor is its rate given back, which the server would still believe in.
    world.servers.set(|state| {
        state.away.clear();
        state.silent.extend([server(1)]);
    });
    let release = ReserveRequest::Release {
        which: which("run1"),
        dry_run: false,
    };
    let released = world.ask(VOLUME, release);
    fails(&released, ReserveError::Away);
    assert!(format!("{released:?}").contains("by another release"));
    assert_eq!(world.state(), Some(ReserveState::Active));
    world.servers.set(|state| state.silent.clear());
    await_that("all is given back", || {
        world.servers.set(|state| state.now_secs += 1);
        world.servers.holders().is_empty()
    });
}

#[test]
fn a_name_that_was_asked_for_in_vain_is_free_while_a_server_is_silent() {
    let world = World::new(2);
    world.servers.set(|state| state.silent.extend([server(2)]));
    let asked = |number, store: u8| {
        let mut asked = terms(0, NOW, NOW + 60);
        asked.space_bytes = MIB;
        asked.stores = vec![StoreId([store; 16])];
        ReserveRequest::Create {
            request: [number; 16],
            volume: String::new(),
            name: "run1".to_owned(),
            terms: asked,
            dry_run: false,
        }
    };
    fails(&world.ask(VOLUME, asked(1, 2)), ReserveError::Away);
    let made = world.ask(VOLUME, asked(2, 1));
    assert!(matches!(made, ReserveReply::Reserved { .. }), "{made:?}");
}
