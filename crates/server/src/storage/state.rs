//! What a storage server keeps between runs: who it is, its ticket keys, what was revoked, and
//! where its stores are.
//!
//! One state file of the data directory, `storage.toml`, like the others there: a checksum, a
//! version, readable for its owner alone, replaced whole. It is made when a server first has a
//! need for it, with a new identity and a new key. Drawn in `docs/formats/server-data.md`.

use super::error::StorageError;
use crate::data::{DataError, file, from_hex, random, to_hex};
use base::limits::{LOST_STORES_MAX, REVOKED_TICKETS_MAX, SERVER_STORES_MAX, TICKET_KEYS_MAX};
use base::ticket::TicketKey;
use base::{ServerId, StoreId, TicketId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Name of the state file, without its ending.
const NAME: &str = "storage";

/// The state file's contents.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StorageFile {
    server: String,
    epoch: u64,
    #[serde(default)]
    key: Vec<KeyRecord>,
    #[serde(default)]
    store: Vec<StoreRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<LostRecord>,
    #[serde(default)]
    revoked: Vec<RevokedRecord>,
}

#[derive(Clone, Serialize, Deserialize)]
struct KeyRecord {
    id: u32,
    secret: String,
}

impl std::fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyRecord({})", self.id)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoreRecord {
    id: String,
    path: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LostRecord {
    id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RevokedRecord {
    ticket: String,
    until: u64,
}

/// See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct StorageState {
    directory: PathBuf,
    pub(super) server: ServerId,
    /// Tickets of older epochs are worth nothing.
    pub(super) epoch: u64,
    /// The present one last.
    pub(super) keys: Vec<TicketKey>,
    secrets: Vec<KeyRecord>,
    pub(super) stores: BTreeMap<StoreId, PathBuf>,
    /// Stores that were given up: they never come back.
    pub(super) lost: BTreeSet<StoreId>,
    /// Single tickets that were taken back, and until which second that has to be remembered.
    pub(super) revoked: BTreeMap<TicketId, u64>,
    /// Whether some of them may not be on the disk.
    is_unsaved: bool,
}

/// Stores, and stores that were given up.
type KnownStores = (BTreeMap<StoreId, PathBuf>, BTreeSet<StoreId>);

impl StorageState {
    /// The state of the server whose data directory this is; a new one if it has none.
    ///
    /// # Errors
    /// [`DataError`].
    pub(super) fn open(directory: &Path) -> Result<Self, DataError> {
        if !directory.join(format!("{NAME}.toml")).exists() {
            let state = Self::new(directory);
            state.save()?;
            return Ok(state);
        }
        let file: StorageFile = file::read(directory, NAME)?;
        Self::from_file(directory, file).ok_or_else(|| DataError::Damaged {
            path: directory.join(format!("{NAME}.toml")),
            why: "a value has the wrong form".to_owned(),
        })
    }

    /// The stores of the server whose data directory this is, and those that were given up; none
    /// if there is none yet. Changes nothing.
    ///
    /// # Errors
    /// [`DataError`].
    pub(super) fn stores_of(directory: &Path) -> Result<KnownStores, DataError> {
        match directory.join(format!("{NAME}.toml")).exists() {
            true => Self::open(directory).map(|state| (state.stores, state.lost)),
            false => Ok(KnownStores::default()),
        }
    }

    fn new(directory: &Path) -> Self {
        let secret: [u8; 32] = random();
        Self {
            directory: directory.to_owned(),
            server: ServerId(random()),
            epoch: 0,
            keys: vec![TicketKey::new(1, secret)],
            secrets: vec![KeyRecord {
                id: 1,
                secret: to_hex(&secret),
            }],
            stores: BTreeMap::new(),
            lost: BTreeSet::new(),
            revoked: BTreeMap::new(),
            is_unsaved: false,
        }
    }

