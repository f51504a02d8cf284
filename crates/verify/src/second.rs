//! A second recorder, by others: QEMU's blklogwrites, between the loop device and ours.
//!
//! ```text
//! file system - loop device - FUSE file of qemu-storage-daemon - FUSE file of ours - medium
//!                             its log                            our log
//! ```
//!
//! QEMU's file loses writes of a loop device with direct I/O (7.2, with or without blklogwrites),
//! so the loop device goes through the page cache here, which must forget what it has whenever what
//! is below is changed for something else ([`Request::Forget`]).
//!
//! Whoever asks anything of QEMU's file waits for QEMU, which waits for whoever serves ours. If the
//! run did so itself and were killed meanwhile, the two would wait for each other for ever. So the
//! actor looks at that file, and the run at the log alone, which is a plain one.
//!
//! Both see the same writes and flushes, each as it understands them, and have not a line of code
//! in common. QEMU's log knows no marks. Whatever was answered is in its file, so the length of
//! this when a mark is made says between which entries the mark is.

use crate::actor::{Actor, Answer, Request};
use crate::log::{Entry, Item, LogError, Mark, Reader};
use base::limits::VERIFY_END_TIME_MAX;
use rustix::mount::{UnmountFlags, unmount};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The program, and its Debian package.
pub const PROGRAM: (&str, &str) = ("qemu-storage-daemon", "qemu-system-common");

/// How often somebody who waits for it looks.
const LOOKED_EVERY: Duration = Duration::from_millis(5);
/// How long it may take to end when it is killed.
const KILLED_TIME_MAX: Duration = Duration::from_secs(5);

/// See the module's head. Dropping it ends the program.
#[derive(Debug)]
pub struct SecondRecorder {
    daemon: Child,
    log: PathBuf,
    export: PathBuf,
    /// Where in the file the log of this workload begins.
    from: u64,
    /// How long the file was when a mark was made.
    marks: Vec<(u64, Mark)>,
}

impl SecondRecorder {
    /// What it has in its directory.
    pub const FILES: [&str; 2] = ["second.log", "second"];

    /// Starts it over `device`, with its files in `directory`. `program` runs what is appended to
    /// it as a command that ends with its parent.
    ///
    /// # Errors
    /// Of starting it.
    pub fn start(program: &mut Command, device: &Path, directory: &Path) -> io::Result<Self> {
        let [log, export] = Self::FILES.map(|name| directory.join(name));
        File::create(&log)?;
        File::create(&export)?;
        let (device, log_name) = (device.display(), log.display());
        let shown = export.display();
        let daemon = program
            .arg(PROGRAM.0)
            .args(["--blockdev".to_owned(), file("device", &device)])
            .args(["--blockdev".to_owned(), file("log", &log_name)])
            .arg("--blockdev")
            .arg(
                "driver=blklogwrites,node-name=both,file=device,log=log,log-sector-size=512,\
                 discard=unmap",
            )
            .arg("--export")
            .arg(format!(
                "type=fuse,id=shown,node-name=both,mountpoint={shown},writable=on"
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Ctrl-C is for the run: without this, what is judged would be as if its disk had died.
            .process_group(0)
            .spawn()?;
        Ok(Self {
            daemon,
            log,
            export,
            from: 0,
            marks: Vec::new(),
        })
    }

    /// Waits until it shows the device, which has this length.
    ///
    /// # Errors
    /// If it ends; [`io::ErrorKind::TimedOut`] if it does not show the device; of the actor.
    pub fn wait(&mut self, actor: &mut Actor, len_bytes: u64) -> io::Result<()> {
        let deadline = Instant::now() + VERIFY_END_TIME_MAX;
        let request = Request::Shows {
            file: self.export.clone(),
            len_bytes,
        };
        while actor.ask(&request).map_err(io::Error::other)? != Answer::Done {
            if self.daemon.try_wait()?.is_some() {
                return Err(io::Error::other(format!("{} has ended", PROGRAM.0)));
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(LOOKED_EVERY);
        }
        Ok(())
    }

    /// The file in which it shows the device.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.export
    }

    /// Behind its head, also while nothing has been written yet.
    fn log_bytes(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.log)?.len().max(SECTOR))
    }

    /// Begins a log.
    ///
    /// # Errors
    /// Of its file.
    pub fn begin(&mut self) -> io::Result<()> {
        self.marks.clear();
        self.from = self.log_bytes()?;
        Ok(())
    }

    /// Notes a mark.
    ///
    /// # Errors
    /// Of its file.
    pub fn mark(&mut self, mark: Mark) -> io::Result<()> {
        let at = self.log_bytes()?;
        self.marks.push((at, mark));
        Ok(())
    }

