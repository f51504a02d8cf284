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

    /// So many reservations of a little until `end`, with a ticket of each.
    fn reserve(&self, count: usize, end_secs: u64) -> Vec<Vec<u8>> {
        let now = Moment::at_or_before(self.storage.now()).as_secs();
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
            ReserveReply::Reserved { tickets, .. } => tickets[0].ticket.clone(),
            other => panic!("{other:?}"),
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

    /// Until all tickets are believed no more.
    fn await_revoked(&self, tickets: &[Vec<u8>]) {
        let begun = Instant::now();
        let revoked = Err(JudgeError::Ticket(TicketError::Revoked));
        while let Some(at) = tickets
            .iter()
            .position(|ticket| self.storage.judge(ticket) != revoked)
        {
            assert!(begun.elapsed() < Duration::from_secs(60), "ticket {at}");
            std::thread::sleep(Duration::from_millis(50));
        }
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
    let end_secs = Moment::at_or_before(world.storage.now()).as_secs() + 600;
    let tickets = world.reserve(count, end_secs);
    world.cancel(count);
    world.await_revoked(&tickets);
}

#[test]
fn more_rows_than_a_transaction_holds_are_struck_when_their_time_comes_at_once() {
    let world = World::new();
    let count = META_OPERATIONS_MAX + 60;
    let end_secs = Moment::at_or_before(world.storage.now()).as_secs() + 14;
    let tickets = world.reserve(count, end_secs);
    world.cancel(count);
    world.await_revoked(&tickets);
    let guard = super::super::record::GUARD_SECONDS;
    while Moment::at_or_before(world.storage.now()).as_secs() < end_secs + guard + 6 {
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
