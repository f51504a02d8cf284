//! What is only tried out: it says what would be said, and takes nothing at any store.

use super::super::Manager;
use super::super::desk::Asker;
use super::super::servers::Trouble;
use super::crashes::{Measured, ask_as, create, start_with, which};
use super::world::{MIB, terms};
use crate::storage::{Opening, Storage, with_store};
use base::{ClusterId, StoreId};
use reservation::Moment;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use wire::message::{ReserveError, ReserveReply, ReserveRequest, ReserveState, ReserveTerms};

const ADMIN: Asker = Asker {
    is_admin: true,
    uid: 0,
};

struct World {
    _directory: tempfile::TempDir,
    store: StoreId,
    storage: Arc<Storage>,
    servers: Arc<Measured>,
    manager: Manager,
}

impl World {
    fn new() -> Self {
        let (directory, store) = with_store(16);
        let opening = Opening::default();
        let storage = Storage::open(directory.path(), ClusterId([1; 16]), &opening).unwrap();
        let servers = Measured::new(&storage);
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let manager = start_with(directory.path(), servers.clone(), &left, false);
        Self {
            _directory: directory,
            store,
            storage,
            servers,
            manager,
        }
    }

    /// A minute some time later, with so much space.
    fn terms(&self, space_mib: u64) -> ReserveTerms {
        let now = Moment::at_or_before(self.storage.now()).as_secs();
        let mut terms = terms(1, now + 1000, now + 1060);
        terms.space_bytes = space_mib * MIB;
        terms
    }

    fn ask(&self, request: ReserveRequest) -> ReserveReply {
        ask_as(&self.manager, ADMIN, request)
    }

    /// What is answered to a trial; the stores were asked `wanted`, and have what they had.
    #[track_caller]
    fn try_out(&self, number: u8, terms: &ReserveTerms, wanted: &[&str]) -> ReserveReply {
        let held = self.held();
        self.servers.asked.lock().unwrap().clear();
        let mut request = create(number, terms.clone());
        if let ReserveRequest::Create { dry_run, .. } = &mut request {
            *dry_run = true;
        }
        let reply = self.ask(request);
        assert_eq!(*self.servers.asked.lock().unwrap(), wanted, "{reply:?}");
        assert_eq!(self.held(), held, "{reply:?}");
        reply
    }

    fn held(&self) -> Vec<store::ReservationInfo> {
        let device = self.storage.device(self.store).unwrap();
        device.store.reservations(0, 100).unwrap()
    }
}

fn is_possible(reply: &ReserveReply) -> bool {
    let state = ReserveState::Possible;
    matches!(reply, ReserveReply::Reserved { summary, .. } if summary.state == state)
}

#[test]
fn a_trial_takes_nothing_whatever_a_store_answers() {
    let world = World::new();
    let half = world.terms(8);
    let trouble = |trouble| *world.servers.trouble.lock().unwrap() = trouble;
    let why = || "no answer in time".to_owned();
    let troubles = [
        (ReserveError::Storage, Trouble::Failed(why())),
        (ReserveError::Away, Trouble::Silent(why())),
        (
            ReserveError::Away,
            Trouble::Away {
                store: world.store,
                why: why(),
            },
        ),
    ];
    for (wanted, one) in troubles {
        trouble(Some(one));
        let reply = world.try_out(1, &half, &["try"]);
        let ReserveReply::Failed { code, message } = reply else {
            panic!("{reply:?}");
        };
        assert_eq!((code, message), (wanted, why()));
    }
    trouble(None);
    let reply = world.try_out(1, &half, &["try"]);
    assert!(is_possible(&reply), "{reply:?}");
    // Nothing of all that is in the way, nor known by its name.
    let made = world.ask(create(1, half.clone()));
    assert!(matches!(made, ReserveReply::Reserved { .. }), "{made:?}");
    // What is there no more is refused as it would be.
    let tried = world.try_out(2, &half, &["try"]);
    let made = world.ask(create(2, half.clone()));
    assert!(matches!(made, ReserveReply::Refused { .. }), "{made:?}");
    assert_eq!(tried, made);
    world.ask(ReserveRequest::Cancel {
        which: which("run1"),
        discard: false,
        dry_run: false,
    });
    let reply = world.try_out(2, &half, &["try"]);
    assert!(is_possible(&reply), "{reply:?}");
}

#[test]
fn the_windows_of_a_series_are_tried_together() {
    let world = World::new();
    let mut daily = world.terms(5);
    (daily.every_secs, daily.count) = (86_400, 2);
    let reply = world.try_out(1, &daily, &["try"]);
    assert!(is_possible(&reply), "{reply:?}");
    // What files will have taken they keep, so each adds to those before.
    daily.count = 3;
    let tried = world.try_out(1, &daily, &["try"]);
    let made = world.ask(create(1, daily));
    assert!(matches!(made, ReserveReply::Refused { .. }), "{made:?}");
    assert_eq!(tried, made);
}
