//! Changes that take several transactions, or checkpoints, between which nobody else changes
//! anything: a clone, the store's lifetimes, growing.
//!
//! Reads and commits go on meanwhile. A clone is made of records only, so others wait for a moment;
//! growing and new lifetimes wait for two checkpoints, which is rare enough.

use super::{Shared, State, Store};
use crate::core::Core;
use crate::transaction::copy::Unfinished;
use crate::{Lifetimes, StoreError, Terms};
use base::limits::STORE_WAIT_TIME_MAX;
use base::{ObjectId, Time};
use std::sync::MutexGuard;
use std::time::Instant;

/// As long as it is there, its thread alone changes the store.
struct Turn<'a> {
    shared: &'a Shared,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shared.lock().is_alone = false;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn take_turn(&self) -> Result<Turn<'_>, StoreError> {
        let end = Instant::now() + STORE_WAIT_TIME_MAX;
        let mut state = self.wait_for_turn(self.lock(), end)?;
        state.is_alone = true;
        Ok(Turn { shared: self })
    }

    /// Waits until nobody changes the store alone.
    pub(super) fn wait_for_turn<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        end: Instant,
    ) -> Result<MutexGuard<'a, State>, StoreError> {
        while state.is_alone {
            state = self.wait_for_change(state, end)?;
        }
        Ok(state)
    }
}

impl Turn<'_> {
    fn change<T>(
        &self,
        change: impl FnMut(&mut Core, Time) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.shared.change_at(change, true)
    }

    /// Changes what the next superblocks say, and waits until so many of them are durable.
    fn change_superblock<T>(
        &self,
        count: u32,
        change: impl FnOnce(&mut Core) -> Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let end = Instant::now() + STORE_WAIT_TIME_MAX;
        let mut state = self.shared.lock();
        // The superblock of a checkpoint under way is the one from before.
        while state.core.has_frozen() {
            state = self.shared.wait_for_checkpoint(state, end)?;
        }
        let Some(changed) = change(&mut state.core)? else {
            return Ok(None);
        };
        for _ in 0..count {
            state = self.shared.wait_for_checkpoint(state, end)?;
        }
        Ok(Some(changed))
    }
}

impl Store {
    /// Makes `object` with the bytes and attributes of `source`, as they are at one moment. They
    /// share them until one of the two is written. It counts as a copy among what its holder may
    /// use.
    ///
    /// # Errors
    /// See [`Core::clone_object`].
    pub fn clone_object(
        &self,
        source: ObjectId,
        object: ObjectId,
        terms: Terms,
    ) -> Result<(), StoreError> {
        let turn = self.shared.take_turn()?;
        let begun = turn.change(|core, now| core.begin_clone(now, source, object, terms))?;
        let Some(mut clone) = begun else {
            return Ok(());
        };
        let done = Self::finish_clone(&turn, &mut clone);
        self.shared.lock().core.forget_clone();
        done
    }

    fn finish_clone(turn: &Turn<'_>, clone: &mut Unfinished) -> Result<(), StoreError> {
        while !turn.change(|core, now| core.go_on_with_clone(now, clone))? {}
        turn.change(|core, now| core.end_clone(now, clone))
    }

    /// How long objects live that nobody has reserved space for.
    #[must_use]
    pub fn lifetimes(&self) -> Lifetimes {
        self.ask(|core, _| core.superblock().lifetimes)
    }

    /// Sets what lifetimes objects get from now on, and how often they can be renewed. Durable when
    /// it returns, in both superblocks.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`], [`StoreError::Device`] if it takes too long.
    pub fn set_lifetimes(&self, lifetimes: Lifetimes) -> Result<(), StoreError> {
        let turn = self.shared.take_turn()?;
        let set = turn.change_superblock(2, |core| core.put_lifetimes(lifetimes).map(Some));
        set.map(|_| ())
    }

    /// Takes in what the device has become longer by (see [`crate::device::FileDevice::grow`]);
    /// says how many allocation units that makes. Durable when it returns.
    ///
    /// # Errors
    /// See [`Core::grow`].
    pub fn grow(&self) -> Result<u32, StoreError> {
        let turn = self.shared.take_turn()?;
        match turn.change_superblock(2, Core::begin_growing)? {
            Some(layout) => turn.change(|core, _| Ok(core.end_growing(layout))),
            None => Ok(0),
        }
    }
}
