//! What a volume's names and attributes are asked of: an exported directory, or the namespace of a
//! parallel volume.
//!
//! Both judge and answer alike, error by error, so that the steps above need not know which it is.
//! They differ in three things, which are the callers' affair:
//!
//! | | export | parallel |
//! |---|---|---|
//! | contents | here | in stores: [`File`] refuses them, clients go there |
//! | durable | when it is synced | before the request is answered ([`Parallel::settle`]) |
//! | done once | the server's journal says | the namespace does, in the change itself |
//!
//! What is done with rich ACLs is in `rich`.

mod file;
mod names;
mod parallel;
mod rich;
mod stores;
mod targets;

pub(crate) use file::File;
pub(crate) use names::NamesPlace;
pub(crate) use parallel::{Cutting, Parallel, ParallelError, start};
pub(crate) use rich::Noting;

use crate::storage::SessionTickets;
use base::{
    AttributeChange, Attributes, DirectoryPage, FileKind, FileSystemStat, FsError, Handle, Name,
    Node, Principal, RenameMode, Renamed, Rights, XattrMode,
};
use export::{Create, Export, OpenOptions, Worker};
use meta::namespace::{self, Turn};

/// Who asks, on which thread, within which request.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) who: &'a Principal,
    pub(crate) turn: &'a Turn,
    /// What the session has shown: new files are laid out for them.
    pub(crate) tickets: &'a SessionTickets,
}

impl<'a> By<'a> {
    /// The same for somebody else.
    pub(crate) fn with(self, who: &'a Principal) -> Self {
        Self { who, ..self }
    }
}

/// See the module's head.
pub(crate) enum Tree {
    Export(Export),
    Parallel(Parallel),
}

/// An inode that is held until this is dropped.
#[expect(dead_code, reason = "what is kept is the holding")]
pub(crate) enum Held {
    Export(export::Held),
    Parallel(namespace::Held),
}

/// An opened file that may be new.
pub(crate) struct Created {
    pub(crate) node: Node,
    pub(crate) file: File,
    /// Whether this call made it.
    pub(crate) created: bool,
}

fn options(open: OpenOptions) -> namespace::OpenOptions {
    namespace::OpenOptions {
        access: open.access,
        truncate: open.truncate,
        append: open.append,
    }
}

impl Tree {
    pub(crate) fn export(&self) -> Option<&Export> {
        match self {
            Self::Export(export) => Some(export),
            Self::Parallel(_) => None,
        }
    }

    pub(crate) fn parallel(&self) -> Option<&Parallel> {
        match self {
            Self::Export(_) => None,
            Self::Parallel(parallel) => Some(parallel),
        }
    }

    pub(crate) fn root(&self) -> &Handle {
        match self {
            Self::Export(export) => export.root(),
            Self::Parallel(parallel) => parallel.names.root(),
        }
    }

    pub(crate) fn lookup(&self, by: By<'_>, parent: &Handle, name: &Name) -> Result<Node, FsError> {
        match self {
            Self::Export(export) => export.lookup(by.worker, by.who, parent, name),
            Self::Parallel(parallel) => parallel.names.lookup(by.turn, by.who, parent, name),
        }
    }

    pub(crate) fn attributes(&self, by: By<'_>, handle: &Handle) -> Result<Attributes, FsError> {
        match self {
            Self::Export(export) => export.attributes(by.worker, by.who, handle),
            Self::Parallel(parallel) => parallel.names.attributes(by.turn, by.who, handle),
        }
    }

    pub(crate) fn check_access(
        &self,
        by: By<'_>,
        handle: &Handle,
        wanted: Rights,
    ) -> Result<(), FsError> {
        match self {
            Self::Export(export) => export.check_access(by.worker, by.who, handle, wanted),
            Self::Parallel(parallel) => {
                (parallel.names).check_access(by.turn, by.who, handle, wanted)
            }
        }
    }

    /// With `file`, an open file of the same inode, a new size needs no permission beyond that.
    pub(crate) fn set_attributes(
        &self,
        by: By<'_>,
        handle: &Handle,
        change: &AttributeChange,
        file: Option<&File>,
    ) -> Result<Attributes, FsError> {
        match self {
            Self::Export(export) => {
                let file = file.and_then(File::export);
                export.set_attributes(by.worker, by.who, handle, change, file)
            }
            Self::Parallel(parallel) => {
                let file = file.and_then(File::inode);
                (parallel.names).set_attributes(by.turn, by.who, handle, change, file)
            }
        }
    }

