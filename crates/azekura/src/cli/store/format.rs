//! `azekura store format`.

use super::describe::Description;
use super::measure::measure;
use super::place::{UNIT_BYTES_MIN, check_directory, check_room, check_sizes, directory_of};
use super::{Interrupt, on, shown};
use crate::config::Span;
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use crate::progress::Progress;
use ::store::device::{BLOCK_BYTES, Contents, DeviceOptions, FileDevice, LOOKED_AT_BYTES};
use ::store::{Core, Format as StoreFormat, Layout, Lifetimes, Sizes};
use base::{BlockDevice, ByteSize, Extent, StoreId};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A device has at least so many allocation units if nobody says otherwise: a unit that suits the
/// disk is no use if there are three of them.
const UNITS_MIN: u64 = 64;

/// Make a store on a block device or in a file
///
/// A file that does not exist is made, and every byte of it written, so that its space stays its
/// own. The device is then measured, which takes about a minute; the allocation unit is the
/// smallest size that reaches 95 % of its best rate.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura store format /dev/sdb
  azekura store format ./disk0 --size 10GiB
  azekura store format ./scratch --size 10GiB --default-lifetime 720h   # not for volumes")]
pub(in crate::cli) struct Format {
    /// Block device, existing file, or new file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Size of a new file; rounded down to whole blocks of 4 KiB
    #[arg(long)]
    size: Option<ByteSize>,
    /// Use this allocation unit, a power of two from 64KiB to 64MiB, instead of the measured one
    #[arg(long, value_name = "SIZE")]
    unit: Option<ByteSize>,
    /// How long objects live if nothing else is said; without it, without end. Files of volumes do
    /// not end: no volume has anything in a store with lifetimes
    #[arg(long, value_name = "TIME")]
    default_lifetime: Option<Span>,
    /// The longest lifetime that can be asked for; without it, any
    #[arg(long, value_name = "TIME")]
    longest_lifetime: Option<Span>,
    /// How often a lifetime can be renewed; 0 for never, without it as often as one likes
    #[arg(long, value_name = "N")]
    renewals: Option<u32>,
    /// Time for measuring the device, up to 60s; with less of it, rates are less certain
    #[arg(long, value_name = "TIME")]
    calibration_time: Option<Span>,
    /// Do not measure the device: no rate can be promised of it. Needs --unit
    #[arg(long, requires = "unit", conflicts_with = "calibration_time")]
    no_calibration: bool,
    /// Make the store although there is something on the device; it is lost
    #[arg(long)]
    overwrite: bool,
    /// Check whether it could be made, without making or changing anything
    #[arg(long)]
    dry_run: bool,
    /// Print the store as JSON
    #[arg(long)]
    json: bool,
}

impl Format {
    pub(super) fn run(self) -> Result<()> {
        let lifetimes = self.lifetimes()?;
        self.check_path()?;
        let is_new = !self.is_there()?;
        let size = self.size(is_new)?;
        if self.dry_run {
            return self.try_out(size);
        }
        let interrupt = Interrupt::watch()?;
        let options = DeviceOptions::default();
        let device = if let Some(size) = size {
            self.check_sizes(size)?;
            check_directory(directory_of(&self.path), size)?;
            let bar = Progress::bytes("writing", size);
            interrupt.with_bar(&bar, |progress| {
                // It has its name when there is a store in it.
                FileDevice::create_unnamed(&self.path, size, options, progress)
            })?
        } else {
            self.open_there()?
        };
        let device = Arc::new(device);
        self.make(&device, is_new, lifetimes, &interrupt)?;
        device.give_name()?;
        let core = Core::open_read_only(device.clone(), ::store::Options::default())
            .map_err(|error| on(&self.path, error.into()))?;
        Description::of(&device, &core)?.print(self.json)
    }

    fn lifetimes(&self) -> Result<Lifetimes> {
        let seconds = |span: Option<Span>| span.map(|span| span.0.as_secs().max(1));
        let (default, longest) = (self.default_lifetime, self.longest_lifetime);
        let is_longer = |longest: Span| default.is_none_or(|default| default.0 > longest.0);
        if longest.is_some_and(is_longer) {
            let message = match default {
                Some(_) => "the default lifetime is longer than the longest one",
                None => "with a longest lifetime, objects need a default one that ends",
            };
            return Err(Failure::new(Code::StoreSizes, message)
                .hint("with --longest-lifetime goes a --default-lifetime that is no longer"));
        }
        Ok(Lifetimes {
            default_seconds: seconds(default),
            longest_seconds: seconds(longest),
            renewals_max: self.renewals,
        })
    }

