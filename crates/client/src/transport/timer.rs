//! Time-outs and heartbeats.
//!
//! One task per transport. It sleeps until the earliest deadline or the next heartbeat. A heartbeat
//! is a ping whenever the server is not known to have heard something within the interval, which
//! also renews the leases.

use super::alarm::Alarm;
use super::{Call, CallError, Shared, Transport};
use crate::clock::{boot_time, now};
use base::Time;
use base::limits::{HEARTBEAT_INTERVAL, MANAGER_SILENCE_MAX};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::message::Request;

pub(super) fn spawn(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let alarm = Alarm::new();
        let mut watch = Watch {
            looked: now(),
            pinged: None,
        };
        while !shared.lock().closed {
            let mut wait = turn(&shared, &mut watch);
            shared.look_at_trust();
            let trust = shared.trust.left(boot_time());
            if !trust.is_zero() {
                // What the kernel keeps is believed until it is told, so no later than this, and
                // as soon as a machine wakes up that has slept for longer.
                alarm.set(trust);
                wait = wait.min(trust);
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = alarm.rings() => {}
                () = shared.timer.notified() => {}
            }
        }
    });
}

/// When the server was thought of last.
struct Watch {
    looked: Time,
    pinged: Option<Time>,
}

impl Watch {
    /// Whether this process has stood still until now, and may not have heard what was said.
    fn stood_still(&mut self, now: Time) -> bool {
        now.since(std::mem::replace(&mut self.looked, now)) > 2 * HEARTBEAT_INTERVAL
    }

    /// Whether it is time for a heartbeat, `age` after the last answer.
    fn beats(&mut self, now: Time, age: Duration) -> bool {
        let soon = |pinged: Time| now.since(pinged) < HEARTBEAT_INTERVAL / 4;
        let beats = age >= HEARTBEAT_INTERVAL && !self.pinged.is_some_and(soon);
        if beats {
            self.pinged = Some(now);
        }
        beats
    }
}

/// Does what is due; returns how long nothing will be.
fn turn(shared: &Arc<Shared>, watch: &mut Watch) -> Duration {
    let now = now();
    let stood_still = watch.stood_still(now);
    let mut overdue = Vec::new();
    let mut state = shared.lock();
    while let Some(id) = state.session.poll_expired(now) {
        overdue.extend(state.give_up(id));
    }
    let silence = now.since(shared.heard_at());
    let deadline = state.session.next_deadline();
    let up = state.session.is_up(wire::session::ConnectionIndex::MAIN);
    drop(state);
    if silence < shared.options.request_time_max {
        shared.is_silent.store(false, Ordering::Relaxed);
    } else if !overdue.is_empty() && !stood_still {
        shared.is_silent.store(true, Ordering::Relaxed);
    }
    for waiter in overdue {
        let _ = waiter.answer.send(Err(CallError::TimedOut));
    }
    if up && silence >= MANAGER_SILENCE_MAX && shared.has_managers.load(Ordering::Relaxed) {
        // Its machine or its process stands still, and another one may lead by now.
        shared.places.avoid_first();
        shared.leave.notify_waiters();
    }
    let age = shared.trust.age(boot_time());
    if up && watch.beats(now, age) {
        let transport = Transport {
            shared: Arc::clone(shared),
        };
        // Nobody waits for a heartbeat; its reply alone renews the leases.
        drop(transport.submit(&Request::Ping, Call::metadata()));
    }
    let beat = HEARTBEAT_INTERVAL
        .saturating_sub(age)
        .max(HEARTBEAT_INTERVAL / 4);
    deadline
        .map_or(beat, |deadline| deadline.since(now).min(beat))
        .max(Duration::from_millis(1))
}
