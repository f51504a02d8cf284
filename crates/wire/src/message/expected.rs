//! Which replies are answers.
//!
//! A body that decodes is well formed, no more: it may answer another step than the one asked,
//! bring more data than there was room for, or tell of a file of 2^63 bytes. A client accounts for
//! memory by what it asked, and computes with sizes and offsets. So what a request's reply may be
//! is noted when it is sent ([`Expected`]), and nothing of a reply is looked at that is not. What
//! remains is a matter of trust: a server may say anything about its own files.

use super::file::{DirectoryEntry, Entry, LockRange, Step, StepReply, WriteAt};
use super::layout::FileLayout;
use base::{Attributes, FsError, Timestamp};

/// Last byte that a file can have, and so the largest size and offset (`LLONG_MAX`): the kernel
/// keeps them as signed numbers.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// Allocated units of 512 bytes that a file of the largest size has.
const BLOCKS_MAX: u64 = OFFSET_MAX / 512 + 1;
const NANOS_MAX: u32 = 999_999_999;
/// Stripe units: from a page, the least that a store writes, to 1 GiB.
const UNITS_LOG2: std::ops::RangeInclusive<u8> = 12..=30;

/// What one step's reply may be.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Done,
    Attached,
    Found { inline_bytes_max: u32 },
    Attributes,
    LinkTarget,
    Created,
    Data { bytes_max: u32 },
    Written { offset: Option<u64>, bytes_max: u64 },
    Position { least: u64 },
    Removed,
    Renamed,
    Directory { cookie: u64, entries_max: u32 },
    Contents { files: usize, bytes_max: u32 },
    FileSystem,
    Xattr,
    XattrNames,
    Lock,
    Layout,
    Access,
    Explained,
    Placed { bytes: u64 },
    PlaceLeft,
}

/// What the reply to a request may be.
#[derive(Clone, Debug)]
pub struct Expected {
    answers: Vec<Answer>,
    /// From this step on, all make or remove names: the server may go on behind one that fails.
    names: usize,
}

/// A reply that is no answer to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply does not answer the request")]
pub struct Unexpected;

impl Expected {
    /// What may be answered to these steps.
    #[must_use]
    pub fn of(steps: &[Step]) -> Self {
        let others = steps.iter().rposition(|step| !step.goes_on_in_copies());
        Self {
            answers: steps.iter().map(Answer::to).collect(),
            names: others.map_or(0, |last| last + 1),
        }
    }

    /// Whether these results, with `payload_bytes` of payload, are an answer.
    ///
    /// # Errors
    /// [`Unexpected`]: nothing of the reply may be believed.
    pub fn check(
        &self,
        results: &[Result<StepReply, FsError>],
        payload_bytes: usize,
    ) -> Result<(), Unexpected> {
        let failed = matches!(results.last(), Some(Err(_)));
        // All steps are answered, or those up to the first that failed.
        let complete =
            results.len() == self.answers.len() || (failed && results.len() < self.answers.len());
        if !complete {
            return Err(Unexpected);
        }
        let mut told_bytes = 0;
        for (at, (answer, result)) in self.answers.iter().zip(results).enumerate() {
            match result {
                Ok(reply) if answer.is(reply) => told_bytes += data_bytes(reply),
                Err(_) if at + 1 == results.len() || at >= self.names => {}
                Ok(_) | Err(_) => return Err(Unexpected),
            }
        }
        // A step may have failed with some of its data already there.
        let payload_bytes = payload_bytes as u64;
        if told_bytes == payload_bytes || (failed && told_bytes < payload_bytes) {
            Ok(())
        } else {
            Err(Unexpected)
        }
    }
}

