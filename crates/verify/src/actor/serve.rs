//! The actor itself: one thread that does what it is asked for.
//!
//! What it does it to is an [`Underneath`]: file systems of the kernel ([`Kernel`]), or whatever
//! else can be made, opened, changed, closed and looked at.

use super::{
    ActorError, Answer, Device, Loop, MountAs, Request, RunLock, Tool, check_mount_options, look,
    receive, send, share_run,
};
use crate::oracle::Entry;
use crate::programs;
use crate::second;
use crate::speed::{Notes, Undo};
use crate::workload::Step;
use base::limits::VERIFY_TEXT_BYTES_MAX;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// How often a mount that is in use for a moment is tried to be taken off: kernel threads of a
/// recovery may still have it.
const UNMOUNT_TRIES: u32 = 500;

/// What an actor uses. Errors are words; dropping it cleans up.
pub trait Underneath {
    /// Takes a file as its device, and a directory for mounts.
    ///
    /// # Errors
    /// As for all of these.
    fn attach(&mut self, file: &Path, directory: &Path) -> Result<(), String>;

    /// Takes another file as the device of crash states.
    fn attach_states(&mut self, _: &Path) -> Result<(), String> {
        Err("it has one device alone".to_owned())
    }

    /// Uses this device from now on, if there are two; nothing is mounted.
    fn choose(&mut self, _: Device) {}

    /// Runs a tool on the device.
    fn tool(&mut self, tool: &Tool) -> Result<(), String>;

    /// Begins to use what is on the device.
    fn mount(&mut self, mount: &MountAs) -> Result<(), String>;

    /// Stops using it; everything is written.
    fn unmount(&mut self) -> Result<(), String>;

    /// Does a step in it.
    fn run(&mut self, step: &Step) -> Result<(), String>;

    /// What is in it, with the rows of these databases.
    fn look(&mut self, databases: &[String]) -> Result<Vec<Entry>, String>;
}

/// Does what `requests` ask for until they end, and then cleans up.
///
/// # Errors
/// [`ActorError`] if the other side speaks another language or is gone in the middle.
pub fn serve(
    requests: &mut impl Read,
    answers: &mut impl Write,
    mut underneath: impl Underneath,
) -> Result<(), ActorError> {
    // Until everything is cleaned up, also if the run has ended long ago.
    let mut lock = None;
    let served = serve_all(requests, answers, &mut underneath, &mut lock);
    drop(underneath);
    drop(lock);
    served
}

fn serve_all(
    requests: &mut impl Read,
    answers: &mut impl Write,
    underneath: &mut impl Underneath,
    lock: &mut Option<RunLock>,
) -> Result<(), ActorError> {
    loop {
        let request = match receive(requests) {
            Err(ActorError::Ended) => return Ok(()),
            request => request?,
        };
        let begun = match &request {
            Request::Attach { directory, .. } => hold(directory).map(|held| *lock = Some(held)),
            _ => Ok(()),
        };
        let answer = match begun {
            Ok(()) => answer(underneath, request),
            Err(why) => Answer::Failed(why),
        };
        send(answers, &answer)?;
    }
}

