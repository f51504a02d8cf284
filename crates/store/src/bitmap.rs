//! A set of small numbers, a bit each, with a cursor for the next free one.

/// Bits `0..len`, and how many of them are clear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    len: usize,
    clear: usize,
}

impl Bitmap {
    /// `len` clear bits.
    #[must_use]
    pub(crate) fn new(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
            len,
            clear: len,
        }
    }

    /// How many bits there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many bits are clear.
    #[must_use]
    pub(crate) fn clear_count(&self) -> usize {
        self.clear
    }

    /// Adds `more` clear bits at the end.
    pub(crate) fn grow(&mut self, more: usize) {
        self.len += more;
        self.clear += more;
        self.words.resize(self.len.div_ceil(64), 0);
    }

    /// Whether bit `at` is set.
    ///
    /// # Panics
    /// If there is no such bit.
    #[must_use]
    pub(crate) fn get(&self, at: usize) -> bool {
        assert!(at < self.len, "bit {at} of {}", self.len);
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// Sets or clears bit `at`; says whether that changed it.
    ///
    /// # Panics
    /// If there is no such bit.
    pub(crate) fn set(&mut self, at: usize, to: bool) -> bool {
        if self.get(at) == to {
            return false;
        }
        self.words[at / 64] ^= 1 << (at % 64);
        if to {
            self.clear -= 1;
        } else {
            self.clear += 1;
        }
        true
    }

    /// The first clear bit from `from` on, going on at the beginning.
    #[must_use]
    pub(crate) fn next_clear(&self, from: usize) -> Option<usize> {
        if self.clear == 0 {
            return None;
        }
        let from = if from < self.len { from } else { 0 };
        self.clear_between(from, self.len)
            .or_else(|| self.clear_between(0, from))
    }

    /// Whether none of the bits `from..to` is set.
    #[must_use]
    pub(crate) fn is_clear_between(&self, from: usize, to: usize) -> bool {
        (from..to).all(|at| !self.get(at))
    }

    fn clear_between(&self, from: usize, to: usize) -> Option<usize> {
        let mut at = from;
        while at < to {
            let free = !self.words[at / 64] >> (at % 64);
            if free != 0 {
                at += free.trailing_zeros() as usize;
                return (at < to).then_some(at);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The bits `from..to` as bytes, the lowest bit first; `from` is a multiple of 8.
    #[must_use]
    pub(crate) fn bytes(&self, from: usize, to: usize) -> Vec<u8> {
        let mut bytes = vec![0; (to - from).div_ceil(8)];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let at = from + index * 8;
            *byte = (self.words[at / 64] >> (at % 64)) as u8;
        }
        bytes
    }

    /// Sets every bit that is set in `bytes`, which stand for the bits from `from` on. False if one
    /// of them is beyond the end.
    #[must_use]
    pub(crate) fn set_bytes(&mut self, from: usize, bytes: &[u8]) -> bool {
        for (index, byte) in bytes.iter().enumerate() {
            for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                let at = from + index * 8 + bit;
                if at >= self.len {
                    return false;
                }
                self.set(at, true);
            }
        }
        true
    }

    /// The set bits in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len).filter(|at| self.get(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_vector_of_booleans(
            len in 1..200_usize,
            changes in prop::collection::vec((0..200_usize, any::<bool>()), 0..300),
            from in 0..250_usize,
        ) {
            let mut bits = Bitmap::new(len / 2);
            bits.grow(len - len / 2);
            let mut model = vec![false; len];
            for (at, to) in changes.into_iter().filter(|(at, _)| *at < len) {
                prop_assert_eq!(bits.set(at, to), model[at] != to);
                model[at] = to;
            }
            prop_assert_eq!(bits.clear_count(), model.iter().filter(|bit| !**bit).count());
            let start = if from < len { from } else { 0 };
            let expected = (start..len).chain(0..start).find(|at| !model[*at]);
            prop_assert_eq!(bits.next_clear(from), expected);
            let mut again = Bitmap::new(len);
            prop_assert!(again.set_bytes(0, &bits.bytes(0, len)));
            prop_assert_eq!(&again, &bits);
            let (low, high) = (start.min(len / 2), start.max(len / 2));
            prop_assert_eq!(bits.is_clear_between(low, high), !model[low..high].contains(&true));
            prop_assert!(bits.iter().eq((0..len).filter(|at| model[*at])));
        }
    }
}
