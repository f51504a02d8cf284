//! `azekura store format|show|check`: stores on devices of this machine, without a server.

mod check;
mod describe;
mod format;
mod show;

use crate::errors::{Failure, Result};
use crate::progress::Progress;
use ::store::device::{DeviceOptions, FileDevice};
use ::store::{Core, Options, StoreError};
use base::BlockDevice;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Make and look after stores: objects on a device, with space and speed that can be promised
#[derive(Debug, clap::Subcommand)]
pub(super) enum Store {
    Format(format::Format),
    Show(show::Show),
    Check(check::Check),
}

impl Store {
    pub(super) fn run(self) -> Result<()> {
        match self {
            Self::Format(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Check(command) => command.run(),
        }
    }
}

/// Where a store's log begins: nothing that is shorter can be one.
const STORE_BYTES_MIN: u64 = 128 << 10;

/// Opens the store on a device, for reading alone, beside others who only read.
fn open(path: &Path) -> Result<(Arc<FileDevice>, Core)> {
    let options = DeviceOptions {
        read_only: true,
        ..DeviceOptions::default()
    };
    let device = Arc::new(FileDevice::open(path, options)?);
    if device.len_bytes() < STORE_BYTES_MIN {
        return Err(on(path, StoreError::NotAStore.into()));
    }
    let core = Core::open_read_only(device.clone(), Options::default())
        .map_err(|error| on(path, error.into()))?;
    Ok((device, core))
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
}

/// Whether the user wants it to end. Work looks at it between its steps, so that what it has begun
/// to make can be removed.
struct Interrupt {
    is_wanted: Arc<AtomicBool>,
    _runtime: tokio::runtime::Runtime,
}

impl Interrupt {
    /// Takes the signals over from now on.
    fn watch() -> Result<Self> {
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

    /// Runs work that tells how far it is, with a bar.
    fn with_bar<T>(
        &self,
        bar: &Progress,
        work: impl FnOnce(&mut ::store::device::Progress<'_>) -> T,
    ) -> T {
        let outcome = work(&mut |done, _| {
            bar.set(done);
            match self.is_wanted.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        bar.finish();
        outcome
    }
}
