//! Contents of a parallel volume: read and written at its stores.
//!
//! What the rest of the volume sends to a server as steps about contents is carried out here
//! instead, and answered as a server would: so read-ahead, write-behind, commits and replays are
//! the same for both kinds of volume.
//!
//! ```text
//! Read    the objects' parts, at once; what no object has are zeros
//! Write   the objects' parts, then `Stored` at the manager: size, times, who caches it
//! append  `Place` at the manager says where, then as a write ([`append`])
//! Commit  at every store of the file, then at the manager
//! Seek, Allocate  the objects' parts; space that was given out is committed there
//! ```
//! A request is answered when all of that is done, under the verifier of the runs of the storage
//! servers in which it was. If one of them changes on the way, the whole is done again: until then
//! nobody knows whether it was done before or after the others' data was written again. A file that
//! was cut while it was written ([`FileLayout::generation`]) is written again, too: nobody knows
//! which came first. Stores refuse what comes by a layout from before, so nothing arrives late.
//!
//! What was written is not given up because a server is away ([`carry`]): it goes on being tried,
//! as long as there is memory for that.
//!
//! Where a file lies is asked once and remembered. A part that no object has is a hole, or the file
//! is gone: so the manager is asked before zeros are shown.

mod append;
mod behind;
mod carry;
mod dirty;
mod holes;
mod map;
mod servers;

use super::Volume;
use crate::cache::{Node, NodeId};
use crate::object::{MountTicket, ObjectCallError, StoreClient, TicketStatus};
use crate::transport::{Call, CallError, Pending, Response, TimeLimit, Transport};
use base::limits::CLIENT_LAYOUTS_MAX;
use base::{FsError, Handle, Principal, QuickMap, ServerId, StoreId, WriteVerifier};
use carry::{Carrying, Patience};
use dirty::Dirty;
use readahead::Line;
use servers::Servers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use wire::message::{
    CompoundReply, FileColumn, FileLayout, FileRef, LayoutPurpose, ObjectError, Reply, Request,
    Step, StepReply, Target,
};

/// What a volume knows of its stores.
pub(super) struct Stripes {
    servers: Servers,
    stores: Mutex<BTreeMap<Place, StoreClient>>,
    /// Stores that have something that was not committed there.
    dirty: Mutex<Dirty>,
    layouts: Mutex<QuickMap<Handle, Arc<FileLayout>>>,
    /// What is shown to the stores.
    tickets: OnceLock<Vec<Arc<MountTicket>>>,
    /// Bytes of reads that were handed over and have not arrived.
    reading: AtomicU64,
}

/// A store, with its server.
type Place = (ServerId, StoreId);

fn place(column: &FileColumn) -> Place {
    (column.server, column.store)
}

impl Stripes {
    /// Asks which stores there are.
    pub(super) async fn open(transport: &Transport) -> Result<Self, CallError> {
        let servers = Servers::open(transport).await?;
        // The run of the manager's own stores is heard with every answer.
        let pinged = transport.submit(&Request::Ping, Call::metadata());
        pinged.response().await?;
        Ok(Self {
            stores: Mutex::new(servers.own_stores(|_| None)),
            servers,
            dirty: Mutex::default(),
            tickets: OnceLock::new(),
            layouts: Mutex::default(),
            reading: AtomicU64::new(0),
        })
    }

