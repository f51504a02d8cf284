//! A volume as a tree: the operations of a copy in those of the client.

use super::acls::{Kept, NFS4};
use super::local::rest;
use super::{ACLS, Meta, Settings, Xattr};
use crate::connect::principal;
use crate::errors::{Failure, Result};
use base::{AttributeChange, Attributes, Extent, FileKind, FsError, Name, Principal, SetTime};
use bytes::Bytes;
use client::cache::NodeId;
use client::volume::{Creation, OpenFile, Volume};
use std::sync::Arc;
use wire::message::{Access, SeekWhat};

/// See the module's head.
#[derive(Clone)]
pub(crate) struct RemoteTree {
    volume: Arc<Volume>,
    who: Arc<Principal>,
    umask: u16,
}

impl std::fmt::Debug for RemoteTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteTree")
            .field("volume", &self.volume.name())
            .finish_non_exhaustive()
    }
}

/// An open file; closed when dropped.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    tree: RemoteTree,
    open: OpenFile,
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.tree.volume.release(&self.open);
    }
}

/// This process's mask for new files. Reading it by umask(2) would change it for a moment.
fn umask() -> u16 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u16::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o022)
}

/// Whether the mode alone shows that `who` may read; what else may let him in, the server knows.
fn lets_read(meta: &Meta, who: &Principal) -> bool {
    let is_owner = meta.uid == who.uid;
    who.uid == 0 || meta.mode & 0o444 == 0o444 || is_owner && meta.mode & 0o400 != 0
}

pub(crate) fn meta_of(attributes: &Attributes) -> Meta {
    Meta {
        kind: attributes.kind,
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        stored: attributes.blocks * 512,
        links: attributes.links,
        accessed: attributes.accessed,
        modified: attributes.modified,
        changed: attributes.changed,
        identity: (0, attributes.inode),
    }
}

impl RemoteTree {
    pub(super) fn new(volume: Arc<Volume>) -> Result<Self> {
        let who = principal(volume.transport())?;
        Ok(Self {
            volume,
            who: Arc::new(who),
            umask: umask(),
        })
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.volume.id() == other.volume.id()
    }

    pub(super) async fn lookup(
        &self,
        parent: NodeId,
        name: &Name,
    ) -> Result<Option<(Meta, NodeId)>> {
        let found = self.volume.lookup(&self.who, parent, name).await?;
        Ok(found.map(|view| (meta_of(&view.attributes), view.node)))
    }

    async fn find(&self, parent: NodeId, name: &Name) -> Result<(Meta, NodeId)> {
        let found = self.lookup(parent, name).await?;
        found.ok_or_else(|| Failure::from(FsError::NotFound))
    }

    pub(super) async fn list(&self, directory: NodeId) -> Result<Vec<(Name, Meta, NodeId)>> {
        let listing = self.volume.list(&self.who, directory).await?;
        let mut entries = Vec::with_capacity(listing.len());
        for entry in listing.iter() {
            let known = entry
                .node
                .and_then(|node| self.volume.attributes_cached(node));
            let found = match known {
                Some(view) => Some((meta_of(&view.attributes), view.node)),
                None => self.lookup(directory, &entry.name).await?,
            };
            // It may be gone since it was listed.
            if let Some((meta, node)) = found {
                entries.push((entry.name.clone(), meta, node));
            }
        }
        Ok(entries)
    }

    fn creation(&self, parent: NodeId, name: &Name, mode: u16) -> Creation {
        Creation {
            parent,
            name: name.clone(),
            mode,
            umask: self.umask,
        }
    }

