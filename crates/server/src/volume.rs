//! Volumes at work: which there are, and their handles on the wire.
//!
//! *Handles on the wire* are the tree's with four bytes of the volume's identity before them, so
//! that a request finds its volume without asking each:
//!
//! ```text
//! offset  bytes  meaning
//!      0      4  first bytes of the volume's identity, unique within a server
//!      4      n  the tree's handle, authenticated by itself
//! ```
//! The tag needs no authentication of its own: a handle under another volume's tag is refused by
//! that volume's seal.

use crate::cluster::Cluster;
use crate::compact::Compacting;
use crate::data::{DataDirectory, VolumePlace, VolumeRecord};
use crate::identities::{IdentitiesError, KnownNames};
use crate::lead::Lead;
use crate::rich::Audit;
use crate::tree::{NamesPlace, Parallel, ParallelError, Tree};
use crate::views::Desk;
use base::limits::{ADMIN_TEXT_BYTES_MAX, HANDLE_BYTES_MAX};
use base::{FsError, Handle, VolumeId};
use export::{Difference, Export, ExportError, ExportOptions, RootIdentity};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::runtime::Handle as Runtime;
use wire::message::{VolumeKind, VolumeSummary};

const TAG_BYTES: usize = 4;

/// First bytes of a volume's identity, as they stand in handles.
pub(crate) type Tag = [u8; TAG_BYTES];

/// The tag of a volume.
pub(crate) fn tag(id: VolumeId) -> Tag {
    id.0[..TAG_BYTES]
        .try_into()
        .expect("an identity is longer than a tag")
}

/// Why a volume cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error(transparent)]
    Export(ExportError),
    /// What is wrong stands first: a list of volumes shows the beginning.
    #[error(
        "AZ0307: {what}; this is not the directory that was exported as {}; put that one back \
         there and restart the server, or, if this one is meant, delete the volume and create it \
         anew (azekura volume delete, azekura volume create --export)",
        path.display()
    )]
    Another { path: PathBuf, what: Difference },
    #[error(transparent)]
    Parallel(#[from] ParallelError),
    #[error(transparent)]
    Identities(#[from] IdentitiesError),
}

impl From<ExportError> for VolumeError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Another { path, what } => Self::Another { path, what },
            other => Self::Export(other),
        }
    }
}

/// What volumes are opened with.
pub(crate) struct Ground<'a> {
    pub(crate) data: &'a DataDirectory,
    pub(crate) cluster: &'a Arc<Cluster>,
    /// Of one of several managers.
    pub(crate) lead: Option<&'a Arc<Lead>>,
    pub(crate) runtime: &'a Runtime,
}

/// A volume at work.
pub(crate) struct Volume {
    pub(crate) id: VolumeId,
    tag: Tag,
    pub(crate) name: String,
    pub(crate) read_only: bool,
    pub(crate) tree: Tree,
    /// Whether changes behind the server's back are reported. Without, nobody may cache.
    watched: AtomicBool,
    /// Files whose fsync has failed in this run: nobody knows what of them is on the disk, so none
    /// of them is ever called durable again (PostgreSQL's lesson of 2018).
    poisoned: Mutex<HashSet<Handle>>,
    has_poisoned: AtomicBool,
    /// Whether a flush of the whole file system has failed in this run. The kernel tells that once,
    /// to whoever asks first; what of the others' data is lost only a flush of each file says.
    flush_failed: Mutex<bool>,
    /// Who has which name and SID.
    pub(crate) known: Arc<KnownNames>,
    /// Of an export: what was done with rich ACLs. A parallel volume's namespace knows it itself.
    pub(crate) audit: Option<Audit>,
    /// Of an export: views of POSIX ACLs.
    pub(crate) views: Option<Desk>,
    /// Of a parallel volume: work on all rich ACLs.
    pub(crate) compacting: Option<Compacting>,
}

