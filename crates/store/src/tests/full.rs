//! A store that is filled to its last byte, at every step of a workload: what was acknowledged is
//! there, what is promised is there (S2), it opens, it can be emptied, and then it is used again.
//!
//! The same workload runs on stores of every size, from one that has hardly room for anything to
//! one that has room for all. So each step that needs space is somewhere the first one that finds
//! none, and those after it run into a full store.

use super::world::{self, id};
use crate::key::Key;
use crate::transaction::attribute::ATTRIBUTE_RECORDS;
use crate::{Core, Request, StoreError, Terms};
use base::{Extent, ObjectId, Time};
use proptest::prelude::*;
use reservation::{Interval, Moment};
use sim::CrashDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One thing to do.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Create { object: u8, terms: u8 },
    Write { object: u8, offset: u64, len: usize },
    Attribute { object: u8, name: u8, len: usize },
    Truncate { object: u8, size: u64 },
    Punch { object: u8, offset: u64, len: u64 },
    Clone(u8, u8),
    Delete(u8),
    Renew(u8),
    Wait(u64),
    Reclaim,
    Commit,
    Checkpoint,
}

/// A workload that mostly grows: data for some seeds, records for others.
pub(super) fn steps(seed: u64) -> Vec<Step> {
    let object = || 0..10_u8;
    let is_data = !seed.is_multiple_of(2);
    let (data, records) = if is_data { (16, 2) } else { (6, 14) };
    let offset = || prop_oneof![2 => 0..9_000_u64, 1 => 0..200_000_u64];
    let len = || prop_oneof![2 => 1..9_000_usize, 2 => 30_000..190_000_usize];
    let step = prop_oneof![
        6 => (object(), 0..4_u8).prop_map(|(object, terms)| Step::Create { object, terms }),
        data => (object(), offset(), len())
            .prop_map(|(object, offset, len)| Step::Write { object, offset, len }),
        records => (object(), 0..40_u8, 700..1_025_usize)
            .prop_map(|(object, name, len)| Step::Attribute { object, name, len }),
        2 => (object(), 0..200_000_u64)
            .prop_map(|(object, size)| Step::Truncate { object, size }),
        2 => (object(), offset(), 1..90_000_u64)
            .prop_map(|(object, offset, len)| Step::Punch { object, offset, len }),
        2 => (object(), object()).prop_map(|(from, to)| Step::Clone(from, to)),
        1 => object().prop_map(Step::Delete),
        1 => object().prop_map(Step::Renew),
        1 => (1..20_u64).prop_map(Step::Wait),
        1 => Just(Step::Reclaim),
        2 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
    ];
    let all = world::drawn(prop::collection::vec(step, 40..70), seed);
    // Records come in large numbers, or they do not matter.
    let many = |step: &Step| match *step {
        Step::Attribute { object, name, len } => (0..12)
            .map(|more| Step::Attribute {
                object,
                name: (name + more) % 40,
                len,
            })
            .collect(),
        ref other => vec![other.clone()],
    };
    all.iter().flat_map(many).collect()
}

/// What an object should be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    bytes: Vec<u8>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    is_reserved: bool,
    end: Moment,
}

/// A store and what it should have.
struct Run {
    store: Core,
    seconds: u64,
    objects: BTreeMap<ObjectId, Kept>,
    reservation: Option<u64>,
    /// How often there was no space.
    refused: u64,
}

/// What is promised, if the store is large enough: space for some of the objects.
const PROMISED_AUS: u64 = 6;
const PROMISED_RECORDS: u64 = 3 + 8 * ATTRIBUTE_RECORDS as u64;

impl Run {
    fn new(store: Core) -> Self {
        let mut run = Self {
            store,
            seconds: 100,
            objects: BTreeMap::new(),
            reservation: None,
            refused: 0,
        };
        let request = Request {
            interval: Interval::unlimited(run.moment()).unwrap(),
            aus: PROMISED_AUS,
            records: PROMISED_RECORDS,
        };
        run.reservation = run.store.reserve(run.now(), request).ok();
        run.store.commit().unwrap();
        run
    }

    fn now(&self) -> Time {
        Time::from_secs(self.seconds)
    }

    fn moment(&self) -> Moment {
        Moment::from_secs(self.seconds)
    }

