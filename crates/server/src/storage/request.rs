//! What comes from a connection: whose it is, whether there is room for it, and then to work.
//!
//! Nothing here waits: a request is answered, refused, or goes on as a [`Job`]. So a connection
//! whose unreserved requests have filled their share goes on to be read, and a reserved one behind
//! them passes.

use super::DeviceInfo;
use super::held::{Charge, HeldTicket, Owner};
use super::job::{Job, Progress};
use super::{Storage, StorageError};
use crate::lease::Caching;
use crate::link::Destination;
use crate::memory::Arrival;
use crate::session::Session;
use base::limits::{DATA_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX, STORE_TEXT_BYTES_MAX};
use base::ticket::{Grant, TicketError};
use base::{RequestId, StoreId};
use bytes::Bytes;
use reservation::scheduler::{Cause, Source, UserKey};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use store::device::{Capability, Direction};
use wire::frame::{Class, Frame, FrameKind};
use wire::message::{
    CredentialKind, DeviceSummary, Farewell, Features, ObjectBatch, ObjectError, ObjectReply,
    ObjectRequest, ObjectStep, ObjectStepReply, RecordSecond, RecordTotal, Refusal, Reply,
    Shortfall, StoreSummary, TicketRefusal, frame,
};

/// Memory that a request takes besides its data.
const REQUEST_BYTES: usize = 1024;
/// Bytes of a reply with one object.
const SUMMARY_BYTES: usize = 53;

/// An object request as it arrives.
pub(crate) struct ObjectIncoming {
    pub(crate) session: Arc<Session>,
    pub(crate) to: Destination,
    pub(crate) id: RequestId,
    pub(crate) class: Class,
    pub(crate) payload: Bytes,
}

