//! Parameters of the kernel on which the speed of a file system depends.
//!
//! Those of virtual memory hold for the whole machine; those of a queue for one block device, and
//! are set for devices alone that a run has made. The paper's table 14 has those of Linux 2.4;
//! these are what became of them: `age_buffer` is the age at which dirty pages are written,
//! `nfract` and `nfract_sync` are the ratios, the clustering of written pages is the largest
//! request of the queue.

use crate::crash::Target;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kernel looks this often, in hundredths of a second, for dirty pages that are old enough. A
/// shorter flush time needs it to look more often.
const WRITEBACK_CENTISECS: u64 = 500;
/// The same of XFS and its log.
const XFS_SYNC_CENTISECS: u64 = 3000;
/// Parameters of XFS; there once it is loaded.
const XFS: &str = "/proc/sys/fs/xfs";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tunable {
    /// Share of memory, in percent, that may be dirty before writers wait.
    DirtyRatio,
    /// Share of memory, in percent, that may be dirty before it is written in the background.
    DirtyBackgroundRatio,
    /// Age at which dirty pages are written, in hundredths of a second.
    DirtyExpire,
    /// How often such are looked for, in hundredths of a second.
    DirtyWriteback,
    /// Pages that are swapped at once, as a power of two.
    PageCluster,
    /// How willingly names and inodes are forgotten, in percent of how pages are.
    VfsCachePressure,
    /// How willingly memory of programs is swapped.
    Swappiness,
    /// How much the kernel reads ahead of a device, in KiB.
    ReadAhead,
    /// The largest request that a device is given, in KiB: how many pages are written at once.
    MaxSectors,
    /// How often XFS writes its log and what is in it, in hundredths of a second.
    XfsSync,
}

/// What a parameter is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Which.
    pub tunable: Tunable,
    /// In its own unit.
    pub value: u64,
}

impl Tunable {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::DirtyRatio,
        Self::DirtyBackgroundRatio,
        Self::DirtyExpire,
        Self::DirtyWriteback,
        Self::PageCluster,
        Self::VfsCachePressure,
        Self::Swappiness,
        Self::ReadAhead,
        Self::MaxSectors,
        Self::XfsSync,
    ];

    /// As the kernel calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DirtyRatio => "dirty_ratio",
            Self::DirtyBackgroundRatio => "dirty_background_ratio",
            Self::DirtyExpire => "dirty_expire_centisecs",
            Self::DirtyWriteback => "dirty_writeback_centisecs",
            Self::PageCluster => "page-cluster",
            Self::VfsCachePressure => "vfs_cache_pressure",
            Self::Swappiness => "swappiness",
            Self::ReadAhead => "read_ahead_kb",
            Self::MaxSectors => "max_sectors_kb",
            Self::XfsSync => "xfssyncd_centisecs",
        }
    }

    /// The parameter with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether it is one device's, and not the machine's.
    #[must_use]
    pub const fn is_of_a_device(self) -> bool {
        matches!(self, Self::ReadAhead | Self::MaxSectors)
    }

    /// What it may be. Within that the kernel may still refuse.
    #[must_use]
    pub const fn bounds(self) -> RangeInclusive<u64> {
        match self {
            // With 0, every write would wait for the disk.
            Self::DirtyRatio | Self::DirtyBackgroundRatio => 1..=100,
            // With 0, nothing is written because of its age, which is no flush time.
            Self::DirtyExpire | Self::DirtyWriteback => 1..=360_000,
            Self::PageCluster => 0..=10,
            Self::VfsCachePressure => 1..=1000,
            Self::Swappiness => 0..=200,
            Self::ReadAhead => 0..=1_048_576,
            Self::MaxSectors => 4..=1_048_576,
            Self::XfsSync => 100..=720_000,
        }
    }

    /// Where it is set, for a block device of this name.
    pub(super) fn path(self, device: Option<&str>) -> Option<PathBuf> {
        match self.is_of_a_device() {
            false if self == Self::XfsSync => Some(Path::new(XFS).join(self.name())),
            false => Some(Path::new("/proc/sys/vm").join(self.name())),
            true => Some(disk(device?)?.join("queue").join(self.name())),
        }
    }

    /// The parameter that is set to zero when this one is set, because the two say the same.
    pub(super) const fn other_form(self) -> Option<&'static str> {
        match self {
            Self::DirtyRatio => Some("/proc/sys/vm/dirty_bytes"),
            Self::DirtyBackgroundRatio => Some("/proc/sys/vm/dirty_background_bytes"),
            _ => None,
        }
    }
}

