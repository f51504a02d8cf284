//! Damage and repair: what can be had from elsewhere on the device comes back, the rest stays an
//! error, nothing becomes other bytes, and a crash on the way makes nothing worse.

use super::world::{self, Model, Step};
use crate::check::{Kind, Mend};
use crate::key::Key;
use crate::layout::{PAGE_BYTES, SUPERBLOCK_OFFSETS};
use crate::{Core, Damage, Examination, Options, Report, Request, StoreError, Terms};
use base::{BlockDevice, ObjectId, Time};
use reservation::{Interval, Moment};
use sim::{CrashDisk, Image, Policy, Random};
use std::collections::BTreeSet;
use std::sync::Arc;

const NOW: Time = Time::from_secs(1);

fn examine(disk: &Arc<CrashDisk>, repair: bool) -> Result<Report, StoreError> {
    let device: Arc<dyn BlockDevice> = disk.clone();
    let examination = Examination {
        options: world::options(),
        data: true,
        repair,
        give_up_log: false,
    };
    examination.run(&device, &mut |_, _| {})
}

fn is(mend: Mend) -> impl Fn(&crate::Finding) -> bool {
    move |finding| finding.mend == mend
}

/// A disk after a random history, and what is on it. If a checkpoint comes last, the older
/// superblock has other records than the newer one; after an opening, it has the same.
fn history(seed: u64) -> (Image, Model) {
    let disk = world::formatted_for(seed);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let mut model = Model::new();
    let mut steps: Vec<Step> = (0..6).map(Step::Create).collect();
    steps.extend(world::drawn(world::steps(30), seed));
    steps.extend(match seed % 4 {
        0 | 1 => vec![Step::Checkpoint],
        2 => vec![Step::Commit],
        _ => vec![Step::Checkpoint, Step::Reopen],
    });
    for step in &steps {
        world::apply(&mut store, &mut model, step).unwrap();
        if let Step::Reopen = step {
            drop(store);
            store = Core::open(disk.clone(), world::options()).unwrap();
        }
    }
    drop(store);
    (disk.image(), model)
}

/// Pages that the newest superblock needs.
fn pages_of(image: &Image) -> Vec<u64> {
    let disk = Arc::new(CrashDisk::from_image(image.clone()));
    let core = Core::open_read_only(disk, world::options()).unwrap();
    let freed: BTreeSet<u64> = core.pages.freed().collect();
    let used = core.pages.used();
    used.filter(|page| !freed.contains(page)).collect()
}

/// Damages one thing or two; says what, for those who look for a reason.
fn damage(image: &mut Image, random: &mut Random) -> String {
    let mut done = Vec::new();
    let pages = pages_of(image);
    for _ in 0..=random.below(2) {
        let page = (!pages.is_empty()).then(|| pages[random.below(pages.len() as u64) as usize]);
        match (random.below(5), page) {
            (0, _) => {
                let at = SUPERBLOCK_OFFSETS[random.below(2) as usize];
                image.write_at(at + 40, &[0xEE; 64]);
                done.push(format!("superblock at {at}"));
                return done.join(", ");
            }
            (1 | 2, Some(page)) => {
                image.write_at(page * PAGE_BYTES + 512 * random.below(8), &[0xEE; 512]);
                done.push(format!("page {page}"));
                return done.join(", ");
            }
            (3, Some(page)) => {
                let at = page * PAGE_BYTES + random.below(PAGE_BYTES);
                image.flip_bit(at, random.below(8) as u8);
                done.push(format!("a bit of page {page}"));
            }
            _ => {
                let at = random.within(1 << 20..image.len_bytes());
                image.flip_bit(at, random.below(8) as u8);
                done.push(format!("a bit at {at}"));
            }
        }
    }
    done.join(", ")
}

/// Which objects can be read as a whole. None has other bytes, none is said not to be there.
fn whole(disk: &Arc<CrashDisk>, model: &Model) -> BTreeSet<ObjectId> {
    let store = Core::open(disk.clone(), world::options()).unwrap();
    let mut whole = BTreeSet::new();
    for (object, bytes) in model {
        let mut found = vec![0; bytes.len() + 1];
        match store.read(NOW, *object, 0, &mut found) {
            Ok(len) => {
                assert!(found[..len] == bytes[..], "{object} has other bytes");
                whole.insert(*object);
            }
            Err(StoreError::Damaged(_)) => {}
            Err(other) => panic!("{object}: {other}"),
        }
    }
    whole
}