impl Volume {
    /// Blocks; not within a task.
    pub(crate) fn open(record: &VolumeRecord, ground: &Ground<'_>) -> Result<Self, VolumeError> {
        let Ground {
            data,
            cluster,
            lead,
            runtime,
        } = *ground;
        match &record.place {
            VolumePlace::Export {
                path,
                read_only,
                rich,
                store,
                root,
            } => {
                let options = ExportOptions::new(record.id, data.handle_key.clone());
                let export = Export::open_known(path, &options, root.as_ref())?;
                let known = Arc::new(KnownNames::read(data.path())?);
                export.set_names(known.clone());
                export.set_rich(*rich);
                let desk = Desk::new(data.path(), record.id, *store, *read_only);
                desk.instruct(&export);
                let mut volume = Self::serve(record, Tree::Export(export), known, *read_only);
                volume.audit = Some(Audit::new(data.path(), record.id));
                volume.views = Some(desk);
                Ok(volume)
            }
            VolumePlace::Parallel(parallel) => {
                let key = data.names_key;
                let place = match lead {
                    Some(lead) => NamesPlace::Shared(lead),
                    None => NamesPlace::Directory(data.path()),
                };
                let known = Arc::new(KnownNames::read(data.path())?);
                let opened = Parallel::open(place, record.id, *parallel, key, cluster, runtime)?;
                let mut volume = Self::serve(record, Tree::Parallel(opened), known, false);
                volume.compacting = Some(Compacting::default());
                Ok(volume)
            }
        }
    }

    fn serve(record: &VolumeRecord, tree: Tree, known: Arc<KnownNames>, read_only: bool) -> Self {
        // Nobody changes the names of a parallel volume behind this server's back.
        let watched = tree.parallel().is_some();
        Self {
            id: record.id,
            tag: tag(record.id),
            name: record.name.clone(),
            read_only,
            tree,
            watched: AtomicBool::new(watched),
            poisoned: Mutex::default(),
            has_poisoned: AtomicBool::new(false),
            flush_failed: Mutex::default(),
            known,
            audit: None,
            views: None,
            compacting: None,
        }
    }

    /// Of an export: which directory it is.
    pub(crate) fn root(&self) -> Option<&RootIdentity> {
        match &self.tree {
            Tree::Export(export) => Some(export.identity()),
            Tree::Parallel(_) => None,
        }
    }

    /// The handle that clients know, for the tree's.
    pub(crate) fn outer(&self, handle: &Handle) -> Handle {
        let inner = handle.as_bytes();
        let mut bytes = [0; HANDLE_BYTES_MAX];
        bytes[..TAG_BYTES].copy_from_slice(&self.tag);
        bytes[TAG_BYTES..TAG_BYTES + inner.len()].copy_from_slice(inner);
        Handle::new(&bytes[..TAG_BYTES + inner.len()]).expect("a tree's handles leave room")
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    pub(crate) fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::Release);
    }

    /// Makes everything in the file system durable.
    ///
    /// # Errors
    /// What the devices report; once that has happened, `Io` until the server is started anew.
    pub(crate) fn sync_all(&self) -> Result<(), FsError> {
        let Tree::Export(export) = &self.tree else {
            // Names are durable before anybody hears of them, contents are made so at the stores.
            return Ok(());
        };
        // One at a time: of two at once, one would be told the error, and the other success.
        let mut failed = self
            .flush_failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *failed {
            return Err(FsError::Io);
        }
        let synced = export.sync_all();
        *failed = synced.is_err();
        synced
    }

    pub(crate) fn poison(&self, handle: &Handle) {
        self.poisoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle.clone());
        self.has_poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_poisoned(&self, handle: &Handle) -> bool {
        self.has_poisoned.load(Ordering::Acquire)
            && self
                .poisoned
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(handle)
    }
}

/// A volume, or why it cannot be served.
struct Served {
    record: VolumeRecord,
    volume: Result<Arc<Volume>, String>,
}

/// All volumes of a server.
#[derive(Default)]
pub(crate) struct Volumes(RwLock<HashMap<Tag, Served>>);

impl Volumes {
    /// Opens a recorded volume; trouble is kept with it and shown.
    pub(crate) fn add(&self, record: &VolumeRecord, ground: &Ground<'_>) -> Option<Arc<Volume>> {
        self.put(record, Volume::open(record, ground))
    }

