//! Entries, conditions, bounds.

use crate::worlds::World;
use base::limits::{
    META_KEY_BYTES_MAX, META_OPERATIONS_MAX, META_RANGE_DELETE_MAX, META_TRANSACTION_BYTES_MAX,
    META_VALUE_BYTES_MAX,
};
use meta::{Condition, Engine, KeyRange, MetaError, Revision, Transaction};
use std::sync::Arc;

pub(crate) type Shared = Arc<dyn Engine>;

/// The value and the revision of a key.
pub(crate) async fn read(engine: &Shared, key: &[u8]) -> Option<(Vec<u8>, Revision)> {
    let (entry, at) = engine.get(key).await.unwrap();
    let entry = entry?;
    assert_eq!(entry.key, key);
    assert!(entry.revision <= at);
    Some((entry.value, entry.revision))
}

pub(crate) async fn put(engine: &Shared, key: &[u8], value: &[u8]) -> Revision {
    let writing = Transaction::new().put(key, value);
    engine.commit(writing).await.unwrap().revision
}

/// All entries, page by page.
pub(crate) async fn all(engine: &Shared, range: &KeyRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut found, mut left, mut at) = (Vec::new(), range.clone(), None);
    loop {
        let page = engine.range(&left, 1000, at).await.unwrap();
        let entries = page.entries.into_iter();
        found.extend(entries.map(|entry| (entry.key, entry.value)));
        match found.last() {
            Some((key, _)) if page.has_more => left = range.after(key),
            _ => return found,
        }
        at = Some(page.revision);
    }
}

pub(crate) async fn what_is_written_is_read(world: &dyn World) {
    let engine = world.open().await;
    assert_eq!(read(&engine, b"a").await, None);
    let first = put(&engine, b"a", b"1").await;
    assert_eq!(read(&engine, b"a").await, Some((b"1".to_vec(), first)));
    let second = put(&engine, b"a", b"").await;
    assert!(second > first);
    assert_eq!(read(&engine, b"a").await, Some((Vec::new(), second)));
    let binary = [0, 0xff, b'/', 0];
    put(&engine, &binary, &binary).await;
    let (value, at) = read(&engine, &binary).await.unwrap();
    assert_eq!(value, binary);
    assert!(at > second);
    engine
        .commit(Transaction::new().delete(b"a"))
        .await
        .unwrap();
    assert_eq!(read(&engine, b"a").await, None);
    engine
        .commit(Transaction::new().delete(b"a"))
        .await
        .unwrap();
    let status = engine.status().await.unwrap();
    assert!(status.transactions >= 5 && status.groups >= 5, "{status:?}");
    assert!(
        status.revision >= at && status.failure.is_none(),
        "{status:?}"
    );
}

