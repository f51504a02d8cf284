//! `azekura disk gc`.

use super::place::At;
use super::runtime;
use crate::config::Config;
use crate::errors::Result;
use crate::output;
use crate::progress::Progress;
use ::disk::gc::{Collecting, collect};
use serde_json::json;

/// Delete chunks and versions that nothing points to
///
/// What a name points to is kept, and what it has pointed to before, as far as --keep says; so is
/// everything in an index (.caibx) of other programs. It is safe beside those who publish. If a
/// name or an index cannot be read, nothing is deleted. A bucket is not collected. Disks that are
/// in use over a version that --keep drops stop working: detach them first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura disk gc --at ./www/images --keep 3 --dry-run")]
pub(in crate::cli) struct Gc {
    #[command(flatten)]
    at: At,
    /// Versions of each name that are kept, the one it points to among them [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Count what would be deleted, without deleting it
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Gc {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let place = self.at.place(config)?;
        let runtime = runtime()?;
        let repository = place.repository(&runtime, &self.at.way)?;
        let how = Collecting {
            history: self.keep.map_or(usize::MAX, |keep| keep as usize),
            dry_run: self.dry_run,
            ..Collecting::default()
        };
        let bar = Progress::unknown("collecting");
        let collected = collect(&repository, &how);
        bar.finish();
        let collected = collected?;
        if self.json {
            return output::json(&json!({
                "versions": collected.versions,
                "indexes": collected.indexes,
                "chunks": collected.chunks,
                "left_over": collected.left_over,
                "bytes": collected.bytes,
                "kept_chunks": collected.kept_chunks,
            }));
        }
        let verb = if self.dry_run {
            "would be deleted"
        } else {
            "deleted"
        };
        output::line(format_args!(
            "{} and {} {verb}, {}; {} kept",
            output::count(collected.versions, "version"),
            output::count(collected.chunks, "chunk"),
            output::size(collected.bytes),
            output::count(collected.kept_chunks, "chunk"),
        ))
    }
}
