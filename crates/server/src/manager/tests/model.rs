//! Random histories of the book beside a model that knows every second of every device.
//!
//! The model knows nothing of trees, rows or peaks: it adds amounts up for each second, and finds
//! the narrowest stripe by trying every set of devices. After each step the book is also made anew
//! from its rows, as a manager does that was killed, and a step that could not be made durable is
//! undone: both come to the same book.

use super::super::Resource;
use super::super::book::{Book, Change, Created, Rejected};
use super::super::plan::{Ask, Instead, PlanDevice, Short};
use super::super::record::{GUARD_SECONDS, Row, RowState, windows};
use super::world::{MIB, Numbers, device, id, terms, wish};
use base::TicketId;
use reservation::{Interval, Moment};
use std::collections::{BTreeMap, BTreeSet};
use wire::message::{ReserveError, ReserveLimits, ReserveWindow};

const HORIZON: u64 = 400;
const START: u64 = 1000;

/// Amounts of each second, by reservation.
struct Model {
    devices: Vec<PlanDevice>,
    line: u64,
    held: BTreeMap<TicketId, Vec<(Resource, u64, u64, u64)>>,
    /// The sums of what is held, by second.
    taken: BTreeMap<Resource, Vec<u64>>,
    now: u64,
}

/// What a question came to: servers and devices of the narrowest stripe.
type Narrowest = Option<(usize, usize)>;

impl Model {
    /// What is taken of a resource in a second.
    fn level(&self, resource: Resource, second: u64) -> u64 {
        let seconds = self.taken.get(&resource);
        let taken = seconds.and_then(|seconds| seconds.get(second as usize));
        taken.copied().unwrap_or(0)
    }

    fn has_room(&self, resource: Resource, capacity: u64, amount: u64, ask: &Ask) -> bool {
        let taken = self.taken.get(&resource).map_or(&[][..], Vec::as_slice);
        let mut seconds = windows(ask.window, ask.every_secs, ask.count).flat_map(|window| {
            let end = window.end().as_secs() + GUARD_SECONDS;
            window.start().as_secs().max(self.now)..end
        });
        seconds.all(|second| {
            let taken = taken.get(second as usize).copied().unwrap_or(0);
            taken + amount <= capacity
        })
    }

    /// Tries every set of devices.
    fn narrowest(&self, ask: &Ask) -> Narrowest {
        let sets = 1_u32..1 << self.devices.len();
        let fitting = sets.filter_map(|set| {
            let chosen: Vec<_> = self
                .devices
                .iter()
                .enumerate()
                .filter(|(at, _)| set & 1 << at != 0)
                .map(|(_, device)| device)
                .collect();
            let named: BTreeSet<_> = chosen.iter().map(|device| device.store).collect();
            let wanted: BTreeSet<_> = ask.stores.iter().copied().collect();
            if !wanted.is_empty() && wanted != named {
                return None;
            }
            let count = chosen.len() as u64;
            let servers: BTreeSet<_> = chosen.iter().map(|device| device.server).collect();
            let carries = chosen.iter().all(|device| {
                let share = device.plan.share_ppm(
                    reservation::scheduler::Operation::Write,
                    ask.write.div_ceil(count),
                );
                let resource = Resource::Device(device.store);
                let capacity = u64::from(device.plan.promised_ppm_max());
                share.is_some_and(|share| self.has_room(resource, capacity, u64::from(share), ask))
            });
            let lines = servers.iter().all(|server| {
                let own = chosen
                    .iter()
                    .filter(|device| device.server == *server)
                    .count() as u64;
                let part = (ask.write * own).div_ceil(count);
                let resource = Resource::Line(*server);
                self.line == 0 || self.has_room(resource, self.line, part, ask)
            });
            (carries && lines).then_some((servers.len(), chosen.len()))
        });
        fitting.min()
    }

    fn hold(&mut self, id: TicketId, row: &Row) {
        let claims = row.claims().into_iter().map(|claim| {
            let (from, to) = (claim.interval.start(), claim.interval.end());
            let to = to.as_secs() + GUARD_SECONDS;
            (claim.resource, from.as_secs(), to, claim.amount)
        });
        let claims: Vec<_> = claims.collect();
        self.let_go(id);
        for &(resource, from, to, amount) in &claims {
            let seconds = self.taken.entry(resource).or_default();
            seconds.resize(seconds.len().max(to as usize), 0);
            for taken in &mut seconds[from as usize..to as usize] {
                *taken += amount;
            }
        }
        self.held.insert(id, claims);
    }

