//! The roll of managers: which there are, which of them run, who leads.
//!
//! Each writes down by itself how it is reached. That it runs is shown by a seat of its own, which
//! goes when its process has been silent for a while.

use super::SEAT;
use crate::data::list::{Line, plain};
use crate::data::shared::{self, ListSeal};
use crate::data::{DataError, from_hex, to_hex};
use base::ServerId;
use base::limits::{MANAGERS_MAX, META_CAMPAIGN_INTERVAL, SERVER_HEARTBEAT_INTERVAL};
use meta::Engine;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;
use wire::message::ManagerSummary;

/// How seats begin by which managers show that they run.
const PRESENCE: &str = "at ";

/// A manager as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ManagerEntry {
    id: String,
    label: String,
    addresses: Vec<String>,
}

impl Line for ManagerEntry {
    const LIST: &'static str = MANAGERS;
    const LINE: &'static str = "manager";
    fn name(&self) -> String {
        self.id.clone()
    }
}

/// Name of the list.
pub(super) const MANAGERS: &str = "managers";

/// How a manager calls itself as the holder of the seat.
pub(super) fn holder(server: ServerId, addresses: &[String]) -> String {
    let first = addresses.first().map_or("", String::as_str);
    format!("{} {first}", to_hex(&server.0))
}

/// Identity and address of a holder.
pub(super) fn held_by(holder: &str) -> (&str, &str) {
    holder.split_once(' ').unwrap_or((holder, ""))
}

/// See the module's head.
pub(crate) struct Roll {
    engine: Arc<dyn Engine>,
    seal: ListSeal,
    seen: Mutex<Vec<ManagerSummary>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Roll {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Roll {
    /// Writes down that this manager is there, and begins to look at the others. Whether there has
    /// never been any.
    ///
    /// # Errors
    /// [`DataError`]; there are too many managers.
    pub(super) async fn begin(
        engine: Arc<dyn Engine>,
        seal: ListSeal,
        own: &ManagerSummary,
    ) -> Result<(Arc<Self>, bool), DataError> {
        let entry = ManagerEntry {
            id: to_hex(&own.server.0),
            label: own.label.clone(),
            addresses: own.addresses.clone(),
        };
        let this = Arc::new(Self {
            engine,
            seal,
            seen: Mutex::default(),
            tasks: Mutex::default(),
        });
        let known = this.read().await?;
        let is_first = known.is_empty();
        if !known.contains(&entry) {
            let others = known.iter().filter(|known| known.id != entry.id);
            if others.count() >= MANAGERS_MAX {
                return Err(DataError::ManagersMax);
            }
            let place = (MANAGERS, entry.id.as_str());
            shared::write_own(&*this.engine, &this.seal, place, &plain(&entry)).await?;
        }
        this.look().await?;
        let looking = tokio::spawn(look(Arc::downgrade(&this)));
        let engine = this.engine.clone();
        let present = tokio::spawn(be_present(engine, format!("{PRESENCE}{}", entry.id)));
        *this.tasks.lock().unwrap_or_else(PoisonError::into_inner) = vec![looking, present];
        Ok((this, is_first))
    }

    async fn read(&self) -> Result<Vec<ManagerEntry>, DataError> {
        let lines = shared::read(&*self.engine, &self.seal, MANAGERS).await?;
        let entry = |plain: Vec<u8>| {
            let text = String::from_utf8(plain).ok();
            let entry = text.and_then(|text| toml::from_str(&text).ok());
            entry.ok_or_else(|| DataError::Entry(MANAGERS.to_owned()))
        };
        lines.into_values().map(entry).collect()
    }

    pub(super) async fn look(&self) -> Result<(), DataError> {
        let leader = self.engine.leader(SEAT).await?;
        let leader = leader.map(|leader| leader.holder).unwrap_or_default();
        let mut seen = Vec::new();
        for entry in self.read().await? {
            let present = self
                .engine
                .leader(&format!("{PRESENCE}{}", entry.id))
                .await?;
            let Some(server) = from_hex(&entry.id).map(ServerId) else {
                continue;
            };
            let leads = held_by(&leader).0 == entry.id;
            seen.push(ManagerSummary {
                server,
                label: entry.label,
                addresses: entry.addresses,
                leads,
                is_there: leads || present.is_some(),
            });
        }
        seen.truncate(MANAGERS_MAX);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        Ok(())
    }

    /// All managers, as they were seen last.
    pub(crate) fn summaries(&self) -> Vec<ManagerSummary> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

async fn look(roll: std::sync::Weak<Roll>) {
    loop {
        {
            let Some(roll) = roll.upgrade() else { return };
            if let Err(error) = roll.look().await {
                tracing::debug!(%error, "the managers cannot be looked at");
            }
        }
        tokio::time::sleep(SERVER_HEARTBEAT_INTERVAL).await;
    }
}

async fn be_present(engine: Arc<dyn Engine>, seat: String) {
    loop {
        if let Ok(present) = engine.lead(&seat, "").await {
            present.lost().await;
        }
        tokio::time::sleep(META_CAMPAIGN_INTERVAL).await;
    }
}
