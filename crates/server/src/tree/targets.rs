//! The stores in which the files of a volume lie, and new ones are to lie.
//!
//! A volume has all stores of the cluster, those of servers that join later as well. New files are
//! laid out over the ones that are there at the time.

use super::parallel::ParallelError;
use crate::cluster::{Cluster, StoreDevice};
use crate::data::ParallelRecord;
use meta::namespace::{Namespace, NamespaceError, Striping, Target};
use std::collections::BTreeSet;

/// Whether files can be laid out so over the stores that are there.
///
/// # Errors
/// [`ParallelError`].
pub(super) fn check(record: ParallelRecord, cluster: &Cluster) -> Result<(), ParallelError> {
    let mut devices = cluster.devices();
    devices.retain(|device| device.is_here);
    if devices.is_empty() {
        return Err(match cluster.own().missing().is_empty() {
            true => ParallelError::NoStore,
            false => ParallelError::NoStoreLeft,
        });
    }
    if devices.iter().any(|device| device.keeps_objects) {
        // Beside them, stores whose objects end by themselves are left out.
        devices.retain(|device| device.keeps_objects);
    }
    devices.iter().try_for_each(|device| fits(record, device))
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

/// Bytes of the stores of a volume, and those of them that are free and can be had now.
pub(super) fn space(names: &Namespace, cluster: &Cluster) -> (u64, u64) {
    let targets = names.targets();
    let of_volume = |device: &StoreDevice| {
        let (server, store) = (device.server, device.store);
        let own = Target { server, store };
        targets.values().any(|target| *target == own)
    };
    let devices = cluster.devices().into_iter().filter(of_volume);
    devices.fold((0, 0), |(all, free), device| {
        let own = match device.is_here {
            true => device.au_free,
            false => 0,
        };
        (
            all + device.au_bytes * device.au_count,
            free + device.au_bytes * own,
        )
    })
}
