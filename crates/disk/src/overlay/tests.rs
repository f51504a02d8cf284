//! The overlay beside a naive model, after every loss of power, with failing and damaged devices.

use super::map::BLOCKS_PER_SECTOR;
use super::*;
use crate::error::Damage;
use sim::{CrashDisk, Effect, Failure, Fault, Plant, Planted, Policy, Random, Which};
use std::collections::BTreeMap;

const SECTOR: u64 = 512;
const VERSION: VersionId = VersionId([5; 32]);

/// A base whose every sector says its own number, and that notices being written to.
#[derive(Debug)]
struct Numbered(u64);

fn numbered(sector: u64) -> [u8; 8] {
    (sector | 1 << 63).to_le_bytes()
}

impl BlockDevice for Numbered {
    fn len_bytes(&self) -> u64 {
        self.0
    }

    fn block_bytes(&self) -> u32 {
        512
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.extent_at(offset, into.len())?;
        for (position, byte) in (offset..).zip(into) {
            *byte = numbered(position / SECTOR)[(position % 8) as usize];
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        panic!("a base is never written to")
    }

    fn flush(&self) -> Result<(), DeviceError> {
        panic!("a base is never flushed")
    }

    fn trim(&self, _: Extent) -> Result<(), DeviceError> {
        panic!("a base is never trimmed")
    }
}

fn new_disk(image_bytes: u64) -> CrashDisk {
    let disk = CrashDisk::new(backing_bytes(image_bytes));
    format(&disk, image_bytes, VERSION).unwrap();
    disk
}

fn open(disk: &(impl BlockDevice + Clone + 'static), image_bytes: u64) -> Overlay {
    try_open(disk, image_bytes).unwrap()
}

fn try_open(
    disk: &(impl BlockDevice + Clone + 'static),
    image_bytes: u64,
) -> Result<Overlay, DiskError> {
    let base = Arc::new(Numbered(image_bytes));
    Overlay::on(Arc::new(disk.clone()), base, VERSION)
}

fn read(overlay: &Overlay, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; len as usize];
    overlay.read_at(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn random_histories_are_those_of_a_naive_disk() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let image_bytes = SECTOR * random.within(1..300);
        let disk = new_disk(image_bytes);
        let mut overlay = open(&disk, image_bytes);
        let mut naive = vec![0; image_bytes as usize];
        Numbered(image_bytes).read_at(0, &mut naive).unwrap();
        for step in 0..80 {
            let offset = random.below(image_bytes);
            let len = random.below(image_bytes - offset + 1).min(20_000);
            let place = offset as usize..(offset + len) as usize;
            match random.below(12) {
                0..=3 => {
                    let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                    overlay.write_at(offset, &bytes).unwrap();
                    naive[place].copy_from_slice(&bytes);
                }
                4..=6 => {
                    for hole in overlay.holes(Extent::new(offset, len)).unwrap().iter() {
                        let place = hole.offset as usize..hole.end() as usize;
                        assert!(naive[place].iter().all(|byte| *byte == 0), "{seed} {step}");
                    }
                    assert_eq!(read(&overlay, offset, len), naive[place], "{seed} {step}");
                }
                7 | 8 => {
                    let zeros = Extent::new(offset, len);
                    overlay.write_zeros(zeros).unwrap();
                    naive[place].fill(0);
                    // Whole blocks take no space.
                    let start = offset.next_multiple_of(BLOCK);
                    let whole = Extent::between(start, (offset + len) / BLOCK * BLOCK);
                    assert!(overlay.holes(zeros).unwrap().covers(whole), "{seed} {step}");
                }
                9 => {
                    overlay.trim(Extent::new(offset, len)).unwrap();
                    let end = if offset + len == image_bytes {
                        image_bytes
                    } else {
                        (offset + len) / BLOCK * BLOCK
                    };
                    let start = offset.next_multiple_of(BLOCK).min(end);
                    naive[start as usize..end as usize].fill(0);
                }
                10 => overlay.flush().unwrap(),
                _ => {
                    overlay.flush().unwrap();
                    overlay = open(&disk, image_bytes);
                }
            }
        }
        assert_eq!(read(&overlay, 0, image_bytes), naive, "{seed}");
        // What is said to be the base's is, and what changed is named.
        let mut base = vec![0; image_bytes as usize];
        Numbered(image_bytes).read_at(0, &mut base).unwrap();
        for gap in overlay.changed().missing(Extent::new(0, image_bytes)) {
            let place = gap.offset as usize..gap.end() as usize;
            assert_eq!(naive[place.clone()], base[place], "{seed}");
        }
    }
}

/// What a sector may have: it was written with a number, or trimmed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Number([u8; 8]),
    Anything,
}

/// A history on a disk, with what was acknowledged when.
struct History {
    disk: CrashDisk,
    image_bytes: u64,
    /// All values that a sector ever got, in order; the first is the base's.
    values: BTreeMap<u64, Vec<Value>>,
    /// Flushes: the disk's position behind each, and which value of each sector it made durable.
    flushes: Vec<(u64, BTreeMap<u64, usize>)>,
}

impl History {
    /// Writes around the border of two sectors of the map.
    fn run(seed: u64, plant: Option<Plant>) -> Self {
        let image_bytes = BLOCKS_PER_SECTOR * BLOCK + 16 * BLOCK;
        let disk = new_disk(image_bytes);
        disk.restart_log();
        let base = Arc::new(Numbered(image_bytes));
        let backing: Arc<dyn BlockDevice> = match plant {
            None => Arc::new(disk.clone()),
            Some(plant) => Arc::new(Planted::new(disk.clone(), plant)),
        };
        let overlay = Overlay::on(backing, base, VERSION).unwrap();
        let middle = BLOCKS_PER_SECTOR * BLOCK / SECTOR;
        let mut random = Random::new(seed);
        let mut history = Self {
            disk,
            image_bytes,
            values: BTreeMap::new(),
            flushes: Vec::new(),
        };
        for sector in middle - 64..middle + 64 {
            history
                .values
                .insert(sector, vec![Value::Number(numbered(sector))]);
        }
        for number in 1..60_u64 {
            let first = random.within(middle - 64..middle + 60);
            let count = random.within(1..20).min(middle + 64 - first);
            match random.below(8) {
                0..=4 => {
                    let number = number.to_le_bytes();
                    let bytes = number.repeat((count * SECTOR / 8) as usize);
                    overlay.write_at(first * SECTOR, &bytes).unwrap();
                    history.note(first..first + count, Value::Number(number));
                }
                5 => {
                    overlay
                        .trim(Extent::new(first * SECTOR, count * SECTOR))
                        .unwrap();
                    let per_block = BLOCK / SECTOR;
                    let start = first.next_multiple_of(per_block);
                    let end = (first + count) / per_block * per_block;
                    history.note(start..end.max(start), Value::Anything);
                }
                _ => {
                    overlay.flush().unwrap();
                    let last = history.values.iter();
                    let last = last
                        .map(|(sector, values)| (*sector, values.len() - 1))
                        .collect();
                    history.flushes.push((history.disk.position(), last));
                }
            }
        }
        history
    }

