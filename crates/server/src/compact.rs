//! Views and superfluous rich ACLs of a parallel volume.
//!
//! A view of a POSIX ACL is never stored there: the POSIX ACL lies in the inode, which is read
//! anyway, so no stored view could save a reading, and there is nothing to measure. To convert all
//! files is to do nothing.
//!
//! Rich ACLs that say what mode and POSIX ACL say are found in the records of the namespace, one
//! page of them after another, and taken away in the background, by one thread for each volume.
//! What it has done it does not find again, so work that was ended begins anew.

use crate::core::Core;
use crate::lease::Change;
use crate::rich;
use crate::tree::Parallel;
use crate::volume::Volume;
use ::acl::Policy;
use base::limits::ACL_VIEWS_PER_BATCH_MAX;
use base::{FsError, Handle, Principal};
use meta::namespace::{NamespaceError, Scanned, Turn};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use wire::message::{
    AclViewWork, AclViews, AclViewsAsk, AclWork, AclWorkState, AdminError, AdminReply,
};

/// Between two batches that clients are told of.
const BATCH_INTERVAL: Duration = Duration::from_millis(20);

/// Work on all rich ACLs of a volume.
#[derive(Default)]
pub(crate) struct Compacting(Mutex<State>);

#[derive(Default)]
struct State {
    work: Option<AclWork>,
    stops: bool,
}

impl Compacting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_under_way(&self) -> bool {
        let work = self.lock().work;
        work.is_some_and(|work| work.state == AclWorkState::Running)
    }

    fn note(&self, note: impl FnOnce(&mut AclWork)) {
        if let Some(work) = &mut self.lock().work {
            note(work);
        }
    }
}

/// Answers an administrator.
pub(crate) fn answer(
    core: &Arc<Core>,
    volume: &Arc<Volume>,
    parallel: &Parallel,
    ask: &AclViewsAsk,
) -> rich::Outcome {
    let invalid = |why: String| (AdminError::Invalid, why);
    let name = &volume.name;
    let Some(compacting) = &volume.compacting else {
        return Err(invalid(format!("{name} has no rich ACLs")));
    };
    match ask {
        AclViewsAsk::Show => {}
        AclViewsAsk::Store { policy, .. } => {
            let policy = policy.parse::<Policy>();
            let policy = policy.map_err(|error| invalid(error.to_string()))?;
            if !matches!(policy, Policy::Never | Policy::Measured) {
                return Err(invalid(format!(
                    "{name} is a parallel volume, where POSIX ACLs lie in the inodes: a stored \
                     view could save nothing, and none is stored"
                )));
            }
        }
        AclViewsAsk::Calibrate => {
            return Err(invalid(format!(
                "{name} is a parallel volume, where POSIX ACLs and small rich ACLs lie in the \
                 inodes: there is nothing to measure"
            )));
        }
        AclViewsAsk::Work { work, dry_run } => begin(core, volume, parallel, (*work, *dry_run)),
        AclViewsAsk::Stop => compacting.lock().stops = true,
    }
    let summary = AclViews {
        policy: Policy::Never.to_string(),
        made: parallel.names.rich_figures().views,
        work: compacting.lock().work,
        ..AclViews::default()
    };
    Ok(AdminReply::AclViews(Box::new(summary)))
}

