//! Format and open.
//!
//! What can be read when a store is opened is not durable for that: if a flush fails, what it was
//! for may be read until power is lost and be gone then, and no later flush makes it certain, only
//! writing it again does. In doubt is what was written last: an entry of the log, after which
//! nothing was begun, or a superblock. So an opening for writing writes the last entry and the
//! newest superblock once more and makes them durable, before the next one takes the place of the
//! older, which is all that is certain until then.

use super::{Batch, Core, Fronts, Layer, write_superblock};
use crate::key::{Key, Value};
use crate::layout::{Layout, PAGE_BYTES, PIECE_BYTES, SUPERBLOCK_OFFSETS, Sizes};
use crate::log::entry::{self, Change, PieceAt};
use crate::log::{self, Log, Replay};
use crate::lost::Lost;
use crate::pages::Pages;
use crate::planted::{Mistake, planted};
use crate::promises::Promises;
use crate::space::Space;
use crate::superblock::{
    CAPABILITY_BYTES_MAX, Counters, Lifetimes, LogHead, STORE_FORMAT_VERSION, Superblock,
    opening_after,
};
use crate::tree::Tree;
use crate::{Damage, StoreError};
use base::{BlockDevice, StoreId, Time};
use std::sync::Arc;

/// What is chosen when a store is formatted.
#[derive(Clone, Debug)]
pub struct Format {
    /// Its identity, never used before.
    pub store: StoreId,
    /// Its sizes.
    pub sizes: Sizes,
    /// How long objects live that nobody has reserved space for.
    pub lifetimes: Lifetimes,
    /// What the device can do, as measured.
    pub capability: Vec<u8>,
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The store that it must be, if that is known.
    pub store: Option<StoreId>,
    /// How many entries its log must have had ([`Core::durable_sequence`]): one that has had fewer
    /// is an older state of the store.
    pub least_sequence: u64,
    /// Pages of records that are kept in memory.
    pub cache_pages: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            store: None,
            least_sequence: 0,
            // 64 MiB as pages; decoded they are two to three times that.
            cache_pages: 16384,
        }
    }
}

impl Core {
    /// Makes a store of the device; whatever was there is gone.
    ///
    /// # Errors
    /// [`StoreError::Sizes`], the device's.
    pub fn format(device: &dyn BlockDevice, format: &Format) -> Result<(), StoreError> {
        let layout = Layout::new(device.len_bytes(), format.sizes)?;
        if format.capability.len() > CAPABILITY_BYTES_MAX {
            return Err(StoreError::Sizes("the capability table is too long"));
        }
        // An old store must not come to light again if this is interrupted.
        for offset in SUPERBLOCK_OFFSETS {
            device.write_at(offset, &[0; PAGE_BYTES as usize])?;
        }
        device.flush()?;
        Log::format(device, &layout)?;
        device.flush()?;
        for epoch in [1, 2] {
            let superblock = Superblock {
                store: format.store,
                epoch,
                opening: 1,
                layout,
                root: None,
                height: 0,
                page_map: None,
                log_head: LogHead::default(),
                counters: Counters {
                    number: 1,
                    generation: 1,
                    now: Time::ZERO,
                },
                lifetimes: format.lifetimes,
                capability: format.capability.clone(),
            };
            let place = SUPERBLOCK_OFFSETS[(epoch % 2) as usize];
            device.write_at(place, &superblock.encode())?;
            device.flush()?;
        }
        Ok(())
    }

    /// Opens the store for reading and writing, and replays what the log has.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`], [`StoreError::Newer`], [`StoreError::Foreign`],
    /// [`StoreError::Older`], [`StoreError::Damaged`], the device's.
    pub fn open(device: Arc<dyn BlockDevice>, options: Options) -> Result<Self, StoreError> {
        let loaded = Self::load(device, options)?;
        loaded.write_again()?;
        let mut core = loaded.core;
        let superblock = Superblock {
            epoch: core.superblock.epoch + 1,
            opening: loaded.opening,
            ..core.superblock.clone()
        };
        core.write_superblock(superblock)?;
        core.format_version = STORE_FORMAT_VERSION;
        Ok(core)
    }

