//! Crash states against a model that knows nothing of windows, choices or images: it goes through
//! every point of a history and every subset of what was not flushed there, on plain arrays.

use super::*;
use proptest::prelude::*;

/// A disk of two blocks: 16 sectors.
const LEN: usize = 8192;

#[derive(Clone, Debug)]
enum Step {
    Write { offset: usize, len: usize, byte: u8 },
    Trim { offset: usize, len: usize },
    Flush,
    FailedFlush,
    LyingFlush,
}

fn steps(bytes_max: usize) -> impl Strategy<Value = Vec<Step>> {
    // Few places and few bytes: overlaps and equal contents are what can go wrong.
    let place = move || (0..6usize, 1..=bytes_max / 256);
    let step = prop_oneof![
        6 => (place(), 1..4u8).prop_map(|((at, len), byte)| Step::Write {
            offset: at * 256,
            len: len * 256,
            byte,
        }),
        1 => place().prop_map(|(at, len)| Step::Trim { offset: at * 256, len: len * 256 }),
        2 => Just(Step::Flush),
        1 => Just(Step::FailedFlush),
        1 => Just(Step::LyingFlush),
    ];
    prop::collection::vec(step, 0..7)
}

fn run(steps: &[Step]) -> CrashDisk {
    let disk = CrashDisk::new(LEN as u64);
    for step in steps {
        match *step {
            Step::Write { offset, len, byte } => {
                disk.write_at(offset as u64, &vec![byte; len]).unwrap();
            }
            Step::Trim { offset, len } => {
                disk.trim(Extent::new(offset as u64, len as u64)).unwrap();
            }
            Step::Flush => disk.flush().unwrap(),
            Step::FailedFlush => {
                let fails = Effect::Fails(Failure::InputOutput);
                disk.arm(Fault::once(DeviceAction::Flush, 0, fails));
                disk.flush().unwrap_err();
            }
            Step::LyingFlush => {
                disk.arm(Fault::once(DeviceAction::Flush, 0, Effect::Lies));
                disk.flush().unwrap();
            }
        }
    }
    disk
}

/// One sector's change, as the model has it.
#[derive(Clone)]
struct Piece {
    sector: usize,
    bytes: Vec<u8>,
    in_doubt: bool,
}

/// Every content that power loss at any point may leave.
fn brute_force(steps: &[Step]) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    let mut now = vec![0; LEN];
    let mut certain = vec![0; LEN];
    let mut pieces: Vec<Piece> = Vec::new();
    add_subsets(&certain, &pieces, &mut found);
    for step in steps {
        match *step {
            Step::Write { offset, len, byte } => {
                now[offset..offset + len].fill(byte);
                let sectors = offset / 512..(offset + len).div_ceil(512);
                push(&mut pieces, sectors, &now);
            }
            Step::Trim { offset, len } => {
                let sectors = offset.div_ceil(512)..(offset + len) / 512;
                let bytes = (sectors.start * 512)..(sectors.end * 512).max(sectors.start * 512);
                now[bytes].fill(0xa5);
                push(&mut pieces, sectors, &now);
            }
            Step::Flush => {
                let (doubtful, sure): (Vec<_>, Vec<_>) =
                    pieces.drain(..).partition(|piece| piece.in_doubt);
                for piece in &sure {
                    certain[piece.sector * 512..][..512].copy_from_slice(&piece.bytes);
                }
                let rewritten = |piece: &Piece| sure.iter().any(|p| p.sector == piece.sector);
                pieces = doubtful;
                pieces.retain(|piece| !rewritten(piece));
            }
            Step::FailedFlush => pieces.iter_mut().for_each(|piece| piece.in_doubt = true),
            Step::LyingFlush => {}
        }
        add_subsets(&certain, &pieces, &mut found);
    }
    found
}

fn push(pieces: &mut Vec<Piece>, sectors: std::ops::Range<usize>, now: &[u8]) {
    pieces.extend(sectors.map(|sector| Piece {
        sector,
        bytes: now[sector * 512..][..512].to_vec(),
        in_doubt: false,
    }));
}

fn add_subsets(certain: &[u8], pieces: &[Piece], found: &mut BTreeSet<Vec<u8>>) {
    for subset in 0..1u32 << pieces.len() {
        let mut content = certain.to_vec();
        for (_, piece) in pieces
            .iter()
            .enumerate()
            .filter(|(i, _)| subset >> i & 1 == 1)
        {
            content[piece.sector * 512..][..512].copy_from_slice(&piece.bytes);
        }
        found.insert(content);
    }
}

