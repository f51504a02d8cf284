//! Whether a store can be made somewhere, before anything is: sizes, rights, room.

use super::{on, shown};
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use ::store::{Layout, Sizes};
use rustix::fs::{Access, AtFlags, CWD};
use std::path::Path;

/// Smallest allocation unit of a store.
pub(super) const UNIT_BYTES_MIN: u64 = 64 << 10;

/// The layout of a store of that length, with this allocation unit if one is wanted.
pub(in crate::cli) fn check_sizes(path: &Path, bytes: u64, unit: Option<u64>) -> Result<Layout> {
    let unit = unit.unwrap_or(UNIT_BYTES_MIN);
    Layout::new(bytes, Sizes::for_device(bytes, unit)).map_err(|error| {
        let failure: Failure = on(path, error.into());
        match enough(unit).filter(|enough| bytes < *enough) {
            Some(enough) => failure.hint(format!("{} is enough", output::size(enough))),
            None => failure,
        }
    })
}

/// The smallest power of two in bytes that takes a store with this allocation unit; none for a unit
/// that no store can have.
fn enough(unit: u64) -> Option<u64> {
    let lengths = (12..50).map(|power| 1 << power);
    lengths
        .into_iter()
        .find(|bytes| Layout::new(*bytes, Sizes::for_device(*bytes, unit)).is_ok())
}

/// Whether this user can make a file of `bytes` bytes in the directory.
pub(in crate::cli) fn check_directory(directory: &Path, bytes: u64) -> Result<()> {
    check_room(directory, bytes)?;
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, directory, rights, AtFlags::EACCESS)
        .context(format_args!("cannot make a file in {}", shown(directory)))
        .map_err(|failure| failure.hint("choose another directory, or do it as its owner"))
}

/// Whether a file system has room for so many bytes more.
pub(super) fn check_room(on: &Path, bytes: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(on).context(shown(on));
    let stat =
        stat.map_err(|failure| failure.hint("is the path right? its directory must exist"))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    let (free, wanted) = (output::size(free), output::size(bytes));
    let message = format!(
        "{} has {free} of free space, and {wanted} are needed",
        shown(on)
    );
    Err(Failure::new(Code::NoSpace, message))
}

/// The directory that a path is in.
pub(super) fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|path| *path != Path::new(""));
    parent.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_enough_for_a_store_is_known() {
        let least = enough(UNIT_BYTES_MIN).expect("there are stores");
        assert!(least > 512 << 10, "as the end-to-end test has it");
        let sizes = |bytes| Sizes::for_device(bytes, UNIT_BYTES_MIN);
        assert!(Layout::new(least, sizes(least)).is_ok());
        assert!(Layout::new(least / 2, sizes(least / 2)).is_err());
        assert_eq!(enough(100_000), None);
    }

    #[test]
    fn what_there_is_no_room_for_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        check_directory(directory.path(), 4096).expect("room");
        let failure = check_directory(directory.path(), 1 << 60).expect_err("no room");
        assert_eq!(failure.code(), Code::NoSpace);
        let gone = directory.path().join("gone");
        let failure = check_directory(&gone, 4096).expect_err("no directory");
        assert!(failure.hint_text().contains("must exist"), "{failure}");
    }
}