impl ObjectIncoming {
    /// Answers an `OpenTicket` whose ticket is for another server and was judged by its key.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub(crate) fn accept_elsewhere(
        self,
        storage: &Storage,
        number: u32,
        judged: Result<Grant, TicketError>,
    ) -> Result<(), Farewell> {
        if !self.payload.is_empty() {
            return Err(Farewell::Protocol);
        }
        let noted = self.session.tickets.note(number, judged);
        self.opened(storage, noted)
    }

    fn opened(self, storage: &Storage, opened: Result<(), TicketRefusal>) -> Result<(), Farewell> {
        self.answer(match opened {
            Ok(()) => ObjectReply::Ticket {
                now_nanos: storage.now().as_nanos(),
            },
            Err(refusal) => ObjectReply::Failed(ObjectError::Ticket(refusal)),
        })
    }

    /// Sees to it that the request is answered.
    ///
    /// # Errors
    /// The connection is to end with this: the request does not keep to the protocol.
    pub(crate) fn accept(
        self,
        storage: &Arc<Storage>,
        caching: &Caching,
        request: ObjectRequest,
    ) -> Result<(), Farewell> {
        let is_admin = self.session.peer.kind.is_admin();
        let batch = match request {
            ObjectRequest::Batch(batch) => batch,
            _ if !self.payload.is_empty() => return Err(Farewell::Protocol),
            ObjectRequest::Stores => {
                let stores = storage.summaries(is_admin);
                return self.answer(ObjectReply::Stores(stores));
            }
            ObjectRequest::OpenTicket { number, ticket } => {
                let opened = self.session.tickets.open(storage, number, &ticket);
                return self.opened(storage, opened);
            }
            ObjectRequest::CloseTicket { number } => {
                self.session.tickets.close(number);
                return self.answer(ObjectReply::Done);
            }
            ObjectRequest::Devices
            | ObjectRequest::LineageRecord { .. }
            | ObjectRequest::Revoke { .. }
                if !is_admin =>
            {
                return self.answer(ObjectReply::Failed(ObjectError::Forbidden));
            }
            ObjectRequest::Devices => return self.answer(storage.for_managers()),
            ObjectRequest::LineageRecord {
                store,
                lineage,
                from_second,
            } => {
                let none = ObjectReply::Failed(ObjectError::Ticket(TicketRefusal::NotOpen));
                let record = storage.record(store, &lineage, from_second);
                return self.answer(record.unwrap_or(none));
            }
            ObjectRequest::Revoke { tickets } => {
                self.revoke(storage.clone(), tickets);
                return Ok(());
            }
            ObjectRequest::TicketRecord {
                number,
                store,
                from_second,
            } => {
                let held = self.session.tickets.get(number);
                let record = held.map_err(ObjectError::Ticket).and_then(|held| {
                    let record = storage.record(store, &held.lineage(), from_second);
                    record.ok_or(ObjectError::Ticket(TicketRefusal::NoSlice))
                });
                return self.answer(record.unwrap_or_else(ObjectReply::Failed));
            }
        };
        let bytes = payload_bytes(&batch);
        if bytes != Some(self.payload.len()) {
            return Err(Farewell::Protocol);
        }
        match self.is_early(caching, &batch) {
            true => self.refuse(storage, ObjectError::NotYet),
            false => self.begin(storage, batch),
        }
        Ok(())
    }

    /// Whether it reads what others are still to write again. Before it writes, it is noted as one
    /// of those who are to write again what this run may lose. A client that would not understand
    /// is served what there is.
    fn is_early(&self, caching: &Caching, batch: &ObjectBatch) -> bool {
        if batch.steps.iter().any(|step| step.payload_bytes() > 0) {
            caching.writes_to_stores(&self.session);
        }
        batch.steps.iter().any(ObjectStep::reads_bytes)
            && self.session.features().have(Features::WRITE_AGAIN)
            && caching.is_writing_again()
    }

    /// Takes tickets back; the disk is waited for elsewhere.
    fn revoke(self, storage: Arc<Storage>, tickets: Vec<(base::TicketId, u64)>) {
        tokio::task::spawn_blocking(move || {
            let revoked = storage.revoke(&tickets);
            self.send(&Reply::Object(match revoked {
                Ok(()) => ObjectReply::Done,
                Err(StorageError::TooManyRevoked) => {
                    ObjectReply::Failed(ObjectError::TooManyRevoked)
                }
                Err(error) => {
                    tracing::error!(%error, "revoked tickets cannot be noted");
                    ObjectReply::Failed(ObjectError::Device)
                }
            }));
        });
    }

    fn answer(self, reply: ObjectReply) -> Result<(), Farewell> {
        self.send(&Reply::Object(reply));
        Ok(())
    }

    fn send(self, reply: &Reply) {
        let class = self.class;
        let frame = frame(FrameKind::Reply, self.id, reply);
        self.to.send(Frame { class, ..frame }, None);
    }

    /// Refuses the batch as a whole: its first step fails.
    fn refuse(self, storage: &Storage, error: ObjectError) {
        self.send(&Reply::Object(ObjectReply::Results {
            verifier: storage.verifier(),
            results: vec![Err(error)],
            server_micros: 0,
        }));
    }

    fn begin(mut self, storage: &Arc<Storage>, batch: ObjectBatch) {
        if batch.steps.is_empty() {
            return self.send(&Reply::Object(ObjectReply::Results {
                verifier: storage.verifier(),
                results: Vec::new(),
                server_micros: 0,
            }));
        }
        let Some(device) = storage.device(batch.store).cloned() else {
            return self.without_device(storage, &batch);
        };
        let (source, ticket) = match self.whose(storage, &batch) {
            Ok(whose) => whose,
            Err(refusal) => return self.refuse(storage, ObjectError::Ticket(refusal)),
        };
        let Some(reply_bytes) = reply_bytes(&batch) else {
            return self.refuse(storage, ObjectError::Invalid);
        };
        let share = self.to.link.share.key;
        let (owner, class) = match &ticket {
            Some(ticket) => (Owner::Ticket(ticket.grant.head.id), Class::Demand),
            None if self.session.peer.kind.is_admin() => (Owner::Admin(share), Class::Prediction),
            None => (Owner::Credential(share), Class::Prediction),
        };
        let bytes = self.payload.len() + reply_bytes + REQUEST_BYTES;
        let Some(charge) = Charge::take(&self.to.link, &storage.memory, owner, bytes) else {
            return self.refuse(storage, ObjectError::Busy);
        };
        let Some(working) = self.session.begin_work() else {
            return;
        };
        let is_remembered = batch.steps.iter().any(ObjectStep::must_run_once);
        if is_remembered {
            let arrived = {
                let mut known = self.session.memory();
                known.arrive(self.id, &batch.settled, reply_bytes, self.to.clone())
            };
            match arrived {
                Arrival::New(to) => self.to = to,
                Arrival::Answered(to, frame) => return to.send(frame, None),
                Arrival::Running | Arrival::Settled => return,
                Arrival::Full(to) => {
                    self.to = to;
                    return self.send(&Reply::Refused(Refusal::Overloaded));
                }
            }
        } else {
            self.session.memory().settle(&batch.settled);
        }
        let job = Job {
            storage: storage.clone(),
            device,
            session: self.session,
            to: self.to,
            id: self.id,
            class,
            batch,
            payload: self.payload,
            source,
            ticket,
            is_remembered,
            arrived: Instant::now(),
            _working: working,
            progress: Mutex::new(Progress::new(charge)),
        };
        Arc::new(job).run();
    }

    /// Answers for a store that is not there. In one that is missing nothing was written in this
    /// run, so there is nothing to make durable; the verifier tells those who wrote in a run before
    /// that they are to write again. In one that is lost there is nothing to cut or to remove.
    fn without_device(self, storage: &Storage, batch: &ObjectBatch) {
        let (is_missing, is_lost) = (
            storage.missing().contains_key(&batch.store),
            storage.is_lost(batch.store),
        );
        let is_done = |step: &ObjectStep| match step {
            ObjectStep::Commit => is_missing || is_lost,
            ObjectStep::Cut { .. } | ObjectStep::CutUnder { .. } | ObjectStep::Discard { .. } => {
                is_lost
            }
            _ => false,
        };
        if !batch.steps.iter().all(is_done) {
            return self.refuse(storage, ObjectError::UnknownStore);
        }
        self.send(&Reply::Object(ObjectReply::Results {
            verifier: storage.verifier(),
            results: vec![Ok(ObjectStepReply::Done); batch.steps.len()],
            server_micros: 0,
        }));
    }

    /// In whose name it goes to the device.
    fn whose(
        &self,
        storage: &Storage,
        batch: &ObjectBatch,
    ) -> Result<(Source, Option<Arc<HeldTicket>>), TicketRefusal> {
        let Some(number) = batch.ticket else {
            return Ok((Source::User(user(&self.session)), None));
        };
        let held = self.session.tickets.get(number)?;
        held.check(storage, storage.now())?;
        let key = held.keys.get(&batch.store).ok_or(TicketRefusal::NoSlice)?;
        Ok((Source::Ticket(*key), Some(held)))
    }
}

