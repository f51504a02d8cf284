//! Who may make, remove, rename and link names, where a directory or what is in it has a rich ACL.
//!
//! | change | takes |
//! |---|---|
//! | a look-up | EXECUTE on the directory |
//! | a new file, link or device | WRITE_DATA on the directory, and EXECUTE |
//! | a new directory | APPEND_DATA on the directory, and EXECUTE |
//! | a removal | DELETE on what is removed, or DELETE_CHILD on the directory; and EXECUTE |
//! | a rename | the removal there, the new name here, the removal of what had that |
//!
//! That either right is enough for a removal is the rule of Windows and NFSv4 (RFC 8881, section
//! 6.2.1.3.2). In a sticky directory DELETE_CHILD is not enough for what is somebody else's.
//!
//! Where one part of a change is judged here and another by the kernel, the whole call is made past
//! the kernel; so its judgement about the other part is asked for before ([`Export::judge`]).
//! Between judgement and call no client takes the name away, so that nobody can put another inode
//! under it ([`RichTree::taking_turn`](super::RichTree::taking_turn)). Programs of this machine are
//! not waited for: who may change the directory by the kernel's rule can do that.

use super::{RichFile, Way};
use crate::cache::Pin;
use crate::export::Export;
use crate::stat::stat;
use crate::worker::Assumed;
use acl::{Rights, judge_sticky, rights_to_add};
use base::{Attributes, FileKind, FsError, Handle, Node, Principal, mode};
use rustix::fd::{AsFd, OwnedFd};

/// A directory as a call names it.
pub(crate) type Directory<'a> = (&'a Handle, &'a Pin);
/// What was found under a name.
pub(crate) type Found = (Node, OwnedFd);

const CHANGES: base::Rights = base::Rights {
    read: false,
    write: true,
    execute: true,
};
const SEARCHES: base::Rights = base::Rights {
    read: false,
    write: false,
    execute: true,
};

/// A caller on his thread.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) caller: &'a Assumed<'a>,
    pub(crate) who: &'a Principal,
}

impl Export {
    /// Who judges a look-up in a directory.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`], as of all of these.
    pub(crate) fn way_to_search(
        &self,
        who: &Principal,
        directory: Directory<'_>,
    ) -> Result<Way, FsError> {
        let (handle, pin) = directory;
        self.way(who, handle, pin, Rights::EXECUTE)
    }

    /// Who judges the making of a name.
    pub(crate) fn way_to_add(
        &self,
        who: &Principal,
        directory: Directory<'_>,
        kind: FileKind,
    ) -> Result<Way, FsError> {
        let (handle, pin) = directory;
        self.way(who, handle, pin, rights_to_add(kind))
    }

    /// Who judges a removal.
    pub(crate) fn way_to_remove(
        &self,
        asking: Asking<'_>,
        directory: Directory<'_>,
        victim: &Found,
    ) -> Result<Way, FsError> {
        if !self.is_rich() {
            return Ok(Way::Kernel);
        }
        let (handle, pin) = directory;
        let who = asking.who;
        let holder = self.rich_file(handle, pin)?;
        let (node, fd) = victim;
        let own = self.rich_file(&node.handle, fd)?;
        if own.is_some_and(|own| own.allows(who, Rights::DELETE)) {
            match &holder {
                Some(holder) => self.judge_rich(holder, who, Rights::EXECUTE)?,
                None => self.judge(asking.caller, pin, SEARCHES)?,
            }
            return Ok(Way::Past);
        }
        let Some(holder) = holder else {
            return Ok(Way::Kernel);
        };
        self.judge_rich(&holder, who, Rights::DELETE_CHILD | Rights::EXECUTE)?;
        check_sticky(who, &holder.attributes, &node.attributes)?;
        Ok(Way::Past)
    }

