//! What a thread does to a store, what it was acknowledged, and how to judge what is left of it.
//!
//! Every thread has objects of its own. Version `v` of each is known from `v` alone, so that a
//! judge needs to know only which versions may be there.

use base::{ObjectId, StoreId, Time};
use std::sync::Arc;
use store::{Clock, Core, Format, Lifetimes, Options, Sizes, Store, StoreError, Terms};

/// A small overwritten object, packed with others.
const SMALL: u8 = 0;
/// An object of several groups, overwritten in part.
const LARGE: u8 = 1;
/// Objects that are made, written directly and deleted later.
const FRESH: u8 = 2;
/// Fresh objects that are there at once.
const FRESH_MAX: u64 = 3;
const SMALL_BYTES: usize = 3000;
const LARGE_BYTES: usize = 150_000;
const FRESH_BYTES: usize = 90_000;
const PIECE: usize = 4096;

pub(crate) fn format() -> Format {
    Format {
        store: StoreId([1; 16]),
        sizes: Sizes {
            au_bytes: 128 << 10,
            log_bytes: 1 << 20,
            record_bytes: 256 << 10,
        },
        lifetimes: Lifetimes::default(),
        capability: Vec::new(),
    }
}

pub(crate) fn options() -> Options {
    Options {
        cache_pages: 64,
        ..Options::default()
    }
}

pub(crate) fn clock() -> Clock {
    Arc::new(|| Time::from_secs(1))
}

fn id(thread: u8, kind: u8, version: u64) -> ObjectId {
    let mut bytes = [thread; 16];
    bytes[0] = kind;
    bytes[8..].copy_from_slice(&version.to_le_bytes());
    ObjectId(bytes)
}

/// `len` bytes that say version and place.
fn content(thread: u8, version: u64, len: usize) -> Vec<u8> {
    let seed = version.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(thread);
    (0..len)
        .map(|at| (seed >> (at / 97 % 7 * 8)) as u8 ^ (at / 61) as u8)
        .collect()
}

/// The piece of the large object that a version writes.
fn piece_of(version: u64) -> usize {
    (version as usize * 7) % (LARGE_BYTES / PIECE)
}

/// One thread.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) thread: u8,
    /// The last version that was begun.
    pub(crate) version: u64,
}

impl Worker {
    /// Makes the objects that stay, as version 0.
    pub(crate) fn begin(thread: u8, store: &Store) -> Result<Self, StoreError> {
        store.transact(|t| {
            t.create(id(thread, SMALL, 0), Terms::Default)?;
            t.write(id(thread, SMALL, 0), 0, &content(thread, 0, SMALL_BYTES))?;
            t.create(id(thread, LARGE, 0), Terms::Default)?;
            t.write(id(thread, LARGE, 0), 0, &vec![thread; LARGE_BYTES])
        })?;
        store.commit()?;
        Ok(Self { thread, version: 0 })
    }

    /// Goes on after an opening.
    pub(crate) fn resume(thread: u8, store: &Store) -> Result<Self, StoreError> {
        let mut bytes = vec![0; SMALL_BYTES];
        store.read(id(thread, SMALL, 0), 0, &mut bytes)?;
        let version = (0..).find(|version| bytes == content(thread, *version, SMALL_BYTES));
        Ok(Self {
            thread,
            version: version.unwrap(),
        })
    }

    /// Makes the next version and waits until it is durable. Some of it is one transaction, some
    /// of it several.
    pub(crate) fn step(&mut self, store: &Store) -> Result<(), StoreError> {
        self.version += 1;
        let (thread, version) = (self.thread, self.version);
        if version.is_multiple_of(4) {
            let fresh = id(thread, FRESH, version / 4);
            store.transact(|t| {
                t.create(fresh, Terms::Default)?;
                t.write(fresh, 0, &content(thread, version / 4, FRESH_BYTES))
            })?;
            if let Some(old) = (version / 4).checked_sub(FRESH_MAX).filter(|old| *old > 0) {
                store.delete(id(thread, FRESH, old))?;
            }
        }
        let at = (piece_of(version) * PIECE) as u64;
        let piece = content(thread, version, PIECE);
        store.write(id(thread, LARGE, 0), at, &piece)?;
        // The last one: who finds this version has those before.
        store.write(
            id(thread, SMALL, 0),
            0,
            &content(thread, version, SMALL_BYTES),
        )?;
        store.commit()
    }

    /// What is wrong with what is left, if `acknowledged` was the last acknowledgement and no
    /// version after `begun` was begun.
    pub(crate) fn judge(
        thread: u8,
        core: &Core,
        acknowledged: u64,
        begun: u64,
    ) -> Result<(), String> {
        let read = |object: ObjectId, len: usize| {
            let mut bytes = vec![0; len];
            match core.read(Time::ZERO, object, 0, &mut bytes) {
                Ok(read) => Ok(bytes[..read].to_vec()),
                Err(error) => Err(format!("thread {thread}, {object}: {error}")),
            }
        };
        let small = read(id(thread, SMALL, 0), SMALL_BYTES)?;
        let found = (acknowledged..=begun)
            .find(|version| small == content(thread, *version, SMALL_BYTES))
            .ok_or(format!(
                "thread {thread}: not a version from {acknowledged} to {begun}"
            ))?;
        let large = read(id(thread, LARGE, 0), LARGE_BYTES)?;
        for piece in 0..LARGE_BYTES / PIECE {
            let versions = |to: u64| (1..=to).rev().find(|version| piece_of(*version) == piece);
            let part = &large[piece * PIECE..][..PIECE];
            let is = |version: Option<u64>| match version {
                Some(version) => part == content(thread, version, PIECE),
                None => part == vec![thread; PIECE],
            };
            // The next version may have come so far and no further.
            if !is(versions(found)) && !is(versions((found + 1).min(begun))) {
                return Err(format!(
                    "thread {thread}: piece {piece} is not of version {found}"
                ));
            }
        }
        let newest = found / 4;
        for fresh in newest.saturating_sub(FRESH_MAX - 2).max(1)..=newest {
            if read(id(thread, FRESH, fresh), FRESH_BYTES)? != content(thread, fresh, FRESH_BYTES) {
                return Err(format!(
                    "thread {thread}: fresh object {fresh} has other bytes"
                ));
            }
        }
        match newest.checked_sub(FRESH_MAX).filter(|gone| *gone > 0) {
            Some(gone) if core.info(Time::ZERO, id(thread, FRESH, gone)).is_ok() => {
                Err(format!("thread {thread}: object {gone} was deleted"))
            }
            _ => Ok(()),
        }
    }
}

/// That the store's own check finds nothing.
pub(crate) fn check(core: &Core) -> Result<(), String> {
    let report = core
        .check(true)
        .map_err(|error| format!("check: {error}"))?;
    match report.findings.is_empty() {
        true => Ok(()),
        false => Err(format!("{:?}", report.findings)),
    }
}
