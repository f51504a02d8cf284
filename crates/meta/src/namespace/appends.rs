//! Places that were given to appends, and what is left of them.
//!
//! An append is given its place first: what is appended later goes behind it, and the bytes follow
//! at the stores. Until its client has told that they are there, the place is *open*. An append
//! comes in its turn when it is given its place. So whoever makes the file longer than up to there
//! comes after it, and is *behind* the place: he waits until it is told. Nobody is shown what lies
//! there before, nor the length that it makes. Where others append all the time, he may find later
//! places when he comes in his turn. Those he has not waited for; but the file is as long as he
//! says when they are told, and he is answered then. No more come before him: new places lie behind
//! what he has made of the file.
//!
//! But nobody waits for a machine that does not come back, nor for a slow line. After a while open
//! places are *shown*: the file is as long as with them, and has zeros where bytes are still to
//! come. Then others may cut the file there, or write, and what they do stands: of the place, what
//! they have left is all that has yet to come. They begin a new generation of the file's layout, so
//! that bytes that are on their way are refused at the stores, and whoever sent them asks what is
//! left.
//!
//! An append that cannot be written is *given up* by whoever has it. If it is the last, nothing is
//! left of it; else later ones have their places, and there are zeros before them.
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

impl Place {
    /// Where the first byte goes that is left.
    fn begin(&self) -> u64 {
        self.left.first().map_or(u64::MAX, |(begin, _)| *begin)
    }
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
    /// Places with smaller numbers are shown.
    shown_below: u64,
}

/// As they are in records of versions 2 and 3, where all places are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShownAppends {
    open: Vec<Place>,
    given: Vec<Run>,
    given_up: u64,
}

impl From<ShownAppends> for Appends {
    fn from(shown: ShownAppends) -> Self {
        let ShownAppends {
            open,
            given,
            given_up,
        } = shown;
        let mut appends = Self {
            open,
            given,
            given_up,
            shown_below: 0,
        };
        appends.show(u64::MAX, u64::MAX);
        appends
    }
}

impl Appends {
    /// Whether there is nothing to remember.
    pub(super) fn is_idle(&self) -> bool {
        // Later places have greater numbers than all that were shown.
        let shown_below = self.shown_below;
        *self
            == Self {
                shown_below,
                ..Self::default()
            }
    }

    /// Open places that are not shown.
    fn hidden(&self) -> impl Iterator<Item = &Place> {
        let shown_below = self.shown_below;
        let open = self.open.iter();
        open.filter(move |place| place.number >= shown_below)
    }

    /// How long a file is for everybody that has so many bytes with all places.
    pub(super) fn shown_size(&self, size: u64) -> u64 {
        let begin = self.hidden().map(Place::begin).min();
        begin.map_or(size, |begin| begin.min(size))
    }

    /// The last of the places that whoever makes the file so long is behind. Those with greater
    /// numbers than `through` were given to others later than that is asked for.
    pub(super) fn last_before(&self, end: u64, through: u64) -> Option<u64> {
        let is_before = |place: &&Place| place.begin() < end && place.number <= through;
        let before = self.hidden().filter(is_before);
        before.map(|place| place.number).max()
    }

    /// Nobody waits any longer for these places.
    pub(super) fn show(&mut self, end: u64, through: u64) {
        if let Some(last) = self.last_before(end, through) {
            self.shown_below = last.saturating_add(1);
        }
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

    /// Whoever has a place cannot write it. Where a file of so many bytes ends without it, if
    /// nothing came after it and nobody was shown it; a new generation begins with that. Nothing
    /// happens if it is not open.
    pub(super) fn give_up(&mut self, number: u64, size: u64) -> Option<u64> {
        let is_hidden = number >= self.shown_below;
        let at = self.open.iter().position(|place| place.number == number)?;
        let (begin, end) = *self.open.remove(at).left.last()?;
        (is_hidden && end == size).then_some(begin)
    }

    /// Whether a place is open.
    pub(super) fn has(&self, number: u64) -> bool {
        self.open.iter().any(|place| place.number == number)
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
