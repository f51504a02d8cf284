//! What a run has changed on the machine, and how it was before.
//!
//! Whatever outlives a process is noted in a file of the run's directory before it is made or
//! changed: files, directories in those of others, control groups, parameters of the kernel;
//! durably, if it is still there when the machine has been started again. The actor takes it back
//! when it ends; if it was killed, the next run finds the directory unlocked and does it. A loop
//! device is found by the name of its file ([`crate::actor::stale()`]), unless the file is another
//! program's, and mounts end with the run's processes.
//!
//! What is noted is believed only if it is the user's own note, and obeyed only if it is about
//! something with the name of the run, or about a parameter that a run can have set. Parameters are
//! those of one start of the machine: after another one they are left alone.

use crate::actor::Loop;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The file of notes in the directory of a run.
const NOTES: &str = "undo";
/// What else is in such a directory.
const OTHERS: [&str; 2] = ["out", "err"];
const DIRECTORIES: [&str; 2] = ["mnt", "device"];
/// For programs that were stopped and have not left their group yet: those that wait for a disk
/// leave when it has answered.
const GROUP_TIME_MAX: Duration = Duration::from_secs(10);
/// Notes are few and short.
const NOTES_BYTES_MAX: u64 = 1 << 20;

/// How something is taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Undo {
    /// Of one start of the machine.
    Boot(String),
    /// A parameter had this value.
    Parameter { path: PathBuf, value: String },
    /// A file was made.
    File(PathBuf),
    /// A directory was made, with whatever is in it.
    Tree(PathBuf),
    /// A control group was made.
    Group(PathBuf),
    /// A loop device was made.
    Loop(Loop),
}

