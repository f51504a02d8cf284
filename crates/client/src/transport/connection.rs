//! The two tasks of a connection, and its rebirth.

use super::bulk::{Bulk, WARMING_REQUEST};
use super::dial::{self, ConnectError, Dialled};
use super::state::{Answers, Delivered, Waiter};
use super::warming::Warming;
use super::{CallError, Response, Shared, places};
use crate::clock::now;
use base::WriteVerifier;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::frame::{Frame, FrameKind};
use wire::link::{BulkSocket, Connection, FrameReader, FrameWriter, LinkError};
use wire::message::{Farewell, Features, Notice, ObjectReply, Reply, Welcome, decode};
use wire::session::ConnectionIndex;

/// First wait after a failed try to connect; doubles up to [`RETRY_TIME_MAX`].
const RETRY_TIME_MIN: Duration = Duration::from_millis(20);
/// Longest wait between two tries: a server that is back is found within this time.
const RETRY_TIME_MAX: Duration = Duration::from_secs(1);
/// Frames written between two looks at the socket's reader, so that a long queue is gathered.
const FRAMES_PER_TURN: usize = 64;

pub(super) fn spawn_main(shared: Arc<Shared>, first: Dialled) {
    tokio::spawn(async move {
        run(&shared, 0, first, false).await;
        keep(&shared, 0, true).await;
    });
}

pub(super) fn spawn_bulk(shared: Arc<Shared>, index: usize) {
    tokio::spawn(async move { keep(&shared, index, false).await });
}

/// Connects again and again until the transport ends. Only what `stood` before is connected again.
async fn keep(shared: &Arc<Shared>, index: usize, mut stood: bool) {
    let mut wait = RETRY_TIME_MIN;
    while !shared.lock().is_over(index) {
        let last_boot = shared.lock().boot;
        let hello = dial::hello(&shared.endpoint, shared.session_id, index, last_boot);
        let addresses = shared.places.all();
        let dialled = dial::dial(
            &shared.endpoint,
            &addresses,
            shared.tls.as_ref(),
            hello,
            &[],
            &shared.options,
        );
        match dialled.await {
            Ok(dialled) => {
                let begun = now();
                if stood {
                    shared.reconnects.fetch_add(1, Ordering::Relaxed);
                }
                stood = true;
                run(shared, index, dialled, true).await;
                // One that breaks as soon as it stands is no better than one that is refused.
                wait = if now().since(begun) < RETRY_TIME_MAX {
                    (wait * 2).min(RETRY_TIME_MAX)
                } else {
                    RETRY_TIME_MIN
                };
            }
            // What is refused now was not wanted any more.
            Err(_) if shared.lock().closed => break,
            Err(error) => {
                if let (0, ConnectError::Refused { reason, .. }) = (index, &error) {
                    if *reason == Farewell::ForeignSession && shared.lock().end_after_goodbye() {
                        // The session has ended as asked, and the word of it was lost on the way:
                        // a connection that is closed with data unread takes its last words along.
                        break;
                    }
                    if dial::is_standby(&error) {
                        tracing::debug!(%reason, "nobody leads");
                    } else {
                        tracing::warn!(%reason, "the server refuses");
                    }
                } else {
                    tracing::debug!(connection = index, %error, "cannot connect");
                }
                wait = (wait * 2).min(RETRY_TIME_MAX);
            }
        }
        tokio::time::sleep(wait).await;
    }
}

