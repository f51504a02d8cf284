//! Making durable what was written to a mount, before it is taken off or because somebody asks.
//!
//! The limit is not on the whole but on standing still, because a long line may have much to carry.
//! The mount's own patience may be shorter, and is next to none when the server has been away for
//! long: it is asked again until the limit is reached.

use crate::errors::plain_io;
use crate::mounts::Mounted;
use crate::progress::Progress;
use rustix::io::Errno;
use serde_json::Value;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How often the amount left is looked at.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long a server may be silent of whom nothing is wanted but a last word.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// What it is made durable for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// To go on afterwards.
    ToGoOn,
    /// To end: a server that does not answer is not waited for where nothing waits for it.
    ToEnd,
}

/// What could not be made durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// So many bytes are still to go; those that are lost are not among them.
    pub(super) bytes: u64,
    pub(super) errno: Errno,
    /// Whether the line to the server stood when it was last looked at.
    is_connected: bool,
}

impl Left {
    /// Why.
    pub(super) fn why(&self) -> String {
        match self.errno {
            Errno::TIMEDOUT if !self.is_connected => "the server is not connected".to_owned(),
            Errno::TIMEDOUT => "the server does not take it".to_owned(),
            Errno::IO => "some of it is lost, as the log of the mount says".to_owned(),
            errno => plain_io(&errno.into()),
        }
    }
}

/// Makes everything written durable, and shows how much is left of what `status` says.
///
/// # Errors
/// What the mount says, or [`Errno::TIMEDOUT`] if nothing has moved for `time_max`.
pub(super) fn write_back(
    mounted: &Mounted,
    status: Option<&Value>,
    time_max: Duration,
    waiting: Waiting,
) -> Result<(), Left> {
    let unwritten = status.map_or(0, unwritten_bytes);
    let mut done = mounted.sync();
    let progress = Progress::bytes("writing back", unwritten);
    let mut left = unwritten;
    let mut fewest = u64::MAX;
    let mut moved = Instant::now();
    let mut is_connected = status.is_none_or(stands);
    let outcome = loop {
        match done.recv_timeout(LOOK_INTERVAL) {
            // The mount's own patience is over, which may be shorter: it goes on if it is asked.
            Ok(Err(Errno::TIMEDOUT)) if moved.elapsed() < time_max => {
                std::thread::sleep(LOOK_INTERVAL);
                done = mounted.sync();
            }
            Ok(outcome) => break outcome,
            Err(RecvTimeoutError::Disconnected) => break Err(Errno::IO),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Ok(status) = mounted.status(LOOK_INTERVAL) {
            let now_left = unwritten_bytes(&status);
            // Names that are made or removed have no bytes.
            let requests = requests_left(&status);
            is_connected = stands(&status);
            if now_left < left || requests < fewest {
                moved = Instant::now();
            }
            left = now_left;
            fewest = fewest.min(requests);
            let ends = waiting == Waiting::ToEnd && says_cut_off(&status);
            if ends && moved.elapsed() >= SILENCE_MAX {
                break Err(Errno::TIMEDOUT);
            }
            progress.set(unwritten.saturating_sub(left));
        }
        if moved.elapsed() >= time_max {
            break Err(Errno::TIMEDOUT);
        }
    };
    progress.finish();
    // The mount's patience may have come to its end together with ours.
    let outcome = match outcome {
        Err(Errno::TIMEDOUT) => done.try_recv().unwrap_or(outcome),
        outcome => outcome,
    };
    outcome.map_err(|errno| Left {
        bytes: left,
        errno,
        is_connected,
    })
}

/// Requests that are not answered.
fn requests_left(status: &Value) -> u64 {
    let count = |key: &str| status.get(key).and_then(Value::as_u64).unwrap_or(0);
    count("requests_in_flight") + count("requests_queued")
}

/// Whether the line to the server stands.
fn stands(status: &Value) -> bool {
    status.get("connected").and_then(Value::as_bool) != Some(false)
}

/// Bytes that are not safe, as the mount's figures say.
pub(super) fn unwritten_bytes(status: &Value) -> u64 {
    status
        .get("unwritten_bytes")
        .and_then(Value::as_u64)
        .unwrap_or(0)
}

/// Whether the server does not answer, and nothing that was written waits for it.
pub(super) fn is_cut_off(mounted: &Mounted) -> bool {
    mounted
        .status(LOOK_INTERVAL)
        .is_ok_and(|status| says_cut_off(&status))
}

/// As [`is_cut_off`], by the mount's figures.
pub(super) fn says_cut_off(status: &Value) -> bool {
    let flag = |key: &str| status.get(key).and_then(Value::as_bool);
    let silence = status.get("silence_millis").and_then(Value::as_u64);
    let is_silent = u128::from(silence.unwrap_or(0)) > SILENCE_MAX.as_millis();
    flag("has_unwritten") == Some(false) && (!stands(status) || is_silent)
}
