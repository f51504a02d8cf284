//! Where a crash run happens: a device in memory, shown as a file, attached by an actor.
//!
//! Everything that is mounted is in mount namespaces of the run and of its actor, which end with
//! their last processes whatever these die of. Loop devices are the actor's to detach, and if it is
//! killed or hangs, the run's. What is left if both processes are killed at once are loop devices,
//! which are detached when the next run starts.

use super::served::{BROKEN_TIME_MAX, Served};
use crate::errors::{Code, Context, Failure, Result, plain_io};
use ::verify::actor::{
    Actor, Loop, RUN_PREFIX, Request, RunLock, Stale, Tool, lock_run, loops_of, share_run, stale,
};
use ::verify::crash::Target;
use ::verify::speed::{Ground, MACHINE, Refusal, clean_up, has_parameters, job, take_back};
use ::verify::{Medium, Recorder, SecondRecorder, StateFile};
use base::limits::VERIFY_END_TIME_MAX;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::ffi::CString;
use std::fs::{File, remove_dir, remove_file};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where the file of crash states is, in the directory of a run.
const STATES: &str = "states";
/// What a file system in memory takes beside the file.
const STATES_MORE_BYTES: u64 = 4 << 20;
/// From this kernel on, btrfs forgets a device of its own when it is unmounted: before, it refused
/// another one with the same file system in an older state.
const BTRFS_FORGETS: (u32, u32) = (6, 2);
/// How often is looked whether a loop device has gone.
const LOOKED_EVERY: Duration = Duration::from_millis(10);

/// See the module's head.
pub(super) struct Scene {
    pub(super) medium: Arc<Medium>,
    pub(super) recorder: Arc<Recorder>,
    /// Dropped first: it uses what is served.
    pub(super) actor: Option<Actor>,
    /// Dropped next, if there is one: it uses what we serve.
    pub(super) second: Option<SecondRecorder>,
    /// A second device of the actor's, for states that nobody records.
    pub(super) states: Option<StateFile>,
    served: Option<Served>,
    directory: PathBuf,
    /// Says that the run is not over.
    _lock: Option<RunLock>,
}

/// Takes this process, which must not have threads yet, into mounts of its own, in which its actors
/// see what it mounts. What others take off meanwhile is taken off there, too: a disk would be in
/// use as long as the run.
pub(super) fn leave_the_mounts_of_others() -> Result<()> {
    leave_mounts(&[
        MountPropagationFlags::DOWNSTREAM,
        MountPropagationFlags::SHARED,
    ])
}

/// Takes an actor, which must not have threads yet, into mounts of its own, beside those of its
/// run. The last process of mounts takes them off when it dies, and writes back what file systems
/// have not written yet: whoever serves their device must not be that process, since it would wait
/// for itself, and with it whatever on this machine writes file systems back.
pub(super) fn leave_the_mounts_of_the_run() -> Result<()> {
    leave_mounts(&[MountPropagationFlags::DOWNSTREAM])
}

fn leave_mounts(propagations: &[MountPropagationFlags]) -> Result<()> {
    let needs = |error: rustix::io::Errno| {
        let why = plain_io(&error.into());
        Failure::new(
            Code::CrashNeeds,
            format!("a mount namespace cannot be made: {why}"),
        )
    };
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
        .map_err(|error| needs(rustix::io::Errno::from_raw_os_error(error as i32)))?;
    propagations.iter().try_for_each(|&propagation| {
        rustix::mount::mount_change("/", MountPropagationFlags::REC | propagation).map_err(needs)
    })
}

/// Removes what earlier runs have left behind.
pub(super) fn clean_up_stale() {
    clean_up_below(&std::env::temp_dir(), None, Path::new(MACHINE));
}

/// The same below a directory, by somebody who may have the lock of the machine already. Without it
/// nobody sets the machine's parameters back: a run that measures has set them for itself.
fn clean_up_below(parent: &Path, lock: Option<&RunLock>, machine: &Path) {
    let mut own = None;
    for left in stale(parent).unwrap_or_default() {
        if lock.is_none() && has_parameters(&left.directory) {
            own = own.or_else(|| lock_run(machine).ok().flatten());
            if own.is_none() {
                let directory = left.directory.display().to_string();
                crate::output::note(crate::output::plain(&format!(
                    "{directory}: what a run that was killed has set is set back by the next run, \
                     since another one measures now"
                )));
                continue;
            }
        }
        clean_up_behind(&left, &mut Loop::detach);
    }
}