/// Serves one connection until it breaks.
async fn run(shared: &Arc<Shared>, index: usize, dialled: Dialled, again: bool) {
    let Dialled {
        connection,
        address,
        welcome,
        greeting_time,
    } = dialled;
    let Connection {
        reader,
        writer,
        socket,
        ..
    } = connection;
    let bulk = socket.filter(|_| index > 0).map(Arc::new);
    let connection = ConnectionIndex(index);
    let (boot_changed, is_other_run) = {
        let mut state = shared.lock();
        if state.closed {
            return;
        }
        shared.on_heard(now());
        let changed = (state.boot != Some(welcome.boot), state.on_run(welcome.boot));
        if index == 0 {
            state.on_greeted(&welcome, greeting_time);
        }
        if index > 0 && shared.options.blocking.is_none() {
            let connections = shared.wake.len() - 1;
            let warming = Warming::new(greeting_time, connections, &shared.options.line);
            state.bulk[index] = Bulk::new(warming, bulk.clone());
        }
        state.on_features(welcome.features);
        // The first connection is up since its greeting.
        if !state.session.is_up(connection) {
            state.session.handle_up(connection);
        }
        changed
    };
    // Noted also where nobody listens yet.
    let verifier = shared.verifier(&welcome);
    notify(shared, |listener| {
        if index > 0 && is_other_run {
            // The main connection may come back later, and this one's answers count for leases.
            listener.on_other_run();
        }
        listener.on_verifier(verifier);
        if index == 0 && again {
            listener.on_connected(boot_changed, !welcome.session_known);
        }
    });
    if index == 0 {
        shared.places.prefer(address);
        if welcome.features.have(Features::MANAGERS) && shared.endpoint.server.is_none() {
            tokio::spawn(places::learn(Arc::downgrade(shared)));
        }
    }
    shared.wake_all();
    let outcome = tokio::select! {
        outcome = receive(shared, connection, &welcome, reader) => outcome,
        outcome = send(shared, connection, writer, bulk) => outcome,
        () = shared.leave.notified() => Err(LinkError::Closed),
    };
    if let Err(error) = outcome {
        tracing::debug!(connection = index, %error, "connection lost");
    }
    on_down(shared, connection);
}

/// A connection broke.
fn on_down(shared: &Shared, connection: ConnectionIndex) {
    let mut state = shared.lock();
    state.session.handle_down(connection);
    state.bulk[connection.0] = Bulk::default();
    let may_be_made = state.forget_lost();
    drop(state);
    if may_be_made {
        notify(shared, |listener| listener.on_late_change());
    }
    // What this connection carried may go on the others.
    shared.wake_all();
}

pub(super) fn notify(shared: &Shared, tell: impl FnOnce(&dyn super::Listener)) {
    let listener = shared
        .listener
        .lock()
        .expect("no panic happens under this lock")
        .listener
        .clone();
    if let Some(listener) = listener {
        tell(listener.as_ref());
    }
}

async fn receive(
    shared: &Arc<Shared>,
    connection: ConnectionIndex,
    welcome: &Welcome,
    mut reader: FrameReader,
) -> Result<(), LinkError> {
    let mut counted = 0;
    loop {
        let frame = reader.read().await?;
        shared
            .bytes_received
            .fetch_add(reader.bytes_read() - counted, Ordering::Relaxed);
        counted = reader.bytes_read();
        match frame.kind {
            FrameKind::Reply => on_reply(shared, connection, shared.verifier(welcome), frame),
            FrameKind::Notice => {
                if !on_notice(shared, &frame) {
                    return Err(LinkError::Closed);
                }
            }
            FrameKind::Farewell => {
                if let Ok(reason) = decode::<Farewell>(&frame.body) {
                    tracing::info!(connection = connection.0, %reason, "the server says farewell");
                }
                return Err(LinkError::Closed);
            }
            kind => {
                tracing::warn!(?kind, "frame out of place");
                return Err(LinkError::Closed);
            }
        }
    }
}

/// Whether the connection may go on: a recall that cannot be obeyed takes all leases with it, and
/// they go with the connection.
fn on_notice(shared: &Arc<Shared>, frame: &Frame) -> bool {
    match decode::<Notice>(&frame.body) {
        Ok(notice) => {
            shared.on_heard(now());
            let heard = shared.hear(notice);
            if !heard {
                tracing::warn!("the server recalls faster than anybody could obey");
            }
            heard
        }
        Err(error) => {
            tracing::error!(%error, "notice that cannot be read");
            false
        }
    }
}

