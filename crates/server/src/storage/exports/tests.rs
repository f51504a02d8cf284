//! Exports as devices: what is remembered of them, and whose turn it is.

use super::super::dispatch::History;
use super::*;
use base::limits::SCHEDULER_QUEUE_REQUESTS_MAX;
use base::ticket::{Class, Head, Operations, Slice, Terms};
use base::{ClusterId, ServerId};
use reservation::scheduler::UserKey;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use store::device::MeasuredRate;

#[test]
fn what_was_measured_is_remembered_and_a_damaged_note_is_named() {
    let (data, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = Arc::new(StorageClock::start());
    let capability = measure(tree.path()).unwrap();
    assert!(std::fs::read_dir(tree.path()).unwrap().next().is_none());
    assert!(capability.is_quick());
    let open = || Exports::open(data.path(), &clock, false);
    let exports = open().unwrap();
    let volume = VolumeId([7; 16]);
    let device = ExportDevice::new(volume, capability, &clock, false).unwrap();
    let id = device.id;
    exports.put(volume, Some(Arc::new(device))).unwrap();
    let again = open().unwrap().of(volume).unwrap();
    assert_eq!(again.id, id, "calendars mean the same");
    assert!(!again.is_in_force() && again.dispatcher.get().is_none());
    exports.put(volume, None).unwrap();
    assert!(open().unwrap().of(volume).is_none());
    std::fs::write(data.path().join("exports.toml"), "something else").unwrap();
    assert!(open().is_err());
}

fn device() -> Arc<ExportDevice> {
    let rate = |direction, write_percent| MeasuredRate {
        direction,
        size_bytes: 64 << 10,
        depth: 4,
        write_percent,
        low_bytes_per_second: 256 << 20,
        median_bytes_per_second: 256 << 20,
        sample_count: 4,
    };
    let capability = Capability {
        allocation_unit_bytes: 256 << 10,
        sample_millis: 60,
        region_bytes: 1 << 30,
        rates: vec![rate(Direction::Read, 0), rate(Direction::Write, 100)],
    };
    let clock = Arc::new(StorageClock::start());
    let device = ExportDevice::new(VolumeId([7; 16]), capability, &clock, false);
    Arc::new(device.unwrap())
}

/// Of the device's volume, from now on.
fn grant(device: &ExportDevice) -> Grant {
    let now = device.clock.now().as_nanos() / 1_000_000_000;
    let head = Head {
        class: Class::Standard,
        cluster: ClusterId([0; 16]),
        server: ServerId([0; 16]),
        id: TicketId([1; 16]),
        epoch: 0,
        holder: 1000,
        volume: VolumeId([7; 16]),
        key_id: 1,
    };
    let terms = Terms {
        operations: Operations::READ_WRITE,
        burst_millis: 0,
        start_secs: now,
        end_secs: now + 3600,
        lifetime_end_secs: now + 3600,
        slices: vec![Slice {
            device: device.id,
            share_ppm: 1000,
            stripe_unit_bytes: 0,
            au_budget: 0,
        }],
        path: Vec::new(),
    };
    let lineage = vec![(head.id, terms)];
    Grant { head, lineage }
}

/// What says its name when it is carried out.
fn says(name: &'static str, to: &Sender<&'static str>) -> Waiting {
    let to = to.clone();
    Box::new(move |_| {
        to.send(name).unwrap();
        1
    })
}

#[test]
fn what_is_reserved_and_found_no_room_is_before_all_others_that_found_none() {
    let device = device();
    let ticket = Source::Ticket(device.open(&grant(&device)).unwrap());
    let (to, said) = channel();
    let behind = [
        (Source::User(UserKey(1)), "other"),
        (ticket, "reserved"),
        (Source::User(UserKey(2)), "last"),
    ];
    for (source, name) in behind {
        let cost = (source, Operation::Read, 4096);
        device
            .behind()
            .of(source)
            .push_back((cost, says(name, &to)));
    }
    device.take_up();
    let time = Duration::from_secs(20);
    let order: Vec<_> = (0..3).map(|_| said.recv_timeout(time).unwrap()).collect();
    assert_eq!(order, ["reserved", "other", "last"]);
}

#[test]
fn what_is_reserved_and_finds_no_room_again_does_not_hold_others_up() {
    let device = device();
    let ticket = Source::Ticket(device.open(&grant(&device)).unwrap());
    let (go_on, waits) = channel::<()>();
    let waits = Arc::new(Mutex::new(waits));
    let submit = || {
        let waits = waits.clone();
        let waiting: Waiting = Box::new(move |_| u64::from(waits.lock().unwrap().recv().is_ok()));
        device.submit((ticket, Operation::Read, 4096), waiting);
    };
    // Its queue is full, and one stands behind.
    for _ in 0..2 * SCHEDULER_QUEUE_REQUESTS_MAX {
        if device.behind().reserved.is_empty() {
            submit();
        }
    }
    let (to, _said) = channel();
    let cost = (Source::User(UserKey(1)), Operation::Read, 4096);
    device.behind().others.push_back((cost, says("other", &to)));
    device.take_up();
    let (reserved, others) = {
        let behind = device.behind();
        (behind.reserved.len(), behind.others.len())
    };
    drop(go_on);
    assert_eq!((reserved, others), (1, 0));
}

#[test]
fn others_that_found_no_room_have_their_turn_beside_what_is_reserved() {
    let device = device();
    let ticket = Source::Ticket(device.open(&grant(&device)).unwrap());
    let (go_on, waits) = channel::<()>();
    let waits = Arc::new(Mutex::new(waits));
    for source in [ticket, ticket, ticket, Source::User(UserKey(1))] {
        let waits = waits.clone();
        let waiting: Waiting = Box::new(move |_| u64::from(waits.lock().unwrap().recv().is_ok()));
        let cost = (source, Operation::Read, 4096);
        device.behind().of(source).push_back((cost, waiting));
    }
    let left = || {
        device.take_up();
        let behind = device.behind();
        (behind.reserved.len(), behind.others.len())
    };
    let left = [left(), left()];
    drop(go_on);
    assert_eq!(left, [(2, 1), (1, 0)]);
}

#[test]
fn what_goes_on_without_a_turn_leaves_the_room_to_the_next() {
    let device = device();
    device.open(&grant(&device)).unwrap();
    let gone = Source::Ticket(TicketKey(1 << 40));
    let (to, said) = channel();
    for (source, name) in [
        (gone, "gone"),
        (gone, "too"),
        (Source::User(UserKey(1)), "other"),
    ] {
        let cost = (source, Operation::Read, 4096);
        device
            .behind()
            .of(source)
            .push_back((cost, says(name, &to)));
    }
    device.take_up();
    let time = Duration::from_secs(20);
    let order: Vec<_> = (0..3).map(|_| said.recv_timeout(time).unwrap()).collect();
    assert_eq!(order, ["gone", "too", "other"]);
}

#[test]
fn what_was_noted_needs_no_threads_before_a_ticket_is_shown() {
    let device = device();
    let grant = grant(&device);
    let terms = grant.terms();
    let noted = Noted {
        lineage: vec![grant.head.id],
        epoch: 0,
        start: terms.start_secs,
        end: terms.end_secs,
        until: terms.start_secs,
        kept_until: terms.end_secs + 600,
        share_ppm: 1000,
        history: History::of(
            Vec::new(),
            Totals {
                bytes: 7,
                ..Totals::default()
            },
        ),
    };
    device.remember(noted);
    let lineage = [grant.head.id];
    assert_eq!(device.record(&lineage, 0).unwrap().1.bytes, 7);
    let dispatcher = device.dispatcher();
    assert_eq!((dispatcher.noted(9).len(), dispatcher.lanes()), (1, 0));
    device.open(&grant).unwrap();
    assert!(dispatcher.lanes() > 0);
    assert_eq!(device.record(&lineage, 0).unwrap().1.bytes, 7);
}

#[test]
fn a_ticket_that_is_opened_while_the_last_one_is_taken_back_is_in_force() {
    let device = device();
    let tickets = || device.dispatcher.get().map_or(0, |it| it.figures().tickets);
    let is_opened = std::cell::Cell::new(false);
    device.lapse(|| {
        let has_tickets = tickets() > 0;
        if !is_opened.replace(true) {
            device.open(&grant(&device)).unwrap();
        }
        has_tickets
    });
    assert!(device.is_in_force());
    device.revoke(|_, _| true);
    assert!(!device.is_in_force());
}

#[test]
fn no_request_is_larger_than_a_turn() {
    let tree = tempfile::tempdir().unwrap();
    let plan = Plan::of_whole(&measure(tree.path()).unwrap(), DATA_BYTES_MAX).unwrap();
    for operation in [Operation::Read, Operation::Write] {
        for bytes in [1, 4096, 65_536, 131_072, 300_000, DATA_BYTES_MAX] {
            let whole = plan.model.cost_nanos(operation, bytes, plan.load);
            assert_eq!(plan.cost_nanos(operation, bytes), whole, "{bytes}");
        }
    }
}
