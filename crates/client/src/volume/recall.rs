//! Leases that the server takes back, silence, and reconnection.
//!
//! A recall is obeyed in two parts. At once, before any later frame of the connection is looked at:
//! the table forgets, so that nothing is answered from here any more. Then, in a task: the kernel
//! is told, creations answered ahead are sent, opens that only we know of are made at the server,
//! data there is made durable; after that the server hears that it is done.
//!
//! A server that has begun anew asks whether everything is forgotten that its run before has said,
//! whether what was answered ahead then has been sent, and whether what its stores had from here
//! has been written again.

use super::Volume;
use super::asked::ANSWER_TIME_MAX;
use super::told::OnTheirWay;
use crate::cache::{Node, NodeId};
use crate::clock::now;
use crate::pause::Pause;
use crate::transport::{Listener, Transport};
use base::WriteVerifier;
use base::limits::RECALLS_UNDER_WAY_MAX;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wire::message::{Notice, Recall, RecallItem};

/// For how long a recall waits for the kernel to drop pages.
const DROP_TIME_MAX: Duration = Duration::from_secs(1);

/// Hears what the transport says, for a volume that may be gone.
pub(super) struct Ear {
    volume: Weak<Volume>,
}

impl Ear {
    pub(super) fn new(volume: &Arc<Volume>) -> Self {
        Self {
            volume: Arc::downgrade(volume),
        }
    }
}

impl Listener for Ear {
    fn on_notice(&self, notice: Notice) -> bool {
        let Some(volume) = self.volume.upgrade() else {
            return true;
        };
        match notice {
            Notice::Recall { id, items } => volume.on_recall(id, &items),
            Notice::Forget { id } => {
                let this = volume.clone();
                volume.obey(id, async move { this.forget_for_others().await })
            }
            Notice::Settle { id } => {
                let this = volume.clone();
                // What is refused is reported to whoever syncs.
                volume.obey(id, async move {
                    let _ = this.settle_everywhere().await;
                })
            }
            Notice::WriteAgain { id } => volume.write_again(id, volume.transport.clone()),
        }
    }

    fn on_connected(&self, boot_changed: bool, session_lost: bool) {
        if let Some(volume) = self.volume.upgrade() {
            volume.on_connected(boot_changed, session_lost);
        }
    }

    fn on_verifier(&self, verifier: WriteVerifier) {
        if let Some(volume) = self.volume.upgrade() {
            volume.replay(verifier);
        }
    }

    fn on_other_run(&self) {
        if let Some(volume) = self.volume.upgrade() {
            volume.forget_leases();
        }
    }

    fn on_silence(&self) {
        if let Some(volume) = self.volume.upgrade() {
            tracing::warn!(volume = %volume.name, "silent server; cached answers are dropped");
            volume.forget_leases();
        }
    }

    fn on_late_change(&self) {
        if let Some(volume) = self.volume.upgrade() {
            tracing::warn!(
                volume = %volume.name,
                "a change was made after its caller had been told that it was not answered in \
                 time; cached answers are dropped"
            );
            volume.forget_leases();
        }
    }
}

impl Volume {
    /// A page of a listing is about to be made, with names that the kernel may keep, for this
    /// directory handle of its.
    pub fn on_listing_told(&self, directory_handle: u64) {
        self.told_listings.on_told(directory_handle);
    }

    /// The kernel has what it was told through this handle, or nothing was told.
    pub fn on_listing_taken(&self, directory_handle: u64) {
        self.told_listings.on_taken(directory_handle);
    }

    /// Drops names once more that were on their way to the kernel when they were dropped.
    async fn drop_listed_names(&self, listings: OnTheirWay) {
        if self.told_listings.until_taken(listings).await
            && let Some(invalidate) = self.invalidate.get()
        {
            invalidate.names();
        }
    }