fn piece_count(steps: &[Step]) -> usize {
    let sectors = |step: &Step| match *step {
        Step::Write { offset, len, .. } => (offset + len).div_ceil(512) - offset / 512,
        Step::Trim { offset, len } => ((offset + len) / 512).saturating_sub(offset.div_ceil(512)),
        _ => 0,
    };
    steps.iter().map(sectors).sum()
}

fn content(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; image.len_bytes() as usize];
    image.read_at(0, &mut bytes);
    bytes
}

fn contents(states: CrashStates) -> BTreeSet<Vec<u8>> {
    states.map(|state| content(&state.image)).collect()
}

const EXHAUSTIVE: Policy = Policy {
    seed: 0,
    exhaustive_states_max: u64::MAX,
    sampled_states: 0,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_states_of_a_small_history_are_exactly_the_legal_ones(steps in steps(768)) {
        prop_assume!(piece_count(&steps) <= 12);
        let states = run(&steps).crash_states(&EXHAUSTIVE);
        prop_assert_eq!(contents(states), brute_force(&steps));
    }

    #[test]
    fn a_stretch_is_gone_through_without_repetition(steps in steps(768)) {
        let states = run(&steps).crash_states(&EXHAUSTIVE);
        prop_assume!(states.state_count() <= 4096);
        let count = states.state_count();
        let mut by_position = BTreeSet::new();
        for state in states {
            prop_assert!(by_position.insert((state.position, content(&state.image))), "{}", state);
        }
        prop_assert_eq!(by_position.len() as u64, count);
    }

    #[test]
    fn sampled_states_are_legal_and_the_same_again(steps in steps(768), seed: u64) {
        prop_assume!(piece_count(&steps) <= 12);
        let legal = brute_force(&steps);
        let policy = Policy { seed, exhaustive_states_max: 4, sampled_states: 20 };
        let disk = run(&steps);
        let states = disk.crash_states(&policy);
        for (number, state) in states.clone().enumerate() {
            prop_assert_eq!(state.number, number as u64);
            prop_assert!(legal.contains(&content(&state.image)), "{}", state);
            let again = disk.crash_states(&policy).get(state.number).unwrap();
            prop_assert!(again.image == state.image && again.to_string() == state.to_string());
        }
        prop_assert_eq!(states.clone().count() as u64, states.state_count());
        prop_assert!(states.get(states.state_count()).is_none());
    }

    #[test]
    fn a_log_begun_anew_has_the_states_of_its_end(steps in steps(768), more in steps(512)) {
        let all: Vec<Step> = steps.iter().chain(&more).cloned().collect();
        prop_assume!(piece_count(&all) <= 12);
        let disk = run(&steps);
        disk.restart_log();
        let position = disk.position();
        let end = contents(disk.crash_states(&EXHAUSTIVE));
        // The states at the end of a history are those of the whole one taken at its position.
        let whole = run(&steps).crash_states(&EXHAUSTIVE);
        let at_end = whole.filter(|state| state.position == position);
        prop_assert_eq!(end, at_end.map(|state| content(&state.image)).collect());
        prop_assert_eq!(run(&all).image() , { continue_with(&disk, &more); disk.image() });
    }

    #[test]
    fn what_a_flush_made_durable_is_in_every_later_state(steps in steps(768)) {
        let disk = run(&steps);
        disk.restart_log();
        disk.write_at(4096, b"durable").unwrap();
        disk.flush().unwrap();
        let acknowledged = disk.position();
        continue_with(&disk, &steps);
        let policy = Policy { seed: 3, exhaustive_states_max: 64, sampled_states: 16 };
        for state in disk.crash_states(&policy).filter(|state| state.position >= acknowledged) {
            prop_assert_eq!(&content(&state.image)[4096..4103], b"durable", "{}", state);
        }
    }
}

/// The same steps on a disk that has a history; all places are below 4,096.
fn continue_with(disk: &CrashDisk, steps: &[Step]) {
    for step in steps {
        match *step {
            Step::Write { offset, len, byte } => {
                disk.write_at(offset as u64, &vec![byte; len]).unwrap();
            }
            Step::Trim { offset, len } => {
                disk.trim(Extent::new(offset as u64, len as u64)).unwrap();
            }
            Step::Flush | Step::FailedFlush | Step::LyingFlush => disk.flush().unwrap(),
        }
    }
}

