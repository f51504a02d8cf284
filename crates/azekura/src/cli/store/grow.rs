//! `azekura store grow`.

use super::describe::Description;
use super::{Interrupt, OnePath, on, shown};
use crate::errors::{Code, Failure, Result};
use crate::output;
use crate::progress::Progress;
use ::store::device::{BLOCK_BYTES, FileDevice, OpenError};
use ::store::{Core, Layout, StoreError};
use base::{BlockDevice, ByteSize, Extent};

/// Take in what a store's device has become longer by
///
/// With --size, a file is made longer first. Every new byte of a file is written, so that its space
/// stays its own. Objects and reservations stay what they are; nobody can use the store meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura store grow ./disk0 --size 20GiB
  azekura store grow /dev/sdb                    after the device has become larger")]
pub(in crate::cli) struct Grow {
    #[command(flatten)]
    path: OnePath,
    /// Make the file so long; rounded down to whole blocks of 4 KiB
    #[arg(long)]
    size: Option<ByteSize>,
    /// Only say what the store would become
    #[arg(long)]
    dry_run: bool,
    /// Print the store as JSON
    #[arg(long)]
    json: bool,
}

impl Grow {
    pub(super) fn run(self) -> Result<()> {
        let path = &self.path.path;
        let interrupt = Interrupt::watch()?;
        let (device, core) = super::open(&self.path, self.dry_run)?;
        let before = *core.layout();
        drop(core);
        let len_bytes = self.len_bytes(&device)?;
        let after = before.grown_to(len_bytes);
        let after = after.map_err(|error| self.too_much(error))?;
        if self.dry_run {
            if !device.is_block_device() {
                device.ensure_room(len_bytes)?;
            }
            return self.tell(&before, &after);
        }
        if after.au_count == before.au_count {
            output::note(format_args!(
                "{}: there is nothing to take in, not even one unit of {}",
                shown(path),
                output::size(before.au_bytes),
            ));
        }
        if !device.is_block_device() {
            lengthen(&device, &before, len_bytes, &interrupt)?;
        }
        let grown = Core::open(device.clone(), self.path.options())
            .and_then(|mut core| core.grow().map(|_| core));
        let core = grown.map_err(|error| on(path, error.into()))?;
        Description::of(&device, &core)?.print(self.json)
    }

    /// Why there is no store of that length. The one that is there stays.
    fn too_much(&self, error: StoreError) -> Failure {
        let path = shown(&self.path.path);
        match error {
            StoreError::Sizes(why) => {
                Failure::new(Code::StoreSizes, format!("{path} cannot grow: {why}"))
                    .hint("the store stays as it is; use the rest for another one")
            }
            other => on(&self.path.path, other.into()),
        }
    }

    /// How long the device is going to be.
    fn len_bytes(&self, device: &FileDevice) -> Result<u64> {
        let there = device.len_bytes();
        let path = shown(&self.path.path);
        let Some(ByteSize(size)) = self.size else {
            return Ok(there);
        };
        if device.is_block_device() {
            let message = format!("{path} is a block device and has a size of its own");
            return Err(Failure::new(Code::StoreSizes, message)
                .hint("make the device larger by its own means; then repeat without --size"));
        }
        let size = size - size % u64::from(BLOCK_BYTES);
        if size < there {
            let there = output::size(there);
            let message = format!("{path} has {there} already; a store does not shrink");
            return Err(Failure::new(Code::StoreSizes, message)
                .hint("give a larger --size, or none to use the file as it is"));
        }
        Ok(size)
    }

    fn tell(&self, before: &Layout, after: &Layout) -> Result<()> {
        let units = u64::from(after.au_count - before.au_count);
        if self.json {
            return output::json(&serde_json::json!({
                "path": self.path.path.to_string_lossy(),
                "device_bytes": after.device_bytes, "added_units": units,
            }));
        }
        output::line(format_args!(
            "{}: the store would have {}, {} more",
            shown(&self.path.path),
            output::size(after.device_bytes),
            output::count(units, "allocation unit"),
        ))
    }
}

/// Makes a file longer, and writes what the store does not have yet.
fn lengthen(
    device: &FileDevice,
    before: &Layout,
    len_bytes: u64,
    interrupt: &Interrupt,
) -> Result<()> {
    let there = device.len_bytes();
    let new = Extent::between(before.device_bytes, there);
    let bar = Progress::bytes("writing", len_bytes.saturating_sub(before.device_bytes));
    let written = interrupt.with_bar(&bar, |progress| {
        // Who made it longer by other means may have left holes.
        if !new.is_empty() {
            device.fill(new, progress)?;
        }
        match len_bytes > there {
            true => device.grow(len_bytes, progress).map(drop),
            false => Ok(()),
        }
    });
    written.map_err(|error| {
        let is_cancelled = matches!(error, OpenError::Cancelled);
        let failure = Failure::from(error);
        match is_cancelled {
            true => failure.hint("the file may be longer; the store is as it was. Repeat to go on"),
            false => failure,
        }
    })
}