/// A store goes on after a repair, and what cannot be read can be deleted.
fn go_on(disk: &Arc<CrashDisk>, model: &Model, whole: &BTreeSet<ObjectId>) {
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let (object, data) = (ObjectId([0xAA; 16]), world::pattern(7, 0, 100_000));
    match store.create(NOW, object, Terms::Default) {
        Ok(()) => {}
        // Nobody knows whether there was one of that name.
        Err(StoreError::Damaged(Damage::Lost)) if !store.lost.ranges().is_empty() => return,
        Err(other) => panic!("{other}"),
    }
    store.write(NOW, object, 0, &data).unwrap();
    for lost in model.keys().filter(|object| !whole.contains(object)) {
        match store.delete(NOW, *lost) {
            Ok(()) => {}
            // The object's record is among those of which not even the names are known.
            Err(StoreError::Damaged(_)) => {}
            Err(other) => panic!("delete {lost}: {other}"),
        }
    }
    store.checkpoint().unwrap();
    store.reclaim(NOW).unwrap();
    store.checkpoint().unwrap();
    let mut found = vec![0; data.len()];
    store.read(NOW, object, 0, &mut found).unwrap();
    assert!(found == data);
    let left = store.check(true).unwrap().findings;
    assert!(left.iter().all(is(Mend::Impossible)), "{left:?}");
    drop(store);
    let still = whole.iter().map(|object| (*object, model[object].clone()));
    assert_eq!(self::whole(disk, &still.collect()).len(), whole.len());
}

/// Damages a history's end and repairs it. Says how many findings were repaired, and how many could
/// not be.
pub(super) fn prove(seed: u64) -> (usize, usize) {
    let (mut image, model) = history(seed);
    let mut random = Random::new(seed);
    let what = damage(&mut image, &mut random);
    let disk = Arc::new(CrashDisk::from_image(image.clone()));
    let Ok(found) = examine(&disk, false) else {
        panic!("seed {seed}, {what}: {:?}", examine(&disk, false));
    };
    assert_eq!(disk.counts().writes, 0, "a check writes nothing");
    let repaired = examine(&disk, true).unwrap();
    assert_eq!(
        found.findings.len(),
        repaired.findings.len(),
        "seed {seed}, {what}"
    );
    let lost = repaired.findings.iter().filter(|f| is(Mend::Impossible)(f));
    let lost = lost.count();
    let done = repaired.findings.len() - lost;
    assert_eq!(
        repaired
            .findings
            .iter()
            .filter(|f| is(Mend::Done)(f))
            .count(),
        done
    );
    let readable = whole(&disk, &model);
    if lost == 0 {
        assert_eq!(
            readable.len(),
            model.len(),
            "seed {seed}, {what}: {repaired:?}"
        );
    }
    let before = disk.position();
    let again = examine(&disk, true).unwrap();
    assert!(
        again.findings.iter().all(is(Mend::Impossible)),
        "seed {seed}, {what}: {again:?}"
    );
    assert_eq!(
        disk.position(),
        before,
        "seed {seed}, {what}: it was repaired twice"
    );
    crash(&image, &model, &readable, seed, &what);
    go_on(&disk, &model, &readable);
    (done, lost)
}

/// Power is cut during the repair: repaired again, the store has no less.
fn crash(image: &Image, model: &Model, readable: &BTreeSet<ObjectId>, seed: u64, what: &str) {
    let disk = Arc::new(CrashDisk::from_image(image.clone()));
    examine(&disk, true).unwrap();
    let policy = Policy {
        exhaustive_states_max: 16,
        sampled_states: 6,
        ..Policy::new(seed)
    };
    for state in disk.crash_states(&policy) {
        let after = Arc::new(state.disk());
        let report = examine(&after, true);
        let report = report.unwrap_or_else(|error| panic!("seed {seed}, {what}, {state}: {error}"));
        let still = whole(&after, model);
        assert!(
            still.is_superset(readable),
            "seed {seed}, {what}, {state}: {report:?}"
        );
    }
}

#[test]
fn what_can_be_had_from_elsewhere_comes_back_and_the_rest_stays_an_error() {
    let (mut done, mut lost) = (0, 0);
    for seed in world::seeds(160) {
        let (repaired, impossible) = prove(seed);
        done += usize::from(repaired > 0);
        lost += usize::from(impossible > 0);
    }
    println!("{done} stores were repaired, {lost} have lost something");
    assert!(done > 40 && lost > 10, "{done} repaired, {lost} lost");
}

