//! The records of a namespace and their bytes: postcard, as drawn in `docs/formats/namespace.md`.
//!
//! An inode with one name lies in the entry of that name: a page of a directory brings all that a
//! listing with attributes needs, and creating a file writes two entries, the name with the inode
//! and where the inode is. Times are differences to the birth of the inode, so those of a new file
//! take a byte each.

use super::acl::Acl;
use super::appends::{Appends, ShownAppends};
use super::layout::{Layout, Target};
use super::rich::{Rich, StoredList};
use super::space::Space;
use crate::MetaError;
use base::{Attributes, FileKind, Name, RequestId, Timestamp, VolumeId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::sync::Arc;

/// Version of the records; the history is in `docs/formats/namespace.md`.
pub const NAMESPACE_FORMAT_VERSION: u64 = 5;
/// The oldest version that is read; a volume of it is of the newest once it has been opened.
pub(super) const OLDEST_FORMAT_VERSION: u64 = 1;

/// The inode number of the top directory.
pub(super) const ROOT: u64 = 1;
/// What a directory says it takes, as ext4 does for a small one.
const DIRECTORY_BYTES: u64 = 4096;
const BLOCK_BYTES: u64 = 512;
const NANOS: i128 = 1_000_000_000;

/// Small numbers; copies share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(pub Arc<[u16]>);

impl FromIterator<u16> for Numbers {
    fn from_iter<I: IntoIterator<Item = u16>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(|numbers| Self(numbers.into()))
    }
}

/// What an inode has beside attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    /// Of a pipe or socket.
    Nothing,
    /// How many names a directory has.
    Directory(u64),
    /// Size and layout of a file.
    File(u64, Layout),
    /// Target of a symbolic link.
    Link(Vec<u8>),
    /// Number of a device.
    Device(u64),
    /// Size, layout and space of a file that is not dense. Only as it is stored: in memory, the
    /// space lies beside.
    Sparse(Box<(u64, Layout, Space)>),
    /// Size, layout, space and places of a file that was appended to. Only as it was stored before
    /// version 4.
    ShownAppended(Box<(u64, Layout, Option<Space>, ShownAppends)>),
    /// The same, with which places are shown. Only as it is stored, too.
    Appended(Box<(u64, Layout, Option<Space>, Appends)>),
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) number: u64,
    /// Different in each run of a manager, should an engine be set back to an older state.
    pub(super) generation: u32,
    pub(super) kind: FileKind,
    pub(super) mode: u16,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
    pub(super) created: Timestamp,
    /// Whether there is a record of extended attributes.
    pub(super) has_xattrs: bool,
    pub(super) access: Option<Box<Acl>>,
    pub(super) default: Option<Box<Acl>>,
    /// If a rich ACL is its truth.
    pub(super) rich: Option<Rich>,
    pub(super) content: Content,
    /// Of a file that has holes, or space behind its end.
    pub(super) space: Option<Box<Space>>,
    /// Of a file that was appended to.
    pub(super) appends: Option<Box<Appends>>,
}

impl Inode {
    /// Notes what has become of a file's appends.
    pub(super) fn note_appends<T>(&mut self, note: impl FnOnce(&mut Appends) -> T) -> T {
        let mut appends = self.appends.take().unwrap_or_default();
        let noted = note(&mut appends);
        self.appends = (!appends.is_idle()).then_some(appends);
        noted
    }

    /// How long a file is for everybody that has so many bytes with the places of its appends.
    fn shown_size(&self, size: u64) -> u64 {
        let appends = self.appends.as_ref();
        appends.map_or(size, |appends| appends.shown_size(size))
    }

    /// Somebody has made a file so long whatever becomes of the appends before that: if it ends
    /// with the last of these, it does so also if that is given up.
    pub(super) fn keep(&mut self, end: u64) {
        let ends_there = matches!(self.content, Content::File(size, _) if size == end);
        if ends_there && self.last_before(end, u64::MAX).is_some() {
            self.note_appends(|appends| appends.show(end, u64::MAX));
        }
    }

