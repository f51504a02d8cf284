//! `azekura disk log`.

use super::place::At;
use super::runtime;
use super::target::short;
use crate::config::Config;
use crate::errors::Result;
use crate::output;
use ::disk::source::SourceError;
use ::disk::{DiskError, Manifest, Source, Tag, TagEntry, TagRecord, Trust, VersionId};
use serde_json::{Value, json};

/// Show the versions to which a name points and has pointed, or the names of a repository
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk log --at ./www/images
  azekura disk log base:2 --at http://far.example/images")]
pub(in crate::cli) struct Log {
    /// IMAGE:LABEL; without it all names, which only a directory tells
    #[arg(value_name = "NAME")]
    name: Option<Tag>,
    #[command(flatten)]
    at: At,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A version to which a name points, or has pointed.
struct Line {
    version: VersionId,
    time: i64,
    /// What it is; nothing if it has been collected.
    manifest: Option<Manifest>,
}

impl Log {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let place = self.at.place(config)?;
        let mut keys = self.at.keys(config, &place)?;
        let runtime = runtime()?;
        let source = place.source(&runtime, &self.at.way)?;
        if let Some(name) = &self.name {
            let lines = keys.believing(|trust| lines(&*source, name, trust))?;
            return self.print_versions(name, &lines);
        }
        let mut names = Vec::new();
        for name in place.repository(&runtime, &self.at.way)?.tags()? {
            let mut lines = keys.believing(|trust| lines(&*source, &name, trust))?;
            names.push((name, lines.swap_remove(0)));
        }
        self.print_names(&names)
    }

    fn print_versions(&self, name: &Tag, lines: &[Line]) -> Result<()> {
        if self.json {
            let versions: Vec<Value> = lines.iter().map(to_json).collect();
            return output::json(&json!({ "name": name.to_string(), "versions": versions }));
        }
        let rows: Vec<_> = lines.iter().map(row).collect();
        output::write(&output::table(
            ["VERSION", "SINCE", "SIZE", "NEW", "NOTE"],
            &rows,
        ))
    }

    fn print_names(&self, names: &[(Tag, Line)]) -> Result<()> {
        if self.json {
            let images: Vec<Value> = names
                .iter()
                .map(|(name, line)| {
                    let mut image = to_json(line);
                    image["name"] = json!(name.to_string());
                    image
                })
                .collect();
            return output::json(&json!({ "images": images }));
        }
        let rows: Vec<_> = names
            .iter()
            .map(|(name, line)| {
                let [version, time, size, ..] = row(line);
                [name.to_string(), version, time, size]
            })
            .collect();
        output::write(&output::table(["NAME", "VERSION", "SINCE", "SIZE"], &rows))
    }
}

/// What a name points to, and has pointed to; the newest first, and at least one.
fn lines(source: &dyn Source, name: &Tag, trust: &Trust) -> Result<Vec<Line>, DiskError> {
    let record = TagRecord::read(source, name, trust)?;
    let line = |(age, entry): (usize, &TagEntry)| -> Result<Line, DiskError> {
        let manifest = match Manifest::read(source, entry.version, trust) {
            // Only what a name points to now has to be there.
            Err(DiskError::Source(SourceError { refusal, .. }))
                if age > 0 && refusal.is_not_found() =>
            {
                None
            }
            manifest => Some(manifest?),
        };
        Ok(Line {
            version: entry.version,
            time: entry.time,
            manifest,
        })
    };
    record.entries.iter().enumerate().map(line).collect()
}

fn to_json(line: &Line) -> Value {
    let manifest = line.manifest.as_ref();
    let parents = manifest.map(|manifest| {
        let parents = manifest.parents.iter();
        parents.map(ToString::to_string).collect::<Vec<_>>()
    });
    json!({
        "version": line.version.to_string(),
        "time": output::moment(line.time),
        "image_bytes": manifest.map(|manifest| manifest.image_bytes),
        "new_bytes": manifest.map(|manifest| manifest.new_bytes),
        "new_chunks": manifest.map(|manifest| manifest.new_chunks),
        "parents": parents,
        "note": manifest.map(|manifest| manifest.note.clone()),
    })
}

fn row(line: &Line) -> [String; 5] {
    let (version, time) = (short(line.version), output::moment(line.time));
    let [size, new, note] = match &line.manifest {
        None => ["-".to_owned(), "-".to_owned(), "collected".to_owned()],
        Some(manifest) => [
            output::size(manifest.image_bytes),
            output::size(manifest.new_bytes),
            manifest.note.clone(),
        ],
    };
    [version, time, size, new, note]
}
