//! What `fuzz/` feeds with bytes of others: everything that reads what lies on a device.
//!
//! Each takes any bytes, and demands that they are refused or that what was read is written and
//! read again as the same. Checksums are made good first where they stand before the decoder: bytes
//! that do not fit theirs go no further, and nobody would ever get behind them by chance.

use crate::content::View as _;
use crate::core::Core;
use crate::key::{Key, VALUE_BYTES_MAX, Value};
use crate::layout::{LOG_OFFSET, PAGE_BYTES, Sizes};
use crate::leaf::Leaf;
use crate::log::{entry, sector};
use crate::memory::MemoryDevice;
use crate::record::{AuRecord, Holder, Onode, Place, decode, encode};
use crate::superblock::{CRC_AT, Superblock};
use crate::tree::node;
use crate::{Examination, Format, Lifetimes, Options};
use base::{BlockDevice, ObjectId, StoreId, Time};
use std::sync::Arc;

/// A superblock: a page from its version on.
pub fn superblock(data: &[u8]) {
    let mut page = vec![0; PAGE_BYTES as usize];
    let len = data.len().min(page.len() - 8);
    page[..8].copy_from_slice(b"AZKSTORE");
    page[8..8 + len].copy_from_slice(&data[..len]);
    page[CRC_AT].fill(0);
    let crc = crc32c::crc32c(&page);
    page[CRC_AT].copy_from_slice(&crc.to_le_bytes());
    if let Ok(superblock) = Superblock::decode(&page) {
        let again = Superblock::decode(&superblock.encode());
        assert_eq!(again.ok(), Some(superblock));
    }
}

/// A sector of the log, and the body of an entry.
pub fn log(data: &[u8]) {
    let mut bytes = vec![0; sector::SECTOR_BYTES];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    if let Ok(Some(stamp)) = sector::decode(&mut bytes, 0) {
        let mut again = vec![0; sector::SECTOR_BYTES];
        sector::encode(stamp, sector::body(&bytes), &mut again);
        assert_eq!(again, bytes);
    }
    if let Ok((counters, changes)) = entry::decode(data) {
        let mut writer = entry::EntryWriter::new(&counters, 0);
        for change in &changes {
            match change {
                entry::Change::Put(key, value) => writer.record(key, Some(value)),
                entry::Change::Delete(key) => writer.record(key, None),
                entry::Change::Piece(at, bytes) => writer.piece(*at, bytes),
            }
        }
        let again = entry::decode(&writer.finish());
        assert_eq!(again.ok(), Some((counters, changes)));
    }
}

/// A page of the tree.
pub fn page(data: &[u8]) {
    let Some(found) = node::decode(&data[..data.len().min(PAGE_BYTES as usize)]) else {
        return;
    };
    let total: usize = found.items.iter().map(node::item_len).sum();
    if total <= node::ROOM_BYTES {
        let again = node::decode(&node::encode(found.level, &found.items));
        assert_eq!(again, Some(found));
    } else {
        // Numbers that were written with more bytes than they need do not make it longer.
        panic!("{total} bytes came from one page");
    }
}

/// The contents of a record of each kind.
pub fn record(data: &[u8]) {
    fn same<T>(data: &[u8])
    where
        T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        if let Ok(record) = decode::<T>(data) {
            assert_eq!(decode::<T>(&encode(&record)).ok(), Some(record));
        }
    }
    same::<Onode>(data);
    same::<Place>(data);
    same::<AuRecord>(data);
    same::<Holder>(data);
    same::<(Key, Key)>(data);
    if let Ok(leaf) = decode::<Leaf>(data) {
        if leaf.check().is_ok() {
            assert!(leaf.is_empty() || encode(&leaf).len() <= VALUE_BYTES_MAX);
        }
        assert_eq!(decode::<Leaf>(&encode(&leaf)).ok(), Some(leaf));
    }
}

/// The capability table.
pub fn capability(data: &[u8]) {
    if let Ok(table) = crate::device::Capability::decode(data) {
        assert_eq!(table.encode(), data);
    }
}

