//! Which of a kernel's modules a guest loads, and in which order.

use super::PowercutError;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What every guest needs: its disks, and the codes that libcrc32c and btrfs ask the kernel for by
/// the names of algorithms.
const ALWAYS: [&str; 5] = [
    "virtio_pci",
    "virtio_blk",
    "crc32c_generic",
    "xxhash_generic",
    "blake2b_generic",
];

/// The modules of a kernel by their names, with what each needs.
type Modules = BTreeMap<String, (PathBuf, Vec<String>)>;

/// The name of a module, as others ask for it.
fn name(file: &str) -> Option<String> {
    file.strip_suffix(".ko").map(|name| name.replace('-', "_"))
}

/// Finds the modules below a directory whose names are asked for, and whatever these need, in an
/// order in which they can be loaded. What is built in needs none.
///
/// # Errors
/// [`PowercutError::Kernel`] if they cannot be read.
pub(super) fn order(directory: &Path, wanted: &[&str]) -> Result<Vec<PathBuf>, PowercutError> {
    let why = |error: io::Error| PowercutError::Kernel(format!("modules: {error}"));
    let mut files = BTreeMap::new();
    find(directory, &mut files).map_err(why)?;
    let mut modules = Modules::new();
    let mut left: Vec<String> = ALWAYS.iter().chain(wanted).map(|w| (*w).into()).collect();
    while let Some(name) = left.pop() {
        // It is built in.
        let Some(path) = files.get(&name) else {
            continue;
        };
        if let Entry::Vacant(place) = modules.entry(name) {
            let needs = depends(&fs::read(path).map_err(why)?);
            left.extend(needs.iter().cloned());
            place.insert((path.clone(), needs));
        }
    }
    let mut ordered = Vec::new();
    for name in ALWAYS.iter().chain(wanted) {
        add(&modules, name, &mut ordered);
    }
    Ok(ordered)
}

/// Whether there is a module of this name below a directory, or the kernel has the same built in,
/// as its own list there says.
///
/// # Errors
/// [`PowercutError::Kernel`] if they cannot be read.
pub(super) fn is_there(directory: &Path, wanted: &str) -> Result<bool, PowercutError> {
    let mut files = BTreeMap::new();
    let found = find(directory, &mut files);
    found.map_err(|error| PowercutError::Kernel(format!("modules: {error}")))?;
    let built_in = fs::read_to_string(directory.join("modules.builtin")).unwrap_or_default();
    let mut built_in = built_in
        .lines()
        .filter_map(|line| name(line.rsplit('/').next()?));
    Ok(files.contains_key(wanted) || built_in.any(|one| one == wanted))
}

fn find(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), files)?;
        } else if let Some(name) = name(&entry.file_name().to_string_lossy()) {
            files.insert(name, entry.path());
        }
    }
    Ok(())
}

/// Adds a module after those that it needs. They form no circle: the kernel could not load them.
fn add(modules: &Modules, name: &str, ordered: &mut Vec<PathBuf>) {
    let Some((path, needs)) = modules.get(name) else {
        return;
    };
    if ordered.contains(path) {
        return;
    }
    for need in needs {
        add(modules, need, ordered);
    }
    ordered.push(path.clone());
}

/// What a module says that it needs: `depends=jbd2,mbcache` between two NULs, in the section
/// `.modinfo` of its file.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else {
        return Vec::new();
    };
    let rest = &module[at + KEY.len()..];
    let end = rest.iter().position(|byte| *byte == 0);
    let value = String::from_utf8_lossy(&rest[..end.unwrap_or(rest.len())]);
    let names = value.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=jbd2,mb-cache\0name=ext4\0";
        assert_eq!(depends(module), ["jbd2", "mb_cache"]);
        assert_eq!(depends(b"\0depends=\0"), [""; 0]);
        assert_eq!(depends(b"\x7fELF"), [""; 0]);
    }

    #[test]
    fn what_is_needed_is_loaded_before() {
        let directory = std::env::temp_dir().join(format!("modules-{}", std::process::id()));
        let below = directory.join("kernel/fs");
        fs::create_dir_all(&below).unwrap();
        for (name, needs) in [
            ("virtio_pci", "virtio"),
            ("virtio", ""),
            ("virtio_blk", "virtio"),
            ("ext4", "jbd2,built-in"),
            ("jbd2", ""),
            ("xfs", ""),
        ] {
            let text = format!("\0depends={needs}\0");
            fs::write(below.join(format!("{name}.ko")), text).unwrap();
        }
        let ordered = order(&directory, &["ext4"]).unwrap();
        let names: Vec<&str> = ordered
            .iter()
            .map(|path| path.file_stem().unwrap().to_str().unwrap())
            .collect();
        let known = ["virtio", "virtio_pci", "virtio_blk", "jbd2", "ext4"];
        assert_eq!(names, known);
        fs::remove_dir_all(&directory).unwrap();
    }
}
