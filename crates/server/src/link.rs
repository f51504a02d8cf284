//! One connection as the rest of the server sees it: where replies go.
//!
//! Replies wait here, ordered by class, until the connection's writer takes them. Two bounds hold
//! memory: a request takes a permit before it is read further than its header allows, and a reply's
//! bytes are charged to the connection and to its credential's [`Share`] before the request is
//! begun ([`ReplyBytes`]); a peer that does not read stalls its own requests and nobody else's.

use crate::pool::Pool;
use crate::share::Share;
use crate::storage::ObjectShare;
use base::RequestId;
use base::limits::{
    CONNECTION_REPLY_BYTES_MAX, CONNECTION_REQUEST_BYTES_MAX, CONNECTION_REQUESTS_MAX,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use wire::frame::{Class, Frame, FrameKind};
use wire::message::{ConnectionRole, Farewell, frame};

/// A connection's number within this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkKey(pub(crate) u64);

/// The sending side of a connection.
pub(crate) struct Link {
    pub(crate) key: LinkKey,
    pub(crate) peer: SocketAddr,
    pub(crate) role: ConnectionRole,
    outbox: Mutex<Outbox>,
    wake: Notify,
    /// Ends the reading side.
    closing: Notify,
    reply_bytes: AtomicUsize,
    stalled: AtomicBool,
    closed: AtomicBool,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) request_bytes: Arc<Semaphore>,
    pub(crate) objects: ObjectShare,
    /// What its credential may hold.
    pub(crate) share: Arc<Share>,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    pool: Weak<Pool>,
}

#[derive(Default)]
struct Outbox {
    queues: [VecDeque<Outgoing>; Class::ALL.len()],
    last: Option<Frame>,
}

/// A frame with the permits that it holds until the socket has it.
pub(crate) struct Outgoing {
    frame: Frame,
    request: Option<OwnedSemaphorePermit>,
    bytes: Option<ReplyBytes>,
    held: Held,
}

/// What else is held until the socket has a reply.
type Held = Option<Box<dyn Send + Sync>>;

impl Outgoing {
    /// The frame, and what is to be dropped once the socket has it.
    pub(crate) fn split(self) -> (Frame, impl Drop) {
        struct Permits(Option<OwnedSemaphorePermit>, Option<ReplyBytes>, Held);

        impl Drop for Permits {
            fn drop(&mut self) {
                drop((self.0.take(), self.1.take(), self.2.take()));
            }
        }

        (self.frame, Permits(self.request, self.bytes, self.held))
    }
}

