//! `azekura store ...`: stores on devices of this machine, without a server.

mod calibrate;
mod check;
mod describe;
mod findings;
mod format;
mod grow;
mod measure;
mod place;
mod scrub;
mod show;

pub(super) use describe::caution;
pub(super) use place::{check_directory, check_sizes};

use crate::errors::{Failure, Result};
use crate::progress::Progress;
use ::store::device::{DeviceOptions, FileDevice, ensure_whole};
use ::store::{Core, Options, StoreError};
use base::{BlockDevice, StoreId, Time};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Make and look after stores: objects on a device, with space and speed that can be promised
#[derive(Debug, clap::Subcommand)]
pub(super) enum Store {
    Format(format::Format),
    Show(show::Show),
    Check(check::Check),
    Scrub(scrub::Scrub),
    Grow(grow::Grow),
    Calibrate(calibrate::Calibrate),
}

impl Store {
    pub(super) fn run(self) -> Result<()> {
        match self {
            Self::Format(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Scrub(command) => command.run(),
            Self::Grow(command) => command.run(),
            Self::Calibrate(command) => command.run(),
        }
    }
}

/// Where a store's log begins: nothing that is shorter can be one.
const STORE_BYTES_MIN: u64 = 128 << 10;

/// Opens a device that is long enough to have a store, and as long as the one that it has.
fn open_device(path: &Path, options: DeviceOptions) -> Result<Arc<FileDevice>> {
    let device = Arc::new(FileDevice::open(path, options)?);
    ensure_whole(&*device).map_err(|error| on(path, error.into()))?;
    if device.len_bytes() < STORE_BYTES_MIN {
        return Err(on(path, StoreError::NotAStore.into()));
    }
    Ok(device)
}

/// Opens the store on a device, for reading alone; the device, too, if `is_read_only`, and then
/// beside others who only read.
fn open(path: &OnePath, is_read_only: bool) -> Result<(Arc<FileDevice>, Core)> {
    let options = DeviceOptions {
        read_only: is_read_only,
        ..DeviceOptions::default()
    };
    let device = open_device(&path.path, options)?;
    let core = Core::open_read_only(device.clone(), path.options())
        .map_err(|error| on(&path.path, error.into()))?;
    Ok((device, core))
}

/// The time of this machine.
fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(Time::ZERO, |since| Time::from_secs(since.as_secs()))
}

/// Says which device a failure is of.
fn on(path: &Path, failure: Failure) -> Failure {
    failure.during(shown(path))
}

/// A path for people, who may have been given a strange one.
fn shown(path: &Path) -> String {
    crate::output::plain(&path.to_string_lossy())
}

/// The file or block device with the store
#[derive(Debug, clap::Args)]
struct OnePath {
    /// File or block device
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// The identity that the store must have, as `store show` prints it
    #[arg(long, value_name = "ID", value_parser = store_id)]
    store: Option<StoreId>,
}

impl OnePath {
    fn options(&self) -> Options {
        Options {
            store: self.store,
            ..Options::default()
        }
    }
}

/// Thirty-two hexadecimal digits.
pub(super) fn store_id(text: &str) -> Result<StoreId, &'static str> {
    let digits = (text.len() == 32 && text.is_ascii()).then_some(text);
    let byte = |text: &str, at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok();
    let mut id = [0; 16];
    for (at, place) in id.iter_mut().enumerate() {
        let digits = digits.and_then(|text| byte(text, at));
        *place = digits.ok_or("an identity is 32 hexadecimal digits")?;
    }
    Ok(StoreId(id))
}

/// Whether the user wants it to end. Work looks at it between its steps, so that what it has begun
/// to make can be removed.
pub(super) struct Interrupt {
    is_wanted: Arc<AtomicBool>,
    _runtime: tokio::runtime::Runtime,
}

impl Interrupt {
    /// Takes the signals over from now on.
    pub(super) fn watch() -> Result<Self> {
        let runtime = crate::connect::runtime()?;
        let mut signals = runtime.block_on(async { super::Signals::new() })?;
        let is_wanted = Arc::new(AtomicBool::new(false));
        let noted = is_wanted.clone();
        runtime.spawn(async move {
            signals.wait().await;
            noted.store(true, Ordering::Relaxed);
        });
        Ok(Self {
            is_wanted,
            _runtime: runtime,
        })
    }

    /// Whether the user has asked for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Runs work that tells how far it is, with a bar.
    fn with_bar<T>(
        &self,
        bar: &Progress,
        work: impl FnOnce(&mut ::store::device::Progress<'_>) -> T,
    ) -> T {
        let outcome = work(&mut |done, _| {
            bar.set(done);
            match self.is_wanted() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        bar.finish();
        outcome
    }
}
