//! Traces beside a list of all units, merging beside a table of least values, golden bytes, damage.

use super::*;
use crate::chunk::{ChunkId, Digest};
use crate::index::ChunkSizes;
use expect_test::expect;
use proptest::prelude::*;
use std::time::Duration;

const IMAGE: u64 = 40 * UNIT_BYTES + 100;

/// Reads: milliseconds since the one before, offset, length.
type Reads = Vec<(u64, u64, u64)>;

fn reads() -> impl Strategy<Value = Reads> {
    prop::collection::vec((0_u64..15, 0..IMAGE + 5000, 0_u64..30_000), 0..25)
}

fn trace(reads: &Reads) -> Trace {
    let mut trace = Trace::new(IMAGE);
    let mut time = 0;
    for &(pause, offset, len) in reads {
        time += pause;
        trace.on_read(Duration::from_millis(time), Extent::new(offset, len));
    }
    trace
}

fn profile(name: &str, reads: &Reads) -> Profile {
    Profile::new(name, &trace(reads)).unwrap()
}

/// Units in order of their first touch, found one by one.
fn naive_order(reads: &Reads) -> Vec<u64> {
    let mut order = Vec::new();
    for &(_, offset, len) in reads {
        for unit in 0..IMAGE.div_ceil(UNIT_BYTES) {
            let bytes = Extent::new(unit * UNIT_BYTES, UNIT_BYTES);
            let bytes = bytes.intersection(Extent::new(0, IMAGE));
            if bytes.overlaps(Extent::new(offset, len)) && !order.contains(&unit) {
                order.push(unit);
            }
        }
    }
    order
}

/// Each unit's facts, without the limits of touches.
fn naive(reads: &Reads) -> BTreeMap<u64, u64> {
    let mut facts = BTreeMap::new();
    let mut position = 0;
    for unit in naive_order(reads) {
        facts.insert(unit, position);
        position += UNIT_BYTES.min(IMAGE - unit * UNIT_BYTES);
    }
    facts
}

fn positions(profile: &Profile) -> BTreeMap<u64, u64> {
    let facts = profile.facts().into_iter();
    facts
        .map(|(unit, fact)| (unit, fact.position_bytes))
        .collect()
}

proptest! {
    #[test]
    fn a_trace_has_every_unit_once_in_the_order_of_its_first_touch(reads in reads()) {
        let trace = trace(&reads);
        let mut order = Vec::new();
        for touch in trace.touches() {
            let end = touch.extent.end().div_ceil(UNIT_BYTES);
            order.extend(touch.extent.offset / UNIT_BYTES..end);
        }
        prop_assert_eq!(order, naive_order(&reads));
        let profile = Profile::new("a", &trace).unwrap();
        prop_assert_eq!(positions(&profile), naive(&reads));
        prop_assert_eq!(&profile.hot(), trace.seen());
        prop_assert!(!trace.is_full());
    }

    #[test]
    fn merging_takes_the_least_position_and_counts_the_runs(
        all in prop::collection::vec(reads(), 1..4),
    ) {
        let profiles: Vec<_> = all.iter().map(|reads| profile("a", reads)).collect();
        let merged = profiles.iter().skip(1).fold(profiles[0].clone(), |a, b| a.merged(b));
        let mut expected: BTreeMap<u64, (u64, u16)> = BTreeMap::new();
        for reads in &all {
            for (unit, position) in naive(reads) {
                let known = expected.entry(unit).or_insert((position, 0));
                *known = (known.0.min(position), known.1 + 1);
            }
        }
        let found: BTreeMap<_, _> = merged
            .facts()
            .into_iter()
            .map(|(unit, fact)| (unit, (fact.position_bytes, fact.runs)))
            .collect();
        prop_assert_eq!(&found, &expected);
        // In whichever order, and in however many steps.
        let backwards = profiles.iter().rev().skip(1);
        let last = profiles.last().unwrap().clone();
        let other = backwards.fold(last, |a, b| b.merged(&a));
        prop_assert_eq!(&other, &merged);
        prop_assert_eq!(usize::from(merged.runs()), all.len());
        let twice = merged.common(2).facts();
        for (unit, (_, runs)) in expected {
            prop_assert_eq!(twice.contains_key(&unit), runs >= 2);
        }
        prop_assert_eq!(Profile::from_bytes(&merged.to_bytes()), Ok(merged));
    }

    #[test]
    fn what_was_written_is_read_and_no_damage_is_overlooked(
        reads in reads(),
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
    ) {
        let profile = profile("boot", &reads);
        let mut bytes = profile.to_bytes();
        prop_assert_eq!(Profile::from_bytes(&bytes), Ok(profile));
        let at = at.index(bytes.len());
        prop_assert!(Profile::from_bytes(&bytes[..at]).is_err());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(Profile::from_bytes(&bytes).is_err());
    }

    #[test]
    fn chunks_come_in_the_order_in_which_their_first_units_do(
        reads in reads(),
        lengths in prop::collection::vec(1_u64..=9, 41),
    ) {
        let mut end = 0;
        let ends = lengths.iter().map(|length| {
            end += length * 1700;
            end.min(IMAGE)
        });
        let mut ends: Vec<_> = ends.chain([IMAGE]).collect();
        ends.dedup();
        let chunks = ends.iter().map(|&end| (end, ChunkId([0; 32])));
        let index = Index::new(Digest::Sha256, ChunkSizes::fixed(1 << 20), chunks).unwrap();
        let profile = profile("a", &reads);
        let found = profile.chunks(&index);
        // Which chunks: all that have a byte of a unit that was touched.
        let hot = profile.hot();
        let expected: Vec<_> = (0..index.chunk_count())
            .filter(|&number| hot.overlaps(index.chunk(number).extent))
            .collect();
        let mut sorted = found.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, expected);
        // In which order: that of the first byte that was needed of each.
        let position = |number: &usize| {
            let bytes = index.chunk(*number).extent;
            let of_touch = |touch: &Touch| {
                let both = touch.extent.intersection(bytes);
                let within = both.offset.saturating_sub(touch.extent.offset);
                (!both.is_empty()).then_some(touch.position_bytes + within)
            };
            profile.touches().iter().filter_map(of_touch).min().unwrap()
        };
        prop_assert!(found.is_sorted_by_key(|number| (position(number), *number)));
    }

    #[test]
    fn a_later_version_of_another_length_has_what_is_within(
        reads in reads(),
        image_bytes in 0_u64..2 * IMAGE,
    ) {
        let profile = profile("a", &reads);
        let fitted = profile.fitted(image_bytes);
        prop_assert_eq!(Profile::from_bytes(&fitted.to_bytes()), Ok(fitted.clone()));
        let within = Extent::new(0, image_bytes);
        let expected = profile.facts().into_iter();
        let expected = expected.filter(|(unit, _)| within.contains(unit * UNIT_BYTES));
        prop_assert!(fitted.facts().into_iter().eq(expected));
    }
}

fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| -> String { line.iter().map(|byte| format!("{byte:02x}")).collect() };
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_profile_has_the_bytes_that_it_had() {
    let profile = profile("boot", &vec![(0, 8192, 100), (5, 12288, 1), (300, 0, 4097)]);
    let merged = profile.merged(&profile.common(1));
    expect![[r#"
        415a4b4450524f4601000000e5247237
        04626f6f74e4800a0202804080400000
        020080408040b10202"#]]
    .assert_eq(&hex(&merged.to_bytes()));
}

#[test]
fn a_touch_goes_on_while_reads_do() {
    let trace = trace(&vec![
        (0, 0, 4096),
        (9, 4096, 4096),
        (1, 8192, 10),
        (0, 0, 50_000),
    ]);
    let touches: Vec<_> = trace
        .touches()
        .iter()
        .map(|touch| (touch.extent.offset, touch.extent.len, touch.time_ms))
        .collect();
    assert_eq!(touches, [(0, 8192, 0), (8192, 45_056, 10)]);
}

#[test]
fn a_trace_that_is_full_stays_as_it_is() {
    let mut trace = Trace::new(1 << 40);
    for number in 0..DISK_TOUCHES_MAX as u64 + 10 {
        let extent = Extent::new(number * 3 * UNIT_BYTES, 1);
        trace.on_read(Duration::from_millis(number), extent);
    }
    assert!(trace.is_full());
    assert_eq!(trace.touches().len(), DISK_TOUCHES_MAX);
    assert_eq!(trace.seen().run_count(), DISK_TOUCHES_MAX);
    let profile = Profile::new("long", &trace).unwrap();
    let bytes = profile.to_bytes();
    assert!(bytes.len() as u64 <= DISK_PROFILE_FILE_BYTES_MAX);
    assert_eq!(Profile::from_bytes(&bytes), Ok(profile));
    let mut trace = Trace::new(1 << 40);
    trace.on_read(Duration::ZERO, Extent::new(0, DISK_PROFILE_BYTES_MAX));
    assert!(!trace.is_full());
    trace.on_read(Duration::ZERO, Extent::new(1 << 39, 1));
    assert!(trace.is_full());
    assert_eq!(trace.touches().len(), 1);
}

#[test]
fn what_no_recording_has_is_refused() {
    let good = profile("boot", &vec![(0, 0, 4096), (0, 8192, 4096)]);
    let changes: [fn(&mut Profile); 14] = [
        |profile| profile.name = "../boot".into(),
        |profile| profile.name = String::new(),
        |profile| profile.name = "a@b".into(),
        |profile| profile.image_bytes = 8192,
        |profile| profile.image_bytes = u64::MAX,
        |profile| profile.touches[1].extent = Extent::new(8192, 0),
        |profile| profile.touches[1].extent = Extent::new(8193, 4095),
        |profile| profile.touches[1].extent = Extent::new(8192, 100),
        |profile| profile.touches[1].extent = Extent::new(0, 8192),
        |profile| {
            profile.touches[1].extent = Extent {
                offset: 1 << 63,
                len: u64::MAX,
            }
        },
        |profile| profile.touches[1].position_bytes = u64::MAX,
        |profile| profile.touches[1].runs = 0,
        |profile| profile.touches[1].runs = 2,
        |profile| profile.touches.swap(0, 1),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut profile = good.clone();
        change(&mut profile);
        let refused = Profile::from_bytes(&profile.to_bytes());
        assert_eq!(refused, Err(Damage::Profile), "{number}");
    }
    let mut newer = good.to_bytes();
    newer[8] = 2;
    assert_eq!(Profile::from_bytes(&newer), Err(Damage::Newer(2)));
    assert_eq!(
        Profile::from_bytes(b"AZKDPACK........"),
        Err(Damage::NotAProfile)
    );
    for bad in ["", "a b", "..", "a@b", &"x".repeat(65)] {
        let refused = Profile::new(bad, &Trace::new(0));
        assert!(matches!(refused, Err(DiskError::Profile(_))), "{bad:?}");
    }
}
