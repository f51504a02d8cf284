//! `system.nfs4_acl`: the ACL attribute of NFSv4.0 as it is on the wire (RFC 7530, section 6.2.1),
//! in XDR and so big-endian. The same bytes serve nfs4_getfacl(1), nfs4_setfacl(1) and Samba's
//! nfs4acl_xattr with `encoding=nfs, version=40`.
//!
//! Whom nobody here can be found to be is written as he came: a SID as its text, a name as the
//! name.

use super::{BYTES, Fields, bounded};
use crate::identity::is_special_name;
use crate::{Ace, AceFlags, AceKind, AclError, Id, Identities, RichAcl, Rights, Target, Who};
use base::limits::{PRINCIPAL_BYTES_MAX, XATTR_BYTES_MAX};

const OWNER: &str = "OWNER@";
const GROUP: &str = "GROUP@";
const EVERYONE: &str = "EVERYONE@";
/// Marks names of groups.
const IDENTIFIER_GROUP: u32 = 0x40;
/// XDR fills each field up to whole words.
const WORD_BYTES: usize = 4;
/// Four numbers.
const ACE_BYTES_MIN: usize = 16;

impl RichAcl {
    /// The value of the extended attribute. Windows' control bits are not in it.
    ///
    /// # Errors
    /// [`AclError`] for what is no list, and for what has no meaning here.
    pub fn from_nfs4(value: &[u8], identities: &impl Identities) -> Result<Self, AclError> {
        let mut fields = Fields(bounded(value)?);
        let count = word(&mut fields)? as usize;
        if count > fields.0.len() / ACE_BYTES_MIN {
            return Err(AclError::Truncated);
        }
        let aces = (0..count).map(|_| read_ace(&mut fields, identities));
        let aces = aces.collect::<Result<_, _>>()?;
        match fields.0 {
            [] => Self::new(aces),
            _ => Err(AclError::Malformed("there are bytes behind the entries")),
        }
    }

    /// As the extended attribute of a file; limits have become entries.
    ///
    /// # Errors
    /// [`AclError::TooLarge`] if it is more than an extended attribute holds.
    pub fn to_nfs4(
        &self,
        target: &Target,
        identities: &impl Identities,
    ) -> Result<Vec<u8>, AclError> {
        let aces = self.effective(target);
        let mut value = Vec::new();
        put(&mut value, u32::try_from(aces.len()).map_err(|_| BYTES)?);
        for ace in &aces {
            write_ace(&mut value, ace, identities);
            if value.len() > XATTR_BYTES_MAX {
                return Err(BYTES);
            }
        }
        Ok(value)
    }
}

fn read_ace(fields: &mut Fields<'_>, identities: &impl Identities) -> Result<Ace, AclError> {
    let kind = match word(fields)? {
        0 => AceKind::Allow,
        1 => AceKind::Deny,
        2 => AceKind::Audit,
        3 => return Err(AclError::Malformed("there are no alarm entries here")),
        _ => return Err(AclError::Malformed("an entry of an unknown kind")),
    };
    let flags = word(fields)?;
    let is_group = flags & IDENTIFIER_GROUP != 0;
    let flags = u8::try_from(flags & !IDENTIFIER_GROUP).ok();
    let flags = flags.and_then(AceFlags::from_bits);
    let rights = Rights::from_bits(word(fields)?);
    let length = word(fields)? as usize;
    if length > PRINCIPAL_BYTES_MAX {
        return Err(NAME);
    }
    let name = fields.bytes(length)?;
    let padding = fields.bytes(length.next_multiple_of(WORD_BYTES) - length)?;
    if padding.iter().any(|byte| *byte != 0) {
        return Err(AclError::Malformed("a name is filled up with zeroes"));
    }
    let name = std::str::from_utf8(name).map_err(|_| AclError::Malformed("a name is UTF-8"))?;
    Ok(Ace {
        kind,
        flags: flags.ok_or(AclError::Malformed("flags without a meaning"))?,
        rights: rights.ok_or(AclError::Malformed("rights without a meaning"))?,
        who: who_named(name, is_group, identities)?,
    })
}

/// Who a name means.
pub(crate) fn who_named(
    name: &str,
    is_group: bool,
    identities: &impl Identities,
) -> Result<Who, AclError> {
    Ok(match name {
        OWNER => Who::Owner,
        GROUP => Who::OwningGroup,
        EVERYONE => Who::Everyone,
        _ if is_special_name(name) => unknown(name, is_group),
        _ => match (
            name.parse::<crate::Sid>(),
            identities.of_name(name, is_group),
        ) {
            (Ok(sid), _) => super::descriptor::who_of(&sid, identities),
            (_, Some(id)) => Who::from(id),
            (_, None) => unknown(name, is_group),
        },
    })
}

fn unknown(name: &str, is_group: bool) -> Who {
    Who::Name {
        name: name.into(),
        is_group,
    }
}

/// The name of somebody, and whether it is marked as a group's.
pub(crate) fn name_of(who: &Who, identities: &impl Identities) -> (String, bool) {
    match who {
        Who::Owner => (OWNER.to_owned(), false),
        Who::OwningGroup => (GROUP.to_owned(), false),
        Who::Everyone => (EVERYONE.to_owned(), false),
        Who::OwnerRights => (crate::Sid::owner_rights().to_string(), false),
        Who::User(uid) => (identities.name(Id::User(*uid)), false),
        Who::Group(gid) => (identities.name(Id::Group(*gid)), true),
        Who::Sid(sid) => (sid.to_string(), false),
        Who::Name { name, is_group } => (name.to_string(), *is_group),
    }
}

fn write_ace(value: &mut Vec<u8>, ace: &Ace, identities: &impl Identities) {
    let (name, is_group) = name_of(&ace.who, identities);
    let group = if is_group { IDENTIFIER_GROUP } else { 0 };
    put(value, ace.kind as u32);
    put(value, u32::from(ace.flags.bits()) | group);
    put(value, ace.rights.bits());
    put(value, u32::try_from(name.len()).expect("names are bounded"));
    value.extend(name.as_bytes());
    value.resize(value.len().next_multiple_of(WORD_BYTES), 0);
}

fn word(fields: &mut Fields<'_>) -> Result<u32, AclError> {
    fields.take().map(u32::from_be_bytes)
}

#[expect(clippy::big_endian_bytes, reason = "XDR is")]
fn put(value: &mut Vec<u8>, number: u32) {
    value.extend(number.to_be_bytes());
}

const NAME: AclError = AclError::TooLarge {
    max: PRINCIPAL_BYTES_MAX,
    what: "bytes in a name",
};
