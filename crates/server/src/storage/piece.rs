//! Pieces of a step: where it is cut, what each of them has done, and what comes of them together.

use super::job::{Job, Outcome};
use bytes::Bytes;
use std::sync::Arc;
use store::device::AlignedBuffer;
use wire::message::{ObjectError, ObjectStepReply};

/// What a piece has done.
pub(super) enum Done {
    /// Moved so many bytes.
    Moved(u64),
    /// Read these, fewer than asked for if the object ends there.
    Read { data: Bytes, is_short: bool },
    /// The whole step.
    Step(ObjectStepReply),
}

/// A piece on its way. Dropped before it was carried out, it has failed.
pub(super) struct Piece {
    pub(super) job: Option<Arc<Job>>,
    pub(super) index: usize,
}

impl Piece {
    pub(super) fn carry_out(mut self, work: impl FnOnce(&Job) -> Result<Done, ObjectError>) -> u64 {
        let Some(job) = self.job.take() else {
            return 0;
        };
        let done = job.goes_on().and_then(|()| work(&job));
        let bytes = match &done {
            Ok(Done::Moved(bytes)) => *bytes,
            Ok(Done::Read { data, .. }) => data.len() as u64,
            _ => 0,
        };
        job.piece_done(self.index, done);
        bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            job.piece_done(self.index, Err(ObjectError::Busy));
        }
    }
}

/// A device's buffer as what a frame carries.
pub(super) struct Owned(pub(super) AlignedBuffer);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Where the pieces of so many bytes begin, and how long they are: none crosses a multiple of the
/// largest.
pub(super) fn cut(
    offset: u64,
    bytes: u32,
    piece_bytes: u32,
) -> Result<Vec<(u64, u32)>, ObjectError> {
    let end = offset
        .checked_add(u64::from(bytes))
        .ok_or(ObjectError::TooLong)?;
    let (mut pieces, mut at) = (Vec::new(), offset);
    while at < end {
        let len = (u64::from(piece_bytes) - at % u64::from(piece_bytes)).min(end - at);
        pieces.push((at, len as u32));
        at += len;
    }
    Ok(pieces)
}

/// How long the pieces are that pay for an append of so many bytes, one of none as one of one: none
/// is longer than the last, which writes all of it.
pub(super) fn appended(bytes: u32, piece_bytes: u32) -> Vec<u32> {
    let bytes = bytes.max(1);
    let whole = bytes / piece_bytes;
    let rest = bytes % piece_bytes;
    let first = (rest > 0).then_some(rest);
    let others = std::iter::repeat_n(piece_bytes, whole as usize);
    first.into_iter().chain(others).collect()
}

/// What became of a step, from its pieces. What was read up to the first that is short counts: the
/// object may have grown before the next one was read.
pub(super) fn gather(pieces: Vec<Result<Done, ObjectError>>, read: &mut Vec<Bytes>) -> Outcome {
    let (mut reply, mut bytes, mut parts) = (ObjectStepReply::Done, 0, Vec::new());
    let mut is_over = false;
    for piece in pieces {
        match piece? {
            Done::Moved(_) => {}
            Done::Step(done) => reply = done,
            Done::Read { data, is_short } => {
                if !is_over {
                    bytes += data.len() as u32;
                    parts.push(data);
                }
                is_over |= is_short;
                reply = ObjectStepReply::Data { bytes };
            }
        }
    }
    read.extend(parts);
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_where_pieces_do_and_are_together_the_whole() {
        assert_eq!(cut(0, 10, 4).unwrap(), [(0, 4), (4, 4), (8, 2)]);
        assert_eq!(cut(3, 6, 4).unwrap(), [(3, 1), (4, 4), (8, 1)]);
        assert_eq!(cut(5, 2, 4).unwrap(), [(5, 2)]);
        assert_eq!(cut(u64::MAX - 1, 1, 4).unwrap().len(), 1);
        assert!(cut(u64::MAX - 1, 2, 4).is_err());
    }

    #[test]
    fn an_append_is_written_by_a_piece_that_pays_as_much_as_any() {
        assert_eq!(appended(0, 4), [1]);
        assert_eq!(appended(3, 4), [3]);
        assert_eq!(appended(8, 4), [4, 4]);
        assert_eq!(appended(9, 4), [1, 4, 4]);
    }

    #[test]
    fn pieces_are_handed_on_as_they_are_and_a_failed_one_fails_the_step() {
        let data = Bytes::from_static(b"abc");
        let part = |is_short| {
            let data = data.clone();
            Ok(Done::Read { data, is_short })
        };
        let mut read = Vec::new();
        let some = vec![part(false), Err(ObjectError::Damaged)];
        assert_eq!(gather(some, &mut read), Err(ObjectError::Damaged));
        assert!(read.is_empty(), "nothing of a step that failed is sent");
        let two = gather(vec![part(false), part(false)], &mut read);
        assert_eq!(two, Ok(ObjectStepReply::Data { bytes: 6 }));
        assert!(read.iter().all(|part| part.as_ptr() == data.as_ptr()));
        assert_eq!(read.len(), 2, "no copy");
    }

    #[test]
    fn what_was_read_ends_where_the_object_did_although_it_has_grown_meanwhile() {
        let part = |data: &'static [u8], is_short| {
            let data = Bytes::from_static(data);
            Ok(Done::Read { data, is_short })
        };
        let mut read = Vec::new();
        let pieces = vec![part(b"abc", false), part(b"d", true), part(b"xyz", false)];
        let done = gather(pieces, &mut read);
        assert_eq!(done, Ok(ObjectStepReply::Data { bytes: 4 }));
        assert_eq!(read.concat(), b"abcd");
    }
}