fn new_store() -> (Arc<dyn BlockDevice>, Options) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let format = Format {
        store: StoreId([1; 16]),
        sizes: SIZES,
        lifetimes: Lifetimes::default(),
        capability: Vec::new(),
    };
    let options = Options {
        cache_pages: 16,
        ..Options::default()
    };
    Core::format(&*device, &format).expect("the sizes fit");
    (device, options)
}

/// A small store with records that contradict each other: whatever they say, it is opened or
/// refused, checked, repaired, read and used without a panic, and a second repair finds nothing to
/// do.
pub fn store(data: &[u8]) {
    let (device, options) = new_store();
    let mut core = Core::open(device.clone(), options).expect("it is new");
    seed(&mut core);
    let mut rest = data;
    while let Some((key, after)) = Key::take(rest) {
        let (value, after) = match after.split_first() {
            Some((0, after)) => (None, after),
            Some((len, after)) => {
                let len = usize::from(*len - 1).min(after.len());
                (Some(Value::from(&after[..len])), &after[len..])
            }
            None => break,
        };
        core.put_unlogged(key, value);
        rest = after;
    }
    if core.checkpoint().is_err() {
        return;
    }
    drop(core);
    use_store(&device, options);
    let mut examination = Examination {
        options,
        data: true,
        repair: true,
        give_up_log: false,
    };
    if examination.run(&device, &mut |_, _| {}).is_err() {
        return;
    }
    examination.repair = false;
    let again = examination.run(&device, &mut |_, _| {});
    let again = again.expect("it was examined before");
    let is_left = |finding: &&crate::Finding| finding.mend == crate::Mend::Possible;
    let left: Vec<_> = again.findings.iter().filter(is_left).collect();
    assert!(left.is_empty(), "{left:?}");
    use_store(&device, options);
}

const DEVICE_BYTES: usize = 2 << 20;
const SIZES: Sizes = Sizes {
    au_bytes: 64 << 10,
    log_bytes: 512 << 10,
    record_bytes: 256 << 10,
};
const NOW: Time = Time::from_secs(1);

/// Some objects, so that there is something to contradict.
fn seed(core: &mut Core) {
    for number in 1..4_u8 {
        let object = ObjectId([number; 16]);
        let len = usize::from(number) * 30_000;
        let made = core.create(NOW, object, crate::Terms::Default);
        made.expect("there is room");
        let written = core.write(NOW, object, 0, &vec![number; len]);
        written.expect("there is room");
    }
}

/// Reads and changes whatever there is.
fn use_store(device: &Arc<dyn BlockDevice>, options: Options) {
    let Ok(mut core) = Core::open(device.clone(), options) else {
        return;
    };
    let listed = core.list(NOW, ObjectId([0; 16]), 16);
    for info in listed.map(|(objects, _)| objects).unwrap_or_default() {
        let mut bytes = [0; 5000];
        // Whether it is there is not the question here.
        let _ = core.read(NOW, info.object, info.size_bytes / 2, &mut bytes);
        let _ = core.write(NOW, info.object, 100, b"other");
        let _ = core.truncate(NOW, info.object, 50);
        let _ = core.delete(NOW, info.object);
    }
    let _ = core.view_leaf(&Key::Leaf(0, 0));
    let _ = core.check(true);
    let _ = core.reclaim(NOW);
    let _ = core.checkpoint();
}

/// The log from its first byte on, in an otherwise new store: the sectors' checksums are good.
pub fn replay(data: &[u8]) {
    let (device, options) = new_store();
    let mut body = data.to_vec();
    if let Some(len) = body.get_mut(..4) {
        len.copy_from_slice(&(data.len() as u32).to_le_bytes());
    }
    let entry = crate::log::encode(0, 1, &body);
    let written = device.write_at(LOG_OFFSET, &entry);
    written.expect("an entry is shorter than the log");
    use_store(&device, options);
}
