//! What administrators change: volumes, credentials, join secrets.
//!
//! Kept in memory and written through; a change is durable before it is answered.

use super::list::{Line, Lists, plain};
use super::{DataError, from_hex, random, to_hex};
use acl::Policy;
use base::VolumeId;
use base::limits::{CREDENTIALS_MAX, VOLUMES_MAX, VOLUMES_TEXT_BYTES_MAX};
use export::RootIdentity;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use wire::identity::{ClientVerifier, Credential};
use wire::message::{CredentialKind, CredentialSummary};

/// Longest label in a list. A certificate's is at most 64 characters.
const LABEL_BYTES_MAX: usize = 255;
/// A storage server's kind.
const SERVER: &str = "server";
/// That of a machine that is to be a manager.
const MANAGER: &str = "manager";
/// Join secrets that are good at one time.
const JOINS_MAX: usize = 1024;

/// A volume as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeRecord {
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) place: VolumePlace,
}

/// What a volume is, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VolumePlace {
    /// A directory of this machine.
    Export {
        path: PathBuf,
        read_only: bool,
        /// Whether files can have rich ACLs.
        rich: bool,
        /// When views of POSIX ACLs are stored.
        store: Policy,
        /// Which directory it is; nothing yet, of one made before this was noted.
        root: Option<RootIdentity>,
    },
    /// Names here, contents in stores.
    Parallel(ParallelRecord),
}

/// How new files of a parallel volume are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParallelRecord {
    /// Bytes of a column before the next one's turn, as a power of two.
    pub(crate) unit_log2: u8,
    /// Columns of a file, if there are as many stores.
    pub(crate) width: u16,
    /// Whether files can have rich ACLs.
    pub(crate) rich: bool,
}

impl VolumeRecord {
    fn text_bytes(&self) -> usize {
        let path = match &self.place {
            VolumePlace::Export { path, .. } => path.as_os_str().len(),
            VolumePlace::Parallel(_) => 0,
        };
        self.name.len() + path
    }
}

#[derive(Serialize, Deserialize)]
struct VolumeEntry {
    id: String,
    name: String,
    /// Of an export.
    path: Option<String>,
    #[serde(default)]
    read_only: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rich: bool,
    /// Of an export: when views are stored, if not as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    /// Of an export: which directory it is.
    root: Option<String>,
    /// Of a parallel volume.
    unit_log2: Option<u8>,
    width: Option<u16>,
}

impl VolumeEntry {
    fn record(self) -> Option<VolumeRecord> {
        let place = match (self.path, self.unit_log2, self.width) {
            (Some(path), None, None) => VolumePlace::Export {
                path: PathBuf::from(path),
                read_only: self.read_only,
                rich: self.rich,
                store: match self.store {
                    Some(text) => text.parse().ok()?,
                    None => Policy::default(),
                },
                root: match self.root {
                    Some(text) => Some(text.parse().ok()?),
                    None => None,
                },
            },
            (None, Some(unit_log2), Some(width)) if unit_log2 < 64 && width > 0 => {
                VolumePlace::Parallel(ParallelRecord {
                    unit_log2,
                    width,
                    rich: self.rich,
                })
            }
            _ => return None,
        };
        Some(VolumeRecord {
            id: VolumeId(from_hex(&self.id)?),
            name: self.name,
            place,
        })
    }

