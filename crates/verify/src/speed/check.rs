//! What can be known to be impossible before anything is done.

use super::files::FILE_BYTES_MAX;
use super::plan::{Matrix, Place};
use super::run::Options;
use super::tunable::disk;
use super::work::Group;
use super::{LeftOut, SpeedError};
use crate::crash::{CrashError, Target};
use crate::programs::is_installed;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// What a file system takes for itself; and XFS wants 300 MiB to begin with.
const OVERHEAD_BYTES: u64 = 512 * MIB;
/// Lengths of devices: file systems want whole blocks, and groups of them.
const UNIT_BYTES: u64 = 64 * MIB;

/// Whether a store is among these.
fn has_store(options: &Options) -> bool {
    let mut cells = options.plan.cells.iter();
    cells.any(|cell| cell.place == Place::Made(Target::Store))
}

/// How long a device is for this run.
pub(super) fn device_bytes(options: &Options) -> u64 {
    bytes_for(options.work.stored_bytes(has_store(options)))
}

/// How long a device is for so much. Half of it stays empty: a full file system is a slow one, and
/// ext4 has an inode for every 16 KiB.
fn bytes_for(stored: u64) -> u64 {
    let stored = stored.saturating_mul(2);
    stored
        .saturating_add(OVERHEAD_BYTES)
        .next_multiple_of(UNIT_BYTES)
}

/// What must be free for it where the file of the device lies, which has holes.
fn scratch_bytes(options: &Options) -> u64 {
    let stored = options.work.stored_bytes(has_store(options));
    stored + stored / 4 + OVERHEAD_BYTES / 2
}

/// Whether there is room for what a run writes.
pub(super) fn room(options: &Options) -> Result<(), SpeedError> {
    let mut places: Vec<(PathBuf, u64)> = Vec::new();
    for cell in &options.plan.cells {
        let needed = match &cell.place {
            Place::Made(_) if options.device.is_some() => continue,
            Place::Made(_) => (options.scratch.clone(), scratch_bytes(options)),
            // An inode for each file.
            Place::Directory(path) => {
                let inodes = options.work.files / 8 * FILE_BYTES_MAX / 4;
                (path.clone(), options.work.stored_bytes(false) + inodes)
            }
        };
        if !places.contains(&needed) {
            places.push(needed);
        }
    }
    if let Some(device) = &options.device {
        let (needed, free) = (scratch_bytes(options), device_len(device)?);
        if free < needed {
            let path = device.clone();
            return Err(SpeedError::NoRoom { path, needed, free });
        }
    }
    for (path, needed) in places {
        let stat = rustix::fs::statvfs(&path).map_err(|errno| SpeedError::Directory {
            path: path.clone(),
            source: errno.into(),
        })?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        // Some file systems do not know how much room they have, and say that there is none.
        if stat.f_blocks > 0 && free < needed {
            return Err(SpeedError::NoRoom { path, needed, free });
        }
    }
    Ok(())
}

/// Whether what is set of a device is that device's alone: a partition has the queue of its disk,
/// which others may use.
pub(super) fn queue(options: &Options) -> Result<(), SpeedError> {
    let Some(device) = &options.device else {
        return Ok(());
    };
    let mut settings = options.plan.cells.iter().flat_map(|cell| &cell.settings);
    let Some(setting) = settings.find(|setting| setting.tunable.is_of_a_device()) else {
        return Ok(());
    };
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    match disk(&name) {
        Some(_) => Ok(()),
        None => Err(SpeedError::NoDisk {
            parameter: setting.tunable.name(),
            device: device.clone(),
        }),
    }
}

/// How long a block device is.
fn device_len(device: &Path) -> Result<u64, SpeedError> {
    let wrong = |source| SpeedError::Directory {
        path: device.to_owned(),
        source,
    };
    let mut file = File::open(device).map_err(wrong)?;
    file.seek(SeekFrom::End(0)).map_err(wrong)
}

/// Checks directories, and that file systems can be made and mounted by this user.
///
/// # Errors
/// [`SpeedError`] says what is missing.
pub fn places(matrix: &Matrix, is_root: bool) -> Result<(), SpeedError> {
    for place in &matrix.places {
        match place {
            Place::Made(_) if !is_root => return Err(SpeedError::NoRoot("a file system is made")),
            Place::Made(target) => target.check_tools().map_err(|error| match error {
                CrashError::NoTool { program, package } => SpeedError::NoTool { program, package },
                other => SpeedError::Program(other.to_string()),
            })?,
            Place::Directory(path) => is_directory(path)?,
        }
    }
    let sets = !(matrix.settings.is_empty() && matrix.flush_times.is_empty());
    if sets && !is_root {
        return Err(SpeedError::NoRoot("parameters of the kernel are set"));
    }
    if !matrix.memory_bytes.is_empty() && !is_root {
        return Err(SpeedError::NoRoot("memory is bounded"));
    }
    Ok(())
}

