//! Names: create, make, link, remove, rename.
//!
//! Every change is one system call in the parent directory, as the caller. What the caller gets
//! back beside the kernel's answer are the inodes concerned, because a server must call back what
//! clients hold of them: the new one, the one that lost a name, the one that was renamed. They are
//! looked up right before a removal and right after a making; another process of this machine that
//! changes the same name in between is reported by [`Watch`](crate::Watch), not here.

use crate::cache::Pin;
use crate::errno::fs_error;
use crate::export::Export;
use crate::file::{OpenFile, OpenOptions};
use crate::rich::{Asking, Making, Way, by_way};
use crate::stat::{stat, type_of};
use crate::worker::Worker;
use base::limits::LINK_TARGET_BYTES_MAX;
use base::{FileKind, FsError, Handle, Name, Node, Principal, RenameMode, Renamed, mode};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::DecInt;

/// An open that may create loses to a removal between its two steps this often before it gives up.
pub(crate) const CREATE_TRIES: usize = 8;

/// How a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create {
    /// Permission bits before the umask.
    pub mode: u16,
    /// The caller's umask; a default ACL of the directory takes its place.
    pub umask: u16,
    /// Fail if the name is there already.
    pub exclusive: bool,
    /// How the file is opened. A new one is open for this whatever its mode allows.
    pub open: OpenOptions,
}

/// An opened file that may be new.
#[derive(Debug)]
pub struct Created {
    /// The file.
    pub node: Node,
    /// Open as asked.
    pub file: OpenFile,
    /// Whether this call made it.
    pub created: bool,
}

pub(crate) fn mode_bits(mode: u16) -> Mode {
    Mode::from_raw_mode((mode & mode::ALL).into())
}

impl Export {
    /// Opens the file `name` in `parent`, which is made if it is not there.
    ///
    /// # Errors
    /// [`FsError::Exists`] if it is and `exclusive` is set; [`FsError::Loop`] for a symbolic link,
    /// which is never followed; else as [`Export::open_file`] and as the kernel judges.
    pub fn create(
        &self,
        worker: &Worker,
        principal: &Principal,
        parent: &Handle,
        name: &Name,
        how: &Create,
    ) -> Result<Created, FsError> {
        let caller = worker.assume(principal)?;
        let directory = self.resolve(&caller, parent)?;
        caller.set_umask(how.umask);
        let asking = Asking {
            caller: &caller,
            who: principal,
        };
        if let Some(holder) = self.rich_file(parent, &*directory)? {
            return self.create_in_rich(asking, (parent, &*directory), &holder, name, how);
        }
        // Making and opening are tried apart: a plain O_CREAT would not tell which it was, and
        // would wait at a pipe or wake up a device that lies there.
        let flags = how.open.flags() | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let make = || {
            let make =
                || rustix::fs::openat(&*directory, name.as_bytes(), flags, mode_bits(how.mode));
            self.with_room(|| retry_on_intr(make))
        };
        for _ in 0..CREATE_TRIES {
            match make() {
                Ok(fd) => {
                    let node = self.describe(&fd)?;
                    let file = OpenFile::new(fd, how.open);
                    return Ok(Created {
                        node,
                        file,
                        created: true,
                    });
                }
                Err(Errno::EXIST) if !how.exclusive => {}
                Err(errno) => return Err(fs_error(errno)),
            }
            match self.open_existing(asking, Way::Kernel, &directory, name, how.open) {
                Err(FsError::NotFound) => {}
                result => return result,
            }
        }
        Err(FsError::WouldBlock)
    }

    /// Opens what has a name; `way` is who judges the search for it.
    pub(crate) fn open_existing(
        &self,
        asking: Asking<'_>,
        way: Way,
        directory: &Pin,
        name: &Name,
        options: OpenOptions,
    ) -> Result<Created, FsError> {
        let (node, fd) = by_way(asking.caller, way, || self.peek(directory, name))?;
        let pin = self
            .cache
            .insert(&node.handle, Pin::new(fd, node.attributes.kind));
        let file = self.open_pinned(asking.caller, asking.who, (&node.handle, &pin), options)?;
        let node = if options.truncate {
            Node {
                attributes: file.attributes()?,
                ..node
            }
        } else {
            node
        };
        Ok(Created {
            node,
            file,
            created: false,
        })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`FsError::Exists`]; else the kernel's.
    pub fn make_directory(
        &self,
        worker: &Worker,
        principal: &Principal,
        parent: &Handle,
        name: &Name,
        mode: u16,
        umask: u16,
    ) -> Result<Node, FsError> {
        let making = Making {
            kind: FileKind::Directory,
            mode,
            umask,
        };
        self.make(
            worker,
            principal,
            parent,
            name,
            making,
            |directory, mode| rustix::fs::mkdirat(directory, name.as_bytes(), mode_bits(mode)),
        )
    }

