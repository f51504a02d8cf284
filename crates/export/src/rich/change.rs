//! chmod, chown, truncation and times of files whose truth is a rich ACL.
//!
//! What each takes, [`acl::judge_change`] says. All parts are judged before the first is made. A
//! new mode lies over the list ([`acl::RichAcl::with_shown_mode`]); a new owner is another one whom
//! the list means, so what the file system is told of it is told anew.

use super::judge::Asking;
use super::told::has_access;
use super::{PAST, RichFile, Way, by_way, target_of};
use crate::change::{change_mode, change_owner, change_times, descriptor_path, truncate};
use crate::export::Export;
use crate::file::OpenFile;
use crate::stat::stat;
use crate::worker::Assumed;
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
        let list = match alters_truth {
            // Of one that cannot be read nobody knows what it would be afterwards.
            true => Some(rich.list.clone().ok_or(FsError::Io)?),
            false => None,
        };
        match (change.size, file) {
            (Some(size), Some(file)) => file.truncate_as_assumed(size)?,
            (Some(size), None) => by_way(caller, Way::Past, || truncate(fd, size))?,
            (None, _) => {}
        }
        if let Some(list) = &list {
            let altered = self.alter(caller, fd, &rich, list, change);
            // Also where that has failed half way: what is told goes with what the file is now.
            let mode = change.mode.filter(|_| altered.is_ok());
            let told = self.tell_altered(caller, fd, list, mode);
            altered.and(told)?;
        }
        match change.accessed.is_some() || change.modified.is_some() {
            true => by_way(caller, Way::Past, || change_times(fd, change)),
            false => Ok(()),
        }
    }

    /// Changes owner, group and mode, in this order.
    fn alter(
        &self,
        caller: &Assumed<'_>,
        fd: BorrowedFd<'_>,
        rich: &RichFile,
        list: &RichAcl,
        change: &AttributeChange,
    ) -> Result<(), FsError> {
        if change.uid.is_some() || change.gid.is_some() {
            let after = Target {
                uid: change.uid.unwrap_or(rich.target.uid),
                gid: change.gid.unwrap_or(rich.target.gid),
                ..rich.target
            };
            // The new owner may have less by the list than the mode says of the old one.
            if list.posix_below(&after) != list.posix_below(&rich.target) {
                self.tell_nobody(caller, fd, &rich.attributes, list)?;
            }
            let own = || change_owner(fd, change.uid, change.gid);
            match own() {
                Err(FsError::NotPermitted) => caller.with(CapabilitySet::CHOWN | PAST, own)??,
                result => result?,
            }
        }
        if let Some(mode) = change.mode {
            // Set-id bits as the kernel has them for this caller; permission bits follow.
            let bits = mode & !0o777 | stat(fd)?.attributes.mode & 0o777;
            by_way(caller, Way::Past, || change_mode(caller, fd, bits))?;
        }
        Ok(())
    }

    /// Tells the file system what the list says of the file as it is, with a new mode over it.
    fn tell_altered(
        &self,
        caller: &Assumed<'_>,
        fd: BorrowedFd<'_>,
        list: &RichAcl,
        mode: Option<u16>,
    ) -> Result<(), FsError> {
        let attributes = stat(fd)?.attributes;
        match mode {
            Some(mode) => {
                let has_access = has_access(&descriptor_path(fd));
                let list = list.with_shown_mode(mode, &target_of(&attributes), has_access);
                self.write_truth(caller, fd, &attributes, &list)
            }
            None => self.write_truth(caller, fd, &attributes, list),
        }
    }
}
