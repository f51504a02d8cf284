//! Files that all threads of both machines keep open: a log that they append to, and a number that
//! they count up under a lock.

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, read, write};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RECORDS: usize = 50;
const RECORD_BYTES: usize = 64;

/// One line, as long as all others.
fn record(thread: usize, number: usize) -> Vec<u8> {
    let mut line = format!("thread {thread} record {number} ").into_bytes();
    line.resize(RECORD_BYTES - 1, b'.');
    line.push(b'\n');
    line
}

fn append(directory: &Path, thread: usize) {
    let mut log = File::options()
        .append(true)
        .open(directory.join("log"))
        .unwrap();
    for number in 0..RECORDS {
        log.write_all(&record(thread, number)).unwrap();
    }
}

/// Counts one up under an exclusive lock; through a file that stays open, so that the lock alone
/// makes the other machine's number visible (C4).
fn count(directory: &Path) {
    let path = directory.join("number");
    let file = File::options().read(true).write(true).open(path).unwrap();
    for _ in 0..RECORDS {
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let mut number = [0; 8];
        file.read_exact_at(&mut number, 0).unwrap();
        let number = u64::from_le_bytes(number) + 1;
        file.write_all_at(&number.to_le_bytes(), 0).unwrap();
        flock(&file, FlockOperation::Unlock).unwrap();
    }
}

/// A directory's times and links follow every change of its names at once, also where the names
/// themselves are cached.
pub(crate) fn times_of_directories(mounts: &[PathBuf]) {
    use std::os::unix::fs::MetadataExt;
    let look = |mount: &PathBuf| {
        let found = std::fs::metadata(mount.join("times")).unwrap();
        (found.mtime(), found.mtime_nsec(), found.nlink())
    };
    std::fs::create_dir(mounts[0].join("times")).unwrap();
    for number in 0..RECORDS {
        for mount in mounts {
            std::fs::read_dir(mount.join("times")).unwrap().count();
        }
        let seen: Vec<_> = mounts.iter().map(look).collect();
        let name = format!("times/directory-{number}");
        std::fs::create_dir(mounts[number % mounts.len()].join(name)).unwrap();
        let now: Vec<_> = mounts.iter().map(look).collect();
        assert_eq!(
            now[0], now[1],
            "one machine shows the directory as it was: {seen:?}"
        );
        assert_eq!(
            now[0].2,
            number as u64 + 3,
            "a link to each directory and two more"
        );
    }
}

/// Lets all threads do it at once, and checks the sums.
pub(crate) fn append_and_count(mounts: &[PathBuf], threads_each: usize) {
    write(mounts[0].join("log"), "").unwrap();
    write(mounts[0].join("number"), 0_u64.to_le_bytes()).unwrap();
    let count_threads = mounts.len() * threads_each;
    let threads: Vec<_> = (0..count_threads)
        .map(|thread| {
            let directory = mounts[thread % mounts.len()].clone();
            std::thread::spawn(move || {
                append(&directory, thread);
                count(&directory);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    for mount in mounts {
        let number = read(mount.join("number")).unwrap();
        let counted = (count_threads * RECORDS) as u64;
        assert_eq!(number, counted.to_le_bytes(), "a count was lost");
        check_log(&read(mount.join("log")).unwrap(), count_threads);
    }
}

/// Every record is there once and whole, those of a thread in their order.
fn check_log(log: &[u8], threads: usize) {
    assert_eq!(log.len(), threads * RECORDS * RECORD_BYTES);
    let mut next = vec![0; threads];
    for line in log.chunks(RECORD_BYTES) {
        let thread = (0..threads).find(|thread| line == record(*thread, next[*thread]));
        let line = String::from_utf8_lossy(line);
        let thread = thread.unwrap_or_else(|| panic!("not anybody's next record: {line:?}"));
        next[thread] += 1;
    }
}
