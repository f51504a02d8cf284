//! One step, one reply: what is taken and what is not.

use super::*;
use crate::message::{FileRef, Lease, Target};
use base::{Extent, FileKind, Handle, Name};

fn target() -> Target {
    Target::Handle(Handle::new(b"h").expect("one byte"))
}

fn file() -> FileRef {
    FileRef {
        target: target(),
        open: None,
    }
}

fn attributes() -> Attributes {
    Attributes {
        kind: FileKind::File,
        mode: 0o4755,
        links: 1,
        uid: 0,
        gid: 0,
        inode: 5,
        device: 0,
        size: OFFSET_MAX,
        blocks: BLOCKS_MAX,
        block_size: 4096,
        // Before 1970 there were files, too.
        accessed: Timestamp {
            seconds: i64::MIN,
            nanos: NANOS_MAX,
        },
        modified: Timestamp::default(),
        changed: Timestamp::default(),
        created: None,
        protected: false,
    }
}

fn entry() -> Entry {
    Entry {
        handle: Handle::new(b"e").expect("one byte"),
        attributes: attributes(),
        lease: Lease::Read,
    }
}

fn told(attributes: Attributes) -> StepReply {
    let lease = Lease::None;
    StepReply::Attributes { attributes, lease }
}

fn read(bytes: u32) -> Step {
    Step::Read {
        file: file(),
        offset: 0,
        bytes,
    }
}

fn data(bytes: u32) -> StepReply {
    StepReply::Data {
        bytes,
        end_of_file: false,
    }
}

fn listed(cookies: &[u64], end: bool) -> StepReply {
    let entries = cookies.iter().map(|cookie| DirectoryEntry {
        name: Name::new(format!("n{cookie}")).expect("a plain name"),
        inode: 7,
        kind: FileKind::File,
        cookie: *cookie,
        entry: Some(entry()),
    });
    StepReply::Directory {
        entries: entries.collect(),
        end,
        lease: Lease::None,
    }
}

/// Whether one reply, with its payload, answers one step.
fn answers(step: Step, reply: StepReply, payload_bytes: usize) -> bool {
    Expected::of(&[step])
        .check(&[Ok(reply)], payload_bytes)
        .is_ok()
}

#[test]
fn every_step_is_answered_once_in_order_up_to_the_first_failure() {
    let steps = [Step::Attributes { target: target() }, read(10)];
    let expected = Expected::of(&steps);
    let (first, second) = (Ok(told(attributes())), Ok(data(10)));
    let failed = Err(FsError::NotFound);
    let good: [(Vec<_>, usize); 4] = [
        (vec![first.clone(), second.clone()], 10),
        (vec![first.clone(), failed.clone()], 0),
        // It failed with some of its data there.
        (vec![first.clone(), failed.clone()], 3),
        (vec![failed.clone()], 0),
    ];
    for (results, payload_bytes) in good {
        assert_eq!(
            expected.check(&results, payload_bytes),
            Ok(()),
            "{results:?}"
        );
    }
    let bad: [Vec<_>; 6] = [
        vec![],
        vec![first.clone()],
        vec![second.clone(), first.clone()],
        vec![failed.clone(), second.clone()],
        vec![first.clone(), second.clone(), second.clone()],
        vec![first.clone(), second.clone(), failed],
    ];
    for results in bad {
        assert_eq!(expected.check(&results, 10), Err(Unexpected), "{results:?}");
    }
}

