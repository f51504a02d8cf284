//! Space over time beside a naive model: what is promised is there (S1, S2), what is over is
//! unreadable (S5), and nothing is lost or counted twice (S3), also after a crash.

use super::world;
use crate::{Core, Payer, Request, StoreError, Terms};
use base::{ObjectId, Time};
use proptest::prelude::*;
use reservation::{Interval, Moment};
use sim::{CrashDisk, CrashState, Policy};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Reserve {
        after: u64,
        length: u64,
        aus: u64,
        records: u64,
    },
    Create {
        object: u8,
        reservation: usize,
    },
    CreateFree {
        object: u8,
        lifetime: u64,
    },
    /// For good, and whatever it takes is paid by a reservation.
    CreatePaid {
        object: u8,
        reservation: usize,
    },
    Write {
        object: u8,
        offset: u64,
        len: usize,
    },
    Delete(u8),
    Release(usize),
    Renew {
        object: u8,
        more: u64,
    },
    Extend {
        reservation: usize,
        more: u64,
    },
    Wait(u64),
    Reclaim,
    Commit,
    Checkpoint,
    Reopen,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let object = || 0..12_u8;
    let aus = || prop_oneof![1..4_u64, 1..30_u64];
    let length = || prop_oneof![3 => 1..60_u64, 1 => Just(u64::MAX)];
    let len = || prop_oneof![3 => 1..9_000_usize, 2 => 20_000..200_000_usize];
    let step = prop_oneof![
        3 => (0..30_u64, length(), aus(), 0..8_u64).prop_map(|(after, length, aus, records)| {
            Step::Reserve { after, length, aus, records }
        }),
        6 => (object(), 0..4_usize)
            .prop_map(|(object, reservation)| Step::Create { object, reservation }),
        3 => (object(), 1..40_u64)
            .prop_map(|(object, lifetime)| Step::CreateFree { object, lifetime }),
        3 => (object(), 0..4_usize)
            .prop_map(|(object, reservation)| Step::CreatePaid { object, reservation }),
        14 => (object(), 0..300_000_u64, len())
            .prop_map(|(object, offset, len)| Step::Write { object, offset, len }),
        2 => object().prop_map(Step::Delete),
        1 => (0..4_usize).prop_map(Step::Release),
        3 => (object(), 1..60_u64).prop_map(|(object, more)| Step::Renew { object, more }),
        1 => (0..4_usize, 1..30_u64)
            .prop_map(|(reservation, more)| Step::Extend { reservation, more }),
        4 => (1..15_u64).prop_map(Step::Wait),
        1 => Just(Step::Reclaim),
        2 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..80)
}

/// What an object should be.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// Unknown after a write that failed on its way.
    bytes: Option<Vec<u8>>,
    end: u64,
    reservation: Option<u64>,
    payer: Option<u64>,
}

/// What is left of the objects by now.
pub(super) type Objects = BTreeMap<u8, Kept>;

pub(super) struct Run {
    pub(super) store: Core,
    pub(super) seconds: u64,
    pub(super) objects: Objects,
    reservations: Vec<(u64, u64)>,
}

fn payer(reservation: Option<u64>) -> Option<Payer> {
    let is_limit = false;
    reservation.map(|reservation| Payer {
        reservation,
        is_limit,
    })
}

fn id(object: u8) -> ObjectId {
    ObjectId([object; 16])
}

impl Run {
    pub(super) fn new(store: Core) -> Self {
        Self {
            store,
            seconds: 1_000,
            objects: BTreeMap::new(),
            reservations: Vec::new(),
        }
    }

    fn now(&self) -> Time {
        Time::from_secs(self.seconds)
    }

    fn is_alive(&self, object: u8) -> bool {
        self.objects
            .get(&object)
            .is_some_and(|kept| self.seconds < kept.end)
    }

