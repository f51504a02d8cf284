//! Writing workloads. Both end with fsync, because only that promises durability.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::Context;

use super::{Clock, Outcome};
use crate::content::{fill, seed_of};
use crate::dataset::file_name;

/// Writes one file and calls fsync; the time covers both.
pub(crate) fn stream(
    path: &str,
    seed: u64,
    bytes: u64,
    call_bytes: u64,
    clock: Clock,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::out_of(bytes);
    let mut file = File::create(path).with_context(|| format!("creating {path}"))?;
    let mut buffer = vec![0u8; call_bytes as usize];
    while outcome.done < bytes && !clock.is_over() {
        let len = call_bytes.min(bytes - outcome.done) as usize;
        fill(seed, outcome.done, &mut buffer[..len]);
        file.write_all(&buffer[..len])
            .with_context(|| format!("writing at {}", outcome.done))?;
        outcome.done += len as u64;
    }
    let written_s = clock.elapsed_s();
    file.sync_all().context("fsync")?;
    outcome.seconds = clock.elapsed_s();
    outcome.fsync_s = Some(outcome.seconds - written_s);
    Ok(outcome)
}

/// Creates files with content, one after another; then the directory is synchronised. `syncfs(2)`
/// would be the natural call, but kernels deliver it to no FUSE server that a user can run.
pub(crate) fn create(
    dir: &str,
    files: u64,
    file_bytes: u64,
    clock: Clock,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::out_of(files);
    let mut content = vec![0u8; file_bytes as usize];
    while outcome.done < files && !clock.is_over() {
        let name = file_name(outcome.done);
        fill(seed_of(&name), 0, &mut content);
        let path = Path::new(dir).join(&name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("creating {}", path.display()))?;
        file.write_all(&content)
            .with_context(|| format!("writing {}", path.display()))?;
        outcome.done += 1;
    }
    let created_s = clock.elapsed_s();
    File::open(dir)?
        .sync_all()
        .context("fsync of the directory")?;
    outcome.seconds = clock.elapsed_s();
    outcome.fsync_s = Some(outcome.seconds - created_s);
    Ok(outcome)
}
