//! `azekura disk prefetch`.

use super::keys::Keys;
use super::opened::CacheArgs;
use super::place::Image;
use super::runtime;
use crate::config::Config;
use crate::errors::{Code, Failure, Result};
use crate::output;
use crate::progress::Progress;
use ::disk::{Fetcher, KeptReport, Missing, Share, Unread, keep};
use serde_json::{Value, json};
use std::sync::OnceLock;

/// Chunks go through memory one by one, and are not wanted again.
const MEMORY_BYTES_MAX: u64 = 8 << 20;
/// Missing pieces that are shown one by one.
const SHOWN_MAX: usize = 20;

/// Fetch an image, or what its profiles need, and keep it for use without a network
///
/// What is kept stays in the cache until --release, however full that gets. If it is interrupted,
/// the same command goes on where it ended. Ends with exit code 1 if something is missing, and says
/// what.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk prefetch http://far.example/images base:2 --profile boot
  azekura disk prefetch http://far.example/images base:2 --then-offline
  azekura disk serve http://far.example/images base:2 --nbd unix:disk.sock --offline")]
pub(in crate::cli) struct Prefetch {
    #[command(flatten)]
    image: Image,
    /// Only what this profile needs; several times for several
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// Afterwards read everything as it will be without a network, and say exactly what is missing
    #[arg(long)]
    then_offline: bool,
    /// Keep it no longer. Its chunks stay until there is no room for them
    #[arg(long, conflicts_with_all = ["profiles", "then_offline", "offline"])]
    release: bool,
    #[command(flatten)]
    cache: CacheArgs,
    /// Only say what is kept and what is missing, without asking anybody or changing anything
    #[arg(long, conflicts_with_all = ["profiles", "then_offline", "release"])]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Prefetch {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let image = self.image.clone().absolute()?;
        let mut keys = Keys::of(config, &image.place, &image.way)?;
        let cache = self.cache.open(config)?;
        let (name, place) = (&image.name, image.place.digest());
        let kept = keep::Image {
            place: &place,
            tag: name,
        };
        if self.release {
            note_unread(&keep::release(&cache, kept)?);
            return match self.json {
                true => output::json(&json!({ "name": name.to_string(), "released": true })),
                false => output::line(format_args!("{name} is kept no longer")),
            };
        }
        let mut report = None;
        if !self.dry_run && !self.cache.offline {
            let fetched = self.fetch(config, &image, kept, &mut keys)?;
            note_unread(&fetched.unread);
            report = Some(fetched);
        }
        let report = match report {
            Some(report) if !self.then_offline => report,
            _ => keep::missing(&cache, kept, &keys.trust()?)?,
        };
        self.print(&report)?;
        match report.missing.len() as u64 {
            0 => Ok(()),
            count => {
                let what = output::count(count, "chunk");
                let message = format!("{what} of {name} not here: it needs a network");
                Err(Failure::new(Code::DiskIncomplete, message))
            }
        }
    }

    fn fetch(
        &self,
        config: &Config,
        image: &Image,
        kept: keep::Image<'_>,
        keys: &mut Keys<'_>,
    ) -> Result<KeptReport> {
        let runtime = runtime()?;
        let far = image.place.source(&runtime, &image.way)?;
        let (handle, cache) = (runtime.handle().clone(), self.cache.open(config)?);
        let fetcher = Fetcher::new(handle, Some(cache), MEMORY_BYTES_MAX);
        let share = match self.profiles.is_empty() {
            true => Share::Everything,
            false => Share::Profiles(self.profiles.clone()),
        };
        let bar = OnceLock::new();
        let report = keys.believing(|trust| {
            keep::keep(&fetcher, &far, kept, &share, trust, &|done, all| {
                let bar: &Progress = bar.get_or_init(|| Progress::count("fetching", all));
                bar.set(done);
            })
        });
        if let Some(bar) = bar.get() {
            bar.finish();
        }
        report
    }

    fn print(&self, report: &KeptReport) -> Result<()> {
        let name = &self.image.name;
        if self.json {
            let missing: Vec<Value> = report.missing.iter().map(to_json).collect();
            return output::json(&json!({
                "name": name.to_string(),
                "version": report.version.to_string(),
                "chunks": report.chunks,
                "bytes": report.bytes,
                "missing": missing,
            }));
        }
        let here = report.chunks - report.missing.len() as u64;
        let mut page = format!(
            "{name}: {here} of {} here, {} in all",
            output::count(report.chunks, "chunk"),
            output::size(report.bytes),
        );
        for missing in report.missing.iter().take(SHOWN_MAX) {
            let Missing { extent, reason, .. } = missing;
            let (first, end) = (extent.offset, extent.end());
            page += &format!(
                "\nmissing: bytes {first} to {end}: {}",
                output::plain(reason)
            );
        }
        let more = report.missing.len().saturating_sub(SHOWN_MAX);
        if more > 0 {
            page += &format!("\nand {more} more; --json has all");
        }
        output::line(page)
    }
}

/// Says what is kept besides and cannot be read.
fn note_unread(unread: &[Unread]) {
    for Unread { tag, reason, .. } in unread {
        output::note(format_args!(
            "{tag} is kept as well and cannot be read, so everything that is kept stays: {}; fetch \
             it again, or release it",
            output::plain(reason)
        ));
    }
}

fn to_json(missing: &Missing) -> Value {
    json!({
        "offset": missing.extent.offset,
        "bytes": missing.extent.len,
        "chunk": missing.spec.id.to_string(),
        "reason": output::plain(&missing.reason),
    })
}
