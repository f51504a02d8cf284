//! What an object has of its bytes: space that it is given ahead, and where its data are.

use super::job::{Job, Outcome, failed};
use base::{Extent, ObjectId};
use store::{Present, Sought, Wanted};
use wire::message::{ObjectError, ObjectStepReply, SeekWhat};

impl Job {
    pub(super) fn allocate(&self, object: ObjectId, extent: Extent, is_cleared: bool) -> Outcome {
        let end = extent.offset.checked_add(extent.len);
        let payer = self.draw(object, Some(end.ok_or(ObjectError::TooLong)?), 0)?;
        let present = match is_cleared {
            true => Present::Cleared,
            false => Present::Kept,
        };
        let allocated = (self.device.store).allocate(object, extent, present, payer);
        allocated.map(|()| ObjectStepReply::Done).map_err(failed)
    }

    pub(super) fn seek(&self, object: ObjectId, offset: u64, what: SeekWhat) -> Outcome {
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
