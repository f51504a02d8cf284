//! Devices and queues on real files, on a loop device where that is allowed, and on a simulated
//! disk.

use super::*;
use base::{BlockDevice, DeviceAction, DeviceError, Extent};
use proptest::prelude::*;
use sim::{CrashDisk, Effect, Failure, Fault, Policy};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;

const MIB: u64 = 1 << 20;

fn go(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn create(path: &Path, len_bytes: u64) -> FileDevice {
    FileDevice::create(path, len_bytes, DeviceOptions::default(), &mut go).unwrap()
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

#[test]
fn a_new_file_is_zeros_that_are_written_and_locked() {
    let directory = scratch();
    let path = directory.path().join("device");
    let mut steps = Vec::new();
    let device = FileDevice::create(
        &path,
        9 * MIB,
        DeviceOptions::default(),
        &mut |done, all| {
            steps.push((done, all));
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    assert_eq!(
        steps,
        [(4 * MIB, 9 * MIB), (8 * MIB, 9 * MIB), (9 * MIB, 9 * MIB)]
    );
    assert_eq!(device.len_bytes(), 9 * MIB);
    let mut bytes = vec![1; 9 * MIB as usize];
    device.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    let used = std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
    assert!(used >= 9 * MIB, "{used} bytes are allocated");
    for read_only in [false, true] {
        let options = DeviceOptions {
            read_only,
            ..DeviceOptions::default()
        };
        let error = FileDevice::open(&path, options).unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    }
    let error = FileDevice::create(&path, MIB, DeviceOptions::default(), &mut go).unwrap_err();
    assert!(matches!(error, OpenError::Exists { .. }), "{error}");
    drop(device);
    let read_only = DeviceOptions {
        read_only: true,
        ..DeviceOptions::default()
    };
    let one = FileDevice::open(&path, read_only).unwrap();
    let two = FileDevice::open(&path, read_only).unwrap();
    assert!(two.describe().ends_with("read-only"), "{}", two.describe());
    assert!(matches!(one.write_at(0, &[1]), Err(DeviceError::ReadOnly)));
    assert!(matches!(
        one.trim(Extent::new(0, MIB)),
        Err(DeviceError::ReadOnly)
    ));
    let error = FileDevice::open(&path, DeviceOptions::default()).unwrap_err();
    assert!(
        matches!(error, OpenError::InUse { .. }),
        "a reader keeps writers out"
    );
}

#[test]
fn opening_waits_a_moment_for_who_goes_away() {
    let directory = scratch();
    let path = directory.path().join("device");
    let mut go = |_, _| ControlFlow::Continue(());
    let device = FileDevice::create(&path, MIB, DeviceOptions::default(), &mut go).unwrap();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| FileDevice::open(&path, DeviceOptions::default()).map(drop));
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(device);
        opening.join().unwrap().unwrap();
    });
}

#[test]
fn what_cannot_be_a_device_is_refused_and_leaves_nothing() {
    let directory = scratch();
    let path = directory.path().join("device");
    let options = DeviceOptions::default();
    for len_bytes in [0, 4095, 4097] {
        let error = FileDevice::create(&path, len_bytes, options, &mut go).unwrap_err();
        assert!(matches!(error, OpenError::Length { .. }), "{error}");
    }
    let mut stop = |done, _| match done > 4 * MIB {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let error = FileDevice::create(&path, 64 * MIB, options, &mut stop).unwrap_err();
    assert!(matches!(error, OpenError::Cancelled), "{error}");
    let too_long = FileDevice::create(&path, 1 << 60, options, &mut go).unwrap_err();
    assert!(matches!(too_long, OpenError::System { .. }), "{too_long}");
    let error = FileDevice::open(directory.path(), options).unwrap_err();
    assert!(matches!(error, OpenError::NotADevice { .. }), "{error}");
    let error = FileDevice::open(&path, options).unwrap_err();
    assert!(matches!(error, OpenError::System { .. }), "{error}");
    let left: Vec<_> = directory.path().read_dir().unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_file_grows_by_written_zeros() {
    let directory = scratch();
    let path = directory.path().join("device");
    let device = create(&path, MIB);
    device.write_at(MIB - 4096, &pattern(4096, 1)).unwrap();
    assert!(matches!(
        device.write_at(MIB, &[1]),
        Err(DeviceError::Outside { .. })
    ));
    assert_eq!(device.grow(3 * MIB, &mut go).unwrap(), 3 * MIB);
    assert!(matches!(
        device.grow(MIB, &mut go),
        Err(OpenError::Length { .. })
    ));
    device.write_at(3 * MIB - 1, &[7]).unwrap();
    drop(device);
    let device = FileDevice::open(&path, DeviceOptions::default()).unwrap();
    let mut bytes = vec![1; 2 * MIB as usize + 4096];
    device.read_at(MIB - 4096, &mut bytes).unwrap();
    assert_eq!(bytes[..4096], pattern(4096, 1));
    assert!(bytes[4096..bytes.len() - 1].iter().all(|byte| *byte == 0) && bytes.ends_with(&[7]));
}

#[test]
fn trimming_a_file_keeps_its_space_and_its_bytes() {
    let directory = scratch();
    let path = directory.path().join("device");
    let options = DeviceOptions {
        discard: true,
        ..DeviceOptions::default()
    };
    let device = FileDevice::create(&path, MIB, options, &mut go).unwrap();
    device.write_at(0, &pattern(8192, 3)).unwrap();
    device.trim(Extent::new(0, MIB)).unwrap();
    let used = std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
    assert!(used >= MIB);
    assert!(matches!(
        device.trim(Extent::new(0, MIB + 1)),
        Err(DeviceError::Outside { .. })
    ));
}

#[test]
fn a_memory_file_system_works_and_says_how() {
    let shared_memory = Path::new("/dev/shm");
    if !shared_memory.is_dir() {
        return;
    }
    let directory = tempfile::tempdir_in(shared_memory).unwrap();
    let device = create(&directory.path().join("device"), MIB);
    check_like_an_array(&device, &[(1, 5000, 1), (4095, 2, 2), (0, 4096, 3)]);
    let cached = DeviceOptions {
        through_cache: true,
        ..DeviceOptions::default()
    };
    let other = directory.path().join("other");
    let device = FileDevice::create(&other, MIB, cached, &mut go).unwrap();
    assert_eq!(device.describe(), "file, through the page cache as asked");
    check_like_an_array(&device, &[(1, 5000, 1), (4095, 2, 2), (0, 4096, 3)]);
}

/// Writes (offset, length, seed) and compares with an array.
fn check_like_an_array(device: &dyn BlockDevice, writes: &[(usize, usize, u8)]) {
    let len = device.len_bytes() as usize;
    let mut array = vec![0; len];
    device.read_at(0, &mut array).unwrap();
    for &(offset, bytes, seed) in writes {
        let end = len.min(offset + bytes);
        let written = pattern(end - offset, seed);
        device.write_at(offset as u64, &written).unwrap();
        array[offset..end].copy_from_slice(&written);
        let around = offset.saturating_sub(100)..len.min(end + 100);
        let mut read = vec![0; around.len()];
        device.read_at(around.start as u64, &mut read).unwrap();
        assert_eq!(read, array[around]);
    }
    device.flush().unwrap();
    let mut read = vec![0; len];
    device.read_at(0, &mut read).unwrap();
    assert!(read == array);
}

#[test]
fn unaligned_writes_agree_with_an_array() {
    let directory = scratch();
    let device = create(&directory.path().join("device"), 64 << 10);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(64));
    let writes = prop::collection::vec((0..65536usize, 1..20000usize, any::<u8>()), 1..12);
    runner
        .run(&writes, |writes| {
            check_like_an_array(&device, &writes);
            Ok(())
        })
        .unwrap();
}

#[test]
fn writes_of_parts_of_a_block_from_many_threads_do_not_undo_each_other() {
    let directory = scratch();
    let device = create(&directory.path().join("device"), 4096);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..50u8 {
                    device.write_at(thread * 512, &[round; 512]).unwrap();
                }
            });
        }
    });
    let mut bytes = [0; 4096];
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [49; 4096]);
}

