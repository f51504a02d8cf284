//! Files that are kept, and what is noted of each image; which files and chunks are needed.
//!
//! Whoever changes them has the turn (`kept/lock`): a note and its files appear while nobody finds
//! out what is needed, and what is found to be needed by nobody goes before the next note comes. A
//! file is there whole and durable, or not there: it lies in the cache's `tmp/` before.

use super::{Image, source, wanted};
use crate::cache::Cache;
use crate::chunk::ChunkId;
use crate::error::{Damage, DiskError};
use crate::manifest::{Manifest, Tag, VersionId};
use crate::name::{FileName, is_component};
use crate::pack::PACKS;
use crate::repository::{INDEXES, TAGS, Turn, VERSIONS, flush_directory, write_durably};
use crate::signed::Trust;
use crate::training::{TRAININGS, Trained, Training};
use base::limits::DISK_CACHE_TURN_TIME_MAX;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PINS: &str = "pins";
/// A note's file: a version and the names of all profiles that it can have.
const NOTE_BYTES_MAX: u64 = 16 << 10;

/// What is noted of an image that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) version: VersionId,
    /// None: everything.
    pub(super) profiles: Option<Vec<String>>,
}

/// The turn of the one who changes what is kept.
pub(super) fn turn(cache: &Cache) -> Result<Turn, DiskError> {
    let kept = cache.kept();
    fs::create_dir_all(&kept).map_err(DiskError::file("make the directory", &kept))?;
    Turn::alone(&kept.join("lock"), DISK_CACHE_TURN_TIME_MAX)
}

/// Where what is noted of an image lies.
pub(super) fn note_path(cache: &Cache, image: Image<'_>) -> PathBuf {
    let name = format!("{}@{}", image.tag.image(), image.tag.label());
    cache.kept().join(image.place).join(PINS).join(name)
}

pub(super) fn read_note(cache: &Cache, image: Image<'_>) -> Result<Option<Note>, DiskError> {
    let path = note_path(cache, image);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(DiskError::file("read", &path))?,
    };
    let note = (bytes.len() as u64 <= NOTE_BYTES_MAX)
        .then(|| postcard::from_bytes(&bytes).ok())
        .flatten();
    note.map(Some).ok_or_else(|| DiskError::Damaged {
        place: path.display().to_string(),
        damage: Damage::Record,
    })
}

/// Tags of a place of which something is kept, in order.
pub(super) fn tags(cache: &Cache, place: &str) -> Result<Vec<Tag>, DiskError> {
    let names = names(&cache.kept().join(place).join(PINS))?;
    let tags = names.iter().filter_map(|name| {
        let (image, label) = name.split_once('@')?;
        format!("{image}:{label}").parse().ok()
    });
    let mut tags: Vec<_> = tags.collect();
    tags.sort();
    Ok(tags)
}

/// Places of which something was kept at some time, in order.
pub(super) fn places(cache: &Cache) -> Result<Vec<String>, DiskError> {
    let kept = cache.kept();
    let mut places = names(&kept)?;
    places.retain(|name| is_component(name) && kept.join(name).join(PINS).is_dir());
    places.sort();
    Ok(places)
}

/// The names in a directory; none if it is not there. What is no text is somebody else's.
fn names(path: &Path) -> Result<Vec<String>, DiskError> {
    let entries = match fs::read_dir(path) {
        Err(error) if is_nothing_there(&error) => return Ok(Vec::new()),
        entries => entries.map_err(DiskError::file("list", path))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(DiskError::file("list", path))?.file_name();
        names.extend(name.into_string());
    }
    Ok(names)
}

fn is_nothing_there(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Files that are about to be kept; they lie in `tmp/` until then.
pub(super) struct Staged<'a> {
    cache: &'a Cache,
    /// Each with its place, in the order in which they appear there.
    files: Vec<(PathBuf, PathBuf)>,
    gone: Vec<PathBuf>,
}

impl<'a> Staged<'a> {
    pub(super) fn new(cache: &'a Cache) -> Self {
        Self {
            cache,
            files: Vec::new(),
            gone: Vec::new(),
        }
    }

