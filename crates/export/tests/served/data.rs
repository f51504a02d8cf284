//! Open files: reading, writing, appending, space, holes, copies.

use crate::common::{Mounted, Served, is_root, name};
use base::{Extent, FsError, Principal};
use bytes::BytesMut;
use export::{Access, AllocateMode, Create, Created, Export, OpenFile, OpenOptions, Worker};

fn create(export: &Export, worker: &Worker, file: &str, append: bool) -> OpenFile {
    let open = OpenOptions {
        append,
        ..OpenOptions::new(Access::ReadWrite)
    };
    let how = Create {
        mode: 0o644,
        umask: 0,
        exclusive: true,
        open,
    };
    let root = export.root().clone();
    let made = export.create(worker, &Principal::root(), &root, &name(file), &how);
    made.expect("a new file").file
}

fn read(file: &OpenFile, offset: u64, len_max: usize) -> Vec<u8> {
    let mut out = BytesMut::new();
    let read = file.read_at(offset, len_max, &mut out).expect("readable");
    assert_eq!(read, out.len());
    out.to_vec()
}

#[test]
fn what_is_written_is_read_up_to_the_end_of_the_file() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker) = (Principal::root(), &served.worker);
    let file = create(&served.export, worker, "f", false);
    let data: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let written = file.write_at(worker, &root, 5, &data).unwrap();
    assert_eq!((written.offset, written.bytes), (5, data.len()));
    assert_eq!(read(&file, 5, data.len()), data);
    assert_eq!(read(&file, 0, 7), [&[0; 5][..], &data[..2]].concat());
    assert_eq!(read(&file, 3_000_000, 1 << 20), data[2_999_995..]);
    assert_eq!(read(&file, 3_000_005, 10), []);
    assert_eq!(read(&file, u64::MAX, 10), []);
    let mut behind = BytesMut::from(&b"head"[..]);
    assert_eq!(file.read_at(5, 3, &mut behind), Ok(3));
    assert_eq!(&behind[..], [&b"head"[..], &data[..3]].concat());
    assert_eq!(
        file.write_at(worker, &root, u64::MAX - 1, b"xyz"),
        Err(FsError::FileTooLarge)
    );
    file.sync(true).unwrap();
    file.sync(false).unwrap();
    served
        .export
        .sync_directory(worker, &root, &served.root())
        .unwrap();
    served.export.sync_all().unwrap();
}

#[test]
fn a_file_is_used_only_for_what_it_was_opened() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker, export) = (Principal::root(), &served.worker, &served.export);
    create(export, worker, "f", false)
        .write_at(worker, &root, 0, b"text")
        .unwrap();
    let handle = served.find("f").handle;
    let open = |access| {
        export
            .open_file(worker, &root, &handle, OpenOptions::new(access))
            .unwrap()
    };
    let (reading, writing) = (open(Access::Read), open(Access::Write));
    assert_eq!(
        reading.write_at(worker, &root, 0, b"x"),
        Err(FsError::BadOpen)
    );
    assert_eq!(
        writing.read_at(0, 4, &mut BytesMut::new()),
        Err(FsError::BadOpen)
    );
    assert_eq!(reading.truncate(worker, &root, 0), Err(FsError::Invalid));
    assert_eq!(read(&reading, 0, 10), b"text");
}

#[test]
fn only_who_may_execute_opens_for_executing() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (worker, export) = (&served.worker, &served.export);
    let user = Principal::alone(2001, 2001);
    create(export, worker, "tool", false)
        .write_at(worker, &Principal::root(), 0, b"x")
        .unwrap();
    let handle = served.find("tool").handle;
    let chmod = |mode| {
        let change = base::AttributeChange {
            mode: Some(mode),
            ..Default::default()
        };
        export
            .set_attributes(worker, &Principal::root(), &handle, &change, None)
            .unwrap();
    };
    let open = |access| {
        export
            .open_file(worker, &user, &handle, OpenOptions::new(access))
            .map(|f| read(&f, 0, 9))
    };
    chmod(0o711);
    assert_eq!(open(Access::Read), Err(FsError::AccessDenied));
    assert_eq!(open(Access::Execute), Ok(b"x".to_vec()));
    // The right was raised for one call only.
    assert_eq!(open(Access::Read), Err(FsError::AccessDenied));
    chmod(0o644);
    assert_eq!(open(Access::Execute), Err(FsError::AccessDenied));
}

/// Appends of each thread: so many that two of them meet between a write and the question where it
/// ended.
const LINES: usize = 10_000;

#[test]
fn appends_from_all_sides_land_where_they_say() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let shared = create(&served.export, &served.worker, "log", true);
    let handle = served.find("log").handle;
    let (export, path) = (&served.export, served.path.join("log"));
    // Two threads share an open file; two have one each, of which one is open for appending.
    let open = |append| {
        let options = OpenOptions {
            append,
            ..OpenOptions::new(Access::Write)
        };
        export
            .open_file(&served.worker, &Principal::root(), &handle, options)
            .unwrap()
    };
    let (own, other) = (open(true), open(false));
    let landed = std::thread::scope(|scope| {
        let workers: Vec<_> = [&shared, &shared, &own, &other]
            .into_iter()
            .enumerate()
            .map(|(who, file)| scope.spawn(move || append_lines(file, who)))
            .collect();
        // A local process appends, too.
        scope.spawn(move || {
            use std::io::Write;
            let mut log = std::fs::OpenOptions::new().append(true).open(path).unwrap();
            (0..LINES).for_each(|_| log.write_all(b"local").unwrap());
        });
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect::<Vec<_>>()
    });
    let contents = std::fs::read(served.path.join("log")).unwrap();
    assert_eq!(
        contents.len(),
        LINES * 5 + landed.iter().map(|(_, line)| line.len()).sum::<usize>()
    );
    for (offset, line) in landed {
        assert_eq!(&contents[offset as usize..][..line.len()], line);
    }
}

