//! A file system that can lose power: what was not flushed is gone, as when a machine goes down.

use crate::common::run;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// What is not asked for is not written out meanwhile.
const MOUNT_OPTIONS: &str = "loop,commit=300";
/// All of it in programs of its own. A process that another test begins just then has what is open
/// here for a moment, and the disk with it, and may wait for a mount that has been stopped: so
/// nothing is opened here for this. A namespace that another test has made has the file system
/// mounted for as long as it likes, and whoever mounts the same file gets that one, which is shut
/// down: so the machine goes on with a copy of the disk.
const REMOUNT: &str = r#"
remount() {
    xfs_io -x -r -c shutdown "$1" || return 1
    umount -l "$1" || return 1
    cp --sparse=always "$0" "$0.next" || return 1
    mv "$0.next" "$0" || return 1
    mount -o "$2" "$0" "$1"
}
while read -r line; do
    remount "$1" "$2" && echo done || echo failed
done
"#;

/// An ext4 in a file, mounted on the exported directory.
pub(crate) struct Disk {
    export: PathBuf,
    /// Which boot of the kernel the server is to see.
    pub(crate) kernel: PathBuf,
    boots: u32,
    /// Mounts it anew for each line that it reads. As the launcher of a scene it is started while
    /// nothing is mounted.
    remount: Child,
    remounted: BufReader<ChildStdout>,
    /// What was in each file after the last loss of power.
    pub(crate) left: HashMap<String, Vec<u8>>,
}

impl Disk {
    pub(crate) fn new(export: &Path) -> Option<Self> {
        let beside = |name: &str| export.with_file_name(name);
        // It can shut down any file system that knows how to be.
        if Command::new("xfs_io").arg("-V").output().is_err() {
            return None;
        }
        let image = beside("image");
        let file = File::create(&image).unwrap();
        file.set_len(64 << 20).unwrap();
        if !run(Command::new("mkfs.ext4").arg("-q").arg(&image))
            .status
            .success()
        {
            return None;
        }
        let mut mount = Command::new("mount");
        mount.args(["-o", MOUNT_OPTIONS]);
        if !run(mount.arg(&image).arg(export)).status.success() {
            return None;
        }
        let mut remount = Command::new("sh")
            .args(["-c", REMOUNT])
            .args([&image, export])
            .arg(MOUNT_OPTIONS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut disk = Self {
            export: export.to_owned(),
            kernel: beside("kernel"),
            boots: 0,
            remounted: BufReader::new(remount.stdout.take().unwrap()),
            remount,
            left: HashMap::new(),
        };
        disk.boot();
        Some(disk)
    }

    fn boot(&mut self) {
        self.boots += 1;
        let boot = format!("00000000-0000-4000-8000-{:012}\n", self.boots);
        fs::write(&self.kernel, boot).unwrap();
    }

    /// Everything that was not flushed is gone.
    pub(crate) fn lose_power(&mut self) {
        writeln!(self.remount.stdin.as_ref().unwrap()).unwrap();
        let mut remounted = String::new();
        self.remounted.read_line(&mut remounted).unwrap();
        assert_eq!(remounted, "done\n");
        self.boot();
        let files = fs::read_dir(&self.export).unwrap().map(Result::unwrap);
        let files = files.filter(|entry| entry.file_type().unwrap().is_file());
        let contents = files.map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        });
        self.left = contents.collect();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        let _ = umount.arg("-l").arg(&self.export).output();
        // The end of its input ends it.
        drop(self.remount.stdin.take());
        let _ = self.remount.wait();
    }
}
