//! Ranges of keys.

use crate::MetaError;
use base::limits::META_KEY_BYTES_MAX;

/// The keys from `start` to before `end`, in the order of their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    start: Vec<u8>,
    /// None: no end.
    end: Option<Vec<u8>>,
}

impl KeyRange {
    /// From `start` to before `end`.
    #[must_use]
    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self {
            start: start.into(),
            end: Some(end.into()),
        }
    }

    /// From `start` on.
    #[must_use]
    pub fn from(start: impl Into<Vec<u8>>) -> Self {
        Self {
            start: start.into(),
            end: None,
        }
    }

    /// Every key.
    #[must_use]
    pub fn all() -> Self {
        Self::from([])
    }

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: impl Into<Vec<u8>>) -> Self {
        let start = prefix.into();
        let end = successor(&start);
        Self { start, end }
    }

    /// The same range without the keys up to `key`: the rest of it after a page that ended there.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> Self {
        let mut next = key.to_vec();
        next.push(0);
        Self {
            start: next.max(self.start.clone()),
            end: self.end.clone(),
        }
    }

    /// Where it begins.
    #[must_use]
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// Before which key it ends.
    #[must_use]
    pub fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }

    /// Whether `key` is in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end)
    }

    /// Whether a key can be in both.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let begins_before_end = |one: &Self, other: &Self| match &other.end {
            Some(end) => one.start < *end,
            None => true,
        };
        begins_before_end(self, other) && begins_before_end(other, self)
    }

    pub(crate) fn check(&self) -> Result<(), MetaError> {
        if self.end.as_ref().is_some_and(|end| *end <= self.start) {
            return Err(MetaError::Invalid("a range ends after it begins"));
        }
        let longest = self.start.len().max(self.end.as_ref().map_or(0, Vec::len));
        // The key after the longest one is longer by a byte.
        if longest > META_KEY_BYTES_MAX + 1 {
            return Err(MetaError::TooLarge {
                what: "bytes in a bound of a range",
                size: longest,
                size_max: META_KEY_BYTES_MAX + 1,
            });
        }
        Ok(())
    }
}

/// The first key after all that begin with `prefix`; none if there is no such key.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_all_that_begins_with_it() {
        let range = KeyRange::prefix(*b"a\xff");
        assert!(range.contains(b"a\xff") && range.contains(b"a\xff\xff\xff"));
        assert!(!range.contains(b"b") && !range.contains(b"a\xfe\xff"));
        assert!(KeyRange::prefix(*b"\xff").contains(b"\xff\xff"));
        assert!(KeyRange::all().contains(b"") && KeyRange::all().end().is_none());
    }

    #[test]
    fn the_rest_of_a_range_begins_after_the_key() {
        let rest = KeyRange::new(*b"b", *b"d").after(b"c");
        assert!(!rest.contains(b"c") && rest.contains(b"c\0") && !rest.contains(b"d"));
        let whole = KeyRange::new(*b"b", *b"d").after(b"a");
        assert!(whole.contains(b"b") && !whole.contains(b"a\0"));
    }

    #[test]
    fn ranges_meet_where_a_key_is_in_both() {
        let range = |from: &[u8], to: &[u8]| KeyRange::new(from, to);
        assert!(range(b"a", b"c").meets(&range(b"b", b"d")));
        assert!(!range(b"a", b"b").meets(&range(b"b", b"c")));
        assert!(KeyRange::from(*b"x").meets(&KeyRange::all()));
        assert!(!KeyRange::from(*b"x").meets(&range(b"a", b"x")));
    }

    #[test]
    fn a_range_without_keys_is_refused() {
        assert!(KeyRange::new(*b"b", *b"b").check().is_err());
        assert!(KeyRange::new(*b"b", *b"a").check().is_err());
        assert!(
            KeyRange::from(vec![0; META_KEY_BYTES_MAX + 2])
                .check()
                .is_err()
        );
        assert!(KeyRange::all().check().is_ok());
    }
}
