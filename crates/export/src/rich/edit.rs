//! The rich ACL as clients see and set it, and the way back.
//!
//! What is shown of a file whose truth is POSIX is a view. To set exactly what is shown changes
//! nothing; so a program that reads and writes back, as backups do, makes nobody's ACL rich. Who
//! may set one is who may change the mode: the owner, and whoever has WRITE_ACL by a rich ACL.
//!
//! Each edit says what it means for whom ([`AclEdit`]); the server writes that down before the edit
//! is made, and what cannot be written down is not made.
//!
//! The way back needs room for what was before while the list is still there. Where a file system
//! has none, the list is emptied first; and where that does not help, because others have taken the
//! room, everything is as it was.

use super::told::{remove, set, tell, tell_mode, write};
use super::view::{ACCESS, DEFAULT, Posix, VIEW};
use super::{AclEdit, BEFORE, RichFile, STORED, WRITING, target_of};
use crate::change::descriptor_path;
use crate::export::Export;
use crate::rich::names::Known;
use crate::stat::stat;
use crate::worker::{Assumed, Worker};
use acl::{AclError, Before, Origin, PosixFile, RichAcl, Rights, Stored, Truth};
use base::{Attributes, FileKind, FsError, Handle, Principal};
use rustix::fd::{AsFd, BorrowedFd};
use std::ffi::CStr;
use std::sync::atomic::Ordering;

/// Writes down an edit that is about to be made; if that fails it is not.
pub type Note<'a> = &'a dyn Fn(&AclEdit) -> Result<(), FsError>;

/// What is wrong with a list that was sent.
pub(super) fn refused(error: &AclError) -> FsError {
    match error {
        AclError::TooLarge { .. } => FsError::TooBig,
        _ => FsError::Invalid,
    }
}

impl Export {
    /// The value of `system.nfs4_acl`.
    pub(crate) fn get_nfs4(
        &self,
        principal: &Principal,
        handle: &Handle,
        fd: impl AsFd,
    ) -> Result<Vec<u8>, FsError> {
        let fd = fd.as_fd();
        let rich = self.rich_file(handle, fd)?;
        let attributes = match &rich {
            Some(rich) => {
                self.judge_rich(rich, principal, Rights::READ_ACL)?;
                rich.attributes.clone()
            }
            None => stat(fd)?.attributes,
        };
        if attributes.kind == FileKind::Symlink {
            return Err(FsError::NotSupported);
        }
        let list = self.shown((handle, fd), rich.as_ref(), &attributes)?;
        Self::as_sent(&list, &attributes)
    }

    /// Sets the rich ACL of a file, which is its truth from then on; with `value` as of
    /// `system.nfs4_acl`. Returns the attributes afterwards and, unless nothing has changed, what
    /// the edit was. `note` is told that before it is made.
    ///
    /// # Errors
    /// What `note` says;
    /// [`FsError::NotPermitted`] or [`FsError::AccessDenied`] for who may not;
    /// [`FsError::NotSupported`] if rich ACLs are off, and for symbolic links;
    /// [`FsError::Invalid`] and [`FsError::TooBig`] for what is no list; else the kernel's.
    pub fn set_acl(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        value: &[u8],
        note: Note<'_>,
    ) -> Result<(Attributes, Option<AclEdit>), FsError> {
        if !self.is_rich() {
            return Err(FsError::NotSupported);
        }
        let known = Known(self.rich.names.get().map(|names| &**names));
        let list = RichAcl::from_nfs4(value, &known).map_err(|error| refused(&error))?;
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        let fd = pin.as_fd();
        let _turn = self.rich.turn(handle);
        let (rich, attributes) = self.may_edit(principal, handle, fd)?;
        // Of one that cannot be read nothing is known but that this one takes its place.
        let shown = self.shown((handle, fd), rich.as_ref(), &attributes);
        let sent = Self::as_sent(&list, &attributes)?;
        if let Ok(shown) = &shown
            && Self::as_sent(shown, &attributes).is_ok_and(|own| own == sent)
        {
            return Ok((attributes, None));
        }
        let target = target_of(&attributes);
        let told =
            |before: &Truth<'_>, list: &RichAcl| AclEdit::of(before, &Truth::Rich(list), &target);
        let posix = match &rich {
            Some(_) => None,
            None => Some(self.read_posix(fd, &attributes)?),
        };
        let edit = match (&posix, &shown) {
            (Some(posix), _) => told(&Truth::Posix(posix.file(&attributes)), &list),
            (None, Ok(before)) => told(&Truth::Rich(before), &list),
            (None, Err(_)) => AclEdit::without_words(Origin::Rich, Origin::Rich),
        };
        let (edit, caller) = self.noted((worker, principal), fd, edit, note)?;
        if let Some(posix) = posix {
            // A view of what will be the truth no more, in whose room the list may have to lie.
            caller.with(WRITING, || remove(&descriptor_path(fd), VIEW).ok())?;
            self.keep_before(&caller, fd, &attributes, &posix)?;
        }
        let written = self.write_truth(&caller, fd, &attributes, &list);
        if written.is_err() && rich.is_none() {
            caller.with(WRITING, || remove(&descriptor_path(fd), BEFORE).ok())?;
        }
        written?;
        self.rich.figures.edits.fetch_add(1, Ordering::Relaxed);
        Ok((self.attributes_of(handle, fd)?, Some(edit)))
    }

