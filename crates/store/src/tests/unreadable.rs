//! Sectors that the device cannot read: a check and a repair go on, say which, and cost no more
//! than what lay there.

use super::world::{self, Model, id};
use crate::layout::{Layout, PAGE_BYTES};
use crate::{Core, Damage, Examination, Finding, Kind, Mend, Report, StoreError, Terms};
use base::{BlockDevice, DeviceError, Extent, Time};
use sim::{CrashDisk, Image};
use std::sync::Arc;

const NOW: Time = Time::from_secs(1);

/// A disk with objects of all kinds, and what they have. Both superblocks have the same records.
fn history() -> (Image, Layout, Model) {
    history_on(&world::formatted(5 << 20))
}

fn history_on(disk: &Arc<CrashDisk>) -> (Image, Layout, Model) {
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let mut model = Model::new();
    for number in 0..40 {
        let len = if number % 10 == 0 { 200_000 } else { 3_000 };
        let data = world::pattern(number, 0, len);
        store.create(NOW, id(number), Terms::Default).unwrap();
        store.write(NOW, id(number), 0, &data).unwrap();
        let set =
            |t: &mut crate::Transaction| t.set_attribute(id(number), b"name", Some(&[number; 700]));
        store.transact(NOW, set).unwrap();
        model.insert(id(number), data);
    }
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    (disk.image(), *store.layout(), model)
}

fn examine(disk: &Arc<CrashDisk>, repair: bool) -> Result<Report, StoreError> {
    let device: Arc<dyn BlockDevice> = disk.clone();
    let examination = Examination {
        options: world::options(),
        data: true,
        repair,
        give_up_log: false,
    };
    examination.run(&device, &mut |_, _| {})
}

fn is_of_device(finding: &Finding) -> bool {
    finding.kind == Kind::Device
}

/// How many objects can be read; none has other bytes.
fn readable(disk: &Arc<CrashDisk>, model: &Model) -> usize {
    let store = Core::open(disk.clone(), world::options()).unwrap();
    let is_readable = |(object, bytes): (_, &Vec<u8>)| {
        let mut found = vec![0; bytes.len() + 1];
        match store.read(NOW, object, 0, &mut found) {
            Ok(len) => {
                assert!(found[..len] == bytes[..], "{object} has other bytes");
                true
            }
            Err(StoreError::Damaged(_) | StoreError::Device(DeviceError::Failed { .. })) => false,
            Err(other) => panic!("{object}: {other}"),
        }
    };
    let each = model.iter().map(|(object, bytes)| (*object, bytes));
    each.filter(|one| is_readable(*one)).count()
}

#[test]
fn any_one_block_may_be_unreadable() {
    let (image, layout, model) = history();
    let (mut told, mut cost, mut refused) = (0, 0, 0);
    // The first sector of each, or one behind it.
    let blocks = (0..layout.device_bytes).step_by(PAGE_BYTES as usize);
    for (at, within) in blocks.flat_map(|at| [(at, 0), (at, 512)]) {
        let disk = Arc::new(CrashDisk::from_image(image.clone()));
        disk.make_unreadable(Extent::new(at + within, 512));
        let found = examine(&disk, false);
        let found = found.unwrap_or_else(|error| panic!("block at {at}: {error}"));
        assert_eq!(disk.counts().writes, 0, "a check writes nothing");
        let is_told = found.findings.iter().any(is_of_device);
        assert_eq!(is_told, !found.findings.is_empty(), "{at}: {found:?}");
        let repaired = match examine(&disk, true) {
            Ok(repaired) => repaired,
            // Nobody but the administrator gives up what may have been acknowledged.
            Err(StoreError::Damaged(Damage::Log(_))) => {
                assert!((128 << 10..layout.record_offset()).contains(&at), "{at}");
                refused += 1;
                continue;
            }
            Err(other) => panic!("block at {at}: {other}"),
        };
        let of_others = repaired.findings.iter().filter(|f| !is_of_device(f));
        let is_done = of_others.clone().all(|f| f.mend == Mend::Done);
        if at < layout.record_offset() {
            assert!(
                repaired.findings.iter().all(|f| f.mend == Mend::Done),
                "{repaired:?}"
            );
        }
        let left = readable(&disk, &model);
        assert!(
            !is_done || left == model.len(),
            "{at}: {repaired:?}, {left}"
        );
        told += usize::from(is_told);
        cost += usize::from(left < model.len());
        let again = examine(&disk, false).unwrap().findings;
        assert!(
            again.iter().all(|f| f.mend == Mend::Impossible),
            "{at}: {again:?}"
        );
    }
    println!("{told} blocks told of, {cost} cost an object, {refused} are at the log's end");
    assert!(told > 400 && cost > 200 && (1..4).contains(&refused));
}