    /// Obeys a recall, unless too many are being obeyed.
    fn on_recall(&self, id: u64, items: &[RecallItem]) -> bool {
        if self.has_recalls_enough() {
            return false;
        }
        let sequence = self.transport.next_recall();
        self.counters.recalls.fetch_add(1, Ordering::Relaxed);
        let mut gone = Vec::new();
        let mut settle = Vec::new();
        let mut older = Vec::new();
        for RecallItem { handle, what } in items {
            match what {
                Recall::Everything => {
                    let node = self.nodes().recall(handle, sequence);
                    gone.extend(node);
                    settle.extend(node);
                }
                Recall::Entry(name) => {
                    older.extend(self.nodes().recall_name(handle, name, sequence));
                }
                Recall::Exclusive => {
                    settle.extend(self.nodes().recall_exclusive(handle, sequence));
                }
            }
        }
        for node in &gone {
            self.distrust_data(*node);
        }
        let listings = self.told_listings.on_their_way();
        // Names first: the kernel must not reach by an old name what it then finds new.
        if let Some(invalidate) = self.invalidate.get() {
            invalidate.names();
        }
        older.extend(&gone);
        let (later, mut untold) = self.tell_at_once(older);
        let this = self.arc();
        self.obey(id, async move {
            untold.extend(this.tell_answered(&later).await);
            this.until_dropped(&gone).await;
            for node in settle {
                // What is refused is reported to whoever syncs; the recall is obeyed all the same.
                let _ = this.settle_directory(node).await;
            }
            this.keep_all_open(&gone).await;
            this.commit_for_others(&gone).await;
            this.drop_listed_names(listings).await;
            this.tell_again(untold).await;
        })
    }

    fn has_recalls_enough(&self) -> bool {
        self.recalls_under_way.load(Ordering::Relaxed) >= RECALLS_UNDER_WAY_MAX
    }

    /// Says that something is done when it is, unless too much of that kind is under way.
    fn obey(&self, id: u64, work: impl Future<Output = ()> + Send + 'static) -> bool {
        self.obey_at(self.transport.clone(), id, work)
    }

    /// The same, to a server that may be another one.
    fn obey_at(
        &self,
        server: Transport,
        id: u64,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        if self.has_recalls_enough() {
            return false;
        }
        self.recalls_under_way.fetch_add(1, Ordering::Relaxed);
        let this = self.arc();
        tokio::spawn(async move {
            work.await;
            server.obeyed(id);
            this.recalls_under_way.fetch_sub(1, Ordering::Relaxed);
        });
        true
    }

    /// A server has lost what its stores had and had not made durable, and others wait there until
    /// this machine has written its part again. That this goes on its way has been seen to when the
    /// server said its verifier.
    pub(super) fn write_again(&self, id: u64, server: Transport) -> bool {
        let this = self.arc();
        self.obey_at(server, id, async move { this.until_written_again().await })
    }

    /// Others are about to change what the server's run before may have leased to us. That all of
    /// it is forgotten has been seen to when we came back.
    async fn forget_for_others(&self) {
        self.until_forgotten().await;
        let opens = self.opens.list(|_| true).into_iter();
        // Not what the server does not know yet: to send it takes that others have obeyed.
        let known: Vec<NodeId> = opens
            .map(|(node, _)| node)
            .filter(|node| self.is_named(*node))
            .collect();
        self.keep_all_open(&known).await;
        self.commit_all_for_others().await;
    }

    /// Drops the kernel's pages of files; of those that are open here before it returns, for who
    /// reads them asks nobody. But not for long: a reader may wait for such a page, and the page
    /// for the server.
    pub(super) async fn until_dropped(&self, gone: &[NodeId]) {
        let Some(invalidate) = self.invalidate.get() else {
            return;
        };
        let deadline = Instant::now() + DROP_TIME_MAX;
        for node in gone {
            let is_open = self.nodes().get(*node).is_some_and(Node::is_open_file);
            if is_open && Instant::now() < deadline {
                // What takes longer goes on.
                let _ = timeout_at(deadline, invalidate.data_now(*node)).await;
            } else {
                self.tell_data(*node);
            }
        }
    }

    /// Tells the kernel that attributes have changed; the inodes that it has been told of and does
    /// not know.
    fn tell_all(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let nodes = nodes.iter().copied();
        let mut unknown: Vec<_> = nodes.filter(|node| !self.tell_attributes(*node)).collect();
        self.keep_referenced(&mut unknown);
        unknown
    }

