//! Random histories of several users: the namespace says what the kernel says, error by error, and
//! both trees are the same after every operation.

use crate::history::{Op, Outcome, Random, sorted, users};
use crate::kernel::{LocalUser, Mounted, PIN, Pins, carry_out, kind_of, xattrs};
use crate::world::{World, list, root};
use base::{Attributes, FileKind, FsError, Handle, Name, Principal, Timestamp};
use meta::namespace::{Access, Create, Namespace, OpenOptions, Rights, Turn, XattrMode};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Carries an operation out in the namespace.
pub(crate) fn in_namespace(
    op: &Op,
    namespace: &Namespace,
    turn: &Turn,
    who: &Principal,
    handles: &[Handle],
) -> Outcome {
    let done = |result: Result<(), FsError>| result.map(|()| String::new());
    match op {
        Op::Lookup(at, name) => done(namespace.lookup(turn, who, &handles[*at], name).map(drop)),
        Op::Create(at, name, mode, umask) => {
            let how = Create {
                mode: *mode,
                umask: *umask,
                exclusive: true,
                open: OpenOptions::new(Access::Write),
                cuts: None,
                layout: None,
            };
            done(
                namespace
                    .create(turn, who, &handles[*at], name, &how)
                    .map(drop),
            )
        }
        Op::MakeDirectory(at, name, mode, umask) => {
            let made = namespace.make_directory(turn, who, &handles[*at], name, *mode, *umask);
            done(made.map(drop))
        }
        Op::MakeNode(at, name, kind, mode, umask, device) => {
            let at = &handles[*at];
            let made = namespace.make_node(turn, who, at, name, *kind, *mode, *umask, *device);
            done(made.map(drop))
        }
        Op::Symlink(at, name, target) => done(
            namespace
                .make_symlink(turn, who, &handles[*at], name, target)
                .map(drop),
        ),
        Op::Link(node, at, name) => done(
            namespace
                .link(turn, who, &handles[*node], &handles[*at], name)
                .map(drop),
        ),
        Op::Unlink(at, name) => done(namespace.unlink(turn, who, &handles[*at], name).map(drop)),
        Op::RemoveDirectory(at, name) => done(
            namespace
                .remove_directory(turn, who, &handles[*at], name)
                .map(drop),
        ),
        Op::Rename(at, name, to, to_name, mode) => {
            let (from, to) = (&handles[*at], &handles[*to]);
            done(
                namespace
                    .rename(turn, who, from, name, to, to_name, *mode)
                    .map(drop),
            )
        }
        _ => on_inode(op, namespace, turn, who, handles),
    }
}

fn on_inode(
    op: &Op,
    namespace: &Namespace,
    turn: &Turn,
    who: &Principal,
    handles: &[Handle],
) -> Outcome {
    let done = |result: Result<(), FsError>| result.map(|()| String::new());
    match op {
        Op::Open(node, read, write, truncate) => {
            let access = match (read, write) {
                (true, true) => Access::ReadWrite,
                (false, true) => Access::Write,
                _ => Access::Read,
            };
            let options = OpenOptions {
                access,
                truncate: *truncate,
                append: false,
            };
            done(
                namespace
                    .open_file(turn, who, &handles[*node], options)
                    .map(drop),
            )
        }
        Op::Set(node, change) => {
            let node = &handles[*node];
            done(
                namespace
                    .set_attributes(turn, who, node, change, None)
                    .map(drop),
            )
        }
        Op::Access(node, wanted) => {
            let wanted = Rights {
                read: wanted & 4 != 0,
                write: wanted & 2 != 0,
                execute: wanted & 1 != 0,
            };
            done(namespace.check_access(turn, who, &handles[*node], wanted))
        }
        Op::List(at) => {
            let names = list(namespace, turn, who, &handles[*at])?.into_iter();
            Ok(sorted(names.map(|entry| entry.name.as_bytes().to_vec())))
        }
        Op::ReadLink(node) => {
            let target = namespace.read_link(turn, who, &handles[*node])?;
            Ok(String::from_utf8_lossy(&target).into_owned())
        }
        _ => on_xattrs(op, namespace, turn, who, handles),
    }
}