    /// Does a step. Says false if there was no space for it; whatever else goes wrong is wrong.
    fn apply(&mut self, step: &Step) -> Result<bool, String> {
        let (now, before) = (self.now(), self.objects.clone());
        let (object, done) = match *step {
            Step::Create { object, terms } => (object, self.create(object, terms)),
            Step::Write {
                object,
                offset,
                len,
            } => {
                let data = world::pattern(object + 1, offset, len);
                self.expect(object, |kept| {
                    let end = offset as usize + len;
                    kept.bytes.resize(kept.bytes.len().max(end), 0);
                    kept.bytes[offset as usize..end].copy_from_slice(&data);
                });
                (object, self.store.write(now, id(object), offset, &data))
            }
            Step::Attribute { object, name, len } => {
                let (name, contents) = (vec![name + 1; 20], vec![name; len]);
                self.expect(object, |kept| {
                    kept.attributes.insert(name.clone(), contents.clone());
                });
                let done = self
                    .store
                    .transact(now, |t| t.set_attribute(id(object), &name, Some(&contents)));
                (object, done)
            }
            Step::Truncate { object, size } => {
                self.expect(object, |kept| kept.bytes.resize(size as usize, 0));
                (object, self.store.truncate(now, id(object), size))
            }
            Step::Punch {
                object,
                offset,
                len,
            } => {
                self.expect(object, |kept| {
                    let end = kept.bytes.len().min((offset + len) as usize);
                    let from = end.min(offset as usize);
                    kept.bytes[from..end].fill(0);
                });
                let hole = Extent::new(offset, len);
                (object, self.store.punch(now, id(object), hole))
            }
            Step::Clone(from, to) => (to, self.clone_object(from, to)),
            Step::Renew(object) => {
                let end = self.moment().plus(50);
                self.expect(object, |kept| kept.end = kept.end.max(end));
                (object, self.store.renew(now, id(object), end))
            }
            ref other => return self.apply_always(other),
        };
        self.outcome(id(object), done, before, step)
    }

    /// What the object is going to be, if it is there.
    fn expect(&mut self, object: u8, change: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.objects.get_mut(&id(object)) {
            change(kept);
        }
    }

    /// Does a step that a store may be as full for as it likes.
    fn apply_always(&mut self, step: &Step) -> Result<bool, String> {
        let now = self.now();
        match *step {
            Step::Delete(object) => match self.store.delete(now, id(object)) {
                Ok(()) | Err(StoreError::NotFound(_) | StoreError::Expired(_)) => {
                    self.objects.remove(&id(object));
                }
                Err(other) => return Err(format!("a full store does not delete: {other}")),
            },
            Step::Wait(seconds) => {
                self.seconds += seconds;
                let now = self.moment();
                self.objects.retain(|_, kept| now < kept.end);
            }
            Step::Reclaim => must_work(self.store.reclaim(now))?,
            Step::Checkpoint => must_work(self.store.checkpoint())?,
            _ => must_work(self.store.commit())?,
        }
        Ok(true)
    }

    fn create(&mut self, object: u8, terms: u8) -> Result<(), StoreError> {
        let (terms, end, is_reserved) = match (terms, self.reservation) {
            (0, Some(number)) => (Terms::Reserved(number), Moment::FOREVER, true),
            (1, _) => {
                let end = self.moment().plus(40);
                (Terms::Until(end), end, false)
            }
            _ => (Terms::Default, Moment::FOREVER, false),
        };
        let done = self.store.create(self.now(), id(object), terms);
        if done.is_ok() {
            let new = Kept {
                bytes: Vec::new(),
                attributes: BTreeMap::new(),
                is_reserved,
                end,
            };
            self.objects.insert(id(object), new);
        }
        done
    }

    fn clone_object(&mut self, from: u8, to: u8) -> Result<(), StoreError> {
        let terms = Terms::Default;
        let done = self.store.clone_object(self.now(), id(from), id(to), terms);
        if let (Ok(()), Some(source)) = (&done, self.objects.get(&id(from))) {
            let copy = Kept {
                is_reserved: false,
                end: Moment::FOREVER,
                ..source.clone()
            };
            self.objects.insert(id(to), copy);
        }
        done
    }

