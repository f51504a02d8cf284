//! The mounts of this machine, seen from outside their processes.
//!
//! A mount is found in the kernel's list by its path and asked through extended attributes of its
//! root. Asking can hang as long as the mount's own time-out, so it is done by a thread that is
//! left behind when its time is over; the list is read without touching the mount, so that one that
//! does not answer can still be found and taken off.

use crate::errors::{Code, Context, Failure, Result, plain_io};
use crate::process;
use ::mount::kernel;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Type of our mounts in the list.
const FS_TYPE: &[u8] = b"fuse.azekura";
/// Type of disks that are attached, which are asked otherwise.
const DISK_TYPE: &[u8] = b"fuse.azekura-disk";
/// The figures of a mount fit many times.
const STATUS_BYTES_MAX: usize = 64 << 10;
/// Symbolic links followed on the way of one path: as many as the kernel follows.
const LINKS_MAX: u32 = 40;
/// Where something else was named than a directory.
const WANTED: &str = "name a directory of this machine that is mounted, or one below it; a server \
                      is HOST:PORT, and azekura status HOST:PORT shows it";
/// The same of where something is mounted.
const LISTED: &str = "name the directory that a volume is mounted on; \
                      findmnt -t fuse.azekura lists them";
/// The kernel gives attributes of this class without looking at the inode's mode, which it may have
/// to ask the server for: so the answer comes while the server is silent, too.
const STATUS: &str = "system.azekura.status";
const SYNC: &str = "system.azekura.sync";
/// Questions of this process that are not answered yet, also those that nobody waits for.
static QUESTIONS: AtomicUsize = AtomicUsize::new(0);
/// For how long a mount that they use is not called in use.
const QUESTIONS_TIME_MAX: Duration = Duration::from_secs(2);
const QUESTIONS_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A mounted volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Where.
    pub(crate) path: PathBuf,
    /// What: `ADDR/VOLUME`.
    pub(crate) source: String,
    /// Its number in the kernel's list.
    id: u32,
    /// Its number under `/sys/fs/fuse/connections`.
    connection: u32,
}