    fn from_file(directory: &Path, file: StorageFile) -> Option<Self> {
        let key = |record: &KeyRecord| Some(TicketKey::new(record.id, from_hex(&record.secret)?));
        let store =
            |record: StoreRecord| Some((StoreId(from_hex(&record.id)?), record.path.into()));
        let lost = |record: &LostRecord| Some(StoreId(from_hex(&record.id)?));
        let revoked =
            |record: RevokedRecord| Some((TicketId(from_hex(&record.ticket)?), record.until));
        let keys: Vec<TicketKey> = file.key.iter().map(key).collect::<Option<_>>()?;
        let fits = (1..=TICKET_KEYS_MAX).contains(&keys.len())
            && file.store.len() <= SERVER_STORES_MAX
            && file.lost.len() <= LOST_STORES_MAX
            && file.revoked.len() <= REVOKED_TICKETS_MAX;
        fits.then_some(())?;
        Some(Self {
            directory: directory.to_owned(),
            server: ServerId(from_hex(&file.server)?),
            epoch: file.epoch,
            keys,
            secrets: file.key,
            stores: file.store.into_iter().map(store).collect::<Option<_>>()?,
            lost: file.lost.iter().map(lost).collect::<Option<_>>()?,
            revoked: file
                .revoked
                .into_iter()
                .map(revoked)
                .collect::<Option<_>>()?,
            is_unsaved: false,
        })
    }

    /// Makes the present state durable.
    ///
    /// # Errors
    /// [`DataError::Io`]; what is on the disk is the state before.
    pub(super) fn save(&self) -> Result<(), DataError> {
        let store = |(id, path): (&StoreId, &PathBuf)| StoreRecord {
            id: to_hex(&id.0),
            path: path.display().to_string(),
        };
        let revoked = |(ticket, until): (&TicketId, &u64)| RevokedRecord {
            ticket: to_hex(&ticket.0),
            until: *until,
        };
        let lost = |id: &StoreId| LostRecord { id: to_hex(&id.0) };
        let contents = StorageFile {
            server: to_hex(&self.server.0),
            epoch: self.epoch,
            key: self.secrets.clone(),
            store: self.stores.iter().map(store).collect(),
            lost: self.lost.iter().map(lost).collect(),
            revoked: self.revoked.iter().map(revoked).collect(),
        };
        file::write(&self.directory, NAME, &contents)
    }

    /// Gives stores up for good. Durable when it returns.
    ///
    /// # Errors
    /// [`StorageError::TooManyLost`]: nothing has changed. [`StorageError::Data`].
    pub(super) fn give_up(&mut self, stores: &[StoreId]) -> Result<(), StorageError> {
        if stores.is_empty() {
            return Ok(());
        }
        if self.lost.len() + stores.len() > LOST_STORES_MAX {
            return Err(StorageError::TooManyLost);
        }
        for store in stores {
            self.stores.remove(store);
            self.lost.insert(*store);
        }
        Ok(self.save()?)
    }

    /// Number and secret of that key, for the manager.
    pub(super) fn shared_key(&self) -> (u32, [u8; 32]) {
        let record = self.secrets.last().expect("there is always one");
        (
            record.id,
            from_hex(&record.secret).expect("it was read as a key"),
        )
    }

    /// The key that new tickets are under.
    pub(super) fn key(&self) -> &TicketKey {
        self.keys.last().expect("there is always one")
    }

    /// Whether a ticket was taken back.
    pub(super) fn is_revoked(&self, ticket: TicketId, epoch: u64) -> bool {
        epoch < self.epoch || self.revoked.contains_key(&ticket)
    }

    /// Takes single tickets back until they would be over anyway; what is over by `now_secs` is
    /// forgotten. Durable when it returns.
    ///
    /// # Errors
    /// [`StorageError::TooManyRevoked`]: nothing has changed. [`StorageError::Data`]; they are
    /// revoked for this run all the same.
    pub(super) fn revoke(
        &mut self,
        tickets: &[(TicketId, u64)],
        now_secs: u64,
    ) -> Result<(), StorageError> {
        let before = self.revoked.len();
        self.revoked.retain(|_, until| *until > now_secs);
        self.is_unsaved |= self.revoked.len() < before;
        let is_new = |(ticket, _): &&(TicketId, u64)| !self.revoked.contains_key(ticket);
        let added = tickets.iter().filter(is_new).count();
        if self.revoked.len() + added > REVOKED_TICKETS_MAX {
            return Err(StorageError::TooManyRevoked);
        }
        self.is_unsaved |= added > 0;
        for (ticket, until) in tickets {
            let kept = self.revoked.entry(*ticket).or_default();
            self.is_unsaved |= *until > *kept;
            *kept = (*kept).max(*until);
        }
        self.save_changed()
    }

