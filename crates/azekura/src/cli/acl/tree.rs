//! A file, or all that is below a directory, one after another.

use super::Place;
use crate::errors::Result;
use base::{FileKind, Principal};
use client::volume::{View, Volume};

/// A file on the way through a tree.
pub(super) struct Visit<'a> {
    pub(super) volume: &'a Volume,
    pub(super) who: &'a Principal,
    pub(super) view: &'a View,
    /// From where the command was pointed at; empty for that itself.
    pub(super) path: &'a str,
}

impl Visit<'_> {
    pub(super) fn is_directory(&self) -> bool {
        self.view.attributes.kind == FileKind::Directory
    }
}

/// Goes through a file and, if it is to, all that is below it, directories before what is in them.
/// Symbolic links have no ACL and are left out. How many there were.
pub(super) async fn walk(
    place: &Place,
    is_recursive: bool,
    mut visit: impl AsyncFnMut(Visit<'_>) -> Result<()>,
) -> Result<u64> {
    let Place {
        volume, who, view, ..
    } = place;
    let mut count = 0;
    // Directories that are still to be listed: as many as there are beside the way down.
    let mut open = vec![(view.clone(), String::new())];
    let mut is_first = true;
    while let Some((view, path)) = open.pop() {
        if is_first {
            is_first = false;
            count += 1;
            visit(Visit {
                volume,
                who,
                view: &view,
                path: &path,
            })
            .await?;
        }
        if !is_recursive || view.attributes.kind != FileKind::Directory {
            continue;
        }
        for entry in volume.list(who, view.node).await? {
            // It may be gone since it was listed.
            let Some(found) = volume.lookup(who, view.node, &entry.name).await? else {
                continue;
            };
            if found.attributes.kind == FileKind::Symlink {
                continue;
            }
            let path = format!("{path}/{}", entry.name);
            count += 1;
            visit(Visit {
                volume,
                who,
                view: &found,
                path: &path,
            })
            .await?;
            if found.attributes.kind == FileKind::Directory {
                open.push((found, path));
            }
        }
    }
    Ok(count)
}
