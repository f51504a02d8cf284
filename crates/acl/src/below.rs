//! A rich ACL as a mode and a POSIX ACL that allow nobody more: for who judges by these alone, as
//! the file system under a server does.
//!
//! What somebody surely has is what no entry can take from him: it counts if every entry that could
//! speak of him and denies it comes later. Who is in which group is not known, so every denial to
//! another group could speak of him too. A mode knows reading, writing and executing; writing is
//! there only for who may do all that it allows. Rights to named attributes and to the file itself
//! are not looked at, as no mode speaks of them.

use crate::posix::{GROUP, OTHERS, OWNER, bits};
use crate::rich::limits::{Class, Share, plain};
use crate::{
    Ace, AceKind, AclError, Origin, PosixAcl, PosixEntry, PosixWho, RichAcl, Rights, Target, Who,
};
use std::collections::BTreeMap;

/// The number that is nobody's: of an owner or a group who is not known yet.
const NOBODY: u32 = u32::MAX;

/// A mode and an ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// Permission bits.
    pub mode: u16,
    /// The ACL, if the mode does not say everything.
    pub access: Option<PosixAcl>,
}

/// What somebody surely has.
#[derive(Clone, Copy, Default)]
struct Least {
    allowed: Rights,
    denied: Rights,
    has_entry: bool,
}

impl Least {
    fn meets(&mut self, ace: &Ace) {
        match ace.kind {
            AceKind::Allow => self.allowed |= ace.rights - self.denied,
            _ => self.denied |= ace.rights - self.allowed,
        }
    }
}

impl RichAcl {
    /// What the mode and a POSIX ACL of this file can say without allowing anybody more.
    ///
    /// # Errors
    /// [`AclError::TooLarge`] if more users and groups have entries than a POSIX ACL holds.
    pub fn posix_below(&self, target: &Target) -> Result<Below, AclError> {
        let sure = Sure::of(self, target);
        let class = |class: Class, least: Least| {
            let share = match self.limits {
                Some(limits) => limits.share(class, &self.aces, target),
                None => Share::WHOLE,
            };
            let rights = share.given | (share.reachable & least.allowed);
            bits_below(rights, target.is_directory)
        };
        let owner = class(Class::Owner, sure.owner);
        let others = class(Class::Others, sure.others);
        let owning = class(Class::Group, sure.named[&Who::OwningGroup]);
        let named: Vec<_> = sure
            .named
            .iter()
            .filter(|(who, _)| ***who != Who::OwningGroup)
            .map(|(who, least)| (*who, class(Class::Group, *least)))
            .collect();
        let mode = |mask: u8| {
            u16::from(owner) << OWNER | u16::from(mask) << GROUP | u16::from(others) << OTHERS
        };
        if named.is_empty() {
            return Ok(Below {
                mode: mode(owning),
                access: None,
            });
        }
        // An empty mask would hide the entries, and users in them would have what others have.
        let mask = match named.iter().fold(owning, |all, (_, bits)| all | bits) {
            0 => others,
            mask => mask,
        };
        let entry = |who, bits| PosixEntry { who, bits };
        let users = named.iter().filter_map(|(who, bits)| match who {
            Who::User(uid) => Some(entry(PosixWho::User(*uid), *bits)),
            _ => None,
        });
        let groups = named.iter().filter_map(|(who, bits)| match who {
            Who::Group(gid) => Some(entry(PosixWho::Group(*gid), *bits)),
            _ => None,
        });
        let entries = [entry(PosixWho::Owner, owner)].into_iter().chain(users);
        let entries = entries
            .chain([entry(PosixWho::OwningGroup, owning)])
            .chain(groups);
        let ends = [(PosixWho::Mask, mask), (PosixWho::Others, others)];
        let entries = entries.chain(ends.map(|(who, bits)| entry(who, bits)));
        Ok(Below {
            mode: mode(mask),
            access: Some(PosixAcl::new(entries.collect())?),
        })
    }
}

impl RichAcl {
    /// A default ACL that shows what heirs of a directory with this list have at least; for
    /// programs that know no other. `None` if they inherit nothing that decides about them.
    ///
    /// # Panics
    /// If the list is a view: there the default ACL is what is inherited.
    #[must_use]
    pub fn default_below(&self) -> Option<PosixAcl> {
        self.heir_below(false)?.ok()
    }