#[test]
fn counts_are_those_of_combinatorics() {
    let disk = CrashDisk::new(1 << 20);
    let count = |disk: &CrashDisk| disk.crash_states(&EXHAUSTIVE).state_count();
    assert_eq!(count(&disk), 1, "nothing written: one state");
    // Ten sectors, each old or new; one of them was written twice.
    disk.write_at(0, &[1; 5120]).unwrap();
    disk.write_at(512, &[2; 512]).unwrap();
    assert_eq!(count(&disk), 512 * 3);
    // The flush's own window is kept; after it, two writes of one sector each: four.
    disk.flush().unwrap();
    assert_eq!(count(&disk), 512 * 3 + 1);
    disk.write_at(8192, &[3; 512]).unwrap();
    disk.write_at(9216, &[4; 512]).unwrap();
    assert_eq!(count(&disk), 512 * 3 + 4);
    // Writing what is there already leaves nothing to choose.
    disk.flush().unwrap();
    disk.write_at(8192, &[3; 512]).unwrap();
    assert_eq!(count(&disk), 512 * 3 + 4 + 1);
}

#[test]
fn a_large_stretch_has_prefixes_subsets_and_torn_writes() {
    let write = |disk: &CrashDisk, n: u64| disk.write_at(n * 8192, &[n as u8 + 1; 8192]).unwrap();
    let policy = Policy {
        seed: 1,
        exhaustive_states_max: 1024,
        sampled_states: 10,
    };
    let few = CrashDisk::new(1 << 20);
    (0..10).for_each(|n| write(&few, n));
    assert_eq!(few.crash_states(&policy).state_count(), 1024 + 3 * 10 + 10);
    let many = CrashDisk::new(1 << 20);
    (0..20).for_each(|n| write(&many, n));
    let states = many.crash_states(&policy);
    assert_eq!(states.state_count(), 21 + 20 + 20 + 3 * 20 + 10);
    // Which writes are whole in each state, and whether one is torn.
    let marks: Vec<(Vec<u64>, bool)> = states.map(|state| shape(&state.image)).collect();
    for end in 0..=20 {
        assert!(marks.contains(&((0..end).collect(), false)), "prefix {end}");
    }
    for one in 0..20 {
        assert!(marks.contains(&(vec![one], false)), "only {one}");
        let others = (0..20).filter(|n| *n != one).collect();
        assert!(marks.contains(&(others, false)), "all but {one}");
        let torn = marks
            .iter()
            .filter(|(whole, torn)| *torn && *whole == (0..one).collect::<Vec<_>>());
        assert!(torn.count() >= 2, "write {one} torn behind all before it");
    }
}

/// The writes of 8 KiB that are whole, and whether another is there in part.
fn shape(image: &Image) -> (Vec<u64>, bool) {
    let bytes = content(image);
    let there = |n: u64| {
        let part = &bytes[n as usize * 8192..][..8192];
        part.iter().filter(|byte| **byte == n as u8 + 1).count()
    };
    let torn = (0..20).any(|n| !matches!(there(n), 0 | 8192));
    ((0..20).filter(|n| there(*n) == 8192).collect(), torn)
}

#[test]
fn a_state_says_what_it_lacks() {
    let disk = CrashDisk::new(1 << 20);
    disk.write_at(0, &[1; 512]).unwrap();
    disk.flush().unwrap();
    disk.write_at(4096, &[2; 1024]).unwrap();
    let texts: Vec<String> = disk
        .crash_states(&EXHAUSTIVE)
        .map(|state| state.to_string())
        .collect();
    assert_eq!(
        texts,
        [
            "crash state 0 of seed 0: power lost after 1 operations; 1 of 1 unflushed changes \
             incomplete: operation 0 at 0 (1 of 1 sectors)",
            "crash state 1 of seed 0: power lost after 1 operations; 0 of 1 unflushed changes \
             incomplete",
            "crash state 2 of seed 0: power lost after 3 operations; 1 of 1 unflushed changes \
             incomplete: operation 2 at 4096 (2 of 2 sectors)",
            "crash state 3 of seed 0: power lost after 3 operations; 1 of 1 unflushed changes \
             incomplete: operation 2 at 4096 (1 of 2 sectors)",
            "crash state 4 of seed 0: power lost after 3 operations; 1 of 1 unflushed changes \
             incomplete: operation 2 at 4096 (1 of 2 sectors)",
            "crash state 5 of seed 0: power lost after 3 operations; 0 of 1 unflushed changes \
             incomplete",
        ]
    );
}

