//! Real files for the demonstration: small ones of `/usr/share`, larger ones of `/usr/lib`.

use super::mismatch;
use crate::errors::{Context, Result};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Largest file that is taken: several files say more than one.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Files taken from one place.
const FILES_MAX: usize = 1000;
/// Directories looked into for one place: on a large machine, enough is enough.
const DIRECTORIES_MAX: usize = 2000;
/// Piece in which files are read back: what a program would use.
const PIECE_BYTES: usize = 128 << 10;

/// A file of this machine.
#[derive(Debug)]
pub(super) struct Picked {
    path: PathBuf,
    /// Its name in the volume: where it comes from, as a path below the root.
    pub(super) name: PathBuf,
    pub(super) bytes: u64,
}

/// Picks files of about `bytes` in all, the same ones each time.
pub(super) fn pick(bytes: u64) -> Vec<Picked> {
    let places = [("/usr/share", bytes / 4), ("/usr/lib", bytes - bytes / 4)];
    places
        .iter()
        .flat_map(|(place, bytes)| pick_below(Path::new(place), *bytes))
        .collect()
}

fn pick_below(place: &Path, bytes: u64) -> Vec<Picked> {
    let mut picked = Vec::new();
    let mut left = bytes;
    let mut waiting = vec![place.to_owned()];
    let mut looked = 0;
    while let Some(directory) = waiting.pop() {
        looked += 1;
        if looked > DIRECTORIES_MAX {
            break;
        }
        // What this user may not see is not for a demonstration.
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        let mut entries: Vec<_> = entries.filter_map(io::Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let (path, size) = (entry.path(), metadata.len());
            if metadata.is_dir() {
                waiting.push(path);
            } else if metadata.is_file()
                && (1..=FILE_BYTES_MAX.min(left)).contains(&size)
                && File::open(&path).is_ok()
            {
                left -= size;
                let name = path.strip_prefix("/").unwrap_or(&path).to_owned();
                picked.push(Picked {
                    path,
                    name,
                    bytes: size,
                });
                if picked.len() >= FILES_MAX {
                    return picked;
                }
            }
        }
    }
    picked
}

impl Picked {
    /// Copies it below `root`, as a program would.
    pub(super) fn copy_to(&self, root: &Path) -> Result<()> {
        let target = root.join(&self.name);
        let parent = target.parent().unwrap_or(root);
        fs::create_dir_all(parent).context(parent.display())?;
        let mut source = File::open(&self.path).context(self.path.display())?;
        let mut file = File::create(&target).context(target.display())?;
        io::copy(&mut source, &mut file).context(target.display())?;
        Ok(())
    }

    /// Compares the copy below `root` with the original, byte for byte. Returns how long reading
    /// the copy took.
    pub(super) fn verify(&self, root: &Path) -> Result<Duration> {
        let path = root.join(&self.name);
        let mut original = File::open(&self.path).context(self.path.display())?;
        let mut wanted = vec![0; PIECE_BYTES];
        let mut found = vec![0; PIECE_BYTES];
        let mut taken = Duration::ZERO;
        let begun = Instant::now();
        let mut copy = File::open(&path).context(path.display())?;
        taken += begun.elapsed();
        let mut at = 0;
        loop {
            let begun = Instant::now();
            let len = read_full(&mut copy, &mut found).context(path.display())?;
            taken += begun.elapsed();
            let wanted_len = read_full(&mut original, &mut wanted).context(self.path.display())?;
            if found[..len] != wanted[..wanted_len] {
                let same = found
                    .iter()
                    .zip(&wanted)
                    .take_while(|(a, b)| a == b)
                    .count();
                return Err(mismatch(self, at + same.min(len).min(wanted_len) as u64));
            }
            if len == 0 {
                return Ok(taken);
            }
            at += len as u64;
        }
    }
}

/// Fills the buffer unless the file ends.
fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            len => filled += len,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_compared_to_the_last_byte() {
        let scratch = tempfile::tempdir().expect("a directory");
        let original = scratch.path().join("original");
        let bytes = vec![7; PIECE_BYTES + 10];
        fs::write(&original, &bytes).expect("room on the disk");
        let picked = Picked {
            path: original,
            name: PathBuf::from("below/copy"),
            bytes: bytes.len() as u64,
        };
        let copy = scratch.path().join("below/copy");
        picked.copy_to(scratch.path()).expect("room on the disk");
        picked.verify(scratch.path()).expect("a fresh copy");
        let mut changed = bytes.clone();
        changed[PIECE_BYTES + 3] = 8;
        for (wrong, at) in [
            (&changed[..], PIECE_BYTES + 3),
            (&bytes[..PIECE_BYTES], PIECE_BYTES),
        ] {
            fs::write(&copy, wrong).expect("room on the disk");
            let failure = picked.verify(scratch.path()).expect_err("it differs");
            assert!(
                failure.message().ends_with(&at.to_string()),
                "{}",
                failure.message()
            );
        }
    }

    #[test]
    fn files_are_picked_within_bounds() {
        let picked = pick_below(Path::new("/usr/share"), 1 << 20);
        assert!(picked.iter().map(|file| file.bytes).sum::<u64>() <= 1 << 20);
        assert!(picked.len() <= FILES_MAX && picked.iter().all(|file| file.name.is_relative()));
    }
}
