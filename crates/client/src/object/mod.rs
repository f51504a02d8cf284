//! One storage server: its stores, and tickets under which objects are used.
//!
//! [`StorageServer`] is a session with one server, and [`StoreClient`] one of its stores under one
//! ticket or none; whoever stripes over several holds one for each. Many requests are in flight at
//! once, bounded in number and bytes ([`Rooms`]); every call ends, with an error if need be, within
//! the transport's time. A server that says that too much is under way is asked again a little
//! later, and how much is asked for at once shrinks. So is one that has begun anew and waits until
//! others have written again what it may have lost.
//!
//! A server that has started anew does not know tickets any more: they are shown again. What was
//! written and not committed may be gone then; [`Written::verifier`] tells, as it does for files.

mod room;
mod under;

pub use under::{MountTicket, TicketState, TicketStatus};

use crate::clock::now;
use crate::pause::Pause;
use crate::transport::{
    Call, CallError, ConnectError, Endpoint, TimeLimit, Transport, TransportOptions,
};
use base::limits::{DATA_BYTES_MAX, OBJECT_BUSY_TRIES_MAX, OBJECT_SEEKS_MAX};
use base::{Extent, ObjectId, RequestId, StoreId, WriteVerifier};
use bytes::Bytes;
use room::Rooms;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::frame::Class;
use wire::message::{
    ObjectAttribute, ObjectBatch, ObjectError, ObjectReply, ObjectRequest, ObjectStep,
    ObjectStepReply, ObjectSummary, RecordSecond, RecordTotal, Reply, SeekWhat, Settled,
    StoreSummary, TicketRefusal,
};
use wire::payload::Payload;

/// First wait after a server was too busy.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// Longest wait after that.
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(200);
/// Longest wait after a server has said that others are still to write again.
const NOT_YET_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Why an object call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectCallError {
    /// The way there, or the request as a whole.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server's answer.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

type Result<T, E = ObjectCallError> = std::result::Result<T, E>;

/// What was changed, and by which run of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// If a later commit has another one, it may be gone.
    pub verifier: WriteVerifier,
}

/// A page of objects, and from where to go on.
pub type Page = (Vec<ObjectSummary>, Option<ObjectId>);

struct Shared {
    transport: Transport,
    stores: Vec<StoreSummary>,
    /// Tickets as they were shown, by number.
    tickets: Mutex<BTreeMap<u32, Vec<u8>>>,
    last_ticket: AtomicU32,
}

/// A session with a storage server. Clones share it.
#[derive(Clone)]
pub struct StorageServer(Arc<Shared>);

/// A ticket that was shown to a server. Given back when the last clone is dropped.
#[derive(Clone)]
pub struct ShownTicket(Arc<Shown>);

struct Shown {
    server: StorageServer,
    number: u32,
}

impl Drop for Shown {
    fn drop(&mut self) {
        let number = self.number;
        self.server.tickets().remove(&number);
        let request = ObjectRequest::CloseTicket { number };
        // If it does not get there, the session's end closes it.
        drop(
            self.server
                .0
                .transport
                .submit_object(request, Call::metadata()),
        );
    }
}

impl StorageServer {
    /// Connects, and asks which stores there are.
    ///
    /// # Errors
    /// [`ConnectError`]; [`ConnectError::Protocol`] for a server that knows no stores.
    pub async fn connect(
        endpoint: Endpoint,
        options: TransportOptions,
    ) -> Result<Self, ConnectError> {
        let name = endpoint.name.clone();
        let transport = Transport::connect(endpoint, options).await?;
        let stores = stores(&transport).await;
        let stores = stores.map_err(|_| ConnectError::Protocol { name })?;
        Ok(Self(Arc::new(Shared {
            transport,
            stores,
            tickets: Mutex::default(),
            last_ticket: AtomicU32::new(0),
        })))
    }

