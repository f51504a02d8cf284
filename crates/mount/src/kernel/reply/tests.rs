//! The bytes of every answer and notification, read at the other end of a socket that, as the
//! device does, takes each write as one message.

use super::super::abi::flags::{AttrFlags, FOpenFlags};
use super::super::notify::{Notifier, NotifyError};
use super::super::request::{Fh, LockKind, NodeId, PollHandle};
use super::*;
use base::{FileKind, Timestamp};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

const UNIQUE: u64 = 0x77;

struct Wire {
    device: Arc<Device>,
    kernel: OwnedFd,
}

impl Wire {
    fn new() -> Self {
        let (ours, kernel) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        Self {
            device: Arc::new(Device::from_fd(ours)),
            kernel,
        }
    }

    fn replier(&self) -> Replier {
        Replier::new(Arc::clone(&self.device), Unique(UNIQUE))
    }

    /// The next message: error, unique, body. Checks the stated length.
    fn receive(&self) -> (i32, u64, Vec<u8>) {
        let mut bytes = vec![0; 1 << 16];
        let (len, _) =
            rustix::net::recv(&self.kernel, &mut bytes[..], RecvFlags::DONTWAIT).unwrap();
        bytes.truncate(len);
        let (header, body) = OutHeader::read_from_prefix(&bytes).unwrap();
        assert_eq!(usize::try_from(header.len).unwrap(), len);
        (header.error, header.unique, body.to_vec())
    }

    fn nothing(&self) -> bool {
        let mut byte = [0];
        let received = rustix::net::recv(&self.kernel, &mut byte[..], RecvFlags::DONTWAIT);
        received == Err(Errno::AGAIN)
    }
}

use zerocopy::FromBytes;

fn u32s(values: &[u32]) -> Vec<u8> {
    values.as_bytes().to_vec()
}

fn u64s(values: &[u64]) -> Vec<u8> {
    values.as_bytes().to_vec()
}

fn attr() -> Attr {
    let time = |seconds, nanos| Timestamp { seconds, nanos };
    Attr {
        ino: 1,
        size: 2,
        blocks: 3,
        atime: time(4, 7),
        mtime: time(-5, 8),
        ctime: time(6, 9),
        kind: FileKind::CharDevice,
        mode: 0o4755,
        links: 10,
        uid: 11,
        gid: 12,
        rdev: rustix::fs::makedev(0x456, 0x1_2378),
        block_bytes: 13,
        flags: AttrFlags::SUBMOUNT,
    }
}

fn attr_bytes() -> Vec<u8> {
    let minus_five = u64::MAX - 4;
    [
        u64s(&[1, 2, 3, 4, minus_five, 6]),
        u32s(&[7, 8, 9, 0o024_755, 10, 11, 12, 0x1234_5678, 13, 1]),
    ]
    .concat()
}

fn entry() -> Entry {
    Entry {
        node: NodeId(20),
        generation: 21,
        entry_valid: Duration::new(22, 24),
        attr_valid: Duration::new(23, 25),
        attr: attr(),
    }
}

fn entry_bytes() -> Vec<u8> {
    [u64s(&[20, 21, 22, 23]), u32s(&[24, 25]), attr_bytes()].concat()
}

fn opened() -> Opened {
    let flags = FOpenFlags::KEEP_CACHE | FOpenFlags::PASSTHROUGH;
    Opened {
        fh: Fh(30),
        flags,
        backing: Some(31),
    }
}

fn opened_bytes() -> Vec<u8> {
    [u64s(&[30]), u32s(&[0x82, 31])].concat()
}

/// An answer and its bytes.
type Answer = (Box<dyn Fn(Replier)>, Vec<u8>);

