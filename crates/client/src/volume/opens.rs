//! What of this session's opens the server has.
//!
//! Most files are opened here and not at the server, which makes an open on the spot when a step
//! uses its number, and judges whoever the step speaks for then. So an open counts as the server's
//! only when the server has answered, and one that somebody else than its opener is to use is made
//! for the opener first.

use super::Volume;
use crate::cache::{NodeId, ON_ITS_WAY_MAX};
use crate::clock::now;
use crate::pause::Pause;
use crate::transport::{Call, CallError, TimeLimit};
use base::{FsError, OpenId, Principal, QuickMap, Time};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;
use wire::message::{Access, FileRef, Refusal, Step, WriteAt};

/// Opens that are made at the server at once.
const OPENS_AT_ONCE_MAX: usize = 256;
/// Files of which it is remembered that somebody has changed who may open them, before it is
/// looked which of them are not needed any more.
const DOORS_MAX: usize = 1024;

/// An open of this session.
#[derive(Clone, Debug)]
pub(super) struct OpenAtServer {
    pub(super) node: NodeId,
    pub(super) access: Access,
    pub(super) who: Principal,
    /// Whether the server may have it, so that it must be closed there: a step that uses it was
    /// sent. What a server before had is sent again to the one after it.
    told: bool,
    /// Whether the server has all of it in this boot: it has answered such steps.
    known: bool,
}

impl OpenAtServer {
    /// One of which the server knows nothing.
    fn here(who: &Principal, node: NodeId, access: Access) -> Self {
        Self {
            node,
            access,
            who: who.clone(),
            told: false,
            known: false,
        }
    }
}

/// An open that a step uses, until that is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    open: Option<OpenId>,
    /// How often opens had been lost before.
    losses: u64,
}

#[derive(Debug, Default)]
struct Table {
    open: QuickMap<OpenId, OpenAtServer>,
    /// How often the server has lost them all.
    losses: u64,
    /// Files of which somebody changes, or has just changed, who may open them.
    doors: QuickMap<NodeId, Door>,
    /// As [`Door::recalled`], of all files.
    all_recalled: Time,
    /// With so many it is looked which are not needed any more.
    doors_max: usize,
}

impl Table {
    fn door(&mut self, node: NodeId) -> &mut Door {
        if self.doors.len() >= self.doors_max.max(DOORS_MAX) {
            let now = now();
            self.doors.retain(|_, door| door.is_used(now));
            self.doors_max = 2 * self.doors.len();
        }
        self.doors.entry(node).or_default()
    }
}

/// Who may open a file.
///
/// The kernel judges by what it keeps of mode and ACL before it asks for the open, and drops them
/// when it has heard of a change: for a moment after that it lets in who may not read any more.
#[derive(Clone, Copy, Debug, Default)]
struct Door {
    /// Changes from here that are under way.
    changes: u32,
    /// Until then the kernel may judge by what was before one of them.
    changed: Time,
    /// The same of changes elsewhere, for which the lease was taken back.
    recalled: Time,
}

impl Door {
    fn is_used(&self, now: Time) -> bool {
        self.changes > 0 || now < self.changed.max(self.recalled)
    }
}

/// As long as it lives, nobody opens a file here alone; and for a moment more only who may always
/// open it, if the server was told of the change.
#[derive(Debug)]
pub(super) struct Shut<'a> {
    opens: &'a Opens,
    node: NodeId,
    /// What the server was told of.
    is_told: bool,
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        let mut table = self.opens.lock();
        if let Some(door) = table.doors.get_mut(&self.node) {
            door.changes -= 1;
            if self.is_told {
                door.changed = now() + ON_ITS_WAY_MAX;
            } else if !door.is_used(now()) {
                table.doors.remove(&self.node);
            }
        }
    }
}

/// All opens of a volume.
#[derive(Debug, Default)]
pub(super) struct Opens {
    table: Mutex<Table>,
}

impl Opens {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, open: Option<OpenId>) -> Option<OpenAtServer> {
        self.lock().open.get(&open?).cloned()
    }

    /// Whether it is not over.
    pub(super) fn has(&self, open: OpenId) -> bool {
        self.lock().open.contains_key(&open)
    }

    /// Whether there are opens like that.
    pub(super) fn any(&self, is_such: impl Fn(&OpenAtServer) -> bool) -> bool {
        self.lock().open.values().any(is_such)
    }

    /// The opens that are like that.
    pub(super) fn list(&self, is_such: impl Fn(&OpenAtServer) -> bool) -> Vec<(NodeId, OpenId)> {
        let table = self.lock();
        let such = table.open.iter().filter(|(_, open)| is_such(open));
        such.map(|(id, open)| (open.node, *id)).collect()
    }

    /// For a change of who may open a file.
    pub(super) fn shut(&self, node: NodeId) -> Shut<'_> {
        self.lock().door(node).changes += 1;
        Shut {
            opens: self,
            node,
            is_told: false,
        }
    }

    /// An open is over; whether the server must be told.
    pub(super) fn remove(&self, open: OpenId) -> bool {
        let removed = self.lock().open.remove(&open);
        removed.is_some_and(|entry| entry.told)
    }

    /// All leases are gone at once.
    pub(super) fn on_all_recalled(&self) {
        self.lock().all_recalled = now() + ON_ITS_WAY_MAX;
    }

    /// The server has been restarted, or has lost the session, and with it all opens.
    pub(super) fn lose(&self) {
        let mut table = self.lock();
        table.losses += 1;
        table.open.values_mut().for_each(|open| open.known = false);
    }
}

