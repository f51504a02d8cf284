//! A server that has lost what was written, and asks whether it has it again.

use crate::alone;
use crate::peer::{END_TIME_MAX, Lies, Peer, look};
use base::{Principal, RequestId, WriteVerifier};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::frame::FrameKind;
use wire::message::{Access, Notice, Request, Step, WriteAt, frame};

const ASKED: u64 = 1 << 33;
/// Where it is written.
const PLACES: [u64; 3] = [0, 100_000, 200_000];

/// What the server asks and hears.
#[derive(Default)]
struct Asks {
    /// Writes that came, and where those go that came once more: each as often as connections
    /// end under it.
    written: AtomicUsize,
    again: Mutex<BTreeSet<u64>>,
    /// The question is to be asked.
    asks: AtomicBool,
    /// What comes once more is answered.
    answers: AtomicBool,
    /// What was obeyed: before that was answered, or after.
    obeyed: Mutex<Vec<(u64, bool)>>,
}

/// From the fourth connection on the server says that it has lost everything.
fn loses(asks: &Arc<Asks>) -> Lies {
    let (mine, yours) = (asks.clone(), asks.clone());
    Lies {
        welcome: |number, welcome| {
            if number > 2 {
                welcome.write_verifier = WriteVerifier([9; 16]);
            }
        },
        flood: Some(Box::new(move |_| {
            let now = mine.asks.swap(false, Ordering::AcqRel);
            let again = Notice::WriteAgain { id: ASKED };
            now.then(|| frame(FrameKind::Notice, RequestId(0), &again))
        })),
        answer: Box::new(move |asked, said| {
            let answers = || yours.answers.load(Ordering::Acquire);
            if let Request::RecallDone(id) = asked.request {
                yours.obeyed.lock().unwrap().push((id, answers()));
            }
            match asked.steps() {
                [
                    Step::Write {
                        at: WriteAt::Again(offset),
                        ..
                    },
                    ..,
                ] => {
                    yours.again.lock().unwrap().insert(*offset);
                    // On a connection of its own; see `leases`.
                    tokio::task::block_in_place(|| {
                        while !answers() {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    });
                }
                [Step::Write { .. }, ..] => {
                    yours.written.fetch_add(1, Ordering::AcqRel);
                }
                _ => {}
            }
            vec![said.frame(asked.id)]
        }),
        ..Lies::default()
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < END_TIME_MAX, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_server_that_has_lost_data_is_told_when_it_has_it_again() {
    alone(async {
        let asks = Arc::new(Asks::default());
        let peer = Peer::start(loses(&asks)).await;
        let (volume, who) = (peer.volume().await, Principal::root());
        until("three connections", || peer.connections() == 3).await;
        let node = look(&volume).await.unwrap().unwrap().node;
        let open = volume.open(&who, node, Access::ReadWrite, false);
        let open = open.await.unwrap();
        for offset in PLACES {
            let mut write = crate::replies::write(&who, &open, b"xyz");
            write.offset = offset;
            volume.write(node, write).await.unwrap();
        }
        until("it is written", || {
            asks.written.load(Ordering::Acquire) == 3
        })
        .await;
        // And answered.
        tokio::time::sleep(Duration::from_millis(150)).await;
        (0..3).for_each(|number| peer.hang_up(number));
        until("it comes again", || !asks.again.lock().unwrap().is_empty()).await;
        asks.asks.store(true, Ordering::Release);
        tokio::time::sleep(Duration::from_millis(150)).await;
        let obeyed = || asks.obeyed.lock().unwrap().clone();
        assert!(obeyed().is_empty(), "it is on its way");
        asks.answers.store(true, Ordering::Release);
        until("it is told", || !obeyed().is_empty()).await;
        assert_eq!(obeyed(), [(ASKED, true)]);
        let again = asks.again.lock().unwrap().clone();
        assert_eq!(again, BTreeSet::from(PLACES));
    });
}

#[test]
fn who_has_written_nothing_says_so_at_once() {
    alone(async {
        let asks = Arc::new(Asks::default());
        let peer = Peer::start(loses(&asks)).await;
        // Nobody listens here.
        let transport = peer.connect().await.expect("a good greeting");
        asks.asks.store(true, Ordering::Release);
        let obeyed = || asks.obeyed.lock().unwrap().clone();
        until("it is told", || !obeyed().is_empty()).await;
        assert_eq!(obeyed(), [(ASKED, false)]);
        transport.abandon();
        let volume = peer.volume().await;
        // Connections that have ended may still take a question.
        let ask_once_more = || {
            asks.asks.store(true, Ordering::Release);
            obeyed().len() > 1
        };
        until("it is told", ask_once_more).await;
        assert_eq!(obeyed()[1], (ASKED, false));
        drop(volume);
    });
}
