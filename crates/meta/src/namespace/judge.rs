//! Who may do what, as Linux judges it on ext4: uid 0 has every capability, everybody else none.
//!
//! The order of the questions is the kernel's (`namei.c`, `attr.c`), because it decides which error
//! a caller sees, and with it what he learns. Hard links are protected (proc_sys_fs(5)), as every
//! distribution has it.

use super::record::Inode;
use base::{FileKind, FsError, Principal, mode};

pub(super) const READ: u8 = 4;
pub(super) const WRITE: u8 = 2;
pub(super) const EXECUTE: u8 = 1;

const GROUP_BITS: u16 = 0o070;
const GROUP_EXECUTE: u16 = 0o010;
const ANY_EXECUTE: u16 = 0o111;

pub(super) fn is_root(who: &Principal) -> bool {
    who.uid == 0
}

/// Owners, and root in their place.
pub(super) fn is_owner(inode: &Inode, who: &Principal) -> bool {
    who.uid == inode.uid || is_root(who)
}

fn in_group_or_root(gid: u32, who: &Principal) -> bool {
    who.is_member(gid) || is_root(who)
}

/// Whether `who` may do all of `wanted` with an inode.
pub(super) fn permits(inode: &Inode, who: &Principal, wanted: u8) -> Result<(), FsError> {
    let bits = |shift: u16| (inode.mode >> shift & 7) as u8;
    let grants = |bits: u8| bits & wanted == wanted;
    let is_granted = if who.uid == inode.uid {
        grants(bits(6))
    } else {
        // An ACL is looked at only where the mode has something for groups, which is its mask.
        match &inode.access {
            Some(acl) if inode.mode & GROUP_BITS != 0 => {
                acl.allows(inode.uid, inode.gid, who, wanted)
            }
            _ if who.is_member(inode.gid) => grants(bits(3)),
            _ => grants(bits(0)),
        }
    };
    let can_run = inode.is_directory() || inode.mode & ANY_EXECUTE != 0;
    let root_may = is_root(who) && (wanted & EXECUTE == 0 || can_run);
    match is_granted || root_may {
        true => Ok(()),
        false => Err(FsError::AccessDenied),
    }
}

/// Whether a name can be taken away from `victim` in `directory`.
pub(super) fn may_remove(
    directory: &Inode,
    victim: &Inode,
    who: &Principal,
    as_directory: bool,
) -> Result<(), FsError> {
    permits(directory, who, WRITE | EXECUTE)?;
    let is_sticky = directory.mode & mode::STICKY != 0;
    if is_sticky && who.uid != victim.uid && who.uid != directory.uid && !is_root(who) {
        return Err(FsError::NotPermitted);
    }
    check_kind(victim, as_directory)
}

/// Whether what is to be removed is of the kind that is meant.
pub(super) fn check_kind(victim: &Inode, as_directory: bool) -> Result<(), FsError> {
    match (as_directory, victim.is_directory()) {
        (true, false) => Err(FsError::NotDirectory),
        (false, true) => Err(FsError::IsDirectory),
        _ => Ok(()),
    }
}

/// Whether `who` may give an inode a further name.
pub(super) fn may_link(inode: &Inode, who: &Principal) -> Result<(), FsError> {
    if is_owner(inode, who) {
        return Ok(());
    }
    let runs_as_group = mode::SETGID | GROUP_EXECUTE;
    let is_safe = inode.kind == FileKind::File
        && inode.mode & mode::SETUID == 0
        && inode.mode & runs_as_group != runs_as_group
        && permits(inode, who, READ | WRITE).is_ok();
    match is_safe {
        true => Ok(()),
        false => Err(FsError::NotPermitted),
    }
}

/// Group and mode of what is made in `directory`, before an ACL or the umask is thought of.
pub(super) fn born(directory: &Inode, who: &Principal, kind: FileKind, wanted: u16) -> (u32, u16) {
    let inherits = directory.mode & mode::SETGID != 0;
    let gid = if inherits { directory.gid } else { who.gid };
    let mode = match kind {
        FileKind::Directory => {
            let inherited = if inherits { mode::SETGID } else { 0 };
            wanted & (0o777 | mode::STICKY) | inherited
        }
        FileKind::Symlink => 0o777,
        _ => {
            let runs_as_group = mode::SETGID | GROUP_EXECUTE;
            let is_foreign = inherits && !in_group_or_root(directory.gid, who);
            match is_foreign && wanted & runs_as_group == runs_as_group {
                true => wanted & mode::ALL & !mode::SETGID,
                false => wanted & mode::ALL,
            }
        }
    };
    (gid, mode)
}