impl Undo {
    /// Takes it back; what is not there any more is no error.
    pub(super) fn act(&self) -> io::Result<()> {
        let gone = match self {
            Self::Boot(_) => Ok(()),
            Self::Parameter { path, value } => fs::write(path, value),
            Self::File(path) => fs::remove_file(path),
            Self::Tree(path) => fs::remove_dir_all(path),
            Self::Group(path) => remove_group(path),
            Self::Loop(device) => device.detach().map_err(io::Error::other),
        };
        match gone {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether it is still there when the machine has been started again. What is not needs no
    /// durable note: what is written outlives every process, and a sync may wait for all that
    /// others write to the same disk.
    const fn outlasts_the_machine(&self) -> bool {
        match self {
            Self::Boot(_) | Self::Parameter { .. } | Self::Group(_) | Self::Loop(_) => false,
            Self::File(_) | Self::Tree(_) => true,
        }
    }

    /// Whether a run with this name can have noted it.
    fn is_of(&self, run: &str) -> bool {
        let is_named =
            |path: &Path| path.is_absolute() && path.file_name().is_some_and(|name| name == run);
        match self {
            Self::Boot(_) => true,
            Self::Parameter { path, .. } => {
                let is_one = |known: &str| path.file_name().is_some_and(|name| name == known);
                let of_device = ["read_ahead_kb", "max_sectors_kb"].into_iter().any(is_one);
                let is_queue = path.starts_with("/sys/block") && of_device;
                let is_plain = !path.to_string_lossy().contains("..");
                let is_xfs = path == Path::new("/proc/sys/fs/xfs/xfssyncd_centisecs");
                is_plain && (is_queue || is_xfs || path.starts_with("/proc/sys/vm"))
            }
            Self::File(path) | Self::Tree(path) | Self::Group(path) => is_named(path),
            Self::Loop(device) => device.is_named_as_one(),
        }
    }
}

/// Removes a control group; what is still ending in it gets time for that.
fn remove_group(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + GROUP_TIME_MAX;
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                if Instant::now() >= deadline {
                    return Err(error);
                }
                thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

/// Notes that are being taken.
#[derive(Debug)]
pub(crate) struct Notes {
    file: File,
    taken: Vec<Undo>,
}

impl Notes {
    /// Begins in the directory of a run.
    pub(crate) fn begin(directory: &Path) -> io::Result<Self> {
        let file = File::options()
            .create_new(true)
            .append(true)
            .open(directory.join(NOTES))?;
        let mut notes = Self {
            file,
            taken: Vec::new(),
        };
        notes.take(Undo::Boot(boot()))?;
        Ok(notes)
    }

    /// Notes something that is about to be done, unless that stands there already.
    pub(crate) fn take(&mut self, undo: Undo) -> io::Result<()> {
        if self.taken.contains(&undo) {
            return Ok(());
        }
        let mut line = serde_json::to_string(&undo).map_err(io::Error::other)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        if undo.outlasts_the_machine() {
            self.file.sync_data()?;
        }
        self.taken.push(undo);
        Ok(())
    }

    /// Takes everything back, the last thing first; what failed.
    pub(crate) fn undo(&mut self) -> Vec<String> {
        undo_all(&std::mem::take(&mut self.taken))
    }
}

fn undo_all(taken: &[Undo]) -> Vec<String> {
    let mut failed = Vec::new();
    for undo in taken.iter().rev() {
        if let Err(error) = undo.act() {
            failed.push(format!("{undo:?}: {error}"));
        }
    }
    failed
}

/// Which start of the machine this is.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Takes back what the notes in a directory say, and removes the directory, in which nothing is
/// mounted any more. What could not be taken back.
pub fn clean_up(directory: &Path) -> Vec<String> {
    let failed = take_back(directory);
    if failed.is_empty() {
        remove(directory);
    }
    failed
}

/// Takes back what the notes in a directory say, which stays. What could not be taken back.
pub fn take_back(directory: &Path) -> Vec<String> {
    let failed = match read(directory) {
        Ok(taken) => undo_all(&taken),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => vec![format!("{}: {error}", directory.display())],
    };
    // Without its notes, nobody could try again.
    if failed.is_empty() {
        let _ = fs::remove_file(directory.join(NOTES));
    }
    failed
}

/// Whether the notes in a directory are about parameters of the machine. Only who holds the lock of
/// [`super::MACHINE`] may take those back: another run may have set them meanwhile.
#[must_use]
pub fn has_parameters(directory: &Path) -> bool {
    let is_one = |undo: &Undo| matches!(undo, Undo::Parameter { .. });
    read(directory).is_ok_and(|taken| taken.iter().any(is_one))
}

/// The loop devices of which the notes in a directory tell.
pub(crate) fn noted_loops(directory: &Path) -> Vec<Loop> {
    let taken = read(directory).unwrap_or_default().into_iter();
    let device = |undo| match undo {
        Undo::Loop(device) => Some(device),
        _ => None,
    };
    taken.filter_map(device).collect()
}

/// Removes the directory of a run and nothing that is not a run's.
pub(crate) fn remove(directory: &Path) {
    for name in DIRECTORIES {
        let _ = fs::remove_dir(directory.join(name));
    }
    for name in OTHERS.into_iter().chain([NOTES]) {
        let _ = fs::remove_file(directory.join(name));
    }
    let _ = fs::remove_dir(directory);
}

/// The notes in a directory, as far as they are to be obeyed.
fn read(directory: &Path) -> io::Result<Vec<Undo>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(directory.join(NOTES), flags, Mode::empty())?);
    let (of_file, of_directory) = (file.metadata()?, fs::symlink_metadata(directory)?);
    let own = rustix::process::geteuid().as_raw();
    let is_own = |uid: u32, mode: u32| uid == own && mode & 0o022 == 0;
    let is_believed = of_file.is_file()
        && is_own(of_file.uid(), of_file.mode())
        && is_own(of_directory.uid(), of_directory.mode());
    if !is_believed {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if of_file.len() > NOTES_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let text = io::read_to_string(file)?;
    let run = directory.file_name().unwrap_or_default().to_string_lossy();
    Ok(obeyed(&text, &run, &boot()))
}

/// What is to be obeyed of the notes of a run, on this start of the machine. A line that was not
/// finished is about something that was not begun.
fn obeyed(text: &str, run: &str, boot: &str) -> Vec<Undo> {
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let all: Vec<Undo> = lines.filter(|undo: &Undo| undo.is_of(run)).collect();
    let is_this_start = all.contains(&Undo::Boot(boot.to_owned()));
    let is_obeyed = |undo: &Undo| match undo {
        Undo::Boot(_) => false,
        Undo::Parameter { .. } | Undo::Group(_) | Undo::Loop(_) => is_this_start,
        Undo::File(_) | Undo::Tree(_) => true,
    };
    all.into_iter().filter(is_obeyed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const RUN: &str = "azekura-verify-x1";

    fn line(undo: &Undo) -> String {
        format!("{}\n", serde_json::to_string(undo).unwrap())
    }

    #[test]
    fn only_what_a_run_can_have_noted_is_obeyed() {
        let parameter = |path: &str| Undo::Parameter {
            path: path.into(),
            value: "1".into(),
        };
        let device = |name: &str| {
            let device = serde_json::json!({"name": name, "file_name": "x", "sequence": 1});
            Undo::Loop(serde_json::from_value(device).unwrap())
        };
        let good = [
            parameter("/proc/sys/vm/dirty_ratio"),
            parameter("/sys/block/loop3/queue/read_ahead_kb"),
            parameter("/proc/sys/fs/xfs/xfssyncd_centisecs"),
            Undo::File(format!("/var/tmp/{RUN}").into()),
            Undo::Tree(format!("/mnt/far/{RUN}").into()),
            Undo::Group(format!("/sys/fs/cgroup/memory/{RUN}").into()),
            device("loop3"),
        ];
        let bad = [
            parameter("/proc/sys/vm/../kernel/core_pattern"),
            parameter("/proc/sys/kernel/core_pattern"),
            parameter("/proc/sys/fs/xfs/panic_mask"),
            parameter("/sys/block/sda/queue/scheduler"),
            parameter("/etc/read_ahead_kb"),
            Undo::File("/etc/passwd".into()),
            Undo::Tree("/mnt/far".into()),
            Undo::Tree(RUN.into()),
            Undo::Group("/sys/fs/cgroup/memory/other".into()),
            device("sda"),
            device("loop"),
            device("loop3/../sda"),
        ];
        let boot = line(&Undo::Boot("b".into()));
        let text: String = good.iter().chain(&bad).map(line).collect();
        let torn = "{\"File\":\"/var/tmp/azek";
        let found = obeyed(&format!("{boot}{text}{torn}"), RUN, "b");
        assert_eq!(found, good);
        // After another start of the machine its parameters are somebody else's.
        let found = obeyed(&format!("{boot}{text}"), RUN, "c");
        assert_eq!(found, good[3..5]);
    }

    #[test]
    fn what_was_noted_is_taken_back_by_whoever_comes_next() {
        let parent = std::env::temp_dir().join(format!("undo-{}", std::process::id()));
        let (directory, other) = (parent.join(RUN), parent.join("other").join(RUN));
        fs::create_dir_all(&directory).unwrap();
        fs::create_dir_all(&other).unwrap();
        let mut notes = Notes::begin(&directory).unwrap();
        notes.take(Undo::Tree(other.clone())).unwrap();
        assert!(!has_parameters(&directory) && !has_parameters(&other));
        fs::write(other.join("data"), "x").unwrap();
        fs::create_dir(directory.join("mnt")).unwrap();
        // Notes that others can change are not believed, and nothing is removed.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(clean_up(&directory).len(), 1);
        assert!(other.exists() && directory.exists());
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(clean_up(&directory), [""; 0]);
        assert!(!other.exists() && !directory.exists());
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn the_last_thing_is_taken_back_first_and_what_fails_is_said() {
        let directory = std::env::temp_dir().join(format!("undo-order-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut notes = Notes::begin(&directory).unwrap();
        let parameter = directory.join("parameter");
        for value in ["first", "second"] {
            let (path, value) = (parameter.clone(), value.to_owned());
            notes.take(Undo::Parameter { path, value }).unwrap();
        }
        notes.take(Undo::Group(directory.clone())).unwrap();
        // It is no parameter that a run can have set.
        assert!(!has_parameters(&directory));
        let failed = notes.undo();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(fs::read_to_string(&parameter).unwrap(), "first");
        assert_eq!(notes.undo(), [""; 0]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
