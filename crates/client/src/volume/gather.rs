//! Creations and removals that were answered ahead, on their way to the server: those of one moment
//! go in one request.
//!
//! A request of its own costs both sides some 100 us in tasks, frames and wake-ups, several times
//! what the server needs to make the file. So a change waits up to [`GATHER_TIME`] for company,
//! less if there is enough of it or somebody waits for any of them.
//!
//! The server carries the steps of a request out in order and stops at the first that fails. That
//! change is refused; those behind it have not been tried and are sent again, each alone: if there
//! is no space for any of them, one more round trip tells of all. What finds no room while space is
//! about to become free is tried once more after that (`freeing`).

use super::Volume;
use super::ahead::{Made, Taken};
use super::freeing::Moment;
use super::write::GATHER_TIME;
use crate::cache::NodeId;
use crate::file::MemoryShare;
use crate::pause::Pause;
use crate::transport::{Call, CallError, FileResponse};
use base::limits::COMPOUND_STEPS_MAX;
use base::{FileKind, FsError, Name, Principal};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use wire::message::{Refusal, Step, StepReply};

/// Contents in one request, at most; one file may have more. A slow line has something to do while
/// the next request is gathered.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// What was answered ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// The creation of a file.
    Creation(NodeId),
    /// The removal of a name from a directory.
    Removal(NodeId, Name),
}

/// One change, ready to be sent.
pub(super) struct Parcel {
    pub(super) errand: Errand,
    pub(super) who: Principal,
    pub(super) step: Step,
    pub(super) contents: Bytes,
    pub(super) permits: Vec<MemoryShare>,
    /// It found no room, and is tried for the last time.
    pub(super) again: bool,
}

/// Changes that wait for company.
#[derive(Debug, Default)]
pub(super) struct Outbox(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    errands: VecDeque<Errand>,
    /// Somebody will come for them.
    timer_set: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("no panic happens under this lock")
    }
}

impl Volume {
    /// A change of which only we know is to be sent with others.
    pub(super) fn gather(&self, errand: Errand) {
        let mut waiting = self.ahead.outbox.lock();
        waiting.errands.push_back(errand);
        let full = waiting.errands.len() >= COMPOUND_STEPS_MAX;
        let set = full || std::mem::replace(&mut waiting.timer_set, true);
        drop(waiting);
        if full {
            self.send_gathered();
        } else if !set {
            let this = self.arc();
            tokio::spawn(async move {
                tokio::time::sleep(GATHER_TIME).await;
                this.ahead.outbox.lock().timer_set = false;
                this.send_gathered();
            });
        }
    }

    /// Sends all that waits for company: somebody waits for one of them, or they are enough.
    pub(super) fn send_gathered(&self) {
        loop {
            let errands: Vec<Errand> = {
                let mut waiting = self.ahead.outbox.lock();
                let count = waiting.errands.len().min(COMPOUND_STEPS_MAX);
                waiting.errands.drain(..count).collect()
            };
            if errands.is_empty() {
                return;
            }
            let parcels = errands.into_iter().filter_map(|errand| match errand {
                Errand::Creation(node) => self.pack(node),
                Errand::Removal(parent, name) => self.pack_removal(parent, name),
            });
            self.send_parcels(parcels.collect());
        }
    }

    /// Sends parcels in as few requests as their callers and sizes allow.
    fn send_parcels(&self, parcels: Vec<Parcel>) {
        let mut batch: Vec<Parcel> = Vec::new();
        let mut bytes = 0;
        for parcel in parcels {
            let fits = batch.first().is_none_or(|first| {
                first.who == parcel.who && bytes + parcel.contents.len() <= BATCH_BYTES_MAX
            });
            if !fits {
                self.send_batch(std::mem::take(&mut batch));
                bytes = 0;
            }
            bytes += parcel.contents.len();
            batch.push(parcel);
        }
        if !batch.is_empty() {
            self.send_batch(batch);
        }
    }

