//! What tickets got, on the disk: so that a server that is killed in the middle of a window does
//! not forget the part that is over.
//!
//! One file of the data directory, `records`, drawn in `docs/formats/records.md`. It is written
//! while tickets are in force, every [`TICKET_COLLECT_INTERVAL`] and when the server ends in order,
//! by a thread that does nothing else: what there is to note is taken from the dispatchers a few
//! tickets at a time, and written when nobody is held up by it. A change is written beside and
//! renamed, so whenever the server is killed the file is the old one or the new one.
//!
//! It is an account and no promise: a file that is damaged, or that a newer release wrote, is
//! warned of, and begun anew; a single record that makes no sense is left out. What is noted of a
//! store that is missing is kept as it is.

use super::Storage;
use super::dispatch::{History, Noted, Totals};
use base::limits::{
    NOTED_BYTES_MAX, NOTED_RECORDS_MAX, NOTED_SECONDS_MAX, TICKET_COLLECT_INTERVAL,
    TICKET_LINKS_MAX, TICKET_RECORD_SECONDS_MAX,
};
use base::{StoreId, TicketId, Time};
use reservation::scheduler::{Cause, TicketSecond};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

/// Version of the file.
pub(crate) const RECORDS_FORMAT_VERSION: u32 = 1;
/// How it begins.
const MAGIC: [u8; 8] = *b"AZKRECRD";
/// Magic, version, checksum.
const HEAD_BYTES: usize = 16;
/// Name of the file.
const NAME: &str = "records";
/// All of a device's time.
const WHOLE_PPM: u32 = 1_000_000;

/// What is noted, with the device that it was got from.
pub(super) type At = (StoreId, Noted);

/// What the file has of one ticket at one device.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    device: StoreId,
    lineage: Vec<TicketId>,
    epoch: u64,
    start: u64,
    end: u64,
    until: u64,
    kept_until: u64,
    share_ppm: u32,
    seconds: u64,
    kept: u64,
    bytes: u64,
    last: Vec<Second>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Second {
    second: u64,
    bytes: u64,
    served_nanos: u64,
    promised_nanos: u64,
    cause: u8,
}

/// Why the file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum RecordsError {
    /// A newer release wrote it.
    #[error("format version {0}; this release reads up to {RECORDS_FORMAT_VERSION}")]
    Newer(u32),
    /// It makes no sense.
    #[error("not what was written")]
    Damaged,
}

fn code(cause: Option<Cause>) -> u8 {
    match cause {
        None => 0,
        Some(Cause::NoDemand) => 1,
        Some(Cause::TooFewInFlight) => 2,
        Some(Cause::SlowDevice) => 3,
        Some(Cause::Degraded) => 4,
        Some(Cause::ServerAway) => 5,
    }
}

fn cause(code: u8) -> Option<Option<Cause>> {
    Some(match code {
        0 => None,
        1 => Some(Cause::NoDemand),
        2 => Some(Cause::TooFewInFlight),
        3 => Some(Cause::SlowDevice),
        4 => Some(Cause::Degraded),
        5 => Some(Cause::ServerAway),
        _ => return None,
    })
}

fn record((device, noted): &At, seconds_max: usize) -> Record {
    let (last, totals) = noted.history.last(seconds_max).from(0);
    let second = |second: TicketSecond| Second {
        second: second.second,
        bytes: second.bytes,
        served_nanos: second.served_nanos,
        promised_nanos: second.promised_nanos,
        cause: code(second.shortfall),
    };
    Record {
        device: *device,
        lineage: noted.lineage.clone(),
        epoch: noted.epoch,
        start: noted.start,
        end: noted.end,
        until: noted.until,
        kept_until: noted.kept_until,
        share_ppm: noted.share_ppm,
        seconds: totals.seconds,
        kept: totals.kept,
        bytes: totals.bytes,
        last: last.into_iter().map(second).collect(),
    }
}

/// None if it is nothing that [`record`] makes.
fn noted(record: Record) -> Option<At> {
    let second = |second: Second| {
        Some(TicketSecond {
            second: second.second,
            bytes: second.bytes,
            served_nanos: second.served_nanos,
            promised_nanos: second.promised_nanos,
            shortfall: cause(second.cause)?,
        })
    };
    let last: Vec<_> = record.last.into_iter().map(second).collect::<Option<_>>()?;
    let is_good = (1..=TICKET_LINKS_MAX + 1).contains(&record.lineage.len())
        && record.start <= record.end
        && record.share_ppm <= WHOLE_PPM
        && record.kept <= record.seconds
        && last.len() <= TICKET_RECORD_SECONDS_MAX
        && last.is_sorted_by(|a, b| a.second < b.second);
    let totals = Totals {
        seconds: record.seconds,
        kept: record.kept,
        bytes: record.bytes,
    };
    let noted = Noted {
        lineage: record.lineage,
        epoch: record.epoch,
        start: record.start,
        end: record.end,
        until: record.until,
        kept_until: record.kept_until,
        share_ppm: record.share_ppm,
        history: History::of(last, totals),
    };
    is_good.then_some((record.device, noted))
}

