//! The role's interface on real stores in files.

use super::*;
use base::ObjectId;
use base::VolumeId;
use base::ticket::{Class, Operations, Slice, TicketError};
use reservation::Interval;
use reservation::scheduler::{Source, UserKey};
use std::time::Duration;
use store::StoreError;
use store::device::Direction;

const MIB: u64 = 1 << 20;

/// A data directory with one store of so many MiB that was not measured.
pub(crate) fn with_store(mib: u64) -> (tempfile::TempDir, StoreId) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let id = format_file(&path, mib * MIB);
    let new = NewStore {
        path,
        size_bytes: None,
    };
    assert_eq!(add_store(directory.path(), &new).unwrap(), id);
    (directory, id)
}

fn format_file(path: &Path, size_bytes: u64) -> StoreId {
    use store::device::{DeviceOptions, FileDevice};
    let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
    let file = FileDevice::create(path, size_bytes, DeviceOptions::default(), go_on).unwrap();
    let format = store::Format {
        store: StoreId(crate::data::random()),
        sizes: store::Sizes::for_device(size_bytes, 256 << 10),
        lifetimes: store::Lifetimes::default(),
        capability: Vec::new(),
    };
    store::Core::format(&file, &format).unwrap();
    format.store
}

pub(super) fn open(directory: &tempfile::TempDir) -> Arc<Storage> {
    Storage::open(directory.path(), ClusterId([1; 16]), &Opening::default()).unwrap()
}

fn hour(storage: &Storage) -> Interval {
    let now = Moment::at_or_before(storage.now());
    Interval::new(now, now.plus(3600)).unwrap()
}

#[test]
fn space_is_confirmed_once_found_by_ticket_and_kept_over_a_restart() {
    let (directory, store) = with_store(32);
    let ticket = TicketId([7; 16]);
    let storage = open(&directory);
    let request = SpaceRequest {
        ticket,
        interval: hour(&storage),
        aus: 20,
        records: 100,
    };
    let free = storage.devices()[0].au_free;
    storage.confirm_space(store, &request).unwrap();
    storage.confirm_space(store, &request).unwrap();
    let other = SpaceRequest { aus: 21, ..request };
    let conflict = storage.confirm_space(store, &other);
    assert!(matches!(conflict, Err(SpaceError::Conflict)));
    let device = storage.device(store).unwrap().clone();
    assert_eq!(device.space_used(ticket).unwrap(), Some((20, 0)));
    let much = SpaceRequest {
        ticket: TicketId([8; 16]),
        aus: free,
        ..request
    };
    let trial = |aus| SpaceTrial {
        intervals: vec![request.interval],
        aus,
        records: 100,
    };
    storage.try_space(store, &trial(20)).unwrap();
    let tried = storage.try_space(store, &trial(free)).unwrap_err();
    let refused = storage.confirm_space(store, &much);
    assert_eq!(tried.to_string(), refused.as_ref().unwrap_err().to_string());
    assert!(matches!(
        refused,
        Err(SpaceError::Store(StoreError::Refused { .. }))
    ));
    // A reservation that nobody confirmed, as a crash in the middle leaves it.
    let cut_short = store::Request {
        interval: request.interval,
        aus: 5,
        records: 3,
    };
    device.store.reserve(cut_short).unwrap();
    device.store.commit().unwrap();
    assert_eq!(device.store.reservations(0, 10).unwrap().len(), 2);
    drop((device, storage));
    let storage = open(&directory);
    let device = storage.device(store).unwrap();
    let there = device.store.reservations(0, 10).unwrap();
    assert_eq!(there.len(), 1, "what was not confirmed is released");
    assert_eq!(
        Some(there[0].reservation),
        device.reservation_of(ticket).unwrap()
    );
    let longer = request.interval.end().plus(60);
    storage.extend_space(store, ticket, longer).unwrap();
    storage.confirm_space(store, &request).unwrap();
    storage.release_space(store, ticket).unwrap();
    storage.release_space(store, ticket).unwrap();
    assert_eq!(device.space_used(ticket).unwrap(), None);
    let gone = storage.extend_space(store, ticket, longer);
    assert!(matches!(gone, Err(SpaceError::NotHeld)));
    let nowhere = storage.confirm_space(StoreId([0; 16]), &request);
    assert!(matches!(nowhere, Err(SpaceError::UnknownStore(_))));
    assert!(space::is_system(ObjectId(*b"\0azk............")));
}