#[test]
fn offsets_beyond_every_device_are_refused() {
    let directory = scratch();
    let device = create(&directory.path().join("device"), MIB);
    let outside = |result: Result<(), DeviceError>| {
        assert!(
            matches!(result, Err(DeviceError::Outside { .. })),
            "{result:?}"
        );
    };
    outside(device.read_at(u64::MAX, &mut [0; 2]));
    outside(device.write_at(u64::MAX - 1, &[0; 4096]));
    outside(device.write_at(MIB - 1, &[0; 2]));
}

/// Both queues on the same kind of file, where the kernel has io_uring.
fn queues(directory: &Path) -> Vec<(Box<dyn Queue>, Arc<FileDevice>)> {
    let device = |name| Arc::new(create(&directory.join(name), 32 * MIB));
    let (one, two) = (device("in-order"), device("ring"));
    let mut queues: Vec<(Box<dyn Queue>, _)> =
        vec![(Box::new(InOrder::new(Arc::clone(&one)).unwrap()), one)];
    match Ring::new(Arc::clone(&two), 8 * MIB) {
        Ok(ring) => queues.push((Box::new(ring), two)),
        Err(error) => println!("no io_uring here: {error}"),
    }
    queues
}

#[test]
fn what_queues_write_queues_read() {
    let directory = scratch();
    for (queue, _) in queues(directory.path()) {
        let write = |n: u64| Request::Write {
            offset: n * MIB,
            buffer: pattern(MIB as usize, n as u8)[..].into(),
        };
        let started: Vec<_> = (0..32).map(|n| queue.start(write(n)).unwrap()).collect();
        let flush = queue.start(Request::Flush).unwrap();
        started
            .into_iter()
            .for_each(|pending| _ = pending.wait().unwrap());
        flush.wait().unwrap();
        let read = |n| Request::Read {
            offset: n * MIB,
            buffer: AlignedBuffer::new(MIB as usize),
        };
        let started: Vec<_> = (0..32).map(|n| queue.start(read(n)).unwrap()).collect();
        for (n, pending) in started.into_iter().enumerate() {
            let buffer = pending.wait().unwrap().into_buffer().unwrap();
            assert!(buffer[..] == pattern(MIB as usize, n as u8), "megabyte {n}");
        }
        assert!(queue.stop());
        let error = queue.start(Request::Flush).unwrap_err();
        assert!(matches!(
            error,
            DeviceError::Failed {
                action: DeviceAction::Flush,
                ..
            }
        ));
    }
}

