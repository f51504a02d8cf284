//! `azekura disk map`.

use super::place::At;
use super::recording;
use super::runtime;
use super::target::Target;
use crate::config::Config;
use crate::errors::{Context, Result};
use crate::output;
use ::disk::observe::map_of;
use ::disk::{ChunkUse, DiskError, ImageDevice, Index, Profile, Source, Tag, Training, Trust};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Chunks in a row of the picture, and the edge of a chunk in it.
const COLUMNS: usize = 64;
const CELL: usize = 9;
/// Room for a line of text.
const LINE: usize = 18;

/// Show which chunks of an image a run or a profile needs, and how much of them
///
/// The fill rate is the share of what is fetched that was asked for. With a version that was
/// trained, the same is shown for the chunks as they were before. How a disk in use was used, with
/// what was fetched ahead and not asked for, `serve` and `attach` show with --map.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk map base:2 boot.profile --at ./www/images
  azekura disk map base:2 --profile boot --svg boot.svg")]
pub(in crate::cli) struct Map {
    /// IMAGE:LABEL
    #[arg(value_name = "NAME")]
    name: Tag,
    /// What was recorded (`serve --record FILE`); several runs together
    #[arg(value_name = "FILE", required_unless_present = "profile")]
    files: Vec<PathBuf>,
    /// A profile of the version
    #[arg(long, value_name = "PROFILE", conflicts_with = "files")]
    profile: Option<String>,
    #[command(flatten)]
    at: At,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON, chunk by chunk
    #[arg(long)]
    json: bool,
}

/// How the chunks of one index are used.
struct Used {
    what: &'static str,
    chunks: Vec<ChunkUse>,
}

impl Used {
    fn new(what: &'static str, index: &Index, profile: &Profile) -> Self {
        let profile = profile.fitted(index.image_bytes());
        Self {
            what,
            chunks: map_of(index, &profile.hot()),
        }
    }

    fn needed(&self) -> impl Iterator<Item = &ChunkUse> {
        self.chunks.iter().filter(|chunk| chunk.is_inflated)
    }

    fn fetched_bytes(&self) -> u64 {
        self.needed().map(|chunk| chunk.extent.len).sum()
    }

    fn asked_bytes(&self) -> u64 {
        self.needed().map(|chunk| chunk.touched_bytes).sum()
    }

    /// The paper's fill rate (Table 1); none if nothing is fetched.
    fn fill_rate(&self) -> Option<f64> {
        let fetched = self.fetched_bytes();
        (fetched > 0).then(|| self.asked_bytes() as f64 / fetched as f64)
    }

    fn row(&self) -> [String; 5] {
        let fill = self.fill_rate();
        [
            self.what.to_owned(),
            self.needed().count().to_string(),
            output::size(self.fetched_bytes()),
            output::size(self.asked_bytes()),
            fill.map_or_else(String::new, |fill| format!("{:.1} %", 100.0 * fill)),
        ]
    }

    fn to_json(&self) -> Value {
        let chunk = |chunk: &ChunkUse| {
            json!({
                "offset": chunk.extent.offset,
                "bytes": chunk.extent.len,
                "fetched": chunk.is_inflated,
                "asked_bytes": chunk.touched_bytes,
            })
        };
        json!({
            "index": self.what,
            "fetched_chunks": self.needed().count(),
            "fetched_bytes": self.fetched_bytes(),
            "asked_bytes": self.asked_bytes(),
            "fill_rate": self.fill_rate(),
            "chunks": self.chunks.iter().map(chunk).collect::<Vec<_>>(),
        })
    }
}

impl Map {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let place = self.at.place(config)?;
        let mut keys = self.at.keys(config, &place)?;
        let runtime = runtime()?;
        let source = place.source(&runtime, &self.at.way)?;
        let recorded = self.recorded()?;
        let used = keys.believing(|trust| self.used(&*source, recorded.as_ref(), trust))?;
        if let Some(path) = &self.svg {
            let shown = output::plain(&path.to_string_lossy());
            std::fs::write(path, picture(&self.name, &used)).context(shown)?;
        }
        if self.json {
            return output::json(&to_json(&self.name, &used));
        }
        let rows: Vec<_> = used.iter().map(Used::row).collect();
        let head = ["CHUNKS", "NEEDED", "FETCHED", "ASKED FOR", "FILL RATE"];
        output::write(&output::table(head, &rows))
    }

    fn recorded(&self) -> Result<Option<Profile>> {
        let mut all: Option<Profile> = None;
        for path in &self.files {
            let one = recording::read(path)?;
            all = Some(match all {
                Some(all) => all.merged(&one),
                None => one,
            });
        }
        Ok(all)
    }

    fn used(
        &self,
        source: &dyn Source,
        recorded: Option<&Profile>,
        trust: &Trust,
    ) -> Result<Vec<Used>, DiskError> {
        let target = Target::Name(self.name.clone());
        let (version, manifest) = target.manifest(source, trust)?;
        let training = Training::find(source, version, trust)?;
        let named = match (&self.profile, &training) {
            (Some(name), Some(training)) => {
                let mut profiles = training.profiles(source)?.into_iter();
                profiles.find(|profile| profile.name() == name)
            }
            _ => None,
        };
        let unknown = || DiskError::NoProfile(self.profile.clone().unwrap_or_default());
        let profile = recorded.or(named.as_ref()).ok_or_else(unknown)?;
        let plain = manifest.read_index(source)?;
        let mut used = vec![Used::new("as published", &plain, profile)];
        if let Some(training) = training {
            let index = training.read_index(source, &manifest)?;
            used.push(Used::new("as trained", &index, profile));
        }
        Ok(used)
    }
}

