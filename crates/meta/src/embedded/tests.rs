//! What only an embedded engine has: a file that fails, a file of others, a log that is cut off.

use super::format;
use super::log::{Groups, encode};
use super::snapshot::Snapshot;
use super::{Embedded, META_FORMAT_VERSION};
use crate::{Engine, KeyRange, MetaError, Revision, Transaction};
use base::limits::META_LOG_BYTES_MAX;
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{Database, StorageBackend};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Memory whose flushes fail when they are told to.
#[derive(Debug)]
struct Failing {
    memory: InMemoryBackend,
    fails: Arc<AtomicBool>,
    flushes: Arc<AtomicU64>,
}

impl StorageBackend for Failing {
    fn len(&self) -> Result<u64, io::Error> {
        self.memory.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.memory.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.memory.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        match self.fails.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the disk is gone")),
            false => self.memory.sync_data(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.memory.write(offset, data)
    }
}

fn failing() -> (Arc<Embedded>, Arc<AtomicBool>, Arc<AtomicU64>) {
    let fails = Arc::new(AtomicBool::new(false));
    let flushes = Arc::new(AtomicU64::new(0));
    let backend = Failing {
        memory: InMemoryBackend::new(),
        fails: Arc::clone(&fails),
        flushes: Arc::clone(&flushes),
    };
    let database = Database::builder().create_with_backend(backend).unwrap();
    let engine = Embedded::start("memory".into(), database).unwrap();
    (engine, fails, flushes)
}

fn put(key: &str, value: &[u8]) -> Transaction {
    Transaction::new().put(key, value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_flush_is_everybodys_error_and_reads_go_on() {
    let (engine, fails, _) = failing();
    engine.commit(put("a", b"1")).await.unwrap();
    fails.store(true, Ordering::Relaxed);
    let commits = (0..8).map(|index| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { engine.commit(put(&format!("b{index}"), b"2")).await })
    });
    for commit in commits.collect::<Vec<_>>() {
        let outcome = commit.await.unwrap();
        assert!(
            matches!(&outcome, Err(MetaError::Poisoned(why)) if why.contains("the disk is gone")),
            "{outcome:?}"
        );
    }
    // Also when the disk seems to be back: what was lost before stays lost.
    fails.store(false, Ordering::Relaxed);
    let later = engine.commit(put("a", b"3")).await;
    assert!(matches!(later, Err(MetaError::Poisoned(_))), "{later:?}");
    let seat = engine.lead("calendar", "one").await.err();
    assert!(matches!(seat, Some(MetaError::Poisoned(_))), "{seat:?}");
    let (entry, at) = engine.get(b"a").await.unwrap();
    assert_eq!((entry.unwrap().value, at), (b"1".to_vec(), Revision(1)));
    let page = engine.range(&KeyRange::all(), 10, None).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    let status = engine.status().await.unwrap();
    assert!(status.failure.unwrap().contains("the disk is gone"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_share_a_flush() {
    let (engine, _, flushes) = failing();
    let before = flushes.load(Ordering::Relaxed);
    let clients = (0..64).map(|client| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for _ in 0..20 {
                engine.commit(put(&format!("{client}"), b"")).await.unwrap();
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let status = engine.status().await.unwrap();
    let flushes = flushes.load(Ordering::Relaxed) - before;
    assert_eq!(status.transactions, 64 * 20);
    assert!(
        status.groups < 640 && flushes <= 2 * status.groups,
        "{status:?}, {flushes} flushes"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_when_the_engine_is_closed_is_carried_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let engine = Embedded::open(&path).await.unwrap();
    let mut watch = engine.watch(&KeyRange::all(), Revision(0)).await.unwrap();
    let commits = (0..200).map(|index| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { engine.commit(put(&format!("{index:03}"), b"")).await })
    });
    let commits: Vec<_> = commits.collect();
    tokio::task::yield_now().await;
    engine.close().await;
    let mut done = Vec::new();
    for (index, commit) in commits.into_iter().enumerate() {
        match commit.await.unwrap() {
            Ok(_) => done.push(format!("{index:03}").into_bytes()),
            Err(MetaError::Closed) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(matches!(engine.get(b"a").await, Err(MetaError::Closed)));
    assert!(matches!(
        engine.commit(put("a", b"")).await,
        Err(MetaError::Closed)
    ));
    let mut told = Vec::new();
    loop {
        match watch.next().await {
            Ok(changes) => told.extend(changes.changed),
            Err(MetaError::Closed) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(told.len(), done.len());
    drop((engine, watch));
    let engine = Embedded::open(&path).await.unwrap();
    let page = engine.range(&KeyRange::all(), 1000, None).await.unwrap();
    let found: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
    assert_eq!(found, done);
}

async fn refusal(path: &Path) -> MetaError {
    match Embedded::open(path).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_others_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    let lines = "a line that somebody wrote\n".repeat(1000);
    std::fs::write(&text, &lines).unwrap();
    assert!(matches!(refusal(&text).await, MetaError::Foreign(_)));
    assert_eq!(std::fs::read_to_string(&text).unwrap(), lines);
    let newer = directory.path().join("newer");
    drop(Embedded::open(&newer).await.unwrap());
    let mode = std::fs::metadata(&newer).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "nobody else reads it");
    let database = Database::create(&newer).unwrap();
    let writing = database.begin_write().unwrap();
    let mut numbers = writing.open_table(format::NUMBERS).unwrap();
    format::set(&mut numbers, "format", META_FORMAT_VERSION + 1).unwrap();
    drop(numbers);
    writing.commit().unwrap();
    assert!(matches!(refusal(&newer).await, MetaError::InUse));
    drop(database);
    let error = refusal(&newer).await;
    assert!(
        matches!(error, MetaError::Newer { found: 2, known: 1 }),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_has_the_file_and_a_beginning_that_was_cut_off_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    std::fs::write(directory.path().join("meta.new"), vec![7; 10_000]).unwrap();
    let engine = Embedded::open(&path).await.unwrap();
    assert!(!directory.path().join("meta.new").exists());
    assert!(matches!(refusal(&path).await, MetaError::InUse));
    drop(engine);
    drop(Embedded::open(&path).await.unwrap());
}

/// Files are opened again as another process would: seats are vacant, and a watch is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_vacates_the_seats() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("meta"), directory.path().join("copy"));
    let engine = Embedded::open(&path).await.unwrap();
    let leadership = engine.lead("calendar", "one").await.unwrap();
    engine
        .commit(put("a", b"").guarded_by(&leadership))
        .await
        .unwrap();
    // As after the death of the process: the file as it is while it is in use.
    std::fs::copy(&path, &copy).unwrap();
    let after = Embedded::open(&copy).await.unwrap();
    assert_eq!(after.leader("calendar").await.unwrap(), None);
    let late = after
        .commit(put("a", b"late").guarded_by(&leadership))
        .await;
    assert!(matches!(late, Err(MetaError::Deposed { .. })), "{late:?}");
    let next = after.lead("calendar", "two").await.unwrap();
    assert!(next.epoch() > leadership.epoch());
}

#[test]
fn the_log_keeps_what_it_has_room_for() {
    let opened = format::Opened {
        revision: Revision(7),
        oldest: Revision(2),
        groups: vec![(Revision(5), 100), (Revision(7), 100)],
    };
    let mut groups = Groups::new(&opened);
    assert!(groups.push(Revision(9), 100).is_empty());
    let room = usize::try_from(META_LOG_BYTES_MAX).unwrap() - 300;
    assert!(groups.push(Revision(10), room).is_empty());
    assert_eq!(groups.oldest, Revision(2));
    assert_eq!(groups.push(Revision(12), 101), [Revision(5), Revision(7)]);
    assert_eq!(groups.oldest, Revision(7));
}

/// The news that a watch has seen may be older than the state that it reads then.
#[test]
fn a_state_whose_log_was_struck_says_so_and_tells_nothing_of_what_follows() {
    let memory = InMemoryBackend::new();
    let database = Database::builder().create_with_backend(memory).unwrap();
    format::prepare(&database).unwrap();
    let writing = database.begin_write().unwrap();
    {
        let mut log = writing.open_table(format::LOG).unwrap();
        log.insert(7, encode(&[]).as_slice()).unwrap();
        let mut numbers = writing.open_table(format::NUMBERS).unwrap();
        format::set(&mut numbers, format::OLDEST, 5).unwrap();
    }
    writing.commit().unwrap();
    let snapshot = Snapshot::take(&database, Revision(7)).unwrap();
    let lost = snapshot.changes(Revision(4));
    assert!(
        matches!(
            lost,
            Err(MetaError::HistoryLost {
                oldest: Revision(5)
            })
        ),
        "{lost:?}"
    );
    let (last, _) = snapshot.changes(Revision(5)).unwrap().unwrap();
    assert_eq!(last, Revision(7));
}

/// Writes until the log has struck something, and asks for what was struck, for what lies in the
/// file alone, and for what is in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_says_when_the_log_does_not_reach_back() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Embedded::open(directory.path().join("meta")).await.unwrap();
    let value = vec![7; 100 << 10];
    let transactions = META_LOG_BYTES_MAX / (5 * value.len() as u64) + 20;
    for index in 0..transactions {
        let transaction = (0..5).fold(put("count", &index.to_le_bytes()), |all, part| {
            all.put(format!("{part}"), value.clone())
        });
        engine.commit(transaction).await.unwrap();
    }
    let mut watch = engine.watch(&KeyRange::all(), Revision(0)).await.unwrap();
    let Err(MetaError::HistoryLost { oldest }) = watch.next().await else {
        panic!("there is no room for all");
    };
    assert!(oldest > Revision(0) && oldest.0 < 40, "{oldest}");
    for after in [oldest, Revision(transactions - 2)] {
        let mut watch = engine
            .watch(&KeyRange::prefix(*b"count"), after)
            .await
            .unwrap();
        for expected in after.0 + 1..=transactions {
            assert_eq!(watch.next().await.unwrap().revision, Revision(expected));
        }
    }
}

#[test]
fn redb_locks_the_file_that_it_opens() {
    // What `InUse` relies on.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let _database = Database::create(&path).unwrap();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let backend = FileBackend::new(file);
    assert!(
        backend
            .and_then(|backend| Database::builder().create_with_backend(backend))
            .is_err()
    );
}
