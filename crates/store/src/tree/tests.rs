//! The tree beside an ordered map.

use super::{Load, Tree, node};
use crate::key::{Key, Value};
use crate::layout::{Layout, PAGE_BYTES, Sizes};
use crate::log::entry::record_len;
use crate::memory::MemoryDevice;
use crate::pages::{Pages, Pointer};
use crate::{Damage, StoreError};
use base::BlockDevice;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Changes = BTreeMap<u32, Option<usize>>;

fn world() -> (Arc<MemoryDevice>, Layout) {
    let sizes = Sizes {
        au_bytes: 64 << 10,
        log_bytes: 512 << 10,
        record_bytes: 4 << 20,
    };
    let layout = Layout::new(8 << 20, sizes).unwrap();
    (Arc::new(MemoryDevice::new(8 << 20)), layout)
}

fn key(number: u32) -> Key {
    if number.is_multiple_of(3) {
        Key::Au(number)
    } else {
        Key::Attribute(u64::from(number), vec![b'a'; number as usize % 64])
    }
}

fn value(number: u32, len: usize) -> Value {
    vec![number as u8; len].into()
}

fn changes() -> impl Strategy<Value = Vec<Changes>> {
    let change = prop::option::weighted(0.6, prop_oneof![0..60_usize, 0..1152_usize]);
    prop::collection::vec(
        prop::collection::btree_map(0..400_u32, change, 1..120),
        1..12,
    )
}

fn apply(tree: &mut Tree, pages: &mut Pages, changes: &Changes) {
    let records: BTreeMap<Key, Option<Value>> = changes
        .iter()
        .map(|(number, len)| (key(*number), len.map(|len| value(*number, len))))
        .collect();
    let changes: Vec<_> = records
        .iter()
        .map(|(key, value)| (key, value.as_ref()))
        .collect();
    let puts = || {
        changes
            .iter()
            .filter_map(|(key, value)| Some((key, (*value)?)))
    };
    let load = Load {
        changes: changes.len(),
        puts: puts().count(),
        put_bytes: puts()
            .map(|(key, value)| record_len(key, Some(value)))
            .sum(),
    };
    let count = |tree: &Tree| {
        let mut live = 0;
        tree.visit_pages(&mut |_| live += 1).unwrap();
        live
    };
    let (live, free) = (count(tree), pages.free_count());
    let cost = load.cost_max(live, tree.root().1);
    tree.apply(pages, &changes).unwrap();
    let written = free - pages.free_count();
    assert!(written <= cost.pages, "{written} pages of {cost:?}");
    let now = count(tree);
    assert!(now <= live + cost.growth, "{now} pages, {cost:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_an_ordered_map_and_leaks_no_page(steps in changes()) {
        let (device, layout) = world();
        let mut pages = Pages::new(layout);
        let mut tree = Tree::new(device.clone(), None, 0, 8);
        let mut model = BTreeMap::new();
        for step in &steps {
            apply(&mut tree, &mut pages, step);
            for (number, len) in step {
                match len {
                    Some(len) => model.insert(key(*number), value(*number, *len)),
                    None => model.remove(&key(*number)),
                };
            }
            let map = pages.write_map(&*device).unwrap();
            pages.superblock_is_durable();
            pages.superblock_is_durable();
            let (root, height) = tree.root();
            let read = Pages::read_map(layout, &*device, map).unwrap();
            prop_assert_eq!(read.chain(), pages.chain());
            let fresh = Tree::new(device.clone(), root, height, 2);
            let first = Key::Object(base::ObjectId([0; 16]));
            let all = fresh.range(&first, &Key::AuMap(0), usize::MAX);
            prop_assert!(all.unwrap().into_iter().eq(model.clone()));
            let mut used: BTreeSet<u64> = pages.chain().iter().copied().collect();
            fresh.visit_pages(&mut |page| assert!(used.insert(page))).unwrap();
            prop_assert!(pages.used().eq(used), "in use is what the tree and the map have");
            for number in 0..400 {
                let found = fresh.get(&key(number)).unwrap();
                prop_assert_eq!(found.as_ref(), model.get(&key(number)));
            }
        }
    }
}

#[test]
fn a_damaged_page_is_an_error_for_its_records_alone() {
    let (device, layout) = world();
    let mut pages = Pages::new(layout);
    let mut tree = Tree::new(device.clone(), None, 0, 8);
    apply(
        &mut tree,
        &mut pages,
        &(0..400).map(|number| (number, Some(50))).collect(),
    );
    let (root, height) = tree.root();
    let mut all = Vec::new();
    tree.visit_pages(&mut |page| all.push(page)).unwrap();
    let last = *all.last().unwrap();
    device.flip(last * 4096 * 8 + 77);
    let fresh = Tree::new(device, root, height, 8);
    let results: Vec<_> = (0..400).map(|number| fresh.get(&key(number))).collect();
    let damaged = results.iter().filter(|result| result.is_err()).count();
    assert!(damaged > 0 && damaged < 200, "{damaged} of 400");
    assert!(results.iter().flatten().all(Option::is_some));
}