    fn of(record: &VolumeRecord) -> Self {
        let (mut path, mut read_only, mut policy) = (None, false, None);
        let is_rich;
        let (mut directory, mut unit_log2, mut width) = (None, None, None);
        match &record.place {
            VolumePlace::Export {
                path: at,
                read_only: is_read_only,
                rich,
                store,
                root,
            } => {
                policy = (*store != Policy::default()).then(|| store.to_string());
                path = Some(at.to_string_lossy().into_owned());
                read_only = *is_read_only;
                is_rich = *rich;
                directory = root.as_ref().map(ToString::to_string);
            }
            VolumePlace::Parallel(parallel) => {
                unit_log2 = Some(parallel.unit_log2);
                width = Some(parallel.width);
                is_rich = parallel.rich;
            }
        }
        Self {
            id: record.id.to_string(),
            name: record.name.clone(),
            path,
            read_only,
            rich: is_rich,
            store: policy,
            root: directory,
            unit_log2,
            width,
        }
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct CredentialEntry {
    serial: String,
    kind: String,
    label: String,
    issued: i64,
    revoked: bool,
}

/// A join secret is stored as its digest: who reads the file cannot use it.
#[derive(Clone, Serialize, Deserialize)]
struct JoinEntry {
    digest: String,
    kind: String,
    expires: i64,
}

impl Line for VolumeEntry {
    const LIST: &'static str = "volumes";
    const LINE: &'static str = "volume";
    fn name(&self) -> String {
        self.id.clone()
    }
}

impl Line for CredentialEntry {
    const LIST: &'static str = "credentials";
    const LINE: &'static str = "credential";
    fn name(&self) -> String {
        self.serial.clone()
    }
}

impl Line for JoinEntry {
    const LIST: &'static str = "joins";
    const LINE: &'static str = "join";
    fn name(&self) -> String {
        self.digest.clone()
    }
}

/// The administrator's credential of a new cluster, as a line of its list.
pub(super) fn first_credential(admin: &Credential, now: SystemTime) -> Result<Vec<u8>, DataError> {
    Ok(plain(&first(admin, now)?))
}

fn first(admin: &Credential, now: SystemTime) -> Result<CredentialEntry, DataError> {
    let peer = ClientVerifier::new(admin)?.verify(
        std::slice::from_ref(admin.certificate()),
        rustls::pki_types::UnixTime::now(),
    )?;
    Ok(CredentialEntry {
        serial: peer.serial,
        kind: kind_text(peer.kind),
        label: peer.label,
        issued: unix_seconds(now),
        revoked: false,
    })
}

/// Why a change of the registry is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    #[error("the name is taken")]
    Exists,
    #[error("there is none of that name")]
    NotFound,
    #[error("there would be too many {0}; a server takes {1}")]
    Limit(&'static str, usize),
    #[error(transparent)]
    Data(#[from] DataError),
}

/// The serial numbers of credentials that are good now. Apart from the registry, because a change
/// of that waits for the disk, and who connects must not.
#[derive(Default)]
pub(crate) struct ValidCredentials(RwLock<HashSet<String>>);

impl ValidCredentials {
    /// Whether a credential is one that was issued and not revoked. Deny by default: a certificate
    /// that the authority signed but the list does not know is refused like a revoked one.
    pub(crate) fn contains(&self, serial: &str) -> bool {
        let valid = self.0.read().unwrap_or_else(PoisonError::into_inner);
        valid.contains(serial)
    }

    fn change(&self, change: impl FnOnce(&mut HashSet<String>)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Who enrols with a join secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enrolling {
    Client,
    StorageServer,
    Manager,
}

impl Enrolling {
    fn of(kind: &str) -> Self {
        match kind {
            SERVER => Self::StorageServer,
            MANAGER => Self::Manager,
            _ => Self::Client,
        }
    }
}

/// Volumes, credentials and join secrets.
pub(crate) struct Registry {
    lists: Lists,
    valid: Arc<ValidCredentials>,
    volumes: Vec<VolumeRecord>,
    credentials: Vec<CredentialEntry>,
    joins: Vec<JoinEntry>,
    changes: u64,
}

impl Registry {
    pub(super) fn init(
        directory: &Path,
        admin: &Credential,
        now: SystemTime,
    ) -> Result<(), DataError> {
        let lists = Lists::Directory(directory.to_owned());
        lists.write::<VolumeEntry>(std::iter::empty())?;
        lists.write(std::iter::once(first(admin, now)?))?;
        lists.write::<JoinEntry>(std::iter::empty())
    }

    /// Of a server that joins: it has nobody's but a copy of the manager's list.
    pub(super) fn init_joined(directory: &Path) -> Result<(), DataError> {
        let lists = Lists::Directory(directory.to_owned());
        lists.write::<VolumeEntry>(std::iter::empty())?;
        lists.write::<CredentialEntry>(std::iter::empty())?;
        lists.write::<JoinEntry>(std::iter::empty())
    }

    /// Reads everything. Blocks; not within a task.
    ///
    /// # Errors
    /// [`DataError`].
    pub(crate) fn open(lists: Lists) -> Result<Self, DataError> {
        let volumes: Vec<VolumeEntry> = lists.read()?;
        let mut credentials: Vec<CredentialEntry> = lists.read()?;
        // In the order in which they were issued, wherever they are kept.
        credentials.sort_by_key(|credential| credential.issued);
        let joins = lists.read()?;
        let damaged = || DataError::Damaged {
            path: PathBuf::from("volumes.toml"),
            why: "a volume makes no sense".to_owned(),
        };
        let volumes = volumes.into_iter();
        let volumes = volumes.map(|entry| entry.record().ok_or_else(damaged));
        let valid = ValidCredentials::default();
        let living = credentials.iter().filter(|c| !c.revoked);
        valid.change(|serials| serials.extend(living.map(|c| c.serial.clone())));
        Ok(Self {
            lists,
            valid: Arc::new(valid),
            volumes: volumes.collect::<Result<_, DataError>>()?,
            credentials,
            joins,
            // Another one with each run: whoever has a copy looks at it anew.
            changes: u64::from_le_bytes(random()) >> 1,
        })
    }

    pub(crate) fn volumes(&self) -> &[VolumeRecord] {
        &self.volumes
    }

    pub(crate) fn volume(&self, name: &str) -> Option<&VolumeRecord> {
        self.volumes.iter().find(|v| v.name == name)
    }

    pub(crate) fn add_volume(&mut self, record: VolumeRecord) -> Result<(), RegistryError> {
        if self.volume(&record.name).is_some() {
            return Err(RegistryError::Exists);
        }
        if self.volumes.len() >= VOLUMES_MAX {
            return Err(RegistryError::Limit("volumes", VOLUMES_MAX));
        }
        let all = self.volumes.iter().chain([&record]);
        let text_bytes: usize = all.map(VolumeRecord::text_bytes).sum();
        if text_bytes > VOLUMES_TEXT_BYTES_MAX {
            let what = "bytes in the names and paths of all volumes";
            return Err(RegistryError::Limit(what, VOLUMES_TEXT_BYTES_MAX));
        }
        self.volumes.push(record);
        if let Err(error) = self.write_volumes() {
            self.volumes.pop();
            return Err(error.into());
        }
        Ok(())
    }

    pub(crate) fn remove_volume(&mut self, name: &str) -> Result<VolumeRecord, RegistryError> {
        let place = self.volumes.iter().position(|v| v.name == name);
        let place = place.ok_or(RegistryError::NotFound)?;
        let record = self.volumes.remove(place);
        if let Err(error) = self.write_volumes() {
            self.volumes.insert(place, record);
            return Err(error.into());
        }
        Ok(record)
    }

    /// Notes whether the files of a volume can have rich ACLs.
    pub(crate) fn set_rich(&mut self, name: &str, on: bool) -> Result<(), RegistryError> {
        self.change_volume(name, |place| match place {
            VolumePlace::Export { rich, .. } => *rich = on,
            VolumePlace::Parallel(parallel) => parallel.rich = on,
        })
    }

    /// Notes when views of POSIX ACLs are stored beside the files of an export.
    pub(crate) fn set_store(&mut self, name: &str, policy: Policy) -> Result<(), RegistryError> {
        self.change_volume(name, |place| {
            if let VolumePlace::Export { store, .. } = place {
                *store = policy;
            }
        })
    }

    fn change_volume(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut VolumePlace),
    ) -> Result<(), RegistryError> {
        let found = self.volumes.iter().position(|v| v.name == name);
        let found = found.ok_or(RegistryError::NotFound)?;
        let before = self.volumes[found].place.clone();
        change(&mut self.volumes[found].place);
        if self.volumes[found].place == before {
            return Ok(());
        }
        let written = self.write_volumes();
        if written.is_err() {
            self.volumes[found].place = before;
        }
        Ok(written?)
    }

    /// Notes which directories exports are, of those for which that is something new.
    pub(crate) fn note_roots(
        &mut self,
        mut roots: HashMap<VolumeId, RootIdentity>,
    ) -> Result<(), DataError> {
        let before = self.volumes.clone();
        for volume in &mut self.volumes {
            if let VolumePlace::Export { root, .. } = &mut volume.place
                && let Some(found) = roots.remove(&volume.id)
            {
                *root = Some(found);
            }
        }
        if self.volumes == before {
            return Ok(());
        }
        let written = self.write_volumes();
        if written.is_err() {
            self.volumes = before;
        }
        written
    }

    fn write_volumes(&self) -> Result<(), DataError> {
        self.lists.write(self.volumes.iter().map(VolumeEntry::of))
    }

    /// At most `count` credentials behind the first `skip`, and whether there are more.
    pub(crate) fn credentials(&self, skip: usize, count: usize) -> (Vec<CredentialSummary>, bool) {
        let summary = |c: &CredentialEntry| {
            Some(CredentialSummary {
                serial: c.serial.clone(),
                kind: kind_of(&c.kind)?,
                label: crate::admin::cut(c.label.clone(), LABEL_BYTES_MAX),
                issued: c.issued,
                revoked: c.revoked,
            })
        };
        let page = self.credentials.iter().skip(skip).take(count);
        let more = self.credentials.len().saturating_sub(skip) > count;
        (page.filter_map(summary).collect(), more)
    }

    /// Which credentials are good; follows every change.
    pub(crate) fn valid_credentials(&self) -> Arc<ValidCredentials> {
        self.valid.clone()
    }

    pub(crate) fn has_credential(&self, serial: &str) -> bool {
        self.credentials.iter().any(|c| c.serial == serial)
    }

    pub(crate) fn add_credential(
        &mut self,
        serial: &str,
        kind: CredentialKind,
        label: &str,
        now: SystemTime,
    ) -> Result<(), RegistryError> {
        if self.credentials.len() >= CREDENTIALS_MAX {
            return Err(RegistryError::Limit("credentials", CREDENTIALS_MAX));
        }
        self.credentials.push(CredentialEntry {
            serial: serial.to_owned(),
            kind: kind_text(kind),
            label: label.to_owned(),
            issued: unix_seconds(now),
            revoked: false,
        });
        if let Err(error) = self.write_credentials() {
            self.credentials.pop();
            return Err(error.into());
        }
        self.valid.change(|serials| {
            serials.insert(serial.to_owned());
        });
        Ok(())
    }

    pub(crate) fn revoke(&mut self, serial: &str) -> Result<(), RegistryError> {
        let entry = self.credentials.iter_mut().find(|c| c.serial == serial);
        // In memory first and whatever the disk says: a credential that was to be revoked is not
        // used again in this run.
        entry.ok_or(RegistryError::NotFound)?.revoked = true;
        self.valid.change(|serials| {
            serials.remove(serial);
        });
        Ok(self.write_credentials()?)
    }

    /// Another number than before if the list of credentials has changed.
    pub(crate) fn credential_changes(&self) -> u64 {
        self.changes
    }

    /// Takes the manager's list of credentials over, of which this is a copy; says which are
    /// refused from now on.
    pub(crate) fn replace_credentials(
        &mut self,
        list: Vec<CredentialSummary>,
    ) -> Result<Vec<String>, RegistryError> {
        let entry = |credential: CredentialSummary| CredentialEntry {
            serial: credential.serial,
            kind: kind_text(credential.kind),
            label: credential.label,
            issued: credential.issued,
            revoked: credential.revoked,
        };
        self.credentials = list.into_iter().map(entry).collect();
        let living = self.credentials.iter().filter(|known| !known.revoked);
        let living: HashSet<String> = living.map(|known| known.serial.clone()).collect();
        let mut refused = Vec::new();
        self.valid.change(|serials| {
            refused.extend(serials.difference(&living).cloned());
            *serials = living;
        });
        self.write_credentials()?;
        Ok(refused)
    }

    fn write_credentials(&mut self) -> Result<(), DataError> {
        self.changes += 1;
        self.lists.write(self.credentials.iter().cloned())
    }

    /// Makes a join secret that is good once until `expires`.
    pub(crate) fn add_join(
        &mut self,
        kind: CredentialKind,
        seconds_valid: u32,
        now: SystemTime,
    ) -> Result<[u8; 32], RegistryError> {
        let now = unix_seconds(now);
        self.joins.retain(|j| j.expires > now);
        if self.credentials.len() + self.joins.len() >= CREDENTIALS_MAX {
            return Err(RegistryError::Limit("credentials", CREDENTIALS_MAX));
        }
        if self.joins.len() >= JOINS_MAX {
            return Err(RegistryError::Limit("join strings", JOINS_MAX));
        }
        let secret = random();
        let expires = now.saturating_add(i64::from(seconds_valid));
        self.joins.push(JoinEntry {
            digest: digest(&secret),
            kind: kind_text(kind),
            expires,
        });
        self.write_joins()?;
        Ok(secret)
    }

    /// Uses a join secret up. It is gone from the disk before anything is issued for it.
    pub(crate) fn take_join(
        &mut self,
        secret: &[u8; 32],
        for_whom: Enrolling,
        now: SystemTime,
    ) -> Result<CredentialKind, RegistryError> {
        let now = unix_seconds(now);
        let wanted = digest(secret);
        let place = self
            .joins
            .iter()
            .position(|j| j.digest == wanted && j.expires > now);
        // What is for the one is not used up by the other.
        let place = place.filter(|at| Enrolling::of(&self.joins[*at].kind) == for_whom);
        let join = self.joins.remove(place.ok_or(RegistryError::NotFound)?);
        self.write_joins()?;
        kind_of(&join.kind).ok_or(RegistryError::NotFound)
    }

    fn write_joins(&self) -> Result<(), DataError> {
        self.lists.write(self.joins.iter().cloned())
    }
}

fn digest(secret: &[u8; 32]) -> String {
    to_hex(ring::digest::digest(&ring::digest::SHA256, secret).as_ref())
}

fn kind_text(kind: CredentialKind) -> String {
    match kind {
        CredentialKind::Admin => "admin".to_owned(),
        CredentialKind::Host => "host".to_owned(),
        CredentialKind::User { uid } => format!("user:{uid}"),
        CredentialKind::Server => SERVER.to_owned(),
        CredentialKind::Manager { .. } => MANAGER.to_owned(),
    }
}

fn kind_of(text: &str) -> Option<CredentialKind> {
    match text {
        "admin" => Some(CredentialKind::Admin),
        "host" => Some(CredentialKind::Host),
        SERVER => Some(CredentialKind::Server),
        MANAGER => Some(CredentialKind::Manager { epoch: 0 }),
        other => {
            let uid = other.strip_prefix("user:")?.parse().ok()?;
            Some(CredentialKind::User { uid })
        }
    }
}

fn unix_seconds(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(_) => 0,
    }
}