fn is_directory(path: &Path) -> Result<(), SpeedError> {
    let wrong = |source| SpeedError::Directory {
        path: path.to_owned(),
        source,
    };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(wrong(std::io::ErrorKind::NotADirectory.into())),
        Err(error) => Err(wrong(error)),
    }
}

/// Those of `groups` whose programs are installed. If the user has not named them, the others are
/// left out.
///
/// # Errors
/// [`SpeedError::NoTool`] of one that was named, or of the first if none is left.
pub fn groups(groups: &[Group], are_named: bool) -> Result<(Vec<Group>, Vec<LeftOut>), SpeedError> {
    split(groups, are_named, is_installed)
}

fn split(
    groups: &[Group],
    are_named: bool,
    is_there: impl Fn(&str) -> bool,
) -> Result<(Vec<Group>, Vec<LeftOut>), SpeedError> {
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    for group in groups {
        match group.program() {
            Some((program, package)) if !is_there(program) => {
                if are_named {
                    return Err(SpeedError::NoTool { program, package });
                }
                left_out.push(LeftOut {
                    what: group.name().to_owned(),
                    why: format!("{program} is not installed (apt-get install {package})"),
                });
            }
            _ if kept.contains(group) => {}
            _ => kept.push(*group),
        }
    }
    Ok((kept, left_out))
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Cell, Plan};
    use super::super::tunable::{Setting, Tunable};
    use super::super::work::Work;
    use super::*;

    #[test]
    fn a_device_has_room_for_the_work_and_its_inodes() {
        let work = Work {
            groups: Group::ALL.to_vec(),
            bytes: 256 * MIB,
            io_bytes: 4096,
            char_bytes: MIB,
            files: 100_000,
        };
        let stored = work.stored_bytes(false);
        let bytes = bytes_for(stored);
        assert!(bytes / 16_384 >= work.files, "{bytes}");
        assert!(bytes >= 2 * stored && bytes.is_multiple_of(UNIT_BYTES));
    }

    #[test]
    fn what_is_set_of_a_device_is_of_no_other_one() {
        let of = |device: Option<&Path>, tunable| {
            let cell = Cell {
                place: Place::Made(Target::Ext4),
                block_bytes: None,
                memory_bytes: None,
                flush_time: None,
                settings: vec![Setting { tunable, value: 64 }],
                mount_options: String::new(),
            };
            queue(&Options {
                plan: Plan {
                    cells: vec![cell],
                    left_out: Vec::new(),
                },
                work: Work {
                    groups: Vec::new(),
                    bytes: MIB,
                    io_bytes: 4096,
                    char_bytes: MIB,
                    files: 1,
                },
                repeats: 1,
                seed: 1,
                scratch: "/".into(),
                device: device.map(Path::to_owned),
                is_root: true,
                empties_caches: false,
            })
        };
        // It is in no list of disks, as no partition is.
        let part = Some(Path::new("/dev/azekura-none1"));
        let refused = of(part, Tunable::MaxSectors).unwrap_err().to_string();
        assert!(refused.contains("max_sectors_kb") && refused.contains("azekura-none1"));
        assert!(of(part, Tunable::DirtyRatio).is_ok() && of(None, Tunable::ReadAhead).is_ok());
        let disks = std::fs::read_dir("/sys/block").unwrap();
        for disk in disks.map(|disk| Path::new("/dev").join(disk.unwrap().file_name())) {
            assert!(of(Some(&disk), Tunable::ReadAhead).is_ok(), "{disk:?}");
        }
    }

    #[test]
    fn without_a_program_the_others_are_measured() {
        let without = |missing: &'static str| move |program: &str| program != missing;
        let (kept, left_out) = split(&Group::ALL, false, without("bonnie++")).unwrap();
        assert_eq!(kept, [Group::Block, Group::Files]);
        assert!(left_out[0].why.contains("apt-get install bonnie++"));
        let named = split(&[Group::Block], true, without("fio"));
        let is_fio = |error| matches!(error, SpeedError::NoTool { program: "fio", .. });
        assert!(named.is_err_and(is_fio));
        let twice = split(&[Group::Files, Group::Files], true, without("fio"));
        assert_eq!(twice.unwrap().0, [Group::Files]);
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let of = |path: &str| Matrix {
            places: vec![Place::Directory(path.into())],
            ..Matrix::default()
        };
        assert!(places(&of("/"), false).is_ok());
        for path in ["/proc/version", "/nowhere/at/all"] {
            let refused = places(&of(path), true);
            assert!(matches!(refused, Err(SpeedError::Directory { .. })));
        }
        let bounded = Matrix {
            memory_bytes: vec![Some(1)],
            ..of("/")
        };
        assert!(matches!(
            places(&bounded, false),
            Err(SpeedError::NoRoot(_))
        ));
    }
}
