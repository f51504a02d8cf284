//! What is to be judged by a crash run: a file system by its name, or the kind of one that is
//! mounted here, with the options that decide what survives.
//!
//! What lies at a path is never touched: a run judges a file system of the same kind that it makes
//! in memory.

use ::verify::crash::Target;
use std::path::{Path, PathBuf};

/// Options of mounts on which hangs what survives, as the kernel lists them, alone or with a value.
const OPTIONS: [&str; 26] = [
    "barrier",
    "nobarrier",
    "data",
    "data_err",
    "journal_checksum",
    "journal_async_commit",
    "commit",
    "auto_da_alloc",
    "noauto_da_alloc",
    "nodelalloc",
    "dioread_nolock",
    "dioread_lock",
    "max_batch_time",
    "min_batch_time",
    "sync",
    "dirsync",
    "wsync",
    "logbufs",
    "logbsize",
    "flushoncommit",
    "notreelog",
    "nodatacow",
    "nodatasum",
    "compress",
    "compress-force",
    "max_inline",
];

/// What is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) target: Target,
    /// How it is mounted where it is, with commas between.
    pub(super) options: String,
}

impl Judged {
    pub(super) const fn by_default(target: Target) -> Self {
        Self {
            target,
            options: String::new(),
        }
    }
}

/// From a name, or from a path, which has a slash in it.
pub(super) fn judged(text: &str) -> Result<Judged, String> {
    if let Some(target) = Target::judged_by_name(text) {
        return Ok(Judged::by_default(target));
    }
    let names = Target::ALL.map(Target::name).join(", ");
    if !text.contains('/') {
        return Err(format!(
            "there are {names}, volume, and paths, with a slash"
        ));
    }
    let path = std::fs::canonicalize(text).map_err(|error| crate::errors::plain_io(&error))?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo");
    let mounts = mounts.map_err(|error| crate::errors::plain_io(&error))?;
    let (kind, options) = mounted(&mounts, &path).ok_or("it is not known what is mounted there")?;
    match Target::by_name(&kind) {
        Some(target) => Ok(Judged { target, options }),
        None => Err(format!("{kind} is mounted there; there are {names}")),
    }
}

/// The kind of the file system on which a path is, and its options that matter. Of several mounts
/// over each other the last one counts.
fn mounted(mountinfo: &str, path: &Path) -> Option<(String, String)> {
    let mounts = mountinfo.lines().filter_map(|line| {
        // ID parent device root POINT options, optional fields, "-" KIND source OPTIONS
        let (first, second) = line.split_once(" - ")?;
        let point = PathBuf::from(unescaped(first.split(' ').nth(4)?));
        let mut second = second.split(' ');
        let (kind, options) = (second.next()?, second.nth(1)?);
        path.starts_with(&point).then_some((point, kind, options))
    });
    let (_, kind, options) = mounts.max_by_key(|(point, ..)| point.components().count())?;
    let kept = options.split(',').filter(|option| {
        let name = option.split('=').next().unwrap_or_default();
        OPTIONS.contains(&name)
    });
    let kept: Vec<&str> = kept.collect();
    Some((kind.to_owned(), kept.join(",")))
}

/// Where file systems of one of these kinds are mounted, each place once, in the order of the list.
pub(super) fn points_of(mountinfo: &str, kinds: &[&str]) -> Vec<PathBuf> {
    let mut points = Vec::new();
    for line in mountinfo.lines() {
        let Some((first, second)) = line.split_once(" - ") else {
            continue;
        };
        let kind = second.split(' ').next().unwrap_or_default();
        let point = first
            .split(' ')
            .nth(4)
            .map(|point| PathBuf::from(unescaped(point)));
        if let Some(point) = point.filter(|one| kinds.contains(&kind) && !points.contains(one)) {
            points.push(point);
        }
    }
    points
}

/// The kernel writes blanks and backslashes in names as octal numbers.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let code = after
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                out.push(char::from(code));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = r"21 1 253:1 / / rw - ext4 /dev/vda1 rw,errors=panic,data=ordered
30 21 0:25 / /proc rw - proc proc rw
31 21 253:2 / /mnt/my\040data rw,noatime shared:7 - xfs /dev/vdb rw,attr2,inode64,logbufs=8,noquota
32 31 0:40 / /mnt/my\040data/far rw - fuse.sshfs far: rw,user_id=0
33 21 0:50 / /over rw - tmpfs none rw
34 21 253:3 / /over rw - ext3 /dev/vdc rw,nobarrier,commit=1,stripe=4
";

    #[test]
    fn a_path_is_what_is_mounted_deepest_and_last() {
        let of = |path: &str| mounted(MOUNTS, Path::new(path)).unwrap();
        let both = |kind: &str, options: &str| (kind.to_owned(), options.to_owned());
        assert_eq!(of("/srv/x"), both("ext4", "data=ordered"));
        assert_eq!(of("/mnt/my data/a"), both("xfs", "logbufs=8"));
        assert_eq!(of("/mnt/my database"), both("ext4", "data=ordered"));
        assert_eq!(of("/mnt/my data/far/b"), both("fuse.sshfs", ""));
        assert_eq!(of("/over"), both("ext3", "nobarrier,commit=1"));
        assert_eq!(mounted("", Path::new("/")), None);
        assert_eq!(mounted("nonsense - x\n", Path::new("/")), None);
    }

    #[test]
    fn all_places_of_a_kind_are_found() {
        let of = |kinds: &[&str]| points_of(MOUNTS, kinds);
        assert_eq!(of(&["fuse.sshfs"]), [Path::new("/mnt/my data/far")]);
        assert_eq!(of(&["ext3", "ext4"]), [Path::new("/"), Path::new("/over")]);
        assert!(of(&["nfs4"]).is_empty() && points_of("nonsense", &["ext4"]).is_empty());
    }

    #[test]
    fn names_are_names_and_what_cannot_be_judged_is_refused_by_name() {
        assert_eq!(judged("xfs"), Ok(Judged::by_default(Target::Xfs)));
        assert!(judged("fat").is_err_and(|said| said.contains("btrfs") && said.contains("paths")));
        let refused = judged("/proc").unwrap_err();
        assert!(refused.contains("proc is mounted there"), "{refused}");
        assert!(judged("/nowhere/at/all").is_err_and(|said| said.contains("no such file")));
        assert_eq!(unescaped(r"a\134b\x\04"), r"a\b\x\04");
    }
}
