//! The data directory: what a server keeps between runs.
//!
//! Drawn in `docs/formats/server-data.md`. Small state lies in TOML files, each with its format's
//! version and a checksum in the first line, replaced whole ([`mod@file`]); secrets are readable
//! for the owner alone. A lock file keeps two servers from one directory. Nothing here is on the
//! path of a file operation.

mod error;
pub(crate) mod file;
mod joined;
pub(crate) mod list;
mod members;
mod meta;
mod registry;
pub(crate) mod shared;

pub use self::meta::{MetaAddress, MetaAddressError};
pub use error::DataError;
pub use joined::{Joining, JoiningManager};
pub(crate) use list::Lists;
pub(crate) use members::{Member, Members};
pub(crate) use registry::{
    Enrolling, ParallelRecord, Registry, RegistryError, ValidCredentials, VolumePlace, VolumeRecord,
};

use base::{BootId, ClusterId, VolumeId, WriteVerifier};
use export::HandleKey;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use wire::identity::{Authority, Credential};
use wire::message::CredentialKind;

/// Identity of the cluster and its authority's certificate; written last by `init`, so its presence
/// says that the rest is complete.
#[derive(Serialize, Deserialize)]
struct ClusterFile {
    cluster: String,
    authority: String,
    /// Where the manager is, of a server that has joined; none if this is it.
    #[serde(default)]
    managers: Vec<String>,
    /// Where the managers keep what they know together; none of a manager that is alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<String>,
}

/// What a server that has joined has learnt of the managers.
#[derive(Default, Serialize, Deserialize)]
struct ManagersFile {
    managers: Vec<String>,
    /// The latest epoch of which one has led.
    epoch: u64,
}

/// A cluster that is being made.
pub(crate) struct NewCluster<'a> {
    pub(crate) path: &'a Path,
    pub(crate) cluster: ClusterId,
    /// For handles, and what the managers keep together.
    pub(crate) secret: [u8; 32],
    admin: &'a Credential,
    now: SystemTime,
}

impl NewCluster<'_> {
    /// The administrator's credential as the first line of its list: name and contents.
    pub(crate) fn first_credential(&self) -> Result<(String, Vec<u8>), DataError> {
        Ok((
            self.admin.serial()?,
            registry::first_credential(self.admin, self.now)?,
        ))
    }
}

/// Secrets.
#[derive(Serialize, Deserialize)]
struct SecretFile {
    /// Nothing at a server that has joined.
    authority_key: String,
    handle_key: String,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct BootFile {
    boots: u64,
    /// The write verifier of the last run, or nothing, and the start of the kernel that it holds
    /// for.
    #[serde(default)]
    verifier: String,
    #[serde(default)]
    kernel: String,
    /// Whether something was lost when this verifier was made.
    #[serde(default)]
    lost: bool,
    /// Nobody has been served since: a run that ended before is as if it had not been.
    #[serde(default)]
    unserved: bool,
}

impl BootFile {
    /// Whether what was not flushed may be lost by now, under this start of the kernel.
    fn has_lost(&self, kernel: &str) -> bool {
        kernel.is_empty() || kernel != self.kernel || self.unserved
    }

