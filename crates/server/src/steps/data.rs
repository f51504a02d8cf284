//! Open files: data, space, durability.

use super::look::use_of;
use super::{Execution, Place, Stop};
use crate::lease::Change;
use crate::opens::{Keep, Opened, Use, open_again};
use crate::tree::File;
use base::limits::DATA_BYTES_MAX;
use base::{Access, Extent, FsError, OpenId, Principal, Rights};
use export::{OpenOptions, Worker, Written};
use std::sync::Arc;
use wire::message::{
    self, AllocateMode, CredentialKind, FileRef, Lease, SeekWhat, Step, StepReply, Target, WriteAt,
};

impl Execution {
    pub(super) fn data(&mut self, worker: &Worker, step: &Step) -> Result<StepReply, Stop> {
        match step {
            Step::Open {
                target,
                open,
                access,
                truncate,
            } => self.open(worker, target, *open, *access, *truncate),
            Step::Close { open } => {
                if let Some(opened) = self.session.opens.take(*open)
                    && opened.writes()
                {
                    self.core
                        .caching
                        .writes(&self.session, &opened.handle, false);
                }
                Ok(StepReply::Done)
            }
            Step::Read {
                file,
                offset,
                bytes,
            } => self.read(worker, file, *offset, *bytes),
            Step::Write { file, at, bytes } => self.write(worker, file, *at, *bytes),
            Step::Commit { file, data_only } => self.commit(worker, file, *data_only),
            Step::Allocate { file, mode, extent } => self.allocate(worker, file, *mode, *extent),
            Step::Seek { file, offset, what } => {
                let (_, file) = self.file_ref(worker, file, Use::Any)?;
                let position = match what {
                    SeekWhat::Data => file.seek_data(&self.turn, *offset)?,
                    SeekWhat::Hole => file.seek_hole(&self.turn, *offset)?,
                };
                Ok(StepReply::Position(position))
            }
            Step::CopyRange {
                source,
                source_offset,
                target,
                target_offset,
                bytes,
            } => {
                let from = Extent::new(*source_offset, *bytes);
                self.copy_range(worker, source, from, target, *target_offset)
            }
            Step::SyncDirectory { target } => {
                let place = self.target(target)?;
                place
                    .volume
                    .tree
                    .sync_directory(self.by(worker), &place.inner)?;
                Ok(StepReply::Done)
            }
            Step::SyncFileSystem { target } => {
                let place = self.target(target)?;
                let synced = place.volume.sync_all();
                if let Err(error) = &synced {
                    tracing::error!(
                        volume = place.volume.name,
                        %error,
                        "not everything could be made durable; each file now has to be by itself"
                    );
                    self.core.data.mark_flush_failed();
                }
                synced?;
                Ok(StepReply::Done)
            }
            _ => unreachable!("the dispatcher sends only these here"),
        }
    }

    /// The descriptor for a file: that of the open, one made on the spot for an open that is not
    /// known, or one for this step alone.
    pub(super) fn file(
        &self,
        worker: &Worker,
        place: &Place,
        open: Option<OpenId>,
        what: Use,
        keep: Keep,
    ) -> Result<Arc<File>, FsError> {
        let options = match what {
            Use::Read | Use::Any => OpenOptions::new(Access::Read),
            Use::Write => OpenOptions::new(Access::Write),
            Use::Append => OpenOptions {
                append: true,
                ..OpenOptions::new(Access::Write)
            },
        };
        let Some(open) = open else {
            let tree = &place.volume.tree;
            return Ok(Arc::new(tree.open_file(
                self.by(worker),
                &place.inner,
                options,
            )?));
        };
        if let Some(file) = self.session.opens.get(open, &place.outer, what)? {
            return Ok(file);
        }
        let opened = open_again(&place.volume, self.by(worker), &place.inner, options);
        let file = Arc::new(self.or_to_run(worker, place, options.access, opened)?);
        let opens = &self.session.opens;
        match opens.merge(open, &place.volume, &place.outer, &file) {
            Ok(true) => self.core.caching.writes(&self.session, &place.outer, true),
            Ok(false) => {}
            Err(FsError::TooManyOpen) if keep == Keep::IfRoom => {}
            Err(error) => return Err(error),
        }
        Ok(file)
    }

