//! Requests to one server, answered in any order, over connections that come and go.
//!
//! The transport is the thin shell around [`wire::session::ClientSession`]: per connection one task
//! that connects, reads and reconnects and one that writes; one task for time-outs and heartbeats.
//! The session, the two link estimators and the table of waiters are one structure behind one lock
//! that is held for a few hundred nanoseconds and never over an await.
//!
//! A broken connection is nobody's error: its requests are sent again when it stands again. What
//! the caller sees is an answer, a refusal, or [`CallError::TimedOut`] when its time is over.
//!
//! Leases and recalls: a reply can overtake a recall that was sent before it, on another
//! connection. So every response says which recalls had been received when its request was sent
//! ([`Response::recalls_seen`]), and the cache refuses a lease that a later recall may mean.

mod alarm;
mod bulk;
mod call;
mod connection;
mod dial;
mod manage;
mod object;
mod places;
mod state;
mod timer;
mod trust;
mod warming;

pub use call::{Call, CallError, FileResponse, Pending, Response, TimeLimit};
pub use dial::{ConnectError, Endpoint};
pub(crate) use object::{OVER, Runs};

use crate::clock::{boot_time, now};
use base::limits::{
    CLIENT_BUFFER_BYTES_MAX, CONNECTIONS_MAX, HEARTBEAT_INTERVAL, NOTICES_UNHEARD_MAX,
    REQUEST_TIME_IN_SILENCE,
};
use base::{ClusterId, FsError, Principal, RequestId, ServerId, SessionId, Time, WriteVerifier};
use bytes::Bytes;
use readahead::{Line, LineMemory};
use state::{Answers, State, Waiter};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use trust::Trust;
use wire::frame::{Class, Frame};
use wire::message::{
    Compound, CredentialKind, Expected, Features, LayoutPurpose, Notice, Refusal, Request, Step,
    StepReply, Target, encode,
};
use wire::session::{ConnectionIndex, InFlight, Submission};

/// Smallest part that a read is cut into: about what a TCP connection sends at once after a pause.
const DEMAND_PART_BYTES_MIN: u64 = 16 << 10;

/// Entries of the root that come with entering a volume: its names cost no round trip of their own,
/// and on a slow line no time that would be noticed.
const ROOT_ENTRIES_MAX: u32 = 256;

/// What a call is answered that a server without an ability could not read.
const UNKNOWN: CallError = CallError::Failed(FsError::NotSupported);

/// What the transport tells the volume above it. Called from a connection's task: must not block.
pub trait Listener: Send + Sync {
    /// The server says something unasked. Called in the order of arrival, before any reply that
    /// arrives after it on the same connection. Whether there was room for it; if not, the
    /// connection is closed, and whatever it was about is not believed any more.
    fn on_notice(&self, notice: Notice) -> bool;
    /// The main connection stands again. `boot_changed`: opens are gone and locks must be
    /// reclaimed; `session_lost`: leases are gone, too.
    fn on_connected(&self, boot_changed: bool, session_lost: bool);
    /// Another connection has found another run of the server than those before it. Called before
    /// anything is heard on it.
    fn on_other_run(&self) {}
    /// A connection stands whose server may have lost what those before it had stored and not made
    /// durable, unless it says the same verifier as they did. Called before anything is heard on
    /// it.
    fn on_verifier(&self, verifier: WriteVerifier);
    /// The server has heard nothing for so long, or may have, that no lease may be believed any
    /// more.
    fn on_silence(&self);
    /// A change of which its caller was told that there is no answer has been made after all, or
    /// may have been: what was believed in the meantime may be wrong.
    fn on_late_change(&self) {}
}

/// How a transport behaves.
#[derive(Clone, Debug)]
pub struct TransportOptions {
    /// Within which time every call is answered, if need be with an error.
    pub request_time_max: Duration,
    /// Connections to hold; the first is for metadata and demand reads.
    pub connections: usize,
    /// The volume that will be entered first: it is asked for together with the greeting, which
    /// saves a round trip.
    pub volume: Option<String>,
    /// What is known of the line from an earlier mount: download, upload.
    pub line: (Option<LineMemory>, Option<LineMemory>),
    /// One request in flight and no prediction: the blocking remote procedure call of the paper's
    /// section 3, for comparison.
    pub blocking: Option<u64>,
}

