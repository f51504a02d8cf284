//! Which entry decides whether somebody may do something with a file.
//!
//! It is asked of the same functions that decide: of a file whose truth is POSIX by the kernel's
//! rule, as `acl` has it, for the kernel itself gives no reasons. Whether a name may be removed is
//! also its directory's to say.

use super::{RichFile, target_of};
use crate::export::Export;
use crate::stat::stat;
use crate::worker::Worker;
use acl::{
    Ace, Caller, Ground, Origin, PosixAcl, PosixEntry, PosixFile, PosixGround, PosixWho, Rights,
    UnixIds, bits,
};
use base::{Attributes, FileKind, FsError, Handle, Principal, mode};
use rustix::fd::{AsFd, BorrowedFd};

/// What a decision was taken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grounds {
    /// User 0 is not judged.
    Superuser,
    /// The owner's bits of the mode.
    OwnerBits,
    /// The group's bits of the mode.
    GroupBits,
    /// The bits of others in the mode.
    OthersBits,
    /// An entry of the POSIX ACL.
    PosixEntry,
    /// The caller is in groups with entries, none of which allows it all.
    Groups,
    /// An entry of the rich ACL.
    RichEntry,
    /// Owners may do that, or nobody else.
    Owner,
    /// What chmod, or the mode at creation, has put over the list.
    Mode,
    /// No entry speaks of it.
    Nothing,
    /// The stored list cannot be read.
    Unreadable,
    /// In a sticky directory only owners remove names.
    Sticky,
}

/// A decision, and what it was taken by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Whether all that was asked for is allowed.
    pub is_allowed: bool,
    /// What is the truth about that which decided.
    pub origin: Origin,
    /// The rights that decided.
    pub rights: Rights,
    /// What decided.
    pub grounds: Grounds,
    /// The entry that decided: its place from 0 on, and its text.
    pub entry: Option<(u32, String)>,
    /// Whether it was one of the directory that has the name.
    pub is_directorys: bool,
}

impl Export {
    /// Whether `who` may do all of `wanted` with an inode, and why. `directory` is where it has its
    /// name, and is asked about removal.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] if who asks may not read the ACL; else as [`Export::attributes`].
    pub fn explain(
        &self,
        worker: &Worker,
        asks: &Principal,
        (handle, directory): (&Handle, Option<&Handle>),
        who: &Principal,
        wanted: Rights,
    ) -> Result<Explained, FsError> {
        let caller = worker.assume(asks)?;
        let pin = self.resolve(&caller, handle)?;
        let rich = self.rich_file(handle, &*pin)?;
        if let Some(rich) = &rich {
            self.judge_rich(rich, asks, Rights::READ_ACL)?;
        }
        if who.uid == 0 {
            return Ok(Explained::by(true, wanted, Grounds::Superuser));
        }
        let rest = wanted - Rights::DELETE;
        let removes = wanted.contains(Rights::DELETE);
        let attributes = stat(&*pin)?.attributes;
        if !rest.is_empty() || !removes {
            let of_rest = self.explain_own(rich.as_ref(), pin.as_fd(), &attributes, who, rest)?;
            if !of_rest.is_allowed || !removes {
                return Ok(of_rest);
            }
        }
        if let Some(rich) = &rich {
            let own = rich.explain(who, Rights::DELETE);
            if own.is_allowed || directory.is_none() {
                return Ok(own);
            }
        }
        let Some(directory) = directory else {
            return Ok(Explained::by(false, Rights::DELETE, Grounds::Nothing));
        };
        let holder = self.resolve(&caller, directory)?;
        let rich = self.rich_file(directory, &*holder)?;
        let held = stat(&*holder)?.attributes;
        let wanted = match &rich {
            Some(_) => Rights::DELETE_CHILD | Rights::EXECUTE,
            None => Rights::WRITE_DATA | Rights::DELETE_CHILD | Rights::EXECUTE,
        };
        let mut by = self.explain_own(rich.as_ref(), holder.as_fd(), &held, who, wanted)?;
        let owns = [held.uid, attributes.uid].contains(&who.uid);
        if by.is_allowed && held.mode & mode::STICKY != 0 && !owns {
            by = Explained::by(false, Rights::DELETE, Grounds::Sticky);
        }
        by.is_directorys = true;
        Ok(by)
    }