    fn created(&mut self, object: u8, made: Result<(), StoreError>, kept: Kept) {
        match made {
            Ok(()) => {
                assert!(!self.is_alive(object));
                self.objects.insert(object, kept);
            }
            Err(StoreError::Exists(_)) => assert!(self.is_alive(object)),
            Err(StoreError::NotHeld(_) | StoreError::Used { .. }) => {
                assert!(kept.reservation.is_some());
            }
            Err(StoreError::NoSpace { .. }) => assert!(kept.reservation.is_none(), "S2"),
            Err(other) => panic!("{other}"),
        }
    }

    /// Makes an object that is there until `end`.
    fn create(&mut self, object: u8, terms: Terms, end: u64, paying: Option<u64>) {
        let now = self.now();
        let made = self
            .store
            .create_from(now, id(object), terms, payer(paying));
        let reservation = match terms {
            Terms::Reserved(number) => Some(number),
            _ => None,
        };
        let kept = Kept {
            bytes: Some(Vec::new()),
            end,
            reservation,
            payer: paying,
        };
        self.created(object, made, kept);
    }

    pub(super) fn apply(&mut self, step: &Step) {
        let now = self.now();
        match *step {
            Step::Reserve {
                after,
                length,
                aus,
                records,
            } => {
                let start = Moment::from_secs(self.seconds + after);
                let interval = Interval::new(start, start.plus(length)).unwrap();
                self.reserve(Request {
                    interval,
                    aus,
                    records,
                });
            }
            Step::Create {
                object,
                reservation,
            } => {
                let Some(&(number, end)) = self.reservations.iter().rev().nth(reservation) else {
                    return;
                };
                self.create(object, Terms::Reserved(number), end, None);
            }
            Step::CreateFree { object, lifetime } => {
                let end = self.seconds + lifetime;
                self.create(object, Terms::Until(Moment::from_secs(end)), end, None);
            }
            Step::CreatePaid {
                object,
                reservation,
            } => {
                let Some(&(number, _)) = self.reservations.iter().rev().nth(reservation) else {
                    return;
                };
                let terms = Terms::Until(Moment::FOREVER);
                self.create(object, terms, u64::MAX, Some(number));
            }
            Step::Write {
                object,
                offset,
                len,
            } => self.write(object, offset, len),
            Step::Delete(object) => match self.store.delete(now, id(object)) {
                Ok(()) => {
                    assert!(self.is_alive(object));
                    self.objects.remove(&object);
                }
                Err(StoreError::NotFound(_) | StoreError::Expired(_)) => {
                    assert!(!self.is_alive(object));
                }
                Err(other) => panic!("{other}"),
            },
            Step::Renew { object, more } => self.renew(object, more),
            Step::Release(reservation) => self.end(reservation, None),
            Step::Extend { reservation, more } => self.end(reservation, Some(more)),
            Step::Wait(seconds) => self.seconds += seconds,
            Step::Reclaim => self.store.reclaim(now).unwrap(),
            Step::Commit | Step::Reopen => self.store.commit().unwrap(),
            Step::Checkpoint => self.store.checkpoint().unwrap(),
        }
    }

    /// What is refused comes with an offer, and the offer is admitted.
    fn reserve(&mut self, request: Request) {
        let now = self.now();
        let (number, end) = match self.store.reserve(now, request) {
            Ok(number) => (number, request.interval.end()),
            Err(StoreError::Refused {
                offer,
                wanted,
                room,
            }) => {
                assert!(room < wanted);
                let Some(interval) = offer.0 else {
                    return;
                };
                let offered = Request {
                    interval,
                    ..request
                };
                (self.store.reserve(now, offered).unwrap(), interval.end())
            }
            Err(StoreError::NoSpace { .. }) => return,
            Err(other) => panic!("{other}"),
        };
        self.reservations.push((number, end.as_secs()));
    }

