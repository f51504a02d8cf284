//! A small ext4 file system of our own: the baseline, and the ground that a playground serves.

use crate::process;
use crate::scratch::{Scratch, unmount};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Sparse: only what is written takes space.
const SIZE_BYTES: u64 = 8 << 30;
const LIMIT: Duration = Duration::from_secs(60);

/// A mounted ext4 in a file. Dropping it unmounts; the kernel then frees the loop device.
pub(crate) struct LoopDisk {
    mount: PathBuf,
}

impl LoopDisk {
    /// Makes and mounts one within `scratch`.
    pub(crate) fn new(scratch: &Scratch) -> Result<Self> {
        let image = scratch.path().join("disk.img");
        File::create(&image)
            .and_then(|file| file.set_len(SIZE_BYTES))
            .context("disk.img")?;
        process::check(Command::new("mkfs.ext4").arg("-q").arg(&image), LIMIT)?;
        let mount = scratch.directory("disk")?;
        let mut command = Command::new("mount");
        // ACLs and attributes are ext4's default; `discard` gives freed space back to the file.
        command.args(["-o", "loop,discard"]).arg(&image).arg(&mount);
        process::check(&mut command, LIMIT)?;
        Ok(Self { mount })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.mount
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        unmount(&self.mount);
    }
}
