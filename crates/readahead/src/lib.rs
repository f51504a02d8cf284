//! What a mounted client should fetch next, and how many bytes may be under way.
//!
//! Everything here is a pure state machine: no I/O, no clock, no thread, no randomness. The caller
//! passes `now` and says what happened; the crate says what to do. It owns no data: buffers belong
//! to the client, which reports what was asked for, arrived, was used and was dropped.
//!
//! | noun | one per | says |
//! |---|---|---|
//! | [`LinkEstimator`] | server and direction | how many bytes may be in flight, in what pieces |
//! | [`FileStreams`] | file, not descriptor | which extents to fetch next, which to give up |
//! | [`Budget`] | mount | how much memory one file may fill |
//! | [`Neighbours`] | directory | which files to fetch whole, which directories to list |
//!
//! # Call order
//!
//! One read request of the kernel, in this order:
//!
//! ```text
//! match streams.judge_overshoot(extent)          only if it may be the kernel's own read-ahead:
//!                                                serve, let wait or refuse (`streams::overshoot`)
//! streams.on_read(now, extent, file_size)        as soon as the request arrives, before its data
//! streams.on_demanded(missing)                   for every part that the client neither holds nor
//! let sent = link.on_sent(now, missing.len)      awaits, and now asks for; demand is sent at
//!                                                once, whatever the window says
//! loop {                                         predicted fetches queue behind demand
//!     let room = link.room_bytes().min(budget.room_bytes(now, account));
//!     let Some(fetch) = streams.poll_fetch(now, &link.line(), room) else { break };
//!     budget.on_taken(account, fetch.extent.len);
//!     let sent = link.on_sent(now, fetch.extent.len);          keep `sent` with the request
//! }
//! while let Some(extent) = streams.poll_cancel(now) { ... }   take back what no longer pays
//! streams.on_used(now, extent)                   when the application has been answered
//! ```
//!
//! One reply:
//!
//! ```text
//! link.on_reply(now, sent, bytes, server_time)   or on_lost, or on_cancelled: one per `sent`
//! streams.on_fetched(now, extent)                or streams.on_dropped(extent) if it failed
//! poll_fetch as above                            a reply makes room in the window
//! ```
//!
//! When a buffer leaves memory: `streams.on_dropped(extent)` and `budget.on_freed(account, bytes)`.
//! After [`FileStreams::poll_cancel`] the extent counts as dropped already: the client cancels the
//! request if it is under way (`link.on_cancelled`), frees the buffer if it is not, and gives the
//! bytes back to the budget. A timer at [`FileStreams::next_timeout`] calls `poll_cancel`.
//! [`Budget::poll_reclaim`] names the file that holds too much: pass it to
//! [`FileStreams::reclaim`] and take the extents from `poll_cancel`.
//!
//! # What is guaranteed
//!
//! * The window is never zero and never above its cap. It is about the bandwidth-delay product
//!   (BDP) of the measured link, and is right again within ten round trips after the path has
//!   changed.
//! * No fetch passes the end of the file, overlaps what is under way or held, or exceeds `room`.
//! * For *every* sequence of reads: bytes fetched on a guess and never used are at most 10 % of the
//!   useful bytes + 2 BDP per change of pattern + [`CREDIT_INITIAL_BYTES`] (`tests/waste.rs`).
//! * Memory: streams, runs, hints and tables of one file are bounded by constants in their modules.
//!
//! Source: Ohtsuji and Tatebe, remote file access with non-blocking RPC, sections 3 and 4 (pending
//! requests, stride read-ahead); the window follows the model of BBR.

mod budget;
mod filter;
mod ledger;
mod link;
mod neighbours;
mod pattern;
mod stream;
mod streams;

pub use budget::{Account, Budget};
pub use link::{Changes, Line, LineMemory, LinkEstimator, Sent};
pub use neighbours::{Neighbours, Order};
pub use streams::{Advice, CREDIT_INITIAL_BYTES, Fetch, FileStreams, StreamId, Tally, Verdict};
