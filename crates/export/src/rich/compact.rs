//! Rich ACLs that say what mode and POSIX ACL say, as a backup leaves them that is restored by a
//! program that sets each file's list: files that have one are given back to the kernel.
//!
//! Only where that changes nothing: the view of what lies under the list is the list, entry for
//! entry, nothing that chmod said lies over it, and nobody is in two groups whose rights he has
//! together by the list and not by the kernel's rule. One system call decides, the removal of the
//! list; what was there before the first edit goes with it, because nothing is left to go back
//! from. With a restored file that is what the program made it with, and nobody's wish.
//!
//! Source: Nakamura and others, concurrent use of heterogeneous access control information, 3.4.

use super::edit::Note;
use super::told::remove;
use super::{AclEdit, BEFORE, STORED, WRITING};
use crate::change::descriptor_path;
use crate::export::Export;
use crate::worker::Worker;
use acl::Origin;
use base::{FsError, Handle, Principal};
use rustix::fd::AsFd;

impl Export {
    /// Makes mode and POSIX ACL the truth of a file again whose rich ACL says the same; whether it
    /// has such a one.
    /// `note` is told that before it is made; without one nothing is changed. What it was
    /// told and could not be made goes to `unmade`.
    ///
    /// # Errors
    /// What `note` says; else the kernel's.
    pub(super) fn compact_truth(
        &self,
        worker: &Worker,
        handle: &Handle,
        note: Option<Note<'_>>,
        unmade: &mut Vec<AclEdit>,
    ) -> Result<bool, FsError> {
        let caller = worker.assume(&Principal::root())?;
        let pin = self.resolve(&caller, handle)?;
        let fd = pin.as_fd();
        let _turn = self.rich.turn(handle);
        let Some(rich) = self.rich_file(handle, fd)? else {
            return Ok(false);
        };
        let Some(list) = &rich.list else {
            return Ok(false);
        };
        let attributes = &rich.attributes;
        let posix = self.read_posix(fd, attributes)?;
        if !posix.is_shown_by(list, attributes) {
            return Ok(false);
        }
        if let Some(note) = note {
            let edit = AclEdit::without_words(Origin::Rich, Origin::Posix);
            let (edit, caller) = self.noted((worker, &Principal::root()), fd, edit, note)?;
            let beside = descriptor_path(fd);
            let removed = caller.with(WRITING, || remove(&beside, STORED));
            if let Err(error) = removed.and_then(|removed| removed) {
                unmade.push(edit);
                return Err(error);
            }
            caller.with(WRITING, || remove(&beside, BEFORE))??;
        }
        Ok(true)
    }
}
