//! Time-outs and heartbeats.
//!
//! One task per transport. It sleeps until the earliest deadline or the next heartbeat. A heartbeat
//! is a ping whenever the server is not known to have heard something within the interval, which
//! also renews the leases.

use super::alarm::Alarm;
use super::{Call, CallError, Shared, Transport};
use crate::clock::{boot_time, now};
use base::limits::{HEARTBEAT_INTERVAL, MANAGER_SILENCE_MAX};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::message::Request;

pub(super) fn spawn(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let alarm = Alarm::new();
        while !shared.lock().closed {
            let mut wait = turn(&shared);
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

/// Does what is due; returns how long nothing will be.
fn turn(shared: &Arc<Shared>) -> Duration {
    let now = now();
    let mut overdue = Vec::new();
    let mut state = shared.lock();
    while let Some(id) = state.session.poll_expired(now) {
        overdue.extend(state.give_up(id));
    }
    let silence = now.since(shared.heard_at());
    let deadline = state.session.next_deadline();
    let up = state.session.is_up(wire::session::ConnectionIndex::MAIN);
    drop(state);
    for waiter in overdue {
        let _ = waiter.answer.send(Err(CallError::TimedOut));
    }
    if up && silence >= MANAGER_SILENCE_MAX && shared.has_managers.load(Ordering::Relaxed) {
        // Its machine or its process stands still, and another one may lead by now.
        shared.places.avoid_first();
        shared.leave.notify_waiters();
    }
    let age = shared.trust.age(boot_time());
    if up && age >= HEARTBEAT_INTERVAL {
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
