//! The security descriptor of Windows, self-relative (MS-DTYP, section 2.4.6).
//!
//! Windows knows no OWNER@ and GROUP@. An entry for them is one for the SID of the file's owner or
//! group, as they are now; where it is inherited, one for CREATOR OWNER or CREATOR GROUP. An entry
//! that is both is two. Read back, an entry for the owner's SID that nobody inherits is OWNER@; one
//! that is inherited means this user, also as an heir.
//!
//! Audit entries are in a list of their own there (the SACL), and come behind the others here. No
//! decision depends on that.

use super::{Fields, bounded};
use crate::{
    Ace, AceFlags, AceKind, AclError, Control, Id, Identities, RichAcl, Rights, Sid, Target, Who,
};

/// A file's owner, group and lists, as Windows sends and gets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Owner; `None` where it is not to be changed.
    pub owner: Option<Sid>,
    /// Group; likewise.
    pub group: Option<Sid>,
    /// What is allowed and denied; likewise.
    pub access: Option<Vec<Ace>>,
    /// What is written down; likewise.
    pub audit: Option<Vec<Ace>>,
    /// What goes with the access list.
    pub control: Control,
}

const HEAD_BYTES: usize = 20;
const ACL_HEAD_BYTES: usize = 8;
const ACE_HEAD_BYTES: usize = 8;
const REVISION: u8 = 1;
/// Lists without entries for objects of a directory service.
const ACL_REVISION: u8 = 2;
const ACL_REVISION_DS: u8 = 4;

const DACL_PRESENT: u16 = 4;
const DACL_DEFAULTED: u16 = 8;
const SACL_PRESENT: u16 = 0x10;
const DACL_AUTO_INHERITED: u16 = 0x400;
const DACL_PROTECTED: u16 = 0x1000;
const SELF_RELATIVE: u16 = 0x8000;

/// Bits of a mask that stand for sets of rights.
const GENERIC: [(u32, u32); 4] = [
    (0x8000_0000, 0x12_0089),
    (0x4000_0000, 0x12_0116),
    (0x2000_0000, 0x12_00a0),
    (0x1000_0000, 0x1f_01ff),
];

impl Descriptor {
    /// Reads one.
    ///
    /// # Errors
    /// [`AclError`] for what is none, and for kinds of entries that have no meaning for a file.
    pub fn from_bytes(bytes: &[u8], identities: &impl Identities) -> Result<Self, AclError> {
        let bytes = bounded(bytes)?;
        let mut head = Fields(bytes);
        let [revision, _] = head.take()?;
        if revision != REVISION {
            return Err(AclError::UnknownVersion(u32::from(revision)));
        }
        let control = head.u16()?;
        if control & SELF_RELATIVE == 0 {
            return Err(AclError::Malformed(
                "a descriptor that is not self-relative",
            ));
        }
        let [owner, group, audit, access] =
            [head.u32()?, head.u32()?, head.u32()?, head.u32()?].map(|offset| offset as usize);
        let owner = read_sid(bytes, owner)?;
        let group = read_sid(bytes, group)?;
        let reader = Reader {
            owner: owner.as_ref(),
            group: group.as_ref(),
            identities,
        };
        let access = match (control & DACL_PRESENT != 0, access) {
            (false, _) => None,
            // Everybody may do everything where there is no list.
            (true, 0) => Some(vec![Ace::allow(Who::Everyone, Rights::ALL)]),
            (true, offset) => Some(reader.list(bytes, offset, false)?),
        };
        let audit = match (control & SACL_PRESENT != 0, audit) {
            (false, _) => None,
            (true, 0) => Some(Vec::new()),
            (true, offset) => Some(reader.list(bytes, offset, true)?),
        };
        Ok(Self {
            access,
            audit,
            control: Control {
                auto_inherited: control & DACL_AUTO_INHERITED != 0,
                protected: control & DACL_PROTECTED != 0,
                defaulted: control & DACL_DEFAULTED != 0,
            },
            owner,
            group,
        })
    }

