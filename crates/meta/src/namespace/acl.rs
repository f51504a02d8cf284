//! POSIX ACLs as Linux has them: their bytes, what they allow, how they and a mode follow each
//! other. The rules are those of the kernel's `posix_acl.c` and are told here in its order, because
//! that is what decides (POSIX 1003.1e draft 17, sections 23.1.5 and 23.1.7).

use base::limits::NAMESPACE_ACL_ENTRIES_MAX;
use base::{FsError, Principal};
use serde::{Deserialize, Serialize};

/// The version of the kernel's extended attribute.
const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// What entries without a user or group have in that field, and nobody's number.
const NOBODY: u32 = u32::MAX;

/// Whom an entry speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) enum Who {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Others,
}

/// One entry: whom it speaks of, and 4 read | 2 write | 1 execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) who: Who,
    pub(super) bits: u8,
}

/// A valid ACL, in the kernel's order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Acl(Vec<Entry>);

impl Acl {
    /// The value of an extended attribute; `None` for one without entries, which removes the ACL.
    ///
    /// # Errors
    /// As setxattr(2): [`FsError::Invalid`], [`FsError::NotSupported`] for another version.
    pub(super) fn decode(value: &[u8]) -> Result<Option<Self>, FsError> {
        let (version, entries) = value.split_at_checked(HEAD_BYTES).ok_or(FsError::Invalid)?;
        if version != VERSION.to_le_bytes() {
            return Err(FsError::NotSupported);
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(FsError::Invalid);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        if entries.len() > NAMESPACE_ACL_ENTRIES_MAX {
            return Err(FsError::NoSpace);
        }
        let entries = entries.iter().map(decode_entry);
        Ok(Some(Self(entries.collect::<Result<_, _>>()?)))
    }

    /// As the extended attribute.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, id): (u16, u32) = match entry.who {
                Who::Owner => (0x01, NOBODY),
                Who::User(uid) => (0x02, uid),
                Who::OwningGroup => (0x04, NOBODY),
                Who::Group(gid) => (0x08, gid),
                Who::Mask => (0x10, NOBODY),
                Who::Others => (0x20, NOBODY),
            };
            value.extend(tag.to_le_bytes());
            value.extend(u16::from(entry.bits).to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// Whether the entries are in order and complete.
    ///
    /// # Errors
    /// [`FsError::Invalid`].
    pub(super) fn check(&self) -> Result<(), FsError> {
        // The kernel goes through the kinds one after the other; several users or groups follow in
        // any order. It does not look for doubles.
        let mut next = 0;
        let mut has_named = false;
        for entry in &self.0 {
            if entry.bits > 7 {
                return Err(FsError::Invalid);
            }
            let (allowed, after) = match entry.who {
                Who::Owner => (next == 0, 1),
                Who::User(_) => (next == 1, 1),
                Who::OwningGroup => (next == 1, 2),
                Who::Group(_) => (next == 2, 2),
                Who::Mask => (next == 2, 3),
                Who::Others => (next == 3 || (next == 2 && !has_named), 4),
            };
            has_named |= matches!(entry.who, Who::User(_) | Who::Group(_));
            if !allowed {
                return Err(FsError::Invalid);
            }
            next = after;
        }
        match next == 4 {
            true => Ok(()),
            false => Err(FsError::Invalid),
        }
    }

    /// Whether `who` may do all of `wanted` with an inode of this owner and group. Root is not
    /// thought of here.
    pub(super) fn allows(&self, owner: u32, group: u32, who: &Principal, wanted: u8) -> bool {
        let grants = |bits: u8| bits & wanted == wanted;
        let mut is_in_a_group = false;
        for (index, entry) in self.0.iter().enumerate() {
            match entry.who {
                Who::Owner if who.uid == owner => return grants(entry.bits),
                Who::User(uid) if who.uid == uid => return self.masked(index, wanted),
                Who::OwningGroup if who.is_member(group) => is_in_a_group = true,
                Who::Group(gid) if who.is_member(gid) => is_in_a_group = true,
                Who::Others => return !is_in_a_group && grants(entry.bits),
                _ => continue,
            }
            if grants(entry.bits) {
                return self.masked(index, wanted);
            }
        }
        false
    }

    /// Whether the entry at `index` grants what is wanted under the mask behind it, if any.
    fn masked(&self, index: usize, wanted: u8) -> bool {
        let mask = self.0[index + 1..]
            .iter()
            .find(|entry| entry.who == Who::Mask);
        let mask = mask.map_or(7, |mask| mask.bits);
        self.0[index].bits & mask & wanted == wanted
    }

    /// Permission bits that say the same, and whether they say all.
    pub(super) fn mode(&self) -> (u16, bool) {
        let mut mode = 0;
        let mut says_all = true;
        let mut mask = None;
        for entry in &self.0 {
            let bits = u16::from(entry.bits);
            match entry.who {
                Who::Owner => mode |= bits << 6,
                Who::OwningGroup => mode |= bits << 3,
                Who::Others => mode |= bits,
                Who::Mask => mask = Some(bits),
                Who::User(_) | Who::Group(_) => says_all = false,
            }
        }
        if let Some(mask) = mask {
            return (mode & !0o070 | mask << 3, false);
        }
        (mode, says_all)
    }

    /// The ACL after a change of the mode.
    pub(super) fn with_mode(&self, mode: u16) -> Self {
        let mut after = self.clone();
        let has_mask = self.0.iter().any(|entry| entry.who == Who::Mask);
        let bits = |shift: u16| (mode >> shift & 7) as u8;
        for entry in &mut after.0 {
            match entry.who {
                Who::Owner => entry.bits = bits(6),
                Who::Mask => entry.bits = bits(3),
                Who::OwningGroup if !has_mask => entry.bits = bits(3),
                Who::Others => entry.bits = bits(0),
                _ => {}
            }
        }
        after
    }

    /// What an inode that is made with `mode` gets from its directory's default ACL: an ACL, if the
    /// mode alone does not say it, and its mode.
    pub(super) fn inherited(&self, mode: u16) -> (Option<Self>, u16) {
        let mut acl = self.clone();
        let has_mask = self.0.iter().any(|entry| entry.who == Who::Mask);
        let mut permissions = mode & 0o777;
        let mut needs_acl = false;
        for entry in &mut acl.0 {
            let shift = match entry.who {
                Who::Owner => 6,
                Who::Mask => 3,
                Who::OwningGroup if !has_mask => 3,
                Who::Others => 0,
                _ => {
                    needs_acl |= entry.who != Who::OwningGroup;
                    continue;
                }
            };
            needs_acl |= entry.who == Who::Mask;
            entry.bits &= (permissions >> shift & 7) as u8;
            permissions = permissions & !(7 << shift) | u16::from(entry.bits) << shift;
        }
        (needs_acl.then_some(acl), mode & !0o777 | permissions)
    }
}

fn decode_entry(bytes: &[u8; ENTRY_BYTES]) -> Result<Entry, FsError> {
    let tag = u16::from_le_bytes([bytes[0], bytes[1]]);
    let bits = u16::from_le_bytes([bytes[2], bytes[3]]);
    let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let who = match tag {
        0x01 => Who::Owner,
        0x02 if id != NOBODY => Who::User(id),
        0x04 => Who::OwningGroup,
        0x08 if id != NOBODY => Who::Group(id),
        0x10 => Who::Mask,
        0x20 => Who::Others,
        _ => return Err(FsError::Invalid),
    };
    // Too many bits are refused by `check`, after the question who asks.
    let bits = u8::try_from(bits).unwrap_or(u8::MAX);
    Ok(Entry { who, bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(Who, u8)]) -> Acl {
        Acl(entries
            .iter()
            .map(|(who, bits)| Entry {
                who: *who,
                bits: *bits,
            })
            .collect())
    }

    fn named() -> Acl {
        acl(&[
            (Who::Owner, 6),
            (Who::User(7), 7),
            (Who::OwningGroup, 4),
            (Who::Mask, 5),
            (Who::Others, 0),
        ])
    }

    #[test]
    fn an_acl_is_its_bytes() {
        let value = named().encode();
        assert_eq!(value.len(), 4 + 5 * 8);
        assert_eq!(Acl::decode(&value), Ok(Some(named())));
        assert_eq!(Acl::decode(&value[..4]), Ok(None));
        assert_eq!(Acl::decode(&value[..5]), Err(FsError::Invalid));
        assert_eq!(Acl::decode(&[3, 0, 0, 0]), Err(FsError::NotSupported));
    }

    #[test]
    fn the_order_is_checked() {
        assert_eq!(named().check(), Ok(()));
        let plain = [(Who::Owner, 6), (Who::OwningGroup, 4), (Who::Others, 0)];
        assert_eq!(acl(&plain).check(), Ok(()));
        for missing in 0..3 {
            let mut entries = plain.to_vec();
            entries.remove(missing);
            assert!(acl(&entries).check().is_err(), "{missing}");
        }
        let mut without_mask = named();
        without_mask.0.remove(3);
        assert!(without_mask.check().is_err());
        let mut swapped = named();
        swapped.0.swap(1, 2);
        assert!(swapped.check().is_err());
    }

    #[test]
    fn the_mask_bounds_all_but_owner_and_others() {
        let who = |uid, gid| Principal::alone(uid, gid);
        assert!(named().allows(1, 2, &who(1, 9), 6));
        assert!(named().allows(1, 2, &who(7, 9), 5));
        assert!(!named().allows(1, 2, &who(7, 9), 2));
        assert!(named().allows(1, 2, &who(8, 2), 4));
        assert!(!named().allows(1, 2, &who(8, 9), 4));
        assert_eq!(named().mode(), (0o650, false));
    }

    #[test]
    fn an_inherited_acl_is_cut_by_the_mode() {
        let (inherited, mode) = named().inherited(0o2640);
        let inherited = inherited.expect("it has a user of its own");
        assert_eq!((inherited.mode().0, mode), (0o640, 0o2640));
        let plain = acl(&[(Who::Owner, 7), (Who::OwningGroup, 5), (Who::Others, 0)]);
        assert_eq!(plain.inherited(0o666), (None, 0o640));
        assert_eq!(named().with_mode(0o704).mode().0, 0o704);
    }
}