fn answers_about_inodes() -> Vec<Answer> {
    vec![
        (Box::new(|r| _ = r.done()), vec![]),
        (Box::new(|r| _ = r.entry(&entry())), entry_bytes()),
        (
            Box::new(|r| _ = r.negative(Duration::new(3, 4))),
            [u64s(&[0, 0, 3, 0]), u32s(&[4, 0]), vec![0; 88]].concat(),
        ),
        (
            Box::new(|r| _ = r.attr(&attr(), Duration::new(3, 4))),
            [u64s(&[3]), u32s(&[4, 0]), attr_bytes()].concat(),
        ),
        (Box::new(|r| _ = r.opened(&opened())), opened_bytes()),
        (
            Box::new(|r| _ = r.created(&entry(), &opened())),
            [entry_bytes(), opened_bytes()].concat(),
        ),
        (
            Box::new(|r| {
                let btime = Some(Timestamp {
                    seconds: 40,
                    nanos: 41,
                });
                let statx = Statx {
                    attr: attr(),
                    btime,
                    attributes: 42,
                    attributes_mask: 43,
                };
                _ = r.statx(&statx, Duration::new(3, 4));
            }),
            [
                [u64s(&[3]), u32s(&[4, 0]), u64s(&[0, 0])].concat(),
                [
                    u32s(&[0xfff, 13]),
                    u64s(&[42]),
                    u32s(&[10, 11, 12, 0o024_755]),
                ]
                .concat(),
                u64s(&[1, 2, 3, 43]),
                [u64s(&[4]), u32s(&[7, 0]), u64s(&[40]), u32s(&[41, 0])].concat(),
                [
                    u64s(&[6]),
                    u32s(&[9, 0]),
                    u64s(&[u64::MAX - 4]),
                    u32s(&[8, 0]),
                ]
                .concat(),
                [u32s(&[0x456, 0x1_2378, 0, 0]), u64s(&[0; 14])].concat(),
            ]
            .concat(),
        ),
    ]
}

fn answers_about_data() -> Vec<Answer> {
    let statfs = StatFs {
        fragment_bytes: 1,
        block_bytes: 2,
        blocks: 3,
        blocks_free: 4,
        blocks_available: 5,
        files: 6,
        files_free: 7,
        name_bytes_max: 8,
    };
    let lock = Lock {
        kind: LockKind::Write,
        start: 1,
        end: 2,
        pid: 3,
    };
    let parts = [
        Bytes::from_static(b"ab"),
        Bytes::new(),
        Bytes::from_static(b"cd"),
    ];
    let many: Vec<Bytes> = (0..3000).map(|_| Bytes::from_static(b"xy")).collect();
    vec![
        (Box::new(|r| _ = r.target(b"../x")), b"../x".to_vec()),
        (Box::new(|r| _ = r.data(b"abc")), b"abc".to_vec()),
        (
            Box::new(move |r| _ = r.data_parts(&parts)),
            b"abcd".to_vec(),
        ),
        (
            Box::new(move |r| _ = r.data_parts(&many)),
            b"xy".repeat(3000),
        ),
        (
            Box::new(|r| _ = r.data_slices(&[IoSlice::new(b"a"), IoSlice::new(b"b")])),
            b"ab".to_vec(),
        ),
        (Box::new(|r| _ = r.written(7)), u32s(&[7, 0])),
        (Box::new(|r| _ = r.copied(1 << 40, true)), u64s(&[1 << 40])),
        (Box::new(|r| _ = r.copied(9, false)), u32s(&[9, 0])),
        (
            Box::new(move |r| _ = r.statfs(&statfs)),
            [u64s(&[3, 4, 5, 6, 7]), u32s(&[2, 8, 1, 0]), u32s(&[0; 6])].concat(),
        ),
        (Box::new(|r| _ = r.xattr(b"abc", 3)), b"abc".to_vec()),
        (Box::new(|r| _ = r.xattr(b"abc", 0)), u32s(&[3, 0])),
        (Box::new(|r| _ = r.xattr_size(4)), u32s(&[4, 0])),
        (
            Box::new(move |r| _ = r.lock(&lock)),
            [u64s(&[1, 2]), u32s(&[1, 3])].concat(),
        ),
        (Box::new(|r| _ = r.offset(5)), u64s(&[5])),
        (
            Box::new(|r| _ = r.ioctl(6, b"out")),
            [u32s(&[6, 0, 0, 0]), b"out".to_vec()].concat(),
        ),
        (Box::new(|r| _ = r.poll(7)), u32s(&[7, 0])),
        (Box::new(|r| _ = r.block(8)), u64s(&[8])),
    ]
}

#[test]
fn the_bytes_of_every_answer() {
    let wire = Wire::new();
    let answers = answers_about_inodes()
        .into_iter()
        .chain(answers_about_data());
    for (number, (answer, expected)) in answers.enumerate() {
        answer(wire.replier());
        assert_eq!(wire.receive(), (0, UNIQUE, expected), "answer {number}");
        assert!(wire.nothing(), "answer {number} came twice");
    }
}

