//! What the manager of a parallel volume has done at stores: objects cut and deleted.
//!
//! Today these are stores of its own process. All of this may block.

use crate::storage::{SpaceError, Storage};
use base::VolumeId;
use meta::namespace::{Chore, Layout, Target};
use std::collections::{BTreeMap, BTreeSet};

/// Why a chore is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChoreError {
    /// A layout names a store that the volume does not know, or one of another server.
    #[error("store number {0} of the volume cannot be reached")]
    NoTarget(u16),
    /// The store says so.
    #[error(transparent)]
    Store(#[from] SpaceError),
}

/// The stores of one volume.
pub(super) struct Stores<'a> {
    pub(super) storage: &'a Storage,
    pub(super) volume: VolumeId,
    pub(super) targets: &'a BTreeMap<u16, Target>,
}

impl Stores<'_> {
    /// Whether something of a file lies in a store of this server that is missing.
    pub(super) fn lacks(&self, layout: &Layout) -> bool {
        let missing = self.storage.missing();
        !missing.is_empty()
            && layout.columns.0.iter().any(|number| {
                let target = self.targets.get(number);
                target.is_some_and(|target| {
                    target.server == self.storage.server() && missing.contains_key(&target.store)
                })
            })
    }

    /// Does chores, durably; but for what is to be done at stores that are missing.
    ///
    /// # Errors
    /// The first that could not be done; those before it may be done twice.
    pub(super) fn carry_out<'c>(
        &self,
        chores: impl Iterator<Item = &'c Chore>,
    ) -> Result<(), ChoreError> {
        let mut touched = BTreeSet::new();
        for chore in chores {
            match chore {
                Chore::Delete(layout) => self.each(layout, &mut touched, |target, column| {
                    let object = layout.object_id(self.volume, column);
                    self.storage.delete_object(target.store, object)
                })?,
                Chore::Cut { layout, size, .. } => {
                    self.each(layout, &mut touched, |target, column| {
                        let object = layout.object_id(self.volume, column);
                        let bytes = layout.column_bytes(*size, column.into());
                        self.storage.cut_object(target.store, object, bytes)
                    })?;
                }
            }
        }
        for store in touched {
            self.storage.commit_store(store)?;
        }
        Ok(())
    }

    fn each(
        &self,
        layout: &Layout,
        touched: &mut BTreeSet<base::StoreId>,
        act: impl Fn(&Target, u16) -> Result<(), SpaceError>,
    ) -> Result<(), ChoreError> {
        for (column, number) in (0..).zip(layout.columns.0.iter()) {
            let target = self.targets.get(number);
            let target = target.filter(|target| target.server == self.storage.server());
            let target = target.ok_or(ChoreError::NoTarget(*number))?;
            if self.storage.missing().contains_key(&target.store) {
                continue;
            }
            act(target, column)?;
            touched.insert(target.store);
        }
        Ok(())
    }
}
