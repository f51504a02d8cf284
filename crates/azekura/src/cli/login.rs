//! `azekura login`.

use crate::address::Address;
use crate::config::{self, Config, Span};
use crate::connect::{host_name, runtime};
use crate::enrol;
use crate::errors::{Code, Context, Failure, Result};
use crate::{output, terminal};
use std::io::{self, IsTerminal};
use std::time::Duration;
use wire::identity::JoinString;

/// Longest line that is read for a join string, which has 114 characters.
const JOIN_BYTES_MAX: u64 = 4096;
/// Time for the exchange with the server unless told otherwise.
pub(super) const LOGIN_TIME: Duration = Duration::from_secs(30);

/// Enrol this user at a server by a join string
///
/// An administrator makes the join string with `azekura join create ADDR`. It works once and for a
/// limited time. Given `-`, the command asks for it, without showing it on a terminal, or reads it
/// from a pipe or a file. The credential that comes of it is kept under
/// ~/.config/azekura/clusters, for this user alone.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  azekura login far.example:7700 -              # asks for the join \
                  string\n  azekura login far.example:7700 - < join.txt"
)]
pub(super) struct Login {
    /// HOST:PORT
    #[arg(value_name = "ADDR")]
    server: Address,
    /// The join string, which all users of this machine can then see in the list of processes;
    /// or `-` to be asked for it
    #[arg(value_name = "-|JOIN_STRING")]
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
        let runtime = runtime()?;
        let join = runtime.block_on(read_join(self.join))?;
        let server = &self.server;
        if self.dry_run {
            runtime.block_on(enrol::check(server, &join))?;
            return output::line(format_args!("{server} is of the join string's cluster"));
        }
        let label = self.label.unwrap_or_else(label);
        let time_max = self.timeout.map_or(LOGIN_TIME, |span| span.0);
        let credential = runtime.block_on(enrol::enrol(server, &join, &label, None, time_max))?;
        config.save_credential(server, &credential)?;
        output::line(format_args!(
            "logged in at {server}, cluster {}",
            credential.cluster()
        ))
    }
}

/// The join string that was given, or is asked for or read if that is `-`.
///
/// # Errors
/// [`Code::JoinStringText`].
pub(super) async fn read_join(given: String) -> Result<JoinString> {
    let text = if given != "-" {
        given
    } else if io::stdin().is_terminal() {
        terminal::ask_secret("join string (it is not shown):", JOIN_BYTES_MAX).await?
    } else {
        terminal::read_line(JOIN_BYTES_MAX).context("standard input")?
    };
    if text.trim().is_empty() {
        return Err(Failure::new(
            Code::JoinStringText,
            "no join string was given",
        ));
    }
    text.parse()
        .map_err(|error| Failure::new(Code::JoinStringText, format!("{error}")))
}

fn label() -> String {
    format!("{}@{}", config::user_name(), host_name())
}