#[test]
fn a_ticket_that_is_issued_here_is_believed_here() {
    let (directory, store) = with_store(16);
    let storage = open(&directory);
    let now = Moment::at_or_before(storage.now()).as_secs();
    let head = Head {
        class: Class::Standard,
        cluster: ClusterId([9; 16]),
        server: ServerId([9; 16]),
        id: TicketId([5; 16]),
        epoch: 3,
        holder: 1000,
        volume: VolumeId([2; 16]),
        key_id: 0,
    };
    let terms = Terms {
        operations: Operations::READ,
        burst_millis: 0,
        start_secs: now - 10,
        end_secs: now + 3600,
        lifetime_end_secs: now + 3600,
        slices: vec![Slice {
            device: store,
            share_ppm: 1000,
            stripe_unit_bytes: 0,
            au_budget: 0,
        }],
        path: Vec::new(),
    };
    let bytes = storage.issue(&head, &terms).to_bytes();
    let judge = |storage: &Storage| storage.judge(&bytes);
    let revoked = Err(JudgeError::Ticket(TicketError::Revoked));
    assert_eq!(judge(&storage).unwrap().terms(), &terms);
    storage.raise_epoch(3).unwrap();
    assert!(judge(&storage).is_ok());
    storage.raise_epoch(4).unwrap();
    assert_eq!(judge(&storage), revoked);
    drop(storage);
    let again = open(&directory);
    assert_eq!(judge(&again), revoked, "an epoch is not forgotten");
    assert_eq!((again.epoch(), again.directory()), (4, directory.path()));
    again.revoke(&[(TicketId([5; 16]), u64::MAX)]).unwrap();
}

#[test]
fn a_store_is_made_measured_and_added_once() {
    let directory = tempfile::tempdir().unwrap();
    let new = NewStore {
        path: "stores/0".into(),
        size_bytes: Some(64 * MIB),
    };
    let begin = std::time::Instant::now();
    let id = add_store(directory.path(), &new).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(60));
    assert_eq!(add_store(directory.path(), &new).unwrap(), id);
    let storage = open(&directory);
    let device = &storage.devices()[0];
    assert_eq!(device.store, id);
    assert!(device.capability.is_some(), "it was measured");
    assert!(device.au_count >= 40 && device.au_free > 0);
    assert!(
        device
            .plan
            .share_ppm(reservation::scheduler::Operation::Read, MIB)
            .is_some()
    );
    assert_eq!(Floors::default().background_ppm, 50_000);
    assert!(device.plan.promised_ppm_max() <= 900_000);
}

#[test]
fn stores_on_one_disk_promise_it_once() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["stores/0", "stores/1", "stores/2"] {
        let new = NewStore {
            path: name.into(),
            size_bytes: Some(32 * MIB),
        };
        add_store(directory.path(), &new).unwrap();
    }
    let storage = open(&directory);
    let devices = storage.devices();
    assert_eq!(devices.len(), 3);
    for device in devices {
        let alone = Plan::of(device.capability.as_ref().unwrap()).unwrap();
        for direction in [Direction::Read, Direction::Write] {
            let [part, whole] =
                [&device.plan, &alone].map(|plan| plan.promised_bytes_per_second(direction));
            let is_third = part <= whole / 3 && part >= whole / 4;
            assert!(is_third && part > 0, "{part} of {whole}");
        }
        assert_eq!(device.plan.shape.sharers, 3);
    }
}