    /// As [`Self::connect`], over a session that there is.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn over(transport: Transport) -> Result<Self> {
        let stores = stores(&transport).await?;
        Ok(Self(Arc::new(Shared {
            transport,
            stores,
            tickets: Mutex::default(),
            last_ticket: AtomicU32::new(0),
        })))
    }

    /// The stores as they were when it was connected.
    #[must_use]
    pub fn stores(&self) -> &[StoreSummary] {
        &self.0.stores
    }

    /// The stores as they are now.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn ask_stores(&self) -> Result<Vec<StoreSummary>> {
        stores(&self.0.transport).await
    }

    /// What is below, for its figures.
    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.0.transport
    }

    fn tickets(&self) -> MutexGuard<'_, BTreeMap<u32, Vec<u8>>> {
        self.0
            .tickets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a ticket, so that stores can be used with it.
    ///
    /// # Errors
    /// [`ObjectError::Ticket`] says why it is refused.
    pub async fn show(&self, ticket: &[u8]) -> Result<ShownTicket> {
        let number = self.0.last_ticket.fetch_add(1, Ordering::Relaxed) + 1;
        self.tickets().insert(number, ticket.to_vec());
        let shown = ShownTicket(Arc::new(Shown {
            server: self.clone(),
            number,
        }));
        self.open(number, ticket).await?;
        Ok(shown)
    }

    async fn open(&self, number: u32, ticket: &[u8]) -> Result<()> {
        let request = ObjectRequest::OpenTicket {
            number,
            ticket: ticket.to_vec(),
        };
        match ask(&self.0.transport, request).await? {
            ObjectReply::Ticket { .. } => Ok(()),
            _ => Err(CallError::Protocol.into()),
        }
    }

    /// One of the stores, with a ticket where that reaches, and for the leftover elsewhere.
    #[must_use]
    pub fn store_under(&self, store: StoreId, ticket: Option<Arc<MountTicket>>) -> StoreClient {
        StoreClient {
            under: ticket,
            ..self.store(store, None)
        }
    }

    /// One of the stores, with a ticket or for the leftover.
    #[must_use]
    pub fn store(&self, store: StoreId, ticket: Option<ShownTicket>) -> StoreClient {
        let summary = self.0.stores.iter().find(|summary| summary.store == store);
        let piece = |bytes: Option<u32>| bytes.unwrap_or(DATA_BYTES_MAX).clamp(1, DATA_BYTES_MAX);
        StoreClient {
            read_piece_bytes: piece(summary.map(|summary| summary.read_piece_bytes)),
            write_piece_bytes: piece(summary.map(|summary| summary.write_piece_bytes)),
            server: self.clone(),
            store,
            ticket,
            under: None,
            rooms: Arc::default(),
        }
    }

    /// Ends the session.
    pub async fn close(&self, time_max: Duration) {
        self.0.transport.close(time_max).await;
    }
}

async fn stores(transport: &Transport) -> Result<Vec<StoreSummary>> {
    match ask(transport, ObjectRequest::Stores).await? {
        ObjectReply::Stores(stores) => Ok(stores),
        _ => Err(CallError::Protocol.into()),
    }
}

async fn ask(transport: &Transport, request: ObjectRequest) -> Result<ObjectReply> {
    let pending = transport.submit_object(request, Call::metadata());
    match pending.response().await?.reply {
        Reply::Object(ObjectReply::Failed(error)) => Err(error.into()),
        Reply::Object(reply) => Ok(reply),
        _ => Err(CallError::Protocol.into()),
    }
}

/// One store of a server, under one ticket or none. Clones share its rooms.
#[derive(Clone)]
pub struct StoreClient {
    server: StorageServer,
    store: StoreId,
    ticket: Option<ShownTicket>,
    /// In place of the ticket: one that is used where it reaches.
    under: Option<Arc<MountTicket>>,
    read_piece_bytes: u32,
    write_piece_bytes: u32,
    rooms: Arc<Rooms>,
}

/// What steps were answered.
struct Answered {
    replies: Vec<ObjectStepReply>,
    payload: Payload,
    verifier: WriteVerifier,
}