    /// Takes a change back that was refused, and judges the refusal.
    fn outcome(
        &mut self,
        object: ObjectId,
        done: Result<(), StoreError>,
        before: BTreeMap<ObjectId, Kept>,
        step: &Step,
    ) -> Result<bool, String> {
        let Err(error) = done else {
            return Ok(true);
        };
        let after = std::mem::replace(&mut self.objects, before);
        match error {
            StoreError::NotFound(_)
            | StoreError::Expired(_)
            | StoreError::Exists(_)
            | StoreError::Attribute => return Ok(true),
            StoreError::NoSpace { .. } | StoreError::Used { .. } => {}
            other => return Err(format!("{step:?}: {other}")),
        }
        let is_used = matches!(error, StoreError::Used { .. });
        let is_reserved = |kept: &Kept| kept.is_reserved;
        let is_promised = matches!(step, Step::Create { terms: 0, .. })
            && self.reservation.is_some()
            || !matches!(step, Step::Clone(..))
                && self.objects.get(&object).is_some_and(is_reserved);
        if is_promised != is_used {
            return Err(format!("{step:?} of what is promised (S2): {error}"));
        }
        // A change that was too long for one transaction may be there in part.
        let mut bytes = vec![0; 400_000];
        if let (Some(old), Some(new)) = (self.objects.get_mut(&object), after.get(&object)) {
            let len = self.store.read(Time::ZERO, object, 0, &mut bytes);
            bytes.truncate(len.map_err(|error| error.to_string())?);
            if !world::is_between_bytes(&bytes, &old.bytes, &new.bytes) {
                return Err(format!("{step:?} was refused and left other bytes"));
            }
            old.bytes = bytes;
        }
        self.refused += u64::from(!is_used);
        Ok(is_used)
    }

    /// What is wrong with what a store has.
    fn judge(&self, store: &Core) -> Result<(), String> {
        let wrong = |error: StoreError| error.to_string();
        let report = store.check(true).map_err(wrong)?;
        if !report.findings.is_empty() {
            return Err(format!("{:?}", report.findings));
        }
        let usage = store.usage();
        if usage.free + usage.limbo + usage.records + usage.used != usage.total {
            return Err(format!("{usage:?} (S3)"));
        }
        let now = self.now();
        let (found, _) = store
            .list(now, ObjectId([0; 16]), usize::MAX)
            .map_err(wrong)?;
        let found: BTreeSet<ObjectId> = found.into_iter().map(|info| info.object).collect();
        if !found.iter().eq(self.objects.keys()) {
            return Err(format!("{found:?} and not {:?}", self.objects.keys()));
        }
        for (object, kept) in &self.objects {
            let mut bytes = vec![0; kept.bytes.len() + 1];
            let len = store.read(now, *object, 0, &mut bytes).map_err(wrong)?;
            let attributes = store.attributes(now, *object).map_err(wrong)?;
            if bytes[..len] != kept.bytes || !attributes.into_iter().eq(kept.attributes.clone()) {
                return Err(format!("object {object} has other bytes"));
            }
        }
        Ok(())
    }

    /// Whether a full store, as a crash would leave it, opens with what was acknowledged, lets one
    /// object after the other be deleted, and takes the same again.
    fn judge_copy(&mut self, disk: &CrashDisk, seed: u64) -> Result<(), String> {
        self.store
            .commit()
            .map_err(|error| format!("commit: {error}"))?;
        let copy = Arc::new(CrashDisk::from_image(disk.image()));
        let mut store = Core::open(copy, world::options()).map_err(|error| error.to_string())?;
        self.judge(&store)
            .map_err(|wrong| format!("opened: {wrong}"))?;
        let now = self.now();
        let mut objects: Vec<_> = self.objects.iter().collect();
        let count = objects.len().max(1);
        objects.rotate_left(seed as usize % count);
        for (object, _) in &objects {
            let deleted = store.delete(now, **object);
            deleted.map_err(|error| format!("cannot be deleted: {error}"))?;
        }
        let emptied = store.reclaim(now).and_then(|()| store.checkpoint());
        emptied.map_err(|error| format!("cannot be emptied: {error}"))?;
        if store.usage().used != 0 {
            return Err(format!("{:?} after all was deleted", store.usage()));
        }
        for (object, kept) in &objects {
            // One pool needs no more than several.
            let terms = match self.reservation.filter(|_| kept.is_reserved) {
                Some(number) => Terms::Reserved(number),
                None => Terms::Default,
            };
            let made = store
                .create(now, **object, terms)
                .and_then(|()| write_again(&mut store, now, **object, &kept.bytes));
            made.map_err(|error| format!("emptied and no room again: {error}"))?;
        }
        let report = store.check(true).map_err(|error| error.to_string())?;
        match report.findings.is_empty() {
            true => Ok(()),
            false => Err(format!("used again: {:?}", report.findings)),
        }
    }
}