    /// Takes the rich ACL of a file away: mode and POSIX ACLs are what they were before it got one,
    /// and the truth. Those of a file that never had any truth but a rich one stay what that could
    /// say in them. Returns as [`Export::set_acl`]; nothing happens to a file without one.
    ///
    /// # Errors
    /// As [`Export::set_acl`]; [`FsError::Io`] if what was before cannot be read.
    pub fn remove_acl(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        note: Note<'_>,
    ) -> Result<(Attributes, Option<AclEdit>), FsError> {
        if !self.is_rich() {
            return Err(FsError::NotSupported);
        }
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        let fd = pin.as_fd();
        let _turn = self.rich.turn(handle);
        let (rich, attributes) = self.may_edit(principal, handle, fd)?;
        let Some(rich) = rich else {
            return Ok((attributes, None));
        };
        let before = match self.read_own(fd, BEFORE)? {
            None => None,
            Some(bytes) => Some(Before::from_bytes(&bytes).ok_or(FsError::Io)?),
        };
        let edit = match &rich.list {
            None => AclEdit::without_words(Origin::Rich, Origin::Posix),
            Some(list) => {
                let (posix, mode) = match &before {
                    Some(before) => (Posix::of_before(before)?, before.mode),
                    None => (self.read_posix(fd, &attributes)?, attributes.mode),
                };
                let file = PosixFile {
                    mode: mode & 0o777,
                    ..posix.file(&attributes)
                };
                let (rich, posix) = (Truth::Rich(list), Truth::Posix(file));
                AclEdit::of(&rich, &posix, &target_of(&attributes))
            }
        };
        let (edit, caller) = self.noted((worker, principal), fd, edit, note)?;
        let path = descriptor_path(fd);
        if let (Some(before), Some(list)) = (&before, &rich.list) {
            let restore = || restore_beside(&path, &attributes, before, list);
            if let Err(error) = caller.with(WRITING, restore)? {
                // It stays the truth, and what lies under it says no more than it does. What has
                // been put back of before lies in its room.
                let made_room = caller.with(WRITING, || tell(&path, &attributes, None))?;
                if let Err(error) = made_room {
                    tracing::warn!(%error, "a POSIX ACL stays beside a rich one");
                }
                self.write_truth(&caller, fd, &attributes, list)?;
                return Err(error);
            }
        }
        caller.with(WRITING, || {
            if let (Some(before), None) = (&before, &rich.list) {
                restore_under_unreadable(&path, &attributes, before)?;
            }
            remove(&path, STORED)?;
            remove(&path, BEFORE)
        })??;
        Ok((self.attributes_of(handle, fd)?, Some(edit)))
    }

    /// Has an edit written down before it is made, as the server; then the thread is the caller
    /// again.
    pub(super) fn noted<'a>(
        &self,
        (worker, principal): (&'a Worker, &Principal),
        fd: impl AsFd,
        edit: AclEdit,
        note: Note<'_>,
    ) -> Result<(AclEdit, Assumed<'a>), FsError> {
        let path = self.path_of(fd);
        let edit = AclEdit { path, ..edit };
        worker.as_server(|| note(&edit))??;
        Ok((edit, worker.assume(principal)?))
    }