    pub(super) fn put(&mut self, path: PathBuf, bytes: &[u8]) -> Result<(), DiskError> {
        let temporary = self.cache.temporary();
        let written = write_durably(&temporary, bytes);
        written.map_err(DiskError::file("keep", &path))?;
        self.files.push((temporary, path));
        Ok(())
    }

    /// A file is to be there no more.
    pub(super) fn remove(&mut self, path: PathBuf) {
        self.gone.push(path);
    }

    /// Puts everything into its place, and then what is noted of it.
    pub(super) fn settle(mut self, image: Image<'_>, note: &Note) -> Result<(), DiskError> {
        let bytes = postcard::to_stdvec(note).expect("a note is plain data");
        self.put(note_path(self.cache, image), &bytes)?;
        let _turn = turn(self.cache)?;
        for path in &self.gone {
            remove(path)?;
        }
        for (temporary, path) in &self.files {
            let directory = path.parent().expect("files lie in directories");
            let settled = fs::create_dir_all(directory)
                .and_then(|()| fs::rename(temporary, path))
                .and_then(|()| flush_directory(path));
            settled.map_err(DiskError::file("keep", path))?;
        }
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        for (temporary, _) in &self.files {
            // Those that are in their place are not here any more.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<(), DiskError> {
    match fs::remove_file(path) {
        Err(error) if is_nothing_there(&error) => Ok(()),
        removed => removed.map_err(DiskError::file("remove", path)),
    }
}

/// What images that are kept need.
#[derive(Debug, Default)]
pub(super) struct Needed {
    pub(super) chunks: HashSet<ChunkId>,
    files: HashSet<PathBuf>,
}

impl Needed {
    /// Adds what an image needs. Nobody asks here who has signed it: it was believed when it was
    /// kept, and is what its name says.
    pub(super) fn add(&mut self, cache: &Cache, image: Image<'_>) -> Result<(), DiskError> {
        let Some(note) = read_note(cache, image)? else {
            return Ok(());
        };
        let near = source(cache, image.place, None);
        let manifest = Manifest::read(&near, note.version, &Trust::Anybody)?;
        let mut files = vec![
            image.tag.file(),
            note.version.file(),
            manifest.index_file(),
            Training::file_of(note.version),
        ];
        let trained = match Training::find(&near, note.version, &Trust::Anybody)? {
            None => Trained {
                index: Arc::new(manifest.read_index(&near)?),
                packs: Vec::new(),
                uncut: None,
            },
            Some(training) => {
                files.push(training.index_file());
                files.extend(training.packs().iter().map(|pack| pack.file()));
                Trained {
                    index: Arc::new(training.read_index(&near, &manifest)?),
                    packs: training.packs().to_vec(),
                    uncut: None,
                }
            }
        };
        let wanted = wanted(&near, &note, &trained)?;
        self.chunks
            .extend(wanted.order.iter().map(|(spec, _)| spec.id));
        self.files
            .extend(files.iter().map(|file| near.path_of(file)));
        Ok(())
    }

    /// Removes all other files. Those of the release before, which did not keep places apart, are
    /// among them: tags, trainings and notes beside what is the same for all places.
    pub(super) fn remove_others(&self, cache: &Cache) -> Result<(), DiskError> {
        let kept = cache.kept();
        for directory in [VERSIONS, INDEXES, PACKS, TAGS, TRAININGS, PINS] {
            self.remove_others_in(&kept, directory)?;
        }
        for place in places(cache)? {
            for directory in [TAGS, TRAININGS] {
                self.remove_others_in(&kept.join(&place), directory)?;
            }
        }
        Ok(())
    }

    fn remove_others_in(&self, below: &Path, directory: &str) -> Result<(), DiskError> {
        let path = below.join(directory);
        for name in names(&path)? {
            let file = path.join(&name);
            // Whoever gave a directory with other things in it keeps them.
            let is_own = FileName::new(&format!("{directory}/{name}")).is_ok() && file.is_file();
            if is_own && !self.files.contains(&file) {
                remove(&file)?;
            }
        }
        Ok(())
    }
}
