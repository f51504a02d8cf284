//! One storage server of another machine, as it was when it was last heard.

use crate::data::Member;
use crate::storage::Plan;
use base::ticket::TicketKey;
use base::{ServerId, StoreId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use store::device::Capability;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use wire::message::{DeviceSummary, ServerSummary, StoreSummary};

/// A store, wherever it is, as a volume or a plan needs to know it.
#[derive(Clone, Debug)]
pub(crate) struct StoreDevice {
    pub(crate) server: ServerId,
    pub(crate) store: StoreId,
    /// What requests cost; none if it was not measured.
    pub(crate) plan: Option<Arc<Plan>>,
    pub(crate) au_bytes: u64,
    pub(crate) au_count: u64,
    pub(crate) au_free: u64,
    /// Those of them that whoever has no reservation can use.
    pub(crate) au_open: u64,
    /// Whether all objects live until somebody removes them.
    pub(crate) keeps_objects: bool,
    /// Whether it can be used now: its server is there, and it takes changes.
    pub(crate) is_here: bool,
    /// Whether it does what is promised of it.
    pub(crate) is_well: bool,
}

struct Seen {
    summary: StoreSummary,
    /// As it was sent, to see whether the plan is still that of it.
    capability: Vec<u8>,
    plan: Option<Arc<Plan>>,
    /// Stores of that server on the same disk.
    sharers: u32,
    keeps_objects: bool,
}

struct State {
    member: Member,
    /// When it was heard last, in this run.
    heard: Option<Instant>,
    is_here: bool,
    stores: Vec<Seen>,
}

/// See the module's head.
pub(super) struct Far {
    pub(super) server: ServerId,
    began: Instant,
    /// It was there, and is away.
    gone: Notify,
    state: Mutex<State>,
}

impl Far {
    pub(super) fn new(member: &Member) -> Self {
        Self {
            server: member.server,
            began: Instant::now(),
            gone: Notify::new(),
            state: Mutex::new(State {
                member: member.clone(),
                heard: None,
                is_here: false,
                stores: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn know(&self, member: Member) {
        self.lock().member = member;
    }

    /// As it was called when it joined.
    pub(super) fn label(&self) -> String {
        self.lock().member.label.clone()
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        let state = self.lock();
        let known = state.member.registration.as_ref();
        known.map_or_else(Vec::new, |known| known.addresses.clone())
    }

    /// Under which key and of which epoch tickets for it are; none before it has said so.
    pub(super) fn key(&self) -> Option<(TicketKey, u64)> {
        let state = self.lock();
        let epoch = state.member.registration.as_ref()?.epoch;
        Some((state.member.key()?, epoch))
    }

    /// Whether it can be asked at all.
    pub(super) fn is_known(&self) -> bool {
        self.lock().member.registration.is_some()
    }

    pub(super) fn is_here(&self) -> bool {
        self.lock().is_here
    }

    /// It was looked at, and there it is; says whether it was away.
    pub(super) fn on_seen(&self, devices: Vec<DeviceSummary>) -> bool {
        let mut state = self.lock();
        let before = std::mem::take(&mut state.stores);
        let seen = devices.into_iter().map(|device| {
            let DeviceSummary {
                summary,
                capability,
                keeps_objects,
                sharers,
            } = device;
            let known = before.iter().find(|known| {
                known.summary.store == summary.store
                    && (&known.capability, known.sharers) == (&capability, sharers)
            });
            let plan = match known {
                Some(known) => known.plan.clone(),
                None => plan_of(&capability, sharers),
            };
            Seen {
                summary,
                capability,
                plan,
                sharers,
                keeps_objects,
            }
        });
        let seen: Vec<Seen> = seen.collect();
        let is_new = seen.len() != before.len();
        state.stores = seen;
        state.heard = Some(Instant::now());
        !std::mem::replace(&mut state.is_here, true) || is_new
    }

    /// It was looked at, and did not answer; says whether it was there.
    pub(super) fn on_missed(&self) -> bool {
        let was_here = std::mem::take(&mut self.lock().is_here);
        if was_here {
            self.gone.notify_waiters();
        }
        was_here
    }

    /// Tells when it is away that is there now: whoever waits for its answer waits in vain.
    pub(super) fn when_gone(&self) -> Notified<'_> {
        self.gone.notified()
    }

    pub(super) fn stores(&self) -> Vec<StoreSummary> {
        let state = self.lock();
        state
            .stores
            .iter()
            .map(|seen| seen.summary.clone())
            .collect()
    }

    pub(super) fn devices(&self) -> Vec<StoreDevice> {
        let state = self.lock();
        let devices = state.stores.iter().map(|seen| {
            let summary = &seen.summary;
            let is_here = state.is_here && !summary.is_missing() && summary.failure.is_none();
            StoreDevice {
                server: self.server,
                store: summary.store,
                plan: seen.plan.clone(),
                au_bytes: summary.au_bytes,
                au_count: summary.au_count,
                au_free: summary.au_free,
                au_open: summary.au_open,
                keeps_objects: seen.keeps_objects,
                is_here,
                is_well: is_here && !summary.is_degraded,
            }
        });
        devices.collect()
    }

    pub(super) fn summary(&self, now: Instant) -> ServerSummary {
        let state = self.lock();
        let stores = || state.stores.iter().map(|seen| &seen.summary);
        let since = state.heard.unwrap_or(self.began);
        let away = now.saturating_duration_since(since).as_secs();
        let known = state.member.registration.as_ref();
        ServerSummary {
            server: self.server,
            label: state.member.label.clone(),
            addresses: known.map_or_else(Vec::new, |known| known.addresses.clone()),
            is_here: false,
            seconds_away: (!state.is_here).then_some(away),
            stores: u32::try_from(state.stores.len()).unwrap_or(u32::MAX),
            bytes: stores().map(|store| store.au_bytes * store.au_count).sum(),
            bytes_free: stores().map(|store| store.au_bytes * store.au_free).sum(),
        }
    }
}

fn plan_of(capability: &[u8], sharers: u32) -> Option<Arc<Plan>> {
    let capability = Capability::decode(capability).ok()?;
    let plan = Plan::of(&capability)?;
    Some(Arc::new(plan.shared_by(sharers)))
}