    /// Who judges a rename of what was found. `replaced` is what has the new name, and changes
    /// places with it if `exchanges`.
    pub(crate) fn way_to_rename(
        &self,
        asking: Asking<'_>,
        (from, moved): (Directory<'_>, &Found),
        (to, replaced): (Directory<'_>, Option<&Found>),
        exchanges: bool,
    ) -> Result<Way, FsError> {
        if !self.is_rich() {
            return Ok(Way::Kernel);
        }
        let who = asking.who;
        let removals = std::iter::once((from, moved)).chain(replaced.map(|found| (to, found)));
        let removals: Vec<_> = removals.collect();
        let back = replaced.filter(|_| exchanges).map(|found| (from, found));
        let additions: Vec<_> = std::iter::once((to, moved)).chain(back).collect();
        let mut ways = Vec::with_capacity(4);
        for (directory, victim) in &removals {
            ways.push(self.way_to_remove(asking, *directory, victim)?);
        }
        for (directory, (node, _)) in &additions {
            ways.push(self.way_to_add(who, *directory, node.attributes.kind)?);
        }
        if !ways.contains(&Way::Past) {
            return Ok(Way::Kernel);
        }
        let (removing, adding) = ways.split_at(removals.len());
        for ((directory, victim), _) in of_kernel(&removals, removing) {
            self.judge_removal(asking, *directory, victim)?;
        }
        for ((directory, _), _) in of_kernel(&additions, adding) {
            self.judge(asking.caller, directory.1, CHANGES)?;
        }
        for (directory, found) in [(from, Some(moved)), (to, replaced)] {
            let moves = from.0 != to.0 && (exchanges || directory.0 == from.0);
            if let Some(found) = found.filter(|_| moves) {
                self.judge_moving(asking, found)?;
            }
        }
        Ok(Way::Past)
    }

    /// The kernel's judgement about a removal.
    fn judge_removal(
        &self,
        asking: Asking<'_>,
        (_, pin): Directory<'_>,
        (node, _): &Found,
    ) -> Result<(), FsError> {
        self.judge(asking.caller, pin, CHANGES)?;
        check_sticky(asking.who, &stat(pin)?.attributes, &node.attributes)
    }

    /// A directory that comes to lie in another one changes itself: its `..` does.
    fn judge_moving(&self, asking: Asking<'_>, (node, fd): &Found) -> Result<(), FsError> {
        let is_directory = node.attributes.kind == FileKind::Directory;
        if !is_directory || self.rich_file(&node.handle, fd)?.is_some() {
            return Ok(());
        }
        let wanted = base::Rights {
            write: true,
            ..base::Rights::default()
        };
        self.judge_fd(asking.caller, fd.as_fd(), wanted)
    }

    /// Whether an inode may get another name in a directory whose rich ACL allows that: as the
    /// kernel asks where hard links are protected (proc_sys_fs(5)), that one owns it, or may read
    /// and write it.
    pub(crate) fn judge_linking(
        &self,
        asking: Asking<'_>,
        handle: &Handle,
        pin: &Pin,
    ) -> Result<(), FsError> {
        let who = asking.who;
        let attributes = stat(pin)?.attributes;
        if who.uid == 0 || who.uid == attributes.uid {
            return Ok(());
        }
        let special = mode::SETUID | mode::SETGID;
        if attributes.kind != FileKind::File || attributes.mode & special != 0 {
            return Err(FsError::NotPermitted);
        }
        let rights = Rights::READ_DATA | Rights::WRITE_DATA;
        let judged = match self.way(who, handle, pin, rights) {
            Ok(Way::Past) => Ok(()),
            Ok(Way::Kernel) => {
                let wanted = base::Rights {
                    read: true,
                    write: true,
                    execute: false,
                };
                self.judge(asking.caller, pin, wanted)
            }
            Err(error) => Err(error),
        };
        judged.map_err(|_| FsError::NotPermitted)
    }

    /// Whether a rich ACL allows a new name; for callers that have the directory's at hand.
    pub(super) fn judge_adding(
        &self,
        holder: &RichFile,
        who: &Principal,
        kind: FileKind,
    ) -> Result<(), FsError> {
        self.judge_rich(holder, who, rights_to_add(kind))
    }
}

/// Parts of a change that are the kernel's to judge.
fn of_kernel<'a, T>(parts: &'a [T], ways: &'a [Way]) -> impl Iterator<Item = (&'a T, &'a Way)> {
    let all = parts.iter().zip(ways);
    all.filter(|(_, way)| **way == Way::Kernel)
}

fn check_sticky(
    who: &Principal,
    directory: &Attributes,
    victim: &Attributes,
) -> Result<(), FsError> {
    judge_sticky(who, (directory.mode, directory.uid), victim.uid)
}