/// So many seconds each of this many tickets have.
fn seconds_of_each(count: usize) -> usize {
    (NOTED_SECONDS_MAX / count.max(1)).clamp(1, TICKET_RECORD_SECONDS_MAX)
}

/// Bytes of the file. If there are more tickets than it has room for, those of parts stay out.
fn encode(mut all: Vec<At>) -> Vec<u8> {
    if all.len() > NOTED_RECORDS_MAX {
        all.sort_by_key(|(_, noted)| noted.lineage.len());
        all.truncate(NOTED_RECORDS_MAX);
    }
    let seconds_max = seconds_of_each(all.len());
    let records: Vec<_> = all.iter().map(|at| record(at, seconds_max)).collect();
    let body = postcard::to_stdvec(&records).expect("records are plain data");
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.extend(MAGIC);
    bytes.extend(RECORDS_FORMAT_VERSION.to_le_bytes());
    bytes.extend(crc32c::crc32c(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Reads what [`encode`] wrote.
fn decode(bytes: &[u8]) -> Result<Vec<At>, RecordsError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(RecordsError::Damaged)?;
    let (version, rest) = rest.split_first_chunk().ok_or(RecordsError::Damaged)?;
    let version = u32::from_le_bytes(*version);
    if version > RECORDS_FORMAT_VERSION {
        return Err(RecordsError::Newer(version));
    }
    let (checksum, body) = rest.split_first_chunk().ok_or(RecordsError::Damaged)?;
    if version == 0 || crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(RecordsError::Damaged);
    }
    let Ok((records, [])) = postcard::take_from_bytes::<Vec<Record>>(body) else {
        return Err(RecordsError::Damaged);
    };
    if records.len() > NOTED_RECORDS_MAX {
        return Err(RecordsError::Damaged);
    }
    let read = records.len();
    let all: Vec<_> = records.into_iter().filter_map(noted).collect();
    if all.len() < read {
        let count = read - all.len();
        tracing::warn!(count, "records of what tickets got make no sense: left out");
    }
    Ok(all)
}

/// The file, and what of it is nobody's here.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    /// Of devices that are not there.
    missing: Vec<At>,
    /// What is on the disk.
    written: Vec<u8>,
    /// How many tickets were noted last.
    count: usize,
}

impl Records {
    /// What was noted by earlier runs. Whatever is wrong with it is warned of.
    pub(super) fn open(directory: &Path) -> (Self, Vec<At>) {
        let path = directory.join(NAME);
        let mut bytes = Vec::new();
        let opened = File::open(&path).and_then(|file| {
            file.take(NOTED_BYTES_MAX as u64 + 1)
                .read_to_end(&mut bytes)
        });
        let all = match opened {
            Ok(_) => decode(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        };
        let all = all.unwrap_or_else(|why| {
            tracing::warn!(
                path = %path.display(),
                why,
                "what tickets got before this start is not known: the file is begun anew. If a \
                 newer release has run here, run that one to go on with it"
            );
            Vec::new()
        });
        let this = Self {
            path,
            missing: Vec::new(),
            written: bytes,
            count: all.len(),
        };
        (this, all)
    }

    /// Replaces the file, if there is something new to note.
    fn write(&mut self, mut all: Vec<At>, now: Time) -> io::Result<()> {
        let now_secs = now.as_nanos() / 1_000_000_000;
        self.missing
            .retain(|(_, noted)| noted.kept_until > now_secs);
        all.extend(self.missing.iter().cloned());
        self.count = all.len();
        let bytes = encode(all);
        if bytes == self.written || self.count == 0 && self.written.is_empty() {
            return Ok(());
        }
        let beside = self.path.with_extension("new");
        // Left by a run that was killed here; the lock file says that there is no other run.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(&bytes)?;
        // So that the name never has less than all of it, whenever the power fails.
        file.sync_data()?;
        fs::rename(&beside, &self.path)?;
        self.written = bytes;
        Ok(())
    }
}

/// The thread that notes; dropped, it is ended.
pub(super) struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn start(storage: &Arc<Storage>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let storage = Arc::downgrade(storage);
        let run = move || {
            while stopped.recv_timeout(TICKET_COLLECT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let Some(storage) = storage.upgrade() else {
                    return;
                };
                storage.note_records();
            }
        };
        let thread = thread::Builder::new().name("records".to_owned());
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread.spawn(run)?),
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // A panic there has been printed there.
            drop(thread.join());
        }
    }
}

