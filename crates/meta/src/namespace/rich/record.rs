//! A rich ACL as it is stored with an inode or apart from it, and in memory.
//!
//! Equal lists are one in memory ([`Known`]): in most trees there are far fewer lists than files.

use super::super::acl::Acl;
use super::super::record::encode;
use acl::{RichAcl, Stored, Target};
use base::FsError;
use base::limits::NAMESPACE_RICH_INLINE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Lists in memory from which on it is looked whether somebody still has them.
const SWEEP_AT: usize = 1024;

/// What mode and POSIX ACLs were before there was a rich ACL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::namespace) struct Before {
    /// Permission bits.
    pub(super) mode: u16,
    pub(super) access: Option<Acl>,
    pub(super) default: Option<Acl>,
}

/// The rich ACL of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::namespace) enum Rich {
    /// It lies with the inode.
    Inline(Arc<RichRecord>),
    /// It lies by itself.
    Apart,
}

/// A rich ACL that is the truth.
#[derive(Debug)]
pub(in crate::namespace) struct RichRecord {
    /// As `acl` stores it.
    bytes: Vec<u8>,
    before: Option<Before>,
    /// None if the bytes make no sense.
    parsed: Option<Stored>,
}

impl PartialEq for RichRecord {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.before == other.before
    }
}

impl Eq for RichRecord {}

impl Hash for RichRecord {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
        self.before.hash(state);
    }
}

/// A record as it is stored.
#[derive(Serialize, Deserialize)]
pub(in crate::namespace) struct StoredRich<'a> {
    list: Cow<'a, [u8]>,
    before: Option<Cow<'a, Before>>,
}

/// What is stored behind an inode that has a rich ACL.
#[derive(Serialize, Deserialize)]
pub(in crate::namespace) enum StoredList<'a> {
    Inline(StoredRich<'a>),
    Apart,
}

impl RichRecord {
    /// A list that is the truth of a file with this mode.
    ///
    /// # Errors
    /// [`FsError::TooBig`].
    pub(super) fn new(list: &RichAcl, mode: u16, before: Option<Before>) -> Result<Self, FsError> {
        let stored = Stored::truth(list.clone(), mode);
        Ok(Self {
            bytes: stored.to_bytes().map_err(|_| FsError::TooBig)?,
            before,
            parsed: Some(stored),
        })
    }

    fn read(bytes: Vec<u8>, before: Option<Before>) -> Self {
        let parsed = Stored::from_bytes(&bytes);
        if let Err(error) = &parsed {
            tracing::warn!(%error, "a stored ACL cannot be read; the file is closed");
        }
        // Where a truth is to lie, a view is nothing that could be believed.
        let parsed = parsed.ok().filter(|stored| stored.source().is_none());
        Self {
            bytes,
            before,
            parsed,
        }
    }

    /// One that should be there and is not.
    pub(in crate::namespace) fn missing() -> Self {
        tracing::warn!("a stored ACL is not there; the file is closed");
        Self {
            bytes: Vec::new(),
            before: None,
            parsed: None,
        }
    }

    pub(super) fn before(&self) -> Option<&Before> {
        self.before.as_ref()
    }

    /// Whether it can be read.
    pub(in crate::namespace) fn is_readable(&self) -> bool {
        self.parsed.is_some()
    }

    /// Bytes in memory, about.
    pub(in crate::namespace) fn weight(&self) -> usize {
        let entries = self
            .parsed
            .as_ref()
            .map_or(0, |stored| stored.acl().aces().len());
        self.bytes.len() + entries * size_of::<acl::Ace>()
    }

    /// The list as it is, for a file with this mode, and with a POSIX ACL or none; `None` if it
    /// cannot be read. If the mode is another than that of its time, somebody has called chmod(2)
    /// while rich ACLs were off.
    pub(super) fn list(
        &self,
        mode: u16,
        target: &Target,
        has_access: bool,
    ) -> Option<Cow<'_, RichAcl>> {
        let stored = self.parsed.as_ref()?;
        Some(match stored.mode() {
            Some(of_then) if of_then != mode & 0o777 => {
                Cow::Owned(stored.acl().with_shown_mode(mode, target, has_access))
            }
            _ => Cow::Borrowed(stored.acl()),
        })
    }

    /// The list as it is stored.
    pub(super) fn acl(&self) -> Option<&RichAcl> {
        self.parsed.as_ref().map(Stored::acl)
    }

    fn stored(&self) -> StoredRich<'_> {
        StoredRich {
            list: Cow::Borrowed(&self.bytes),
            before: self.before.as_ref().map(Cow::Borrowed),
        }
    }

    /// The record in which it lies by itself.
    pub(in crate::namespace) fn entry(&self) -> Vec<u8> {
        encode(&self.stored())
    }

    /// With or apart from the inode.
    pub(super) fn placed(self) -> (Rich, Option<Arc<Self>>) {
        let record = Arc::new(self);
        match record.entry().len() <= NAMESPACE_RICH_INLINE_BYTES_MAX {
            true => (Rich::Inline(record), None),
            false => (Rich::Apart, Some(record)),
        }
    }
}

impl StoredRich<'_> {
    pub(in crate::namespace) fn record(self) -> RichRecord {
        let before = self.before.map(Cow::into_owned);
        RichRecord::read(self.list.into_owned(), before)
    }
}

impl Rich {
    pub(in crate::namespace) fn stored(&self) -> StoredList<'_> {
        match self {
            Self::Inline(record) => StoredList::Inline(record.stored()),
            Self::Apart => StoredList::Apart,
        }
    }
}

impl StoredList<'_> {
    pub(in crate::namespace) fn rich(self) -> Rich {
        match self {
            Self::Inline(stored) => Rich::Inline(Arc::new(stored.record())),
            Self::Apart => Rich::Apart,
        }
    }
}

