//! The process that acts: it makes, sets, mounts and runs, and takes everything back at its end.

use super::actor::{Answer, Ran, Request};
use super::exec;
use super::machine::{Ticks, children};
use super::memory::Groups;
use super::tunable::Setting;
use super::undo::{Notes, Undo, remove};
use super::work::{DEVICE, Job};
use crate::actor::{ActorError, Kernel, MountAs, RunLock, Underneath};
use crate::programs;
use base::limits::{VERIFY_SPEED_SAID_BYTES_MAX, VERIFY_TEXT_BYTES_MAX};
use rustix::fs::{Advice, fadvise, fdatasync};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often is looked whether a program has ended, or the run.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
const NO_DEVICE: &str = "no device is attached";
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// What a run stands on.
#[derive(Debug)]
pub struct Ground {
    /// Its directory, which has its name.
    pub directory: PathBuf,
    /// Held until everything is taken back.
    pub locks: Vec<RunLock>,
}

/// A parameter that was set, and what it was before.
#[derive(Debug)]
struct Tuned {
    path: PathBuf,
    before: Undo,
}

/// See the module's head.
pub(super) struct Keeper {
    directory: PathBuf,
    /// By which everything that it makes is called.
    name: String,
    notes: Notes,
    /// Parameters that were ever set: they are noted once.
    tuned: Vec<Tuned>,
    groups: Option<Groups>,
    is_bound: bool,
    /// Where programs work.
    work: Option<PathBuf>,
    /// The device.
    device: Option<Kernel>,
    /// The file below it, if it is a loop device of this run.
    image: Option<PathBuf>,
    /// How it was mounted.
    mount: Option<MountAs>,
    _locks: Vec<RunLock>,
}

/// Requests, to be listened to while a program runs.
type Requests = Receiver<Result<Request, ActorError>>;

