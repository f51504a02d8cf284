//! A bound on the memory of what is measured, its share of the page cache included.
//!
//! A control group of the kernel does it, in either version. In version 1 dirty pages are bounded
//! for the whole machine alone, so a small group waits for the disk sooner than a small machine
//! would; a machine of its own (QEMU's `-m`) is the other way.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where groups with a bound on memory are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    root: PathBuf,
    is_second_version: bool,
}

impl Groups {
    /// Those of this machine.
    ///
    /// # Errors
    /// In words, if there are none.
    pub(super) fn find() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|e| e.to_string())?;
        let controls_memory = |root: &Path| {
            let controllers = fs::read_to_string(root.join("cgroup.subtree_control"));
            controllers.is_ok_and(|names| names.split_ascii_whitespace().any(|n| n == "memory"))
        };
        Self::find_in(&mounts, controls_memory)
            .ok_or_else(|| "no control groups with a bound on memory are mounted".to_owned())
    }

    /// The first in a list of mounts; of a mount of version 2 it is asked whether its groups have
    /// such a bound.
    fn find_in(mounts: &str, controls_memory: impl Fn(&Path) -> bool) -> Option<Self> {
        let mut found = mounts.lines().filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let root = PathBuf::from(front.split(' ').nth(4)?);
            let mut back = back.split(' ');
            let (kind, options) = (back.next()?, back.nth(1)?);
            let is_second_version = kind == "cgroup2";
            let is_one = match is_second_version {
                true => controls_memory(&root),
                false => kind == "cgroup" && options.split(',').any(|word| word == "memory"),
            };
            is_one.then_some(Self {
                root,
                is_second_version,
            })
        });
        found.next()
    }

    /// The directory of the group with this name.
    pub(super) fn group(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes the group with this name, which may use so many bytes.
    ///
    /// # Errors
    /// Of the kernel.
    pub(super) fn make(&self, name: &str, bytes: u64) -> io::Result<()> {
        let group = self.group(name);
        fs::create_dir(&group)?;
        self.bound(name, bytes)
    }

    /// Gives the group another bound.
    ///
    /// # Errors
    /// Of the kernel.
    pub(super) fn bound(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file = match self.is_second_version {
            true => "memory.max",
            false => "memory.limit_in_bytes",
        };
        fs::write(self.group(name).join(file), bytes.to_string())
    }
}

/// Takes this process into a group.
///
/// # Errors
/// Of the kernel.
pub(super) fn enter_group(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "\
31 23 0:27 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755
33 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct
34 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
35 31 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn groups_of_both_versions_are_found() {
        let first = Groups::find_in(FIRST, |_| false).unwrap();
        let directory = Path::new("/sys/fs/cgroup/memory/x");
        assert_eq!(first.group("x"), directory);
        assert!(!first.is_second_version);
        let second = "31 23 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let found = Groups::find_in(second, |_| true).unwrap();
        assert!(found.is_second_version && found.root.ends_with("cgroup"));
        assert_eq!(Groups::find_in(second, |_| false), None);
        assert_eq!(Groups::find_in("", |_| true), None);
    }
}
