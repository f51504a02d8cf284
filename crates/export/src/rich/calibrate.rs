//! What looking at a view costs on this file system, stored and not: the figures by which the
//! policy `measured` decides ([`acl::Costs`]).
//!
//! It is measured in files without names, one for each length of ACL, which are gone when this
//! ends; nobody else's file is touched, and nothing that others have in memory is dropped. So what
//! lies in the kernel's memory is warm here, and no attribute can be made cold: the kernel drops
//! those of the whole machine or none. What is measured instead is what makes the difference:
//!
//! ```text
//! T = system calls and conversion, warm          measured, the least of some rounds
//!   + reads beyond the inode                     counted: blocks that the inode has got by its
//!                                                attributes, two at most
//!   x a read                                     measured: 4 KiB of a file of which nothing is in
//!                                                this machine's memory
//! ```
//!
//! Blocks are as good as reads: a first block holds attributes or where they are, and what lies
//! behind that lies together. File systems that keep large values in inodes of their own (ext4
//! with `ea_inode`) do not count them here. What the device itself, or the host of a virtual
//! machine, has in memory is read from there, as it is by everybody else.
//!
//! An access to a stored view reads the POSIX ACLs as well, to see that it is theirs. So it costs
//! less than a conversion only where converting takes longer than reading the copy.
//!
//! Source: Nakamura and others, concurrent use of heterogeneous access control information, 3.2.

use super::view::{ACCESS, VIEW};
use super::{WRITING, told};
use crate::change::descriptor_path;
use crate::errno::fs_error;
use crate::export::Export;
use crate::stat::stat;
use crate::worker::Worker;
use acl::{Costs, Point, PosixAcl, PosixEntry, PosixWho};
use base::{FsError, Principal};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::retry_on_intr;
use std::time::{Duration, Instant};

/// Lengths that are measured: close where file systems have their steps (the inode's room for a
/// POSIX ACL, for a view, for both).
const LENGTHS: [u32; 20] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 21, 24, 32, 48, 64, 100, 200,
];
/// Of so many tries the shortest counts; the others were disturbed.
const ROUNDS: u32 = 8;
/// Time for all of it.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Size of the file in which reads are timed.
const READ_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4 << 10;
/// Reads that are timed.
const READS: usize = 24;
/// Time for them.
const READ_TIME_MAX: Duration = Duration::from_secs(1);
/// Users in the lists begin here.
const FIRST_USER: u32 = 100_000;
/// Bytes of a block in which attributes count blocks.
const SECTOR_BYTES: u64 = 512;
const READS_MAX: u64 = 2;
/// Kinds of file systems by their numbers in statfs(2).
const FILE_SYSTEMS: [(i128, &str); 5] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0xf2f5_2010, "f2fs"),
];

/// How long reading 4 KiB takes of which nothing is in this machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdRead(pub Duration);

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// By number of entries.
    pub costs: Costs,
    /// One read.
    pub read: ColdRead,
    /// The kind of file system, as statfs(2) numbers it, by its name if it is a usual one.
    pub file_system: String,
}

impl Export {
    /// Measures what views cost here. Takes less than a second on anything that answers reads
    /// within 20 ms, and 5 s at most.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] if the file system makes no files without names; the kernel's.
    pub fn calibrate_views(&self, worker: &Worker) -> Result<Calibration, FsError> {
        let caller = worker.assume(&Principal::root())?;
        let end = Instant::now() + TIME_MAX;
        caller.with(WRITING, || {
            let read = self.time_reads()?;
            let mut points = Vec::with_capacity(LENGTHS.len());
            for entries in LENGTHS {
                if Instant::now() >= end {
                    break;
                }
                match self.time_length(entries, read) {
                    Ok(point) => points.push(point),
                    // Longer ones do not fit either, or there are no ACLs at all.
                    Err(
                        FsError::NoSpace
                        | FsError::TooBig
                        | FsError::Range
                        | FsError::Invalid
                        | FsError::NotSupported,
                    ) if !points.is_empty() => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(Calibration {
                costs: Costs::new(points),
                read,
                file_system: self.file_system_name()?,
            })
        })?
    }

    fn unnamed(&self, flags: OFlags) -> Result<OwnedFd, FsError> {
        let flags = flags | OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o640);
        let open = || rustix::fs::openat(self.top(), c".", flags, mode);
        retry_on_intr(open).map_err(fs_error)
    }

    /// A file to read in, of which nothing is in memory, and which is not flushed to get there: a
    /// flush is the whole disk's, and others would wait for it. So its bytes go past the memory,
    /// where the file system can do that.
    fn unread_file(&self, bytes: &[u8]) -> Result<OwnedFd, FsError> {
        let direct = self.unnamed(OFlags::DIRECT);
        let direct = direct.and_then(|file| write_all(&file, bytes).map(|()| file));
        match direct {
            Err(FsError::Invalid | FsError::NotSupported) => {}
            direct => return direct,
        }
        let file = self.unnamed(OFlags::empty())?;
        write_all(&file, bytes)?;
        rustix::fs::fdatasync(&file).map_err(fs_error)?;
        // Of this file alone; if it is not heeded, reads are as short as others here will be.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(file)
    }

    /// The time of a read, the median of some.
    fn time_reads(&self) -> Result<ColdRead, FsError> {
        // Bytes that no file system makes smaller.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = Vec::with_capacity(READ_BYTES + PAGE_BYTES);
        while bytes.len() < READ_BYTES + PAGE_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
        }
        let file = self.unread_file(&aligned(&mut bytes)[..READ_BYTES])?;
        let page = &mut aligned(&mut bytes)[..PAGE_BYTES];
        let end = Instant::now() + READ_TIME_MAX;
        let mut times = Vec::with_capacity(READS);
        for place in 0..READS {
            // Each page once, apart from each other.
            let at = (place * 37) % (READ_BYTES / PAGE_BYTES) * PAGE_BYTES;
            let begin = Instant::now();
            let read = || rustix::io::pread(&file, &mut *page, at as u64);
            retry_on_intr(read).map_err(fs_error)?;
            times.push(begin.elapsed());
            if Instant::now() >= end {
                break;
            }
        }
        times.sort_unstable();
        Ok(ColdRead(times[times.len() / 2]))
    }

