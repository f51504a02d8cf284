//! More at once than a round, a transaction or the places for errands hold.

use super::super::Manager;
use super::super::desk::Asker;
use super::super::record::ROWS;
use super::crashes::{create, start, which};
use super::world::{VOLUME, terms};
use crate::storage::{JudgeError, Opening, Storage, with_store};
use base::ClusterId;
use base::limits::{META_OPERATIONS_MAX, RESERVE_ERRANDS_MAX};
use base::ticket::TicketError;
use meta::{Embedded, Engine, KeyRange};
use reservation::Moment;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use wire::message::{ReserveReply, ReserveRequest};

const ADMIN: Asker = Asker {
    is_admin: true,
    uid: 0,
};

struct World {
    directory: tempfile::TempDir,
    storage: Arc<Storage>,
    manager: Arc<Manager>,
    runtime: Runtime,
}

impl World {
    fn new() -> Self {
        let (directory, _) = with_store(16);
        let opening = Opening::default();
        let storage = Storage::open(directory.path(), ClusterId([1; 16]), &opening).unwrap();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let manager = Arc::new(start(directory.path(), &storage, &left, false));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        Self {
            directory,
            storage,
            manager,
            runtime,
        }
    }

    /// All questions at once.
    fn ask_all(&self, requests: Vec<ReserveRequest>) -> Vec<ReserveReply> {
        let mut asked = JoinSet::new();
        for (number, request) in requests.into_iter().enumerate() {
            let manager = self.manager.clone();
            let ask = async move { (number, manager.ask(ADMIN, VOLUME, request).await) };
            asked.spawn_on(ask, self.runtime.handle());
        }
        let mut replies = self.runtime.block_on(asked.join_all());
        replies.sort_by_key(|(number, _)| *number);
        replies.into_iter().map(|(_, reply)| reply).collect()
    }

    fn now_secs(&self) -> u64 {
        Moment::at_or_before(self.storage.now()).as_secs()
    }

    /// So many reservations of a little until `end_secs`, with a ticket of each. None if the end
    /// came first.
    fn reserve(&self, count: usize, end_secs: u64) -> Option<Vec<Vec<u8>>> {
        let now = self.now_secs();
        let requests = (0..count).map(|number| {
            let mut wanted = terms(1, now, end_secs);
            wanted.write_bytes_per_second = 4096;
            let ReserveRequest::Create {
                volume,
                terms,
                dry_run,
                ..
            } = create(0, wanted)
            else {
                unreachable!();
            };
            let mut request = [0; 16];
            request[..8].copy_from_slice(&(number as u64).to_le_bytes());
            ReserveRequest::Create {
                request,
                volume,
                name: format!("run{number}"),
                terms,
                dry_run,
            }
        });
        let replies = self.ask_all(requests.collect());
        let tickets = replies.into_iter().map(|reply| match reply {
            ReserveReply::Reserved { tickets, .. } => Some(tickets[0].ticket.clone()),
            other => {
                assert!(self.now_secs() >= end_secs, "{other:?}");
                None
            }
        });
        tickets.collect()
    }

    fn cancel(&self, count: usize) {
        let cancels = (0..count).map(|number| ReserveRequest::Cancel {
            which: which(&format!("run{number}")),
            discard: false,
            dry_run: false,
        });
        // Some hear that the stores are busy; what they have asked for is done all the same.
        self.ask_all(cancels.collect());
    }

    /// Waits until all tickets are revoked. Says whether they were before their windows ended.
    fn are_revoked_in_time(&self, tickets: &[Vec<u8>]) -> bool {
        let begun = Instant::now();
        for (number, ticket) in tickets.iter().enumerate() {
            loop {
                match self.storage.judge(ticket) {
                    Err(JudgeError::Ticket(TicketError::Revoked)) => break,
                    Err(JudgeError::Ticket(TicketError::Expired { .. })) => return false,
                    other => assert!(begun.elapsed().as_secs() < 60, "{number}: {other:?}"),
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        true
    }
}

/// Rows in the ledger of a manager that is gone.
fn rows(directory: &Path, runtime: &Runtime) -> usize {
    let engine = runtime.block_on(Embedded::open(directory.join("ledger")));
    let engine: Arc<dyn Engine> = engine.unwrap();
    let range = KeyRange::prefix(ROWS);
    let page = runtime.block_on(engine.range(&range, 1000, None)).unwrap();
    page.entries.len()
}

#[test]
fn who_cancels_with_many_others_is_not_forgotten() {
    let world = World::new();
    let count = RESERVE_ERRANDS_MAX + 150;
    let tickets = world.reserve(count, world.now_secs() + 600).unwrap();
    world.cancel(count);
    assert!(world.are_revoked_in_time(&tickets));
}

/// A ledger with more cancelled reservations than a transaction holds, whose windows end at once
/// at a moment (in seconds) that has not come. The busier the machine, the longer they are.
fn cancelled() -> (World, u64) {
    let count = META_OPERATIONS_MAX + 60;
    for length_secs in [14, 60, 240] {
        let world = World::new();
        let end_secs = world.now_secs() + length_secs;
        if let Some(tickets) = world.reserve(count, end_secs) {
            world.cancel(count);
            if world.are_revoked_in_time(&tickets) {
                return (world, end_secs);
            }
        }
    }
    panic!("{count} reservations are not made and cancelled in 240 s");
}

#[test]
fn more_rows_than_a_transaction_holds_are_struck_when_their_time_comes_at_once() {
    let (world, end_secs) = cancelled();
    let guard = super::super::record::GUARD_SECONDS;
    while world.now_secs() < end_secs + guard + 6 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let World {
        directory,
        storage,
        manager,
        runtime,
    } = world;
    drop(manager);
    assert_eq!(rows(directory.path(), &runtime), 0);
    storage.stop();
}
