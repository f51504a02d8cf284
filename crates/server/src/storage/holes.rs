//! What an object has of its bytes: how many, space that it is given ahead, and where its data are.

use super::job::{Job, Outcome, failed, space};
use base::{Extent, ObjectId};
use store::{How, Present, Sought, StoreError, Wanted};
use wire::message::{ObjectError, ObjectStep, ObjectStepReply, SeekWhat};

impl Job {
    /// Steps about which bytes an object has.
    pub(super) fn change_bytes(&self, step: &ObjectStep) -> Outcome {
        let (store, storage, device) = (&self.device.store, &self.storage, self.device.id);
        let done = |changed: Result<(), StoreError>| {
            changed.map(|()| ObjectStepReply::Done).map_err(failed)
        };
        match *step {
            ObjectStep::Truncate { object, size_bytes } => {
                // What lies between is paid for now, as by a write beyond the end.
                self.draw(object, Some(size_bytes), 0)?;
                done(store.truncate(object, size_bytes))
            }
            ObjectStep::Punch { object, hole } => done(store.punch(object, hole, How::default())),
            ObjectStep::PunchUnder {
                object,
                generation,
                hole,
            } => {
                let how = How {
                    payer: None,
                    generation: Some(generation),
                };
                done(store.punch(object, hole, how))
            }
            ObjectStep::Allocate {
                object,
                extent,
                is_cleared,
            } => self.allocate(object, extent, is_cleared, None),
            ObjectStep::AllocateUnder {
                object,
                generation,
                extent,
                is_cleared,
            } => self.allocate(object, extent, is_cleared, Some(generation)),
            ObjectStep::Seek {
                object,
                offset,
                what,
            } => self.seek(object, offset, what),
            ObjectStep::Cut { object, size_bytes } => {
                space(storage.shorten_object(device, object, size_bytes))
            }
            ObjectStep::CutUnder {
                object,
                generation,
                size_bytes,
            } => space(storage.cut_object(device, object, size_bytes, generation)),
            ObjectStep::Discard { object } => space(storage.delete_object(device, object)),
            _ => unreachable!("the other steps are carried out elsewhere"),
        }
    }

    fn allocate(
        &self,
        object: ObjectId,
        extent: Extent,
        is_cleared: bool,
        generation: Option<u64>,
    ) -> Outcome {
        let end = extent.offset.checked_add(extent.len);
        let payer = self.draw(object, Some(end.ok_or(ObjectError::TooLong)?), 0)?;
        let present = match is_cleared {
            true => Present::Cleared,
            false => Present::Kept,
        };
        let how = How { payer, generation };
        let allocated = (self.device.store).allocate(object, extent, present, how);
        allocated.map(|()| ObjectStepReply::Done).map_err(failed)
    }

    fn seek(&self, object: ObjectId, offset: u64, what: SeekWhat) -> Outcome {
        let wanted = match what {
            SeekWhat::Data => Wanted::Data,
            SeekWhat::Hole => Wanted::Hole,
        };
        let sought = (self.device.store).seek(object, offset, wanted);
        let (found, next) = match sought.map_err(failed)? {
            Sought::At(found) => (Some(found), None),
            Sought::NotBefore(next) => (None, Some(next)),
            Sought::Nowhere => (None, None),
        };
        Ok(ObjectStepReply::Sought { found, next })
    }
}
