//! Who has written which bytes of files last.
//!
//! What stores lose is told byte by byte. A storage server loses it at any moment, and long after
//! others have written elsewhere in the same file, or there before and made that durable. So it
//! does not count who has ever changed a file, but whose its bytes are.
//!
//! There is room for a number of parts; the older half of them is forgotten at once, for whoever
//! has something to write again has mostly written it some seconds ago. What is known of a byte in
//! the newer half counts.

use base::limits::CHANGED_PARTS_MAX;
use base::{Extent, ExtentSet, Handle, QuickMap, SessionId};

/// Bytes that a session has written last; nobody in particular if that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    extent: Extent,
    by: Option<SessionId>,
}

/// Parts of a file, apart from each other and in order.
#[derive(Default)]
struct Parts(Vec<Part>);

impl Parts {
    /// Those that share bytes with `extent`.
    fn overlapping(&self, extent: Extent) -> &[Part] {
        let from = (self.0).partition_point(|part| part.extent.end() <= extent.offset);
        let to = (self.0).partition_point(|part| part.extent.offset < extent.end());
        self.0.get(from..to).unwrap_or_default()
    }

    /// The bytes are this session's now, or nobody's.
    fn put(&mut self, by: Option<SessionId>, extent: Extent) {
        // Those as well that only touch it: a file that is written from its begin on is one part.
        let from = (self.0).partition_point(|part| part.extent.end() < extent.offset);
        let to = (self.0).partition_point(|part| part.extent.offset <= extent.end());
        let (mut start, mut end) = (extent.offset, extent.end());
        let (mut before, mut after) = (None, None);
        for part in &self.0[from..to] {
            let (first, last) = (part.extent.offset, part.extent.end());
            if part.by == by {
                (start, end) = (start.min(first), end.max(last));
                continue;
            }
            let by = part.by;
            let rest = |extent: Extent| Some(Part { extent, by }).filter(|_| !extent.is_empty());
            before = before.or(rest(Extent::between(first, last.min(extent.offset))));
            after = rest(Extent::between(first.max(extent.end()), last)).or(after);
        }
        let extent = Extent::between(start, end);
        let parts = before.into_iter().chain([Part { extent, by }]).chain(after);
        drop(self.0.splice(from..to, parts));
    }
}

/// Parts of files, so many at most.
#[derive(Default)]
struct Half {
    files: QuickMap<Handle, Parts>,
    parts: usize,
}

impl Half {
    fn overlapping(&self, file: &Handle, extent: Extent) -> &[Part] {
        let parts = self.files.get(file);
        parts.map_or(&[], |parts| parts.overlapping(extent))
    }

