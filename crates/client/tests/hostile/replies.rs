//! Replies to nothing, to something else, with too much or too little in them, or none.

use crate::alone;
use crate::memory::Measured;
use crate::peer::{
    Asked, END_TIME_MAX, FILE_BYTES, Lies, Peer, REQUEST_TIME_MAX, Said, attributes, file, handle,
    name, results,
};
#[path = "../../../wire/tests/messages/generate.rs"]
mod generate;

use base::limits::{CLIENT_BUFFER_BYTES_MAX, FRAME_BODY_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX};
use base::{Attributes, Extent, FileKind, FsError, LockOwner, Principal, RequestId, Timestamp};
use bytes::Bytes;
use client::cache::NodeId;
use client::file::Write;
use client::transport::CallError;
use client::volume::{OpenFile, Volume};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use wire::frame::{Class, Frame, FrameKind};
use wire::message::{
    Access, Lease, LockKind, LockMode, LockRange, Reply, Request, SeekWhat, Step, StepReply,
};

pub(crate) fn write(who: &Principal, open: &OpenFile, data: &'static [u8]) -> Write {
    Write {
        offset: 0,
        data: Bytes::from_static(data),
        who: who.clone(),
        open: Some(open.open),
        append: false,
        permits: Vec::new(),
    }
}

/// The one file, open.
async fn opened(volume: &Volume) -> Result<OpenFile, FsError> {
    let who = Principal::root();
    let found = volume.lookup(&who, NodeId::ROOT, &name("file")).await?;
    let node = found.ok_or(FsError::NotFound)?.node;
    volume.open(&who, node, Access::ReadWrite, false).await
}

async fn read(volume: &Volume, open: &OpenFile, extent: Extent) -> Result<Vec<u8>, FsError> {
    let read = volume.read(&open.who, open.node, Some(open.open), extent);
    let pieces = timeout(END_TIME_MAX, read).await.expect("an end")?;
    Ok(pieces.concat())
}

/// Bytes of the one file.
fn contents(extent: Extent) -> Vec<u8> {
    (extent.offset..extent.end()).map(|at| at as u8).collect()
}

/// A lock on the first bytes of a file.
pub(crate) fn exclusive() -> LockRange {
    LockRange {
        kind: LockKind::Posix,
        mode: LockMode::Exclusive,
        extent: Extent::new(0, 10),
        owner: LockOwner(1),
        pid: 1,
    }
}

/// Does one of everything; what came of each. Nothing takes longer than it may.
async fn everything(volume: &Arc<Volume>) -> Vec<(&'static str, Result<(), FsError>)> {
    let who = Principal::root();
    let file = opened(volume).await;
    let mut outcomes = Vec::new();
    let node = file.as_ref().map_or(NodeId::ROOT, |open| open.node);
    let open = file.as_ref().ok().map(|open| open.open);
    let lock = exclusive();
    macro_rules! done {
        ($($what:literal: $work:expr;)*) => {$(
            let begun = Instant::now();
            let outcome = timeout(END_TIME_MAX, $work).await;
            let outcome = outcome.unwrap_or_else(|_| panic!("{} does not end", $what));
            let took = begun.elapsed();
            assert!(took <= REQUEST_TIME_MAX * 4, "{} took {took:?}", $what);
            outcomes.push(($what, outcome.map(drop)));
        )*};
    }
    let other = name("other");
    let creation = client::volume::Creation {
        parent: NodeId::ROOT,
        name: other.clone(),
        mode: 0o644,
        umask: 0,
    };
    done! {
        "lookup": volume.lookup(&who, NodeId::ROOT, &other);
        "list": volume.list(&who, NodeId::ROOT);
        "attributes": volume.attributes(&who, node);
        "read": volume.read(&who, node, open, Extent::new(0, 100_000));
        "seek": volume.seek(&who, node, open, 10, SeekWhat::Hole);
        "xattr": volume.xattr(&who, node, b"user.x");
        "xattrs": volume.xattr_names(&who, node);
        "link": volume.read_link(&who, node);
        "statfs": volume.stat_file_system(&who, node);
        "create": volume.create(&who, &creation, false, Access::ReadWrite, false, false);
        "copy": volume.copy_range(&who, (node, open, 0), (node, open, 4096), 4096);
        "test lock": volume.test_lock(&who, node, lock);
        "lock": volume.lock(&who, node, lock, false, std::future::pending());
    }
    if let Ok(open) = &file {
        done! {
            "write": volume.write(node, write(&who, open, b"some data"));
            "flush": volume.flush(open);
            "commit": volume.commit(&who, node, Some(open.open), false);
        }
        volume.release(open);
    }
    outcomes
}

