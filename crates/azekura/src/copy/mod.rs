//! Copying trees between this machine and volumes, without a mount.
//!
//! ```text
//! sources -> plan: every directory and file with its size -> directories -> files, many at once
//!                                                         -> owners, modes, times -> durable
//! ```
//! Listing first costs memory for the names and gives an honest time left. Many files are under way
//! at once, so that small ones do not wait a round trip each; a large one is kept going by the
//! client's read-ahead and write-behind.
//!
//! Both sides are a [`Tree`]. Names from either side are [`Name`]s, and a local tree is entered by
//! `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)` only: a server that lists `x` as a link to
//! `/etc` and again as a directory cannot make us write there.
//!
//! Every file is checked: the bytes written are the bytes read, the size at the target is the size
//! at the source, and a source that changed meanwhile is reported.

mod acls;
mod local;
mod plan;
mod remote;
mod run;

pub(crate) use acls::Kept;
pub(crate) use plan::{Plan, Source, Target};
pub(crate) use remote::meta_of;
pub(crate) use run::{Copied, copy};

use crate::errors::Result;
use base::{Extent, FileKind, Name, Timestamp};
use bytes::Bytes;
use local::{LocalFile, LocalTree};
use remote::{RemoteFile, RemoteTree};
use std::path::{Path, PathBuf};

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Keep owner, mode and times.
    pub(crate) preserve: bool,
    /// Skip files whose size and time of change are the source's already.
    pub(crate) resume: bool,
    /// Keep extended attributes, POSIX ACLs among them.
    pub(crate) attributes: bool,
    /// Keep ACLs, rich ones among them.
    pub(crate) acls: bool,
}

impl Settings {
    /// Whether an extended attribute of this name is kept.
    fn keeps(self, name: &[u8]) -> bool {
        match name {
            acls::NFS4 => self.acls,
            name if ACLS.contains(&name) => self.acls || self.attributes,
            name => self.attributes && is_kept(name),
        }
    }

    fn keeps_any(self) -> bool {
        self.acls || self.attributes
    }

    fn kept(self, xattrs: Vec<Xattr>) -> Kept {
        Kept {
            xattrs,
            acls: self.acls,
        }
    }
}

/// Name and value of an extended attribute.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// Whether an extended attribute belongs to the file wherever it lies. Labels of security modules
/// belong to a machine.
fn is_kept(name: &[u8]) -> bool {
    name == b"security.capability"
        || [&b"user."[..], b"trusted."]
            .iter()
            .any(|space| name.starts_with(space))
}

/// POSIX ACLs, which are kept or the copy has failed. Other attributes are kept where the target
/// and the rights of this user allow, as `cp -a` does it.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// What is copied of a file beside its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    /// Bytes on the disk; fewer than the size if there are holes.
    pub(crate) stored: u64,
    pub(crate) links: u32,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    /// Last change of contents or attributes, which nobody can set.
    pub(crate) changed: Timestamp,
    /// Tells inodes of one tree apart: device and number.
    pub(crate) identity: (u64, u64),
}

/// A directory within a tree.
#[derive(Clone, Debug)]
pub(crate) enum Directory {
    /// Path below the tree's root; empty for the root.
    Local(PathBuf),
    Remote(client::cache::NodeId),
}

/// One side of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Local(LocalTree),
    Remote(RemoteTree),
}

/// An open file of a tree.
#[derive(Debug)]
pub(crate) enum File {
    Local(LocalFile),
    Remote(RemoteFile),
}

/// A pair that does not belong together is a bug of the caller.
const MIXED: &str = "directories are used with their own tree";

impl Tree {
    /// The tree of this machine below `root`, and its root.
    pub(crate) async fn local(root: &Path) -> Result<(Self, Directory)> {
        let tree = LocalTree::open(root).await?;
        Ok((Self::Local(tree), Directory::Local(PathBuf::new())))
    }

    /// A volume, and its root.
    pub(crate) fn remote(
        volume: std::sync::Arc<client::volume::Volume>,
    ) -> Result<(Self, Directory)> {
        let tree = RemoteTree::new(volume)?;
        Ok((
            Self::Remote(tree),
            Directory::Remote(client::cache::NodeId::ROOT),
        ))
    }

