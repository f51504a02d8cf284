//! Contents of a parallel volume: read and written at its stores.
//!
//! What the rest of the volume sends to a server as steps about contents is carried out here
//! instead, and answered as a server would: so read-ahead, write-behind, commits and replays are
//! the same for both kinds of volume.
//!
//! ```text
//! Read    the objects' parts, at once; what no object has are zeros
//! Write   the objects' parts, then `Wrote` at the manager: size, times, who caches it
//! append  `Extend` at the manager says where, then as a write
//! Commit  at every store of the volume, then at the manager
//! ```
//! A request is answered when all of that is done, under the verifier of the stores' run in which
//! it was. If that changes on the way, the whole is done again. A file that was cut while it was
//! written ([`FileLayout::generation`]) is written again, too: nobody knows which came first.
//!
//! Where a file lies is asked once and remembered. A part that no object has is a hole, or the file
//! is gone: so the manager is asked before zeros are shown.

mod carry;
mod map;

use super::Volume;
use crate::cache::{Node, NodeId};
use crate::object::{MountTicket, ObjectCallError, StorageServer, StoreClient};
use crate::transport::{Call, CallError, Pending, Response, Transport};
use base::limits::CLIENT_LAYOUTS_MAX;
use base::{FsError, Handle, Principal, QuickMap, StoreId, WriteVerifier};
use carry::{Carrying, Patience};
use readahead::Line;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use wire::message::{
    CompoundReply, FileLayout, FileRef, LayoutPurpose, ObjectError, Reply, Request, Step,
    StepReply, Target,
};

/// What a volume knows of its stores.
pub(super) struct Stripes {
    server: StorageServer,
    stores: Mutex<BTreeMap<StoreId, StoreClient>>,
    layouts: Mutex<QuickMap<Handle, Arc<FileLayout>>>,
    /// What is shown to the stores.
    tickets: OnceLock<Vec<Arc<MountTicket>>>,
    /// Bytes of reads that were handed over and have not arrived.
    reading: AtomicU64,
    /// The newest run of the stores that was heard of.
    verifier: Mutex<WriteVerifier>,
}

impl Stripes {
    /// Asks which stores there are.
    pub(super) async fn open(transport: &Transport) -> Result<Self, CallError> {
        transport.write_objects();
        let server = StorageServer::over(transport.clone()).await;
        let server = server.map_err(|error| match error {
            ObjectCallError::Call(error) => error,
            ObjectCallError::Object(_) => CallError::Protocol,
        })?;
        let pinged = transport.submit(&Request::Ping, Call::metadata());
        let verifier = pinged.response().await?.verifier;
        let stores = server.stores().iter();
        let stores = stores.map(|summary| (summary.store, server.store(summary.store, None)));
        Ok(Self {
            stores: Mutex::new(stores.collect()),
            server,
            tickets: OnceLock::new(),
            layouts: Mutex::default(),
            reading: AtomicU64::new(0),
            verifier: Mutex::new(verifier),
        })
    }

    fn stores(&self) -> MutexGuard<'_, BTreeMap<StoreId, StoreClient>> {
        self.stores
            .lock()
            .expect("no panic happens under this lock")
    }

    /// The ticket for a store.
    fn ticket(&self, store: StoreId) -> Option<Arc<MountTicket>> {
        let mut tickets = self.tickets.get()?.iter();
        let is_for = |ticket: &&Arc<MountTicket>| {
            let mut slices = ticket.terms().slices.iter();
            slices.any(|slice| slice.device == store)
        };
        tickets.find(is_for).cloned()
    }

    fn layouts(&self) -> MutexGuard<'_, QuickMap<Handle, Arc<FileLayout>>> {
        let layouts = self.layouts.lock();
        layouts.expect("no panic happens under this lock")
    }

    /// A store that a layout names.
    fn store(&self, store: StoreId) -> StoreClient {
        let mut stores = self.stores();
        let client = stores.entry(store);
        let client = client.or_insert_with(|| self.server.store_under(store, self.ticket(store)));
        client.clone()
    }

    pub(super) fn newest(&self) -> MutexGuard<'_, WriteVerifier> {
        let verifier = self.verifier.lock();
        verifier.expect("no panic happens under this lock")
    }

    /// A layout is not true any more.
    fn forget(&self, handle: &Handle) {
        self.layouts().remove(handle);
    }
}

