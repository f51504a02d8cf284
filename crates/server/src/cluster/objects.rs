//! What the manager of parallel volumes has done at stores, wherever they are.

use super::far::{Far, StoreDevice};
use super::{AwayError, Cluster, Run};
use crate::storage::SpaceError;
use base::limits::COMPOUND_STEPS_MAX;
use base::{ObjectId, RequestId, ServerId, StoreId};
use wire::message::{
    ObjectBatch, ObjectError, ObjectReply, ObjectRequest, ObjectStep, ObjectStepReply, Settled,
};

/// One thing to do to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It has at most so many bytes, and takes nothing of older generations any more.
    Cut {
        object: ObjectId,
        generation: u64,
        bytes: u64,
    },
    /// One that is not there is left so.
    Delete(ObjectId),
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    /// A store of this process says so.
    #[error(transparent)]
    Here(#[from] SpaceError),
    /// The way there.
    #[error(transparent)]
    Away(#[from] AwayError),
    /// A store elsewhere says so.
    #[error("store {0}: {1}")]
    There(StoreId, ObjectError),
    /// It has started anew while it was at it.
    #[error("storage server {0} has started anew; it is done once more")]
    Anew(ServerId),
}

impl Cluster {
    /// All stores of all servers.
    pub(crate) fn devices(&self) -> Vec<StoreDevice> {
        let server = self.own.server();
        let own = self.own.devices().into_iter().map(|device| StoreDevice {
            server,
            store: device.store,
            keeps_objects: device.keeps_objects(),
            plan: device.capability.as_ref().map(|_| device.plan.clone()),
            au_bytes: device.au_bytes,
            au_count: device.au_count,
            au_free: device.au_free,
            au_open: device.au_open,
            is_here: true,
            is_well: !device.is_degraded && device.failure.is_none(),
        });
        let far = self.far().into_iter().flat_map(|far| far.devices());
        own.chain(far).collect()
    }

    /// Whether a server is there, or is this one.
    pub(crate) fn is_here(&self, server: ServerId) -> bool {
        server == self.own.server() || self.find(server).is_ok_and(|far| far.is_here())
    }

    /// Does all of this at one store, durably. Blocks; not within a task.
    ///
    /// # Errors
    /// [`ActError`]: some of it may be done.
    pub(crate) fn carry_out(
        &self,
        server: ServerId,
        store: StoreId,
        acts: &[Act],
    ) -> Result<(), ActError> {
        if server == self.own.server() {
            for act in acts {
                match act {
                    Act::Cut {
                        object,
                        generation,
                        bytes,
                    } => self.own.cut_object(store, *object, *bytes, *generation)?,
                    Act::Delete(object) => self.own.delete_object(store, *object)?,
                }
            }
            return Ok(self.own.commit_store(store)?);
        }
        let far = self.find(server)?;
        let steps = acts.iter().map(|act| match *act {
            Act::Cut {
                object,
                generation,
                bytes,
            } => ObjectStep::CutUnder {
                object,
                generation,
                size_bytes: bytes,
            },
            Act::Delete(object) => ObjectStep::Discard { object },
        });
        let steps: Vec<ObjectStep> = steps.chain([ObjectStep::Commit]).collect();
        let mut run: Option<Run> = None;
        for batch in steps.chunks(COMPOUND_STEPS_MAX) {
            let (_, this) = self.steps(&far, store, batch.to_vec())?;
            if run.is_some_and(|run| run != this) {
                return Err(ActError::Anew(server));
            }
            run = Some(this);
        }
        Ok(())
    }

    /// Steps at a store of another server, all of which must succeed. Blocks; not within a task.
    pub(super) fn steps(
        &self,
        far: &Far,
        store: StoreId,
        steps: Vec<ObjectStep>,
    ) -> Result<(Vec<ObjectStepReply>, Run), ActError> {
        let batch = ObjectRequest::Batch(ObjectBatch {
            store,
            ticket: None,
            settled: Settled::all_below(RequestId(0)),
            steps,
        });
        match self.ask_blocking(far, batch)? {
            ObjectReply::Results {
                verifier, results, ..
            } => {
                let replies = results.into_iter().collect::<Result<_, _>>();
                let replies = replies.map_err(|error| ActError::There(store, error))?;
                Ok((replies, verifier))
            }
            ObjectReply::Failed(error) => Err(ActError::There(store, error)),
            _ => {
                let why = "the answer makes no sense".to_owned();
                Err(AwayError::Failed(far.server, why).into())
            }
        }
    }
}