    fn write(&mut self, object: u8, offset: u64, len: usize) {
        let data = world::pattern(object, offset, len);
        let is_alive = self.is_alive(object);
        let paid = self.objects.get(&object).and_then(|kept| kept.payer);
        let is_promised = paid.is_some_and(|number| self.has_left(number, offset + len as u64));
        let at = (id(object), offset);
        let written = self
            .store
            .write_from(self.now(), at.0, at.1, &data, payer(paid));
        let Some(kept) = self.objects.get_mut(&object).filter(|_| is_alive) else {
            let gone = matches!(
                written,
                Err(StoreError::NotFound(_) | StoreError::Expired(_))
            );
            assert!(gone, "written to what is over (S5)");
            return;
        };
        match written {
            Ok(()) => {
                if let Some(bytes) = &mut kept.bytes {
                    let end = offset as usize + len;
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[offset as usize..end].copy_from_slice(&data);
                }
            }
            Err(StoreError::Used { .. }) if kept.reservation.is_some() => kept.bytes = None,
            Err(StoreError::NoSpace { .. }) if kept.reservation.is_none() && !is_promised => {
                kept.bytes = None;
            }
            Err(other) => panic!("{other} (S2)"),
        }
    }

    /// Whether a reservation without end has as much left as an object of this length may take.
    fn has_left(&self, number: u64, bytes: u64) -> bool {
        let found = self.store.reservations(number, 1).unwrap();
        let now = Moment::from_secs(self.seconds);
        found.first().is_some_and(|found| {
            let request = &found.request;
            found.reservation == number
                && request.interval.contains(now)
                && request.interval.end() == Moment::FOREVER
                && request.aus - found.aus_used > bytes.div_ceil(world::AU)
        })
    }

    fn renew(&mut self, object: u8, more: u64) {
        let end = self.seconds + more;
        let renewed = self
            .store
            .renew(self.now(), id(object), Moment::from_secs(end));
        let is_alive = self.is_alive(object);
        match (renewed, self.objects.get_mut(&object).filter(|_| is_alive)) {
            // One that lives as long as its reservation has no end of its own to put off.
            (Ok(()), Some(kept)) if kept.reservation.is_none() => kept.end = kept.end.max(end),
            (Ok(()), Some(_)) | (Err(StoreError::NoSpace { .. }), Some(_)) => {}
            (Err(StoreError::NotFound(_) | StoreError::Expired(_)), None) => {}
            (other, _) => panic!("{other:?}"),
        }
    }