impl Volume {
    /// Notes an open that the server was asked to make since `used`.
    pub(super) fn register(
        &self,
        who: &Principal,
        node: NodeId,
        (open, access): (OpenId, Access),
        used: Used,
    ) {
        let mut table = self.opens.lock();
        let entry = OpenAtServer {
            told: true,
            known: used.losses == table.losses,
            ..OpenAtServer::here(who, node, access)
        };
        table.open.insert(open, entry);
    }

    /// Notes an open that the server need not make; `false` if it must, because who may open the
    /// file changes at this moment.
    pub(super) fn register_here(
        &self,
        who: &Principal,
        node: NodeId,
        (open, access): (OpenId, Access),
    ) -> bool {
        let mut table = self.opens.lock();
        if table.doors.get(&node).is_some_and(|door| door.changes > 0) {
            return false;
        }
        let entry = OpenAtServer::here(who, node, access);
        table.open.insert(open, entry);
        true
    }

    /// The same for a file that exists, if nobody needs to be asked.
    pub(super) fn open_here(
        &self,
        who: &Principal,
        node: NodeId,
        (open, access): (OpenId, Access),
    ) -> bool {
        if !self.opens_here(who, node)
            || self.has_changed_just_now(who, node)
            || !self.register_here(who, node, (open, access))
        {
            return false;
        }
        // Who has taken the lease back in between may not have found this open.
        let holds = self.opens_here(who, node);
        if !holds && self.opens.remove(open) {
            self.close_at_server(who, open);
        }
        holds
    }

    /// Whether the kernel may have let somebody in by what was before a change. By the mode that is
    /// known here he is judged once more; of an ACL only the server knows what it says.
    fn has_changed_just_now(&self, who: &Principal, node: NodeId) -> bool {
        let (door, all) = {
            let table = self.opens.lock();
            (table.doors.get(&node).copied(), table.all_recalled)
        };
        let (now, door) = (now(), door.unwrap_or_default());
        let recalled = now < door.recalled.max(all);
        if now >= door.changed && !recalled {
            return false;
        }
        let (is_owner, may_have_acl) = match self.nodes().get(node) {
            Some(known) => (who.uid == known.attributes.uid, known.may_have_acl()),
            None => return true,
        };
        let is_let_in = who.uid == 0 || is_owner && !self.is_rich();
        !is_let_in && (now < door.changed || may_have_acl)
    }

    /// The open's id, for a step that uses it. A server that does not know the open yet makes it on
    /// the spot, so from here on it must be closed there.
    pub(super) fn open_used(&self, open: Option<OpenId>) -> Option<OpenId> {
        let open = open?;
        self.opens.lock().open.get_mut(&open)?.told = true;
        Some(open)
    }

    /// As [`Self::open_used`], for a step in the name of `who`, to whom somebody else may have
    /// handed the open: on the spot the server would judge him anew.
    ///
    /// # Errors
    /// Why the server refused the file.
    pub(super) async fn open_used_by(
        &self,
        who: &Principal,
        node: NodeId,
        open: Option<OpenId>,
    ) -> Result<Option<OpenId>, FsError> {
        if self.is_opened_by_another(who, open) {
            self.keep_open(node).await?;
        }
        Ok(self.open_used(open))
    }

    /// Whether an open is another's than `who`'s, and the server may not have it yet.
    pub(super) fn is_opened_by_another(&self, who: &Principal, open: Option<OpenId>) -> bool {
        let table = self.opens.lock();
        let open = open.and_then(|open| table.open.get(&open));
        open.is_some_and(|open| !open.known && open.who != *who)
    }

    /// The open's id if the server may have it.
    pub(super) fn open_told(&self, open: Option<OpenId>) -> Option<OpenId> {
        let table = self.opens.lock();
        open.filter(|open| table.open.get(open).is_some_and(|entry| entry.told))
    }

    /// An open that a step uses which is about to be sent.
    pub(super) fn used(&self, open: Option<OpenId>) -> Used {
        let losses = self.opens.lock().losses;
        Used { open, losses }
    }

    /// Such a step has been answered with success: the server has what of the open does `did`.
    pub(super) fn on_used(&self, used: Used, did: Access) {
        let mut table = self.opens.lock();
        let losses = table.losses;
        let entry = used.open.and_then(|open| table.open.get_mut(&open));
        if let Some(entry) = entry
            && losses == used.losses
        {
            let all =
                (did.reads() || !entry.access.reads()) && (did.writes() || !entry.access.writes());
            entry.known |= all;
        }
    }