/// Who shares the leftover with others: a user, or all of a machine by its credential.
pub(crate) fn user(session: &Session) -> UserKey {
    match session.peer.kind {
        CredentialKind::User { uid } => UserKey(u64::from(uid)),
        CredentialKind::Admin
        | CredentialKind::Host
        | CredentialKind::Server
        | CredentialKind::Manager { .. } => {
            let hash = blake3::hash(session.peer.serial.as_bytes());
            let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
            // Beyond all numbers of users.
            UserKey(u64::from_le_bytes([a, b, c, d, e, f, g, h]) | 1 << 63)
        }
    }
}

/// Payload of a batch; none if no frame has so much.
fn payload_bytes(batch: &ObjectBatch) -> Option<usize> {
    let steps = batch.steps.iter();
    let bytes: u64 = steps.map(|step| u64::from(step.payload_bytes())).sum();
    let bytes = usize::try_from(bytes).ok()?;
    (bytes <= FRAME_PAYLOAD_BYTES_MAX).then_some(bytes)
}

/// Bytes of the reply at most; none if no frame has so much.
fn reply_bytes(batch: &ObjectBatch) -> Option<usize> {
    let is_legal = |step: &ObjectStep| step.reply_bytes() <= DATA_BYTES_MAX;
    let steps = || batch.steps.iter();
    let payload: usize = steps().map(|step| step.reply_bytes() as usize).sum();
    let body: usize = steps().map(body_bytes).sum();
    let fits = payload <= FRAME_PAYLOAD_BYTES_MAX && body <= base::limits::FRAME_BODY_BYTES_MAX;
    (steps().all(is_legal) && fits).then_some(payload + body)
}

