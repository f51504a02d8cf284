//! Shares of crash states, and which of them have an interval.

use crate::crash::Totals;
use crate::statistics::{Interval, wilson};

/// Crash states that were tried. They are gone through: where all of them were tried, the share of
/// bad ones is what it is, and where the first ones alone were tried, nothing is known of the
/// others. Only what is drawn by chance says something of what was not drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct States {
    tried: u64,
    bad: u64,
    /// Of those that were tried, drawn by chance.
    drawn: u64,
    /// Whether some were neither tried nor left to chance.
    is_part: bool,
}

impl States {
    pub(super) fn of(totals: &Totals) -> Self {
        let own = totals.states.saturating_sub(totals.recovery_states);
        Self {
            tried: totals.states,
            bad: totals.bad_states,
            // Earlier releases counted what they had drawn, and tried it in its order: of a run
            // that was ended, what was tried is the beginning of that.
            drawn: match totals.sampled <= totals.states {
                true => totals.sampled,
                false => 0,
            },
            is_part: own < totals.distinct,
        }
    }

    /// These, and those of another run.
    pub(super) fn add(&mut self, other: Self) {
        self.tried = self.tried.saturating_add(other.tried);
        self.bad = self.bad.saturating_add(other.bad);
        self.drawn = self.drawn.saturating_add(other.drawn);
        self.is_part |= other.is_part;
    }

    /// Between which shares that of bad ones probably lies, if that is a question. It is as wide
    /// as if all of them had been drawn.
    pub(super) fn interval(&self) -> Option<Interval> {
        let (low, high) = wilson(self.bad, self.tried);
        (self.drawn > 0).then_some(Interval {
            low,
            high,
            confidence: 0.95,
        })
    }

    /// What is to be said of the share of bad ones; `None` if nothing was tried.
    pub(super) fn words(&self) -> Option<String> {
        if self.tried == 0 {
            return None;
        }
        let share = self.bad as f64 / self.tried as f64 * 100.0;
        Some(match (self.interval(), self.is_part) {
            (Some(Interval { low, high, .. }), _) => {
                let (low, high) = (low * 100.0, high * 100.0);
                format!("{low:.2} to {high:.2} %; {} drawn by chance", self.drawn)
            }
            (None, false) => format!("{share:.2} %; all that there are"),
            (None, true) => format!("{share:.2} %; the first of more"),
        })
    }

    /// Bad ones of how many, with what is to be said of it.
    pub(super) fn share(&self) -> Option<String> {
        let (bad, tried) = (self.bad, self.tried);
        self.words()
            .map(|words| format!("{bad} of {tried} ({words})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(distinct: u64, sampled: u64) -> Totals {
        Totals {
            states: 100,
            bad_states: 25,
            distinct,
            sampled,
            ..Totals::default()
        }
    }

    #[test]
    fn only_what_was_drawn_has_an_interval() {
        let share = |totals: &Totals| States::of(totals).share().unwrap();
        let all = States::of(&totals(100, 0));
        assert_eq!(all.interval(), None);
        assert_eq!(
            share(&totals(100, 0)),
            "25 of 100 (25.00 %; all that there are)"
        );
        assert_eq!(
            share(&totals(105, 0)),
            "25 of 100 (25.00 %; the first of more)"
        );
        let drawn = "25 of 100 (17.55 to 34.30 %; 100 drawn by chance)";
        assert_eq!(share(&totals(900, 100)), drawn);
        // A run of an earlier release that was ended has tried the first of what it had drawn.
        let first = "25 of 100 (25.00 %; the first of more)";
        assert_eq!(share(&totals(900, 400)), first);
        // States of recoveries come on top of the others, and are drawn.
        let with_recoveries = Totals {
            recovery_states: 40,
            ..totals(60, 40)
        };
        assert!(share(&with_recoveries).ends_with("%; 40 drawn by chance)"));
        // One state that is tried again is all that there is.
        assert!(!States::of(&totals(0, 0)).is_part);
        assert_eq!(States::default().share(), None);
    }

    #[test]
    fn several_runs_are_exhaustive_if_each_is() {
        let mut both = States::of(&totals(100, 0));
        both.add(States::of(&totals(100, 0)));
        let said = both.share().unwrap();
        assert_eq!(said, "50 of 200 (25.00 %; all that there are)");
        both.add(States::of(&totals(105, 0)));
        assert!(both.is_part && both.interval().is_none());
        both.add(States::of(&totals(900, 100)));
        assert!(both.interval().is_some());
    }
}
