//! The largest replies, encoded.

use super::{ENTRY_BYTES, STEP_BYTES, beside, set_aside};
use base::limits::{
    COMPOUND_STEPS_MAX, DIRECTORY_ENTRIES_MAX, FRAME_BODY_BYTES_MAX, HANDLE_BYTES_MAX,
    LAYOUT_COLUMNS_MAX, PLACE_PARTS_MAX, XATTR_BYTES_MAX,
};
use base::{
    Attributes, Extent, FileKind, FileSystemStat, Handle, LockOwner, Name, ObjectId, ServerId,
    StoreId, Timestamp, VolumeId,
};
use wire::message::{
    AclEntryText, AclGrounds, CompoundReply, DirectoryEntry, Entry, Explanation, FileColumn,
    FileLayout, FileRef, LayoutPurpose, Lease, LockKind, LockMode, LockRange, Reply, Step,
    StepReply, Target, encode,
};

fn attributes() -> Attributes {
    let time = Timestamp {
        seconds: i64::MIN,
        nanos: u32::MAX,
    };
    Attributes {
        kind: FileKind::BlockDevice,
        mode: u16::MAX,
        links: u32::MAX,
        uid: u32::MAX,
        gid: u32::MAX,
        inode: u64::MAX,
        device: u64::MAX,
        size: u64::MAX,
        blocks: u64::MAX,
        block_size: u32::MAX,
        accessed: time,
        modified: time,
        changed: time,
        created: Some(time),
        protected: true,
    }
}

fn entry() -> Entry {
    Entry {
        handle: Handle::new(&[0xff; HANDLE_BYTES_MAX]).unwrap(),
        attributes: attributes(),
        lease: Lease::Exclusive,
    }
}

/// An extent whose numbers are as long as they can be.
fn extent() -> Extent {
    Extent::new(1 << 63, (1 << 63) - 1)
}

/// The largest replies about names.
fn of_names() -> Vec<StepReply> {
    let lease = Lease::Exclusive;
    vec![
        StepReply::Attached {
            volume: VolumeId([0xff; 16]),
            root: entry(),
            read_only: true,
            parallel: true,
        },
        StepReply::Found {
            entry: Some(entry()),
            parent_lease: lease,
            inline_bytes: Some(u32::MAX),
        },
        StepReply::Created {
            entry: entry(),
            new: true,
            parent: attributes(),
            parent_lease: lease,
        },
        StepReply::Removed {
            parent: attributes(),
            parent_lease: lease,
            entry: Some(entry()),
        },
        StepReply::Renamed {
            parent: attributes(),
            to_parent: attributes(),
            entry: entry(),
            replaced: Some(Box::new(entry())),
        },
    ]
}

/// The largest other replies of which no part is measured.
fn of_contents() -> Vec<StepReply> {
    let lock = LockRange {
        kind: LockKind::Posix,
        mode: LockMode::Unlock,
        extent: extent(),
        owner: LockOwner(u64::MAX),
        pid: u32::MAX,
    };
    vec![
        StepReply::Written {
            offset: u64::MAX,
            bytes: u64::MAX,
            attributes: attributes(),
        },
        StepReply::Placed {
            place: u64::MAX,
            generation: u64::MAX,
            offset: u64::MAX,
            attributes: attributes(),
        },
        StepReply::PlaceLeft {
            generation: u64::MAX,
            parts: vec![extent(); PLACE_PARTS_MAX],
        },
        StepReply::FileSystem(FileSystemStat {
            block_size: u32::MAX,
            blocks: u64::MAX,
            blocks_free: u64::MAX,
            blocks_available: u64::MAX,
            files: u64::MAX,
            files_free: u64::MAX,
            name_max: u32::MAX,
        }),
        StepReply::Lock(Some(lock)),
    ]
}

/// Bytes of the body that has these replies.
fn body_bytes(replies: Vec<StepReply>) -> usize {
    let reply = Reply::Files(CompoundReply {
        results: replies.into_iter().map(Ok).collect(),
        server_micros: u32::MAX,
    });
    encode(&reply).len()
}

fn repeated(reply: &StepReply) -> Vec<StepReply> {
    vec![reply.clone(); COMPOUND_STEPS_MAX]
}

#[test]
fn what_is_set_aside_suffices_for_every_reply() {
    for reply in of_names().into_iter().chain(of_contents()) {
        let one = body_bytes(vec![reply.clone()]);
        assert!(one <= STEP_BYTES, "{one} bytes: {reply:?}");
        let all = body_bytes(repeated(&reply));
        let aside = COMPOUND_STEPS_MAX * STEP_BYTES;
        assert!(all <= aside, "{all} bytes of {aside}: {reply:?}");
    }
}

#[test]
fn what_is_set_aside_suffices_for_lists_whose_length_the_step_bounds() {
    let column = FileColumn {
        server: ServerId([0xff; 16]),
        store: StoreId([0xff; 16]),
        object: ObjectId([0xff; 16]),
    };
    let layout = Step::Layout {
        file: FileRef {
            target: Target::Result(0),
            open: None,
        },
        purpose: LayoutPurpose::Read,
    };
    let columns = StepReply::Layout(FileLayout {
        unit_log2: u8::MAX,
        generation: u64::MAX,
        columns: vec![column; LAYOUT_COLUMNS_MAX],
    });
    let fetch = Step::Fetch {
        handles: vec![Handle::new(&[1]).unwrap(); DIRECTORY_ENTRIES_MAX],
        bytes_max: u32::MAX,
    };
    let nothing = StepReply::Contents {
        files: vec![None; DIRECTORY_ENTRIES_MAX],
    };
    for (step, reply) in [(layout, columns), (fetch, nothing)] {
        let all = body_bytes(repeated(&reply));
        let aside = COMPOUND_STEPS_MAX * set_aside(&step);
        assert!(all <= aside, "{all} bytes of {aside}: {step:?}");
        let left = beside(&vec![step; COMPOUND_STEPS_MAX]);
        assert_eq!(left, FRAME_BODY_BYTES_MAX - aside);
    }
}

#[test]
fn what_is_measured_is_measured_as_large_as_it_is() {
    let count = 1000;
    let around = body_bytes(vec![StepReply::Contents { files: Vec::new() }]);
    let files = StepReply::Contents {
        files: vec![Some((u32::MAX, attributes(), Lease::Exclusive)); count],
    };
    assert!(body_bytes(vec![files]) <= around + count * ENTRY_BYTES);
    let name = "n".repeat(255);
    let listed = DirectoryEntry {
        name: Name::new(&name).unwrap(),
        inode: u64::MAX,
        kind: FileKind::BlockDevice,
        cookie: u64::MAX,
        entry: Some(entry()),
    };
    let page = StepReply::Directory {
        entries: vec![listed; count],
        end: true,
        lease: Lease::Exclusive,
    };
    let measured = count * (ENTRY_BYTES + name.len() + HANDLE_BYTES_MAX);
    assert!(body_bytes(vec![page]) <= STEP_BYTES + measured);
    let xattr = StepReply::Xattr(vec![1; XATTR_BYTES_MAX]);
    assert!(body_bytes(vec![xattr]) <= STEP_BYTES + XATTR_BYTES_MAX);
    let text = "e".repeat(1000);
    let explained = StepReply::Explained(Explanation {
        is_allowed: true,
        is_rich: true,
        rights: u32::MAX,
        grounds: AclGrounds::Sticky,
        entry: Some(AclEntryText {
            place: u32::MAX,
            text: text.clone(),
        }),
        is_directorys: true,
    });
    assert!(body_bytes(vec![explained]) <= STEP_BYTES + text.len());
}