/// A path where a map can be written, from whichever directory it is looked at.
///
/// # Errors
/// [`crate::errors::Code::Local`] if its directory is not there.
pub(super) fn checked(path: &Path) -> Result<PathBuf> {
    let shown = |path: &Path| output::plain(&path.to_string_lossy());
    let path = std::path::absolute(path).context(shown(path))?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::metadata(directory).context(shown(directory))?;
    Ok(path)
}

/// Shows how a disk in use was used, in a file: a picture if it is called so, else JSON.
///
/// # Errors
/// Of the file.
pub(super) fn write_run(path: &Path, name: &Tag, image: &ImageDevice) -> Result<()> {
    let used = [Used {
        what: "in this run",
        chunks: image.map(),
    }];
    let is_picture = path.extension().is_some_and(|kind| kind == "svg");
    let text = match is_picture {
        true => picture(name, &used),
        false => format!("{:#}\n", to_json(name, &used)),
    };
    std::fs::write(path, text).context(output::plain(&path.to_string_lossy()))
}

fn to_json(name: &Tag, used: &[Used]) -> Value {
    let maps: Vec<Value> = used.iter().map(Used::to_json).collect();
    json!({ "name": name.to_string(), "maps": maps })
}

/// Every chunk as a square, row by row: pale if it is not needed, and the fuller of what was asked
/// for the darker.
fn picture(name: &Tag, used: &[Used]) -> String {
    let rows = |used: &Used| used.chunks.len().div_ceil(COLUMNS);
    let height: usize = used.iter().map(|one| rows(one) * CELL + 2 * LINE).sum();
    let width = COLUMNS * CELL;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n"
    );
    let mut top = 0;
    for one in used {
        let fill = one.fill_rate().unwrap_or_default();
        let text = format!(
            "{name} {}: {} of {} fetched, {:.1} % of that asked for",
            one.what,
            output::count(one.needed().count() as u64, "chunk"),
            one.chunks.len(),
            100.0 * fill
        );
        let line = top + LINE - 4;
        push(
            &mut svg,
            format_args!("<text x=\"2\" y=\"{line}\">{text}</text>\n"),
        );
        for (number, chunk) in one.chunks.iter().enumerate() {
            let (x, y) = (
                number % COLUMNS * CELL,
                number / COLUMNS * CELL + top + LINE,
            );
            let edge = CELL - 1;
            let colour = colour(chunk);
            push(
                &mut svg,
                format_args!(
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{edge}\" height=\"{edge}\" \
                     fill=\"{colour}\"/>\n"
                ),
            );
        }
        top += rows(one) * CELL + 2 * LINE;
    }
    svg + "</svg>\n"
}

fn push(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.write_fmt(text).expect("a string takes everything");
}

fn colour(chunk: &ChunkUse) -> String {
    if !chunk.is_inflated {
        return "#e8e8e8".to_owned();
    }
    let share = chunk.touched_bytes as f64 / chunk.extent.len.max(1) as f64;
    // From a light blue to a dark one.
    let between = |from: f64, to: f64| (from + (to - from) * share).round() as u8;
    let (red, green, blue) = (
        between(198.0, 8.0),
        between(219.0, 48.0),
        between(239.0, 107.0),
    );
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Extent;

    fn chunk(number: u64, touched_bytes: u64) -> ChunkUse {
        ChunkUse {
            extent: Extent::new(number * 65536, 65536),
            is_inflated: touched_bytes > 0,
            touched_bytes,
        }
    }

    #[test]
    fn the_fill_rate_is_of_what_is_fetched() {
        let mut used = Used {
            what: "as published",
            chunks: vec![chunk(0, 65536), chunk(1, 0), chunk(2, 16384)],
        };
        assert_eq!(used.fetched_bytes(), 131_072);
        assert_eq!(used.fill_rate(), Some(0.625));
        assert_eq!(used.row()[1..], ["2", "128.0 KiB", "80.0 KiB", "62.5 %"]);
        used.chunks.retain(|chunk| !chunk.is_inflated);
        assert_eq!(used.fill_rate(), None);
    }

    #[test]
    fn a_picture_has_a_square_for_each_chunk() {
        let chunks = (0..130).map(|number| chunk(number, number % 3 * 32768));
        let used = Used {
            what: "as published",
            chunks: chunks.collect(),
        };
        let name = "base:1".parse().expect("a name");
        let svg = picture(&name, &[used]);
        assert_eq!(svg.matches("<rect x=").count(), 130);
        assert_eq!(svg.matches("#08306b").count(), 43, "whole ones are dark");
        assert_eq!(svg.matches("#e8e8e8").count(), 44);
        assert!(svg.contains("height=\"63\"") && svg.ends_with("</svg>\n"));
    }
}