/// The directory of a block device in the kernel's list of disks. A partition has none: its queue
/// is that of the whole disk, and so of all its other partitions.
pub(super) fn disk(device: &str) -> Option<PathBuf> {
    let disk = Path::new("/sys/block").join(device);
    disk.exists().then_some(disk)
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.tunable.name(), self.value)
    }
}

/// The settings by which what was written to a file system of this kind, or to any other one, is on
/// its way to the disk after `time`. Its log follows: [`commit_option`], and for XFS one of these.
pub(super) fn flush_time(time: Duration, target: Option<Target>) -> Vec<Setting> {
    let centisecs = u64::try_from(time.as_millis() / 10).unwrap_or(u64::MAX);
    let set = |tunable, value| Setting { tunable, value };
    let mut settings = vec![
        set(Tunable::DirtyExpire, centisecs),
        set(Tunable::DirtyWriteback, centisecs.min(WRITEBACK_CENTISECS)),
    ];
    if target == Some(Target::Xfs) && centisecs < XFS_SYNC_CENTISECS {
        let least = *Tunable::XfsSync.bounds().start();
        settings.push(set(Tunable::XfsSync, centisecs.max(least)));
    }
    settings
}

/// The option by which a file system of this kind commits its log after `time`, where it would
/// commit later by itself: without that its names and lengths stay in memory, and data that was
/// written without them is lost with them. It takes whole seconds.
pub(super) fn commit_option(time: Duration, target: Target) -> Option<String> {
    let by_itself = match target {
        Target::Ext3 | Target::Ext4 => 5,
        Target::Btrfs => 30,
        Target::Ext2 | Target::Xfs | Target::Store | Target::Volume => return None,
    };
    let seconds = time.as_millis().div_ceil(1000).max(1);
    (seconds < by_itself).then(|| format!("commit={seconds}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_where_the_kernel_has_them() {
        for tunable in Tunable::ALL {
            assert_eq!(Tunable::by_name(tunable.name()), Some(tunable));
            if tunable.is_of_a_device() {
                continue;
            }
            let path = tunable.path(None).unwrap();
            assert!(path.ends_with(tunable.name()), "{path:?}");
            // That of XFS is there once it is loaded.
            assert!(path.exists() || path.starts_with(XFS), "{path:?}");
        }
        for device in std::fs::read_dir("/sys/block").unwrap() {
            let name = device.unwrap().file_name().into_string().unwrap();
            let path = Tunable::ReadAhead.path(Some(&name)).unwrap();
            assert!(path.exists(), "{path:?}");
        }
        assert_eq!(Tunable::ReadAhead.path(Some("no-such-device")), None);
        assert_eq!(Tunable::ReadAhead.path(None), None);
        for device in std::fs::read_dir("/sys/class/block").unwrap() {
            let device = device.unwrap();
            let name = device.file_name().into_string().unwrap();
            let is_part = device.path().join("partition").exists();
            assert_eq!(
                Tunable::MaxSectors.path(Some(&name)).is_none(),
                is_part,
                "{name}"
            );
        }
        assert_eq!(Tunable::by_name("panic"), None);
    }

    #[test]
    fn a_short_flush_time_is_also_looked_for_often() {
        let shown = |millis, target| {
            let settings = flush_time(Duration::from_millis(millis), target);
            let words: Vec<String> = settings.iter().map(Setting::to_string).collect();
            words.join(" ")
        };
        let long = "dirty_expire_centisecs=3000 dirty_writeback_centisecs=500";
        assert_eq!(shown(30_000, None), long);
        assert_eq!(shown(30_000, Some(Target::Xfs)), long);
        let short = "dirty_expire_centisecs=100 dirty_writeback_centisecs=100";
        assert_eq!(shown(1000, Some(Target::Ext4)), short);
        let with_log = shown(300, Some(Target::Xfs));
        assert!(
            with_log.ends_with("=30 xfssyncd_centisecs=100"),
            "{with_log}"
        );
    }

    #[test]
    fn a_log_is_committed_no_later_than_data_is_written() {
        let option = |millis, target| commit_option(Duration::from_millis(millis), target);
        assert_eq!(option(300, Target::Ext4).as_deref(), Some("commit=1"));
        assert_eq!(option(1200, Target::Ext3).as_deref(), Some("commit=2"));
        assert_eq!(option(5000, Target::Ext4), None);
        assert_eq!(option(5000, Target::Btrfs).as_deref(), Some("commit=5"));
        assert_eq!(option(30_000, Target::Btrfs), None);
        assert_eq!(option(1000, Target::Xfs), None);
    }
}
