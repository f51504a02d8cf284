//! The client's side of a session: many requests in flight over several connections.
//!
//! The session decides which request goes next on which connection, which reply belongs to what,
//! what must be sent again after a connection broke, and what has waited too long. It has no
//! sockets and no clock; a driver asks it:
//!
//! * in: [`ClientSession::submit`], [`ClientSession::cancel`], [`ClientSession::promote`],
//!   [`ClientSession::handle_up`], [`ClientSession::handle_down`], [`ClientSession::handle_reply`]
//! * out: [`ClientSession::poll_transmit`] per connection until it has nothing,
//!   [`ClientSession::poll_expired`] at [`ClientSession::next_deadline`]
//!
//! Connection 0 is the main one: metadata and demand reads go there and nothing else while a bulk
//! connection stands, so that no long transfer is ever in front of somebody who waits. Where the
//! caller says that it pays ([`ClientSession::spread_demand`]), demand reads also go on connections
//! that have nothing else to do. Bulk classes are spread over the bulk connections, each time on
//! one of the least loaded. Bytes in flight are bounded over *all* connections together, by two
//! windows (towards the client, towards the server) that the caller derives from the measured link:
//! independent windows would overrun the line's queue. Metadata and demand are not held back by the
//! window, because somebody waits for them and their number is bounded by those who wait; they are
//! counted all the same.
//!
//! A request whose connection broke is sent again with the `resent` flag; the server knows which
//! requests must not run twice. A request that expired is given up: its late reply is dropped.

use crate::frame::{Class, Frame, FrameKind};
use crate::message::Settled;
use crate::payload::Payload;
use base::limits::{CONNECTIONS_MAX, STRAGGLER_DISTANCE, STRAGGLERS_MAX};
use base::{RequestId, Time};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Requests that may wait for an answer at once. The buffers of a mount are bounded in bytes long
/// before; this bounds small ones.
pub const REQUESTS_MAX: usize = 65536;
/// How much more than the least loaded bulk connection another may have in flight and still take a
/// request, as a share of all that is in flight: so much that a slow connection is passed over but
/// a steady one is not starved, and so little that what is asked for together, and will be used
/// together, is spread while connections are in slow start.
const IMBALANCE_SHARE: u64 = 16;
/// The least of it.
const IMBALANCE_BYTES_MIN: u64 = 128 << 10;
/// Answers up to this size fit into what a TCP connection sends at once after a pause.
const SMALL_DEMAND_BYTES_MAX: u64 = 12 << 10;
/// Demand bytes in flight on the main connection beyond which bulk connections help.
const MAIN_DEMAND_BYTES_MAX: u64 = 512 << 10;

/// Index of a connection within its session; 0 is the main one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionIndex(pub usize);

impl ConnectionIndex {
    /// The connection for metadata and demand reads.
    pub const MAIN: Self = Self(0);
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Submission {
    /// How urgent.
    pub class: Class,
    /// Encoded [`crate::message::Request`].
    pub body: Bytes,
    /// Data that goes with it.
    pub payload: Bytes,
    /// Payload bytes that the reply will have at most.
    pub reply_bytes: u64,
    /// When the caller gives up; [`Time::MAX`] for waits without end (locks).
    pub deadline: Time,
}

/// Bytes that may be in flight, over all connections together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Payload of replies to bulk reads.
    pub read_bytes: u64,
    /// Payload of writes.
    pub write_bytes: u64,
}

/// What is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Payload bytes expected from the server.
    pub read_bytes: u64,
    /// Payload bytes sent and not yet answered.
    pub write_bytes: u64,
    /// Requests sent and not yet answered.
    pub requests: usize,
    /// Requests not yet sent.
    pub queued: usize,
}

/// A reply that belongs to a request somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// When the request was sent, as [`ClientSession::poll_transmit`] was told.
    pub sent_at: Time,
    /// Its class.
    pub class: Class,
    /// Payload bytes that went with the request.
    pub written_bytes: u64,
    /// Whether it was sent more than once, which makes its round-trip time meaningless.
    pub resent: bool,
}

/// No more requests can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for an answer")]
pub struct SessionFull;

#[derive(Debug)]
enum State {
    Queued,
    Sent { connection: usize, at: Time },
}

