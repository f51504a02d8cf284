//! Random transactions beside a naive map: every answer is the one of the map.

use crate::entries::Shared;
use crate::worlds::World;
use meta::{Changed, Condition, KeyRange, MetaError, Revision, Transaction};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

/// The naive map: what is under each key, and since when.
pub(crate) type Map = BTreeMap<Vec<u8>, (Vec<u8>, Revision)>;

/// A transaction as it was drawn, with something that can be looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drawn {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) puts: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) deletes: Vec<Vec<u8>>,
    pub(crate) ranges: Vec<KeyRange>,
}

impl Drawn {
    pub(crate) fn transaction(&self) -> Transaction {
        let mut transaction = Transaction::new();
        for condition in &self.conditions {
            transaction = transaction.when(condition.clone());
        }
        for (key, value) in &self.puts {
            transaction = transaction.put(key, value.clone());
        }
        for key in &self.deletes {
            transaction = transaction.delete(key);
        }
        for range in &self.ranges {
            transaction = transaction.delete_range(range);
        }
        transaction
    }

    /// The first condition that does not hold.
    pub(crate) fn fails(&self, map: &Map) -> Option<usize> {
        self.conditions
            .iter()
            .position(|condition| !match condition {
                Condition::Absent(key) => !map.contains_key(key),
                Condition::Present(key) => map.contains_key(key),
                Condition::WrittenAt(key, at) => map.get(key).is_some_and(|(_, is)| is == at),
                Condition::Empty(range) => !map.keys().any(|key| range.contains(key)),
            })
    }

    /// What is changed, in the order of the keys.
    pub(crate) fn apply(&self, map: &mut Map, at: Revision) -> Vec<Changed> {
        let mut changed = BTreeMap::new();
        let deleted = map.keys().filter(|key| {
            self.deletes.contains(key) || self.ranges.iter().any(|range| range.contains(key))
        });
        for key in deleted.cloned().collect::<Vec<_>>() {
            map.remove(&key);
            changed.insert(key.clone(), Changed::Deleted(key));
        }
        for (key, value) in &self.puts {
            map.insert(key.clone(), (value.clone(), at));
            changed.insert(key.clone(), Changed::Put(key.clone(), value.clone()));
        }
        changed.into_values().collect()
    }
}

/// Keys of one or two letters out of four.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(b'a'..=b'd', 1..=2)
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        key().prop_map(KeyRange::prefix),
        key().prop_map(KeyRange::from),
        (key(), key())
            .prop_filter("a range has keys", |(from, to)| from < to)
            .prop_map(|(from, to)| KeyRange::new(from, to)),
    ]
}

#[derive(Clone, Debug)]
enum Wanted {
    Absent(Vec<u8>),
    Present(Vec<u8>),
    /// As it is then, or was at some time.
    Written(Vec<u8>, bool),
    Empty(KeyRange),
}

fn wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        key().prop_map(Wanted::Absent),
        key().prop_map(Wanted::Present),
        (key(), prop::bool::weighted(0.9)).prop_map(|(key, is)| Wanted::Written(key, is)),
        range().prop_map(Wanted::Empty),
    ]
}

fn changes() -> impl Strategy<Value = Drawn> {
    let puts = prop::collection::btree_map(key(), prop::collection::vec(any::<u8>(), 0..4), 0..4);
    let deletes = prop::collection::btree_set(key(), 0..3);
    let ranges = prop::collection::vec(range(), 0..2);
    (puts, deletes, ranges).prop_map(|(mut puts, deletes, ranges)| {
        puts.retain(|key, _| !ranges.iter().any(|range| range.contains(key)));
        let is_free = |key: &Vec<u8>| {
            !puts.contains_key(key) && !ranges.iter().any(|range| range.contains(key))
        };
        let deletes = deletes.into_iter().filter(is_free).collect();
        Drawn {
            conditions: Vec::new(),
            puts,
            deletes,
            ranges,
        }
    })
}

fn drawn(map: &Map, wanted: Vec<Wanted>, changes: Drawn) -> Drawn {
    let conditions = wanted.into_iter().map(|wanted| match wanted {
        Wanted::Absent(key) => Condition::Absent(key),
        Wanted::Present(key) => Condition::Present(key),
        Wanted::Written(key, is_now) => {
            let at = map.get(&key).map_or(Revision(1), |(_, at)| *at);
            Condition::WrittenAt(key, Revision(at.0 + u64::from(!is_now)))
        }
        Wanted::Empty(range) => Condition::Empty(range),
    });
    let conditions = conditions.collect();
    Drawn {
        conditions,
        ..changes
    }
}

async fn compare(engine: &Shared, map: &Map, range: &KeyRange, page_max: usize) {
    let expected: Vec<_> = map.iter().filter(|(key, _)| range.contains(key)).collect();
    let page = engine.range(range, page_max, None).await.unwrap();
    let found: Vec<_> = page
        .entries
        .iter()
        .map(|entry| (&entry.key, &entry.value, entry.revision))
        .collect();
    let wanted = expected.iter().take(page_max);
    let wanted: Vec<_> = wanted
        .map(|(key, (value, at))| (*key, value, *at))
        .collect();
    assert_eq!(found, wanted, "{range:?}");
    assert_eq!(page.has_more, expected.len() > page_max, "{range:?}");
}

pub(crate) async fn random_transactions_are_those_of_a_naive_map(world: &dyn World) {
    let engine = world.open().await;
    let mut watch = engine.watch(&KeyRange::all(), Revision(0)).await.unwrap();
    let mut runner = TestRunner::deterministic();
    let mut draw = |count: usize| {
        let one = (
            prop::collection::vec(wanted(), 0..3),
            changes(),
            range(),
            1_usize..6,
        );
        let many = prop::collection::vec(one, count..=count);
        many.new_tree(&mut runner).unwrap().current()
    };
    let (clients, each) = world.load();
    let (mut map, mut last) = (Map::new(), Revision(0));
    let (mut committed, mut refused) = (0, 0);
    for (wanted, changes, range, page_max) in draw(clients * each) {
        let drawn = drawn(&map, wanted, changes);
        let outcome = engine.commit(drawn.transaction()).await;
        match (outcome, drawn.fails(&map)) {
            (Ok(done), None) => {
                let has_changes = !drawn.transaction().eq(&Drawn {
                    conditions: drawn.conditions.clone(),
                    ..Drawn::default()
                }
                .transaction());
                assert!(done.revision > last || (done.revision == last && !has_changes));
                last = done.revision;
                let mut expected = drawn.apply(&mut map, last);
                if !expected.is_empty() {
                    let mut told = watch.next().await.unwrap();
                    assert_eq!(told.revision, last);
                    let key = |changed: &Changed| match changed {
                        Changed::Put(key, _) | Changed::Deleted(key) => key.clone(),
                    };
                    told.changed.sort_by_key(key);
                    expected.sort_by_key(key);
                    assert_eq!(told.changed, expected);
                }
                committed += 1;
            }
            (Err(MetaError::Conflict { condition, .. }), Some(fails)) => {
                assert_eq!(condition, fails, "{drawn:?}");
                refused += 1;
            }
            other => panic!("{other:?} for {drawn:?}"),
        }
        compare(&engine, &map, &range, page_max).await;
    }
    compare(&engine, &map, &KeyRange::all(), 1000).await;
    assert!(committed > 20 && refused > 20, "{committed} and {refused}");
}
