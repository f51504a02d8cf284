//! The tree beside an ordered map.

use super::{Load, Tree};
use crate::key::{Key, Value};
use crate::layout::{Layout, Sizes};
use crate::log::entry::record_len;
use crate::memory::MemoryDevice;
use crate::pages::Pages;
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