#[test]
fn faults_strike_when_armed_and_leave_what_they_say() {
    let disk = CrashDisk::new(LEN as u64);
    let fails = || Effect::Fails(Failure::NoSpace);
    disk.arm(Fault::once(DeviceAction::Write, 1, fails()));
    disk.write_at(0, &[1; 512]).unwrap();
    let error = disk.write_at(512, &[2; 512]).unwrap_err();
    let DeviceError::Failed {
        action: DeviceAction::Write,
        extent,
        source,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (extent, source.kind()),
        (Extent::new(512, 512), io::ErrorKind::StorageFull)
    );
    disk.write_at(512, &[3; 512]).unwrap();
    disk.arm(Fault::from(DeviceAction::Read, 1, fails()));
    let mut sector = [0; 512];
    disk.read_at(512, &mut sector).unwrap();
    assert_eq!(sector, [3; 512]);
    (0..3).for_each(|_| _ = disk.read_at(0, &mut sector).unwrap_err());
    disk.disarm();
    disk.read_at(0, &mut sector).unwrap();
    let counts = DiskCounts {
        reads: 5,
        writes: 3,
        written_bytes: 1536,
        flushes: 0,
        trims: 0,
    };
    assert_eq!(disk.counts(), counts);
    disk.power_off();
    let position = disk.position();
    disk.write_at(0, &[9; 512]).unwrap_err();
    disk.flush().unwrap_err();
    disk.read_at(0, &mut sector).unwrap_err();
    assert_eq!(disk.position(), position, "nothing happens without power");
}

#[test]
fn a_sector_that_cannot_be_read_can_be_written_and_then_be_read() {
    let disk = CrashDisk::new(LEN as u64);
    disk.write_at(0, &[1; LEN]).unwrap();
    disk.make_unreadable(Extent::new(1000, 100));
    let is_readable = |offset: u64, len: usize| match disk.read_at(offset, &mut vec![0; len]) {
        Ok(()) => true,
        Err(DeviceError::Failed { action, source, .. }) => {
            assert_eq!(action, DeviceAction::Read);
            assert_eq!(source.raw_os_error(), Some(5));
            false
        }
        Err(other) => panic!("{other}"),
    };
    assert!(is_readable(0, 512) && is_readable(1536, 512) && is_readable(700, 0));
    assert!(!is_readable(0, 513) && !is_readable(1535, 1) && !is_readable(0, LEN));
    // A write of a part of a sector is that of the whole sector, as a disk's own cache makes it.
    disk.write_at(512, &[2; 512]).unwrap();
    assert!(is_readable(0, 1024) && !is_readable(1024, 1));
    disk.trim(Extent::new(1024, 512)).unwrap();
    assert!(is_readable(0, LEN));
}

#[test]
fn a_write_that_fails_halfway_changes_some_sectors() {
    let halves = (0..20).filter(|seed| {
        let disk = CrashDisk::new(LEN as u64);
        let effect = Effect::FailsHalfway(Failure::InputOutput, Random::new(*seed));
        disk.arm(Fault::once(DeviceAction::Write, 0, effect));
        disk.write_at(100, &[7; 8000]).unwrap_err();
        let seven = content(&disk.image())
            .iter()
            .filter(|byte| **byte == 7)
            .count();
        assert!(seven <= 8000);
        (1000..7000).contains(&seven)
    });
    assert!(halves.count() >= 15);
}