    /// Whether something was lost when the verifier was made that the next run has, which `keeps`
    /// that of the last one or makes one. Before the first run there was nothing to lose.
    fn had_loss(&self, keeps: bool) -> bool {
        if keeps { self.lost } else { self.boots > 0 }
    }
}

/// A data directory in use by this process.
pub(crate) struct DataDirectory {
    path: PathBuf,
    /// Locked for as long as it is open.
    _lock: File,
    pub(crate) cluster: ClusterId,
    /// Of the manager; a server that has joined has none.
    pub(crate) authority: Option<Authority>,
    /// Where the managers are, of a server that has joined.
    pub(crate) managers: Vec<String>,
    /// Of such a server: the latest epoch of which it knows a manager.
    pub(crate) managers_epoch: u64,
    /// Of one of several managers.
    pub(crate) meta: Option<MetaAddress>,
    pub(crate) handle_key: HandleKey,
    /// The same secret, for handles of parallel volumes.
    pub(crate) names_key: [u8; 32],
    pub(crate) server: Credential,
    pub(crate) boot: BootId,
    boot_file: BootFile,
    pub(crate) write_verifier: WriteVerifier,
    /// Whether the machine may have lost what the last run had written and not flushed.
    pub(crate) lost_unflushed: bool,
    /// Whether that was so when the write verifier was made, in this run or an earlier one.
    pub(crate) lost_earlier: bool,
}

impl DataDirectory {
    /// As [`Self::init_with`], with nothing else in it.
    #[cfg(test)]
    pub(crate) fn init(path: &Path) -> Result<(ClusterId, Credential), DataError> {
        Self::init_with(path, None, |_| Ok(()))
    }

    /// Makes a new cluster in `path`, which may exist if it is empty, or holds what an earlier call
    /// has left that was cut short. Returns the administrator's credential, which lies in [`ADMIN`]
    /// as soon as the directory counts as initialised. `prepare` makes what else belongs to it,
    /// before that; with `meta`, also the lists that the managers keep there.
    pub(crate) fn init_with<E: From<DataError>>(
        path: &Path,
        meta: Option<&MetaAddress>,
        prepare: impl FnOnce(&NewCluster<'_>) -> Result<(), E>,
    ) -> Result<(ClusterId, Credential), E> {
        let _lock = enter_new(path)?;
        let cluster = ClusterId(random());
        let now = SystemTime::now();
        let authority = Authority::create(cluster).map_err(DataError::from)?;
        let server = authority.issue_server().map_err(DataError::from)?;
        let saved = server.save(&path.join("server"));
        saved.map_err(DataError::from)?;
        let admin = authority.issue_local(CredentialKind::Admin, "server --init", now);
        let admin = admin.map_err(DataError::from)?;
        admin.save(&path.join(ADMIN)).map_err(DataError::from)?;
        let secret = random();
        let secrets = SecretFile {
            authority_key: authority.key_pem(),
            handle_key: to_hex(&secret),
        };
        file::write(path, "secrets", &secrets)?;
        file::write(path, "boot", &BootFile::default())?;
        if meta.is_none() {
            Registry::init(path, &admin, now)?;
        }
        prepare(&NewCluster {
            path,
            cluster,
            secret,
            admin: &admin,
            now,
        })?;
        let cluster_file = ClusterFile {
            cluster: to_hex(&cluster.0),
            authority: authority.certificate_pem(),
            managers: Vec::new(),
            meta: meta.map(MetaAddress::to_string),
        };
        file::write(path, "cluster", &cluster_file)?;
        Ok((cluster, admin))
    }

    /// Whether there is a cluster in `path`.
    ///
    /// # Errors
    /// If that cannot be seen, for lack of rights or because it is no directory: then nobody is to
    /// be told to make a cluster there.
    pub(crate) fn has_cluster(path: &Path) -> Result<bool, DataError> {
        let there = path.join("cluster.toml").try_exists();
        there.map_err(|source| DataError::Io {
            path: path.to_owned(),
            source,
        })
    }

    /// As [`Self::enter`], with the lists that lie in it.
    #[cfg(test)]
    pub(crate) fn open(path: &Path) -> Result<(Self, Registry), DataError> {
        let directory = Self::enter(path)?;
        let registry = Registry::open(Lists::Directory(path.to_owned()))?;
        Ok((directory, registry))
    }

    /// Opens the directory for a run of the server, which begins with [`Self::begin_run`].
    pub(crate) fn enter(path: &Path) -> Result<Self, DataError> {
        if !Self::has_cluster(path)? {
            return Err(DataError::NotInitialised(path.to_owned()));
        }
        let lock = lock(path)?;
        let cluster: ClusterFile = file::read(path, "cluster")?;
        let secrets: SecretFile = file::read(path, "secrets")?;
        let server = Credential::load(&path.join("server"))?;
        let authority = match secrets.authority_key.is_empty() {
            true => None,
            false => Some(Authority::load(&cluster.authority, &secrets.authority_key)?),
        };
        let own = authority
            .as_ref()
            .map_or(server.cluster(), Authority::cluster);
        let damaged = |name: &str| DataError::Damaged {
            path: path.join(name),
            why: "a value has the wrong form".to_owned(),
        };
        let is_manager = authority.is_some();
        if from_hex::<16>(&cluster.cluster) != Some(own.0)
            || is_manager != cluster.managers.is_empty()
        {
            return Err(damaged("cluster.toml"));
        }
        let handle_key = from_hex(&secrets.handle_key).ok_or_else(|| damaged("secrets.toml"))?;
        let boot: BootFile = file::read(path, "boot")?;
        let boots = boot.boots + 1;
        let kernel = kernel_start();
        let lost_unflushed = boot.has_lost(&kernel) || path.join(FLUSH_FAILED).exists();
        let last = from_hex(&boot.verifier).filter(|_| !lost_unflushed);
        let lost_earlier = boot.had_loss(last.is_some());
        let write_verifier = WriteVerifier(last.unwrap_or_else(random));
        let verifier = write_verifier.to_string();
        let boot = BootFile {
            boots,
            verifier,
            kernel,
            lost: lost_earlier,
            unserved: lost_unflushed,
        };
        let meta = cluster.meta.map(|meta| meta.parse()).transpose();
        let meta = meta.map_err(|_| damaged("cluster.toml"))?;
        let mut known = ManagersFile::default();
        if path.join("managers.toml").exists() {
            known = file::read(path, "managers")?;
        }
        let managers = match known.managers.is_empty() {
            true => cluster.managers,
            false => known.managers,
        };
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            cluster: own,
            authority,
            managers,
            managers_epoch: known.epoch,
            meta,
            handle_key: HandleKey::new(handle_key),
            names_key: handle_key,
            server,
            boot: boot_id(boots),
            boot_file: boot,
            write_verifier,
            lost_unflushed,
            lost_earlier,
        })
    }

