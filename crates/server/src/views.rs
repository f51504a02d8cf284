//! Views of POSIX ACLs that may lie beside the files of a volume: stored by a thread of the
//! volume's, measured, and stored or dropped with all files.
//!
//! One thread for each export whose rich ACLs are on, or while there is such work. It takes from
//! the export's queue what requests have asked for in passing, at most 64 files at a time and fifty
//! times a second, and has clients told that these files' times of change have moved: so however
//! many views are stored, nobody has to ask anew for more files at once than he can.
//!
//! What was measured is kept in `acl/ID.costs.toml` of the data directory, and measured again only
//! when somebody asks for it; that it cannot be read is as if it had not been measured.
//!
//! Work on all files goes on for a tenth of a second at a time. Where it is, is written down every
//! few seconds and when it ends early ([`crate::walks`]): asked for again, it goes on from there.

use crate::compact;
use crate::core::Core;
use crate::data::{DataError, file};
use crate::lease::Change;
use crate::rich::{Outcome, find};
use crate::tree::Tree;
use crate::volume::Volume;
use crate::walks::{Noting, Resumed, Walks};
use ::acl::{Costs, Point, Policy};
use base::limits::{ACL_COST_POINTS_MAX, ACL_POLICY_BYTES_MAX};
use base::{FsError, Handle, Principal, VolumeId};
use export::{AclEdit, Calibration, Export, ViewFigures, ViewWalk, ViewWork, Worker};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::message::{
    AclCost, AclCosts, AclUnstored, AclViewWork, AclViews, AclViewsAsk, AclWork, AclWorkState,
    AdminError, AdminReply,
};

/// Name of the directory.
const DIRECTORY: &str = "acl";
/// How long the thread waits for something to do before it looks whether it is still wanted.
const WAIT_TIME: Duration = Duration::from_millis(500);
/// Work on all files between two looks at what else there is to do.
const WORK_TIME: Duration = Duration::from_millis(100);
/// Between two batches that clients are told of.
const BATCH_INTERVAL: Duration = Duration::from_millis(20);
/// How long somebody waits for a calibration; it ends by itself long before.
const CALIBRATION_TIME_MAX: Duration = Duration::from_secs(20);

/// What is kept of a calibration.
#[derive(Serialize, Deserialize)]
struct CostsFile {
    /// Seconds since 1970.
    measured: i64,
    file_system: String,
    read_nanos: u64,
    point: Vec<PointEntry>,
}

#[derive(Serialize, Deserialize)]
struct PointEntry {
    entries: u32,
    stored_nanos: u64,
    converted_nanos: u64,
    storing_nanos: u64,
    stored_reads: u32,
    converted_reads: u32,
}

/// What there is to do, and what was done, with the views of a volume.
pub(crate) struct Desk {
    directory: PathBuf,
    name: String,
    walks: Walks,
    /// Nothing is stored beside the files of such a volume.
    is_read_only: bool,
    state: Mutex<State>,
    /// Somebody waits for the end of a calibration.
    measured: Condvar,
}

struct State {
    policy: Policy,
    costs: Option<AclCosts>,
    has_thread: bool,
    wants_costs: bool,
    /// Calibrations that have ended, and how the last one did.
    calibrations: u64,
    outcome: Result<(), FsError>,
    work: Option<AclWork>,
    /// Work that is to begin.
    begins: bool,
    stops: bool,
}

