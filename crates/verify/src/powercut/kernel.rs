//! The guest's kernel and its only program, from packages of Debian that are downloaded and taken
//! apart, and never installed.

use super::PowercutError;
use super::cpio::Archive;
use super::modules;
use crate::actor::{lock_run, output};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that depends on the newest kernel.
pub const KERNEL_DEFAULT: &str = "linux-image-amd64";
const BUSYBOX: &str = "busybox-static";
/// A kernel, and the program for its guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// As the kernel calls itself: `6.1.0-56-amd64`.
    pub version: String,
    /// Its file.
    pub image: PathBuf,
    modules: PathBuf,
    busybox: PathBuf,
}

fn broken(what: impl Into<String>) -> PowercutError {
    PowercutError::Kernel(what.into())
}

fn words(path: &Path) -> impl Fn(io::Error) -> PowercutError {
    move |error| broken(format!("{}: {error}", path.display()))
}

/// The package that another one stands for: `linux-image-amd64` is empty and depends on a kernel.
///
/// # Errors
/// [`PowercutError::Kernel`] if apt does not know it.
pub fn resolve(package: &str) -> Result<String, PowercutError> {
    if package.starts_with('-') {
        return Err(broken(format!("{package} is no package")));
    }
    let said = output(Command::new("apt-cache").args(["depends", package]), 0).map_err(broken)?;
    Ok(depends_on_kernel(&said).unwrap_or(package).to_owned())
}

/// The kernel in what `apt-cache depends` says of an empty package; those of whole kernels depend
/// on none.
fn depends_on_kernel(said: &str) -> Option<&str> {
    let mut needs = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    needs.find(|package| package.starts_with("linux-image-"))
}

/// Whether a package is in the cache already.
#[must_use]
pub fn is_cached(cache: &Path, package: &str) -> bool {
    cache.join(package).is_dir()
}

/// Has a package taken apart in the cache, and downloads it if it is not there yet.
fn unpacked(cache: &Path, package: &str) -> Result<PathBuf, PowercutError> {
    let place = cache.join(package);
    if place.is_dir() {
        return Ok(place);
    }
    fs::create_dir_all(cache).map_err(words(cache))?;
    remove_stale(cache);
    // Under another name until it is whole. Two runs may do the same at once.
    let partial = cache.join(format!(".{package}-{}", std::process::id()));
    let taken = unpack(&partial, package).and_then(|root| {
        let renamed = fs::rename(root, &place);
        match renamed {
            Err(_) if place.is_dir() => Ok(()),
            renamed => renamed.map_err(words(&place)),
        }
    });
    let _ = fs::remove_dir_all(&partial);
    taken.map(|()| place)
}

/// Removes what was being downloaded when a run was killed.
fn remove_stale(cache: &Path) {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let is_partial = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with('.') && matches!(lock_run(path), Ok(Some(_)))
    };
    for path in entries.map(|entry| entry.path()).filter(is_partial) {
        let _ = fs::remove_dir_all(path);
    }
}

fn unpack(partial: &Path, package: &str) -> Result<PathBuf, PowercutError> {
    fs::create_dir(partial).map_err(words(partial))?;
    // Held until it is taken over or given up.
    let _lock = lock_run(partial).map_err(words(partial))?;
    let mut download = Command::new("apt-get");
    download
        .args(["download", "-q", package])
        .current_dir(partial);
    output(&mut download, 0).map_err(broken)?;
    let entries = fs::read_dir(partial).map_err(words(partial))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "deb"));
    let file = file.ok_or_else(|| broken(format!("apt-get has downloaded no {package}")))?;
    let root = partial.join("root");
    output(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&root), 0).map_err(broken)?;
    Ok(root)
}

/// The first of these that is there.
fn first(root: &Path, names: &[&str]) -> Result<PathBuf, PowercutError> {
    let mut paths = names.iter().map(|name| root.join(name));
    let found = paths.find(|path| path.exists());
    found.ok_or_else(|| broken(format!("{} has no {}", root.display(), names[0])))
}