    fn end(&mut self, reservation: usize, more: Option<u64>) {
        let count = self.reservations.len();
        let Some(index) = count.checked_sub(reservation + 1) else {
            return;
        };
        let now = self.now();
        let (number, end) = self.reservations[index];
        let (changed, end) = match more {
            None => (self.store.release(now, number), self.seconds),
            Some(more) => {
                let end = end.saturating_add(more);
                let later = Moment::from_secs(end);
                (self.store.extend(now, number, later), end)
            }
        };
        match changed {
            Ok(()) => {
                self.reservations[index].1 = end;
                let own = |kept: &&mut Kept| kept.reservation == Some(number);
                // Whoever lives as long as the reservation lives longer with it.
                let seconds = self.seconds;
                for kept in self.objects.values_mut().filter(own) {
                    if seconds < kept.end {
                        kept.end = end;
                    }
                }
            }
            Err(StoreError::NotHeld(_)) => assert!(end <= self.seconds || more.is_some()),
            Err(StoreError::Refused { .. } | StoreError::NoSpace { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    pub(super) fn check(&self) {
        let report = self.store.check(true).unwrap();
        assert_eq!(report.findings, []);
        let usage = self.store.usage();
        assert_eq!(
            usage.free + usage.limbo + usage.records + usage.used,
            usage.total,
            "S3"
        );
        for (object, kept) in &self.objects {
            let mut found = vec![0; 600_000];
            match self.store.read(self.now(), id(*object), 0, &mut found) {
                Ok(len) => {
                    assert!(self.seconds < kept.end, "read what is over (S5)");
                    if let Some(bytes) = &kept.bytes {
                        assert!(found[..len] == bytes[..], "object {object}");
                    }
                }
                Err(StoreError::Expired(_) | StoreError::NotFound(_)) => {
                    assert!(kept.end <= self.seconds, "lost before its end");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// A run with what there was after each step.
struct History {
    disk: Arc<CrashDisk>,
    /// Time and objects before the first step, after it, and so on.
    models: Vec<(u64, Objects)>,
    /// The disk's position when a commit had returned, and how many steps it covers.
    acknowledged: Vec<(u64, usize)>,
    /// The disk's position at the end of each step.
    ends: Vec<u64>,
}

fn run(steps: &[Step]) -> History {
    let disk = world::formatted(5 << 20);
    let mut run = Run::new(Core::open(disk.clone(), world::options()).unwrap());
    let mut history = History {
        models: vec![(run.seconds, Objects::new())],
        acknowledged: vec![(disk.position(), 0)],
        ends: Vec::new(),
        disk: disk.clone(),
    };
    for (index, step) in steps.iter().enumerate() {
        run.apply(step);
        if matches!(step, Step::Commit | Step::Checkpoint | Step::Reopen) {
            history.acknowledged.push((disk.position(), index + 1));
        }
        if matches!(step, Step::Reopen) {
            run.store = Core::open(disk.clone(), world::options()).unwrap();
            run.check();
        }
        history.models.push((run.seconds, run.objects.clone()));
        history.ends.push(disk.position());
    }
    run.check();
    history
}

/// What is wrong with a state, if anything is.
fn judge(history: &History, state: &CrashState) -> Result<(), String> {
    let acknowledged = history.acknowledged.iter().rev();
    let (_, first) = acknowledged
        .clone()
        .find(|(position, _)| *position <= state.position)
        .copied()
        .unwrap_or_default();
    let last = history.ends.partition_point(|end| *end <= state.position) + 1;
    let last = last.min(history.models.len() - 1);
    let store = Core::open(Arc::new(state.disk()), world::options());
    let store = store.map_err(|error| format!("open: {error}"))?;
    let report = store
        .check(true)
        .map_err(|error| format!("check: {error}"))?;
    if !report.findings.is_empty() {
        return Err(format!("{:?}", report.findings));
    }
    // Whoever opens it knows what time it is.
    let seconds = history.models[last].0;
    let found = contents(&store, seconds).map_err(|error| format!("read: {error}"))?;
    let steps = first..=last;
    let fits = steps
        .clone()
        .any(|step| is_at(&found, history, (step, step), seconds))
        || (first..last).any(|step| is_at(&found, history, (step, step + 1), seconds));
    fits.then_some(())
        .ok_or_else(|| format!("not what was after any of the steps {steps:?}"))
}

fn contents(store: &Core, seconds: u64) -> Result<BTreeMap<u8, Vec<u8>>, StoreError> {
    let now = Time::from_secs(seconds);
    let mut all = BTreeMap::new();
    for info in store.list(now, ObjectId([0; 16]), usize::MAX)?.0 {
        let mut bytes = vec![0xEE; info.size_bytes as usize];
        store.read(now, info.object, 0, &mut bytes)?;
        all.insert(info.object.0[0], bytes);
    }
    Ok(all)
}

/// Whether this is what there was at a step, or on the way from one to the next.
fn is_at(
    found: &BTreeMap<u8, Vec<u8>>,
    history: &History,
    (from, to): (usize, usize),
    seconds: u64,
) -> bool {
    let alive = |step: usize| {
        let objects = history.models[step].1.iter();
        objects
            .filter(|(_, kept)| seconds < kept.end)
            .map(|(object, kept)| (*object, &kept.bytes))
            .collect::<BTreeMap<_, _>>()
    };
    let (before, after) = (alive(from), alive(to));
    found.keys().eq(before.keys())
        && found.keys().eq(after.keys())
        && found
            .iter()
            .all(|(object, bytes)| match (before[object], after[object]) {
                (Some(old), Some(new)) => world::is_between_bytes(bytes, old, new),
                _ => true,
            })
}

/// Runs steps, cuts the power at each point, and counts the states.
pub(super) fn prove(steps: &[Step], policy: &Policy) -> Result<u64, String> {
    let history = run(steps);
    let states = history.disk.crash_states(policy);
    let count = states.state_count();
    for state in states {
        judge(&history, &state).map_err(|wrong| format!("{state}: {wrong}"))?;
    }
    Ok(count)
}

/// A policy with few states of each stretch: there are many stretches.
pub(super) fn policy(seed: u64) -> Policy {
    Policy {
        exhaustive_states_max: 8,
        sampled_states: 4,
        ..Policy::new(seed)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_is_promised_is_there_and_what_is_over_is_not(steps in steps()) {
        let proven = prove(&steps, &policy(1));
        prop_assert!(proven.is_ok(), "{:?}", proven);
    }
}

#[test]
fn a_reservation_has_its_space_beside_a_greedy_writer() {
    let disk = world::formatted(6 << 20);
    let mut store = Core::open(disk, world::options()).unwrap();
    let (now, start) = (Time::from_secs(10), Moment::from_secs(10));
    let interval = Interval::new(start, start.plus(100)).unwrap();
    let request = Request {
        interval,
        aus: 20,
        records: 4,
    };
    let reservation = store.reserve(now, request).unwrap();
    store
        .create(now, id(1), Terms::Reserved(reservation))
        .unwrap();
    store.create(now, id(2), Terms::Default).unwrap();
    let data = world::pattern(1, 0, world::AU as usize);
    let greedy = (0..200).find_map(|au| store.write(now, id(2), au * world::AU, &data).err());
    assert!(
        matches!(greedy, Some(StoreError::NoSpace { .. })),
        "{greedy:?}"
    );
    for au in 0..20 {
        store.write(now, id(1), au * world::AU, &data).unwrap();
    }
    let more = store.write(now, id(1), 20 * world::AU, &data);
    assert!(matches!(more, Err(StoreError::Used { .. })), "{more:?}");
    let late = Time::from_secs(110);
    assert!(matches!(
        store.info(late, id(1)),
        Err(StoreError::Expired(_))
    ));
    store.reclaim(late).unwrap();
    assert!(matches!(
        store.info(late, id(1)),
        Err(StoreError::NotFound(_))
    ));
}

#[test]
fn an_object_can_be_made_ahead_of_its_reservation_and_takes_nobodys_space() {
    let disk = world::formatted(6 << 20);
    let mut store = Core::open(disk, world::options()).unwrap();
    let (now, start) = (Time::from_secs(10), Moment::from_secs(1000));
    let request = Request {
        interval: Interval::new(start, start.plus(100)).unwrap(),
        aus: 20,
        records: 4,
    };
    let reservation = store.reserve(now, request).unwrap();
    let early = store.create(now, id(1), Terms::Reserved(reservation));
    assert!(matches!(early, Err(StoreError::NotHeld(_))), "{early:?}");
    store.create(now, id(1), Terms::Ahead(reservation)).unwrap();
    store.commit().unwrap();
    assert_eq!(
        store.info(now, id(1)).unwrap().reservation,
        Some(reservation)
    );
    // All of its space is there when it begins.
    let begun = Time::from_secs(1000);
    let data = world::pattern(1, 0, world::AU as usize);
    for au in 0..20 {
        store.write(begun, id(1), au * world::AU, &data).unwrap();
    }
    let late = Time::from_secs(1100);
    let over = store.create(late, id(2), Terms::Ahead(reservation));
    assert!(matches!(over, Err(StoreError::NotHeld(_))), "{over:?}");
    assert!(matches!(
        store.info(late, id(1)),
        Err(StoreError::Expired(_))
    ));
}