impl Desk {
    /// That of a volume, with what was measured before. Blocks.
    pub(crate) fn new(data: &Path, volume: VolumeId, policy: Policy, is_read_only: bool) -> Self {
        let (directory, name) = (data.join(DIRECTORY), format!("{volume}.costs"));
        let costs = match directory.join(format!("{name}.toml")).exists() {
            false => None,
            true => match file::read::<CostsFile>(&directory, &name) {
                Ok(kept) => Some(kept.costs()),
                Err(error) => {
                    tracing::warn!(%error, "what views cost has to be measured anew");
                    None
                }
            },
        };
        Self {
            walks: Walks::new(&directory, volume),
            directory,
            name,
            is_read_only,
            state: Mutex::new(State {
                policy,
                costs,
                has_thread: false,
                wants_costs: false,
                calibrations: 0,
                outcome: Ok(()),
                work: None,
                begins: false,
                stops: false,
            }),
            measured: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells an export when its views are stored.
    pub(crate) fn instruct(&self, export: &Export) {
        let state = self.lock();
        let points = state.costs.iter().flat_map(|costs| &costs.points);
        let costs = Costs::new(points.map(point_of).collect());
        let policy = match self.is_read_only {
            true => Policy::Never,
            false => state.policy,
        };
        drop(state);
        export.set_storing(policy, costs);
    }

    /// Keeps what was measured.
    fn keep(&self, costs: &AclCosts) -> Result<(), DataError> {
        let io = |source| DataError::Io {
            path: self.directory.clone(),
            source,
        };
        std::fs::create_dir_all(&self.directory).map_err(io)?;
        file::write(&self.directory, &self.name, &CostsFile::of(costs))
    }

    fn summary(&self, figures: &ViewFigures) -> AclViews {
        let state = self.lock();
        AclViews {
            policy: match self.is_read_only {
                true => Policy::Never.to_string(),
                false => state.policy.to_string(),
            },
            made: figures.made,
            used: figures.used,
            stored: figures.stored,
            waiting: figures.waiting,
            unstored: AclUnstored {
                policy: figures.not_by_policy,
                busy: figures.not_busy,
                read_only: figures.not_read_only,
                full: figures.not_full,
                too_large: figures.not_large,
                protected: figures.not_protected,
                failed: figures.not_failed,
            },
            costs: state.costs.clone(),
            work: state.work,
        }
    }
}

/// Begins what has to be done for a volume without being asked: its views are stored while its rich
/// ACLs are on, and what they cost is measured if the policy needs it.
pub(crate) fn begin(core: &Arc<Core>, volume: &Arc<Volume>) {
    let (Some(export), Some(desk)) = (volume.tree.export(), &volume.views) else {
        return;
    };
    if !export.is_rich() || desk.is_read_only {
        return;
    }
    let mut state = desk.lock();
    state.wants_costs |= state.policy == Policy::Measured && state.costs.is_none();
    drop(state);
    start(core, volume);
}

/// Answers an administrator.
pub(crate) fn answer(core: &Arc<Core>, name: &str, ask: &AclViewsAsk) -> Outcome {
    let volume = find(core, name)?;
    let export = match &volume.tree {
        Tree::Parallel(parallel) => return compact::answer(core, &volume, parallel, ask),
        Tree::Export(export) => export,
    };
    let Some(desk) = &volume.views else {
        return Err((AdminError::Invalid, format!("{name} has no views")));
    };
    let read_only = || {
        (
            AdminError::Invalid,
            format!("{name} is served for reading only"),
        )
    };
    match ask {
        AclViewsAsk::Show => {}
        AclViewsAsk::Store { policy, dry_run } => {
            let invalid = |error: ::acl::AclError| (AdminError::Invalid, error.to_string());
            let policy = policy.parse::<Policy>().map_err(invalid)?;
            if desk.is_read_only && policy != Policy::Never {
                return Err(read_only());
            }
            if !dry_run {
                let noted = core.registry().set_store(name, policy);
                noted.map_err(|error| (AdminError::Io, error.to_string()))?;
                desk.lock().policy = policy;
                desk.instruct(export);
                begin(core, &volume);
            }
        }
        AclViewsAsk::Calibrate if desk.is_read_only => return Err(read_only()),
        AclViewsAsk::Calibrate => calibrate(core, &volume, desk)?,
        AclViewsAsk::Work { .. } if desk.is_read_only => return Err(read_only()),
        AclViewsAsk::Work { work, dry_run } => {
            let mut state = desk.lock();
            let is_under_way = state
                .work
                .is_some_and(|work| work.state == AclWorkState::Running);
            if !is_under_way {
                state.work = Some(AclWork {
                    work: *work,
                    dry_run: *dry_run,
                    state: AclWorkState::Running,
                    files: 0,
                    changed: 0,
                    failed: 0,
                    files_max: export.files_used(),
                });
                (state.begins, state.stops) = (true, false);
            }
            drop(state);
            start(core, &volume);
        }
        AclViewsAsk::Stop => {
            desk.lock().stops = true;
            export.nudge_views();
        }
    }
    let summary = desk.summary(&export.view_figures());
    Ok(AdminReply::AclViews(Box::new(summary)))
}

/// Has it measured and waits for that.
fn calibrate(
    core: &Arc<Core>,
    volume: &Arc<Volume>,
    desk: &Desk,
) -> Result<(), (AdminError, String)> {
    let mut state = desk.lock();
    let before = state.calibrations;
    state.wants_costs = true;
    drop(state);
    start(core, volume);
    let end = Instant::now() + CALIBRATION_TIME_MAX;
    let mut state = desk.lock();
    while state.calibrations == before {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let why = "its file system does not answer in time".to_owned();
            return Err((AdminError::Io, why));
        }
        let waited = desk.measured.wait_timeout(state, left);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
    state.outcome.map_err(|error| {
        let why = format!("what views cost there cannot be measured: {error}");
        (AdminError::Io, why)
    })
}

/// Sees to it that the volume has its thread.
fn start(core: &Arc<Core>, volume: &Arc<Volume>) {
    let (Some(export), Some(desk)) = (volume.tree.export(), &volume.views) else {
        return;
    };
    if std::mem::replace(&mut desk.lock().has_thread, true) {
        export.nudge_views();
        return;
    }
    let (weak_core, weak) = (Arc::downgrade(core), Arc::downgrade(volume));
    let thread = std::thread::Builder::new().name("views".to_owned());
    let spawned = thread.spawn(move || match Worker::new() {
        Ok(worker) => while attend(&weak_core, &weak, &worker) {},
        Err(error) => {
            tracing::error!(%error, "views are not stored");
            give_up(&weak);
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "cannot start a thread for views");
        give_up(&Arc::downgrade(volume));
    }
}

/// Nobody attends to a volume: whoever waits is told so.
fn give_up(volume: &Weak<Volume>) {
    let Some(volume) = volume.upgrade() else {
        return;
    };
    let Some(desk) = &volume.views else { return };
    let mut state = desk.lock();
    state.has_thread = false;
    if std::mem::take(&mut state.wants_costs) {
        state.calibrations += 1;
        state.outcome = Err(FsError::NotPermitted);
    }
    if std::mem::take(&mut state.begins)
        && let Some(work) = &mut state.work
    {
        work.state = AclWorkState::Stopped;
    }
    drop(state);
    desk.measured.notify_all();
}

/// What there is to do now; `false` when there will be no more.
fn attend(core: &Weak<Core>, volume: &Weak<Volume>, worker: &Worker) -> bool {
    let Some(volume) = volume.upgrade() else {
        return false;
    };
    let (Some(export), Some(desk)) = (volume.tree.export(), &volume.views) else {
        return false;
    };
    let is_stopping = || {
        let core = core.upgrade();
        core.is_none_or(|core| core.stopping.load(Ordering::Acquire))
    };
    if is_stopping() {
        return false;
    }
    let mut state = desk.lock();
    let wants_costs = std::mem::take(&mut state.wants_costs);
    let begins = std::mem::take(&mut state.begins);
    if !wants_costs && !begins && !export.is_rich() {
        state.has_thread = false;
        return false;
    }
    drop(state);
    if wants_costs {
        measure(worker, export, desk);
    }
    if begins {
        work_on_all(core, &volume, worker, &is_stopping);
    }
    tell(core, &volume, &export.store_views(worker, WAIT_TIME));
    true
}

fn measure(worker: &Worker, export: &Export, desk: &Desk) {
    let measured = export.calibrate_views(worker);
    let outcome = match &measured {
        Ok(calibration) => {
            let costs = costs_of(calibration, SystemTime::now());
            let kept = worker.as_server(|| desk.keep(&costs));
            if let Ok(Err(error)) = kept {
                tracing::warn!(%error, "what views cost is known until the next start only");
            }
            desk.lock().costs = Some(costs);
            desk.instruct(export);
            Ok(())
        }
        Err(error) => {
            tracing::warn!(%error, "what views cost cannot be measured; `measured` stores none");
            Err(*error)
        }
    };
    let mut state = desk.lock();
    state.calibrations += 1;
    state.outcome = outcome;
    drop(state);
    desk.measured.notify_all();
}

/// Goes through all files. Between two parts of it views are stored that were asked for meanwhile.
fn work_on_all(
    core: &Weak<Core>,
    volume: &Arc<Volume>,
    worker: &Worker,
    is_stopping: &dyn Fn() -> bool,
) {
    let (Some(export), Some(desk)) = (volume.tree.export(), &volume.views) else {
        return;
    };
    let Some(asked) = desk.lock().work else {
        return;
    };
    let work = match asked.work {
        AclViewWork::Convert => ViewWork::Convert { all: false },
        AclViewWork::ConvertAll => ViewWork::Convert { all: true },
        AclViewWork::Compact => ViewWork::Compact,
    };
    let background = core.upgrade();
    let task = background.map(|core| core.background.add(format!("views {}", volume.name)));
    if let Some(task) = &task {
        task.set_state("looking at all files");
    }
    let policy = desk.lock().policy.to_string();
    let mut noting = Noting::new(&desk.walks, worker, asked, policy);
    let Resumed { places, figures } = noting.resumed();
    let mut walk = ViewWalk::new(export, work, asked.dry_run, places).having(figures);
    let mut counted = figures.files;
    let note = |edit: &AclEdit| write_down(volume, edit, true);
    let ended = loop {
        let walked = export.walk_views(worker, &mut walk, WORK_TIME, &note);
        for edit in &walked.unmade {
            let _ = worker.as_server(|| write_down(volume, edit, false));
        }
        let figures = walk.figures();
        if let Some(task) = &task {
            task.add(figures.files - counted);
        }
        counted = figures.files;
        let mut state = desk.lock();
        if let Some(work) = &mut state.work {
            (work.files, work.changed) = (figures.files, figures.changed);
            work.failed = figures.failed;
        }
        let stops = state.stops || is_stopping();
        drop(state);
        tell(core, volume, &walked.changed);
        match walked.stopped_by {
            None => {}
            Some(FsError::NoSpace) => break AclWorkState::Full,
            Some(_) => break AclWorkState::ReadOnly,
        }
        if walk.is_over() {
            break AclWorkState::Done;
        }
        if stops {
            break AclWorkState::Stopped;
        }
        noting.note_sometimes(&walk);
        tell(core, volume, &export.store_views(worker, Duration::ZERO));
    };
    noting.end(&walk);
    if let Some(work) = &mut desk.lock().work {
        work.state = ended;
    }
}

/// Writes down, as the server, whose truth is to be POSIX again, or that it is not.
fn write_down(volume: &Volume, edit: &AclEdit, is_made: bool) -> Result<(), FsError> {
    let Some(audit) = &volume.audit else {
        return Ok(());
    };
    let noted = audit.note(&Principal::root(), edit, is_made);
    noted.map_err(|error| {
        let (volume, path) = (&volume.name, &edit.path);
        tracing::error!(volume, path, %error, "an edit is not written down");
        FsError::Io
    })
}

/// Has clients told that the server itself has moved these files' times of change.
fn tell(core: &Weak<Core>, volume: &Volume, files: &[Handle]) {
    if files.is_empty() {
        return;
    }
    let inode = |handle: &Handle| Change::Inode(volume.outer(handle));
    let changes: Vec<Change> = files.iter().map(inode).collect();
    if let Some(core) = core.upgrade() {
        core.caching.changed(None, &changes);
    }
    std::thread::sleep(BATCH_INTERVAL);
}

fn costs_of(calibration: &Calibration, now: SystemTime) -> AclCosts {
    let nanos = |time: Duration| bounded(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let points = calibration.costs.points().iter().map(|point| AclCost {
        entries: point.entries,
        stored_nanos: bounded(point.stored_nanos),
        converted_nanos: bounded(point.converted_nanos),
        storing_nanos: bounded(point.storing_nanos),
        stored_reads: point.stored_reads,
        converted_reads: point.converted_reads,
    });
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    AclCosts {
        measured: i64::try_from(seconds).unwrap_or(i64::MAX),
        file_system: crate::admin::cut(calibration.file_system.clone(), ACL_POLICY_BYTES_MAX),
        read_nanos: nanos(calibration.read.0),
        points: points.take(ACL_COST_POINTS_MAX).collect(),
    }
}

/// State files know no larger numbers.
fn bounded(number: u64) -> u64 {
    number.min(i64::MAX.cast_unsigned())
}

fn point_of(cost: &AclCost) -> Point {
    Point {
        entries: cost.entries,
        stored_nanos: cost.stored_nanos,
        converted_nanos: cost.converted_nanos,
        storing_nanos: cost.storing_nanos,
        stored_reads: cost.stored_reads,
        converted_reads: cost.converted_reads,
    }
}

impl CostsFile {
    fn of(costs: &AclCosts) -> Self {
        let entry = |cost: &AclCost| PointEntry {
            entries: cost.entries,
            stored_nanos: cost.stored_nanos,
            converted_nanos: cost.converted_nanos,
            storing_nanos: cost.storing_nanos,
            stored_reads: cost.stored_reads,
            converted_reads: cost.converted_reads,
        };
        Self {
            measured: costs.measured,
            file_system: costs.file_system.clone(),
            read_nanos: costs.read_nanos,
            point: costs.points.iter().map(entry).collect(),
        }
    }

    fn costs(self) -> AclCosts {
        let cost = |entry: PointEntry| AclCost {
            entries: entry.entries,
            stored_nanos: entry.stored_nanos,
            converted_nanos: entry.converted_nanos,
            storing_nanos: entry.storing_nanos,
            stored_reads: entry.stored_reads,
            converted_reads: entry.converted_reads,
        };
        AclCosts {
            measured: self.measured,
            file_system: crate::admin::cut(self.file_system, ACL_POLICY_BYTES_MAX),
            read_nanos: self.read_nanos,
            points: self
                .point
                .into_iter()
                .take(ACL_COST_POINTS_MAX)
                .map(cost)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> AclCosts {
        let calibration = Calibration {
            costs: Costs::new(vec![Point {
                entries: 3,
                stored_nanos: u64::MAX,
                converted_nanos: 2,
                storing_nanos: 3,
                stored_reads: 1,
                converted_reads: 0,
            }]),
            read: export::ColdRead(Duration::from_micros(50)),
            file_system: "xfs".to_owned(),
        };
        costs_of(
            &calibration,
            UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        )
    }

    #[test]
    fn what_was_measured_is_there_after_a_restart_and_what_is_damaged_is_not_believed() {
        let data = tempfile::tempdir().unwrap();
        let id = VolumeId([7; 16]);
        let open = || Desk::new(data.path(), id, Policy::Measured, false);
        let desk = open();
        assert_eq!(desk.lock().costs, None);
        desk.keep(&costs()).unwrap();
        assert_eq!(open().lock().costs, Some(costs()));
        let path = data.path().join(format!("acl/{id}.costs.toml"));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("stored_reads = 1", "stored_reads = 0")).unwrap();
        assert_eq!(open().lock().costs, None);
    }
}
