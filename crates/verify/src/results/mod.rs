//! Results of runs that are kept: what `verify crash`, `speed`, `tune` and `powercut` print as
//! JSON.
//!
//! ```text
//! head   = kind, version, date, command, release; kernel, load, seed     of every result
//! result = head, and what the kind has: docs/reference/json.md
//! ```
//!
//! A result comes from anywhere and is not believed further than it must be: medians, intervals and
//! counts are made anew from the repeats and cuts that it has, each by the code of the run itself,
//! and what makes no sense is refused as a whole with what is wrong about it. So what a report
//! shows was measured, or the file lies consistently.
//!
//! Results without a version are those from before there was one. They are told apart by what is in
//! them, and nothing is known of their date and command.

mod crash;
mod powercut;
mod speed;
#[cfg(test)]
pub(crate) mod tests;
mod tune;

pub use powercut::Cuts;
pub use speed::Speeds;
pub use tune::{Tuned, Tuning};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of results.
pub const VERSION: u64 = 1;
/// No count of a run is greater: this many are exact in JSON, too.
const COUNT_MAX: u64 = 1 << 53;
/// No rate is greater, in bytes or things a second.
const RATE_MAX: f64 = 1e15;
/// No time is longer, in seconds: thirty years.
const SECONDS_MAX: f64 = 1e9;

/// What kind of run it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Crash states of a file system.
    Crash,
    /// Power cuts of emulated machines.
    Powercut,
    /// How fast it is.
    Speed,
    /// Speed against recovery.
    Tune,
}

impl Kind {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 4] = [Self::Crash, Self::Powercut, Self::Speed, Self::Tune];

    /// As on the command line, and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Powercut => "powercut",
            Self::Speed => "speed",
            Self::Tune => "tune",
        }
    }
}

/// What every result says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What kind of run it was.
    pub kind: Kind,
    /// When it ended, as RFC 3339; empty if that is not known.
    pub date: String,
    /// The command; empty if that is not known.
    pub command: String,
    /// The release that ran; empty if that is not known.
    pub release: String,
    /// The kernel that was judged: of power cuts that of the machines, of others that of the host.
    pub kernel: String,
    /// Load averages of 1, 5 and 15 minutes at its end.
    pub load: String,
    /// What was left to chance came from this.
    pub seed: u64,
    /// Whether it was ended early.
    pub was_interrupted: bool,
}

/// What was found.
#[derive(Clone, Debug)]
pub enum Found {
    /// Of each file system.
    Crash(Vec<crate::crash::Outcome>),
    /// Of each cell.
    Powercut(Cuts),
    /// Of each cell.
    Speed(Speeds),
    /// Of each point.
    Tune(Tuning),
}

/// One result.
#[derive(Clone, Debug)]
pub struct Run {
    /// Where it came from: the name of its file.
    pub name: String,
    /// What it says of itself.
    pub head: Head,
    /// What was found.
    pub found: Found,
}

impl Run {
    /// Whether others used the machine so much that figures are no basis for a comparison.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        match &self.found {
            Found::Speed(speeds) => speeds.outcome.is_loaded,
            Found::Tune(tuning) => tuning.is_loaded,
            Found::Crash(_) | Found::Powercut(_) => false,
        }
    }

    /// Reads a result. `name` is what it is to be called.
    ///
    /// # Errors
    /// [`ResultError`] if it is none, or none that this release understands.
    pub fn read(name: &str, text: &[u8]) -> Result<Self, ResultError> {
        let form: HeadForm = parse(text)?;
        match form.version {
            None | Some(VERSION) => {}
            Some(other) => return Err(ResultError::Version(other)),
        }
        let kind = form.kind()?;
        let found = match kind {
            Kind::Crash => Found::Crash(crash::read(parse(text)?)?),
            Kind::Powercut => Found::Powercut(powercut::read(parse(text)?)?),
            Kind::Speed => Found::Speed(speed::read(parse(text)?)?),
            Kind::Tune => Found::Tune(tune::read(parse(text)?)?),
        };
        let was_interrupted = form.interrupted.unwrap_or(false)
            || matches!(&found, Found::Crash(all) if all.iter().any(|one| one.was_interrupted));
        let head = Head {
            kind,
            kernel: form.kernel(kind)?,
            date: form.date.unwrap_or_default(),
            command: form.command.unwrap_or_default(),
            release: form.release.unwrap_or_default(),
            load: form.load.unwrap_or_default(),
            seed: form.seed.unwrap_or_default(),
            was_interrupted,
        };
        Ok(Self {
            name: name.to_owned(),
            head,
            found,
        })
    }
}