fn body_bytes(step: &ObjectStep) -> usize {
    use base::limits as l;
    match step {
        ObjectStep::List { count_max, .. } => {
            (*count_max as usize).min(l::OBJECTS_PER_PAGE_MAX) * SUMMARY_BYTES + 64
        }
        ObjectStep::Attributes { .. } => {
            let each = l::OBJECT_ATTRIBUTE_NAME_BYTES_MAX + l::OBJECT_ATTRIBUTE_BYTES_MAX + 8;
            l::OBJECT_ATTRIBUTES_MAX * each
        }
        _ => 128,
    }
}

impl Storage {
    /// What a ticket got from one store from a second on; none if it is not open there.
    fn record(
        &self,
        store: StoreId,
        lineage: &[base::TicketId],
        from_second: u64,
    ) -> Option<ObjectReply> {
        let (seconds, totals) = self.seconds(store, lineage, from_second)?;
        let micros = |nanos: u64| u32::try_from(nanos / 1000).unwrap_or(u32::MAX);
        let seconds = seconds.into_iter().map(|second| RecordSecond {
            second: second.second,
            bytes: second.bytes,
            served_micros: micros(second.served_nanos),
            promised_micros: micros(second.promised_nanos),
            shortfall: second.shortfall.map(|cause| match cause {
                Cause::NoDemand => Shortfall::NoDemand,
                Cause::TooFewInFlight => Shortfall::TooFewInFlight,
                Cause::SlowDevice => Shortfall::SlowDevice,
                Cause::Degraded => Shortfall::Degraded,
                Cause::ServerAway => Shortfall::ServerAway,
            }),
        });
        Some(ObjectReply::Record {
            seconds: seconds.collect(),
            total: RecordTotal {
                seconds: totals.seconds,
                kept: totals.kept,
                bytes: totals.bytes,
            },
        })
    }

    /// All stores, with what a manager needs to promise of them.
    fn for_managers(&self) -> ObjectReply {
        let devices = self.summaries(true).into_iter().map(|summary| {
            let info = self.device(summary.store).map(|device| device.info());
            let capability = info.as_ref().and_then(|info| info.capability.as_ref());
            DeviceSummary {
                capability: capability.map(Capability::encode).unwrap_or_default(),
                keeps_objects: info.as_ref().is_some_and(DeviceInfo::keeps_objects),
                sharers: info.map_or(1, |info| info.plan.shape.sharers),
                summary,
            }
        });
        ObjectReply::Devices(devices.collect())
    }

    /// All stores, as they are.
    pub(crate) fn summaries(&self, with_paths: bool) -> Vec<StoreSummary> {
        let cut = |text: String| crate::admin::cut(text, STORE_TEXT_BYTES_MAX);
        let devices = self.devices.values().map(|device| {
            let (info, figures) = (device.info(), device.dispatcher.figures());
            let capability = info.capability.as_ref();
            let promised = |direction| {
                capability.map_or(0, |_| info.plan.promised_bytes_per_second(direction))
            };
            let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            StoreSummary {
                store: info.store,
                path: match with_paths {
                    true => cut(info.path.display().to_string()),
                    false => String::new(),
                },
                au_bytes: info.au_bytes,
                au_count: info.au_count,
                au_free: info.au_free,
                au_open: info.au_open,
                read_bytes_per_second: promised(Direction::Read),
                write_bytes_per_second: promised(Direction::Write),
                read_piece_bytes: info.plan.read_piece_bytes,
                write_piece_bytes: info.plan.write_piece_bytes,
                promised_ppm_max: info.plan.promised_ppm_max(),
                promised_ppm: u32::try_from(figures.promised_ppm).unwrap_or(u32::MAX),
                tickets: count(figures.tickets),
                waiting: count(figures.waiting),
                in_flight: count(figures.in_flight),
                done: figures.done.pieces,
                done_bytes: figures.done.bytes,
                speed_ppm: figures.speed_ppm,
                is_degraded: info.is_degraded,
                is_quick: capability.is_some_and(Capability::is_quick),
                is_older: false,
                failure: info.failure.map(cut),
            }
        });
        let missing = self.missing().iter();
        let missing = missing.map(|(store, missing)| StoreSummary {
            path: match with_paths {
                true => cut(missing.path.display().to_string()),
                false => String::new(),
            },
            failure: Some(match with_paths {
                true => cut(format!("missing: {}", missing.why)),
                false => "missing".to_owned(),
            }),
            is_older: missing.is_older,
            ..StoreSummary::missing(*store)
        });
        devices.chain(missing).collect()
    }
}