#[test]
fn failure_and_too_little_room_are_negated_errors() {
    let wire = Wire::new();
    assert_eq!(wire.replier().error(Errno::NOENT), Delivery::Taken);
    assert_eq!(wire.receive(), (-2, UNIQUE, vec![]));
    assert_eq!(wire.replier().xattr(b"abc", 2), Delivery::Taken);
    assert_eq!(wire.receive(), (-34, UNIQUE, vec![]));
}

#[test]
fn a_dropped_replier_answers_eio() {
    let wire = Wire::new();
    drop(wire.replier());
    assert_eq!(wire.receive(), (-5, UNIQUE, vec![]));
    assert!(wire.nothing());
}

#[test]
fn pages_of_a_listing_are_filled_up_to_their_room() {
    let wire = Wire::new();
    // A record of a name of 3 bytes takes 32.
    let mut page = DirectoryBuilder::new(80);
    assert!(page.is_empty());
    assert!(!page.add(1, 11, FileKind::Directory, "abc"));
    assert!(!page.add(2, 12, FileKind::File, b"abcdefgh"));
    assert!(page.add(3, 13, FileKind::File, "x"));
    wire.replier().directory(&page);
    let first = [u64s(&[1, 11]), u32s(&[3, 4]), b"abc\0\0\0\0\0".to_vec()].concat();
    let second = [u64s(&[2, 12]), u32s(&[8, 8]), b"abcdefgh".to_vec()].concat();
    assert_eq!(wire.receive(), (0, UNIQUE, [first, second].concat()));

    let mut page = DirectoryPlusBuilder::new(400);
    assert!(!page.add_bare(1, 11, FileKind::Directory, "."));
    assert!(!page.add(&entry(), 12, "abc"));
    assert!(page.add(&entry(), 13, "abc"));
    assert!(!page.is_empty());
    wire.replier().directory_plus(&page);
    let bare = [
        vec![0; 128],
        u64s(&[1, 11]),
        u32s(&[1, 4]),
        b".\0\0\0\0\0\0\0".to_vec(),
    ]
    .concat();
    let full = [
        entry_bytes(),
        u64s(&[1, 12]),
        u32s(&[3, 2]),
        b"abc\0\0\0\0\0".to_vec(),
    ]
    .concat();
    assert_eq!(wire.receive(), (0, UNIQUE, [bare, full].concat()));
}

#[test]
fn the_bytes_of_every_notification() {
    let wire = Wire::new();
    let notifier = Notifier::new(Arc::clone(&wire.device));
    type Send = fn(&Notifier) -> Result<(), NotifyError>;
    let cases: [(Send, i32, Vec<u8>); 8] = [
        (|n| n.poll(PollHandle(9)), 1, u64s(&[9])),
        (
            |n| n.inval_inode(NodeId(1), -1, 2),
            2,
            u64s(&[1, u64::MAX, 2]),
        ),
        (
            |n| n.inval_entry(NodeId(1), b"ab"),
            3,
            [u64s(&[1]), u32s(&[2, 0]), b"ab\0".to_vec()].concat(),
        ),
        (
            |n| n.expire_entry(NodeId(1), b"ab"),
            3,
            [u64s(&[1]), u32s(&[2, 1]), b"ab\0".to_vec()].concat(),
        ),
        (
            |n| n.store(NodeId(1), 2, b"data"),
            4,
            [u64s(&[1, 2]), u32s(&[4, 0]), b"data".to_vec()].concat(),
        ),
        (
            |n| n.delete(NodeId(1), NodeId(2), b"ab"),
            6,
            [u64s(&[1, 2]), u32s(&[2, 0]), b"ab\0".to_vec()].concat(),
        ),
        (Notifier::inc_epoch, 8, vec![]),
        (
            |n| n.prune(&[NodeId(4), NodeId(5)]),
            9,
            [u32s(&[2, 0]), u64s(&[0, 4, 5])].concat(),
        ),
    ];
    for (send, code, body) in cases {
        send(&notifier).unwrap();
        assert_eq!(wire.receive(), (code, 0, body));
    }
}
