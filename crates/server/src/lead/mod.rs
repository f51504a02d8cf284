//! Several managers of one cluster: one leads, the others stand by.
//!
//! # Design
//!
//! ```text
//! standby: answers everybody that another one leads      leads: everything else in this crate
//!    │ asks for the seat, again and again                   │ every change is guarded by its epoch
//!    └──────────── seat is vacant, a moment passes ─────────┘
//!                                                           │ seat lost: the process begins anew
//! ```
//! * **What is common** lies in a metadata engine that others run: the lists of the cluster
//!   ([`crate::data::shared`]), the names of parallel volumes, the ledger of reservations. A
//!   manager's own directory has its keys, and nothing that another one would miss.
//! * **One seat.** Who has it changes lists and names, each time guarded by its epoch; the ledger
//!   has a seat of its own, for whose epoch it asks anew after a transaction without an answer.
//! * **A deposed manager says nothing.** Every frame is sent while the seat is trusted, or not at
//!   all. Clients believe what a manager has said for `LEASE_TRUST_TIME` after they heard it last;
//!   whoever takes over lets that time pass, also after itself.
//! * **A deposed manager does nothing.** Storage servers obey the manager of the latest epoch that
//!   they have heard of, which is in the certificate that it signs for itself when it takes the
//!   seat. A cut that the one before has sent too late is refused there.
//! * **Taking over is starting.** Sessions, leases and locks are as after the restart of a server:
//!   clients come back, open again what they had open, and send again what was not answered.
//!
//! | file | owns |
//! |---|---|
//! | `roll` | which managers there are, which of them run, who leads |
//! | `standby` | waiting for the seat, and what is answered meanwhile |

mod roll;
mod standby;

pub(crate) use roll::Roll;
pub(crate) use standby::{Waiting, claim, wait};

use crate::data::shared::Shared;
use crate::data::{DataDirectory, DataError, Lists, MetaAddress};
use meta::{Engine, Leadership};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::SystemTime;
use wire::identity::Credential;
use wire::message::CredentialKind;

/// The seat of the manager that leads.
const SEAT: &str = "manager";
/// A note that sessions hold locks.
const LOCKS: &str = "locks";

/// A seat that is held, and what goes with it.
pub(crate) struct Lead {
    pub(crate) address: MetaAddress,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) seat: Arc<Leadership>,
    pub(crate) roll: Arc<Roll>,
    shared: Arc<Shared>,
}

#[derive(Serialize, Deserialize)]
struct Note {
    name: String,
}

impl crate::data::list::Line for Note {
    const LIST: &'static str = "notes";
    const LINE: &'static str = "note";
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Lead {
    /// The lists of the cluster.
    pub(crate) fn lists(&self) -> Lists {
        Lists::Shared(self.shared.clone())
    }

    /// Whether nobody else can lead yet.
    pub(crate) fn is_trusted(&self) -> bool {
        self.seat.is_trusted()
    }

    /// Whether sessions may hold locks of an earlier run, of whichever manager. Blocks.
    ///
    /// # Errors
    /// [`DataError`].
    pub(crate) fn had_locks(&self) -> Result<bool, DataError> {
        let notes: Vec<Note> = self.lists().read()?;
        Ok(notes.iter().any(|note| note.name == LOCKS))
    }

    /// Notes whether sessions hold locks; says whether that is certain. Blocks.
    pub(crate) fn mark_locks(&self, held: bool) -> bool {
        let name = LOCKS.to_owned();
        let noted = self
            .lists()
            .write(held.then_some(Note { name }).into_iter());
        if let Err(error) = &noted {
            tracing::warn!(%error, "cannot note whether locks are held");
        }
        noted.is_ok()
    }

    /// As whom storage servers are asked.
    ///
    /// # Errors
    /// [`DataError`].
    pub(crate) fn credential(&self, data: &DataDirectory) -> Result<Credential, DataError> {
        let authority = data.authority.as_ref().ok_or_else(|| DataError::Damaged {
            path: data.path().join("secrets.toml"),
            why: "a manager has the authority's key".to_owned(),
        })?;
        let epoch = self.seat.epoch().0;
        let kind = CredentialKind::Manager { epoch };
        Ok(authority.issue_local(kind, "the manager", SystemTime::now())?)
    }
}
