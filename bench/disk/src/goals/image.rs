//! An ext4 with real files of this machine: as it was made, aged, and as its next version.
//!
//! The fresh one has its files in the order in which they were copied. The aged one has had a part
//! of them deleted and written anew, several times, several files at once, each block allocated
//! when it was written: files lie in pieces, and neighbours have nothing to do with each other. The
//! next version has one of a hundred files replaced, as an update of packages does it.

use super::Options;
use super::site::{Site, mount, output};
use anyhow::{Context, Result, ensure};
use figures::Random;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where there are files; the first ones are taken first.
const SOURCES: [&str; 8] = [
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/locale",
    "/usr/share/perl",
    "/usr/share/icons",
    "/usr/lib/python3",
    "/usr/share",
    "/usr/lib",
];
/// So much of the image may be files.
const FULL: f64 = 0.8;
/// How often files of the aged one are replaced, and which part of them each time.
const ROUNDS: u64 = 4;
const REPLACED: usize = 5;
/// Files that are written at once when it ages, and in pieces of this length.
const TOGETHER: usize = 8;
const PIECE_BYTES: usize = 8192;
/// Longer files are left as they are.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Where the program of the part `program` has its files.
pub(super) const PYTHON: &str = "python";

/// Images, and the paths of the files in them.
pub(super) struct Images {
    pub(super) fresh: PathBuf,
    pub(super) aged: PathBuf,
    pub(super) next: PathBuf,
    /// Of all of them, and without those of the program.
    pub(super) files: Vec<String>,
    /// Whether there is a program.
    pub(super) has_python: bool,
    bytes: u64,
}

impl Images {
    pub(super) fn make(site: &Site, options: &Options) -> Result<Self> {
        let fresh = site.path("fresh.img");
        File::create(&fresh)?.set_len(options.size << 20)?;
        output(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&fresh))?;
        let mut copied = Copied {
            root: site.path("root"),
            files: Vec::new(),
            files_max: options.files,
            bytes: 0,
            bytes_max: ((options.size << 20) as f64 * FULL) as u64,
        };
        let python = standard_library();
        with_mounted(&fresh, &copied.root.clone(), "loop", || {
            if let Some(library) = &python {
                // Half of a small image is left for what others read.
                let (files_max, bytes_max) = (copied.files_max, copied.bytes_max);
                (copied.files_max, copied.bytes_max) = (files_max / 2, bytes_max / 2);
                copied.tree(library, Path::new(PYTHON))?;
                (copied.files_max, copied.bytes_max) = (files_max, bytes_max);
            }
            for source in SOURCES {
                let source = Path::new(source);
                copied.tree(source, source.strip_prefix("/")?)?;
            }
            Ok(())
        })?;
        let Copied {
            root, files, bytes, ..
        } = copied;
        ensure!(files.len() >= 100, "there are no files to copy");
        let images = Self {
            fresh,
            aged: site.path("aged.img"),
            next: site.path("next.img"),
            files,
            has_python: python.is_some(),
            bytes,
        };
        let mut random = Random::new(options.seed);
        copy(&images.fresh, &images.aged)?;
        // Blocks are allocated when they are written, not when they are flushed.
        with_mounted(&images.aged, &root, "loop,nodelalloc", || {
            (0..ROUNDS).try_for_each(|_| images.age(&root, &mut random))
        })?;
        copy(&images.fresh, &images.next)?;
        with_mounted(&images.next, &root, "loop", || {
            let chosen = choose(&images.files, images.files.len() / 100, &mut random);
            chosen.iter().try_for_each(|name| update(&root.join(name)))
        })?;
        Ok(images)
    }

    pub(super) fn notes(&self) -> Vec<String> {
        vec![format!(
            "ext4 with {} files of this machine, {:.0} MB",
            self.files.len(),
            self.bytes as f64 / 1e6
        )]
    }

    /// So many files, without those of the program.
    ///
    /// # Errors
    /// There are fewer: what is measured with none says nothing.
    pub(super) fn some(&self, count: usize, random: &mut Random) -> Result<Vec<String>> {
        let own: Vec<_> = self
            .files
            .iter()
            .filter(|name| !name.starts_with(PYTHON))
            .cloned()
            .collect();
        let there = own.len();
        ensure!(
            there >= count,
            "{there} files beside the program's are fewer than {count}: take more --files"
        );
        Ok(choose(&own, count, random))
    }

    /// Deletes some files and writes them anew, several at once.
    fn age(&self, root: &Path, random: &mut Random) -> Result<()> {
        let chosen = choose(&self.files, self.files.len() / REPLACED, random);
        let mut replaced = Vec::new();
        for name in &chosen {
            let path = root.join(name);
            let metadata = fs::metadata(&path)?;
            if metadata.len() <= FILE_BYTES_MAX {
                replaced.push((path.clone(), fs::read(&path)?, metadata.modified()?));
                fs::remove_file(&path)?;
            }
        }
        for together in replaced.chunks(TOGETHER) {
            let mut files = Vec::new();
            for (path, ..) in together {
                files.push(File::create_new(path)?);
            }
            let longest = together.iter().map(|(_, bytes, _)| bytes.len()).max();
            for at in (0..longest.unwrap_or(0)).step_by(PIECE_BYTES) {
                for (file, (_, bytes, _)) in files.iter_mut().zip(together) {
                    let end = bytes.len().min(at + PIECE_BYTES);
                    file.write_all(bytes.get(at..end).unwrap_or_default())?;
                }
            }
            for (file, (.., time)) in files.iter().zip(together) {
                file.set_modified(*time)?;
            }
        }
        Ok(())
    }
}

