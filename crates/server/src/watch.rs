//! Changes behind the server's back.
//!
//! One thread per volume listens to the kernel ([`export::Watch`]) and has clients told. A volume
//! that cannot be watched, or whose watch has ended, grants no leases: its clients ask every time.

use crate::core::Core;
use crate::lease::Change;
use crate::volume::{Volume, tag};
use base::Handle;
use export::{LocalChange, Watch};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a wait for changes lasts before the thread looks whether it is still wanted.
const WAIT_TIME: Duration = Duration::from_millis(500);

/// Begins to watch a volume.
pub(crate) fn start(core: &Arc<Core>, volume: &Arc<Volume>) {
    let Some(export) = volume.tree.export() else {
        return;
    };
    let task = core.background.add(format!("watch {}", volume.name));
    let watch = match Watch::new(export) {
        Ok(watch) => watch,
        Err(error) => {
            tracing::warn!(volume = volume.name, %error, "clients of it cache nothing");
            return;
        }
    };
    volume.set_watched(true);
    let (core, weak) = (Arc::downgrade(core), Arc::downgrade(volume));
    let name = volume.name.clone();
    let thread = std::thread::Builder::new().name("watch".to_owned());
    let spawned = thread.spawn(move || {
        task.set_state("watching");
        if let Err(error) = listen(&core, &weak, watch, &task) {
            tracing::error!(volume = name, %error, "watching ended; clients cache nothing");
        }
        if let (Some(core), Some(volume)) = (core.upgrade(), weak.upgrade()) {
            volume.set_watched(false);
            everything(&core, &volume);
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "cannot start a watch");
        volume.set_watched(false);
    }
}

fn listen(
    core: &Weak<Core>,
    volume: &Weak<Volume>,
    mut watch: Watch,
    task: &crate::background::Task,
) -> Result<(), base::FsError> {
    loop {
        let changes = watch.next(WAIT_TIME)?;
        let (Some(core), Some(volume)) = (core.upgrade(), volume.upgrade()) else {
            return Ok(());
        };
        if core.stopping.load(Ordering::Acquire) {
            return Ok(());
        }
        if changes.is_empty() {
            if let Some(export) = volume.tree.export() {
                export.sweep();
            }
            continue;
        }
        task.add(changes.len() as u64);
        if changes.contains(&LocalChange::Everything) {
            everything(&core, &volume);
            continue;
        }
        let changes: Vec<Change> = changes
            .into_iter()
            .filter_map(|change| match change {
                LocalChange::Entry { directory, name } => {
                    Some(Change::Entry(volume.outer(&directory), name))
                }
                LocalChange::Inode(handle) => Some(Change::Inode(volume.outer(&handle))),
                LocalChange::Everything => None,
            })
            .collect();
        for change in &changes {
            if let Change::Inode(handle) = change {
                core.again.changed_outside(handle);
            }
        }
        core.caching.changed_outside(&changes);
    }
}

/// All leases on a volume go.
fn everything(core: &Core, volume: &Volume) {
    core.again.changed_all();
    let tag = tag(volume.id);
    // What is reported meanwhile must not wait for anybody.
    let concerns = |handle: &Handle| handle.as_bytes().starts_with(&tag);
    core.caching.changed_all(concerns, Duration::ZERO);
}
