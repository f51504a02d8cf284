//! Space: allocation, holes, and copies within the server; what replaces written data.

use super::Volume;
use crate::cache::NodeId;
use crate::transport::{Call, FileResponse};
use base::limits::COMMIT_TRIES_MAX;
use base::{Extent, FsError, OpenId, Principal};
use wire::message::{AllocateMode, FileRef, SeekWhat, Step, StepReply};

impl Volume {
    /// Allocates, frees or zeroes space.
    ///
    /// # Errors
    /// The server's, for this caller, or of earlier writes.
    pub async fn allocate(
        &self,
        who: &Principal,
        node: NodeId,
        open: Option<OpenId>,
        mode: AllocateMode,
        extent: Extent,
    ) -> Result<(), FsError> {
        if self.only_appends(open) {
            return Err(FsError::NotPermitted);
        }
        let file_ref = self.settled_file(who, node, open).await?;
        let step = Step::Allocate {
            file: file_ref,
            mode,
            extent,
        };
        let replaced = match mode {
            AllocateMode::Extend | AllocateMode::KeepSize => Extent::default(),
            AllocateMode::PunchHole | AllocateMode::ZeroRange | AllocateMode::ZeroRangeKeepSize => {
                extent
            }
        };
        let outcome = self.replace(who, node, replaced, step).await;
        let (reply, response) = self.or_changed_in_part(node, outcome).await?;
        self.distrust(node)?;
        self.take_attributes(node, reply, &response)?;
        self.tell_attributes(node);
        Ok(())
    }

    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// `NoSuchAddress` past the end, or the server's.
    pub async fn seek(
        &self,
        who: &Principal,
        node: NodeId,
        open: Option<OpenId>,
        offset: u64,
        what: SeekWhat,
    ) -> Result<u64, FsError> {
        for _ in 0..COMMIT_TRIES_MAX {
            let losses = self.losses(node)?;
            let file = self.settled_file(who, node, open).await?;
            let steps = vec![Step::Seek { file, offset, what }];
            let pending = self.submit_contents(node, who, steps, Call::metadata());
            let (mut replies, response) = Self::replies(1, pending).await?;
            let reply = replies.pop().ok_or(FsError::Io)?;
            if self.has_lost_since(node, losses, &response)? {
                continue;
            }
            return match reply {
                StepReply::Position(position) => Ok(position),
                _ => Err(FsError::Io),
            };
        }
        Err(FsError::Io)
    }

    /// Copies between two files without the data leaving the server; how much was copied.
    ///
    /// # Errors
    /// The server's, for this caller, or of earlier writes.
    pub async fn copy_range(
        &self,
        who: &Principal,
        source: (NodeId, Option<OpenId>, u64),
        target: (NodeId, Option<OpenId>, u64),
        bytes: u64,
    ) -> Result<u64, FsError> {
        if self.only_appends(target.1) {
            return Err(FsError::NotPermitted);
        }
        for _ in 0..COMMIT_TRIES_MAX {
            let losses = self.losses(source.0)?;
            let step = Step::CopyRange {
                source: self.settled_file(who, source.0, source.1).await?,
                source_offset: source.2,
                target: self.settled_file(who, target.0, target.1).await?,
                target_offset: target.2,
                bytes,
            };
            let replaced = Extent::new(target.2, bytes);
            let outcome = self.replace(who, target.0, replaced, step).await;
            let (reply, response) = self.or_changed_in_part(target.0, outcome).await?;
            let StepReply::Written {
                bytes, attributes, ..
            } = reply
            else {
                return Err(FsError::Io);
            };
            self.distrust(target.0)?;
            self.note_attributes(target.0, &attributes, response.recalls_seen);
            self.tell_attributes(target.0);
            self.tell_data(target.0);
            if !self.has_lost_since(source.0, losses, &response)? {
                return Ok(bytes);
            }
        }
        Err(FsError::Io)
    }

    /// How often the server may have lost what it had of a file.
    pub(super) fn losses(&self, node: NodeId) -> Result<u64, FsError> {
        Ok(self.file(node)?.lock().written.losses())
    }

