//! Where work on the views of all files is, kept beside what was measured of them: in
//! `acl/ID.walk.toml` of the data directory, while such work is under way or has ended early.
//!
//! The same work, asked for again within a day and under the same policy, goes on from there; any
//! other begins at the top. It is written a few seconds apart, so what was done since is looked at
//! again, which changes nothing. That it cannot be read or written is as if it were not there:
//! the work takes longer, and comes to the same.

use crate::data::{DataError, file, to_hex};
use base::{Handle, VolumeId};
use export::{ViewWalk, WalkFigures, Worker};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::message::{AclViewWork, AclWork};

/// Between two times that it is written down where work is.
const NOTE_INTERVAL: Duration = Duration::from_secs(3);
/// How long work that has ended early is remembered: later, much else may have changed.
const KEPT_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// What is kept.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct WalkFile {
    work: String,
    policy: String,
    /// Seconds since 1970.
    written: i64,
    files: i64,
    changed: i64,
    failed: i64,
    /// Directories on the way down, each as its handle and where its listing goes on.
    directory: Vec<DirectoryEntry>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct DirectoryEntry {
    handle: String,
    /// Hexadecimal: some are larger than the numbers of state files.
    place: String,
}

/// Where a volume's work is.
pub(crate) struct Walks {
    directory: PathBuf,
    name: String,
}

/// What work goes on from.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Resumed {
    pub(crate) places: Vec<(Handle, u64)>,
    pub(crate) figures: WalkFigures,
}

impl Walks {
    /// Those of a volume, in this directory.
    pub(crate) fn new(directory: &Path, volume: VolumeId) -> Self {
        Self {
            directory: directory.to_owned(),
            name: format!("{volume}.walk"),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(format!("{}.toml", self.name))
    }

    /// Writes down where work is; durable when it returns. Blocks.
    pub(crate) fn note(
        &self,
        work: AclViewWork,
        policy: &str,
        walk: &ViewWalk,
        now: SystemTime,
    ) -> Result<(), DataError> {
        self.keep(work, policy, &walk.places(), walk.figures(), now)
    }

    fn keep(
        &self,
        work: AclViewWork,
        policy: &str,
        places: &[(Handle, u64)],
        figures: WalkFigures,
        now: SystemTime,
    ) -> Result<(), DataError> {
        let io = |source| DataError::Io {
            path: self.directory.clone(),
            source,
        };
        std::fs::create_dir_all(&self.directory).map_err(io)?;
        let bounded = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let entry = |(handle, place): &(Handle, u64)| DirectoryEntry {
            handle: to_hex(handle.as_bytes()),
            place: format!("{place:x}"),
        };
        let kept = WalkFile {
            work: word(work).to_owned(),
            policy: policy.to_owned(),
            written: seconds(now),
            files: bounded(figures.files),
            changed: bounded(figures.changed),
            failed: bounded(figures.failed),
            directory: places.iter().map(entry).collect(),
        };
        file::write(&self.directory, &self.name, &kept)
    }

    /// From where this work goes on; `None` if it begins. Blocks.
    pub(crate) fn resumed(
        &self,
        work: AclViewWork,
        policy: &str,
        now: SystemTime,
    ) -> Option<Resumed> {
        if !self.path().exists() {
            return None;
        }
        let kept = match file::read::<WalkFile>(&self.directory, &self.name) {
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(%error, "work on all files begins at the top");
                return None;
            }
        };
        let age = seconds(now).checked_sub(kept.written)?;
        let is_young = u64::try_from(age).is_ok_and(|age| age < KEPT_TIME.as_secs());
        if !is_young || kept.work != word(work) || kept.policy != policy {
            return None;
        }
        let place = |entry: &DirectoryEntry| {
            let handle = Handle::new(&bytes_of(&entry.handle)?)?;
            Some((handle, u64::from_str_radix(&entry.place, 16).ok()?))
        };
        let number = |number: i64| u64::try_from(number).unwrap_or_default();
        Some(Resumed {
            places: kept.directory.iter().map(place).collect::<Option<_>>()?,
            figures: WalkFigures {
                files: number(kept.files),
                changed: number(kept.changed),
                failed: number(kept.failed),
            },
        })
    }