fn on_xattrs(
    op: &Op,
    namespace: &Namespace,
    turn: &Turn,
    who: &Principal,
    handles: &[Handle],
) -> Outcome {
    let done = |result: Result<(), FsError>| result.map(|()| String::new());
    match op {
        Op::SetXattr(node, name, value, create) => {
            let mode = match create {
                None => XattrMode::Set,
                Some(true) => XattrMode::Create,
                Some(false) => XattrMode::Replace,
            };
            let (node, name) = (&handles[*node], name.as_bytes());
            done(namespace.set_xattr(turn, who, node, name, value, mode))
        }
        Op::SetAcl(node, default, value) => {
            let name = if *default {
                "system.posix_acl_default"
            } else {
                "system.posix_acl_access"
            };
            let (node, name, mode) = (&handles[*node], name.as_bytes(), XattrMode::Set);
            done(namespace.set_xattr(turn, who, node, name, value, mode))
        }
        Op::GetXattr(node, name) => {
            let value = namespace.get_xattr(turn, who, &handles[*node], name.as_bytes())?;
            Ok(format!("{value:?}"))
        }
        Op::ListXattrs(node) => Ok(sorted(namespace.list_xattrs(turn, who, &handles[*node])?)),
        Op::RemoveXattr(node, name) => {
            done(namespace.remove_xattr(turn, who, &handles[*node], name.as_bytes()))
        }
        other => unreachable!("{other:?}"),
    }
}

/// What is seen of an inode; the times as what has become of them since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    kind: FileKind,
    mode: u16,
    links: u32,
    owner: (u32, u32),
    size: u64,
    device: u64,
    /// Access, modification and change: a time that was set, or whether it has moved.
    times: [Moved; 3],
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    To(Timestamp),
    Not,
    On,
}

/// The last times of each inode of a side.
type Times = HashMap<u64, [Timestamp; 3]>;

fn seen(
    attributes: &Attributes,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    before: &Times,
    times: &mut Times,
) -> Seen {
    let now = [attributes.accessed, attributes.modified, attributes.changed];
    times.insert(attributes.inode, now);
    let before = before.get(&attributes.inode);
    let mut moved = [Moved::Not; 3];
    for (index, moved) in moved.iter_mut().enumerate() {
        *moved = match before {
            // Only those that the histories set lie so far back.
            _ if now[index].seconds < 1_100_000_000 => Moved::To(now[index]),
            Some(before) if before[index] == now[index] => Moved::Not,
            _ => Moved::On,
        };
    }
    let is_directory = attributes.kind == FileKind::Directory;
    Seen {
        kind: attributes.kind,
        mode: attributes.mode,
        links: attributes.links,
        owner: (attributes.uid, attributes.gid),
        size: if is_directory { 0 } else { attributes.size },
        device: attributes.device,
        times: moved,
        xattrs,
    }
}

impl Seen {
    /// Leaves times that were set.
    fn forget_times(&mut self) {
        for time in self
            .times
            .iter_mut()
            .filter(|time| !matches!(time, Moved::To(_)))
        {
            *time = Moved::Not;
        }
    }
}

type Tree = BTreeMap<Vec<u8>, Seen>;

