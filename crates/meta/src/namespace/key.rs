//! Where in an engine a namespace lies. Drawn in `docs/formats/namespace.md`.
//!
//! Numbers in keys are big-endian, because an engine orders keys by their bytes: the entries of a
//! directory are one range, in the order of their cookies.

use crate::KeyRange;
use base::{Name, RequestId, SessionId, VolumeId};

/// First byte of every key of every namespace.
const NAMESPACE: u8 = b'n';
/// The number under which the catalogue of volumes lies.
const CATALOGUE: u32 = 0;
const NUMBER_BYTES: usize = size_of::<u64>();

/// Makes the keys of one volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// The volume's number within its engine.
    pub(super) number: u32,
}

impl Keys {
    /// Where the catalogue says which number a volume has.
    pub(super) fn volume(volume: VolumeId) -> Vec<u8> {
        let mut key = Self { number: CATALOGUE }.tagged(b'v');
        key.extend(volume.0);
        key
    }

    /// All volumes of the catalogue.
    pub(super) fn volumes() -> KeyRange {
        KeyRange::prefix(Self { number: CATALOGUE }.tagged(b'v'))
    }

    fn tagged(self, tag: u8) -> Vec<u8> {
        let mut key = Vec::with_capacity(48);
        key.push(NAMESPACE);
        key.extend(big_endian(self.number.into()).split_at(4).1);
        key.push(tag);
        key
    }

    fn numbered(self, tag: u8, number: u64) -> Vec<u8> {
        let mut key = self.tagged(tag);
        key.extend(big_endian(number));
        key
    }

    /// What does not change in a volume's life.
    pub(super) fn constants(self) -> Vec<u8> {
        self.tagged(b'c')
    }

    /// The last batch of changes.
    pub(super) fn head(self, batch: u64) -> Vec<u8> {
        self.numbered(b'h', batch)
    }

    /// A name in a directory, by the hash of the name.
    pub(super) fn name(self, directory: u64, hash: u64, name: &Name) -> Vec<u8> {
        let mut key = self.numbered(b'd', directory);
        key.extend(big_endian(hash));
        key.extend(name.as_bytes());
        key
    }

    /// The names of a directory whose hashes are greater than `after`.
    pub(super) fn names_after(self, directory: u64, after: u64) -> KeyRange {
        let mut start = self.numbered(b'd', directory);
        start.extend(big_endian(after.saturating_add(1)));
        KeyRange::new(start, self.numbered(b'd', directory + 1))
    }

    /// Where an inode lies.
    pub(super) fn inode(self, inode: u64) -> Vec<u8> {
        self.numbered(b'i', inode)
    }

    /// An inode's extended attributes.
    pub(super) fn xattrs(self, inode: u64) -> Vec<u8> {
        self.numbered(b'x', inode)
    }

    /// An inode's rich ACL, if it does not lie in the inode.
    pub(super) fn list(self, inode: u64) -> Vec<u8> {
        self.numbered(b'a', inode)
    }

    /// An edit of a rich ACL in words; under 0, how many there were.
    pub(super) fn edit(self, number: u64) -> Vec<u8> {
        self.numbered(b'e', number)
    }

    /// That an inode has no name and may be open.
    pub(super) fn orphan(self, inode: u64) -> Vec<u8> {
        self.numbered(b'o', inode)
    }

    /// Something that stores have to do.
    pub(super) fn chore(self, number: u64) -> Vec<u8> {
        self.numbered(b'w', number)
    }

    /// A store.
    pub(super) fn target(self, number: u16) -> Vec<u8> {
        self.numbered(b't', number.into())
    }

    /// What a request has done.
    pub(super) fn outcome(self, session: SessionId, request: RequestId) -> Vec<u8> {
        let mut key = self.tagged(b'r');
        key.extend(session.0);
        key.extend(big_endian(request.0));
        key
    }

    /// All keys with a tag.
    pub(super) fn all(self, tag: u8) -> KeyRange {
        KeyRange::prefix(self.tagged(tag))
    }

    /// All keys of the volume.
    pub(super) fn whole(self) -> KeyRange {
        let mut all = self.tagged(0);
        all.pop();
        KeyRange::prefix(all)
    }
}

/// Bytes before what [`Keys::tagged`] is followed by.
pub(super) const HEAD_BYTES: usize = 6;

/// A key taken apart behind the volume's number: its tag and the rest.
pub(super) fn parts(key: &[u8]) -> Option<(u8, &[u8])> {
    let (head, rest) = key.split_at_checked(HEAD_BYTES)?;
    Some((head[HEAD_BYTES - 1], rest))
}

/// The number at the beginning, and what follows.
pub(super) fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_at_checked(NUMBER_BYTES)?;
    let number = number
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Some((number, rest))
}

/// Directory, hash and name of a key that [`Keys::name`] made.
pub(super) fn name_parts(key: &[u8]) -> Option<(u64, u64, Name)> {
    let (_, rest) = parts(key)?;
    let (directory, rest) = number(rest)?;
    let (hash, rest) = number(rest)?;
    Some((directory, hash, Name::new(rest).ok()?))
}

#[expect(
    clippy::big_endian_bytes,
    reason = "keys are ordered by their bytes, and are to be in the order of their numbers"
)]
fn big_endian(number: u64) -> [u8; NUMBER_BYTES] {
    number.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_numbers_and_come_apart_again() {
        let keys = Keys { number: 7 };
        let name = Name::new("a name").unwrap();
        let key = keys.name(3, 1 << 40, &name);
        assert!(keys.names_after(3, (1 << 40) - 1).contains(&key));
        assert!(!keys.names_after(3, 1 << 40).contains(&key));
        assert!(!keys.names_after(2, 0).contains(&key));
        assert!(keys.name(3, 255, &name) < keys.name(3, 256, &name));
        assert_eq!(name_parts(&key), Some((3, 1 << 40, name)));
        assert!(keys.whole().contains(&key) && keys.all(b'd').contains(&key));
        assert!(!Keys { number: 8 }.whole().contains(&key));
        assert_eq!(
            parts(&keys.inode(9)).unwrap(),
            (b'i', &[0, 0, 0, 0, 0, 0, 0, 9][..])
        );
        assert_eq!(number(&[1, 0]), None);
    }
}
