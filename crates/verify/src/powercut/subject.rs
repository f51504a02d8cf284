//! What can be judged, how each is made and recovered, and in which ways a file is written.

use super::PowercutError;
use crate::actor::Tool;
use crate::programs::is_installed;
use serde::{Deserialize, Serialize};

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// Without a journal.
    Ext2,
    /// With a journal, data before metadata.
    Ext3,
    /// With a journal and delayed allocation.
    Ext4,
    /// With a log of metadata that its own tool replays.
    Jfs,
    /// With a journal.
    Reiserfs,
    /// With a log of metadata.
    Xfs,
    /// Copy on write.
    Btrfs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Ext2,
        Self::Ext3,
        Self::Ext4,
        Self::Jfs,
        Self::Reiserfs,
        Self::Xfs,
        Self::Btrfs,
    ];

    /// As the kernel calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Jfs => "jfs",
            Self::Reiserfs => "reiserfs",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The file system with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// The kernel's module; that of ext4 also has the two before it.
    #[must_use]
    pub const fn module(self) -> &'static str {
        match self {
            Self::Ext2 | Self::Ext3 | Self::Ext4 => "ext4",
            other => other.name(),
        }
    }

    /// Makes one on a file, as its own tool does by default, but for work that it would leave to be
    /// done in the background while something is written.
    #[must_use]
    pub fn make(self) -> Tool {
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        let arguments: &[&str] = match self {
            Self::Ext2 => &["-q", "-F"],
            Self::Ext3 | Self::Ext4 => &["-q", "-F", "-E", lazy],
            Self::Jfs => &["-q"],
            // Twice: it is not asked for a file that is no device.
            Self::Reiserfs => &["-q", "-f", "-f"],
            Self::Xfs | Self::Btrfs => &["-q", "-f"],
        };
        self.tool(self.maker().0, arguments, 0)
    }

    /// What must run before it is mounted after a loss of power, as its manual says: ext2 has
    /// nothing that could be replayed, and the log of JFS is replayed by its fsck alone
    /// (fsck.jfs(8)). The others recover when they are mounted.
    #[must_use]
    pub fn recovery(self) -> Option<Tool> {
        match self {
            // 1: errors were corrected.
            Self::Ext2 => Some(self.tool("e2fsck", &["-p"], 1)),
            Self::Jfs => Some(self.tool("fsck.jfs", &["-f", "-p"], 1)),
            _ => None,
        }
    }

    fn tool(self, program: &str, arguments: &[&str], code_max: i32) -> Tool {
        let arguments = arguments.iter().chain(&["{}"]);
        Tool {
            program: program.to_owned(),
            arguments: arguments.map(|word| (*word).to_owned()).collect(),
            code_max,
        }
    }

    /// The program that makes one, and its Debian package.
    #[must_use]
    pub const fn maker(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext2 => ("mkfs.ext2", "e2fsprogs"),
            Self::Ext3 => ("mkfs.ext3", "e2fsprogs"),
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Jfs => ("mkfs.jfs", "jfsutils"),
            Self::Reiserfs => ("mkfs.reiserfs", "reiserfsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
        }
    }

    /// Whether this machine has what is needed to make and to recover one; both are in one package.
    ///
    /// # Errors
    /// [`PowercutError::NoTool`] names what is missing.
    pub fn check(self) -> Result<(), PowercutError> {
        let (program, package) = self.maker();
        match self.is_makeable() {
            true => Ok(()),
            false => Err(PowercutError::NoTool { program, package }),
        }
    }

    /// Whether this machine can make one.
    #[must_use]
    pub fn is_makeable(self) -> bool {
        is_installed(self.maker().0)
    }

    /// Whether a new file that was synced keeps its name: what the kernel's journalling file
    /// systems do, and ext2 does not.
    #[must_use]
    pub const fn keeps_names(self) -> bool {
        !matches!(self, Self::Ext2)
    }
}

/// In which way a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Written and closed: nothing is asked to be durable.
    Close,
    /// Then fsync.
    Fsync,
    /// Then fdatasync.
    Fdatasync,
    /// Under another name, which then replaces an old file by rename; nothing is synced.
    Rename,
}

impl How {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Close, Self::Fsync, Self::Fdatasync, Self::Rename];

    /// As the guest and the command line call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::Rename => "rename",
        }
    }

    /// The way with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether the kernel has said that the file is durable.
    #[must_use]
    pub const fn is_acknowledged(self) -> bool {
        matches!(self, Self::Fsync | Self::Fdatasync)
    }
}

/// What the disk of a machine does with what it is given.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum DiskCache {
    /// It has no cache: what it was given is there, as if it had been flushed. Only the machine is
    /// lost.
    #[default]
    None,
    /// It has a cache that is lost with the power: what it was given since the last flush that it
    /// was told is not there.
    Lost,
}

impl DiskCache {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::None, Self::Lost];

    /// As on the command line, and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lost => "lost",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_state_file_too() {
        for known in FileSystem::ALL {
            assert_eq!(FileSystem::by_name(known.name()), Some(known));
            let text = serde_json::to_string(&known).unwrap();
            assert_eq!(text, format!("\"{}\"", known.name()));
        }
        for known in How::ALL {
            assert_eq!(How::by_name(known.name()), Some(known));
            let text = serde_json::to_string(&known).unwrap();
            assert_eq!(text, format!("\"{}\"", known.name()));
        }
        for known in DiskCache::ALL {
            assert_eq!(DiskCache::by_name(known.name()), Some(known));
            let text = serde_json::to_string(&known).unwrap();
            assert_eq!(text, format!("\"{}\"", known.name()));
        }
        assert_eq!((FileSystem::by_name("fat"), How::by_name("")), (None, None));
    }

    #[test]
    fn only_what_cannot_recover_itself_is_recovered_by_a_tool() {
        let tools: Vec<String> = FileSystem::ALL
            .into_iter()
            .filter_map(FileSystem::recovery)
            .map(|tool| format!("{} {}", tool.program, tool.arguments.join(" ")))
            .collect();
        assert_eq!(tools, ["e2fsck -p {}", "fsck.jfs -f -p {}"]);
    }
}
