//! Views of all files of an export: stored in bulk, or dropped.
//!
//! A walk goes through the tree a while at a time, so that whoever does it can do other things in
//! between and be stopped. It keeps a page of entries for each directory on the way down; where it
//! is can be told as handles and places in listings, from which another walk goes on, also after a
//! restart. What it does to a file it does once, however often it comes by.

use super::AclEdit;
use super::edit::Note;
use super::store::Kept;
use super::view::Unstored;
use crate::export::Export;
use crate::worker::Worker;
use base::limits::ACL_WALK_DEPTH_MAX;
use base::{DirectoryEntry, FileKind, FsError, Handle, Principal};
use std::time::{Duration, Instant};

/// Entries that are listed at a time.
const PAGE_ENTRIES: usize = 64;

/// What is done to each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewWork {
    /// Its view is stored; of all files, or of those for which the policy would ever store it.
    Convert {
        /// Of all.
        all: bool,
    },
    /// What is stored and is what a conversion gives is removed: views, and lists that say what
    /// mode and POSIX ACL say.
    Compact,
}

/// What has been done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkFigures {
    /// Files and directories that were looked at.
    pub files: u64,
    /// Those of which something was stored or removed, or would be.
    pub changed: u64,
    /// Those that could not be.
    pub failed: u64,
}

/// What a part of a walk has done.
#[derive(Debug, Default)]
pub struct Walked {
    /// Files whose times of change have moved.
    pub changed: Vec<Handle>,
    /// What was to be made by what `note` was told, and could not be.
    pub unmade: Vec<AclEdit>,
    /// [`FsError::ReadOnly`] and [`FsError::NoSpace`] if nothing can be stored here now, so that
    /// it ended early. What concerns one file is counted.
    pub stopped_by: Option<FsError>,
}

/// A directory on the way down.
struct Level {
    directory: Handle,
    /// Where the listing goes on behind what is in `entries`.
    cookie: u64,
    /// Behind which entry not everything has been done.
    done: u64,
    /// What is left of the page, the last first.
    entries: Vec<DirectoryEntry>,
    is_listed: bool,
}

impl Level {
    fn new(directory: Handle, cookie: u64) -> Self {
        Self {
            directory,
            cookie,
            done: cookie,
            entries: Vec::new(),
            is_listed: false,
        }
    }
}

/// A walk through all files of an export.
pub struct ViewWalk {
    work: ViewWork,
    dry_run: bool,
    levels: Vec<Level>,
    figures: WalkFigures,
}

impl ViewWalk {
    /// Begins one, at the top if there are no `places` from which to go on.
    #[must_use]
    pub fn new(export: &Export, work: ViewWork, dry_run: bool, places: Vec<(Handle, u64)>) -> Self {
        let mut levels: Vec<Level> = places
            .into_iter()
            .take(ACL_WALK_DEPTH_MAX)
            .map(|(directory, cookie)| Level::new(directory, cookie))
            .collect();
        if levels.is_empty() {
            levels.push(Level::new(export.root().clone(), 0));
        }
        Self {
            work,
            dry_run,
            levels,
            figures: WalkFigures::default(),
        }
    }

    /// Goes on counting where another walk has ended.
    #[must_use]
    pub fn having(mut self, figures: WalkFigures) -> Self {
        self.figures = figures;
        self
    }

    /// Whether all files have been looked at.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.levels.is_empty()
    }

    /// What has been done so far.
    #[must_use]
    pub fn figures(&self) -> WalkFigures {
        self.figures
    }

    /// Where it is: the directories on the way down, each with the place in its listing behind
    /// which it goes on.
    #[must_use]
    pub fn places(&self) -> Vec<(Handle, u64)> {
        let place = |level: &Level| (level.directory.clone(), level.done);
        self.levels.iter().map(place).collect()
    }
}

impl Export {
    /// Files of the whole file system; as many as a walk may meet at most. 0 if it does not count
    /// them.
    #[must_use]
    pub fn files_used(&self) -> u64 {
        let stat = rustix::fs::fstatvfs(self.top());
        stat.map_or(0, |stat| stat.f_files.saturating_sub(stat.f_ffree))
    }

    /// Goes on for about `time`. `note` is told of each file whose truth is to be POSIX again,
    /// before that is made; what it refuses is not made.
    pub fn walk_views(
        &self,
        worker: &Worker,
        walk: &mut ViewWalk,
        time: Duration,
        note: Note<'_>,
    ) -> Walked {
        let mut walked = Walked::default();
        walked.stopped_by = self.walk_on(worker, walk, time, (note, &mut walked)).err();
        walked
    }