#[test]
fn data_is_no_more_than_was_asked_for_and_all_of_the_payload() {
    assert!(answers(read(100), data(100), 100));
    assert!(answers(read(100), data(7), 7), "the file ends");
    for (told, sent) in [(101, 101), (100, 99), (7, 100), (0, 1)] {
        assert!(!answers(read(100), data(told), sent), "{told} {sent}");
    }
    let fetch = || Step::Fetch {
        handles: vec![Handle::new(b"h").expect("one byte"); 2],
        bytes_max: 64,
    };
    let contents = |sizes: &[u32]| StepReply::Contents {
        files: sizes
            .iter()
            .map(|bytes| Some((*bytes, attributes(), Lease::Read)))
            .collect(),
    };
    assert!(answers(fetch(), contents(&[64, 3]), 67));
    for (sizes, sent) in [
        (&[65, 0][..], 65),
        (&[64, 64], 127),
        (&[1], 1),
        (&[1, 1, 1], 3),
    ] {
        assert!(!answers(fetch(), contents(sizes), sent), "{sizes:?} {sent}");
    }
    let lookup = || Step::Lookup {
        parent: target(),
        name: Name::new("n").expect("a plain name"),
        inline_bytes_max: 10,
    };
    let found = |entry, inline_bytes| StepReply::Found {
        entry,
        parent_lease: Lease::None,
        inline_bytes,
    };
    assert!(answers(lookup(), found(Some(entry()), Some(10)), 10));
    assert!(!answers(lookup(), found(Some(entry()), Some(11)), 11));
    assert!(
        !answers(lookup(), found(None, Some(1)), 1),
        "contents of nothing"
    );
}

#[test]
fn a_write_lands_where_it_was_sent_and_is_no_longer_than_it_was() {
    let written = |offset, bytes| StepReply::Written {
        offset,
        bytes,
        attributes: attributes(),
    };
    let write = |at| Step::Write {
        file: file(),
        at,
        bytes: 10,
    };
    assert!(answers(write(WriteAt::Offset(5)), written(5, 10), 0));
    assert!(answers(write(WriteAt::Offset(5)), written(5, 0), 0));
    assert!(answers(
        write(WriteAt::End),
        written(OFFSET_MAX - 10, 10),
        0
    ));
    for (offset, bytes) in [(6, 10), (5, 11), (5, u64::MAX)] {
        assert!(!answers(
            write(WriteAt::Offset(5)),
            written(offset, bytes),
            0
        ));
    }
    for (offset, bytes) in [(OFFSET_MAX, 1), (u64::MAX, 1), (0, 11)] {
        assert!(!answers(write(WriteAt::End), written(offset, bytes), 0));
    }
}

#[test]
fn a_place_is_one_that_a_file_can_have_and_what_is_left_of_it_is_in_order() {
    let place = |bytes| Step::Place {
        file: file(),
        bytes,
    };
    let placed = |offset| StepReply::Placed {
        place: 1,
        generation: 2,
        offset,
        attributes: attributes(),
    };
    assert!(answers(place(10), placed(OFFSET_MAX - 10), 0));
    assert!(!answers(place(10), placed(OFFSET_MAX - 9), 0));
    assert!(!answers(place(10), placed(u64::MAX), 0));
    let left = |parts: &[(u64, u64)]| {
        let parts = parts.iter().map(|(from, len)| Extent::new(*from, *len));
        let reply = StepReply::PlaceLeft {
            generation: 2,
            parts: parts.collect(),
        };
        let step = Step::PlaceLeft {
            file: file(),
            place: 1,
        };
        answers(step, reply, 0)
    };
    assert!(left(&[]) && left(&[(5, 2), (8, 1)]));
    assert!(!left(&[(5, 0)]) && !left(&[(5, 2), (7, 1)]) && !left(&[(8, 1), (5, 2)]));
}

#[test]
fn attributes_are_such_as_a_file_can_have() {
    let answers_with = |change: fn(&mut Attributes)| {
        let mut attributes = attributes();
        change(&mut attributes);
        answers(Step::Attributes { target: target() }, told(attributes), 0)
    };
    assert!(answers_with(|_| {}));
    assert!(!answers_with(|a| a.size = OFFSET_MAX + 1));
    assert!(!answers_with(|a| a.blocks = u64::MAX));
    assert!(!answers_with(|a| a.mode = 0o10000));
    assert!(!answers_with(|a| a.modified.nanos = 1_000_000_000));
    let late = Timestamp {
        seconds: 0,
        nanos: u32::MAX,
    };
    let created = Attributes {
        created: Some(late),
        ..attributes()
    };
    assert!(!answers(
        Step::Attributes { target: target() },
        told(created),
        0
    ));
}

