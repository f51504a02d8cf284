//! Many entries: walking a tree, reading small files.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};

use super::{Clock, Outcome};
use crate::content::{Verify, differs_at, seed_of};

/// Lists every directory and asks for the attributes of every entry, as `find` with a test does.
pub(crate) fn walk(root: &str, entries: u64, clock: Clock) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::out_of(entries);
    visit(Path::new(root), clock, &mut outcome)?;
    if outcome.done != entries && !clock.is_over() {
        bail!("found {} of {entries} entries", outcome.done);
    }
    Ok(outcome)
}

fn visit(directory: &Path, clock: Clock, outcome: &mut Outcome) -> anyhow::Result<()> {
    let listing =
        fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    for entry in listing {
        let path = entry?.path();
        let attributes =
            fs::symlink_metadata(&path).with_context(|| format!("stat {}", path.display()))?;
        outcome.done += 1;
        if clock.is_over() {
            return Ok(());
        }
        if attributes.is_dir() {
            visit(&path, clock, outcome)?;
        }
    }
    Ok(())
}

/// Files are read for this long at least, even when the listing took the time under the cap.
const READING_S_MIN: f64 = 5.0;

/// Opens, reads to the end, checks and closes every file in the order of names.
pub(crate) fn small(
    dir: &str,
    files: u64,
    file_bytes: u64,
    clock: Clock,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::out_of(files);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("listing {dir}"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    if names.len() as u64 != files {
        bail!("found {} of {files} files", names.len());
    }
    outcome.setup_s = clock.elapsed_s();
    let mut content = Vec::with_capacity(file_bytes as usize);
    for name in names {
        content.clear();
        let path = Path::new(dir).join(&name);
        let mut file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        file.read_to_end(&mut content)
            .with_context(|| format!("reading {}", path.display()))?;
        let wrong = differs_at(seed_of(&name), 0, &content, Verify::Full);
        if content.len() as u64 != file_bytes || wrong.is_some() {
            bail!("{name} has {} bytes, wrong at {wrong:?}", content.len());
        }
        outcome.done += 1;
        // A long listing must not leave the extrapolation to a single file.
        if clock.is_over() && clock.elapsed_s() - outcome.setup_s >= READING_S_MIN {
            break;
        }
    }
    Ok(outcome)
}
