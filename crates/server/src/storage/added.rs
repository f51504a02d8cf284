//! Giving a server a store while it does not run: a new one, or one that was made elsewhere.
//!
//! A store has one identity and one place. A copy of it has the same identity; a server that took
//! the copy in the store's stead would serve an older state, and nobody would notice. So a path
//! replaces the one that is known only if the store is not there any more: it was moved.

use super::NewStore;
use super::device;
use super::error::StorageError;
use super::state::StorageState;
use base::StoreId;
use base::limits::SERVER_STORES_MAX;
use rustix::fs::{FileType, stat};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::device::{Contents, DeviceOptions, FileDevice, OpenError};
use store::{Core, Options};

/// Makes or takes over a store for the server whose data directory this is, which is not running;
/// says which. One that it has already is left alone.
///
/// # Errors
/// [`StorageError`].
pub(crate) fn add_store(directory: &Path, new: &NewStore) -> Result<StoreId, StorageError> {
    let mut state = StorageState::open(directory)?;
    let path = directory.join(&new.path);
    let is_there = path.symlink_metadata().is_ok();
    let known = state.stores.iter().find(|(_, known)| **known == new.path);
    if let Some((id, _)) = known
        && (is_there || new.size_bytes.is_none())
    {
        // If it is not there, the server is started without it.
        return Ok(*id);
    }
    if state.stores.len() >= SERVER_STORES_MAX {
        return Err(StorageError::TooMany);
    }
    let is_own = new.path.is_relative();
    let id = match new.size_bytes {
        Some(size_bytes) if !is_there || is_own => {
            if is_there {
                // Nobody knows it: a run before this one was cut short when it had made it.
                remove(&path)?;
            }
            if let Some(parent) = path.parent() {
                make_directory(parent)?;
            }
            device::make(&path, size_bytes)?
        }
        _ => match found(directory, &state.stores, &path)? {
            Found::Served(id) => return Ok(id),
            Found::New(store) if state.lost.contains(&store) => {
                return Err(StorageError::Lost { store, path });
            }
            Found::New(id) => id,
        },
    };
    state.stores.retain(|_, known| *known != new.path);
    state.stores.insert(id, new.path.clone());
    state.save()?;
    Ok(id)
}

/// As [`add_store`] for a store that is there, without noting anything: whether the server would
/// take it.
///
/// # Errors
/// [`StorageError`].
pub(crate) fn try_store(directory: &Path, path: &Path) -> Result<(), StorageError> {
    let (stores, lost) = StorageState::stores_of(directory)?;
    if stores.values().any(|known| known == path) {
        return Ok(());
    }
    if stores.len() >= SERVER_STORES_MAX {
        return Err(StorageError::TooMany);
    }
    let path = directory.join(path);
    match found(directory, &stores, &path)? {
        Found::New(store) if lost.contains(&store) => Err(StorageError::Lost { store, path }),
        _ => Ok(()),
    }
}

/// A store that is there.
enum Found {
    /// The server has it, by this file or device.
    Served(StoreId),
    /// The server does not have it, or not any more where it was.
    New(StoreId),
}

/// The store at `path`. Writes nothing, though the device must be one that can be written.
fn found(
    directory: &Path,
    stores: &BTreeMap<StoreId, PathBuf>,
    path: &Path,
) -> Result<Found, StorageError> {
    let device = Arc::new(FileDevice::open(path, DeviceOptions::default())?);
    let failed = StorageError::store(path);
    let id = store::device::ensure_whole(&*device)
        .and_then(|()| Core::open_read_only(device, Options::default()))
        .map(|core| core.superblock().store)
        .map_err(failed)?;
    let Some(known) = stores.get(&id).map(|known| directory.join(known)) else {
        return Ok(Found::New(id));
    };
    if is_same(&known, path) {
        return Ok(Found::Served(id));
    }
    if may_hold(&known, id) {
        return Err(StorageError::Twice {
            store: id,
            path: path.to_owned(),
            known,
        });
    }
    tracing::warn!(store = %id, from = %known.display(), to = %path.display(), "a store was moved");
    Ok(Found::New(id))
}

/// Whether two paths are names of one file or device.
fn is_same(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (stat(one), stat(other)) else {
        return false;
    };
    let is_device = |mode| FileType::from_raw_mode(mode) == FileType::BlockDevice;
    match (is_device(one.st_mode), is_device(other.st_mode)) {
        (true, true) => one.st_rdev == other.st_rdev,
        _ => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
    }
}

/// Whether this store is at a path, as far as that can be ruled out.
fn may_hold(path: &Path, id: StoreId) -> bool {
    let options = DeviceOptions {
        read_only: true,
        ..DeviceOptions::default()
    };
    let device = match FileDevice::open(path, options) {
        Ok(device) => device,
        Err(OpenError::System { source, .. }) => return source.kind() != io::ErrorKind::NotFound,
        Err(OpenError::NotADevice { .. }) => return false,
        Err(_) => return true,
    };
    match Contents::of(&device) {
        Ok(Contents::Store(Some(superblock))) => superblock.store == id,
        Ok(Contents::Store(None)) | Err(_) => true,
        Ok(_) => false,
    }
}

fn remove(path: &Path) -> Result<(), StorageError> {
    std::fs::remove_file(path).map_err(|source| {
        let path = path.to_owned();
        crate::data::DataError::Io { path, source }.into()
    })
}

fn make_directory(path: &Path) -> Result<(), StorageError> {
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(path);
    made.map_err(|source| {
        let path = path.to_owned();
        crate::data::DataError::Io { path, source }.into()
    })
}
