//! Profiles: what is read of an image, in the order in which it is first needed.
//!
//! A [`Trace`] is one run: every read of an image in use is told to it, and it keeps what was
//! touched first when. A [`Profile`] is a name for one run or several, merged. Of each block of 4
//! KiB it knows
//!
//! ```text
//! position    after how many other bytes it was needed, in the run in which that were fewest
//! time        after how long, in the run in which that was shortest
//! runs        how many runs have needed it
//! ```
//!
//! The order is that of positions. Times depend on how far away the image was when it was recorded;
//! positions do not. Both being least values and runs a sum, profiles can be merged in any order,
//! and merging a merged one is the same as merging all its runs. Blocks beside each other that were
//! needed one after the other are one [`Touch`].
//!
//! This is what the paper's ext2optimizer takes from a log of accesses (section 4), without the
//! file system: positions in the image are all there is to know, so that any file system will do,
//! and there may be several profiles, one for each program.

mod trace;

pub use trace::Trace;

use crate::DISK_FORMAT_VERSION;
use crate::error::{Damage, DiskError};
use crate::index::Index;
use crate::name::is_component;
use base::limits::{
    DISK_IMAGE_BYTES_MAX, DISK_PROFILE_BYTES_MAX, DISK_PROFILE_FILE_BYTES_MAX, DISK_TOUCHES_MAX,
};
use base::{Extent, ExtentSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The unit of a profile: what file systems read at least.
pub const UNIT_BYTES: u64 = 4096;
const MAGIC: [u8; 8] = *b"AZKDPROF";
const HEAD_BYTES: usize = 16;

/// Bytes beside each other that were needed one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touch {
    /// Whole units, up to the image's end.
    pub extent: Extent,
    /// How many bytes were needed before its first.
    pub position_bytes: u64,
    /// After how many milliseconds, at the earliest.
    pub time_ms: u32,
    /// How many runs needed it.
    pub runs: u16,
}

/// What is read of an image for one purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    name: String,
    image_bytes: u64,
    runs: u16,
    touches: Vec<Touch>,
}

/// What is known of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fact {
    position_bytes: u64,
    time_ms: u32,
    runs: u16,
}

impl Fact {
    fn merge(&mut self, other: Self) {
        self.position_bytes = self.position_bytes.min(other.position_bytes);
        self.time_ms = self.time_ms.min(other.time_ms);
        self.runs = self.runs.saturating_add(other.runs);
    }
}

impl Profile {
    /// The profile of one run.
    ///
    /// # Errors
    /// [`DiskError::Profile`] if this can be no name: letters, digits and `. _ -`.
    pub fn new(name: &str, trace: &Trace) -> Result<Self, DiskError> {
        if !is_name(name) {
            return Err(DiskError::Profile(name.chars().take(200).collect()));
        }
        Ok(Self {
            name: name.to_owned(),
            image_bytes: trace.image_bytes(),
            runs: 1,
            touches: trace.touches().to_vec(),
        })
    }

    /// The same under another name.
    ///
    /// # Errors
    /// [`DiskError::Profile`] as of [`Profile::new`].
    pub fn renamed(&self, name: &str) -> Result<Self, DiskError> {
        if !is_name(name) {
            return Err(DiskError::Profile(name.chars().take(200).collect()));
        }
        Ok(Self {
            name: name.to_owned(),
            ..self.clone()
        })
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The length of the image of which it was recorded.
    #[must_use]
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// How many runs were merged.
    #[must_use]
    pub fn runs(&self) -> u16 {
        self.runs
    }

    /// What was needed, in order.
    #[must_use]
    pub fn touches(&self) -> &[Touch] {
        &self.touches
    }

    /// What was needed, as a set.
    #[must_use]
    pub fn hot(&self) -> ExtentSet {
        let mut hot = ExtentSet::new();
        for touch in &self.touches {
            hot.insert(touch.extent);
        }
        hot
    }

    /// This profile with the runs of another one. The name stays; the image is as long as the
    /// longer one. What would be more than a profile can have is left out, the latest first.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let mut facts = self.facts();
        for (unit, fact) in other.facts() {
            let known = facts.entry(unit);
            known.and_modify(|known| known.merge(fact)).or_insert(fact);
        }
        let image_bytes = self.image_bytes.max(other.image_bytes);
        Self {
            name: self.name.clone(),
            image_bytes,
            runs: self.runs.saturating_add(other.runs),
            touches: touches(&facts, image_bytes),
        }
    }

    /// What at least so many runs have needed: one run's own logs and temporary files are in no
    /// other.
    #[must_use]
    pub fn common(&self, runs_min: u16) -> Self {
        let mut common = self.clone();
        common.touches.retain(|touch| touch.runs >= runs_min);
        common
    }

    /// The same for an image of another length, a later version: what is beyond its end is left
    /// out.
    #[must_use]
    pub fn fitted(&self, image_bytes: u64) -> Self {
        let mut facts = self.facts();
        facts.retain(|&unit, _| unit * UNIT_BYTES < image_bytes);
        Self {
            image_bytes,
            touches: touches(&facts, image_bytes),
            ..self.clone()
        }
    }

