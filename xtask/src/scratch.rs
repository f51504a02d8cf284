//! Temporary directories that clean up after themselves, mounts included.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary directory. Dropping it unmounts what is mounted beneath and removes it; a mount that
/// will not go keeps the directory, because removing through a mount would delete foreign data.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory of its own under the system's temporary directory.
    pub(crate) fn new(purpose: &str) -> Result<Self> {
        Self::within(&std::env::temp_dir(), purpose)
    }

    /// Makes a directory of its own under `parent`.
    pub(crate) fn within(parent: &Path, purpose: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("azekura-{purpose}-{}-{count}", std::process::id());
            let path = parent.join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left by an earlier process of the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).context(path.display().to_string()),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a directory beneath and returns its path.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Innermost first: later lines of mountinfo lie upon earlier ones.
        for mount in mounts_beneath(&self.0).iter().rev() {
            unmount(mount);
        }
        let left = mounts_beneath(&self.0);
        if left.is_empty() {
            let _ = std::fs::remove_dir_all(&self.0);
        } else {
            eprintln!("kept {}: still mounted: {left:?}", self.0.display());
        }
    }
}

/// Unmounts, by force of `--lazy` if the plain way fails.
pub(crate) fn unmount(path: &Path) -> bool {
    let attempt = |options: &[&str]| {
        let mut command = Command::new("umount");
        command.args(options).arg(path).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    attempt(&[]) || attempt(&["--lazy"])
}

/// Mount points at or below `path`, in the order in which they were mounted.
pub(crate) fn mounts_beneath(path: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // The temporary directory may itself be reached through a symbolic link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    mount_points(&text)
        .into_iter()
        .filter(|mount| mount.starts_with(&path))
        .collect()
}

/// The fifth field of each line, with the kernel's octal escapes undone.
fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    let fields = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    fields
        .map(|field| {
            let escapes = [
                ("\\040", " "),
                ("\\011", "\t"),
                ("\\012", "\n"),
                ("\\134", "\\"),
            ];
            let undo = |text: String, (from, to): (&str, &str)| text.replace(from, to);
            PathBuf::from(escapes.into_iter().fold(field.to_owned(), undo))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_goes_with_its_content() {
        let scratch = Scratch::new("test").unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(scratch.directory("a/b").unwrap().join("c"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn mount_points_with_blanks_are_found() {
        let text = "36 35 98:0 / /mnt/with\\040blank rw - ext4 /dev/x rw\n\
                    37 36 0:5 / /proc rw - proc proc rw\n";
        assert_eq!(
            mount_points(text),
            [PathBuf::from("/mnt/with blank"), "/proc".into()]
        );
    }
}