    /// The one of a file.
    #[must_use]
    pub fn of(acl: &RichAcl, target: &Target, identities: &impl Identities) -> Self {
        let (audit, access) = acl
            .effective(target)
            .into_iter()
            .partition(|ace| ace.kind == AceKind::Audit);
        Self {
            owner: Some(identities.sid(Id::User(target.uid))),
            group: Some(identities.sid(Id::Group(target.gid))),
            access: Some(access),
            audit: Some(audit),
            control: acl.control(),
        }
    }

    /// The rich ACL that it says, if it says one.
    ///
    /// # Errors
    /// [`AclError::TooLarge`].
    pub fn acl(&self) -> Result<Option<RichAcl>, AclError> {
        let Some(access) = &self.access else {
            return Ok(None);
        };
        let audit = self.audit.iter().flatten();
        let acl = RichAcl::new(access.iter().chain(audit).cloned().collect())?;
        Ok(Some(acl.with_control(self.control)))
    }

    /// Its bytes. Owner and group must be there if a list speaks of them, and nobody can be in it
    /// of whom only a name is known.
    ///
    /// # Errors
    /// [`AclError::TooLarge`] if a list is more than the format holds, [`AclError::Malformed`] if
    /// an entry speaks of an owner or group that is not there.
    pub fn to_bytes(&self, identities: &impl Identities) -> Result<Vec<u8>, AclError> {
        let mut control = SELF_RELATIVE;
        let mut rest = Vec::new();
        let offset = |rest: &Vec<u8>| u32::try_from(HEAD_BYTES + rest.len()).map_err(|_| LIST);
        let mut offsets = [0; 4];
        for (sid, place) in [(&self.owner, 0), (&self.group, 1)] {
            if let Some(sid) = sid {
                offsets[place] = offset(&rest)?;
                sid.write(&mut rest);
            }
        }
        let lists = [
            (&self.audit, 2, SACL_PRESENT),
            (&self.access, 3, DACL_PRESENT),
        ];
        for (list, place, present) in lists {
            // An audit list without entries is none.
            let list = list.as_ref().filter(|list| place == 3 || !list.is_empty());
            if let Some(list) = list {
                control |= present;
                offsets[place] = offset(&rest)?;
                rest.extend(self.list(list, identities)?);
            }
        }
        let bit = |set, bit| if set { bit } else { 0 };
        control |= bit(self.control.auto_inherited, DACL_AUTO_INHERITED)
            | bit(self.control.protected, DACL_PROTECTED)
            | bit(self.control.defaulted, DACL_DEFAULTED);
        let mut bytes = vec![REVISION, 0];
        bytes.extend(control.to_le_bytes());
        bytes.extend(offsets.iter().flat_map(|offset: &u32| offset.to_le_bytes()));
        bytes.extend(rest);
        bounded(&bytes)?;
        Ok(bytes)
    }

    fn list(&self, aces: &[Ace], identities: &impl Identities) -> Result<Vec<u8>, AclError> {
        let (mut entries, mut count) = (Vec::new(), 0_u16);
        for ace in aces {
            for (flags, sid) in self.forms(ace, identities)? {
                write_ace(&mut entries, ace, flags, &sid);
                count = count.checked_add(1).ok_or(LIST)?;
            }
            if entries.len() > usize::from(u16::MAX) {
                return Err(LIST);
            }
        }
        let size = u16::try_from(ACL_HEAD_BYTES + entries.len()).map_err(|_| LIST)?;
        let mut list = vec![ACL_REVISION, 0];
        list.extend(size.to_le_bytes());
        list.extend(count.to_le_bytes());
        list.extend([0, 0]);
        list.extend(entries);
        Ok(list)
    }