    /// The numbers of the chunks that it needs, in order.
    #[must_use]
    pub fn chunks(&self, index: &Index) -> Vec<usize> {
        let mut first: BTreeMap<usize, u64> = BTreeMap::new();
        for touch in &self.touches {
            for number in index.chunks_of(touch.extent) {
                let start = index.chunk(number).extent.offset;
                let within = start.saturating_sub(touch.extent.offset);
                let position = touch.position_bytes + within;
                let known = first.entry(number).or_insert(position);
                *known = position.min(*known);
            }
        }
        let mut order: Vec<_> = first.into_iter().collect();
        order.sort_by_key(|&(number, position)| (position, number));
        order.into_iter().map(|(number, _)| number).collect()
    }

    fn facts(&self) -> BTreeMap<u64, Fact> {
        let mut facts = BTreeMap::new();
        for touch in &self.touches {
            let first = touch.extent.offset / UNIT_BYTES;
            let end = touch.extent.end().div_ceil(UNIT_BYTES);
            for unit in first..end {
                let fact = Fact {
                    position_bytes: touch.position_bytes + (unit - first) * UNIT_BYTES,
                    time_ms: touch.time_ms,
                    runs: touch.runs,
                };
                facts.insert(unit, fact);
            }
        }
        facts
    }

    /// The file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = self.body();
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&DISK_FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Damage`] says what is wrong with it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        if bytes.len() < HEAD_BYTES || bytes[..8] != MAGIC {
            return Err(Damage::NotAProfile);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version > DISK_FORMAT_VERSION {
            return Err(Damage::Newer(version));
        }
        let (head, body) = bytes.split_at(HEAD_BYTES);
        let is_whole = head[12..] == crc32c::crc32c(body).to_le_bytes();
        if version != DISK_FORMAT_VERSION || head[10..12] != [0; 2] || !is_whole {
            return Err(Damage::Profile);
        }
        Self::from_body(body)
    }

    /// As it lies in a pack, whose name vouches for it.
    pub(crate) fn body(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a profile is plain data")
    }

    pub(crate) fn from_body(body: &[u8]) -> Result<Self, Damage> {
        if body.len() as u64 > DISK_PROFILE_FILE_BYTES_MAX {
            return Err(Damage::Profile);
        }
        let profile: Self = postcard::from_bytes(body).map_err(|_| Damage::Profile)?;
        // One profile, one form: see records.
        if !profile.is_valid() || profile.body() != body {
            return Err(Damage::Profile);
        }
        Ok(profile)
    }

    fn is_valid(&self) -> bool {
        let image = Extent::new(0, self.image_bytes);
        let mut seen = ExtentSet::new();
        let mut last = (0, 0);
        let is_good = |touch: &Touch| {
            let extent = touch.extent;
            let is_whole = extent.offset.is_multiple_of(UNIT_BYTES)
                && (extent.end().is_multiple_of(UNIT_BYTES) || extent.end() == self.image_bytes);
            let order = (touch.position_bytes, extent.offset);
            let is_next = order >= last && !seen.overlaps(extent);
            last = order;
            seen.insert(extent);
            is_whole
                && is_next
                && !extent.is_empty()
                && image.covers(extent)
                && extent.len <= DISK_PROFILE_BYTES_MAX
                && touch.position_bytes <= DISK_PROFILE_BYTES_MAX
                && (1..=self.runs).contains(&touch.runs)
        };
        is_name(&self.name)
            && self.image_bytes <= DISK_IMAGE_BYTES_MAX
            && self.touches.len() <= DISK_TOUCHES_MAX
            && self.touches.iter().all(is_good)
            && seen.bytes() <= DISK_PROFILE_BYTES_MAX
    }
}

fn is_name(name: &str) -> bool {
    const NAME_BYTES_MAX: usize = 64;
    is_component(name) && name.len() <= NAME_BYTES_MAX && !name.contains('@')
}

/// The touches that say these facts: as few as there can be, in order, and no more than fit.
fn touches(facts: &BTreeMap<u64, Fact>, image_bytes: u64) -> Vec<Touch> {
    let image = Extent::new(0, image_bytes);
    let mut touches: Vec<Touch> = Vec::new();
    for (unit, fact) in facts {
        let extent = Extent::new(unit * UNIT_BYTES, UNIT_BYTES).intersection(image);
        match touches.last_mut() {
            Some(last)
                if last.extent.end() == extent.offset
                    && last.position_bytes + last.extent.len == fact.position_bytes
                    && (last.time_ms, last.runs) == (fact.time_ms, fact.runs) =>
            {
                last.extent.len += extent.len;
            }
            _ => touches.push(Touch {
                extent,
                position_bytes: fact.position_bytes,
                time_ms: fact.time_ms,
                runs: fact.runs,
            }),
        }
    }
    touches.sort_by_key(|touch| (touch.position_bytes, touch.extent.offset));
    touches.truncate(DISK_TOUCHES_MAX);
    let mut room = DISK_PROFILE_BYTES_MAX;
    let fits = |touch: &Touch| {
        let fits = touch.extent.len <= room;
        room = room.saturating_sub(touch.extent.len);
        fits
    };
    let count = touches.iter().copied().take_while(fits).count();
    touches.truncate(count);
    touches
}

#[cfg(test)]
mod tests;