fn append_lines(file: &OpenFile, who: usize) -> Vec<(u64, Vec<u8>)> {
    let (root, worker) = (Principal::root(), Worker::new().unwrap());
    let lines = (0..LINES).map(|number| {
        let line = format!("{who}: line {number}\n").into_bytes();
        let written = file.append(&worker, &root, &line).unwrap();
        assert_eq!(written.bytes, line.len());
        (written.offset, line)
    });
    lines.collect()
}

#[test]
fn space_is_reserved_punched_and_zeroed() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker) = (Principal::root(), &served.worker);
    let file = create(&served.export, worker, "f", false);
    let allocate = |mode, offset, len| {
        file.allocate(worker, &root, mode, Extent::new(offset, len))
            .unwrap()
    };
    let size = || file.attributes().unwrap().size;
    file.write_at(worker, &root, 0, &[9; 64 << 10]).unwrap();
    allocate(AllocateMode::KeepSize, 0, 1 << 20);
    assert_eq!(size(), 64 << 10);
    allocate(AllocateMode::Extend, 0, 1 << 20);
    assert_eq!(size(), 1 << 20);
    assert!(file.attributes().unwrap().blocks >= 2048);
    allocate(AllocateMode::PunchHole, 4096, 8192);
    assert_eq!(
        read(&file, 0, 16384),
        [vec![9; 4096], vec![0; 8192], vec![9; 4096]].concat()
    );
    assert_eq!(
        (file.seek_hole(0), file.seek_data(4096)),
        (Ok(4096), Ok(12288))
    );
    file.sync(false).unwrap();
    allocate(AllocateMode::ZeroKeepSize, 0, 4096);
    allocate(AllocateMode::Zero, 1 << 20, 4096);
    assert_eq!(
        (read(&file, 0, 4096), size()),
        (vec![0; 4096], (1 << 20) + 4096)
    );
    file.truncate(worker, &root, 64 << 10).unwrap();
    assert_eq!(file.seek_data(64 << 10), Err(FsError::NoSuchAddress));
    // Searching for holes does not disturb where appended bytes are said to land.
    let landed = file.append(worker, &root, b"end").unwrap();
    assert_eq!(landed.offset, 64 << 10);
}

#[test]
fn a_copy_within_the_export_goes_on_piece_by_piece() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker) = (Principal::root(), &served.worker);
    let source = create(&served.export, worker, "source", false);
    let target = create(&served.export, worker, "target", false);
    let data: Vec<u8> = (0..20u32 << 20).map(|n| (n / 4096) as u8).collect();
    source.write_at(worker, &root, 0, &data).unwrap();
    let (mut done, mut calls) = (0, 0);
    loop {
        let from = Extent::new(done, u64::MAX);
        match source
            .copy_range(worker, &root, from, &target, done + 3)
            .unwrap()
        {
            0 => break,
            copied => {
                assert!(copied <= base::limits::COPY_BYTES_MAX);
                done += copied;
                calls += 1;
            }
        }
    }
    assert_eq!((done, calls >= 2), (data.len() as u64, true));
    assert!(read(&target, 3, data.len()) == data);
    let overlap = source.copy_range(worker, &root, Extent::new(0, 8192), &source, 4096);
    assert_eq!(overlap, Err(FsError::Invalid));
}

#[test]
fn a_copy_between_exports_falls_back_to_reading_and_writing() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(8 << 20) else {
        return;
    };
    let served = Served::temporary();
    let other = export::Export::open(&mounted.path, &crate::common::options()).unwrap();
    let (root, worker) = (Principal::root(), &served.worker);
    let source = create(&served.export, worker, "source", false);
    let target = create(&other, worker, "target", false);
    source.write_at(worker, &root, 0, &[5; 100_000]).unwrap();
    let from = Extent::new(10, 200_000);
    assert_eq!(
        source.copy_range(worker, &root, from, &target, 0),
        Ok(99_990)
    );
    assert_eq!(read(&target, 0, 100_000), vec![5; 99_990]);
}

#[test]
fn an_open_that_may_create_tells_whether_it_did() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    let (root, worker, export) = (Principal::root(), &served.worker, &served.export);
    let open = OpenOptions {
        truncate: true,
        ..OpenOptions::new(Access::Write)
    };
    let how = Create {
        mode: 0o600,
        umask: 0,
        exclusive: false,
        open,
    };
    let top = served.root();
    let create = |file: &str| export.create(worker, &root, &top, &name(file), &how);
    let Created {
        node,
        file,
        created,
    } = create("f").unwrap();
    assert!(created && node.attributes.size == 0);
    file.write_at(worker, &root, 0, b"text").unwrap();
    let again = create("f").unwrap();
    assert!(!again.created && again.node.handle == node.handle);
    assert_eq!(
        (again.node.attributes.size, file.attributes().unwrap().size),
        (0, 0)
    );
    // Neither a pipe without reader nor a device may hold a worker up or be touched.
    crate::common::shell(&format!(
        "cd {} && mkfifo pipe && mknod device c 1 3 && ln -s f link && mkdir directory",
        served.path.display()
    ));
    let refused = ["pipe", "device", "link", "directory"].map(|file| create(file).err());
    let expected = [
        FsError::NoSuchAddress,
        FsError::NoSuchAddress,
        FsError::Loop,
        FsError::IsDirectory,
    ];
    assert_eq!(refused, expected.map(Some));
}
