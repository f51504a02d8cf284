//! What FUSE itself gives on a machine: a file system in memory, with no server behind it, mounted
//! as a volume is (the same agreement with the kernel, threads and caching times). A figure of a
//! mounted volume means something only beside what this one reaches.
//!
//! ```text
//! cargo run --release --package mount --example null -- DIRECTORY MOUNTPOINT
//! ```
//!
//! It begins with a copy of the tree in DIRECTORY (names, modes and contents of directories and
//! regular files) and keeps every change to itself. It stays in the foreground until unmounted.

use base::{FileKind, Timestamp};
use bytes::Bytes;
use mount::kernel::{
    Attr, AttrFlags, DirectoryPlusBuilder, Entry, Errno, FOpenFlags, Fh, Forget, Handler,
    MountOptions, NodeId, Opened, Operation, Replier, Request, Session, Unique, Write,
};
use mount::remote::{LEASED, THREADS, wishes};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// What a page of a listing shows, in the order in which it is shown.
type Listing = Arc<Vec<(Bytes, NodeId)>>;

struct Inode {
    kind: FileKind,
    mode: u16,
    uid: u32,
    gid: u32,
    contents: Vec<u8>,
    children: BTreeMap<Bytes, NodeId>,
}

impl Inode {
    fn new(kind: FileKind, mode: u16, uid: u32, gid: u32) -> Self {
        let (contents, children) = (Vec::new(), BTreeMap::new());
        Self {
            kind,
            mode,
            uid,
            gid,
            contents,
            children,
        }
    }
}

struct Tree {
    inodes: HashMap<NodeId, Inode>,
    listings: HashMap<u64, Listing>,
    last_node: u64,
    last_listing: u64,
}

impl Tree {
    /// Copies what lies in `directory`.
    fn copy(directory: &Path) -> std::io::Result<Self> {
        let root = Inode::new(FileKind::Directory, 0o755, 0, 0);
        let mut tree = Self {
            inodes: HashMap::from([(NodeId::ROOT, root)]),
            listings: HashMap::new(),
            last_node: NodeId::ROOT.0,
            last_listing: 0,
        };
        let mut left = vec![(directory.to_owned(), NodeId::ROOT)];
        while let Some((path, node)) = left.pop() {
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                let found = entry.metadata()?;
                let kind = match found.file_type() {
                    kind if kind.is_dir() => FileKind::Directory,
                    kind if kind.is_file() => FileKind::File,
                    _ => continue,
                };
                let mode = (found.mode() & 0o7777) as u16;
                let mut inode = Inode::new(kind, mode, found.uid(), found.gid());
                if kind == FileKind::File {
                    inode.contents = fs::read(entry.path())?;
                }
                let name = Bytes::copy_from_slice(entry.file_name().as_bytes());
                let made = tree.add(node, name, inode);
                if kind == FileKind::Directory {
                    left.push((entry.path(), made));
                }
            }
        }
        Ok(tree)
    }

    fn inode(&mut self, node: NodeId) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&node).ok_or(Errno::STALE)
    }

    fn add(&mut self, parent: NodeId, name: Bytes, inode: Inode) -> NodeId {
        self.last_node += 1;
        let node = NodeId(self.last_node);
        self.inodes.insert(node, inode);
        if let Some(parent) = self.inodes.get_mut(&parent) {
            parent.children.insert(name, node);
        }
        node
    }

    fn attr(&self, node: NodeId) -> Result<Attr, Errno> {
        let inode = self.inodes.get(&node).ok_or(Errno::STALE)?;
        let time = Timestamp::default();
        let size = inode.contents.len() as u64;
        Ok(Attr {
            ino: node.0,
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            kind: inode.kind,
            mode: inode.mode,
            links: 1,
            uid: inode.uid,
            gid: inode.gid,
            rdev: 0,
            block_bytes: 4096,
            flags: AttrFlags::empty(),
        })
    }

    fn entry(&self, node: NodeId) -> Result<Entry, Errno> {
        Ok(Entry {
            node,
            generation: 0,
            entry_valid: LEASED,
            attr_valid: LEASED,
            attr: self.attr(node)?,
        })
    }

    fn find(&mut self, parent: NodeId, name: &Bytes) -> Result<NodeId, Errno> {
        let found = self.inode(parent)?.children.get(name).copied();
        found.ok_or(Errno::NOENT)
    }

    /// Makes a file or a directory.
    fn make(&mut self, request: &Request) -> Result<Entry, Errno> {
        let (kind, name, mode) = match &request.operation {
            Operation::MkDir { name, mode, umask } => (FileKind::Directory, name, mode & !umask),
            Operation::Create {
                name, mode, umask, ..
            } => (FileKind::File, name, mode & !umask),
            _ => return Err(Errno::NOSYS),
        };
        if self.find(request.node, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let inode = Inode::new(kind, mode, request.uid, request.gid);
        let node = self.add(request.node, name.clone(), inode);
        self.entry(node)
    }

    fn write(&mut self, node: NodeId, write: &Write) -> Result<u32, Errno> {
        let contents = &mut self.inode(node)?.contents;
        let start = usize::try_from(write.offset).map_err(|_| Errno::FBIG)?;
        let end = start.checked_add(write.data.len()).ok_or(Errno::FBIG)?;
        if contents.len() < end {
            contents.resize(end, 0);
        }
        contents[start..end].copy_from_slice(&write.data);
        u32::try_from(write.data.len()).map_err(|_| Errno::FBIG)
    }

    fn open_listing(&mut self, node: NodeId) -> Result<Fh, Errno> {
        let children = &self.inode(node)?.children;
        let listing: Vec<_> = children.iter().map(|(n, c)| (n.clone(), *c)).collect();
        self.last_listing += 1;
        self.listings.insert(self.last_listing, Arc::new(listing));
        Ok(Fh(self.last_listing))
    }

    fn page(&self, fh: Fh, offset: u64, size: u32) -> Result<DirectoryPlusBuilder, Errno> {
        let listing = self.listings.get(&fh.0).ok_or(Errno::BADF)?;
        let mut page = DirectoryPlusBuilder::new(size);
        let first = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        for (place, (name, node)) in listing.iter().enumerate().skip(first) {
            // What was removed since the listing was opened is not shown.
            let Ok(entry) = self.entry(*node) else {
                continue;
            };
            if page.add(&entry, place as u64 + 1, name) {
                break;
            }
        }
        Ok(page)
    }
}