#[test]
fn a_queue_refuses_what_it_could_not_do_whole() {
    let directory = scratch();
    for (queue, device) in queues(directory.path()) {
        let read = |offset, len| {
            let request = Request::Read {
                offset,
                buffer: AlignedBuffer::new(len),
            };
            queue.start(request).map(drop)
        };
        let len = device.len_bytes();
        assert!(matches!(read(len, 4096), Err(DeviceError::Outside { .. })));
        assert!(matches!(
            read(u64::MAX - 4095, 8192),
            Err(DeviceError::Outside { .. })
        ));
        for (offset, bytes) in [(512, 4096), (0, 512), (0, 0)] {
            let error = read(offset, bytes).unwrap_err();
            let DeviceError::Failed { source, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(
                source.kind(),
                io::ErrorKind::InvalidInput,
                "{offset} {bytes}"
            );
        }
    }
}

#[test]
fn a_flush_is_answered_after_every_write_before_it() {
    let directory = scratch();
    for (queue, _) in queues(directory.path()) {
        let (sender, answers) = mpsc::channel();
        let submit = |request: Request, name: u64| {
            let sender = sender.clone();
            let tell = Box::new(move |done: Done| {
                done.result.unwrap();
                sender.send(name).unwrap();
            });
            queue.submit(request, tell).unwrap();
        };
        for round in 0..40 {
            for n in 0..4 {
                let buffer = AlignedBuffer::new(256 << 10);
                submit(
                    Request::Write {
                        offset: n * MIB,
                        buffer,
                    },
                    round * 10 + n,
                );
            }
            submit(Request::Flush, round * 10 + 9);
        }
        assert!(queue.stop(), "everything taken is answered");
        drop(sender);
        let answers: Vec<u64> = answers.iter().collect();
        assert_eq!(answers.len(), 200);
        let position = |name| answers.iter().position(|answer| *answer == name).unwrap();
        for round in 0..40 {
            for n in 0..4 {
                assert!(
                    position(round * 10 + n) < position(round * 10 + 9),
                    "{answers:?}"
                );
            }
        }
    }
}

#[test]
fn bytes_under_way_are_bounded_and_many_threads_are_served() {
    let directory = scratch();
    for (queue, _) in queues(directory.path()) {
        let under_way = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let highest = std::sync::atomic::AtomicU64::new(0);
        let order = std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (queue, under_way, highest) = (&queue, &under_way, &highest);
                scope.spawn(move || {
                    for n in 0..50 {
                        let buffer = AlignedBuffer::new(1 << 20);
                        let offset = (thread * 8 + n % 8) * MIB;
                        let count = Arc::clone(under_way);
                        let less = Box::new(move |_: Done| _ = count.fetch_sub(1, order));
                        highest.fetch_max(under_way.fetch_add(1, order) + 1, order);
                        queue
                            .submit(Request::Read { offset, buffer }, less)
                            .unwrap();
                    }
                });
            }
        });
        assert!(queue.stop());
        assert_eq!(under_way.load(order), 0);
        // What is under way, and what each thread waits with. Both queues have room for at most 16.
        assert!((1..=16 + 4).contains(&highest.load(order)), "{highest:?}");
    }
}

