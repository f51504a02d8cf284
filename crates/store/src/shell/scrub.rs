//! A scrub: everything that a store has on its device is read and held against its checksums,
//! beside whatever else the store does.
//!
//! It goes in small steps, each of which waits for its turn at the device, and has the lock only to
//! ask where something is. What it reads without the lock may be replaced meanwhile; so what does
//! not fit is asked for and read again, the last time under the lock, and is damaged only if it
//! does not fit then. Records are read from the device although they are in memory.
//!
//! What the device cannot read is told and does not end it.
//!
//! What is in memory as well is written anew, by checkpoints: the superblocks, the log, and the map
//! of pages. Anything else is said, with object and bytes, and left to
//! [`Examination`](crate::Examination).

use super::read::TRIES;
use super::{Shared, Store};
use crate::check::{
    Bad, Finding, Kind, Mend, Report, SOME_RECORDS, Source, Tolerant, bad_parts, locate,
};
use crate::content;
use crate::key::{Key, Value};
use crate::layout::{GROUP_BYTES, LOG_OFFSET, PAGE_BYTES, SPAN_BYTES, SUPERBLOCK_OFFSETS};
use crate::log::Replay;
use crate::pages::Pages;
use crate::read::Plan;
use crate::superblock::Superblock;
use crate::tree::Walk;
use crate::{Damage, StoreError};
use base::{BlockDevice, DeviceError, Extent};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of one step: enough to keep a disk going, little enough to let others go first.
const STEP_BYTES: u64 = 4 * SPAN_BYTES;
/// How long it sleeps at most before it says again how far it is.
const NAP: Duration = Duration::from_millis(50);
/// How long what is being written may take until it can be read.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// Why a scrub ends early.
enum End {
    /// Whoever watches has had enough.
    Stopped,
    Failed(StoreError),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<DeviceError> for End {
    fn from(error: DeviceError) -> Self {
        Self::Failed(error.into())
    }
}

/// A scrub under way.
struct Scrub<'a, 'p> {
    shared: &'a Shared,
    device: Arc<Tolerant>,
    report: Report,
    bad: BTreeMap<u32, Vec<Bad>>,
    begin: Instant,
    bytes_per_second: Option<u64>,
    /// Bytes read.
    read_bytes: u64,
    /// Bytes of AUs that were looked at, and how many there are.
    done_bytes: u64,
    total_bytes: u64,
    progress: &'a mut crate::device::Progress<'p>,
}

impl Store {
    /// Reads everything and says what does not fit its checksum, while others use the store; no
    /// faster than `bytes_per_second`, if that is said. `progress` hears of bytes of allocation
    /// units; if it breaks off, the report is of what was read so far.
    ///
    /// # Errors
    /// The device's; those of [`Self::checkpoint`] if something is written anew.
    pub fn scrub(
        &self,
        bytes_per_second: Option<u64>,
        progress: &mut crate::device::Progress<'_>,
    ) -> Result<Report, StoreError> {
        let used = self.status().usage.used;
        let mut scrub = Scrub {
            shared: &self.shared,
            device: Arc::new(Tolerant::new(self.shared.device.clone())),
            report: Report::default(),
            bad: BTreeMap::new(),
            begin: Instant::now(),
            bytes_per_second,
            read_bytes: 0,
            done_bytes: 0,
            total_bytes: used * self.shared.lock().core.layout.au_bytes,
            progress,
        };
        match scrub.run(self) {
            Ok(()) | Err(End::Stopped) => scrub.finish(),
            Err(End::Failed(error)) => Err(error),
        }
    }
}

impl Scrub<'_, '_> {
    fn run(&mut self, store: &Store) -> Result<(), End> {
        self.superblocks()?;
        self.log()?;
        self.page_map()?;
        if !self.report.findings.is_empty() && !self.shared.lock().core.is_poisoned() {
            // The first goes to one superblock, the second to the other.
            store.checkpoint()?;
            store.checkpoint()?;
            for finding in &mut self.report.findings {
                finding.mend = Mend::Done;
            }
        }
        self.records()?;
        self.data()
    }

