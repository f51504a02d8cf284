//! Devices that somebody has put together, with checksums that fit: an error, in bounded time and
//! memory, and never a write that makes it worse.

use super::world::{self, id};
use crate::key::Key;
use crate::layout::{PAGE_BYTES, SUPERBLOCK_OFFSETS};
use crate::memory::MemoryDevice;
use crate::pages::{Pages, Pointer};
use crate::record::{Home, Onode, Slot, encode};
use crate::{Core, Damage, Examination, Kind, Layout, Mend, Report, StoreError, Superblock, Terms};
use base::{BlockDevice, Time};
use sim::{CrashDisk, Policy};
use std::sync::Arc;

const NOW: Time = Time::from_secs(1);

/// A disk with a store of that identity and an object.
fn disk(store: u8) -> Arc<CrashDisk> {
    let disk = world::formatted_with(5 << 20, &world::format(store));
    let mut core = Core::open(disk.clone(), world::options()).unwrap();
    core.create(NOW, id(store), Terms::Default).unwrap();
    core.write(NOW, id(store), 0, &[store; 5_000]).unwrap();
    core.checkpoint().unwrap();
    drop(core);
    disk.restart_log();
    disk
}

fn page(disk: &CrashDisk, offset: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES as usize];
    disk.read_at(offset, &mut page).unwrap();
    page
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

fn has_object(core: &Core, store: u8) -> bool {
    let mut bytes = [0; 5_001];
    let read = core.read(NOW, id(store), 0, &mut bytes);
    read.is_ok_and(|len| len == 5_000 && bytes[..len] == [store; 5_000])
}

#[test]
fn superblocks_of_two_stores_are_refused_and_nothing_is_written() {
    for place in SUPERBLOCK_OFFSETS {
        let (one, other) = (disk(1), disk(2));
        one.write_at(place, &page(&other, place)).unwrap();
        let before = one.counts().writes;
        let opened = Core::open(one.clone(), world::options()).map(drop);
        let looked = Core::open_read_only(one.clone(), world::options()).map(drop);
        let repaired = examine(&one, true).map(drop);
        for refused in [opened, looked, repaired] {
            let is_said = matches!(refused, Err(StoreError::Damaged(Damage::TwoStores)));
            assert!(is_said, "{refused:?}");
        }
        assert_eq!(one.counts().writes, before);
    }
}

#[test]
fn a_superblock_in_the_place_of_the_other_is_none() {
    for from in 0..2 {
        let disk = disk(1);
        let [from, to] = [SUPERBLOCK_OFFSETS[from], SUPERBLOCK_OFFSETS[1 - from]];
        disk.write_at(to, &page(&disk, from)).unwrap();
        let report = examine(&disk, true).unwrap();
        let kinds: Vec<_> = report.findings.iter().map(|f| (f.kind, f.mend)).collect();
        assert_eq!(kinds, [(Kind::Superblock, Mend::Done)], "{from}");
        let core = Core::open(disk, world::options()).unwrap();
        assert!(has_object(&core, 1));
    }
}

/// Power is cut while another store is made of the device.
#[test]
fn a_store_that_makes_way_for_another_is_there_or_is_not() {
    let disk = disk(1);
    Core::format(&*disk, &world::format(2)).unwrap();
    let mut found = [0; 3];
    for state in disk.crash_states(&Policy::new(7)) {
        let crashed: Arc<dyn BlockDevice> = Arc::new(state.disk());
        let which = match Core::open(crashed, world::options()) {
            Ok(core) if core.superblock().store == world::format(1).store => {
                assert!(has_object(&core, 1), "{state}");
                0
            }
            Ok(core) => {
                assert_eq!(core.check(true).unwrap().objects, 0, "{state}");
                1
            }
            Err(StoreError::NotAStore) => 2,
            Err(other) => panic!("{state}: {other}"),
        };
        found[which] += 1;
    }
    assert!(found.iter().all(|count| *count > 0), "{found:?}");
}

#[test]
fn superblocks_with_figures_of_no_store_are_refused_and_one_alone_is_repaired() {
    type Change = fn(&mut Superblock);
    let changes: [Change; 6] = [
        |s| s.layout.grid_offset = 1 << 62,
        |s| s.layout.device_bytes = u64::MAX,
        |s| s.layout.au_count = u32::MAX,
        |s| s.layout.log_bytes = 1 << 40,
        |s| s.epoch |= 1 << 63,
        |s| s.counters.number = u64::MAX,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let disk = disk(1);
        for place in SUPERBLOCK_OFFSETS {
            let mut superblock = Superblock::decode(&page(&disk, place)).unwrap();
            change(&mut superblock);
            disk.write_at(place, &superblock.encode()).unwrap();
            if place == 0 {
                let alone = Arc::new(CrashDisk::from_image(disk.image()));
                let core = Core::open_read_only(alone.clone(), world::options()).unwrap();
                assert!(has_object(&core, 1) || core.superblock().root.is_none());
                let report = examine(&alone, true).unwrap();
                assert!(report.findings.iter().all(|f| f.mend == Mend::Done));
            }
        }
        for refused in [
            Core::open(disk.clone(), world::options()).map(drop),
            examine(&disk, true).map(drop),
        ] {
            let is_said = matches!(refused, Err(StoreError::Damaged(Damage::Superblocks)));
            assert!(is_said, "{number}: {refused:?}");
        }
    }
    // A device that is shorter than it says takes no memory, either.
    let disk = disk(1);
    for place in SUPERBLOCK_OFFSETS {
        let mut superblock = Superblock::decode(&page(&disk, place)).unwrap();
        superblock.layout.device_bytes = 1 << 48;
        superblock.layout.au_count = u32::MAX - 20;
        disk.write_at(place, &superblock.encode()).unwrap();
    }
    let refused = Core::open(disk.clone(), world::options()).map(drop);
    assert!(matches!(refused, Err(StoreError::Shortened { .. })));
    let refused = examine(&disk, true).map(drop);
    assert!(matches!(refused, Err(StoreError::Shortened { .. })));
}