impl Answer {
    fn to(step: &Step) -> Self {
        match step {
            Step::Attach { .. } => Self::Attached,
            Step::Lookup {
                inline_bytes_max, ..
            } => Self::Found {
                inline_bytes_max: *inline_bytes_max,
            },
            Step::Attributes { .. }
            | Step::SetAttributes { .. }
            | Step::Open { .. }
            | Step::Commit { .. }
            | Step::Allocate { .. }
            | Step::SetXattr { .. }
            | Step::RemoveXattr { .. }
            | Step::Wrote { .. }
            | Step::Stored { .. }
            | Step::GivePlaceUp { .. } => Self::Attributes,
            Step::Layout { .. } => Self::Layout,
            Step::Place { bytes, .. } => Self::placed(*bytes),
            Step::PlaceLeft { .. } => Self::PlaceLeft,
            Step::Extend { bytes, .. } => Self::written(None, *bytes),
            Step::ReadLink { .. } => Self::LinkTarget,
            Step::Create { .. }
            | Step::CreateFile { .. }
            | Step::MakeDirectory { .. }
            | Step::MakeNode { .. }
            | Step::MakeSymlink { .. }
            | Step::Link { .. } => Self::Created,
            Step::Read { bytes, .. } => Self::Data { bytes_max: *bytes },
            Step::Write { at, bytes, .. } => match at {
                WriteAt::Offset(offset) | WriteAt::Again(offset) => {
                    Self::written(Some(*offset), *bytes)
                }
                WriteAt::End => Self::written(None, *bytes),
            },
            Step::CopyRange {
                target_offset,
                bytes,
                ..
            } => Self::Written {
                offset: Some(*target_offset),
                bytes_max: *bytes,
            },
            Step::Seek { offset, .. } => Self::Position { least: *offset },
            Step::Remove { .. } | Step::RemoveDirectory { .. } => Self::Removed,
            Step::Rename { .. } => Self::Renamed,
            Step::Fetch { handles, bytes_max } => Self::Contents {
                files: handles.len(),
                bytes_max: *bytes_max,
            },
            Step::StatFileSystem { .. } => Self::FileSystem,
            Step::GetXattr { .. } => Self::Xattr,
            Step::ListXattrs { .. } => Self::XattrNames,
            Step::ReadDirectory { .. }
            | Step::Close { .. }
            | Step::After { .. }
            | Step::SyncDirectory { .. }
            | Step::SyncFileSystem { .. }
            | Step::Lock { .. }
            | Step::TestLock { .. }
            | Step::ReleaseLocks { .. }
            | Step::Access { .. }
            | Step::Explain { .. } => Self::to_rest(step),
        }
    }

    /// As [`Self::to`], of listings, locks and rights, and of what has no more to say than that it
    /// is done.
    fn to_rest(step: &Step) -> Self {
        match step {
            Step::ReadDirectory {
                cookie,
                entries_max,
                ..
            } => Self::Directory {
                cookie: *cookie,
                entries_max: *entries_max,
            },
            Step::TestLock { .. } => Self::Lock,
            Step::Access { .. } => Self::Access,
            Step::Explain { .. } => Self::Explained,
            _ => Self::Done,
        }
    }

    fn placed(bytes: u32) -> Self {
        let bytes = bytes.into();
        Self::Placed { bytes }
    }

    fn written(offset: Option<u64>, bytes: u32) -> Self {
        let bytes_max = bytes.into();
        Self::Written { offset, bytes_max }
    }

    /// Whether `reply` is such an answer.
    fn is(self, reply: &StepReply) -> bool {
        match (self, reply) {
            (Self::Done, StepReply::Done)
            | (Self::FileSystem, StepReply::FileSystem(_))
            | (Self::Access, StepReply::Access { .. })
            | (Self::Explained, StepReply::Explained(_))
            | (Self::Xattr, StepReply::Xattr(_)) => true,
            (Self::Attributes, StepReply::Attributes { attributes, .. }) => {
                are_possible(attributes)
            }
            // The kernel ends it at a NUL, and takes none that is empty.
            (Self::LinkTarget, StepReply::LinkTarget(target)) => {
                !target.is_empty() && !target.contains(&0)
            }
            (Self::Data { bytes_max }, StepReply::Data { bytes, .. }) => *bytes <= bytes_max,
            (
                Self::Written { offset, bytes_max },
                StepReply::Written {
                    offset: landed,
                    bytes,
                    attributes,
                },
            ) => {
                *bytes <= bytes_max
                    && offset.is_none_or(|offset| offset == *landed)
                    && landed
                        .checked_add(*bytes)
                        .is_some_and(|end| end <= OFFSET_MAX)
                    && are_possible(attributes)
            }
            (Self::Position { least }, StepReply::Position(found)) => {
                (least..=OFFSET_MAX).contains(found)
            }
            (
                Self::Directory {
                    cookie,
                    entries_max,
                },
                StepReply::Directory { entries, end, .. },
            ) => is_page(entries, *end, cookie, entries_max),
            (Self::Contents { files, bytes_max }, StepReply::Contents { files: found }) => {
                found.len() == files
                    && found.iter().flatten().all(|(bytes, attributes, _)| {
                        *bytes <= bytes_max && are_possible(attributes)
                    })
            }
            (Self::XattrNames, StepReply::XattrNames(names)) => {
                names.last().is_none_or(|last| *last == 0)
            }
            (Self::Lock, StepReply::Lock(found)) => found.as_ref().is_none_or(is_possible_lock),
            (Self::Layout, StepReply::Layout(layout)) => is_possible_layout(layout),
            (
                Self::Placed { bytes },
                StepReply::Placed {
                    offset, attributes, ..
                },
            ) => {
                let end = offset.checked_add(bytes);
                end.is_some_and(|end| end <= OFFSET_MAX) && are_possible(attributes)
            }
            (Self::PlaceLeft, StepReply::PlaceLeft { parts, .. }) => {
                let are_apart = parts.windows(2).all(|two| two[0].end() < two[1].offset);
                are_apart && parts.iter().all(|part| !part.is_empty())
            }
            _ => self.is_about_names(reply),
        }
    }

