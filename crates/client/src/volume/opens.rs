//! What of this session's opens the server has.
//!
//! Most files are opened here and not at the server, which makes an open on the spot when a step
//! uses its number, and judges whoever the step speaks for then. So an open counts as the server's
//! only when the server has answered, and one that somebody else than its opener is to use is made
//! for the opener first.

use super::Volume;
use super::write::PUT_OFF_TIME_MAX;
use crate::cache::NodeId;
use crate::transport::{Call, CallError, TimeLimit};
use base::{FsError, OpenId, Principal, QuickMap};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;
use wire::message::{Access, FileRef, Refusal, Step, WriteAt};

/// Opens that are made at the server at once.
const OPENS_AT_ONCE_MAX: usize = 256;

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
    /// Files of which this machine changes who may open them, with how many such changes.
    shut: QuickMap<NodeId, u32>,
}

/// As long as it lives, nobody opens a file here alone.
#[derive(Debug)]
pub(super) struct Shut<'a> {
    opens: &'a Opens,
    node: NodeId,
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        let mut table = self.opens.lock();
        if let Some(changes) = table.shut.get_mut(&self.node) {
            *changes -= 1;
            if *changes == 0 {
                table.shut.remove(&self.node);
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

    pub(super) fn shut(&self, node: NodeId) -> Shut<'_> {
        *self.lock().shut.entry(node).or_default() += 1;
        Shut { opens: self, node }
    }

    /// An open is over; whether the server must be told.
    pub(super) fn remove(&self, open: OpenId) -> bool {
        let removed = self.lock().open.remove(&open);
        removed.is_some_and(|entry| entry.told)
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
        if table.shut.contains_key(&node) {
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
        if !self.opens_here(who, node) || !self.register_here(who, node, (open, access)) {
            return false;
        }
        // Who has taken the lease back in between may not have found this open.
        let holds = self.opens_here(who, node);
        if !holds {
            self.opens.remove(open);
        }
        holds
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
        let mut pending = close();
        tokio::spawn(async move {
            while let Err(CallError::Refused(Refusal::Overloaded)) = pending.files().await {
                tokio::time::sleep(PUT_OFF_TIME_MAX).await;
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
        let shut = self.opens.shut(node);
        if self.is_open_for_others(node, owner) {
            self.keep_open(node).await?;
        }
        Ok(shut)
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
            Err(error) => tracing::debug!(%error, "an open could not be made at the server"),
        }
    }
}