    /// Whether a step was carried out by a server that had lost what the step depended on; it gets
    /// that again, and the step has to be repeated.
    pub(super) fn has_lost_since(
        &self,
        node: NodeId,
        losses: u64,
        response: &FileResponse,
    ) -> Result<bool, FsError> {
        let file = self.file(node)?;
        let again = file.lock().written.on_verifier(response.verifier);
        if again {
            self.send_written(node, &file);
        }
        Ok(file.lock().written.losses() != losses)
    }

    /// Carries out a step that puts something else into `extent` of a file: what is stored there
    /// and not durable must not be sent again after it. A copy may do so with a part only; the rest
    /// then is as it was.
    pub(super) async fn replace(
        &self,
        who: &Principal,
        node: NodeId,
        extent: Extent,
        step: Step,
    ) -> Result<(StepReply, FileResponse), FsError> {
        let file = self.file(node)?;
        // From the beginning: the server's machine may go down before the answer, and the step is
        // carried out when it is back.
        let replacement = loop {
            let replacement = file.lock().written.replace(extent);
            match replacement {
                Some(replacement) => break replacement,
                None => self.until_stored(node, &file).await?,
            }
        };
        let is_durable = self.is_durable(&step);
        let outcome = self.contents_with_room(node, who, step).await;
        let done = match &outcome {
            Ok((StepReply::Written { bytes, .. }, _)) => *bytes,
            Ok(_) => extent.len,
            Err(_) => 0,
        };
        if let Ok((_, response)) = &outcome {
            if is_durable {
                if file.lock().written.on_verifier(response.verifier) {
                    self.send_written(node, &file);
                }
            } else {
                file.lock().written.on_changed(response.verifier);
                self.commit_all_soon();
            }
        }
        let kept = Extent::between(extent.offset.saturating_add(done), extent.end());
        file.lock().written.on_replaced(replacement, kept);
        file.progress.notify_waiters();
        self.send_written(node, &file);
        outcome
    }

    /// A step that has failed may have changed a part of the file: what it has done until there was
    /// no room, for one, stays done. Before whoever asked goes on: the kernel drops nothing by
    /// itself then.
    async fn or_changed_in_part<T>(
        &self,
        node: NodeId,
        outcome: Result<T, FsError>,
    ) -> Result<T, FsError> {
        let may_have_begun = |error: &FsError| {
            matches!(
                error,
                FsError::NoSpace
                    | FsError::QuotaExceeded
                    | FsError::FileTooLarge
                    | FsError::Io
                    | FsError::NoMemory
                    | FsError::Interrupted
                    | FsError::TimedOut
                    | FsError::Stale
                    | FsError::ReadOnly
            )
        };
        if let Err(error) = &outcome
            && may_have_begun(error)
        {
            self.doubt_contents(node);
            // What is not answered may still happen, and all is dropped then.
            if *error != FsError::TimedOut {
                self.until_dropped(&[node]).await;
            }
        }
        outcome
    }

    /// Whether a change cannot be lost once it is answered: names and attributes of a parallel
    /// volume, space that was given out, and cuts, which are at its stores by then (promises V2, V4
    /// and V9).
    fn is_durable(&self, step: &Step) -> bool {
        let is_lasting = match step {
            Step::Allocate { mode, .. } => {
                matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize)
            }
            Step::CopyRange { .. } => false,
            _ => true,
        };
        self.stripes.is_some() && is_lasting
    }

    /// A file whose written data is all at the server, for a step that depends on it.
    async fn settled_file(
        &self,
        who: &Principal,
        node: NodeId,
        open: Option<OpenId>,
    ) -> Result<FileRef, FsError> {
        let file = self.file(node)?;
        let target = self.target(node).await?;
        self.drain(node, &file).await?;
        let open = self.open_used_by(who, node, open).await?;
        Ok(FileRef { target, open })
    }

    fn distrust(&self, node: NodeId) -> Result<(), FsError> {
        let file = self.file(node)?;
        let freed = file.lock().distrust();
        self.budget().on_freed(file.account, freed);
        Ok(())
    }
}