    /// As [`Self::add`], of an exported directory alone.
    #[cfg(test)]
    pub(crate) fn add_export(&self, record: &VolumeRecord) -> Option<Arc<Volume>> {
        let VolumePlace::Export {
            path, read_only, ..
        } = &record.place
        else {
            panic!("it is no export");
        };
        let options = ExportOptions::new(record.id, export::HandleKey::new([1; 32]));
        let tree = Tree::Export(Export::open(path, &options).expect("a directory"));
        let known = Arc::default();
        self.put(record, Ok(Volume::serve(record, tree, known, *read_only)))
    }

    fn put(
        &self,
        record: &VolumeRecord,
        volume: Result<Volume, VolumeError>,
    ) -> Option<Arc<Volume>> {
        let volume = volume.map(Arc::new).map_err(|e| e.to_string());
        if let Err(why) = &volume {
            tracing::warn!(volume = record.name, why, "a volume cannot be served");
        }
        let opened = volume.as_ref().ok().cloned();
        self.write().insert(
            tag(record.id),
            Served {
                record: record.clone(),
                volume,
            },
        );
        opened
    }

    pub(crate) fn remove(&self, id: VolumeId) {
        self.write().remove(&tag(id));
    }

    /// Whether a new identity's tag is free.
    pub(crate) fn is_free(&self, id: VolumeId) -> bool {
        !self.read().contains_key(&tag(id))
    }

    /// The volume called `name`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], or [`FsError::Io`] for one that cannot be served.
    pub(crate) fn by_name(&self, name: &str) -> Result<Arc<Volume>, FsError> {
        let table = self.read();
        let served = table
            .values()
            .find(|s| s.record.name == name)
            .ok_or(FsError::NotFound)?;
        served.volume.clone().map_err(|_| FsError::Io)
    }

    /// The volume of a client's handle, and the tree's handle in it.
    ///
    /// # Errors
    /// [`FsError::Stale`], or [`FsError::Io`] for a volume that cannot be served.
    pub(crate) fn by_handle(&self, handle: &Handle) -> Result<(Arc<Volume>, Handle), FsError> {
        let (tag, inner) = handle
            .as_bytes()
            .split_first_chunk::<TAG_BYTES>()
            .ok_or(FsError::Stale)?;
        let inner = Handle::new(inner).ok_or(FsError::Stale)?;
        let table = self.read();
        let served = table.get(tag).ok_or(FsError::Stale)?;
        Ok((served.volume.clone().map_err(|_| FsError::Io)?, inner))
    }

    /// Whether a handle is of a volume that cannot be served.
    pub(crate) fn is_unserved(&self, handle: &Handle) -> bool {
        let tag = handle.as_bytes().first_chunk::<TAG_BYTES>();
        let table = self.read();
        let served = tag.and_then(|tag| table.get(tag));
        served.is_some_and(|served| served.volume.is_err())
    }

    pub(crate) fn list(&self) -> Vec<Arc<Volume>> {
        self.read()
            .values()
            .filter_map(|s| s.volume.clone().ok())
            .collect()
    }

    /// Which directories the exports are that are served.
    pub(crate) fn roots(&self) -> HashMap<VolumeId, RootIdentity> {
        let volumes = self.list().into_iter();
        let root = |volume: Arc<Volume>| Some((volume.id, volume.root()?.clone()));
        volumes.filter_map(root).collect()
    }

    pub(crate) fn summaries(&self) -> Vec<VolumeSummary> {
        let summary = |s: &Served| summary(&s.record, s.volume.as_ref().err().cloned());
        let mut list: Vec<_> = self.read().values().map(summary).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashMap<Tag, Served>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Tag, Served>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A volume in a list.
pub(crate) fn summary(record: &VolumeRecord, trouble: Option<String>) -> VolumeSummary {
    VolumeSummary {
        id: record.id,
        name: record.name.clone(),
        kind: match &record.place {
            VolumePlace::Export {
                path, read_only, ..
            } => VolumeKind::Export {
                path: path.to_string_lossy().into_owned(),
                read_only: *read_only,
            },
            VolumePlace::Parallel(parallel) => VolumeKind::Parallel {
                unit_log2: Some(parallel.unit_log2),
                width: parallel.width,
            },
        },
        trouble: trouble.map(|text| crate::admin::cut(text, ADMIN_TEXT_BYTES_MAX)),
    }
}