    /// The work is done: the next begins at the top. Blocks.
    pub(crate) fn forget(&self) {
        match std::fs::remove_file(self.path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, "work that is done would go on from its middle");
            }
            _ => {}
        }
    }
}

/// Writes down where work is, now and then; not where it is only counted what would be done.
pub(crate) struct Noting<'a> {
    walks: &'a Walks,
    worker: &'a Worker,
    asked: AclWork,
    policy: String,
    last: Instant,
}

impl<'a> Noting<'a> {
    pub(crate) fn new(
        walks: &'a Walks,
        worker: &'a Worker,
        asked: AclWork,
        policy: String,
    ) -> Self {
        Self {
            walks,
            worker,
            asked,
            policy,
            last: Instant::now(),
        }
    }

    /// Where the same work was, if it has ended early.
    pub(crate) fn resumed(&self) -> Resumed {
        let (walks, now) = (self.walks, SystemTime::now());
        let read = || walks.resumed(self.asked.work, &self.policy, now);
        let resumed = match self.asked.dry_run {
            true => None,
            false => self.worker.as_server(read).ok().flatten(),
        };
        resumed.unwrap_or_default()
    }

    pub(crate) fn note_sometimes(&mut self, walk: &ViewWalk) {
        if self.last.elapsed() >= NOTE_INTERVAL {
            self.note(walk);
            self.last = Instant::now();
        }
    }

    fn note(&self, walk: &ViewWalk) {
        if self.asked.dry_run {
            return;
        }
        let (walks, now) = (self.walks, SystemTime::now());
        let note = || walks.note(self.asked.work, &self.policy, walk, now);
        if let Ok(Err(error)) = self.worker.as_server(note) {
            tracing::warn!(%error, "after a restart, work on all files begins at the top");
        }
    }

    /// The work is over, done or not.
    pub(crate) fn end(&self, walk: &ViewWalk) {
        if !walk.is_over() {
            return self.note(walk);
        }
        if !self.asked.dry_run {
            let _ = self.worker.as_server(|| self.walks.forget());
        }
    }
}

fn word(work: AclViewWork) -> &'static str {
    match work {
        AclViewWork::Convert => "convert",
        AclViewWork::ConvertAll => "convert-all",
        AclViewWork::Compact => "compact",
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let byte = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).ok()?;
        u8::from_str_radix(digits, 16).ok()
    };
    let digits = hex.as_bytes();
    match digits.len().is_multiple_of(2) {
        true => digits.chunks(2).map(byte).collect(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_700_000_000);

    #[test]
    fn the_same_work_goes_on_where_it_was_and_any_other_begins() {
        let data = tempfile::tempdir().unwrap();
        let walks = || Walks::new(data.path(), VolumeId([7; 16]));
        let now = UNIX_EPOCH + NOW;
        let all = AclViewWork::ConvertAll;
        assert_eq!(walks().resumed(all, "never", now), None);
        let places = vec![
            (Handle::new(&[0, 1, 255]).unwrap(), u64::MAX),
            (Handle::new(&[7; 24]).unwrap(), 0),
        ];
        let figures = WalkFigures {
            files: 900,
            changed: 30,
            failed: 1,
        };
        walks().keep(all, "never", &places, figures, now).unwrap();
        let later = now + Duration::from_secs(3600);
        let resumed = walks().resumed(all, "never", later);
        assert_eq!(resumed, Some(Resumed { places, figures }));
        let other = AclViewWork::Compact;
        assert_eq!(walks().resumed(other, "never", later), None);
        assert_eq!(walks().resumed(all, "always", later), None);
        let much_later = now + KEPT_TIME;
        assert_eq!(walks().resumed(all, "never", much_later), None);
        let before = now - Duration::from_secs(5);
        assert_eq!(
            walks().resumed(all, "never", before),
            None,
            "a clock was set"
        );
        let path = walks().path();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("900", "901")).unwrap();
        assert_eq!(walks().resumed(all, "never", later), None, "it is damaged");
        walks().forget();
        assert!(!path.exists());
        walks().forget();
    }
}
