//! What became of something that was written, in one list of words for everything that is judged:
//! promises in crash states ([`crate::oracle`]) and files after power cuts ([`crate::powercut`]).

use serde::{Deserialize, Serialize};
use std::fmt;

/// What became of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is there, with every byte.
    Intact,
    /// It is what was there before, with every byte, and may be.
    Old,
    /// A name or a file is not there.
    Missing,
    /// It is shorter than it may be, and right as far as it goes.
    Truncated,
    /// Some of it is zeros that may not be.
    ZeroFilled,
    /// It, or some of it, is as it was before.
    Stale,
    /// It has bytes that nobody wrote there.
    Foreign,
    /// It is there and cannot be read.
    Unreadable,
    /// The file system cannot be mounted, or its own tool cannot repair it.
    Unmountable,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Intact,
        Self::Old,
        Self::Missing,
        Self::Truncated,
        Self::ZeroFilled,
        Self::Stale,
        Self::Foreign,
        Self::Unreadable,
        Self::Unmountable,
    ];

    /// What is wrong with one name or one file of a file system that can be mounted.
    pub const WRONG: [Self; 6] = [
        Self::Missing,
        Self::Truncated,
        Self::ZeroFilled,
        Self::Stale,
        Self::Foreign,
        Self::Unreadable,
    ];

    /// As it is written in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Intact => "intact",
            Self::Old => "old",
            Self::Missing => "missing",
            Self::Truncated => "truncated",
            Self::ZeroFilled => "zero_filled",
            Self::Stale => "stale",
            Self::Foreign => "foreign",
            Self::Unreadable => "unreadable",
            Self::Unmountable => "unmountable",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_results_and_state_files() {
        for outcome in Outcome::ALL {
            let text = serde_json::to_string(&outcome).unwrap();
            assert_eq!(text, format!("\"{outcome}\""));
        }
        assert!(Outcome::WRONG.iter().all(|one| Outcome::ALL.contains(one)));
    }
}
