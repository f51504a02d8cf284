//! Disks: published, served over NBD and FUSE from a plain web server, changed, committed.
//!
//! | file | what |
//! |---|---|
//! | `served` | NBD, by other programs |
//! | `attached` | FUSE and loop devices |
//! | `written` | what is written, over kills and commits |
//! | `killed` | overlays under a file system, killed at any moment |
//! | `trained` | runs that are recorded; images that are kept; mirrors |
//! | `refused` | errors, each with its code; whose word counts |
//! | `boots` | a machine whose root file system is a disk |
//! | `story` | one image for many machines, from its publication to its third version |
//! | `volumes` | repositories in volumes |
//! | `bucket` | repositories in a bucket of S3 |
//! | `web` | a plain web server |
//! | `client` | a client of NBD |

mod attached;
mod boots;
mod bucket;
mod client;
mod killed;
mod refused;
mod served;
mod story;
mod trained;
mod volumes;
mod web;
mod written;

use crate::checks::json;
use crate::common::{Run, run, text};
use crate::random::Random;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A machine with a repository and a configuration of its own. Disks that it uses go with it.
pub(crate) struct Scene {
    directory: TempDir,
    /// Of the environment of its programs.
    variables: Vec<(&'static str, String)>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let builder = tempfile::Builder::new().prefix("azekura-disk-").tempdir();
        Self {
            directory: builder.unwrap(),
            variables: Vec::new(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, config: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
        command
            .arg("disk")
            .env("AZEKURA_CONFIG_DIR", self.path(config))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env_remove("RUST_LOG")
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs `azekura disk ...` in the scene's directory.
    #[track_caller]
    pub(crate) fn disk(&self, arguments: &[&str]) -> Run {
        self.disk_as("config", arguments)
    }

    /// The same, with arguments that have no blanks.
    #[track_caller]
    fn line(&self, arguments: impl AsRef<str>) -> Run {
        self.disk(&arguments.as_ref().split(' ').collect::<Vec<_>>())
    }

    /// The same, as somebody else.
    #[track_caller]
    fn disk_as(&self, config: &str, arguments: &[&str]) -> Run {
        run(self.command(config).args(arguments))
    }

    /// Publishes an image into `www/images`.
    #[track_caller]
    fn publish(&self, image: &Path, name: &str) -> Value {
        let to = ["--to", "www/images", "--chunk-size", "64KiB", "--json"];
        json(self.disk(&[&["publish", text(image), "--name", name], &to[..]].concat()))
    }

    /// An image with data, zeros and holes, off every grid.
    fn image(&self, name: &str, len_bytes: u64) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        file.set_len(len_bytes).unwrap();
        let mut random = Random(7);
        for at in (0..len_bytes).step_by(3 << 20) {
            let bytes: Vec<u8> = (0..700_000).map(|_| random.below(256) as u8).collect();
            let room = (len_bytes - at).min(bytes.len() as u64) as usize;
            file.write_all_at(&bytes[..room], at).unwrap();
        }
        path
    }

    /// An ext4 image with a tree of files; none if it cannot be made here.
    fn file_system(&self, len_bytes: u64) -> Option<PathBuf> {
        let tree = self.path("tree");
        let mut random = Random(11);
        for directory in 0..20 {
            let directory = tree.join(format!("d{directory}"));
            fs::create_dir_all(&directory).unwrap();
            for file in 0..10 {
                let len = random.below(60_000);
                let bytes: Vec<u8> = (0..len).map(|_| random.below(64) as u8).collect();
                fs::write(directory.join(format!("f{file}")), bytes).unwrap();
            }
        }
        let path = self.path("fs.img");
        File::create(&path).unwrap().set_len(len_bytes).unwrap();
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-d", text(&tree), text(&path)]);
        make.status().ok()?.success().then_some(path)
    }

    /// Serves a disk on a socket; what is said when it is ready.
    #[track_caller]
    fn serve(&self, place: &str, name: &str, more: &[&str]) -> Value {
        let serve = ["serve", place, name, "--cache", "cache", "--json"];
        let at = ["--nbd", "unix:disk.sock"];
        json(self.disk(&[&serve[..], &at[..], more].concat()))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let listed = self.command("config").args(["list", "--json"]).output();
        let text = listed.map(|output| output.stdout).unwrap_or_default();
        let list: Value = serde_json::from_slice(&text).unwrap_or_default();
        for disk in list["disks"].as_array().into_iter().flatten() {
            // A failure that a test is about may be in the way; then its process goes.
            let place = disk["where"].as_str().unwrap_or_default();
            let detach = ["detach", place, "--timeout", "5s"];
            let detached = self.command("config").args(detach).output();
            if detached.is_ok_and(|output| output.status.success()) {
                continue;
            }
            if let Some(device) = disk["device"].as_str() {
                let _ = Command::new("losetup").args(["-d", device]).output();
            }
            let pid = disk["pid"].as_i64().unwrap_or_default() as i32;
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            if disk["kind"] == "file" {
                let _ = Command::new("umount").args(["-l", place]).output();
            }
        }
    }
}

/// Whether a program is here; says so if it is not.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_here = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !is_here {
        eprintln!("skipped: {program} is not installed");
    }
    is_here
}

/// Runs another program, which must succeed.
#[track_caller]
fn tool(program: &str, arguments: &[&str]) -> String {
    run(Command::new(program).args(arguments).stdin(Stdio::null())).ok()
}

/// Whether two files have the same bytes; where they differ first, if not.
#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (fs::read(one).unwrap(), fs::read(other).unwrap());
    assert_eq!(one.len(), other.len());
    if one != other {
        let differs = one.iter().zip(&other).position(|(a, b)| a != b);
        panic!("different from byte {differs:?} on");
    }
}
