//! Holes and space ahead, beside a naive model: which pieces were written since they were cleared.

use super::world::{self, AU};
use crate::layout::{GROUP_BYTES, PIECE_BYTES};
use crate::{Core, Present, Sought, StoreError, Terms, Wanted};
use base::{Extent, Time};
use proptest::prelude::*;

const NOW: Time = Time::ZERO;

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    Punch(u64, u64),
    Allocate(u64, u64, bool),
    Truncate(u64),
    Commit,
    Checkpoint,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = || {
        prop_oneof![
            2 => 0..30_000_u64,
            2 => 0..400_000_u64,
            2 => (0..100_u64).prop_map(|piece| piece * PIECE_BYTES),
            1 => (0..6_u64).prop_map(|au| au * AU),
        ]
    };
    let len = || {
        prop_oneof![
            1..5_000_u64,
            4_000..150_000_u64,
            Just(AU),
            Just(4 * PIECE_BYTES)
        ]
    };
    let step = prop_oneof![
        6 => (offset(), len()).prop_map(|(at, len)| Step::Write(at, len as usize)),
        3 => (offset(), len()).prop_map(|(at, len)| Step::Punch(at, len)),
        3 => (offset(), len(), any::<bool>())
            .prop_map(|(at, len, is_cleared)| Step::Allocate(at, len, is_cleared)),
        1 => offset().prop_map(Step::Truncate),
        1 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..25)
}

/// What the object should be.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    /// Bytes of groups of 64 KiB in which something was written since they were made zeros as a
    /// whole: what may be data.
    touched: Vec<bool>,
}

impl Model {
    fn grow(&mut self, len: usize) {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
            self.touched
                .resize(len.div_ceil(GROUP_BYTES as usize), false);
        }
    }

    fn clear(&mut self, from: usize, to: usize) {
        let to = to.min(self.bytes.len());
        if from >= to {
            return;
        }
        self.bytes[from..to].fill(0);
        let group = GROUP_BYTES as usize;
        for index in from.div_ceil(group)..to / group {
            self.touched[index] = false;
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Write(offset, len) => {
                let (from, to) = (offset as usize, offset as usize + len);
                self.grow(to);
                self.bytes[from..to].fill(0xa5);
                let group = GROUP_BYTES as usize;
                self.touched[from / group..to.div_ceil(group)].fill(true);
            }
            Step::Punch(offset, len) => self.clear(offset as usize, (offset + len) as usize),
            Step::Allocate(offset, len, is_cleared) => {
                self.grow((offset + len) as usize);
                if is_cleared {
                    self.clear(offset as usize, (offset + len) as usize);
                }
            }
            Step::Truncate(size) => {
                let size = size as usize;
                self.clear(
                    size,
                    self.bytes.len().next_multiple_of(GROUP_BYTES as usize),
                );
                self.bytes.truncate(size);
                self.touched.truncate(size.div_ceil(GROUP_BYTES as usize));
                self.grow(size);
            }
            Step::Commit | Step::Checkpoint | Step::Reopen => {}
        }
    }
}

fn at(store: &Core, offset: u64, wanted: Wanted) -> Option<u64> {
    let mut offset = offset;
    loop {
        match store.seek(NOW, world::id(1), offset, wanted).unwrap() {
            Sought::At(at) => return Some(at),
            Sought::Nowhere => return None,
            Sought::NotBefore(next) => offset = next,
        }
    }
}

/// Every byte that is not zero is data; what was not touched is a hole; one begins where the other
/// ends.
fn same(store: &Core, model: &Model) -> Result<(), TestCaseError> {
    let len = model.bytes.len() as u64;
    let mut is_data = vec![false; model.bytes.len()];
    let mut offset = 0;
    while let Some(begin) = at(store, offset, Wanted::Data) {
        let end = at(store, begin, Wanted::Hole).unwrap();
        prop_assert!(
            begin >= offset && begin < end && end <= len,
            "{offset}: {begin} {end}"
        );
        is_data[begin as usize..end as usize].fill(true);
        prop_assert_eq!(at(store, end - 1, Wanted::Data), Some(end - 1));
        offset = end;
    }
    prop_assert_eq!(at(store, len, Wanted::Hole), Some(len));
    for (offset, byte) in model.bytes.iter().enumerate() {
        prop_assert!(
            *byte == 0 || is_data[offset],
            "{offset} is not zero and no data"
        );
        let is_touched = model.touched[offset / GROUP_BYTES as usize];
        prop_assert!(is_touched || !is_data[offset], "{offset} was never written");
    }
    let mut found = vec![0; model.bytes.len()];
    let read = store.read(NOW, world::id(1), 0, &mut found).unwrap();
    prop_assert_eq!(read, found.len());
    if found != model.bytes {
        let other = found.iter().zip(&model.bytes).position(|(a, b)| a != b);
        prop_assert_eq!(other, None);
    }
    let report = store.check(true).unwrap();
    prop_assert_eq!(report.findings, []);
    Ok(())
}

fn apply(store: &mut Core, step: &Step) {
    let object = world::id(1);
    match *step {
        Step::Write(offset, len) => store.write(NOW, object, offset, &vec![0xa5; len]),
        Step::Punch(offset, len) => store.punch(NOW, object, Extent::new(offset, len)),
        Step::Allocate(offset, len, is_cleared) => {
            let present = match is_cleared {
                true => Present::Cleared,
                false => Present::Kept,
            };
            store.allocate(NOW, object, Extent::new(offset, len), present, None)
        }
        Step::Truncate(size) => store.truncate(NOW, object, size),
        Step::Commit => store.commit(),
        Step::Checkpoint => store.checkpoint(),
        Step::Reopen => Ok(()),
    }
    .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_was_written_is_data_and_what_was_not_is_a_hole(steps in steps()) {
        let device = world::formatted(16 << 20);
        let mut store = Core::open(device.clone(), world::options()).unwrap();
        store.create(NOW, world::id(1), Terms::Default).unwrap();
        let mut model = Model::default();
        for step in &steps {
            apply(&mut store, step);
            model.apply(step);
            if let Step::Reopen = step {
                store.commit().unwrap();
                drop(store);
                store = Core::open(device.clone(), world::options()).unwrap();
            }
            same(&store, &model)?;
        }
    }
}