impl Mounted {
    /// The mount whose root is `path`.
    ///
    /// # Errors
    /// [`Code::NotMounted`].
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let real = real_path(path).map_err(|failure| or_hint(failure, LISTED))?;
        let mut mounts = list()?;
        mounts.retain(|mount| mount.path == real);
        // The last one of the list lies on top.
        mounts.pop().ok_or_else(|| not_mounted(path))
    }

    /// The disk whose directory is `path`, an absolute path without links.
    ///
    /// # Errors
    /// [`Code::NotMounted`].
    pub(crate) fn disk_at(path: &Path) -> Result<Self> {
        let mut mounts = list_of(DISK_TYPE)?;
        mounts.retain(|mount| mount.path == path);
        mounts.pop().ok_or_else(|| not_mounted(path))
    }

    /// The mount in which `path` lies.
    ///
    /// # Errors
    /// [`Code::NotMounted`].
    pub(crate) fn containing(path: &Path) -> Result<Self> {
        let real = real_path(path).map_err(|failure| or_hint(failure, WANTED))?;
        let mut mounts = list()?;
        mounts.retain(|mount| real.starts_with(&mount.path));
        mounts.sort_by_key(|mount| mount.path.components().count());
        mounts.pop().ok_or_else(|| not_mounted(path))
    }

    /// Its figures, asked for within `time_max`.
    ///
    /// # Errors
    /// [`Code::MountSilent`].
    pub(crate) fn status(&self, time_max: Duration) -> Result<Value> {
        let path = self.path.clone();
        let text = within(time_max, move || {
            let mut buffer = vec![0; STATUS_BYTES_MAX];
            let len = rustix::fs::getxattr(&path, STATUS, buffer.as_mut_slice())?;
            buffer.truncate(len);
            Ok(buffer)
        });
        let text = text
            .unwrap_or(Err(Errno::TIMEDOUT))
            .map_err(|errno| self.silent(errno))?;
        serde_json::from_slice(&text).map_err(|error| {
            Failure::new(
                Code::Protocol,
                format!("the mount's figures are unreadable: {error}"),
            )
        })
    }

    /// Begins to make everything written durable; the outcome can be waited for.
    pub(crate) fn sync(&self) -> mpsc::Receiver<Result<(), Errno>> {
        let path = self.path.clone();
        // Setting it would do the same, and needs the right to write to the volume's root.
        in_thread(move || rustix::fs::getxattr(&path, SYNC, &mut [0u8; 8]).map(drop))
    }

    /// What an error of asking the mount means.
    pub(crate) fn silent(&self, errno: Errno) -> Failure {
        let what = format!("the mount on {}", self.path.display());
        match errno {
            Errno::TIMEDOUT => Failure::new(Code::MountSilent, format!("{what} does not answer"))
                .hint(format!(
                    "azekura umount --force {} takes it off; what is unwritten is lost",
                    self.path.display()
                )),
            Errno::NOTCONN | Errno::CONNABORTED => Failure::new(
                Code::MountSilent,
                format!("the process of {what} has ended"),
            )
            .hint(format!(
                "azekura umount {} takes it off",
                self.path.display()
            )),
            Errno::ACCESS | Errno::PERM => Failure::new(
                Code::FileDenied,
                format!("this user may not ask {what}: {}", plain_io(&errno.into())),
            )
            .hint("ask as the user who mounted it, or as root"),
            _ => Failure::new(
                Code::FileFailed,
                format!("{what}: {}", plain_io(&errno.into())),
            ),
        }
    }

    /// Whether the process behind it is gone: every question is refused at once.
    pub(crate) fn has_ended(&self, time_max: Duration) -> bool {
        let path = self.path.clone();
        let asked = within(time_max, move || {
            rustix::fs::getxattr(&path, STATUS, &mut [0u8; 8]).map(drop)
        });
        matches!(asked, Some(Err(Errno::NOTCONN | Errno::CONNABORTED)))
    }

    /// Whether it is still in the list.
    ///
    /// # Errors
    /// Of reading the list.
    pub(crate) fn is_there(&self) -> Result<bool> {
        Ok(list()?.contains(self))
    }

    /// Takes it off; `detach` does so although programs use it.
    ///
    /// # Errors
    /// [`Code::MountBusy`], [`Code::FileDenied`].
    pub(crate) fn unmount(&self, detach: bool) -> Result<()> {
        let deadline = Instant::now() + QUESTIONS_TIME_MAX;
        loop {
            let is_asked = QUESTIONS.load(Ordering::Acquire) > 0;
            match self.unmount_now(detach) {
                // A question of ours that nobody waits for any more uses it until it is answered.
                Err(failure)
                    if failure.code() == Code::MountBusy
                        && is_asked
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(QUESTIONS_LOOK_INTERVAL);
                }
                outcome => return outcome,
            }
        }
    }

    fn unmount_now(&self, detach: bool) -> Result<()> {
        let flags = if detach {
            UnmountFlags::DETACH
        } else {
            UnmountFlags::empty()
        };
        let what = format!("cannot unmount {}", self.path.display());
        match rustix::mount::unmount(&self.path, flags | UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(Errno::PERM) => self.unmount_by_helper(detach),
            Err(Errno::BUSY) => Err(self.busy()),
            Err(errno) => Err(Failure::local(what, plain_io(&errno.into()))),
        }
    }

    /// Users other than root may take off what they mounted, through a helper that is set-uid root.
    fn unmount_by_helper(&self, detach: bool) -> Result<()> {
        let mut helper = Command::new("fusermount3");
        helper
            .arg("-u")
            .args(detach.then_some("-z"))
            .arg("--")
            .arg(&self.path);
        let output = helper
            .stdin(Stdio::null())
            .output()
            .context("fusermount3")?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let code = if said.contains("busy") {
            Code::MountBusy
        } else {
            Code::FileDenied
        };
        let message = format!("cannot unmount {}: {said}", self.path.display());
        let failure = Failure::new(code, message);
        Err(match code {
            Code::FileDenied => {
                failure.hint("only root and the user who mounted it may take it off")
            }
            _ => failure.hint(self.who_uses_it()),
        })
    }

    /// Whether it could be taken off now, as far as this user may look at processes. The mount is
    /// not asked.
    ///
    /// # Errors
    /// [`Code::MountBusy`].
    pub(crate) fn check_unused(&self) -> Result<()> {
        let all = kernel::mounts().context("the list of mounts")?;
        let is_within = |path: &Path| path != self.path && path.starts_with(&self.path);
        if let Some(other) = all.iter().find(|mount| is_within(&mount.path)) {
            let (path, other) = (self.path.display(), other.path.display());
            let message = format!("{path} is in use: something is mounted on {other}");
            return Err(Failure::new(Code::MountBusy, message).hint("take that off first"));
        }
        if process::is_used(&self.path, self.id, self.connection) {
            return Err(self.busy());
        }
        Ok(())
    }

    fn busy(&self) -> Failure {
        let message = format!("{} is in use by programs", self.path.display());
        Failure::new(Code::MountBusy, message).hint(self.who_uses_it())
    }

    fn who_uses_it(&self) -> String {
        let path = self.path.display();
        format!(
            "fuser -vm {path} shows which; --lazy detaches it now and ends it when they are done"
        )
    }

    /// Breaks the connection between kernel and mount: everybody who waits gets an error.
    ///
    /// # Errors
    /// Where the kernel's list of connections is not ours to write; the mount can still be
    /// detached.
    pub(crate) fn abort(&self) -> Result<()> {
        let path = format!("/sys/fs/fuse/connections/{}/abort", self.connection);
        std::fs::write(&path, "1").context(path)
    }
}

/// With that hint, unless there is one.
fn or_hint(failure: Failure, hint: &str) -> Failure {
    match failure.hint_text().is_empty() {
        true => failure.hint(hint),
        false => failure,
    }
}