    fn let_go(&mut self, id: TicketId) {
        for (resource, from, to, amount) in self.held.remove(&id).unwrap_or_default() {
            let seconds = self.taken.get_mut(&resource).unwrap();
            for taken in &mut seconds[from as usize..to as usize] {
                *taken -= amount;
            }
        }
    }
}

struct World {
    book: Book,
    model: Model,
    numbers: Numbers,
    next: u64,
    /// Reservations that were admitted and neither given back nor forgotten.
    live: Vec<TicketId>,
}

pub(super) fn anew(book: &Book, devices: &[PlanDevice]) -> Book {
    let mut anew = Book::new(book.now(), book.limits().clone());
    anew.set_devices(devices.to_vec());
    for (id, row) in book.rows_after(None) {
        anew.restore(id, row.clone()).unwrap();
    }
    anew.advance(book.now());
    anew
}

impl World {
    fn new(seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let devices = vec![
            device(1, 1, 100),
            device(1, 2, 60 + numbers.below(60)),
            device(2, 3, 100),
            device(3, 4, 40 + numbers.below(100)),
        ];
        let line = [0, 80 * MIB, 150 * MIB][numbers.below(3) as usize];
        let limits = ReserveLimits {
            network_bytes_per_second: line,
            ..ReserveLimits::default()
        };
        let mut book = Book::new(Moment::from_secs(START), limits);
        book.set_devices(devices.clone());
        let model = Model {
            devices,
            line,
            held: BTreeMap::new(),
            taken: BTreeMap::new(),
            now: START,
        };
        Self {
            book,
            model,
            numbers,
            next: 0,
            live: Vec::new(),
        }
    }

    fn question(&mut self) -> super::super::ask::Wish {
        self.next += 1;
        let numbers = &mut self.numbers;
        let start = START + numbers.below(HORIZON);
        let length = 1 + numbers.below(60);
        let mut terms = terms(1 + numbers.below(250), start, start + length);
        if numbers.below(4) == 0 {
            terms.count = 1 + u32::try_from(numbers.below(4)).unwrap();
            let every = length + GUARD_SECONDS + numbers.below(50);
            terms.every_secs = if terms.count > 1 { every } else { 0 };
        }
        if numbers.below(8) == 0 {
            terms.stores = vec![self.model.devices[numbers.below(4) as usize].store];
        }
        wish(self.next, terms)
    }

    fn ask_of(&self, wish: &super::super::ask::Wish) -> Option<Ask> {
        let ReserveWindow::At {
            start_secs,
            end_secs,
        } = wish.terms.window
        else {
            return None;
        };
        let start = Moment::from_secs(start_secs.max(self.model.now));
        Some(Ask {
            read: 0,
            write: wish.terms.write_bytes_per_second,
            space_bytes: 0,
            window: Interval::new(start, Moment::from_secs(end_secs)).ok()?,
            every_secs: wish.terms.every_secs,
            count: wish.terms.count,
            stores: wish.terms.stores.clone(),
            among: None,
            without: Vec::new(),
        })
    }

    fn create(&mut self) {
        let wish = self.question();
        let Some(ask) = self.ask_of(&wish) else {
            let over = self.book.create(id(self.next), &wish, &[]);
            assert!(matches!(over, Err(Rejected::Failed(ReserveError::Over, _))));
            return;
        };
        let expected = self.model.narrowest(&ask);
        let id = id(self.next);
        let before = self.book.clone();
        match self.book.create(id, &wish, &[]) {
            Ok(Created::New(change)) => {
                let Change::Row {
                    after: Some(row), ..
                } = &change
                else {
                    panic!("{change:?}");
                };
                let found = (row.servers().len(), row.slices.len());
                assert_eq!(Some(found), expected, "{wish:?}");
                if self.numbers.below(4) == 0 {
                    self.book.undo(change);
                    assert!(self.book == before, "what is undone leaves nothing");
                    return;
                }
                self.model.hold(id, row);
                self.live.push(id);
                assert_eq!(self.book.create(id, &wish, &[]), Ok(Created::Again));
            }
            Err(Rejected::Short { short, offers }) => {
                assert_eq!(expected, None, "{wish:?}");
                self.judge_short(&ask, short);
                self.judge_offers(&ask, &offers);
            }
            other => panic!("{wish:?}: {other:?}"),
        }
    }