    /// Flags and SID of an entry, or of the two that say the same.
    fn forms(
        &self,
        ace: &Ace,
        identities: &impl Identities,
    ) -> Result<Vec<(AceFlags, Sid)>, AclError> {
        let (now, heir) = match &ace.who {
            Who::Owner => (&self.owner, Sid::creator_owner()),
            Who::OwningGroup => (&self.group, Sid::creator_group()),
            who => return Ok(vec![(ace.flags, sid_of(who, identities)?)]),
        };
        let missing = AclError::Malformed("an entry for an owner or group that is not there");
        let now = now.clone().ok_or(missing)?;
        let only = AceFlags::INHERIT_ONLY;
        Ok(match (ace.is_inheritable(), ace.flags.contains(only)) {
            (true, true) => vec![(ace.flags, heir)],
            (true, false) => {
                let here = ace.flags.without(AceFlags::INHERITANCE);
                vec![(here, now), (ace.flags.with(only), heir)]
            }
            // One that is neither here nor inherited says nothing; it stays one that does not.
            (false, true) => vec![(ace.flags, heir)],
            (false, false) => vec![(ace.flags, now)],
        })
    }
}

/// Who is meant by a SID, other than the owner and group of a file.
pub(super) fn who_of(sid: &Sid, identities: &impl Identities) -> Who {
    if *sid == Sid::everyone() {
        return Who::Everyone;
    }
    if *sid == Sid::owner_rights() {
        return Who::OwnerRights;
    }
    match identities.of_sid(sid) {
        Some(id) => Who::from(id),
        None => Who::Sid(sid.clone()),
    }
}

fn sid_of(who: &Who, identities: &impl Identities) -> Result<Sid, AclError> {
    Ok(match who {
        Who::Everyone => Sid::everyone(),
        Who::OwnerRights => Sid::owner_rights(),
        Who::User(uid) => identities.sid(Id::User(*uid)),
        Who::Group(gid) => identities.sid(Id::Group(*gid)),
        Who::Sid(sid) => sid.clone(),
        Who::Name { .. } => return Err(AclError::Malformed("a name that has no SID")),
        Who::Owner | Who::OwningGroup => unreachable!("these two are in the descriptor's head"),
    })
}

struct Reader<'a, I> {
    owner: Option<&'a Sid>,
    group: Option<&'a Sid>,
    identities: &'a I,
}

impl<I: Identities> Reader<'_, I> {
    fn list(&self, bytes: &[u8], offset: usize, is_audit: bool) -> Result<Vec<Ace>, AclError> {
        let mut fields = Fields(bytes.get(offset..).ok_or(AclError::Truncated)?);
        let [revision, _] = fields.take()?;
        if !matches!(revision, ACL_REVISION | ACL_REVISION_DS) {
            return Err(AclError::UnknownVersion(u32::from(revision)));
        }
        let size = usize::from(fields.u16()?);
        let count = usize::from(fields.u16()?);
        fields.u16()?;
        let body = size
            .checked_sub(ACL_HEAD_BYTES)
            .ok_or(AclError::Truncated)?;
        // Bytes behind the last entry are room that Windows keeps.
        let mut entries = Fields(fields.bytes(body)?);
        let mut aces = Vec::with_capacity(count.min(body / ACE_HEAD_BYTES));
        for _ in 0..count {
            aces.extend(self.ace(&mut entries, is_audit)?);
        }
        Ok(aces)
    }

    /// One entry; `None` for one that never says anything.
    fn ace(&self, entries: &mut Fields<'_>, is_audit: bool) -> Result<Option<Ace>, AclError> {
        let [kind, flags] = entries.take()?;
        let size = usize::from(entries.u16()?);
        let body = size.checked_sub(4).ok_or(AclError::Truncated)?;
        let mut body = Fields(entries.bytes(body)?);
        let kind = match (kind, is_audit) {
            (0, false) => AceKind::Allow,
            (1, false) => AceKind::Deny,
            (2, true) => AceKind::Audit,
            _ => {
                return Err(AclError::Malformed(
                    "an entry of a kind that files do not have",
                ));
            }
        };
        let flags = read_flags(flags)?;
        let rights = read_rights(body.u32()?)?;
        let (sid, _) = Sid::read(body.0)?;
        let Some((who, flags)) = self.who(&sid, flags) else {
            return Ok(None);
        };
        Ok(Some(Ace {
            kind,
            flags,
            rights,
            who,
        }))
    }

    fn who(&self, sid: &Sid, flags: AceFlags) -> Option<(Who, AceFlags)> {
        let inherits = AceFlags::FILE_INHERIT.with(AceFlags::DIRECTORY_INHERIT);
        let is_inheritable = flags.without(inherits) != flags;
        let creator = [
            (Sid::creator_owner(), Who::Owner),
            (Sid::creator_group(), Who::OwningGroup),
        ];
        for (creator, who) in creator {
            if *sid == creator {
                // Nobody is the creator; only heirs of the entry are spoken of.
                return is_inheritable.then(|| (who, flags.with(AceFlags::INHERIT_ONLY)));
            }
        }
        let is_here_alone = !is_inheritable && !flags.contains(AceFlags::INHERIT_ONLY);
        let who = match is_here_alone {
            true if Some(sid) == self.owner => Who::Owner,
            true if Some(sid) == self.group => Who::OwningGroup,
            _ => who_of(sid, self.identities),
        };
        Some((who, flags))
    }
}