    fn walk_on(
        &self,
        worker: &Worker,
        walk: &mut ViewWalk,
        time: Duration,
        (note, walked): (Note<'_>, &mut Walked),
    ) -> Result<(), FsError> {
        let end = Instant::now() + time;
        while let Some(level) = walk.levels.last_mut() {
            if Instant::now() >= end {
                break;
            }
            let Some(entry) = level.entries.pop() else {
                if level.is_listed {
                    walk.levels.pop();
                } else {
                    self.next_page(worker, walk, (note, &mut *walked))?;
                }
                continue;
            };
            level.done = entry.cookie;
            // It is gone, or another file system is mounted there.
            let Some(node) = entry.node else { continue };
            if node.attributes.kind == FileKind::Directory {
                if walk.levels.len() < ACL_WALK_DEPTH_MAX {
                    walk.levels.push(Level::new(node.handle, 0));
                } else {
                    walk.figures.failed += 1;
                }
                continue;
            }
            self.visit(worker, walk, &node.handle, (note, &mut *walked))?;
        }
        Ok(())
    }

    /// Lists on in the directory that the walk is in; a directory itself is visited when it is
    /// begun.
    fn next_page(
        &self,
        worker: &Worker,
        walk: &mut ViewWalk,
        (note, walked): (Note<'_>, &mut Walked),
    ) -> Result<(), FsError> {
        let root = Principal::root();
        let Some(level) = walk.levels.last_mut() else {
            return Ok(());
        };
        let (directory, cookie) = (level.directory.clone(), level.cookie);
        let page = self.read_directory(worker, &root, &directory, cookie, PAGE_ENTRIES, true);
        match page {
            Ok(page) => {
                level.cookie = page.entries.last().map_or(cookie, |last| last.cookie);
                level.is_listed = page.end;
                level.entries = page.entries;
                level.entries.reverse();
            }
            Err(error) => {
                tracing::debug!(%error, "a directory is left out");
                level.is_listed = true;
                walk.figures.failed += 1;
                return Ok(());
            }
        }
        match cookie {
            0 => self.visit(worker, walk, &directory, (note, walked)),
            _ => Ok(()),
        }
    }

    fn visit(
        &self,
        worker: &Worker,
        walk: &mut ViewWalk,
        handle: &Handle,
        (note, walked): (Note<'_>, &mut Walked),
    ) -> Result<(), FsError> {
        walk.figures.files += 1;
        let done = match walk.work {
            ViewWork::Compact => {
                let note = (!walk.dry_run).then_some(note);
                self.compact(worker, handle, note, &mut walked.unmade)
            }
            ViewWork::Convert { all } => match self.wants_view(worker, handle, all) {
                Ok(true) if !walk.dry_run => match self.keep_view(worker, handle) {
                    Ok(Kept::Stored) => Ok(true),
                    Ok(Kept::Needless) => Ok(false),
                    Ok(Kept::Not(why)) => {
                        self.rich.views.count_unstored(why);
                        walk.figures.failed += 1;
                        Ok(false)
                    }
                    Ok(Kept::Rests(why)) => {
                        return Err(match Unstored::from(why) {
                            Unstored::ReadOnly => FsError::ReadOnly,
                            _ => FsError::NoSpace,
                        });
                    }
                    Err(error) => Err(error),
                },
                wants => wants,
            },
        };
        match done {
            Ok(true) => {
                walk.figures.changed += 1;
                if !walk.dry_run {
                    walked.changed.push(handle.clone());
                }
            }
            Ok(false) => {}
            Err(FsError::ReadOnly) => return Err(FsError::ReadOnly),
            // It is gone since it was listed.
            Err(FsError::Stale | FsError::NotFound) => {}
            Err(error) => {
                tracing::debug!(%error, "a file is left out");
                walk.figures.failed += 1;
            }
        }
        Ok(())
    }

    /// Removes what is stored with a file and is what a conversion gives; whether there was
    /// something. Without `note` it only looks.
    fn compact(
        &self,
        worker: &Worker,
        handle: &Handle,
        note: Option<Note<'_>>,
        unmade: &mut Vec<AclEdit>,
    ) -> Result<bool, FsError> {
        let had_view = self.drop_view(worker, handle, note.is_none())?;
        let had_list = self.compact_truth(worker, handle, note, unmade)?;
        Ok(had_view || had_list)
    }
}