/// Writes a page with a checksum that fits; the pointer to it.
fn write(device: &MemoryDevice, page: u64, level: u8, items: &[node::Item]) -> Pointer {
    let bytes = node::encode(level, items);
    device.write_at(page * PAGE_BYTES, &bytes).unwrap();
    let crc = crc32c::crc32c(&bytes);
    Pointer { page, crc }
}

fn leaf(numbers: impl IntoIterator<Item = u32>) -> Vec<node::Item> {
    let record = |number| (Key::Au(number), node::Payload::Record(value(number, 4)));
    numbers.into_iter().map(record).collect()
}

fn child(number: u32, pointer: Pointer) -> node::Item {
    (Key::Au(number), node::Payload::Child(pointer))
}

/// Two inner pages with two leaves each, one of which has these items; its root.
fn crafted(
    device: &Arc<MemoryDevice>,
    first_page: u64,
    which: usize,
    items: &[node::Item],
) -> Pointer {
    let mut leaves = Vec::new();
    for number in 0..4_u32 {
        let page = first_page + u64::from(number);
        let own = leaf(number * 10..number * 10 + 10);
        let items = if which == number as usize {
            items
        } else {
            &own
        };
        leaves.push(write(device, page, 0, items));
    }
    let inner = |page, at: usize| {
        let first = at as u32 * 10;
        let items = [child(first, leaves[at]), child(first + 10, leaves[at + 1])];
        write(device, page, 1, &items)
    };
    let (left, right) = (inner(first_page + 4, 0), inner(first_page + 5, 2));
    write(
        device,
        first_page + 6,
        2,
        &[child(0, left), child(20, right)],
    )
}

#[test]
fn a_page_whose_keys_are_not_those_of_its_place_is_damaged_whatever_its_checksum() {
    let (device, layout) = world();
    let first_page = layout.record_offset() / PAGE_BYTES;
    let all = |tree: &Tree| tree.range(&Key::Au(0), &Key::Leaf(0, 0), usize::MAX);
    let whole = crafted(&device, first_page, 9, &[]);
    let tree = Tree::new(device.clone(), Some(whole), 2, 8);
    assert_eq!(all(&tree).unwrap().len(), 40);
    assert_eq!(tree.gaps().unwrap(), []);
    // Before, behind, both, and none at all; in the first, a middle and the last leaf.
    let wrong: [(usize, Vec<u32>); 9] = [
        (0, (0..11).collect()),
        (0, vec![15]),
        (1, (9..20).collect()),
        (1, (10..21).collect()),
        (1, vec![35]),
        (1, Vec::new()),
        (2, (19..25).collect()),
        (3, (29..40).collect()),
        (3, vec![5]),
    ];
    for (which, numbers) in wrong {
        let root = crafted(&device, first_page, which, &leaf(numbers.clone()));
        let is_damaged = |page: u64, error: StoreError| {
            let at = (first_page + page) * PAGE_BYTES;
            assert!(matches!(error, StoreError::Damaged(Damage::Page(found)) if found == at));
        };
        let tree = Tree::new(device.clone(), Some(root), 2, 8);
        for number in 0..40 {
            let found = tree.get(&Key::Au(number));
            match number as usize / 10 == which {
                true => is_damaged(which as u64, found.unwrap_err()),
                false => assert_eq!(found.unwrap(), Some(value(number, 4))),
            }
        }
        is_damaged(which as u64, all(&tree).unwrap_err());
        is_damaged(which as u64, tree.visit_pages(&mut |_| {}).unwrap_err());
        let gaps = tree.gaps().unwrap();
        assert_eq!(gaps.len(), 1, "{numbers:?}");
        assert_eq!(gaps[0].pointer.page, first_page + which as u64);
        let walk = tree.walk_to(&*device, &Key::Au(which as u32 * 10)).unwrap();
        assert_eq!(walk.damaged, Some(gaps[0].pointer));
        let (mut changed, mut pages) = (tree.clone(), Pages::new(layout));
        let key = Key::Au(which as u32 * 10 + 3);
        assert!(changed.apply(&mut pages, &[(&key, None)]).is_err());
        // A repair goes on without it.
        let rest = tree.skipping_damage();
        assert_eq!(all(&rest).unwrap().len(), 30);
    }
}

/// A page that leads to one page many times, on many levels, would take for ever to be gone
/// through.
#[test]
fn a_page_that_is_led_to_twice_is_damaged_where_it_does_not_belong() {
    let (device, layout) = world();
    let first_page = layout.record_offset() / PAGE_BYTES;
    for bottom in [leaf(0..10), Vec::new()] {
        let mut below = write(&device, first_page, 0, &bottom);
        for level in 1..=30_u8 {
            let items: Vec<_> = (0..200).map(|number| child(number, below)).collect();
            below = write(&device, first_page + u64::from(level), level, &items);
        }
        let tree = Tree::new(device.clone(), Some(below), 30, 8);
        let damaged = tree.range(&Key::MIN, &Key::MAX, usize::MAX);
        assert!(matches!(damaged, Err(StoreError::Damaged(_))));
        assert!(tree.visit_pages(&mut |_| {}).is_err());
        let gaps = tree.gaps().unwrap();
        assert!((1..=30 * 200).contains(&gaps.len()), "{} gaps", gaps.len());
    }
}
