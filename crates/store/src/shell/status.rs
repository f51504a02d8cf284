//! What a store says about itself.

use super::Store;
use crate::Usage;
use crate::device::{Capability, TableError};
use base::StoreId;

/// A store's state.
#[derive(Clone, Debug)]
pub struct Status {
    /// Why changes are refused, if they are; reads go on.
    pub failure: Option<String>,
    /// Where the space is.
    pub usage: Usage,
    /// See [`crate::Core::open_aus`].
    pub open_aus: u64,
    /// See [`crate::Core::is_one_superblock_lost`].
    pub is_one_superblock_lost: bool,
    /// Bytes of the log that would be replayed after a crash now.
    pub replay_bytes: u64,
    /// Whether a checkpoint is under way.
    pub is_checkpointing: bool,
    /// Checkpoints since the store was opened.
    pub checkpoints: u64,
    /// Entries of the log since the store was opened: flushes that were shared.
    pub commits: u64,
    /// Bytes of data that are being written.
    pub writes_under_way_bytes: u64,
    /// Bytes written to the device since the store was opened: data, log, pages and superblocks.
    pub written_bytes: u64,
    /// Flushes of the device since the store was opened.
    pub flushes: u64,
}

impl Store {
    /// Its identity.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.ask(|core, _| core.superblock().store)
    }

    /// How many entries its log has had that are durable for certain; see
    /// [`crate::Core::durable_sequence`].
    #[must_use]
    pub fn durable_sequence(&self) -> u64 {
        self.ask(|core, _| core.durable_sequence())
    }

    /// What its device can do, as it was measured.
    ///
    /// # Errors
    /// [`TableError`] if it was not, or if another release has written it down.
    pub fn capability(&self) -> Result<Capability, TableError> {
        self.ask(|core, _| Capability::decode(&core.superblock().capability))
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> Status {
        let (written_bytes, flushes) = self.shared.device.counts();
        let state = self.shared.lock();
        let is_poisoned = state.core.is_poisoned();
        let unknown = || "a write or a flush failed".to_owned();
        Status {
            failure: is_poisoned.then(|| state.failure.clone().unwrap_or_else(unknown)),
            usage: state.core.usage(),
            open_aus: state.core.open_aus((self.shared.clock)()),
            is_one_superblock_lost: state.core.is_one_superblock_lost(),
            replay_bytes: state.core.replay_bytes(),
            is_checkpointing: state.core.has_frozen(),
            checkpoints: state.checkpoints,
            commits: state.commits,
            writes_under_way_bytes: self.shared.device.under_way_bytes(),
            written_bytes,
            flushes,
        }
    }
}