fn not_mounted(path: &Path) -> Failure {
    Failure::new(
        Code::NotMounted,
        format!("no volume is mounted on {}", path.display()),
    )
}

/// The path without symbolic links, found out without asking the file systems that are mounted by
/// us: it is walked name by name, and what lies on such a mount is taken as it is written. `..` on
/// the way back from one, as in `../mnt` within it, so needs no answer of the mount either.
fn real_path(path: &Path) -> Result<PathBuf> {
    let known = list()?;
    let is_ours = |path: &Path| known.iter().any(|mount| path.starts_with(&mount.path));
    // The kernel keeps the working directory without links.
    let absolute = std::path::absolute(path).context(path.display())?;
    let mut links = 0;
    let mut real = PathBuf::from("/");
    let mut waiting = names_in_reverse(&absolute);
    while let Some(name) = waiting.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        if is_ours(&next) {
            real = next;
            continue;
        }
        match rustix::fs::readlink(&next, Vec::new()) {
            // It is there and no link.
            Err(Errno::INVAL) => real = next,
            Err(errno) => return Err(errno).context(path.display()),
            Ok(_) if links == LINKS_MAX => return Err(Errno::LOOP).context(path.display()),
            Ok(leads_to) => {
                links += 1;
                let leads_to = PathBuf::from(OsString::from_vec(leads_to.into_bytes()));
                if leads_to.is_absolute() {
                    real = PathBuf::from("/");
                }
                waiting.extend(names_in_reverse(&leads_to));
            }
        }
    }
    Ok(real)
}

/// The names of a path, the first one last; `..` is one of them, `/` and `.` are not.
fn names_in_reverse(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    });
    names.collect()
}

fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    QUESTIONS.fetch_add(1, Ordering::AcqRel);
    std::thread::spawn(move || {
        let answer = work();
        QUESTIONS.fetch_sub(1, Ordering::AcqRel);
        // Nobody may be waiting any more.
        let _ = sender.send(answer);
    });
    receiver
}

fn within<T: Send + 'static>(
    time_max: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    in_thread(work).recv_timeout(time_max).ok()
}

fn list() -> Result<Vec<Mounted>> {
    list_of(FS_TYPE)
}

fn list_of(fs_type: &[u8]) -> Result<Vec<Mounted>> {
    let all = kernel::mounts().context("the list of mounts")?;
    let found = all.into_iter().filter_map(|mount| of_type(fs_type, mount));
    Ok(found.collect())
}

fn of_type(fs_type: &[u8], mount: kernel::Mounted) -> Option<Mounted> {
    (mount.fs_type == fs_type).then(|| Mounted {
        path: mount.path,
        source: String::from_utf8_lossy(&mount.source).into_owned(),
        id: mount.id,
        connection: mount.minor,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_mounts_count() {
        let ours = kernel::Mounted {
            id: 36,
            minor: 98,
            path: PathBuf::from("/mnt/a b"),
            fs_type: FS_TYPE.to_vec(),
            source: b"far:7700/v".to_vec(),
        };
        let expected = Mounted {
            path: PathBuf::from("/mnt/a b"),
            source: "far:7700/v".to_owned(),
            id: 36,
            connection: 98,
        };
        let other = kernel::Mounted {
            fs_type: b"fuse.sshfs".to_vec(),
            ..ours.clone()
        };
        let of_ours = |mount| of_type(FS_TYPE, mount);
        assert_eq!([of_ours(ours), of_ours(other)], [Some(expected), None]);
    }

    #[test]
    fn what_is_not_mounted_is_said_so() {
        let failure = Mounted::at(Path::new("/")).expect_err("the root is no volume");
        assert_eq!(failure.code(), Code::NotMounted);
        assert!(Mounted::containing(Path::new("/proc/self")).is_err());
    }

    #[test]
    fn links_and_ways_back_are_resolved_where_nothing_of_ours_is_mounted() {
        let scratch = tempfile::tempdir().expect("a directory");
        let root = scratch.path().canonicalize().expect("it is there");
        std::fs::create_dir_all(root.join("a/b")).expect("room on the disk");
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, root.join(name));
        link("a/b", "relative").expect("room on the disk");
        link("loop", "loop").expect("room on the disk");
        link(root.to_str().expect("UTF-8"), "a/up").expect("room on the disk");
        let real = |path: &str| real_path(&root.join(path));
        for path in ["a/b/../b", "relative", "relative/../b", "a/up/./a/b"] {
            assert_eq!(real(path).expect(path), root.join("a/b"), "{path}");
        }
        assert_eq!(
            real_path(Path::new("/../")).expect("the root"),
            Path::new("/")
        );
        for path in ["missing", "missing/../a", "loop"] {
            assert_eq!(real(path).expect_err(path).code(), Code::Local, "{path}");
        }
    }

    #[test]
    fn a_question_that_hangs_is_given_up() {
        let pause = Duration::from_secs(60);
        let hanging = move || std::thread::sleep(pause);
        assert!(within(Duration::from_millis(10), hanging).is_none());
        assert_eq!(within(pause, || 1), Some(1));
    }
}
