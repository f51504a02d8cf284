//! Attributes and extended attributes.

use super::{Execution, Place, Stop};
use crate::core::Core;
use crate::lease::{Change, Token};
use crate::opens::{Keep, Use};
use crate::rich;
use crate::session::Session;
use crate::tree::Noting;
use ::acl::Edit;
use base::{AttributeChange, Attributes, Extent, FileKind, FsError, Handle, OpenId, XattrMode};
use export::Worker;
use std::cell::RefCell;
use std::sync::Arc;
use wire::message::{Lease, Step, StepReply, Target};

/// The rich ACL of a file.
const NFS4_ACL: &[u8] = b"system.nfs4_acl";
/// The POSIX ACL of a file.
const POSIX_ACL: &[u8] = b"system.posix_acl_access";

/// As long as it lives, nobody but one session gets a lease on a file: as if that had it open for
/// writing.
pub(super) struct Shut {
    core: Arc<Core>,
    session: Arc<Session>,
    handle: Handle,
}

impl Shut {
    /// The tokens say whose leases are to be given back.
    fn begin(core: &Arc<Core>, session: &Arc<Session>, handle: &Handle) -> (Self, Vec<Token>) {
        core.caching.writes(session, handle, true);
        let tokens = core
            .caching
            .changed(Some(session), &[Change::Inode(handle.clone())]);
        let shut = Self {
            core: core.clone(),
            session: session.clone(),
            handle: handle.clone(),
        };
        (shut, tokens)
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        self.core.caching.writes(&self.session, &self.handle, false);
    }
}

impl Execution {
    pub(super) fn change(&mut self, worker: &Worker, step: &Step) -> Result<StepReply, Stop> {
        let outcome = self.try_change(worker, step);
        if matches!(outcome, Ok(_) | Err(Stop::Error(_))) {
            self.shut = None;
        }
        outcome
    }

    fn try_change(&mut self, worker: &Worker, step: &Step) -> Result<StepReply, Stop> {
        match step {
            Step::SetAttributes {
                target,
                change,
                open,
            } => self.set_attributes(worker, target, change, *open),
            Step::SetXattr {
                target,
                name,
                value,
                create,
            } => {
                let place = self.changing(target)?;
                self.contest([&place.outer])?;
                self.before_acl(worker, &place, name)?;
                let mode = match create {
                    None => XattrMode::Set,
                    Some(true) => XattrMode::Create,
                    Some(false) => XattrMode::Replace,
                };
                if name == NFS4_ACL && mode == XattrMode::Create {
                    return Err(FsError::Exists.into());
                }
                let after = match Self::is_rich_acl(&place, name) {
                    true => self.set_acl(worker, &place, Some(value))?,
                    false => {
                        let tree = &place.volume.tree;
                        tree.set_xattr(self.by(worker), &place.inner, name, value, mode)?
                    }
                };
                self.changed_inode(worker, place, after)
            }
            Step::RemoveXattr { target, name } => {
                let place = self.changing(target)?;
                self.contest([&place.outer])?;
                self.before_acl(worker, &place, name)?;
                let after = match Self::is_rich_acl(&place, name) {
                    true => self.set_acl(worker, &place, None)?,
                    false => {
                        let tree = &place.volume.tree;
                        tree.remove_xattr(self.by(worker), &place.inner, name)?
                    }
                };
                self.changed_inode(worker, place, after)
            }
            _ => unreachable!("the dispatcher sends only these here"),
        }
    }

    /// Whether an attribute is the rich ACL of a file, where there are such.
    fn is_rich_acl(place: &Place, name: &[u8]) -> bool {
        name == NFS4_ACL && place.volume.tree.is_rich()
    }

    /// As [`Self::until_opened`], if an attribute says who may open a file.
    fn before_acl(&mut self, worker: &Worker, place: &Place, name: &[u8]) -> Result<(), Stop> {
        match name == POSIX_ACL || Self::is_rich_acl(place, name) {
            true => self.until_opened(worker, place),
            false => Ok(()),
        }
    }

    /// Who may open a file is about to change. Clients that have opened it by what they know of it
    /// have it opened here first, while they may: that is what they do when a lease is recalled.
    /// Nobody else gets a lease on it until the step has been carried out, so none does so anew.
    fn until_opened(&mut self, worker: &Worker, place: &Place) -> Result<(), Stop> {
        if self.shut.is_some() {
            return Ok(());
        }
        let attributes = place
            .volume
            .tree
            .attributes(self.by(worker), &place.inner)?;
        let may = place.volume.tree.is_rich() || [0, attributes.uid].contains(&self.who.uid);
        if attributes.kind != FileKind::File || !may {
            return Ok(());
        }
        let (shut, tokens) = Shut::begin(&self.core, &self.session, &place.outer);
        self.shut = Some(shut);
        match tokens.is_empty() {
            true => Ok(()),
            false => Err(Stop::AfterRecalls(tokens)),
        }
    }