fn begin(
    core: &Arc<Core>,
    volume: &Arc<Volume>,
    parallel: &Parallel,
    (work, dry_run): (AclViewWork, bool),
) {
    let Some(compacting) = &volume.compacting else {
        return;
    };
    if compacting.is_under_way() {
        return;
    }
    let stat = parallel.names.statfs();
    let files_max = stat.files.saturating_sub(stat.files_free);
    let compacts = work == AclViewWork::Compact;
    let begun = AclWork {
        work,
        dry_run,
        state: match compacts {
            true => AclWorkState::Running,
            false => AclWorkState::Done,
        },
        files: if compacts { 0 } else { files_max },
        changed: 0,
        failed: 0,
        files_max,
    };
    *compacting.lock() = State {
        work: Some(begun),
        stops: false,
    };
    if !compacts {
        return;
    }
    let (core, volume) = (Arc::downgrade(core), Arc::downgrade(volume));
    let thread = std::thread::Builder::new().name("rich ACLs".to_owned());
    let spawned = thread.spawn({
        let volume = volume.clone();
        move || {
            let state = work_on_all(&core, &volume, dry_run);
            end(&volume, state);
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "cannot start a thread for rich ACLs");
        end(&volume, AclWorkState::Stopped);
    }
}

fn end(volume: &Weak<Volume>, state: AclWorkState) {
    let volume = volume.upgrade();
    if let Some(compacting) = volume
        .as_ref()
        .and_then(|volume| volume.compacting.as_ref())
    {
        compacting.note(|work| work.state = state);
    }
}

/// Goes through all files; how it has ended.
fn work_on_all(core: &Weak<Core>, volume: &Weak<Volume>, dry_run: bool) -> AclWorkState {
    let background = core.upgrade().zip(volume.upgrade());
    let task =
        background.map(|(core, volume)| core.background.add(format!("rich ACLs {}", volume.name)));
    if let Some(task) = &task {
        task.set_state("looking at all files");
    }
    let mut scan = None;
    loop {
        let (Some(core), Some(volume)) = (core.upgrade(), volume.upgrade()) else {
            return AclWorkState::Stopped;
        };
        let (Some(parallel), Some(compacting)) = (volume.tree.parallel(), &volume.compacting)
        else {
            return AclWorkState::Stopped;
        };
        if compacting.lock().stops || core.stopping.load(Ordering::Acquire) {
            return AclWorkState::Stopped;
        }
        let scan = scan.get_or_insert_with(|| parallel.names.scan_rich());
        match parallel.names.scan_on(scan) {
            Ok(Some(scanned)) => {
                if let Some(task) = &task {
                    task.add(scanned.inodes);
                }
                compacting.note(|work| work.files += scanned.inodes);
                work_on_some(&core, &volume, parallel, scanned, dry_run);
            }
            Ok(None) => return AclWorkState::Done,
            Err(error) => {
                tracing::warn!(volume = volume.name, %error, "files cannot be looked at");
                return AclWorkState::Stopped;
            }
        }
    }
}

fn work_on_some(
    core: &Core,
    volume: &Volume,
    parallel: &Parallel,
    scanned: Scanned,
    dry_run: bool,
) {
    let Some(compacting) = &volume.compacting else {
        return;
    };
    for some in scanned.rich.chunks(ACL_VIEWS_PER_BATCH_MAX) {
        let turn = Turn::new();
        let outcomes = some
            .iter()
            .map(|handle| compact(parallel, &turn, handle, dry_run));
        let outcomes: Vec<Result<bool, FsError>> = outcomes.collect();
        let durable: Result<(), NamespaceError> = parallel.names.wait_here(&turn);
        let is_done = |outcome: &Result<bool, FsError>| durable.is_ok() && *outcome == Ok(true);
        let done = some.iter().zip(&outcomes);
        let done = done.filter(|(_, outcome)| is_done(outcome));
        let done: Vec<&Handle> = done.map(|(handle, _)| handle).collect();
        let is_left = |outcome: &&Result<bool, FsError>| match outcome {
            // It is gone since it was met.
            Err(FsError::Stale | FsError::NotFound) | Ok(false) => false,
            Err(_) => true,
            Ok(true) => durable.is_err(),
        };
        let failed = outcomes.iter().filter(is_left).count();
        compacting.note(|work| {
            work.changed += done.len() as u64;
            work.failed += failed as u64;
        });
        if !dry_run && !done.is_empty() {
            let changes = done
                .iter()
                .map(|handle| Change::Inode(volume.outer(handle)));
            core.caching.changed(None, &changes.collect::<Vec<_>>());
            std::thread::sleep(BATCH_INTERVAL);
        }
    }
}

fn compact(
    parallel: &Parallel,
    turn: &Turn,
    handle: &Handle,
    dry_run: bool,
) -> Result<bool, FsError> {
    let root = Principal::root();
    let words = |edit: &::acl::Edit| rich::words(&root, edit);
    parallel.names.compact_acl(turn, handle, dry_run, &words)
}