#[test]
fn a_completion_that_panics_harms_nobody() {
    let directory = scratch();
    for (queue, _) in queues(directory.path()) {
        queue
            .submit(Request::Flush, Box::new(|_| panic!("on purpose")))
            .unwrap();
        queue.start(Request::Flush).unwrap().wait().unwrap();
    }
}

#[test]
fn a_stopped_queue_gives_the_device_back() {
    for _ in 0..20 {
        let directory = scratch();
        for (queue, device) in queues(directory.path()) {
            let path = device.path().to_owned();
            queue.start(Request::Flush).unwrap().wait().unwrap();
            drop((queue, device));
            FileDevice::open(&path, DeviceOptions::default()).unwrap();
        }
    }
}

#[test]
fn errors_of_a_device_reach_their_request_and_no_other() {
    let disk = CrashDisk::new(MIB);
    let queue = InOrder::new(Arc::new(disk.clone())).unwrap();
    disk.arm(Fault::once(
        DeviceAction::Write,
        1,
        Effect::Fails(Failure::NoSpace),
    ));
    let write = |n: u64| {
        let buffer = pattern(4096, n as u8)[..].into();
        queue
            .start(Request::Write {
                offset: n * 4096,
                buffer,
            })
            .unwrap()
    };
    let outcomes: Vec<_> = [0, 1, 2]
        .map(write)
        .into_iter()
        .map(Pending::wait)
        .collect();
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
    let Err(DeviceError::Failed { extent, source, .. }) = &outcomes[1] else {
        panic!()
    };
    assert_eq!(
        (*extent, source.kind()),
        (Extent::new(4096, 4096), io::ErrorKind::StorageFull)
    );
}

