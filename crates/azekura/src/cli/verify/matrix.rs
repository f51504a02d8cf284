//! What runs that measure have in common on the command line: places, sizes, times, parameters.

use super::speed::whole;
use crate::config::Span;
use crate::errors::{Code, Context, Failure, Result};
use ::verify::crash::Target;
use ::verify::speed::{LeftOut, Place, Tunable};
use base::ByteSize;
use base::limits::VERIFY_SPEED_BYTES_MAX;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a group of programs needs to live at all.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// The longest flush time that the kernel takes.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(3600);
/// The shortest that it can tell from none.
const FLUSH_TIME_MIN: Duration = Duration::from_millis(10);

/// How the kernel and the file systems are set
#[derive(Debug, clap::Args)]
pub(super) struct Values {
    /// When what was written is on its way to the disk, for each a cell: 30s is Linux's own
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = flush_time)]
    flush_time: Vec<Span>,
    /// A parameter of the kernel and its values, for each a cell: dirty_ratio,
    /// dirty_background_ratio, dirty_expire_centisecs, dirty_writeback_centisecs, page-cluster,
    /// vfs_cache_pressure, swappiness, xfssyncd_centisecs; of the device: read_ahead_kb,
    /// max_sectors_kb
    #[arg(long, value_name = "NAME=VALUES", value_parser = setting)]
    set: Vec<(Tunable, Vec<u64>)>,
    /// Mount options of the file systems that are made; given several times, for each a cell
    #[arg(long, value_name = "OPTIONS", value_parser = mount_options)]
    pub(super) mount_options: Vec<String>,
}

impl Values {
    pub(super) fn flush_times(&self) -> Vec<Option<Duration>> {
        self.flush_time.iter().map(|span| Some(span.0)).collect()
    }

    /// # Errors
    /// If a parameter is given twice.
    pub(super) fn settings(&self) -> Result<Vec<(Tunable, Vec<u64>)>> {
        for (at, (tunable, _)) in self.set.iter().enumerate() {
            if self.set[..at].iter().any(|(before, _)| before == tunable) {
                let message = format!("--set {} is given twice", tunable.name());
                return Err(refused(message).hint("--set NAME=5,20 gives it several values"));
            }
        }
        Ok(self.set.clone())
    }
}

/// A file system by its name, or a directory.
pub(super) fn place(text: &str) -> Result<Place, String> {
    if text.contains('/') || text.starts_with('.') {
        return whole(Path::new(text)).map(Place::Directory);
    }
    match Target::by_name(text) {
        Some(target) => Ok(Place::Made(target)),
        None => {
            let names = Target::ALL.map(Target::name).join(", ");
            Err(format!("there are {names}, and directories, with a slash"))
        }
    }
}

/// File systems of other machines by their names, and how the kernel calls them.
const REMOTE: [(&str, &[&str]); 5] = [
    ("azekura", &["fuse.azekura"]),
    ("sshfs", &["fuse.sshfs"]),
    ("rclone", &["fuse.rclone"]),
    ("nfs", &["nfs", "nfs4"]),
    ("cifs", &["cifs", "smb3"]),
];

/// What something is measured against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rival {
    One(Place),
    /// Whatever is mounted by it, by its number among those that are known.
    Remote(usize),
}

/// As [`place`], or a file system of other machines.
pub(super) fn rival(text: &str) -> Result<Rival, String> {
    let remote = REMOTE.iter().position(|(name, _)| *name == text);
    match remote {
        Some(remote) => Ok(Rival::Remote(remote)),
        None => place(text).map(Rival::One).map_err(|why| {
            let names = REMOTE.map(|(name, _)| name).join(", ");
            format!("{why}; and mounts by {names}")
        }),
    }
}

