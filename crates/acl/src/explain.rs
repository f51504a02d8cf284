//! Which entry decides whether somebody may do something with a file.
//!
//! It is asked of the same functions that decide: of a file whose truth is POSIX by the kernel's
//! rule, for the kernel itself gives no reasons. Whether a name may be removed is also its
//! directory's to say.

use crate::{
    Ace, Caller, Decision, Ground, Origin, PosixEntry, PosixFile, PosixGround, PosixWho, RichAcl,
    Rights, Target, UnixIds, bits, operation,
};
use base::{Principal, mode};

/// Permission bits that let somebody run a file.
const EXECUTE_BITS: u16 = 0o111;
/// What makes and removes names in a directory.
const NAMES: Rights = Rights::WRITE_DATA
    .or(Rights::APPEND_DATA)
    .or(Rights::DELETE_CHILD);

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
    /// In a sticky directory only owners remove names, or set attributes of it.
    Sticky,
    /// Its mode has no execute bit at all, and no kernel runs such a file for anybody.
    NoExecuteBit,
    /// Nobody is asked for a right to that who gets as far as the name.
    Everybody,
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
    /// The entry that decided: its place from 0 on in the list as it is shown, and its text.
    pub entry: Option<(u32, String)>,
    /// Whether it was one of the directory that has the name.
    pub is_directorys: bool,
}

/// All that decides about an inode.
#[derive(Clone, Copy, Debug)]
pub enum Judged<'a> {
    /// Its mode and POSIX ACL.
    Posix(PosixFile<'a>),
    /// A rich ACL, or one that cannot be read.
    Rich(Option<&'a RichAcl>),
}

/// An inode that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What decides.
    pub by: Judged<'a>,
    /// Whose it is.
    pub target: Target,
    /// Its mode, with the sticky bit.
    pub mode: u16,
}