    fn explain_own(
        &self,
        rich: Option<&RichFile>,
        fd: BorrowedFd<'_>,
        attributes: &Attributes,
        who: &Principal,
        wanted: Rights,
    ) -> Result<Explained, FsError> {
        if let Some(rich) = rich {
            return Ok(rich.explain(who, wanted));
        }
        let value = self.read_own(fd, "system.posix_acl_access")?;
        let access = match value {
            Some(value) => PosixAcl::from_xattr(&value).map_err(|_| FsError::Io)?,
            None => None,
        };
        let file = PosixFile {
            uid: attributes.uid,
            gid: attributes.gid,
            mode: attributes.mode & 0o777,
            access: access.as_ref(),
        };
        let is_directory = attributes.kind == FileKind::Directory;
        Ok(explain_posix(&file, is_directory, who, wanted))
    }
}

impl RichFile {
    fn explain(&self, who: &Principal, wanted: Rights) -> Explained {
        let Some(list) = &self.list else {
            return Explained {
                origin: Origin::Rich,
                ..Explained::by(self.allows(who, wanted), wanted, Grounds::Unreadable)
            };
        };
        debug_assert_eq!(self.target, target_of(&self.attributes));
        let decision = list.decide(&Caller::new(who), &self.target, wanted);
        let (grounds, entry) = match decision.ground {
            Ground::Entry(place) => {
                let text = list
                    .aces()
                    .get(place)
                    .map(|ace: &Ace| ace.to_text(&UnixIds));
                (Grounds::RichEntry, text.map(|text| (place as u32, text)))
            }
            Ground::Owner => (Grounds::Owner, None),
            Ground::Mode => (Grounds::Mode, None),
            Ground::Nothing => (Grounds::Nothing, None),
        };
        Explained {
            origin: Origin::Rich,
            entry,
            ..Explained::by(decision.is_allowed, decision.rights, grounds)
        }
    }
}

impl Explained {
    fn by(is_allowed: bool, rights: Rights, grounds: Grounds) -> Self {
        Self {
            is_allowed,
            origin: Origin::Posix,
            rights,
            grounds,
            entry: None,
            is_directorys: false,
        }
    }
}

fn explain_posix(
    file: &PosixFile<'_>,
    is_directory: bool,
    who: &Principal,
    wanted: Rights,
) -> Explained {
    let caller = Caller::new(who);
    let is_allowed = file.allows_rights(&caller, is_directory, wanted);
    let owns = who.uid == file.uid;
    let beside = Rights::LOOK | if owns { Rights::OWN } else { Rights::NONE };
    let rest = wanted - beside;
    if rest.is_empty() {
        return Explained::by(is_allowed, wanted, Grounds::Owner);
    }
    let mut asked = 0;
    for (bit, sample) in [
        (bits::READ, Rights::READ_DATA | Rights::READ_NAMED),
        (
            bits::WRITE,
            Rights::WRITE_DATA | Rights::APPEND_DATA | Rights::WRITE_NAMED | Rights::DELETE_CHILD,
        ),
        (bits::EXECUTE, Rights::EXECUTE),
    ] {
        if rest.intersects(sample) {
            asked |= bit;
        }
    }
    let decision = file.decide(&caller, asked);
    if asked == 0 || decision.is_allowed != is_allowed {
        // It is about what no mode speaks of.
        return Explained::by(is_allowed, rest, Grounds::Owner);
    }
    let (grounds, entry) = match decision.ground {
        PosixGround::OwnerBits => (Grounds::OwnerBits, None),
        PosixGround::GroupBits => (Grounds::GroupBits, None),
        PosixGround::OthersBits => (Grounds::OthersBits, None),
        PosixGround::Groups => (Grounds::Groups, None),
        PosixGround::Entry(place) => {
            let entry = file.access.and_then(|acl| acl.entries().get(place));
            let text = entry.map(|entry| (place as u32, text_of(entry)));
            (Grounds::PosixEntry, text)
        }
    };
    Explained {
        entry,
        ..Explained::by(is_allowed, rest, grounds)
    }
}

/// As getfacl(1) writes it.
fn text_of(entry: &PosixEntry) -> String {
    let who = match entry.who {
        PosixWho::Owner => "user:".to_owned(),
        PosixWho::User(uid) => format!("user:{uid}"),
        PosixWho::OwningGroup => "group:".to_owned(),
        PosixWho::Group(gid) => format!("group:{gid}"),
        PosixWho::Mask => "mask:".to_owned(),
        PosixWho::Others => "other:".to_owned(),
    };
    let letter = |bit, letter| if entry.bits & bit != 0 { letter } else { '-' };
    let read = letter(bits::READ, 'r');
    let write = letter(bits::WRITE, 'w');
    format!("{who}:{read}{write}{}", letter(bits::EXECUTE, 'x'))
}
