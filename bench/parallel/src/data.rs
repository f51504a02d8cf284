//! What files hold: in each page a word that follows from its place, so that what comes back from
//! elsewhere is noticed.

use anyhow::{Context, Result, ensure};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a call.
pub(crate) const CALL_BYTES: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;

/// The bytes at a place of a file with this seed.
pub(crate) fn fill(buffer: &mut [u8], seed: u64, offset: u64) {
    for (page, bytes) in buffer.chunks_mut(PAGE_BYTES as usize).enumerate() {
        let word = figures::spread(seed ^ (offset + page as u64 * PAGE_BYTES)).to_le_bytes();
        bytes[..word.len()].copy_from_slice(&word);
    }
}

fn check(buffer: &[u8], seed: u64, offset: u64) -> Result<()> {
    for (page, bytes) in buffer.chunks(PAGE_BYTES as usize).enumerate() {
        let at = offset + page as u64 * PAGE_BYTES;
        let word = figures::spread(seed ^ at).to_le_bytes();
        ensure!(bytes.starts_with(&word), "wrong bytes at {at}");
    }
    Ok(())
}

/// Writes a new file and makes it durable.
pub(crate) fn write(path: &Path, seed: u64, bytes: u64) -> Result<()> {
    let file = File::create_new(path).with_context(|| path.display().to_string())?;
    write_part(&file, seed, 0, bytes)
}

/// Writes a part of a file, whole calls, and makes it durable.
pub(crate) fn write_part(file: &File, seed: u64, from: u64, bytes: u64) -> Result<()> {
    let mut buffer = vec![0x5a; CALL_BYTES as usize];
    for offset in (from..from + bytes).step_by(CALL_BYTES as usize) {
        fill(&mut buffer, seed, offset);
        file.write_all_at(&buffer, offset).context("writing")?;
    }
    file.sync_data().context("making it durable")
}

/// Reads a file from end to end.
pub(crate) fn read(path: &Path, seed: u64, bytes: u64) -> Result<()> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    read_part(&file, seed, 0, bytes)
}

/// Reads a part of a file, whole calls.
pub(crate) fn read_part(file: &File, seed: u64, from: u64, bytes: u64) -> Result<()> {
    let mut buffer = vec![0; CALL_BYTES as usize];
    for offset in (from..from + bytes).step_by(CALL_BYTES as usize) {
        file.read_exact_at(&mut buffer, offset).context("reading")?;
        check(&buffer, seed, offset)?;
    }
    Ok(())
}

/// Opens a file past the page cache.
pub(crate) fn open_direct(path: &Path) -> Result<File> {
    let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path);
    file.with_context(|| path.display().to_string())
}

/// Empties the page cache of what is on disk.
pub(crate) fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_another_place_is_not_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("file");
        write(&path, 7, 2 * CALL_BYTES).expect("written");
        read(&path, 7, 2 * CALL_BYTES).expect("read");
        assert!(read(&path, 8, CALL_BYTES).is_err());
        let file = OpenOptions::new().write(true).open(&path).expect("there");
        file.write_all_at(&[0], 5 * PAGE_BYTES).expect("changed");
        assert!(read(&path, 7, CALL_BYTES).is_err());
    }
}
