//! `azekura join create`.

use crate::address::Address;
use crate::config::{Config, Span};
use crate::connect::{WayArgs, admin, resolve, runtime, unexpected_reply};
use crate::errors::{Code, Failure, Result};
use crate::output;
use base::limits::JOIN_SECONDS_MAX;
use serde_json::json;
use std::time::{Duration, SystemTime};
use wire::identity::{Fingerprint, JoinString};
use wire::message::{AdminReply, AdminRequest, CredentialKind, JoinTerms};

/// Let other machines and users in
#[derive(Debug, clap::Subcommand)]
pub(super) enum Join {
    Create(Create),
}

impl Join {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let Self::Create(command) = self;
        command.run(config)
    }
}

/// Make a join string, with which one client or storage server can enrol once
///
/// Pass it on over a channel that nobody else can read: whoever has it first gets the credential.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura join create 127.0.0.1:7700 --kind user:1000 --for 1h")]
pub(super) struct Create {
    /// HOST:PORT
    #[arg(value_name = "ADDR")]
    server: Address,
    /// For whom the credential speaks: host (all users of a machine), user:UID (one user), admin;
    /// storage, for a server that keeps objects and speaks for nobody; or manager, for one that can
    /// take this one's place and is trusted with all of the cluster
    #[arg(long, default_value = "host", value_parser = parse_kind)]
    kind: CredentialKind,
    /// How long it can be used: 90s, 10m, 2h, 7d
    #[arg(long = "for", value_name = "TIME", default_value = "10m")]
    valid: Span,
    /// Check that this user may do it, without doing it
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Create {
    fn run(self, config: &Config) -> Result<()> {
        let Self {
            server, kind, way, ..
        } = &self;
        let runtime = runtime()?;
        let seconds_valid = self.seconds_valid()?;
        if self.dry_run {
            // Only an administrator may see credentials; nothing else is checked beforehand.
            runtime.block_on(admin(
                config,
                server,
                way,
                AdminRequest::CredentialList { skip: 0 },
            ))?;
            return output::line("a join string could be made");
        }
        let terms = JoinTerms {
            kind: *kind,
            seconds_valid,
        };
        let reply =
            runtime.block_on(admin(config, server, way, AdminRequest::JoinCreate(terms)))?;
        let AdminReply::JoinSecret(secret) = reply else {
            return Err(unexpected_reply(server));
        };
        let addresses = runtime.block_on(resolve(server))?;
        let credential = config.credential(server, &addresses)?;
        let join = JoinString {
            fingerprint: Fingerprint::of(credential.authority()),
            secret,
        };
        let until = until(Duration::from_secs(u64::from(seconds_valid)));
        if self.json {
            let join = join.to_string();
            let kind = show_kind(*kind);
            return output::json(&json!({
                "address": server.to_string(), "join_string": join, "kind": kind, "until": until,
            }));
        }
        output::line(format_args!("{join}"))?;
        output::note(format_args!(
            "good for one {} credential until {until}; there: {}",
            show_kind(*kind),
            match kind {
                CredentialKind::Server | CredentialKind::Manager { .. } => {
                    format!("azekura server --data DIR --listen ADDR --join {server} -")
                }
                _ => format!("azekura login {server} -"),
            }
        ));
        if addresses.iter().all(|address| address.ip().is_loopback()) {
            output::note(format_args!(
                "{server} is this machine alone: on another one, put its name or address there"
            ));
        }
        Ok(())
    }

    fn seconds_valid(&self) -> Result<u32> {
        let seconds_valid = u32::try_from(self.valid.0.as_secs().max(1)).ok();
        let seconds_valid = seconds_valid.filter(|seconds| *seconds <= JOIN_SECONDS_MAX);
        seconds_valid.ok_or_else(|| {
            let longest = output::span(Duration::from_secs(u64::from(JOIN_SECONDS_MAX)));
            let message = format!("a join string is good for {longest} at most");
            Failure::new(Code::Invalid, message).hint("minutes or hours are enough for --for")
        })
    }
}

fn until(valid: Duration) -> String {
    let end = SystemTime::now() + valid;
    let seconds = end
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    output::moment(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn parse_kind(text: &str) -> Result<CredentialKind, String> {
    match text {
        "host" => Ok(CredentialKind::Host),
        "admin" => Ok(CredentialKind::Admin),
        "storage" => Ok(CredentialKind::Server),
        "manager" => Ok(CredentialKind::Manager { epoch: 0 }),
        _ => text
            .strip_prefix("user:")
            .and_then(|uid| uid.parse().ok())
            .map(|uid| CredentialKind::User { uid })
            .ok_or_else(|| {
                "it is host, admin, storage, manager or user:UID with a number, as in user:1000"
                    .to_owned()
            }),
    }
}

/// As `--kind` takes it.
pub(super) fn show_kind(kind: CredentialKind) -> String {
    match kind {
        CredentialKind::Admin => "admin".to_owned(),
        CredentialKind::Host => "host".to_owned(),
        CredentialKind::User { uid } => format!("user:{uid}"),
        CredentialKind::Server => "storage".to_owned(),
        CredentialKind::Manager { .. } => "manager".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_written_as_they_are_read() {
        for text in ["host", "admin", "storage", "manager", "user:1000"] {
            assert_eq!(parse_kind(text).map(show_kind).as_deref(), Ok(text));
        }
        for bad in ["", "root", "user:", "user:aya", "user:-1"] {
            assert!(parse_kind(bad).is_err(), "{bad}");
        }
    }
}
