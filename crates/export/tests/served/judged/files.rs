//! Files: create, open, write, and what that does to set-uid bits.

use super::{Outcome, Side, done};
use crate::common::name;
use base::{AttributeChange, Extent, FsError};
use export::{Access, AllocateMode, Create, OpenFile, OpenOptions};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Create {
        mode: u16,
        umask: u16,
        exclusive: bool,
        file: &'static str,
    },
    Open {
        access: Access,
        truncate: bool,
    },
    Write {
        access: Access,
        append: bool,
    },
    Truncate(u64),
    TruncateOpen,
    Punch,
}

impl Op {
    pub(super) fn all() -> Vec<Self> {
        let creates = [
            (0o6777, 0o027, true, "n"),
            (0o444, 0, false, "n"),
            (0o666, 0o022, true, "f"),
            (0o666, 0o022, false, "f"),
        ];
        let create = |(mode, umask, exclusive, file)| Self::Create {
            mode,
            umask,
            exclusive,
            file,
        };
        let writes = [
            (Access::Write, false),
            (Access::Write, true),
            (Access::Read, false),
        ];
        let mut all = vec![Self::TruncateOpen, Self::Punch];
        all.extend([0, 100_000, u64::MAX >> 1].map(Self::Truncate));
        all.extend(creates.map(create));
        for access in [Access::Read, Access::Write, Access::ReadWrite] {
            all.extend([false, true].map(|truncate| Self::Open { access, truncate }));
        }
        all.extend(writes.map(|(access, append)| Self::Write { access, append }));
        all
    }

    pub(super) fn locally(self, base: &Path) -> Result<String, Errno> {
        let directory = base.join("d");
        let open = |flags| open_locally(&directory, flags);
        done(match self {
            Self::Create {
                mode,
                umask,
                exclusive,
                file,
            } => {
                rustix::process::umask(Mode::from_raw_mode(umask.into()));
                let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
                flags.set(OFlags::EXCL, exclusive);
                let mode = Mode::from_raw_mode(mode.into());
                let fd = rustix::fs::open(directory.join(file), flags, mode)?;
                rustix::io::pwrite(fd, b"new", 0).map(drop)
            }
            Self::Open { access, truncate } => {
                let mut flags = access_flags(access);
                flags.set(OFlags::TRUNC, truncate);
                open(flags).map(drop)
            }
            Self::Write { access, append } => {
                let mut flags = access_flags(access);
                flags.set(OFlags::APPEND, append);
                rustix::io::write(open(flags)?, b"written").map(drop)
            }
            // The kernel judges truncate(2), which nothing safe calls, as it judges this.
            Self::Truncate(size) => rustix::fs::ftruncate(open(OFlags::WRONLY)?, size),
            Self::TruncateOpen => rustix::fs::ftruncate(open(OFlags::RDWR)?, 2),
            Self::Punch => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(open(OFlags::RDWR)?, flags, 0, 2)
            }
        })
    }

    pub(super) fn served(self, side: &Side<'_>) -> Outcome {
        let (export, worker, who) = (&side.tree.export, &side.tree.worker, side.who);
        let open = |access, truncate, append| {
            open_served(
                side,
                OpenOptions {
                    access,
                    truncate,
                    append,
                },
            )
        };
        match self {
            Self::Create {
                mode,
                umask,
                exclusive,
                file,
            } => {
                let open = OpenOptions::new(Access::ReadWrite);
                let how = Create {
                    mode,
                    umask,
                    exclusive,
                    open,
                };
                let made = export.create(worker, who, &side.directory, &name(file), &how)?;
                assert_eq!(made.created, file == "n");
                done(made.file.write_at(worker, who, 0, b"new"))
            }
            Self::Open { access, truncate } => done(open(access, truncate, false)),
            Self::Write { access, append } => {
                let file = open(access, false, append)?;
                let written = file.write_at(worker, who, 0, b"written")?;
                assert_eq!(written.offset, if append { 4 } else { 0 });
                done(Ok(()))
            }
            Self::Truncate(size) => {
                let change = AttributeChange {
                    size: Some(size),
                    ..Default::default()
                };
                done(export.set_attributes(worker, who, &side.file()?, &change, None))
            }
            Self::TruncateOpen => {
                done(open(Access::ReadWrite, false, false)?.truncate(worker, who, 2))
            }
            Self::Punch => {
                let file = open(Access::ReadWrite, false, false)?;
                done(file.allocate(worker, who, AllocateMode::PunchHole, Extent::new(0, 2)))
            }
        }
    }
}

fn open_locally(directory: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(directory.join("f"), flags, Mode::empty())
}

fn open_served(side: &Side<'_>, options: OpenOptions) -> Result<OpenFile, FsError> {
    side.tree
        .export
        .open_file(&side.tree.worker, side.who, &side.file()?, options)
}

fn access_flags(access: Access) -> OFlags {
    match access {
        Access::Read | Access::Execute => OFlags::RDONLY,
        Access::Write => OFlags::WRONLY,
        Access::ReadWrite => OFlags::RDWR,
    }
}
