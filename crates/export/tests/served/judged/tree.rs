//! What a tree is like, and copies of it.

use rustix::fs::{AtFlags, Gid, Uid, XattrFlags};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Everything about a tree that a user could see, except inode numbers and the time of day.
pub(super) fn describe(base: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![PathBuf::from(".")];
    while let Some(relative) = todo.pop() {
        let path = base.join(&relative);
        let meta = std::fs::symlink_metadata(&path).expect("root sees everything");
        let xattrs = xattrs(&path);
        let contents = if meta.is_file() && meta.size() < 10_000 {
            std::fs::read(&path).expect("readable")
        } else {
            Vec::new()
        };
        let old = |time: i64| {
            if time == 1_000_000_000 {
                "old"
            } else {
                "recent"
            }
        };
        lines.push(format!(
            "{} {:o} {}:{} {} {} {} {} {} {contents:?} {xattrs:?}",
            relative.display(),
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.size(),
            meta.nlink(),
            meta.rdev(),
            old(meta.atime()),
            old(meta.mtime()),
        ));
        if meta.is_dir() {
            let entries = std::fs::read_dir(&path).expect("root lists everything");
            todo.extend(entries.map(|e| relative.join(e.expect("readable").file_name())));
        }
    }
    lines.sort();
    lines
}

/// Copies a tree with everything that [`describe`] looks at.
pub(super) fn copy(from: &Path, to: &Path) {
    let meta = std::fs::symlink_metadata(from).expect("there");
    if meta.is_symlink() {
        let target = std::fs::read_link(from).expect("a link");
        std::os::unix::fs::symlink(target, to).expect("a free name");
    } else if meta.is_dir() {
        std::fs::create_dir(to).expect("a free name");
        for entry in std::fs::read_dir(from).expect("a directory") {
            let name = entry.expect("readable").file_name();
            copy(&from.join(&name), &to.join(&name));
        }
    } else {
        std::fs::write(to, std::fs::read(from).expect("readable")).expect("a free name");
    }
    let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::chownat(rustix::fs::CWD, to, Some(uid), Some(gid), flags).expect("root may");
    if !meta.is_symlink() {
        std::fs::set_permissions(to, meta.permissions()).expect("root may");
        for (name, value) in xattrs(from) {
            rustix::fs::setxattr(to, &*name, &value, XattrFlags::empty()).expect("root may");
        }
    }
}

fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut list).expect("listable");
    let names = list[..len]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty());
    let values = names.map(|name| {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(path, name, &mut value).expect("readable");
        (
            String::from_utf8_lossy(name).into_owned(),
            value[..len].to_vec(),
        )
    });
    values.collect()
}
