//! An etcd cluster that others run, for any number of processes.
//!
//! ```text
//!  commit ──► queue ──► committer (a task): transactions that do not touch each other    group.rs
//!                         │ up to META_ETCD_GROUPS_MAX requests under way
//!                         ▼
//!              one request: a transaction of transactions, each with own conditions     request.rs
//!                         │ no answer: the same again, then the proof that it never     resolve.rs
//!                         ▼             happens; a slot tells which                     slots.rs
//!                       answers
//!  watch ──► a stream, made again where it broke off                                    watch.rs
//!  lead ──► a lease that is renewed, a seat that goes with it                           seat.rs
//!  keeper (a task): the lease of the slots, compaction                                  keeper.rs
//! ```
//! * **Groups.** etcd orders one request after the other, a few thousand a second. Transactions
//!   that do not touch each other are independent parts of one request, so that many clients share
//!   its cost. They may share a revision.
//! * **Unknown outcomes.** A request that was not answered may have happened. Each transaction
//!   therefore also writes its number into a slot, and compares that nobody has written there
//!   since. Sent again, it happens at most once, and the slot tells that it did.
//! * **Time.** A request has `META_REQUEST_TIME_MAX`, then another member is asked, up to
//!   `META_TIME_MAX` in all. Broken connections are made anew by the channel below.
//! * **Room.** etcd keeps all history until somebody compacts it; the keeper does, for the whole
//!   cluster, unless it is told not to. Its quota is a matter for the cluster's administrator: when
//!   it is used up, transactions are [`MetaError::Full`].
//!
//! Keys are those of [`crate::space`] behind a prefix, so that several engines, and others, can
//! share a cluster. Everything relies on etcd 3.4 or newer with its usual bounds: 1.5 MiB and 128
//! operations a request.

mod call;
mod group;
mod keeper;
mod options;
mod request;
mod resolve;
mod seat;
mod slots;
mod watch;

use crate::engine::{Answer, Committed, Engine, Entry, Leader, Page, Revision, Status};
use crate::leadership::{Leadership, check_seat};
use crate::queue::Queue;
use crate::transaction::{Change, Transaction, TransactionId, check_key};
use crate::watch::Watch;
use crate::{KeyRange, MetaError, space};
use base::limits::{
    META_PAGE_BYTES_MAX, META_PAGE_ENTRIES_MAX, META_RANGE_DELETE_MAX, META_READS_MAX,
};
use call::{Trouble, patiently, revision_of};
use etcd_client::{Client, GetOptions, GetResponse};
pub use options::{EtcdOptions, Tls, User};
use seat::EtcdSeat;
use slots::Slots;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use watch::EtcdSource;

/// A metadata engine in an etcd cluster. Dropped, it stops; transactions under way may still
/// happen, as after the death of the process.
pub struct Etcd {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    client: Client,
    /// Before every key.
    prefix: Vec<u8>,
    queue: Queue,
    slots: Slots,
    reads: Semaphore,
    transactions: AtomicU64,
    groups: AtomicU64,
}