    /// What is called short is short, and there is as much as is said.
    fn judge_short(&self, ask: &Ask, short: Short) {
        let Short::Of {
            resource,
            wanted,
            room,
            ..
        } = short
        else {
            panic!("{short:?}");
        };
        assert!(room < wanted, "{short:?}");
        let capacity = match resource {
            Resource::Line(_) => self.model.line,
            Resource::Device(_) => 900_000,
        };
        let has = |amount| self.model.has_room(resource, capacity, amount, ask);
        assert!(room == 0 || has(room), "{short:?}");
        assert!(!has(room + 1), "{short:?}");
    }

    /// Each offer is admitted as it is; nothing nearer would be.
    fn judge_offers(&self, ask: &Ask, offers: &[Instead]) {
        let fits = |ask: &Ask| self.model.narrowest(ask).is_some();
        let at = |second| ask.at(Moment::from_secs(second)).unwrap();
        let own = ask.window.start().as_secs();
        let mut kinds = BTreeSet::new();
        for offer in offers {
            match offer {
                Instead::Later(found) => {
                    kinds.insert(0);
                    let start = found.window.start().as_secs();
                    assert!(start > own && fits(found), "{found:?}");
                    assert!(
                        !(own + 1..start).any(|second| fits(&at(second))),
                        "{found:?}"
                    );
                }
                Instead::Earlier(found) => {
                    kinds.insert(1);
                    let start = found.window.start().as_secs();
                    assert!(start < own && fits(found), "{found:?}");
                    assert!(
                        !(start + 1..own).any(|second| fits(&at(second))),
                        "{found:?}"
                    );
                }
                Instead::Slower(found) => {
                    kinds.insert(2);
                    assert!(found.write < ask.write && fits(found), "{found:?}");
                    let thousandth = found.write * 1000 / ask.write + 2;
                    let more = Ask {
                        write: ask.write * thousandth / 1000,
                        ..ask.clone()
                    };
                    assert!(more.write >= ask.write || !fits(&more), "{found:?}");
                }
            }
        }
        // Where no earlier or slower one was found, there is none.
        if !kinds.contains(&1) {
            assert!(!(self.model.now..own).any(|second| fits(&at(second))));
        }
        if !kinds.contains(&2) {
            let thousandth = Ask {
                write: ask.write / 1000,
                ..ask.clone()
            };
            assert!(!fits(&thousandth));
        }
        let end = START + 2 * HORIZON + 4 * 120;
        if !kinds.contains(&0) {
            assert!(!(own..end).any(|second| fits(&at(second))));
        }
    }

    fn one(&mut self) -> Option<TicketId> {
        let count = self.live.len() as u64;
        (count > 0).then(|| self.live[self.numbers.below(count) as usize])
    }

