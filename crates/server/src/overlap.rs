//! Exports that overlap: two of the same directory, or one of a directory within the other's.
//!
//! Each would serve the same files and not see what is changed through the other: leases are a
//! volume's own, and what this process changes is not reported to it ([`export::Watch`]). So a
//! second one is not made. Those that an older version has made are served, and the log says it.
//!
//! An export does not enter what is mounted in it, so a directory of another file system within it
//! is no part of it and can be exported beside it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use wire::message::{VolumeKind, VolumeSummary};

/// A directory that is exported, or is to be.
pub(crate) struct Place {
    /// Without symbolic links, if it is there.
    path: PathBuf,
    /// Device and inode of itself and of the directories above it in the same file system, the
    /// nearest first: a bind mount has another name for the same directory. None if it is not
    /// there.
    line: Vec<(u64, u64)>,
}

impl Place {
    /// What a path leads to now. Blocks.
    pub(crate) fn of(path: &Path) -> Self {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let metadata = path.ancestors().map_while(|above| above.metadata().ok());
        let mut line: Vec<_> = metadata.map(|found| (found.dev(), found.ino())).collect();
        if let Some((device, _)) = line.first().copied() {
            let own = line.iter().take_while(|(other, _)| *other == device);
            let count = own.count();
            line.truncate(count);
        }
        Self { path, line }
    }

    /// That of a volume; none of one that is no export.
    fn of_volume(volume: &VolumeSummary) -> Option<Self> {
        let VolumeKind::Export { path, .. } = &volume.kind else {
            return None;
        };
        Some(match volume.trouble {
            None => Self::of(Path::new(path)),
            // Something else is there, and it is not served.
            Some(_) => Self {
                path: PathBuf::from(path),
                line: Vec::new(),
            },
        })
    }

    /// The way from `outer` to this one, if it is the same directory or lies in it.
    fn within(&self, outer: &Self) -> Option<&Path> {
        let above = match (self.line.is_empty(), outer.line.first()) {
            (false, Some(top)) => {
                let depth = self.line.iter().position(|above| above == top)?;
                self.path.ancestors().nth(depth)?
            }
            _ => outer.path.as_path(),
        };
        self.path.strip_prefix(above).ok()
    }
}

/// Why a directory cannot be exported beside the volumes that there are, if so. Blocks.
pub(crate) fn refusal(path: &Path, volumes: &[VolumeSummary]) -> Option<String> {
    let new = Place::of(path);
    let mut known = volumes
        .iter()
        .filter_map(|volume| Some((&volume.name, Place::of_volume(volume)?)));
    known.find_map(|(name, known)| {
        let (own, other) = (new.path.display(), known.path.display());
        if let Some(rest) = new.within(&known) {
            return Some(match rest.as_os_str().is_empty() {
                true => format!(
                    "{own} is exported already, as volume {name}; mount {name}, or delete it first"
                ),
                false => format!(
                    "{own} lies in {other}, which volume {name} exports already; mount {name} and \
                     use its directory {}, or delete {name} first",
                    rest.display()
                ),
            });
        }
        let rest = known.within(&new)?;
        Some(format!(
            "{other}, which volume {name} exports already, lies in {own}; delete {name} first: its \
             files stay, and are in the directory {} of the new volume",
            rest.display()
        ))
    })
}

/// Says in the log which volumes overlap; an older version has made them. Blocks.
pub(crate) fn warn(volumes: &[VolumeSummary]) {
    let served = volumes.iter().filter(|volume| volume.trouble.is_none());
    let places: Vec<_> = served
        .filter_map(|volume| Some((&volume.name, Place::of_volume(volume)?)))
        .collect();
    for (at, (name, place)) in places.iter().enumerate() {
        for (other, beside) in &places[at + 1..] {
            if place.within(beside).is_some() || beside.within(place).is_some() {
                tracing::warn!(
                    volume = name.as_str(),
                    path = %place.path.display(),
                    other = other.as_str(),
                    other_path = %beside.path.display(),
                    "two volumes export the same files, and their mounts do not see each other's \
                     changes; delete one of them, the files stay"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::VolumeId;

    fn volume(path: &Path, trouble: Option<&str>) -> VolumeSummary {
        VolumeSummary {
            id: VolumeId([1; 16]),
            name: "v".to_owned(),
            kind: VolumeKind::Export {
                path: path.to_str().unwrap().to_owned(),
                read_only: false,
            },
            trouble: trouble.map(str::to_owned),
        }
    }

    #[test]
    fn whole_names_are_compared_and_links_are_followed() {
        let parent = tempfile::tempdir().unwrap();
        let top = parent.path().canonicalize().unwrap();
        let path = |name: &str| top.join(name);
        std::fs::create_dir_all(path("a/nest")).unwrap();
        std::fs::create_dir(path("ab")).unwrap();
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        let said = |new: &str, old: &str| refusal(&path(new), &[volume(&path(old), None)]);
        assert_eq!(said("ab", "a"), None);
        assert_eq!(said("a", "ab"), None);
        let same = said("a", "a").unwrap();
        assert!(same.contains("is exported already, as volume v"), "{same}");
        let inner = said("a/nest", "a").unwrap();
        assert!(inner.contains("use its directory nest"), "{inner}");
        let outer = said("a", "a/nest").unwrap();
        assert!(outer.contains("the directory nest of the new"), "{outer}");
        assert!(said("link/nest", "a").is_some() && said("a/nest", "link").is_some());
    }

    #[test]
    fn of_a_volume_that_is_not_served_its_recorded_path_counts() {
        let parent = tempfile::tempdir().unwrap();
        let top = parent.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("other")).unwrap();
        std::os::unix::fs::symlink(top.join("other"), top.join("link")).unwrap();
        let volumes = [volume(&top.join("link"), Some("AZ0307: a symbolic link"))];
        assert_eq!(refusal(&top.join("other"), &volumes), None);
        let volumes = [volume(&top.join("gone"), Some("AZ0307: nothing is there"))];
        assert!(refusal(&top.join("gone/nest"), &volumes).is_some());
    }
}
