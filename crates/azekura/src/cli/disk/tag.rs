//! `azekura disk tag`.

use super::place::At;
use super::target::{Target, short};
use super::{now, runtime};
use crate::config::Config;
use crate::errors::{Code, Failure, Result};
use crate::output;
use ::disk::{Tag as Name, TagEntry, TagRecord, Trust};
use std::time::Duration;

/// How long somebody who collects is waited for.
const WAIT: Duration = Duration::from_secs(60);

/// Point a name to a version: another name for it, or back to an earlier one
///
/// With --remove, forget the name; what it pointed to stays until it is collected by `disk gc`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk tag base:stable base:3 --at ./www/images
  azekura disk tag base:old --remove --at ./www/images")]
pub(in crate::cli) struct Tag {
    /// IMAGE:LABEL, new or not
    #[arg(value_name = "NAME")]
    name: Name,
    /// The version: another name for it, or its digest
    #[arg(value_name = "VERSION", required_unless_present = "remove")]
    target: Option<Target>,
    /// Forget the name
    #[arg(long, conflicts_with = "target")]
    remove: bool,
    #[command(flatten)]
    at: At,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Tag {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let place = self.at.place(config)?;
        let runtime = runtime()?;
        let repository = place.repository(&runtime, &self.at.way)?;
        let mut keys = self.at.keys(config, &place)?;
        let source = repository.source();
        let name = &self.name;
        let Some(target) = &self.target else {
            // Whoever has signed it.
            if TagRecord::find(source, name, &Trust::Anybody)?.is_none() {
                let message = format!("there is no {name} in {place}");
                return Err(Failure::new(Code::DiskNotFound, message));
            }
            if self.dry_run {
                return output::line(format_args!("{name} would be forgotten"));
            }
            return Ok(repository.remove_tag(name)?);
        };
        let (version, _) = keys.believing(|trust| target.manifest(source, trust))?;
        if self.dry_run {
            return output::line(format_args!("{name} would point to {}", short(version)));
        }
        let entry = TagEntry {
            version,
            time: now(),
        };
        let key = keys.own()?;
        let by = (&key, &keys.trust()?);
        repository.point_tag(name, entry, by, WAIT)?;
        output::line(format_args!("{name} points to {}", short(version)))
    }
}