    /// Notes, of a server that has joined, where the managers are and the latest epoch of which one
    /// has led.
    pub(crate) fn note_managers(&self, managers: &[String], epoch: u64) -> Result<(), DataError> {
        let known = ManagersFile {
            managers: managers.to_vec(),
            epoch,
        };
        file::write(&self.path, "managers", &known)
    }

    /// Counts the run, before anybody is served. What the last one has left is dealt with by now:
    /// its note of a failed flush goes.
    pub(crate) fn begin_run(&self) -> Result<(), DataError> {
        file::write(&self.path, "boot", &self.boot_file)?;
        let note = self.path.join(FLUSH_FAILED);
        match fs::remove_file(&note) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DataError::Io {
                path: note,
                source: error,
            }),
            _ => Ok(()),
        }
    }

    /// Somebody may be served from now on, and give again what was lost.
    pub(crate) fn begin_serving(&self) -> Result<(), DataError> {
        if !self.boot_file.unserved {
            return Ok(());
        }
        let served = BootFile {
            unserved: false,
            ..self.boot_file.clone()
        };
        file::write(&self.path, "boot", &served)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes on disk whether sessions hold locks, so that the next run knows whether anybody may
    /// want to reclaim some.
    pub(crate) fn mark_locks(&self, held: bool) {
        let path = self.path.join("locks-held");
        let outcome = if held {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)
                .map(drop)
        } else {
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            }
        };
        if let Err(error) = outcome {
            tracing::warn!(path = %path.display(), %error, "cannot note whether locks are held");
        }
    }

    /// Notes on disk that a flush has failed: the kernel tells it once, so the next run must not
    /// say that everything is still there.
    pub(crate) fn mark_flush_failed(&self) {
        let path = self.path.join(FLUSH_FAILED);
        if let Err(error) = File::create(&path) {
            tracing::error!(path = %path.display(), %error, "cannot note that a flush has failed");
        }
    }

    /// Whether the run before this one left locks behind.
    pub(crate) fn had_locks(&self) -> bool {
        self.path.join("locks-held").exists()
    }
}

