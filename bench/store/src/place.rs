//! The file that is measured on, and stores in it.

use anyhow::{Context, Result, ensure};
use base::{ObjectId, StoreId, Time};
use figures::spread;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::device::{AlignedBuffer, DeviceOptions, FileDevice, OpenError};
use store::{Clock, Core, Format, Layout, Lifetimes, Options, Sizes, Store};

pub(crate) const MIB: u64 = 1 << 20;

/// A file that was written from end to end, or a loop device of it. Removed when dropped.
pub(crate) struct Place {
    /// What is measured on.
    pub(crate) path: PathBuf,
    file: PathBuf,
    pub(crate) len_bytes: u64,
    unit: u64,
}

impl Place {
    pub(crate) fn new(directory: &Path, len_bytes: u64, unit: u64) -> Result<Self> {
        let path = directory.join(format!("azekura-bench-{}", std::process::id()));
        let go_on = &mut |_, _| ControlFlow::Continue(());
        FileDevice::create(&path, len_bytes, DeviceOptions::default(), go_on)
            .with_context(|| format!("making a file of {} MiB", len_bytes / MIB))?;
        Ok(Self {
            file: path.clone(),
            path,
            len_bytes,
            unit,
        })
    }

    /// The same, on a loop device that passes direct I/O on.
    pub(crate) fn new_loop(directory: &Path, len_bytes: u64, unit: u64) -> Result<Self> {
        let mut place = Self::new(directory, len_bytes, unit)?;
        let mut attach = Command::new("losetup");
        attach.args(["--direct-io=on", "--find", "--show"]);
        let output = attach.arg(&place.file).output().context("losetup")?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "losetup failed: {text}");
        let name = String::from_utf8(output.stdout).context("losetup's answer")?;
        place.path = name.trim().into();
        Ok(place)
    }

    fn sizes(&self) -> Sizes {
        Sizes::for_device(self.len_bytes, self.unit)
    }

    /// Where the allocation units begin.
    pub(crate) fn grid_offset(&self) -> Result<u64> {
        Ok(Layout::new(self.len_bytes, self.sizes())?.grid_offset)
    }

    /// A new store in the file.
    pub(crate) fn fresh(&self) -> Result<Store> {
        let format = Format {
            store: StoreId([9; 16]),
            sizes: self.sizes(),
            lifetimes: Lifetimes::default(),
            capability: Vec::new(),
        };
        Core::format(&*device(&self.path)?, &format)?;
        open(&self.path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.path != self.file {
            let _ = Command::new("losetup").arg("-d").arg(&self.path).status();
        }
        // What stays in the way is in a directory for such files.
        let _ = fs::remove_file(&self.file);
    }
}

/// Opens the file; a ring that is being taken apart may hold its lock for a moment.
pub(crate) fn device(path: &Path) -> Result<Arc<FileDevice>> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match FileDevice::open(path, DeviceOptions::default()) {
            Err(OpenError::InUse { .. }) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => return Ok(Arc::new(opened?)),
        }
    }
}

pub(crate) fn open(path: &Path) -> Result<Store> {
    Ok(Store::open(device(path)?, Options::default(), clock())?)
}

pub(crate) fn clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Time::ZERO + since.unwrap_or_default()
    })
}

/// An object's identity, spread as random ones are.
pub(crate) fn id(number: u64) -> ObjectId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&spread(number).to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    ObjectId(bytes)
}

/// Bytes that do not compress.
pub(crate) fn noise(len: usize, seed: u64) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(len);
    for (at, word) in (0..).zip(buffer.chunks_mut(8)) {
        word.copy_from_slice(&spread(seed << 40 | at).to_le_bytes()[..word.len()]);
    }
    buffer
}

/// Megabytes per second.
pub(crate) fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}
