//! The stores in which the files of a volume lie, and new ones are to lie.
//!
//! A volume has all stores of the cluster, those of servers that join later as well. New files are
//! laid out over the ones that are there at the time.

use super::parallel::ParallelError;
use crate::cluster::{Cluster, StoreDevice};
use crate::data::ParallelRecord;
use meta::namespace::{Namespace, NamespaceError, Striping, Target};
use std::collections::BTreeSet;

/// Whether files can be laid out so over all stores that are there.
///
/// # Errors
/// [`ParallelError`].
pub(super) fn check(record: ParallelRecord, cluster: &Cluster) -> Result<(), ParallelError> {
    let devices = keeping(cluster)?;
    devices.iter().try_for_each(|device| fits(record, device))
}

/// Whether files that are laid out so can go on: whether one of the stores that are there suits. A
/// store may have come since with a larger allocation unit; it is left to others, and that is said.
///
/// # Errors
/// [`ParallelError`].
pub(super) fn check_one(record: ParallelRecord, cluster: &Cluster) -> Result<(), ParallelError> {
    let devices = keeping(cluster)?;
    let mut unfit = Vec::new();
    for device in &devices {
        unfit.extend(
            fits(record, device)
                .err()
                .map(|error| (device.store, error)),
        );
    }
    if unfit.len() < devices.len() {
        for (store, error) in unfit {
            tracing::warn!(%store, %error, "no files of a volume are laid out over a store");
        }
        return Ok(());
    }
    unfit.into_iter().try_for_each(|(_, error)| Err(error))
}

/// The stores that are there. Those whose objects end by themselves are left out beside others.
fn keeping(cluster: &Cluster) -> Result<Vec<StoreDevice>, ParallelError> {
    let mut devices = cluster.devices();
    devices.retain(|device| device.is_here);
    if devices.is_empty() {
        return Err(match cluster.own().missing().is_empty() {
            true => ParallelError::NoStore,
            false => ParallelError::NoStoreLeft,
        });
    }
    if devices.iter().any(|device| device.keeps_objects) {
        devices.retain(|device| device.keeps_objects);
    }
    Ok(devices)
}

/// Whether files can be laid out so over a store.
fn fits(record: ParallelRecord, device: &StoreDevice) -> Result<(), ParallelError> {
    let (unit, au) = (1u64 << record.unit_log2, device.au_bytes);
    if !unit.is_multiple_of(au) {
        return Err(ParallelError::Unit { unit, au });
    }
    match device.keeps_objects {
        true => Ok(()),
        false => Err(ParallelError::Lifetime(device.store)),
    }
}

/// Has new files laid out over the stores that are there now, and that suit. Says which those are.
///
/// # Errors
/// [`NamespaceError`]: a store is not noted as one of the volume.
pub(super) async fn spread(
    names: &Namespace,
    record: ParallelRecord,
    cluster: &Cluster,
) -> Result<BTreeSet<u16>, NamespaceError> {
    let mut numbers = BTreeSet::new();
    for device in cluster.devices() {
        if device.is_here && fits(record, &device).is_ok() {
            let (server, store) = (device.server, device.store);
            numbers.insert(names.add_target(Target { server, store }).await?);
        }
    }
    if numbers.is_empty() {
        // Nothing is there: a new file waits for what was there before.
        numbers.extend(names.targets().keys());
    }
    names.set_striping(Striping {
        unit_log2: record.unit_log2,
        width: usize::from(record.width).min(numbers.len()),
        targets: numbers.iter().copied().collect(),
    });
    Ok(numbers)
}

/// Space of the stores of a volume, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Space {
    /// All of it.
    pub(super) all: u64,
    /// Free, in stores that can be used now.
    pub(super) free: u64,
    /// Of that, what whoever has no reservation can have.
    pub(super) open: u64,
}

impl Space {
    fn and(self, device: &StoreDevice) -> Self {
        let here = |aus: u64| match device.is_here {
            true => device.au_bytes * aus,
            false => 0,
        };
        Self {
            all: self.all + device.au_bytes * device.au_count,
            free: self.free + here(device.au_free),
            open: self.open + here(device.au_open),
        }
    }
}

/// How much space the stores of a volume have.
pub(super) fn space(names: &Namespace, cluster: &Cluster) -> Space {
    let targets = names.targets();
    let of_volume = |device: &StoreDevice| {
        let (server, store) = (device.server, device.store);
        let own = Target { server, store };
        targets.values().any(|target| *target == own)
    };
    let devices = cluster.devices().into_iter().filter(of_volume);
    devices.fold(Space::default(), |space, device| space.and(&device))
}
