//! What goes wrong on purpose, to see whether a crash run notices: a judge that finds nothing may
//! be blind.
//!
//! ```text
//! program           makes a call less and goes on as if it had made it          Fault::Skip
//! file system       (mount options: nobarrier, data=writeback)
//! disk              has something else on its medium than it has acknowledged   Fault::on_log
//! recovery          does not happen, or on a disk that loses something          Fault::on_recovery
//! ```
//!
//! A disk answers reads from its cache, so nobody notices while there is power. What it has on its
//! medium is what the log of its writes says; so a disk that does wrong is another log, made of the
//! one that the recorder took ([`disk`]). Of writes, faults are about one, named by its number or
//! by what it is ([`Spot`]), because which number that is differs from kernel to kernel.

mod disk;
#[cfg(test)]
mod tests;

pub use disk::About;

use crate::workload::Step;
use std::fmt;
use std::str::FromStr;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No flush does anything, and all of them are answered.
    NoFlush,
    /// One flush does nothing.
    LostFlush(Flush),
    /// Something is wrong with one write.
    Write(Damage, Spot),
    /// What is discarded is one block of 4,096 bytes longer.
    WideDiscard,
    /// What is discarded is gone before the flush before it.
    EarlyDiscard,
    /// A program does not make such calls, and goes on as if it had.
    Skip(Call),
    /// Nothing is recovered when the file system is mounted.
    NoRecovery,
    /// Flushes of recoveries do nothing.
    RecoveryNoFlush,
    /// Write number so much (from 0) of a recovery never happens.
    RecoveryLostWrite(u64),
}

/// What becomes of a write that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It never happens.
    Lost,
    /// The next flush leaves it in the cache; it arrives behind it.
    Late,
    /// It overtakes the flush before it.
    Early,
    /// Its first sectors arrive, and not its last ones.
    Torn,
    /// It arrives behind the place that it was meant for.
    Shifted,
    /// Its halves arrive in each other's place.
    Swapped,
    /// One bit of it arrives as another.
    Flipped,
    /// It arrives as zeros.
    Zeroed,
    /// After the next flush its place is again as it was before.
    Undone,
}

/// Which write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// Number so much (from 0) of the log.
    Number(u64),
    /// Number so much of those with what the workload has written.
    Data(u64),
    /// The last one before promise number so much is made: a commit record.
    Commit(u64),
    /// The last one of the superblock.
    Superblock,
}

/// Which flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Number so much (from 0) of the log.
    Number(u64),
    /// The next one behind a write.
    Behind(Spot),
    /// The last one before a write.
    Before(Spot),
}

/// What a program may forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// fsync(2) of a file.
    Fsync,
    /// fdatasync(2) of a file.
    Fdatasync,
    /// fsync(2) of a directory.
    FsyncDir,
    /// sync, or a commit of a store.
    Sync,
}

impl Call {
    const ALL: [Self; 4] = [Self::Fsync, Self::Fdatasync, Self::FsyncDir, Self::Sync];

    const fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::FsyncDir => "fsync-dir",
            Self::Sync => "sync",
        }
    }
}

impl Damage {
    const ALL: [Self; 9] = [
        Self::Lost,
        Self::Late,
        Self::Early,
        Self::Torn,
        Self::Shifted,
        Self::Swapped,
        Self::Flipped,
        Self::Zeroed,
        Self::Undone,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost-write",
            Self::Late => "late-write",
            Self::Early => "early-write",
            Self::Torn => "torn-write",
            Self::Shifted => "shifted-write",
            Self::Swapped => "swapped-write",
            Self::Flipped => "flipped-write",
            Self::Zeroed => "zeroed-write",
            Self::Undone => "undone-write",
        }
    }
}