    /// The last of the appends, of those with places up to `through`, for which whoever makes a
    /// file so long has to wait.
    pub(super) fn last_before(&self, end: u64, through: u64) -> Option<u64> {
        self.appends.as_ref()?.last_before(end, through)
    }

    /// Notes what has become of a file's space; `before` is the size that it had.
    pub(super) fn note_space(&mut self, before: u64, note: impl FnOnce(&mut Space)) {
        let Content::File(size, _) = &self.content else {
            return;
        };
        let mut space = match self.space.take() {
            Some(space) => *space,
            None => Space::dense(before),
        };
        note(&mut space);
        self.space = (!space.is_dense(*size)).then(|| Box::new(space));
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether there is a record of a rich ACL.
    pub(super) fn has_list_apart(&self) -> bool {
        matches!(self.rich, Some(Rich::Apart))
    }

    pub(super) fn attributes(&self) -> Attributes {
        let (mut size, mut blocks, mut device) = (0, 0, 0);
        match &self.content {
            Content::Nothing
            | Content::Sparse(..)
            | Content::ShownAppended(..)
            | Content::Appended(..) => {}
            Content::Directory(_) => {
                size = DIRECTORY_BYTES;
                blocks = DIRECTORY_BYTES / BLOCK_BYTES;
            }
            Content::File(bytes, layout) => {
                size = self.shown_size(*bytes);
                blocks = match &self.space {
                    None => layout.blocks(size),
                    Some(space) => {
                        let all = layout.blocks(space.end().max(*bytes));
                        all.saturating_sub(space.hole_bytes(layout.unit_log2) / BLOCK_BYTES)
                    }
                };
            }
            Content::Link(target) => size = target.len() as u64,
            Content::Device(number) => device = *number,
        }
        let unit = match &self.content {
            Content::File(_, layout) => 1u32.checked_shl(layout.unit_log2.into()),
            _ => None,
        };
        Attributes {
            kind: self.kind,
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            inode: self.number,
            device,
            size,
            blocks,
            block_size: unit.unwrap_or(4096),
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            created: Some(self.created),
            protected: false,
        }
    }
}

/// An inode as it is stored.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredInode<'a> {
    number: u64,
    generation: u32,
    kind: FileKind,
    mode: u16,
    links: u32,
    uid: u32,
    gid: u32,
    /// Nanoseconds since 1970; the other times count from here.
    created: i128,
    accessed: i128,
    modified: i128,
    changed: i128,
    has_xattrs: bool,
    access: Option<Cow<'a, Acl>>,
    default: Option<Cow<'a, Acl>>,
    content: Cow<'a, Content>,
}

pub(super) fn nanos(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NANOS + i128::from(time.nanos)
}

pub(super) fn timestamp(nanos: i128) -> Timestamp {
    let seconds = nanos
        .div_euclid(NANOS)
        .clamp(i64::MIN.into(), i64::MAX.into());
    Timestamp {
        seconds: i64::try_from(seconds).expect("it is within its bounds"),
        nanos: u32::try_from(nanos.rem_euclid(NANOS)).expect("it is below a second"),
    }
}

impl<'a> StoredInode<'a> {
    pub(super) fn of(inode: &'a Inode) -> Self {
        let created = nanos(inode.created);
        let since = |time| nanos(time) - created;
        Self {
            number: inode.number,
            generation: inode.generation,
            kind: inode.kind,
            mode: inode.mode,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            created,
            accessed: since(inode.accessed),
            modified: since(inode.modified),
            changed: since(inode.changed),
            has_xattrs: inode.has_xattrs,
            access: inode.access.as_deref().map(Cow::Borrowed),
            default: inode.default.as_deref().map(Cow::Borrowed),
            content: match (&inode.content, &inode.space, &inode.appends) {
                (Content::File(size, layout), space, Some(appends)) => {
                    let space = space.as_deref().cloned();
                    let appended = (*size, layout.clone(), space, (**appends).clone());
                    Cow::Owned(Content::Appended(Box::new(appended)))
                }
                (Content::File(size, layout), Some(space), None) => {
                    let sparse = (*size, layout.clone(), (**space).clone());
                    Cow::Owned(Content::Sparse(Box::new(sparse)))
                }
                (content, _, _) => Cow::Borrowed(content),
            },
        }
    }

