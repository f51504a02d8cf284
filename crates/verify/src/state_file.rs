//! A file that becomes one crash state after another.
//!
//! A state whose recovery is not to be interrupted needs no recorder: the loop device lies on a
//! file that the kernel serves from memory by itself, and none of the requests of a mount and its
//! recovery, some fifty, wakes this process.
//!
//! ```text
//! recorded:  file system - loop device - FUSE - this process: recorder, medium
//! a state:   file system - loop device - file in memory
//! ```
//!
//! Nobody says what a recovery has changed, so the file is compared with the next state, block by
//! block, and what differs is written. Blocks of zeros are holes and are not read. That is less
//! work than to serve the requests: a file system of a run has a few megabytes that are no holes.

use crate::medium::is_zeros;
use base::{Extent, ExtentSet};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use sim::Image;
use std::fs::File;
use std::io;
use std::iter::Peekable;
use std::os::unix::fs::FileExt;

/// In what pieces contents are compared: those of an image, and pages of the machine.
const BLOCK_BYTES: u64 = 4096;
/// How much is read at once.
const READ_BYTES: u64 = 256 << 10;

/// See the module's head. Nobody else may use the file while a state is put into it.
#[derive(Debug)]
pub struct StateFile {
    file: File,
    len_bytes: u64,
    /// For what is compared.
    read: Vec<u8>,
}

impl StateFile {
    /// Takes a file, which must be open for reading and writing, and gives it this length.
    ///
    /// # Errors
    /// Of the file.
    ///
    /// # Panics
    /// If the length is no whole number of blocks of 4,096 bytes.
    pub fn new(file: File, len_bytes: u64) -> io::Result<Self> {
        assert!(
            len_bytes.is_multiple_of(BLOCK_BYTES),
            "{len_bytes} bytes are no whole number of blocks"
        );
        file.set_len(len_bytes)?;
        let read = vec![0; READ_BYTES as usize];
        Ok(Self {
            file,
            len_bytes,
            read,
        })
    }

    /// Makes it what `image` is, whatever it was.
    ///
    /// # Errors
    /// Of the file, after which it is neither.
    ///
    /// # Panics
    /// If the image has another length.
    pub fn load(&mut self, image: &Image) -> io::Result<()> {
        assert_eq!(
            image.len_bytes(),
            self.len_bytes,
            "a device keeps its length"
        );
        let mut blocks = image.blocks().peekable();
        let mut position = 0;
        while let Some(data) = self.next_data(position)? {
            // These lie in the hole before it.
            while let Some((offset, bytes)) = blocks.next_if(|(offset, _)| *offset < data.offset) {
                self.fill(offset, bytes)?;
            }
            self.change(data, &mut blocks)?;
            position = data.end();
        }
        for (offset, bytes) in blocks {
            self.fill(offset, bytes)?;
        }
        Ok(())
    }

    /// The next whole blocks from `position` on that are no hole.
    fn next_data(&self, position: u64) -> io::Result<Option<Extent>> {
        let found = match seek(&self.file, SeekFrom::Data(position)) {
            Ok(found) => found,
            Err(Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let end = seek(&self.file, SeekFrom::Hole(found))?;
        let start = found / BLOCK_BYTES * BLOCK_BYTES;
        let end = end.next_multiple_of(BLOCK_BYTES);
        Ok(Some(Extent::between(start, end)))
    }

    /// Writes a block where there is a hole.
    fn fill(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match is_zeros(bytes) {
            true => Ok(()),
            false => self.file.write_all_at(bytes, offset),
        }
    }

    /// Makes what is in the file at `data` what these blocks, of which the next one is there or
    /// behind it, say.
    fn change<'i>(
        &mut self,
        data: Extent,
        blocks: &mut Peekable<impl Iterator<Item = (u64, &'i [u8])>>,
    ) -> io::Result<()> {
        let mut holes = ExtentSet::new();
        let mut offset = data.offset;
        while offset < data.end() {
            let len = READ_BYTES.min(data.end() - offset);
            let read = &mut self.read[..len as usize];
            self.file.read_exact_at(read, offset)?;
            for (at, found) in (0..).zip(read.chunks(BLOCK_BYTES as usize)) {
                let at = offset + at * BLOCK_BYTES;
                match blocks.next_if(|(offset, _)| *offset == at) {
                    Some((_, bytes)) if bytes == found => {}
                    Some((_, bytes)) if !is_zeros(bytes) => self.file.write_all_at(bytes, at)?,
                    _ => holes.insert(Extent::new(at, BLOCK_BYTES)),
                }
            }
            offset += len;
        }
        for hole in holes.iter() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.file, flags, hole.offset, hole.len)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCKS: u64 = 600;
    const LEN: u64 = BLOCKS * BLOCK_BYTES;

    /// A file without a name where files are in memory, or else on a disk.
    fn file() -> File {
        let places = ["/dev/shm".into(), std::env::temp_dir()];
        let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let mut files = places
            .iter()
            .filter_map(|place: &std::path::PathBuf| rustix::fs::open(place, flags, mode).ok());
        files.next().expect("a file without a name").into()
    }

    fn content(file: &File) -> Vec<u8> {
        let mut bytes = vec![1; LEN as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn content_of(image: &Image) -> Vec<u8> {
        let mut bytes = vec![1; LEN as usize];
        image.read_at(0, &mut bytes);
        bytes
    }

    /// Where something is written, how long it is, and what: zeros, too.
    fn writes() -> impl Strategy<Value = Vec<(u64, usize, u8)>> {
        prop::collection::vec((0..LEN - 40_000, 1..40_000usize, 0..4u8), 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_file_is_each_state_in_its_turn_whatever_was_done_to_it_meanwhile(
            states in prop::collection::vec((writes(), writes(), 0..BLOCKS), 1..5),
        ) {
            let file = file();
            let mut held = StateFile::new(file.try_clone().unwrap(), LEN).unwrap();
            let mut image = Image::new(LEN);
            for (of_state, of_recovery, hole) in states {
                for (offset, len, byte) in of_state {
                    image.write_at(offset, &vec![byte; len]);
                }
                held.load(&image).unwrap();
                prop_assert!(content(&file) == content_of(&image));
                for (offset, len, byte) in of_recovery {
                    file.write_all_at(&vec![byte; len], offset).unwrap();
                }
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let (start, len) = (hole * BLOCK_BYTES, 30 * BLOCK_BYTES);
                fallocate(&file, flags, start, len.min(LEN - start)).unwrap();
            }
        }
    }

    #[test]
    fn what_is_zeros_in_a_state_takes_no_memory() {
        use std::os::unix::fs::MetadataExt;
        let file = file();
        let mut held = StateFile::new(file.try_clone().unwrap(), LEN).unwrap();
        let mut image = Image::new(LEN);
        image.write_at(0, &vec![7; LEN as usize / 2]);
        held.load(&image).unwrap();
        assert!(file.metadata().unwrap().blocks() >= LEN / 2 / 512);
        image.write_at(0, &vec![0; LEN as usize / 2]);
        image.write_at(LEN - BLOCK_BYTES, &[1]);
        held.load(&image).unwrap();
        assert!(file.metadata().unwrap().blocks() <= 64);
        assert_eq!(content(&file), content_of(&image));
    }
}