fn tree_of_namespace(world: &World, times: &mut Times) -> Tree {
    let (namespace, turn, root) = (&world.namespace, Turn::new(), root());
    let mut tree = Tree::new();
    let before = std::mem::take(times);
    let mut rest = vec![(b".".to_vec(), world.top())];
    while let Some((path, handle)) = rest.pop() {
        let attributes = namespace.attributes(&turn, &root, &handle).unwrap();
        let names = namespace.list_xattrs(&turn, &root, &handle).unwrap();
        let value = |name: Vec<u8>| {
            let value = namespace.get_xattr(&turn, &root, &handle, &name).unwrap();
            (name, value)
        };
        let mut xattrs: Vec<_> = names.into_iter().map(value).collect();
        xattrs.sort();
        tree.insert(path.clone(), seen(&attributes, xattrs, &before, times));
        if attributes.kind == FileKind::Directory {
            for entry in list(namespace, &turn, &root, &handle).unwrap() {
                let path = [&path[..], b"/", entry.name.as_bytes()].concat();
                rest.push((path, entry.node.unwrap().handle));
            }
        }
    }
    tree
}

fn tree_of_kernel(top: &Arc<rustix::fd::OwnedFd>, times: &mut Times) -> Tree {
    let mut tree = Tree::new();
    let before = std::mem::take(times);
    let mut rest = vec![(b".".to_vec(), Arc::clone(top))];
    while let Some((path, fd)) = rest.pop() {
        let attributes = attributes(&fd);
        let xattrs = match attributes.kind {
            FileKind::Symlink => Vec::new(),
            _ => xattrs(&fd),
        };
        tree.insert(path.clone(), seen(&attributes, xattrs, &before, times));
        if attributes.kind == FileKind::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = rustix::fs::openat(&fd, c".", flags, Mode::empty()).unwrap();
            for entry in rustix::fs::Dir::new(open).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().to_bytes();
                if !matches!(name, b"." | b".." | b"lost+found") {
                    let child = rustix::fs::openat(&fd, name, PIN, Mode::empty()).unwrap();
                    rest.push(([&path[..], b"/", name].concat(), Arc::new(child)));
                }
            }
        }
    }
    tree
}

fn attributes(fd: &rustix::fd::OwnedFd) -> Attributes {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).unwrap();
    let time = |time: rustix::fs::StatxTimestamp| Timestamp {
        seconds: time.tv_sec,
        nanos: time.tv_nsec,
    };
    let kind = kind_of(fd);
    let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    Attributes {
        kind,
        mode: stat.stx_mode & 0o7777,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        inode: stat.stx_ino,
        device: match is_device {
            true => rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
            false => 0,
        },
        size: stat.stx_size,
        blocks: 0,
        block_size: 0,
        accessed: time(stat.stx_atime),
        modified: time(stat.stx_mtime),
        changed: time(stat.stx_ctime),
        created: None,
        protected: false,
    }
}

/// The inodes that both sides know, and the way of each that is in the tree.
struct Both<'a> {
    world: &'a World,
    pins: Pins,
    handles: Vec<Handle>,
    directories: Vec<usize>,
    times: [Times; 2],
}

impl Both<'_> {
    /// Looks at both trees and takes their inodes into the table.
    fn look(&mut self, top: &Arc<rustix::fd::OwnedFd>) -> [Tree; 2] {
        [
            tree_of_namespace(self.world, &mut self.times[0]),
            tree_of_kernel(top, &mut self.times[1]),
        ]
    }

    fn learn(&mut self, top: &Arc<rustix::fd::OwnedFd>, tree: &Tree) {
        (self.pins, self.handles, self.directories) = Default::default();
        let (turn, root) = (Turn::new(), root());
        for (path, seen) in tree {
            let (mut fd, mut handle) = (Arc::clone(top), self.world.top());
            for part in path.split(|byte| *byte == b'/').skip(1) {
                fd = Arc::new(rustix::fs::openat(&fd, part, PIN, Mode::empty()).unwrap());
                let part = Name::new(part).unwrap();
                handle = self
                    .world
                    .namespace
                    .lookup(&turn, &root, &handle, &part)
                    .unwrap()
                    .handle;
            }
            if seen.kind == FileKind::Directory {
                self.directories.push(self.pins.len());
            }
            self.pins.push(fd);
            self.handles.push(handle);
        }
    }
}

