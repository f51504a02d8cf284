//! An AU has another owner only after the mark that the one before is gone and one later
//! superblock are durable (S4).
//!
//! A device between the store and the disk looks at each write into an AU with the eyes of a crash
//! at that moment: what is durable then, opened, must not know an owner of that AU other than the
//! one for whom it is written, neither by the newest superblock alone nor with the log.

use super::reserved::{self, Run};
use super::world;
use crate::core::Core;
use crate::key::Key;
use crate::record::AuRecord;
use base::{BlockDevice, DeviceError, Extent};
use sim::{CrashDisk, Image};
use std::sync::{Arc, Mutex};

/// A disk that keeps what was durable when AUs were written.
struct Watch {
    disk: Arc<CrashDisk>,
    grid_offset: u64,
    seen: Mutex<Seen>,
}

struct Seen {
    durable: Image,
    writes: Vec<(Extent, Image)>,
}

impl BlockDevice for Watch {
    fn len_bytes(&self) -> u64 {
        self.disk.len_bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.disk.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let mut seen = self.seen.lock().unwrap();
        if offset >= self.grid_offset {
            let durable = seen.durable.clone();
            let extent = Extent::new(offset, from.len() as u64);
            seen.writes.push((extent, durable));
        }
        self.disk.write_at(offset, from)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.disk.flush()?;
        self.seen.lock().unwrap().durable = self.disk.image();
        Ok(())
    }

    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.disk.trim(extent)
    }
}

impl Watch {
    fn new(disk: Arc<CrashDisk>, grid_offset: u64) -> Arc<Self> {
        let durable = disk.image();
        let writes = Vec::new();
        Arc::new(Self {
            disk,
            grid_offset,
            seen: Mutex::new(Seen { durable, writes }),
        })
    }

    /// Judges the writes since the last call; says how many went into AUs that had another owner
    /// before.
    fn judge(&self, store: &Core) -> Result<u64, String> {
        let writes = std::mem::take(&mut self.seen.lock().unwrap().writes);
        let layout = store.layout();
        let mut reused = 0;
        for (extent, durable) in writes {
            let first = (extent.offset - layout.grid_offset) / layout.au_bytes;
            let last = (extent.end() - 1 - layout.grid_offset) / layout.au_bytes;
            let crashed = Arc::new(CrashDisk::from_image(durable));
            let crashed = Core::open(crashed, world::options()).map_err(|e| e.to_string())?;
            for au in first as u32..=last as u32 {
                reused += u64::from(judge_au(store, &crashed, au)?);
            }
        }
        Ok(reused)
    }
}

/// Whether the AU is free in what is durable and had an owner once.
fn judge_au(store: &Core, crashed: &Core, au: u32) -> Result<bool, String> {
    let key = Key::Au(au);
    let owner = |record: Option<AuRecord>| record.map(|record| record.generation);
    let now = owner(store.record(&key).unwrap());
    let by_superblock = crashed.tree.get(&key).unwrap();
    let by_superblock = by_superblock.map(|value| crate::record::decode(&value).unwrap());
    for (who, before) in [
        ("the superblock", owner(by_superblock)),
        ("the log", owner(crashed.record(&key).unwrap())),
    ] {
        // An owner that is gone by now wrote it while it was there.
        if let (Some(before), Some(now)) = (before, now)
            && before != now
        {
            return Err(format!(
                "AU {au}: {who} has owner {before}, and {now} writes"
            ));
        }
    }
    Ok(now.is_some() && owner(crashed.record(&key).unwrap()).is_none())
}

/// Runs steps and judges after each; says how many writes went into AUs that were durably free.
pub(super) fn prove(steps: &[reserved::Step]) -> Result<u64, String> {
    let disk = world::formatted(3 << 20);
    let store = Core::open(disk.clone(), world::options()).unwrap();
    let grid_offset = store.layout().grid_offset;
    drop(store);
    let watch = Watch::new(disk, grid_offset);
    let store = Core::open(watch.clone(), world::options()).unwrap();
    let mut run = Run::new(store);
    let mut judged = 0;
    for step in steps {
        run.apply(step);
        judged += watch.judge(&run.store)?;
    }
    Ok(judged)
}

/// Steps of a seed, on a store that is nearly full from the beginning.
pub(super) fn steps(seed: u64) -> Vec<reserved::Step> {
    use reserved::Step;
    let full = |object: u8| {
        let len = 190_000;
        let lifetime = 1_000;
        [
            Step::CreateFree { object, lifetime },
            Step::Write {
                object,
                offset: 0,
                len,
            },
        ]
    };
    let mut steps: Vec<_> = (0..9).flat_map(full).collect();
    steps.extend([Step::Commit, Step::Delete(3), Step::Reclaim]);
    steps.extend(full(10));
    steps.extend(full(11));
    steps.extend(world::drawn(reserved::steps(), seed));
    steps
}

#[test]
fn an_au_has_another_owner_only_after_a_superblock_without_the_one_before() {
    let mut judged = 0;
    for seed in 0..60 {
        match prove(&steps(seed)) {
            Ok(count) => judged += count,
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    assert!(judged > 500, "{judged} writes are too few to say anything");
}