#[test]
fn a_store_that_cannot_be_opened_is_missing_and_keeps_what_was_promised() {
    let (directory, store) = with_store(16);
    let ticket = TicketId([7; 16]);
    let storage = open(&directory);
    let request = SpaceRequest {
        ticket,
        interval: hour(&storage),
        aus: 2,
        records: 10,
    };
    storage.confirm_space(store, &request).unwrap();
    drop(storage);
    let (path, away) = (directory.path().join("disk"), directory.path().join("away"));
    std::fs::rename(&path, &away).unwrap();
    for contents in [None, Some(&b"nonsense"[..]), Some(&[])] {
        if let Some(contents) = contents {
            std::fs::write(&path, contents).unwrap();
        }
        let storage = open(&directory);
        assert!(storage.devices().is_empty());
        let missing = &storage.missing()[&store];
        assert_eq!(missing.path, path);
        assert!(!missing.why.is_empty());
        let refused = storage.release_space(store, ticket);
        assert!(
            matches!(refused, Err(SpaceError::Missing(_))),
            "{refused:?}"
        );
        let [told, untold] = [true, false].map(|with_paths| storage.summaries(with_paths));
        assert!(told[0].is_missing() && untold[0].is_missing());
        let failure = told[0].failure.as_deref().unwrap();
        assert_eq!(failure, format!("missing: {}", missing.why));
        assert_eq!(untold[0].failure.as_deref(), Some("missing"), "{untold:?}");
    }
    // Another store in its place is not taken for it.
    std::fs::remove_file(&path).unwrap();
    let other = format_file(&path, 16 * MIB);
    assert!(
        open(&directory).missing()[&store]
            .why
            .contains(&other.to_string())
    );
    std::fs::rename(&away, &path).unwrap();
    let storage = open(&directory);
    assert!(storage.missing().is_empty());
    assert_eq!(storage.space_used(store, ticket).unwrap(), Some((2, 0)));
}

#[test]
fn a_store_has_one_place_and_a_copy_is_none() {
    let (directory, store) = with_store(16);
    let path = |name: &str| directory.path().join(name);
    let add = |name: &str| {
        let new = NewStore {
            path: path(name),
            size_bytes: None,
        };
        let tried = try_store(directory.path(), &new.path).is_ok();
        let added = add_store(directory.path(), &new);
        assert_eq!(tried, added.is_ok(), "{added:?}");
        added
    };
    std::fs::copy(path("disk"), path("copy")).unwrap();
    let copy = add("copy").unwrap_err();
    assert!(matches!(copy, StorageError::Twice { .. }), "{copy}");
    // Another name of it is no copy.
    std::os::unix::fs::symlink("disk", path("link")).unwrap();
    std::fs::hard_link(path("disk"), path("hard")).unwrap();
    for name in ["disk", "link", "hard"] {
        assert_eq!(add(name).unwrap(), store, "{name}");
        assert!(open(&directory).devices()[0].path.ends_with("disk"));
    }
    // Whatever stands there now, the store was moved from there.
    std::fs::remove_file(path("disk")).unwrap();
    assert_eq!(add("copy").unwrap(), store);
    assert!(open(&directory).devices()[0].path.ends_with("copy"));
    // One that is known stays known while it is not there.
    std::fs::rename(path("copy"), path("away")).unwrap();
    assert_eq!(add("copy").unwrap(), store);
    assert_eq!(open(&directory).missing().len(), 1);
    assert!(matches!(add("nowhere"), Err(StorageError::Device(_))));
}

/// Opens what was once so far, and may be taken as it is.
fn try_open(directory: &tempfile::TempDir, accepted: &[StoreId]) -> Result<Arc<Storage>, String> {
    let opening = Opening {
        older_accepted: accepted.to_vec(),
        ..Opening::default()
    };
    let opened = Storage::open(directory.path(), ClusterId([1; 16]), &opening);
    opened.map_err(|error| error.to_string())
}