    fn stores(&self) -> MutexGuard<'_, BTreeMap<Place, StoreClient>> {
        self.stores
            .lock()
            .expect("no panic happens under this lock")
    }

    /// The ticket for a store.
    fn ticket(&self, store: StoreId) -> Option<Arc<MountTicket>> {
        let mut tickets = self.tickets.get()?.iter();
        let is_for = |ticket: &&Arc<MountTicket>| {
            let terms = ticket.terms();
            terms.slices.iter().any(|slice| slice.device == store)
        };
        tickets.find(is_for).cloned()
    }

    fn dirty(&self) -> MutexGuard<'_, Dirty> {
        self.dirty.lock().expect("no panic happens under this lock")
    }

    fn layouts(&self) -> MutexGuard<'_, QuickMap<Handle, Arc<FileLayout>>> {
        let layouts = self.layouts.lock();
        layouts.expect("no panic happens under this lock")
    }

    /// A store that a layout names.
    ///
    /// # Errors
    /// [`FsError::TimedOut`] if its server cannot be reached in the time that a request has.
    async fn store(&self, volume: &Volume, column: &FileColumn) -> Result<StoreClient, FsError> {
        let known = self.stores().get(&place(column)).cloned();
        if let Some(known) = known.filter(|_| self.servers.is_ready(column.server)) {
            return Ok(known);
        }
        let ticket = self.ticket(column.store);
        let client = self.servers.store(volume, *column, ticket).await?;
        let mut stores = self.stores();
        let known = stores.get(&place(column));
        match known.filter(|known| known.is_of(&client)) {
            // What is in flight there is counted together.
            Some(known) => Ok(known.clone()),
            None => {
                stores.insert(place(column), client.clone());
                Ok(client)
            }
        }
    }

    /// A store, if it was used before.
    fn known_store(&self, column: &FileColumn) -> Option<StoreClient> {
        self.stores().get(&place(column)).cloned()
    }

    /// Ends the sessions with storage servers.
    pub(super) async fn close(&self, time_max: Duration) {
        self.servers.close(time_max).await;
    }

    /// Where a file lies, if that is remembered.
    fn known_layout(&self, file: &FileRef) -> Option<Arc<FileLayout>> {
        match &file.target {
            Target::Handle(handle) => self.layouts().get(handle).cloned(),
            Target::Result(_) => None,
        }
    }

    /// What the latest runs of all storage servers are together.
    pub(super) fn verifier(&self) -> WriteVerifier {
        self.servers.runs.together()
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
        // A program that waits has a time of its own.
        let time_limit = call.time_limit;
        let bytes = call.reply_bytes;
        stripes.reading.fetch_add(bytes, Ordering::Relaxed);
        let (this, who) = (self.arc(), who.clone());
        let recalls_seen = self.transport.recalls_seen();
        tokio::spawn(async move {
            let Some(stripes) = &this.stripes else { return };
            let carrying = Carrying::new(&this, stripes, (node, &who), (time_limit, recalls_seen));
            let (results, payload, run) = carrying.all(steps, call.payload).await;
            let response = Response {
                reply: Reply::Files(CompoundReply {
                    results,
                    server_micros: 0,
                }),
                payload,
                recalls_seen: carrying.recalls_seen(),
                verifier: run.unwrap_or(stripes.verifier()),
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
    /// The first refusal. After [`wire::message::TicketRefusal::NotYet`] they are used when their
    /// time has come.
    pub async fn use_tickets(&self, tickets: Vec<MountTicket>) -> Result<(), ObjectCallError> {
        self.renew_before_use(&tickets).await;
        let Some(stripes) = &self.stripes else {
            return self.use_at_export(tickets).await;
        };
        let tickets: Vec<Arc<MountTicket>> = tickets.into_iter().map(Arc::new).collect();
        if stripes.tickets.set(tickets.clone()).is_err() {
            return Err(CallError::Failed(FsError::Invalid).into());
        }
        // What was there before is used with them from now on.
        *stripes.stores() = stripes.servers.own_stores(|store| stripes.ticket(store));
        self.keep_renewed(&tickets);
        let mut outcome = Ok(());
        for ticket in tickets {
            outcome = outcome.and(self.show_ticket(&ticket).await);
        }
        outcome
    }

    /// Shows a ticket to the server that keeps it, and to the manager, which lays files out.
    pub(super) async fn show_ticket(&self, ticket: &MountTicket) -> Result<(), ObjectCallError> {
        let Some(stripes) = &self.stripes else {
            return Ok(());
        };
        let servers = &stripes.servers;
        // Whether or not the server is there now: it hears of the ticket when it is used.
        if !servers.is_manager(ticket.head().server) {
            ticket.show_manager(servers.manager()).await;
        }
        let server = servers.for_ticket(self, ticket.head().server).await;
        let server = server.map_err(CallError::Failed)?;
        ticket.show(&server).await
    }

    /// Shows the tickets to a manager that does not know them any more, before it is asked to make
    /// files that are laid out for them. Other servers say when they have forgotten one.
    pub(super) fn show_tickets_again(&self) {
        let Some(stripes) = &self.stripes else {
            return self.show_again_at_export();
        };
        for ticket in stripes.tickets.get().into_iter().flatten() {
            let (ticket, this) = (ticket.clone(), self.arc());
            tokio::spawn(async move {
                let Some(stripes) = &this.stripes else { return };
                let (servers, manager) = (&stripes.servers, stripes.servers.manager());
                match servers.is_manager(ticket.head().server) {
                    true => ticket.show_again(manager).await,
                    false => ticket.show_manager(manager).await,
                }
            });
        }
    }

    /// What has become of the tickets.
    #[must_use]
    pub fn ticket_statuses(&self) -> Vec<TicketStatus> {
        let tickets = self.stripes.iter().filter_map(|it| it.tickets.get());
        let tickets = tickets.flatten().chain(self.export_tickets());
        tickets.map(|ticket| ticket.status()).collect()
    }

    /// The lines on which the contents of a file come, as one; none if that is the server's.
    pub(super) fn striped_line(&self, handle: &Handle) -> Option<Line> {
        let stripes = self.stripes.as_ref()?;
        let layout = stripes.layouts().get(handle).cloned()?;
        let servers: BTreeSet<ServerId> =
            layout.columns.iter().map(|column| column.server).collect();
        stripes.servers.line(servers.into_iter())
    }

    /// How much of the line there is for what is read ahead, of this `room` if it is the server's:
    /// what was handed over counts before it is on its way.
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
        Patience::new(self.transport.stated_time())
    }

    /// Where a file lies, as it is remembered or as the manager says.
    async fn layout(
        &self,
        stripes: &Stripes,
        who: &Principal,
        file: &FileRef,
        (purpose, time_limit): (LayoutPurpose, TimeLimit),
    ) -> Result<Arc<FileLayout>, FsError> {
        let Target::Handle(handle) = &file.target else {
            return Err(FsError::Invalid);
        };
        if !purpose.is_again()
            && let Some(layout) = stripes.layouts().get(handle)
        {
            return Ok(Arc::clone(layout));
        }
        let (mut patience, mut purpose) = (self.patience(), purpose);
        let layout = loop {
            let file = file.clone();
            let call = Call::within(time_limit);
            let step = Step::Layout { file, purpose };
            match self.step_by(who, step, call).await {
                Ok((StepReply::Layout(layout), _)) => break Arc::new(layout),
                Ok(_) => return Err(FsError::Io),
                // It is being cut.
                Err(FsError::WouldBlock) => patience.wait().await?,
                // An older manager says it of whole files.
                Err(FsError::NotSupported)
                    if matches!(purpose, LayoutPurpose::WritePartAgain(_)) =>
                {
                    purpose = LayoutPurpose::WriteAgain;
                }
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
                .filter(|known| hold && Node::attributes_leased(known));
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
            ObjectError::Busy | ObjectError::NotYet => FsError::TimedOut,
            // By another layout, it is possible.
            ObjectError::Superseded => FsError::WouldBlock,
            _ => FsError::Io,
        },
    }
}