    /// Opens the store for reading: as it is, with what the log has, and without a single write.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_read_only(
        device: Arc<dyn BlockDevice>,
        options: Options,
    ) -> Result<Self, StoreError> {
        let mut core = Self::load(device, options)?.core;
        core.is_read_only = true;
        Ok(core)
    }

    /// The store as it is.
    fn load(device: Arc<dyn BlockDevice>, options: Options) -> Result<Loaded, StoreError> {
        let Found {
            superblock,
            version,
            is_older,
        } = read_superblock(&*device)?;
        if let Some(wanted) = options.store.filter(|wanted| *wanted != superblock.store) {
            let found = superblock.store;
            return Err(StoreError::Foreign { found, wanted });
        }
        let layout = superblock.layout;
        // Before any memory is taken for what it says.
        check_len(&superblock, &*device)?;
        let pages = match superblock.page_map {
            Some(first) => Pages::read_map(layout, &*device, first)?,
            None => Pages::new(layout),
        };
        let head = superblock.log_head;
        let mut core = Self::assemble(device, superblock, pages, options.cache_pages);
        core.format_version = version;
        core.is_one_superblock_lost = is_older;
        core.load_space()?;
        let Replayed {
            next,
            opening,
            last_entry,
        } = core.replay(head)?;
        if next.sequence < options.least_sequence {
            return Err(StoreError::Older {
                found: next.sequence,
                wanted: options.least_sequence,
            });
        }
        core.load_lost()?;
        // A superblock that is lost may have had the number after that of the older one.
        let opening = opening_after(opening.max(core.superblock.opening), is_older)?;
        core.log = Log::new(&layout, opening, head, next);
        if !planted(Mistake::PromisesForgotten) {
            core.load_calendar()?;
        }
        Ok(Loaded {
            core,
            opening,
            last_entry,
            is_older,
        })
    }

    /// The store of a superblock before anything of it was read.
    pub(crate) fn assemble(
        device: Arc<dyn BlockDevice>,
        superblock: Superblock,
        pages: Pages,
        cache_pages: usize,
    ) -> Self {
        let layout = superblock.layout;
        let head = superblock.log_head;
        let (root, height) = (superblock.root, superblock.height);
        Self {
            log: Log::new(&layout, superblock.opening, head, head),
            space: Space::new(layout.au_count),
            overlay: Layer::default(),
            frozen: None,
            committing: None,
            is_driven: false,
            cloning: None,
            batch: Batch::default(),
            counters: superblock.counters,
            room_tried_at: None,
            room_left: 0,
            is_poisoned: false,
            is_one_superblock_lost: false,
            is_read_only: false,
            promises: Promises::new(),
            lost: Lost::default(),
            fronts: Fronts::default(),
            format_version: STORE_FORMAT_VERSION,
            tree: Tree::new(device.clone(), root, height, cache_pages),
            device,
            layout,
            superblock,
            pages,
        }
    }

    /// Reads which records are gone for good.
    pub(crate) fn load_lost(&mut self) -> Result<(), StoreError> {
        let records = self.range_left(&Key::Lost(0), &Key::MAX, usize::MAX)?;
        self.lost = Lost::decode(records.iter().map(|(_, value)| &**value))?;
        Ok(())
    }

    /// Reads which AUs are in use.
    pub(crate) fn load_space(&mut self) -> Result<(), StoreError> {
        let parts = self
            .tree
            .range(&Key::AuMap(0), &Key::Room(0, 0), usize::MAX)?;
        for (key, bytes) in parts {
            if let Key::AuMap(part) = key {
                self.space.load(part, &bytes)?;
            }
        }
        Ok(())
    }

    /// Reads the log from `head` on into the layer over the tree.
    fn replay(&mut self, head: LogHead) -> Result<Replayed, StoreError> {
        let device = self.device.clone();
        let mut replay = Replay::new(&*device, &self.layout, head);
        while let Some(body) = replay.read()? {
            let (counters, changes) = entry::decode(&body)?;
            if !planted(Mistake::CountersNotReplayed) {
                self.counters = counters;
            }
            for change in changes {
                self.replay_change(change)?;
            }
        }
        replay.check_end()?;
        let (next, opening) = replay.end();
        Ok(Replayed {
            next,
            opening,
            last_entry: replay.last(),
        })
    }

    /// Takes in one change of the log.
    pub(crate) fn replay_change(&mut self, change: Change) -> Result<(), StoreError> {
        let (key, value) = match change {
            Change::Piece(at, bytes) => {
                let pieces = self.layout.au_bytes / PIECE_BYTES;
                if at.au >= self.layout.au_count || u64::from(at.piece) >= pieces {
                    return Err(Damage::Record.into());
                }
                self.overlay.pieces.insert(at, bytes);
                return Ok(());
            }
            Change::Put(key, value) => (key, Some(value)),
            Change::Delete(key) => (key, None),
        };
        if let Key::Au(au) = key {
            self.space.replay(au, value.is_some())?;
        }
        self.put_unlogged(key, value);
        Ok(())
    }

    /// Changes a record as of the next checkpoint, without an entry in the log.
    pub(crate) fn put_unlogged(&mut self, key: Key, value: Option<Value>) {
        self.put_over(key, value);
    }

    /// Whether the next checkpoint changes the record.
    pub(crate) fn has_unlogged(&self, key: &Key) -> bool {
        self.overlay.records.contains_key(key)
    }

    /// The next checkpoint need not write this piece.
    pub(crate) fn forget_piece(&mut self, at: PieceAt) {
        self.overlay.pieces.remove(&at);
    }

    /// No counter is lower than these.
    pub(crate) fn raise_counters(&mut self, other: Counters) {
        self.counters = Counters {
            number: self.counters.number.max(other.number),
            generation: self.counters.generation.max(other.generation),
            now: self.counters.now.max(other.now),
        };
    }

    /// Goes on with this log.
    pub(crate) fn resume_log(&mut self, log: Log) {
        self.log = log;
    }
}