    /// With the rich ACL that is stored behind it.
    pub(super) fn with(self, list: StoredList<'_>) -> Inode {
        Inode {
            rich: Some(list.rich()),
            ..self.inode()
        }
    }

    pub(super) fn inode(self) -> Inode {
        let time = |since: i128| timestamp(self.created.saturating_add(since));
        let acl = |acl: Option<Cow<'_, Acl>>| acl.map(|acl| Box::new(acl.into_owned()));
        let (content, space, appends) = match self.content.into_owned() {
            Content::Sparse(sparse) => {
                let (size, layout, space) = *sparse;
                (Content::File(size, layout), Some(space), None)
            }
            Content::ShownAppended(appended) => {
                let (size, layout, space, appends) = *appended;
                (Content::File(size, layout), space, Some(appends.into()))
            }
            Content::Appended(appended) => {
                let (size, layout, space, appends) = *appended;
                (Content::File(size, layout), space, Some(appends))
            }
            content => (content, None, None),
        };
        Inode {
            number: self.number,
            generation: self.generation,
            kind: self.kind,
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            accessed: time(self.accessed),
            modified: time(self.modified),
            changed: time(self.changed),
            created: time(0),
            has_xattrs: self.has_xattrs,
            access: acl(self.access),
            default: acl(self.default),
            rich: None,
            content,
            space: space.map(Box::new),
            appends: appends.map(Box::new),
        }
    }
}

/// What lies at a name.
#[derive(Serialize, Deserialize)]
pub(super) enum StoredName<'a> {
    /// The inode; it has no other name.
    Inode(StoredInode<'a>),
    /// The number and kind of one that may have several.
    Reference(u64, FileKind),
    /// As `Inode`, with a rich ACL.
    Rich(StoredInode<'a>, StoredList<'a>),
}

/// What lies at the number of an inode.
#[derive(Serialize, Deserialize)]
pub(super) enum StoredPlace<'a> {
    /// It lies at this name in this directory.
    At(u64, Name),
    /// It lies here: the top directory, inodes of several names, of none.
    Here(StoredInode<'a>),
    /// As `Here`, with a rich ACL.
    RichHere(StoredInode<'a>, StoredList<'a>),
}

impl StoredPlace<'_> {
    /// The inode, if it lies here.
    pub(super) fn here(self) -> Option<Inode> {
        match self {
            Self::At(..) => None,
            Self::Here(inode) => Some(inode.inode()),
            Self::RichHere(inode, list) => Some(inode.with(list)),
        }
    }
}

impl Inode {
    /// The record of a name at which it lies.
    pub(super) fn name_entry(&self) -> Vec<u8> {
        let stored = StoredInode::of(self);
        encode(&match &self.rich {
            None => StoredName::Inode(stored),
            Some(rich) => StoredName::Rich(stored, rich.stored()),
        })
    }

    /// Its record if it lies by itself.
    pub(super) fn own_entry(&self) -> Vec<u8> {
        let stored = StoredInode::of(self);
        encode(&match &self.rich {
            None => StoredPlace::Here(stored),
            Some(rich) => StoredPlace::RichHere(stored, rich.stored()),
        })
    }
}

/// Where an inode lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    At(u64, Name),
    Here,
}

/// What does not change in a volume's life.
#[derive(Serialize, Deserialize)]
pub(super) struct Constants {
    pub(super) version: u64,
    pub(super) volume: VolumeId,
    /// Of the hashes of names: nobody outside can make many names with one hash.
    pub(super) hash_key: [u8; 32],
}

/// What every batch of changes writes anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// The next inode, object or chore.
    pub(super) next: u64,
    /// Inodes.
    pub(super) inodes: u64,
    /// The latest time that was given to a change.
    pub(super) now: i128,
}

/// Something that stores have to do because of a change, which may happen more than once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chore {
    /// The objects of a layout are not needed any more.
    Delete(Layout),
    /// A new generation of a file's layout has begun. Its objects are cut, and take nothing of
    /// older ones any more: what lies behind is not to come back.
    Cut {
        /// The inode, whose data is not read or written until that is done.
        inode: u64,
        /// Where it lies, of the new generation.
        layout: Layout,
        /// How long it was at most since the one before.
        size: u64,
    },
}