fn differences(of: &[Tree; 2]) -> Vec<String> {
    let paths = of[0].keys().chain(of[1].keys());
    let mut lines: Vec<_> = paths
        .filter(|path| of[0].get(*path) != of[1].get(*path))
        .map(|path| {
            let path_text = String::from_utf8_lossy(path);
            format!("{path_text}: {:?} / {:?}", of[0].get(path), of[1].get(path))
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Histories of so many operations on fresh trees, compared with the file system mounted there.
fn compare(mounted: &Mounted, has_times: bool, histories: u64, operations: usize) {
    rustix::process::umask(Mode::empty());
    let users: Vec<_> = users()
        .into_iter()
        .map(|who| (who.clone(), LocalUser::new(who)))
        .collect();
    let (mut refused, mut all) = (0, 0);
    for history in 0..histories {
        let directory = tempfile::tempdir().unwrap();
        let world = World::at(&directory.path().join("meta"));
        let path = mounted.path.join(history.to_string());
        std::fs::create_dir(&path).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = Arc::new(rustix::fs::open(&path, flags, Mode::empty()).unwrap());
        let mut both = Both {
            world: &world,
            pins: Vec::new(),
            handles: Vec::new(),
            directories: Vec::new(),
            times: Default::default(),
        };
        let mut random = Random::new(history + 1);
        open_to_all(&top, &world);
        let mut trees = both.look(&top);
        for index in 0..operations {
            both.learn(&top, &trees[0]);
            let op = Op::random(&mut random, both.pins.len(), &both.directories);
            // Half of the time root, or little would ever be there.
            let user = random.below(2 * users.len()).saturating_sub(users.len());
            let (who, local) = &users[user];
            let turn = Turn::new();
            let ours = in_namespace(&op, &world.namespace, &turn, who, &both.handles);
            let (theirs, pins) = (op.clone(), both.pins.clone());
            let theirs = local.run(move || carry_out(&theirs, &pins));
            trees = both.look(&top);
            if !has_times {
                trees
                    .iter_mut()
                    .flat_map(BTreeMap::values_mut)
                    .for_each(Seen::forget_times);
            }
            let differences = differences(&trees);
            assert!(
                ours == theirs && differences.is_empty(),
                "history {history}, {index}: {op:?} by {who:?}: namespace {ours:?}, kernel \
                 {theirs:?}; namespace / kernel: {differences:#?}"
            );
            refused += usize::from(ours.is_err());
            all += 1;
        }
        world.checked();
        world.close();
    }
    println!("{all} operations, {refused} refused");
    assert!(
        refused * 5 > all && refused * 10 < all * 9,
        "{refused} of {all} refused"
    );
}

/// The top belongs to root and everybody may write there.
fn open_to_all(top: &rustix::fd::OwnedFd, world: &World) {
    let path = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(top));
    rustix::fs::chmod(path, Mode::from_raw_mode(0o777)).unwrap();
    let change = base::AttributeChange {
        mode: Some(0o777),
        ..Default::default()
    };
    let (turn, top) = (Turn::new(), world.top());
    world
        .namespace
        .set_attributes(&turn, &root(), &top, &change, None)
        .unwrap();
}

#[test]
fn random_histories_are_those_of_ext4() {
    if let Some(mounted) = Mounted::ext4() {
        compare(&mounted, true, histories(12), 300);
    }
}

#[test]
fn random_histories_are_those_of_tmpfs() {
    if let Some(mounted) = Mounted::tmpfs() {
        // It gives a directory the time of the inode that leaves it, which may be the one it has.
        compare(&mounted, false, histories(3), 200);
    }
}

/// More of them where somebody asks for more.
fn histories(usual: u64) -> u64 {
    let asked = std::env::var("AZEKURA_NAMESPACE_HISTORIES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(usual)
}
