//! `azekura doctor`: what keeps it from working, or from working well, and what to do about it.
//!
//! Each check looks at one thing, says what it found, and where that is not as it should be, what
//! to do. A check never changes anything. A failed one means that something will not work; a
//! warning, that it will not work as well as it could.

mod machine;
mod network;

use crate::address::{Address, Place, VolumeAddress};
use crate::config::Config;
use crate::connect::{WayArgs, runtime};
use crate::errors::{Code, Failure, Result};
use crate::mounts::Mounted;
use crate::output::{self, span};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// How long a mount may take to answer: it does not ask the server for this.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Check this machine, and a server or a mount, and say what to do
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  azekura doctor                       # this machine
  azekura doctor far.example:7700      # and the way to a server
  azekura doctor far.example:7700/lab  # and whether there is this volume
  azekura doctor mnt/photos            # and a mount")]
pub(super) struct Doctor {
    /// HOST:PORT, HOST:PORT/VOLUME or a mounted directory
    #[arg(value_name = "ADDR|DIR")]
    subject: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

/// How one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Good,
    /// It works, but not as well as it could.
    Warning,
    /// It does not work.
    Failed,
    /// It was not looked at, for a reason that is no fault.
    Skipped,
}

/// What one look found.
#[derive(Debug)]
pub(super) struct Check {
    name: &'static str,
    state: State,
    found: String,
    advice: Option<String>,
}

impl Check {
    pub(super) fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Good,
            found: found.into(),
            advice: None,
        }
    }

    pub(super) fn warning(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            name,
            state: State::Warning,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }

    pub(super) fn failed(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            state: State::Failed,
            ..Self::warning(name, found, advice)
        }
    }

    pub(super) fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self {
            state: State::Skipped,
            ..Self::good(name, why)
        }
    }

    /// A failure of the program as a finding.
    pub(super) fn failure(name: &'static str, failure: &Failure) -> Self {
        let (code, message) = (failure.code().number(), failure.message());
        Self::failed(name, format!("{message} ({code})"), failure.hint_text())
    }

    fn word(&self) -> &'static str {
        match self.state {
            State::Good => "ok",
            State::Warning => "warning",
            State::Failed => "failed",
            State::Skipped => "skipped",
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name, "state": self.word(), "found": self.found, "advice": self.advice,
        })
    }
}

impl Doctor {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let mut checks = machine::checks(config);
        let server = match self.subject.as_deref() {
            None => None,
            Some(subject) => match server_of(subject) {
                Some(server) => Some(server),
                None => mount_checks(Path::new(subject), &mut checks),
            },
        };
        if let Some(server) = server {
            let network = network::checks(config, &server, &self.way);
            checks.extend(runtime()?.block_on(network));
        }
        report(&checks, self.json)
    }
}

/// A server, and a volume of it if that is what it is about.
pub(super) struct Subject {
    server: Address,
    volume: Option<VolumeAddress>,
}

/// The server that the subject names, unless it is a path.
fn server_of(subject: &str) -> Option<Subject> {
    Some(match subject.parse().ok()? {
        Place::Server(server) => Subject {
            server,
            volume: None,
        },
        Place::File(file) => Subject {
            server: file.volume.server.clone(),
            volume: Some(file.volume),
        },
    })
}

/// Checks a mount; returns its server.
fn mount_checks(path: &Path, checks: &mut Vec<Check>) -> Option<Subject> {
    let mounted = match Mounted::containing(path) {
        Ok(mounted) => mounted,
        Err(failure) => {
            checks.push(Check::failure("mount", &failure));
            return None;
        }
    };
    let server = server_of(&mounted.source);
    let status = match mounted.status(ANSWER_TIME_MAX) {
        Ok(status) => status,
        Err(failure) if failure.code() == Code::FileDenied => {
            let why = "only root and the user who mounted may ask a mount";
            checks.push(Check::skipped("mount", why));
            return server;
        }
        Err(failure) => {
            checks.push(Check::failure("mount", &failure));
            return server;
        }
    };
    let place = format!("{} on {}", mounted.source, mounted.path.display());
    checks.push(Check::good("mount", place));
    let number = |key: &str| status.get(key).and_then(Value::as_u64).unwrap_or(0);
    let connected = status
        .get("connected")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    checks.push(if connected {
        Check::good(
            "connection",
            format!(
                "stands, made again {}",
                output::count(number("reconnects"), "time")
            ),
        )
    } else {
        let silence = span(Duration::from_millis(number("silence_millis")));
        let advice = "it comes back by itself when the server can be reached; see below";
        Check::failed(
            "connection",
            format!("broken, server not heard for {silence}"),
            advice,
        )
    });
    checks.push(Check::good(
        "not yet safe",
        output::size(number("unwritten_bytes")),
    ));
    server
}

fn report(checks: &[Check], as_json: bool) -> Result<()> {
    let failed = checks
        .iter()
        .filter(|check| check.state == State::Failed)
        .count();
    if as_json {
        let list: Vec<Value> = checks.iter().map(Check::to_json).collect();
        output::json(&json!({ "ok": failed == 0, "checks": list }))?;
    } else {
        let text = checks.iter().map(|check| {
            let advice = check.advice.as_ref().map_or_else(String::new, |advice| {
                format!("\n           {:<19} -> {advice}", "")
            });
            let found = output::plain(&check.found);
            let colon = if check.state == State::Skipped {
                ":"
            } else {
                ""
            };
            let word = format!("{}{colon}", check.word());
            format!("  {word:<8} {:<19} {found}{advice}\n", check.name)
        });
        output::write(&text.collect::<String>())?;
    }
    match failed {
        0 => Ok(()),
        1 => Err(Failure::new(Code::Unwell, "one check failed")),
        _ => Err(Failure::new(
            Code::Unwell,
            format!("{failed} checks failed"),
        )),
    }
}
