//! A file system in memory: small, complete enough for the tests, and with names that misbehave.
//!
//! * a file that begins with `drop` drops the replier of a read, `panic` panics in it
//! * `refused` gets answers to a read that the kernel does not take
//! * a file that begins with `stuck` is not answered when its attributes are asked for
//! * `direct` files are opened for direct I/O, `passed` ones are passed through to a real file
//!
//! Everything is behind one lock; what is asked is counted, so that tests see what reached it.

mod locks;
mod tree;

use locks::Locks;
use mount::kernel::{
    Attr, Backing, Backings, DirectoryBuilder, DirectoryPlusBuilder, Entry, Errno, FOpenFlags, Fh,
    Forget, Handler, NodeId, Opened, Operation, Process, ReadDir, Replier, Request, StatFs, Statx,
    Unique,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tree::{Inode, Tree};

/// How long the kernel may cache names and attributes: longer than any test.
pub(crate) const VALID: Duration = Duration::from_secs(3600);

/// The file system.
pub(crate) struct Memory {
    backings: Backings,
    state: Mutex<State>,
}

/// What it knows.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) locks: Locks,
    /// Every request, for tests to look at; data left out.
    pub(crate) log: Vec<Request>,
    pub(crate) forgotten: u64,
    stuck: BTreeMap<Unique, (u32, Replier)>,
    backing: Vec<Backing>,
}