#[test]
fn what_a_queue_has_flushed_survives_every_crash() {
    let disk = CrashDisk::new(MIB);
    let queue = InOrder::new(Arc::new(disk.clone())).unwrap();
    let mut promised = Vec::new();
    for round in 1..=6u8 {
        for n in 0..2 {
            let offset = (u64::from(round) * 2 + n) * 4096;
            let buffer = AlignedBuffer::from(&[round; 4096][..]);
            drop(queue.start(Request::Write { offset, buffer }).unwrap());
        }
        queue.start(Request::Flush).unwrap().wait().unwrap();
        promised.push((disk.position(), round));
    }
    let mut count = 0;
    for state in disk.crash_states(&Policy::new(4)) {
        count += 1;
        for (_, round) in promised
            .iter()
            .filter(|(position, _)| *position <= state.position)
        {
            let mut bytes = [0; 8192];
            state.image.read_at(u64::from(*round) * 8192, &mut bytes);
            assert_eq!(bytes, [*round; 8192], "{state}");
        }
    }
    assert!(count > 100, "{count} states");
}

#[test]
fn a_failed_flush_stays_failed() {
    let directory = scratch();
    let device = create(&directory.path().join("device"), MIB);
    device.flush().unwrap();
    device.settle_flush(Err(rustix::io::Errno::IO)).unwrap_err();
    let DeviceError::Failed { source, .. } = device.flush().unwrap_err() else {
        panic!()
    };
    assert_eq!(source.to_string(), "an earlier flush has failed");
    device.write_at(0, &[1]).unwrap();
}

/// A loop device over a file. It is detached as soon as it is open here, which makes it vanish with
/// its last user, also if that is killed.
struct Loop {
    node: PathBuf,
    _open: std::fs::File,
}

impl Loop {
    /// `None` where that is not allowed.
    fn over(file: &Path) -> Option<Self> {
        let attach = ["--find", "--show", "--direct-io=on"];
        let output = Command::new("losetup")
            .args(attach)
            .arg(file)
            .output()
            .ok()?;
        let node = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        if !output.status.success() {
            return None;
        }
        let open = std::fs::File::open(&node);
        let detached = Command::new("losetup").arg("--detach").arg(&node).status();
        assert!(detached.unwrap().success());
        Some(Self {
            node,
            _open: open.unwrap(),
        })
    }
}

#[test]
fn a_file_without_a_name_ends_with_its_device_and_gets_none_that_is_taken() {
    let directory = scratch();
    let path = directory.path().join("device");
    let options = DeviceOptions::default();
    let unnamed = || FileDevice::create_unnamed(&path, MIB, options, &mut go).unwrap();
    drop(unnamed());
    let left: Vec<_> = directory.path().read_dir().unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let device = unnamed();
    device.write_at(5, b"kept").unwrap();
    assert!(!path.exists());
    std::fs::write(&path, b"another").unwrap();
    let taken = device.give_name().unwrap_err();
    assert!(matches!(taken, OpenError::Exists { .. }), "{taken}");
    std::fs::remove_file(&path).unwrap();
    for _ in 0..2 {
        device.give_name().unwrap();
    }
    drop(device);
    assert_eq!(std::fs::read(&path).unwrap()[5..9], *b"kept");
    let left = directory.path().read_dir().unwrap().count();
    assert_eq!(left, 1);
}

/// As on a file system where files must have names.
#[test]
fn what_somebody_left_who_was_killed_is_removed_by_the_next_try() {
    let directory = scratch();
    let path = directory.path().join("device");
    let name = open::beside(&path);
    std::fs::write(&name, b"left").unwrap();
    let file = open::make_beside(&path, &name).unwrap();
    assert_eq!(name.metadata().unwrap().len(), 0);
    let busy = open::make_beside(&path, &name).unwrap_err();
    assert!(matches!(busy, OpenError::InUse { .. }), "{busy}");
    let options = DeviceOptions::default();
    let device = FileDevice::new(file, path.clone(), false, 0, options);
    let device = device.with_name(open::Name::Beside(name.clone()));
    device.give_name().unwrap();
    assert!(path.exists() && !name.exists());
    drop(device);
    assert!(path.exists());
    let file = open::make_beside(&path, &name).unwrap();
    let device = FileDevice::new(file, path, false, 0, options);
    drop(device.with_name(open::Name::Beside(name.clone())));
    assert!(!name.exists());
}

/// Set for the process that is killed: the file that it makes.
const VICTIM: &str = "AZEKURA_TEST_DEVICE";