/// Bytes no two pieces of which are the same.
fn noise(seed: u8, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed.into());
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// A store in which a record of every kind is in the tree.
fn store_of_all_kinds() -> (Arc<CrashDisk>, Core, Model) {
    let disk = world::formatted(8 << 20);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let mut model = Model::new();
    let interval = Interval::new(Moment::from_secs(0), Moment::from_secs(5000)).unwrap();
    let request = Request {
        interval,
        aus: 8,
        records: 40,
    };
    let reservation = store.reserve(NOW, request).unwrap();
    for number in 0..6_u8 {
        let terms = match number % 2 {
            0 => Terms::Default,
            _ => Terms::Reserved(reservation),
        };
        let data = noise(number, 1_000 + 40_000 * usize::from(number));
        let object = world::id(number);
        store.create(NOW, object, terms).unwrap();
        store.write(NOW, object, 0, &data).unwrap();
        let set = store.transact(NOW, |t| t.set_attribute(object, b"name", Some(b"value")));
        set.unwrap();
        model.insert(object, data);
    }
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    (disk, store, model)
}

#[test]
fn a_page_that_nothing_restores_costs_its_own_records_alone() {
    let disk = world::formatted(8 << 20);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let mut model = Model::new();
    for number in 0..150_u8 {
        let len = if number % 10 == 0 { 70_000 } else { 2_000 };
        let (object, data) = (world::id(number), noise(number, len));
        store.create(NOW, object, Terms::Default).unwrap();
        store.write(NOW, object, 0, &data).unwrap();
        let set = store.transact(NOW, |t| {
            t.set_attribute(object, b"name", Some(&[number; 900]))
        });
        set.unwrap();
        model.insert(object, data);
    }
    // Both superblocks have the same records.
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    drop(store);
    let image = disk.image();
    let pages = pages_of(&image);
    let (mut kept, mut lost) = (0, 0);
    for (number, page) in pages.iter().enumerate() {
        let mut image = image.clone();
        image.write_at(page * PAGE_BYTES + 100, &[0xEE; 300]);
        let disk = Arc::new(CrashDisk::from_image(image));
        examine(&disk, true).unwrap();
        let readable = whole(&disk, &model);
        kept += usize::from(readable.len() == model.len());
        lost += usize::from(readable.is_empty());
        let again = examine(&disk, false).unwrap().findings;
        assert!(again.iter().all(is(Mend::Impossible)), "{again:?}");
        if number % 4 == 0 {
            go_on(&disk, &model, &readable);
        }
    }
    println!("{} pages: {kept} cost no object, {lost} all", pages.len());
    assert!(
        pages.len() > 40 && kept > 30 && lost <= 2,
        "{kept}, {lost} of {}",
        pages.len()
    );
}

#[test]
fn derived_records_are_made_anew() {
    let derived: [fn(&Key) -> bool; 8] = [
        |key| matches!(key, Key::Au(_)),
        |key| matches!(key, Key::AuMap(_)),
        |key| matches!(key, Key::Room(..)),
        |key| matches!(key, Key::Member(..)),
        |key| matches!(key, Key::End(..)),
        |key| matches!(key, Key::Holder(id) if crate::reserve::is_pool(*id)),
        |key| matches!(key, Key::Holder(_)),
        |key| {
            matches!(
                key,
                Key::Au(_) | Key::Room(..) | Key::Member(..) | Key::End(..)
            )
        },
    ];
    for (number, is_gone) in derived.into_iter().enumerate() {
        let (disk, mut store, model) = store_of_all_kinds();
        let all = store.range(&Key::MIN, &Key::MAX, usize::MAX).unwrap();
        let gone: Vec<Key> = all
            .into_iter()
            .map(|(key, _)| key)
            .filter(is_gone)
            .collect();
        assert!(!gone.is_empty(), "kind {number}");
        for key in gone {
            store.put_unlogged(key, None);
        }
        store.checkpoint().unwrap();
        drop(store);
        let report = examine(&disk, true).unwrap();
        assert!(
            report.findings.iter().all(is(Mend::Done)),
            "kind {number}: {report:?}"
        );
        assert!(!report.findings.is_empty(), "kind {number}");
        assert_eq!(examine(&disk, false).unwrap().findings, [], "kind {number}");
        assert_eq!(whole(&disk, &model).len(), model.len());
        go_on(&disk, &model, &model.keys().copied().collect());
    }
}

#[test]
fn what_is_nobodys_is_given_back() {
    let (disk, mut store, model) = store_of_all_kinds();
    let free = store.usage().free;
    let lost = [world::id(4), world::id(5)];
    for object in lost {
        store.put_unlogged(Key::Object(object), None);
    }
    store.checkpoint().unwrap();
    drop(store);
    let report = examine(&disk, true).unwrap();
    assert!(report.findings.iter().any(|f| f.kind == Kind::Orphan));
    assert_eq!(examine(&disk, false).unwrap().findings, []);
    let store = Core::open(disk, world::options()).unwrap();
    assert!(store.usage().free > free + 4, "{:?}", store.usage());
    for (object, bytes) in model.iter().filter(|(object, _)| !lost.contains(object)) {
        let mut found = vec![0; bytes.len()];
        store.read(NOW, *object, 0, &mut found).unwrap();
        assert!(found == *bytes);
    }
}

