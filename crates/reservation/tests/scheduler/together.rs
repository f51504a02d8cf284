//! Schedulers that have one device together, as stores on one disk have.

use crate::world::{IN_FLIGHT, MILLI, QUANTUM, SECOND, shape, terms, work};
use base::Time;
use reservation::scheduler::{RequestKey, Scheduler, Shape, Source, TicketKey, UserKey};
use std::collections::VecDeque;

const STORES: u32 = 4;
/// Of one of them nine tenths are promised to two tickets: of the device a quarter of that.
const SHARES: [u32; 2] = [600_000, 300_000];
const DEPTH: usize = 8;

/// A device that does one request after another in the order in which it is given them, and how
/// long it has what it is given.
struct Device {
    schedulers: Vec<Scheduler<u64>>,
    /// Whose they are, and since when.
    queue: VecDeque<(usize, RequestKey, Source, u64)>,
    is_told: bool,
    time: u64,
    held_max: u64,
    /// Of the first one's tickets: what was done, and how long their requests took at most.
    done: [u64; 2],
    took_max: [u64; 2],
}

impl Device {
    fn new(is_told: bool) -> Self {
        let shape = Shape {
            sharers: STORES,
            ..shape(50_000, 50_000)
        };
        let schedulers = (0..STORES).map(|_| Scheduler::new(Time::ZERO, &shape));
        let mut this = Self {
            schedulers: schedulers.collect(),
            queue: VecDeque::new(),
            is_told,
            time: 0,
            held_max: 0,
            done: [0; 2],
            took_max: [0; 2],
        };
        for (key, share) in (0..).zip(SHARES) {
            let opened =
                this.schedulers[0].open_ticket(Time::ZERO, TicketKey(key), &terms(key, share));
            opened.expect("a ticket that can be");
        }
        this
    }

    fn submit(&mut self, store: usize, source: Source) {
        let (now, cost) = (Time::from_nanos(self.time), work(QUANTUM));
        let submitted = self.schedulers[store].submit(now, source, cost, self.time);
        submitted.expect("room for a few");
    }

    fn poll(&mut self, store: usize) {
        let busy = self.schedulers.iter().filter(|one| !one.is_idle()).count();
        let now = Time::from_nanos(self.time);
        if self.is_told {
            self.schedulers[store].set_busy(u32::try_from(busy).expect("a few"));
        }
        while let Some(next) = self.schedulers[store].poll(now) {
            let at = (store, next.key, next.source, next.content);
            self.queue.push_back(at);
        }
        let held = self.queue.len() as u64 * QUANTUM;
        self.held_max = self.held_max.max(held);
    }

    /// All are greedy, but for the second ticket, which has one request under way.
    fn run(&mut self, until: u64) {
        let user = |store: usize| Source::User(UserKey(10 + store as u64));
        for _ in 0..DEPTH {
            self.submit(0, Source::Ticket(TicketKey(0)));
            (0..STORES as usize).for_each(|store| self.submit(store, user(store)));
        }
        self.submit(0, Source::Ticket(TicketKey(1)));
        (0..STORES as usize).for_each(|store| self.poll(store));
        while self.time < until {
            let (store, key, source, since) = self.queue.pop_front().expect("all are greedy");
            self.time += QUANTUM;
            self.schedulers[store].complete(Time::from_nanos(self.time), key, 1);
            if let Source::Ticket(TicketKey(ticket)) = source {
                let ticket = usize::from(ticket == 1);
                self.done[ticket] += QUANTUM;
                self.took_max[ticket] = self.took_max[ticket].max(self.time - since);
            }
            self.submit(store, source);
            self.poll(store);
        }
    }
}

#[test]
fn each_has_its_part_and_the_device_holds_no_more_than_one_alone_would_give_it() {
    let mut device = Device::new(true);
    device.run(10 * SECOND);
    assert!(device.held_max <= IN_FLIGHT, "{}", device.held_max);
    // Each has an equal part, which is what it has promised.
    assert!(!device.schedulers.iter().any(Scheduler::is_degraded));
    // Who does not hear of the others gives the device as much as if it were alone.
    let mut unaware = Device::new(false);
    unaware.run(10 * SECOND);
    assert!(unaware.held_max > 3 * IN_FLIGHT, "{}", unaware.held_max);
}

#[test]
fn who_asks_for_much_by_one_ticket_keeps_another_one_of_the_same_store_from_nothing() {
    let mut device = Device::new(true);
    device.run(10 * SECOND);
    for (ticket, share) in SHARES.into_iter().enumerate() {
        let promised = 10 * SECOND / 1_000_000 * u64::from(share / STORES);
        let done = device.done[ticket];
        assert!(done >= promised / 100 * 99, "{done} of {promised}");
        let now = Time::from_nanos(device.time);
        let record = device.schedulers[0].take_record(now, TicketKey(ticket as u64));
        let record = record.expect("it is open");
        assert!(record.len() >= 9);
        for second in record {
            assert_eq!(second.shortfall, None, "{second:?}");
            assert_eq!(
                second.promised_nanos,
                SECOND / 1_000_000 * u64::from(share / STORES)
            );
        }
    }
    // Its share is one request in 13.3 ms.
    assert!(device.took_max[1] < 25 * MILLI, "{}", device.took_max[1]);
}
