//! `azekura disk diff`.

use super::place::At;
use super::runtime;
use super::target::Target;
use crate::config::Config;
use crate::errors::Result;
use crate::output;
use serde_json::{Value, json};

/// Show what one version has that another has not, from their indexes alone
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura disk diff base:1 base:3 --at ./www/images")]
pub(in crate::cli) struct Diff {
    /// A name or a version
    #[arg(value_name = "FROM")]
    from: Target,
    /// Another one
    #[arg(value_name = "TO")]
    to: Target,
    #[command(flatten)]
    at: At,
    /// Print JSON, also where they differ
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let place = self.at.place(config)?;
        let mut keys = self.at.keys(config, &place)?;
        let runtime = runtime()?;
        let source = place.source(&runtime, &self.at.way)?;
        let mut index = |target: &Target| {
            keys.believing(|trust| target.manifest(&*source, trust)?.1.read_index(&*source))
        };
        let (from, to) = (index(&self.from)?, index(&self.to)?);
        let diff = ::disk::diff(&from, &to);
        if self.json {
            return output::json(&json!({
                "from": self.from.to_string(),
                "to": self.to.to_string(),
                "changed_bytes": diff.changed.bytes(),
                "changed": diff.changed.iter().map(run_to_json).collect::<Vec<_>>(),
                "added_chunks": diff.new_chunks,
                "added_bytes": diff.new_bytes,
                "removed_chunks": diff.gone_chunks,
                "removed_bytes": diff.gone_bytes,
                "common_chunks": diff.common_chunks,
            }));
        }
        let places = output::count(diff.changed.run_count() as u64, "place");
        let chunks = |number, bytes| {
            format!(
                "{}, {}",
                output::count(number, "chunk"),
                output::size(bytes)
            )
        };
        output::line(format_args!(
            "differ   {} in {places}\nadded    {}\nremoved  {}\ncommon   {}",
            output::size(diff.changed.bytes()),
            chunks(diff.new_chunks, diff.new_bytes),
            chunks(diff.gone_chunks, diff.gone_bytes),
            output::count(diff.common_chunks, "chunk"),
        ))
    }
}

fn run_to_json(run: base::Extent) -> Value {
    json!({ "offset_bytes": run.offset, "bytes": run.len })
}
