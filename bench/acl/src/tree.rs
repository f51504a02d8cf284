//! A tree of files with lists, and handles of all of it.

use crate::Cli;
use crate::lists::{Service, give, list};
use crate::place::{Image, Kind, open, permissions, served};
use anyhow::Result;
use base::{Handle, Name, Principal};
use export::{Export, Worker};
use figures::{Random, spread};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;

/// Files of one directory.
const PER_DIRECTORY: usize = 100;
/// Bytes of a file: one block.
pub(crate) const FILE_BYTES: usize = 4096;
/// Room of a file system: for files, lists in blocks of their own, copies of those.
const ROOM_BYTES: u64 = 1 << 30;

/// An image with a tree in it.
pub(crate) struct Tree {
    pub(crate) image: Image,
    pub(crate) found: Found,
}

/// What is in a tree, by handle.
pub(crate) struct Found {
    pub(crate) directories: Vec<Handle>,
    /// With the directory of each and its name there.
    pub(crate) files: Vec<(usize, Name, Handle)>,
    pub(crate) links: Vec<Handle>,
}

impl Tree {
    /// Makes a tree with the lengths of a service.
    pub(crate) fn new(cli: &Cli, kind: Kind, service: Service) -> Result<Self> {
        let image = Image::new(&cli.directory, kind, ROOM_BYTES, cli.files as u64)?;
        let mounted = image.mount()?;
        let top = mounted.path();
        let lengths = service.lengths();
        let data: Vec<u8> = (0..FILE_BYTES as u64 / 8)
            .flat_map(|word| spread(word).to_le_bytes())
            .collect();
        let lists = match cli.distinct {
            0 => cli.files,
            lists => lists,
        };
        for number in 0..cli.files {
            let directory = top.join(directory_name(number / PER_DIRECTORY));
            if number.is_multiple_of(PER_DIRECTORY) {
                fs::create_dir(&directory)?;
                fs::set_permissions(&directory, permissions(0o777))?;
                symlink("somewhere/else", directory.join("link"))?;
            }
            let path = directory.join(file_name(number));
            let mut file = File::create_new(&path)?;
            file.set_permissions(permissions(0o666))?;
            file.write_all(&data)?;
            // Lists of the same number are the same, and so are their lengths.
            let seed = number as u64 % lists as u64;
            let entries = lengths.draw(&mut Random::new(spread(seed)));
            if let Some(list) = list(entries, seed) {
                give(&path, &list)?;
            }
        }
        mounted.sync()?;
        let export = open(top)?;
        let found = served(&export, |worker| Found::find(&export, worker, cli.files))?;
        drop(export);
        drop(mounted);
        Ok(Self { image, found })
    }
}

impl Found {
    fn find(export: &Export, worker: &Worker, files: usize) -> Result<Self> {
        let root = Principal::root();
        let find = |parent: &Handle, name: &Name| -> Result<Handle> {
            Ok(export.lookup(worker, &root, parent, name)?.handle)
        };
        let mut found = Self {
            directories: Vec::new(),
            files: Vec::new(),
            links: Vec::new(),
        };
        for number in 0..files.div_ceil(PER_DIRECTORY) {
            let directory = find(export.root(), &Name::new(directory_name(number))?)?;
            found.links.push(find(&directory, &Name::new("link")?)?);
            found.directories.push(directory);
        }
        for number in 0..files {
            let name = Name::new(file_name(number))?;
            let directory = number / PER_DIRECTORY;
            let handle = find(&found.directories[directory], &name)?;
            found.files.push((directory, name, handle));
        }
        Ok(found)
    }
}

pub(crate) fn directory_name(number: usize) -> String {
    format!("d{number:05}")
}

fn file_name(number: usize) -> String {
    format!("f{number:07}")
}

/// Somebody whom no list names.
pub(crate) fn somebody() -> Principal {
    Principal::alone(90_001, 90_001)
}
