//! Writes: cut where transactions end, handed to the device without waiting for it.

use super::queued::Lent;
use super::{Shared, Store};
use crate::StoreError;
use crate::device::AlignedBuffer;
use crate::reserve::{How, Payer};
use base::ObjectId;
use base::limits::{DEVICE_TIME_MAX, STORE_WRITE_BYTES_MAX};
use bytes::Bytes;
use std::sync::mpsc::{self, Receiver, Sender};

/// A write on its way to the device.
#[must_use = "only waiting says when the device has it"]
#[derive(Debug)]
pub struct Writing {
    landing: Receiver<()>,
}

impl Writing {
    /// Waits until the device has everything that goes there before a commit, at most
    /// `DEVICE_TIME_MAX`. Whether it was written, and is durable, only a commit says.
    pub fn wait(self) {
        // Nothing is ever sent: it is over when the last write has dropped its end.
        let _ = self.landing.recv_timeout(DEVICE_TIME_MAX);
    }
}

impl Store {
    /// Writes `data` at `offset`. More than `STORE_WRITE_BYTES_MAX` are several transactions, in
    /// order.
    ///
    /// # Errors
    /// See [`crate::Core::write`].
    pub fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.shared
            .write_parts(object, offset, data, (&Lent::default(), How::default()))
    }

    /// Writes a buffer at `offset`; large parts of it at page borders go to the device without a
    /// copy.
    ///
    /// # Errors
    /// See [`Self::write`].
    pub fn write_buffer(
        &self,
        object: ObjectId,
        offset: u64,
        data: &AlignedBuffer,
    ) -> Result<(), StoreError> {
        let lent = Lent {
            payload: Some(data.clone()),
            landing: None,
        };
        self.shared
            .write_parts(object, offset, data, (&lent, How::default()))
    }

    /// As [`Self::write`], for who wants to know when the device has it: by a layout of some
    /// generation, and if a reservation pays, the growth of an object without one is out of its
    /// space. Large parts that begin at a page go to the device without a copy.
    ///
    /// # Errors
    /// See [`crate::Core::write_from`].
    pub fn start_write(
        &self,
        object: ObjectId,
        offset: u64,
        data: &Bytes,
        how: impl Into<How>,
    ) -> Result<Writing, StoreError> {
        let (lent, writing) = landing(data);
        self.shared
            .write_parts(object, offset, data, (&lent, how.into()))?;
        Ok(writing)
    }

    /// Writes `data` at the end, wherever that is; says where. At most `STORE_WRITE_BYTES_MAX`. Two
    /// appends to one object at the same time may come to lie at the same place: the caller keeps
    /// them apart.
    ///
    /// # Errors
    /// See [`Self::start_write`]; [`StoreError::TooMuch`].
    pub fn start_append(
        &self,
        object: ObjectId,
        data: &Bytes,
        payer: Option<Payer>,
    ) -> Result<(u64, Writing), StoreError> {
        if data.len() > STORE_WRITE_BYTES_MAX {
            return Err(StoreError::TooMuch {
                bytes: data.len(),
                bytes_max: STORE_WRITE_BYTES_MAX,
            });
        }
        let (lent, writing) = landing(data);
        let offset = self.info(object)?.size_bytes;
        self.shared
            .write_parts(object, offset, data, (&lent, payer.into()))?;
        Ok((offset, writing))
    }
}

fn landing(data: &Bytes) -> (Lent, Writing) {
    let (sender, landing): (Sender<()>, _) = mpsc::channel();
    let lent = Lent {
        payload: AlignedBuffer::lent(data.clone()),
        landing: Some(sender),
    };
    (lent, Writing { landing })
}

impl Shared {
    fn write_parts(
        &self,
        object: ObjectId,
        mut offset: u64,
        data: &[u8],
        (lent, how): (&Lent, How),
    ) -> Result<(), StoreError> {
        let (mut rest, mut part_max) = (data, STORE_WRITE_BYTES_MAX);
        loop {
            // Cut where allocation units are.
            let unit = STORE_WRITE_BYTES_MAX as u64;
            let len = rest.len().min((unit - offset % unit) as usize);
            self.device.wait_for_room(len)?;
            // One transaction each: what waits for a commit goes on behind what it has written.
            let written = self.change(|core, now| {
                self.device.lend(lent.clone());
                let at = (object, offset);
                let written = core.write_some(now, at, &rest[..len], how, &mut part_max);
                self.device.lend(Lent::default());
                written
            })?;
            rest = &rest[written..];
            offset += written as u64;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }
}
