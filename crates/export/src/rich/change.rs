//! chmod, chown, truncation and times of files whose truth is a rich ACL.
//!
//! What each takes, [`acl::judge_change`] says. All parts are judged before the first is made. A
//! new mode lies over the list ([`acl::RichAcl::with_shown_mode`]); a new owner is another one whom
//! the list means, so what the file system is told of it is told anew.

use super::judge::Asking;
use super::{PAST, RichFile, Way, by_way};
use crate::change::{change_mode, change_owner, change_times, truncate};
use crate::export::Export;
use crate::file::OpenFile;
use crate::stat::stat;
use acl::{RichAcl, Target};
use base::{AttributeChange, FsError, Handle};
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
        acl::judge_change(asking.who, &rich.target, change, file.is_some(), |rights| {
            self.judge_rich(&rich, asking.who, rights).is_ok()
        })?;
        if alters_truth && rich.list.is_none() {
            // Of one that cannot be read nobody knows what it would be afterwards.
            return Err(FsError::Io);
        }
        match (change.size, file) {
            (Some(size), Some(file)) => file.truncate_as_assumed(size)?,
            (Some(size), None) => by_way(caller, Way::Past, || truncate(fd, size))?,
            (None, _) => {}
        }
        if change.uid.is_some() || change.gid.is_some() {
            self.before_new_owner(asking, fd, &rich, change)?;
            let own = || change_owner(fd, change.uid, change.gid);
            let owned = match own() {
                Err(FsError::NotPermitted) => caller.with(CapabilitySet::CHOWN | PAST, own)?,
                result => result,
            };
            if let Err(error) = owned {
                let same = AttributeChange::default();
                self.write_changed(asking, fd, &rich, &same)?;
                return Err(error);
            }
        }
        if let Some(mode) = change.mode {
            // Set-id bits as the kernel has them for this caller; permission bits follow.
            let bits = mode & !0o777 | stat(fd)?.attributes.mode & 0o777;
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

    /// Takes from programs of this machine, before a file has another owner or group, what those
    /// have there by the mode and by the list have not.
    fn before_new_owner(
        &self,
        asking: Asking<'_>,
        fd: BorrowedFd<'_>,
        rich: &RichFile,
        change: &AttributeChange,
    ) -> Result<(), FsError> {
        let list = rich.list.as_ref().ok_or(FsError::Io)?;
        let after = Target {
            uid: change.uid.unwrap_or(rich.target.uid),
            gid: change.gid.unwrap_or(rich.target.gid),
            ..rich.target
        };
        if list.posix_below(&after) == list.posix_below(&rich.target) {
            return Ok(());
        }
        self.tell_nobody(asking.caller, fd, &rich.attributes, list)
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
}