#[test]
fn an_older_state_of_a_store_is_missing_until_it_is_accepted() {
    let (directory, store) = with_store(16);
    let (path, copy) = (directory.path().join("disk"), directory.path().join("copy"));
    let make = |storage: &Storage, object: u8| {
        let at = storage.device(store).unwrap();
        let object = ObjectId([object; 16]);
        at.store.create(object, store::Terms::Default).unwrap();
        at.store.commit().unwrap();
    };
    let storage = open(&directory);
    make(&storage, 1);
    storage.stop();
    drop(storage);
    std::fs::copy(&path, &copy).unwrap();
    let unneeded = try_open(&directory, &[store]).err().unwrap();
    assert!(unneeded.contains("nothing to accept"), "{unneeded}");
    let storage = open(&directory);
    make(&storage, 2);
    // As the server does now and then; this one ends out of order.
    storage.note_seen().unwrap();
    make(&storage, 3);
    drop(storage);
    assert!(open(&directory).missing().is_empty(), "newer than noted");

    std::fs::copy(&copy, &path).unwrap();
    for _ in 0..2 {
        let storage = open(&directory);
        let missing = &storage.missing()[&store];
        assert!(
            missing.is_older && missing.why.contains("older state"),
            "{missing:?}"
        );
        let told = &storage.summaries(true)[0];
        assert!(told.is_missing() && told.is_older);
    }
    let untouched = std::fs::read(&copy).unwrap() == std::fs::read(&path).unwrap();
    assert!(untouched, "not even a superblock is written to it");
    let other = try_open(&directory, &[StoreId([9; 16])]).err().unwrap();
    assert!(other.contains("nothing to accept"), "{other}");

    let storage = try_open(&directory, &[store]).unwrap();
    assert!(storage.missing().is_empty());
    let device = storage.device(store).unwrap();
    assert!(device.store.info(ObjectId([1; 16])).is_ok());
    assert!(device.store.info(ObjectId([2; 16])).is_err(), "given up");
    make(&storage, 4);
    drop(storage);
    assert!(
        try_open(&directory, &[store]).is_err(),
        "for one start only"
    );
    let storage = open(&directory);
    assert!(
        storage.missing().is_empty(),
        "what was accepted is the truth now"
    );
    storage.stop();
    drop(storage);
    std::fs::copy(&copy, &path).unwrap();
    assert!(open(&directory).missing()[&store].is_older, "noticed again");
}