    /// A program that may be run but not read: the client's kernel has judged that, where it acts
    /// for all users; it must read the program to run it.
    fn or_to_run(
        &self,
        worker: &Worker,
        place: &Place,
        access: Access,
        opened: Result<File, FsError>,
    ) -> Result<File, FsError> {
        let is_user = matches!(self.session.peer.kind, CredentialKind::User { .. });
        match opened {
            Err(FsError::AccessDenied) if access == Access::Read && !is_user => {
                let options = OpenOptions::new(Access::Execute);
                let tree = &place.volume.tree;
                tree.open_file(self.by(worker), &place.inner, options)
            }
            other => other,
        }
    }

    pub(super) fn file_ref(
        &self,
        worker: &Worker,
        file: &FileRef,
        what: Use,
    ) -> Result<(Place, Arc<File>), FsError> {
        self.file_kept(worker, file, what, Keep::IfRoom)
    }

    /// The same, of an open that may have to stay.
    fn file_kept(
        &self,
        worker: &Worker,
        file: &FileRef,
        what: Use,
        keep: Keep,
    ) -> Result<(Place, Arc<File>), FsError> {
        let place = self.target(&file.target)?;
        if matches!(what, Use::Write | Use::Append) {
            Self::writable(&place)?;
        }
        let file = self.file(worker, &place, file.open, what, keep)?;
        Ok((place, file))
    }

    fn open(
        &mut self,
        worker: &Worker,
        target: &Target,
        open: OpenId,
        access: message::Access,
        truncate: bool,
    ) -> Result<StepReply, Stop> {
        let place = self.target(target)?;
        if access.writes() || truncate {
            Self::writable(&place)?;
        }
        let options = OpenOptions {
            truncate,
            ..options_of(access)
        };
        let whole = Extent::between(0, u64::MAX);
        let is_noted = truncate && self.will_change(worker, &place, whole);
        if truncate {
            self.may_cut(&place)?;
        }
        let tree = &place.volume.tree;
        let opened = tree.open_file(self.by(worker), &place.inner, options);
        let opened = self.or_to_run(worker, &place, options.access, opened);
        if truncate {
            if opened.is_ok() && !is_noted {
                self.changes(&place);
            }
            self.changed(&[Change::Inode(place.outer.clone())]);
        }
        self.put_open(open, &place, opened?)?;
        self.answer_attributes(worker, place)
    }

    /// Notes that this session changes the contents of a file.
    pub(super) fn changes(&self, place: &Place) {
        self.changes_part(place, Extent::between(0, u64::MAX));
    }

    /// Notes that this session is about to replace these bytes of a file, if its user may write it;
    /// whether that is so. Who may not has written nothing, and data that others have lost is not
    /// to be refused for his sake.
    fn will_change(&self, worker: &Worker, place: &Place, extent: Extent) -> bool {
        let may = self.may_write(worker, place);
        if may {
            self.changes_part(place, extent);
        }
        may
    }

    /// Whether the caller may write a file.
    pub(super) fn may_write(&self, worker: &Worker, place: &Place) -> bool {
        let wanted = Rights {
            write: true,
            ..Rights::default()
        };
        let tree = &place.volume.tree;
        let may = tree.check_access(self.by(worker), &place.inner, wanted);
        may.is_ok()
    }

    /// Notes that this session changes these bytes of a file.
    pub(super) fn changes_part(&self, place: &Place, extent: Extent) {
        let (again, by) = (&self.core.again, self.session.id);
        match place.volume.tree.parallel() {
            Some(_) => again.changes_part(by, &place.outer, extent, self.resent),
            None => again.changes(by, &place.outer),
        }
    }

