//! Storage servers that only remember what was asked of them, by a clock that is set.

use super::super::Manager;
use super::super::desk::{Asker, Place};
use super::super::plan::PlanDevice;
use super::super::reign::Open;
use super::super::servers::{StorageServers, StoreAt, Trouble};
use super::world::device;
use crate::storage::{SpaceRequest, SpaceTrial, Totals};
use base::ticket::{Head, Terms, Ticket};
use base::{ServerId, TicketId, Time};
use meta::{Embedded, Engine};
use reservation::Moment;
use reservation::scheduler::TicketSecond;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::message::{ReserveReply, ReserveRequest};

/// See the module's head.
#[derive(Default)]
pub(super) struct State {
    pub(super) now_secs: u64,
    pub(super) devices: Vec<PlanDevice>,
    /// Servers that do not answer.
    pub(super) away: BTreeSet<ServerId>,
    /// Servers that have just been killed: nobody knows yet.
    pub(super) silent: BTreeSet<ServerId>,
    /// Servers that say nothing of what is in use.
    pub(super) silent_stores: BTreeSet<ServerId>,
    /// Whether no store has space.
    pub(super) is_full: bool,
    /// Servers that give no longer space.
    pub(super) no_longer: BTreeSet<ServerId>,
    /// What is answered when tickets are to be taken back.
    pub(super) revoke: Option<Trouble>,
    /// Space that is held, and until when.
    pub(super) held: BTreeMap<(StoreAt, TicketId), Moment>,
    /// Allocation units of each space that are in use.
    pub(super) used: u64,
    /// What comes into use in the moment before tickets are taken back.
    pub(super) used_late: u64,
    /// Whether nobody says what is in use, once something has come into use late.
    pub(super) is_dumb: bool,
    /// What each server says that tickets got from it, for as long as it knows.
    pub(super) got: BTreeMap<ServerId, Totals>,
    /// Who was asked for what, those that are away, too.
    pub(super) asked: Vec<(&'static str, ServerId)>,
    /// How often somebody has looked at the devices.
    pub(super) looks: usize,
}

/// See the module's head.
pub(super) struct Fake(pub(super) Mutex<State>);

impl Fake {
    /// So many servers with a store each.
    pub(super) fn new(now_secs: u64, count: u8) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            now_secs,
            devices: (1..=count).map(|one| device(one, one, 100)).collect(),
            ..State::default()
        })))
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap());
    }

    /// Servers that hold space at the present second.
    pub(super) fn holders(&self) -> Vec<ServerId> {
        let state = self.0.lock().unwrap();
        let now = Moment::from_secs(state.now_secs);
        let held = state.held.iter().filter(|(_, end)| **end > now);
        held.map(|(((server, _), _), _)| *server).collect()
    }

    /// How often a server was asked for something.
    pub(super) fn asked(&self, what: &str, server: ServerId) -> usize {
        let state = self.0.lock().unwrap();
        let asked = state.asked.iter();
        asked.filter(|asked| **asked == (what, server)).count()
    }

    fn at(
        &self,
        what: &'static str,
        (server, store): StoreAt,
    ) -> Result<std::sync::MutexGuard<'_, State>, Trouble> {
        let mut state = self.0.lock().unwrap();
        state.asked.push((what, server));
        let why = "away".to_owned();
        if state.silent.contains(&server) {
            return Err(Trouble::Silent(why));
        }
        match state.away.contains(&server) {
            true => Err(Trouble::Away { store, why }),
            false => Ok(state),
        }
    }
}

impl StorageServers for Fake {
    fn now(&self) -> Time {
        Time::from_secs(self.0.lock().unwrap().now_secs)
    }

    fn devices(&self) -> Vec<PlanDevice> {
        let mut state = self.0.lock().unwrap();
        state.looks += 1;
        state.devices.clone()
    }

    fn issue(&self, _: ServerId, _: &Head, _: &Terms) -> Option<Ticket> {
        None
    }

    fn try_space(&self, at: StoreAt, _: &SpaceTrial) -> Result<(), Trouble> {
        match self.at("try", at)?.is_full {
            true => Err(Trouble::Failed("full".to_owned())),
            false => Ok(()),
        }
    }

    fn confirm(&self, at: StoreAt, request: &SpaceRequest) -> Result<(), Trouble> {
        let end = request.interval.end();
        self.at("confirm", at)?
            .held
            .insert((at, request.ticket), end);
        Ok(())
    }

    fn extend(&self, at: StoreAt, ticket: TicketId, end: Moment) -> Result<(), Trouble> {
        let mut state = self.at("extend", at)?;
        if state.no_longer.contains(&at.0) {
            return Err(Trouble::Failed("not so long".to_owned()));
        }
        state.held.insert((at, ticket), end);
        Ok(())
    }

    fn release(&self, at: StoreAt, ticket: TicketId) -> Result<(), Trouble> {
        self.at("release", at)?.held.remove(&(at, ticket));
        Ok(())
    }

    fn used(&self, at: StoreAt, ticket: TicketId) -> Result<Option<(u64, u64)>, Trouble> {
        let state = self.at("used", at)?;
        if state.silent_stores.contains(&at.0) {
            return Err(Trouble::Silent("away".to_owned()));
        }
        if state.is_dumb && state.used > 0 {
            return Err(Trouble::Failed("no word".to_owned()));
        }
        let is_held = state.held.contains_key(&(at, ticket));
        Ok(is_held.then_some((u64::MAX, state.used)))
    }

    fn revoke(&self, server: ServerId, _: &[(TicketId, u64)]) -> Result<(), Trouble> {
        let store = base::StoreId(server.0);
        let mut state = self.at("revoke", (server, store))?;
        let late = std::mem::take(&mut state.used_late);
        state.used += late;
        state.revoke.clone().map_or(Ok(()), Err)
    }

    fn seconds(
        &self,
        at: StoreAt,
        _: TicketId,
        _: u64,
    ) -> Result<Option<(Vec<TicketSecond>, Totals)>, Trouble> {
        let state = self.at("seconds", at)?;
        let totals = state.got.get(&at.0).copied();
        Ok(totals.map(|totals| (Vec::new(), totals)))
    }
}

/// A manager of these servers.
pub(super) fn manager(directory: &Path, servers: &Arc<Fake>) -> Manager {
    let path = directory.join("ledger");
    let open: Open = Box::new(move || {
        let path = path.clone();
        Box::pin(async move { Ok(Embedded::open(path).await? as Arc<dyn Engine>) })
    });
    let time = super::super::CAMPAIGN_TIME;
    Manager::start(open, servers.clone(), "test".to_owned(), time).unwrap()
}

/// Asks about a place.
pub(super) fn ask(
    manager: &Manager,
    who: Asker,
    place: impl Into<Place>,
    request: ReserveRequest,
) -> ReserveReply {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let asked = manager.ask(who, place, request);
    runtime.unwrap().block_on(asked)
}

/// Waits until something is so.
#[track_caller]
pub(super) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