    /// Closes an open at the server. The file may have been removed: then this frees its space.
    pub(super) fn close_at_server(&self, who: &Principal, open: OpenId) {
        let freer = self.freeing.begin();
        let (this, who) = (self.arc(), who.clone());
        // As long as nobody says that a writer has gone, no other machine gets a lease.
        let close = move || {
            let call = Call::within(TimeLimit::Endless);
            let steps = vec![Step::Close { open }];
            this.transport.submit_steps(&who, steps, call)
        };
        let (mut pending, mut pause) = (close(), Pause::put_off());
        tokio::spawn(async move {
            while let Err(CallError::Refused(Refusal::Overloaded)) = pending.files().await {
                pause.wait().await;
                pending = close();
            }
            drop(freer);
        });
    }

    /// A file is about to lose a name: opens that only we know of are made at the server, so that
    /// its data can be read on.
    ///
    /// # Errors
    /// Why the server refused the file.
    pub(super) async fn keep_open(&self, node: NodeId) -> Result<(), FsError> {
        self.handle(node).await?;
        self.keep_all_open(&[node]).await;
        Ok(())
    }

    /// Who may open a file is about to change from here, and maybe its owner: as
    /// [`Self::keep_open`], if others have it open. Until the guard is dropped everybody opens it
    /// at the server.
    ///
    /// # Errors
    /// Why the server refused the file.
    pub(super) async fn shut(&self, node: NodeId, owner: Option<u32>) -> Result<Shut<'_>, FsError> {
        let mut shut = self.opens.shut(node);
        self.keep_out(&mut shut, owner).await?;
        Ok(shut)
    }

    /// As [`Self::shut`], with a guard: the server is about to be told of the change.
    ///
    /// # Errors
    /// Why the server refused the file.
    pub(super) async fn keep_out(
        &self,
        shut: &mut Shut<'_>,
        owner: Option<u32>,
    ) -> Result<(), FsError> {
        shut.is_told = true;
        match self.is_open_for_others(shut.node, owner) {
            true => self.keep_open(shut.node).await,
            false => Ok(()),
        }
    }

    /// Whether somebody has a file open, as far as only this machine knows, who may not be let in
    /// any more. Its owner may always open again what he has open; by a rich ACL maybe not.
    pub(super) fn is_open_for_others(&self, node: NodeId, owner: Option<u32>) -> bool {
        let of_node = || self.nodes().get(node).map(|known| known.attributes.uid);
        let owner = owner.or_else(of_node).filter(|_| !self.is_rich());
        self.opens.any(|open| {
            let is_let_in = open.who.uid == 0 || Some(open.who.uid) == owner;
            open.node == node && !open.known && !is_let_in
        })
    }

    /// As [`Self::keep_open`] for files that are known to the server, at once: others wait.
    pub(super) async fn keep_all_open(&self, nodes: &[NodeId]) {
        let nodes: HashSet<NodeId> = nodes.iter().copied().collect();
        let recalled = now() + ON_ITS_WAY_MAX;
        for node in &nodes {
            self.opens.lock().door(*node).recalled = recalled;
        }
        let here = self
            .opens
            .list(|open| !open.known && nodes.contains(&open.node));
        for some in here.chunks(OPENS_AT_ONCE_MAX) {
            let mut under_way = JoinSet::new();
            for (node, open) in some.iter().copied() {
                let this = self.arc();
                under_way.spawn(async move { this.establish(node, open).await });
            }
            while under_way.join_next().await.is_some() {}
        }
    }

    /// Sees to it that the server has an open that is only known here, by using it for nothing. Not
    /// by opening: the mode may forbid by now what it allowed when the application opened.
    pub(super) async fn establish(&self, node: NodeId, open: OpenId) {
        let Some(entry) = self.opens.get(Some(open)) else {
            return;
        };
        let Ok(target) = self.target(node).await else {
            return;
        };
        let file = || FileRef {
            target: target.clone(),
            open: self.open_used(Some(open)),
        };
        let used = self.used(Some(open));
        let mut steps = Vec::new();
        if entry.access.reads() {
            steps.push(Step::Read {
                file: file(),
                offset: 0,
                bytes: 0,
            });
        }
        if entry.access.writes() {
            let at = match entry.access.only_appends() {
                true => WriteAt::End,
                false => WriteAt::Offset(0),
            };
            let (file, bytes) = (file(), 0);
            steps.push(Step::Write { file, at, bytes });
        }
        match self.steps(&entry.who, steps, Call::metadata()).await {
            Ok(_) => self.on_used(used, entry.access),
            Err(error @ FsError::TooManyOpen) => {
                tracing::warn!(%error, "who has a file open may lose it when its mode changes");
            }
            Err(error) => tracing::debug!(%error, "an open could not be made at the server"),
        }
        // Its close may have come to the server before it.
        if !self.opens.has(open) {
            self.close_at_server(&entry.who, open);
        }
    }
}