/// As whom a manager asks storage servers that have joined: an administrator's credential of its
/// own, made when the first one joins. One that was revoked is replaced.
///
/// # Errors
/// [`RegistryError`].
pub(crate) fn manager_credential(
    data: &DataDirectory,
    registry: &mut Registry,
) -> Result<Credential, RegistryError> {
    let directory = data.path.join("manager");
    let known = Credential::load(&directory).ok().filter(|known| {
        let serial = known.serial().unwrap_or_default();
        registry.valid_credentials().contains(&serial)
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let authority = data.authority.as_ref().ok_or(RegistryError::NotFound)?;
    let (kind, now) = (CredentialKind::Admin, SystemTime::now());
    let label = "the manager";
    let made = authority
        .issue_local(kind, label, now)
        .map_err(DataError::from)?;
    let serial = made.serial().map_err(DataError::from)?;
    made.save(&directory).map_err(DataError::from)?;
    registry.add_credential(&serial, kind, label, now)?;
    Ok(made)
}

/// There after a flush has failed, until the next start.
const FLUSH_FAILED: &str = "flush-failed";

/// Directory of the administrator's credential.
pub(crate) const ADMIN: &str = "admin";

/// Every name at the top of a data directory.
const OURS: [&str; 14] = [
    "lock",
    "server",
    ADMIN,
    "cluster.toml",
    "secrets.toml",
    "boot.toml",
    "volumes.toml",
    "credentials.toml",
    "joins.toml",
    "managers.toml",
    "journal.0",
    "journal.1",
    "storage.toml",
    "stores",
];

/// Whether a name is one of [`OURS`], or that of a state file which was being replaced.
fn is_ours(name: &OsStr) -> bool {
    let name = Path::new(name);
    let whole = match name.extension() {
        Some(extension) if extension == "new" => name.with_extension("toml"),
        _ => name.to_owned(),
    };
    OURS.iter().any(|ours| whole.as_os_str() == *ours)
}

/// Makes and locks a directory in which nothing lies but what an earlier try has left.
fn enter_new(path: &Path) -> Result<File, DataError> {
    let io_error = |source| DataError::Io {
        path: path.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(io_error)?;
    let lock = lock(path)?;
    if path.join("cluster.toml").exists() {
        return Err(DataError::Initialised(path.to_owned()));
    }
    let others = fs::read_dir(path)
        .map_err(io_error)?
        .filter_map(Result::ok)
        .any(|entry| !is_ours(&entry.file_name()));
    match others {
        true => Err(DataError::NotEmpty(path.to_owned())),
        false => Ok(lock),
    }
}

fn lock(path: &Path) -> Result<File, DataError> {
    let file_path = path.join("lock");
    let io_error = |source| DataError::Io {
        path: file_path.clone(),
        source,
    };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&file_path)
        .map_err(io_error)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DataError::InUse(path.to_owned())),
        Err(errno) => Err(io_error(errno.into())),
    }
}

/// The count first, so that the runs of a server are in order for whoever reads a log; random bytes
/// behind it, so that a directory restored from a backup does not repeat a run.
fn boot_id(boots: u64) -> BootId {
    let mut id: [u8; 16] = random();
    #[expect(
        clippy::big_endian_bytes,
        reason = "an identity is read as digits, high ones first"
    )]
    id[..8].copy_from_slice(&boots.to_be_bytes());
    BootId(id)
}

/// Which start of the kernel this is: what it has taken it keeps when the server's process is
/// killed. Empty where it does not say: nothing is sure to be kept then.
fn kernel_start() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.trim().to_owned()
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("Linux has had getrandom(2) since 3.17");
    bytes
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// A fresh identity for a volume.
pub(crate) fn new_volume_id() -> VolumeId {
    VolumeId(random())
}

#[cfg(test)]
mod tests;