/// Lists of inodes in memory, each once.
#[derive(Debug, Default)]
pub(in crate::namespace) struct Known {
    records: HashSet<Arc<RichRecord>>,
    sweep_at: usize,
}

impl Known {
    /// The same list, shared with all that are equal.
    pub(in crate::namespace) fn share(&mut self, rich: &mut Option<Rich>) {
        let Some(Rich::Inline(record)) = rich else {
            return;
        };
        if let Some(known) = self.records.get(record) {
            *record = Arc::clone(known);
            return;
        }
        if self.records.len() >= self.sweep_at.max(SWEEP_AT) {
            self.records.retain(|record| Arc::strong_count(record) > 1);
            self.sweep_at = 2 * self.records.len();
        }
        self.records.insert(Arc::clone(record));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::decode;
    use super::*;
    use acl::{Ace, Rights, Who};

    const TARGET: Target = Target {
        uid: 1,
        gid: 10,
        is_directory: false,
    };

    fn list(users: u32) -> RichAcl {
        let allow = |uid| Ace::allow(Who::User(uid), Rights::READ_DATA);
        RichAcl::new((0..users).map(allow).collect()).unwrap()
    }

    fn before() -> Before {
        Before {
            mode: 0o640,
            access: None,
            default: None,
        }
    }

    #[test]
    fn a_small_list_lies_with_the_inode_and_a_large_one_apart() {
        for (users, is_inline) in [(0, true), (20, true), (30, false), (5000, false)] {
            let record = RichRecord::new(&list(users), 0o600, Some(before())).unwrap();
            let entry = record.entry();
            assert_eq!(entry.len() <= NAMESPACE_RICH_INLINE_BYTES_MAX, is_inline);
            let (rich, apart) = record.placed();
            assert_eq!(apart.is_none(), is_inline, "{users}");
            let bytes = encode(&rich.stored());
            assert!(bytes.len() <= NAMESPACE_RICH_INLINE_BYTES_MAX + 1);
            let again: StoredList<'_> = decode("a rich ACL", &bytes).unwrap();
            assert_eq!(again.rich(), rich);
            let again: StoredRich<'_> = decode("a rich ACL", &entry).unwrap();
            let again = again.record();
            assert_eq!(again.before(), Some(&before()));
            assert_eq!(
                again.list(0o600, &TARGET, true).unwrap().aces(),
                list(users).aces()
            );
        }
    }

    #[test]
    fn bytes_are_as_they_are_drawn() {
        let record = RichRecord::new(&list(1), 0o600, Some(before())).unwrap();
        let entry = record.entry();
        let (length, rest) = entry.split_first().unwrap();
        let (stored, behind) = rest.split_at(usize::from(*length));
        assert_eq!(stored[..3], *b"AR\x01");
        // There was something before: mode 0o640 as a varint, and neither ACL.
        assert_eq!(behind, [1, 0xa0, 3, 0, 0]);
        assert_eq!(encode(&Rich::Apart.stored()), [1]);
    }

    #[test]
    fn a_list_that_is_damaged_a_view_or_not_there_is_none() {
        let entry = RichRecord::new(&list(2), 0o600, None).unwrap().entry();
        for index in 1..entry.len() - 1 {
            let mut altered = entry.clone();
            altered[index] ^= 4;
            let stored: StoredRich<'_> = decode("a rich ACL", &altered).unwrap();
            let record = stored.record();
            assert!(!record.is_readable() && record.list(0o600, &TARGET, true).is_none());
        }
        assert!(!RichRecord::missing().is_readable());
        let file = acl::PosixFile {
            uid: 1,
            gid: 10,
            mode: 0o600,
            access: None,
        };
        let view = RichAcl::view(&file, None, false);
        let view = Stored::view(view, 0o600, acl::Source::of(None, None));
        let record = RichRecord::read(view.to_bytes().unwrap(), None);
        assert!(!record.is_readable());
    }

    #[test]
    fn a_mode_from_while_they_were_off_lies_over_the_list() {
        let file = acl::PosixFile {
            uid: 1,
            gid: 10,
            mode: 0o644,
            access: None,
        };
        let view = RichAcl::view(&file, None, false);
        let list = RichAcl::new(view.aces().to_vec()).unwrap();
        let record = RichRecord::new(&list, 0o644, None).unwrap();
        let stays = record.list(0o644, &TARGET, false).unwrap();
        assert_eq!(stays.mode(&TARGET), 0o644);
        let narrowed = record.list(0o600, &TARGET, false).unwrap();
        assert_eq!(narrowed.mode(&TARGET), 0o600);
    }

    #[test]
    fn equal_lists_are_one_and_those_that_nobody_has_go() {
        let mut known = Known::default();
        let rich = |users| {
            Some(
                RichRecord::new(&list(users), 0o600, None)
                    .unwrap()
                    .placed()
                    .0,
            )
        };
        let [mut one, mut other] = [rich(3), rich(3)];
        known.share(&mut one);
        known.share(&mut other);
        assert_eq!(known.len(), 1);
        let (Some(Rich::Inline(one)), Some(Rich::Inline(other))) = (&one, &other) else {
            panic!("they are small");
        };
        assert!(Arc::ptr_eq(one, other));
        for uid in 0..3 * SWEEP_AT as u32 {
            let aces = vec![Ace::allow(Who::User(uid), Rights::READ_DATA)];
            let list = RichAcl::new(aces).unwrap();
            let record = RichRecord::new(&list, 0o600, None).unwrap();
            known.share(&mut Some(record.placed().0));
        }
        assert!(known.len() <= SWEEP_AT + 1, "{}", known.len());
        assert!(known.records.contains(one));
    }
}