/// Removes what one run has left behind. What cannot be taken back is found later by the name of
/// the directory, or by the notes in it: then it stays.
fn clean_up_behind(left: &Stale, detach: &mut dyn FnMut(&Loop) -> Result<(), String>) {
    let mut is_free = true;
    for device in &left.devices {
        let detached = detach(device);
        is_free &= detached.is_ok();
        let outcome = match detached {
            Ok(()) => "detached".to_owned(),
            Err(why) => format!("cannot detach ({why})"),
        };
        let device = device.path();
        let device = device.display();
        let text = format!("{outcome} {device}, which a run that was killed has left");
        crate::output::note(crate::output::plain(&text));
    }
    let failures = match is_free {
        true => clean_up(&left.directory),
        false => take_back(&left.directory),
    };
    if is_free && failures.is_empty() {
        remove(&left.directory);
    }
    for failed in failures {
        let text = format!("cannot take back what a run that was killed has left: {failed}");
        crate::output::note(crate::output::plain(&text));
    }
}

/// Detaches what an actor has left that was killed, and waits so long until that has gone: it goes
/// when the last one has ended who was in the actor's mounts. Whether nothing is attached any more.
fn detach_all(directory: &Path, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        let devices = loops_of(directory).unwrap_or_default();
        if devices.is_empty() {
            return true;
        }
        for device in &devices {
            // It is tried again.
            let _ = device.detach();
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOKED_EVERY);
    }
}

/// Removes the directory of a run, in which nothing is mounted any more.
fn remove(directory: &Path) {
    for part in ["mnt", "device", STATES] {
        let _ = remove_dir(directory.join(part));
    }
    for part in SecondRecorder::FILES {
        let _ = remove_file(directory.join(part));
    }
    super::volume::remove_parts(directory);
    let _ = remove_dir(directory);
}

/// Makes the directory of a run, and locks it before another run can take it for left behind: it
/// has its name only then. The actor has it, too.
fn make_directory() -> Result<(PathBuf, Option<RunLock>)> {
    let hidden = format!(".{RUN_PREFIX}");
    let made = tempfile::Builder::new().prefix(&hidden).tempdir();
    let made = made.context("a temporary directory")?.keep();
    let lock = share_run(&made).context(made.display())?;
    let name = made.file_name().unwrap_or_default().to_string_lossy();
    let directory = made.with_file_name(&name[1..]);
    let renamed = renameat_with(CWD, &made, CWD, &directory, RenameFlags::NOREPLACE);
    renamed.context(directory.display())?;
    Ok((directory, lock))
}

/// What the actor of a speed run stands on: the only one on the machine, after those that were
/// killed have been cleaned up behind.
pub(super) fn ground() -> Result<Ground, Refusal> {
    let machine = lock_run(Path::new(MACHINE));
    let machine = machine.map_err(|error| Refusal::Failed(format!("{MACHINE}: {error}")))?;
    let machine = machine.ok_or(Refusal::Busy)?;
    clean_up_below(&std::env::temp_dir(), Some(&machine), Path::new(MACHINE));
    let made = make_directory();
    let (directory, lock) = made.map_err(|failure| Refusal::Failed(failure.message().into()))?;
    let locks = lock.into_iter().chain([machine]).collect();
    Ok(Ground { directory, locks })
}

/// What the process of a run stands on that nothing else of this machine disturbs.
pub(super) fn ground_beside_others() -> Result<Ground, String> {
    clean_up_stale();
    let made = make_directory();
    let (directory, lock) = made.map_err(|failure| failure.message().to_owned())?;
    let locks = lock.into_iter().collect();
    Ok(Ground { directory, locks })
}

