//! Leases granted on anything, recalls of anything: a client holds and obeys what it can.

use crate::alone;
use crate::memory::Measured;
use crate::peer::{END_TIME_MAX, Lies, Peer, file, handle, look, name, results, root};
use base::limits::{RECALL_ITEMS_MAX, RECALLS_UNDER_WAY_MAX};
use base::{Extent, Principal, RequestId};
use client::cache::NodeId;
use client::volume::{Creation, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use wire::frame::{Frame, FrameKind};
use wire::message::{Access, Lease, Notice, Recall, RecallItem, Request, Step, StepReply};

fn notice(id: u64, items: Vec<RecallItem>) -> Frame {
    let recall = Notice::Recall { id, items };
    wire::message::frame(FrameKind::Notice, RequestId(0), &recall)
}

/// Recalls of everything that there is and of what there is not, in turn.
fn any_recall(count: u64) -> Frame {
    let of = match count % 3 {
        0 => root().handle,
        1 => file().handle,
        _ => handle(&format!("none {count}")),
    };
    let what = match count % 4 {
        0 => Recall::Everything,
        1 => Recall::Entry(name("file")),
        2 => Recall::Entry(name("never")),
        _ => Recall::Exclusive,
    };
    notice(count, vec![RecallItem { handle: of, what }])
}

/// Grants whatever there is to grant, on whatever it is.
fn generous() -> Lies {
    Lies {
        answer: results(|_, said| {
            for result in said.results().iter_mut().flatten() {
                match result {
                    StepReply::Found {
                        entry,
                        parent_lease,
                        ..
                    } => {
                        *parent_lease = Lease::Exclusive;
                        if let Some(entry) = entry {
                            entry.lease = Lease::Exclusive;
                        }
                    }
                    StepReply::Created {
                        entry,
                        parent_lease,
                        ..
                    } => (entry.lease, *parent_lease) = (Lease::Exclusive, Lease::Exclusive),
                    StepReply::Attributes { lease, .. } => *lease = Lease::Exclusive,
                    StepReply::Directory { lease, entries, .. } => {
                        *lease = Lease::Exclusive;
                        for entry in entries.iter_mut().filter_map(|e| e.entry.as_mut()) {
                            entry.lease = Lease::Exclusive;
                        }
                    }
                    _ => {}
                }
            }
        }),
        ..Lies::default()
    }
}

async fn reads(volume: &Volume) {
    let who = Principal::root();
    let node = look(volume).await.unwrap().expect("it is there").node;
    let read = volume.read(&who, node, None, Extent::new(0, 1000));
    let pieces = timeout(END_TIME_MAX, read).await.expect("an end").unwrap();
    assert_eq!(pieces.concat().len(), 1000);
}

async fn works(volume: &Volume) {
    let who = Principal::root();
    for _ in 0..20 {
        reads(volume).await;
        let listed = volume.list(&who, NodeId::ROOT);
        let listed = timeout(END_TIME_MAX, listed).await.expect("an end");
        assert!(!listed.unwrap().is_empty());
    }
}

#[test]
fn leases_and_recalls_that_contradict_each_other_change_no_answer() {
    alone(async {
        let peer = Peer::start(Lies {
            flood: Some(Box::new(|count| {
                std::thread::sleep(Duration::from_micros(200));
                Some(any_recall(count))
            })),
            ..generous()
        })
        .await;
        let volume = peer.volume().await;
        works(&volume).await;
    });
}

#[test]
fn recalls_without_end_are_left_unobeyed_in_bounded_memory() {
    alone(async {
        // As many handles as fit, all of them unknown; that they are obeyed is never answered.
        let honest = generous().answer;
        let peer = Peer::start(Lies {
            flood: Some(Box::new(|count| {
                let item = |n: usize| RecallItem {
                    handle: handle(&format!("{:0>150}{count}.{n}", 0)),
                    what: Recall::Everything,
                };
                let items = (0..RECALL_ITEMS_MAX).map(item).collect();
                Some(notice(count, items))
            })),
            answer: Box::new(move |asked, said| match asked.request {
                Request::RecallDone(_) => Vec::new(),
                _ => honest(asked, said),
            }),
            ..Lies::default()
        })
        .await;
        let volume = peer.volume().await;
        let measured = Measured::begin();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            works(&volume).await;
        }
        // Tasks of some hundred bytes each, and what is remembered of the latest.
        let most = measured.most_bytes();
        let bound = (RECALLS_UNDER_WAY_MAX << 12) + (32 << 20);
        assert!(most <= bound, "{most} bytes, more than {bound}");
    });
}

#[test]
fn more_recalls_than_can_be_obeyed_end_the_connection() {
    alone(async {
        // A file created ahead is never taken, so no recall of its directory can be obeyed.
        let created = Arc::new(AtomicBool::new(false));
        let (recalls, honest) = (created.clone(), generous().answer);
        let peer = Peer::start(Lies {
            flood: Some(Box::new(move |count| {
                let item = RecallItem {
                    handle: root().handle,
                    what: Recall::Exclusive,
                };
                let now = recalls.load(Ordering::Acquire);
                now.then(|| notice(count, vec![item]))
            })),
            answer: Box::new(move |asked, said| match asked.steps() {
                [Step::CreateFile { .. }, ..] => Vec::new(),
                _ => honest(asked, said),
            }),
            ..Lies::default()
        })
        .await;
        let volume = peer.volume().await;
        let who = Principal::root();
        let creation = |text: &str| Creation {
            parent: NodeId::ROOT,
            name: name(text),
            mode: 0o644,
            umask: 0,
        };
        let access = Access::ReadWrite;
        // Listed whole, held alone, and known to have no default ACL: then a file is created ahead.
        volume.list(&who, NodeId::ROOT).await.unwrap();
        let first = creation("first");
        let made = volume.create(&who, &first, false, access, false, false);
        made.await.unwrap();
        let begun = Instant::now();
        let second = creation("second");
        while volume
            .try_create_ahead(&who, &second, access, false)
            .is_none()
        {
            assert!(begun.elapsed() < END_TIME_MAX, "nothing is created ahead");
            tokio::time::sleep(Duration::from_millis(5)).await;
            volume.list(&who, NodeId::ROOT).await.unwrap();
        }
        let (before, measured) = (peer.connections(), Measured::begin());
        created.store(true, Ordering::Release);
        let begun = Instant::now();
        while peer.connections() == before {
            assert!(begun.elapsed() < END_TIME_MAX, "the connection goes on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        created.store(false, Ordering::Release);
        let most = measured.most_bytes();
        let bound = (RECALLS_UNDER_WAY_MAX << 12) + (32 << 20);
        assert!(most <= bound, "{most} bytes, more than {bound}");
        // A listing would wait for the file that is never taken.
        for _ in 0..20 {
            reads(&volume).await;
        }
    });
}

#[test]
fn a_notice_that_cannot_be_read_ends_the_connection_and_its_leases() {
    alone(async {
        let peer = Peer::start(Lies {
            flood: Some(Box::new(|_| {
                std::thread::sleep(Duration::from_millis(50));
                let mut frame = notice(1, Vec::new());
                frame.body = bytes::Bytes::from_static(b"\xff\xff\xff");
                Some(frame)
            })),
            ..generous()
        })
        .await;
        let volume = peer.volume().await;
        let before = peer.connections();
        let begun = Instant::now();
        while peer.connections() < before + 2 {
            assert!(begun.elapsed() < END_TIME_MAX, "it is kept");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(volume);
    });
}
