//! Inodes and their names.

use super::entry;
use base::{FileKind, SetTime, Timestamp};
use bytes::Bytes;
use mount::kernel::{Attr, AttrFlags, Entry, Errno, NodeId, Operation, Request, SetAttr};
use rustix::fs::RenameFlags;
use std::collections::BTreeMap;

/// `st_ino` is this far from the node's number, to show that it may be.
pub(crate) const INO_OFFSET: u64 = 1_000_000;

/// One inode.
pub(crate) struct Inode {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u64,
    /// Contents, or the target of a symbolic link.
    pub(crate) data: Vec<u8>,
    pub(crate) children: BTreeMap<Vec<u8>, NodeId>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) mtime: Timestamp,
    pub(crate) links: u32,
}

/// All of them.
pub(crate) struct Tree {
    inodes: BTreeMap<NodeId, Inode>,
}

impl Default for Tree {
    fn default() -> Self {
        let root = Inode::new(FileKind::Directory, 0o777, 0, 0);
        Self {
            inodes: BTreeMap::from([(NodeId::ROOT, root)]),
        }
    }
}

impl Inode {
    fn new(kind: FileKind, mode: u16, uid: u32, gid: u32) -> Self {
        Self {
            kind,
            mode,
            uid,
            gid,
            rdev: 0,
            data: Vec::new(),
            children: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            mtime: Timestamp {
                seconds: 1_700_000_000,
                nanos: 123_456_789,
            },
            links: 1,
        }
    }
}

impl Tree {
    pub(crate) fn inode(&mut self, node: NodeId) -> &mut Inode {
        self.inodes
            .get_mut(&node)
            .expect("the kernel names what it was told")
    }

    /// The first name of an inode that is found; none for one without a name.
    pub(crate) fn name_of(&self, node: NodeId) -> Vec<u8> {
        let mut names = self.inodes.values().flat_map(|inode| &inode.children);
        names
            .find(|(_, child)| **child == node)
            .map(|(name, _)| name.clone())
            .unwrap_or_default()
    }

    pub(crate) fn node_of(&self, name: &str) -> NodeId {
        self.inodes[&NodeId::ROOT].children[name.as_bytes()]
    }

    pub(crate) fn attr(&self, node: NodeId) -> Attr {
        let inode = &self.inodes[&node];
        Attr {
            ino: node.0 + INO_OFFSET,
            size: inode.data.len() as u64,
            blocks: (inode.data.len() as u64).div_ceil(512),
            atime: inode.mtime,
            mtime: inode.mtime,
            ctime: inode.mtime,
            kind: inode.kind,
            mode: inode.mode,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            block_bytes: 4096,
            flags: AttrFlags::empty(),
        }
    }

    fn entry(&self, node: NodeId) -> Entry {
        entry(node, self.attr(node))
    }

    pub(crate) fn lookup(&self, directory: NodeId, name: &[u8]) -> Option<Entry> {
        self.inodes[&directory]
            .children
            .get(name)
            .map(|node| self.entry(*node))
    }

    /// Puts a file there behind the kernel's back, as another machine would.
    pub(crate) fn put(&mut self, name: &str, data: &[u8]) -> NodeId {
        let node = self.add(
            NodeId::ROOT,
            name.as_bytes(),
            Inode::new(FileKind::File, 0o666, 0, 0),
        );
        self.inode(node).data = data.to_vec();
        node
    }

    /// Takes a name away behind the kernel's back.
    pub(crate) fn take(&mut self, name: &str) {
        self.inode(NodeId::ROOT)
            .children
            .remove(name.as_bytes())
            .expect("it is there");
    }

    fn add(&mut self, directory: NodeId, name: &[u8], inode: Inode) -> NodeId {
        let node = NodeId(self.inodes.last_key_value().map_or(1, |(last, _)| last.0) + 1);
        self.inodes.insert(node, inode);
        if !name.is_empty() {
            self.inode(directory).children.insert(name.to_vec(), node);
        }
        node
    }