/// Where the reply to a request goes, with the request's permit.
#[derive(Clone)]
pub(crate) struct Destination {
    pub(crate) link: Arc<Link>,
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Destination {
    pub(crate) fn new(link: Arc<Link>, permit: OwnedSemaphorePermit) -> Self {
        Self {
            link,
            permit: Arc::new(Mutex::new(Some(permit))),
        }
    }

    /// Hands a reply to the connection.
    pub(crate) fn send(&self, frame: Frame, bytes: Option<ReplyBytes>) {
        self.send_with(frame, bytes, None);
    }

    /// Hands a reply to the connection, with something to be held until the socket has it.
    pub(crate) fn send_held(&self, frame: Frame, held: Held) {
        self.send_with(frame, None, held);
    }

    fn send_with(&self, frame: Frame, bytes: Option<ReplyBytes>, held: Held) {
        let permit = self
            .permit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.link.push(Outgoing {
            frame,
            request: permit,
            bytes,
            held,
        });
    }
}

/// What the writer does next.
pub(crate) enum Next {
    /// Send this.
    Frame(Outgoing),
    /// Send this and close.
    Last(Option<Frame>),
    /// Everything is sent.
    Idle,
}

/// The frame that says why a connection ends.
pub(crate) fn last_frame(farewell: &Farewell) -> Frame {
    frame(FrameKind::Farewell, RequestId(0), farewell)
}

impl Link {
    pub(crate) fn new(
        key: LinkKey,
        peer: SocketAddr,
        role: ConnectionRole,
        share: Arc<Share>,
        pool: Weak<Pool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            key,
            peer,
            role,
            outbox: Mutex::default(),
            wake: Notify::new(),
            closing: Notify::new(),
            reply_bytes: AtomicUsize::new(0),
            stalled: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            requests: Arc::new(Semaphore::new(CONNECTION_REQUESTS_MAX)),
            request_bytes: Arc::new(Semaphore::new(CONNECTION_REQUEST_BYTES_MAX)),
            objects: ObjectShare::default(),
            share,
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            pool,
        })
    }

    fn push(&self, outgoing: Outgoing) {
        let mut outbox = self.lock();
        // Under the lock: what came after `close` emptied the queues would stay there for ever.
        if self.is_closed() {
            drop(outbox);
            return;
        }
        outbox.queues[outgoing.frame.class.index()].push_back(outgoing);
        drop(outbox);
        self.wake.notify_one();
    }

    /// Makes the writer look whether there is something to do.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// For the writer: waits until [`Self::next`] may have something.
    pub(crate) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// For the writer: the most urgent frame.
    pub(crate) fn next(&self) -> Next {
        let mut outbox = self.lock();
        if self.is_closed() {
            return Next::Last(outbox.last.take());
        }
        outbox
            .queues
            .iter_mut()
            .find_map(VecDeque::pop_front)
            .map_or(Next::Idle, Next::Frame)
    }

    /// Ends the connection: what waits is dropped, the farewell is the last frame.
    pub(crate) fn close(&self, farewell: Option<&Farewell>) {
        self.end(farewell.map(last_frame));
    }

    /// Ends the connection: what waits is dropped, and `last` is the last frame.
    pub(crate) fn end(&self, last: Option<Frame>) {
        let mut outbox = self.lock();
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        outbox.last = last;
        let dropped = std::mem::take(&mut outbox.queues);
        drop(outbox);
        drop(dropped);
        self.requests.close();
        self.request_bytes.close();
        self.wake.notify_one();
        self.closing.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// For the reader: waits until the connection is to end.
    pub(crate) async fn closing(&self) {
        self.closing.notified().await;
    }

    /// Whether a further request may be begun. If not, the pool is told once there is room again.
    pub(crate) fn has_room(&self) -> bool {
        if self.is_closed() {
            // Nobody would tell the pool, and a reply to nobody needs no room.
            return true;
        }
        let room = || self.reply_bytes.load(Ordering::SeqCst) < CONNECTION_REPLY_BYTES_MAX;
        if room() {
            return self.share.has_room(self.key);
        }
        self.stalled.store(true, Ordering::SeqCst);
        // The writer may have made room before it could see the mark.
        room() && self.stalled.swap(false, Ordering::SeqCst) && self.share.has_room(self.key)
    }

    /// Charges the connection with the bytes of a reply to come.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> ReplyBytes {
        self.reply_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.share.charge(bytes);
        ReplyBytes {
            link: self.clone(),
            bytes,
        }
    }

    fn give_back(&self, bytes: usize) {
        let before = self.reply_bytes.fetch_sub(bytes, Ordering::SeqCst);
        let room = before - bytes < CONNECTION_REPLY_BYTES_MAX / 2;
        let mut links = self.share.give_back(bytes);
        if room && self.stalled.swap(false, Ordering::SeqCst) {
            links.insert(self.key);
        }
        if !links.is_empty()
            && let Some(pool) = self.pool.upgrade()
        {
            pool.resume(links);
        }
    }

    pub(crate) fn count_sent(&self, total: u64) {
        self.bytes_sent.store(total, Ordering::Relaxed);
    }

    pub(crate) fn count_received(&self, total: u64) {
        self.bytes_received.store(total, Ordering::Relaxed);
    }

    /// Bytes sent and received.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (
            self.bytes_sent.load(Ordering::Relaxed),
            self.bytes_received.load(Ordering::Relaxed),
        )
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a reply, charged to its connection until the socket has them.
pub(crate) struct ReplyBytes {
    link: Arc<Link>,
    bytes: usize,
}

impl ReplyBytes {
    /// Replaces the estimate by what it really is.
    pub(crate) fn resize(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            let more = bytes - self.bytes;
            self.link.reply_bytes.fetch_add(more, Ordering::SeqCst);
            self.link.share.charge(more);
        } else {
            self.link.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for ReplyBytes {
    fn drop(&mut self) {
        self.link.give_back(self.bytes);
    }
}