#[test]
fn where_no_superblock_can_be_read_the_device_is_to_blame() {
    let (image, _, _) = history();
    let disk = Arc::new(CrashDisk::from_image(image));
    for at in [0, 64 << 10] {
        disk.make_unreadable(Extent::new(at, 1));
        let opened = Core::open_read_only(disk.clone(), world::options());
        let examined = examine(&disk, false);
        if at == 0 {
            assert!(opened.is_ok() && examined.is_ok(), "there is another one");
            continue;
        }
        assert!(matches!(opened.map(drop), Err(StoreError::Device(_))));
        assert!(
            matches!(examined, Err(StoreError::Device(_))),
            "{examined:?}"
        );
    }
}

/// The same with an object whose checksums fill pages of their own.
fn history_with_many_checksums() -> (Image, Model) {
    let disk = world::formatted(8 << 20);
    let (_, _, mut model) = history_on(&disk);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let data = world::pattern(99, 0, 40 << 16);
    store.create(NOW, id(99), Terms::Default).unwrap();
    for (offset, piece) in (0..).step_by(4096).zip(data.chunks(4096)) {
        store.write(NOW, id(99), offset, piece).unwrap();
    }
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    model.insert(id(99), data);
    (disk.image(), model)
}

/// What an open store says of its pages, and what an examination of its device says.
#[test]
fn the_check_of_an_open_store_goes_on_behind_pages_that_cannot_be_read() {
    let (image, model) = history_with_many_checksums();
    let open = |disk: &Arc<CrashDisk>| Core::open_read_only(disk.clone(), world::options());
    let disk = Arc::new(CrashDisk::from_image(image.clone()));
    let mut pages = Vec::new();
    let store = open(&disk).unwrap();
    store
        .tree
        .visit_pages(&mut |page| pages.push(page))
        .unwrap();
    drop(store);
    let of_page = |report: &Report| {
        let pages = report.findings.iter().filter(|f| f.kind == Kind::Page);
        let place = |finding: &Finding| finding.what.split(' ').nth(4).map(str::to_owned);
        pages.map(place).collect::<Vec<_>>()
    };
    let (mut checked, mut read, mut named) = (0, 0, 0);
    for (page, is_unreadable) in pages.iter().flat_map(|page| [(page, false), (page, true)]) {
        let disk = Arc::new(CrashDisk::from_image(image.clone()));
        let at = page * PAGE_BYTES;
        match is_unreadable {
            true => disk.make_unreadable(Extent::new(at, 512)),
            false => disk.write_at(at + 100, &[0xEE; 300]).unwrap(),
        }
        // What opening needs is not there for a check either.
        let Ok(store) = open(&disk) else {
            continue;
        };
        let report = store.check(true).unwrap();
        assert_eq!(of_page(&report), [Some(at.to_string())], "{report:?}");
        assert_eq!(of_page(&report), of_page(&examine(&disk, false).unwrap()));
        assert_eq!(report.findings.iter().any(is_of_device), is_unreadable);
        assert!(report.objects <= model.len() as u64);
        checked += 1;
        read += usize::from(report.verified_bytes > 400_000);
        named += usize::from(report.findings.iter().any(|f| f.object.is_some()));
    }
    println!("{checked} checks: {read} read nearly all data, {named} named objects");
    assert!(checked > pages.len(), "{checked} of {} pages", pages.len());
    assert!(read > checked / 2 && named > 0, "{read}, {named}");
}