    pub(crate) fn open_file(
        &self,
        by: By<'_>,
        handle: &Handle,
        open: OpenOptions,
    ) -> Result<File, FsError> {
        match self {
            Self::Export(export) => {
                let file = export.open_file(by.worker, by.who, handle, open)?;
                Ok(File::Export(file))
            }
            Self::Parallel(parallel) => {
                let names = &parallel.names;
                let inode = names.open_file(by.turn, by.who, handle, options(open))?;
                Ok(File::Parallel(inode, names.clone()))
            }
        }
    }

    /// Of a parallel volume, an open that truncates cuts no file but `cuts`: it fails with
    /// [`FsError::WouldBlock`] if the name leads to another one.
    pub(crate) fn create(
        &self,
        by: By<'_>,
        parent: &Handle,
        name: &Name,
        how: &Create,
        cuts: Option<&Handle>,
    ) -> Result<Created, FsError> {
        match self {
            Self::Export(export) => {
                let made = export.create(by.worker, by.who, parent, name, how)?;
                Ok(Created {
                    node: made.node,
                    file: File::Export(made.file),
                    created: made.created,
                })
            }
            Self::Parallel(parallel) => {
                let names = &parallel.names;
                let how = namespace::Create {
                    mode: how.mode,
                    umask: how.umask,
                    exclusive: how.exclusive,
                    open: options(how.open),
                    cuts: cuts.cloned(),
                    layout: parallel.layout_under(by.tickets),
                };
                let made = names.create(by.turn, by.who, parent, name, &how)?;
                Ok(Created {
                    node: made.node,
                    file: File::Parallel(made.file, names.clone()),
                    created: made.created,
                })
            }
        }
    }

    pub(crate) fn make_directory(
        &self,
        by: By<'_>,
        parent: &Handle,
        name: &Name,
        mode: u16,
        umask: u16,
    ) -> Result<Node, FsError> {
        match self {
            Self::Export(export) => {
                export.make_directory(by.worker, by.who, parent, name, mode, umask)
            }
            Self::Parallel(parallel) => {
                (parallel.names).make_directory(by.turn, by.who, parent, name, mode, umask)
            }
        }
    }

    /// `(kind, mode, umask, device)`, as mknod(2).
    pub(crate) fn make_node(
        &self,
        by: By<'_>,
        parent: &Handle,
        name: &Name,
        (kind, mode, umask, device): (FileKind, u16, u16, u64),
    ) -> Result<Node, FsError> {
        match self {
            Self::Export(export) => {
                export.make_node(by.worker, by.who, parent, name, kind, mode, umask, device)
            }
            Self::Parallel(parallel) => {
                let names = &parallel.names;
                names.make_node(by.turn, by.who, parent, name, kind, mode, umask, device)
            }
        }
    }

    pub(crate) fn make_symlink(
        &self,
        by: By<'_>,
        parent: &Handle,
        name: &Name,
        target: &[u8],
    ) -> Result<Node, FsError> {
        match self {
            Self::Export(export) => export.make_symlink(by.worker, by.who, parent, name, target),
            Self::Parallel(parallel) => {
                (parallel.names).make_symlink(by.turn, by.who, parent, name, target)
            }
        }
    }

    pub(crate) fn link(
        &self,
        by: By<'_>,
        handle: &Handle,
        parent: &Handle,
        name: &Name,
    ) -> Result<Node, FsError> {
        match self {
            Self::Export(export) => export.link(by.worker, by.who, handle, parent, name),
            Self::Parallel(parallel) => {
                (parallel.names).link(by.turn, by.who, handle, parent, name)
            }
        }
    }

    pub(crate) fn unlink(
        &self,
        by: By<'_>,
        parent: &Handle,
        name: &Name,
    ) -> Result<Option<Node>, FsError> {
        match self {
            Self::Export(export) => export.unlink(by.worker, by.who, parent, name),
            Self::Parallel(parallel) => parallel.names.unlink(by.turn, by.who, parent, name),
        }
    }

    pub(crate) fn remove_directory(
        &self,
        by: By<'_>,
        parent: &Handle,
        name: &Name,
    ) -> Result<Option<Node>, FsError> {
        match self {
            Self::Export(export) => export.remove_directory(by.worker, by.who, parent, name),
            Self::Parallel(parallel) => {
                (parallel.names).remove_directory(by.turn, by.who, parent, name)
            }
        }
    }