/// The kernel's version, its first two numbers.
fn kernel_version() -> Option<(u32, u32)> {
    version_of(rustix::system::uname().release().to_str().ok()?)
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

impl Scene {
    /// Sets a device of this length up, with an actor for this target; with another recorder
    /// between the two if that is wanted.
    pub(super) fn new(target: Target, len_bytes: u64, has_second: bool) -> Result<Self> {
        let (directory, lock) = make_directory()?;
        let name = directory.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let medium = Arc::new(Medium::new(len_bytes));
        let recorder = Arc::new(Recorder::new(medium.clone()));
        let mut scene = Self {
            medium,
            recorder: recorder.clone(),
            actor: None,
            second: None,
            states: None,
            served: None,
            directory,
            _lock: lock,
        };
        let served = Served::new(recorder, &scene.directory.join("device"), &name)?;
        let file = served.file().to_owned();
        scene.served = Some(served);
        scene.actor = Some(start_actor(target)?);
        if has_second {
            scene.start_second(&file, len_bytes)?;
        }
        let file = scene
            .second
            .as_ref()
            .map_or(file, |second| second.file().to_owned());
        scene.attach(&file)?;
        if let Some(actor) = scene.actor.as_mut().filter(|_| has_second) {
            actor.must(&Request::Tool(Tool {
                program: "losetup".to_owned(),
                arguments: ["--direct-io=off", "{}"].map(str::to_owned).to_vec(),
                code_max: 0,
            }))?;
        }
        Ok(scene)
    }

    /// Gives the actor a second device, which is faster because nothing of it is recorded. Without
    /// it, a run takes longer and finds the same.
    pub(super) fn add_states(&mut self, target: Target) {
        let is_apart = match target {
            // It looks at a server, beside which this is no time.
            Target::Volume => false,
            Target::Btrfs => kernel_version().is_some_and(|version| version >= BTRFS_FORGETS),
            _ => true,
        };
        if !is_apart {
            return;
        }
        match self.states_file() {
            Ok(states) => self.states = Some(states),
            Err(failure) => {
                let why = failure.message();
                let text = format!("crash states are tried where they are recorded: {why}");
                crate::output::note(crate::output::plain(&text));
            }
        }
    }

    fn states_file(&mut self) -> Result<StateFile> {
        let len_bytes = self.medium.image().len_bytes();
        let directory = self.directory.join(STATES);
        std::fs::create_dir(&directory).context(directory.display())?;
        let size = format!("mode=0700,size={}", len_bytes + STATES_MORE_BYTES);
        let size = CString::new(size).expect("there is no NUL byte in it");
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let source = "azekura-verify";
        let mounted = rustix::mount::mount(source, &directory, "tmpfs", flags, size.as_c_str());
        mounted.context(directory.display())?;
        let file = directory.join(self.directory.file_name().unwrap_or_default());
        let states = File::create_new(&file).and_then(|file| StateFile::new(file, len_bytes));
        let states = states.context(file.display())?;
        let actor = self.actor.as_mut().expect("a new scene has one");
        actor.must(&Request::AttachStates { file })?;
        Ok(states)
    }

    /// Starts another recorder over `device`, and waits until it shows it.
    fn start_second(&mut self, device: &Path, len_bytes: u64) -> Result<()> {
        let failed = |error: std::io::Error| {
            let message = format!("the second recorder: {}", plain_io(&error));
            Failure::new(Code::CrashNeeds, crate::output::plain(&message))
        };
        let mut job = job(&std::env::current_exe().context("this program")?);
        job.arg("--");
        let second = SecondRecorder::start(&mut job, device, &self.directory);
        let second = self.second.insert(second.map_err(failed)?);
        let actor = self.actor.as_mut().expect("it was started before");
        second.wait(actor, len_bytes).map_err(failed)
    }

    fn attach(&mut self, file: &Path) -> Result<()> {
        let actor = self.actor.as_mut().expect("it was started before");
        let attached = actor.must(&Request::Attach {
            file: file.to_owned(),
            directory: self.directory.clone(),
        });
        attached.map_err(|error| {
            let message = format!("the device cannot be used: {error}");
            Failure::new(Code::CrashNeeds, crate::output::plain(&message))
        })
    }
}

/// Starts the process that uses what is judged.
fn start_actor(target: Target) -> Result<Actor> {
    let mut command = Command::new(std::env::current_exe().context("this program")?);
    command.args(["verify", "actor"]);
    match target {
        Target::Store => _ = command.arg("--store"),
        Target::Volume => _ = command.arg("--volume"),
        _ => {}
    }
    Ok(Actor::start(&mut command)?)
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.actor = None;
        let is_free = detach_all(&self.directory, VERIFY_END_TIME_MAX);
        self.second = None;
        self.states = None;
        // A loop device that is just being detached has it for a moment longer. Where nothing is
        // mounted, nothing is done.
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        let _ = rustix::mount::unmount(self.directory.join(STATES), flags);
        if let Some(served) = self.served.take() {
            served.end(is_free, VERIFY_END_TIME_MAX);
        }
        // Who waited for what is broken now has an error, and may be gone.
        if is_free || detach_all(&self.directory, BROKEN_TIME_MAX) {
            if clean_up(&self.directory).is_empty() {
                remove(&self.directory);
            }
            return;
        }
        // By its directory the next run finds what stays.
        let directory = self.directory.display().to_string();
        let text = format!("{directory}: a loop device of this run is still in use");
        crate::output::note(crate::output::plain(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_set_back_by_who_has_the_machine_alone() {
        let ground = tempfile::tempdir().unwrap();
        let (parent, machine) = (ground.path().join("tmp"), ground.path().join("machine"));
        let name = format!("{RUN_PREFIX}left");
        let (left, tree) = (parent.join(&name), ground.path().join(&name));
        for directory in [&left, &machine, &tree] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        // A device that is not there: nothing of this machine is set.
        let queue = "/sys/block/azekura-none/queue/read_ahead_kb";
        let notes = [
            serde_json::json!({"Boot": boot.trim()}),
            serde_json::json!({"Parameter": {"path": queue, "value": "128"}}),
            serde_json::json!({"Tree": tree}),
        ];
        let notes: String = notes.iter().map(|note| format!("{note}\n")).collect();
        std::fs::write(left.join("undo"), notes).unwrap();
        let other = lock_run(&machine).unwrap().unwrap();
        clean_up_below(&parent, None, &machine);
        assert!(left.join("undo").exists() && tree.exists());
        // The one that measures does it, or whoever comes when nobody does.
        drop(other);
        clean_up_below(&parent, None, &machine);
        assert!(!left.exists() && !tree.exists());
        assert!(lock_run(&machine).unwrap().is_some(), "the lock is held");
    }

    #[test]
    fn a_directory_stays_as_long_as_something_is_found_by_its_name_alone() {
        let ground = tempfile::tempdir().unwrap();
        let name = ground.path().file_name().unwrap().to_string_lossy();
        let name = format!("{RUN_PREFIX}{}", name.trim_start_matches('.'));
        let (parent, file) = (ground.path().join("tmp"), ground.path().join(&name));
        let directory = parent.join(&name);
        std::fs::create_dir_all(&directory).unwrap();
        File::create(&file).unwrap().set_len(1 << 20).unwrap();
        let mut losetup = ::verify::programs::command("losetup");
        let made = losetup.args(["--find", "--show"]).arg(&file).output();
        if !made.is_ok_and(|made| made.status.success()) {
            println!("skipped: there are no loop devices here");
            return;
        }
        let left = stale(&parent).unwrap();
        assert_eq!((left.len(), left[0].devices.len()), (1, 1));
        clean_up_behind(&left[0], &mut |_| Err("losetup: not found".to_owned()));
        assert!(left[0].devices[0].is_attached() && directory.exists());
        drop(left);
        clean_up_below(&parent, None, ground.path());
        assert!(Loop::of(&name).unwrap().is_empty() && !directory.exists());
    }

    #[test]
    fn kernels_are_compared_by_their_numbers() {
        assert_eq!(version_of("6.18.44"), Some((6, 18)));
        assert_eq!(version_of("6.1.0-56-amd64"), Some((6, 1)));
        assert_eq!(version_of("5.10"), Some((5, 10)));
        assert_eq!((version_of("next"), version_of("6")), (None, None));
        assert!(version_of("6.18.44") >= Some(BTRFS_FORGETS));
        assert!(version_of("6.1.0") < Some(BTRFS_FORGETS));
        assert!(kernel_version().is_some());
    }
}
