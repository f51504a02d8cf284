//! Whether the view of a POSIX ACL is stored, or made anew at each access.
//!
//! Both cost time, and which costs more is decided by where the file system keeps what: a small
//! attribute lies in the inode and costs nothing more, a larger one costs a read, a still larger
//! one two; and the view is larger than what it shows. The figures differ from file system to file
//! system and have changed with them, so they are measured where the files are and are arguments
//! here ([`Costs`]).
//!
//! Source: Nakamura and others, section 3.1. With T_A the time of an access to a stored view, T_C
//! of one that converts, T_CW of one that converts and stores, and n accesses, nothing should be
//! stored if
//!
//! ```text
//! T_CW + (n - 1) T_A > n T_C
//! ```
//!
//! How often a file will be accessed is not known. Here n is how often it has been, this time
//! included: the view is stored when storing it at the first access would have paid by now. Then
//! whatever comes costs at most about twice what it would have cost to know ([`Policy::judge`]'s
//! test). An access that is answered from memory is none, so behind a cache n counts its misses. If
//! T_A is not below T_C, the view is never stored.

use crate::AclError;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// When a view is stored. An ACL that somebody has set explicitly always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Never.
    Never,
    /// At the first access.
    Always,
    /// At the first access, if the POSIX ACL has so many entries, including both ends. `None` is
    /// without end.
    Entries {
        /// As few as this.
        from: u32,
        /// As many as this.
        to: Option<u32>,
    },
    /// When it pays, by what was measured.
    #[default]
    Measured,
}

/// What was measured, in nanoseconds, for ACLs of so many entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Entries of the POSIX ACL; one that is only a mode has three.
    pub entries: u32,
    /// An access to a stored view (T_A).
    pub stored_nanos: u64,
    /// One that converts (T_C).
    pub converted_nanos: u64,
    /// One that converts and stores (T_CW).
    pub storing_nanos: u64,
    /// Reads of the device at an access to a stored view, beyond the inode.
    pub stored_reads: u32,
    /// Reads at one that converts.
    pub converted_reads: u32,
}

/// Times of three kinds of access, by the length of an ACL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs(Vec<Point>);

/// What a length costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// An access to a stored view (T_A).
    pub stored: Duration,
    /// One that converts (T_C).
    pub converted: Duration,
    /// One that converts and stores (T_CW).
    pub storing: Duration,
}

/// A length from which on something is kept in another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The last length that was measured before it.
    pub before: u32,
    /// The first that was measured after it.
    pub after: u32,
    /// Reads of an access to a stored view, before and after.
    pub stored_reads: [u32; 2],
    /// Reads of one that converts, before and after.
    pub converted_reads: [u32; 2],
}

impl Costs {
    /// From measured points in any order. Of two with one length the first counts.
    #[must_use]
    pub fn new(mut points: Vec<Point>) -> Self {
        points.sort_by_key(|point| point.entries);
        points.dedup_by_key(|point| point.entries);
        Self(points)
    }

    /// The points, by length.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.0
    }

    /// What a length costs; `None` if nothing was measured. Between two points whose reads are the
    /// same the times are in proportion; where the reads differ, a length has those of the point
    /// below, and who wants to know better measures closer to the step. Beyond the ends it is as at
    /// the ends.
    #[must_use]
    pub fn at(&self, entries: u32) -> Option<Cost> {
        let behind = self.0.partition_point(|point| point.entries <= entries);
        let below = match behind.checked_sub(1) {
            Some(below) => self.0[below],
            None => return self.0.first().map(|first| first.cost()),
        };
        let Some(above) = self
            .0
            .get(behind)
            .filter(|above| above.reads() == below.reads())
        else {
            return Some(below.cost());
        };
        let (whole, part) = (above.entries - below.entries, entries - below.entries);
        let between = |of: fn(&Point) -> u64| {
            let [low, high] = [of(&below), of(above)].map(u128::from);
            let [whole, part] = [whole, part].map(u128::from);
            let nanos = (low * (whole - part) + high * part) / whole;
            Duration::from_nanos(u64::try_from(nanos).expect("it is between two of them"))
        };
        Some(Cost {
            stored: between(|point| point.stored_nanos),
            converted: between(|point| point.converted_nanos),
            storing: between(|point| point.storing_nanos),
        })
    }

    /// Where something begins to lie elsewhere.
    pub fn steps(&self) -> impl Iterator<Item = Step> {
        let pairs = self
            .0
            .windows(2)
            .filter(|pair| pair[0].reads() != pair[1].reads());
        pairs.map(|pair| Step {
            before: pair[0].entries,
            after: pair[1].entries,
            stored_reads: [pair[0].stored_reads, pair[1].stored_reads],
            converted_reads: [pair[0].converted_reads, pair[1].converted_reads],
        })
    }
}

impl Point {
    fn reads(&self) -> [u32; 2] {
        [self.stored_reads, self.converted_reads]
    }

    fn cost(&self) -> Cost {
        Cost {
            stored: Duration::from_nanos(self.stored_nanos),
            converted: Duration::from_nanos(self.converted_nanos),
            storing: Duration::from_nanos(self.storing_nanos),
        }
    }
}

impl Cost {
    /// From which access on storing pays, counted from 1; `None` if it never does.
    #[must_use]
    pub fn pays_from(&self) -> Option<u64> {
        let gain = self.converted.checked_sub(self.stored)?.as_nanos();
        let price = self.storing.saturating_sub(self.stored).as_nanos();
        if gain == 0 {
            return None;
        }
        // T_CW - T_A <= n (T_C - T_A).
        let accesses = price.div_ceil(gain).max(1);
        Some(u64::try_from(accesses).unwrap_or(u64::MAX))
    }
}

impl Policy {
    /// Whether the view of an ACL with so many entries is stored at its access number `accesses`,
    /// counted from 1. Without measurements `measured` stores nothing.
    #[must_use]
    pub fn judge(&self, entries: u32, accesses: u64, costs: &Costs) -> bool {
        match *self {
            Self::Never => false,
            Self::Always => true,
            Self::Entries { from, to } => entries >= from && to.is_none_or(|to| entries <= to),
            Self::Measured => {
                let pays_from = costs.at(entries).and_then(|cost| cost.pays_from());
                pays_from.is_some_and(|first| accesses >= first)
            }
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Always => f.write_str("always"),
            Self::Entries { from, to: None } => write!(f, "entries>={from}"),
            Self::Entries { from, to: Some(to) } => write!(f, "{from}..{to}"),
            Self::Measured => f.write_str("measured"),
        }
    }
}

impl FromStr for Policy {
    type Err = AclError;

    fn from_str(text: &str) -> Result<Self, AclError> {
        let known = AclError::Malformed(
            "a policy is `never`, `always`, `measured`, `entries>=N` or `N..M`, M included",
        );
        let number = |text: &str| text.trim().parse().map_err(|_| known.clone());
        let policy = match text.trim() {
            "never" => Self::Never,
            "always" => Self::Always,
            "measured" => Self::Measured,
            text => match (text.split_once("entries>="), text.split_once("..")) {
                (Some(("", from)), _) => Self::Entries {
                    from: number(from)?,
                    to: None,
                },
                (_, Some((from, to))) => Self::Entries {
                    from: number(from)?,
                    to: Some(number(to)?),
                },
                _ => return Err(known),
            },
        };
        match policy {
            Self::Entries { from, to: Some(to) } if from > to => Err(known),
            policy => Ok(policy),
        }
    }
}