/// What has been copied.
struct Copied {
    root: PathBuf,
    files: Vec<String>,
    files_max: usize,
    bytes: u64,
    bytes_max: u64,
}

impl Copied {
    /// Copies files of a tree, in the order of their names, until there are enough.
    fn tree(&mut self, from: &Path, to: &Path) -> Result<()> {
        // What cannot be read is no file for this purpose.
        let Ok(entries) = fs::read_dir(from) else {
            return Ok(());
        };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if self.files.len() >= self.files_max || self.bytes >= self.bytes_max {
                return Ok(());
            }
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            let (from, to) = (entry.path(), to.join(&name));
            let metadata = entry.metadata()?;
            if metadata.is_dir() && name != "site-packages" {
                self.tree(&from, &to)?;
            }
            let is_new = || !self.root.join(&to).exists();
            // A line of a list is a name.
            if metadata.is_file() && metadata.len() > 0 && !name.contains('\n') && is_new() {
                self.file(&from, &to, &metadata)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, to: &Path, metadata: &fs::Metadata) -> Result<()> {
        if self.bytes + metadata.len() > self.bytes_max {
            return Ok(());
        }
        let into = self.root.join(to);
        fs::create_dir_all(into.parent().context("below the root")?)?;
        self.bytes += fs::copy(from, &into)?;
        // What Python has compiled is good for a source of this time.
        let file = File::options().append(true).open(&into)?;
        file.set_modified(metadata.modified()?)?;
        self.files.push(to.to_string_lossy().into_owned());
        Ok(())
    }
}

/// Replaces a file as a package's update does: a new one with its name.
fn update(path: &Path) -> Result<()> {
    let time = fs::metadata(path)?.modified()?;
    let mut name = path.file_name().context("a file")?.to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    fs::copy(path, &new)?;
    let mut file = File::options().append(true).open(&new)?;
    // What Python has compiled stays as it is: it is read all the same.
    if path.extension().is_none_or(|is| is != "pyc" && is != "so") {
        file.write_all(b"\n")?;
    }
    file.set_modified(time)?;
    fs::rename(&new, path)?;
    Ok(())
}

/// Where Python has its own modules.
fn standard_library() -> Option<PathBuf> {
    let script = "import sysconfig; print(sysconfig.get_path('stdlib'))";
    let said = output(Command::new("python3").args(["-c", script])).ok()?;
    let path = PathBuf::from(said.trim());
    path.join("os.py").exists().then_some(path)
}

/// So many, each once, in an order by chance.
pub(super) fn choose<T: Clone>(from: &[T], count: usize, random: &mut Random) -> Vec<T> {
    let mut all = from.to_vec();
    let count = count.min(all.len());
    for at in 0..count {
        let left = (all.len() - at) as u64;
        all.swap(at, at + random.below(left) as usize);
    }
    all.truncate(count);
    all
}

/// Copies an image with its holes.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    let how = ["--sparse=always", "--reflink=auto"];
    output(command.args(how).arg(from).arg(to)).map(drop)
}

/// Does something with a file system that is mounted.
fn with_mounted(
    image: &Path,
    on: &Path,
    options: &str,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    mount(image, on, options)?;
    let done = work();
    let off = output(Command::new("umount").arg(on));
    done.and(off.map(drop))
}