fn read_sid(bytes: &[u8], offset: usize) -> Result<Option<Sid>, AclError> {
    if offset == 0 {
        return Ok(None);
    }
    let bytes = bytes.get(offset..).ok_or(AclError::Truncated)?;
    Sid::read(bytes).map(|(sid, _)| Some(sid))
}

/// Windows numbers three flags otherwise than NFSv4.
const INHERITED: u8 = 0x10;
const SUCCESSFUL: u8 = 0x40;
const FAILED: u8 = 0x80;
const FLAGS: [(u8, AceFlags); 3] = [
    (INHERITED, AceFlags::INHERITED),
    (SUCCESSFUL, AceFlags::SUCCESSFUL),
    (FAILED, AceFlags::FAILED),
];

fn read_flags(bits: u8) -> Result<AceFlags, AclError> {
    let inheritance = AceFlags::from_bits(bits & AceFlags::INHERITANCE.bits());
    let mut flags = inheritance.expect("they are the same in both");
    let mut known = AceFlags::INHERITANCE.bits();
    for (bit, flag) in FLAGS {
        known |= bit;
        if bits & bit != 0 {
            flags = flags.with(flag);
        }
    }
    match bits & !known {
        0 => Ok(flags),
        _ => Err(AclError::Malformed("flags without a meaning")),
    }
}

fn write_flags(flags: AceFlags) -> u8 {
    let inheritance = flags.bits() & AceFlags::INHERITANCE.bits();
    let others = FLAGS.iter().filter(|(_, flag)| flags.contains(*flag));
    others.fold(inheritance, |bits, (bit, _)| bits | bit)
}

fn read_rights(mask: u32) -> Result<Rights, AclError> {
    let mut rights = mask;
    for (generic, all) in GENERIC {
        if mask & generic != 0 {
            rights = rights & !generic | all;
        }
    }
    Rights::from_bits(rights).ok_or(AclError::Malformed("rights without a meaning"))
}

fn write_ace(entries: &mut Vec<u8>, ace: &Ace, flags: AceFlags, sid: &Sid) {
    let size = u16::try_from(ACE_HEAD_BYTES + sid.byte_len()).expect("a SID has 68 bytes at most");
    entries.extend([ace.kind as u8, write_flags(flags)]);
    entries.extend(size.to_le_bytes());
    entries.extend(ace.rights.bits().to_le_bytes());
    sid.write(entries);
}

const LIST: AclError = AclError::TooLarge {
    max: u16::MAX as usize,
    what: "bytes in a list",
};