impl Fault {
    /// Whether a program forgets this call.
    #[must_use]
    pub const fn skips(self, step: &Step) -> bool {
        matches!(
            (self, step),
            (Self::Skip(Call::Fsync), Step::Fsync { .. })
                | (Self::Skip(Call::Fdatasync), Step::Fdatasync { .. })
                | (Self::Skip(Call::FsyncDir), Step::FsyncDir { .. })
                | (Self::Skip(Call::Sync), Step::Sync)
        )
    }

    /// Whether it is in a recovery, and so not in a log that was kept.
    #[must_use]
    pub const fn is_in_recovery(self) -> bool {
        matches!(
            self,
            Self::NoRecovery | Self::RecoveryNoFlush | Self::RecoveryLostWrite(_)
        )
    }
}

/// What is said of a fault that there is none of.
const WRONG: &str = "there are no-flush, lost-flush:WHICH, early-, late-, lost-, torn-, shifted-, \
    swapped-, flipped-, zeroed- and undone-write:WHICH, wide-discard, early-discard, \
    skip:fsync, skip:fdatasync, skip:fsync-dir, skip:sync, no-recovery, recovery-no-flush and \
    recovery-lost-write:NUMBER, where WHICH is a number (from 0), data.NUMBER, commit.NUMBER or \
    super; of flushes, before. and one of these is the one before";

impl FromStr for Fault {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, which) = text.split_once(':').unwrap_or((text, ""));
        let damage = Damage::ALL.into_iter().find(|known| known.name() == name);
        if let Some(damage) = damage {
            return Ok(Self::Write(damage, which.parse()?));
        }
        let fault = match (name, which) {
            ("no-flush", "") => Self::NoFlush,
            ("wide-discard", "") => Self::WideDiscard,
            ("early-discard", "") => Self::EarlyDiscard,
            ("no-recovery", "") => Self::NoRecovery,
            ("recovery-no-flush", "") => Self::RecoveryNoFlush,
            ("recovery-lost-write", number) => Self::RecoveryLostWrite(self::number(number)?),
            ("lost-flush", which) => Self::LostFlush(which.parse()?),
            ("skip", call) => {
                let mut calls = Call::ALL.into_iter();
                Self::Skip(calls.find(|known| known.name() == call).ok_or(WRONG)?)
            }
            _ => return Err(WRONG),
        };
        Ok(fault)
    }
}

fn number(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| WRONG)
}

impl FromStr for Spot {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('.') {
            None if text == "super" => Ok(Self::Superblock),
            None => number(text).map(Self::Number),
            Some(("data", digits)) => number(digits).map(Self::Data),
            Some(("commit", digits)) => number(digits).map(Self::Commit),
            Some(_) => Err(WRONG),
        }
    }
}

impl FromStr for Flush {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(spot) = text.strip_prefix("before.") {
            return spot.parse().map(Self::Before);
        }
        Ok(match text.parse()? {
            Spot::Number(number) => Self::Number(number),
            spot => Self::Behind(spot),
        })
    }
}

/// As the command line has it.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFlush => f.write_str("no-flush"),
            Self::LostFlush(flush) => write!(f, "lost-flush:{flush}"),
            Self::Write(damage, spot) => write!(f, "{}:{spot}", damage.name()),
            Self::WideDiscard => f.write_str("wide-discard"),
            Self::EarlyDiscard => f.write_str("early-discard"),
            Self::Skip(call) => write!(f, "skip:{}", call.name()),
            Self::NoRecovery => f.write_str("no-recovery"),
            Self::RecoveryNoFlush => f.write_str("recovery-no-flush"),
            Self::RecoveryLostWrite(number) => write!(f, "recovery-lost-write:{number}"),
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Data(number) => write!(f, "data.{number}"),
            Self::Commit(number) => write!(f, "commit.{number}"),
            Self::Superblock => f.write_str("super"),
        }
    }
}

impl fmt::Display for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Behind(spot) => spot.fmt(f),
            Self::Before(spot) => write!(f, "before.{spot}"),
        }
    }
}