#[test]
fn a_page_brings_the_reader_on() {
    let ask = |cookie| Step::ReadDirectory {
        target: target(),
        cookie,
        entries_max: 3,
    };
    assert!(answers(ask(0), listed(&[1, 2, 3], false), 0));
    assert!(answers(ask(3), listed(&[], true), 0));
    assert!(
        answers(ask(9), listed(&[4], false), 0),
        "cookies need not grow"
    );
    assert!(
        !answers(ask(3), listed(&[], false), 0),
        "nothing, and more to come"
    );
    assert!(
        !answers(ask(3), listed(&[1, 3], false), 0),
        "back where it began"
    );
    assert!(
        !answers(ask(0), listed(&[1, 2, 3, 4], true), 0),
        "more than asked"
    );
}

#[test]
fn other_answers_are_possible_ones() {
    let seek = || Step::Seek {
        file: file(),
        offset: 10,
        what: crate::message::SeekWhat::Data,
    };
    assert!(answers(seek(), StepReply::Position(10), 0));
    assert!(!answers(seek(), StepReply::Position(9), 0));
    assert!(!answers(seek(), StepReply::Position(u64::MAX), 0));
    let link = || Step::ReadLink { target: target() };
    assert!(answers(link(), StepReply::LinkTarget(b"a/b".to_vec()), 0));
    for bad in [&b""[..], b"a\0b"] {
        assert!(!answers(link(), StepReply::LinkTarget(bad.to_vec()), 0));
    }
    let names = || Step::ListXattrs { target: target() };
    assert!(answers(
        names(),
        StepReply::XattrNames(b"user.a\0".to_vec()),
        0
    ));
    assert!(!answers(
        names(),
        StepReply::XattrNames(b"user.a".to_vec()),
        0
    ));
    let enter = || Step::Attach {
        volume: "v".to_owned(),
    };
    let attached = |kind| {
        let mut root = entry();
        root.attributes.kind = kind;
        StepReply::Attached {
            volume: base::VolumeId([1; 16]),
            root,
            read_only: false,
            parallel: false,
        }
    };
    assert!(answers(enter(), attached(FileKind::Directory), 0));
    assert!(!answers(enter(), attached(FileKind::File), 0));
    assert!(!answers(enter(), StepReply::Done, 0));
    let access = || Step::Access {
        target: target(),
        rights: 4,
    };
    // Nothing else is a permission.
    assert!(answers(access(), StepReply::Access { is_rich: true }, 0));
    assert!(!answers(access(), StepReply::Done, 0));
    assert!(!answers(seek(), StepReply::Access { is_rich: true }, 0));
}

fn removal(text: &str) -> Step {
    Step::Remove {
        parent: target(),
        name: Name::new(text.as_bytes()).expect("a name"),
        file: None,
    }
}

#[test]
fn a_failure_is_the_last_result_unless_only_names_are_made_and_removed_from_there_on() {
    let gone = || {
        Ok(StepReply::Removed {
            parent: attributes(),
            parent_lease: Lease::None,
            entry: None,
        })
    };
    let fails = || Err(FsError::Stale);
    let names = Expected::of(&[removal("a"), removal("b"), removal("c")]);
    for results in [
        vec![gone(), fails(), gone()],
        vec![fails(), gone(), fails()],
        vec![gone(), fails()],
        vec![gone(), gone(), gone()],
    ] {
        assert_eq!(names.check(&results, 0), Ok(()), "{results:?}");
    }
    for results in [vec![gone(), gone()], vec![fails(), gone()]] {
        assert_eq!(names.check(&results, 0), Err(Unexpected), "{results:?}");
    }
    let mixed = Expected::of(&[removal("a"), read(0), removal("b")]);
    assert_eq!(mixed.check(&[fails(), fails(), gone()], 0), Err(Unexpected));
    let behind = Expected::of(&[read(0), removal("a"), removal("b")]);
    assert_eq!(behind.check(&[fails(), gone(), gone()], 0), Err(Unexpected));
}
