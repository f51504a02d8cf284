//! Records that are gone for good.
//!
//! A page of records that cannot be read, and that nothing else on the device can restore, is an
//! error for whoever asks for a record in it: there may have been one. A repair replaces that page,
//! and leaves behind which keys it had, so that asking goes on being an error and does not become
//! "there is none", which would read as zeros. What is written there later is found.
//!
//! Ranges are kept for the places and the attributes of objects, whose numbers are never used
//! again, and for objects if nothing says which ones there were. Where names are known, a record of
//! its own says that something is lost: an object's ([`crate::record::Home::Lost`]), a span's
//! checksums ([`crate::leaf::Group::Lost`]). All other records follow from these and are derived.

use crate::key::Key;
use crate::record;
use crate::{Damage, StoreError};
use base::ObjectId;

/// Ranges of keys, each up to, not including, its second one; in order, none touching another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost(Vec<Range>);

/// From the first key up to, not including, the second.
pub(crate) type Range = (Key, Key);

impl Lost {
    /// These ranges, which may overlap.
    pub(crate) fn of(ranges: impl IntoIterator<Item = Range>) -> Self {
        let mut ranges: Vec<Range> = ranges.into_iter().collect();
        ranges.sort_unstable();
        let mut lost = Self::default();
        for (from, to) in ranges {
            match lost.0.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(end.clone()),
                _ => lost.0.push((from, to)),
            }
        }
        lost
    }

    /// Reads the contents of their records.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if one is none.
    pub(crate) fn decode<'a>(
        values: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, StoreError> {
        let ranges = values.into_iter().map(|value| {
            let range: Range = record::decode(value)?;
            if range.0 < range.1 {
                Ok(range)
            } else {
                Err(Damage::Record.into())
            }
        });
        let ranges: Result<Vec<Range>, StoreError> = ranges.collect();
        Ok(Self::of(ranges?))
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// Fails if there may have been a record of that name.
    pub(crate) fn check(&self, key: &Key) -> Result<(), StoreError> {
        let has = |(from, to): &Range| from <= key && key < to;
        match self.0.iter().any(has) {
            true => Err(Damage::Lost.into()),
            false => Ok(()),
        }
    }

    /// Fails if there may have been records from `from` up to, not including, `to`.
    pub(crate) fn check_range(&self, from: &Key, to: &Key) -> Result<(), StoreError> {
        let touches = |(start, end): &Range| start < to && from < end;
        match self.0.iter().any(touches) {
            true => Err(Damage::Lost.into()),
            false => Ok(()),
        }
    }
}

/// What two ranges have in common.
pub(crate) fn intersection(a: &Range, b: &Range) -> Option<Range> {
    let from = (&a.0).max(&b.0).clone();
    let to = (&a.1).min(&b.1).clone();
    (from < to).then_some((from, to))
}

impl Key {
    /// Before every other one, or the first.
    pub(crate) const MIN: Self = Self::Object(ObjectId([0; 16]));
    /// Behind every other one that is written.
    pub(crate) const MAX: Self = Self::Lost(u32::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined() {
        let lost = Lost::of([
            (Key::Place(7, 0), Key::Place(9, 4)),
            (Key::Place(12, 0), Key::Place(12, 1)),
            (Key::Place(3, 0), Key::Place(7, 0)),
        ]);
        let expected = [
            (Key::Place(3, 0), Key::Place(9, 4)),
            (Key::Place(12, 0), Key::Place(12, 1)),
        ];
        assert_eq!(lost.ranges(), expected);
        assert!(lost.check(&Key::Place(9, 3)).is_err() && lost.check(&Key::Place(9, 4)).is_ok());
        let between = |from, to| lost.check_range(&Key::Place(9, from), &Key::Place(12, to));
        assert!(between(4, 0).is_ok() && between(3, 0).is_err() && between(4, 1).is_err());
        let values: Vec<_> = expected.iter().map(record::encode).collect();
        let decoded = Lost::decode(values.iter().map(|value| &**value));
        assert_eq!(decoded.unwrap(), lost);
    }

    #[test]
    fn a_range_that_ends_where_it_begins_or_before_is_damage() {
        for end in [6, 7] {
            let value = record::encode(&(Key::Place(7, 0), Key::Place(end, 0)));
            let decoded = Lost::decode([&*value]);
            assert!(matches!(decoded, Err(StoreError::Damaged(Damage::Record))));
        }
    }
}