/// Writes what is there of an object, and leaves out AUs that are holes.
fn write_again(
    store: &mut Core,
    now: Time,
    object: ObjectId,
    bytes: &[u8],
) -> Result<(), StoreError> {
    let au = world::AU as usize;
    if bytes.len() > au / 4 {
        store.truncate(now, object, bytes.len() as u64)?;
    }
    for (at, part) in bytes.chunks(au).enumerate() {
        if part.iter().any(|byte| *byte != 0) {
            store.write(now, object, (at * au) as u64, part)?;
        }
    }
    Ok(())
}

fn must_work(result: Result<(), StoreError>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}

/// Runs a seed's workload on a store of so many AUs; says how often there was no space.
fn run(seed: u64, aus: u64) -> Result<u64, String> {
    let disk = world::formatted(world::FIRST_AU + aus * world::AU);
    let mut run = Run::new(Core::open(disk.clone(), world::options()).unwrap());
    let mut was_refused = false;
    for (index, step) in steps(seed).iter().enumerate() {
        let has_space = run.apply(step)?;
        // Looked at closely when the store becomes full, and now and then while it is.
        if !has_space && (!was_refused || run.refused.is_multiple_of(5)) {
            let at = |wrong| format!("step {index}, {step:?}: {wrong}");
            run.judge(&run.store).map_err(at)?;
            run.judge_copy(&disk, seed + index as u64).map_err(at)?;
        }
        was_refused = !has_space;
    }
    run.judge(&run.store)?;
    Ok(run.refused)
}

/// Runs a seed's workload on stores of all sizes; says how often there was no space.
pub(super) fn prove(seed: u64) -> Result<u64, String> {
    let mut refused = 0;
    for aus in 1.. {
        match run(seed, aus) {
            Ok(0) if aus > 8 => return Ok(refused),
            Ok(count) => refused += count,
            Err(wrong) => return Err(format!("{aus} AUs, {wrong}")),
        }
    }
    Ok(refused)
}