    /// Does what a request says that makes a name.
    pub(crate) fn make(&mut self, request: &Request) -> Result<Entry, Errno> {
        let (name, kind, mode) = match &request.operation {
            Operation::Create {
                name, mode, umask, ..
            } => (&name[..], FileKind::File, mode & !umask),
            Operation::TmpFile { mode, umask, .. } => (&b""[..], FileKind::File, mode & !umask),
            Operation::MkNod {
                name,
                kind,
                mode,
                umask,
                ..
            } => (&name[..], *kind, mode & !umask),
            Operation::MkDir { name, mode, umask } => {
                (&name[..], FileKind::Directory, mode & !umask)
            }
            Operation::Symlink { name, .. } => (&name[..], FileKind::Symlink, 0o777),
            Operation::Link { target, name } => {
                self.inode(request.node)
                    .children
                    .insert(name.to_vec(), *target);
                self.inode(*target).links += 1;
                return Ok(self.entry(*target));
            }
            other => unreachable!("{other:?} makes nothing"),
        };
        if self.inodes[&request.node].children.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let mut inode = Inode::new(kind, mode, request.uid, request.gid);
        match &request.operation {
            Operation::Symlink { target, .. } => inode.data = target.to_vec(),
            Operation::MkNod { rdev, .. } => inode.rdev = *rdev,
            _ => {}
        }
        let node = self.add(request.node, name, inode);
        Ok(self.entry(node))
    }

    /// Does what a request says that takes a name away.
    pub(crate) fn unmake(&mut self, request: &Request) -> Result<(), Errno> {
        let node = request.node;
        match &request.operation {
            Operation::Unlink { name } => {
                let child = self
                    .inode(node)
                    .children
                    .remove(&name[..])
                    .ok_or(Errno::NOENT)?;
                self.inode(child).links -= 1;
            }
            Operation::RmDir { name } => {
                let child = *self.inodes[&node]
                    .children
                    .get(&name[..])
                    .ok_or(Errno::NOENT)?;
                if !self.inodes[&child].children.is_empty() {
                    return Err(Errno::NOTEMPTY);
                }
                self.inode(node).children.remove(&name[..]);
            }
            Operation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                let there = self.inodes[new_parent].children.get(&new_name[..]).copied();
                if flags.contains(RenameFlags::NOREPLACE) && there.is_some() {
                    return Err(Errno::EXIST);
                }
                let moved = self
                    .inode(node)
                    .children
                    .remove(&name[..])
                    .ok_or(Errno::NOENT)?;
                self.inode(*new_parent)
                    .children
                    .insert(new_name.to_vec(), moved);
                if flags.contains(RenameFlags::EXCHANGE) {
                    let there = there.ok_or(Errno::NOENT)?;
                    self.inode(node).children.insert(name.to_vec(), there);
                }
            }
            other => unreachable!("{other:?} takes nothing away"),
        }
        Ok(())
    }

    pub(crate) fn change(&mut self, node: NodeId, change: &SetAttr) -> Attr {
        let inode = self.inode(node);
        inode.mode = change.mode.unwrap_or(inode.mode);
        inode.uid = change.uid.unwrap_or(inode.uid);
        inode.gid = change.gid.unwrap_or(inode.gid);
        if let Some(size) = change.size {
            inode.data.resize(usize::try_from(size).unwrap(), 0);
        }
        match change.mtime {
            Some(SetTime::To(time)) => inode.mtime = time,
            Some(SetTime::Now) => {
                inode.mtime = Timestamp {
                    seconds: 1_800_000_000,
                    nanos: 0,
                }
            }
            None => {}
        }
        self.attr(node)
    }

    /// Two parts, so that every read shows that parts are put together.
    pub(crate) fn read(&self, node: NodeId, offset: u64, size: u32) -> [Bytes; 2] {
        let data = &self.inodes[&node].data;
        let start = usize::try_from(offset).unwrap().min(data.len());
        let end = (start + usize::try_from(size).unwrap()).min(data.len());
        let middle = start + (end - start) / 2;
        [
            Bytes::copy_from_slice(&data[start..middle]),
            Bytes::copy_from_slice(&data[middle..end]),
        ]
    }

    pub(crate) fn write(&mut self, node: NodeId, offset: u64, bytes: &[u8]) {
        let data = &mut self.inode(node).data;
        let start = usize::try_from(offset).unwrap();
        let end = start + bytes.len();
        if end > data.len() {
            data.resize(end, 0);
        }
        data[start..end].copy_from_slice(bytes);
    }

    /// Names, attributes and, except for `.` and `..`, nodes.
    pub(crate) fn list(&self, node: NodeId) -> Vec<(Vec<u8>, Attr, Option<NodeId>)> {
        let dots = [b".".to_vec(), b"..".to_vec()].map(|name| (name, self.attr(node), None));
        let children = &self.inodes[&node].children;
        let children = children
            .iter()
            .map(|(name, child)| (name.clone(), self.attr(*child), Some(*child)));
        dots.into_iter().chain(children).collect()
    }
}
