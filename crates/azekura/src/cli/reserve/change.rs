//! `azekura reserve extend|release|cancel`.

use super::shown::FITS;
use super::time::When;
use super::{Which, ask, ask_for_one};
use crate::config::Config;
use crate::connect::{WayArgs, unexpected_reply};
use crate::errors::{Code, Failure, Result};
use crate::output;
use jiff::Zoned;
use wire::message::{ReserveReply, ReserveRequest};

/// Move the end of a window, whose tickets are given out anew, or let a series go on
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Extend {
    #[command(flatten)]
    which: Which,
    /// The new end: +2h (from now), 21:00 or RFC 3339; of a series, windows are added up to it
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: When,
    /// Only ask whether it would be admitted
    #[arg(long)]
    dry_run: bool,
    /// Print JSON, with the tickets
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Extend {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let end = self.until.end(&Zoned::now());
        let end_secs = end.map_err(|why| Failure::new(Code::ReserveInvalid, why))?;
        let request = ReserveRequest::Extend {
            which: self.which.name(),
            end_secs,
            dry_run: self.dry_run,
        };
        show(config, &self.which, &self.way, request, self.json, FITS)
    }
}

/// Give the rate back from now on; files stay, objects of programs for their lifetime
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Release {
    #[command(flatten)]
    which: Which,
    /// Only ask whether it could be done
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Release {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let request = ReserveRequest::Release {
            which: self.which.name(),
            dry_run: self.dry_run,
        };
        let possible = "its rate could be given back";
        show(config, &self.which, &self.way, request, self.json, possible)
    }
}

fn show(
    config: &Config,
    which: &Which,
    way: &WayArgs,
    request: ReserveRequest,
    json: bool,
    possible: &str,
) -> Result<()> {
    let found = ask_for_one(config, &which.place.server, way, request, json)?;
    if json {
        return output::json(&found.json());
    }
    output::write(&found.text_of(&which.place, possible))
}

/// Give rate and space back; files of a volume stay
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Cancel {
    #[command(flatten)]
    which: Which,
    /// Also if objects of programs lie in its space, which are deleted; never files of a volume
    #[arg(long)]
    discard: bool,
    /// Only ask whether it could be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Cancel {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let request = ReserveRequest::Cancel {
            which: self.which.name(),
            discard: self.discard,
            dry_run: self.dry_run,
        };
        let server = &self.which.place.server;
        match ask(config, server, &self.way, request)? {
            ReserveReply::Done => {}
            ReserveReply::Later { message } => output::note(format_args!(
                "{}; what is still held is given back when it is there and can do that",
                output::plain(&message)
            )),
            _ => return Err(unexpected_reply(server)),
        }
        let done = if self.dry_run {
            "could be cancelled"
        } else {
            "cancelled"
        };
        output::line(format_args!("{} {done}", self.which))
    }
}