    /// The same but for inodes whose attributes the kernel asks for while it keeps nothing of size
    /// and times: these, which are for [`Self::tell_answered`], and what the kernel does not know.
    fn tell_at_once(&self, nodes: Vec<NodeId>) -> (Vec<NodeId>, Vec<NodeId>) {
        let later = |node: &NodeId| self.is_lasting_and_asked(*node);
        let (later, at_once): (Vec<_>, Vec<_>) = nodes.into_iter().partition(later);
        (later, self.tell_all(&at_once))
    }

    /// The same of inodes whose attributes the kernel asks for, when it has the answers.
    async fn tell_answered(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        if nodes.is_empty() {
            return Vec::new();
        }
        self.until_answered(nodes).await;
        self.tell_all(nodes)
    }

    fn keep_referenced(&self, unknown: &mut Vec<NodeId>) {
        let nodes = self.nodes();
        unknown.retain(|node| {
            let node = nodes.get(*node);
            node.is_some_and(|node| node.kernel_references > 0)
        });
    }

    /// An answer that brings an inode new to the kernel may be on its way when the inode changes:
    /// the kernel does not know the inode yet, and would believe that answer when it has it. So it
    /// is told again when it knows the inode, or forgets it.
    async fn tell_again(&self, mut unknown: Vec<NodeId>) {
        let begun = now();
        let mut pause = Pause::new(Duration::from_micros(100), ANSWER_TIME_MAX / 20);
        while !unknown.is_empty() && now().since(begun) < ANSWER_TIME_MAX {
            pause.wait().await;
            unknown.retain(|node| !self.tell_attributes(*node));
            self.keep_referenced(&mut unknown);
        }
    }

    /// What is held of a file's data may be old.
    pub(super) fn distrust_data(&self, node: NodeId) {
        let file = self.nodes().get(node).and_then(|node| node.file.clone());
        if let Some(file) = file {
            let freed = file.lock().distrust();
            self.budget().on_freed(file.account, freed);
        }
    }

    /// Nothing that is known here may be believed any more.
    fn forget_leases(&self) {
        self.opens.on_all_recalled();
        let sequence = self.transport.next_recall();
        let nodes: Vec<NodeId> = {
            let mut nodes = self.nodes();
            nodes.forget_leases(sequence);
            nodes.ids().collect()
        };
        for node in &nodes {
            self.distrust_data(*node);
        }
        let Some(invalidate) = self.invalidate.get() else {
            return;
        };
        let listings = self.told_listings.on_their_way();
        invalidate.names();
        let (later, mut untold) = self.tell_at_once(nodes);
        self.forgetting.send_modify(|count| *count += 1);
        let this = self.arc();
        tokio::spawn(async move {
            untold.extend(this.tell_answered(&later).await);
            this.drop_listed_names(listings).await;
            this.tell_again(untold).await;
            this.forgetting.send_modify(|count| *count -= 1);
        });
    }

    /// Waits until the kernel has forgotten what nobody may believe any more.
    async fn until_forgotten(&self) {
        // The sender lives as long as the volume.
        let _ = self
            .forgetting
            .subscribe()
            .wait_for(|count| *count == 0)
            .await;
    }

    fn on_connected(&self, boot_changed: bool, session_lost: bool) {
        self.commit_the_rest();
        // Recalls may have been missed while the line was cut.
        self.forget_leases();
        if session_lost || boot_changed {
            self.opens.lose();
        }
        if boot_changed {
            tracing::warn!(volume = %self.name, "the server has been restarted");
        }
        if session_lost || boot_changed {
            self.show_tickets_again();
            self.on_locks_lost();
            let this = self.arc();
            tokio::spawn(async move {
                this.reclaim_locks().await;
                this.reopen().await;
            });
        }
    }

    /// Opens at the server again what was open for writing there, so that rights that were checked
    /// at the open stay as they were.
    async fn reopen(&self) {
        let opens = self.opens.list(|open| open.access.writes());
        for (node, open) in opens {
            if self.is_named(node) {
                self.establish(node, open).await;
            }
        }
    }

    /// Commits everything of the volume once, a little later, so that memory for unstable data
    /// comes back. One flush of the server's file system serves all files.
    pub(super) fn commit_all_soon(&self) {
        if self.group_commit.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = self.arc();
        tokio::spawn(async move {
            this.until_group_commit().await;
            this.group_commit.store(false, Ordering::Release);
            this.commit_all(this.transport.own()).await;
        });
    }
}