#[test]
fn data_that_is_bad_is_named_by_object_and_bytes() {
    let (disk, mut store, model) = store_of_all_kinds();
    let object = world::id(5);
    store
        .clone_object(NOW, object, world::id(9), Terms::Default)
        .unwrap();
    store.checkpoint().unwrap();
    let data = &model[&object];
    drop(store);
    let mut bytes = vec![0; disk.len_bytes() as usize];
    disk.read_at(0, &mut bytes).unwrap();
    let piece = &data[131_072..131_072 + 4096];
    let at = bytes.windows(4096).position(|part| part == piece).unwrap();
    disk.flip_bit(at as u64 + 7, 3);
    let report = examine(&disk, true).unwrap();
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|f| (f.kind, f.mend, f.object))
        .collect();
    let data = |object| (Kind::Data, Mend::Impossible, Some(object));
    assert_eq!(found, [data(object), data(world::id(9))]);
    for finding in &report.findings {
        let extent = finding.extent.unwrap();
        assert!(
            extent.contains(131_072 + 7) && extent.len <= 64 << 10,
            "{extent}"
        );
    }
    assert_eq!(whole(&disk, &model).len(), model.len() - 1);
}

/// Gives up what the log has after its damage.
fn give_up(disk: &Arc<CrashDisk>) -> Report {
    let device: Arc<dyn BlockDevice> = disk.clone();
    let examination = Examination {
        options: world::options(),
        data: true,
        repair: true,
        give_up_log: true,
    };
    let report = examination.run(&device, &mut |_, _| {}).unwrap();
    assert_eq!(examine(disk, false).unwrap().findings, []);
    report
}

/// What is found in a store whose log is damaged, and that nothing but giving up puts it right.
fn log_findings(disk: &Arc<CrashDisk>) -> Vec<(Kind, Mend)> {
    let opened = Core::open(disk.clone(), world::options());
    let damaged = matches!(opened, Err(StoreError::Damaged(Damage::Log(_))));
    assert!(damaged, "{:?}", opened.err());
    let repaired = examine(disk, true);
    assert!(
        matches!(repaired, Err(StoreError::Damaged(Damage::Log(_)))),
        "{repaired:?}"
    );
    let report = examine(disk, false).unwrap();
    let findings = report.findings.iter();
    let of_log = findings.filter(|finding| finding.kind == Kind::Log);
    of_log.map(|f| (f.kind, f.mend)).collect()
}

#[test]
fn a_flipped_bit_of_the_log_is_put_right_before_there_is_a_second_one() {
    let (disk, mut store, mut model) = store_of_all_kinds();
    let (object, next) = (world::id(1), store.durable_log().1.position);
    store.write(NOW, object, 0, b"acknowledged").unwrap();
    store.commit().unwrap();
    model.get_mut(&object).unwrap()[..12].copy_from_slice(b"acknowledged");
    let at = crate::layout::LOG_OFFSET + next % store.layout().log_bytes;
    drop(store);
    let mut sector = [0; 512];
    disk.read_at(at, &mut sector).unwrap();
    for bit in [100, 3000] {
        let mut flipped = sector;
        flipped[bit / 8] ^= 1 << (bit % 8);
        disk.write_at(at, &flipped).unwrap();
        disk.restart_log();
        for (is_repaired, mend) in [(false, Mend::Possible), (true, Mend::Done)] {
            let report = examine(&disk, is_repaired).unwrap();
            let found: Vec<_> = report.findings.iter().map(|f| (f.kind, f.mend)).collect();
            assert_eq!(found, [(Kind::Log, mend)], "{report:?}");
        }
        assert_eq!(examine(&disk, false).unwrap().findings, []);
        let mut found = [0; 512];
        disk.read_at(at, &mut found).unwrap();
        assert_eq!(found, sector);
    }
    assert_eq!(whole(&disk, &model).len(), model.len());
}

