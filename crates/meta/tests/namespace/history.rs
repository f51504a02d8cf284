//! Random operations of several users on a small tree, the same for every world that has one.

use base::{AttributeChange, FileKind, FsError, Name, Principal, SetTime, Timestamp};
use meta::namespace::RenameMode;

/// What an operation said beside success: data, names.
pub(crate) type Outcome = Result<String, FsError>;

/// Who asks: root, and users whose groups cross.
pub(crate) fn users() -> Vec<Principal> {
    vec![
        Principal::root(),
        Principal::new(2001, 3011, vec![3001]),
        Principal::new(2002, 3001, vec![3005, 3012]),
        Principal::alone(2003, 3013),
        Principal::alone(2004, 0),
    ]
}

/// A repeatable source of choices.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % count
    }

    pub(crate) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

/// One operation; inodes are numbers of a table that each world keeps.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Lookup(usize, Name),
    Create(usize, Name, u16, u16),
    MakeDirectory(usize, Name, u16, u16),
    MakeNode(usize, Name, FileKind, u16, u16, u64),
    Symlink(usize, Name, &'static [u8]),
    Link(usize, usize, Name),
    Unlink(usize, Name),
    RemoveDirectory(usize, Name),
    Rename(usize, Name, usize, Name, RenameMode),
    Open(usize, bool, bool, bool),
    Set(usize, AttributeChange),
    Access(usize, u8),
    List(usize),
    ReadLink(usize),
    SetXattr(usize, &'static str, &'static [u8], Option<bool>),
    SetAcl(usize, bool, Vec<u8>),
    GetXattr(usize, &'static str),
    ListXattrs(usize),
    RemoveXattr(usize, &'static str),
}

const MODES: [u16; 16] = [
    0o644, 0o755, 0o700, 0o777, 0o1777, 0o2775, 0o2755, 0o4755, 0o6711, 0o600, 0, 0o3777, 0o777,
    0o2777, 0o666, 0o1777,
];
const XATTRS: [&str; 7] = [
    "user.a",
    "user.b",
    "trusted.a",
    "security.capability",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "user.",
];
/// `cap_net_bind_service=ep`, version 2.
const CAPABILITY: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn some_name(random: &mut Random) -> Name {
    Name::new(random.of(&["a", "b", "c", "d"])).unwrap()
}

/// An ACL as the kernel's extended attribute; sometimes one that makes no sense.
fn some_acl(random: &mut Random) -> Vec<u8> {
    let mut entries: Vec<(u16, u32)> = vec![(1, u32::MAX)];
    if random.below(2) == 0 {
        entries.push((2, random.of(&[2001, 2002, 2003])));
    }
    entries.push((4, u32::MAX));
    if random.below(2) == 0 {
        entries.push((8, random.of(&[3001, 3005, 3013])));
    }
    if entries.len() > 2 || random.below(3) == 0 {
        entries.push((16, u32::MAX));
    }
    entries.push((32, u32::MAX));
    match random.below(16) {
        0 => drop(entries.pop()),
        1 => entries.swap(0, 1),
        2 => entries.clear(),
        _ => {}
    }
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend((random.below(8) as u16).to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn some_change(random: &mut Random) -> AttributeChange {
    let mut change = AttributeChange::default();
    let time = |random: &mut Random| match random.below(3) {
        0 => None,
        1 => Some(SetTime::Now),
        _ => Some(SetTime::To(Timestamp {
            seconds: 1_000_000_000 + random.below(1000) as i64,
            nanos: 123_456_789,
        })),
    };
    match random.below(4) {
        0 => change.mode = Some(random.of(&MODES)),
        1 => {
            let uids = [None, Some(2001), Some(2002), Some(0)];
            change.uid = random.of(&uids);
            change.gid = random.of(&[None, Some(3001), Some(3005), Some(3011), Some(0)]);
        }
        2 => {
            change.accessed = time(random);
            change.modified = time(random);
        }
        _ => change.size = Some(random.of(&[0, 1, 100, 5000, 70_000])),
    }
    change
}

fn some_xattr(random: &mut Random, node: usize) -> Op {
    let name = random.of(&XATTRS);
    match random.below(5) {
        0 => Op::GetXattr(node, name),
        1 => Op::ListXattrs(node),
        2 => Op::RemoveXattr(node, name),
        3 => Op::SetAcl(node, random.below(2) == 0, some_acl(random)),
        _ => {
            let value: &[u8] = match name {
                "security.capability" => random.of(&[CAPABILITY, b"no"]),
                _ => random.of(&[&b"blue"[..], b"", b"a longer value"]),
            };
            match name.starts_with("system.") {
                true => Op::SetAcl(node, name.ends_with("default"), some_acl(random)),
                false => Op::SetXattr(
                    node,
                    name,
                    value,
                    random.of(&[None, Some(true), Some(false)]),
                ),
            }
        }
    }
}

impl Op {
    /// An operation in a tree with so many known inodes, of which these are directories.
    pub(crate) fn random(random: &mut Random, nodes: usize, directories: &[usize]) -> Self {
        // Sometimes a file in the place of a directory.
        let directory = |random: &mut Random| match random.below(12) {
            0 => random.below(nodes),
            _ => random.of(directories),
        };
        let (at, node) = (directory(random), random.below(nodes));
        let (name, mode) = (some_name(random), random.of(&MODES));
        let umask = random.of(&[0, 0, 0o022, 0o077, 0o027]);
        match random.below(26) {
            0 | 1 => Self::Lookup(at, name),
            2..=4 => Self::Create(at, name, mode, umask),
            5..=7 => Self::MakeDirectory(at, name, mode, umask),
            8 => {
                let kinds = [
                    (FileKind::File, 0),
                    (FileKind::Fifo, 0),
                    (FileKind::Socket, 0),
                    (FileKind::CharDevice, 0x103),
                    (FileKind::CharDevice, 0),
                    (FileKind::BlockDevice, 0x107),
                ];
                let (kind, device) = random.of(&kinds);
                Self::MakeNode(at, name, kind, mode, umask, device)
            }
            9 => Self::Symlink(at, name, random.of(&[&b"../x"[..], b"a", b""])),
            10 | 11 => Self::Link(node, at, name),
            12 | 13 => Self::Unlink(at, name),
            14 => Self::RemoveDirectory(at, name),
            15..=18 => {
                let modes = [
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                ];
                let (to, to_name) = (directory(random), some_name(random));
                Self::Rename(at, name, to, to_name, random.of(&modes))
            }
            19 => Self::Open(
                node,
                random.below(2) == 0,
                random.below(2) == 0,
                random.below(3) == 0,
            ),
            20 | 21 => Self::Set(node, some_change(random)),
            22 => Self::Access(node, random.below(8) as u8),
            23 => match random.below(2) {
                0 => Self::List(at),
                _ => Self::ReadLink(node),
            },
            _ => some_xattr(random, node),
        }
    }
}

/// Names in order, for comparison.
pub(crate) fn sorted(names: impl IntoIterator<Item = Vec<u8>>) -> String {
    let names = names.into_iter();
    let mut names: Vec<_> = names
        .map(|name| String::from_utf8_lossy(&name).into_owned())
        .collect();
    names.sort();
    names.join(" ")
}
