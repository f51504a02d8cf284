//! What time does: ends silent sessions, gives up on recalls, ends the time for reclaiming locks.

use crate::core::{Core, Ending};
use crate::session::Session;
use crate::steps::Waited;
use base::Time;
use base::limits::SESSION_IDLE_TIME_MAX;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::message::Farewell;

/// How late a time-out may be noticed.
const TICK: Duration = Duration::from_millis(100);
/// Ticks between looks at what is slow to change.
const SLOW_TICKS: u64 = 10;
/// How long no lock must be held before the mark on the disk is taken back.
const LOCKS_QUIET_TIME: Duration = Duration::from_secs(10);

/// Runs for as long as the server.
pub(crate) async fn run(core: Arc<Core>) {
    let task = core.background.add("sessions");
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut locks_held = core.clock.now();
    for count in 0u64.. {
        ticks.tick().await;
        if core.stopping.load(Ordering::Acquire) {
            return;
        }
        let now = core.clock.now();
        core.locks.tick(now, &core.pool);
        if core.caching.is_recalling() {
            for session in core.caching.expire() {
                tracing::warn!(host = session.host, "a client does not obey a recall");
                end(&core, session, Ending::Broken(Farewell::Protocol));
            }
        }
        if count % SLOW_TICKS == 0 {
            let ended = end_silent(&core, now);
            give_up_hanging(&core, now);
            end_long_waits(&core, now);
            task.add(ended);
            task.set_state(match core.sessions.counts().1 {
                0 => "none is ending".to_owned(),
                ending => format!("{ending} ending"),
            });
            core.caching.sweep();
            note_locks(&core, now, &mut locks_held);
        }
    }
}

/// Notes now and then how far stores are, for as long as the server runs.
pub(crate) async fn note_stores(core: Weak<Core>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(core) = core.upgrade() else { return };
        if core.stopping.load(Ordering::Acquire) {
            return;
        }
        let noted = tokio::task::spawn_blocking(move || core.storage.note_seen()).await;
        if let Ok(Err(error)) = noted {
            tracing::warn!(%error, "how far stores are is not noted");
        }
    }
}

/// Ends sessions that have no connection and have not been heard for long.
fn end_silent(core: &Arc<Core>, now: Time) -> u64 {
    let mut ended = 0;
    for session in core.sessions.list() {
        if is_silent(&session, now) && !session.has_ended() {
            end(core, session, Ending::Silent);
            ended += 1;
        }
    }
    ended
}

fn is_silent(session: &Session, now: Time) -> bool {
    now.since(session.heard()) > SESSION_IDLE_TIME_MAX && session.links().is_empty()
}

/// Ends a session beside the reaper: closing what it had open may take the disk's time (a removed
/// file of a terabyte), and others wait for the next tick.
fn end(core: &Arc<Core>, session: Arc<Session>, ending: Ending) {
    let core = core.clone();
    tokio::task::spawn_blocking(move || {
        // It may have come back while this waited for a thread.
        let now = core.clock.now();
        if !matches!(ending, Ending::Silent) || is_silent(&session, now) {
            core.end_session(&session, ending);
        }
    });
}

/// Takes their locks from sessions that have ended and do not come to rest, because a device hangs
/// below a request: nobody else has to wait for it for ever.
fn give_up_hanging(core: &Core, now: Time) {
    for session in core.sessions.list_all() {
        if let Some(clear) = session.give_up(now) {
            tracing::error!(
                host = session.host,
                "a request of a session that has ended hangs; its locks are given up"
            );
            tokio::task::spawn_blocking(clear);
        }
    }
}

/// Lets requests go on that have waited for others of their session for too long.
fn end_long_waits(core: &Core, now: Time) {
    for session in core.sessions.list() {
        let late = session.memory().take_late(now);
        for mut request in late {
            request.end_wait(Waited::TooLong);
            core.pool.push_resumed(request);
        }
    }
}

fn note_locks(core: &Arc<Core>, now: Time, held: &mut Time) {
    if !core.locks.is_empty() {
        *held = now;
    } else if now.since(*held) > LOCKS_QUIET_TIME && core.locks_noted.is_possible() {
        // Until the next attempt, should this one fail.
        *held = now;
        let core = core.clone();
        tokio::task::spawn_blocking(move || {
            core.locks_noted
                .clear(|| core.locks.is_empty(), || core.mark_locks(false));
        });
    }
}