/// What a step of a request has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Done {
    /// It made an inode or gave it a name.
    Made(u64),
    /// It took a name away.
    Removed,
    /// It changed names.
    Renamed,
    /// It changed an inode.
    Changed,
    /// It made a file longer: from where on. Written by version 1 only.
    Extended(u64),
    /// It gave an append its place: which, under which generation, from where on.
    Placed(u64, u64, u64),
}

/// What a request has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// When, in nanoseconds since 1970.
    pub(super) at: i128,
    /// Steps and what they have done, in the order of the steps.
    pub(super) steps: Vec<(u8, Done)>,
}

/// An inode's extended attributes but its ACLs, in the order of their names.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The bytes of a record.
pub(super) fn encode(record: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(record).expect("a record in memory can be written to memory")
}

/// A record from its bytes.
pub(super) fn decode<'a, T: Deserialize<'a>>(
    what: &'static str,
    bytes: &'a [u8],
) -> Result<T, MetaError> {
    match postcard::take_from_bytes(bytes) {
        Ok((record, [])) => Ok(record),
        Ok(_) => Err(MetaError::Damaged(format!("bytes behind {what}"))),
        Err(error) => Err(MetaError::Damaged(format!("{what}: {error}"))),
    }
}

/// A store's record.
pub(super) fn decode_target(bytes: &[u8]) -> Result<Target, MetaError> {
    decode("a store", bytes)
}

/// A request of a session, within a key.
pub(super) fn request(number: u64) -> RequestId {
    RequestId(number)
}

#[cfg(test)]
mod tests {
    use super::super::layout::Striping;
    use super::*;

    fn inode() -> Inode {
        let born = Timestamp {
            seconds: 1_900_000_000,
            nanos: 123_456_789,
        };
        let striping = Striping {
            unit_log2: 20,
            width: 4,
            targets: (0..8).collect(),
        };
        Inode {
            number: 1_000_000,
            generation: 77,
            kind: FileKind::File,
            mode: 0o644,
            links: 1,
            uid: 1000,
            gid: 1000,
            accessed: born,
            modified: born,
            changed: born,
            created: born,
            has_xattrs: false,
            access: None,
            default: None,
            rich: None,
            content: Content::File(0, striping.layout(1_000_000)),
            space: None,
            appends: None,
        }
    }

    #[test]
    fn a_record_is_its_bytes_and_a_new_file_takes_few() {
        let mut inode = inode();
        let bytes = encode(&StoredName::Inode(StoredInode::of(&inode)));
        assert!(bytes.len() <= 48, "{} bytes", bytes.len());
        inode.accessed.seconds = -5;
        inode.modified.seconds = i64::MAX;
        inode.changed = Timestamp {
            seconds: i64::MIN,
            nanos: 999_999_999,
        };
        let bytes = encode(&StoredName::Inode(StoredInode::of(&inode)));
        match decode("a name", &bytes).unwrap() {
            StoredName::Inode(stored) => assert_eq!(stored.inode(), inode),
            _ => panic!("it is the inode"),
        }
    }

    #[test]
    fn a_sparse_file_is_its_bytes_and_takes_fewer_blocks() {
        let mut inode = inode();
        inode.note_space(0, |space| space.on_size(0, 100 << 20));
        let Content::File(size, _) = &mut inode.content else {
            panic!("it is a file");
        };
        *size = 100 << 20;
        assert_eq!(inode.attributes().blocks, 0);
        inode.note_space(100 << 20, |space| {
            space.on_present(base::Extent::new(5 << 20, 1));
        });
        assert_eq!(inode.attributes().blocks, 2048);
        let bytes = encode(&StoredName::Inode(StoredInode::of(&inode)));
        match decode("a name", &bytes).unwrap() {
            StoredName::Inode(stored) => assert_eq!(stored.inode(), inode),
            _ => panic!("it is the inode"),
        }
        // A dense one is stored as before.
        inode.note_space(100 << 20, |space| {
            space.on_present(base::Extent::new(0, 100 << 20));
        });
        assert_eq!(inode.space, None);
        assert_eq!(inode.attributes().blocks, 100 << 11);
    }