fn conflict(outcome: Result<meta::Committed, MetaError>) -> usize {
    match outcome {
        Err(MetaError::Conflict { condition, .. }) => condition,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn the_first_condition_that_fails_is_named(world: &dyn World) {
    let engine = world.open().await;
    let at = put(&engine, b"b", b"1").await;
    let holding = [
        Condition::Present(b"b".to_vec()),
        Condition::Absent(b"a".to_vec()),
        Condition::WrittenAt(b"b".to_vec(), at),
        Condition::Empty(KeyRange::prefix(*b"c")),
        Condition::Empty(KeyRange::new(*b"b\0", *b"c")),
        Condition::Empty(KeyRange::from(*b"b\0")),
    ];
    let failing = [
        Condition::Absent(b"b".to_vec()),
        Condition::Present(b"a".to_vec()),
        Condition::WrittenAt(b"b".to_vec(), Revision(at.0 + 1)),
        Condition::WrittenAt(b"a".to_vec(), at),
        Condition::Empty(KeyRange::prefix(*b"b")),
        Condition::Empty(KeyRange::all()),
    ];
    let all = || {
        holding
            .iter()
            .cloned()
            .fold(Transaction::new(), Transaction::when)
    };
    let checked = engine.commit(all()).await.unwrap();
    assert!(checked.revision >= at);
    for fails in failing {
        let transaction = all().when(fails.clone()).put(b"d", b"");
        assert_eq!(conflict(engine.commit(transaction).await), 6, "{fails:?}");
        let both = Transaction::new().when(fails.clone()).when(fails);
        assert_eq!(conflict(engine.commit(both.put(b"d", b"")).await), 0);
    }
    assert_eq!(read(&engine, b"d").await, None);
}

pub(crate) async fn a_transaction_happens_as_a_whole_or_not_at_all(world: &dyn World) {
    let engine = world.open().await;
    let begin = Transaction::new()
        .put(b"a1", b"")
        .put(b"a2", b"")
        .put(b"b", b"");
    let at = engine.commit(begin).await.unwrap().revision;
    for key in [b"a1".as_slice(), b"a2", b"b"] {
        assert_eq!(read(&engine, key).await, Some((Vec::new(), at)));
    }
    let change = || {
        let range = KeyRange::prefix(*b"a");
        Transaction::new()
            .delete_range(&range)
            .delete(b"b")
            .put(b"c", b"new")
    };
    let refused = change().when(Condition::Absent(b"a2".to_vec()));
    assert_eq!(conflict(engine.commit(refused).await), 0);
    assert_eq!(all(&engine, &KeyRange::all()).await.len(), 3);
    let done = change().when(Condition::Present(b"a2".to_vec()));
    engine.commit(done).await.unwrap();
    let left = all(&engine, &KeyRange::all()).await;
    assert_eq!(left, [(b"c".to_vec(), b"new".to_vec())]);
}

pub(crate) async fn what_is_over_a_bound_is_refused_and_the_bound_itself_is_not(world: &dyn World) {
    let engine = world.open().await;
    let new = Transaction::new;
    let numbered = |index: usize| format!("n{index:04}");
    let key = vec![b'k'; META_KEY_BYTES_MAX];
    engine
        .commit(new().put(&key, vec![1; META_VALUE_BYTES_MAX]))
        .await
        .unwrap();
    assert_eq!(
        read(&engine, &key).await.unwrap().0.len(),
        META_VALUE_BYTES_MAX
    );
    // The largest in every respect at once.
    let value = META_TRANSACTION_BYTES_MAX / META_OPERATIONS_MAX - 32;
    let mut largest =
        (0..META_OPERATIONS_MAX).fold(new(), |all, at| all.put(numbered(at), vec![2; value]));
    for at in 0..META_OPERATIONS_MAX {
        largest = largest.when(Condition::Absent(numbered(at).into()));
    }
    engine.commit(largest).await.unwrap();
    let too_large = [
        new().put(b"a", vec![0; META_VALUE_BYTES_MAX + 1]),
        new().put([b'k'; META_KEY_BYTES_MAX + 1], b""),
        (0..=META_OPERATIONS_MAX).fold(new(), |all, at| all.delete(numbered(at))),
        (0..9).fold(new(), |all, at| {
            all.put(numbered(at), vec![0; META_VALUE_BYTES_MAX])
        }),
    ];
    for transaction in too_large {
        let outcome = engine.commit(transaction).await;
        assert!(
            matches!(outcome, Err(MetaError::TooLarge { .. })),
            "{outcome:?}"
        );
    }
    let long = engine.get(&[0; META_KEY_BYTES_MAX + 1]).await;
    assert!(matches!(long, Err(MetaError::TooLarge { .. })));
    assert!(matches!(engine.get(b"").await, Err(MetaError::Invalid(_))));
    let twice = engine.commit(new().put(b"a", b"").delete(b"a")).await;
    assert!(matches!(twice, Err(MetaError::Invalid(_))));
    for from in (0..=META_RANGE_DELETE_MAX).step_by(META_OPERATIONS_MAX) {
        let to = (from + META_OPERATIONS_MAX).min(META_RANGE_DELETE_MAX + 1);
        let some = (from..to).fold(new(), |all, at| all.put(format!("x{at:05}"), b""));
        engine.commit(some).await.unwrap();
    }
    let range = KeyRange::prefix(*b"x");
    let many = engine
        .commit(new().put(b"y", b"").delete_range(&range))
        .await;
    assert!(matches!(many, Err(MetaError::TooLarge { .. })), "{many:?}");
    assert_eq!(read(&engine, b"y").await, None);
    engine.commit(new().delete(b"x00000")).await.unwrap();
    engine
        .commit(new().put(b"y", b"").delete_range(&range))
        .await
        .unwrap();
    assert!(all(&engine, &range).await.is_empty());
}

pub(crate) async fn a_program_cannot_reach_what_is_not_its_own(world: &dyn World) {
    let engine = world.open().await;
    let leadership = engine.lead("calendar", "one").await.unwrap();
    put(&engine, b"scalendar", b"").await;
    put(&engine, b"a", b"").await;
    assert_eq!(all(&engine, &KeyRange::all()).await.len(), 2);
    let everything = Transaction::new().delete_range(&KeyRange::all());
    engine.commit(everything).await.unwrap();
    assert!(all(&engine, &KeyRange::all()).await.is_empty());
    let guarded = Transaction::new().guarded_by(&leadership).put(b"a", b"");
    engine.commit(guarded).await.unwrap();
    assert!(leadership.is_trusted());
}

pub(crate) async fn what_was_written_is_there_after_opening_again(world: &dyn World) {
    let engine = world.open().await;
    let first = put(&engine, b"a", b"1").await;
    let leadership = engine.lead("calendar", "one").await.unwrap();
    let epoch = leadership.epoch();
    assert!(epoch > first);
    leadership.resign().await;
    drop(engine);
    let engine = world.open().await;
    assert_eq!(read(&engine, b"a").await, Some((b"1".to_vec(), first)));
    assert_eq!(engine.leader("calendar").await.unwrap(), None);
    assert!(put(&engine, b"a", b"2").await > epoch);
    let next = engine.lead("calendar", "two").await.unwrap();
    assert!(next.epoch() > epoch);
}