    /// Notes an open file under its number.
    pub(super) fn put_open(&self, open: OpenId, place: &Place, file: File) -> Result<(), FsError> {
        let opened = Opened::new(place.volume.clone(), place.outer.clone(), file);
        let writes = opened.writes();
        let before = self.session.opens.put(open, opened)?;
        if writes {
            self.core.caching.writes(&self.session, &place.outer, true);
        }
        if let Some(before) = before
            && before.writes()
        {
            self.core
                .caching
                .writes(&self.session, &before.handle, false);
        }
        Ok(())
    }

    fn read(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        offset: u64,
        bytes: u32,
    ) -> Result<StepReply, Stop> {
        let (_, file) = self.file_kept(worker, file, Use::Read, keep_for(bytes))?;
        let wanted = bytes.min(DATA_BYTES_MAX) as usize;
        let room = wanted.min(self.payload_left());
        self.reserve(room);
        let read = file.read_at(offset, room, &mut self.out)?;
        Ok(StepReply::Data {
            bytes: u32::try_from(read).expect("at most a frame's payload"),
            end_of_file: read < room,
        })
    }

    fn write(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        at: WriteAt,
        bytes: u32,
    ) -> Result<StepReply, Stop> {
        // The step's part of the payload is its own whether it succeeds or not.
        let data = self.payload.split_to(bytes as usize);
        let (place, file) = match at {
            WriteAt::Offset(_) => self.file_kept(worker, file, Use::Write, keep_for(bytes))?,
            WriteAt::End => self.file_kept(worker, file, Use::Append, keep_for(bytes))?,
            WriteAt::Again(offset) => self.file_again(worker, file, offset)?,
        };
        match at {
            WriteAt::Again(_) if !self.core.again.may_store(self.session.id, &place.outer) => {
                tracing::warn!(
                    volume = place.volume.name,
                    host = self.session.host,
                    "data that was lost is not taken again: others have changed the file since, \
                     or the server has been started twice"
                );
                return Err(FsError::Io.into());
            }
            // A write of nothing only makes sure that the open is there.
            _ if bytes > 0 => self.changes(&place),
            _ => {}
        }
        let outcome = match at {
            WriteAt::Offset(offset) | WriteAt::Again(offset) => {
                let written = file.write_at(self.by(worker), offset, &data);
                // Through an open that only appends, somebody else may have been quicker.
                written.and_then(|written| match written.offset == offset {
                    true => Ok(written),
                    false => Err(FsError::Io),
                })
            }
            WriteAt::End if bytes == 0 => Ok(Written {
                offset: 0,
                bytes: 0,
            }),
            WriteAt::End => self.append(worker, &place, &file, &data)?,
        };
        if bytes > 0 {
            self.changed(&[Change::Inode(place.outer.clone())]);
        }
        let written = outcome?;
        self.pace(&place, &file, written)?;
        let attributes = file.attributes(&self.turn)?;
        self.note(place.outer);
        Ok(StepReply::Written {
            offset: written.offset,
            bytes: written.bytes as u64,
            attributes,
        })
    }

    /// The file of an open, for what is to be written there once more. Who may only append may do
    /// that at the end, where it is as if for the first time.
    fn file_again(
        &self,
        worker: &Worker,
        file: &FileRef,
        offset: u64,
    ) -> Result<(Place, Arc<File>), FsError> {
        match self.file_ref(worker, file, Use::Write) {
            Err(error @ (FsError::BadOpen | FsError::AccessDenied)) => {
                let (place, file) = self.file_ref(worker, file, Use::Append)?;
                match file.attributes(&self.turn)?.size == offset {
                    true => Ok((place, file)),
                    false => Err(error),
                }
            }
            found => found,
        }
    }

