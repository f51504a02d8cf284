//! What can be judged, and how each is made, mounted and repaired.
//!
//! The file systems of Linux, and our own object store, whose objects are looked at as files. A
//! repair is what the tools of the file system prescribe after a loss of power: those with a
//! journal or a log repair themselves when they are mounted, ext2 needs e2fsck.

use super::CrashError;
use crate::actor::{MountAs, Tool};
use crate::oracle::Promises;
use crate::programs::is_installed;
use crate::workload::{NAMES, Step};

const MIB: u64 = 1 << 20;
/// Of a deleted file: more than a workload writes, and as much as a file may have.
const DELETED_BYTES: u64 = MIB;
/// Makes a store without measuring the device, which is memory.
const STORE_FORMAT: [&str; 7] = [
    "store",
    "format",
    "{}",
    "--unit",
    "64KiB",
    "--no-calibration",
    "--overwrite",
];

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// With a journal, data before metadata.
    Ext4,
    /// With a log of metadata.
    Xfs,
    /// Copy on write, with a log of what was synced.
    Btrfs,
    /// With a journal; the code is that of ext4.
    Ext3,
    /// Without a journal.
    Ext2,
    /// Azekura's store, by an actor of its own: objects are files, and sync is a commit.
    Store,
    /// A volume of Azekura, with its server, by an actor of its own: everything that the server has
    /// lies on ext4 on the device.
    Volume,
}

impl Target {
    /// All that are made of a device alone, without a server.
    pub const ALL: [Self; 6] = [
        Self::Ext4,
        Self::Xfs,
        Self::Btrfs,
        Self::Ext3,
        Self::Ext2,
        Self::Store,
    ];

