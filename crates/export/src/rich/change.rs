//! chmod, chown, truncation and times of files whose truth is a rich ACL.
//!
//! | change | takes |
//! |---|---|
//! | mode | WRITE_ACL |
//! | owner | WRITE_OWNER, and one becomes it oneself |
//! | group | to be the owner, or WRITE_OWNER; and it is one of one's own |
//! | size, not through an open file | WRITE_DATA |
//! | times | WRITE_ATTRIBUTES; to set them to now, WRITE_DATA is enough |
//!
//! All parts are judged before the first is made. A new mode lies over the list
//! ([`acl::RichAcl::with_shown_mode`]); a new owner is another one whom the list means, so what the
//! file system is told of it is told anew.

use super::judge::Asking;
use super::{PAST, RichFile, Way, by_way};
use crate::change::{change_mode, change_owner, change_times, truncate};
use crate::export::Export;
use crate::file::OpenFile;
use crate::stat::stat;
use acl::{RichAcl, Rights};
use base::{AttributeChange, FsError, Handle, Principal, SetTime};
use rustix::fd::BorrowedFd;
use rustix::thread::CapabilitySet;

impl Export {
    /// Changes attributes of an inode that has a rich ACL.
    pub(crate) fn change_rich(
        &self,
        asking: Asking<'_>,
        handle: &Handle,
        fd: BorrowedFd<'_>,
        change: &AttributeChange,
        file: Option<&OpenFile>,
    ) -> Result<(), FsError> {
        let alters_truth = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
        let _turn = alters_truth.then(|| self.rich.turn(handle));
        let Some(rich) = self.rich_file(handle, fd)? else {
            // Its list has gone a moment ago; the caller tries once more.
            return Err(FsError::WouldBlock);
        };
        let caller = asking.caller;
        self.judge_change(asking.who, &rich, change, file.is_some())?;
        match (change.size, file) {
            (Some(size), Some(file)) => file.truncate_as_assumed(size)?,
            (Some(size), None) => by_way(caller, Way::Past, || truncate(fd, size))?,
            (None, _) => {}
        }
        if change.uid.is_some() || change.gid.is_some() {
            let own = || change_owner(fd, change.uid, change.gid);
            match own() {
                Err(FsError::NotPermitted) => caller.with(CapabilitySet::CHOWN | PAST, own)??,
                result => result?,
            }
        }
        if let Some(mode) = change.mode {
            // Set-id bits as the kernel has them for this caller; permission bits follow.
            let bits = mode & !0o777 | rich.attributes.mode & 0o777;
            by_way(caller, Way::Past, || change_mode(caller, fd, bits))?;
        }
        if alters_truth {
            self.write_changed(asking, fd, &rich, change)?;
        }
        match change.accessed.is_some() || change.modified.is_some() {
            true => by_way(caller, Way::Past, || change_times(fd, change)),
            false => Ok(()),
        }
    }

    fn write_changed(
        &self,
        asking: Asking<'_>,
        fd: BorrowedFd<'_>,
        rich: &RichFile,
        change: &AttributeChange,
    ) -> Result<(), FsError> {
        let list = rich.list.as_ref().ok_or(FsError::Io)?;
        let attributes = stat(fd)?.attributes;
        let target = super::target_of(&attributes);
        let changed: RichAcl = match change.mode {
            Some(mode) => list.with_shown_mode(mode, &target),
            None => (**list).clone(),
        };
        self.write_truth(asking.caller, fd, &attributes, &changed)
    }

    fn judge_change(
        &self,
        who: &Principal,
        rich: &RichFile,
        change: &AttributeChange,
        is_open: bool,
    ) -> Result<(), FsError> {
        let not_permitted = |rights| {
            let judged = self.judge_rich(rich, who, rights);
            judged.map_err(|_| FsError::NotPermitted)
        };
        if change.mode.is_some() {
            not_permitted(Rights::WRITE_ACL)?;
        }
        self.judge_owner(who, rich, change)?;
        if change.size.is_some() && !is_open {
            self.judge_rich(rich, who, Rights::WRITE_DATA)?;
        }
        let times = [change.accessed, change.modified];
        let sets = |time: &Option<SetTime>| matches!(time, Some(SetTime::To(_)));
        if times.iter().any(sets) {
            not_permitted(Rights::WRITE_ATTRIBUTES)?;
        } else if times.iter().any(Option::is_some) && !rich.allows(who, Rights::WRITE_DATA) {
            self.judge_rich(rich, who, Rights::WRITE_ATTRIBUTES)?;
        }
        Ok(())
    }

    fn judge_owner(
        &self,
        who: &Principal,
        rich: &RichFile,
        change: &AttributeChange,
    ) -> Result<(), FsError> {
        let changes_owner = change.uid.is_some() || change.gid.is_some();
        if who.uid == 0 || !changes_owner {
            return Ok(());
        }
        let takes = change.uid.is_some_and(|uid| uid != rich.target.uid);
        let moves = change.gid.is_some_and(|gid| gid != rich.target.gid);
        let owns = who.uid == rich.target.uid;
        let is_own = change.uid.is_none_or(|uid| !takes || uid == who.uid)
            && change.gid.is_none_or(|gid| !moves || who.is_member(gid));
        let may = (owns && !takes) || rich.allows(who, Rights::WRITE_OWNER);
        match is_own && may {
            true => Ok(()),
            false => Err(FsError::NotPermitted),
        }
    }
}
