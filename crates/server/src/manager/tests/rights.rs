//! Who may, and what the tickets are worth that he gets.

use super::super::Manager;
use super::super::desk::Asker;
use super::super::record::identity;
use super::crashes::{ask_as, create, start, which};
use super::world::{MIB, terms};
use crate::storage::{JudgeError, Opening, Storage, with_store};
use base::ClusterId;
use base::ticket::TicketError;
use reservation::Moment;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};
use wire::message::{ReserveError, ReserveLimits, ReserveReply, ReserveRequest};

pub(super) const ADMIN: Asker = Asker {
    is_admin: true,
    uid: 0,
};

pub(super) fn user(uid: u32) -> Asker {
    Asker {
        is_admin: false,
        uid,
    }
}

pub(super) struct World {
    _directory: tempfile::TempDir,
    storage: Arc<Storage>,
    pub(super) manager: Manager,
    pub(super) now: u64,
}

pub(super) fn world() -> World {
    let (directory, _) = with_store(16);
    let storage = Storage::open(directory.path(), ClusterId([1; 16]), &Opening::default()).unwrap();
    let left = Arc::new(AtomicI64::new(i64::MAX));
    let manager = start(directory.path(), &storage, &left, false);
    World {
        now: Moment::at_or_before(storage.now()).as_secs(),
        _directory: directory,
        storage,
        manager,
    }
}

#[track_caller]
pub(super) fn fails(reply: ReserveReply, wanted: ReserveError) {
    let is_it = matches!(&reply, ReserveReply::Failed { code, .. } if *code == wanted);
    assert!(is_it, "{reply:?}");
}

#[test]
fn users_reserve_if_they_are_allowed_to_and_see_what_is_theirs() {
    let world = world();
    let ask = |who, request| ask_as(&world.manager, who, request);
    let at = || terms(1, world.now + 100, world.now + 200);
    fails(ask(user(5), create(1, at())), ReserveError::Forbidden);
    let limits = ReserveLimits {
        users: vec![5, 6],
        ..ReserveLimits::default()
    };
    let set = ReserveRequest::SetLimits {
        limits,
        dry_run: false,
    };
    fails(ask(user(5), set.clone()), ReserveError::Forbidden);
    assert!(matches!(ask(ADMIN, set), ReserveReply::Limits(_)));
    let made = ask(user(5), create(1, at()));
    let ReserveReply::Reserved { summary, .. } = made else {
        panic!("{made:?}");
    };
    assert_eq!(summary.holder, 5);
    let by_id = || which(&summary.id.to_string());
    for other in [6, 7] {
        fails(
            ask(user(other), ReserveRequest::Show(by_id())),
            ReserveError::NotFound,
        );
        let cancel = ReserveRequest::Cancel {
            which: by_id(),
            discard: true,
            dry_run: false,
        };
        fails(ask(user(other), cancel), ReserveError::NotFound);
        let release = ReserveRequest::Release {
            which: by_id(),
            dry_run: false,
        };
        fails(ask(user(other), release), ReserveError::NotFound);
        let ReserveReply::Reservations { list, .. } =
            ask(user(other), ReserveRequest::List { after: None })
        else {
            panic!("no list");
        };
        assert!(list.is_empty());
    }
    // The same number of another user is another question.
    let mut own = create(1, at());
    if let ReserveRequest::Create { name, .. } = &mut own {
        "other".clone_into(name);
    }
    let other = ask(user(6), own);
    assert!(matches!(&other, ReserveReply::Reserved { summary: own, .. } if own.id != summary.id));
    let shown = ask(ADMIN, ReserveRequest::Show(by_id()));
    assert!(matches!(shown, ReserveReply::Reserved { .. }));
}

#[test]
fn tickets_are_believed_until_the_rate_is_given_back() {
    let world = world();
    let ask = |request| ask_as(&world.manager, ADMIN, request);
    let mut asked = terms(1, world.now, world.now + 600);
    asked.space_bytes = MIB;
    asked.lifetime_secs = 60;
    let ticket = |reply: ReserveReply| match reply {
        ReserveReply::Reserved { tickets, .. } => tickets[0].ticket.clone(),
        other => panic!("{other:?}"),
    };
    let first = ticket(ask(create(1, asked)));
    let grant = world.storage.judge(&first).unwrap();
    assert_eq!(grant.terms().end_secs, world.now + 600);
    assert_eq!(grant.terms().lifetime_end_secs, world.now + 660);
    assert!(grant.terms().slices[0].share_ppm > 0 && grant.terms().slices[0].au_budget > 0);
    let longer = ticket(ask(ReserveRequest::Extend {
        which: which("run1"),
        end_secs: world.now + 900,
        dry_run: false,
    }));
    let grant = world.storage.judge(&longer).unwrap();
    assert_eq!(grant.terms().end_secs, world.now + 900);
    let released = ask(ReserveRequest::Release {
        which: which("run1"),
        dry_run: false,
    });
    assert!(matches!(released, ReserveReply::Reserved { tickets, .. } if tickets.is_empty()));
    for ticket in [first, longer] {
        let judged = world.storage.judge(&ticket);
        assert_eq!(judged, Err(JudgeError::Ticket(TicketError::Revoked)));
    }
    // What was written would stay; nothing was, so everything can be given back.
    let store = world.storage.devices()[0].store;
    let space = || {
        world
            .storage
            .device(store)
            .unwrap()
            .store
            .reservations(0, 9)
            .unwrap()
            .len()
    };
    assert_eq!(space(), 1);
    let cancel = ReserveRequest::Cancel {
        which: which("run1"),
        discard: false,
        dry_run: false,
    };
    assert_eq!(ask(cancel), ReserveReply::Done);
    assert_eq!(space(), 0);
}