    /// As [`Self::is`], of answers that bring inodes.
    fn is_about_names(self, reply: &StepReply) -> bool {
        match (self, reply) {
            (Self::Attached, StepReply::Attached { root, .. }) => {
                is_possible(root) && root.attributes.kind == base::FileKind::Directory
            }
            (
                Self::Found { inline_bytes_max },
                StepReply::Found {
                    entry,
                    inline_bytes,
                    ..
                },
            ) => {
                entry.as_ref().is_none_or(is_possible)
                    && inline_bytes.is_none_or(|bytes| entry.is_some() && bytes <= inline_bytes_max)
            }
            (Self::Created, StepReply::Created { entry, parent, .. }) => {
                is_possible(entry) && are_possible(parent)
            }
            (Self::Removed, StepReply::Removed { parent, entry, .. }) => {
                are_possible(parent) && entry.as_ref().is_none_or(is_possible)
            }
            (
                Self::Renamed,
                StepReply::Renamed {
                    parent,
                    to_parent,
                    entry,
                    replaced,
                },
            ) => {
                are_possible(parent)
                    && are_possible(to_parent)
                    && is_possible(entry)
                    && replaced.as_deref().is_none_or(is_possible)
            }
            _ => false,
        }
    }
}

/// Payload bytes that a reply says are its own.
fn data_bytes(reply: &StepReply) -> u64 {
    match reply {
        StepReply::Data { bytes, .. } => u64::from(*bytes),
        StepReply::Found { inline_bytes, .. } => u64::from(inline_bytes.unwrap_or(0)),
        StepReply::Contents { files } => {
            let files = files.iter().flatten();
            files.map(|(bytes, ..)| u64::from(*bytes)).sum()
        }
        _ => 0,
    }
}

/// Whether a page of a listing brings the reader on: it has what was asked for at most, something
/// if there is to be more, and does not end where it began.
fn is_page(entries: &[DirectoryEntry], end: bool, cookie: u64, entries_max: u32) -> bool {
    let goes_on = match entries.last() {
        Some(last) => end || last.cookie != cookie,
        None => end,
    };
    goes_on
        && entries.len() <= entries_max as usize
        && entries.iter().all(|found| {
            let known = found.entry.as_ref();
            known.is_none_or(|entry| is_possible(entry) && entry.attributes.kind == found.kind)
        })
}

fn is_possible(entry: &Entry) -> bool {
    are_possible(&entry.attributes)
}

/// Whether an inode can have these attributes, on any file system.
fn are_possible(attributes: &Attributes) -> bool {
    let is_time = |time: &Timestamp| time.nanos <= NANOS_MAX;
    attributes.size <= OFFSET_MAX
        && attributes.blocks <= BLOCKS_MAX
        && attributes.mode & !base::mode::ALL == 0
        && is_time(&attributes.accessed)
        && is_time(&attributes.modified)
        && is_time(&attributes.changed)
        && attributes.created.as_ref().is_none_or(is_time)
}

/// Whether positions in the objects of a file can be computed by a layout.
fn is_possible_layout(layout: &FileLayout) -> bool {
    UNITS_LOG2.contains(&layout.unit_log2) && !layout.columns.is_empty()
}

fn is_possible_lock(lock: &LockRange) -> bool {
    let end = lock.extent.offset.checked_add(lock.extent.len);
    lock.extent.offset <= OFFSET_MAX && end.is_some() && !lock.extent.is_empty()
}

#[cfg(test)]
mod tests;