    fn note(&mut self, sectors: std::ops::Range<u64>, value: Value) {
        for sector in sectors {
            self.values.get_mut(&sector).unwrap().push(value);
        }
    }

    /// How many states were judged, or what is wrong with one.
    fn judge(&self, seed: u64) -> Result<usize, String> {
        let policy = Policy {
            exhaustive_states_max: 16,
            sampled_states: 12,
            ..Policy::new(seed)
        };
        let mut judged = 0;
        for state in self.disk.crash_states(&policy) {
            let flushed = self.flushes.iter().rev();
            let flushed = flushed
                .clone()
                .find(|(position, _)| *position <= state.position);
            let overlay = try_open(&state.disk(), self.image_bytes)
                .map_err(|error| format!("{state}: {error}"))?;
            for (sector, values) in &self.values {
                let durable = flushed.map_or(0, |(_, last)| last[sector]);
                let possible = &values[durable..];
                let found = read(&overlay, sector * SECTOR, SECTOR);
                let number: [u8; 8] = found[..8].try_into().unwrap();
                let is_whole = found == number.repeat(SECTOR as usize / 8);
                let is_possible = possible.contains(&Value::Anything)
                    || is_whole && possible.contains(&Value::Number(number));
                if !is_possible {
                    return Err(format!(
                        "{state}: sector {sector} has {number:?}: {possible:?}"
                    ));
                }
            }
            judged += 1;
        }
        Ok(judged)
    }
}

#[test]
fn whenever_power_is_lost_every_sector_is_as_it_was_flushed_or_written_since() {
    let mut judged = 0;
    for seed in 0..12 {
        match History::run(seed, None).judge(seed) {
            Ok(states) => judged += states,
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    println!("{judged} crash states");
    assert!(judged > 1000, "{judged} are too few");
}

#[test]
fn a_flush_that_is_left_out_is_noticed() {
    for which in [Which::Every(2), Which::Nth(0), Which::Nth(1)] {
        let noticed = (0..12).any(|seed| {
            let history = History::run(seed, Some(Plant::SkipFlush(which)));
            history.judge(seed).is_err()
        });
        assert!(noticed, "{which:?}");
    }
}

#[test]
fn after_a_failed_flush_reads_go_on_and_nothing_else_does() {
    // A flush of the data, a write of the map, and the flush of that.
    for fault in [
        Fault::once(DeviceAction::Flush, 0, Effect::Fails(Failure::InputOutput)),
        Fault::once(DeviceAction::Write, 0, Effect::Fails(Failure::NoSpace)),
        Fault::once(DeviceAction::Flush, 1, Effect::Fails(Failure::InputOutput)),
    ] {
        let disk = new_disk(1 << 20);
        let overlay = open(&disk, 1 << 20);
        overlay.write_at(5000, b"written").unwrap();
        disk.arm(fault);
        overlay.flush().unwrap_err();
        assert!(overlay.is_poisoned());
        overlay.flush().unwrap_err();
        overlay.write_at(0, b"x").unwrap_err();
        overlay.trim(Extent::new(0, 1 << 20)).unwrap_err();
        assert_eq!(read(&overlay, 5000, 7), b"written");
    }
}

#[test]
fn a_write_that_fails_leaves_the_block_the_bases() {
    let disk = new_disk(1 << 20);
    let overlay = open(&disk, 1 << 20);
    let fails = Effect::Fails(Failure::NoSpace);
    disk.arm(Fault::once(DeviceAction::Write, 0, fails));
    overlay.write_at(8192, &[1; 4096]).unwrap_err();
    assert_eq!(read(&overlay, 8192, 8), numbered(16));
    assert!(!overlay.is_poisoned() && overlay.changed().is_empty());
    overlay.write_at(8192, &[1; 4096]).unwrap();
    overlay.flush().unwrap();
    assert_eq!(read(&overlay, 8192, 4096), [1; 4096]);
}

#[test]
fn whichever_bit_of_head_or_map_is_flipped_it_is_noticed() {
    let disk = new_disk(1 << 20);
    let overlay = open(&disk, 1 << 20);
    overlay.write_at(5000, b"written").unwrap();
    overlay.flush().unwrap();
    for offset in (0..64).chain(4096..4096 + 512).chain([100, 4000]) {
        for bit in [0, 7] {
            disk.flip_bit(offset, bit);
            let error = try_open(&disk, 1 << 20).unwrap_err();
            assert!(
                matches!(error, DiskError::Damaged { .. }),
                "{offset}: {error}"
            );
            disk.flip_bit(offset, bit);
        }
    }
    assert_eq!(read(&open(&disk, 1 << 20), 5000, 7), b"written");
}

#[test]
fn an_overlay_of_another_image_or_version_is_refused() {
    let disk = new_disk(1 << 20);
    let over =
        |bytes, version| Overlay::on(Arc::new(disk.clone()), Arc::new(Numbered(bytes)), version);
    over(1 << 20, VERSION).unwrap();
    for (bytes, version) in [(1 << 21, VERSION), (1 << 20, VersionId([6; 32]))] {
        let error = over(bytes, version).unwrap_err();
        let DiskError::Damaged { damage, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(damage, Damage::Foreign);
    }
    let short = CrashDisk::new(4096);
    format(&short, 1 << 20, VERSION).unwrap();
    assert!(matches!(
        try_open(&short, 1 << 20),
        Err(DiskError::Damaged { .. })
    ));
}

#[test]
fn writers_of_parts_of_one_block_do_not_undo_each_other() {
    for round in 0..30 {
        let disk = new_disk(1 << 20);
        let overlay = open(&disk, 1 << 20);
        std::thread::scope(|scope| {
            for part in 0..8_u8 {
                let overlay = &overlay;
                scope.spawn(move || {
                    for block in 0..8 {
                        let offset = block * BLOCK + u64::from(part) * SECTOR;
                        overlay.write_at(offset, &[part + 1; 512]).unwrap();
                        if part == 3 {
                            overlay.flush().unwrap();
                        }
                    }
                });
            }
        });
        for sector in 0..64 {
            let expected = [(sector % 8) as u8 + 1; 512];
            assert_eq!(read(&overlay, sector * SECTOR, SECTOR), expected, "{round}");
        }
    }
}
