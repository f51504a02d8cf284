//! One leader at a time, and nothing from one who is not any more.

use crate::entries::{Shared, all, read};
use crate::worlds::World;
use base::limits::META_SEAT_TIME;
use meta::{KeyRange, Leader, Leadership, MetaError, Transaction, campaign};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn a_seat_has_one_holder(world: &dyn World) {
    let engine = world.open().await;
    assert_eq!(engine.leader("calendar").await.unwrap(), None);
    let asking = (0..8).map(|index| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { engine.lead("calendar", &index.to_string()).await })
    });
    let mut leaderships = Vec::new();
    for asking in asking.collect::<Vec<_>>() {
        match asking.await.unwrap() {
            Ok(leadership) => leaderships.push(leadership),
            Err(MetaError::Held { seat, .. }) => assert_eq!(seat, "calendar"),
            Err(error) => panic!("{error}"),
        }
    }
    let [leadership] = leaderships.as_slice() else {
        panic!("{} have it", leaderships.len());
    };
    let Some(Leader { holder, epoch }) = engine.leader("calendar").await.unwrap() else {
        panic!("nobody has it");
    };
    assert_eq!(epoch, leadership.epoch());
    let other = engine.lead("calendar", "another").await;
    assert!(matches!(other, Err(MetaError::Held { holder: is, .. }) if is == holder));
    let _elsewhere = engine.lead("namespace", "another").await.unwrap();
    // It is kept for longer than it would last without renewals.
    tokio::time::sleep(META_SEAT_TIME + Duration::from_secs(1)).await;
    assert!(leadership.is_trusted());
    assert!(
        timeout(Duration::from_millis(10), leadership.lost())
            .await
            .is_err()
    );
    let guarded = Transaction::new().guarded_by(leadership).put(b"a", b"");
    engine.commit(guarded).await.unwrap();
}

pub(crate) async fn a_seat_that_is_left_can_be_taken_at_once(world: &dyn World) {
    let engine = world.open().await;
    let first = engine.lead("calendar", "one").await.unwrap();
    let epoch = first.epoch();
    first.resign().await;
    let second = engine.lead("calendar", "two").await.unwrap();
    assert!(second.epoch() > epoch);
    let third = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { campaign(&*engine, "calendar", "three", PATIENCE).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(second);
    let third = third.await.unwrap().unwrap();
    assert_eq!(third.seat(), "calendar");
    let held = campaign(&*engine, "calendar", "four", Duration::from_millis(10)).await;
    assert!(matches!(held, Err(MetaError::Held { .. })));
}

/// The old leader goes on writing for as long as it can while another takes the seat.
pub(crate) async fn nothing_of_a_deposed_leader_happens_after_the_next_has_begun(
    world: &dyn World,
) {
    let engine = world.open().await;
    let mut leadership = Arc::new(engine.lead("calendar", "0").await.unwrap());
    for round in 1..world.load().1 / 4 {
        let writing = (0..4).map(|writer| {
            let (engine, leadership) = (Arc::clone(&engine), Arc::clone(&leadership));
            tokio::spawn(write_while_leading(
                engine,
                leadership,
                format!("{round}-{writer}"),
            ))
        });
        let writing: Vec<_> = writing.collect();
        tokio::time::sleep(Duration::from_millis(7)).await;
        engine.depose("calendar", leadership.epoch()).await.unwrap();
        let name = round.to_string();
        let next = engine.lead("calendar", &name).await.unwrap();
        let taken = Transaction::new()
            .guarded_by(&next)
            .put(b"leader", name.clone());
        engine.commit(taken).await.unwrap();
        for writing in writing {
            let last = writing.await.unwrap();
            assert!(
                last < next.epoch().0,
                "written at {last}, epoch {}",
                next.epoch()
            );
        }
        timeout(PATIENCE, leadership.lost()).await.unwrap();
        assert!(!leadership.is_trusted());
        // A second time it is too late to take anything away.
        engine.depose("calendar", leadership.epoch()).await.unwrap();
        let late = Transaction::new()
            .guarded_by(&leadership)
            .put(b"leader", b"late");
        let refused = engine.commit(late).await;
        assert!(
            matches!(refused, Err(MetaError::Deposed { epoch, .. }) if epoch == leadership.epoch())
        );
        assert_eq!(read(&engine, b"leader").await.unwrap().0, name.into_bytes());
        for entry in engine
            .range(&KeyRange::prefix(*b"by"), 1000, None)
            .await
            .unwrap()
            .entries
        {
            assert!(entry.revision < next.epoch(), "{entry:?}");
        }
        leadership = Arc::new(next);
    }
    assert!(!all(&engine, &KeyRange::prefix(*b"by")).await.is_empty());
}

/// The revision of its last transaction.
async fn write_while_leading(engine: Shared, leadership: Arc<Leadership>, name: String) -> u64 {
    let mut last = 0;
    for count in 0_u64.. {
        let guarded = Transaction::new()
            .guarded_by(&leadership)
            .put(format!("by {name}"), count.to_string());
        match engine.commit(guarded).await {
            Ok(committed) => last = committed.revision.0,
            Err(MetaError::Deposed { seat, epoch }) => {
                assert_eq!((seat.as_str(), epoch), ("calendar", leadership.epoch()));
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    last
}