/// Writes a chain of maps of that length, each page of which is empty; the pointer to the first.
fn chain(device: &MemoryDevice, first_page: u64, len: u64) -> Pointer {
    let mut next = Pointer { page: 0, crc: 0 };
    for number in (0..len).rev() {
        let mut link = vec![0; PAGE_BYTES as usize];
        link[..8].copy_from_slice(&next.page.to_le_bytes());
        link[8..12].copy_from_slice(&next.crc.to_le_bytes());
        let page = first_page + number;
        device.write_at(page * PAGE_BYTES, &link).unwrap();
        let crc = crc32c::crc32c(&link);
        next = Pointer { page, crc };
    }
    next
}

#[test]
fn a_chain_that_is_longer_than_any_map_is_not_followed_to_its_end() {
    let layout = Layout::new(5 << 20, world::SIZES).unwrap();
    let device = MemoryDevice::new(5 << 20);
    let first_page = layout.record_offset() / PAGE_BYTES;
    let first = chain(&device, first_page, 40);
    let damaged = Pages::read_map(layout, &device, first).map(drop);
    let Err(StoreError::Damaged(Damage::PageMap(at))) = damaged else {
        panic!("{damaged:?}");
    };
    assert!(at < (first_page + 10) * PAGE_BYTES, "stopped at {at}");
}

/// Records that contradict the store that they are in: an object would have bytes of others.
#[test]
fn an_object_whose_record_leads_elsewhere_is_an_error_and_can_be_removed() {
    type Change = fn(&mut Onode, &Layout);
    let of_packed: [Change; 4] = [
        |onode, _| onode.size_bytes = 20_000,
        |onode, _| slot_of(onode).piece = 15,
        |onode, _| slot_of(onode).pieces = u16::MAX,
        |onode, layout| slot_of(onode).au = layout.au_count,
    ];
    let of_own: [Change; 2] = [
        |onode, _| onode.size_bytes = u64::MAX,
        |onode, layout| onode.size_bytes = layout.object_bytes_max() + 1,
    ];
    let changes = of_packed.map(|change| (1, change)).into_iter();
    for (number, change) in changes.chain(of_own.map(|change| (2, change))) {
        let disk = disk(1);
        let mut core = Core::open(disk.clone(), world::options()).unwrap();
        core.create(NOW, id(2), Terms::Default).unwrap();
        core.write(NOW, id(2), 0, &[7; 100_000]).unwrap();
        let layout = *core.layout();
        let mut onode: Onode = core.record(&Key::Object(id(number))).unwrap().unwrap();
        change(&mut onode, &layout);
        core.put_unlogged(Key::Object(id(number)), Some(encode(&onode)));
        core.checkpoint().unwrap();
        let mut bytes = [0; 100];
        // Places are counted in 32 bits: this one would be the first again.
        let beyond = layout.au_bytes << 32;
        for at in [0, 90_000, beyond, u64::MAX - 100] {
            let read = core.read(NOW, id(number), at, &mut bytes);
            let refused = matches!(read, Err(StoreError::Damaged(_)));
            assert!(
                refused || matches!(read, Ok(0)),
                "{number} at {at}: {read:?}"
            );
            assert!(refused || (onode.size_bytes <= at), "{number} at {at}");
            assert!(core.write(NOW, id(number), at, b"x").is_err());
        }
        let found = core.check(true).unwrap().findings;
        assert!(
            found.iter().any(|f| f.mend == Mend::Impossible),
            "{found:?}"
        );
        // The others are as they were, and stay.
        let other = 3 - number;
        assert!(core.read(NOW, id(other), 0, &mut bytes).is_ok());
        let _ = core.delete(NOW, id(number));
        core.reclaim(NOW).unwrap();
        core.checkpoint().unwrap();
        assert!(core.read(NOW, id(other), 0, &mut bytes).is_ok());
    }
}

fn slot_of(onode: &mut Onode) -> &mut Slot {
    match &mut onode.home {
        Home::Packed(slot) => slot,
        other => panic!("{other:?}"),
    }
}
