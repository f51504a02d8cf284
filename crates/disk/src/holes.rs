//! Where a file has data: the rest reads as zeros and is not read.

use base::{Extent, ExtentSet};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek};

/// Runs of data that are kept apart; more are taken for one. 16 bytes of memory each, and a file
/// with more is hardly sparse.
const RUNS_MAX: usize = 1 << 20;

/// Length of a file or block device in bytes.
pub(crate) fn length(mut file: &File) -> io::Result<u64> {
    file.seek(io::SeekFrom::End(0))
}

/// Where there is data within the first `len_bytes`. A file system or device that does not know
/// says everywhere. Moves the file's position.
pub(crate) fn data(file: &File, len_bytes: u64) -> io::Result<ExtentSet> {
    let mut data = ExtentSet::new();
    let mut position = 0;
    while position < len_bytes {
        let start = match seek(file, SeekFrom::Data(position)) {
            Ok(start) => start.min(len_bytes),
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => position,
            Err(errno) => return Err(errno.into()),
        };
        let end = match seek(file, SeekFrom::Hole(start)) {
            Ok(end) if end > start && data.run_count() < RUNS_MAX => end.min(len_bytes),
            Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => len_bytes,
            Err(errno) => return Err(errno.into()),
        };
        data.insert(Extent::between(start, end));
        position = end;
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_found_and_nothing_else_is_taken_for_one() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100 << 20).unwrap();
        assert_eq!(length(&file).unwrap(), 100 << 20);
        for at in [0, 10 << 20, (50 << 20) + 12_345, (100 << 20) - 1] {
            file.write_all_at(&[1; 1], at).unwrap();
            let data = data(&file, 100 << 20).unwrap();
            assert!(data.covers(Extent::new(at, 1)), "{at} is in {data:?}");
            assert!(data.bytes() < 10 << 20, "{data:?}");
        }
        assert_eq!(data(&file, 100 << 20).unwrap().run_count(), 4);
        assert!(data(&file, 0).unwrap().is_empty());
    }
}