fn on_reply(shared: &Shared, connection: ConnectionIndex, verifier: WriteVerifier, frame: Frame) {
    let reply = decode::<Reply>(&frame.body);
    let payload_bytes = frame.payload.len() as u64;
    let server_time = match &reply {
        Ok(Reply::Files(files)) => Duration::from_micros(u64::from(files.server_micros)),
        Ok(Reply::Object(ObjectReply::Results { server_micros, .. })) => {
            Duration::from_micros(u64::from(*server_micros))
        }
        _ => Duration::ZERO,
    };
    let now = now();
    let mut state = shared.lock();
    shared.on_heard(now);
    if frame.request == WARMING_REQUEST {
        state.bulk[connection.0].on_warmed();
        drop(state);
        shared.wake[connection.0].notify_one();
        return;
    }
    let Some(answered) = state.session.handle_reply(connection, frame.request) else {
        state.settle_link(now, frame.request, None);
        shared.wake_ready(&mut state);
        let is_late = state.is_late_change(frame.request);
        drop(state);
        if is_late && !matches!(reply, Ok(Reply::Refused(_))) {
            notify(shared, |listener| listener.on_late_change());
        }
        return;
    };
    let delivered = Delivered {
        bytes_received: payload_bytes,
        bytes_written: answered.written_bytes,
        server_time,
        resent: answered.resent,
    };
    state.settle_link(now, frame.request, Some(delivered));
    if state.goodbye == Some(frame.request) {
        // The server ends the connections now: they are not to be made again.
        state.closed = true;
    }
    let waiter = state.waiters.remove(&frame.request);
    // Only a reply that made room lets others go on.
    if payload_bytes > 0 || answered.written_bytes > 0 {
        shared.wake_ready(&mut state);
    }
    drop(state);
    if answered.written_bytes > 0 {
        shared.writes_answered.fetch_add(1, Ordering::Relaxed);
    }
    // Before it is told: what it grants is believed from here on.
    shared.on_answered(answered.sent_at);
    if let Some(waiter) = waiter {
        let answer = match reply {
            Ok(reply) if is_answer(&reply, &waiter, frame.payload.len()) => Ok(Response {
                reply,
                payload: frame.payload,
                recalls_seen: waiter.recalls_seen,
                verifier,
            }),
            _ => {
                tracing::warn!(request = frame.request.0, "a reply that makes no sense");
                Err(CallError::Protocol)
            }
        };
        let _ = waiter.answer.send(answer);
    }
}

/// Whether a reply is one to what was asked. From here on what it says is taken for possible.
fn is_answer(reply: &Reply, waiter: &Waiter, payload_bytes: usize) -> bool {
    match (reply, &waiter.expected) {
        (Reply::Refused(_), _) => true,
        (Reply::Files(files), Some(Answers::Files { expected, .. })) => {
            expected.check(&files.results, payload_bytes).is_ok()
        }
        (Reply::Object(reply), Some(Answers::Objects(expected))) => {
            expected.check(reply, payload_bytes).is_ok()
        }
        (_, None) => payload_bytes == 0,
        (_, Some(_)) => false,
    }
}

async fn send(
    shared: &Arc<Shared>,
    connection: ConnectionIndex,
    mut writer: FrameWriter,
    bulk: Option<Arc<BulkSocket>>,
) -> Result<(), LinkError> {
    let mut counted = 0;
    loop {
        let mut written = 0;
        while written < FRAMES_PER_TURN {
            let (frame, closed) = {
                let mut state = shared.lock();
                let frame = state.next_frame(connection);
                // Whoever else may go on is told now; this connection may wait for its socket.
                if let Some(ready) = state
                    .ready_connection()
                    .filter(|ready| *ready != connection)
                {
                    shared.wake[ready.0].notify_one();
                }
                (frame, state.closed)
            };
            if closed {
                writer.finish().await?;
                return Err(LinkError::Closed);
            }
            let Some(frame) = frame else { break };
            writer.write(frame).await?;
            written += 1;
        }
        if written > 0 {
            writer.flush().await?;
            shared
                .bytes_sent
                .fetch_add(writer.bytes_written() - counted, Ordering::Relaxed);
            counted = writer.bytes_written();
            if let Some(socket) = &bulk {
                socket.on_written(counted);
            }
        } else {
            shared.wake[connection.0].notified().await;
        }
    }
}