#[derive(Debug)]
struct Pending {
    class: Class,
    body: Bytes,
    payload: Bytes,
    reply_bytes: u64,
    deadline: Time,
    state: State,
    resent: bool,
    /// Nobody waits any more; the entry stays while its reply is under way, for the accounts.
    abandoned: bool,
}

#[derive(Debug, Default)]
struct Slot {
    up: bool,
    in_flight: InFlight,
    demand_bytes: u64,
    cancels: VecDeque<RequestId>,
}

/// See the module's head.
#[derive(Debug)]
pub struct ClientSession {
    next_id: u64,
    requests: BTreeMap<RequestId, Pending>,
    queues: [VecDeque<RequestId>; Class::ALL.len()],
    deadlines: BTreeSet<(Time, RequestId)>,
    slots: Vec<Slot>,
    /// Requests taken back after the connection that they went on had broken: the server may still
    /// be at work on them, or keep them waiting for a lock.
    orphans: VecDeque<RequestId>,
    in_flight: InFlight,
    queued_read_bytes: u64,
    is_demand_spread: bool,
}

impl ClientSession {
    /// A session of at most `connections` connections, all of them down. `first_id` must be above
    /// every id that the session has used before.
    #[must_use]
    pub fn new(connections: usize, first_id: RequestId) -> Self {
        assert!(
            (1..=CONNECTIONS_MAX).contains(&connections),
            "{connections} connections"
        );
        Self {
            next_id: first_id.0.max(1),
            requests: BTreeMap::new(),
            queues: Default::default(),
            deadlines: BTreeSet::new(),
            slots: (0..connections).map(|_| Slot::default()).collect(),
            orphans: VecDeque::new(),
            in_flight: InFlight::default(),
            queued_read_bytes: 0,
            is_demand_spread: false,
        }
    }