    fn finish(mut self) -> Result<Report, StoreError> {
        let au_bytes = self.shared.lock().core.layout.au_bytes;
        self.bad.retain(|_, parts| !parts.is_empty());
        match locate(self.shared, au_bytes, &self.bad) {
            Ok(found) => self.report.findings.extend(found),
            // The records that say whose they are cannot be read.
            Err(error) if error.damage().is_some() => {
                for (au, part) in self
                    .bad
                    .iter()
                    .flat_map(|(au, p)| p.iter().map(move |p| (au, p)))
                {
                    let what = format!("AU {au}, bytes {}: {}", part.extent, part.damage);
                    let finding = Finding::new(Kind::Data, Mend::Impossible, what);
                    self.report.findings.push(finding);
                }
            }
            Err(other) => return Err(other),
        }
        self.report.findings.extend(self.device.findings_now());
        Ok(self.report)
    }

    fn find(&mut self, kind: Kind, what: String) {
        let finding = Finding::new(kind, Mend::Possible, what);
        self.report.findings.push(finding);
    }

    fn superblocks(&mut self) -> Result<(), End> {
        if self.shared.lock().is_loss_untold() {
            // It was written anew when the store was opened.
            let what = "one of the two superblocks was damaged when the store was opened, as a \
                        loss of power may leave the newer one";
            let finding = Finding::new(Kind::Superblock, Mend::Done, what);
            self.report.findings.push(finding);
        }
        for (place, offset) in SUPERBLOCK_OFFSETS.into_iter().enumerate() {
            let mut wrong = None;
            for _ in 0..TRIES {
                // Before it is read: what is read is no older than that.
                let newest = self.shared.lock().core.superblock().epoch;
                let mut page = vec![0; PAGE_BYTES as usize];
                self.device.read_at(offset, &mut page)?;
                self.spend(PAGE_BYTES)?;
                wrong = match Superblock::decode_at(place, &page) {
                    Ok(superblock) if superblock.is_stale(newest) => Some("an old one"),
                    Ok(_) => None,
                    Err(_) => Some("damaged"),
                };
                if wrong.is_none() {
                    break;
                }
                thread::sleep(SETTLE_TIME);
            }
            if let Some(wrong) = wrong {
                let what = format!("the superblock at byte {offset} is {wrong}");
                self.find(Kind::Superblock, what);
            }
        }
        Ok(())
    }

    /// Reads what would be replayed after a crash now.
    fn log(&mut self) -> Result<(), End> {
        let mut damage = None;
        for _ in 0..TRIES {
            let (layout, head, end) = {
                let state = self.shared.lock();
                let (head, end) = state.core.durable_log();
                (state.core.layout, head, end)
            };
            let device = self.device.clone();
            let mut replay = Replay::new(&*device, &layout, head);
            damage = loop {
                let (next, _) = replay.end();
                if next.sequence >= end.sequence {
                    break None;
                }
                match replay.read() {
                    Ok(Some(body)) => self.spend(body.len() as u64)?,
                    Ok(None) => {
                        let within = next.position % layout.log_bytes;
                        break Some(Damage::Log(LOG_OFFSET + within));
                    }
                    Err(StoreError::Damaged(damage)) => break Some(damage),
                    Err(other) => return Err(other.into()),
                }
            };
            if damage.is_none() {
                return Ok(());
            }
            thread::sleep(SETTLE_TIME);
        }
        if let Some(damage) = damage {
            self.find(Kind::Log, format!("damaged: {damage}"));
        }
        Ok(())
    }

    fn page_map(&mut self) -> Result<(), End> {
        let mut damage = None;
        for _ in 0..TRIES {
            let superblock = self.shared.lock().core.superblock().clone();
            let Some(first) = superblock.page_map else {
                return Ok(());
            };
            match Pages::read_map(superblock.layout, &*self.device, first) {
                Ok(pages) => {
                    let bytes = pages.chain().len() as u64 * PAGE_BYTES;
                    return self.spend(bytes);
                }
                Err(StoreError::Damaged(found)) => damage = Some(found),
                Err(other) => return Err(other.into()),
            }
        }
        if let Some(damage) = damage {
            self.find(Kind::PageMap, format!("damaged: {damage}"));
        }
        Ok(())
    }

