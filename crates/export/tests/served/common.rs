//! What the tests share: a served tree in a directory of its own, users of this machine, and file
//! systems that exist for one test.

#![allow(dead_code, reason = "each test program uses a part of it")]
use base::{Handle, Name, Principal, VolumeId};
use export::{Export, ExportOptions, HandleKey, Node, Worker};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

/// Whether the test can run; says why not.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: acting for several users takes root");
    }
    root
}

pub(crate) fn options() -> ExportOptions {
    ExportOptions::new(VolumeId([7; 16]), HandleKey::new([42; 32]))
}

pub(crate) fn name(name: &str) -> Name {
    Name::new(name).expect("a legal name")
}

/// An exported directory with a worker for the test's thread.
pub(crate) struct Served {
    pub(crate) export: Export,
    pub(crate) worker: Worker,
    pub(crate) path: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Served {
    /// An empty directory of its own, which everybody may search.
    pub(crate) fn temporary() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        open_to_all(directory.path());
        let mut served = Self::at(directory.path());
        served._directory = Some(directory);
        served
    }

    /// The same, without lists in memory: each look reads what lies beside the file.
    pub(crate) fn forgetful() -> Self {
        let mut served = Self::temporary();
        served.export = Self::forgetful_export(&served.path);
        served
    }

    pub(crate) fn forgetful_export(path: &Path) -> Export {
        let options = ExportOptions {
            keeps_lists: false,
            ..options()
        };
        Export::open(path, &options).expect("exportable")
    }

    pub(crate) fn at(path: &Path) -> Self {
        Self {
            export: Export::open(path, &options()).expect("exportable"),
            worker: Worker::new().expect("one worker per thread"),
            path: path.to_owned(),
            _directory: None,
        }
    }

    pub(crate) fn root(&self) -> Handle {
        self.export.root().clone()
    }

    /// Walks to `path` as root.
    pub(crate) fn find(&self, path: &str) -> Node {
        let root = Principal::root();
        let mut handle = self.root();
        let mut found = None;
        for part in path.split('/') {
            let node = self
                .export
                .lookup(&self.worker, &root, &handle, &name(part));
            let node = node.unwrap_or_else(|e| panic!("{path}: {e}"));
            handle = node.handle.clone();
            found = Some(node);
        }
        found.expect("a path has a component")
    }
}

pub(crate) fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("own directory");
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that is a user in every respect, as a process of that user would be: real, effective
/// and saved ids, groups, no capabilities, its own umask.
pub(crate) struct LocalUser {
    pub(crate) principal: Principal,
    jobs: mpsc::Sender<Job>,
}

impl LocalUser {
    pub(crate) fn new(principal: Principal) -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let who = principal.clone();
        std::thread::spawn(move || {
            become_user(&who);
            queue.into_iter().for_each(|job| job());
        });
        Self { principal, jobs }
    }

    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.begin(job).recv().expect("the job ends")
    }

    /// The same beside the test; where the result comes.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (reply, result) = mpsc::channel();
        let job = move || {
            reply.send(job()).expect("the test waits");
        };
        self.jobs
            .send(Box::new(job))
            .expect("the user's thread runs");
        result
    }
}

fn become_user(who: &Principal) {
    use rustix::thread::{Gid, Uid};
    #[expect(
        deprecated,
        reason = "safe with the one flag that concerns no descriptor"
    )]
    rustix::thread::unshare(rustix::thread::UnshareFlags::FS).expect("root may");
    let groups: Vec<_> = who.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups).expect("root may");
    let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid).expect("root may");
    rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
}

/// A small ext4 of its own for a test that makes many inodes: ext4 looks long for one that was not
/// freed a moment ago, and the next test should not have to wait for what this one removed.
pub(crate) fn ext4() -> Option<Mounted> {
    let small = ["-q", "-b", "1024", "-N", "200000", "-O", "^has_journal"];
    Mounted::image("mkfs.ext4", &small, 512 << 20, "noatime")
}

/// A file system that is mounted for one test.
pub(crate) struct Mounted {
    pub(crate) path: PathBuf,
    directory: tempfile::TempDir,
}

impl Mounted {
    /// A tmpfs of `bytes`; `None`, with a reason printed, where mounting is not possible.
    pub(crate) fn tmpfs(bytes: u64) -> Option<Self> {
        let size = format!("size={bytes},mode=755");
        Self::mount(&["-t", "tmpfs", "-o", &size, "tmpfs"])
    }

    /// A file system in an image of `bytes`, made by `mkfs` with `arguments`.
    pub(crate) fn image(mkfs: &str, arguments: &[&str], bytes: u64, options: &str) -> Option<Self> {
        // In memory, where there is such a place: nothing here is to outlive the test.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let directory = tempfile::tempdir_in(place).expect("a temporary directory");
        let image = directory.path().join("image");
        let file = std::fs::File::create(&image).expect("own directory");
        file.set_len(bytes).expect("sparse");
        let image = image.to_str().expect("a plain path");
        if !quiet(Command::new(mkfs).args(arguments).arg(image)) {
            eprintln!("skipped: {mkfs} does not run here");
            return None;
        }
        let options = format!("loop,{options}");
        let arguments = ["-o", &options, image];
        let mounted = Self::mount_in(directory, &arguments)?;
        open_to_all(&mounted.path);
        Some(mounted)
    }

    /// A file system in an image that is there already.
    pub(crate) fn of_image(image: &Path, options: &str) -> Option<Self> {
        let options = format!("loop,{options}");
        let mounted = Self::mount(&["-o", &options, image.to_str().expect("a plain path")])?;
        open_to_all(&mounted.path);
        Some(mounted)
    }

    fn mount(arguments: &[&str]) -> Option<Self> {
        Self::mount_in(
            tempfile::tempdir().expect("a temporary directory"),
            arguments,
        )
    }

    fn mount_in(directory: tempfile::TempDir, arguments: &[&str]) -> Option<Self> {
        open_to_all(directory.path());
        let path = directory.path().join("mnt");
        std::fs::create_dir(&path).expect("own directory");
        if !quiet(Command::new("mount").args(arguments).arg(&path)) {
            eprintln!("skipped: mount {} does not work here", arguments.join(" "));
            return None;
        }
        Some(Self { path, directory })
    }
}

impl Mounted {
    /// Unmounts an image and mounts it again, after which the kernel remembers nothing of it.
    pub(crate) fn remount(&self) {
        let (image, path) = (self.directory.path().join("image"), self.path.display());
        // What other tests start has this one's descriptors until it is another program.
        shell(&format!(
            "timeout 20 sh -c 'until umount {path}; do sleep 0.1; done' && mount -o loop {} {path}",
            image.display()
        ));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a failing test may still hold descriptors.
        quiet(Command::new("umount").arg("-l").arg(&self.path));
    }
}

/// Runs a program without its output and tells whether it succeeded.
pub(crate) fn quiet(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs a program of this machine, which is another process than the test's.
pub(crate) fn shell(script: &str) {
    let output = Command::new("sh")
        .args(["-c", script])
        .output()
        .expect("there is a shell");
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Whether `holds` comes true within two seconds. Inodes and space become free with a delay that is
/// not the export's: a program that another test starts has every descriptor of this process for
/// the moment between fork and exec.
pub(crate) fn eventually(holds: impl Fn() -> bool) -> bool {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
    while std::time::Instant::now() < end {
        if holds() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    false
}

/// Tells the threads of a scope to stop when the test ends, also when it ends with a panic: the
/// scope would wait for them for ever.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a std::sync::atomic::AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