    /// The three times of one length, in a file of its own.
    fn time_length(&self, entries: u32, ColdRead(read): ColdRead) -> Result<Point, FsError> {
        let file = self.unnamed(OFlags::empty())?;
        let fd = file.as_fd();
        let path = descriptor_path(fd);
        match list(entries) {
            Some(list) => told::set(&path, ACCESS, &list.to_xattr())?,
            // It may have inherited one.
            None => told::remove(&path, ACCESS)?,
        }
        let converted_reads = self.reads_beyond(fd)?;
        let converted = least(|| {
            let begin = Instant::now();
            let attributes = stat(fd)?.attributes;
            let view = self.read_posix(fd, &attributes)?.view(&attributes);
            Self::as_sent(&view, &attributes)?;
            Ok(begin.elapsed())
        })?;
        let storing = least(|| {
            told::remove(&path, VIEW)?;
            let begin = Instant::now();
            let attributes = stat(fd)?.attributes;
            let values = self.read_values(fd, &attributes)?;
            let made_of = values.made_of(&attributes);
            let view = values.parse()?.view(&attributes);
            Self::as_sent(&view, &attributes)?;
            told::set(&path, VIEW, &made_of.stored(view)?)?;
            Ok(begin.elapsed())
        })?;
        let stored_reads = self.reads_beyond(fd)?;
        let stored = least(|| {
            let begin = Instant::now();
            let attributes = stat(fd)?.attributes;
            let made_of = self.read_values(fd, &attributes)?.made_of(&attributes);
            let view = self.stored_view(fd, made_of, &attributes);
            Self::as_sent(&view.ok_or(FsError::Io)?, &attributes)?;
            Ok(begin.elapsed())
        })?;
        let nanos = |warm: Duration, reads: u32| {
            let all = warm + read.saturating_mul(reads);
            u64::try_from(all.as_nanos()).unwrap_or(u64::MAX)
        };
        Ok(Point {
            entries,
            stored_nanos: nanos(stored, stored_reads),
            converted_nanos: nanos(converted, converted_reads),
            storing_nanos: nanos(storing, converted_reads),
            stored_reads,
            converted_reads,
        })
    }

    /// Reads that the attributes of an empty file take when nothing of it but the inode is in
    /// memory.
    fn reads_beyond(&self, fd: BorrowedFd<'_>) -> Result<u32, FsError> {
        let bytes = stat(fd)?.attributes.blocks * SECTOR_BYTES;
        let block_bytes = rustix::fs::fstatvfs(fd).map_err(fs_error)?.f_bsize.max(1);
        let reads = bytes.div_ceil(block_bytes).min(READS_MAX);
        Ok(u32::try_from(reads).expect("it is two at most"))
    }

    fn file_system_name(&self) -> Result<String, FsError> {
        let kind = rustix::fs::fstatfs(self.top()).map_err(fs_error)?.f_type;
        let known = FILE_SYSTEMS
            .iter()
            .find(|(number, _)| i128::from(kind) == *number);
        Ok(known.map_or_else(|| format!("{kind:x}"), |(_, name)| (*name).to_owned()))
    }
}

fn write_all(file: &OwnedFd, mut rest: &[u8]) -> Result<(), FsError> {
    while !rest.is_empty() {
        let written = retry_on_intr(|| rustix::io::write(file, rest)).map_err(fs_error)?;
        rest = &rest[written.min(rest.len())..];
    }
    Ok(())
}

/// What follows of these bytes from the beginning of a page on; all but less than a page.
fn aligned(bytes: &mut [u8]) -> &mut [u8] {
    let before = bytes.as_ptr().align_offset(PAGE_BYTES);
    &mut bytes[before..]
}

/// The shortest of some rounds.
fn least(mut round: impl FnMut() -> Result<Duration, FsError>) -> Result<Duration, FsError> {
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
        least = least.min(round()?);
    }
    Ok(least)
}

/// A list of so many entries; none for what a mode says alone.
fn list(entries: u32) -> Option<PosixAcl> {
    let users = entries.checked_sub(4)?;
    let entry = |who, bits| PosixEntry { who, bits };
    let mut list = vec![entry(PosixWho::Owner, 6)];
    // Not all alike: some are denied what others after them are allowed.
    list.extend((0..users).map(|user| entry(PosixWho::User(FIRST_USER + user), user as u8 % 8)));
    list.push(entry(PosixWho::OwningGroup, 4));
    list.push(entry(PosixWho::Mask, 7));
    list.push(entry(PosixWho::Others, 4));
    Some(PosixAcl::new(list).expect("it is in order, each once"))
}
