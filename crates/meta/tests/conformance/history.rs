//! Many clients at once: everything that they saw has one order.
//!
//! Each answer names the revision at which it is true, so the order need not be searched for: what
//! was committed is carried out again in the order of its revisions, every read and every refusal
//! is compared with the state that it names, and nobody may name a state from before his question
//! or after his answer.

use crate::entries::Shared;
use crate::model::{Drawn, Map};
use crate::worlds::World;
use base::limits::META_TIME_MAX;
use meta::{Condition, KeyRange, MetaError, Revision};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One thing that a client did.
#[derive(Debug)]
pub(crate) struct Event {
    begun: Instant,
    ended: Instant,
    /// The state that the answer is about.
    at: Revision,
    what: What,
}

#[derive(Debug)]
enum What {
    Committed(Drawn),
    Refused(Drawn, usize),
    Read(Vec<u8>, Option<(Vec<u8>, Revision)>),
    Listed(KeyRange, Vec<(Vec<u8>, Revision)>),
}

/// A small generator of numbers that need not be good.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    format!("k{}", random.below(6)).into_bytes()
}

/// Something that moves values between two keys, as far as they are still as they were seen.
async fn step(engine: &Shared, random: &mut Random, unique: &str) -> Option<Event> {
    let begun = Instant::now();
    let event = |at, what| Event {
        begun,
        ended: Instant::now(),
        at,
        what,
    };
    if random.below(4) == 0 {
        let range = match random.below(2) {
            0 => KeyRange::all(),
            _ => KeyRange::from(key(random)),
        };
        let page = engine.range(&range, 100, None).await.ok()?;
        let entries = page.entries.into_iter();
        let entries = entries.map(|entry| (entry.key, entry.revision)).collect();
        return Some(event(page.revision, What::Listed(range, entries)));
    }
    let (one, other) = (key(random), key(random));
    let (entry, at) = engine.get(&one).await.ok()?;
    if random.below(3) == 0 {
        let found = entry.map(|entry| (entry.value, entry.revision));
        return Some(event(at, What::Read(one, found)));
    }
    let condition = match &entry {
        Some(entry) => Condition::WrittenAt(one.clone(), entry.revision),
        None => Condition::Absent(one.clone()),
    };
    let mut drawn = Drawn {
        conditions: vec![condition],
        ..Drawn::default()
    };
    match (random.below(4), one == other) {
        (0, _) => drawn.deletes.push(one),
        (1, false) => {
            drawn.puts.insert(one, unique.into());
            drawn.deletes.push(other);
        }
        (2, false) => {
            drawn
                .conditions
                .push(Condition::Empty(KeyRange::prefix(other.clone())));
            drawn.puts.insert(other, unique.into());
        }
        _ => {
            drawn.puts.insert(one, unique.into());
        }
    }
    let begun = Instant::now();
    let outcome = match engine.commit(drawn.transaction()).await {
        Err(MetaError::Unknown(id)) => ask(engine, id).await,
        outcome => outcome,
    };
    let (at, what) = match outcome {
        Ok(committed) => (committed.revision, What::Committed(drawn)),
        Err(MetaError::Conflict { condition, at }) => (at, What::Refused(drawn, condition)),
        // It has not happened, and says nothing about any state.
        Err(MetaError::Unavailable(_)) => return None,
        Err(error) => panic!("{error}"),
    };
    Some(Event {
        begun,
        ended: Instant::now(),
        at,
        what,
    })
}

async fn ask(engine: &Shared, id: meta::TransactionId) -> Result<meta::Committed, MetaError> {
    for _ in 0..6 {
        match engine.outcome(id).await {
            Err(MetaError::Unknown(_)) => {}
            outcome => return outcome,
        }
    }
    panic!("no outcome in {:?}", META_TIME_MAX * 6);
}

/// Clients that do so many things each, on engines of their own if there are several.
pub(crate) async fn record(engines: &[Shared], clients: usize, each: usize) -> Vec<Event> {
    let numbers = Arc::new(AtomicU64::new(0));
    let clients = (0..clients).map(|client| {
        let engine = Arc::clone(&engines[client % engines.len()]);
        let numbers = Arc::clone(&numbers);
        tokio::spawn(async move {
            let mut random = Random(client as u64 * 7919 + 1);
            let mut events = Vec::new();
            for _ in 0..each {
                let unique = numbers.fetch_add(1, Ordering::Relaxed).to_string();
                events.extend(step(&engine, &mut random, &unique).await);
            }
            events
        })
    });
    let mut events = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        events.extend(client.await.unwrap());
    }
    events
}

/// Whether there is one order, and how much was done.
pub(crate) fn check(events: &[Event]) -> (usize, usize) {
    check_times(events);
    let states = states(events);
    let state_at = |at: Revision| states.range(..=at).next_back().map(|(_, state)| state);
    let empty = Map::new();
    let mut refused = 0;
    for event in events {
        let state = state_at(event.at).unwrap_or(&empty);
        match &event.what {
            What::Committed(_) => {}
            What::Refused(drawn, condition) => {
                assert_eq!(
                    drawn.fails(state),
                    Some(*condition),
                    "{event:?} in {state:?}"
                );
                refused += 1;
            }
            What::Read(key, found) => assert_eq!(state.get(key), found.as_ref(), "{event:?}"),
            What::Listed(range, found) => {
                let state = state.iter().filter(|(key, _)| range.contains(key));
                let state: Vec<_> = state.map(|(key, (_, at))| (key.clone(), *at)).collect();
                assert_eq!(&state, found, "{event:?}");
            }
        }
    }
    let is_committed = |event: &&Event| matches!(event.what, What::Committed(_));
    (events.iter().filter(is_committed).count(), refused)
}