    /// How many connections the session may have.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.len()
    }

    /// Whether demand reads may go on bulk connections that are idle.
    pub fn spread_demand(&mut self, spread: bool) {
        self.is_demand_spread = spread;
    }

    /// What is in flight and queued, over all connections.
    #[must_use]
    pub fn in_flight(&self) -> InFlight {
        let queued = self.queues.iter().map(VecDeque::len).sum();
        InFlight {
            queued,
            ..self.in_flight
        }
    }

    /// Payload bytes of replies to requests that are queued and not yet sent.
    #[must_use]
    pub fn queued_read_bytes(&self) -> u64 {
        self.queued_read_bytes
    }

    /// Whether a connection stands.
    #[must_use]
    pub fn is_up(&self, connection: ConnectionIndex) -> bool {
        self.slots[connection.0].up
    }

    /// Whether no request is on a connection.
    #[must_use]
    pub fn is_idle(&self, connection: ConnectionIndex) -> bool {
        self.slots[connection.0].in_flight.requests == 0
    }

    /// Whether a request has been sent on a connection that stands and is not answered.
    #[must_use]
    pub fn is_on_line(&self, id: RequestId) -> bool {
        self.requests
            .get(&id)
            .is_some_and(|p| matches!(p.state, State::Sent { .. }))
    }

    /// Payload bytes that the reply to a request will have at most; 0 if it is not known.
    #[must_use]
    pub fn reply_bytes(&self, id: RequestId) -> u64 {
        self.requests
            .get(&id)
            .map_or(0, |pending| pending.reply_bytes)
    }

    /// Which requests have been answered or given up. It never takes anything back.
    #[must_use]
    pub fn settled(&self) -> Settled {
        let recent = self.next_id.saturating_sub(STRAGGLER_DISTANCE);
        let mut except = Vec::new();
        for &id in self.requests.keys() {
            if id.0 >= recent || except.len() == STRAGGLERS_MAX {
                return Settled { below: id, except };
            }
            except.push(id);
        }
        let below = RequestId(self.next_id);
        Settled { below, except }
    }

    /// Queues a request.
    ///
    /// # Errors
    /// [`SessionFull`] beyond [`REQUESTS_MAX`].
    pub fn submit(&mut self, submission: Submission) -> Result<RequestId, SessionFull> {
        if self.requests.len() >= REQUESTS_MAX {
            return Err(SessionFull);
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let Submission {
            class,
            body,
            payload,
            reply_bytes,
            deadline,
        } = submission;
        self.queues[class.index()].push_back(id);
        if deadline < Time::MAX {
            self.deadlines.insert((deadline, id));
        }
        let state = State::Queued;
        self.queued_read_bytes += reply_bytes;
        let pending = Pending {
            class,
            body,
            payload,
            reply_bytes,
            deadline,
            state,
            resent: false,
            abandoned: false,
        };
        self.requests.insert(id, pending);
        Ok(id)
    }

    /// Makes a waiting request more urgent, if it is not yet sent. A prediction that somebody now
    /// waits for goes in front.
    pub fn promote(&mut self, id: RequestId, class: Class) {
        let Some(pending) = self.requests.get_mut(&id) else {
            return;
        };
        if pending.class <= class || !matches!(pending.state, State::Queued) {
            return;
        }
        let queue = &mut self.queues[pending.class.index()];
        queue.retain(|queued| *queued != id);
        pending.class = class;
        self.queues[class.index()].push_back(id);
    }

    /// Takes a request back. Never sent, it is gone at once; else the server is told, and its
    /// reply, if it still comes, is dropped. Nobody is answered in either case.
    pub fn cancel(&mut self, id: RequestId) {
        let Some(pending) = self.requests.get_mut(&id) else {
            return;
        };
        self.deadlines.remove(&(pending.deadline, id));
        match pending.state {
            State::Queued => {
                let class = pending.class;
                self.queued_read_bytes -= pending.reply_bytes;
                self.queues[class.index()].retain(|queued| *queued != id);
                if pending.resent {
                    self.orphans.push_back(id);
                }
                self.requests.remove(&id);
            }
            State::Sent { connection, .. } => {
                if !pending.abandoned {
                    pending.abandoned = true;
                    self.slots[connection].cancels.push_back(id);
                }
            }
        }
    }

    /// A connection stands and has been welcomed.
    pub fn handle_up(&mut self, connection: ConnectionIndex) {
        let slot = &mut self.slots[connection.0];
        assert!(!slot.up, "connection {} came up twice", connection.0);
        slot.up = true;
    }

    /// A connection broke. Its unanswered requests are queued again, in front and in their order.
    pub fn handle_down(&mut self, connection: ConnectionIndex) {
        let slot = &mut self.slots[connection.0];
        if !slot.up {
            return;
        }
        *slot = Slot::default();
        let mut lost: Vec<RequestId> = Vec::new();
        for (id, pending) in &self.requests {
            if matches!(pending.state, State::Sent { connection: c, .. } if c == connection.0) {
                lost.push(*id);
            }
        }
        for id in lost.into_iter().rev() {
            let pending = self.requests.get_mut(&id).expect("collected above");
            self.in_flight.read_bytes -= pending.reply_bytes;
            self.in_flight.write_bytes -= pending.payload.len() as u64;
            self.in_flight.requests -= 1;
            if pending.abandoned {
                // That it was taken back may not have arrived.
                self.requests.remove(&id);
                self.orphans.push_back(id);
                continue;
            }
            pending.state = State::Queued;
            pending.resent = true;
            self.queued_read_bytes += pending.reply_bytes;
            self.queues[pending.class.index()].push_front(id);
        }
    }

    /// A reply arrived. `None` if nobody waits for it: given up, or never asked.
    pub fn handle_reply(&mut self, connection: ConnectionIndex, id: RequestId) -> Option<Answered> {
        let pending = self.requests.get(&id)?;
        let State::Sent {
            connection: sent_on,
            at,
        } = pending.state
        else {
            return None;
        };
        if sent_on != connection.0 {
            return None;
        }
        let pending = self.requests.remove(&id).expect("looked up above");
        self.deadlines.remove(&(pending.deadline, id));
        self.settle(sent_on, &pending, false);
        (!pending.abandoned).then_some(Answered {
            sent_at: at,
            class: pending.class,
            written_bytes: pending.payload.len() as u64,
            resent: pending.resent,
        })
    }

    /// Moves the accounts by one request: onto `connection`, or off it.
    fn settle(&mut self, connection: usize, pending: &Pending, add: bool) {
        let slot = &mut self.slots[connection];
        let demand = if pending.class == Class::Demand {
            pending.reply_bytes
        } else {
            0
        };
        let apply = |account: &mut u64, bytes: u64| {
            *account = if add {
                *account + bytes
            } else {
                *account - bytes
            };
        };
        apply(&mut slot.demand_bytes, demand);
        for account in [&mut slot.in_flight, &mut self.in_flight] {
            apply(&mut account.read_bytes, pending.reply_bytes);
            apply(&mut account.write_bytes, pending.payload.len() as u64);
            account.requests = if add {
                account.requests + 1
            } else {
                account.requests - 1
            };
        }
    }

    /// The next frame for a connection; `None` if it has to wait for a reply, a submission or a
    /// wider window.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        connection: ConnectionIndex,
        windows: Windows,
    ) -> Option<Frame> {
        if !self.slots[connection.0].up {
            return None;
        }
        if let Some(request) = self.next_cancel(connection) {
            return Some(Frame {
                kind: FrameKind::Cancel,
                class: Class::Metadata,
                resent: false,
                request,
                body: Bytes::new(),
                payload: Payload::new(),
            });
        }
        let class = self.next_class(connection, windows)?;
        let id = self.queues[class.index()]
            .pop_front()
            .expect("next_class saw one");
        let mut pending = self
            .requests
            .remove(&id)
            .expect("queued requests are known");
        pending.state = State::Sent {
            connection: connection.0,
            at: now,
        };
        self.queued_read_bytes -= pending.reply_bytes;
        self.settle(connection.0, &pending, true);
        let frame = Frame {
            kind: FrameKind::Request,
            class: pending.class,
            resent: pending.resent,
            request: id,
            body: pending.body.clone(),
            payload: pending.payload.clone().into(),
        };
        self.requests.insert(id, pending);
        Some(frame)
    }

    /// A connection that has something to send now: whom to wake after anything has changed. Waking
    /// all of them would cost a busy client more than its requests do.
    #[must_use]
    pub fn ready_connection(&self, windows: Windows) -> Option<ConnectionIndex> {
        let has_work = |connection: &ConnectionIndex| {
            let slot = &self.slots[connection.0];
            let cancels = !slot.cancels.is_empty()
                || (!self.orphans.is_empty() && self.may_carry(*connection, Class::Metadata, 0));
            slot.up && (cancels || self.next_class(*connection, windows).is_some())
        };
        let cancelling = |connection: &ConnectionIndex| {
            let slot = &self.slots[connection.0];
            slot.up && !slot.cancels.is_empty()
        };
        let bulk = || (1..self.slots.len()).map(ConnectionIndex);
        let least_loaded = bulk()
            .filter(|connection| self.slots[connection.0].up)
            .min_by_key(|connection| {
                let slot = &self.slots[connection.0];
                (load(slot), slot.in_flight.requests)
            });
        Some(ConnectionIndex::MAIN)
            .filter(has_work)
            .or_else(|| least_loaded.filter(has_work))
            .or_else(|| bulk().find(cancelling))
            .or_else(|| bulk().find(has_work))
    }

    /// The next request that the server is to be told not to carry out.
    fn next_cancel(&mut self, connection: ConnectionIndex) -> Option<RequestId> {
        // Orphans go where metadata goes, ahead of it: what follows may undo what they did.
        if self.may_carry(connection, Class::Metadata, 0)
            && let Some(id) = self.orphans.pop_front()
        {
            return Some(id);
        }
        self.slots[connection.0].cancels.pop_front()
    }

    /// The most urgent class whose first waiting request may go on `connection` now.
    fn next_class(&self, connection: ConnectionIndex, windows: Windows) -> Option<Class> {
        // A request that waits for room in a window keeps less urgent ones out of it: small ones
        // would otherwise take every bit of room before there is enough for a large one.
        let mut left = windows;
        for class in Class::ALL {
            let Some(id) = self.queues[class.index()].front() else {
                continue;
            };
            let pending = &self.requests[id];
            let bytes = pending.reply_bytes + pending.payload.len() as u64;
            if !self.may_carry(connection, class, bytes) {
                continue;
            }
            if matches!(class, Class::Metadata | Class::Demand) {
                return Some(class);
            }
            let read_fits = fits(
                pending.reply_bytes,
                self.in_flight.read_bytes,
                left.read_bytes,
            );
            let write_fits = fits(
                pending.payload.len() as u64,
                self.in_flight.write_bytes,
                left.write_bytes,
            );
            if read_fits && write_fits {
                return Some(class);
            }
            if !read_fits {
                left.read_bytes = 0;
            }
            if !write_fits {
                left.write_bytes = 0;
            }
        }
        None
    }

    /// Whether `connection` is the one for a request of `class` with so many bytes of data now.
    fn may_carry(&self, connection: ConnectionIndex, class: Class, bytes: u64) -> bool {
        let main_up = self.slots[0].up;
        let bulk_up = self.slots[1..].iter().any(|slot| slot.up);
        let is_main = connection == ConnectionIndex::MAIN;
        match class {
            Class::Metadata => is_main || !main_up,
            Class::Demand if is_main => {
                let is_small = bytes <= SMALL_DEMAND_BYTES_MAX;
                let others_idle = || self.is_demand_spread && self.slots[1..].iter().any(is_idle);
                !bulk_up
                    || (self.slots[0].demand_bytes < MAIN_DEMAND_BYTES_MAX
                        && (is_small || !others_idle()))
            }
            Class::Demand => {
                !main_up
                    || self.slots[0].demand_bytes >= MAIN_DEMAND_BYTES_MAX
                    || (self.is_demand_spread && is_idle(&self.slots[connection.0]))
            }
            Class::Write | Class::Prediction | Class::Background if is_main => !bulk_up,
            Class::Write | Class::Prediction | Class::Background => {
                self.is_least_loaded(connection)
                    && (bytes > 0 || self.has_fewest_requests(connection))
            }
        }
    }

    /// Whether none of the least loaded has fewer requests: listings and the like have no data that
    /// counts, and a hundred of them on one connection would wait for its slow start.
    fn has_fewest_requests(&self, connection: ConnectionIndex) -> bool {
        let requests = |at: &ConnectionIndex| self.slots[at.0].in_flight.requests;
        let fewest = (1..self.slots.len())
            .map(ConnectionIndex)
            .filter(|at| self.slots[at.0].up && self.is_least_loaded(*at))
            .map(|at| requests(&at))
            .min();
        fewest.is_none_or(|fewest| requests(&connection) <= fewest)
    }

    fn is_least_loaded(&self, connection: ConnectionIndex) -> bool {
        let least = self.slots[1..]
            .iter()
            .filter(|slot| slot.up)
            .map(load)
            .min()
            .unwrap_or(0);
        let all_bytes = self.in_flight.read_bytes + self.in_flight.write_bytes;
        let imbalance_bytes = (all_bytes / IMBALANCE_SHARE).max(IMBALANCE_BYTES_MIN);
        load(&self.slots[connection.0]) <= least + imbalance_bytes
    }

    /// When [`Self::poll_expired`] has something next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// A request whose time is over. It is given up; whoever waits must be told.
    pub fn poll_expired(&mut self, now: Time) -> Option<RequestId> {
        let (deadline, id) = *self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.cancel(id);
        Some(id)
    }

    /// Gives up every request. Returns those that somebody waits for.
    pub fn abort(&mut self) -> Vec<RequestId> {
        let waiting = self
            .requests
            .iter()
            .filter(|(_, p)| !p.abandoned)
            .map(|(id, _)| *id);
        let waiting = waiting.collect();
        self.requests.clear();
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.deadlines.clear();
        self.orphans.clear();
        self.in_flight = InFlight::default();
        self.queued_read_bytes = 0;
        for slot in &mut self.slots {
            *slot = Slot {
                up: slot.up,
                ..Slot::default()
            };
        }
        waiting
    }
}

/// Bytes that a connection has in flight.
fn load(slot: &Slot) -> u64 {
    slot.in_flight.read_bytes + slot.in_flight.write_bytes
}

/// Whether nothing stands in front of a request on this connection.
fn is_idle(slot: &Slot) -> bool {
    slot.up && slot.in_flight.requests == 0
}

/// Whether `bytes` more may be in flight. Alone they may, however small the window.
fn fits(bytes: u64, in_flight_bytes: u64, window_bytes: u64) -> bool {
    bytes == 0 || in_flight_bytes == 0 || in_flight_bytes + bytes <= window_bytes
}

#[cfg(test)]
mod tests;
