//! Places that were given to appends, and what is left of them.
//!
//! An append is given its place first: the file is longer from then on, and the bytes follow at the
//! stores. Until its client has told that they are there, the place is *open*. In between, others
//! may cut the file, or write there because they find it longer. An append comes in its turn when
//! it is given its place, so what others do afterwards stands: of the place, what they have left is
//! all that has yet to come. They begin a new generation of the file's layout, so that bytes
//! that are on their way are refused at the stores, and whoever sent them asks what is left.
//!
//! The other way round, somebody may have put bytes of his own where an append is given its place
//! before he has told of it. Nobody can say which of the two the stores have. So what was given out
//! in this generation, open or not, is remembered: whoever tells that he has written there writes
//! once more, in a new generation, and comes after the append.

use base::limits::{NAMESPACE_APPENDED_MAX, NAMESPACE_PLACES_MAX, PLACE_PARTS_MAX};
use base::{Extent, FsError};
use serde::{Deserialize, Serialize};

/// Where bytes begin and end.
type Run = (u64, u64);

/// One append's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// Never used again in the volume, and greater than those before.
    number: u64,
    /// What is still to be written: in order, apart from each other.
    left: Vec<Run>,
}

/// Those of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Appends {
    /// Open places, oldest first.
    open: Vec<Place>,
    /// Bytes of places that were open at some time in this generation: in order, apart.
    given: Vec<Run>,
    /// Of older places than this it may not be known any more whether something is left.
    given_up: u64,
}

impl Appends {
    /// Whether there is nothing to remember.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an open place has to be given up before there is room for another.
    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= NAMESPACE_PLACES_MAX
    }

    /// An append is given a place.
    pub(super) fn give(&mut self, number: u64, place: Extent) {
        if place.is_empty() {
            return;
        }
        let run = (place.offset, place.end());
        let left = vec![run];
        self.open.push(Place { number, left });
        self.given.push(run);
        tidy(&mut self.given);
    }

    /// All that was left of a place is at the stores.
    pub(super) fn on_told(&mut self, number: u64) {
        self.open.retain(|place| place.number != number);
    }

    /// Whether an append may have put its bytes there in this generation, or may still do so.
    pub(super) fn meets(&self, extent: Extent) -> bool {
        let meets = |(begin, end): &Run| *begin < extent.end() && extent.offset < *end;
        self.given.iter().any(meets)
    }

    /// What of a place is still to be written.
    ///
    /// # Errors
    /// [`FsError::Io`] if that is not known any more.
    pub(super) fn left(&self, number: u64) -> Result<Vec<Extent>, FsError> {
        let extent = |(begin, end): &Run| Extent::between(*begin, *end);
        let place = self.open.iter().find(|place| place.number == number);
        match place {
            Some(place) => Ok(place.left.iter().map(extent).collect()),
            None if number <= self.given_up => Err(FsError::Io),
            None => Ok(Vec::new()),
        }
    }

    /// Others have made something else of these bytes; a new generation begins with that.
    pub(super) fn replace(&mut self, extent: Extent) {
        let (from, to) = (extent.offset, extent.end());
        for place in &mut self.open {
            let cut = |(begin, end): Run| [(begin, end.min(from)), (begin.max(to), end)];
            let left = std::mem::take(&mut place.left).into_iter().flat_map(cut);
            place.left = left.filter(|(begin, end)| begin < end).collect();
            if place.left.len() > PLACE_PARTS_MAX {
                self.given_up = self.given_up.max(place.number);
                place.left.clear();
            }
        }
        self.open.retain(|place| !place.left.is_empty());
    }

    /// The file was cut; a new generation begins with that.
    pub(super) fn cut(&mut self, size: u64) {
        self.replace(Extent::between(size, u64::MAX));
    }

    /// Whoever has the oldest open place is not waited for any longer; a new generation begins with
    /// that.
    pub(super) fn give_up_oldest(&mut self) {
        if !self.open.is_empty() {
            self.given_up = self.given_up.max(self.open.remove(0).number);
        }
    }

    /// A new generation begins: nothing is on its way any more but what is left.
    pub(super) fn supersede(&mut self) {
        let left = self
            .open
            .iter()
            .flat_map(|place| place.left.iter().copied());
        self.given = left.collect();
        tidy(&mut self.given);
    }
}

/// Puts runs in order and those together that touch, and so many more that they are not too many:
/// what lies between them then counts as well.
fn tidy(runs: &mut Vec<Run>) {
    runs.sort_unstable();
    let mut whole: Vec<Run> = Vec::with_capacity(runs.len());
    for (begin, end) in runs.drain(..) {
        match whole.last_mut() {
            Some(last) if last.1 >= begin => last.1 = last.1.max(end),
            _ => whole.push((begin, end)),
        }
    }
    while whole.len() > NAMESPACE_APPENDED_MAX {
        let gaps = whole.windows(2).map(|pair| pair[1].0 - pair[0].1);
        let Some((at, _)) = gaps.enumerate().min_by_key(|(_, gap)| *gap) else {
            break;
        };
        whole[at].1 = whole[at + 1].1;
        whole.remove(at + 1);
    }
    *runs = whole;
}

#[cfg(test)]
mod tests;