    fn commit(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        data_only: bool,
    ) -> Result<StepReply, Stop> {
        let place = self.target(&file.target)?;
        if place.volume.is_poisoned(&place.outer) {
            return Err(FsError::Io.into());
        }
        let known = match file.open {
            Some(open) => self.session.opens.get(open, &place.outer, Use::Any)?,
            None => None,
        };
        // Durability takes no permission beyond having the handle; the descriptor reads nothing.
        let file = match known.or_else(|| self.session.opens.any(&place.outer)) {
            Some(file) => file,
            None => {
                let options = OpenOptions::new(Access::Read);
                let root = Principal::root();
                Arc::new(place.volume.tree.open_file(
                    self.by(worker).with(&root),
                    &place.inner,
                    options,
                )?)
            }
        };
        if let Err(error) = file.sync(data_only) {
            self.flush_failed(&place, error);
            return Err(error.into());
        }
        // Another one may have heard of a failure in this moment, and the kernel tells it once.
        if place.volume.is_poisoned(&place.outer) {
            return Err(FsError::Io.into());
        }
        let lease = self.grant(&place, Lease::Read);
        let attributes = file.attributes(&self.turn)?;
        self.note(place.outer);
        Ok(StepReply::Attributes { attributes, lease })
    }

    /// Nobody knows what of a file is on the disk.
    pub(super) fn flush_failed(&self, place: &Place, error: FsError) {
        tracing::error!(
            volume = place.volume.name,
            %error,
            "a file could not be made durable; it is refused until the server is restarted"
        );
        place.volume.poison(&place.outer);
        self.core.data.mark_flush_failed();
    }

    fn allocate(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        mode: AllocateMode,
        extent: Extent,
    ) -> Result<StepReply, Stop> {
        let (place, file) = self.file_ref(worker, file, Use::Write)?;
        let mode = match mode {
            AllocateMode::Extend => export::AllocateMode::Extend,
            AllocateMode::KeepSize => export::AllocateMode::KeepSize,
            AllocateMode::PunchHole => export::AllocateMode::PunchHole,
            AllocateMode::ZeroRange => export::AllocateMode::Zero,
            AllocateMode::ZeroRangeKeepSize => export::AllocateMode::ZeroKeepSize,
        };
        self.changes(&place);
        let outcome = file.allocate(self.by(worker), mode, extent);
        self.changed(&[Change::Inode(place.outer.clone())]);
        outcome?;
        let lease = self.grant(&place, Lease::Read);
        let attributes = file.attributes(&self.turn)?;
        self.note(place.outer);
        Ok(StepReply::Attributes { attributes, lease })
    }

    fn copy_range(
        &mut self,
        worker: &Worker,
        source: &FileRef,
        from: Extent,
        target: &FileRef,
        offset: u64,
    ) -> Result<StepReply, Stop> {
        let (_, source) = self.file_ref(worker, source, Use::Read)?;
        let (place, target) = self.file_ref(worker, target, Use::Write)?;
        self.changes(&place);
        let from = self.copied_at_once(&place, from);
        let outcome = source.copy_range(self.by(worker), from, &target, offset);
        self.changed(&[Change::Inode(place.outer.clone())]);
        let bytes = outcome?;
        let attributes = target.attributes(&self.turn)?;
        self.note(place.outer);
        Ok(StepReply::Written {
            offset,
            bytes,
            attributes,
        })
    }

    /// Opens a file that this request has just made or found, under the number that the client
    /// gave.
    pub(super) fn open_made(
        &self,
        worker: &Worker,
        place: &Place,
        open: OpenId,
        access: message::Access,
    ) -> Result<(), FsError> {
        if self
            .session
            .opens
            .get(open, &place.outer, use_of(access))?
            .is_some()
        {
            return Ok(());
        }
        let options = options_of(access);
        let file = open_again(&place.volume, self.by(worker), &place.inner, options)?;
        self.put_open(open, place, file)
    }
}

/// How a file is opened for what a client asks.
pub(super) fn options_of(access: message::Access) -> OpenOptions {
    let (for_what, append) = match access {
        message::Access::Read => (Access::Read, false),
        message::Access::Write => (Access::Write, false),
        message::Access::ReadWrite => (Access::ReadWrite, false),
        message::Access::Append => (Access::Write, true),
        message::Access::ReadAppend => (Access::ReadWrite, true),
    };
    OpenOptions {
        append,
        ..OpenOptions::new(for_what)
    }
}

/// Who reads or writes nothing wants the open.
fn keep_for(bytes: u32) -> Keep {
    match bytes {
        0 => Keep::Surely,
        _ => Keep::IfRoom,
    }
}
