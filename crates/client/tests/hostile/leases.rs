//! Leases granted on anything, recalls of anything: a client holds and obeys what it can.

use crate::alone;
use crate::memory::Measured;
use crate::peer::{END_TIME_MAX, Lies, Peer, file, handle, look, name, results, root};
use base::limits::{RECALL_ITEMS_MAX, RECALLS_UNDER_WAY_MAX};
use base::{Attributes, BootId, Extent, Name, Principal, RequestId};
use client::cache::NodeId;
use client::volume::{Creation, Volume};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wire::frame::{Frame, FrameKind};
use wire::message::{
    Access, Lease, Notice, Recall, RecallItem, RenameMode, Request, Step, StepReply, frame,
};

pub(crate) fn notice(id: u64, items: Vec<RecallItem>) -> Frame {
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
pub(crate) fn generous() -> Lies {
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
                    StepReply::Removed { parent_lease, .. } => *parent_lease = Lease::Exclusive,
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
fn what_is_recalled_before_the_kernel_knows_it_is_not_for_the_kernel_to_keep() {
    alone(async {
        let recalls = Arc::new(AtomicBool::new(false));
        let wanted = Arc::clone(&recalls);
        let peer = Peer::start(Lies {
            flood: Some(Box::new(move |count| {
                let item = RecallItem {
                    handle: file().handle,
                    what: Recall::Everything,
                };
                let is_wanted = wanted.swap(false, Ordering::Relaxed);
                is_wanted.then(|| notice(count, vec![item]))
            })),
            ..generous()
        })
        .await;
        let volume = peer.volume().await;
        let view = look(&volume).await.unwrap().expect("it is there");
        assert!(volume.introduce(&view).attributes_leased);
        volume.forget(&[(view.node, 1)]);
        // The answer has been made and is not yet on its way to the kernel, which therefore does
        // not know the inode and cannot be told.
        recalls.store(true, Ordering::Relaxed);
        let end = Instant::now() + END_TIME_MAX;
        while volume.counters().recalls.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < end, "no recall comes");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(view.attributes_leased);
        assert!(!volume.introduce(&view).attributes_leased);
    });
}

const ACL: &[u8] = b"system.posix_acl_access";

/// A peer that answers the first question for an ACL after an answer of another kind, and grants
/// leases when it shall; it counts these questions.
struct Late {
    peer: Peer,
    grants: Arc<AtomicBool>,
    questions: Arc<AtomicUsize>,
}

async fn late_acl(next: fn(&Step) -> bool) -> Late {
    let (grants, questions) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let (granting, asked_for) = (grants.clone(), questions.clone());
    let (late, generous) = (Mutex::new(Vec::new()), generous().answer);
    let peer = Peer::start(Lies {
        answer: Box::new(move |asked, mut said| match asked.steps() {
            [Step::GetXattr { .. }] => {
                said.results()[0] = Ok(StepReply::Xattr(b"acl".to_vec()));
                let frame = said.frame(asked.id);
                if asked_for.fetch_add(1, Ordering::SeqCst) > 0 {
                    return vec![frame];
                }
                late.lock().unwrap().push(frame);
                Vec::new()
            }
            steps => {
                let mut frames = match granting.load(Ordering::SeqCst) {
                    true => generous(asked, said),
                    false => vec![said.frame(asked.id)],
                };
                if steps.iter().any(next) {
                    frames.append(&mut late.lock().unwrap());
                }
                frames
            }
        }),
        ..Lies::default()
    })
    .await;
    Late {
        peer,
        grants,
        questions,
    }
}

impl Late {
    /// Asks for the ACL; the question is at the peer then.
    async fn ask(&self, volume: &Arc<Volume>, node: NodeId) -> JoinHandle<Vec<u8>> {
        let volume = Arc::clone(volume);
        let acl = async move { volume.xattr(&Principal::root(), node, ACL).await };
        let answer =
            tokio::spawn(async move { timeout(END_TIME_MAX, acl).await.unwrap().unwrap() });
        let begun = Instant::now();
        while self.questions.load(Ordering::SeqCst) == 0 {
            assert!(begun.elapsed() < END_TIME_MAX, "no question");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        answer
    }
}

#[test]
fn an_acl_that_was_asked_for_before_the_lease_is_not_believed_under_it() {
    alone(async {
        let late = late_acl(|step| matches!(step, Step::Lookup { .. })).await;
        let volume = late.peer.volume_on_one().await;
        let node = look(&volume).await.unwrap().expect("it is there").node;
        let answer = late.ask(&volume, node).await;
        late.grants.store(true, Ordering::SeqCst);
        let leased = look(&volume).await.unwrap().expect("it is there");
        assert_eq!(answer.await.unwrap(), b"acl");
        // Nor is the kernel to keep attributes beside it: it would keep the ACL as long.
        assert!(!volume.introduce(&leased).attributes_leased);
        volume.xattr(&Principal::root(), node, ACL).await.unwrap();
        assert_eq!(
            late.questions.load(Ordering::SeqCst),
            2,
            "old, and believed"
        );
        volume.xattr(&Principal::root(), node, ACL).await.unwrap();
        assert_eq!(late.questions.load(Ordering::SeqCst), 2, "never believed");
    });
}

#[test]
fn an_acl_that_was_asked_for_before_it_was_changed_here_is_not_believed_after_that() {
    alone(async {
        let late = late_acl(|step| matches!(step, Step::SetXattr { .. })).await;
        late.grants.store(true, Ordering::SeqCst);
        let volume = late.peer.volume_on_one().await;
        let node = look(&volume).await.unwrap().expect("it is there").node;
        let answer = late.ask(&volume, node).await;
        let who = Principal::root();
        let set = volume.set_xattr(&who, node, ACL, b"other", None);
        timeout(END_TIME_MAX, set).await.unwrap().unwrap();
        assert_eq!(answer.await.unwrap(), b"acl");
        volume.xattr(&who, node, ACL).await.unwrap();
        assert_eq!(
            late.questions.load(Ordering::SeqCst),
            2,
            "old, and believed"
        );
    });
}

#[test]
fn whom_the_mode_gives_nothing_the_server_judges_whatever_the_kernel_has() {
    alone(async {
        let generous = generous().answer;
        let peer = Peer::start(Lies {
            answer: Box::new(move |asked, mut said| {
                let say = |it: &mut Attributes| it.mode = 0o640;
                for result in said.results_or_none().iter_mut().flatten() {
                    match result {
                        StepReply::Found { entry, .. } => {
                            entry.iter_mut().for_each(|it| say(&mut it.attributes));
                        }
                        StepReply::Attributes { attributes, .. } => say(attributes),
                        StepReply::Directory { entries, .. } => {
                            let entries = entries.iter_mut().filter_map(|it| it.entry.as_mut());
                            entries.for_each(|it| say(&mut it.attributes));
                        }
                        _ => {}
                    }
                }
                generous(asked, said)
            }),
            ..Lies::default()
        })
        .await;
        let volume = peer.volume().await;
        let node = look(&volume).await.unwrap().expect("it is there").node;
        let [user, member] = [5, 0].map(|gid| Principal::new(61_001, gid, Vec::new()));
        // Whoever opens it has its neighbours looked at, and their modes, so he comes first.
        assert!(volume.open_cached(&user, node).is_none());
        assert!(volume.open_cached(&member, node).is_some());
    });
}

#[test]
fn what_a_server_says_by_itself_keeps_no_lease() {
    alone(async {
        // It recalls what nobody has, now and then, and does not hear any more.
        let is_deaf = Arc::new(AtomicBool::new(false));
        let (honest, deaf) = (generous().answer, is_deaf.clone());
        let last = std::sync::Mutex::new(Instant::now());
        let peer = Peer::start(Lies {
            answer: Box::new(move |asked, said| match deaf.load(Ordering::Relaxed) {
                true => Vec::new(),
                false => honest(asked, said),
            }),
            flood: Some(Box::new(move |count| {
                let mut last = last.lock().unwrap();
                if last.elapsed() < Duration::from_millis(50) {
                    return None;
                }
                *last = Instant::now();
                let item = RecallItem {
                    handle: handle(&format!("none {count}")),
                    what: Recall::Everything,
                };
                Some(notice(count, vec![item]))
            })),
            ..Lies::default()
        })
        .await;
        let volume = peer.volume().await;
        look(&volume).await.unwrap().expect("it is there");
        assert!(volume.transport().leases_hold());
        is_deaf.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while volume.transport().leases_hold() {
            assert!(begun.elapsed() < END_TIME_MAX, "believed for ever");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let figures = volume.transport().figures();
        assert!(figures.connected && figures.silence < Duration::from_secs(3));
        is_deaf.store(false, Ordering::Relaxed);
        while !volume.transport().leases_hold() {
            assert!(begun.elapsed() < 2 * END_TIME_MAX, "never believed again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
        // Answers come behind all of the flood that is on its way.
        let transport = peer.connect_with(END_TIME_MAX).await.unwrap();
        let volume = Volume::attach(transport, "v").await.unwrap();
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

pub(crate) fn creation(text: &str) -> Creation {
    Creation {
        parent: NodeId::ROOT,
        name: name(text),
        mode: 0o644,
        umask: 0,
    }
}

/// Has a file created ahead: the directory is listed whole, held alone, and known to have no
/// default ACL.
pub(crate) async fn create_ahead(volume: &Volume, text: &str) {
    let (who, access) = (Principal::root(), Access::ReadWrite);
    volume.list(&who, NodeId::ROOT).await.unwrap();
    let first = creation("first");
    let made = volume.create(&who, &first, false, access, false, false);
    made.await.unwrap();
    let begun = Instant::now();
    let creation = creation(text);
    while volume
        .try_create_ahead(&who, &creation, access, false)
        .is_none()
    {
        assert!(begun.elapsed() < END_TIME_MAX, "nothing is created ahead");
        tokio::time::sleep(Duration::from_millis(5)).await;
        volume.list(&who, NodeId::ROOT).await.unwrap();
    }
}

/// Has the removal of the peer's file answered ahead: the caller has removed something before.
pub(crate) async fn remove_ahead(volume: &Volume, text: &Name) {
    let (who, begun) = (Principal::root(), Instant::now());
    volume.list(&who, NodeId::ROOT).await.unwrap();
    let other = name("other");
    volume
        .remove(&who, NodeId::ROOT, &other, false)
        .await
        .unwrap();
    while !volume.try_remove_ahead(&who, NodeId::ROOT, text) {
        assert!(begun.elapsed() < END_TIME_MAX, "nothing is removed ahead");
        tokio::time::sleep(Duration::from_millis(5)).await;
        volume.list(&who, NodeId::ROOT).await.unwrap();
    }
}

/// What a peer was asked that keeps back the answer to a change that was answered ahead until it is
/// told to give it.
#[derive(Default)]
struct Held {
    recalls: AtomicBool,
    answers: AtomicBool,
    /// Something was asked about the name before.
    is_early: AtomicBool,
    /// That everything be sent is asked for with this number.
    settles: AtomicBool,
    /// And done: before the answers were given, or after.
    settled: Mutex<Vec<(u64, bool)>>,
}

fn holding(held: &Arc<Held>) -> Lies {
    let (mine, yours, generous) = (held.clone(), held.clone(), generous().answer);
    Lies {
        flood: Some(Box::new(move |_| {
            if mine.recalls.swap(false, Ordering::AcqRel) {
                let (handle, what) = (root().handle, Recall::Everything);
                return Some(notice(1, vec![RecallItem { handle, what }]));
            }
            if mine.settles.swap(false, Ordering::AcqRel) {
                let settle = Notice::Settle { id: 1 << 33 };
                return Some(frame(FrameKind::Notice, RequestId(0), &settle));
            }
            None
        })),
        answer: Box::new(move |asked, said| {
            if let Request::RecallDone(id) = asked.request {
                let answered = yours.answers.load(Ordering::Acquire);
                yours.settled.lock().unwrap().push((id, answered));
            }
            let of_name = |step: &Step| match step {
                Step::Lookup { name, .. }
                | Step::Remove {
                    name, file: None, ..
                }
                | Step::Rename { name, .. }
                | Step::MakeDirectory { name, .. }
                | Step::Create { name, .. } => {
                    [b"second".as_slice(), b"file"].contains(&name.as_bytes())
                }
                _ => false,
            };
            if let [
                Step::CreateFile { .. } | Step::Remove { file: Some(_), .. },
                ..,
            ] = asked.steps()
            {
                // On a connection of its own; the others go on, so this worker must not keep the
                // runtime's timers and the tasks that it was about to run.
                tokio::task::block_in_place(|| {
                    while !yours.answers.load(Ordering::Acquire) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            if asked.steps().iter().any(of_name) && !yours.answers.load(Ordering::Acquire) {
                yours.is_early.store(true, Ordering::Release);
            }
            generous(asked, said)
        }),
        ..Lies::default()
    }
}

/// Asks about the name, whatever comes of it.
async fn ask(volume: &Volume, text: &str, question: usize) {
    let (who, root, asked) = (Principal::root(), NodeId::ROOT, name(text));
    let creation = creation(text);
    match question {
        0 => drop(volume.lookup(&who, root, &asked).await),
        1 => {
            let _ = volume.remove(&who, root, &asked, false).await;
        }
        2 => {
            let (to, mode) = (name("third"), RenameMode::NoReplace);
            let renamed = volume.rename(&who, root, &asked, root, &to, mode);
            let _ = renamed.await;
        }
        3 => drop(volume.make_directory(&who, &creation).await),
        _ => {
            let access = Access::ReadWrite;
            let made = volume.create(&who, &creation, true, access, false, false);
            drop(made.await);
        }
    }
}

/// Whether a question about a name reaches the peer before it has heard of the latest change.
async fn asks_early(volume: &Volume, text: &str, question: usize, held: &Held) -> bool {
    held.recalls.store(true, Ordering::Release);
    let (asked, begun) = (name(text), Instant::now());
    while volume.lookup_cached(NodeId::ROOT, &asked).is_some() {
        assert!(begun.elapsed() < END_TIME_MAX, "the recall is not obeyed");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let asking = ask(volume, text, question);
    let told = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        held.answers.store(true, Ordering::Release);
    };
    let both = async { tokio::join!(asking, told) };
    timeout(END_TIME_MAX, both).await.expect("an end");
    held.is_early.load(Ordering::Acquire)
}

#[test]
fn a_name_whose_creation_is_on_its_way_is_not_asked_about() {
    for question in 0..5 {
        alone(async {
            let held = Arc::new(Held::default());
            let peer = Peer::start(holding(&held)).await;
            let volume = peer.volume().await;
            create_ahead(&volume, "second").await;
            let is_early = asks_early(&volume, "second", question, &held).await;
            assert!(!is_early, "question {question} was asked before");
        });
    }
}

#[test]
fn a_server_that_has_begun_anew_is_told_when_everything_has_been_sent() {
    alone(async {
        let held = Arc::new(Held::default());
        let peer = Peer::start(holding(&held)).await;
        let volume = peer.volume().await;
        create_ahead(&volume, "second").await;
        held.settles.store(true, Ordering::Release);
        tokio::time::sleep(Duration::from_millis(150)).await;
        held.answers.store(true, Ordering::Release);
        let begun = Instant::now();
        while held.settled.lock().unwrap().is_empty() {
            assert!(begun.elapsed() < END_TIME_MAX, "it is never told");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(held.settled.lock().unwrap()[..], [(1 << 33, true)]);
    });
}

/// Its answers count for leases, and the main connection may not know yet.
#[test]
fn a_connection_that_finds_another_run_of_the_server_ends_what_was_believed() {
    alone(async {
        let peer = Peer::start(Lies {
            welcome: |number, welcome| {
                if number > 2 {
                    welcome.boot = BootId([9; 16]);
                }
            },
            ..generous()
        })
        .await;
        let volume = peer.volume().await;
        let begun = Instant::now();
        while peer.connections() < 3 {
            assert!(begun.elapsed() < END_TIME_MAX, "three connections");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        look(&volume).await.unwrap().expect("it is there");
        let believes = || volume.lookup_cached(NodeId::ROOT, &name("file")).is_some();
        assert!(believes());
        peer.hang_up(2);
        while believes() {
            assert!(begun.elapsed() < END_TIME_MAX, "it goes on believing");
            assert!(volume.transport().leases_hold(), "not because of silence");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(peer.connections() > 3, "it has found the other run");
    });
}

#[test]
fn a_name_whose_removal_is_on_its_way_is_not_asked_about() {
    for question in 0..5 {
        alone(async {
            let held = Arc::new(Held::default());
            let peer = Peer::start(holding(&held)).await;
            let volume = peer.volume().await;
            look(&volume).await.unwrap().expect("the peer's file");
            remove_ahead(&volume, &name("file")).await;
            let again = volume.try_remove_ahead(&Principal::root(), NodeId::ROOT, &name("file"));
            assert!(!again, "it is gone");
            let is_early = asks_early(&volume, "file", question, &held).await;
            assert!(!is_early, "question {question} was asked before");
        });
    }
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
        create_ahead(&volume, "second").await;
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