#[test]
fn a_small_object_keeps_its_holes_wherever_it_goes() {
    let last = 3 * PIECE_BYTES;
    let ways: [fn(&mut Core); 5] = [
        |store| store.write(NOW, world::id(1), AU, b"x").unwrap(),
        |store| store.truncate(NOW, world::id(1), AU).unwrap(),
        |store| allocate_kept(store, Extent::new(AU, 1)),
        |store| allocate_kept(store, Extent::new(5 * PIECE_BYTES, 1)),
        |store| {
            store
                .clone_object(NOW, world::id(1), world::id(2), Terms::Default)
                .unwrap();
        },
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let mut store = Core::open(world::formatted(16 << 20), world::options()).unwrap();
        store.create(NOW, world::id(1), Terms::Default).unwrap();
        allocate_kept(&mut store, Extent::new(0, 2 * PIECE_BYTES));
        store.write(NOW, world::id(1), last, b"y").unwrap();
        way(&mut store);
        let object = world::id(if number == 4 { 2 } else { 1 });
        let found = store.seek(NOW, object, 0, Wanted::Data).unwrap();
        assert_eq!(found, Sought::At(last), "way {number}");
        let found = store.seek(NOW, object, 0, Wanted::Hole).unwrap();
        assert_eq!(found, Sought::At(0), "way {number}");
        assert_eq!(store.check(true).unwrap().findings, []);
    }
}

fn allocate_kept(store: &mut Core, extent: Extent) {
    store
        .allocate(NOW, world::id(1), extent, Present::Kept, None)
        .unwrap();
}

/// Fills the store with objects of one allocation unit each, which share none.
fn fill(store: &mut Core) {
    for number in 10_u8.. {
        let made = store
            .create(NOW, world::id(number), Terms::Default)
            .and_then(|()| store.write(NOW, world::id(number), 0, &vec![1; AU as usize]));
        match made {
            Ok(()) => {}
            Err(StoreError::NoSpace { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_was_allocated_is_there_in_a_full_store_and_goes_back_with_a_cut() {
    let device = world::formatted(6 << 20);
    let mut store = Core::open(device.clone(), world::options()).unwrap();
    let (first, small) = (world::id(1), world::id(2));
    let extent = Extent::new(AU / 2, 20 * AU);
    store.create(NOW, first, Terms::Default).unwrap();
    store.create(NOW, small, Terms::Default).unwrap();
    let allocate =
        |store: &mut Core, object, extent| store.allocate(NOW, object, extent, Present::Kept, None);
    allocate(&mut store, first, extent).unwrap();
    allocate(&mut store, small, Extent::new(0, 5000)).unwrap();
    let used = store.usage().used;
    assert!(used >= 22, "{used}");
    let much = allocate(&mut store, small, Extent::new(0, 1 << 30));
    assert!(matches!(much, Err(StoreError::NoSpace { .. })), "{much:?}");
    assert_eq!(store.usage().used, used, "what cannot be takes nothing");
    fill(&mut store);
    store.commit().unwrap();
    // In the order in which it is worst: small writes, everywhere, each committed.
    let mut offset = extent.end();
    while offset > extent.offset {
        offset = offset.saturating_sub(7000).max(extent.offset);
        store.write(NOW, first, offset, &[7; 5000]).unwrap();
        store.commit().unwrap();
    }
    store
        .write(NOW, first, extent.offset, &vec![8; extent.len as usize])
        .unwrap();
    store.write(NOW, small, 0, &[9; 5000]).unwrap();
    let beyond = store.write(NOW, first, extent.end() + AU, b"beyond");
    assert!(
        matches!(beyond, Err(StoreError::NoSpace { .. })),
        "{beyond:?}"
    );
    store.commit().unwrap();
    assert_eq!(store.check(true).unwrap().findings, []);
    drop(store);
    let mut store = Core::open(device, world::options()).unwrap();
    let mut bytes = vec![0; extent.len as usize];
    store.read(NOW, first, extent.offset, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 8));
    let before = store.usage().used;
    store.truncate(NOW, first, 0).unwrap();
    assert_eq!(store.usage().used, before - 21);
    assert_eq!(store.check(true).unwrap().findings, []);
}

#[test]
fn bytes_that_are_cleared_keep_their_space() {
    let device = world::formatted(6 << 20);
    let mut store = Core::open(device, world::options()).unwrap();
    let object = world::id(1);
    let extent = Extent::new(0, 10 * AU);
    store.create(NOW, object, Terms::Default).unwrap();
    store
        .write(NOW, object, 0, &vec![1; extent.len as usize])
        .unwrap();
    fill(&mut store);
    store.commit().unwrap();
    store
        .allocate(NOW, object, extent, Present::Cleared, None)
        .unwrap();
    store.commit().unwrap();
    assert_eq!(at(&store, 0, Wanted::Data), None);
    store
        .write(NOW, object, 0, &vec![2; extent.len as usize])
        .unwrap();
    assert_eq!(at(&store, 0, Wanted::Hole), Some(extent.len));
}