impl Default for TransportOptions {
    fn default() -> Self {
        Self {
            request_time_max: base::limits::REQUEST_TIME_DEFAULT,
            connections: CONNECTIONS_MAX,
            volume: None,
            line: (None, None),
            blocking: None,
        }
    }
}

/// Who hears notices, and the notices that came before there was anybody.
#[derive(Default)]
struct Audience {
    listener: Option<Arc<dyn Listener>>,
    unheard: Vec<Notice>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    /// Wakes the writer of each connection.
    wake: Vec<Notify>,
    /// Wakes the timer when an earlier deadline appears.
    timer: Notify,
    endpoint: Endpoint,
    places: places::Places,
    /// Whether the server says that it is one of several managers.
    has_managers: AtomicBool,
    /// Ends the connections that stand: the server is to be looked for elsewhere.
    leave: Notify,
    session_id: SessionId,
    own: Principal,
    /// See [`Transport::sole_user`].
    sole_user: Option<u32>,
    options: TransportOptions,
    listener: Mutex<Audience>,
    tls: Option<Arc<rustls::ClientConfig>>,
    /// The volume that is being entered, see [`TransportOptions::volume`].
    entering: Mutex<Option<(String, Pending)>>,
    /// Contents of the volume lie in stores.
    writes_objects: OnceLock<(Arc<object::Runs>, ServerId)>,
    recalls: Arc<AtomicU64>,
    /// Last word from the server, in nanoseconds of our clock.
    heard_nanos: AtomicU64,
    /// A request was not answered in its time, and the server has said nothing meanwhile.
    is_silent: AtomicBool,
    trust: Trust,
    bytes_received: AtomicU64,
    bytes_sent: AtomicU64,
    /// Requests with data that were answered.
    writes_answered: AtomicU64,
    reconnects: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic happens under this lock")
    }

    /// Last word from the server.
    fn heard_at(&self) -> Time {
        Time::from_nanos(self.heard_nanos.load(Ordering::Relaxed))
    }

    /// Within which time a request that is made now is answered.
    fn request_time_max(&self) -> Duration {
        let silence = || now().since(self.heard_at());
        let time_max = self.options.request_time_max;
        if self.is_silent.load(Ordering::Relaxed) && silence() >= time_max {
            time_max.min(REQUEST_TIME_IN_SILENCE)
        } else {
            time_max
        }
    }

    fn on_heard(&self, now: Time) {
        self.heard_nanos.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// A request has been answered that was sent at `sent`, in [`boot_time`].
    fn on_answered(&self, sent: Time) {
        // A machine that has slept may hear this before it has looked at the time.
        self.look_at_trust();
        self.trust.on_answered(sent, boot_time());
    }

    /// If no lease may be believed any more, everything is forgotten that was.
    fn look_at_trust(&self) {
        if self.trust.is_over(boot_time()) {
            connection::notify(self, |listener| listener.on_silence());
            self.trust.on_forgotten();
        }
    }

    /// Tells of a notice, now or as soon as somebody listens; whether there was room for it.
    fn hear(self: &Arc<Self>, notice: Notice) -> bool {
        let listener = {
            let mut slot = self
                .listener
                .lock()
                .expect("no panic happens under this lock");
            let Some(listener) = slot.listener.clone() else {
                if let Notice::WriteAgain { id } = notice {
                    drop(slot);
                    // Nobody here holds what was written.
                    let shared = Arc::clone(self);
                    Transport { shared }.obeyed(id);
                    return true;
                }
                let room = slot.unheard.len() < NOTICES_UNHEARD_MAX;
                if room {
                    slot.unheard.push(notice);
                }
                return room;
            };
            listener
        };
        listener.on_notice(notice)
    }

    /// Wakes a writer that has something to send.
    fn wake_ready(&self, state: &mut State) {
        if let Some(connection) = state.ready_connection() {
            self.wake[connection.0].notify_one();
        }
    }

    fn wake_all(&self) {
        self.wake.iter().for_each(Notify::notify_one);
    }
}

/// The session with one server. Clones share it.
#[derive(Clone)]
pub struct Transport {
    shared: Arc<Shared>,
}

/// A transport that lasts only as long as others have it.
#[derive(Clone)]
pub(crate) struct WeakTransport(Weak<Shared>);

impl WeakTransport {
    pub(crate) fn upgrade(&self) -> Option<Transport> {
        let shared = self.0.upgrade()?;
        Some(Transport { shared })
    }
}

