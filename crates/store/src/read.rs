//! How bytes are read: a plan made of records, carried out on the device, verified on the way.
//!
//! A plan names runs on the device with the checksums of all that is in them, also of bytes that
//! nobody asked for, because a checksum can only be verified as a whole. What no step covers reads
//! as zeros. Making a plan touches no data and carrying it out touches no records, so the second
//! can happen while the records go on changing.

use crate::leaf::Sum;
use crate::planted::{Mistake, planted};
use crate::{Damage, StoreError};
use base::BlockDevice;
use std::sync::Arc;

/// Longest run that is read at once; more gains nothing and takes memory.
const RUN_BYTES_MAX: usize = 4 << 20;

/// One run that is all of a read.
#[derive(Debug)]
pub(crate) struct Whole {
    /// Where it is on the device.
    pub(crate) offset: u64,
    sums: Vec<Sum>,
}

impl Whole {
    /// Whether these are its bytes.
    pub(crate) fn fits(&self, bytes: &[u8]) -> bool {
        verify(self.offset, &self.sums, bytes).is_ok()
    }
}

/// Where the bytes of one read are.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    source: Source,
    /// The bytes that were asked for, as a part of the source.
    skip: usize,
    take: usize,
    /// Where they go.
    into: usize,
}

#[derive(Debug)]
enum Source {
    /// Bytes on the device, each checksum's right behind those of the one before.
    Device {
        offset: u64,
        sums: Vec<Sum>,
        len: usize,
    },
    /// A piece that is in the log and not in its place yet.
    Memory(Arc<[u8]>),
}

impl Plan {
    /// Adds `take` bytes, after the first `skip`, of what `sum` covers at `offset` of the device.
    pub(crate) fn device(
        &mut self,
        offset: u64,
        sum: Sum,
        (skip, take): (usize, usize),
        into: usize,
    ) {
        let len = sum.len as usize;
        if let Some(last) = self.steps.last_mut()
            && let Source::Device {
                offset: before,
                sums,
                len: so_far,
            } = &mut last.source
            && (last.skip, last.take) == (0, *so_far)
            && (skip, take) == (0, len)
            && *before + *so_far as u64 == offset
            && last.into + last.take == into
            && *so_far + len <= RUN_BYTES_MAX
        {
            sums.push(sum);
            *so_far += len;
            last.take += take;
            return;
        }
        let sums = vec![sum];
        self.steps.push(Step {
            source: Source::Device { offset, sums, len },
            skip,
            take,
            into,
        });
    }

    /// Adds `take` bytes, after the first `skip`, of a piece in memory.
    pub(crate) fn memory(&mut self, piece: Arc<[u8]>, (skip, take): (usize, usize), into: usize) {
        self.steps.push(Step {
            source: Source::Memory(piece),
            skip,
            take,
            into,
        });
    }

    /// The one run that is all of the `len` bytes, if they are one.
    pub(crate) fn into_whole(mut self, len: usize) -> Option<Whole> {
        let only = self.steps.pop().filter(|_| self.steps.is_empty())?;
        match only.source {
            Source::Device {
                offset,
                sums,
                len: whole,
            } if (only.into, only.take, whole) == (0, len, len) => Some(Whole { offset, sums }),
            _ => None,
        }
    }

    /// How many bytes the checksums of the plan cover.
    pub(crate) fn covered_bytes(&self) -> u64 {
        let len = |step: &Step| match &step.source {
            Source::Device { len, .. } => *len as u64,
            Source::Memory(piece) => piece.len() as u64,
        };
        self.steps.iter().map(len).sum()
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a checksum does not fit, the device's; then `bytes` are zeros.
    pub(crate) fn carry_out(
        &self,
        device: &dyn BlockDevice,
        bytes: &mut [u8],
    ) -> Result<(), StoreError> {
        bytes.fill(0);
        let result = self
            .steps
            .iter()
            .try_for_each(|step| step.carry_out(device, bytes));
        if result.is_err() {
            bytes.fill(0);
        }
        result
    }
}

impl Step {
    fn carry_out(&self, device: &dyn BlockDevice, bytes: &mut [u8]) -> Result<(), StoreError> {
        let into = &mut bytes[self.into..][..self.take];
        match &self.source {
            Source::Memory(piece) => {
                into.copy_from_slice(&piece[self.skip..][..self.take]);
                Ok(())
            }
            Source::Device { offset, sums, len } if self.take == *len => {
                device.read_at(*offset, into)?;
                verify(*offset, sums, into)
            }
            Source::Device { offset, sums, len } => {
                let mut all = vec![0; *len];
                device.read_at(*offset, &mut all)?;
                verify(*offset, sums, &all)?;
                into.copy_from_slice(&all[self.skip..][..self.take]);
                Ok(())
            }
        }
    }
}

fn verify(offset: u64, sums: &[Sum], mut bytes: &[u8]) -> Result<(), StoreError> {
    let mut offset = offset;
    for sum in sums {
        let (part, rest) = bytes.split_at(sum.len as usize);
        if !sum.fits(part) && !planted(Mistake::DataUnverified) {
            return Err(Damage::Data(offset).into());
        }
        offset += u64::from(sum.len);
        bytes = rest;
    }
    Ok(())
}
