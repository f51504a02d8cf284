//! Watches.

use crate::entries::{Shared, put};
use crate::worlds::World;
use meta::{Changed, Changes, KeyRange, MetaError, Revision, Transaction, Watch};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn next(watch: &mut Watch) -> Changes {
    let changes = timeout(PATIENCE, watch.next()).await;
    changes.expect("a change is told").unwrap()
}

fn keys(changes: &Changes) -> Vec<String> {
    let keys = changes.changed.iter().map(|changed| match changed {
        Changed::Put(key, _) | Changed::Deleted(key) => String::from_utf8(key.clone()).unwrap(),
    });
    keys.collect()
}

/// Clients write their own keys, `w` and `x`, each value one more; watches of both, and of one.
pub(crate) async fn a_watch_tells_every_change_once_and_in_order(world: &dyn World) {
    let engine = world.open().await;
    let (clients, each) = world.load();
    let begin = put(&engine, b"y", b"").await;
    let mut whole = engine.watch(&KeyRange::all(), begin).await.unwrap();
    let mut part = engine.watch(&KeyRange::prefix(*b"w"), begin).await.unwrap();
    let writing = (0..clients).map(|client| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            let mut at = Vec::new();
            for value in 0..each {
                let both = Transaction::new()
                    .put(format!("w{client}"), value.to_string())
                    .put(format!("x{client}"), value.to_string());
                at.push(engine.commit(both).await.unwrap().revision);
            }
            at
        })
    });
    let writing: Vec<_> = writing.collect();
    let (mut seen, mut last) = (BTreeMap::<Vec<u8>, usize>::new(), begin);
    let mut told: Vec<(Revision, usize)> = Vec::new();
    while seen.len() < 2 * clients || seen.values().any(|count| *count < each) {
        let changes = next(&mut whole).await;
        assert!(changes.revision > last, "{changes:?} after {last}");
        last = changes.revision;
        told.push((last, changes.changed.len() / 2));
        for changed in changes.changed {
            let Changed::Put(key, value) = changed else {
                panic!("nothing was deleted");
            };
            let count = seen.entry(key).or_default();
            assert_eq!(value, count.to_string().into_bytes());
            *count += 1;
        }
    }
    let mut committed = BTreeMap::<Revision, usize>::new();
    for writing in writing {
        for at in writing.await.unwrap() {
            *committed.entry(at).or_default() += 1;
        }
    }
    assert_eq!(told, committed.into_iter().collect::<Vec<_>>());
    let mut in_part = 0;
    while in_part < clients * each {
        let changes = next(&mut part).await;
        let keys = keys(&changes);
        assert!(keys.iter().all(|key| key.starts_with('w')), "{keys:?}");
        in_part += keys.len();
    }
    for watch in [&mut whole, &mut part] {
        let more = timeout(Duration::from_millis(100), watch.next()).await;
        assert!(more.is_err(), "{:?}", more.unwrap());
    }
}

pub(crate) async fn a_watch_goes_on_from_any_revision(world: &dyn World) {
    let engine = world.open().await;
    let mut at = Vec::new();
    for index in 0..10 {
        at.push(put(&engine, format!("{index}").as_bytes(), b"").await);
    }
    let clear = Transaction::new()
        .delete_range(&KeyRange::prefix(*b"1"))
        .delete(b"2")
        .delete(b"none");
    engine.commit(clear).await.unwrap();
    let expect = |from: usize| {
        let puts = (from..10).map(|index| vec![index.to_string()]);
        puts.chain([vec!["1".to_owned(), "2".to_owned()]])
            .collect::<Vec<_>>()
    };
    let follow = async |engine: &Shared, from: usize| {
        let mut watch = engine.watch(&KeyRange::all(), at[from - 1]).await.unwrap();
        for expected in expect(from) {
            // A question that is given up loses nothing.
            let mut changes = loop {
                if let Ok(changes) = timeout(Duration::from_millis(5), watch.next()).await {
                    break changes.unwrap();
                }
            };
            changes.changed.sort_by_key(|changed| match changed {
                Changed::Put(key, _) | Changed::Deleted(key) => key.clone(),
            });
            assert_eq!(keys(&changes), expected);
        }
    };
    for from in [1, 5, 10] {
        follow(&engine, from).await;
    }
    drop(engine);
    let engine = world.open().await;
    follow(&engine, 5).await;
}

/// Waits for what a watch says when it can tell no more.
pub(crate) async fn lost(watch: &mut Watch) -> Revision {
    loop {
        match timeout(PATIENCE, watch.next()).await.expect("it says so") {
            Ok(_) => {}
            Err(MetaError::HistoryLost { oldest }) => return oldest,
            Err(error) => panic!("{error}"),
        }
    }
}
