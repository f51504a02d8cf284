//! What a file has, beside what it may have: the contents that it had after some of its steps.
//!
//! States of crashes are judged by the hundred thousand, and most of a file is what one of its
//! versions has there, or zeros; so parts are compared, and bytes only in those that are neither.

use crate::outcome::Outcome;
use std::sync::Arc;

/// The contents of a file after one step.
pub(super) type Version = Arc<Vec<u8>>;

/// What is compared at once.
const PART_LEN: usize = 512;
const ZEROS: [u8; PART_LEN] = [0; PART_LEN];

/// What is wrong with a file's bytes, each of which may be that of one of these versions. `earlier`
/// are all versions that there ever were.
pub(super) fn wrong<'a>(
    bytes: &[u8],
    versions: &[&Version],
    was_promised: bool,
    earlier: impl FnOnce() -> Vec<&'a Version>,
) -> Option<Outcome> {
    let is_wrong = |(at, byte): (usize, &u8)| {
        let is_known = versions.iter().any(|version| version.get(at) == Some(byte));
        // What is behind the end of a version is zeros when the file becomes longer.
        let may_be_zero = !was_promised || versions.iter().any(|version| version.len() <= at);
        !(is_known || (*byte == 0 && may_be_zero))
    };
    let parts = bytes.chunks(PART_LEN).zip((0..).step_by(PART_LEN));
    let others: Vec<(&[u8], usize)> = parts.filter(|part| !is_of(versions, *part)).collect();
    let has_wrong = |(part, at): &(&[u8], usize)| (*at..).zip(*part).any(is_wrong);
    if !others.iter().any(has_wrong) {
        return None;
    }
    let has_wrong_data = |(part, at): &(&[u8], usize)| {
        let is_wrong = |place: (usize, &u8)| *place.1 != 0 && is_wrong(place);
        *part != &ZEROS[..part.len()] && (*at..).zip(*part).any(is_wrong)
    };
    if !others.iter().any(has_wrong_data) {
        return Some(Outcome::ZeroFilled);
    }
    let earlier = earlier();
    let was_so = |part: &(&[u8], usize)| {
        let had = |(at, byte): (usize, &u8)| earlier.iter().any(|old| old.get(at) == Some(byte));
        let mut places = (part.1..).zip(part.0);
        is_of(&earlier, *part) || places.all(|place| !is_wrong(place) || had(place))
    };
    match others.iter().all(was_so) {
        true => Some(Outcome::Stale),
        false => Some(Outcome::Foreign),
    }
}

/// Whether one of these versions has these bytes at this place.
fn is_of(versions: &[&Version], (part, at): (&[u8], usize)) -> bool {
    let range = at..at + part.len();
    versions
        .iter()
        .any(|version| version.get(range.clone()) == Some(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// Byte by byte.
    fn naive(
        bytes: &[u8],
        versions: &[&Version],
        was_promised: bool,
        earlier: &[&Version],
    ) -> Option<Outcome> {
        let has = |versions: &[&Version], at: usize| {
            versions.iter().any(|one| one.get(at) == Some(&bytes[at]))
        };
        let may_be_zero = |at| !was_promised || versions.iter().any(|one| one.len() <= at);
        let is_wrong = |at: &usize| !has(versions, *at) && (bytes[*at] != 0 || !may_be_zero(*at));
        let wrong: Vec<usize> = (0..bytes.len()).filter(is_wrong).collect();
        match wrong.as_slice() {
            [] => None,
            wrong if wrong.iter().all(|at| bytes[*at] == 0) => Some(Outcome::ZeroFilled),
            wrong if wrong.iter().all(|at| has(earlier, *at)) => Some(Outcome::Stale),
            _ => Some(Outcome::Foreign),
        }
    }

    /// Runs of a byte, over one part or several.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let run = (0..4_u8, 1..700_usize).prop_map(|(byte, len)| vec![byte; len]);
        prop::collection::vec(run, 0..4).prop_map(|runs| runs.concat())
    }

    #[test]
    fn parts_are_judged_as_their_bytes_are() {
        let seen: Mutex<BTreeMap<String, u32>> = Mutex::default();
        let config = ProptestConfig::with_cases(2_000);
        let mut runner = proptest::test_runner::TestRunner::new_with_rng(
            config,
            proptest::test_runner::TestRng::deterministic_rng(
                proptest::test_runner::RngAlgorithm::ChaCha,
            ),
        );
        let contents = (prop::collection::vec(text(), 1..5), text());
        let some = (contents, any::<prop::sample::Index>(), any::<bool>());
        let judged = runner.run(&some, |((texts, found), first, was_promised)| {
            let all: Vec<Version> = texts.into_iter().map(Arc::new).collect();
            let earlier: Vec<&Version> = all.iter().collect();
            let versions = &earlier[first.index(all.len())..];
            let expected = naive(&found, versions, was_promised, &earlier);
            let outcome = wrong(&found, versions, was_promised, || earlier.clone());
            *seen
                .lock()
                .unwrap()
                .entry(format!("{outcome:?}"))
                .or_default() += 1;
            prop_assert_eq!(outcome, expected);
            Ok(())
        });
        judged.unwrap();
        let seen = seen.into_inner().unwrap();
        assert!(
            seen.len() == 4 && seen.values().all(|count| *count > 20),
            "{seen:?}"
        );
    }
}