    /// Reads every page of records, from left to right.
    fn records(&mut self) -> Result<(), End> {
        let mut from = Key::MIN;
        while from < Key::MAX {
            let walk = self.walk_to(&from)?;
            self.spend(walk.pages * PAGE_BYTES)?;
            if let Some(pointer) = walk.damaged {
                let at = pointer.page.saturating_mul(PAGE_BYTES);
                self.find(Kind::Page, format!("the records at byte {at} are damaged"));
            }
            from = walk.to;
        }
        Ok(())
    }

    /// The pages to a key as they are on the device; damaged ones are so without any doubt.
    fn walk_to(&self, key: &Key) -> Result<Walk, StoreError> {
        for _ in 0..TRIES {
            let tree = self.shared.lock().core.tree.clone();
            let _turn = self.shared.device.turn_to_read(PAGE_BYTES);
            let walk = tree.walk_to(&*self.device, key)?;
            if walk.damaged.is_none() {
                return Ok(walk);
            }
        }
        // No page is used again while nobody can finish a checkpoint.
        self.shared.lock().core.tree.walk_to(&*self.device, key)
    }

    /// Reads the bytes of every AU.
    fn data(&mut self) -> Result<(), End> {
        let mut au = 0;
        loop {
            let next = {
                let state = self.shared.lock();
                let count = state.core.layout.au_count;
                (au..count).find(|au| state.core.space.is_used(*au))
            };
            let Some(next) = next else {
                return Ok(());
            };
            self.au(next)?;
            au = next + 1;
        }
    }

    fn au(&mut self, au: u32) -> Result<(), End> {
        let au_bytes = self.shared.lock().core.layout.au_bytes;
        let allowed = self.shared.device.read_bytes_max().unwrap_or(STEP_BYTES);
        // Whole groups, because some have one checksum.
        let step = (allowed - allowed % GROUP_BYTES).clamp(GROUP_BYTES, STEP_BYTES);
        let mut offset = 0;
        while offset < au_bytes {
            let part = Extent::between(offset, au_bytes.min(offset + step));
            let (fits, parts) = self.read(au, part)?;
            self.report.verified_bytes += fits;
            self.bad.entry(au).or_default().extend(parts);
            self.done_bytes += part.len;
            self.spend(fits)?;
            offset = part.end();
        }
        Ok(())
    }

    /// Reads a part of an AU; says how much fits, and what does not without any doubt.
    fn read(&self, au: u32, part: Extent) -> Result<(u64, Vec<Bad>), StoreError> {
        let mut bytes = vec![0; part.len as usize];
        for _ in 0..TRIES {
            let mut plan = Plan::default();
            let planned = {
                let state = self.shared.lock();
                content::plan(&state.core, au, part, 0, &mut plan)
            };
            let _turn = self.shared.device.turn_to_read(part.len);
            match planned.and_then(|()| plan.carry_out(&*self.device, &mut bytes)) {
                Ok(()) => return Ok((plan.covered_bytes(), Vec::new())),
                Err(error) if error.damage().is_some() => {}
                Err(other) => return Err(other),
            }
        }
        let state = self.shared.lock();
        bad_parts(&state.core, &*self.device, au, part)
    }

    /// So much was read: says how far it is, and waits if that was too fast.
    fn spend(&mut self, bytes: u64) -> Result<(), End> {
        self.read_bytes += bytes;
        loop {
            let done = self.done_bytes.min(self.total_bytes);
            if (self.progress)(done, self.total_bytes).is_break() {
                return Err(End::Stopped);
            }
            let Some(rate) = self.bytes_per_second else {
                return Ok(());
            };
            let due = Duration::from_secs_f64(self.read_bytes as f64 / rate.max(1) as f64);
            let left = due.saturating_sub(self.begin.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(NAP));
        }
    }
}

impl Source for Shared {
    fn some(&self, from: &Key, to: &Key) -> Result<Vec<(Key, Value)>, StoreError> {
        self.lock().core.range_left(from, to, SOME_RECORDS)
    }
}