    pub(crate) fn rename(
        &self,
        by: By<'_>,
        (from, name): (&Handle, &Name),
        (to, to_name): (&Handle, &Name),
        mode: RenameMode,
    ) -> Result<Renamed, FsError> {
        match self {
            Self::Export(export) => export.rename(by.worker, by.who, from, name, to, to_name, mode),
            Self::Parallel(parallel) => {
                (parallel.names).rename(by.turn, by.who, from, name, to, to_name, mode)
            }
        }
    }

    pub(crate) fn read_link(&self, by: By<'_>, handle: &Handle) -> Result<Vec<u8>, FsError> {
        match self {
            Self::Export(export) => export.read_link(by.worker, by.who, handle),
            Self::Parallel(parallel) => parallel.names.read_link(by.turn, by.who, handle),
        }
    }

    pub(crate) fn statfs(&self, by: By<'_>, handle: &Handle) -> Result<FileSystemStat, FsError> {
        match self {
            Self::Export(export) => export.statfs(by.worker, by.who, handle),
            Self::Parallel(parallel) => Ok(parallel.statfs()),
        }
    }

    pub(crate) fn read_directory(
        &self,
        by: By<'_>,
        handle: &Handle,
        cookie: u64,
        entries_max: usize,
    ) -> Result<DirectoryPage, FsError> {
        match self {
            Self::Export(export) => {
                export.read_directory(by.worker, by.who, handle, cookie, entries_max, true)
            }
            Self::Parallel(parallel) => {
                (parallel.names).read_directory(by.turn, by.who, handle, cookie, entries_max, true)
            }
        }
    }

    pub(crate) fn get_xattr(
        &self,
        by: By<'_>,
        handle: &Handle,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        match self {
            Self::Export(export) => export.get_xattr(by.worker, by.who, handle, name),
            Self::Parallel(parallel) => parallel.names.get_xattr(by.turn, by.who, handle, name),
        }
    }

    pub(crate) fn set_xattr(
        &self,
        by: By<'_>,
        handle: &Handle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<Attributes, FsError> {
        match self {
            Self::Export(export) => export.set_xattr(by.worker, by.who, handle, name, value, mode),
            Self::Parallel(parallel) => {
                let names = &parallel.names;
                names.set_xattr(by.turn, by.who, handle, name, value, mode)?;
                names.attributes(by.turn, by.who, handle)
            }
        }
    }

    pub(crate) fn list_xattrs(&self, by: By<'_>, handle: &Handle) -> Result<Vec<Vec<u8>>, FsError> {
        match self {
            Self::Export(export) => export.list_xattrs(by.worker, by.who, handle),
            Self::Parallel(parallel) => parallel.names.list_xattrs(by.turn, by.who, handle),
        }
    }

    pub(crate) fn remove_xattr(
        &self,
        by: By<'_>,
        handle: &Handle,
        name: &[u8],
    ) -> Result<Attributes, FsError> {
        match self {
            Self::Export(export) => export.remove_xattr(by.worker, by.who, handle, name),
            Self::Parallel(parallel) => {
                let names = &parallel.names;
                names.remove_xattr(by.turn, by.who, handle, name)?;
                names.attributes(by.turn, by.who, handle)
            }
        }
    }

    /// Keeps a file that is about to lose its last name within reach of those who have it open.
    pub(crate) fn hold(&self, by: By<'_>, handle: &Handle) -> Result<Held, FsError> {
        match self {
            Self::Export(export) => export.hold(by.worker, by.who, handle).map(Held::Export),
            Self::Parallel(parallel) => {
                let held = parallel.names.hold(by.turn, by.who, handle);
                held.map(Held::Parallel)
            }
        }
    }

    /// Makes the entries of a directory durable. Of a namespace they are, before anybody hears of
    /// them.
    pub(crate) fn sync_directory(&self, by: By<'_>, handle: &Handle) -> Result<(), FsError> {
        match self {
            Self::Export(export) => export.sync_directory(by.worker, by.who, handle),
            Self::Parallel(parallel) => {
                (parallel.names).attributes(by.turn, by.who, handle)?;
                Ok(())
            }
        }
    }
}