    /// Where in the export an inode lies at this moment, as far as the kernel knows.
    pub(super) fn path_of(&self, fd: impl AsFd) -> String {
        let (top, path) = (named(self.top()), named(fd));
        match path.strip_prefix(&top) {
            Some("") => "/".to_owned(),
            Some(below) if below.starts_with('/') => below.to_owned(),
            _ => path,
        }
    }

    /// Whether a caller may set a file's ACL.
    fn may_edit(
        &self,
        who: &Principal,
        handle: &Handle,
        fd: BorrowedFd<'_>,
    ) -> Result<(Option<RichFile>, Attributes), FsError> {
        let rich = self.rich_file(handle, fd)?;
        if let Some(rich) = rich {
            self.judge_rich(&rich, who, Rights::WRITE_ACL)?;
            let attributes = rich.attributes.clone();
            return Ok((Some(rich), attributes));
        }
        let attributes = stat(fd)?.attributes;
        match attributes.kind {
            FileKind::Symlink => Err(FsError::NotSupported),
            _ if who.uid == 0 || who.uid == attributes.uid => Ok((None, attributes)),
            _ => Err(FsError::NotPermitted),
        }
    }

    /// Writes down what mode and POSIX ACLs are, before they change.
    fn keep_before(
        &self,
        caller: &Assumed<'_>,
        fd: BorrowedFd<'_>,
        attributes: &Attributes,
        posix: &Posix,
    ) -> Result<(), FsError> {
        let before = Before {
            mode: attributes.mode & 0o777,
            access: posix.values.access.clone(),
            default: posix.values.default.clone(),
        };
        let bytes = before.to_bytes().ok_or(FsError::TooBig)?;
        let path = descriptor_path(fd);
        caller.with(WRITING, || set(&path, BEFORE, &bytes))?
    }
}

/// Puts back what was before, while a list still decides.
fn restore_beside(
    path: &CStr,
    attributes: &Attributes,
    before: &Before,
    list: &RichAcl,
) -> Result<(), FsError> {
    // Until it is gone no mode is compared with it.
    write(path, &Stored::unsettled(list.clone()))?;
    match restore(path, attributes, before) {
        Err(FsError::NoSpace | FsError::QuotaExceeded) => {}
        restored => return restored,
    }
    // The list has the room that its own POSIX ACL needs. Until that is there, a list without
    // entries decides, by which the owner alone can do something: go back once more.
    let nobody = RichAcl::new(Vec::new()).expect("it is short");
    write(path, &Stored::unsettled(nobody))?;
    restore(path, attributes, before)
}

/// Puts back what was before, while a list that nobody can read lets nobody in. Only where that
/// takes the room is it removed first.
fn restore_under_unreadable(
    path: &CStr,
    attributes: &Attributes,
    before: &Before,
) -> Result<(), FsError> {
    match restore(path, attributes, before) {
        Err(FsError::NoSpace | FsError::QuotaExceeded | FsError::TooBig) => {
            remove(path, STORED)?;
            restore(path, attributes, before)
        }
        done => done,
    }
}

/// Puts back what was before.
fn restore(path: &CStr, attributes: &Attributes, before: &Before) -> Result<(), FsError> {
    match &before.access {
        // It sets the mode as well, in one call: at no moment the mask is the group's right.
        Some(access) => set(path, ACCESS, access)?,
        None => tell_mode(path, attributes, attributes.mode & !0o777 | before.mode)?,
    }
    match &before.default {
        Some(default) => set(path, DEFAULT, default),
        None if attributes.kind == FileKind::Directory => remove(path, DEFAULT),
        None => Ok(()),
    }
}

/// Where the kernel has an inode at this moment.
fn named(fd: impl AsFd) -> String {
    let path = rustix::fs::readlink(&*descriptor_path(fd), Vec::new());
    path.map_or_else(
        |_| String::new(),
        |path| path.to_string_lossy().into_owned(),
    )
}