#[test]
fn a_store_is_filled_to_its_last_byte_at_every_step() {
    let mut refused = 0;
    for seed in world::seeds(6) {
        match prove(seed) {
            Ok(count) => refused += count,
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    println!("{refused} times no space");
    assert!(refused >= 100, "{refused} are too few to say anything");
}

/// Objects of nothing but attributes, until there is no room.
fn fill_with_records(store: &mut Core, is_own: bool) -> Vec<ObjectId> {
    let now = Time::from_secs(1);
    let mut made = Vec::new();
    for number in 1_u128.. {
        // In no order, so that records between others come and go.
        let object = ObjectId((number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C)).to_le_bytes());
        let done = store.transact(now, |t| {
            t.create(object, Terms::Default)?;
            if is_own {
                t.write(object, 70_000, b"x")?;
            }
            (0..20).try_for_each(|name| t.set_attribute(object, &[name; 9], Some(&[name; 900])))
        });
        match done {
            Ok(()) => made.push(object),
            Err(StoreError::NoSpace { .. }) => return made,
            Err(other) => panic!("{other}"),
        }
    }
    made
}

#[test]
fn a_store_full_of_records_can_be_emptied_and_gets_its_space_back() {
    for is_own in [false, true] {
        let disk = world::formatted(5 << 20);
        let mut store = Core::open(disk.clone(), world::options()).unwrap();
        let made = fill_with_records(&mut store, is_own);
        let taken = store.usage().records;
        assert!(made.len() > 10 && taken > 10, "{} with {taken}", made.len());
        for object in &made {
            store.delete(Time::from_secs(1), *object).unwrap();
        }
        store.reclaim(Time::from_secs(1)).unwrap();
        for _ in 0..4 {
            store.checkpoint().unwrap();
        }
        let usage = store.usage();
        assert!(usage.used == 0 && usage.records <= 8, "{usage:?}");
        drop(store);
        let mut store = Core::open(disk, world::options()).unwrap();
        assert_eq!(store.check(true).unwrap().findings, Vec::new());
        assert_eq!(fill_with_records(&mut store, is_own).len(), made.len());
    }
}

/// One checkpoint frees nearly all pages of the records: its map of pages is the longest there is.
#[test]
fn a_store_that_one_checkpoint_has_emptied_opens() {
    let mut format = world::format(1);
    // All is deleted before the log asks for a checkpoint.
    format.sizes.log_bytes = 8 << 20;
    let disk = world::formatted_with(64 << 20, &format);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    // As many as a larger store lets one have.
    let keys =
        || (1..=200).flat_map(|of| (0..80).map(move |name| Key::Attribute(of, vec![name; 9])));
    for key in keys() {
        store.put_unlogged(key, Some(vec![7; 1000].into()));
    }
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    let (pages, epoch) = (store.pages.live_count(), store.superblock().epoch);
    assert!(pages > 3_500, "{pages} pages");
    for key in keys() {
        store.put_unlogged(key, None);
    }
    store.checkpoint().unwrap();
    assert_eq!(store.superblock().epoch, epoch + 1, "by one checkpoint");
    assert!(store.pages.freed().count() > 3_500);
    drop(store);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    assert_eq!(store.check(true).unwrap().findings, []);
    for _ in 0..4 {
        store.checkpoint().unwrap();
    }
    let usage = store.usage();
    assert!(usage.used == 0 && usage.records <= 8, "{usage:?}");
    drop(store);
    let store = Core::open(disk, world::options()).unwrap();
    assert_eq!(store.check(true).unwrap().findings, []);
}

/// A reservation of all that is left, beside objects whose records change all the time.
#[test]
fn records_of_others_do_not_take_what_is_promised() {
    let disk = world::formatted(6 << 20);
    let mut store = Core::open(disk, world::options()).unwrap();
    let now = Time::from_secs(10);
    let others: Vec<_> = (10..20).map(id).collect();
    for other in &others {
        store.create(now, *other, Terms::Default).unwrap();
    }
    let start = Moment::from_secs(10);
    let interval = Interval::new(start, start.plus(1_000)).unwrap();
    let mut reserve = |aus| {
        let records = 1;
        let request = Request {
            interval,
            aus,
            records,
        };
        Some((aus, store.reserve(now, request).ok()?))
    };
    let (aus, number) = (1..100).rev().find_map(&mut reserve).unwrap();
    assert!(aus > 60, "{aus} AUs");
    store.create(now, id(1), Terms::Reserved(number)).unwrap();
    for round in 0..400_u64 {
        for other in &others {
            let contents = vec![round as u8; 1_000];
            let set = store.transact(now, |t| t.set_attribute(*other, b"x", Some(&contents)));
            assert!(matches!(set, Ok(()) | Err(StoreError::NoSpace { .. })));
        }
    }
    let data = world::pattern(1, 0, world::AU as usize);
    for au in 0..aus {
        let written = store.write(now, id(1), au * world::AU, &data);
        assert!(written.is_ok(), "AU {au} of {aus} (S2): {written:?}");
    }
}

#[test]
fn deleted_clones_make_room_for_others_although_no_unit_is_free_thereby() {
    const AUS: u64 = 12;
    let disk = world::formatted_with(world::FIRST_AU + 40 * world::AU, &world::format(1));
    let mut store = Core::open(disk, world::options()).unwrap();
    let now = Time::from_secs(1);
    store.create(now, id(1), Terms::Default).unwrap();
    for au in 0..AUS {
        store.write(now, id(1), au * world::AU, &[3; 9]).unwrap();
    }
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    for round in 0..12 {
        let cloned = store.clone_object(now, id(1), id(2), Terms::Default);
        assert!(cloned.is_ok(), "round {round}: {cloned:?}");
        store.delete(now, id(2)).unwrap();
    }
}