    /// Takes back all tickets of epochs before `epoch`; never lowered.
    ///
    /// # Errors
    /// As [`Self::save`]; they are taken back all the same, and the next try saves it.
    pub(super) fn raise_epoch(&mut self, epoch: u64) -> Result<(), StorageError> {
        self.is_unsaved |= epoch > self.epoch;
        self.epoch = self.epoch.max(epoch);
        self.save_changed()
    }

    /// Who has asked in vain asks again, with nothing new.
    fn save_changed(&mut self) -> Result<(), StorageError> {
        if self.is_unsaved {
            self.save()?;
            self.is_unsaved = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn identity_keys_and_revocations_outlive_a_run() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = StorageState::open(directory.path()).unwrap();
        let store = StoreId([3; 16]);
        state.stores.insert(store, "stores/0".into());
        state.epoch = 7;
        let tickets = [(TicketId([1; 16]), 50), (TicketId([2; 16]), 200)];
        state.revoke(&tickets, 0).unwrap();
        state.revoke(&[], 100).unwrap();
        let again = StorageState::open(directory.path()).unwrap();
        assert_eq!(again.server, state.server);
        assert_eq!(again.stores, state.stores);
        assert_eq!(again.secrets[0].secret, state.secrets[0].secret);
        assert!(again.is_revoked(TicketId([2; 16]), 9));
        assert!(!again.is_revoked(TicketId([1; 16]), 9), "over, forgotten");
        assert!(again.is_revoked(TicketId([1; 16]), 6), "of an older epoch");
        let file = directory.path().join("storage.toml");
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("epoch = 7", "epoch = 0")).unwrap();
        assert!(matches!(
            StorageState::open(directory.path()),
            Err(DataError::Damaged { .. })
        ));
        assert!(!format!("{state:?}").contains(&state.secrets[0].secret));
    }

    #[test]
    fn what_is_revoked_already_is_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = StorageState::open(directory.path()).unwrap();
        let tickets = [(TicketId([1; 16]), 50), (TicketId([2; 16]), 200)];
        state.revoke(&tickets, 0).unwrap();
        let file = directory.path().join("storage.toml");
        let writes = |state: &mut StorageState, tickets: &[(TicketId, u64)], now| {
            std::fs::remove_file(&file).unwrap();
            state.revoke(tickets, now).unwrap();
            let is_written = file.exists();
            state.save().unwrap();
            is_written
        };
        assert!(!writes(&mut state, &tickets, 0));
        assert!(!writes(&mut state, &[(TicketId([2; 16]), 100)], 0));
        assert!(writes(&mut state, &[(TicketId([2; 16]), 300)], 0));
        assert!(writes(&mut state, &tickets[1..], 60), "one is forgotten");
        assert!(!writes(&mut state, &tickets[1..], 60));
        assert_eq!(state.revoked[&TicketId([2; 16])], 300);
    }

    #[test]
    fn an_epoch_that_could_not_be_saved_is_saved_by_the_next_try() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let mut state = StorageState::open(&data).unwrap();
        let away = directory.path().join("away");
        std::fs::rename(&data, &away).unwrap();
        assert!(state.raise_epoch(6).is_err());
        assert_eq!(state.epoch, 6, "believed no more, saved or not");
        std::fs::rename(&away, &data).unwrap();
        state.raise_epoch(6).unwrap();
        assert_eq!(StorageState::open(&data).unwrap().epoch, 6);
        state.raise_epoch(3).unwrap();
        assert_eq!(StorageState::open(&data).unwrap().epoch, 6);
    }

    #[test]
    fn more_revocations_than_are_kept_are_refused_and_none_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = StorageState::open(directory.path()).unwrap();
        let id = |number: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            TicketId(bytes)
        };
        let many: Vec<_> = (0..REVOKED_TICKETS_MAX as u64)
            .map(|number| (id(number), 1000 + number))
            .collect();
        state.revoke(&many, 0).unwrap();
        let more = state.revoke(&[(id(1 << 40), 9000)], 0);
        assert!(matches!(more, Err(StorageError::TooManyRevoked)));
        assert!(state.is_revoked(id(0), 0), "the oldest is still refused");
        state.revoke(&[(id(1 << 40), 9000)], 1000).unwrap();
        assert!(!state.is_revoked(id(0), 0) && state.is_revoked(id(1 << 40), 0));
    }
}