/// Why something is no result that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// It is no JSON.
    #[error("it is no JSON: {0}")]
    Broken(String),
    /// It is about something else.
    #[error("it is no result of a run")]
    Other,
    /// Another release wrote it.
    #[error("it is a result of version {0}, and this release knows version {VERSION}")]
    Version(u64),
    /// Something of it cannot be.
    #[error("it cannot be a result: {0}")]
    Invalid(String),
}

fn invalid(why: impl Into<String>) -> ResultError {
    ResultError::Invalid(why.into())
}

/// What all results have, and by which those without a kind are told apart.
#[derive(Deserialize)]
struct HeadForm {
    version: Option<u64>,
    kind: Option<String>,
    date: Option<String>,
    command: Option<String>,
    release: Option<String>,
    kernel: Option<String>,
    guest_kernel: Option<String>,
    load: Option<String>,
    seed: Option<u64>,
    interrupted: Option<bool>,
    targets: Option<IgnoredAny>,
    block_ratios: Option<IgnoredAny>,
    points: Option<IgnoredAny>,
}

impl HeadForm {
    fn kind(&self) -> Result<Kind, ResultError> {
        match &self.kind {
            Some(name) => {
                let mut all = Kind::ALL.into_iter();
                all.find(|kind| kind.name() == name)
                    .ok_or(ResultError::Other)
            }
            None if self.version.is_some() => Err(ResultError::Other),
            None if self.targets.is_some() => Ok(Kind::Crash),
            None if self.block_ratios.is_some() => Ok(Kind::Speed),
            None if self.guest_kernel.is_some() => Ok(Kind::Powercut),
            None if self.points.is_some() => Ok(Kind::Tune),
            None => Err(ResultError::Other),
        }
    }

    /// With the system's name before it, as the host's kernel has it.
    fn kernel(&self, kind: Kind) -> Result<String, ResultError> {
        let kernel = match kind {
            Kind::Powercut => self.guest_kernel.as_ref().map(|one| format!("Linux {one}")),
            _ => self.kernel.clone(),
        };
        kernel.ok_or_else(|| invalid("it does not say of which kernel it is"))
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ResultError> {
    serde_json::from_slice(text).map_err(|error| match error.is_data() {
        true => invalid(error.to_string()),
        false => ResultError::Broken(error.to_string()),
    })
}

fn count(what: &str, count: u64) -> Result<u64, ResultError> {
    match count <= COUNT_MAX {
        true => Ok(count),
        false => Err(invalid(format!("{what} is {count}"))),
    }
}

/// A figure from 0 to a bound.
fn figure(what: &str, figure: f64, most: f64) -> Result<f64, ResultError> {
    match (0.0..=most).contains(&figure) {
        true => Ok(figure),
        false => Err(invalid(format!("{what} is {figure}"))),
    }
}

fn rate(rate: f64) -> Result<f64, ResultError> {
    figure("a rate", rate, RATE_MAX)
}

fn share(what: &str, share: f64) -> Result<f64, ResultError> {
    figure(what, share, 1.0)
}

fn time(seconds: f64) -> Result<Duration, ResultError> {
    let seconds = figure("a time", seconds, SECONDS_MAX)?;
    Duration::try_from_secs_f64(seconds).map_err(|error| invalid(error.to_string()))
}