impl StoreClient {
    /// Whether it is used in the same session.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.server.0, &other.server.0)
    }

    /// Which store.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.store
    }

    /// Into pieces of this size, at multiples of it, the server cuts reads for its device.
    #[must_use]
    pub fn read_piece_bytes(&self) -> u32 {
        self.read_piece_bytes
    }

    /// The same of writes.
    #[must_use]
    pub fn write_piece_bytes(&self) -> u32 {
        self.write_piece_bytes
    }

    /// Largest part of an object that should be written in one request: as much as the line takes
    /// several of at once, so that the device always has something to do; no less than a piece.
    #[must_use]
    pub fn write_part_bytes(&self) -> u64 {
        let of_line = self.server.0.transport.write_part_bytes() as u64;
        let piece = u64::from(self.write_piece_bytes);
        of_line.max(piece).min(u64::from(DATA_BYTES_MAX))
    }

    /// Makes an object without bytes, up to a second if one is given.
    ///
    /// # Errors
    /// [`ObjectCallError`], as for all calls.
    pub async fn create(&self, object: ObjectId, end_secs: Option<u64>) -> Result<Written> {
        self.change(ObjectStep::Create { object, end_secs }).await
    }

    /// Writes at most `DATA_BYTES_MAX` bytes.
    ///
    /// # Errors
    /// [`ObjectError::Invalid`] for more.
    pub async fn write(&self, object: ObjectId, offset: u64, data: Bytes) -> Result<Written> {
        let bytes = length(&data)?;
        let step = ObjectStep::Write {
            object,
            offset,
            bytes,
        };
        Ok(self.steps(vec![step], data).await?.written())
    }

    /// As [`Self::write`], by a layout of this generation.
    ///
    /// # Errors
    /// [`ObjectError::Superseded`] if a newer one has begun.
    pub async fn write_under(
        &self,
        object: ObjectId,
        generation: u64,
        offset: u64,
        data: Bytes,
    ) -> Result<Written> {
        let bytes = length(&data)?;
        let step = ObjectStep::WriteUnder {
            object,
            generation,
            offset,
            bytes,
        };
        Ok(self.steps(vec![step], data).await?.written())
    }

    /// Writes at most `DATA_BYTES_MAX` bytes at the end; says where.
    ///
    /// # Errors
    /// [`ObjectError::Invalid`] for more.
    pub async fn append(&self, object: ObjectId, data: Bytes) -> Result<(u64, Written)> {
        let bytes = length(&data)?;
        let step = ObjectStep::Append { object, bytes };
        let answered = self.steps(vec![step], data).await?;
        match answered.replies[..] {
            [ObjectStepReply::Appended { offset }] => Ok((offset, answered.written())),
            _ => Err(CallError::Protocol.into()),
        }
    }

    /// Reads up to `bytes` bytes; fewer where the object ends. Longer reads are several requests.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn read(&self, object: ObjectId, offset: u64, bytes: u64) -> Result<Payload> {
        let most = u64::from(DATA_BYTES_MAX);
        let end = offset.saturating_add(bytes);
        let (mut at, mut parts) = (offset, Vec::new());
        while at < end {
            let len = (most - at % most).min(end - at) as u32;
            let step = ObjectStep::Read {
                object,
                offset: at,
                bytes: len,
            };
            let this = self.clone();
            let part = tokio::spawn(async move { this.steps(vec![step], Bytes::new()).await });
            parts.push((len, part));
            at += u64::from(len);
        }
        let (mut read, mut is_short) = (Payload::new(), false);
        for (len, part) in parts {
            let answered = part.await.map_err(|_| CallError::Closed)??;
            if !is_short {
                is_short = answered.payload.len() < len as usize;
                read.append(answered.payload);
            }
        }
        Ok(read)
    }

    /// Makes the object so long.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn truncate(&self, object: ObjectId, size_bytes: u64) -> Result<Written> {
        self.change(ObjectStep::Truncate { object, size_bytes })
            .await
    }

    /// Makes bytes zeros.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn punch(&self, object: ObjectId, hole: Extent) -> Result<Written> {
        self.change(ObjectStep::Punch { object, hole }).await
    }

    /// As [`Self::punch`], by a layout of this generation.
    ///
    /// # Errors
    /// [`ObjectError::Superseded`] if a newer one has begun.
    pub async fn punch_under(
        &self,
        object: ObjectId,
        generation: u64,
        hole: Extent,
    ) -> Result<Written> {
        let step = ObjectStep::PunchUnder {
            object,
            generation,
            hole,
        };
        self.change(step).await
    }

    /// Gives an object the space for `extent`, by a layout of this generation; what is there
    /// becomes zeros if it is to be cleared.
    ///
    /// # Errors
    /// [`ObjectError::Superseded`] if a newer generation has begun.
    pub async fn allocate_under(
        &self,
        object: ObjectId,
        generation: u64,
        extent: Extent,
        is_cleared: bool,
    ) -> Result<Written> {
        let step = ObjectStep::AllocateUnder {
            object,
            generation,
            extent,
            is_cleared,
        };
        self.change(step).await
    }

    /// The next data or hole of an object at or after `offset`, if there is one; what lies behind
    /// the end is a hole. Looks no farther than `end`.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn seek(
        &self,
        object: ObjectId,
        (offset, end): (u64, u64),
        what: SeekWhat,
    ) -> Result<(Option<u64>, Written)> {
        let mut from = offset;
        for _ in 0..OBJECT_SEEKS_MAX {
            let step = ObjectStep::Seek {
                object,
                offset: from,
                what,
            };
            let answered = self.steps(vec![step], Bytes::new()).await?;
            let [ObjectStepReply::Sought { found, next }] = answered.replies[..] else {
                return Err(CallError::Protocol.into());
            };
            let next = next.filter(|next| *next < end);
            match (found, next) {
                (None, Some(next)) if next > from => from = next,
                (None, Some(_)) => return Err(CallError::Protocol.into()),
                _ => return Ok((found, answered.written())),
            }
        }
        // It looks at less each time than any store does.
        Err(CallError::Protocol.into())
    }

    /// Gives an attribute these contents.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn set_attribute(
        &self,
        object: ObjectId,
        attribute: ObjectAttribute,
    ) -> Result<Written> {
        self.change(ObjectStep::SetAttribute { object, attribute })
            .await
    }

    /// All attributes.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn attributes(&self, object: ObjectId) -> Result<Vec<ObjectAttribute>> {
        match self.one(ObjectStep::Attributes { object }).await? {
            ObjectStepReply::Attributes(attributes) => Ok(attributes),
            _ => Err(CallError::Protocol.into()),
        }
    }

    /// What there is to say of an object.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn info(&self, object: ObjectId) -> Result<ObjectSummary> {
        match self.one(ObjectStep::Info { object }).await? {
            ObjectStepReply::Info(info) => Ok(info),
            _ => Err(CallError::Protocol.into()),
        }
    }

    /// Removes the object.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn delete(&self, object: ObjectId) -> Result<Written> {
        self.change(ObjectStep::Delete { object }).await
    }

    /// Some objects from one on.
    ///
    /// # Errors
    /// [`ObjectCallError`].
    pub async fn list(&self, from: ObjectId, count_max: u32) -> Result<Page> {
        match self.one(ObjectStep::List { from, count_max }).await? {
            ObjectStepReply::Objects { list, next } => Ok((list, next)),
            _ => Err(CallError::Protocol.into()),
        }
    }

    /// Makes durable what was answered before; if it says another verifier than a change did, that
    /// change may be gone.
    ///
    /// # Errors
    /// [`ObjectCallError`]: nothing is known to be durable.
    pub async fn commit(&self) -> Result<Written> {
        self.change(ObjectStep::Commit).await
    }

    /// What its ticket got from the store, from a second on, and in sum.
    ///
    /// # Errors
    /// [`TicketRefusal::NotOpen`] without a ticket.
    pub async fn record(&self, from_second: u64) -> Result<(Vec<RecordSecond>, RecordTotal)> {
        let none = ObjectError::Ticket(TicketRefusal::NotOpen);
        let request = ObjectRequest::TicketRecord {
            number: self.number().ok_or(none)?,
            store: self.store,
            from_second,
        };
        match ask(&self.server.0.transport, request).await? {
            ObjectReply::Record { seconds, total } => Ok((seconds, total)),
            _ => Err(CallError::Protocol.into()),
        }
    }

    /// Gives up to 64 steps of any kind, with their payload; answers and the replies' payload. All
    /// of them have succeeded.
    ///
    /// # Errors
    /// The first step's that failed; those before it are done.
    pub async fn batch(
        &self,
        steps: Vec<ObjectStep>,
        payload: Bytes,
    ) -> Result<(Vec<ObjectStepReply>, Payload, WriteVerifier)> {
        let answered = self.steps(steps, payload).await?;
        Ok((answered.replies, answered.payload, answered.verifier))
    }

    fn number(&self) -> Option<u32> {
        self.ticket.as_ref().map(|ticket| ticket.0.number)
    }

    async fn change(&self, step: ObjectStep) -> Result<Written> {
        Ok(self.steps(vec![step], Bytes::new()).await?.written())
    }

    async fn one(&self, step: ObjectStep) -> Result<ObjectStepReply> {
        let mut answered = self.steps(vec![step], Bytes::new()).await?;
        Ok(answered.replies.pop().ok_or(CallError::Protocol)?)
    }

    /// Carries steps out; again as long as others are to write again what the server has lost, and
    /// as long as a request may take.
    async fn steps(&self, steps: Vec<ObjectStep>, payload: Bytes) -> Result<Answered> {
        let limit = self.server.0.transport.stated_time();
        let (begun, mut pause) = (now(), Pause::new(BUSY_PAUSE, NOT_YET_PAUSE_MAX));
        loop {
            match self.patient_steps(&steps, &payload).await {
                // Nothing was done.
                Err(ObjectCallError::Object(ObjectError::NotYet)) if now().since(begun) < limit => {
                    pause.wait().await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Carries steps out; again if the server was too busy, or has forgotten the ticket.
    async fn patient_steps(&self, steps: &[ObjectStep], payload: &Bytes) -> Result<Answered> {
        let reply_bytes = steps.iter().map(|step| u64::from(step.reply_bytes())).sum();
        let is_whole = steps.len() == 1;
        let mut pause = Pause::new(BUSY_PAUSE, BUSY_PAUSE_MAX);
        let mut number = match &self.under {
            Some(ticket) => ticket.number_for(&self.server, self.store, steps).await,
            None => self.number(),
        };
        for tried in 0.. {
            let bytes = payload.len() as u64 + reply_bytes;
            let room = self.rooms.of(number);
            let permit = room.enter(bytes).await;
            let outcome = self.try_steps(steps, payload.clone(), (reply_bytes, number));
            let outcome = outcome.await;
            drop(permit);
            match outcome {
                // Only of one step is it sure that nothing was done.
                Err(ObjectCallError::Object(ObjectError::Busy))
                    if is_whole && tried < OBJECT_BUSY_TRIES_MAX =>
                {
                    room.shrink();
                    pause.wait().await;
                }
                // Only of one step is it sure that nothing was done.
                Err(ObjectCallError::Object(ObjectError::Ticket(refusal)))
                    if is_whole
                        && tried < OBJECT_BUSY_TRIES_MAX
                        && let Some(ticket) = self.under.as_ref().filter(|_| number.is_some()) =>
                {
                    number = ticket.refused(&self.server, refusal).await;
                }
                Err(ObjectCallError::Object(ObjectError::Ticket(TicketRefusal::NotOpen)))
                    if tried < OBJECT_BUSY_TRIES_MAX =>
                {
                    self.show_again().await?;
                }
                outcome => {
                    room.grow();
                    if let (Some(ticket), Ok(answered)) = (&self.under, &outcome) {
                        let moved = payload.len() + answered.payload.len();
                        ticket.count(number.is_some(), moved as u64);
                    }
                    return outcome;
                }
            }
        }
        unreachable!("it returns after some tries")
    }

    async fn try_steps(
        &self,
        steps: &[ObjectStep],
        payload: Bytes,
        (reply_bytes, number): (u64, Option<u32>),
    ) -> Result<Answered> {
        let class = match (number, reply_bytes, payload.is_empty()) {
            (Some(_), ..) => Class::Demand,
            (None, 0, true) => Class::Metadata,
            (None, 0, false) => Class::Write,
            (None, ..) => Class::Prediction,
        };
        let time_limit = match payload.is_empty() {
            true => TimeLimit::Short,
            false => TimeLimit::Stated,
        };
        let call = Call {
            class,
            payload,
            reply_bytes,
            time_limit,
            since: None,
        };
        let request = ObjectRequest::Batch(ObjectBatch {
            store: self.store,
            ticket: number,
            settled: Settled::all_below(RequestId(0)),
            steps: steps.to_vec(),
        });
        let pending = self.server.0.transport.submit_object(request, call);
        let response = pending.response().await?;
        let Reply::Object(ObjectReply::Results {
            verifier, results, ..
        }) = response.reply
        else {
            return Err(CallError::Protocol.into());
        };
        let replies = results.into_iter().collect::<Result<_, ObjectError>>()?;
        Ok(Answered {
            replies,
            payload: response.payload,
            verifier,
        })
    }

    /// Shows the ticket to a server that has started anew.
    async fn show_again(&self) -> Result<()> {
        let Some(number) = self.number() else {
            return Err(ObjectError::Ticket(TicketRefusal::NotOpen).into());
        };
        let ticket = self.server.tickets().get(&number).cloned();
        let none = ObjectError::Ticket(TicketRefusal::NotOpen);
        self.server.open(number, &ticket.ok_or(none)?).await
    }
}

impl Answered {
    fn written(&self) -> Written {
        Written {
            verifier: self.verifier,
        }
    }
}

fn length(data: &Bytes) -> Result<u32> {
    let bytes = u32::try_from(data.len()).ok();
    let bytes = bytes.filter(|bytes| *bytes <= DATA_BYTES_MAX);
    Ok(bytes.ok_or(ObjectError::Invalid)?)
}