    #[test]
    fn a_file_that_is_appended_to_is_its_bytes_until_nothing_is_to_be_remembered() {
        let mut inode = inode();
        let dense = encode(&StoredName::Inode(StoredInode::of(&inode)));
        for is_sparse in [false, true] {
            inode.space = is_sparse.then(|| Box::new(Space::dense(7)));
            inode.note_appends(|appends| appends.give(70, base::Extent::new(5, 100)));
            let bytes = encode(&StoredName::Inode(StoredInode::of(&inode)));
            match decode("a name", &bytes).unwrap() {
                StoredName::Inode(stored) => assert_eq!(stored.inode(), inode),
                _ => panic!("it is the inode"),
            }
            inode.note_appends(|appends| {
                appends.on_told(70);
                appends.supersede();
            });
            assert_eq!(inode.appends, None);
        }
        inode.space = None;
        assert_eq!(encode(&StoredName::Inode(StoredInode::of(&inode))), dense);
    }

    /// A file of 30 bytes of which the places 70 (from 5 to 10) and 71 (from 10 to 30) are open.
    #[test]
    fn places_of_versions_2_and_3_are_part_of_the_file() {
        let layout: [u8; 11] = [0xC0, 0x84, 0x3D, 3, 20, 0, 4, 0, 1, 2, 3];
        let places: [u8; 13] = [2, 70, 1, 5, 10, 71, 1, 10, 30, 1, 5, 30, 9];
        let bytes = [[6, 30].as_slice(), &layout, &[0], &places].concat();
        let mut stored = inode();
        stored.content = decode("a file", &bytes).unwrap();
        assert_eq!(encode(&stored.content), bytes);
        let read = |inode: &Inode| {
            let bytes = encode(&StoredName::Inode(StoredInode::of(inode)));
            match decode("a name", &bytes).unwrap() {
                StoredName::Inode(stored) => stored.inode(),
                _ => panic!("it is the inode"),
            }
        };
        let mut file = read(&stored);
        assert_eq!(file.attributes().size, 30);
        assert_eq!(file.last_before(40, u64::MAX), None);
        // From now on they are stored with that, and what comes is waited for.
        file.note_appends(|appends| appends.give(72, base::Extent::new(30, 5)));
        file = read(&file);
        assert_eq!(file.attributes().size, 30);
        assert_eq!(file.last_before(31, u64::MAX), Some(72));
        assert_eq!(file.last_before(35, 71), None);
        assert_eq!(encode(&StoredInode::of(&file).content)[0], 7);
    }

    /// The generation has the place that was the layout's version, which was 0; the object's number
    /// says nothing yet of how identities follow from it.
    #[test]
    fn a_file_of_version_1_is_read() {
        let mut inode = inode();
        let Content::File(_, layout) = &mut inode.content else {
            panic!("it is a file");
        };
        layout.object = layout.number();
        let layout = [0xC0, 0x84, 0x3D, 0, 20, 0, 4, 0, 1, 2, 3];
        let bytes = encode(&inode.content);
        assert_eq!(bytes[2..], layout, "size, and behind it the layout");
        assert_eq!(decode::<Content>("a file", &bytes).unwrap(), inode.content);
    }

    #[test]
    fn what_is_cut_or_longer_is_damaged() {
        let bytes = encode(&StoredPlace::At(7, Name::new("name").unwrap()));
        for cut in 0..bytes.len() {
            assert!(decode::<StoredPlace<'_>>("a place", &bytes[..cut]).is_err());
        }
        let long = [bytes.as_slice(), &[0]].concat();
        assert!(decode::<StoredPlace<'_>>("a place", &long).is_err());
        let reserved = StoredPlace::At(7, Name::new("ab").unwrap());
        let mut reserved = encode(&reserved);
        let last = reserved.len() - 1;
        reserved[last] = b'/';
        assert!(decode::<StoredPlace<'_>>("a place", &reserved).is_err());
    }
}