#[test]
fn a_damaged_log_is_given_up_only_if_that_is_said() {
    let (disk, mut store, model) = store_of_all_kinds();
    let object = world::id(1);
    let next = store.durable_log().1.position;
    store.write(NOW, object, 0, b"acknowledged").unwrap();
    store.commit().unwrap();
    let at = crate::layout::LOG_OFFSET + next % store.layout().log_bytes;
    let known = store.durable_sequence();
    drop(store);
    disk.write_at(at + 100, &[0xEE; 20]).unwrap();
    disk.restart_log();
    assert_eq!(log_findings(&disk), [(Kind::Log, Mend::Impossible)]);
    let report = give_up(&disk);
    let of_log = report.findings.iter().filter(|f| f.kind == Kind::Log);
    assert_eq!(of_log.count(), 1, "one damage, told once: {report:?}");
    assert_eq!(
        whole(&disk, &model).len(),
        model.len(),
        "it is what it was before"
    );
    open_knowing(&disk, known).expect("nobody put an older state there");
}

/// Opens a store that was once so far.
fn open_knowing(disk: &Arc<CrashDisk>, least_sequence: u64) -> Result<Core, StoreError> {
    let options = Options {
        least_sequence,
        ..world::options()
    };
    Core::open(disk.clone(), options)
}

#[test]
fn an_entry_that_is_not_there_is_missed_if_later_ones_are() {
    let (disk, mut store, mut model) = store_of_all_kinds();
    let object = world::id(1);
    model.remove(&object);
    let log_bytes = store.layout().log_bytes;
    let before = disk.image();
    let mut places = Vec::new();
    for number in 0..4_u8 {
        let next = store.durable_log().1.position;
        places.push(crate::layout::LOG_OFFSET + next % log_bytes);
        store.write(NOW, object, 0, &[number; 700]).unwrap();
        store.commit().unwrap();
    }
    let known = store.durable_sequence();
    drop(store);
    let after = disk.image();
    let page = |image: &Image, at: u64| {
        let mut page = vec![0; PAGE_BYTES as usize];
        let disk = CrashDisk::from_image(image.clone());
        disk.read_at(at, &mut page).unwrap();
        page
    };
    let last = places.pop().unwrap();
    for lost in places {
        // As if the device had never written it.
        let mut image = after.clone();
        image.write_at(lost, &page(&before, lost));
        let disk = Arc::new(CrashDisk::from_image(image));
        assert_eq!(log_findings(&disk), [(Kind::Log, Mend::Impossible)]);
        give_up(&disk);
        open_knowing(&disk, known).expect("nobody put an older state there");
        // What was given up does not come back behind what is written now.
        for number in 10..13 {
            let mut store = Core::open(disk.clone(), world::options()).unwrap();
            store.write(NOW, object, 0, &[number; 700]).unwrap();
            store.commit().unwrap();
            drop(store);
            let store = Core::open_read_only(disk.clone(), world::options()).unwrap();
            let mut bytes = [0; 700];
            store.read(NOW, object, 0, &mut bytes).unwrap();
            assert_eq!(bytes, [number; 700]);
        }
        assert_eq!(whole(&disk, &model).len(), model.len());
    }
    // The last one may never have been acknowledged; who remembers it knows better.
    let mut image = after.clone();
    image.write_at(last, &page(&before, last));
    let disk = Arc::new(CrashDisk::from_image(image));
    let older = open_knowing(&disk, known);
    assert!(matches!(older, Err(StoreError::Older { .. })));
    open_knowing(&disk, known - 1).expect("that is how far it is");
    let store = Core::open(disk, world::options()).unwrap();
    let mut bytes = [0; 700];
    store.read(NOW, object, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 700]);
}

#[test]
fn nothing_that_is_done_to_a_store_makes_it_an_older_one() {
    let (disk, mut store, _) = store_of_all_kinds();
    let mut known = store.durable_sequence();
    assert!(known > 0);
    for act in 0..5 {
        match act {
            0 => store.set_capability(vec![1; 100]).unwrap(),
            1 => drop(store.grow().unwrap()),
            2 => store.checkpoint().unwrap(),
            3 => store.write(NOW, world::id(1), 0, b"new").unwrap(),
            _ => {
                drop(store);
                // One superblock goes bad, and maybe the log is needed from the older head on.
                disk.write_at(SUPERBLOCK_OFFSETS[0] + 100, &[0xFF; 50])
                    .unwrap();
                assert!(!examine(&disk, true).unwrap().findings.is_empty());
                store = open_knowing(&disk, known).unwrap();
            }
        }
        store.commit().unwrap();
        assert!(store.durable_sequence() >= known, "{act}");
        known = store.durable_sequence();
        drop(store);
        let next = open_knowing(&disk, known + 1);
        assert!(matches!(next, Err(StoreError::Older { .. })), "{act}");
        store = open_knowing(&disk, known).unwrap();
    }
}