    /// As the kernel, or the command line, calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ext3 => "ext3",
            Self::Ext2 => "ext2",
            Self::Store => "store",
            Self::Volume => "volume",
        }
    }

    /// The target with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// As [`Self::by_name`], with volumes, too.
    #[must_use]
    pub fn judged_by_name(name: &str) -> Option<Self> {
        match name {
            "volume" => Some(Self::Volume),
            name => Self::by_name(name),
        }
    }

    /// How long a device is made for it: small, because mounting goes through it.
    #[must_use]
    pub const fn device_bytes(self) -> u64 {
        match self {
            Self::Ext4 | Self::Ext3 | Self::Ext2 => 64 * MIB,
            // mkfs.btrfs takes 109 MiB or more, mkfs.xfs 300.
            Self::Btrfs | Self::Volume => 128 * MIB,
            Self::Xfs => 300 * MIB,
            Self::Store => 16 * MIB,
        }
    }

    /// What it promises.
    #[must_use]
    pub const fn promises(self) -> Promises {
        match self {
            Self::Ext2 => Promises::PLAIN,
            _ => Promises::JOURNAL,
        }
    }

    /// Whether it can do this: ext2 and ext3 have no fallocate, a store has objects alone.
    pub(super) fn can(self, step: &Step) -> bool {
        match (self, step) {
            (Self::Ext2 | Self::Ext3, Step::Allocate { .. }) => false,
            (Self::Store, Step::Create { path } | Step::Unlink { path }) => !path.contains('/'),
            (Self::Store, Step::Write { path, .. } | Step::Append { path, .. }) => {
                !path.contains('/')
            }
            (Self::Store, Step::Truncate { path, .. }) => !path.contains('/'),
            (Self::Store, step) => *step == Step::Sync,
            _ => true,
        }
    }

    /// Makes one on the device. Nothing is left to be done in the background, where it would be
    /// noise in the logs.
    pub(crate) fn make(self) -> Tool {
        let (program, arguments): (_, &[&str]) = match self {
            Self::Ext4 | Self::Ext3 | Self::Volume => (
                self.maker().0,
                &[
                    "-q",
                    "-F",
                    "-b",
                    "4096",
                    "-J",
                    "size=4",
                    "-E",
                    "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
                    "{}",
                ],
            ),
            Self::Ext2 => (
                self.maker().0,
                &["-q", "-F", "-b", "4096", "-E", "nodiscard", "{}"],
            ),
            Self::Xfs => (self.maker().0, &["-q", "-f", "-K", "{}"]),
            Self::Btrfs => (self.maker().0, &["-q", "-f", "-K", "{}"]),
            Self::Store => ("azekura", &STORE_FORMAT),
        };
        Tool {
            program: program.to_owned(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            code_max: 0,
        }
    }

    /// What must run before it is mounted after a loss of power.
    pub(crate) fn repair(self) -> Vec<Tool> {
        match self {
            Self::Ext2 => vec![Tool {
                program: "e2fsck".to_owned(),
                arguments: ["-f", "-y", "{}"].map(str::to_owned).to_vec(),
                // 1 and 2: errors were corrected.
                code_max: 3,
            }],
            _ => Vec::new(),
        }
    }

    pub(crate) fn mount_as(self, options: &str) -> MountAs {
        MountAs {
            fs_type: self.name().to_owned(),
            options: options.to_owned(),
        }
    }

    /// Mount options with which nothing is recovered.
    pub(super) const fn unrecovered(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext3 | Self::Volume => "ro,noload",
            Self::Xfs => "ro,norecovery",
            Self::Btrfs => "ro,rescue=nologreplay",
            Self::Ext2 | Self::Store => "ro",
        }
    }

    /// Where its superblock is on the device, in bytes.
    pub(super) const fn superblock(self) -> Option<u64> {
        match self {
            Self::Ext4 | Self::Ext3 | Self::Ext2 | Self::Volume => Some(1024),
            Self::Xfs | Self::Store => Some(0),
            Self::Btrfs => Some(64 << 10),
        }
    }

    /// Whether anything of what was synced must be there after a loss of power. ext2 has no
    /// journal: what its repair makes of a half-written directory is nobody's promise. That
    /// something can be mounted at all is expected of each.
    #[must_use]
    pub const fn keeps_promises(self) -> bool {
        !matches!(self, Self::Ext2)
    }

    /// Files that are made and deleted before anything is recorded, so that free space is full of
    /// somebody else's bytes: what a file system shows of it is found out.
    pub(super) fn deleted(self) -> Vec<Step> {
        let places = match self {
            Self::Store => &["o5"][..],
            _ => &["A/gone", "B/gone", "gone"],
        };
        let mut steps = Vec::new();
        for (path, tag) in places.iter().zip(900_000..) {
            let path = (*path).to_owned();
            steps.push(Step::Create { path: path.clone() });
            steps.push(Step::Write {
                path,
                offset: 0,
                len: DELETED_BYTES,
                tag,
            });
        }
        steps.push(Step::Sync);
        for path in places {
            let path = (*path).to_owned();
            steps.push(Step::Unlink { path });
        }
        steps.push(Step::Sync);
        steps
    }

    /// A workload that begins with what is there before all of its workloads.
    pub(super) const fn first_workload(self) -> &'static str {
        match self {
            Self::Store => "objects:0",
            _ => NAMES[0],
        }
    }

    /// The program that makes one, and its Debian package; the store is made by this one.
    #[must_use]
    pub const fn maker(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 | Self::Volume => ("mkfs.ext4", "e2fsprogs"),
            Self::Ext3 => ("mkfs.ext3", "e2fsprogs"),
            Self::Ext2 => ("mkfs.ext2", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
            Self::Store => ("losetup", "util-linux"),
        }
    }

    /// Whether this machine has what is needed to judge it.
    ///
    /// # Errors
    /// [`CrashError::NoTool`] names the first program that is missing.
    pub fn check_tools(self) -> Result<(), CrashError> {
        let losetup = ("losetup", "util-linux");
        let ip = (self == Self::Volume).then_some(("ip", "iproute2"));
        let mut programs = [losetup, self.maker()].into_iter().chain(ip);
        programs.try_for_each(check_program)
    }
}

/// Whether this machine has a program of a Debian package.
///
/// # Errors
/// [`CrashError::NoTool`] if not.
pub fn check_program((program, package): (&'static str, &'static str)) -> Result<(), CrashError> {
    match is_installed(program) {
        true => Ok(()),
        false => Err(CrashError::NoTool { program, package }),
    }
}