    /// Whether there is something; if nobody can know, no file can be made there either.
    fn is_there(&self) -> Result<bool> {
        match self.path.symlink_metadata() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error)
                .context(shown(&self.path))
                .map_err(|failure| failure.hint("is the path right?")),
        }
    }

    /// A name in `/dev` that is no device's: a file would be in memory there.
    fn check_is_no_device_name(&self) -> Result<()> {
        let directory = directory_of(&self.path).canonicalize();
        if !directory.is_ok_and(|directory| directory == Path::new("/dev")) {
            return Ok(());
        }
        let message = format!("there is no device {}", shown(&self.path));
        Err(Failure::new(Code::NotADevice, message)
            .hint("lsblk shows the devices; a file made there would be in memory"))
    }

    /// A name that ends with a slash is a directory's, and no file can be given it.
    fn check_path(&self) -> Result<()> {
        if !self.path.as_os_str().as_bytes().ends_with(b"/") || self.path.is_dir() {
            return Ok(());
        }
        let message = format!("{} would be a directory", shown(&self.path));
        Err(Failure::new(Code::NotADevice, message).hint("leave out the slash at its end"))
    }

    /// The length of a file that is to be made; none if there is a device.
    fn size(&self, is_new: bool) -> Result<Option<u64>> {
        if let Ok(target) = self.path.read_link()
            && !self.path.exists()
        {
            let (path, target) = (shown(&self.path), shown(&target));
            let message = format!("{path} is a link to {target}, and there is nothing");
            return Err(Failure::new(Code::NotADevice, message)
                .hint("remove the link, or make what it leads to"));
        }
        let block = u64::from(BLOCK_BYTES);
        match (is_new, self.size) {
            // What is less than a block is said to be too small like anything else.
            (true, Some(size)) => {
                self.check_is_no_device_name()?;
                Ok(Some((size.0 - size.0 % block).max(block)))
            }
            (false, None) => Ok(None),
            (true, None) => Err(Failure::new(
                Code::StoreSizes,
                format!("{} does not exist", shown(&self.path)),
            )
            .hint("--size 10GiB makes a file of that size")),
            (false, Some(_)) => Err(Failure::new(
                Code::StoreSizes,
                format!("{} exists and has a size of its own", shown(&self.path)),
            )
            .hint("--size is for a file that is to be made; without it the device is used whole")),
        }
    }

    fn check_contents(&self, device: &FileDevice) -> Result<()> {
        let contents = Contents::of(device).map_err(|error| on(&self.path, error.into()))?;
        if contents == Contents::Nothing || self.overwrite {
            return Ok(());
        }
        let message = format!("{} is not empty: there is {contents}", shown(&self.path));
        Err(Failure::new(Code::NotEmpty, message))
    }

    /// Before anything is written: whether it will be possible to make a store of that size.
    fn check_sizes(&self, device_bytes: u64) -> Result<Layout> {
        check_sizes(&self.path, device_bytes, self.unit.map(|unit| unit.0))
    }

    /// The device that is to become a store, if all that can be known before allows it.
    fn open_there(&self) -> Result<FileDevice> {
        let device = FileDevice::open(&self.path, DeviceOptions::default())?;
        self.check_contents(&device)?;
        self.check_sizes(device.len_bytes())?;
        if !device.is_block_device() {
            // Holes are going to be filled, and what was filled stays if there is too little space.
            let stat = self.path.metadata().context(shown(&self.path))?;
            let lacking = device.len_bytes().saturating_sub(stat.blocks() * 512);
            // Where the file is, and not where a link to it is.
            let path = self.path.canonicalize().context(shown(&self.path))?;
            check_room(directory_of(&path), lacking)?;
        }
        Ok(device)
    }

    fn try_out(&self, size: Option<u64>) -> Result<()> {
        let bytes = match size {
            Some(size) => {
                check_directory(directory_of(&self.path), size)?;
                size
            }
            None => self.open_there()?.len_bytes(),
        };
        let layout = self.check_sizes(bytes)?;
        let unit = self.unit.map(|_| layout.au_bytes);
        if self.json {
            return output::json(&serde_json::json!({
                "path": self.path.to_string_lossy(), "device_bytes": bytes,
                "allocation_unit_bytes": unit,
            }));
        }
        let unit = unit.map_or_else(
            || "to be measured".to_owned(),
            |unit| format!("of {}", output::size(unit)),
        );
        output::line(format_args!(
            "{}: a store could be made of {} in allocation units {unit}",
            shown(&self.path),
            output::size(bytes),
        ))
    }

    /// Writes, measures and formats.
    fn make(
        &self,
        device: &Arc<FileDevice>,
        is_new: bool,
        lifetimes: Lifetimes,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let bytes = device.len_bytes();
        if !is_new {
            let wiped = wipe(device);
            wiped.map_err(|failure| self.ended(failure, is_new, interrupt))?;
        }
        if !is_new && !device.is_block_device() {
            // It may have holes, and a hole is space that others can take.
            let bar = Progress::bytes("writing", bytes);
            let all = Extent::new(0, bytes);
            let filled = interrupt.with_bar(&bar, |progress| device.fill(all, progress));
            filled.map_err(|error| self.ended(error.into(), is_new, interrupt))?;
        }
        let capability = match self.no_calibration {
            true => None,
            false => {
                let (all, time) = (Extent::new(0, bytes), self.calibration_time);
                let measured = measure(&self.path, device, all, time, interrupt);
                Some(measured.map_err(|failure| self.ended(failure, is_new, interrupt))?)
            }
        };
        let measured = capability
            .as_ref()
            .map(|c| u64::from(c.allocation_unit_bytes));
        let unit = match (self.unit, measured) {
            (Some(unit), _) => unit.0,
            (None, measured) => fitting(measured.unwrap_or(UNIT_BYTES_MIN), bytes),
        };
        let format = StoreFormat {
            store: StoreId(random()?),
            sizes: Sizes::for_device(bytes, unit),
            lifetimes,
            capability: capability.map_or_else(Vec::new, |capability| capability.encode()),
        };
        Core::format(&**device, &format).map_err(|error| on(&self.path, error.into()))
    }
}

