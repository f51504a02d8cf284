//! Many small files: made, and deleted again.
//!
//! As the paper does, files of 1 to 8 KiB in one directory. Each of the two is timed twice: until
//! the calls have returned, and until everything is on the disk.

use rustix::fs::{Mode, OFlags, open, syncfs};
use serde::{Deserialize, Serialize};
use sim::Random;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// Sizes of the files, in bytes.
pub const FILE_BYTES_MIN: u64 = 1024;
/// See [`FILE_BYTES_MIN`].
pub const FILE_BYTES_MAX: u64 = 8192;
/// The directory in which they are.
const DIRECTORY: &str = "files";

/// How long it took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Took {
    /// How many files.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Until the calls had returned.
    pub seconds: f64,
    /// Until everything was on the disk, the former included.
    pub durable_seconds: f64,
}

/// What is in the files, one after the other: nothing of it can be compressed or stored once.
#[derive(Debug)]
pub struct Contents {
    random: Random,
    bytes: Vec<u8>,
}

impl Contents {
    /// Of so many files; equal for equal numbers.
    #[must_use]
    pub fn of(count: u64) -> Self {
        Self {
            random: Random::new(count),
            bytes: vec![0; FILE_BYTES_MAX as usize],
        }
    }

    /// That of the next one.
    pub fn next_file(&mut self) -> &[u8] {
        let len = self.random.within(FILE_BYTES_MIN..FILE_BYTES_MAX + 1) as usize;
        for chunk in self.bytes[..len.next_multiple_of(8)].chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.random.next_u64().to_le_bytes());
        }
        &self.bytes[..len]
    }
}

fn name(number: u64) -> String {
    format!("{number:08}")
}

/// Makes so many files below `root`.
///
/// # Errors
/// Of the file system.
pub fn create(root: &Path, count: u64) -> io::Result<Took> {
    let directory = root.join(DIRECTORY);
    fs::create_dir(&directory)?;
    let mut contents = Contents::of(count);
    let mut bytes = 0;
    timed(root, count, || {
        for number in 0..count {
            let content = contents.next_file();
            let mut file = File::create_new(directory.join(name(number)))?;
            file.write_all(content)?;
            bytes += content.len() as u64;
        }
        Ok(())
    })
    .map(|took| Took { bytes, ..took })
}

/// Deletes the files that [`create`] has made.
///
/// # Errors
/// Of the file system; [`io::ErrorKind::NotFound`] if there are fewer.
pub fn delete(root: &Path, count: u64) -> io::Result<Took> {
    let directory = root.join(DIRECTORY);
    timed(root, count, || {
        for number in 0..count {
            fs::remove_file(directory.join(name(number)))?;
        }
        fs::remove_dir(&directory)
    })
}

fn timed(root: &Path, files: u64, work: impl FnOnce() -> io::Result<()>) -> io::Result<Took> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(root, flags, Mode::empty())?;
    let started = Instant::now();
    work()?;
    let seconds = started.elapsed().as_secs_f64();
    syncfs(&root)?;
    Ok(Took {
        files,
        bytes: 0,
        seconds,
        durable_seconds: started.elapsed().as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_are_made_and_deleted_as_are_asked_for() {
        let root = std::env::temp_dir().join(format!("files-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let took = create(&root, 100).unwrap();
        let found: Vec<u64> = fs::read_dir(root.join(DIRECTORY))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!((found.len(), found.iter().sum()), (100, took.bytes));
        let sizes = FILE_BYTES_MIN..=FILE_BYTES_MAX;
        assert!(found.iter().all(|len| sizes.contains(len)));
        assert!(took.durable_seconds >= took.seconds && took.files == 100);
        // A second run finds the first one's files in its way.
        assert!(create(&root, 100).is_err());
        assert!(delete(&root, 101).is_err());
        fs::create_dir_all(root.join(DIRECTORY)).unwrap();
        fs::remove_dir_all(root.join(DIRECTORY)).unwrap();
        create(&root, 3).unwrap();
        delete(&root, 3).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        fs::remove_dir(&root).unwrap();
    }
}