/// Adds what rivals are on a machine with these mounts; what is not there is named.
pub(super) fn add_rivals(places: &mut Vec<Place>, rivals: &[Rival], mounts: &str) -> Vec<LeftOut> {
    let mut left_out = Vec::new();
    for rival in rivals {
        let more = match rival {
            Rival::One(place) => vec![place.clone()],
            Rival::Remote(remote) => {
                let (name, kinds) = REMOTE[*remote];
                let points = super::mounted::points_of(mounts, kinds);
                if points.is_empty() {
                    left_out.push(LeftOut {
                        what: name.to_owned(),
                        why: "nothing is mounted by it on this machine".to_owned(),
                    });
                }
                points.into_iter().map(Place::Directory).collect()
            }
        };
        for place in more {
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    left_out
}

fn bytes(text: &str) -> Result<ByteSize, String> {
    text.parse::<ByteSize>().map_err(|error| error.to_string())
}

pub(super) fn block_size(text: &str) -> Result<ByteSize, String> {
    let size = bytes(text)?;
    match size.0 {
        1024 | 2048 | 4096 => Ok(size),
        _ => Err("a block has 1KiB, 2KiB or 4KiB".to_owned()),
    }
}

pub(super) fn memory(text: &str) -> Result<ByteSize, String> {
    let size = bytes(text)?;
    match size.0 >= MEMORY_BYTES_MIN {
        true => Ok(size),
        false => Err("the programs that measure need 16MiB".to_owned()),
    }
}

pub(super) fn size(text: &str) -> Result<ByteSize, String> {
    let size = bytes(text)?;
    match (1 << 20..=VERIFY_SPEED_BYTES_MAX).contains(&size.0) {
        true => Ok(size),
        false => Err("it is from 1MiB to 1TiB".to_owned()),
    }
}

pub(super) fn io_size(text: &str) -> Result<ByteSize, String> {
    let size = bytes(text)?;
    match (512..=1 << 26).contains(&size.0) {
        true => Ok(size),
        false => Err("it is from 512 to 64MiB".to_owned()),
    }
}

pub(super) fn flush_time(text: &str) -> Result<Span, String> {
    let span = super::speed::span(text)?;
    match (FLUSH_TIME_MIN..=FLUSH_TIME_MAX).contains(&span.0) {
        true => Ok(span),
        false => Err("a flush time is from 10ms to 1h".to_owned()),
    }
}

/// Options of a mount, with commas between, that reach no other device than the run's.
pub(super) fn mount_options(text: &str) -> Result<String, String> {
    ::verify::actor::check_mount_options(text)?;
    Ok(text.to_owned())
}

fn setting(text: &str) -> Result<(Tunable, Vec<u64>), String> {
    let names = || Tunable::ALL.map(Tunable::name).join(", ");
    let (name, values) = text
        .split_once('=')
        .ok_or("write it like dirty_ratio=5,20")?;
    let tunable = Tunable::by_name(name).ok_or_else(|| format!("there are {}", names()))?;
    let bounds = tunable.bounds();
    let wrong = || format!("{name} is from {} to {}", bounds.start(), bounds.end());
    let mut kept = Vec::new();
    for value in values.split(',') {
        let value = value.parse::<u64>().map_err(|_| wrong())?;
        if !bounds.contains(&value) {
            return Err(wrong());
        }
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    Ok((tunable, kept))
}

/// A combination that cannot be run.
pub(super) fn refused(message: String) -> Failure {
    let hint = "`azekura verify --help` has a page for each kind of run";
    Failure::new(Code::CrashInvalid, message).hint(hint)
}

/// The directory for a large file: where there is room, and not in what may be memory, unless that
/// is said.
pub(super) fn scratch(asked: Option<&Path>) -> Result<PathBuf> {
    let said = || std::env::var_os("TMPDIR").filter(|value| !value.is_empty());
    let directory = match asked {
        Some(asked) => asked.to_owned(),
        None => said().map_or("/var/tmp".into(), PathBuf::from),
    };
    let whole = std::fs::canonicalize(&directory).context(directory.display())?;
    match whole.to_str() {
        Some(_) => Ok(whole),
        None => Err(refused(format!("{} is not UTF-8", whole.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_are_file_systems_places_and_what_is_mounted() {
        let mounts = "1 0 0:1 / /far rw - fuse.sshfs far: rw\n2 0 0:2 / /b rw - fuse.sshfs b: rw\n";
        let rivals = ["ext4", "sshfs", "nfs", "ext4"].map(|name| rival(name).unwrap());
        let mut places = vec![Place::Made(Target::Store)];
        let left_out = add_rivals(&mut places, &rivals, mounts);
        let shown: Vec<String> = places.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["store", "ext4", "/far", "/b"]);
        assert_eq!((left_out.len(), left_out[0].what.as_str()), (1, "nfs"));
        assert!(rival("fat").is_err_and(|why| why.contains("btrfs") && why.contains("sshfs")));
    }

    #[test]
    fn places_are_file_systems_or_directories() {
        assert_eq!(place("xfs"), Ok(Place::Made(Target::Xfs)));
        assert_eq!(place("/"), Ok(Place::Directory("/".into())));
        assert!(matches!(place("."), Ok(Place::Directory(path)) if path.is_absolute()));
        assert_eq!(place("store"), Ok(Place::Made(Target::Store)));
        let unknown = place("fat").unwrap_err();
        assert!(
            unknown.contains("btrfs") && unknown.contains("directories"),
            "{unknown}"
        );
    }

    #[test]
    fn parameters_have_names_and_bounds() {
        assert_eq!(
            setting("dirty_ratio=5,20,5"),
            Ok((Tunable::DirtyRatio, vec![5, 20]))
        );
        for text in [
            "dirty_ratio",
            "dirty_ratio=",
            "dirty_ratio=0",
            "dirty_ratio=5,x",
            "panic=1",
        ] {
            assert!(setting(text).is_err(), "{text}");
        }
        assert!(flush_time("30s").is_ok() && flush_time("2h").is_err());
    }

    #[test]
    fn mount_options_reach_no_other_device() {
        assert_eq!(mount_options("data=journal"), Ok("data=journal".to_owned()));
        assert!(mount_options("rtdev=/dev/sdb").is_err_and(|why| why.contains("rtdev")));
    }

    #[test]
    fn sizes_have_bounds() {
        assert_eq!(block_size("1KiB").map(|size| size.0), Ok(1024));
        assert!(block_size("8KiB").is_err() && block_size("x").is_err());
        assert!(memory("16MiB").is_ok() && memory("1MiB").is_err());
        assert!(size("1MiB").is_ok() && size("1KiB").is_err());
        assert!(io_size("4KiB").is_ok() && io_size("1GiB").is_err());
    }
}