#[test]
fn a_flipped_bit_is_in_every_state_after_it_and_a_read_flip_in_none() {
    let disk = CrashDisk::new(LEN as u64);
    disk.write_at(0, &[0xff; 512]).unwrap();
    disk.flip_bit(10, 3);
    let flipped = contents(disk.crash_states(&EXHAUSTIVE));
    assert_eq!(
        flipped.iter().map(|bytes| bytes[10]).collect::<Vec<_>>(),
        [0x08, 0xf7]
    );
    let mut random = Random::new(5);
    let (offset, bit) = disk.flip_random_bit(&mut random, Extent::new(600, 100));
    assert!((600..700).contains(&offset) && bit < 8);
    let before = disk.image();
    disk.arm(Fault::from(
        DeviceAction::Read,
        0,
        Effect::FlipsBit(Random::new(1)),
    ));
    let reads: BTreeSet<Vec<u8>> = (0..8)
        .map(|_| {
            let mut bytes = vec![0; LEN];
            disk.read_at(0, &mut bytes).unwrap();
            let pairs = bytes.iter().zip(content(&before));
            let wrong: u32 = pairs.map(|(one, two)| (one ^ two).count_ones()).sum();
            assert_eq!(wrong, 1);
            bytes
        })
        .collect();
    assert!(reads.len() > 4, "not the same bit each time");
    assert_eq!(disk.image(), before);
}

/// A record at one place that points to data at another, as every store has: the data is flushed
/// before the record is written, and the record before the answer.
fn commit(device: &impl BlockDevice, number: u8) {
    device
        .write_at(u64::from(number) * 1024, &[number; 512])
        .unwrap();
    device.flush().unwrap();
    device.write_at(LEN as u64 - 512, &[number; 512]).unwrap();
    device.flush().unwrap();
}

/// Whether some crash state has lost an answer or points to data that is not there.
fn is_caught(plant: Option<Plant>) -> bool {
    let disk = CrashDisk::new(LEN as u64);
    let mut answered = vec![disk.position()];
    let device = Planted::new(
        disk.clone(),
        plant.unwrap_or(Plant::SkipFlush(Which::Nth(99))),
    );
    for number in 1..=5 {
        commit(&device, number);
        answered.push(disk.position());
    }
    assert_eq!(device.mistakes() > 0, plant.is_some(), "{plant:?}");
    let mut seen = vec![0; LEN];
    device.read_at(0, &mut seen).unwrap();
    let states = disk.crash_states(&Policy::new(1));
    states
        .map(|state| (state.position, content(&state.image)))
        .any(|(position, bytes)| {
            let number = bytes[LEN - 512];
            let must = answered.iter().rposition(|at| *at <= position).unwrap();
            let data = number == 0 || bytes[usize::from(number) * 1024..][..512] == [number; 512];
            usize::from(number) < must || !data
        })
}

#[test]
fn planted_mistakes_are_seen_only_by_crash_states() {
    assert!(!is_caught(None));
    for plant in [
        Plant::SkipFlush(Which::Nth(2)),
        Plant::SkipFlush(Which::Nth(5)),
        Plant::SkipFlush(Which::Every(2)),
        Plant::SwapWrites(Which::Nth(2)),
        Plant::SwapWrites(Which::Every(1)),
        Plant::LoseWrite(Which::Nth(4)),
    ] {
        assert!(is_caught(Some(plant)), "{plant:?}");
    }
}

#[test]
fn a_write_held_back_is_seen_by_reads() {
    let disk = CrashDisk::new(LEN as u64);
    let device = Planted::new(disk.clone(), Plant::SwapWrites(Which::Nth(0)));
    device.write_at(100, &[1; 100]).unwrap();
    let mut read = [9; 200];
    device.read_at(50, &mut read).unwrap();
    assert_eq!(
        (&read[..50], &read[50..150], &read[150..]),
        (&[0; 50][..], &[1; 100][..], &[0; 50][..])
    );
    assert_eq!(disk.counts().writes, 0);
    device.write_at(150, &[2; 10]).unwrap();
    assert_eq!(device.mistakes(), 0, "overlapping writes keep their order");
    device.read_at(50, &mut read).unwrap();
    assert_eq!((read[99], read[100], read[110]), (1, 2, 1));
    drop(device);
    assert_eq!(disk.counts().writes, 2);
}

#[test]
fn what_is_not_on_the_disk_is_refused() {
    let disk = CrashDisk::new(LEN as u64);
    let outside = |result: Result<(), DeviceError>| {
        assert!(
            matches!(result, Err(DeviceError::Outside { .. })),
            "{result:?}"
        );
    };
    outside(disk.write_at(LEN as u64 - 1, &[0; 2]));
    outside(disk.read_at(u64::MAX, &mut [0; 2]));
    outside(disk.trim(Extent::new(0, LEN as u64 + 1)));
    assert_eq!(disk.position(), 0);
    disk.write_at(LEN as u64, &[]).unwrap();
    assert_eq!(disk.position(), 0, "nothing written, nothing to lose");
}
