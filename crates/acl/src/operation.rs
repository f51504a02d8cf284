//! What operations on files take where a rich ACL is the truth, whatever the files lie in.
//!
//! | operation | takes |
//! |---|---|
//! | open | READ_DATA; WRITE_DATA and APPEND_DATA; EXECUTE |
//! | open for appending alone | APPEND_DATA |
//! | a new file, link or device | WRITE_DATA on the directory, and EXECUTE |
//! | a new directory | APPEND_DATA on the directory, and EXECUTE |
//! | mode | WRITE_ACL; with the set-user-ID bit, to be the owner besides |
//! | owner | WRITE_OWNER, and one becomes it oneself |
//! | group | to be the owner, or WRITE_OWNER; and it is one of one's own |
//! | size, not through an open file | WRITE_DATA |
//! | times | WRITE_ATTRIBUTES; to set them to now, WRITE_DATA is enough |
//!
//! The order of the questions is the kernel's, because it decides which error a caller sees.

use crate::{Caller, RichAcl, Rights, Target};
use base::{Access, AttributeChange, FileKind, FsError, Principal, SetTime, mode};

/// Whether a caller may do all of `wanted` with a file whose truth is this list. `None` is a list
/// that cannot be read: it allows nothing, and the owner can look at it and put another one in its
/// place. Root is not judged.
#[must_use]
pub fn permits(list: Option<&RichAcl>, who: &Principal, target: &Target, wanted: Rights) -> bool {
    if who.uid == 0 {
        return true;
    }
    match list {
        Some(list) => list.allows(&Caller::new(who), target, wanted),
        None => {
            let own = Rights::READ_ACL | Rights::WRITE_ACL;
            who.uid == target.uid && own.contains(wanted)
        }
    }
}

/// What an open takes. One that only appends changes nothing that is there.
#[must_use]
pub fn rights_to_open(access: Access, truncates: bool, only_appends: bool) -> Rights {
    let writing = match only_appends {
        true => Rights::APPEND_DATA,
        false => Rights::WRITE_DATA | Rights::APPEND_DATA,
    };
    let rights = match access {
        Access::Read => Rights::READ_DATA,
        Access::Write => writing,
        Access::ReadWrite => Rights::READ_DATA | writing,
        Access::Execute => Rights::EXECUTE,
    };
    match truncates {
        true => rights | Rights::WRITE_DATA,
        false => rights,
    }
}

/// What access(2) asks for.
#[must_use]
pub fn rights_to_access(wanted: base::Rights) -> Rights {
    let when = |is_wanted, rights| if is_wanted { rights } else { Rights::NONE };
    when(wanted.read, Rights::READ_DATA)
        | when(wanted.write, Rights::WRITE_DATA | Rights::APPEND_DATA)
        | when(wanted.execute, Rights::EXECUTE)
}

/// What a new name takes of its directory, for an inode of this kind.
#[must_use]
pub fn rights_to_add(kind: FileKind) -> Rights {
    match kind {
        FileKind::Directory => Rights::APPEND_DATA | Rights::EXECUTE,
        _ => Rights::WRITE_DATA | Rights::EXECUTE,
    }
}

/// In a sticky directory names go only by their owner, or that of the directory.
///
/// # Errors
/// [`FsError::NotPermitted`].
pub fn judge_sticky(
    who: &Principal,
    (directory_mode, directory_uid): (u16, u32),
    victim_uid: u32,
) -> Result<(), FsError> {
    let is_sticky = directory_mode & mode::STICKY != 0;
    let owns = [0, directory_uid, victim_uid].contains(&who.uid);
    match is_sticky && !owns {
        true => Err(FsError::NotPermitted),
        false => Ok(()),
    }
}

/// Whether all parts of a change may be made. `allows` says what the caller may do with the file;
/// `is_open`, whether it is made through an open file, which has been judged about its contents.
///
/// # Errors
/// [`FsError::NotPermitted`] where owners are asked for, [`FsError::AccessDenied`] else.
pub fn judge_change(
    who: &Principal,
    target: &Target,
    change: &AttributeChange,
    is_open: bool,
    allows: impl Fn(Rights) -> bool,
) -> Result<(), FsError> {
    let takes = |rights, error| match allows(rights) {
        true => Ok(()),
        false => Err(error),
    };
    if let Some(mode) = change.mode {
        takes(Rights::WRITE_ACL, FsError::NotPermitted)?;
        // Who may say what others may do with a file does not become its owner by running it.
        let owner = change.uid.unwrap_or(target.uid);
        if mode & base::mode::SETUID != 0 && who.uid != 0 && who.uid != owner {
            return Err(FsError::NotPermitted);
        }
    }
    judge_owner(who, target, change, &allows)?;
    if change.size.is_some() && !is_open {
        takes(Rights::WRITE_DATA, FsError::AccessDenied)?;
    }
    let times = [change.accessed, change.modified];
    let sets = |time: &Option<SetTime>| matches!(time, Some(SetTime::To(_)));
    if times.iter().any(sets) {
        takes(Rights::WRITE_ATTRIBUTES, FsError::NotPermitted)?;
    } else if times.iter().any(Option::is_some) && !allows(Rights::WRITE_DATA) {
        takes(Rights::WRITE_ATTRIBUTES, FsError::AccessDenied)?;
    }
    Ok(())
}