impl Asked<'_> {
    /// Whether `who` may do all of `wanted`, and why. `directory` is where it has its name, and is
    /// asked about removal.
    #[must_use]
    pub fn explain(
        &self,
        directory: Option<&Asked<'_>>,
        who: &Principal,
        wanted: Rights,
    ) -> Explained {
        // Root is asked about that alone, for the kernel lets him do everything else.
        let is_about = wanted == Rights::EXECUTE || who.uid != 0;
        let runs = is_about && wanted.contains(Rights::EXECUTE) && !self.target.is_directory;
        if runs && self.mode & EXECUTE_BITS == 0 {
            return Explained {
                origin: self.origin(),
                ..Explained::by(false, Rights::EXECUTE, Grounds::NoExecuteBit)
            };
        }
        if who.uid == 0 {
            return Explained {
                origin: self.origin(),
                ..Explained::by(true, wanted, Grounds::Superuser)
            };
        }
        let mut rest = wanted - Rights::DELETE;
        // Names are made and removed on the way through it.
        if self.target.is_directory && rest.intersects(NAMES) {
            rest |= Rights::EXECUTE;
        }
        let removes = wanted.contains(Rights::DELETE);
        if !rest.is_empty() || !removes {
            let of_rest = self.own(who, rest);
            if !of_rest.is_allowed || !removes {
                return of_rest;
            }
        }
        if let Judged::Rich(_) = self.by {
            let own = self.own(who, Rights::DELETE);
            if own.is_allowed || directory.is_none() {
                return own;
            }
        }
        match directory {
            Some(directory) => directory.explain_removal(self.target.uid, who),
            None => Explained::by(false, Rights::DELETE, Grounds::Nothing),
        }
    }

    /// What a directory says about the removal of somebody's file.
    fn explain_removal(&self, victim_uid: u32, who: &Principal) -> Explained {
        let wanted = match self.by {
            Judged::Rich(_) => Rights::DELETE_CHILD | Rights::EXECUTE,
            Judged::Posix(_) => Rights::WRITE_DATA | Rights::DELETE_CHILD | Rights::EXECUTE,
        };
        let mut by = self.own(who, wanted);
        let owner = (self.mode & mode::STICKY, self.target.uid);
        if by.is_allowed && operation::judge_sticky(who, owner, victim_uid).is_err() {
            by = Explained {
                origin: self.origin(),
                ..Explained::by(false, Rights::DELETE, Grounds::Sticky)
            };
        }
        by.is_directorys = true;
        by
    }

    fn origin(&self) -> Origin {
        match self.by {
            Judged::Posix(_) => Origin::Posix,
            Judged::Rich(_) => Origin::Rich,
        }
    }

    /// What the list is not asked about.
    fn free(&self, who: &Principal) -> Rights {
        match (self.by, who.uid == self.target.uid) {
            // To give it to another of one's own groups takes no right of one's own file.
            (Judged::Rich(Some(_)), true) => Rights::READ_ATTRIBUTES | Rights::WRITE_OWNER,
            _ => Rights::READ_ATTRIBUTES,
        }
    }

    /// Whether a sticky directory keeps its attributes for its owner.
    fn is_kept(&self, who: &Principal, wanted: Rights) -> bool {
        let is_sticky = self.target.is_directory && self.mode & mode::STICKY != 0;
        is_sticky && wanted.contains(Rights::WRITE_NAMED) && who.uid != self.target.uid
    }

    fn own(&self, who: &Principal, wanted: Rights) -> Explained {
        let free = self.free(who);
        if !wanted.is_empty() && free.contains(wanted) {
            let grounds = match Rights::READ_ATTRIBUTES.contains(wanted) {
                true => Grounds::Everybody,
                false => Grounds::Owner,
            };
            return Explained {
                origin: self.origin(),
                ..Explained::by(true, wanted, grounds)
            };
        }
        let wanted = wanted - free;
        if self.is_kept(who, wanted) {
            return Explained {
                origin: self.origin(),
                ..Explained::by(false, Rights::WRITE_NAMED, Grounds::Sticky)
            };
        }
        match self.by {
            Judged::Posix(file) => of_posix(&file, self.target.is_directory, who, wanted),
            Judged::Rich(Some(list)) => of_rich(list, &self.target, who, wanted),
            Judged::Rich(None) => {
                let is_allowed = operation::permits(None, who, &self.target, wanted);
                Explained {
                    origin: Origin::Rich,
                    ..Explained::by(is_allowed, wanted, Grounds::Unreadable)
                }
            }
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

fn of_rich(list: &RichAcl, target: &Target, who: &Principal, wanted: Rights) -> Explained {
    let caller = Caller::new(who);
    let decision = list.decide(&caller, target, wanted);
    let (grounds, entry) = match decision.ground {
        Ground::Entry(place) => {
            let shown = entry_shown(list, target, &caller, &decision);
            (Grounds::RichEntry, shown.or_else(|| entry_of(list, place)))
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

/// The entry that decides in a list as it is shown, where limits are entries too.
fn entry_shown(
    list: &RichAcl,
    target: &Target,
    caller: &Caller<'_>,
    decision: &Decision,
) -> Option<(u32, String)> {
    let shown = RichAcl::new(list.effective(target)).ok()?;
    let again = shown.decide(caller, target, decision.rights);
    match again.ground {
        Ground::Entry(place) if again.is_allowed == decision.is_allowed => entry_of(&shown, place),
        _ => None,
    }
}

fn entry_of(list: &RichAcl, place: usize) -> Option<(u32, String)> {
    let ace: &Ace = list.aces().get(place)?;
    Some((place as u32, ace.to_text(&UnixIds)))
}

fn of_posix(
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
        let grounds = match Rights::LOOK.contains(wanted) {
            true => Grounds::Everybody,
            false => Grounds::Owner,
        };
        return Explained::by(is_allowed, wanted, grounds);
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
