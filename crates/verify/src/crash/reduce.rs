//! Which few writes a failure is about.
//!
//! A failing state lacks some changes of its stretch. First as many of these as possible are put
//! back, in halves, quarters and so on (delta debugging: Zeller and Hildebrandt, Simplifying and
//! isolating failure-inducing input, 2002) while it still fails. If many are still missing, the
//! failure may be about the few that arrived: then as many of those as possible are taken away.

use crate::states::{Pattern, State};
use base::limits::VERIFY_REDUCE_TRIES_MAX;

/// More changes than this do not tell anybody much.
pub(super) const FEW: usize = 10;

/// A state of the same stretch that fails with less. `missing` is what the failing one lacks of
/// `count` changes, `fails` tries a state.
///
/// # Errors
/// Those of `fails`.
pub(super) fn reduce<E>(
    state: &State,
    count: u32,
    missing: Vec<u32>,
    mut fails: impl FnMut(&State) -> Result<bool, E>,
) -> Result<State, E> {
    let mut tries = VERIFY_REDUCE_TRIES_MAX;
    let mut is_bad = |pattern: Pattern| {
        let stretch = state.stretch;
        fails(&State { stretch, pattern })
    };
    // A torn change is missing here; maybe it is the tear that matters.
    if !is_bad(Pattern::Missing(missing.clone()))? {
        return Ok(state.clone());
    }
    let there: Vec<u32> = (0..count)
        .filter(|change| !missing.contains(change))
        .collect();
    let missing = shrink(missing, &mut tries, |few| {
        is_bad(Pattern::Missing(few.to_vec()))
    })?;
    let mut pattern = Pattern::Missing(missing.clone());
    if missing.len() > FEW {
        tries = VERIFY_REDUCE_TRIES_MAX;
        let there = shrink(there, &mut tries, |few| is_bad(Pattern::Only(few.to_vec())))?;
        if there.len() < missing.len() {
            pattern = Pattern::Only(there);
        }
    }
    let stretch = state.stretch;
    Ok(State { stretch, pattern })
}

/// A part of `list`, which is bad, that is bad and from which nothing can be left out, or as much
/// as `tries` allow.
fn shrink<E>(
    mut list: Vec<u32>,
    tries: &mut u32,
    mut is_bad: impl FnMut(&[u32]) -> Result<bool, E>,
) -> Result<Vec<u32>, E> {
    let mut part = list.len().div_ceil(2);
    while part > 0 && !list.is_empty() {
        let mut start = 0;
        let mut was_shorter = false;
        while start < list.len() {
            if *tries == 0 {
                return Ok(list);
            }
            *tries -= 1;
            let end = (start + part).min(list.len());
            let without = [&list[..start], &list[end..]].concat();
            if is_bad(&without)? {
                list = without;
                was_shorter = true;
            } else {
                start = end;
            }
        }
        // With single ones, another round may find more.
        part = match part {
            1 if was_shorter => 1,
            1 => 0,
            part => part.div_ceil(2),
        };
    }
    Ok(list)
}

/// The changes that a reduced pattern names.
pub(super) fn named(pattern: &Pattern) -> Vec<u32> {
    match pattern {
        Pattern::Prefix(change) | Pattern::Without(change) => vec![*change],
        Pattern::Head(change, _) | Pattern::Tail(change, _) => vec![*change],
        Pattern::Missing(changes) | Pattern::Only(changes) => changes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(count: u32, missing: Vec<u32>, fails: impl Fn(&[u32]) -> bool) -> Pattern {
        let state = State {
            stretch: 3,
            pattern: Pattern::Prefix(0),
        };
        let missing_of = |pattern: &Pattern| match pattern {
            Pattern::Missing(missing) => missing.clone(),
            Pattern::Only(there) => (0..count).filter(|c| !there.contains(c)).collect(),
            other => panic!("{other}"),
        };
        let reduced = reduce(&state, count, missing, |state| {
            Ok::<_, ()>(fails(&missing_of(&state.pattern)))
        });
        reduced.unwrap().pattern
    }

    #[test]
    fn a_failure_is_reduced_to_the_changes_that_it_is_about() {
        let all = || (0..50).collect::<Vec<u32>>();
        let two = |missing: &[u32]| missing.contains(&7) && missing.contains(&40);
        assert_eq!(reduced(50, all(), two), Pattern::Missing(vec![7, 40]));
        assert_eq!(reduced(50, all(), |_| true), Pattern::Missing(vec![]));
    }

    #[test]
    fn one_that_is_about_what_arrived_is_reduced_to_that() {
        // It fails when change 5 is there and at least 20 others are not.
        let missing: Vec<u32> = (6..50).collect();
        let fails = |missing: &[u32]| !missing.contains(&5) && missing.len() >= 20;
        assert_eq!(reduced(50, missing, fails), Pattern::Only(vec![5]));
    }

    #[test]
    fn a_tear_that_matters_stays() {
        let pattern = reduced(5, vec![2], |_| false);
        assert_eq!(pattern, Pattern::Prefix(0), "the state as it was");
    }
}
