//! Reads outside the lock.
//!
//! A plan is made under the lock and carried out without it. Meanwhile the object may be changed
//! and its bytes' place have others; their checksums do not fit then. A read that finds such bytes
//! is made again, the last time under the lock, where nothing changes: what does not fit then is
//! damaged.

use super::{Shared, Store};
use crate::StoreError;
use crate::device::{AlignedBuffer, BLOCK_BYTES, Pending};
use crate::read::{Plan, Whole};
use base::{BlockDevice, ObjectId};
use std::sync::Arc;

/// How often a read is made without the lock.
pub(super) const TRIES: u32 = 3;
/// From this length on a read is queued and fills the caller's buffer without a copy.
const QUEUED_BYTES_MIN: usize = 64 << 10;

/// A read under way.
#[must_use = "only waiting gives the bytes"]
pub struct Reading {
    shared: Arc<Shared>,
    object: ObjectId,
    offset: u64,
    len: usize,
    /// The request that brings all of it, and how to verify it; none if it takes more than one.
    whole: Option<(Pending, Whole)>,
}

impl Reading {
    /// Waits for the bytes: as many as there were, verified.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`], the device's.
    pub fn wait(self) -> Result<AlignedBuffer, StoreError> {
        if let Some((pending, whole)) = self.whole {
            let read = pending.wait()?.into_buffer();
            if let Some(buffer) = read.and_then(|buffer| fitting(buffer, self.len, &whole)) {
                return Ok(buffer);
            }
        }
        self.shared.read_again(self.object, self.offset, self.len)
    }
}

/// What was read, if it is what was written.
fn fitting(mut buffer: AlignedBuffer, len: usize, whole: &Whole) -> Option<AlignedBuffer> {
    buffer.truncate(len);
    whole.fits(&buffer).then_some(buffer)
}

impl Shared {
    fn plan(&self, object: ObjectId, offset: u64, len: usize) -> Result<(Plan, usize), StoreError> {
        let state = self.lock();
        state.core.plan_read((self.clock)(), object, offset, len)
    }

    fn read(&self, object: ObjectId, offset: u64, bytes: &mut [u8]) -> Result<usize, StoreError> {
        for _ in 0..TRIES {
            let (plan, len) = self.plan(object, offset, bytes.len())?;
            match plan.carry_out(&*self.device, &mut bytes[..len]) {
                Ok(()) => return Ok(len),
                Err(StoreError::Damaged(_)) => {}
                Err(other) => return Err(other),
            }
        }
        let state = self.lock();
        state.core.read((self.clock)(), object, offset, bytes)
    }

    fn read_again(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
    ) -> Result<AlignedBuffer, StoreError> {
        let mut buffer = AlignedBuffer::new(len);
        let len = self.read(object, offset, &mut buffer)?;
        buffer.truncate(len);
        Ok(buffer)
    }
}

impl Store {
    /// Reads from `offset` on, as much as there is and `bytes` has room for; says how much.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Damaged`] if what is there is not what was written.
    pub fn read(
        &self,
        object: ObjectId,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, StoreError> {
        self.shared.read(object, offset, bytes)
    }

    /// Reads up to `len` bytes from `offset` on, on the caller's thread: for those who would only
    /// wait for [`Self::start_read`], and are spared the way to the device's thread and back. Bytes
    /// that lie in one run come without a copy.
    ///
    /// # Errors
    /// As those of [`Self::read`].
    pub fn read_buffer(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
    ) -> Result<AlignedBuffer, StoreError> {
        let (plan, len) = self.shared.plan(object, offset, len)?;
        if let Some(whole) = plan.into_whole(len) {
            let blocks = len.next_multiple_of(BLOCK_BYTES as usize);
            let mut buffer = AlignedBuffer::to_fill(blocks);
            self.shared.device.read_at(whole.offset, &mut buffer)?;
            if let Some(buffer) = fitting(buffer, len, &whole) {
                return Ok(buffer);
            }
        }
        self.shared.read_again(object, offset, len)
    }

    /// Begins to read `len` bytes from `offset` on. Bytes that lie in one run, as those of one
    /// allocation unit do, come without a copy.
    ///
    /// # Errors
    /// As those of [`Self::read`].
    pub fn start_read(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
    ) -> Result<Reading, StoreError> {
        let (plan, len) = self.shared.plan(object, offset, len)?;
        let whole = match plan.into_whole(len) {
            Some(whole) if len >= QUEUED_BYTES_MIN => {
                let blocks = len.next_multiple_of(BLOCK_BYTES as usize);
                Some((self.shared.device.start_read(whole.offset, blocks)?, whole))
            }
            _ => None,
        };
        Ok(Reading {
            shared: Arc::clone(&self.shared),
            object,
            offset,
            len,
            whole,
        })
    }
}