/// Figures of a transport at one moment.
#[derive(Clone, Debug)]
pub struct TransportFigures {
    /// Bytes that may be in flight towards the client.
    pub window_bytes: u64,
    /// Bytes that may be in flight towards the server.
    pub upload_window_bytes: u64,
    /// What is in flight.
    pub in_flight: InFlight,
    /// The line as measured; as long as no data has shown the round trip, it is that of the
    /// greeting.
    pub line: Line,
    /// The line towards the server as measured.
    pub upload_line: Line,
    /// Bytes received from the sockets.
    pub bytes_received: u64,
    /// Bytes given to the sockets.
    pub bytes_sent: u64,
    /// How often a connection had to be made again.
    pub reconnects: u64,
    /// Whether the main connection stands.
    pub connected: bool,
    /// Time since the server was heard.
    pub silence: Duration,
}

impl Transport {
    /// Connects and is welcomed, or says why not. The connections for bulk data are made at the
    /// same time, in the background.
    ///
    /// # Errors
    /// [`ConnectError`]; only the first connection is waited for, at most
    /// [`TransportOptions::request_time_max`].
    pub async fn connect(
        endpoint: Endpoint,
        options: TransportOptions,
    ) -> Result<Self, ConnectError> {
        let connections = options.connections.clamp(1, CONNECTIONS_MAX);
        let session_id = SessionId(dial::random_bytes()?);
        let kind = endpoint.credential.kind()?;
        let own = manage::own_principal(kind);
        let sole_user = match kind {
            CredentialKind::User { uid } => Some(uid),
            _ => None,
        };
        let cap = options.blocking.unwrap_or(CLIENT_BUFFER_BYTES_MAX);
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(connections, cap, options.line)),
            wake: (0..connections).map(|_| Notify::new()).collect(),
            timer: Notify::new(),
            tls: dial::tls(&endpoint)?,
            places: places::Places::new(&endpoint.addresses),
            endpoint,
            has_managers: AtomicBool::new(false),
            leave: Notify::new(),
            session_id,
            own,
            sole_user,
            options,
            listener: Mutex::default(),
            entering: Mutex::default(),
            writes_objects: OnceLock::new(),
            recalls: Arc::default(),
            heard_nanos: AtomicU64::new(now().as_nanos()),
            is_silent: AtomicBool::new(false),
            trust: Trust::new(boot_time()),
            bytes_received: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            writes_answered: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
        });
        let this = Self { shared };
        let shared = &this.shared;
        let early = this.enter_early();
        // Not one after the other: over distance a handshake is most of a mount's time.
        for index in 1..connections {
            connection::spawn_bulk(Arc::clone(shared), index);
        }
        let hello = dial::hello(&shared.endpoint, session_id, 0, None);
        let (endpoint, tls) = (&shared.endpoint, shared.tls.as_ref());
        let (addresses, options) = (shared.places.all(), &shared.options);
        match dial::dial(endpoint, &addresses, tls, hello, early.as_slice(), options).await {
            Ok(first) => {
                let has_managers = first.welcome.features.have(Features::MANAGERS);
                (shared.has_managers).store(has_managers, Ordering::Relaxed);
                let state = &mut shared.lock();
                state.on_greeted(&first.welcome, first.greeting_time);
                connection::spawn_main(Arc::clone(shared), first);
            }
            Err(error) => {
                this.abandon();
                return Err(error);
            }
        }
        timer::spawn(shared);
        Ok(this)
    }

    /// Asks for the volume that will be entered. The frame goes behind the greeting; on a plain
    /// connection, where nothing may go before the proof, it waits like any other request.
    fn enter_early(&self) -> Option<Frame> {
        let shared = &self.shared;
        let volume = shared.options.volume.clone()?;
        let pending = self.submit_attach(&volume);
        let entering = (volume, pending);
        *shared
            .entering
            .lock()
            .expect("no panic happens under this lock") = Some(entering);
        shared.tls.as_ref()?;
        let mut state = shared.lock();
        state.session.handle_up(ConnectionIndex::MAIN);
        state.next_frame(ConnectionIndex::MAIN)
    }

    fn submit_attach(&self, volume: &str) -> Pending {
        let attach = Step::Attach {
            volume: volume.to_owned(),
        };
        let list = Step::ReadDirectory {
            target: Target::Result(0),
            cookie: 0,
            entries_max: ROOT_ENTRIES_MAX,
        };
        self.submit_steps(self.own(), vec![attach, list], Call::metadata())
    }

    /// Enters a volume and lists the beginning of its root, whose result comes second.
    ///
    /// # Errors
    /// `NotFound` for an unknown volume, otherwise what the server or the way there says.
    pub(crate) async fn enter(&self, volume: &str) -> Result<FileResponse, CallError> {
        let asked = {
            let mut entering = self.shared.entering.lock();
            entering
                .as_mut()
                .expect("no panic happens under this lock")
                .take()
        };
        let pending = match asked {
            Some((name, pending)) if name == volume => pending,
            _ => self.submit_attach(volume),
        };
        pending.files().await
    }

    /// What a notice of this number asks for is done. Nobody waits for the answer.
    pub(crate) fn obeyed(&self, id: u64) {
        drop(self.submit(&Request::RecallDone(id), Call::metadata()));
    }

    pub(crate) fn downgrade(&self) -> WeakTransport {
        WeakTransport(Arc::downgrade(&self.shared))
    }

    /// Sets who hears notices and reconnections.
    pub fn set_listener(&self, listener: Arc<dyn Listener>) {
        let unheard = {
            let slot = &self.shared.listener;
            let mut slot = slot.lock().expect("no panic happens under this lock");
            slot.listener = Some(Arc::clone(&listener));
            std::mem::take(&mut slot.unheard)
        };
        for notice in unheard {
            // There are fewer than a listener has room for.
            let _ = listener.on_notice(notice);
        }
    }

    /// The cluster that the server belongs to.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.shared.endpoint.credential.cluster()
    }

    /// For whom this client asks what no program asked for: root, or with a user's credential that
    /// user.
    #[must_use]
    pub fn own(&self) -> &Principal {
        &self.shared.own
    }

    /// As whom to ask for a caller. Root of this machine can become any user of it, so with a
    /// user's credential it acts as that user; whoever else is not that user is refused by the
    /// server.
    #[must_use]
    pub fn acting(&self, uid: u32, gid: u32) -> (u32, u32) {
        let own = self.own();
        if uid == 0 && own.uid != 0 {
            (own.uid, own.gid)
        } else {
            (uid, gid)
        }
    }

    /// The one user for whom the credential speaks, beside root who acts as him; none if it speaks
    /// for all. Whoever else is refused by the server, so what others were told is not for him.
    #[must_use]
    pub fn sole_user(&self) -> Option<u32> {
        self.shared.sole_user
    }

    /// The server's address as the user gave it.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// Whether the server is one of several managers.
    #[must_use]
    pub fn has_managers(&self) -> bool {
        self.shared.has_managers.load(Ordering::Relaxed)
    }

    /// Whether the server lets requests wait for others ([`Step::After`]).
    #[must_use]
    pub fn lets_wait(&self) -> bool {
        self.shared.lock().features.have(Features::AFTER)
    }

    /// Queues a request. Never blocks.
    #[must_use = "somebody should wait for the answer"]
    pub fn submit(&self, request: &Request, call: Call) -> Pending {
        self.submit_encoded(encode(request), call, None, Features::default())
    }

    fn submit_encoded(
        &self,
        body: Bytes,
        call: Call,
        expected: Option<Answers>,
        needs: Features,
    ) -> Pending {
        let shared = &self.shared;
        let (answer, receiver) = oneshot::channel();
        let since = call.since.unwrap_or_else(now);
        let deadline = match call.time_limit {
            TimeLimit::Short => since + shared.request_time_max(),
            TimeLimit::Stated => since + shared.options.request_time_max,
            TimeLimit::Endless => Time::MAX,
        };
        let Call {
            class,
            payload,
            reply_bytes,
            ..
        } = call;
        let mut state = shared.lock();
        if state.closed || !state.features.have(needs) {
            let why = if state.closed {
                CallError::Closed
            } else {
                UNKNOWN
            };
            let _ = answer.send(Err(why));
            return Pending {
                id: None,
                answer: receiver,
            };
        }
        let earliest = state.session.next_deadline();
        let submission = Submission {
            class,
            body,
            payload,
            reply_bytes,
            deadline,
        };
        let Ok(id) = state.session.submit(submission) else {
            let _ = answer.send(Err(CallError::Refused(Refusal::Overloaded)));
            return Pending {
                id: None,
                answer: receiver,
            };
        };
        let recalls_seen = shared.recalls.load(Ordering::Acquire);
        state.waiters.insert(
            id,
            Waiter {
                answer,
                recalls_seen,
                expected,
                needs,
            },
        );
        shared.wake_ready(&mut state);
        drop(state);
        if earliest.is_none_or(|earliest| deadline < earliest) {
            shared.timer.notify_one();
        }
        Pending {
            id: Some(id),
            answer: receiver,
        }
    }

    /// Queues steps for a caller.
    #[must_use = "somebody should wait for the answer"]
    pub fn submit_steps(&self, who: &Principal, steps: Vec<Step>, call: Call) -> Pending {
        let settled = self.shared.lock().session.settled();
        let expected = Expected::of(&steps);
        let needs = steps.iter().map(needs);
        let needs = needs.fold(Features::default(), Features::with);
        let compound = Compound {
            who: who.clone(),
            settled,
            steps,
        };
        let is_change = compound.alters_files();
        self.submit_encoded(
            encode(&Request::Files(compound)),
            call,
            Some(Answers::Files {
                expected,
                is_change,
            }),
            needs,
        )
    }

    /// Carries out one step and waits for its reply.
    ///
    /// # Errors
    /// The step's, or that of the way there.
    pub async fn step(&self, who: &Principal, step: Step) -> Result<StepReply, CallError> {
        let mut response = self
            .submit_steps(who, vec![step], Call::metadata())
            .files()
            .await?;
        Ok(response.results.pop().ok_or(CallError::Protocol)??)
    }

    /// Takes a request back: whoever waits for it is told `Cancelled`.
    pub fn cancel(&self, id: RequestId) {
        let mut state = self.shared.lock();
        state.session.cancel(id);
        if let Some(waiter) = state.give_up(id) {
            let _ = waiter
                .answer
                .send(Err(CallError::Refused(Refusal::Cancelled)));
        }
        self.shared.wake_ready(&mut state);
    }

    /// Gives a request up of which whoever waits for it says that its time is over.
    pub(crate) fn expire(&self, id: RequestId) {
        let shared = &self.shared;
        if now().since(shared.heard_at()) >= shared.options.request_time_max {
            shared.is_silent.store(true, Ordering::Relaxed);
        }
        self.cancel(id);
    }

    /// Whether the server answers others, so that a request that is not answered waits there.
    pub(crate) fn is_heard(&self) -> bool {
        let shared = &self.shared;
        // Who has nothing to say is asked this often.
        let silence_max = shared.options.request_time_max.max(HEARTBEAT_INTERVAL * 2);
        now().since(shared.heard_at()) < silence_max
    }

    /// Makes a queued prediction a demand.
    pub fn promote(&self, id: RequestId) {
        let mut state = self.shared.lock();
        state.session.promote(id, Class::Demand);
        self.shared.wake_ready(&mut state);
    }

    /// The line as measured, and how many further bytes may be asked for now: the window less what
    /// is in flight and queued.
    #[must_use]
    pub fn download_room(&self) -> (Line, u64, u64) {
        let state = self.shared.lock();
        let queued = state.session.queued_read_bytes();
        let room = state.download.room_bytes().saturating_sub(queued);
        (state.download.line(), room, state.download.extent_bytes())
    }

    /// Largest part of a read that somebody waits for. Over distance a large one is cut, so that
    /// its parts go over several connections at once: one that has been idle sends its first 15 KB
    /// in one round trip and needs two more for 100 KB.
    #[must_use]
    pub fn demand_part_bytes(&self, bytes: u64) -> u64 {
        let state = self.shared.lock();
        if !state.is_far() {
            return bytes;
        }
        let parts = state.session.connections() as u64 - 1;
        bytes.div_ceil(parts).max(DEMAND_PART_BYTES_MIN)
    }

    /// Largest part of a write. Over distance as large as a request should be on this line: in slow
    /// start a large one takes several round trips on its connection, beside others that are idle.
    #[must_use]
    pub fn write_part_bytes(&self) -> usize {
        let state = self.shared.lock();
        let part_bytes = if state.is_far() {
            state.upload.extent_bytes()
        } else {
            state.upload.near_part_bytes()
        };
        usize::try_from(part_bytes).unwrap_or(usize::MAX)
    }

    /// A number that changes whenever data of ours has come to the server.
    #[must_use]
    pub fn writes_answered(&self) -> u64 {
        self.shared.writes_answered.load(Ordering::Relaxed)
    }

    /// Whether leases may be believed: the server has heard something recently.
    #[must_use]
    pub fn leases_hold(&self) -> bool {
        !self.shared.trust.left(boot_time()).is_zero()
    }

    /// Counts recalls and, by the cache, states that it takes over: what a request that was queued
    /// at one count brings is older or newer than what was known at another.
    #[must_use]
    pub fn events(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.recalls)
    }

    /// How many recalls have been received.
    #[must_use]
    pub fn recalls_seen(&self) -> u64 {
        self.shared.recalls.load(Ordering::Acquire)
    }

    /// Counts an event that works like a recall of everything; its number.
    pub(crate) fn next_recall(&self) -> u64 {
        self.shared.recalls.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether calls are to be made one at a time, and how much each reads.
    #[must_use]
    pub fn blocking(&self) -> Option<u64> {
        self.shared.options.blocking
    }

    /// Within which time a call that begins now is answered: that of
    /// [`TransportOptions::request_time_max`], or next to none after a silence of that length.
    #[must_use]
    pub fn request_time_max(&self) -> Duration {
        self.shared.request_time_max()
    }

    /// [`TransportOptions::request_time_max`].
    #[must_use]
    pub fn stated_time(&self) -> Duration {
        self.shared.options.request_time_max
    }

    /// Waits for something as long as a call is waited for that was made at `since`; none if its
    /// time is over. If the server is heard meanwhile, it has its whole time.
    pub async fn in_time<T>(&self, since: Time, future: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(future);
        loop {
            let left = || self.request_time_max().saturating_sub(now().since(since));
            match tokio::time::timeout(left(), &mut future).await {
                Ok(output) => return Some(output),
                Err(_) if left().is_zero() => return None,
                Err(_) => {}
            }
        }
    }

    /// What may be remembered of the line for the next mount: download, upload.
    #[must_use]
    pub fn line_memory(&self) -> (Option<LineMemory>, Option<LineMemory>) {
        let state = self.shared.lock();
        (state.download.remember(), state.upload.remember())
    }

    /// Figures now.
    #[must_use]
    pub fn figures(&self) -> TransportFigures {
        let state = self.shared.lock();
        TransportFigures {
            window_bytes: state.download.window_bytes(),
            upload_window_bytes: state.upload.window_bytes(),
            in_flight: state.session.in_flight(),
            line: state.line(),
            upload_line: state.upload.line(),
            bytes_received: self.shared.bytes_received.load(Ordering::Relaxed),
            bytes_sent: self.shared.bytes_sent.load(Ordering::Relaxed),
            reconnects: self.shared.reconnects.load(Ordering::Relaxed),
            connected: state.session.is_up(ConnectionIndex::MAIN),
            silence: now().since(self.shared.heard_at()),
        }
    }

    /// Ends the session at the server, if it answers within `time_max`, and closes all connections.
    pub async fn close(&self, time_max: Duration) {
        // Before: the server may have ended the session by the time that this task goes on.
        self.shared.lock().is_parting = true;
        let pending = self.submit(&Request::EndSession, Call::metadata());
        if let Some(id) = pending.id() {
            self.shared.lock().goodbye = Some(id);
        }
        let _ = tokio::time::timeout(time_max, pending.response()).await;
        self.abandon();
    }

    /// Whether it has been closed, or is over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Closes all connections without a word; the server ends the session by itself later.
    pub fn abandon(&self) {
        self.shared.lock().close();
        self.shared.wake_all();
        self.shared.timer.notify_one();
    }
}

/// What a server must have to read a step.
fn needs(step: &Step) -> Features {
    match step {
        Step::After { .. } => Features::AFTER,
        Step::Layout {
            purpose: LayoutPurpose::WritePartAgain(_),
            ..
        } => Features::WRITE_AGAIN,
        Step::Layout {
            purpose: LayoutPurpose::Append,
            ..
        } => Features::APPEND,
        Step::Open { access, .. }
        | Step::Create {
            open: Some((_, access, _)),
            ..
        } if access.only_appends() => Features::APPEND,
        Step::GivePlaceUp { .. } => Features::GIVE_PLACE_UP,
        _ => Features::default(),
    }
}