    /// What it has recorded since the log was begun, with the marks.
    ///
    /// # Errors
    /// [`LogError`] if its file is no such log.
    pub fn take(&mut self) -> Result<Vec<Entry>, LogError> {
        let end = self.log_bytes()?;
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut input = BufReader::new(file);
        let mut reader = Reader::at(&mut input, self.from, u64::MAX);
        let mut marks = std::mem::take(&mut self.marks).into_iter().peekable();
        let mut entries = Vec::new();
        loop {
            let position = reader.position();
            while let Some((_, mark)) = marks.next_if(|(at, _)| *at <= position) {
                entries.push(Entry::Mark(mark));
            }
            if position >= end {
                return Ok(entries);
            }
            match reader.next()? {
                Some(Item::Done(done)) => entries.extend(done),
                Some(Item::Mark(_)) | None => {}
            }
        }
    }
}

/// A head has one sector.
const SECTOR: u64 = 512;

fn file(node: &str, name: &impl std::fmt::Display) -> String {
    format!("driver=file,node-name={node},filename={name},locking=off,discard=unmap")
}

/// Whether a file has this length. For the actor.
pub(crate) fn shows(file: &Path, len_bytes: u64) -> io::Result<()> {
    match fs::metadata(file)?.len() == len_bytes {
        true => Ok(()),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Lets the page cache forget what it has of a file, which is about to change below it. For the
/// actor.
pub(crate) fn forget(file: &Path) -> io::Result<()> {
    let shown = File::open(file)?;
    // Only what has been written can be forgotten.
    shown.sync_data()?;
    rustix::fs::fadvise(&shown, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

impl SecondRecorder {
    /// Whether the program ends in this time.
    fn ends_within(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while matches!(self.daemon.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(LOOKED_EVERY);
        }
        true
    }
}

impl Drop for SecondRecorder {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.daemon.id().cast_signed()) {
            // It takes its file off before it ends.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        if !self.ends_within(VERIFY_END_TIME_MAX) {
            let _ = self.daemon.kill();
            // One that waits for the device ends when nobody serves that any more.
            let _ = self.ends_within(KILLED_TIME_MAX);
        }
        // Of one that was killed it is still there. Where nothing is mounted, nothing is done.
        let _ = unmount(&self.export, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        let _ = fs::remove_file(&self.export);
        let _ = fs::remove_file(&self.log);
    }
}

/// What two recorders must agree on: the flushes and marks in their order, and between two of them
/// the writes, in any order, because requests that are under way at once have none.
#[must_use]
pub fn is_same(ours: &[Entry], theirs: &[Entry]) -> bool {
    stretches(ours) == stretches(theirs)
}

/// Of each stretch the blocks that it changes with a digest of what they become, and its end. An
/// empty flush says nothing.
fn stretches(entries: &[Entry]) -> Vec<(BTreeMap<u64, u32>, Option<Mark>)> {
    let mut all = Vec::new();
    let mut open = BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Write { offset, data } => {
                for (sector, bytes) in (*offset / SECTOR..).zip(data.chunks(SECTOR as usize)) {
                    open.insert(sector, crc32c::crc32c(bytes));
                }
            }
            Entry::Zeros(extent) => {
                let zeros = crc32c::crc32c(&[0; SECTOR as usize]);
                let sectors = extent.offset / SECTOR..extent.end() / SECTOR;
                open.extend(sectors.map(|sector| (sector, zeros)));
            }
            Entry::Flush if open.is_empty() => {}
            Entry::Flush => all.push((std::mem::take(&mut open), None)),
            Entry::Mark(mark) => all.push((std::mem::take(&mut open), Some(*mark))),
        }
    }
    all.push((open, None));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Extent;

    fn write(offset: u64, byte: u8, len: usize) -> Entry {
        let data = vec![byte; len].into();
        Entry::Write { offset, data }
    }

    #[test]
    fn logs_are_the_same_if_every_stretch_is() {
        let mark = Entry::Mark(Mark::Done(1));
        let ours = [
            write(0, 1, 1024),
            write(4096, 2, 512),
            Entry::Flush,
            mark.clone(),
            Entry::Zeros(Extent::new(8192, 1024)),
        ];
        // In another order, in parts, zeros as such, and a flush of nothing.
        let theirs = [
            write(4096, 2, 512),
            write(512, 1, 512),
            write(0, 1, 512),
            Entry::Flush,
            Entry::Flush,
            mark.clone(),
            write(8192, 0, 1024),
        ];
        assert!(is_same(&ours, &theirs));
        assert!(!is_same(&ours, &theirs[1..]), "a write less");
        let late = [&theirs[..3], &theirs[5..], &theirs[3..4]].concat();
        assert!(!is_same(&ours, &late), "a flush later");
        assert!(!is_same(&ours[..3], &ours[..4]), "a mark less");
    }
}