/// Says that the directory of a run is in use.
fn hold(directory: &Path) -> Result<RunLock, String> {
    let shown = directory.display();
    match share_run(directory) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(format!("{shown}: another run cleans it up")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

fn answer(underneath: &mut impl Underneath, request: Request) -> Answer {
    let done = match request {
        Request::Attach { file, directory } => underneath.attach(&file, &directory),
        Request::AttachStates { file } => underneath.attach_states(&file),
        Request::Shows { file, len_bytes } => {
            second::shows(&file, len_bytes).map_err(|error| error.to_string())
        }
        Request::Forget { file } => {
            let words = |error| format!("{}: {error}", file.display());
            second::forget(&file).map_err(words)
        }
        Request::Tool(tool) => underneath.tool(&tool),
        Request::Mount(mount) => underneath.mount(&mount),
        Request::Unmount => underneath.unmount(),
        Request::Run(step) => underneath.run(&step),
        Request::Try {
            device,
            repair,
            mount,
            databases,
        } => {
            underneath.choose(device);
            let answer = attempt(underneath, &repair, &mount, &databases);
            underneath.choose(Device::Recorded);
            return answer;
        }
    };
    match done {
        Ok(()) => Answer::Done,
        Err(why) => Answer::Failed(why),
    }
}

fn attempt(
    underneath: &mut impl Underneath,
    repair: &[Tool],
    mount: &MountAs,
    databases: &[String],
) -> Answer {
    for tool in repair {
        if let Err(why) = underneath.tool(tool) {
            return Answer::Unmountable(why);
        }
    }
    if let Err(why) = underneath.mount(mount) {
        return Answer::Unmountable(format!("mounting: {why}"));
    }
    let found = underneath.look(databases);
    if let Err(why) = underneath.unmount() {
        return Answer::Failed(why);
    }
    match found {
        Ok(found) => Answer::Found(found),
        Err(why) => Answer::Unmountable(format!("looking: {why}")),
    }
}

/// File systems of the kernel, on a loop device.
#[derive(Debug, Default)]
pub struct Kernel {
    /// The device, and the directory in which its file system is mounted.
    device: Option<(String, PathBuf)>,
    /// The loop devices that were made of files: it may be one of them.
    made: Vec<Loop>,
    /// The loop device of crash states.
    states: Option<String>,
    /// Which of the two is used.
    chosen: Device,
    is_mounted: bool,
}

impl Kernel {
    /// Takes a block device that is there, and a directory for mounts.
    ///
    /// # Errors
    /// In words, if it is none, or somebody uses it.
    pub(crate) fn take(&mut self, device: &Path, directory: &Path) -> Result<(), String> {
        let shown = device.display();
        let found = std::fs::metadata(device).map_err(|error| format!("{shown}: {error}"))?;
        if !found.file_type().is_block_device() {
            return Err(format!("{shown} is no block device"));
        }
        // Of a block device it means: fail if it is mounted or otherwise in use.
        let exclusive = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        open(device, exclusive, Mode::empty()).map_err(|errno| format!("{shown}: {errno}"))?;
        let device = device.to_str().ok_or(format!("{shown} is not UTF-8"))?;
        self.device = Some((device.to_owned(), directory.join("mnt")));
        let point = &self.device.as_ref().expect("set above").1;
        std::fs::create_dir(point).map_err(|error| format!("{}: {error}", point.display()))
    }

    /// Its device.
    ///
    /// # Errors
    /// In words, if there is none.
    pub(crate) fn device_path(&self) -> Result<&str, String> {
        Ok(self.device()?.0)
    }

    /// The directory for its mount.
    ///
    /// # Errors
    /// In words, if there is no device.
    pub(crate) fn point(&self) -> Result<&Path, String> {
        Ok(self.device()?.1)
    }

    /// The name of its device, without a directory.
    ///
    /// # Errors
    /// In words, if none is attached.
    pub(crate) fn device_name(&self) -> Result<String, String> {
        let (device, _) = self.device()?;
        let name = Path::new(device).file_name().unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// Where it is mounted.
    ///
    /// # Errors
    /// In words, if nothing is.
    pub(crate) fn mount_point(&self) -> Result<&Path, String> {
        match self.is_mounted {
            true => Ok(self.device()?.1),
            false => Err("nothing is mounted".to_owned()),
        }
    }

    /// Makes a loop device of a file; its path.
    fn make(&mut self, file: &Path, is_direct: bool) -> Result<String, String> {
        let device = Loop::attach(file, is_direct)?;
        let path = device.path().display().to_string();
        self.made.push(device);
        Ok(path)
    }

    fn device(&self) -> Result<(&str, &Path), String> {
        let (recorded, point) = self.device.as_ref().ok_or("no device is attached")?;
        let device = match self.chosen {
            Device::Recorded => recorded,
            Device::States => {
                let states = self.states.as_ref();
                states.ok_or("no device of states is attached")?
            }
        };
        Ok((device, point))
    }
}

impl Underneath for Kernel {
    fn attach(&mut self, file: &Path, directory: &Path) -> Result<(), String> {
        let device = self.make(file, true)?;
        if file.file_name() != directory.file_name() {
            // Without the name of the run nobody would find it later.
            let noted = Notes::begin(directory).and_then(|mut notes| {
                let device = self.made.last().expect("made above");
                notes.take(Undo::Loop(device.clone()))
            });
            noted.map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        self.device = Some((device, directory.join("mnt")));
        let point = &self.device.as_ref().expect("set above").1;
        std::fs::create_dir(point).map_err(|error| format!("{}: {error}", point.display()))
    }

    fn attach_states(&mut self, file: &Path) -> Result<(), String> {
        // The file's own cache is the memory that it lies in.
        self.states = Some(self.make(file, false)?);
        Ok(())
    }

    fn choose(&mut self, device: Device) {
        self.chosen = device;
    }

    fn tool(&mut self, tool: &Tool) -> Result<(), String> {
        let (device, _) = self.device()?;
        let mut command = match tool.program.as_str() {
            // The tool of our stores is this program.
            "azekura" => Command::new(std::env::current_exe().map_err(|error| error.to_string())?),
            other => programs::command(other),
        };
        for argument in &tool.arguments {
            command.arg(if argument == "{}" { device } else { argument });
        }
        output(&mut command, tool.code_max).map(|_| ())
    }

    fn mount(&mut self, mount: &MountAs) -> Result<(), String> {
        // Whoever asked has looked, too; but what would be written to is a disk.
        check_mount_options(&mount.options)?;
        let (device, point) = self.device()?;
        let (flags, data) = split_options(&mount.options);
        let text = |text: &str| CString::new(text).map_err(|_| "a NUL byte".to_owned());
        let data = text(&data)?;
        let mounted = rustix::mount::mount(
            text(device)?,
            point,
            text(&mount.fs_type)?,
            flags,
            data.as_c_str(),
        );
        mounted.map_err(|errno| errno.to_string())?;
        self.is_mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), String> {
        let (_, point) = self.device()?;
        let point = point.to_owned();
        for _ in 0..UNMOUNT_TRIES {
            match rustix::mount::unmount(&point, UnmountFlags::NOFOLLOW) {
                Ok(()) => {
                    self.is_mounted = false;
                    return Ok(());
                }
                Err(Errno::BUSY) => thread::sleep(Duration::from_millis(10)),
                Err(errno) => return Err(format!("unmounting: {errno}")),
            }
        }
        Err("unmounting: it is in use".to_owned())
    }

    fn run(&mut self, step: &Step) -> Result<(), String> {
        step.run(self.mount_point()?)
            .map_err(|error| error.to_string())
    }

    fn look(&mut self, databases: &[String]) -> Result<Vec<Entry>, String> {
        let (_, point) = self.device()?;
        look(point, databases).map_err(|error| error.to_string())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let point = self.device.take().map(|(_, point)| point);
        if let Some(point) = point.as_ref().filter(|_| self.is_mounted) {
            // If the device is gone, the file system can write nothing any more; detaching does
            // not wait for anything.
            let tried = rustix::mount::unmount(point, UnmountFlags::NOFOLLOW);
            if tried.is_err() {
                let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
                let _ = rustix::mount::unmount(point, flags);
            }
        }
        for device in self.made.drain(..) {
            // If the run is gone, somebody else may have cleaned up already.
            let _ = device.detach();
        }
        if let Some(point) = point {
            let _ = std::fs::remove_dir(point);
        }
    }
}

/// Runs a program; what it printed, or how it failed, which is an exit code above `code_max` too.
///
/// # Errors
/// In words.
pub fn output(command: &mut Command, code_max: i32) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code().is_some_and(|code| code <= code_max) {
        return Ok(said);
    }
    let mut why = String::from_utf8_lossy(&output.stderr).into_owned();
    if why.trim().is_empty() {
        why = said;
    }
    let kept: String = why.trim().chars().take(VERIFY_TEXT_BYTES_MAX / 4).collect();
    Err(format!("{program}: {}: {kept}", output.status))
}

/// The options that are flags of mount(2), and the others, which are the file system's.
fn split_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut rest = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "defaults" | "rw" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            "nodev" => flags |= MountFlags::NODEV,
            "nosuid" => flags |= MountFlags::NOSUID,
            "noexec" => flags |= MountFlags::NOEXEC,
            other => rest.push(other),
        }
    }
    (flags, rest.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::lock_run;
    use super::*;

    #[test]
    fn flags_of_mount_are_not_handed_to_the_file_system() {
        let (flags, rest) = split_options("noatime,nobarrier,,ro,data=journal");
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::RDONLY);
        assert_eq!(rest, "nobarrier,data=journal");
    }

    #[test]
    fn nothing_is_done_without_a_device() {
        let mut kernel = Kernel::default();
        let said = answer(&mut kernel, Request::Unmount);
        assert_eq!(said, Answer::Failed("no device is attached".to_owned()));
        let said = answer(&mut kernel, Request::Run(Step::Sync));
        assert!(matches!(said, Answer::Failed(_)));
        // What names another device does not get as far as that.
        let mount = MountAs {
            fs_type: "xfs".into(),
            options: "logdev=/dev/sdb1".into(),
        };
        assert!(
            kernel
                .mount(&mount)
                .is_err_and(|why| why.contains("logdev"))
        );
        kernel.choose(Device::States);
        assert_eq!(kernel.device(), Err("no device is attached".to_owned()));
    }

    #[test]
    fn each_request_is_carried_out_on_its_own_device() {
        #[derive(Default)]
        struct Two {
            chosen: Device,
            used: Vec<(&'static str, Device)>,
        }
        impl Two {
            fn note(&mut self, what: &'static str) -> Result<(), String> {
                self.used.push((what, self.chosen));
                match (what, self.chosen) {
                    ("look", Device::States) => Err("broken".to_owned()),
                    _ => Ok(()),
                }
            }
        }
        impl Underneath for Two {
            fn attach(&mut self, _: &Path, _: &Path) -> Result<(), String> {
                self.note("attach")
            }
            fn choose(&mut self, device: Device) {
                self.chosen = device;
            }
            fn tool(&mut self, _: &Tool) -> Result<(), String> {
                self.note("tool")
            }
            fn mount(&mut self, _: &MountAs) -> Result<(), String> {
                self.note("mount")
            }
            fn unmount(&mut self) -> Result<(), String> {
                self.note("unmount")
            }
            fn run(&mut self, _: &Step) -> Result<(), String> {
                self.note("run")
            }
            fn look(&mut self, _: &[String]) -> Result<Vec<Entry>, String> {
                self.note("look").map(|()| Vec::new())
            }
        }
        let mut two = Two::default();
        let attempt = |device| Request::Try {
            device,
            repair: Vec::new(),
            mount: MountAs {
                fs_type: "ext4".into(),
                options: String::new(),
            },
            databases: Vec::new(),
        };
        let broken = answer(&mut two, attempt(Device::States));
        assert_eq!(broken, Answer::Unmountable("looking: broken".to_owned()));
        let found = answer(&mut two, attempt(Device::Recorded));
        assert_eq!(found, Answer::Found(Vec::new()));
        assert_eq!(answer(&mut two, Request::Run(Step::Sync)), Answer::Done);
        let refused = answer(&mut two, Request::AttachStates { file: "x".into() });
        assert!(matches!(refused, Answer::Failed(_)));
        let known = [
            ("mount", Device::States),
            ("look", Device::States),
            ("unmount", Device::States),
            ("mount", Device::Recorded),
            ("look", Device::Recorded),
            ("unmount", Device::Recorded),
            ("run", Device::Recorded),
        ];
        assert_eq!(two.used, known);
    }

    #[test]
    fn the_directory_of_a_run_is_in_use_until_its_actor_has_cleaned_up() {
        /// Tells at its end whether somebody else may clean up.
        struct Cleaning<'a>(PathBuf, &'a mut Vec<bool>);
        impl Cleaning<'_> {
            fn note(&mut self) {
                let is_free = lock_run(&self.0).unwrap().is_some();
                self.1.push(is_free);
            }
        }
        impl Underneath for Cleaning<'_> {
            fn attach(&mut self, _: &Path, _: &Path) -> Result<(), String> {
                self.note();
                Ok(())
            }
            fn tool(&mut self, _: &Tool) -> Result<(), String> {
                Ok(())
            }
            fn mount(&mut self, _: &MountAs) -> Result<(), String> {
                Ok(())
            }
            fn unmount(&mut self) -> Result<(), String> {
                Ok(())
            }
            fn run(&mut self, _: &Step) -> Result<(), String> {
                Ok(())
            }
            fn look(&mut self, _: &[String]) -> Result<Vec<Entry>, String> {
                Ok(Vec::new())
            }
        }
        impl Drop for Cleaning<'_> {
            fn drop(&mut self) {
                self.note();
            }
        }
        let directory = std::env::temp_dir().join(format!("held-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let request = Request::Attach {
            file: "x".into(),
            directory: directory.clone(),
        };
        let (mut asked, mut answered, mut is_free) = (Vec::new(), Vec::new(), Vec::new());
        send(&mut asked, &request).unwrap();
        let cleaning = Cleaning(directory.clone(), &mut is_free);
        serve(&mut asked.as_slice(), &mut answered, cleaning).unwrap();
        let answer = receive::<Answer>(&mut answered.as_slice()).unwrap();
        assert_eq!((answer, is_free), (Answer::Done, vec![false, false]));
        // What somebody cleans up is not used.
        let cleaner = lock_run(&directory).unwrap();
        assert!(cleaner.is_some() && hold(&directory).is_err());
        drop(cleaner);
        assert!(hold(&directory).is_ok());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_tool_that_fails_says_why() {
        let run = |script: &str, max| output(Command::new("sh").args(["-c", script]), max);
        assert_eq!(run("echo done; exit 1", 1).unwrap(), "done\n");
        let said = run("echo broken >&2; exit 4", 1).unwrap_err();
        assert!(said.ends_with("4: broken"), "{said}");
        assert!(output(&mut Command::new("no-such-tool"), 0).is_err());
    }
}
