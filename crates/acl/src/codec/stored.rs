//! What lies beside a file: a rich ACL in few bytes.
//!
//! An entry has four bytes, or eight if it is for a user or group with a number, so that lists of
//! usual length stay in the inode. Equal lists are equal bytes: nothing of the file itself is in
//! them (no owner, no time, no name), because ext4 keeps equal blocks once.
//!
//! A stored list must be found out when the file's mode or its POSIX ACL were changed behind the
//! server's back. So the mode of that moment is stored, and with a view a digest of the ACLs that
//! it shows. A list that is stored before the file's mode has become what it says is *unsettled*:
//! no mode is stored with it, and none is compared.

use super::{BYTES, Fields, bounded};
use crate::rich::limits::{Limits, PERMISSIONS};
use crate::{
    Ace, AceFlags, AceKind, AclError, Control, Origin, PosixAcl, RichAcl, Rights, Sid, Who,
};
use std::collections::BTreeMap;

/// The only one there has been.
const ACL_FORMAT_VERSION: u8 = 1;
const MAGIC: [u8; 2] = *b"AR";
/// Where the checksum is, which is over everything but itself.
const CHECKSUM: std::ops::Range<usize> = 8..12;

const VIEW: u8 = 1;
const AUTO_INHERITED: u8 = 2;
const PROTECTED: u8 = 4;
const DEFAULTED: u8 = 8;
const LIMITED: u8 = 0x10;
const UNSETTLED: u8 = 0x20;
const FLAGS_ALL: u8 = 0x3f;

/// Entries of users, groups and of those who are in the table have a number behind them.
const WHO_OWNER: u8 = 0;
const WHO_OWNING_GROUP: u8 = 1;
const WHO_EVERYONE: u8 = 2;
const WHO_OWNER_RIGHTS: u8 = 3;
const WHO_USER: u8 = 4;
const WHO_GROUP: u8 = 5;
const WHO_UNKNOWN: u8 = 6;

const UNKNOWN_SID: u8 = 0;
const UNKNOWN_USER: u8 = 1;
const UNKNOWN_GROUP: u8 = 2;

const KIND_SHIFT: u32 = 14;
const RIGHTS_MASK: u16 = (1 << KIND_SHIFT) - 1;
const ENTRY_BYTES_MIN: usize = 4;

/// What a view shows: a digest of the file's POSIX ACLs. Whoever can make two ACLs with one digest
/// deceives about his own file alone (an export compares before it shares a view), so 64 bits are
/// enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(u64);

impl Source {
    /// That of a file or directory.
    #[must_use]
    pub fn of(access: Option<&PosixAcl>, default: Option<&PosixAcl>) -> Self {
        let [access, default] = [access, default].map(|acl| acl.map(PosixAcl::to_xattr));
        Self::of_values(access.as_deref(), default.as_deref())
    }

    /// As [`Source::of`], of ACLs as the kernel gives them.
    ///
    /// # Panics
    /// If a value is larger than any extended attribute's by far.
    #[must_use]
    pub fn of_values(access: Option<&[u8]>, default: Option<&[u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for value in [access, default] {
            let value = value.unwrap_or_default();
            let length = u32::try_from(value.len()).expect("an extended attribute's value");
            hasher.update(&length.to_le_bytes());
            hasher.update(value);
        }
        let digest = hasher.finalize();
        let (first, _) = digest
            .as_bytes()
            .split_first_chunk()
            .expect("it has 32 bytes");
        Self(u64::from_le_bytes(*first))
    }
}

/// A stored list, with what it was stored for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    acl: RichAcl,
    /// None while it is unsettled.
    mode: Option<u16>,
    source: Option<Source>,
}

impl Stored {
    /// A view, of a file with this mode.
    ///
    /// # Panics
    /// If the list is no view.
    #[must_use]
    pub fn view(acl: RichAcl, mode: u16, source: Source) -> Self {
        assert_eq!(
            acl.origin(),
            Origin::Posix,
            "a list that is the truth has no source"
        );
        Self {
            acl,
            mode: Some(mode & PERMISSIONS),
            source: Some(source),
        }
    }

    /// A list that is the truth, of a file with this mode.
    ///
    /// # Panics
    /// If the list is a view.
    #[must_use]
    pub fn truth(acl: RichAcl, mode: u16) -> Self {
        assert_eq!(acl.origin(), Origin::Rich, "a view has a source");
        Self {
            acl,
            mode: Some(mode & PERMISSIONS),
            source: None,
        }
    }

    /// A list that is the truth, of a file whose mode is about to become what the list says.
    ///
    /// # Panics
    /// If the list is a view.
    #[must_use]
    pub fn unsettled(acl: RichAcl) -> Self {
        Self {
            mode: None,
            ..Self::truth(acl, 0)
        }
    }

    /// The list.
    #[must_use]
    pub fn acl(&self) -> &RichAcl {
        &self.acl
    }

    /// The list alone.
    #[must_use]
    pub fn into_acl(self) -> RichAcl {
        self.acl
    }