    fn extend(&mut self) {
        let Some(id) = self.one() else { return };
        let row = self.book.row(id).unwrap().clone();
        let later = 1 + self.numbers.below(40);
        let (end, added) = match row.count {
            1 => (row.window.end().plus(later), 1),
            // Some more windows, and a part of one.
            _ => {
                let (more, part) = (later % 3, later % row.every_secs);
                let end = row.last_end().plus(more * row.every_secs + part);
                (end, more)
            }
        };
        let is_series = row.count > 1;
        let mut claims = row.claims();
        // Each window has the same.
        let first = claims.first().map(|claim| claim.interval);
        claims.retain(|claim| Some(claim.interval) == first);
        let room = claims.iter().all(|claim| {
            let capacity = match claim.resource {
                Resource::Line(_) if self.model.line == 0 => u64::MAX,
                Resource::Line(_) => self.model.line,
                Resource::Device(store) => {
                    let device = self
                        .model
                        .devices
                        .iter()
                        .find(|device| device.store == store);
                    u64::from(device.unwrap().plan.promised_ppm_max())
                }
            };
            let fits = |mut seconds: std::ops::Range<u64>| {
                seconds.all(|second| {
                    self.model.level(claim.resource, second) + claim.amount <= capacity
                })
            };
            if is_series {
                let window = |number: u64| {
                    let delay = (u64::from(row.count) + number) * row.every_secs;
                    let (begin, end) = (row.window.start().as_secs(), row.window.end().as_secs());
                    (begin + delay).max(self.model.now)..end + delay + GUARD_SECONDS
                };
                return (0..added).all(|number| fits(window(number)));
            }
            let from = (row.window.end().as_secs() + GUARD_SECONDS).max(self.model.now);
            fits(from..end.as_secs() + GUARD_SECONDS)
        });
        let is_over = row.end().as_secs() <= self.model.now || row.released.is_some();
        let before = self.book.clone();
        match self.book.extend(id, end) {
            Ok(change) => {
                let longer = self.book.row(id).unwrap();
                let expected = row.count + u32::try_from(added).unwrap();
                assert!(room && !is_over && added > 0, "{row:?}");
                assert!(!is_series || longer.count == expected, "{row:?}");
                assert!(longer.last_end() <= end && longer.last_end() > row.last_end());
                if self.numbers.below(3) == 0 {
                    self.book.undo(change);
                    assert!(self.book == before);
                } else {
                    self.model.hold(id, self.book.row(id).unwrap());
                }
            }
            Err(Rejected::Short { .. }) => assert!(!room && !is_over, "{row:?}"),
            Err(Rejected::Failed(..)) => {
                let has_space = row.space_bytes > 0;
                assert!(is_series && (added == 0 || has_space) || is_over, "{row:?}");
            }
        }
    }

    fn release(&mut self) {
        let Some(id) = self.one() else { return };
        let row = self.book.row(id).unwrap().clone();
        let is_over = row.end().as_secs() <= self.model.now || row.released.is_some();
        match self.book.release(id) {
            Ok(_) => {
                assert!(!is_over);
                let row = self.book.row(id).unwrap();
                assert_eq!(row.end().as_secs(), self.model.now);
                self.model.hold(id, row);
            }
            Err(Rejected::Failed(ReserveError::Over, _)) => assert!(is_over),
            other => panic!("{other:?}"),
        }
    }

    fn cancel(&mut self) {
        let Some(id) = self.one() else { return };
        self.book.leave(id, true).unwrap();
        let row = self.book.row(id).unwrap();
        assert!(
            self.model.held[&id].is_empty() || !row.claims().is_empty(),
            "still held"
        );
        self.book.gone(id).unwrap();
        self.model.let_go(id);
        self.live.retain(|live| *live != id);
        assert_eq!(self.book.row(id).unwrap().state, RowState::Gone);
    }

    fn pass_time(&mut self) {
        self.model.now += self.numbers.below(40);
        self.book.advance(Moment::from_secs(self.model.now));
        let due: Vec<_> = self.book.due(self.book.now()).collect();
        for id in due {
            let row = self.book.row(id).unwrap().clone();
            if row.state == RowState::Held && row.occurrence(row.delivered.windows).is_some() {
                let mut delivered = row.delivered;
                delivered.windows += 1;
                self.book.deliver(id, delivered).unwrap();
            } else {
                self.book.remove(id).unwrap();
                self.live.retain(|live| *live != id);
            }
        }
    }

    /// Second by second, the calendars are what was promised, and never more than there is.
    fn compare(&self) {
        for (resource, calendar) in self.book.ledger().calendars() {
            for second in self.model.now..self.model.now + HORIZON {
                let moment = Moment::from_secs(second);
                let interval = Interval::new(moment, moment.plus(1)).unwrap();
                let level = self.model.level(resource, second);
                assert_eq!(calendar.peak(interval), level, "{resource:?} at {second}");
                assert!(level <= calendar.capacity(), "{resource:?} at {second}");
            }
        }
        let anew = anew(&self.book, &self.model.devices);
        assert!(
            anew == self.book,
            "a manager that was killed comes to the same book"
        );
    }
}

#[test]
fn every_history_is_as_second_by_second() {
    for seed in 1..=60 {
        let mut world = World::new(seed);
        for _ in 0..60 {
            match world.numbers.below(12) {
                0..=5 => world.create(),
                6 | 7 => world.extend(),
                8 => world.release(),
                9 => world.cancel(),
                _ => world.pass_time(),
            }
            world.compare();
        }
    }
}