#[test]
fn what_was_written_is_thrown_away_only_if_that_is_said() {
    let world = world();
    let ask = |request| ask_as(&world.manager, ADMIN, request);
    let mut asked = terms(1, world.now, world.now + 600);
    asked.space_bytes = MIB;
    let made = ask(create(1, asked));
    let ReserveReply::Reserved { summary, .. } = made else {
        panic!("{made:?}");
    };
    let device = world.storage.device(summary.slices[0].store).unwrap();
    let number = device.reservation_of(summary.id).unwrap().unwrap();
    let object = base::ObjectId([9; 16]);
    device
        .store
        .create(object, store::Terms::Reserved(number))
        .unwrap();
    let data = vec![1; 300 << 10];
    device.store.write(object, 0, &data).unwrap();
    device.store.commit().unwrap();
    let cancel = |discard, dry_run| ReserveRequest::Cancel {
        which: which("run1"),
        discard,
        dry_run,
    };
    fails(ask(cancel(false, true)), ReserveError::InUse);
    fails(ask(cancel(false, false)), ReserveError::InUse);
    assert!(device.store.info(object).is_ok());
    // Giving the rate back leaves it where it is.
    let release = ReserveRequest::Release {
        which: which("run1"),
        dry_run: false,
    };
    assert!(matches!(ask(release), ReserveReply::Reserved { .. }));
    assert!(device.store.info(object).is_ok());
    assert_eq!(ask(cancel(true, true)), ReserveReply::Done);
    assert!(device.store.info(object).is_ok());
    assert_eq!(ask(cancel(true, false)), ReserveReply::Done);
    assert!(device.store.info(object).is_err());
}

#[test]
fn what_programs_keep_in_space_for_files_stays_until_the_window_was_to_end() {
    let world = world();
    let ask = |request| ask_as(&world.manager, ADMIN, request);
    let begun = Instant::now();
    let mut asked = terms(1, world.now, world.now + 6);
    asked.space_bytes = MIB;
    let made = ask(create(1, asked));
    let ReserveReply::Reserved { summary, .. } = made else {
        panic!("{made:?}");
    };
    let device = world.storage.device(summary.slices[0].store).unwrap();
    let number = device.reservation_of(summary.id).unwrap().unwrap();
    let object = base::ObjectId([9; 16]);
    let terms = store::Terms::Reserved(number);
    device.store.create(object, terms).unwrap();
    device.store.write(object, 0, &vec![1; 300 << 10]).unwrap();
    let release = ReserveRequest::Release {
        which: which("run1"),
        dry_run: false,
    };
    assert!(matches!(ask(release), ReserveReply::Reserved { .. }));
    while device.store.info(object).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        begun.elapsed() > Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert!(device.reservation_of(summary.id).unwrap().is_none());
}

/// Two questions of the administrator whose identities begin with the same eight digits.
fn alike() -> [[u8; 16]; 2] {
    let mut seen = HashMap::new();
    let mut request = [0; 16];
    for number in 0_u64.. {
        request[..8].copy_from_slice(&number.to_le_bytes());
        let digits = identity(ADMIN.uid, request).to_string()[..8].to_owned();
        if let Some(other) = seen.insert(digits, request) {
            return [other, request];
        }
    }
    unreachable!("there are not so many digits")
}

#[test]
fn reservations_that_nobody_has_named_never_have_the_same_name() {
    let world = world();
    let nameless = |request| ReserveRequest::Create {
        request,
        volume: String::new(),
        name: String::new(),
        terms: terms(1, world.now + 100, world.now + 200),
        dry_run: false,
    };
    let name = |request| match ask_as(&world.manager, ADMIN, nameless(request)) {
        ReserveReply::Reserved { summary, .. } => summary.name,
        other => panic!("{other:?}"),
    };
    let requests = alike();
    let names = requests.map(name);
    assert!(names[1].len() > names[0].len(), "{names:?}");
    assert_eq!(requests.map(name), names, "asked again");
    for name in names {
        let show = ReserveRequest::Show(which(&name));
        let shown = ask_as(&world.manager, ADMIN, show);
        let ReserveReply::Reserved { summary, .. } = shown else {
            panic!("{shown:?}");
        };
        assert_eq!(summary.name, name);
    }
}
