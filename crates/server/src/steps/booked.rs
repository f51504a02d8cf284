//! Exports of which something is reserved: reads, writes and flushes take turns.
//!
//! While a ticket for an export is in force, whatever moves its data waits in the export's
//! dispatcher, and a thread of that carries it out. What a session with a ticket reads and writes
//! goes in the ticket's name; everything else in that of its user, out of what is left.
//!
//! A request whose first step is of that kind goes there as it is read from the connection: not
//! even the pool's queue is between. Names cost nothing, and go the way that they always go.
//!
//! Written data is on its way to the device before a turn ends ([`Execution::pace`]). Otherwise the
//! page cache would take everything at once, and its owner, the kernel, would let everybody wait
//! who writes, the reserved among them.

use super::{Execution, Place};
use crate::pool::Task;
use crate::storage::{ExportDevice, user};
use crate::tree::File;
use base::limits::DATA_BYTES_MAX;
use base::ticket::Operations;
use base::{Extent, FsError};
use export::{Worker, Written};
use reservation::scheduler::{Operation, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::message::{Step, StepReply, Target};

/// What a flush is charged, whatever there is to flush: its own record.
const FLUSH_BYTES: u32 = 4096;
/// A copy reads what it writes: half of the largest request is copied at once.
const COPY_BYTES: u32 = DATA_BYTES_MAX / 2;

/// Whether a step has its turn, and what it has moved.
#[derive(Default)]
pub(super) struct TurnTaken {
    is_taken: bool,
    moved: Arc<AtomicU64>,
}

impl TurnTaken {
    /// A step is done; the next one needs another turn.
    pub(super) fn end(&mut self, reply: &StepReply) {
        if !std::mem::take(&mut self.is_taken) {
            return;
        }
        let bytes = match reply {
            StepReply::Data { bytes, .. } => u64::from(*bytes),
            StepReply::Written { bytes, .. } => *bytes,
            _ => 0,
        };
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The file that a step moves data of, and how much.
fn moves(step: &Step) -> Option<(&Target, Operation, u32)> {
    let (target, operation, bytes) = match step {
        Step::Read { file, bytes, .. } => (&file.target, Operation::Read, *bytes),
        Step::Write { file, bytes, .. } => (&file.target, Operation::Write, *bytes),
        Step::Commit { file, .. } => (&file.target, Operation::Write, FLUSH_BYTES),
        Step::CreateFile { parent, bytes, .. } => (parent, Operation::Write, *bytes),
        Step::CopyRange { target, bytes, .. } => {
            let bytes = u32::try_from(*bytes).unwrap_or(u32::MAX).min(COPY_BYTES);
            (&target.target, Operation::Write, 2 * bytes)
        }
        _ => return None,
    };
    (bytes > 0).then_some((target, operation, bytes.min(DATA_BYTES_MAX)))
}

impl Execution {
    /// A request that has just come: goes to where its first step has its turn, or is given back.
    pub(crate) fn begin_turn(mut self: Box<Self>) -> Option<Box<Self>> {
        // Where replies are not fetched, nothing is begun.
        if !self.core.storage.has_exports_in_use() || !self.to.link.has_room() {
            return Some(self);
        }
        self.charge_reply();
        self.wait_for_turn()
    }

    /// Gives it back if the present step needs no turn, or has it.
    pub(super) fn wait_for_turn(mut self: Box<Self>) -> Option<Box<Self>> {
        if self.turn_taken.is_taken || !self.core.storage.has_exports_in_use() {
            return Some(self);
        }
        let Some((device, source, operation, bytes)) = self.turn_needed() else {
            return Some(self);
        };
        self.turn_taken.is_taken = true;
        let waiting = move |worker: Option<&Worker>| match worker {
            Some(worker) => self.take_turn(worker),
            None => {
                let pool = self.core.pool.clone();
                pool.push_resumed(self);
                0
            }
        };
        device.submit((source, operation, bytes), Box::new(waiting));
        None
    }

    /// Carries on; the bytes that were moved in this turn.
    fn take_turn(self: Box<Self>, worker: &Worker) -> u64 {
        let moved = self.turn_taken.moved.clone();
        let before = moved.load(Ordering::Relaxed);
        Task::run(self, worker);
        moved.load(Ordering::Relaxed) - before
    }

    /// Where, in whose name, and for what the present step has to wait.
    fn turn_needed(&self) -> Option<(Arc<ExportDevice>, Source, Operation, u32)> {
        let step = self.steps.get(self.next)?.as_ref()?;
        let (target, operation, bytes) = moves(step)?;
        let (volume, _) = self.core.volumes.by_handle(self.outer(target)?).ok()?;
        let storage = &self.core.storage;
        let device = storage.export_in_force(volume.id)?;
        let wanted = match operation {
            Operation::Read => Operations::READ,
            Operation::Write => Operations::WRITE,
        };
        let tickets = &self.session.tickets;
        let ticket = tickets.for_export(storage, (volume.id, device.id), wanted);
        let source = ticket.map_or_else(|| Source::User(user(&self.session)), Source::Ticket);
        Some((device, source, operation, bytes))
    }

    /// What was written goes to the device before the turn ends, where turns are taken.
    ///
    /// # Errors
    /// The device's; the file is then not called durable any more, because fsync may not hear of
    /// it again.
    pub(super) fn pace(&self, place: &Place, file: &File, written: Written) -> Result<(), FsError> {
        if self.core.storage.export_in_force(place.volume.id).is_none() {
            return Ok(());
        }
        let paced = file.write_out(written.offset, written.bytes as u64);
        paced.inspect_err(|error| self.flush_failed(place, *error))
    }

    /// What of a copy is done at once: where turns are taken, no more than one is good for.
    pub(super) fn copied_at_once(&self, place: &Place, from: Extent) -> Extent {
        match self.core.storage.export_in_force(place.volume.id) {
            Some(_) => Extent::new(from.offset, from.len.min(u64::from(COPY_BYTES))),
            None => from,
        }
    }
}