/// What ended before another thing began is not later than that.
fn check_times(events: &[Event]) {
    let mut ends: Vec<_> = events.iter().collect();
    ends.sort_by_key(|event| event.ended);
    let mut begins: Vec<_> = events.iter().collect();
    begins.sort_by_key(|event| event.begun);
    let (mut seen, mut written) = (Revision(0), Revision(0));
    let mut ends = ends.into_iter().peekable();
    for event in begins {
        while let Some(ended) = ends.next_if(|ended| ended.ended < event.begun) {
            seen = seen.max(ended.at);
            if matches!(ended.what, What::Committed(_)) {
                written = written.max(ended.at);
            }
        }
        assert!(event.at >= seen, "{event:?} is of before {seen}");
        if matches!(event.what, What::Committed(_)) {
            assert!(
                event.at > written && event.at > seen,
                "{event:?} at {written}"
            );
        }
    }
}

/// The state after each revision; every condition of what happened then is checked with the state
/// before.
fn states(events: &[Event]) -> BTreeMap<Revision, Map> {
    let mut committed: BTreeMap<Revision, Vec<&Drawn>> = BTreeMap::new();
    for event in events {
        if let What::Committed(drawn) = &event.what {
            committed.entry(event.at).or_default().push(drawn);
        }
    }
    let mut states = BTreeMap::new();
    let mut state = Map::new();
    for (at, group) in committed {
        let before = state.clone();
        for drawn in group {
            assert_eq!(
                drawn.fails(&before),
                None,
                "{drawn:?} at {at} in {before:?}"
            );
            // As if one after the other, in any order.
            assert_eq!(drawn.fails(&state), None, "{drawn:?} at {at} in {state:?}");
            drawn.apply(&mut state, at);
        }
        states.insert(at, state.clone());
    }
    states
}

pub(crate) async fn what_many_clients_see_has_one_order(world: &dyn World) {
    let engine = world.open().await;
    let (clients, each) = world.load();
    let events = record(&[engine], clients, each).await;
    let (committed, refused) = check(&events);
    println!(
        "{committed} committed, {refused} refused, {} in all",
        events.len()
    );
    assert!(committed > clients && refused > clients);
}

pub(crate) async fn of_those_who_want_the_same_one_gets_it(world: &dyn World) {
    let engine = world.open().await;
    let (clients, each) = world.load();
    let adding = (0..clients).map(|_| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            let mut tries = 0;
            for _ in 0..each / 4 {
                while !add_one(&engine).await {
                    tries += 1;
                    assert!(tries < 100_000);
                }
            }
        })
    });
    for adding in adding.collect::<Vec<_>>() {
        adding.await.unwrap();
    }
    let (count, _) = crate::entries::read(&engine, b"count").await.unwrap();
    let sum = clients * (each / 4);
    assert_eq!(String::from_utf8(count).unwrap(), sum.to_string());
}

async fn add_one(engine: &Shared) -> bool {
    let (entry, _) = engine.get(b"count").await.unwrap();
    let (count, condition) = match entry {
        None => (0, Condition::Absent(b"count".to_vec())),
        Some(entry) => {
            let count: u64 = String::from_utf8(entry.value).unwrap().parse().unwrap();
            (count, Condition::WrittenAt(entry.key, entry.revision))
        }
    };
    let adding = meta::Transaction::new()
        .when(condition)
        .put(b"count", (count + 1).to_string());
    match engine.commit(adding).await {
        Ok(_) => true,
        Err(MetaError::Conflict { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_history_without_an_order_is_noticed() {
    let event = |from: u64, to: u64, at: u64, what| {
        let origin = Instant::now();
        Event {
            begun: origin + Duration::from_secs(from),
            ended: origin + Duration::from_secs(to),
            at: Revision(at),
            what,
        }
    };
    let put = |value: &str, condition: Condition| {
        What::Committed(Drawn {
            conditions: vec![condition],
            puts: BTreeMap::from([(b"a".to_vec(), value.into())]),
            ..Drawn::default()
        })
    };
    let absent = || Condition::Absent(b"a".to_vec());
    let seen = |value: &str, at| What::Read(b"a".to_vec(), Some((value.into(), Revision(at))));
    let is_noticed = |events: Vec<Event>| std::panic::catch_unwind(move || check(&events)).is_err();
    let first = || event(0, 1, 5, put("1", absent()));
    assert!(!is_noticed(vec![first(), event(2, 3, 6, seen("1", 5))]));
    // Two of whom only one can have been the first; a read of before; of something else.
    assert!(is_noticed(vec![
        first(),
        event(2, 3, 6, put("2", absent()))
    ]));
    assert!(is_noticed(vec![
        first(),
        event(2, 3, 4, What::Read(b"a".to_vec(), None))
    ]));
    assert!(is_noticed(vec![first(), event(0, 3, 6, seen("2", 5))]));
    assert!(is_noticed(vec![
        first(),
        event(2, 3, 6, What::Read(b"a".to_vec(), None))
    ]));
}
