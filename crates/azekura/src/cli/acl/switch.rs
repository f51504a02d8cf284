//! `azekura acl enable|disable|status`.

use super::views::{views_json, views_rows};
use crate::address::VolumeAddress;
use crate::config::Config;
use crate::connect::{WayArgs, admin, runtime, unexpected_reply};
use crate::errors::{Code, Failure, Result};
use crate::output;
use acl::Policy;
use serde_json::{Value, json};
use wire::message::{AclLine, AclSummary, AclViews, AclViewsAsk, AdminReply, AdminRequest};

/// Let the files of a volume have rich ACLs
///
/// Takes the same time whatever their number; nothing is converted or stored. Users stay on. Until
/// somebody sets a rich ACL, each file is judged by its mode and POSIX ACL as before. A mount from
/// before goes on; mounted anew, it also lets through what only a rich ACL allows.
///
/// What is shown of a POSIX ACL as a rich one can be stored beside the file of an export, which is
/// a matter of speed alone. When, is the policy's to say: `never`, `always`, `entries>=N` or `N..M`
/// (of so many entries, at the first access), or `measured`: when that has paid, by what is
/// measured of the file system (azekura acl calibrate).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  azekura acl enable 127.0.0.1:7700/office\n  \
                  azekura acl enable 127.0.0.1:7700/office --store 'entries>=6'"
)]
pub(in crate::cli) struct Enable {
    /// When views of POSIX ACLs are stored [default: as it is; measured at first]
    #[arg(long, value_name = "POLICY")]
    store: Option<Policy>,
    #[command(flatten)]
    switch: Switch,
}

/// Judge all files of a volume by mode and POSIX ACL alone
///
/// Rich ACLs stay stored and are in force again when they are enabled again. Meanwhile files that
/// have one are judged by what their mode and POSIX ACL can say of it, which is never more. To have
/// the POSIX ACLs of before, take the lists away first (azekura acl rollback --recursive).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura acl disable 127.0.0.1:7700/office")]
pub(in crate::cli) struct Disable {
    #[command(flatten)]
    switch: Switch,
}

#[derive(Debug, clap::Args)]
struct Switch {
    /// HOST:PORT/VOLUME
    #[arg(value_name = "ADDR/VOLUME")]
    volume: VolumeAddress,
    /// Check whether it could be done, without doing it
    #[arg(long)]
    dry_run: bool,
    /// Print how it is then, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Enable {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        if let Some(policy) = self.store {
            // First: what is not taken changes nothing.
            let Switch {
                volume,
                dry_run,
                way,
                ..
            } = &self.switch;
            let ask = AclViewsAsk::Store {
                policy: policy.to_string(),
                dry_run: *dry_run,
            };
            asked(config, volume, way, ask)?;
        }
        self.switch.run(config, true)
    }
}

impl Disable {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        self.switch.run(config, false)
    }
}

impl Switch {
    fn run(self, config: &Config, on: bool) -> Result<()> {
        let request = AdminRequest::AclSwitch {
            name: self.volume.volume.clone(),
            on,
            dry_run: self.dry_run,
        };
        let summary = ask(config, &self.volume, &self.way, request)?;
        if self.json {
            return output::json(&summary_json(&summary));
        }
        let state = if on { "on" } else { "off" };
        let are = if self.dry_run { "could be" } else { "are" };
        output::line(format_args!("rich ACLs of {} {are} {state}", self.volume))
    }
}

/// Show whether a volume has rich ACLs, what was done with them, and the last edits
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura acl status 127.0.0.1:7700/office --json")]
pub(in crate::cli) struct Status {
    /// HOST:PORT/VOLUME
    #[arg(value_name = "ADDR/VOLUME")]
    volume: VolumeAddress,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Status {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let name = self.volume.volume.clone();
        let request = AdminRequest::AclStatus { name };
        let summary = ask(config, &self.volume, &self.way, request)?;
        let views = asked(config, &self.volume, &self.way, AclViewsAsk::Show)?;
        if self.json {
            let mut json = summary_json(&summary);
            json["views"] = views_json(&views);
            return output::json(&json);
        }
        let state = if summary.is_on { "on" } else { "off" };
        let mut rows = vec![
            [
                "files that got one".to_owned(),
                summary.became_rich.to_string(),
            ],
            [
                "files that went back".to_owned(),
                summary.went_back.to_string(),
            ],
            ["edits written down".to_owned(), summary.edits.to_string()],
            ["shown of POSIX ACLs".to_owned(), summary.views.to_string()],
            ["decisions".to_owned(), summary.judged.to_string()],
            [
                "refusals among them".to_owned(),
                summary.refused.to_string(),
            ],
            ["files in memory".to_owned(), summary.kept.to_string()],
        ];
        rows.extend(views_rows(&views));
        let mut text = output::table(["rich ACLs", state], &rows);
        for AclLine(line) in &summary.last {
            text.push_str(&output::plain(&dated(line)));
            text.push('\n');
        }
        output::write(&text)
    }
}

/// A line of the record with its moment as people read it; the record has seconds.
fn dated(line: &str) -> String {
    match line.split_once(' ') {
        Some((seconds, rest)) if let Ok(seconds) = seconds.parse() => {
            format!("{} {rest}", output::moment(seconds))
        }
        _ => line.to_owned(),
    }
}

/// Asks about views.
pub(super) fn asked(
    config: &Config,
    volume: &VolumeAddress,
    way: &WayArgs,
    ask: AclViewsAsk,
) -> Result<AclViews> {
    let name = volume.volume.clone();
    let request = AdminRequest::AclViews { name, ask };
    match runtime()?.block_on(admin(config, &volume.server, way, request)) {
        Ok(AdminReply::AclViews(views)) => Ok(*views),
        Ok(_) => Err(unexpected_reply(&volume.server)),
        Err(failure) => Err(unsupported(failure)),
    }
}

/// What is refused about the ACLs of a volume is so because of what the volume is.
fn unsupported(failure: Failure) -> Failure {
    match failure.code() {
        Code::Invalid => Failure::new(Code::AclUnsupported, failure.message()),
        _ => failure,
    }
}

fn ask(
    config: &Config,
    volume: &VolumeAddress,
    way: &WayArgs,
    request: AdminRequest,
) -> Result<AclSummary> {
    let asked = runtime()?.block_on(admin(config, &volume.server, way, request));
    match asked {
        Ok(AdminReply::Acl(summary)) => Ok(summary),
        Ok(_) => Err(unexpected_reply(&volume.server)),
        Err(failure) => Err(unsupported(failure)),
    }
}

/// As in `docs/reference/json.md`.
fn summary_json(summary: &AclSummary) -> Value {
    let last: Vec<&str> = summary
        .last
        .iter()
        .map(|AclLine(line)| line.as_str())
        .collect();
    json!({
        "enabled": summary.is_on,
        "stored": summary.became_rich.saturating_sub(summary.went_back),
        "computed": summary.views,
        "judged": summary.judged,
        "refused": summary.refused,
        "kept_in_memory": summary.kept,
        "edits": summary.edits,
        "became_rich": summary.became_rich,
        "went_back": summary.went_back,
        "last_edits": last,
    })
}