    fn put(&mut self, by: Option<SessionId>, file: &Handle, extent: Extent) {
        let parts = match self.files.get_mut(file) {
            Some(parts) => parts,
            None => self.files.entry(file.clone()).or_default(),
        };
        let before = parts.0.len();
        parts.put(by, extent);
        self.parts = self.parts + parts.0.len() - before;
    }
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Written {
    newer: Half,
    older: Half,
    /// Bytes that are in neither may have been written, too.
    is_incomplete: bool,
}

impl Written {
    /// A session has written these bytes, or nobody in particular.
    pub(super) fn note(&mut self, by: Option<SessionId>, file: &Handle, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        // One that is put may be two more.
        if self.newer.parts + 2 > CHANGED_PARTS_MAX / 2 {
            self.is_incomplete |= self.older.parts > 0;
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.put(by, file, extent);
    }

    /// Whether nobody else can have written any of these bytes since the session did.
    pub(super) fn are_own(&self, by: SessionId, file: &Handle, extent: Extent) -> bool {
        let known = self.known_of(by, file, extent);
        known.is_some_and(|known| !self.is_incomplete || known.covers(extent))
    }

    /// Whether the session is known to have written all of these bytes, and nobody since.
    pub(super) fn are_known(&self, by: SessionId, file: &Handle, extent: Extent) -> bool {
        let known = self.known_of(by, file, extent);
        known.is_some_and(|known| known.covers(extent))
    }

    /// Which of these bytes the session is known to have written, if nobody else is to have written
    /// some of them.
    fn known_of(&self, by: SessionId, file: &Handle, extent: Extent) -> Option<ExtentSet> {
        let mut known = ExtentSet::new();
        for half in [&self.newer, &self.older] {
            for gap in known.missing(extent) {
                let parts = half.overlapping(file, gap);
                if parts.iter().any(|part| part.by != Some(by)) {
                    return None;
                }
                for part in parts {
                    known.insert(part.extent);
                }
            }
        }
        Some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: SessionId = SessionId([1; 16]);
    const TWO: SessionId = SessionId([2; 16]);

    fn file(number: usize) -> Handle {
        Handle::new(&number.to_le_bytes()).unwrap()
    }

    fn session(number: u8) -> SessionId {
        SessionId([number; 16])
    }

    #[test]
    fn what_is_forgotten_may_be_anybodys() {
        let mut written = Written::default();
        let extent = Extent::new(0, 10);
        for number in 0..CHANGED_PARTS_MAX {
            written.note(Some(ONE), &file(number), extent);
        }
        assert!(written.are_own(ONE, &file(CHANGED_PARTS_MAX - 1), extent));
        assert!(!written.are_own(TWO, &file(CHANGED_PARTS_MAX - 1), extent));
        let kept = written.newer.parts + written.older.parts;
        assert!((CHANGED_PARTS_MAX / 2..=CHANGED_PARTS_MAX).contains(&kept));
        assert!(!written.are_own(ONE, &file(0), extent), "it is forgotten");
        assert!(!written.are_own(ONE, &file(CHANGED_PARTS_MAX), extent));
        let beyond = Extent::new(0, 11);
        assert!(!written.are_own(ONE, &file(CHANGED_PARTS_MAX - 1), beyond));
        // Until then, what was never written is nobody else's.
        let mut written = Written::default();
        written.note(Some(TWO), &file(1), extent);
        assert!(written.are_own(ONE, &file(2), extent));
        assert!(written.are_own(ONE, &file(1), Extent::new(10, 10)));
    }

    #[test]
    fn a_file_that_is_written_from_its_begin_on_is_one_part() {
        let mut written = Written::default();
        for step in 0..100 {
            written.note(Some(ONE), &file(1), Extent::new(step * 7, 7));
        }
        assert_eq!(written.newer.parts, 1);
        written.note(None, &file(1), Extent::new(70, 7));
        assert_eq!(written.newer.parts, 3);
        written.note(Some(ONE), &file(1), Extent::between(0, u64::MAX));
        assert_eq!(written.newer.parts, 1);
    }

    proptest! {
        #[test]
        fn every_byte_is_its_last_writers(
            changes in prop::collection::vec((0_u8..4, 0_u64..32, 0_u64..12, any::<bool>()), 1..60)
        ) {
            let mut written = Written::default();
            let mut bytes = [None; 64];
            for (by, offset, len, is_half_full) in changes {
                written.note(Some(session(by)), &file(1), Extent::new(offset, len));
                bytes[offset as usize..(offset + len) as usize].fill(Some(by));
                if is_half_full && written.older.parts == 0 {
                    written.older = std::mem::take(&mut written.newer);
                }
                let parts = written.newer.files.values().next();
                let parts = parts.map_or(&[][..], |parts| &parts.0[..]);
                prop_assert_eq!(parts.len(), written.newer.parts);
                let is_apart = |two: &[Part]| two[0].extent.end() <= two[1].extent.offset;
                prop_assert!(parts.windows(2).all(is_apart), "{:?}", parts);
            }
            for by in 0..4 {
                let to_ends = |from| (from + 1..44).map(move |to| (from, to));
                for (from, to) in (0..40).flat_map(to_ends) {
                    let is_own = |byte: &Option<u8>| byte.is_none_or(|other| other == by);
                    let extent = Extent::between(from as u64, to as u64);
                    let expected = bytes[from..to].iter().all(is_own);
                    prop_assert_eq!(written.are_own(session(by), &file(1), extent), expected);
                    let expected = bytes[from..to].iter().all(|byte| *byte == Some(by));
                    prop_assert_eq!(written.are_known(session(by), &file(1), extent), expected);
                }
            }
        }
    }
}
