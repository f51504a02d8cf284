//! Replies: what a client is told, as parts that follow each other on the line.
//!
//! What was read is not copied: the parts of a reply are slices of one buffer with small heads
//! between them.

use super::negotiation::ALLOCATION_ID;
use super::request::Errno;
use base::limits::NBD_READ_RUNS_MAX;
use base::{Extent, ExtentSet};
use bytes::{BufMut, Bytes, BytesMut};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const SIMPLE_BYTES: usize = 16;
const CHUNK_BYTES: usize = 20;

const FLAG_DONE: u16 = 1;

const TYPE_NONE: u16 = 0;
const TYPE_OFFSET_DATA: u16 = 1;
const TYPE_OFFSET_HOLE: u16 = 2;
const TYPE_BLOCK_STATUS: u16 = 5;
const TYPE_ERROR: u16 = (1 << 15) + 1;

/// Of a run: it takes no space, and it is zeros.
const STATE_HOLE_ZERO: u32 = 1 | 2;
/// Longest text of an error; it is for people.
const ERROR_TEXT_BYTES_MAX: usize = 512;

/// A reply without more to say.
#[must_use]
pub fn simple_reply(cookie: u64, error: Option<Errno>) -> Bytes {
    let mut head = BytesMut::with_capacity(SIMPLE_BYTES);
    head.put_u32(SIMPLE_MAGIC);
    head.put_u32(error.map_or(0, |error| error as u32));
    head.put_u64(cookie);
    head.freeze()
}

/// A failure, with words where the client understands them.
#[must_use]
pub fn error_reply(cookie: u64, error: Errno, text: &str, is_structured: bool) -> Bytes {
    if !is_structured {
        return simple_reply(cookie, Some(error));
    }
    let mut end = text.len().min(ERROR_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut reply = chunk_head(cookie, true, TYPE_ERROR, 6 + end);
    reply.put_u32(error as u32);
    reply.put_u16(end as u16);
    reply.put_slice(&text.as_bytes()[..end]);
    reply.freeze()
}

/// What was read: `bytes` from `extent.offset` on, of which `holes` are zeros that need not be
/// sent.
#[must_use]
pub fn read_reply(
    cookie: u64,
    extent: Extent,
    bytes: Bytes,
    holes: &ExtentSet,
    is_structured: bool,
) -> Vec<Bytes> {
    debug_assert_eq!(bytes.len() as u64, extent.len);
    if !is_structured {
        return vec![simple_reply(cookie, None), bytes];
    }
    if extent.is_empty() {
        return vec![chunk_head(cookie, true, TYPE_NONE, 0).freeze()];
    }
    let runs = runs(extent, holes);
    let runs = match runs.len() {
        0..=NBD_READ_RUNS_MAX => runs,
        _ => vec![(extent, false)],
    };
    let mut parts = Vec::with_capacity(2 * runs.len());
    for (number, &(run, is_hole)) in runs.iter().enumerate() {
        let is_last = number + 1 == runs.len();
        if is_hole {
            let mut chunk = chunk_head(cookie, is_last, TYPE_OFFSET_HOLE, 12);
            chunk.put_u64(run.offset);
            chunk.put_u32(run.len as u32);
            parts.push(chunk.freeze());
        } else {
            let mut chunk = chunk_head(cookie, is_last, TYPE_OFFSET_DATA, 8 + run.len as usize);
            chunk.put_u64(run.offset);
            parts.push(chunk.freeze());
            let start = (run.offset - extent.offset) as usize;
            parts.push(bytes.slice(start..start + run.len as usize));
        }
    }
    parts
}

/// Which bytes of `extent`, from its beginning on, are holes: at most `runs_max` runs of it.
#[must_use]
pub fn status_reply(cookie: u64, extent: Extent, holes: &ExtentSet, runs_max: usize) -> Bytes {
    let mut runs = runs(extent, holes);
    runs.truncate(runs_max.max(1));
    let mut reply = chunk_head(cookie, true, TYPE_BLOCK_STATUS, 4 + 8 * runs.len());
    reply.put_u32(ALLOCATION_ID);
    for (run, is_hole) in runs {
        reply.put_u32(run.len as u32);
        reply.put_u32(if is_hole { STATE_HOLE_ZERO } else { 0 });
    }
    reply.freeze()
}

/// The extent in runs of data and of holes, in order.
fn runs(extent: Extent, holes: &ExtentSet) -> Vec<(Extent, bool)> {
    let mut runs = Vec::new();
    let mut position = extent.offset;
    for data in holes.missing(extent) {
        if position < data.offset {
            runs.push((Extent::between(position, data.offset), true));
        }
        runs.push((data, false));
        position = data.end();
    }
    if position < extent.end() {
        runs.push((Extent::between(position, extent.end()), true));
    }
    runs
}

fn chunk_head(cookie: u64, is_last: bool, kind: u16, len: usize) -> BytesMut {
    // With room for what is in most chunks beside data, which is sent from where it lies.
    let mut head = BytesMut::with_capacity(CHUNK_BYTES + 12);
    head.put_u32(STRUCTURED_MAGIC);
    head.put_u16(if is_last { FLAG_DONE } else { 0 });
    head.put_u16(kind);
    head.put_u64(cookie);
    head.put_u32(len as u32);
    head
}