#[test]
fn who_is_killed_while_making_a_file_leaves_nothing() {
    if let Ok(path) = std::env::var(VICTIM) {
        let mut stop = |_, _| {
            println!("begun");
            std::thread::sleep(std::time::Duration::from_secs(60));
            ControlFlow::Continue(())
        };
        let made = FileDevice::create(path.as_ref(), 8 * MIB, DeviceOptions::default(), &mut stop);
        panic!("to be killed: {made:?}");
    }
    let directory = scratch();
    let path = directory.path().join("device");
    let name = "device::tests::who_is_killed_while_making_a_file_leaves_nothing";
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VICTIM, &path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = io::BufReader::new(victim.stdout.take().unwrap());
    let mut lines = io::BufRead::lines(output);
    assert!(
        lines.any(|line| line.unwrap().contains("begun")),
        "it writes"
    );
    victim.kill().unwrap();
    assert!(!victim.wait().unwrap().success());
    let left: Vec<_> = directory.path().read_dir().unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    drop(create(&path, MIB));
}

#[test]
fn a_file_stays_as_it_is_if_there_is_no_space_to_make_it_longer() {
    let directory = scratch();
    let path = directory.path().join("file");
    let device = create(&path, MIB);
    let (before, huge) = (path.metadata().unwrap(), 1 << 50);
    for error in [
        device.ensure_room(huge).unwrap_err(),
        device.grow(huge, &mut go).unwrap_err(),
    ] {
        assert!(matches!(error, OpenError::System { .. }), "{error}");
    }
    let after = path.metadata().unwrap();
    let blocks = std::os::unix::fs::MetadataExt::blocks;
    assert_eq!((after.len(), blocks(&after)), (MIB, blocks(&before)));
    assert_eq!(device.len_bytes(), MIB);
    device.ensure_room(2 * MIB).unwrap();
}

#[test]
fn a_block_device_is_measured_claimed_and_used() {
    let directory = scratch();
    let path = directory.path().join("backing");
    // Not a whole number of blocks: the last one is left alone.
    drop(create(&path, 8 * MIB));
    std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .set_len(8 * MIB + 512)
        .unwrap();
    let Some(disk) = Loop::over(&path) else {
        println!("no loop devices here");
        return;
    };
    let device = FileDevice::open(&disk.node, DeviceOptions::default()).unwrap();
    assert_eq!(
        (device.len_bytes(), device.is_block_device()),
        (8 * MIB, true)
    );
    let error = FileDevice::open(&disk.node, DeviceOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    check_like_an_array(
        &device,
        &[(1, 5000, 1), (4095, 2, 2), (0, 4096, 3), (100_000, 9999, 4)],
    );
    // Trim is off: nothing is given back to the file system below.
    device.trim(Extent::new(0, 8 * MIB)).unwrap();
    let mut first = [0; 4096];
    device.read_at(0, &mut first).unwrap();
    assert_eq!(first[..], pattern(4096, 3));
    let device = Arc::new(device);
    if let Ok(ring) = Ring::new(Arc::clone(&device), 8 * MIB) {
        let buffer = pattern(1 << 20, 9)[..].into();
        ring.start(Request::Write {
            offset: MIB,
            buffer,
        })
        .unwrap()
        .wait()
        .unwrap();
        ring.start(Request::Flush).unwrap().wait().unwrap();
        let buffer = AlignedBuffer::new(1 << 20);
        let read = ring
            .start(Request::Read {
                offset: MIB,
                buffer,
            })
            .unwrap()
            .wait()
            .unwrap();
        assert!(read.into_buffer().unwrap()[..] == pattern(1 << 20, 9));
    }
    drop(device);
    let options = DeviceOptions {
        discard: true,
        ..DeviceOptions::default()
    };
    let device = FileDevice::open(&disk.node, options).unwrap();
    assert!(
        device.describe().contains("discards"),
        "{}",
        device.describe()
    );
    device.trim(Extent::new(0, 4096)).unwrap();
    drop(device);
}