    /// Finds a name; a directory comes with the means to enter it.
    pub(crate) async fn lookup(
        &self,
        directory: &Directory,
        name: &Name,
    ) -> Result<Option<(Meta, Directory)>> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                let below = path.join(name.as_os_str());
                let meta = tree.meta(below.clone()).await?;
                Ok(meta.map(|meta| (meta, Directory::Local(below))))
            }
            (Self::Remote(tree), Directory::Remote(node)) => {
                let found = tree.lookup(*node, name).await?;
                Ok(found.map(|(meta, node)| (meta, Directory::Remote(node))))
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Everything in a directory.
    pub(crate) async fn list(&self, directory: &Directory) -> Result<Vec<(Name, Meta, Directory)>> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                let listed = tree.list(path.clone()).await?.into_iter();
                let entry = |(name, meta): (Name, Meta)| {
                    let below = Directory::Local(path.join(name.as_os_str()));
                    (name, meta, below)
                };
                Ok(listed.map(entry).collect())
            }
            (Self::Remote(tree), Directory::Remote(node)) => {
                let listed = tree.list(*node).await?.into_iter();
                Ok(listed
                    .map(|(name, meta, node)| (name, meta, Directory::Remote(node)))
                    .collect())
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Makes a directory; one that is there already will do.
    pub(crate) async fn make_directory(
        &self,
        directory: &Directory,
        name: &Name,
        mode: u16,
    ) -> Result<Directory> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                let below = path.join(name.as_os_str());
                tree.make_directory(below.clone(), mode).await?;
                Ok(Directory::Local(below))
            }
            (Self::Remote(tree), Directory::Remote(node)) => Ok(Directory::Remote(
                tree.make_directory(*node, name, mode).await?,
            )),
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Opens a regular file to read it.
    pub(crate) async fn open(&self, directory: &Directory, name: &Name) -> Result<File> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => Ok(File::Local(
                tree.open_file(path.join(name.as_os_str())).await?,
            )),
            (Self::Remote(tree), Directory::Remote(node)) => {
                Ok(File::Remote(tree.open_file(*node, name).await?))
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Makes a regular file, or empties the one that is there.
    pub(crate) async fn create(
        &self,
        directory: &Directory,
        name: &Name,
        mode: u16,
    ) -> Result<File> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => Ok(File::Local(
                tree.create_file(path.join(name.as_os_str()), mode).await?,
            )),
            (Self::Remote(tree), Directory::Remote(node)) => {
                Ok(File::Remote(tree.create_file(*node, name, mode).await?))
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Where a symbolic link leads.
    pub(crate) async fn read_link(&self, directory: &Directory, name: &Name) -> Result<Vec<u8>> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                tree.read_link(path.join(name.as_os_str())).await
            }
            (Self::Remote(tree), Directory::Remote(node)) => tree.read_link(*node, name).await,
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Makes a symbolic link in place of one that is there.
    pub(crate) async fn make_link(
        &self,
        directory: &Directory,
        name: &Name,
        leads_to: Vec<u8>,
    ) -> Result<()> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                tree.make_link(path.join(name.as_os_str()), leads_to).await
            }
            (Self::Remote(tree), Directory::Remote(node)) => {
                tree.make_link(*node, name, &leads_to).await
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Sets the times of a file to those of `meta`, which it has: only its time of change moves.
    pub(crate) async fn touch(
        &self,
        directory: &Directory,
        name: &Name,
        meta: &Meta,
    ) -> Result<()> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                let below = path.join(name.as_os_str());
                tree.touch(below, meta.clone()).await
            }
            (Self::Remote(tree), Directory::Remote(node)) => tree.touch(*node, name, meta).await,
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Gives a symbolic link the owner and times of `meta`; it has no mode of its own.
    pub(crate) async fn set_link_meta(
        &self,
        directory: &Directory,
        name: &Name,
        meta: &Meta,
    ) -> Result<()> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                let below = path.join(name.as_os_str());
                tree.set_link_meta(below, meta.clone()).await
            }
            (Self::Remote(tree), Directory::Remote(node)) => {
                tree.set_link_meta(*node, name, meta).await
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Gives a file another name, in place of a file that has it.
    pub(crate) async fn hard_link(
        &self,
        (from, name): (&Directory, &Name),
        (to, new_name): (&Directory, &Name),
    ) -> Result<()> {
        match (self, from, to) {
            (Self::Local(tree), Directory::Local(from), Directory::Local(to)) => {
                let (from, to) = (from.join(name.as_os_str()), to.join(new_name.as_os_str()));
                tree.hard_link(from, to).await
            }
            (Self::Remote(tree), Directory::Remote(from), Directory::Remote(to)) => {
                tree.hard_link((*from, name), (*to, new_name)).await
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Extended attributes of a directory that belong to it wherever it lies.
    pub(crate) async fn xattrs(&self, directory: &Directory, settings: Settings) -> Result<Kept> {
        let xattrs = match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                tree.xattrs(path.clone(), settings).await
            }
            (Self::Remote(tree), Directory::Remote(node)) => tree.xattrs(*node, settings).await,
            _ => unreachable!("{MIXED}"),
        };
        Ok(settings.kept(xattrs?))
    }

    /// Gives a directory extended attributes; whether it takes its rich ACL, if that is among them.
    pub(crate) async fn set_xattrs(&self, directory: &Directory, kept: &Kept) -> Result<bool> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                tree.set_xattrs(path.clone(), kept.clone()).await
            }
            (Self::Remote(tree), Directory::Remote(node)) => {
                tree.clear(*node, kept).await?;
                tree.set_xattrs(*node, kept).await
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Gives a directory the owner, mode and, if `times`, times of `meta`.
    pub(crate) async fn set_meta(
        &self,
        directory: &Directory,
        meta: &Meta,
        preserve: bool,
    ) -> Result<()> {
        match (self, directory) {
            (Self::Local(tree), Directory::Local(path)) => {
                tree.set_meta(path.clone(), meta.clone(), preserve).await
            }
            (Self::Remote(tree), Directory::Remote(node)) => {
                tree.set_meta(*node, meta, preserve, None).await
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Waits until everything written to a volume is durable. Of this machine's own file systems no
    /// more is asked than `cp` does.
    pub(crate) async fn sync(&self) -> Result<()> {
        match self {
            Self::Local(_) => Ok(()),
            Self::Remote(tree) => tree.sync().await,
        }
    }

    /// Whether both are the same volume, or both this machine.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(_), Self::Local(_)) => true,
            (Self::Remote(one), Self::Remote(other)) => one.is_same(other),
            _ => false,
        }
    }
}

impl File {
    /// Its attributes now.
    pub(crate) async fn meta(&self) -> Result<Meta> {
        match self {
            Self::Local(file) => file.meta().await,
            Self::Remote(file) => file.meta().await,
        }
    }

    /// Reads up to `len` bytes; none at the end.
    pub(crate) async fn read(&self, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        match self {
            Self::Local(file) => file.read(offset, len).await,
            Self::Remote(file) => file.read(offset, len).await,
        }
    }

    /// Writes all of `data`.
    pub(crate) async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        match self {
            Self::Local(file) => file.write(offset, data).await,
            Self::Remote(file) => file.write(offset, data).await,
        }
    }

    /// Copies within one volume at its server; `None` where the server cannot.
    pub(crate) async fn copy_at_server(
        &self,
        target: &Self,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<u64>> {
        match (self, target) {
            (Self::Remote(source), Self::Remote(target)) if source.is_beside(target) => {
                source.copy_to(target, offset, bytes).await
            }
            _ => Ok(None),
        }
    }

    /// The next run of data at or behind `offset`; `None` if there are only holes. Where that
    /// cannot be told, everything is data.
    pub(crate) async fn next_data(&self, offset: u64, end: u64) -> Result<Option<Extent>> {
        match self {
            Self::Local(file) => file.next_data(offset, end).await,
            Self::Remote(file) => file.next_data(offset, end).await,
        }
    }

    /// Makes it so long, with a hole behind what was written.
    pub(crate) async fn set_size(&self, size: u64) -> Result<()> {
        match self {
            Self::Local(file) => file.set_size(size).await,
            Self::Remote(file) => file.set_size(size).await,
        }
    }

    /// Extended attributes that belong to it wherever it lies.
    pub(crate) async fn xattrs(&self, settings: Settings) -> Result<Kept> {
        let xattrs = match self {
            Self::Local(file) => file.xattrs(settings).await,
            Self::Remote(file) => file.xattrs(settings).await,
        };
        Ok(settings.kept(xattrs?))
    }

    /// Ends writing: everything is at the target and nothing failed, or the error says so. With
    /// `meta`, the file gets its owner, mode and times, and extended attributes in any case.
    /// Returns the size, and whether it has taken its rich ACL, if that is among them.
    pub(crate) async fn finish(&self, meta: Option<&Meta>, kept: &Kept) -> Result<(u64, bool)> {
        match self {
            Self::Local(file) => file.finish(meta.cloned(), kept.clone()).await,
            Self::Remote(file) => file.finish(meta, kept).await,
        }
    }

    /// Ends writing after a failure that is reported: what else is on its way to the file and
    /// lost with it is not reported again as a failure of everything.
    pub(crate) async fn give_up(&self) {
        match self {
            Self::Local(_) => {}
            Self::Remote(file) => file.give_up().await,
        }
    }
}
