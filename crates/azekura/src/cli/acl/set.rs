//! `azekura acl set`.

use super::edit::Edit;
use super::tree::{Visit, walk};
use super::who::LocalIds;
use super::{NFS4, Place, at, failed, read};
use crate::address::FileAddress;
use crate::config::Config;
use crate::connect::WayArgs;
use crate::errors::{Code, Failure, Result};
use crate::output;
use acl::{Target, UnixIds};
use serde_json::json;

/// Set the rich ACL of a file, which is its truth from then on
///
/// An entry is written as for nfs4_setfacl (A::aya:rwa, D:g:audit:r), as for setfacl (u:aya:rw), or
/// in words (group:audit:read,write).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  azekura acl set 127.0.0.1:7700/office:/plans --modify g:audit:rx\n  \
                  azekura acl set 127.0.0.1:7700/office:/plans/q3.xlsx --add D::bob:w --dry-run"
)]
pub(in crate::cli) struct Set {
    /// HOST:PORT/VOLUME:/PATH
    #[arg(value_name = "ADDR/VOLUME:/PATH")]
    file: FileAddress,
    #[command(flatten)]
    edit: Edit,
    /// All that is below a directory as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show the list as it would be, and set nothing
    #[arg(long)]
    dry_run: bool,
    /// Print how many were set, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Set {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        if self.edit.is_empty() {
            return Err(
                Failure::new(Code::AclText, "nothing is to be done with the list")
                    .hint("name an entry with --add, --modify or --remove, or a list with --set"),
            );
        }
        let work = async |place: Place| {
            let mut changed = 0_u64;
            let count = walk(&place, self.recursive, async |visit: Visit<'_>| {
                changed += u64::from(self.set(&visit).await?);
                Ok(())
            });
            let count = count.await.map_err(|failure| match changed {
                0 => failure,
                1.. if self.dry_run => failure,
                1.. => failure.leaving(format_args!(
                    "{} changed before; the same command again does the rest",
                    output::count(changed, "file")
                )),
            })?;
            Ok((count, changed))
        };
        let (count, changed) = at(config, &self.file, &self.way, work)?;
        if self.json {
            return output::json(&json!({
                "files": count,
                "changed": changed,
                "dry_run": self.dry_run,
            }));
        }
        let of = output::count(count, "file");
        match self.dry_run {
            true => output::line(format_args!("{changed} of {of} would be changed")),
            false => output::line(format_args!("{changed} of {of} changed")),
        }
    }

    /// Whether the list of this one changes.
    async fn set(&self, visit: &Visit<'_>) -> Result<bool> {
        let Visit {
            volume, who, view, ..
        } = visit;
        let before = read(volume, who, view.node).await?;
        let is_directory = visit.is_directory();
        let after = self.edit.apply(&before, is_directory)?;
        let attributes = &view.attributes;
        let target = Target {
            uid: attributes.uid,
            gid: attributes.gid,
            is_directory,
        };
        let of = |list: &acl::RichAcl| {
            list.to_nfs4(&target, &UnixIds)
                .map_err(|error| Failure::new(Code::AclText, error.to_string()))
        };
        let value = of(&after)?;
        if of(&before)? == value {
            return Ok(false);
        }
        if self.dry_run {
            if !self.json {
                output::line(format_args!("# {}{}", self.file, visit.path))?;
                for ace in after.aces() {
                    output::line(output::plain(&ace.to_text(&LocalIds)))?;
                }
            }
            return Ok(true);
        }
        let set = volume.set_xattr(who, view.node, NFS4, &value, None).await;
        set.map_err(|error| failed(error).during(format_args!("{}{}", self.file, visit.path)))?;
        Ok(true)
    }
}
