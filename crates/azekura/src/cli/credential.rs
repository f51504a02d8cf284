//! `azekura credential list|revoke`.

use super::join::show_kind;
use crate::address::Address;
use crate::config::Config;
use crate::connect::{WayArgs, admin, runtime, unexpected_reply};
use crate::errors::{Code, Result};
use crate::output;
use serde_json::{Value, json};
use wire::message::{AdminReply, AdminRequest, CredentialSummary};

/// List and revoke the credentials of a cluster
#[derive(Debug, clap::Subcommand)]
pub(super) enum Credential {
    List(List),
    Revoke(Revoke),
}

impl Credential {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        match self {
            Self::List(command) => command.run(config),
            Self::Revoke(command) => command.run(config),
        }
    }
}

/// List all credentials that were given out
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// HOST:PORT
    #[arg(value_name = "ADDR")]
    server: Address,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl List {
    fn run(self, config: &Config) -> Result<()> {
        let runtime = runtime()?;
        let mut credentials = Vec::new();
        loop {
            let skip = u32::try_from(credentials.len()).unwrap_or(u32::MAX);
            let request = AdminRequest::CredentialList { skip };
            let reply = runtime.block_on(admin(config, &self.server, &self.way, request))?;
            let AdminReply::Credentials { list, more } = reply else {
                return Err(unexpected_reply(&self.server));
            };
            let is_last = !more || list.is_empty();
            credentials.extend(list);
            if is_last {
                break;
            }
        }
        if self.json {
            let list: Vec<Value> = credentials.iter().map(credential_json).collect();
            return output::json(&json!({ "credentials": list }));
        }
        let rows: Vec<[String; 5]> = credentials.iter().map(row).collect();
        output::write(&output::table(
            ["SERIAL", "KIND", "LABEL", "ISSUED", "STATE"],
            &rows,
        ))
    }
}

fn credential_json(credential: &CredentialSummary) -> Value {
    json!({
        "serial": credential.serial,
        "kind": show_kind(credential.kind),
        "label": credential.label,
        "issued": output::moment(credential.issued),
        "revoked": credential.revoked,
    })
}

fn row(credential: &CredentialSummary) -> [String; 5] {
    let state = if credential.revoked {
        "revoked"
    } else {
        "valid"
    };
    [
        credential.serial.clone(),
        show_kind(credential.kind),
        credential.label.clone(),
        output::moment(credential.issued),
        state.to_owned(),
    ]
}

/// Refuse a credential from now on and end its sessions
#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    /// HOST:PORT
    #[arg(value_name = "ADDR")]
    server: Address,
    /// Serial number, from `credential list`
    #[arg(value_name = "SERIAL")]
    serial: String,
    /// Check that it exists, without revoking it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Revoke {
    fn run(self, config: &Config) -> Result<()> {
        let request = AdminRequest::CredentialRevoke {
            serial: self.serial.clone(),
            dry_run: self.dry_run,
        };
        let reply = runtime()?.block_on(admin(config, &self.server, &self.way, request));
        let reply = reply.map_err(|failure| match failure.code() {
            Code::NotFound => {
                let hint = format!("azekura credential list {} shows them", self.server);
                failure.hint(hint)
            }
            Code::InUse => {
                let hint = format!(
                    "another administrator can: `azekura join create {} --kind admin` and \
                     `azekura login` make one, so that somebody is left who administers",
                    self.server
                );
                failure.hint(hint)
            }
            _ => failure,
        })?;
        if reply != AdminReply::Done {
            return Err(unexpected_reply(&self.server));
        }
        let done = if self.dry_run {
            "could be revoked"
        } else {
            "revoked"
        };
        output::line(format_args!(
            "credential {} {done}",
            output::plain(&self.serial)
        ))
    }
}
