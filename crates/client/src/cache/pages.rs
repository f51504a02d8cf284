//! Open files of which the kernel may have pages that nobody takes back.
//!
//! While a file is leased, a recall takes its pages back. Pages that the kernel read without a
//! lease, or had when leases ended, are not called back by anybody, and whoever reads through an
//! open of before never asks. So such files are *watched*: their state is asked for until a lease
//! covers it. Where it turns out to be another one than that of the pages, these are *old* and have
//! to go.

use super::NodeId;
use std::collections::BTreeSet;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// See the module's head.
#[derive(Debug)]
pub(super) struct Pages {
    watched: BTreeSet<NodeId>,
    /// Where the next turn begins.
    next: NodeId,
    old: BTreeSet<NodeId>,
    /// Wakes who does something about them.
    wake: Sender<()>,
}

impl Pages {
    /// Nothing to do; what is received says that there is, and an end that there never will be.
    pub(super) fn new() -> (Self, Receiver<()>) {
        let (wake, woken) = channel(1);
        let pages = Self {
            watched: BTreeSet::new(),
            next: NodeId(0),
            old: BTreeSet::new(),
            wake,
        };
        (pages, woken)
    }

    /// The kernel may have pages of an open file that is not leased.
    pub(super) fn watch(&mut self, node: NodeId) {
        // Who looks at others already will come to it.
        let is_first = self.watched.is_empty();
        if self.watched.insert(node) && is_first {
            self.wake();
        }
    }

    /// Whether anything is watched.
    pub(super) fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// A lease covers the pages, or nobody reads them through an open of before.
    pub(super) fn unwatch(&mut self, node: NodeId) {
        self.watched.remove(&node);
    }

    /// The kernel may have pages of an open file that are not as the file is.
    pub(super) fn doubt(&mut self, node: NodeId) {
        if self.old.insert(node) {
            self.wake();
        }
    }

    /// The kernel has no pages but those of the file as it is.
    pub(super) fn trust(&mut self, node: NodeId) {
        self.old.remove(&node);
    }

    /// Takes those whose pages have to go.
    pub(super) fn take_old(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.old)
    }

    /// As many of those that are watched as `count_max`, others each time.
    pub(super) fn next_watched(&mut self, count_max: usize) -> Vec<NodeId> {
        let after = self.watched.split_off(&self.next);
        let in_turn = after.iter().chain(&self.watched);
        let turn: Vec<NodeId> = in_turn.copied().take(count_max).collect();
        self.watched.extend(after);
        self.next = turn.last().map_or(NodeId(0), |last| NodeId(last.0 + 1));
        turn
    }

    fn wake(&self) {
        // One word is as good as many, and at the end nobody listens.
        let _ = self.wake.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_watched_has_its_turn() {
        let (mut pages, _woken) = Pages::new();
        let all = [3, 5, 8, 13, 21].map(NodeId);
        all.iter().for_each(|node| pages.watch(*node));
        assert_eq!(pages.next_watched(2), all[..2]);
        assert_eq!(pages.next_watched(2), all[2..4]);
        assert_eq!(pages.next_watched(2), [all[4], all[0]]);
        pages.unwatch(all[1]);
        assert_eq!(pages.next_watched(9), [all[2], all[3], all[4], all[0]]);
        all.iter().for_each(|node| pages.unwatch(*node));
        assert!(pages.next_watched(9).is_empty());
    }

    #[tokio::test]
    async fn what_is_new_wakes_once_and_the_end_is_told() {
        let (mut pages, mut woken) = Pages::new();
        pages.watch(NodeId(2));
        pages.watch(NodeId(2));
        pages.doubt(NodeId(3));
        assert_eq!(woken.recv().await, Some(()));
        assert!(woken.try_recv().is_err());
        assert_eq!(pages.take_old(), BTreeSet::from([NodeId(3)]));
        pages.doubt(NodeId(3));
        assert_eq!(woken.recv().await, Some(()));
        pages.watch(NodeId(4));
        assert!(woken.try_recv().is_err(), "another is looked at already");
        pages.unwatch(NodeId(2));
        pages.unwatch(NodeId(4));
        assert!(!pages.is_watching());
        pages.watch(NodeId(4));
        assert_eq!(woken.recv().await, Some(()));
        drop(pages);
        assert_eq!(woken.recv().await, None);
    }
}