struct Null {
    tree: Mutex<Tree>,
}

/// The kernel's pages of a file stay true, as nobody else changes it.
fn opened(fh: Fh) -> Opened {
    Opened::new(fh, FOpenFlags::KEEP_CACHE)
}

impl Handler for Null {
    fn handle(&self, request: Request, replier: Replier) {
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        let node = request.node;
        let answered = match &request.operation {
            Operation::Lookup { name } => tree
                .find(node, name)
                .and_then(|found| tree.entry(found))
                .map(Answer::Entry),
            Operation::GetAttr { .. } => tree.attr(node).map(Answer::Attr),
            Operation::MkDir { .. } => tree.make(&request).map(Answer::Entry),
            Operation::Create { .. } => tree.make(&request).map(Answer::Created),
            Operation::Unlink { name } | Operation::RmDir { name } => {
                tree.find(node, name).and_then(|found| {
                    tree.inodes.remove(&found);
                    tree.inode(node)?.children.remove(name);
                    Ok(Answer::Done)
                })
            }
            Operation::Open { .. } => Ok(Answer::Opened(Fh(0))),
            Operation::OpenDir { .. } => tree.open_listing(node).map(Answer::Opened),
            Operation::ReadDirPlus(page) => {
                let page = tree.page(page.fh, page.offset, page.size);
                page.map(Answer::Page)
            }
            Operation::ReleaseDir { fh, .. } => {
                tree.listings.remove(&fh.0);
                Ok(Answer::Done)
            }
            Operation::Write(write) => tree.write(node, write).map(Answer::Written),
            Operation::Flush { .. }
            | Operation::Release(_)
            | Operation::Fsync { .. }
            | Operation::FsyncDir { .. } => Ok(Answer::Done),
            Operation::Read(read) => match tree.inodes.get(&node) {
                Some(inode) => {
                    let len = inode.contents.len();
                    let start = usize::try_from(read.offset).map_or(len, |start| start.min(len));
                    let end = len.min(start + read.size as usize);
                    // Answered under the lock: a copy would be a cost that is not FUSE's.
                    replier.data(&inode.contents[start..end]);
                    return;
                }
                None => Err(Errno::STALE),
            },
            _ => Err(Errno::NOSYS),
        };
        drop(tree);
        answer(replier, answered);
    }

    fn forget(&self, _: &[Forget]) {}

    fn interrupt(&self, _: Unique) {}
}

enum Answer {
    Done,
    Entry(Entry),
    Created(Entry),
    Attr(Attr),
    Opened(Fh),
    Page(DirectoryPlusBuilder),
    Written(u32),
}

fn answer(replier: Replier, answer: Result<Answer, Errno>) {
    // Nothing is kept for whoever did not take an answer.
    let _ = match answer {
        Ok(Answer::Done) => replier.done(),
        Ok(Answer::Entry(entry)) => replier.entry(&entry),
        Ok(Answer::Created(entry)) => replier.created(&entry, &opened(Fh(0))),
        Ok(Answer::Attr(attr)) => replier.attr(&attr, LEASED),
        Ok(Answer::Opened(fh)) => replier.opened(&opened(fh)),
        Ok(Answer::Page(page)) => replier.directory_plus(&page),
        Ok(Answer::Written(bytes)) => replier.written(bytes),
        Err(errno) => replier.error(errno),
    };
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(directory), Some(point)) = (arguments.next(), arguments.next()) else {
        return Err("usage: null DIRECTORY MOUNTPOINT".into());
    };
    let tree = Mutex::new(Tree::copy(Path::new(&directory))?);
    let options = MountOptions {
        fs_name: "null".to_owned(),
        subtype: "null".to_owned(),
        default_permissions: true,
        ..MountOptions::default()
    };
    let session = Session::mount(&point, &options, &wishes(false))?;
    session.run(THREADS, Arc::new(Null { tree }))?;
    Ok(())
}