impl Etcd {
    /// Reaches the cluster, and writes or checks the version of the format there.
    ///
    /// # Errors
    /// [`MetaError::Unavailable`], [`MetaError::Refused`], [`MetaError::Newer`],
    /// [`MetaError::Foreign`]; [`MetaError::Invalid`] for options that name no cluster.
    pub async fn open(options: EtcdOptions) -> Result<Arc<Self>, MetaError> {
        let client = options.connect().await?;
        let prefix = options.prefix();
        keeper::check_format(&client, &prefix).await?;
        let (queue, jobs) = Queue::new();
        let shared = Arc::new(Shared {
            slots: Slots::begin(&client).await?,
            client,
            prefix,
            queue,
            reads: Semaphore::new(META_READS_MAX),
            transactions: AtomicU64::new(0),
            groups: AtomicU64::new(0),
        });
        let mut tasks = vec![
            tokio::spawn(group::commit_groups(Arc::clone(&shared), jobs)),
            tokio::spawn(keeper::keep_slots(Arc::clone(&shared))),
        ];
        if options.compacts() {
            tasks.push(tokio::spawn(keeper::compact(Arc::clone(&shared))));
        }
        Ok(Arc::new(Self { shared, tasks }))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.shared.queue.close();
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    /// Where a stored key lies in the cluster.
    fn place(&self, key: &[u8]) -> Vec<u8> {
        [self.prefix.as_slice(), key].concat()
    }

    fn entry(&self, stored: &etcd_client::KeyValue) -> Entry {
        let key = stored.key().strip_prefix(self.prefix.as_slice());
        Entry {
            key: key.map_or(&[][..], space::key).to_vec(),
            value: stored.value().to_vec(),
            revision: Revision(stored.mod_revision().cast_unsigned()),
        }
    }

    async fn get(&self, stored: &[u8]) -> Result<(Option<Entry>, Revision), MetaError> {
        let place = self.place(stored);
        let answer = patiently(|| {
            let (mut client, place) = (self.client.kv_client(), place.clone());
            async move { client.get(place, None).await }
        })
        .await?;
        let entry = answer.kvs().first().map(|stored| self.entry(stored));
        Ok((entry, revision_of(answer.header())?))
    }

    async fn range(
        &self,
        range: &KeyRange,
        entries_max: usize,
        at: Option<Revision>,
    ) -> Result<Page, MetaError> {
        let range = space::entries(range);
        range.check()?;
        let _permit = self.reads.acquire().await.map_err(|_| MetaError::Closed)?;
        let mut entries_max = entries_max.clamp(1, META_PAGE_ENTRIES_MAX);
        let answer = loop {
            match self.page(&range, entries_max, at).await {
                // Large values: as many of them are not sent in one answer.
                Err(Trouble::LargeAnswer) if entries_max > 1 => {
                    entries_max = entries_max.div_ceil(4)
                }
                Err(trouble) => return Err(trouble.into()),
                Ok(answer) => break answer,
            }
        };
        let now = revision_of(answer.header())?;
        let mut page = Page {
            entries: Vec::with_capacity(answer.kvs().len()),
            has_more: answer.more(),
            revision: at.unwrap_or(now),
        };
        let mut bytes = 0;
        for stored in answer.kvs() {
            if bytes >= META_PAGE_BYTES_MAX {
                page.has_more = true;
                break;
            }
            bytes += stored.key().len() + stored.value().len();
            page.entries.push(self.entry(stored));
        }
        Ok(page)
    }

    async fn page(
        &self,
        range: &KeyRange,
        entries_max: usize,
        at: Option<Revision>,
    ) -> Result<GetResponse, Trouble> {
        let place = space::below(&self.prefix, range);
        let limit = i64::try_from(entries_max).expect("META_PAGE_ENTRIES_MAX is far below");
        let mut options = GetOptions::new().with_limit(limit);
        if let Some(end) = place.end() {
            options = options.with_range(end);
        }
        if let Some(at) = at {
            options = options.with_revision(at.0.cast_signed());
        }
        call::until_answered(|| {
            let (mut client, options) = (self.client.kv_client(), options.clone());
            let start = place.start().to_vec();
            async move { client.get(start, Some(options)).await }
        })
        .await
    }

    /// How many entries a deletion would take away is asked before: the cluster has no bound for
    /// it. What comes into the range in between is deleted, too.
    async fn check_deletions(&self, transaction: &Transaction) -> Result<(), MetaError> {
        let mut count = 0;
        for change in &transaction.changes {
            let Change::DeleteRange(range) = change else {
                continue;
            };
            let place = space::below(&self.prefix, range);
            let end = place
                .end()
                .expect("what a program names has an end below its prefix");
            let options = GetOptions::new().with_range(end).with_count_only();
            let answer = patiently(|| {
                let (mut client, options) = (self.client.kv_client(), options.clone());
                let start = place.start().to_vec();
                async move { client.get(start, Some(options)).await }
            })
            .await?;
            count += usize::try_from(answer.count()).unwrap_or(usize::MAX);
        }
        match count > META_RANGE_DELETE_MAX {
            true => Err(MetaError::TooLarge {
                what: "entries in the ranges that are deleted",
                size: count,
                size_max: META_RANGE_DELETE_MAX,
            }),
            false => Ok(()),
        }
    }

    async fn commit(&self, transaction: Transaction) -> Result<Committed, MetaError> {
        transaction.check()?;
        self.check_deletions(&transaction).await?;
        self.queue.commit(transaction).await
    }

    async fn watch(
        self: &Arc<Self>,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Box<EtcdSource>, MetaError> {
        range.check()?;
        Ok(Box::new(EtcdSource::new(Arc::clone(self), range, after)))
    }

    async fn lead(self: &Arc<Self>, seat: &str, holder: &str) -> Result<Leadership, MetaError> {
        check_seat(seat, holder)?;
        let (keeping, epoch, since) = EtcdSeat::take(self, seat, holder).await?;
        let only = space::only(&space::seat(seat));
        let changes = self.watch(&only, epoch).await?;
        Ok(Leadership::keep(seat, epoch, since, keeping, changes))
    }

    async fn leader(&self, seat: &str) -> Result<Option<Leader>, MetaError> {
        let (entry, _) = self.get(&space::seat(seat)).await?;
        Ok(entry.map(|entry| Leader {
            holder: String::from_utf8_lossy(&entry.value).into(),
            epoch: entry.revision,
        }))
    }

    async fn status(&self) -> Result<Status, MetaError> {
        let answer = patiently(|| {
            let mut client = self.client.maintenance_client();
            async move { client.status().await }
        })
        .await?;
        let (_, revision) = self.get(&space::seat("")).await?;
        Ok(Status {
            engine: "etcd",
            revision,
            size_bytes: answer.db_size().cast_unsigned(),
            transactions: self.transactions.load(Ordering::Relaxed),
            groups: self.groups.load(Ordering::Relaxed),
            failure: answer.errors().first().cloned(),
        })
    }
}

impl Engine for Etcd {
    fn get<'a>(&'a self, key: &'a [u8]) -> Answer<'a, (Option<Entry>, Revision)> {
        Box::pin(async move {
            let stored = space::entry(key);
            check_key(&stored)?;
            self.shared.get(&stored).await
        })
    }

    fn range<'a>(
        &'a self,
        range: &'a KeyRange,
        entries_max: usize,
        at: Option<Revision>,
    ) -> Answer<'a, Page> {
        Box::pin(self.shared.range(range, entries_max, at))
    }

    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed> {
        Box::pin(self.shared.commit(transaction))
    }

    fn outcome(&self, transaction: TransactionId) -> Answer<'_, Committed> {
        Box::pin(self.shared.queue.outcome(transaction))
    }

    fn watch<'a>(&'a self, range: &'a KeyRange, after: Revision) -> Answer<'a, Watch> {
        Box::pin(async move {
            let range = space::entries(range);
            Ok(Watch::new(self.shared.watch(&range, after).await?))
        })
    }

    fn lead<'a>(&'a self, seat: &'a str, holder: &'a str) -> Answer<'a, Leadership> {
        Box::pin(self.shared.lead(seat, holder))
    }

    fn leader<'a>(&'a self, seat: &'a str) -> Answer<'a, Option<Leader>> {
        Box::pin(self.shared.leader(seat))
    }

    fn depose<'a>(&'a self, seat: &'a str, epoch: Revision) -> Answer<'a, ()> {
        Box::pin(seat::depose(&self.shared, seat, epoch))
    }

    fn status(&self) -> Answer<'_, Status> {
        Box::pin(self.shared.status())
    }
}
