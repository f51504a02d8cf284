//! Schedulers that have one device together, as stores on one disk have.

use crate::world::{IN_FLIGHT, MILLI, QUANTUM, SECOND, shape, terms, work};
use base::Time;
use reservation::scheduler::{RequestKey, Scheduler, Shape, Source, TicketKey, UserKey};
use std::collections::VecDeque;

const STORES: u32 = 4;
/// Of one of them nine tenths are promised, which of the device is a quarter of that.
const SHARE: u32 = 900_000;
const DEPTH: usize = 8;

/// A device that does one request after another in the order in which it is given them, and how
/// long it has what it is given.
struct Device {
    schedulers: Vec<Scheduler<u64>>,
    queue: VecDeque<(usize, RequestKey, u64, u64)>,
    is_told: bool,
    time: u64,
    held_max: u64,
    /// Of the first one's ticket: what was done, and how long its requests took at most.
    done: u64,
    took_max: u64,
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
            done: 0,
            took_max: 0,
        };
        let ticket = terms(1, SHARE);
        let opened = this.schedulers[0].open_ticket(Time::ZERO, TicketKey(1), &ticket);
        opened.expect("a ticket that can be");
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
            let of_ticket = if matches!(next.source, Source::Ticket(_)) {
                1
            } else {
                0
            };
            self.queue
                .push_back((store, next.key, of_ticket, next.content));
        }
        let held = self.queue.len() as u64 * QUANTUM;
        self.held_max = self.held_max.max(held);
    }

    /// All are greedy, the first one's ticket as well.
    fn run(&mut self, until: u64) {
        let ticket = Source::Ticket(TicketKey(1));
        let user = |store: usize| Source::User(UserKey(10 + store as u64));
        for _ in 0..DEPTH {
            self.submit(0, ticket);
            (0..STORES as usize).for_each(|store| self.submit(store, user(store)));
        }
        (0..STORES as usize).for_each(|store| self.poll(store));
        while self.time < until {
            let (store, key, of_ticket, since) = self.queue.pop_front().expect("all are greedy");
            self.time += QUANTUM;
            self.schedulers[store].complete(Time::from_nanos(self.time), key, 1);
            if of_ticket == 1 {
                self.done += QUANTUM;
                self.took_max = self.took_max.max(self.time - since);
                self.submit(store, ticket);
            } else {
                self.submit(store, user(store));
            }
            self.poll(store);
        }
    }
}

#[test]
fn each_has_its_part_and_the_device_holds_no_more_than_one_alone_would_give_it() {
    let mut device = Device::new(true);
    device.run(10 * SECOND);
    let promised = 10 * SECOND / 1_000_000 * u64::from(SHARE / STORES);
    assert!(
        device.done >= promised / 100 * 99,
        "{} ms",
        device.done / MILLI
    );
    assert!(
        device.held_max <= IN_FLIGHT,
        "{} ms",
        device.held_max / MILLI
    );
    let is_degraded = device.schedulers.iter().any(Scheduler::is_degraded);
    assert!(
        !is_degraded,
        "each has an equal part, which is what it promised"
    );
    // Who does not hear of the others gives the device as much as if it were alone.
    let mut unaware = Device::new(false);
    unaware.run(10 * SECOND);
    assert!(
        unaware.held_max > 3 * IN_FLIGHT,
        "{} ms",
        unaware.held_max / MILLI
    );
    assert!(unaware.took_max > device.took_max + 8 * MILLI);
}
