//! Generations of objects: what comes by a layout from before a cut is refused, for good.

use super::world::{self, AU, id};
use crate::{Core, How, Present, StoreError, Terms};
use base::{Extent, Time};
use proptest::prelude::*;
use sim::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: Time = Time::from_secs(1);

fn under(generation: u64) -> How {
    How {
        payer: None,
        generation: Some(generation),
    }
}

fn is_superseded<T>(done: Result<T, StoreError>) -> bool {
    matches!(done, Err(StoreError::Superseded(object)) if object == id(1))
}

#[test]
fn what_comes_by_a_layout_from_before_a_cut_is_refused_also_by_an_object_that_was_not_there() {
    let disk = world::formatted(4 << 20);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let data = world::pattern(1, 0, 2 * AU as usize);
    for is_there in [true, false] {
        if is_there {
            store.create(NOW, id(1), Terms::Default).unwrap();
            let first = store.write_from(NOW, id(1), 0, &data, under(0));
            first.unwrap();
        }
        store.cut(NOW, id(1), 100, 3).unwrap();
        store.commit().unwrap();
        drop(store);
        store = Core::open(disk.clone(), world::options()).unwrap();
        let info = store.info(NOW, id(1)).unwrap();
        assert_eq!(info.generation, 3);
        assert_eq!(info.size_bytes, if is_there { 100 } else { 0 });
        let late = store.write_from(NOW, id(1), 0, &data, under(2));
        assert!(is_superseded(late));
        let hole = Extent::new(0, 10);
        assert!(is_superseded(store.punch_so(NOW, id(1), hole, under(2))));
        let late = store.allocate(NOW, id(1), Extent::new(0, AU), Present::Cleared, under(2));
        assert!(is_superseded(late));
        assert_eq!(store.info(NOW, id(1)).unwrap(), info, "nothing has changed");
        // A cut that comes late, or once more, cuts nothing and takes nothing back.
        for generation in [1, 3] {
            store.cut(NOW, id(1), 50, generation).unwrap();
            assert_eq!(store.info(NOW, id(1)).unwrap(), info);
        }
        assert!(is_superseded(store.write_from(
            NOW,
            id(1),
            0,
            &data,
            under(2)
        )));
        for how in [under(3), under(4), How::default()] {
            store.write_from(NOW, id(1), 0, &data, how).unwrap();
        }
        // A clone is an object of its own, and begins anew.
        store
            .clone_object(NOW, id(1), id(2), Terms::Default)
            .unwrap();
        assert_eq!(store.info(NOW, id(2)).unwrap().generation, 0);
        for object in [id(1), id(2)] {
            store.delete(NOW, object).unwrap();
        }
    }
    assert!(store.check(true).unwrap().findings.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Write(u8, u64, u64, usize),
    Cut(u8, u64, u64),
    Delete(u8),
    Commit,
    Checkpoint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (object, offset) = (|| 0..3_u8, || prop_oneof![0..9_000_u64, 0..200_000_u64]);
    let step = prop_oneof![
        5 => (object(), 0..2_u64, offset(), 1..70_000_usize)
            .prop_map(|(object, older, offset, len)| Step::Write(object, older, offset, len)),
        3 => (object(), 0..3_u64, offset())
            .prop_map(|(object, newer, size)| Step::Cut(object, newer, size)),
        1 => object().prop_map(Step::Delete),
        2 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
    ];
    prop::collection::vec(step, 1..25)
}

/// Generation and bytes of what is there.
type Model = BTreeMap<u8, (u64, Vec<u8>)>;

fn apply(store: &mut Core, model: &mut Model, step: &Step) {
    match *step {
        Step::Write(object, older, offset, len) => {
            let data = world::pattern(object, offset, len);
            let generation = model.get(&object).map_or(0, |(generation, _)| *generation);
            let by = generation.saturating_sub(older);
            let written = store.write_from(NOW, id(object), offset, &data, under(by));
            let Some((_, bytes)) = model.get_mut(&object) else {
                assert!(matches!(written, Err(StoreError::NotFound(_))));
                return;
            };
            if by < generation {
                assert!(matches!(written, Err(StoreError::Superseded(_))));
                return;
            }
            written.unwrap();
            let (from, end) = (offset as usize, offset as usize + len);
            bytes.resize(bytes.len().max(end), 0);
            bytes[from..end].copy_from_slice(&data);
        }
        Step::Cut(object, newer, size) => {
            let (generation, bytes) = model.entry(object).or_default();
            *generation += newer;
            // A cut that is done once more finds what was written since.
            if newer > 0 {
                bytes.truncate(size as usize);
            }
            store.cut(NOW, id(object), size, *generation).unwrap();
        }
        Step::Delete(object) => {
            let deleted = store.delete(NOW, id(object));
            assert_eq!(deleted.is_ok(), model.remove(&object).is_some());
        }
        Step::Commit => store.commit().unwrap(),
        Step::Checkpoint => store.checkpoint().unwrap(),
    }
}

fn generations(store: &Core) -> BTreeMap<u8, u64> {
    let all = store.list(NOW, id(0), usize::MAX).unwrap().0;
    let each = all.iter().map(|info| (info.object.0[0], info.generation));
    each.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// After a loss of power, each object has the generation that it had at some moment since the
    /// last commit.
    #[test]
    fn a_cut_that_was_committed_is_never_forgotten(steps in steps(), seed in any::<u64>()) {
        let disk = world::formatted(5 << 20);
        let mut store = Core::open(disk.clone(), world::options()).unwrap();
        let (mut model, mut committed) = (Model::new(), vec![(disk.position(), 0)]);
        let mut history = vec![BTreeMap::new()];
        for step in &steps {
            apply(&mut store, &mut model, step);
            let now: BTreeMap<u8, u64> = generations(&store);
            let expected = model.iter().map(|(object, (generation, _))| (*object, *generation));
            prop_assert_eq!(&now, &expected.collect());
            history.push(now);
            if matches!(step, Step::Commit | Step::Checkpoint) {
                committed.push((disk.position(), history.len() - 1));
            }
        }
        for (object, (_, bytes)) in &model {
            let mut found = vec![0xEE; bytes.len() + 10];
            let len = store.read(NOW, id(*object), 0, &mut found).unwrap();
            prop_assert!(found[..len] == bytes[..]);
        }
        let policy = Policy {
            exhaustive_states_max: 8,
            sampled_states: 4,
            ..Policy::new(seed)
        };
        for state in disk.crash_states(&policy) {
            let store = Core::open(Arc::new(state.disk()), world::options()).unwrap();
            let mut since = committed.iter().rev();
            let since = since.find(|(position, _)| *position <= state.position);
            let since = since.map_or(0, |(_, index)| *index);
            let found = generations(&store);
            let is_one = history[since..].contains(&found);
            prop_assert!(is_one, "{found:?} of {history:?} from {since}");
        }
    }
}
