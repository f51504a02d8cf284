//! `azekura login`.

use crate::address::Address;
use crate::config::{Config, Span};
use crate::connect::{host_name, runtime};
use crate::enrol;
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use std::io::{self, BufRead, IsTerminal, Read};
use std::time::Duration;
use wire::identity::JoinString;

/// Longest line that is read for a join string, which has 114 characters.
const JOIN_BYTES_MAX: u64 = 4096;
/// Time for the exchange with the server unless told otherwise.
const LOGIN_TIME: Duration = Duration::from_secs(30);

/// Enrol this user at a server by a join string
///
/// An administrator makes the join string with `azekura join create ADDR`. It works once and for a
/// limited time. The credential that comes of it is kept under
/// ~/.config/azekura/clusters, for this user alone.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  azekura login far.example:7700 -     # reads the join string \
                        from standard input"
)]
pub(super) struct Login {
    /// HOST:PORT
    #[arg(value_name = "ADDR")]
    server: Address,
    /// The join string, or - to read it from standard input
    #[arg(value_name = "JOIN_STRING", hide_default_value = true)]
    join: String,
    /// Name of the credential in the administrator's list (USER@MACHINE unless given)
    #[arg(long)]
    label: Option<String>,
    /// Check the join string and the server, without spending the one or changing anything
    #[arg(long)]
    dry_run: bool,
    /// Give up when the server has not answered for this long [default: 30s]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
}

impl Login {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let text = if self.join == "-" {
            read_join()?
        } else {
            self.join
        };
        let join: JoinString = text
            .parse()
            .map_err(|error| Failure::new(Code::JoinStringText, format!("{error}")))?;
        let runtime = runtime()?;
        let server = &self.server;
        if self.dry_run {
            runtime.block_on(enrol::check(server, &join))?;
            return output::line(format_args!("{server} is of the join string's cluster"));
        }
        let label = self.label.unwrap_or_else(label);
        let time_max = self.timeout.map_or(LOGIN_TIME, |span| span.0);
        let credential = runtime.block_on(enrol::enrol(server, &join, &label, time_max))?;
        config.save_credential(server, &credential)?;
        output::line(format_args!(
            "logged in at {server}, cluster {}",
            credential.cluster()
        ))
    }
}

fn read_join() -> Result<String> {
    let input = io::stdin().lock();
    if input.is_terminal() {
        output::note("join string:");
    }
    let mut text = String::new();
    let mut bounded = io::BufReader::new(input.take(JOIN_BYTES_MAX));
    bounded.read_line(&mut text).context("standard input")?;
    Ok(text)
}

fn label() -> String {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    let user = user.map_or_else(|| uid.to_string(), |user| user.name);
    format!("{user}@{}", host_name())
}