impl Storage {
    /// Gives devices what was noted of their tickets, and begins to note.
    pub(super) fn keep_records(self: &Arc<Self>, all: Vec<At>) {
        let known = self.known();
        for (device, mut noted) in all {
            // Before a crash that came before this could be noted.
            noted.cut_if(|ticket, epoch| known.is_revoked(ticket, epoch));
            if let Some(device) = self.device(device) {
                device.dispatcher.remember(noted);
            } else if let Some(export) = self.export(device) {
                export.remember(noted);
            } else {
                let records = self.records.lock();
                let mut records = records.unwrap_or_else(PoisonError::into_inner);
                records.missing.push((device, noted));
            }
        }
        match Keeper::start(self) {
            Ok(keeper) => {
                *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeper);
            }
            // Nothing is served less for it.
            Err(error) => tracing::warn!(%error, "what tickets get is not noted in this run"),
        }
    }

    /// Notes what tickets got until now. Blocks, and holds nobody else up.
    pub(super) fn note_records(&self) {
        let records = self.records.lock();
        let mut records = records.unwrap_or_else(PoisonError::into_inner);
        let seconds_max = seconds_of_each(records.count);
        let devices = self.devices.values();
        let of_stores = devices.map(|device| (device.id, device.dispatcher.noted(seconds_max)));
        let of_exports = self.exports.noted(seconds_max);
        let all = of_stores.chain(of_exports);
        let all = all.flat_map(|(device, noted)| noted.into_iter().map(move |one| (device, one)));
        let all = all.collect();
        if let Err(error) = records.write(all, self.clock.now()) {
            let path = records.path.display();
            tracing::warn!(%path, %error, "what tickets got is not noted; it is tried again");
        }
    }

    /// Notes a last time what tickets got.
    pub(super) fn end_records(&self) {
        let keeper = self.keeper.lock().map(|mut keeper| keeper.take());
        drop(keeper);
        self.note_records();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{open, with_store};
    use super::*;

    fn example(device: u8, links: u8) -> At {
        let second = |second, bytes, shortfall| TicketSecond {
            second,
            bytes,
            served_nanos: 90_000_000,
            promised_nanos: 100_000_000,
            shortfall,
        };
        let last = vec![
            second(1_700_000_000, 4096, None),
            second(1_700_000_001, 0, Some(Cause::ServerAway)),
        ];
        let totals = Totals {
            seconds: 300,
            kept: 299,
            bytes: 1 << 30,
        };
        let noted = Noted {
            lineage: (0..links).map(|link| TicketId([link + 1; 16])).collect(),
            epoch: 300,
            start: 1_699_999_000,
            end: 1_700_009_000,
            until: 1_700_000_002,
            kept_until: 1_700_009_600,
            share_ppm: 100_000,
            history: History::of(last, totals),
        };
        (StoreId([device; 16]), noted)
    }

    #[test]
    fn the_file_has_these_bytes() {
        let bytes = encode(vec![example(7, 2)]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, include_str!("records.golden").trim());
        assert_eq!(decode(&bytes), Ok(vec![example(7, 2)]));
    }

    /// A good checksum for whatever the body is.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let checksum = crc32c::crc32c(&bytes[HEAD_BYTES..]);
        bytes[12..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn what_is_damaged_or_newer_is_refused_and_nothing_is_made_of_it() {
        let bytes = encode(vec![example(7, 1), example(8, 3)]);
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), Err(RecordsError::Damaged));
            if length >= HEAD_BYTES {
                let cut = sealed(bytes[..length].to_vec());
                assert_eq!(decode(&cut), Err(RecordsError::Damaged), "{length}");
            }
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] ^= flip;
                assert!(decode(&other).is_err(), "{at}");
                // With a good checksum it is read or refused, and written back the same.
                if at >= HEAD_BYTES
                    && let Ok(read) = decode(&sealed(other))
                {
                    assert_eq!(decode(&encode(read.clone())), Ok(read));
                }
            }
        }
        let mut newer = bytes.clone();
        newer[8] = 2;
        assert_eq!(decode(&newer), Err(RecordsError::Newer(2)));
        let many = sealed([&bytes[..HEAD_BYTES], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat());
        assert_eq!(decode(&many), Err(RecordsError::Damaged));
    }

    #[test]
    fn a_record_that_makes_no_sense_does_not_cost_the_others() {
        let mut bad = example(8, 1);
        let (mut seconds, totals) = bad.1.history.from(0);
        seconds.reverse();
        bad.1.history = History::of(seconds, totals);
        let bytes = encode(vec![example(7, 1), bad, example(9, 2)]);
        assert_eq!(decode(&bytes), Ok(vec![example(7, 1), example(9, 2)]));
    }

    #[test]
    fn what_was_taken_back_before_a_crash_misses_nothing_after_it() {
        let (directory, store) = with_store(16);
        let storage = open(&directory);
        let clock = storage.now();
        let now = clock.as_nanos() / 1_000_000_000;
        let (revoked, other, older) = (TicketId([5; 16]), TicketId([6; 16]), TicketId([7; 16]));
        storage.revoke(&[(revoked, now + 3600)]).unwrap();
        storage.raise_epoch(2).unwrap();
        drop(storage);
        let open_ticket = |(ticket, epoch)| {
            let noted = Noted {
                lineage: vec![ticket],
                epoch,
                start: now - 100,
                end: now + 100,
                until: now - 50,
                kept_until: now + 700,
                share_ppm: 1000,
                history: History::default(),
            };
            (store, noted)
        };
        let all = [(revoked, 2), (other, 2), (older, 1)].map(open_ticket);
        let (mut records, _) = Records::open(directory.path());
        records.write(all.to_vec(), clock).unwrap();
        let storage = open(&directory);
        let seconds = |ticket| storage.seconds(store, &[ticket], 0).unwrap().1.seconds;
        assert!(seconds(other) >= 50);
        assert_eq!((seconds(revoked), seconds(older)), (0, 0));
    }

    #[test]
    fn the_file_is_bounded_and_whole_tickets_come_first() {
        let mut all = vec![example(1, 3); NOTED_RECORDS_MAX];
        for (_, noted) in &mut all {
            let last = (0..TICKET_RECORD_SECONDS_MAX as u64).map(|second| TicketSecond {
                second: u64::MAX - 900 + second,
                bytes: u64::MAX,
                served_nanos: u64::MAX,
                promised_nanos: u64::MAX,
                shortfall: None,
            });
            noted.lineage = vec![TicketId([9; 16]); TICKET_LINKS_MAX + 1];
            noted.history = History::of(last.collect(), Totals::default());
        }
        all.push(example(1, 1));
        let bytes = encode(all);
        assert!(bytes.len() <= NOTED_BYTES_MAX, "{}", bytes.len());
        let read = decode(&bytes).unwrap();
        assert_eq!(read.len(), NOTED_RECORDS_MAX);
        assert_eq!(read[0].1.lineage.len(), 1);
        assert_eq!(read[1].1.history.from(0).0.len(), 2);
        assert_eq!(seconds_of_each(10), TICKET_RECORD_SECONDS_MAX);
        assert_eq!(seconds_of_each(usize::MAX), 1);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_begun_anew_and_nothing_new_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let now = Time::from_secs(1_700_000_000);
        let (mut records, all) = Records::open(directory.path());
        assert_eq!(all, []);
        records.write(Vec::new(), now).unwrap();
        assert!(!path.exists(), "there is nothing to note");
        records.write(vec![example(7, 1)], now).unwrap();
        fs::remove_file(&path).unwrap();
        records.write(vec![example(7, 1)], now).unwrap();
        assert!(!path.exists(), "nothing new");
        records.missing.push(example(8, 1));
        records.write(vec![example(7, 1)], now).unwrap();
        let (mut records, all) = Records::open(directory.path());
        assert_eq!(
            all,
            [example(7, 1), example(8, 1)],
            "of a missing store, too"
        );
        for (at, byte) in [(8, 2), (20, 0x55)] {
            let mut bytes = fs::read(&path).unwrap();
            bytes[at] = byte;
            fs::write(&path, bytes).unwrap();
            let (next, all) = Records::open(directory.path());
            assert_eq!(all, []);
            records = next;
            records.write(vec![example(7, 1)], now).unwrap();
            assert_eq!(Records::open(directory.path()).1, [example(7, 1)]);
        }
        records.write(Vec::new(), now).unwrap();
        assert_eq!(Records::open(directory.path()).1, []);
    }
}