fn judge_owner(
    who: &Principal,
    target: &Target,
    change: &AttributeChange,
    allows: impl Fn(Rights) -> bool,
) -> Result<(), FsError> {
    let changes_owner = change.uid.is_some() || change.gid.is_some();
    if who.uid == 0 || !changes_owner {
        return Ok(());
    }
    let takes = change.uid.is_some_and(|uid| uid != target.uid);
    let moves = change.gid.is_some_and(|gid| gid != target.gid);
    let owns = who.uid == target.uid;
    let is_own = change.uid.is_none_or(|uid| !takes || uid == who.uid)
        && change.gid.is_none_or(|gid| !moves || who.is_member(gid));
    let may = (owns && !takes) || allows(Rights::WRITE_OWNER);
    match is_own && may {
        true => Ok(()),
        false => Err(FsError::NotPermitted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target = Target {
        uid: 1,
        gid: 10,
        is_directory: false,
    };

    #[test]
    fn a_list_that_cannot_be_read_is_its_owners_to_replace_and_nobody_elses() {
        let acl = Rights::READ_ACL | Rights::WRITE_ACL;
        let owner = Principal::alone(1, 10);
        assert!(permits(None, &owner, &TARGET, acl));
        assert!(!permits(None, &owner, &TARGET, Rights::READ_DATA));
        assert!(!permits(
            None,
            &Principal::alone(2, 10),
            &TARGET,
            Rights::READ_ACL
        ));
        assert!(permits(
            None,
            &Principal::root(),
            &TARGET,
            Rights::WRITE_DATA
        ));
    }

    #[test]
    fn to_append_alone_takes_the_right_to_append_and_to_truncate_another_one() {
        let rights = |truncates| rights_to_open(Access::Write, truncates, true);
        assert_eq!(rights(false), Rights::APPEND_DATA);
        assert_eq!(rights(true), Rights::APPEND_DATA | Rights::WRITE_DATA);
        let both = rights_to_open(Access::ReadWrite, false, true);
        assert_eq!(both, Rights::APPEND_DATA | Rights::READ_DATA);
        let writes = rights_to_open(Access::Write, false, false);
        assert_eq!(writes, Rights::APPEND_DATA | Rights::WRITE_DATA);
    }

    #[test]
    fn nobody_makes_a_program_run_as_somebody_else() {
        let judged = |who: &Principal, uid, mode| {
            let change = AttributeChange {
                uid,
                mode: Some(mode),
                ..AttributeChange::default()
            };
            judge_change(who, &TARGET, &change, false, |_| true)
        };
        let somebody = Principal::alone(2, 20);
        let refused = Err(FsError::NotPermitted);
        assert_eq!(judged(&somebody, None, 0o4755), refused);
        assert_eq!(judged(&somebody, Some(1), 0o6755), refused);
        assert_eq!(judged(&somebody, None, 0o2777), Ok(()));
        // Himself, the owner, and root.
        assert_eq!(judged(&somebody, Some(2), 0o4755), Ok(()));
        assert_eq!(judged(&Principal::alone(1, 10), None, 0o4755), Ok(()));
        assert_eq!(judged(&Principal::root(), None, 0o4755), Ok(()));
    }

    #[test]
    fn who_may_take_a_file_takes_it_for_himself() {
        let who = Principal::alone(2, 20);
        let change = |uid, gid| AttributeChange {
            uid,
            gid,
            ..AttributeChange::default()
        };
        let judged = |uid, gid, rights: Rights| {
            let allows = |wanted| rights.contains(wanted);
            judge_change(&who, &TARGET, &change(uid, gid), false, allows)
        };
        assert_eq!(judged(Some(2), None, Rights::WRITE_OWNER), Ok(()));
        assert_eq!(judged(Some(2), Some(20), Rights::WRITE_OWNER), Ok(()));
        for (uid, gid, rights) in [
            (Some(3), None, Rights::WRITE_OWNER),
            (Some(2), Some(30), Rights::WRITE_OWNER),
            (Some(2), None, Rights::WRITE_ACL),
        ] {
            let refused = Err(FsError::NotPermitted);
            assert_eq!(judged(uid, gid, rights), refused, "{uid:?} {gid:?}");
        }
    }
}