impl Format {
    /// What is said of the device when the user has ended it on the way.
    fn ended(&self, failure: Failure, is_new: bool, interrupt: &Interrupt) -> Failure {
        match (interrupt.is_wanted(), is_new) {
            (false, _) => failure,
            (true, true) => failure.hint("no store was made, and no file is left"),
            (true, false) => failure
                .leaving(format!(
                    "what was on {} is lost, and there is no store on it",
                    shown(&self.path)
                ))
                .hint("repeat with --overwrite to make the store"),
        }
    }
}

/// Takes away, durably, what people and programs know the contents of a device by: they are going
/// to be lost, and must not be taken for whole if there is no store in the end.
fn wipe(device: &FileDevice) -> Result<()> {
    let begin = vec![0; device.len_bytes().min(LOOKED_AT_BYTES) as usize];
    device.write_at(0, &begin)?;
    Ok(device.flush()?)
}

/// The measured unit, or a smaller one of which a small device has enough.
fn fitting(measured: u64, device_bytes: u64) -> u64 {
    let mut unit = measured;
    while unit > UNIT_BYTES_MIN && device_bytes / unit < UNITS_MIN {
        unit /= 2;
    }
    unit
}

fn random() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .context("no random numbers")?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_going_to_be_lost_is_not_taken_for_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("device");
        let mut bytes = vec![0; 2 << 20];
        bytes[0x438..0x43A].copy_from_slice(b"\x53\xef");
        bytes[(64 << 10)..][..8].copy_from_slice(b"AZKSTORE");
        std::fs::write(&path, bytes).expect("a file");
        let device = FileDevice::open(&path, DeviceOptions::default()).expect("a device");
        assert_ne!(Contents::of(&device).expect("read"), Contents::Nothing);
        wipe(&device).expect("written");
        assert_eq!(Contents::of(&device).expect("read"), Contents::Nothing);
    }

    #[test]
    fn a_small_device_has_enough_units() {
        assert_eq!(fitting(1 << 20, 1 << 40), 1 << 20);
        assert_eq!(fitting(1 << 20, 32 << 20), 512 << 10);
        assert_eq!(fitting(1 << 20, 1 << 20), UNIT_BYTES_MIN);
    }
}
