//! What the manager of a parallel volume has done at stores: objects cut and deleted.
//!
//! Each store is asked by itself, wherever it is: what one cannot do now keeps nobody from what is
//! to be done at the others. All of this may block.

use crate::cluster::{Act, ActError, Cluster};
use meta::namespace::{Chore, Identities, Layout, Target};
use std::collections::{BTreeMap, BTreeSet};

/// Why a chore is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChoreError {
    /// A layout names a store that the volume does not know.
    #[error("store number {0} of the volume is not known")]
    NoTarget(u16),
    /// A server that has something of the file is away.
    #[error("a storage server is away")]
    Away,
    /// The store says so.
    #[error(transparent)]
    Store(#[from] ActError),
}

/// What has become of chores, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// These are done wherever something of the file lies.
    pub(super) done: Vec<u64>,
    /// These wait for a store that is missing or a server that is away.
    pub(super) left: BTreeSet<u64>,
    /// These failed, to be tried again.
    pub(super) failed: BTreeSet<u64>,
    /// The first reason.
    pub(super) error: Option<ChoreError>,
}

impl Carried {
    fn fail(&mut self, numbers: impl IntoIterator<Item = u64>, error: ChoreError) {
        self.failed.extend(numbers);
        self.error.get_or_insert(error);
    }
}

/// The stores of one volume.
pub(super) struct Stores<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) identities: &'a Identities,
    pub(super) targets: &'a BTreeMap<u16, Target>,
}

impl Stores<'_> {
    fn of<'l>(&'l self, layout: &'l Layout) -> impl Iterator<Item = &'l Target> {
        let columns = layout.columns.0.iter();
        columns.filter_map(|number| self.targets.get(number))
    }

    fn is_missing(&self, target: &Target) -> bool {
        let own = self.cluster.own();
        target.server == own.server() && own.missing().contains_key(&target.store)
    }

    fn is_lost(&self, target: &Target) -> bool {
        let own = self.cluster.own();
        target.server == own.server() && own.is_lost(target.store)
    }

    /// Whether something of a file lies in a store of this server that is missing or lost.
    pub(super) fn lacks(&self, layout: &Layout) -> bool {
        let lacks = |target: &Target| self.is_missing(target) || self.is_lost(target);
        self.of(layout).any(lacks)
    }

    /// Whether something of a file lies at a server that is away.
    pub(super) fn is_away(&self, layout: &Layout) -> bool {
        self.of(layout)
            .any(|target| !self.cluster.is_here(target.server))
    }

    /// Does chores, durably, at all stores that are there. Cuts of a file in their order: a store
    /// that has done a later one leaves the file as it is when it hears of an earlier one.
    pub(super) fn carry_out(&self, chores: &[(u64, Chore)]) -> Carried {
        let mut carried = Carried::default();
        let mut acts: BTreeMap<Target, Vec<(u64, Act)>> = BTreeMap::new();
        let mut uncut = BTreeSet::new();
        for (number, chore) in chores {
            let object = layout_of(chore).object;
            if matches!(chore, Chore::Cut { .. }) && uncut.contains(&object) {
                carried.left.insert(*number);
                continue;
            }
            if let Err(error) = self.sort(*number, chore, &mut acts, &mut carried.left) {
                carried.fail([*number], error);
            }
            if carried.left.contains(number) || carried.failed.contains(number) {
                uncut.insert(object);
            }
        }
        for (target, acts) in acts {
            let all: Vec<Act> = acts.iter().map(|(_, act)| *act).collect();
            let (server, store) = (target.server, target.store);
            if let Err(error) = self.cluster.carry_out(server, store, &all) {
                carried.fail(acts.iter().map(|(number, _)| *number), error.into());
            }
        }
        let numbers = chores.iter().map(|(number, _)| *number);
        let is_done =
            |number: &u64| !carried.left.contains(number) && !carried.failed.contains(number);
        carried.done = numbers.filter(is_done).collect();
        carried
    }

    /// What is to be done for a chore at which store.
    fn sort(
        &self,
        number: u64,
        chore: &Chore,
        acts: &mut BTreeMap<Target, Vec<(u64, Act)>>,
        left: &mut BTreeSet<u64>,
    ) -> Result<(), ChoreError> {
        let layout = layout_of(chore);
        for (column, target) in (0..).zip(layout.columns.0.iter()) {
            let target = self
                .targets
                .get(target)
                .ok_or(ChoreError::NoTarget(*target))?;
            if self.is_lost(target) {
                // Whatever is there, nobody will see it.
                continue;
            }
            if self.is_missing(target) || !self.cluster.is_here(target.server) {
                left.insert(number);
                continue;
            }
            let object = self.identities.object(layout, column);
            let act = match chore {
                Chore::Delete(_) => Act::Delete(object),
                Chore::Cut { size, .. } => Act::Cut {
                    object,
                    generation: layout.generation,
                    bytes: layout.column_bytes(*size, column.into()),
                },
            };
            acts.entry(*target).or_default().push((number, act));
        }
        Ok(())
    }
}

/// Where the file of a chore lies.
pub(super) fn layout_of(chore: &Chore) -> &Layout {
    match chore {
        Chore::Delete(layout) | Chore::Cut { layout, .. } => layout,
    }
}
