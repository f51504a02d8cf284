//! Rich ACLs that say what mode and POSIX ACL say, as a backup leaves them that is restored by a
//! program that sets each file's list: files that have one are given back to the kernel.
//!
//! Only where that changes nothing: the view of what lies under the list is the list, entry for
//! entry, nothing that chmod said lies over it, and nobody is in two groups whose rights he has
//! together by the list and not by the kernel's rule. One system call decides, the removal of the
//! list; what was there before the first edit goes with it, because nothing is left to go back
//! from.
//!
//! Source: Nakamura and others, concurrent use of heterogeneous access control information, 3.4.

use super::told::remove;
use super::{AclEdit, BEFORE, STORED, WRITING};
use crate::change::descriptor_path;
use crate::export::Export;
use crate::worker::Worker;
use acl::Origin;
use base::{FsError, Handle, Principal};
use rustix::fd::AsFd;

impl Export {
    /// Makes mode and POSIX ACL the truth of a file again whose rich ACL says the same. `None` if
    /// it has none, or another one.
    pub(super) fn compact_truth(
        &self,
        worker: &Worker,
        handle: &Handle,
        dry_run: bool,
    ) -> Result<Option<AclEdit>, FsError> {
        let caller = worker.assume(&Principal::root())?;
        let pin = self.resolve(&caller, handle)?;
        let fd = pin.as_fd();
        let _turn = self.rich.turn(handle);
        let Some(rich) = self.rich_file(handle, fd)? else {
            return Ok(None);
        };
        let Some(list) = &rich.list else {
            return Ok(None);
        };
        let attributes = &rich.attributes;
        let posix = self.read_posix(fd, attributes)?;
        if !posix.is_shown_by(list, attributes) {
            return Ok(None);
        }
        let path = self.path_of(fd);
        if !dry_run {
            let beside = descriptor_path(fd);
            caller.with(WRITING, || {
                remove(&beside, STORED)?;
                remove(&beside, BEFORE)
            })??;
        }
        Ok(Some(AclEdit {
            path,
            ..AclEdit::without_words(Origin::Rich, Origin::Posix)
        }))
    }
}
