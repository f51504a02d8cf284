//! Pages of a directory's listing, filled record by record up to the room that the kernel has.

use super::abi::output::{Dirent, DirentPlus, EntryOut};
use super::answer::Entry;
use super::convert::dirent_kind;
use base::FileKind;
use zerocopy::IntoBytes;

/// Records begin at multiples of this.
const ALIGNMENT: usize = 8;
/// A page is not larger than the kernel's largest request, whatever a size claims.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// A page of entries, for [`Operation::ReadDir`](super::Operation::ReadDir).
#[derive(Debug)]
pub struct DirectoryBuilder {
    page: Page,
}

impl DirectoryBuilder {
    /// An empty page with room for `size` bytes, as the request says.
    #[must_use]
    pub fn new(size: u32) -> Self {
        Self {
            page: Page::new(size),
        }
    }

    /// Adds an entry; `offset` is where the listing goes on after it. True if there is no room and
    /// it was not added: the page is full.
    #[must_use]
    pub fn add(&mut self, ino: u64, offset: u64, kind: FileKind, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        self.page
            .add(dirent(ino, offset, kind, name).as_bytes(), name)
    }

    /// Whether nothing was added, which tells the kernel that the listing has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.page.bytes.is_empty()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.page.bytes
    }
}

/// A page of entries with attributes, for
/// [`Operation::ReadDirPlus`](super::Operation::ReadDirPlus).
#[derive(Debug)]
pub struct DirectoryPlusBuilder {
    page: Page,
}

impl DirectoryPlusBuilder {
    /// An empty page with room for `size` bytes, as the request says.
    #[must_use]
    pub fn new(size: u32) -> Self {
        Self {
            page: Page::new(size),
        }
    }

    /// Adds an entry, which counts as one lookup of its inode. `offset` is where the listing goes
    /// on after it. True if there is no room and it was not added (and does not count).
    #[must_use]
    pub fn add(&mut self, entry: &Entry, offset: u64, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        let record = DirentPlus {
            entry: entry.to_abi(),
            dirent: dirent(entry.attr.ino, offset, entry.attr.kind, name),
        };
        self.page.add(record.as_bytes(), name)
    }

    /// Adds an entry without attributes and without a lookup: `.` and `..` must be added so.
    #[must_use]
    pub fn add_bare(
        &mut self,
        ino: u64,
        offset: u64,
        kind: FileKind,
        name: impl AsRef<[u8]>,
    ) -> bool {
        let name = name.as_ref();
        let record = DirentPlus {
            entry: EntryOut::default(),
            dirent: dirent(ino, offset, kind, name),
        };
        self.page.add(record.as_bytes(), name)
    }

    /// Whether nothing was added, which tells the kernel that the listing has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.page.bytes.is_empty()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.page.bytes
    }
}

#[derive(Debug)]
struct Page {
    bytes: Vec<u8>,
    room: usize,
}

impl Page {
    fn new(size: u32) -> Self {
        let room = usize::try_from(size).map_or(PAGE_BYTES_MAX, |size| size.min(PAGE_BYTES_MAX));
        Self {
            bytes: Vec::with_capacity(room),
            room,
        }
    }

    fn add(&mut self, record: &[u8], name: &[u8]) -> bool {
        let len = (record.len() + name.len()).next_multiple_of(ALIGNMENT);
        let end = self.bytes.len() + len;
        if end > self.room {
            return true;
        }
        self.bytes.extend_from_slice(record);
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        false
    }
}

fn dirent(ino: u64, offset: u64, kind: FileKind, name: &[u8]) -> Dirent {
    let name_len = u32::try_from(name.len()).expect("a name has at most 255 bytes");
    Dirent {
        ino,
        offset,
        name_len,
        kind: dirent_kind(kind),
    }
}
