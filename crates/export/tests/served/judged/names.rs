//! Names: make, link, remove, rename, list.

use super::{Outcome, Side, done, sorted};
use crate::common::name;
use base::FileKind;
use export::RenameMode;
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    MakeDirectory { mode: u16, umask: u16 },
    MakeNode { kind: FileKind },
    Symlink,
    Link,
    Unlink(&'static str),
    RemoveDirectory(&'static str),
    Rename { to: &'static str, mode: RenameMode },
    List,
    ReadLink,
}

impl Op {
    pub(super) fn all() -> Vec<Self> {
        use FileKind::{BlockDevice, CharDevice, Fifo, File, Socket};
        use RenameMode::{Exchange, NoReplace, Replace};
        let directories = [(0o1777, 0o022), (0o770, 0)];
        let renames = [
            ("d/n", Replace),
            ("d/l", Replace),
            ("d/l", NoReplace),
            ("d/l", Exchange),
            ("d/n", Exchange),
            ("e/n", Replace),
            ("d/s", Replace),
        ];
        let mut all = vec![Self::Symlink, Self::Link, Self::List, Self::ReadLink];
        all.extend(directories.map(|(mode, umask)| Self::MakeDirectory { mode, umask }));
        all.extend(
            [File, Fifo, Socket, CharDevice, BlockDevice].map(|kind| Self::MakeNode { kind }),
        );
        all.extend(["f", "s"].map(Self::Unlink));
        all.extend(["f", "s"].map(Self::RemoveDirectory));
        all.extend(renames.map(|(to, mode)| Self::Rename { to, mode }));
        all
    }

    pub(super) fn locally(self, base: &Path) -> Result<String, Errno> {
        let directory = base.join("d");
        let (file, new) = (directory.join("f"), directory.join("n"));
        match self {
            Self::MakeDirectory { mode, umask } => {
                rustix::process::umask(Mode::from_raw_mode(umask.into()));
                done(rustix::fs::mkdir(new, Mode::from_raw_mode(mode.into())))
            }
            Self::MakeNode { kind } => {
                rustix::process::umask(Mode::empty());
                let mode = Mode::from_raw_mode(0o666);
                done(rustix::fs::mknodat(CWD, new, file_type(kind), mode, 0x103))
            }
            Self::Symlink => done(rustix::fs::symlink("../../etc", new)),
            Self::Link => done(rustix::fs::link(file, new)),
            Self::Unlink(name) => done(rustix::fs::unlink(directory.join(name))),
            Self::RemoveDirectory(name) => done(rustix::fs::rmdir(directory.join(name))),
            Self::Rename { to, mode } => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                done(rustix::fs::renameat_with(
                    CWD,
                    file,
                    CWD,
                    base.join(to),
                    flags,
                ))
            }
            Self::List => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let fd = rustix::fs::open(directory, flags, Mode::empty())?;
                let entries = rustix::fs::Dir::new(fd)?.collect::<Result<Vec<_>, _>>()?;
                let names = entries
                    .iter()
                    .map(|entry| entry.file_name().to_bytes().to_vec());
                Ok(sorted(
                    names.filter(|name| !matches!(&name[..], b"." | b"..")),
                ))
            }
            Self::ReadLink => {
                let target = rustix::fs::readlink(directory.join("l"), Vec::new())?;
                Ok(format!("{:?}", target.as_bytes()))
            }
        }
    }

    pub(super) fn served(self, side: &Side<'_>) -> Outcome {
        let (export, worker) = (&side.tree.export, &side.tree.worker);
        let (who, directory, new) = (side.who, &side.directory, name("n"));
        match self {
            Self::MakeDirectory { mode, umask } => {
                done(export.make_directory(worker, who, directory, &new, mode, umask))
            }
            Self::MakeNode { kind } => {
                done(export.make_node(worker, who, directory, &new, kind, 0o666, 0, 0x103))
            }
            Self::Symlink => done(export.make_symlink(worker, who, directory, &new, b"../../etc")),
            Self::Link => done(export.link(worker, who, &side.file()?, directory, &new)),
            Self::Unlink(old) => done(export.unlink(worker, who, directory, &name(old))),
            Self::RemoveDirectory(old) => {
                done(export.remove_directory(worker, who, directory, &name(old)))
            }
            Self::Rename { to, mode } => {
                let (parent, to) = to.split_once('/').expect("directory and name");
                let (parent, to) = (side.lookup(&side.base, parent)?, name(to));
                done(export.rename(worker, who, directory, &name("f"), &parent, &to, mode))
            }
            Self::List => {
                let page = export.read_directory(worker, who, directory, 0, 100, true)?;
                assert!(page.end);
                Ok(sorted(
                    page.entries
                        .into_iter()
                        .map(|entry| entry.name.as_bytes().to_vec()),
                ))
            }
            Self::ReadLink => {
                let target = export.read_link(worker, who, &side.lookup(directory, "l")?)?;
                Ok(format!("{target:?}"))
            }
        }
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Directory | FileKind::Symlink => unreachable!("have calls of their own"),
    }
}