    /// The file's permission bits when it was stored. If they are others now, somebody has called
    /// chmod(2) who knows nothing of rich ACLs. `None` while the list is unsettled.
    #[must_use]
    pub fn mode(&self) -> Option<u16> {
        self.mode
    }

    /// Whether mode and POSIX ACL may not say yet what the list, the truth, says.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.mode.is_none() && self.source.is_none()
    }

    /// What a view shows; `None` for a list that is the truth.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        self.source
    }

    /// Reads one. There is one form of each: what would be written differently is refused.
    ///
    /// # Errors
    /// [`AclError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, AclError> {
        let stored = read(bounded(bytes)?)?;
        match stored.to_bytes()? == bytes {
            true => Ok(stored),
            false => Err(AclError::Malformed("a stored list that nobody writes so")),
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// [`AclError::TooLarge`] if it is more than an extended attribute holds.
    pub fn to_bytes(&self) -> Result<Vec<u8>, AclError> {
        let aces = self.acl.aces();
        let control = self.acl.control();
        let flag = |set, flag| if set { flag } else { 0 };
        let mut bytes = MAGIC.to_vec();
        bytes.push(ACL_FORMAT_VERSION);
        bytes.push(
            flag(self.source.is_some(), VIEW)
                | flag(control.auto_inherited, AUTO_INHERITED)
                | flag(control.protected, PROTECTED)
                | flag(control.defaulted, DEFAULTED)
                | flag(self.acl.limits.is_some(), LIMITED)
                | flag(self.mode.is_none(), UNSETTLED),
        );
        bytes.extend(u16::try_from(aces.len()).map_err(|_| BYTES)?.to_le_bytes());
        bytes.extend(self.mode.unwrap_or(0).to_le_bytes());
        bytes.extend([0; 4]);
        if let Some(limits) = self.acl.limits {
            bytes.extend(pack_limits(limits).to_le_bytes());
        }
        if let Some(Source(digest)) = self.source {
            bytes.extend(digest.to_le_bytes());
        }
        let mut table = Table::default();
        for ace in aces {
            write_ace(&mut bytes, ace, &mut table);
        }
        bytes.extend(table.bytes);
        let sum = checksum(&bytes);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        bounded(&bytes)?;
        Ok(bytes)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let before = crc32c::crc32c(&bytes[..CHECKSUM.start]);
    crc32c::crc32c_append(before, &bytes[CHECKSUM.end..])
}

fn read(bytes: &[u8]) -> Result<Stored, AclError> {
    let mut fields = Fields(bytes);
    if fields.take()? != MAGIC {
        return Err(AclError::Malformed("no stored list"));
    }
    let [version, flags] = fields.take()?;
    if version != ACL_FORMAT_VERSION {
        return Err(AclError::UnknownVersion(u32::from(version)));
    }
    let count = usize::from(fields.u16()?);
    let mode = fields.u16()?;
    if fields.u32()? != checksum(bytes) {
        return Err(AclError::Malformed("a stored list is damaged"));
    }
    if mode & !PERMISSIONS != 0 {
        return Err(AclError::Malformed("a mode has nine permission bits"));
    }
    if flags & !FLAGS_ALL != 0 || flags & (VIEW | LIMITED) == VIEW | LIMITED {
        return Err(AclError::Malformed("flags without a meaning"));
    }
    let has = |flag| flags & flag != 0;
    if has(UNSETTLED) && (has(VIEW) || mode != 0) {
        return Err(AclError::Malformed("what is unsettled has no mode"));
    }
    let mode = (!has(UNSETTLED)).then_some(mode);
    let limits = match has(LIMITED) {
        true => Some(unpack_limits(fields.u32()?)?),
        false => None,
    };
    let source = match has(VIEW) {
        true => Some(Source(u64::from_le_bytes(fields.take()?))),
        false => None,
    };
    if count > fields.0.len() / ENTRY_BYTES_MIN {
        return Err(AclError::Truncated);
    }
    let entries = (0..count).map(|_| read_entry(&mut fields));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let table = read_table(&mut fields)?;
    let aces = entries.into_iter().map(|entry| entry.with(&table));
    let mut acl = RichAcl::new(aces.collect::<Result<_, _>>()?)?.with_control(Control {
        auto_inherited: has(AUTO_INHERITED),
        protected: has(PROTECTED),
        defaulted: has(DEFAULTED),
    });
    acl.limits = limits;
    if source.is_some() {
        acl.origin = Origin::Posix;
    }
    Ok(Stored { acl, mode, source })
}

fn pack_limits(limits: Limits) -> u32 {
    let changed = limits.changed.map_or(0, |mode| 1 << 9 | u32::from(mode));
    changed << 18 | u32::from(limits.ceiling) << 9 | u32::from(limits.list_mode)
}

fn unpack_limits(bits: u32) -> Result<Limits, AclError> {
    let field = |shift: u32| (bits >> shift) as u16 & PERMISSIONS;
    let limits = Limits {
        list_mode: field(0),
        ceiling: field(9),
        changed: (bits >> 27 & 1 == 1).then(|| field(18)),
    };
    match limits.is_real() {
        true => Ok(limits),
        false => Err(AclError::Malformed("limits that limit nothing")),
    }
}

/// Those who have no number, each once, in the order in which they are spoken of.
#[derive(Default)]
struct Table<'a> {
    places: BTreeMap<&'a Who, u32>,
    bytes: Vec<u8>,
}

