//! `azekura acl rollback`.

use super::tree::{Visit, walk};
use super::{NFS4, Place, at, failed, is_truth};
use crate::address::FileAddress;
use crate::config::Config;
use crate::connect::WayArgs;
use crate::errors::Result;
use crate::output;
use base::FsError;
use serde_json::json;

/// Take rich ACLs away again: mode and POSIX ACL are as they were before
///
/// Byte for byte, and the truth again. Files that were made in a directory with a rich ACL and
/// inherited theirs have no POSIX ACL from before; they keep what the rich one could say in one.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  azekura acl rollback 127.0.0.1:7700/office --recursive --dry-run"
)]
pub(in crate::cli) struct Rollback {
    /// HOST:PORT/VOLUME or HOST:PORT/VOLUME:/PATH
    #[arg(value_name = "ADDR/VOLUME[:/PATH]")]
    file: FileAddress,
    /// All that is below a directory as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Say how many there are, and leave them
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Rollback {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let work = async |place: Place| {
            // While they are off, none shows, and that is not to look as if there were none. A list
            // that cannot be read can be taken away.
            let shown = place.volume.xattr(&place.who, place.view.node, NFS4);
            if let Err(error @ FsError::NotSupported) = shown.await {
                return Err(failed(error));
            }
            let mut rich = 0_u64;
            let count = walk(&place, self.recursive, async |visit: Visit<'_>| {
                rich += u64::from(self.take_back(&visit).await?);
                Ok(())
            });
            let count = count.await.map_err(|failure| match rich {
                0 => failure,
                1.. if self.dry_run => failure,
                1.. => failure.leaving(format_args!(
                    "{} went back before; the same command again does the rest",
                    output::count(rich, "file")
                )),
            })?;
            Ok((count, rich))
        };
        let (count, rich) = at(config, &self.file, &self.way, work)?;
        if self.json {
            return output::json(&json!({
                "files": count,
                "rolled_back": rich,
                "dry_run": self.dry_run,
            }));
        }
        let of = output::count(count, "file");
        match self.dry_run {
            true => output::line(format_args!("{rich} of {of} have a rich ACL")),
            false => output::line(format_args!("{rich} of {of} have their POSIX ACL again")),
        }
    }

    /// Whether this one has a rich ACL, or had.
    async fn take_back(&self, visit: &Visit<'_>) -> Result<bool> {
        let Visit {
            volume, who, view, ..
        } = visit;
        if !is_truth(volume, who, view.node).await? {
            return Ok(false);
        }
        if !self.dry_run {
            let gone = volume.remove_xattr(who, view.node, NFS4).await;
            gone.map_err(|error| {
                failed(error).during(format_args!("{}{}", self.file, visit.path))
            })?;
        }
        Ok(true)
    }
}
