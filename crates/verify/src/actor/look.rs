//! Looks at a tree from outside, with everything in it.

use crate::oracle::{Entry, EntryKind};
use crate::workload::rows;
use base::limits::{VERIFY_FOUND_BYTES_MAX, VERIFY_FOUND_MAX};
use std::fs;
use std::io;
use std::path::Path;

/// Where file systems put what their repair finds without a name. It is in the root, and theirs.
const LOST_AND_FOUND: &str = "lost+found";

/// Everything below `root` with its content, in no order; of `databases` their rows, and nothing of
/// the files that SQLite has beside them.
///
/// # Errors
/// Of listing a directory; [`io::ErrorKind::FileTooLarge`] if there is more than the limits allow.
pub fn look(root: &Path, databases: &[String]) -> io::Result<Vec<Entry>> {
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut left = vec![String::new()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if directory.is_empty() && name == LOST_AND_FOUND {
                continue;
            }
            let path = match directory.as_str() {
                "" => name,
                directory => format!("{directory}/{name}"),
            };
            let is_database = databases.contains(&path);
            if !is_database && is_beside(&path, databases) {
                continue;
            }
            let kind = match is_database {
                true => database(&root.join(&path)),
                false => kind(&entry)?,
            };
            match &kind {
                EntryKind::Directory => left.push(path.clone()),
                EntryKind::File(content) => bytes += content.len() as u64,
                _ => {}
            }
            found.push(Entry { path, kind });
            if found.len() > VERIFY_FOUND_MAX || bytes > VERIFY_FOUND_BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
    }
    Ok(found)
}

/// Whether a file is a journal of one of these.
fn is_beside(path: &str, databases: &[String]) -> bool {
    let mut names = databases.iter();
    names.any(|name| {
        path.strip_prefix(name.as_str())
            .is_some_and(|rest| rest.starts_with('-'))
    })
}

fn database(path: &Path) -> EntryKind {
    match rows(path) {
        Ok(rows) => EntryKind::File(rows),
        Err(error) => EntryKind::Unreadable(error.to_string()),
    }
}

fn kind(entry: &fs::DirEntry) -> io::Result<EntryKind> {
    let metadata = match entry.metadata() {
        Ok(metadata) => metadata,
        Err(error) => return Ok(EntryKind::Unreadable(error.to_string())),
    };
    if metadata.is_dir() {
        return Ok(EntryKind::Directory);
    }
    if !metadata.is_file() {
        return Ok(EntryKind::Other);
    }
    if metadata.len() > VERIFY_FOUND_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    match fs::read(entry.path()) {
        Ok(bytes) => Ok(EntryKind::File(bytes)),
        Err(error) => Ok(EntryKind::Unreadable(error.to_string())),
    }
}