/// Lies that change the replies to some steps.
fn lying(lie: impl Fn(&Step, &mut StepReply) -> bool + Send + Sync + 'static) -> Lies {
    Lies {
        answer: results(move |asked: &Asked, said: &mut Said| {
            let steps = asked.steps().iter();
            let mut lied = false;
            for (step, result) in steps.zip(said.results()) {
                if let Ok(reply) = result {
                    lied |= lie(step, reply);
                }
            }
            if lied && said.payload.is_empty() {
                said.payload = Bytes::new();
            }
        }),
        ..Lies::default()
    }
}

#[test]
fn replies_that_nobody_asked_for_and_replies_sent_twice_change_nothing() {
    alone(async {
        let answer = |asked: &Asked, said: Said| {
            let other = |id: u64| Frame {
                request: RequestId(id),
                payload: vec![0xee; 1000].into(),
                ..said.frame(asked.id)
            };
            let honest = said.frame(asked.id);
            // What keeps a connection warm has the greatest id there is.
            let beside = [-1, 1, 1000].map(|by| asked.id.0.wrapping_add_signed(by));
            let around = [0, 1].into_iter().chain(beside);
            let ends = [u64::MAX, u64::MAX - 1, 1 << 63];
            let mut frames: Vec<Frame> = around.chain(ends).map(other).collect();
            frames.retain(|frame| frame.request != asked.id);
            frames.extend([honest.clone(), honest]);
            frames
        };
        let lies = Lies {
            answer: Box::new(answer),
            ..Lies::default()
        };
        let peer = Peer::start(lies).await;
        // Ids of requests that are on the line can be guessed: then it is an answer, to which its
        // payload must fit. A new session asks about more than what is wanted here.
        let mut tries = 0..10;
        let volume = loop {
            let transport = peer.connect().await.expect("a good greeting");
            match Volume::attach(transport, "v").await {
                Ok(volume) => break volume,
                Err(CallError::Protocol) if tries.next().is_some() => (),
                Err(error) => panic!("{error}"),
            }
        };
        let open = loop {
            match opened(&volume).await {
                Ok(open) => break open,
                Err(error) => assert_eq!((error, tries.next().is_some()), (FsError::Io, true)),
            }
        };
        for offset in (0..FILE_BYTES).step_by(100_000) {
            let extent = Extent::new(offset, 5000).intersection(Extent::new(0, FILE_BYTES));
            match read(&volume, &open, extent).await {
                Ok(data) => assert_eq!(data, contents(extent)),
                Err(error) => assert_eq!(error, FsError::Io),
            }
        }
        volume.release(&open);
        // All accounts come back to nothing.
        let deadline = Instant::now() + END_TIME_MAX;
        loop {
            let in_flight = volume.transport().figures().in_flight;
            if (
                in_flight.requests,
                in_flight.read_bytes,
                in_flight.write_bytes,
            ) == (0, 0, 0)
            {
                break;
            }
            assert!(Instant::now() < deadline, "{in_flight:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn data_of_another_size_than_asked_for_is_an_error_or_the_files_end() {
    alone(async {
        // Told and sent bytes of a read, made of those asked for; whether it is the file's end.
        type Sizes = fn(u32) -> (u32, usize);
        let cases: [(Sizes, bool); 6] = [
            (|asked| (asked + 1, asked as usize + 1), false),
            (|asked| (asked, asked as usize + 1), false),
            (|asked| (asked, asked as usize - 1), false),
            (|_| (1 << 20, 1 << 20), false),
            (|_| (u32::MAX, 0), false),
            (|_| (7, 7), true),
        ];
        for (at, (sizes, is_end)) in cases.into_iter().enumerate() {
            let lies = Lies {
                answer: results(move |asked, said| {
                    // Behind the question for a lease.
                    if let [.., Step::Read { bytes, offset, .. }] = asked.steps()
                        && *bytes > 0
                        && *offset == 0
                    {
                        let (told, sent) = sizes(*bytes);
                        *said.results().last_mut().unwrap() = Ok(StepReply::Data {
                            bytes: told,
                            end_of_file: false,
                        });
                        said.payload = vec![0xab; sent].into();
                    }
                }),
                ..Lies::default()
            };
            let peer = Peer::start(lies).await;
            let volume = peer.volume().await;
            let open = opened(&volume).await.unwrap();
            let outcome = read(&volume, &open, Extent::new(0, 4096)).await;
            if is_end {
                // If the file's state was told after the read had been queued, the read may have
                // been the earlier one at the server, and the rest is asked for.
                let data = outcome.unwrap();
                let (first, rest) = data.split_at(7);
                assert_eq!(first, [0xab; 7]);
                let there = contents(Extent::new(7, 4096 - 7));
                assert!(rest.is_empty() || rest == there, "{} bytes", rest.len());
            } else {
                assert_eq!(outcome, Err(FsError::Io), "case {at}");
            }
            assert!(volume.buffered_bytes() <= CLIENT_BUFFER_BYTES_MAX);
        }
    });
}

#[test]
fn a_write_that_is_answered_by_nonsense_is_an_error_of_the_next_sync() {
    alone(async {
        let lies: [fn(&mut u64, &mut u64, &mut Attributes); 5] = [
            |_, bytes, _| *bytes = u64::MAX,
            |_, bytes, _| *bytes += 1,
            |_, bytes, _| *bytes = 0,
            |offset, _, _| *offset = u64::MAX,
            |_, _, attributes| attributes.size = u64::MAX,
        ];
        for (at, lie) in lies.into_iter().enumerate() {
            let peer = Peer::start(lying(move |_, reply| match reply {
                StepReply::Written {
                    offset,
                    bytes,
                    attributes,
                } if *bytes > 0 => {
                    lie(offset, bytes, attributes);
                    true
                }
                _ => false,
            }))
            .await;
            let volume = peer.volume().await;
            let open = opened(&volume).await.unwrap();
            let written = write(&open.who, &open, b"some data");
            volume.write(open.node, written).await.unwrap();
            let commit = volume.commit(&open.who, open.node, Some(open.open), false);
            let outcome = timeout(END_TIME_MAX, commit).await.expect("an end");
            assert_eq!(outcome, Err(FsError::Io), "case {at}");
        }
    });
}

#[test]
fn attributes_that_no_file_can_have_are_not_believed() {
    alone(async {
        let lies: [fn(&mut Attributes); 4] = [
            |attributes| attributes.size = u64::MAX,
            |attributes| attributes.size = 1 << 63,
            |attributes| attributes.blocks = u64::MAX,
            |attributes| attributes.changed.nanos = 1_000_000_000,
        ];
        for (at, lie) in lies.into_iter().enumerate() {
            let peer = Peer::start(lying(move |_, reply| {
                if let StepReply::Found {
                    entry: Some(entry), ..
                } = reply
                {
                    lie(&mut entry.attributes);
                }
                true
            }))
            .await;
            let volume = peer.volume().await;
            assert_eq!(opened(&volume).await.err(), Some(FsError::Io), "case {at}");
        }
        // The largest that there can be, and times before and long after everything, are.
        let peer = Peer::start(lying(|_, reply| {
            let far = |seconds| Timestamp { seconds, nanos: 0 };
            if let StepReply::Found {
                entry: Some(entry), ..
            } = reply
            {
                entry.attributes.size = i64::MAX as u64;
                entry.attributes.modified = far(i64::MIN);
                entry.attributes.changed = far(i64::MAX);
                entry.lease = Lease::Exclusive;
            }
            true
        }))
        .await;
        let volume = peer.volume().await;
        let open = opened(&volume).await.unwrap();
        let end = i64::MAX as u64;
        for offset in [0, FILE_BYTES - 1, 1 << 40, end - 1, end, u64::MAX - 5] {
            // Its contents end where they end.
            let _ = read(&volume, &open, Extent::new(offset, 1 << 20)).await;
        }
        volume
            .write(open.node, write(&open.who, &open, b"x"))
            .await
            .unwrap();
        let commit = volume.commit(&open.who, open.node, Some(open.open), false);
        assert_eq!(timeout(END_TIME_MAX, commit).await.expect("an end"), Ok(()));
    });
}

#[test]
fn a_file_that_becomes_another_kind_is_another_node() {
    alone(async {
        let kind = Arc::new(std::sync::Mutex::new(FileKind::File));
        let told = kind.clone();
        let peer = Peer::start(lying(move |_, reply| {
            let kind = *told.lock().unwrap();
            match reply {
                StepReply::Found {
                    entry: Some(entry), ..
                } => {
                    entry.attributes = attributes(kind, 3);
                    entry.lease = Lease::Read;
                }
                StepReply::Attributes {
                    attributes: told, ..
                } if told.inode == 3 => {
                    *told = attributes(kind, 3);
                }
                _ => {}
            }
            true
        }))
        .await;
        let volume = peer.volume().await;
        let open = opened(&volume).await.unwrap();
        let data = read(&volume, &open, Extent::new(0, 100)).await.unwrap();
        assert_eq!(data, contents(Extent::new(0, 100)));
        let who = Principal::root();
        for changed in [FileKind::Directory, FileKind::Symlink, FileKind::CharDevice] {
            *kind.lock().unwrap() = changed;
            let found = volume.lookup(&who, NodeId::ROOT, &name("file")).await;
            let found = found.unwrap().unwrap();
            assert_ne!(found.node, open.node);
            assert_eq!(found.attributes.kind, changed);
            let old = volume.attributes(&who, open.node).await;
            match old {
                Ok(view) => assert_eq!(view.attributes.kind, FileKind::File),
                Err(error) => assert_eq!(error, FsError::Io),
            }
            // A directory is not read as a file, nor listed as one if it is none.
            let no_data = volume
                .read(&who, found.node, None, Extent::new(0, 10))
                .await;
            assert!(no_data.is_err());
        }
        volume.release(&open);
    });
}

#[test]
fn a_server_that_never_answers_is_an_error_of_every_call() {
    alone(async {
        let lies = Lies {
            answer: Box::new(|asked: &Asked, said: Said| {
                let honest = match asked.steps() {
                    // It lets in, and shows the file.
                    [Step::Attach { .. }, ..] | [Step::Open { .. }, ..] => true,
                    [Step::Lookup { name: wanted, .. }] => *wanted == name("file"),
                    _ => false,
                };
                honest.then(|| said.frame(asked.id)).into_iter().collect()
            }),
            ..Lies::default()
        };
        let peer = Peer::start(lies).await;
        let transport = peer.connect_with(Duration::from_millis(700)).await.unwrap();
        let volume = Volume::attach(transport, "v").await.unwrap();
        for (what, outcome) in everything(&volume).await {
            // A write is taken as long as there is memory.
            let expected = if what == "write" {
                Ok(())
            } else {
                Err(FsError::TimedOut)
            };
            assert_eq!(outcome, expected, "{what}");
        }
    });
}

#[test]
fn no_reply_whatsoever_is_more_than_an_error() {
    alone(async {
        let seed = std::sync::atomic::AtomicU64::new(1);
        let lies = Lies {
            answer: Box::new(move |asked: &Asked, said: Said| {
                let seed = seed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if matches!(asked.steps(), [Step::Attach { .. }, ..]) {
                    return vec![said.frame(asked.id)];
                }
                let mut frame = said.frame(asked.id);
                // Now and then the truth, or calls would not get far.
                match seed % 5 {
                    0 => {}
                    1 => frame.body = wire::message::encode(&generate::generated::<Reply>(seed)),
                    2 => {
                        let mut said = said;
                        for (at, result) in said.results_or_none().iter_mut().enumerate() {
                            *result = Ok(generate::generated(seed * 64 + at as u64));
                        }
                        return vec![said.frame(asked.id)];
                    }
                    3 => frame.payload = vec![1; (seed as usize * 977) % (1 << 20)].into(),
                    _ => frame.body = Bytes::from(vec![seed as u8; seed as usize % 300]),
                }
                vec![frame]
            }),
            ..Lies::default()
        };
        let peer = Peer::start(lies).await;
        let volume = peer.volume().await;
        let measured = Measured::begin();
        for _ in 0..200 {
            everything(&volume).await;
        }
        let most = measured.most_bytes();
        assert!(most <= CLIENT_BUFFER_BYTES_MAX as usize, "{most} bytes");
    });
}

#[test]
fn the_largest_frames_without_end_hold_no_memory_and_nobody_up() {
    alone(async {
        let lies = Lies {
            flood: Some(Box::new(|count| {
                Some(Frame {
                    kind: FrameKind::Reply,
                    class: Class::Prediction,
                    resent: false,
                    request: RequestId(count.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    body: Bytes::from(vec![count as u8; FRAME_BODY_BYTES_MAX]),
                    payload: vec![0; FRAME_PAYLOAD_BYTES_MAX].into(),
                })
            })),
            ..Lies::default()
        };
        let peer = Peer::start(lies).await;
        let volume = peer.volume().await;
        let measured = Measured::begin();
        let open = opened(&volume).await.unwrap();
        for turn in 0..20 {
            let extent = Extent::new(turn * 5000, 5000);
            assert_eq!(
                read(&volume, &open, extent).await.unwrap(),
                contents(extent)
            );
        }
        let most = measured.most_bytes();
        // The read-ahead of the file, and some frames at both ends.
        assert!(most <= 64 << 20, "{most} bytes");
    });
}

#[test]
fn small_files_that_come_along_are_no_larger_than_their_room() {
    alone(async {
        let peer = Peer::start(Lies {
            answer: results(|asked, said| {
                if let [
                    Step::Lookup {
                        inline_bytes_max, ..
                    },
                ] = asked.steps()
                {
                    let mut entry = file();
                    (entry.handle, entry.lease) = (handle("small"), Lease::Read);
                    entry.attributes.size = u64::from(*inline_bytes_max) + 1;
                    said.results()[0] = Ok(StepReply::Found {
                        entry: Some(entry),
                        parent_lease: Lease::None,
                        inline_bytes: Some(*inline_bytes_max + 1),
                    });
                    said.payload = vec![1; *inline_bytes_max as usize + 1].into();
                }
            }),
            ..Lies::default()
        })
        .await;
        let volume = peer.volume().await;
        assert_eq!(opened(&volume).await.err(), Some(FsError::Io));
    });
}

/// A request that is none of these tests' own.
#[test]
fn a_reply_of_another_kind_is_an_error() {
    alone(async {
        let lies = Lies {
            answer: Box::new(|asked, said| {
                let mut frame = said.frame(asked.id);
                if matches!(asked.request, Request::Files(_)) && !asked.steps().is_empty() {
                    let entering = matches!(asked.steps(), [Step::Attach { .. }, ..]);
                    if !entering {
                        frame.body = wire::message::encode(&Reply::Done);
                    }
                }
                vec![frame]
            }),
            ..Lies::default()
        };
        let peer = Peer::start(lies).await;
        let volume = peer.volume().await;
        assert_eq!(opened(&volume).await.err(), Some(FsError::Io));
        for (what, outcome) in everything(&volume).await {
            assert!(outcome.is_err(), "{what}");
        }
    });
}