    pub(super) async fn make_directory(
        &self,
        parent: NodeId,
        name: &Name,
        mode: u16,
    ) -> Result<NodeId> {
        let creation = self.creation(parent, name, mode);
        match self.volume.make_directory(&self.who, &creation).await {
            Ok(view) => Ok(view.node),
            Err(FsError::Exists) => match self.find(parent, name).await? {
                (meta, node) if meta.kind == FileKind::Directory => Ok(node),
                _ => Err(FsError::NotDirectory.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn open_file(&self, parent: NodeId, name: &Name) -> Result<RemoteFile> {
        let (meta, node) = self.find(parent, name).await?;
        if meta.kind != FileKind::File {
            return Err(FsError::Invalid.into());
        }
        let open = self
            .volume
            .open(&self.who, node, Access::Read, false)
            .await?;
        let file = self.file(open);
        // Opening may have asked nobody. Whoever may not read is to hear it now, and not when the
        // target has been made.
        if !lets_read(&meta, &self.who) {
            file.read(0, 1).await?;
        }
        Ok(file)
    }

    pub(super) async fn create_file(
        &self,
        parent: NodeId,
        name: &Name,
        mode: u16,
    ) -> Result<RemoteFile> {
        let creation = self.creation(parent, name, mode & 0o777);
        let created = self
            .volume
            .create(&self.who, &creation, false, Access::ReadWrite, true, false)
            .await;
        let (view, open) = created?;
        let file = self.file(open);
        // The server opens what is there, whatever it is.
        if view.attributes.kind != FileKind::File {
            return Err(FsError::Exists.into());
        }
        Ok(file)
    }

    fn file(&self, open: OpenFile) -> RemoteFile {
        RemoteFile {
            tree: self.clone(),
            open,
        }
    }

    pub(super) async fn read_link(&self, parent: NodeId, name: &Name) -> Result<Vec<u8>> {
        let (_, node) = self.find(parent, name).await?;
        Ok(self.volume.read_link(&self.who, node).await?)
    }

    pub(super) async fn make_link(
        &self,
        parent: NodeId,
        name: &Name,
        leads_to: &[u8],
    ) -> Result<()> {
        let made = self
            .volume
            .make_symlink(&self.who, parent, name, leads_to)
            .await;
        match made {
            Err(FsError::Exists) => {
                let (meta, _) = self.find(parent, name).await?;
                if meta.kind != FileKind::Symlink {
                    return Err(FsError::Exists.into());
                }
                self.volume.remove(&self.who, parent, name, false).await?;
                self.volume
                    .make_symlink(&self.who, parent, name, leads_to)
                    .await?;
                Ok(())
            }
            outcome => Ok(outcome.map(drop)?),
        }
    }

    pub(super) async fn set_meta(
        &self,
        node: NodeId,
        meta: &Meta,
        preserve: bool,
        open: Option<base::OpenId>,
    ) -> Result<()> {
        if preserve {
            self.set_owner(node, meta, open).await?;
        }
        let times = preserve.then_some((meta.accessed, meta.modified));
        let change = AttributeChange {
            mode: Some(meta.mode),
            accessed: times.map(|(accessed, _)| SetTime::To(accessed)),
            modified: times.map(|(_, modified)| SetTime::To(modified)),
            ..AttributeChange::default()
        };
        self.volume
            .set_attributes(&self.who, node, change, open)
            .await?;
        Ok(())
    }

    /// As cp -p: who may not give files away keeps them.
    async fn set_owner(&self, node: NodeId, meta: &Meta, open: Option<base::OpenId>) -> Result<()> {
        let owner = AttributeChange {
            uid: Some(meta.uid),
            gid: Some(meta.gid),
            ..AttributeChange::default()
        };
        let set = self.volume.set_attributes(&self.who, node, owner, open);
        match set.await {
            Ok(_) | Err(FsError::NotPermitted) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn set_link_meta(
        &self,
        parent: NodeId,
        name: &Name,
        meta: &Meta,
    ) -> Result<()> {
        let (there, node) = self.find(parent, name).await?;
        if there.kind != FileKind::Symlink {
            // Somebody has put something else in its place.
            return Err(FsError::Exists.into());
        }
        self.set_owner(node, meta, None).await?;
        self.set_times(node, meta).await
    }

    pub(super) async fn touch(&self, parent: NodeId, name: &Name, meta: &Meta) -> Result<()> {
        let (_, node) = self.find(parent, name).await?;
        self.set_times(node, meta).await
    }

    async fn set_times(&self, node: NodeId, meta: &Meta) -> Result<()> {
        let times = AttributeChange {
            accessed: Some(SetTime::To(meta.accessed)),
            modified: Some(SetTime::To(meta.modified)),
            ..AttributeChange::default()
        };
        let set = self.volume.set_attributes(&self.who, node, times, None);
        Ok(set.await.map(drop)?)
    }

    pub(super) async fn hard_link(
        &self,
        (from, name): (NodeId, &Name),
        (to, new_name): (NodeId, &Name),
    ) -> Result<()> {
        let (_, node) = self.find(from, name).await?;
        match self.volume.link(&self.who, node, to, new_name).await {
            Err(FsError::Exists) => {
                let (meta, there) = self.find(to, new_name).await?;
                if there == node {
                    return Ok(());
                }
                if meta.kind != FileKind::File {
                    return Err(FsError::Exists.into());
                }
                self.volume.remove(&self.who, to, new_name, false).await?;
                self.volume.link(&self.who, node, to, new_name).await?;
                Ok(())
            }
            outcome => Ok(outcome.map(drop)?),
        }
    }

    async fn xattr_names(&self, node: NodeId) -> Result<Vec<u8>> {
        match self.volume.xattr_names(&self.who, node).await {
            Err(FsError::NotSupported) => Ok(Vec::new()),
            names => Ok(names?),
        }
    }

    pub(super) async fn xattrs(&self, node: NodeId, settings: Settings) -> Result<Vec<Xattr>> {
        let names = self.xattr_names(node).await?;
        let mut xattrs = Vec::new();
        let names = names.split(|byte| *byte == 0);
        for name in names.filter(|name| settings.keeps(name)) {
            match self.volume.xattr(&self.who, node, name).await {
                Ok(value) => xattrs.push((name.to_vec(), value)),
                // It is gone since it was listed.
                Err(FsError::NoData) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(xattrs)
    }

    /// Takes away what would be in the way of a POSIX ACL; see [`super::acls`].
    pub(super) async fn clear(&self, node: NodeId, kept: &Kept) -> Result<()> {
        if !kept.acls {
            return Ok(());
        }
        let names = self.xattr_names(node).await?;
        for name in kept.in_the_way(names.split(|byte| *byte == 0)) {
            match self.volume.remove_xattr(&self.who, node, name).await {
                Ok(()) | Err(FsError::NoData | FsError::NotSupported) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether a rich ACL, if there is one, has been taken.
    pub(super) async fn set_xattrs(&self, node: NodeId, kept: &Kept) -> Result<bool> {
        let mut has_rich = false;
        if let Some(value) = kept.rich() {
            let set = self.volume.set_xattr(&self.who, node, NFS4, value, None);
            match set.await {
                Ok(()) => has_rich = true,
                Err(FsError::NotSupported) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for (name, value) in kept.others(has_rich) {
            let set = self
                .volume
                .set_xattr(&self.who, node, name, value, None)
                .await;
            match set {
                Err(FsError::NotSupported | FsError::NotPermitted)
                    if !ACLS.contains(&name.as_slice()) => {}
                outcome => outcome?,
            }
        }
        Ok(has_rich)
    }

    pub(super) async fn sync(&self) -> Result<()> {
        Ok(self.volume.sync(&self.who).await?)
    }
}

impl RemoteFile {
    pub(super) async fn meta(&self) -> Result<Meta> {
        let view = self
            .tree
            .volume
            .attributes(&self.tree.who, self.open.node)
            .await?;
        Ok(meta_of(&view.attributes))
    }

    pub(super) async fn read(&self, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        let extent = Extent::new(offset, u64::from(len));
        let (tree, open) = (&self.tree, &self.open);
        Ok(tree
            .volume
            .read(&tree.who, open.node, Some(open.open), extent)
            .await?)
    }

    pub(super) async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let (tree, open) = (&self.tree, &self.open);
        let write = client::file::Write {
            offset,
            data,
            who: Principal::clone(&tree.who),
            open: Some(open.open),
            append: false,
            permits: Vec::new(),
        };
        Ok(tree.volume.write(open.node, write).await?)
    }

    pub(super) async fn next_data(&self, offset: u64, end: u64) -> Result<Option<Extent>> {
        let (tree, open) = (&self.tree, &self.open);
        let seek = |offset, what| {
            tree.volume
                .seek(&tree.who, open.node, Some(open.open), offset, what)
        };
        let data = match seek(offset, SeekWhat::Data).await {
            Ok(data) => data,
            Err(FsError::NoSuchAddress) => return Ok(None),
            Err(FsError::Invalid | FsError::NotSupported) => return Ok(rest(offset, end)),
            Err(error) => return Err(error.into()),
        };
        let hole = seek(data, SeekWhat::Hole).await?;
        Ok(rest(data, hole.min(end)))
    }

    pub(super) async fn set_size(&self, size: u64) -> Result<()> {
        let change = AttributeChange {
            size: Some(size),
            ..AttributeChange::default()
        };
        let (tree, open) = (&self.tree, &self.open);
        let changed = tree
            .volume
            .set_attributes(&tree.who, open.node, change, Some(open.open));
        Ok(changed.await.map(drop)?)
    }

    pub(super) async fn xattrs(&self, settings: Settings) -> Result<Vec<Xattr>> {
        self.tree.xattrs(self.open.node, settings).await
    }

    /// Whether both are of the same session, so that the server can copy from one to the other.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tree.volume, &other.tree.volume)
    }

    pub(super) async fn copy_to(
        &self,
        target: &Self,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<u64>> {
        let side = |file: &Self| (file.open.node, Some(file.open.open), offset);
        let (tree, source, target) = (&self.tree, side(self), side(target));
        match tree
            .volume
            .copy_range(&tree.who, source, target, bytes)
            .await
        {
            Ok(copied) => Ok(Some(copied)),
            Err(FsError::NotSupported | FsError::CrossDevice | FsError::NotImplemented) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn give_up(&self) {
        // The failure that led here is the one to be told.
        let _ = self.tree.volume.flush_heard(&self.open).await;
    }

    pub(super) async fn finish(&self, meta: Option<&Meta>, kept: &Kept) -> Result<(u64, bool)> {
        let (tree, open) = (&self.tree, &self.open);
        tree.volume.flush_heard(open).await?;
        tree.clear(open.node, kept).await?;
        if let Some(meta) = meta {
            tree.set_meta(open.node, meta, true, Some(open.open))
                .await?;
        }
        // A change of owner has taken capabilities away, so they come after it.
        let has_rich = tree.set_xattrs(open.node, kept).await?;
        Ok((self.meta().await?.size, has_rich))
    }
}