impl Memory {
    pub(crate) fn new(backings: Backings) -> Self {
        Self {
            backings,
            state: Mutex::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed elsewhere must not hide its reason behind a poisoned lock.
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn backings(&self) -> &Backings {
        &self.backings
    }

    /// How many requests so far fit.
    pub(crate) fn count(&self, fits: impl Fn(&Operation) -> bool) -> usize {
        self.state()
            .log
            .iter()
            .filter(|request| fits(&request.operation))
            .count()
    }

    /// How often `name` was looked up.
    pub(crate) fn lookups(&self, name: &str) -> usize {
        let wanted = name.as_bytes();
        self.count(|operation| matches!(operation, Operation::Lookup { name } if name == wanted))
    }

    /// Requests that nobody answers.
    pub(crate) fn stuck(&self) -> usize {
        self.state().stuck.len()
    }

    /// Answers whatever waits, so that a mount can end.
    pub(crate) fn release_all(&self) {
        let mut state = self.state();
        let stuck = std::mem::take(&mut state.stuck);
        let waiting = state.locks.take_waiting();
        drop(state);
        for replier in stuck
            .into_values()
            .map(|(_, replier)| replier)
            .chain(waiting)
        {
            replier.error(Errno::INTR);
        }
    }

    /// Answers the stuck requests of threads that are ending.
    pub(crate) fn release_dying(&self) {
        let mut state = self.state();
        let dying = |pid: u32| Process::of(pid).is_ok_and(|process| process.dying);
        let stuck = std::mem::take(&mut state.stuck);
        let (dead, alive): (Vec<_>, Vec<_>) =
            stuck.into_iter().partition(|(_, (pid, _))| dying(*pid));
        state.stuck = alive.into_iter().collect();
        drop(state);
        for (_, (_, replier)) in dead {
            replier.error(Errno::INTR);
        }
    }
}

impl Handler for Memory {
    fn handle(&self, request: Request, replier: Replier) {
        let mut state = self.state();
        let mut logged = request.clone();
        if let Operation::Write(write) = &mut logged.operation {
            write.data.clear();
        }
        state.log.push(logged);
        match request.operation {
            Operation::GetLk(_) | Operation::SetLk { .. } | Operation::Release(_) => {
                state.locks.handle(request.operation, request.node, replier);
            }
            Operation::Read(_) | Operation::GetAttr { .. } | Operation::Statx { .. } => {
                self.may_misbehave(&mut state, &request, replier);
            }
            Operation::Open { .. } | Operation::Create { .. } | Operation::TmpFile { .. } => {
                self.open(&mut state, &request, replier);
            }
            Operation::ReadDir(page) => list(&state.tree, request.node, page, replier),
            Operation::ReadDirPlus(page) => list_plus(&mut state.tree, request.node, page, replier),
            _ => answer(&mut state.tree, &request, replier),
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        self.state().forgotten += forgets.iter().map(|forget| forget.lookups).sum::<u64>();
    }

    fn interrupt(&self, unique: Unique) {
        let waiting = self.state().locks.interrupt(unique);
        if let Some(replier) = waiting {
            replier.error(Errno::INTR);
        }
        self.release_dying();
    }
}

impl Memory {
    fn may_misbehave(&self, state: &mut State, request: &Request, replier: Replier) {
        let name = state.tree.name_of(request.node);
        let read = matches!(request.operation, Operation::Read(_));
        if read && name.starts_with(b"drop") {
            drop(replier);
        } else if read && name.starts_with(b"panic") {
            panic!("a test wants the handler to panic");
        } else if read && name == b"refused" {
            // Not an error number that a system call may return.
            replier.error(Errno::from_raw_os_error(524));
        } else if !read && name.starts_with(b"stuck") {
            state.stuck.insert(request.unique, (request.pid, replier));
        } else {
            answer(&mut state.tree, request, replier);
        }
    }

    fn open(&self, state: &mut State, request: &Request, replier: Replier) {
        let (entry, name) = match &request.operation {
            Operation::Open { flags, .. } => {
                if flags.contains(rustix::fs::OFlags::TRUNC) {
                    state.tree.inode(request.node).data.clear();
                }
                (None, state.tree.name_of(request.node))
            }
            Operation::Create { name, .. } => (Some(state.tree.make(request)), name.to_vec()),
            _ => (Some(state.tree.make(request)), Vec::new()),
        };
        let mut opened = Opened::new(Fh(7), FOpenFlags::KEEP_CACHE);
        if name.starts_with(b"direct") {
            opened.flags = FOpenFlags::DIRECT_IO;
        }
        if name.starts_with(b"passed") {
            let real = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut &real, b"from the file behind").unwrap();
            let backing = self.backings.register(&real).unwrap();
            opened = Opened {
                fh: Fh(8),
                flags: FOpenFlags::PASSTHROUGH,
                backing: Some(backing.number()),
            };
            state.backing.push(backing);
        }
        match entry {
            None => replier.opened(&opened),
            Some(Ok(entry)) => replier.created(&entry, &opened),
            Some(Err(errno)) => replier.error(errno),
        };
    }
}

fn answer(tree: &mut Tree, request: &Request, replier: Replier) {
    let node = request.node;
    match &request.operation {
        Operation::Lookup { name } => match tree.lookup(node, name) {
            Some(entry) => replier.entry(&entry),
            None => replier.negative(VALID),
        },
        Operation::GetAttr { .. } => replier.attr(&tree.attr(node), VALID),
        Operation::Statx { .. } => {
            let attr = tree.attr(node);
            let btime = Some(base::Timestamp {
                seconds: 1_000_000,
                nanos: 7,
            });
            let statx = Statx {
                attr,
                btime,
                attributes: 0,
                attributes_mask: 0,
            };
            replier.statx(&statx, VALID)
        }
        Operation::SetAttr(change) => replier.attr(&tree.change(node, change), VALID),
        Operation::Read(read) => replier.data_parts(&tree.read(node, read.offset, read.size)),
        Operation::Write(write) => {
            tree.write(node, write.offset, &write.data);
            replier.written(u32::try_from(write.data.len()).unwrap())
        }
        Operation::ReadLink => replier.target(&tree.inode(node).data),
        Operation::Symlink { .. }
        | Operation::MkNod { .. }
        | Operation::MkDir { .. }
        | Operation::Link { .. } => match tree.make(request) {
            Ok(entry) => replier.entry(&entry),
            Err(errno) => replier.error(errno),
        },
        Operation::Unlink { .. } | Operation::RmDir { .. } | Operation::Rename { .. } => {
            done(replier, tree.unmake(request))
        }
        Operation::OpenDir { .. } => replier.opened(&Opened::new(Fh(1), FOpenFlags::empty())),
        Operation::Flush { .. }
        | Operation::Fsync { .. }
        | Operation::FsyncDir { .. }
        | Operation::ReleaseDir { .. }
        | Operation::SyncFs => replier.done(),
        Operation::StatFs => replier.statfs(&StatFs {
            fragment_bytes: 4096,
            block_bytes: 4096,
            blocks: 1000,
            blocks_free: 600,
            blocks_available: 500,
            files: 70,
            files_free: 60,
            name_bytes_max: 255,
        }),
        _ => answer_attributes(tree.inode(node), request, replier),
    };
}

/// Extended attributes, and what is done to the contents without reading them.
fn answer_attributes(
    inode: &mut Inode,
    request: &Request,
    replier: Replier,
) -> mount::kernel::Delivery {
    match &request.operation {
        Operation::SetXattr { name, value, .. } => {
            inode.xattrs.insert(name.to_vec(), value.to_vec());
            replier.done()
        }
        Operation::GetXattr { name, size } => match inode.xattrs.get(&name[..]) {
            Some(value) => replier.xattr(value, *size),
            None => replier.error(Errno::NODATA),
        },
        Operation::ListXattr { size } => {
            let names: Vec<u8> = inode
                .xattrs
                .keys()
                .flat_map(|name| [name, &b"\0"[..]].concat())
                .collect();
            replier.xattr(&names, *size)
        }
        Operation::RemoveXattr { name } => match inode.xattrs.remove(&name[..]) {
            Some(_) => replier.done(),
            None => replier.error(Errno::NODATA),
        },
        Operation::Fallocate {
            offset,
            length,
            mode,
            ..
        } => {
            let zero = rustix::fs::FallocateFlags::ZERO_RANGE;
            if mode.contains(zero) {
                let start = usize::try_from(*offset).unwrap();
                inode.data[start..][..usize::try_from(*length).unwrap()].fill(0);
            }
            replier.done()
        }
        Operation::Lseek { offset, whence, .. } => match whence {
            mount::kernel::Whence::Data => replier.offset(*offset),
            _ => replier.offset(inode.data.len() as u64),
        },
        Operation::CopyFileRange(copy) => replier.copied(copy.length, copy.wide),
        Operation::Ioctl(ioctl) => {
            let answer: Vec<u8> = ioctl.input.iter().rev().copied().collect();
            replier.ioctl(0, &answer)
        }
        _ => replier.error(Errno::NOSYS),
    }
}

fn done(replier: Replier, result: Result<(), Errno>) -> mount::kernel::Delivery {
    match result {
        Ok(()) => replier.done(),
        Err(errno) => replier.error(errno),
    }
}

fn list(tree: &Tree, node: NodeId, page: ReadDir, replier: Replier) {
    let mut builder = DirectoryBuilder::new(page.size);
    for (offset, (name, attr, _)) in tree.list(node).into_iter().enumerate() {
        let next = offset as u64 + 1;
        if next > page.offset && builder.add(attr.ino, next, attr.kind, name) {
            break;
        }
    }
    replier.directory(&builder);
}

fn list_plus(tree: &mut Tree, node: NodeId, page: ReadDir, replier: Replier) {
    let mut builder = DirectoryPlusBuilder::new(page.size);
    for (offset, (name, attr, child)) in tree.list(node).into_iter().enumerate() {
        let next = offset as u64 + 1;
        if next <= page.offset {
            continue;
        }
        let full = match child {
            Some(child) => builder.add(&entry(child, attr), next, name),
            None => builder.add_bare(attr.ino, next, attr.kind, name),
        };
        if full {
            break;
        }
    }
    replier.directory_plus(&builder);
}

/// The answer that names an inode.
pub(crate) fn entry(node: NodeId, attr: Attr) -> Entry {
    Entry {
        node,
        generation: 0,
        entry_valid: VALID,
        attr_valid: VALID,
        attr,
    }
}
