//! What the guest says on its serial line, and what it is told.
//!
//! Its lines begin with `AZ `; everything else is the kernel's, or the firmware's, and may stand in
//! front of one, since a kernel message has no regard for what others print.

use super::plan::Cell;
use super::subject::FileSystem;
use std::time::Duration;

const MARK: &str = "AZ ";
/// Of the file system, and of what a cell writes.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// What the guest says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// It has loaded everything and waits.
    Ready,
    /// The file is written, as the cell says; it took so long.
    Done(Duration),
    /// The file has so many bytes, and the disk for it as many of these as it holds.
    Found(u64),
    /// The file is not there.
    Missing,
    /// The file has so many bytes and cannot be read.
    Unreadable(u64),
    /// The file system cannot be mounted; in the words of mount.
    Unmountable(String),
    /// Something failed that must not.
    Failed(String),
}

/// The message in a line; `None` if there is none.
#[must_use]
pub(super) fn parse(line: &str) -> Option<Message> {
    let (_, text) = line.split_once(MARK)?;
    let text = text.trim();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match word {
        "READY" => Some(Message::Ready),
        "DONE" => {
            let (began, ended) = rest.split_once(' ')?;
            let seconds = ended.parse::<f64>().ok()? - began.parse::<f64>().ok()?;
            Duration::try_from_secs_f64(seconds).ok().map(Message::Done)
        }
        "FOUND" => rest.parse().ok().map(Message::Found),
        "MISSING" => Some(Message::Missing),
        "UNREADABLE" => rest.parse().ok().map(Message::Unreadable),
        "UNMOUNTABLE" => Some(Message::Unmountable(rest.to_owned())),
        "FAILED" => Some(Message::Failed(rest.to_owned())),
        _ => None,
    }
}

/// What a kernel looks for what is old at the latest: Linux's own 5 s.
const WRITEBACK_CENTISECS: u64 = 500;

fn options(options: &str) -> &str {
    match options {
        "" => "rw",
        options => options,
    }
}

/// Tells a guest to write what the cell says.
#[must_use]
pub(super) fn write(cell: &Cell) -> String {
    let expire = u64::try_from(cell.flush_time.as_millis() / 10).unwrap_or(u64::MAX);
    format!(
        "write {} {} {} {} {expire} {}\n",
        cell.file_system.name(),
        options(&cell.mount_options),
        cell.bytes / BLOCK_BYTES,
        cell.how.name(),
        expire.min(WRITEBACK_CENTISECS),
    )
}

/// Tells a guest to recover a file system and to hand its file out, at most so many bytes of it.
#[must_use]
pub(super) fn check(file_system: FileSystem, mount_options: &str, bytes_max: u64) -> String {
    let (name, options) = (file_system.name(), options(mount_options));
    format!("check {name} {options} {}\n", bytes_max / BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::subject::{DiskCache, How};
    use super::*;

    #[test]
    fn lines_of_the_guest_are_told_from_those_of_its_kernel() {
        let known = [
            ("AZ READY 7.31\r", Some(Message::Ready)),
            (
                "[    1.0] x AZ DONE 15.50 17.14\r",
                Some(Message::Done(Duration::from_millis(1640))),
            ),
            ("AZ FOUND 10485760", Some(Message::Found(10_485_760))),
            ("AZ MISSING", Some(Message::Missing)),
            ("AZ UNREADABLE 4096", Some(Message::Unreadable(4096))),
            (
                "AZ UNMOUNTABLE mount: bad",
                Some(Message::Unmountable("mount: bad".into())),
            ),
            ("AZ FAILED mount", Some(Message::Failed("mount".into()))),
            ("AZ DONE 3", None),
            ("AZ DONE 3.0 2.0", None),
            ("AZ FOUND -1", None),
            ("AZ", None),
            ("Linux version 6.1", None),
        ];
        for (line, message) in known {
            let found = parse(line);
            match (&found, &message) {
                (Some(Message::Done(found)), Some(Message::Done(known))) => {
                    assert_eq!(found.as_millis(), known.as_millis(), "{line}");
                }
                _ => assert_eq!(found, message, "{line}"),
            }
        }
    }

    #[test]
    fn a_guest_is_told_words_without_blanks() {
        let mut cell = Cell {
            file_system: FileSystem::Jfs,
            bytes: 1 << 20,
            wait: Duration::ZERO,
            flush_time: Duration::from_secs(30),
            how: How::Rename,
            mount_options: String::new(),
            disk_cache: DiskCache::None,
        };
        assert_eq!(write(&cell), "write jfs rw 256 rename 3000 500\n");
        cell.flush_time = Duration::from_secs(1);
        cell.mount_options = "noatime,nointegrity".into();
        let known = "write jfs noatime,nointegrity 256 rename 100 100\n";
        assert_eq!(write(&cell), known);
        assert_eq!(check(FileSystem::Xfs, "", 8192), "check xfs rw 2\n");
    }
}
