//! One run of an image: what was touched first, and when.
//!
//! A trace is told every read and keeps only what is new, in bounded memory. When there is no more
//! room it is full and stays as it is: the beginning is what matters.

use super::{Touch, UNIT_BYTES};
use base::limits::{DISK_PROFILE_BYTES_MAX, DISK_TOUCHES_MAX};
use base::{Extent, ExtentSet};
use std::time::Duration;

/// Reads that go on where the one before ended, within this time, are one touch.
const JOINED_MS: u32 = 10;

/// What was read of an image since somebody began to look.
#[derive(Clone, Debug)]
pub struct Trace {
    image_bytes: u64,
    touches: Vec<Touch>,
    seen: ExtentSet,
    is_full: bool,
}

impl Trace {
    /// Of an image of which nothing was read yet.
    #[must_use]
    pub fn new(image_bytes: u64) -> Self {
        Self {
            image_bytes,
            touches: Vec::new(),
            seen: ExtentSet::new(),
            is_full: false,
        }
    }

    /// Something was read, at a time since the beginning.
    pub fn on_read(&mut self, time: Duration, extent: Extent) {
        let units = units_of(extent, self.image_bytes);
        if self.is_full || self.seen.covers(units) {
            return;
        }
        let time_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        for part in self.seen.missing(units) {
            self.add(time_ms, part);
        }
    }

    fn add(&mut self, time_ms: u32, extent: Extent) {
        let position_bytes = self
            .touches
            .last()
            .map_or(0, |last| last.position_bytes + last.extent.len);
        let has_room = self.touches.len() < DISK_TOUCHES_MAX;
        let continues = self.touches.last_mut().filter(|last| {
            last.extent.end() == extent.offset && time_ms.saturating_sub(last.time_ms) < JOINED_MS
        });
        let is_long = position_bytes + extent.len > DISK_PROFILE_BYTES_MAX;
        match continues {
            _ if is_long => self.is_full = true,
            Some(last) => last.extent.len += extent.len,
            None if !has_room => self.is_full = true,
            None => self.touches.push(Touch {
                extent,
                position_bytes,
                time_ms,
                runs: 1,
            }),
        }
        if !self.is_full {
            self.seen.insert(extent);
        }
    }

    /// Length of the image.
    #[must_use]
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// What was touched, in order.
    #[must_use]
    pub fn touches(&self) -> &[Touch] {
        &self.touches
    }

    /// What was touched, as a set, in whole units.
    #[must_use]
    pub fn seen(&self) -> &ExtentSet {
        &self.seen
    }

    /// Whether something was read for which there was no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

/// The units of which something is read, up to the image's end.
fn units_of(extent: Extent, image_bytes: u64) -> Extent {
    let extent = extent.intersection(Extent::new(0, image_bytes));
    if extent.is_empty() {
        return extent;
    }
    let start = extent.offset / UNIT_BYTES * UNIT_BYTES;
    let end = extent.end().next_multiple_of(UNIT_BYTES);
    Extent::between(start, end.min(image_bytes))
}
