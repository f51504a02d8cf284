//! `azekura doctor`: what keeps it from working, or from working well, and what to do about it.
//!
//! Each check looks at one thing, says what it found, and where that is not as it should be, what
//! to do. A check never changes anything. A failed one means that something will not work; a
//! warning, that it will not work as well as it could.

mod machine;
mod network;

use super::top::SILENCE_SHOWN;
use crate::address::{Address, Place, VolumeAddress};
use crate::config::Config;
use crate::connect::{WayArgs, resolve, runtime};
use crate::errors::{Code, Failure, Result};
use crate::mounts::Mounted;
use crate::output::{self, span};
use crate::process;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a mount may take to answer: it does not ask the server for this.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// The check of a mount's connection.
const CONNECTION: &str = "connection";

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
    /// Of the failure that it is, if it is one of the program's.
    code: Option<Code>,
}

impl Check {
    pub(super) fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Good,
            found: found.into(),
            advice: None,
            code: None,
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
            code: None,
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
        Self {
            code: Some(failure.code()),
            ..Self::failed(name, format!("{message} ({code})"), failure.hint_text())
        }
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
        let mut cut = None;
        let server = match self.subject.as_deref() {
            None => None,
            Some(subject) => match server_of(subject) {
                Some(server) => Some(server),
                None => mount_checks(Path::new(subject), &mut checks, &mut cut),
            },
        };
        if let Some(server) = server {
            let network = runtime()?.block_on(network::checks(config, &server, &self.way));
            if let Some(cut) = cut {
                checks.insert(cut.at, cut.check(config, &server.server, &network)?);
            }
            checks.extend(network);
        } else if let Some(cut) = cut {
            checks.insert(cut.at, cut.as_it_seems());
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

/// Checks a mount; returns its server. Why its connection is broken, if it is, shows when the way
/// to the server has been looked at.
fn mount_checks(path: &Path, checks: &mut Vec<Check>, cut: &mut Option<Cut>) -> Option<Subject> {
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
    let unwritten_bytes = number("unwritten_bytes");
    if connected {
        let again = output::count(number("reconnects"), "connection");
        let silence = Duration::from_millis(number("silence_millis"));
        checks.push(if silence > SILENCE_SHOWN {
            let found = format!("silent for {}, {again} made again", span(silence));
            let advice = "the server or the way to it hangs; calls fail when their time is over";
            Check::warning(CONNECTION, found, advice)
        } else {
            Check::good(CONNECTION, format!("stands, {again} made again"))
        });
    } else {
        *cut = Some(Cut {
            at: checks.len(),
            path: mounted.path,
            process: status.get("pid").and_then(Value::as_u64),
            silence: Duration::from_millis(number("silence_millis")),
            unwritten_bytes,
        });
    }
    let unwritten = output::size(unwritten_bytes);
    checks.push(Check::good("not yet safe", unwritten));
    server
}

/// A mount whose connection is broken.
struct Cut {
    /// Where its check belongs among the others.
    at: usize,
    path: PathBuf,
    process: Option<u64>,
    silence: Duration,
    unwritten_bytes: u64,
}

impl Cut {
    fn found(&self) -> String {
        format!("broken, server not heard for {}", span(self.silence))
    }

    /// What ends it for good.
    fn anew(&self) -> String {
        let path = self.path.display();
        let lost = match self.unwritten_bytes {
            0 => String::new(),
            bytes => format!("; {} not yet safe are lost", output::size(bytes)),
        };
        format!("azekura umount --force {path}, and mount again{lost}")
    }

    /// Where nothing is known of its server.
    fn as_it_seems(&self) -> Check {
        let advice = "it comes back by itself when the server can be reached; see below";
        Check::failed(CONNECTION, self.found(), advice)
    }

    /// What is to be done, as `network` shows the way to its server.
    fn check(&self, config: &Config, server: &Address, network: &[Check]) -> Result<Check> {
        let refused = network.iter().any(|check| {
            let code = check.code;
            code == Some(Code::Unauthenticated) || code == Some(Code::OtherCluster)
        });
        if refused {
            let advice = format!(
                "it does not come back by itself: first what is said below, then {}",
                self.anew()
            );
            return Ok(Check::failed(CONNECTION, self.found(), advice));
        }
        let stands = |check: &Check| check.name == "session" && check.state == State::Good;
        if !network.iter().any(stands) {
            return Ok(self.as_it_seems());
        }
        if self.is_of_before(config, server)? {
            let number = Code::Unauthenticated.number();
            let found = format!(
                "{}; the mount keeps the credential of before the last log-in ({number})",
                self.found()
            );
            return Ok(Check::failed(CONNECTION, found, self.anew()));
        }
        let advice = format!(
            "the server answers, so it should be back in some seconds; if it is not, the mount's \
             log says why, and what helps is {}",
            self.anew()
        );
        Ok(Check::failed(CONNECTION, self.found(), advice))
    }

    /// Whether this user has logged in at the server since the mount began, which keeps what it
    /// began with.
    fn is_of_before(&self, config: &Config, server: &Address) -> Result<bool> {
        let is_known = |process: &u64| {
            process::names(*process, &self.path) && process::is_of_this_user(*process)
        };
        let Some(began) = self.process.filter(is_known).and_then(process::began) else {
            return Ok(false);
        };
        let addresses = runtime()?.block_on(resolve(server))?;
        let kept = config.credential_time(server, &addresses);
        Ok(kept.is_some_and(|kept| kept > began))
    }
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
