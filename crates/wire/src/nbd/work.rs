//! A request on a device, by a bounded set of threads.

use super::reply::{error_reply, read_reply, simple_reply, status_reply};
use super::request::{Command, Errno, Request};
use super::{Agreement, Export, Facts, Rules};
use base::limits::{
    NBD_READERS_MAX, NBD_STATUS_BYTES_MAX, NBD_STATUS_RUNS_MAX, NBD_TEXT_BYTES_MAX, NBD_WRITERS_MAX,
};
use base::{BlockDevice, DeviceError, Extent, ExtentSet};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Zeros that keep their space are written in pieces of this length.
const ZEROS_BYTES: u64 = 256 << 10;

/// A device with the threads that work on it, for all its connections.
pub(super) struct Served {
    pub(super) facts: Facts,
    device: Arc<dyn BlockDevice>,
    readers: Arc<Semaphore>,
    writers: Arc<Semaphore>,
}

impl Served {
    pub(super) fn new(export: Export) -> Self {
        let mut facts = Facts {
            len_bytes: export.device.len_bytes(),
            block_bytes: export.device.block_bytes(),
            is_read_only: export.is_read_only,
            name: export.name,
            description: export.description,
        };
        shorten(&mut facts.name);
        shorten(&mut facts.description);
        Self {
            facts,
            device: export.device,
            readers: Arc::new(Semaphore::new(NBD_READERS_MAX)),
            writers: Arc::new(Semaphore::new(NBD_WRITERS_MAX)),
        }
    }

    /// Does what is asked, if it may be, and makes the reply.
    pub(super) async fn answer(
        &self,
        request: Request,
        payload: Bytes,
        agreement: Agreement,
    ) -> Vec<Bytes> {
        let refused = |errno, text: &str| {
            let is_structured = agreement.is_structured;
            vec![error_reply(request.cookie, errno, text, is_structured)]
        };
        let rules = Rules {
            len_bytes: self.facts.len_bytes,
            is_read_only: self.facts.is_read_only,
            agreement,
        };
        let command = match request.judge(&rules) {
            Ok(command) => command,
            Err(errno) => return refused(errno, "the request is not one for this device"),
        };
        let workers = match command {
            Command::Read { .. } | Command::Status { .. } => &self.readers,
            _ => &self.writers,
        };
        let permit = Arc::clone(workers).acquire_owned().await;
        let device = Arc::clone(&self.device);
        let work = move || {
            // It travels with the work: a connection that ends does not make room by that.
            let _permit = permit;
            perform(&*device, command, &payload, request.cookie, agreement)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => {
                tracing::warn!(?command, "{}", with_cause(&error));
                refused(errno(&error), &with_cause(&error))
            }
            Err(_) => refused(Errno::Io, "a defect of the server"),
        }
    }
}

/// A text that goes into a negotiation.
fn shorten(text: &mut String) {
    let mut end = text.len().min(NBD_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

fn perform(
    device: &dyn BlockDevice,
    command: Command,
    payload: &[u8],
    cookie: u64,
    agreement: Agreement,
) -> Result<Vec<Bytes>, DeviceError> {
    let is_durable = match command {
        Command::Read { extent, is_whole } => {
            let is_structured = agreement.is_structured;
            let mut bytes = vec![0; extent.len as usize];
            // At once, also over holes: whatever is far away is asked for together.
            device.read_at(extent.offset, &mut bytes)?;
            let holes = match is_structured && !is_whole {
                true => device.holes(extent)?,
                false => ExtentSet::new(),
            };
            let bytes = bytes.into();
            return Ok(read_reply(cookie, extent, bytes, &holes, is_structured));
        }
        Command::Status {
            extent,
            is_one_enough,
        } => {
            let extent = Extent::new(extent.offset, extent.len.min(NBD_STATUS_BYTES_MAX));
            let runs_max = if is_one_enough {
                1
            } else {
                NBD_STATUS_RUNS_MAX
            };
            let holes = device.holes(extent)?;
            return Ok(vec![status_reply(cookie, extent, &holes, runs_max)]);
        }
        Command::Flush => true,
        Command::Write { extent, is_durable } => {
            device.write_at(extent.offset, payload)?;
            is_durable
        }
        Command::Trim { extent, is_durable } => {
            device.trim(extent)?;
            is_durable
        }
        Command::WriteZeros {
            extent,
            is_durable,
            keeps_space,
        } => {
            if keeps_space {
                fill_with_zeros(device, extent)?;
            } else {
                device.write_zeros(extent)?;
            }
            is_durable
        }
    };
    if is_durable {
        device.flush()?;
    }
    Ok(vec![simple_reply(cookie, None)])
}

fn fill_with_zeros(device: &dyn BlockDevice, extent: Extent) -> Result<(), DeviceError> {
    let zeros = vec![0; extent.len.min(ZEROS_BYTES) as usize];
    let mut left = extent;
    while !left.is_empty() {
        let len = left.len.min(ZEROS_BYTES);
        device.write_at(left.offset, &zeros[..len as usize])?;
        left = Extent::between(left.offset + len, left.end());
    }
    Ok(())
}

fn errno(error: &DeviceError) -> Errno {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error {
        DeviceError::Outside { .. } => Errno::Invalid,
        DeviceError::ReadOnly => Errno::NotPermitted,
        DeviceError::Failed { source, .. } => match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Errno::NoSpace,
            _ => Errno::Io,
        },
    }
}

fn with_cause(error: &DeviceError) -> String {
    match error {
        DeviceError::Failed { source, .. } => format!("{error}: {source}"),
        _ => error.to_string(),
    }
}