fn words(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

impl Keeper {
    pub(super) fn new(ground: Ground) -> io::Result<Self> {
        let Ground { directory, locks } = ground;
        let notes = Notes::begin(&directory)?;
        let name = directory.file_name().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            directory,
            notes,
            tuned: Vec::new(),
            groups: None,
            is_bound: false,
            work: None,
            device: None,
            image: None,
            mount: None,
            _locks: locks,
        })
    }

    /// `None` if the run went away meanwhile.
    pub(super) fn answer(&mut self, request: Request, requests: &Requests) -> Option<Answer> {
        let done = match request {
            Request::Begin => Ok(()),
            Request::Attach { scratch, len_bytes } => self.attach(&scratch, len_bytes),
            Request::Take(device) => {
                let mut taken = Kernel::default();
                let outcome = taken.take(&device, &self.directory);
                self.device = Some(taken);
                outcome
            }
            Request::Tool(tool) => self.device().and_then(|device| device.tool(&tool)),
            Request::Mount(mount) => {
                self.mount = Some(mount.clone());
                self.device().and_then(|device| device.mount(&mount))
            }
            Request::Enter(below) => self.enter(below),
            Request::Tune(settings) => self.tune(&settings),
            Request::Bound(bytes) => self.bound(bytes),
            Request::Forget => self.forget(),
            Request::Run(job) => {
                return self.run(&job, requests).map(|ran| match ran {
                    Ok(ran) => Answer::Ran(ran),
                    Err(why) => Answer::Failed(why),
                });
            }
            Request::Clear => self.clear(),
            Request::Reset => self.reset(),
        };
        Some(match done {
            Ok(()) => Answer::Done,
            Err(why) => Answer::Failed(why),
        })
    }

    fn device(&mut self) -> Result<&mut Kernel, String> {
        self.device.as_mut().ok_or_else(|| NO_DEVICE.to_owned())
    }

    fn note(&mut self, undo: Undo) -> Result<(), String> {
        self.notes.take(undo).map_err(words(&self.directory))
    }

    fn attach(&mut self, scratch: &Path, len_bytes: u64) -> Result<(), String> {
        // By this name the loop device is found again. The run's own directory may have it there.
        let mut path = scratch.join(&self.name);
        if path.is_dir() {
            path.push(&self.name);
        }
        self.note(Undo::File(path.clone()))?;
        let file = File::create_new(&path).map_err(words(&path))?;
        file.set_len(len_bytes).map_err(words(&path))?;
        drop(file);
        let mut device = Kernel::default();
        let attached = device.attach(&path, &self.directory);
        // What is half attached is taken off by it.
        self.device = Some(device);
        self.image = Some(path);
        attached
    }

    fn is_mounted(&self) -> bool {
        let device = self.device.as_ref();
        device.is_some_and(|device| device.mount_point().is_ok())
    }

    /// Empties the caches of what is measured: of a file system of ours by mounting it anew, which
    /// is nobody else's matter.
    fn forget(&mut self) -> Result<(), String> {
        if !self.is_mounted() {
            // Not what others have written elsewhere: somebody's slow disk is no matter of ours.
            let work = self.work.as_ref().ok_or("there is no directory")?;
            let synced = File::open(work).and_then(|work| Ok(rustix::fs::syncfs(work)?));
            synced.map_err(words(work))?;
            return fs::write(DROP_CACHES, "3").map_err(words(Path::new(DROP_CACHES)));
        }
        let mount = self.mount.clone().ok_or("it was never mounted")?;
        self.device()?.unmount()?;
        if let Some(path) = &self.image {
            // If the file's own file system cannot do without, it is in memory there.
            let image = File::open(path).map_err(words(path))?;
            let forgotten =
                fdatasync(&image).and_then(|()| fadvise(&image, 0, None, Advice::DontNeed));
            forgotten.map_err(|errno| words(path)(errno.into()))?;
        }
        self.device()?.mount(&mount)
    }

    fn enter(&mut self, below: Option<PathBuf>) -> Result<(), String> {
        let path = match &below {
            Some(below) => below.join(&self.name),
            None => {
                let device = self.device.as_ref().ok_or(NO_DEVICE)?;
                device.point()?.join(&self.name)
            }
        };
        // On the device it goes with the device.
        if !(below.is_none() && self.is_mounted()) {
            self.note(Undo::Tree(path.clone()))?;
        }
        fs::create_dir(&path).map_err(words(&path))?;
        self.work = Some(path);
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        let work = self.work.as_ref().ok_or("there is no directory")?;
        fs::remove_dir_all(work).map_err(words(work))?;
        fs::create_dir(work).map_err(words(work))
    }

    fn tune(&mut self, settings: &[Setting]) -> Result<(), String> {
        self.untune()?;
        let device = match &self.device {
            Some(device) => Some(device.device_name()?),
            None => None,
        };
        for setting in settings {
            let path = setting.tunable.path(device.as_deref());
            let path = path.ok_or(format!("{setting}: there is no device of this run"))?;
            if !self.tuned.iter().any(|tuned| tuned.path == path) {
                let before = before(setting, &path)?;
                self.note(before.clone())?;
                let path = path.clone();
                self.tuned.push(Tuned { path, before });
            }
            fs::write(&path, setting.value.to_string()).map_err(words(&path))?;
        }
        Ok(())
    }

    /// Sets every parameter as it was.
    fn untune(&mut self) -> Result<(), String> {
        for Tuned { path, before } in self.tuned.iter().rev() {
            before.act().map_err(words(path))?;
        }
        Ok(())
    }

    fn bound(&mut self, bytes: u64) -> Result<(), String> {
        let name = self.name.clone();
        if let Some(groups) = &self.groups {
            groups.bound(&name, bytes).map_err(|e| e.to_string())?;
        } else {
            let groups = Groups::find()?;
            let group = groups.group(&name);
            self.note(Undo::Group(group.clone()))?;
            let groups = self.groups.insert(groups);
            groups.make(&name, bytes).map_err(words(&group))?;
        }
        self.is_bound = true;
        Ok(())
    }

    fn reset(&mut self) -> Result<(), String> {
        self.is_bound = false;
        self.untune()?;
        let work = self.work.take();
        if self.is_mounted() {
            // What was made there goes when the next file system is made.
            return self.device()?.unmount();
        }
        if let Some(work) = work {
            fs::remove_dir_all(&work).map_err(words(&work))?;
        }
        Ok(())
    }

    /// Runs a program to its end, in a process that dies with this one. `None` if the run went
    /// away meanwhile; then the program was stopped.
    fn run(&self, job: &Job, requests: &Requests) -> Option<Result<Ran, String>> {
        let begun = self.start(job).and_then(|child| {
            let before = now().inspect_err(|_| stop(&child))?;
            Ok((child, before))
        });
        let (mut child, before) = match begun {
            Ok(begun) => begun,
            Err(why) => return Some(Err(why)),
        };
        let started = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => return Some(Err(error.to_string())),
            }
            match requests.recv_timeout(LOOKS_EVERY) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                    stop(&child);
                    let _ = child.wait();
                    return None;
                }
            }
        };
        let time = started.elapsed();
        Some(self.ran(job, status, time, before))
    }

    fn start(&self, job: &Job) -> Result<Child, String> {
        let work = self.work.as_ref().ok_or("there is no directory")?;
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let file = |name: &str| {
            let path = self.directory.join(name);
            File::create(&path).map_err(words(&path))
        };
        let mut command = exec::job(&own);
        if let (true, Some(groups)) = (self.is_bound, &self.groups) {
            command.arg("--group").arg(groups.group(&self.name));
        }
        command.arg("--");
        match job.program.as_str() {
            "azekura" => command.arg(&own),
            other => command.arg(other),
        };
        for argument in &job.arguments {
            match (argument.as_str(), &self.device) {
                (DEVICE, Some(device)) => command.arg(device.device_path()?),
                (argument, _) => command.arg(argument),
            };
        }
        programs::find_all(&mut command);
        command
            .current_dir(work)
            .stdin(Stdio::null())
            .stdout(file("out")?)
            .stderr(file("err")?)
            // What it starts is stopped with it.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{}: {error}", job.program))
    }

    fn ran(
        &self,
        job: &Job,
        status: ExitStatus,
        time: Duration,
        before: Now,
    ) -> Result<Ran, String> {
        let said = |name: &str| {
            let path = self.directory.join(name);
            let file = File::open(&path).map_err(words(&path))?;
            let mut bytes = Vec::new();
            let mut file = file.take(VERIFY_SPEED_SAID_BYTES_MAX);
            file.read_to_end(&mut bytes).map_err(words(&path))?;
            Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
        };
        if !status.success() {
            let mut why = said("err")?;
            if why.trim().is_empty() {
                why = said("out")?;
            }
            let kept: String = why.trim().chars().take(VERIFY_TEXT_BYTES_MAX / 4).collect();
            return Err(format!("{}: {status}: {kept}", job.program));
        }
        let after = now()?;
        Ok(Ran {
            said: said("out")?,
            time,
            user: after.children.0.saturating_sub(before.children.0),
            system: after.children.1.saturating_sub(before.children.1),
            ticks: after.ticks - before.ticks,
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Before the device goes, whose parameters are among them.
        let failed = self.notes.undo();
        let is_undone = failed.is_empty();
        for failed in failed {
            // Nobody listens to answers any more.
            let _ = io::Write::write_all(&mut io::stderr(), format!("{failed}\n").as_bytes());
        }
        self.device = None;
        // Otherwise the next run reads there what is to be taken back.
        if is_undone {
            remove(&self.directory);
        }
    }
}

/// How a parameter is set as it is now. One that is given in its other form is set in that.
fn before(setting: &Setting, path: &Path) -> Result<Undo, String> {
    let read = |path: &Path| {
        let value = fs::read_to_string(path).map_err(words(path))?;
        Ok::<_, String>(value.trim().to_owned())
    };
    if let Some(other) = setting.tunable.other_form() {
        let other = Path::new(other);
        let value = read(other)?;
        if value != "0" {
            let path = other.to_owned();
            return Ok(Undo::Parameter { path, value });
        }
    }
    let (path, value) = (path.to_owned(), read(path)?);
    Ok(Undo::Parameter { path, value })
}

/// What the kernel tells about processor time, now.
#[derive(Clone, Copy, Debug)]
struct Now {
    ticks: Ticks,
    children: (Duration, Duration),
}

fn now() -> Result<Now, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let ticks = Ticks::parse(&read("/proc/stat")?).ok_or("/proc/stat cannot be read")?;
    let children = children(&read("/proc/self/stat")?).ok_or("/proc/self/stat cannot be read")?;
    Ok(Now { ticks, children })
}

/// Kills a program with everything that it has started.
fn stop(child: &Child) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(id) = id {
        let _ = kill_process_group(id, Signal::KILL);
    }
}
