//! Devices and stores: what their errors mean for the user.

use super::{Code, Failure, plain_io};
use ::disk::source::FetchError;
use ::store::device::{CalibrateError, OpenError};
use ::store::{Damage, StoreError};
use base::DeviceError;
use rustix::io::Errno;
use std::io;

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        // A disk of chunks fails with what kept a chunk from coming.
        if let DeviceError::Failed { source, .. } = &error
            && let Some(fetch) = source
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<FetchError>())
        {
            return fetch.clone().into();
        }
        let message = match &error {
            DeviceError::Failed { source, .. } => format!("{error}: {}", plain_io(source)),
            _ => error.to_string(),
        };
        Self::new(Code::DeviceFailed, message)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let message = error.to_string();
        match error {
            OpenError::InUse { .. } => Self::new(Code::DeviceInUse, message),
            OpenError::NotADevice { .. } | OpenError::Cannot { .. } => {
                Self::new(Code::NotADevice, message)
            }
            OpenError::Exists { .. } => Self::new(Code::NotEmpty, message)
                .hint("it was made meanwhile; look at it, then repeat"),
            OpenError::Length { .. } => Self::new(Code::StoreSizes, message),
            OpenError::Cancelled => Self::interrupted("interrupted").hint("no store was made"),
            OpenError::System { source, .. } => {
                let message = format!("{message}: {}", plain_io(&source));
                let local = |hint: &str| Self::new(Code::Local, &*message).hint(hint);
                match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        Self::new(Code::NoSpace, message)
                    }
                    io::ErrorKind::NotFound => local(
                        "is the path right? `azekura store format PATH --size SIZE` makes a file",
                    ),
                    io::ErrorKind::PermissionDenied => {
                        local("it must be readable and writable for this user; disks are root's")
                    }
                    io::ErrorKind::ReadOnlyFilesystem => {
                        local("the device or its file system can only be read; use another")
                    }
                    _ if is_of_path(&source) => local("is the path right?"),
                    _ => local("dmesg may say more; the page of this code says what to look at"),
                }
            }
        }
    }
}

/// Whether the system does not even understand where it is to look.
fn is_of_path(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::LOOP | Errno::NOTDIR | Errno::NAMETOOLONG)
    )
}

impl From<CalibrateError> for Failure {
    fn from(error: CalibrateError) -> Self {
        match error {
            CalibrateError::TooSmall { .. } => Self::new(Code::StoreSizes, error.to_string()),
            CalibrateError::Cancelled => Self::interrupted("interrupted").hint("no store was made"),
            CalibrateError::Device(error) => error.into(),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::NotAStore | StoreError::Foreign { .. } => Code::NotAStore,
            StoreError::Newer { .. } => Code::NewerStore,
            StoreError::Damaged(_) | StoreError::Shortened { .. } => Code::StoreDamaged,
            StoreError::Sizes(_) => Code::StoreSizes,
            StoreError::Poisoned => Code::DeviceFailed,
            StoreError::Older { .. } => Code::StoreOlder,
            StoreError::NoSpace { .. } => Code::NoSpace,
            StoreError::Device(error) => return error.into(),
            // Those of objects and reservations, which no command asks for yet.
            _ => Code::Internal,
        };
        let failure = Self::new(code, error.to_string());
        match error {
            StoreError::Damaged(Damage::Log(_)) => failure.hint(
                "`azekura store check PATH` says what is left without it; with --repair \
                 --give-up-log the store goes on from there",
            ),
            StoreError::Shortened { wanted_bytes, .. } => failure.hint(format!(
                "give the device its {wanted_bytes} bytes back if it was made smaller; a file that \
                 was cut must be restored from a copy"
            )),
            // There is nothing that a check could begin with.
            StoreError::Damaged(Damage::Superblocks) => failure.hint(
                "nothing says any more where the store's parts are: restore it from a copy; if the \
                 disk fails, copy it first (ddrescue)",
            ),
            StoreError::Damaged(Damage::TwoStores) => failure.hint(
                "a part of the device was copied there from another store: put back what was \
                 there, or restore the store from a copy",
            ),
            StoreError::Foreign { .. } => {
                failure.hint("is the path right? disks may have changed their names")
            }
            _ => failure,
        }
    }
}
