//! Pages of a range.

use crate::entries::put;
use crate::worlds::World;
use meta::{KeyRange, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAIRS: usize = 60;

/// Two keys of a pair always have the same value, and the pages of one state show it.
pub(crate) async fn pages_are_of_one_state_while_others_write(world: &dyn World) {
    let engine = world.open().await;
    let pair = |index: usize, value: usize| {
        Transaction::new()
            .put(format!("a{index}"), value.to_string())
            .put(format!("b{index}"), value.to_string())
    };
    for index in 0..PAIRS {
        engine.commit(pair(index, 0)).await.unwrap();
    }
    let written = Arc::new(AtomicUsize::new(0));
    let writing = tokio::spawn({
        let (engine, written) = (Arc::clone(&engine), Arc::clone(&written));
        async move {
            loop {
                let count = written.load(Ordering::Relaxed);
                engine.commit(pair(count % PAIRS, count)).await.unwrap();
                written.store(count + 1, Ordering::Relaxed);
            }
        }
    });
    let mut round = 0;
    while round < 5 || written.load(Ordering::Relaxed) < 50 {
        round += 1;
        let (mut left, mut at, mut found) = (KeyRange::all(), None, Vec::new());
        loop {
            let page = engine.range(&left, 7 + round % 20, at).await.unwrap();
            assert!(at.is_none_or(|at| at == page.revision));
            at = Some(page.revision);
            assert!(
                page.entries
                    .iter()
                    .all(|entry| entry.revision <= page.revision)
            );
            found.extend(page.entries);
            match found.last() {
                Some(last) if page.has_more => left = left.after(&last.key),
                _ => break,
            }
        }
        assert_eq!(found.len(), 2 * PAIRS);
        assert!(found.is_sorted_by(|one, next| one.key < next.key));
        for (one, other) in found[..PAIRS].iter().zip(&found[PAIRS..]) {
            assert_eq!(one.key[1..], other.key[1..]);
            assert_eq!((&one.value, one.revision), (&other.value, other.revision));
        }
    }
    writing.abort();
}

pub(crate) async fn large_values_come_in_smaller_pages(world: &dyn World) {
    let engine = world.open().await;
    for index in 0..60 {
        put(
            &engine,
            format!("{index:02}").as_bytes(),
            &vec![index; 100 << 10],
        )
        .await;
    }
    let (mut left, mut found) = (KeyRange::all(), Vec::new());
    loop {
        let page = engine.range(&left, 1000, None).await.unwrap();
        let bytes: usize = page.entries.iter().map(|entry| entry.value.len()).sum();
        assert!(bytes <= (1 << 20) + (100 << 10), "{bytes}");
        found.extend(page.entries);
        if !page.has_more {
            break;
        }
        left = left.after(&found.last().unwrap().key);
    }
    let values = found.iter().map(|entry| entry.value[0]);
    assert!(values.eq(0..60));
}