impl<'a> Table<'a> {
    fn place(&mut self, who: &'a Who) -> u32 {
        let next = u32::try_from(self.places.len()).expect("no more than entries");
        if let Some(place) = self.places.get(who) {
            return *place;
        }
        self.places.insert(who, next);
        let (kind, text) = match who {
            Who::Sid(sid) => {
                let mut bytes = Vec::new();
                sid.write(&mut bytes);
                (UNKNOWN_SID, bytes)
            }
            Who::Name { name, is_group } => {
                let kind = if *is_group {
                    UNKNOWN_GROUP
                } else {
                    UNKNOWN_USER
                };
                (kind, name.as_bytes().to_vec())
            }
            _ => unreachable!("everybody else has a number"),
        };
        self.bytes.push(kind);
        self.bytes
            .push(u8::try_from(text.len()).expect("names have at most 255 bytes"));
        self.bytes.extend(text);
        next
    }
}

fn write_ace<'a>(bytes: &mut Vec<u8>, ace: &'a Ace, table: &mut Table<'a>) {
    let (code, number) = match &ace.who {
        Who::Owner => (WHO_OWNER, None),
        Who::OwningGroup => (WHO_OWNING_GROUP, None),
        Who::Everyone => (WHO_EVERYONE, None),
        Who::OwnerRights => (WHO_OWNER_RIGHTS, None),
        Who::User(uid) => (WHO_USER, Some(*uid)),
        Who::Group(gid) => (WHO_GROUP, Some(*gid)),
        who => (WHO_UNKNOWN, Some(table.place(who))),
    };
    let word = (ace.kind as u16) << KIND_SHIFT | ace.rights.packed();
    bytes.extend(word.to_le_bytes());
    bytes.extend([ace.flags.bits(), code]);
    bytes.extend(number.into_iter().flat_map(u32::to_le_bytes));
}

/// An entry whose principal may be in the table.
struct Entry {
    ace: Ace,
    place: Option<u32>,
}

impl Entry {
    fn with(self, table: &[Who]) -> Result<Ace, AclError> {
        let mut ace = self.ace;
        if let Some(place) = self.place {
            let who = table.get(place as usize).cloned();
            ace.who = who.ok_or(AclError::Malformed("an entry of somebody who is not there"))?;
        }
        Ok(ace)
    }
}

fn read_entry(fields: &mut Fields<'_>) -> Result<Entry, AclError> {
    let word = fields.u16()?;
    let kind = match word >> KIND_SHIFT {
        0 => AceKind::Allow,
        1 => AceKind::Deny,
        2 => AceKind::Audit,
        _ => return Err(AclError::Malformed("an entry of an unknown kind")),
    };
    let [flags, code] = fields.take()?;
    let flags = AceFlags::from_bits(flags).ok_or(AclError::Malformed("flags without a meaning"))?;
    let mut place = None;
    let who = match code {
        WHO_OWNER => Who::Owner,
        WHO_OWNING_GROUP => Who::OwningGroup,
        WHO_EVERYONE => Who::Everyone,
        WHO_OWNER_RIGHTS => Who::OwnerRights,
        WHO_USER => Who::User(fields.u32()?),
        WHO_GROUP => Who::Group(fields.u32()?),
        WHO_UNKNOWN => {
            place = Some(fields.u32()?);
            Who::Owner
        }
        _ => return Err(AclError::Malformed("an entry of an unknown principal")),
    };
    let ace = Ace {
        kind,
        flags,
        rights: Rights::unpacked(word & RIGHTS_MASK),
        who,
    };
    Ok(Entry { ace, place })
}

/// Everything behind the entries.
fn read_table(fields: &mut Fields<'_>) -> Result<Vec<Who>, AclError> {
    let mut table = Vec::new();
    while !fields.0.is_empty() {
        let kind = fields.u8()?;
        let length = usize::from(fields.u8()?);
        let bytes = fields.bytes(length)?;
        table.push(match kind {
            UNKNOWN_SID => Who::Sid(Sid::read(bytes)?.0),
            UNKNOWN_USER | UNKNOWN_GROUP => Who::Name {
                name: text(bytes)?.into(),
                is_group: kind == UNKNOWN_GROUP,
            },
            _ => return Err(AclError::Malformed("a principal of an unknown kind")),
        });
    }
    Ok(table)
}

fn text(bytes: &[u8]) -> Result<&str, AclError> {
    std::str::from_utf8(bytes).map_err(|_| AclError::Malformed("a name is UTF-8"))
}