    /// Sets the rich ACL of a file, or takes it away.
    fn set_acl(
        &mut self,
        worker: &Worker,
        place: &Place,
        value: Option<&Vec<u8>>,
    ) -> Result<Attributes, FsError> {
        let noted = RefCell::new(None);
        let edited = {
            let (tree, by) = (&place.volume.tree, self.by(worker));
            let read = |value: &[u8]| rich::read(&place.volume, value);
            let noting = Noting {
                note: &|edit| {
                    self.note_edit(place, edit, true)?;
                    *noted.borrow_mut() = Some(edit.clone());
                    Ok(())
                },
                words: &|edit| rich::words(&self.who, edit),
            };
            match value {
                Some(value) => tree.set_acl(by, &place.inner, value, read, noting),
                None => tree.remove_acl(by, &place.inner, noting),
            }
        };
        if let (Err(_), Some(edit)) = (&edited, noted.into_inner()) {
            // What was to be done is written down; that it was not is, too, if that can be.
            let _ = worker.as_server(|| self.note_edit(place, &edit, false));
        }
        match edited {
            Ok(after) => Ok(after),
            Err(
                error @ (FsError::AccessDenied
                | FsError::NotPermitted
                | FsError::Invalid
                | FsError::NotSupported),
            ) => Err(error),
            Err(error) => {
                // On its way another list has decided for a moment, and still does if it could not
                // be put back.
                self.changed(&[Change::Inode(place.outer.clone())]);
                Err(error)
            }
        }
    }

    /// Writes down an edit of a rich ACL that is about to be made, or that it was not. Needs the
    /// server's identity.
    fn note_edit(&self, place: &Place, edit: &Edit, is_made: bool) -> Result<(), FsError> {
        let Some(audit) = &place.volume.audit else {
            return Ok(());
        };
        audit.note(&self.who, edit, is_made).map_err(|error| {
            tracing::error!(volume = place.volume.name, %error, "an edit is not written down");
            FsError::Io
        })
    }

    fn set_attributes(
        &mut self,
        worker: &Worker,
        target: &Target,
        change: &AttributeChange,
        open: Option<OpenId>,
    ) -> Result<StepReply, Stop> {
        let place = self.changing(target)?;
        if let (Some(size), Some(after)) = (change.size, self.is_done_unseen()) {
            self.until_seen(&place, size)?;
            return self.changed_inode(worker, place, after);
        }
        self.contest([&place.outer])?;
        if change.mode.is_some() || change.uid.is_some() || change.gid.is_some() {
            self.until_opened(worker, &place)?;
        }
        let file = match open {
            // Through an open only the size is judged differently; an unknown open is no reason to
            // make one for a change of mode.
            Some(open) if change.size.is_some() => {
                Some(self.file(worker, &place, Some(open), Use::Write, Keep::IfRoom)?)
            }
            Some(open) => self
                .session
                .opens
                .get(open, &place.outer, Use::Write)
                .ok()
                .flatten(),
            None => None,
        };
        let replaced = change.size.map(|size| Extent::between(size, u64::MAX));
        let mut is_noted = false;
        if let Some(replaced) = replaced {
            is_noted = file.is_some() || self.may_write(worker, &place);
            if is_noted {
                // What comes before it is not replaced by it until then.
                self.wait_to_resize(&place, replaced.offset)?;
                self.changes_part(&place, replaced);
            }
            self.may_cut(&place)?;
        }
        let tree = &place.volume.tree;
        let outcome = tree.set_attributes(self.by(worker), &place.inner, change, file.as_deref());
        if let (Some(size), Err(FsError::WouldBlock)) = (change.size, &outcome) {
            // An append was given its place meanwhile. It is not written while there is a cut.
            self.cuts.pop();
            if self.wait_to_resize(&place, size)? || self.may_wait(&place) {
                return Err(Stop::AfterAppends(place));
            }
        }
        if let (Some(replaced), Ok(_), false) = (replaced, &outcome, is_noted) {
            self.changes_part(&place, replaced);
        }
        // A change of several parts that fails half way has changed something.
        self.changed(&[Change::Inode(place.outer.clone())]);
        let after = outcome?;
        if let Some(size) = change.size {
            self.note_done(&after);
            self.until_seen(&place, size)?;
        }
        self.answer_changed(worker, place, after)
    }

    fn changed_inode(
        &mut self,
        worker: &Worker,
        place: Place,
        after: Attributes,
    ) -> Result<StepReply, Stop> {
        self.changed(&[Change::Inode(place.outer.clone())]);
        self.answer_changed(worker, place, after)
    }

    /// As [`Self::answer_attributes`], for an inode that had the attributes `after` when it was
    /// changed. If it has been removed since, it is shown like that, without a lease: what was
    /// asked has been done, and "stale" would have the client's kernel try it once more.
    fn answer_changed(
        &mut self,
        worker: &Worker,
        place: Place,
        after: Attributes,
    ) -> Result<StepReply, Stop> {
        let lease = self.grant(&place, Lease::Read);
        let (attributes, lease) = match self.attributes_of(worker, &place) {
            Err(FsError::Stale) => (after, Lease::None),
            attributes => (attributes?, lease),
        };
        self.note(place.outer);
        Ok(StepReply::Attributes { attributes, lease })
    }

    /// The attributes as they are now, with a lease.
    pub(super) fn answer_attributes(
        &mut self,
        worker: &Worker,
        place: Place,
    ) -> Result<StepReply, Stop> {
        let lease = self.grant(&place, Lease::Read);
        let attributes = self.attributes_of(worker, &place)?;
        self.note(place.outer);
        Ok(StepReply::Attributes { attributes, lease })
    }

    /// Whether a step's target may be changed at all.
    pub(super) fn writable(place: &Place) -> Result<(), FsError> {
        if place.volume.read_only {
            Err(FsError::ReadOnly)
        } else {
            Ok(())
        }
    }
}