    /// Makes an inode of any kind but directory and symbolic link. Devices are for root only, as
    /// the kernel judges.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for the two kinds that have a method of their own; else the kernel's.
    #[expect(
        clippy::too_many_arguments,
        reason = "mknod(2) with its context has as many"
    )]
    pub fn make_node(
        &self,
        worker: &Worker,
        principal: &Principal,
        parent: &Handle,
        name: &Name,
        kind: FileKind,
        mode: u16,
        umask: u16,
        device: u64,
    ) -> Result<Node, FsError> {
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(FsError::Invalid);
        }
        let making = Making { kind, mode, umask };
        self.make(
            worker,
            principal,
            parent,
            name,
            making,
            |directory, mode| {
                let name = name.as_bytes();
                rustix::fs::mknodat(directory, name, type_of(kind), mode_bits(mode), device)
            },
        )
    }

    /// Makes a symbolic link. The target is never looked at.
    ///
    /// # Errors
    /// [`FsError::NameTooLong`], [`FsError::Invalid`] for a target with a NUL; else the kernel's.
    pub fn make_symlink(
        &self,
        worker: &Worker,
        principal: &Principal,
        parent: &Handle,
        name: &Name,
        target: &[u8],
    ) -> Result<Node, FsError> {
        if target.len() > LINK_TARGET_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let making = Making {
            kind: FileKind::Symlink,
            mode: 0o777,
            umask: 0,
        };
        self.make(worker, principal, parent, name, making, |directory, _| {
            rustix::fs::symlinkat(target, directory, name.as_bytes())
        })
    }

    fn make(
        &self,
        worker: &Worker,
        principal: &Principal,
        parent: &Handle,
        name: &Name,
        making: Making,
        call: impl Fn(&Pin, u16) -> Result<(), Errno>,
    ) -> Result<Node, FsError> {
        let caller = worker.assume(principal)?;
        let directory = self.resolve(&caller, parent)?;
        if making.kind != FileKind::Symlink {
            caller.set_umask(making.umask);
        }
        let make = |mode| retry_on_intr(|| call(&directory, mode)).map_err(fs_error);
        if let Some(holder) = self.rich_file(parent, &*directory)? {
            let asking = Asking {
                caller: &caller,
                who: principal,
            };
            let place = (parent, &*directory);
            return self.make_in_rich(asking, place, &holder, name, making, make);
        }
        make(making.mode)?;
        self.lookup_in(&directory, name)
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// [`FsError::NotPermitted`] for directories, and for files of others if the machine protects
    /// hard links; else the kernel's.
    pub fn link(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        parent: &Handle,
        name: &Name,
    ) -> Result<Node, FsError> {
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        let directory = self.resolve(&caller, parent)?;
        let way = self.way_to_add(principal, (parent, &*directory), FileKind::File)?;
        if way == Way::Past {
            let asking = Asking {
                caller: &caller,
                who: principal,
            };
            self.judge_linking(asking, handle, &pin)?;
        }
        let number = DecInt::from_fd(&*pin);
        // Naming a descriptor directly is for root; through /proc the kernel judges the caller. The
        // link that is followed is the one in /proc, so a symbolic link gets a second name, too.
        let (source, follow) = (caller.descriptors(), AtFlags::SYMLINK_FOLLOW);
        by_way(&caller, way, || {
            let number = number.as_c_str();
            rustix::fs::linkat(source, number, &*directory, name.as_bytes(), follow)
                .map_err(fs_error)
        })?;
        Ok(Node {
            handle: handle.clone(),
            attributes: self.attributes_of(handle, &*pin)?,
        })
    }

    /// Takes a name from an inode that is not a directory. Returns that inode as it is afterwards,
    /// `None` if that is not known.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`]; else the kernel's.
    pub fn unlink(
        &self,
        worker: &Worker,
        principal: &Principal,
        parent: &Handle,
        name: &Name,
    ) -> Result<Option<Node>, FsError> {
        self.remove(worker, principal, parent, name, AtFlags::empty())
    }

    /// Removes an empty directory. Returns it as it is afterwards, `None` if that is not known.
    ///
    /// # Errors
    /// [`FsError::NotEmpty`], [`FsError::NotDirectory`]; else the kernel's.
    pub fn remove_directory(
        &self,
        worker: &Worker,
        principal: &Principal,
        parent: &Handle,
        name: &Name,
    ) -> Result<Option<Node>, FsError> {
        self.remove(worker, principal, parent, name, AtFlags::REMOVEDIR)
    }

    fn remove(
        &self,
        worker: &Worker,
        principal: &Principal,
        parent: &Handle,
        name: &Name,
        flags: AtFlags,
    ) -> Result<Option<Node>, FsError> {
        let caller = worker.assume(principal)?;
        let directory = self.resolve(&caller, parent)?;
        let place = (parent, &*directory);
        let _turn = self.rich.taking_turn([parent]);
        let search = self.way_to_search(principal, place)?;
        let victim = self.seen(by_way(&caller, search, || self.peek(&*directory, name)))?;
        let asking = Asking {
            caller: &caller,
            who: principal,
        };
        let way = match &victim {
            Some(victim) => self.way_to_remove(asking, place, victim)?,
            // A name that is made in this moment is not one that anybody may remove.
            None if search == Way::Past => return Err(FsError::NotFound),
            None => Way::Kernel,
        };
        by_way(&caller, way, || {
            let unlink = || rustix::fs::unlinkat(&*directory, name.as_bytes(), flags);
            retry_on_intr(unlink).map_err(fs_error)
        })?;
        Ok(self.after(victim))
    }

    /// Gives an inode another name, maybe in another directory.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NotFound`] if there is nothing to exchange with,
    /// [`FsError::Invalid`] for a directory into itself; else the kernel's.
    #[expect(
        clippy::too_many_arguments,
        reason = "renameat2(2) with its context has as many"
    )]
    pub fn rename(
        &self,
        worker: &Worker,
        principal: &Principal,
        from: &Handle,
        from_name: &Name,
        to: &Handle,
        to_name: &Name,
        mode: RenameMode,
    ) -> Result<Renamed, FsError> {
        let caller = worker.assume(principal)?;
        let (from_handle, to_handle) = (from, to);
        let from = self.resolve(&caller, from)?;
        let to = self.resolve(&caller, to)?;
        let _turn = self.rich.taking_turn([from_handle, to_handle]);
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        };
        let (out_of, into) = ((from_handle, &*from), (to_handle, &*to));
        let searches = [
            self.way_to_search(principal, out_of)?,
            self.way_to_search(principal, into)?,
        ];
        let (old, new) = (from_name.as_bytes(), to_name.as_bytes());
        let asking = Asking {
            caller: &caller,
            who: principal,
        };
        let mut tries = 0;
        let (moved, replaced) = loop {
            tries += 1;
            let moved = by_way(&caller, searches[0], || self.peek(&*from, from_name));
            let replaced = by_way(&caller, searches[1], || self.peek(&*to, to_name));
            let (moved, replaced) = (self.seen(moved)?, self.seen(replaced)?);
            let way = match &moved {
                Some(moved) => {
                    let exchanges = mode == RenameMode::Exchange;
                    let (out_of, into) = ((out_of, moved), (into, replaced.as_ref()));
                    self.way_to_rename(asking, out_of, into, exchanges)?
                }
                // There is nothing to rename, and the kernel says so.
                None => Way::Kernel,
            };
            // What comes to have the new name now was not judged. Some file systems know no flags.
            let is_free = way == Way::Past && mode == RenameMode::Replace && replaced.is_none();
            let chosen = if is_free {
                RenameFlags::NOREPLACE
            } else {
                flags
            };
            let rename = |flags| {
                let rename = || rustix::fs::renameat_with(&*from, old, &*to, new, flags);
                by_way(&caller, way, || retry_on_intr(rename).map_err(fs_error))
            };
            match rename(chosen) {
                Err(FsError::Exists) if is_free && tries < CREATE_TRIES => continue,
                Err(FsError::Invalid) if is_free => rename(flags)?,
                result => result?,
            }
            break (moved, replaced);
        };
        // If another change came in between, something else was moved than was seen before.
        let there = by_way(&caller, searches[1], || self.peek(&*to, to_name)).ok();
        Ok(Renamed {
            moved: self.after(there.or(moved)),
            replaced: self.after(replaced),
        })
    }

    /// What a change finds at a name. Where the kernel judges, what cannot be looked up cannot be
    /// changed either, and the kernel says why; where a rich ACL may, it would go unjudged.
    fn seen<T>(&self, looked_up: Result<T, FsError>) -> Result<Option<T>, FsError> {
        match looked_up {
            Ok(found) => Ok(Some(found)),
            Err(error) if error != FsError::NotFound && self.is_rich() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// An inode as it is after a change of its names, and not kept if it has none any more.
    fn after(&self, looked_up: Option<(Node, OwnedFd)>) -> Option<Node> {
        let (Node { handle, .. }, fd) = looked_up?;
        let attributes = stat(&fd).ok()?.attributes;
        if attributes.links == 0 {
            self.cache.remove(&handle);
        }
        Some(Node { handle, attributes })
    }
}