/// What replay comes to.
struct Replayed {
    /// Where the log ends.
    next: LogHead,
    /// The latest opening that wrote to it.
    opening: u32,
    last_entry: Option<LogHead>,
}

/// A store that was read, and nothing written to it yet.
struct Loaded {
    core: Core,
    /// The number of the next opening for writing.
    opening: u32,
    last_entry: Option<LogHead>,
    /// Whether there is only one superblock.
    is_older: bool,
}

impl Loaded {
    /// Makes durable what may only have been written.
    fn write_again(&self) -> Result<(), StoreError> {
        let Core {
            device,
            layout,
            superblock,
            ..
        } = &self.core;
        if planted(Mistake::DoubtForgotten) {
            return Ok(());
        }
        if let Some(entry) = self.last_entry {
            log::write_again(&**device, layout, entry)?;
        }
        match self.is_older {
            // It is all that there is: the next one is written first.
            true => Ok(device.flush()?),
            false => write_superblock(&**device, superblock),
        }
    }
}

/// Fails if the device is shorter than the store.
pub(crate) fn check_len(
    superblock: &Superblock,
    device: &dyn BlockDevice,
) -> Result<(), StoreError> {
    let (wanted_bytes, len_bytes) = (superblock.layout.device_bytes, device.len_bytes());
    match wanted_bytes > len_bytes {
        true => Err(StoreError::Shortened {
            store: superblock.store,
            wanted_bytes,
            len_bytes,
        }),
        false => Ok(()),
    }
}

/// The superblock that counts.
pub(crate) fn superblock_of(device: &dyn BlockDevice) -> Result<Superblock, StoreError> {
    read_superblock(device).map(|found| found.superblock)
}

/// What is found of the two superblocks.
struct Found {
    /// The one that counts.
    superblock: Superblock,
    /// The version of the format that it is of.
    version: u16,
    /// Whether it is the older one because the other is lost.
    is_older: bool,
}

fn read_superblock(device: &dyn BlockDevice) -> Result<Found, StoreError> {
    let mut versions = [STORE_FORMAT_VERSION; 2];
    let mut read = |place: usize| {
        let mut page = vec![0; PAGE_BYTES as usize];
        device.read_at(SUPERBLOCK_OFFSETS[place], &mut page)?;
        versions[place] = Superblock::version_of(&page);
        Superblock::decode_at(place, &page)
    };
    let (even, odd) = (read(0), read(1));
    let is_older = even.is_err() || odd.is_err();
    let superblock = Superblock::choose(even, odd)?;
    Ok(Found {
        version: versions[(superblock.epoch % 2) as usize],
        superblock,
        is_older,
    })
}