impl Volume {
    /// Queues steps about the contents of a file: at the server, or at the stores.
    pub(super) fn submit_contents(
        &self,
        node: NodeId,
        who: &Principal,
        steps: Vec<Step>,
        call: Call,
    ) -> Pending {
        let Some(stripes) = &self.stripes else {
            return self.transport.submit_steps(who, steps, call);
        };
        let (answer, pending) = Pending::answered_elsewhere();
        let bytes = call.reply_bytes;
        stripes.reading.fetch_add(bytes, Ordering::Relaxed);
        let (this, who) = (self.arc(), who.clone());
        let recalls_seen = self.transport.recalls_seen();
        tokio::spawn(async move {
            let Some(stripes) = &this.stripes else { return };
            let carrying = Carrying::new(&this, stripes, (node, &who), recalls_seen);
            let (results, payload, run) = carrying.all(steps, call.payload).await;
            let response = Response {
                reply: Reply::Files(CompoundReply {
                    results,
                    server_micros: 0,
                }),
                payload,
                recalls_seen: carrying.recalls_seen(),
                verifier: run.unwrap_or(*stripes.newest()),
            };
            stripes.reading.fetch_sub(bytes, Ordering::Relaxed);
            // Nobody may wait any more.
            let _ = answer.send(Ok(response));
        });
        pending
    }

    /// Uses tickets from now on, wherever they reach; to be called once, before anything is read or
    /// written.
    ///
    /// # Errors
    /// The first refusal. After [`TicketRefusal::NotYet`] they are used when their time has come.
    /// [`FsError::NotSupported`] for an export, whose files lie in no store.
    pub async fn use_tickets(&self, tickets: Vec<MountTicket>) -> Result<(), ObjectCallError> {
        let none = CallError::Failed(FsError::NotSupported);
        let stripes = self.stripes.as_ref().ok_or(none)?;
        let tickets: Vec<Arc<MountTicket>> = tickets.into_iter().map(Arc::new).collect();
        if stripes.tickets.set(tickets.clone()).is_err() {
            return Err(CallError::Failed(FsError::Invalid).into());
        }
        stripes.stores().clear();
        for summary in stripes.server.stores() {
            // It is known from now on.
            let _ = stripes.store(summary.store);
        }
        let mut outcome = Ok(());
        for ticket in tickets {
            outcome = outcome.and(ticket.show(&stripes.server).await);
        }
        outcome
    }

    /// How much of the line there is for what is read ahead: what was handed over counts before it
    /// is on its way.
    pub(super) fn striped_room(&self, line: &Line, room: u64) -> u64 {
        match &self.stripes {
            Some(stripes) => {
                let reading = stripes.reading.load(Ordering::Relaxed);
                room.min(line.window_bytes.saturating_sub(reading))
            }
            None => room,
        }
    }

    fn patience(&self) -> Patience {
        Patience::new(self.transport.request_time_max())
    }

    /// Where a file lies, as it is remembered or as the manager says.
    async fn layout(
        &self,
        stripes: &Stripes,
        who: &Principal,
        file: &FileRef,
        purpose: LayoutPurpose,
    ) -> Result<Arc<FileLayout>, FsError> {
        let Target::Handle(handle) = &file.target else {
            return Err(FsError::Invalid);
        };
        if purpose != LayoutPurpose::WriteAgain
            && let Some(layout) = stripes.layouts().get(handle)
        {
            return Ok(Arc::clone(layout));
        }
        let step = Step::Layout {
            file: file.clone(),
            purpose,
        };
        let mut patience = self.patience();
        let layout = loop {
            match self.step(who, step.clone()).await {
                Ok((StepReply::Layout(layout), _)) => break Arc::new(layout),
                Ok(_) => return Err(FsError::Io),
                // It is being cut.
                Err(FsError::WouldBlock) => patience.wait().await?,
                Err(error) => return Err(error),
            }
        };
        let mut layouts = stripes.layouts();
        if layouts.len() >= CLIENT_LAYOUTS_MAX {
            // They are asked for again.
            layouts.clear();
        }
        layouts.insert(handle.clone(), Arc::clone(&layout));
        Ok(layout)
    }

    /// How long a file is: as it is known here if nobody can have changed that, else as the manager
    /// says.
    async fn true_size(
        &self,
        node: NodeId,
        who: &Principal,
        file: &FileRef,
    ) -> Result<u64, FsError> {
        let hold = self.transport.leases_hold();
        let known = {
            let nodes = self.nodes();
            let known = nodes
                .get(node)
                .filter(|known| hold && Node::is_leased(known));
            known.map(|known| known.attributes.size)
        };
        if let Some(size) = known {
            return Ok(size);
        }
        let target = file.target.clone();
        match self.step(who, Step::Attributes { target }).await?.0 {
            StepReply::Attributes { attributes, .. } => Ok(attributes.size),
            _ => Err(FsError::Io),
        }
    }
}

/// The nearest answer in the vocabulary of file operations.
fn fs_error(error: ObjectCallError) -> FsError {
    match error {
        ObjectCallError::Call(error) => error.to_fs_error(),
        ObjectCallError::Object(error) => match error {
            ObjectError::NoSpace | ObjectError::SpaceUsed => FsError::NoSpace,
            ObjectError::TooLong => FsError::FileTooLarge,
            ObjectError::Forbidden => FsError::AccessDenied,
            ObjectError::Busy => FsError::TimedOut,
            _ => FsError::Io,
        },
    }
}