/// Whether a set-group-ID bit goes when somebody writes or changes the owner.
fn drops_setgid(inode: &Inode, who: &Principal) -> bool {
    inode.mode & mode::SETGID != 0
        && (inode.mode & GROUP_EXECUTE != 0 || !in_group_or_root(inode.gid, who))
}

/// The mode of a file after `who` has changed its contents.
pub(super) fn written(inode: &Inode, who: &Principal) -> u16 {
    if is_root(who) || inode.kind != FileKind::File {
        return inode.mode;
    }
    let setgid = if drops_setgid(inode, who) {
        mode::SETGID
    } else {
        0
    };
    inode.mode & !(mode::SETUID | setgid)
}

/// Changes owner and group.
pub(super) fn change_owner(
    inode: &mut Inode,
    who: &Principal,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<(), FsError> {
    check_owner(uid, gid)?;
    let owns = who.uid == inode.uid;
    let keeps_owner = uid.is_none_or(|uid| owns && uid == inode.uid);
    let keeps_to_groups = gid.is_none_or(|gid| owns && (gid == inode.gid || who.is_member(gid)));
    let is_allowed = is_root(who) || (keeps_owner && keeps_to_groups);
    if !is_allowed {
        return Err(FsError::NotPermitted);
    }
    give(inode, who, uid, gid);
    Ok(())
}

/// Whether these are users and groups.
pub(super) fn check_owner(uid: Option<u32>, gid: Option<u32>) -> Result<(), FsError> {
    // The kernel's number for "stay as it is" is nobody's.
    match uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        true => Err(FsError::Invalid),
        false => Ok(()),
    }
}

/// Changes owner and group, which was judged.
pub(super) fn give(inode: &mut Inode, who: &Principal, uid: Option<u32>, gid: Option<u32>) {
    let mut mode_after = None;
    if !inode.is_directory() {
        if inode.mode & mode::SETUID != 0 {
            mode_after = Some(inode.mode & !mode::SETUID);
        }
        if drops_setgid(inode, who) {
            mode_after = Some(mode_after.unwrap_or(inode.mode) & !mode::SETGID);
        }
    }
    // A change of the mode, also this one, is judged by the group that the inode gets.
    if mode_after.is_some() && !in_group_or_root(gid.unwrap_or(inode.gid), who) {
        mode_after = mode_after.map(|mode| mode & !mode::SETGID);
    }
    inode.uid = uid.unwrap_or(inode.uid);
    inode.gid = gid.unwrap_or(inode.gid);
    if let Some(mode) = mode_after {
        set_mode(inode, mode);
    }
}

/// chmod(2).
pub(super) fn change_mode(inode: &mut Inode, who: &Principal, wanted: u16) -> Result<(), FsError> {
    if inode.kind == FileKind::Symlink {
        return Err(FsError::NotSupported);
    }
    if !is_owner(inode, who) {
        return Err(FsError::NotPermitted);
    }
    let mode = mode_for(inode, who, wanted);
    set_mode(inode, mode);
    Ok(())
}

/// What a mode that `who` wants to give an inode comes to.
pub(super) fn mode_for(inode: &Inode, who: &Principal, wanted: u16) -> u16 {
    let setgid = match in_group_or_root(inode.gid, who) {
        true => 0,
        false => mode::SETGID,
    };
    wanted & mode::ALL & !setgid
}

/// Gives an inode a mode, and its ACL the same.
fn set_mode(inode: &mut Inode, mode: u16) {
    inode.mode = mode;
    if let Some(acl) = &mut inode.access {
        **acl = acl.with_mode(mode);
    }
}

/// The mode after an ACL was set that says `permissions`.
pub(super) fn mode_with_acl(inode: &Inode, who: &Principal, permissions: u16) -> u16 {
    let setgid = match in_group_or_root(inode.gid, who) {
        true => 0,
        false => mode::SETGID,
    };
    (inode.mode & !0o777 | permissions) & !setgid
}