    fn send_batch(&self, batch: Vec<Parcel>) {
        self.send_batch_after(batch, Pause::put_off());
    }

    /// Sends one request; once more after a pause if nothing of it was done for others to be
    /// answered first.
    fn send_batch_after(&self, batch: Vec<Parcel>, mut pause: Pause) {
        let steps: Vec<Step> = batch.iter().map(|parcel| parcel.step.clone()).collect();
        // Not given up, as little as written data: these changes have been answered.
        let call = Call::write(payload(&batch));
        let moment = self.freeing.moment();
        let pending = self.transport.submit_steps(&batch[0].who, steps, call);
        let this = self.arc();
        tokio::spawn(async move {
            match pending.files().await {
                Ok(response) => this.unpack(batch, response, moment),
                Err(CallError::Refused(Refusal::Overloaded)) => {
                    pause.wait().await;
                    this.send_batch_after(batch, pause);
                }
                Err(error) => {
                    let error = CallError::to_fs_error(error);
                    for parcel in batch {
                        this.refused(parcel, error);
                    }
                }
            }
        });
    }

    /// Takes over what the server says of each change.
    fn unpack(&self, batch: Vec<Parcel>, response: FileResponse, moment: Moment) {
        let (seen, verifier) = (response.recalls_seen, response.verifier);
        let mut results = response.results.into_iter();
        let alone = batch.len() == 1;
        let mut untried = Vec::new();
        for parcel in batch {
            match (results.next(), &parcel.errand) {
                (
                    Some(Ok(StepReply::Created {
                        entry,
                        parent,
                        parent_lease,
                        ..
                    })),
                    Errand::Creation(_),
                ) if entry.attributes.kind == FileKind::File => {
                    let made = Made {
                        entry,
                        parent,
                        parent_lease,
                        seen,
                        verifier,
                    };
                    self.created(parcel, Ok(made));
                }
                (
                    Some(Ok(StepReply::Removed {
                        parent,
                        parent_lease,
                        entry,
                    })),
                    Errand::Removal(directory, name),
                ) => {
                    let taken = Taken {
                        entry,
                        parent,
                        parent_lease,
                        seen,
                    };
                    self.removed(*directory, name, Ok(taken));
                }
                (Some(Ok(_)), _) => self.refused(parcel, FsError::Io),
                (Some(Err(error)), _) => self.refused_or_again(parcel, error, moment),
                // An answer to nothing would have it sent for ever.
                (None, _) if alone => self.refused(parcel, FsError::Io),
                (None, _) => untried.push(parcel),
            }
        }
        for parcel in untried {
            self.send_batch(vec![parcel]);
        }
    }

    /// A change found no room, or is refused for another reason.
    fn refused_or_again(&self, parcel: Parcel, error: FsError, moment: Moment) {
        // A removal would wait for itself.
        let is_creation = matches!(parcel.errand, Errand::Creation(_));
        if !is_creation || parcel.again || !self.may_find_room(error, moment) {
            return self.refused(parcel, error);
        }
        let parcel = Parcel {
            again: true,
            ..parcel
        };
        let this = self.arc();
        tokio::spawn(async move {
            this.until_freed().await;
            this.send_batch(vec![parcel]);
        });
    }

    /// A change that was answered ahead is not to be.
    fn refused(&self, parcel: Parcel, error: FsError) {
        match &parcel.errand {
            Errand::Creation(_) => self.created(parcel, Err(error)),
            Errand::Removal(directory, name) => self.removed(*directory, name, Err(error)),
        }
    }
}

/// The contents of all files, one after the other.
fn payload(batch: &[Parcel]) -> Bytes {
    if let [only] = batch {
        return only.contents.clone();
    }
    let mut whole = BytesMut::with_capacity(batch.iter().map(|p| p.contents.len()).sum());
    for parcel in batch {
        whole.extend_from_slice(&parcel.contents);
    }
    whole.freeze()
}