    /// The default ACL for programs that go by no other: what they make in a directory with this
    /// list allows nobody more than an heir of the list would, be it a file or a directory. `None`
    /// if of both only mode and umask say what others may.
    ///
    /// # Panics
    /// As [`RichAcl::default_below`].
    #[must_use]
    pub fn default_told(&self) -> Option<PosixAcl> {
        let heirs = [false, true].map(|is_directory| {
            let below = self.heir_below(is_directory)?;
            // What is too long to be said allows nothing.
            Some(below.unwrap_or_else(|_| PosixAcl::of_mode(0)))
        });
        // One default ACL serves both, and where there is one no umask counts.
        let owner = match &heirs {
            [None, None] => return None,
            [Some(file), Some(directory)] if file == directory => return Some(file.clone()),
            [Some(file), Some(directory)] => file.mode().0 & directory.mode().0,
            // Of the other kind the umask would say what others have; nobody knows it here.
            [Some(heir), None] | [None, Some(heir)] => heir.mode().0,
        };
        Some(PosixAcl::of_mode(owner & 0o700))
    }

    /// What a POSIX ACL can say of an heir; `None` if it inherits nothing that decides about it.
    fn heir_below(&self, is_directory: bool) -> Option<Result<PosixAcl, AclError>> {
        // Who will make it, with which group, nobody knows yet.
        let heir = Target {
            uid: NOBODY,
            gid: NOBODY,
            is_directory,
        };
        self.decides_about(&heir).then_some(())?;
        let below = self.inherited(&heir, 0o777, 0)?.posix_below(&heir);
        Some(below.map(Below::into_acl))
    }
}

impl Below {
    /// Permission bits where there is no room for the ACL: what the owner has.
    #[must_use]
    pub fn alone(&self) -> u16 {
        self.mode & 0o700
    }

    fn into_acl(self) -> PosixAcl {
        let mode = self.mode;
        self.access.unwrap_or_else(|| PosixAcl::of_mode(mode))
    }
}

/// What everybody surely has, by what entry of a POSIX ACL he would have.
struct Sure<'a> {
    origin: Origin,
    owner: Least,
    others: Least,
    named: BTreeMap<&'a Who, Least>,
}

impl<'a> Sure<'a> {
    fn of(acl: &'a RichAcl, target: &Target) -> Self {
        let effective = acl.aces.iter().filter(|ace| ace.is_effective());
        let mut sure = Self {
            origin: acl.origin,
            owner: Least::default(),
            others: Least::default(),
            named: BTreeMap::from([(&Who::OwningGroup, Least::default())]),
        };
        for ace in effective.clone() {
            // What is nobody's has no entry, and nobody asks with it.
            if let who @ (Who::User(id) | Who::Group(id)) = plain(&ace.who, target)
                && *id != NOBODY
            {
                sure.named.insert(who, Least::default());
            }
        }
        for ace in effective {
            let who = plain(&ace.who, target);
            if target.uid == NOBODY && matches!(who, Who::User(_)) && ace.kind == AceKind::Deny {
                // He may be the owner.
                sure.owner.meets(ace);
            }
            sure.meets(ace, who);
        }
        sure
    }

    fn meets(&mut self, ace: &Ace, who: &Who) {
        let denies = ace.kind == AceKind::Deny;
        match who {
            Who::Owner | Who::OwnerRights => self.owner.meets(ace),
            // Whoever is not somebody else with an entry of his own could be in the group.
            Who::OwningGroup | Who::Group(_) if denies => {
                self.owner.meets(ace);
                self.named.values_mut().for_each(|least| least.meets(ace));
            }
            Who::OwningGroup | Who::Group(_) | Who::User(_) => {
                let is_view = self.origin == Origin::Posix;
                if let Some(least) = self.named.get_mut(who)
                    && !(is_view && least.has_entry && !matches!(who, Who::User(_)))
                {
                    // In a view a further entry for a group does not add to the first.
                    least.has_entry = true;
                    least.meets(ace);
                }
            }
            Who::Sid(_) | Who::Name { .. } if !denies => {}
            Who::Everyone | Who::Sid(_) | Who::Name { .. } => {
                let all = [&mut self.owner, &mut self.others];
                let all = self.named.values_mut().chain(all);
                all.for_each(|least| least.meets(ace));
            }
        }
    }
}

/// The bits that allow nothing beyond these rights to a file's bytes or a directory's names.
fn bits_below(rights: Rights, is_directory: bool) -> u8 {
    let mut writing = Rights::WRITE_DATA | Rights::APPEND_DATA;
    if is_directory {
        writing |= Rights::DELETE_CHILD;
    }
    let bit = |all, bit| if rights.contains(all) { bit } else { 0 };
    bit(Rights::READ_DATA, bits::READ)
        | bit(writing, bits::WRITE)
        | bit(Rights::EXECUTE, bits::EXECUTE)
}