impl Kernel {
    /// Has a kernel and busybox in the cache.
    ///
    /// # Errors
    /// [`PowercutError::Kernel`] if one cannot be had.
    pub fn get(cache: &Path, package: &str) -> Result<Self, PowercutError> {
        let root = unpacked(cache, package)?;
        let busybox = unpacked(cache, BUSYBOX)?;
        let modules = first(&root, &["lib/modules", "usr/lib/modules"])?;
        let mut versions = fs::read_dir(&modules).map_err(words(&modules))?.flatten();
        let version = versions.next().map(|entry| entry.file_name());
        let version = version.ok_or_else(|| broken(format!("{package} has no modules")))?;
        let version = version.to_string_lossy().into_owned();
        Ok(Self {
            image: first(&root, &[&format!("boot/vmlinuz-{version}")])?,
            modules: modules.join(&version),
            busybox: first(&busybox, &["bin/busybox", "usr/bin/busybox"])?,
            version,
        })
    }

    /// The program that is all that a guest needs.
    #[must_use]
    pub fn busybox(&self) -> &Path {
        &self.busybox
    }

    /// Whether it has a module of this name, or the same built in.
    ///
    /// # Errors
    /// [`PowercutError::Kernel`] if its modules cannot be read.
    pub fn has(&self, module: &str) -> Result<bool, PowercutError> {
        modules::is_there(&self.modules, module)
    }

    /// The first file system of a guest that runs `init`, a script of busybox. Modules of these
    /// names, and what they need, lie in `/modules`, and in `/modules/order` as they are loaded.
    ///
    /// # Errors
    /// [`PowercutError::Kernel`] if something is missing.
    pub fn initrd(&self, init: &str, wanted: &[&str]) -> Result<Vec<u8>, PowercutError> {
        let read = |path: &Path| fs::read(path).map_err(words(path));
        let mut archive = Archive::default();
        for directory in ["bin", "dev", "modules"] {
            archive.directory(directory);
        }
        // The kernel opens it before anything is mounted.
        archive.device("dev/console", 5, 1);
        archive.file("bin/busybox", &read(&self.busybox)?);
        archive.file("init", init.as_bytes());
        let mut order = String::new();
        for path in modules::order(&self.modules, wanted)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            archive.file(&format!("modules/{name}"), &read(&path)?);
            order += &format!("{name}\n");
        }
        archive.file("modules/order", order.as_bytes());
        Ok(archive.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_behind_an_empty_package_is_found() {
        let said = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(depends_on_kernel(said), Some("linux-image-6.1.0-56-amd64"));
        let said = "linux-image-6.1.0-56-amd64\n  Depends: kmod\n |Depends: linux-base\n";
        assert_eq!(depends_on_kernel(said), None);
        assert!(resolve("--help").is_err());
    }

    #[test]
    fn what_is_in_the_cache_is_not_downloaded() {
        let cache = std::env::temp_dir().join(format!("kernel-{}", std::process::id()));
        let file = |path: &str, text: &str| {
            let path = cache.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("linux-image-6/boot/vmlinuz-6", "kernel");
        file("linux-image-6/lib/modules/6/fs/xfs.ko", "\0depends=\0");
        file("busybox-static/bin/busybox", "busybox");
        assert!(is_cached(&cache, "linux-image-6") && !is_cached(&cache, "linux-image-7"));
        let kernel = Kernel::get(&cache, "linux-image-6").unwrap();
        assert_eq!(kernel.version, "6");
        let has = |name: &str| kernel.has(name).unwrap();
        assert!(has("xfs") && !has("jfs") && !has("ext4"));
        let built_in = "kernel/fs/ext4/ext4.ko\nkernel/lib/crc16.ko\n";
        file("linux-image-6/lib/modules/6/modules.builtin", built_in);
        assert!(has("ext4") && has("xfs") && !has("jfs"));
        let archive = kernel.initrd("#!/bin/busybox sh", &["xfs"]).unwrap();
        let text = String::from_utf8_lossy(&archive);
        assert!(text.contains("modules/order\0") && text.contains("xfs.ko\n"));
        fs::remove_dir_all(&cache).unwrap();
    }
}
