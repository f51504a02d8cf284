//! A POSIX ACL as a rich one: who has what is said in the order in which the kernel looks for it.
//!
//! ```text
//! deny  OWNER@      what somebody after him is allowed and he is not
//! allow OWNER@
//! deny  user        for each of them: what a group or everybody is allowed and he is not
//! allow user
//! allow GROUP@ and each group
//! deny  GROUP@ and each group: what everybody is allowed and it is not
//! allow EVERYONE@
//! ```
//!
//! Denials that would deny nothing are left out, so that most lists have none and need no other
//! order for Windows. The mask is in every entry, and an empty one leaves what the mode says,
//! because so does the kernel. The order is that of draft-ietf-nfsv4-acl-mapping.
//!
//! Judged as a view ([`Origin::Posix`]), every request gets the kernel's
//! answer. Read by somebody who knows NFSv4's rule alone, it allows more in one case, for who is in
//! several groups: what one of them may and what another may is allowed in one request.

use crate::rich::limits::mode_rights;
use crate::{
    Ace, AceFlags, Caller, Origin, PosixAcl, PosixFile, PosixWho, RichAcl, Rights, Target, Who,
    bits, widenings,
};

/// Entries of a list that says what a mode says.
pub(crate) const MODE_ACES_MAX: usize = 5;

impl RichAcl {
    /// The view of a file or directory. The default ACL of a directory is there as entries that are
    /// only inherited.
    #[must_use]
    pub fn view(file: &PosixFile<'_>, default: Option<&PosixAcl>, is_directory: bool) -> Self {
        let hidden = file.mode & 0o070 == 0;
        let acl = match file.access {
            // The owner's bits are the mode's, as for the kernel.
            Some(acl) if !hidden => Classes::of_acl(acl, (file.mode >> 6 & 7) as u8),
            _ => Classes::of_mode(file.mode),
        };
        let mut aces = acl.aces(AceFlags::NONE, is_directory);
        if let Some(default) = default {
            let (mode, _) = default.mode();
            let classes = match mode & 0o070 {
                0 => Classes::of_mode(mode),
                _ => Classes::of_acl(default, (mode >> 6) as u8),
            };
            let flags = AceFlags::FILE_INHERIT
                .with(AceFlags::DIRECTORY_INHERIT)
                .with(AceFlags::INHERIT_ONLY);
            aces.extend(classes.aces(flags, true));
        }
        Self {
            aces,
            origin: Origin::Posix,
            ..Self::default()
        }
    }
}

impl RichAcl {
    /// Whether this list, as the truth, says what the view of a file's mode and POSIX ACLs says:
    /// entry for entry, with nothing of chmod's over it, and nobody is in two groups whose rights
    /// he has together by the list and not by the kernel's rule. Then either can be the truth.
    #[must_use]
    pub fn is_view_of(
        &self,
        file: &PosixFile<'_>,
        default: Option<&PosixAcl>,
        is_directory: bool,
    ) -> bool {
        let view = Self::view(file, default, is_directory);
        let target = Target {
            uid: file.uid,
            gid: file.gid,
            is_directory,
        };
        self.aces == view.aces
            && self.control == view.control
            && self.effective(&target) == view.aces
            && widenings(file).next().is_none()
    }
}

impl PosixFile<'_> {
    /// Whether a caller may do all of `wanted`, some rights of a rich ACL, as the kernel judges who
    /// does it. What no mode speaks of belongs to everybody (looking), to the owner (times, ACL),
    /// or to nobody (the owner, and removal, which the directory decides about).
    #[must_use]
    pub fn allows_rights(&self, caller: &Caller<'_>, is_directory: bool, wanted: Rights) -> bool {
        let all = [bits::READ, bits::WRITE, bits::EXECUTE];
        let asked = all
            .iter()
            .filter(|bit| wanted.intersects(mode_rights(**bit, is_directory)));
        let asked = asked.fold(0, |all, bit| all | bit);
        let mut rest = wanted - mode_rights(asked, is_directory) - Rights::LOOK;
        if caller.uid() == self.uid {
            rest = rest - Rights::OWN;
        }
        rest.is_empty() && self.allows(caller, asked)
    }
}

/// The list of a mode alone.
pub(crate) fn of_mode(mode: u16, is_directory: bool) -> Vec<Ace> {
    Classes::of_mode(mode).aces(AceFlags::NONE, is_directory)
}

/// Who has what, the mask taken off.
struct Classes {
    owner: u8,
    users: Vec<(u32, u8)>,
    owning_group: u8,
    groups: Vec<(u32, u8)>,
    others: u8,
}

impl Classes {
    fn of_mode(mode: u16) -> Self {
        let bits = |shift: u16| (mode >> shift & 7) as u8;
        Self {
            owner: bits(6),
            users: Vec::new(),
            owning_group: bits(3),
            groups: Vec::new(),
            others: bits(0),
        }
    }

    fn of_acl(acl: &PosixAcl, owner: u8) -> Self {
        let mask = acl.mask().unwrap_or(bits::ALL);
        let mut classes = Self {
            owner: owner & bits::ALL,
            ..Self::of_mode(0)
        };
        let mut seen = std::collections::BTreeSet::new();
        for entry in acl.entries() {
            match entry.who {
                PosixWho::Owner | PosixWho::Mask => {}
                // The kernel takes the first entry of a user and never sees another.
                PosixWho::User(uid) if !seen.insert(uid) => {}
                PosixWho::User(uid) => classes.users.push((uid, entry.bits & mask)),
                PosixWho::OwningGroup => classes.owning_group = entry.bits & mask,
                PosixWho::Group(gid) => classes.groups.push((gid, entry.bits & mask)),
                PosixWho::Others => classes.others = entry.bits,
            }
        }
        classes
    }

    fn aces(&self, flags: AceFlags, is_directory: bool) -> Vec<Ace> {
        let mut aces = Vec::with_capacity(2 * (self.users.len() + self.groups.len()) + 5);
        let rights = |bits| mode_rights(bits, is_directory);
        let allow = |who, bits| Ace {
            flags,
            ..Ace::allow(who, rights(bits) | Rights::LOOK)
        };
        let deny = |who, bits| {
            (bits != 0).then(|| Ace {
                flags,
                ..Ace::deny(who, rights(bits))
            })
        };
        let of_groups = self
            .groups
            .iter()
            .fold(self.owning_group, |all, (_, bits)| all | bits);
        let after_users = of_groups | self.others;
        let after_owner = self
            .users
            .iter()
            .fold(after_users, |all, (_, bits)| all | bits);

        aces.extend(deny(Who::Owner, after_owner & !self.owner));
        let mut owner = allow(Who::Owner, self.owner);
        owner.rights |= Rights::OWN;
        aces.push(owner);
        for (uid, bits) in &self.users {
            aces.extend(deny(Who::User(*uid), after_users & !bits));
            aces.push(allow(Who::User(*uid), *bits));
        }
        let groups = self
            .groups
            .iter()
            .map(|(gid, bits)| (Who::Group(*gid), *bits));
        let groups = [(Who::OwningGroup, self.owning_group)]
            .into_iter()
            .chain(groups);
        aces.extend(groups.clone().map(|(who, bits)| allow(who, bits)));
        aces.extend(groups.filter_map(|(who, bits)| deny(who, self.others & !bits)));
        aces.push(allow(Who::Everyone, self.others));
        aces
    }
}
