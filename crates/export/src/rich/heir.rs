//! New files in directories that have a rich ACL.
//!
//! Whether the caller may make one is judged here, and the kernel makes it for him past its own
//! judgement. If the directory's list has entries for heirs of this kind, the new inode begins
//! without any permission bits, and gets its list, and the mode that the list shows, before its
//! name is told to anybody; so nobody reaches it who may not. Without such entries the mode and
//! umask that it is made with say everything, and its truth is POSIX. If the directory has entries
//! for the other kind, programs of this machine go by a default ACL; what is made here is rid of
//! it.
//!
//! The umask plays no part where something is inherited, as with a default ACL.

use super::judge::{Asking, Directory};
use super::told::tell_alone;
use super::{RichFile, WRITING, Way, by_way, target_of};
use crate::errno::fs_error;
use crate::export::Export;
use crate::file::OpenFile;
use crate::namespace::{CREATE_TRIES, Create, Created, mode_bits};
use crate::stat::stat;
use acl::{RichAcl, Target};
use base::{FileKind, FsError, Name, Node, mode};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::retry_on_intr;

/// What a new inode is made with.
#[derive(Clone, Copy)]
pub(crate) struct Making {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) umask: u16,
}

impl Making {
    /// The list that it inherits.
    fn heirs_list(self, holder: &RichFile, target: &Target) -> Option<RichAcl> {
        let list = holder.list.as_ref()?;
        match self.kind {
            FileKind::Symlink => None,
            _ => list.inherited(target, self.mode, self.umask),
        }
    }
}

impl Export {
    /// [`Export::create`] in a directory that has a rich ACL.
    pub(crate) fn create_in_rich(
        &self,
        asking: Asking<'_>,
        directory: Directory<'_>,
        holder: &RichFile,
        name: &Name,
        how: &Create,
    ) -> Result<Created, FsError> {
        let may_add = self.judge_adding(holder, asking.who, FileKind::File);
        for _ in 0..CREATE_TRIES {
            if may_add.is_ok() {
                match self.make_file(asking, directory, holder, name, how) {
                    Err(FsError::Exists) if !how.exclusive => {}
                    made => return made,
                }
            }
            let way = self.way_to_search(asking.who, directory)?;
            if how.exclusive {
                let found = by_way(asking.caller, way, || self.peek(directory.1, name));
                return Err(match found {
                    Ok(_) => FsError::Exists,
                    Err(_) => FsError::AccessDenied,
                });
            }
            match self.open_existing(asking, way, directory.1, name, how.open) {
                Err(FsError::NotFound) => may_add?,
                result => return result,
            }
        }
        Err(FsError::WouldBlock)
    }

    fn make_file(
        &self,
        asking: Asking<'_>,
        (_, directory): Directory<'_>,
        holder: &RichFile,
        name: &Name,
        how: &Create,
    ) -> Result<Created, FsError> {
        let making = Making {
            kind: FileKind::File,
            mode: how.mode,
            umask: how.umask,
        };
        let begins_bare = holder.endows(making.kind);
        let first_mode = first_mode(making, begins_bare);
        let flags = how.open.flags() | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = by_way(asking.caller, Way::Past, || {
            let make = || rustix::fs::openat(directory, name.as_bytes(), flags, first_mode);
            self.with_room(|| retry_on_intr(make)).map_err(fs_error)
        })?;
        if begins_bare {
            let endowed = self.endow(asking, fd.as_fd(), holder, making);
            endowed.inspect_err(|_| take_back(asking, directory, name, making))?;
        }
        let node = self.describe(&fd)?;
        Ok(Created {
            node,
            file: OpenFile::new(fd, how.open),
            created: true,
        })
    }

    /// Makes anything but a file that is opened, in a directory that has a rich ACL; `call` does
    /// it, with the permission bits that it is given.
    pub(crate) fn make_in_rich(
        &self,
        asking: Asking<'_>,
        (_, directory): Directory<'_>,
        holder: &RichFile,
        name: &Name,
        making: Making,
        call: impl Fn(u16) -> Result<(), FsError>,
    ) -> Result<Node, FsError> {
        self.judge_adding(holder, asking.who, making.kind)?;
        let begins_bare = holder.endows(making.kind);
        let bits = match begins_bare {
            true => making.mode & !0o777,
            false => making.mode,
        };
        by_way(asking.caller, Way::Past, || {
            call(bits)?;
            self.lookup_in(directory, name)
        })
        .and_then(|node| match begins_bare {
            false => Ok(node),
            true => self.endow_named(asking, directory, name, holder, making),
        })
    }

    /// Gives what has just been made under a name its list.
    fn endow_named(
        &self,
        asking: Asking<'_>,
        directory: impl AsFd,
        name: &Name,
        holder: &RichFile,
        making: Making,
    ) -> Result<Node, FsError> {
        let directory = directory.as_fd();
        let found = by_way(asking.caller, Way::Past, || self.peek(directory, name))?;
        let (node, fd) = found;
        let Node { attributes, handle } = &node;
        // Somebody may have put another one there: what is not as it was made is not touched.
        let is_made = attributes.kind == making.kind
            && attributes.mode & 0o777 == 0
            && attributes.uid == asking.who.uid;
        if !is_made {
            return Err(FsError::NotFound);
        }
        let endowed = self.endow(asking, fd.as_fd(), holder, making);
        endowed.inspect_err(|_| take_back(asking, directory, name, making))?;
        let attributes = self.attributes_of(handle, &fd)?;
        Ok(Node { attributes, ..node })
    }

    /// Gives a new inode the list that it inherits, or else the mode that it is made with alone.
    fn endow(
        &self,
        asking: Asking<'_>,
        fd: impl AsFd,
        holder: &RichFile,
        making: Making,
    ) -> Result<(), FsError> {
        let fd = fd.as_fd();
        let attributes = stat(fd)?.attributes;
        let Some(list) = making.heirs_list(holder, &target_of(&attributes)) else {
            let mode = making.mode & !making.umask & 0o777;
            return asking
                .caller
                .with(WRITING, || tell_alone(fd, &attributes, mode))?;
        };
        self.write_truth(asking.caller, fd, &attributes, &list)
    }
}

impl RichFile {
    /// A default ACL, as an attribute's value, that shows what heirs have at least.
    pub(crate) fn default_below(&self) -> Option<Vec<u8>> {
        let below = self.list.as_ref()?.default_below()?;
        Some(below.to_xattr())
    }

    /// Whether a new inode gets its list or its permission bits after it is made: where anything
    /// inherits of the directory, that has a default ACL for programs of this machine.
    fn endows(&self, kind: FileKind) -> bool {
        let list = self.list.as_ref().filter(|_| kind != FileKind::Symlink);
        list.is_some_and(|list| list.has_heirs(&self.target))
    }
}

/// All or nothing: what could not be given its list goes again.
fn take_back(asking: Asking<'_>, directory: impl AsFd, name: &Name, making: Making) {
    let flags = match making.kind {
        FileKind::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    let removed = by_way(asking.caller, Way::Past, || {
        rustix::fs::unlinkat(directory.as_fd(), name.as_bytes(), flags).map_err(fs_error)
    });
    if let Err(error) = removed {
        tracing::warn!(%error, "a new file without its list stays; nobody has a right to it");
    }
}

/// Permission bits that an inode is made with: none, where a list or others follow.
fn first_mode(making: Making, begins_bare: bool) -> rustix::fs::Mode {
    match begins_bare {
        true => mode_bits(making.mode & mode::ALL & !0o777),
        false => mode_bits(making.mode),
    }
}