#[test]
fn a_store_that_was_given_up_is_not_waited_for_and_never_taken_in_again() {
    let (directory, store) = with_store(16);
    let give_up = |given_up: &[StoreId]| {
        let opening = Opening {
            given_up: given_up.to_vec(),
            ..Opening::default()
        };
        let opened = Storage::open(directory.path(), ClusterId([1; 16]), &opening);
        opened.map_err(|error| error.to_string())
    };
    let there = give_up(&[store]).err().unwrap();
    assert!(there.contains("nothing to give up"), "{there}");
    let (path, away) = (directory.path().join("disk"), directory.path().join("away"));
    std::fs::rename(&path, &away).unwrap();
    let unknown = give_up(&[store, StoreId([9; 16])]).err().unwrap();
    assert!(unknown.contains(&StoreId([9; 16]).to_string()), "{unknown}");
    assert_eq!(open(&directory).missing().len(), 1, "all of them or none");
    let storage = give_up(&[store]).unwrap();
    assert!(storage.missing().is_empty() && storage.is_lost(store));
    drop(storage);
    let again = give_up(&[store]).err().unwrap();
    assert!(again.contains("nothing to give up"), "{again}");
    // It turns up, where it was and elsewhere.
    std::fs::rename(&away, &path).unwrap();
    let storage = open(&directory);
    assert!(storage.devices().is_empty() && storage.is_lost(store));
    drop(storage);
    let new = NewStore {
        path: path.clone(),
        size_bytes: None,
    };
    let tried = try_store(directory.path(), &path).unwrap_err();
    let added = add_store(directory.path(), &new).unwrap_err();
    for error in [tried, added] {
        assert!(matches!(error, StorageError::Lost { .. }), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    let other = format_file(&path, 16 * MIB);
    assert_eq!(add_store(directory.path(), &new).unwrap(), other);
    assert!(open(&directory).device(other).is_some());
}

#[test]
fn a_store_that_was_made_anew_is_not_an_older_state() {
    let (directory, store) = with_store(16);
    let storage = open(&directory);
    for object in 1..5 {
        let at = &storage.device(store).unwrap().store;
        at.create(ObjectId([object; 16]), store::Terms::Default)
            .unwrap();
        at.commit().unwrap();
    }
    storage.stop();
    drop(storage);
    std::fs::remove_file(directory.path().join("disk")).unwrap();
    let path = directory.path().join("new");
    let other = format_file(&path, 16 * MIB);
    let new = NewStore {
        path,
        size_bytes: None,
    };
    assert_eq!(add_store(directory.path(), &new).unwrap(), other);
    let storage = open(&directory);
    assert!(storage.device(other).is_some());
    assert!(!storage.missing()[&store].is_older);
}

/// A ticket for a device, in force for the last minute and the next hour.
fn in_force(storage: &Storage, volume: VolumeId, device: StoreId) -> Vec<u8> {
    for_operations(storage, volume, device, Operations::READ_WRITE)
}

fn for_operations(
    storage: &Storage,
    volume: VolumeId,
    device: StoreId,
    operations: Operations,
) -> Vec<u8> {
    let now = Moment::at_or_before(storage.now()).as_secs();
    let head = Head {
        class: Class::Standard,
        cluster: ClusterId([0; 16]),
        server: ServerId([0; 16]),
        id: TicketId([5; 16]),
        epoch: storage.epoch(),
        holder: 1000,
        volume,
        key_id: 0,
    };
    let terms = Terms {
        operations,
        burst_millis: 0,
        start_secs: now - 60,
        end_secs: now + 3600,
        lifetime_end_secs: now + 3600,
        slices: vec![Slice {
            device,
            share_ppm: 1000,
            stripe_unit_bytes: 0,
            au_budget: 0,
        }],
        path: Vec::new(),
    };
    storage.issue(&head, &terms).to_bytes()
}

#[test]
fn what_tickets_got_outlives_a_run_that_was_killed_at_stores_and_exports() {
    let (directory, store) = with_store(16);
    let (tree, volume) = (tempfile::tempdir().unwrap(), VolumeId([7; 16]));
    let storage = open(&directory);
    let export = storage.measured_export(volume, tree.path()).unwrap().id;
    let lineage = [TicketId([5; 16])];
    let session = SessionTickets::default();
    let at = [(VolumeId([0; 16]), store), (volume, export)];
    for (number, (volume, device)) in (0..).zip(at) {
        let ticket = in_force(&storage, volume, device);
        session.open(&storage, number, &ticket).unwrap();
    }
    assert!(session.has_export(&storage));
    let totals = |storage: &Storage, device| storage.seconds(device, &lineage, 0).unwrap().1;
    let until_more = |storage: &Storage, than: u64| {
        while at
            .iter()
            .any(|(_, device)| totals(storage, *device).seconds <= than)
        {
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until_more(&storage, 1);
    storage.note_records();
    let before = at.map(|(_, device)| totals(&storage, device));
    drop(storage);
    std::thread::sleep(Duration::from_millis(1100));
    let storage = open(&directory);
    for ((volume, device), before) in at.into_iter().zip(before) {
        let (seconds, after) = storage.seconds(device, &lineage, 0).unwrap();
        assert_eq!(after.kept, before.kept, "nobody has asked for anything");
        assert!(after.seconds > before.seconds, "and there was no server");
        let last = seconds.last().unwrap().shortfall;
        assert_eq!(last, Some(reservation::scheduler::Cause::ServerAway));
        let ticket = in_force(&storage, volume, device);
        SessionTickets::default()
            .open(&storage, 1, &ticket)
            .unwrap();
    }
    until_more(&storage, totals(&storage, store).seconds);
    // A run that ends in order notes it by itself.
    storage.stop();
    let before = totals(&storage, store);
    drop(storage);
    let storage = open(&directory);
    assert_eq!(totals(&storage, store).kept, before.kept);
}

#[test]
fn the_stores_work_for_a_commit_is_hurried_for_who_may_write_and_has_a_share() {
    let (directory, store) = with_store(16);
    let storage = open(&directory);
    let device = storage.device(store).unwrap().clone();
    let session = SessionTickets::default();
    for (number, operations) in [(1, Operations::READ_WRITE), (2, Operations::READ)] {
        let ticket = for_operations(&storage, VolumeId([0; 16]), store, operations);
        session.open(&storage, number, &ticket).unwrap();
    }
    let user = Source::User(UserKey(1000));
    // One commit after the other: the next ones wait as long as who is told of the first one.
    let (end, is_over) = std::sync::mpsc::channel::<()>();
    let waits = move |_: Option<&StoreError>| assert!(is_over.recv().is_err());
    device.commit(user, None, Box::new(waits));
    for (number, hurrying) in [(0, 0), (2, 0), (1, 1), (1, 2)] {
        let ticket = (number > 0).then(|| session.get(number).unwrap());
        let held = ticket.as_deref();
        let source = held.map_or(user, |held| Source::Ticket(held.keys[&store]));
        device.commit(source, held, Box::new(|_| {}));
        assert_eq!(device.dispatcher.hurrying(), hurrying, "{number}");
    }
    let (done, is_done) = std::sync::mpsc::channel();
    device.commit(user, None, Box::new(move |_| done.send(()).unwrap()));
    drop(end);
    is_done.recv().unwrap();
    assert_eq!(device.dispatcher.hurrying(), 0);
}
