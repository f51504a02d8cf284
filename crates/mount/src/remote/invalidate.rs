//! Telling the kernel what is not true any more.

use crate::kernel::{NodeId, Notifier, NotifyError};
use client::volume::Invalidate;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Inodes whose pages wait to be dropped. When more do, it is seen to that open files do not stay
/// old; the next opens of others drop them.
const PAGES_QUEUE_MAX: usize = 4096;

/// Passes invalidations on to the kernel.
pub(super) struct ToKernel {
    notifier: Notifier,
    /// Dropping pages waits for reads of these pages that are under way, so a thread does it that
    /// answers none.
    pages: SyncSender<u64>,
}

impl ToKernel {
    pub(super) fn new(notifier: Notifier) -> Self {
        let (pages, queue) = sync_channel(PAGES_QUEUE_MAX);
        let dropper = notifier.clone();
        let thread = std::thread::Builder::new().name("drop-pages".to_owned());
        if let Err(error) = thread.spawn(move || drop_pages(&dropper, &queue)) {
            // Opens still drop pages that are old; only files that stay open show them longer.
            tracing::error!(%error, "no thread to drop pages");
        }
        Self { notifier, pages }
    }

    /// Whether the kernel knows what it was told of.
    fn tell(outcome: Result<(), NotifyError>) -> bool {
        if let Err(NotifyError::Refused(errno)) = outcome {
            tracing::warn!(%errno, "the kernel refused an invalidation");
        }
        outcome != Err(NotifyError::Unknown)
    }
}

fn drop_pages(notifier: &Notifier, queue: &Receiver<u64>) {
    while let Ok(node) = queue.recv() {
        let _ = ToKernel::tell(notifier.inval_inode(NodeId(node), 0, 0));
    }
}

impl Invalidate for ToKernel {
    fn names(&self) {
        let _ = Self::tell(self.notifier.inc_epoch());
    }

    fn attributes(&self, node: client::cache::NodeId) -> bool {
        Self::tell(self.notifier.inval_inode(NodeId(node.0), -1, 0))
    }

    fn data(&self, node: client::cache::NodeId) -> bool {
        self.pages.try_send(node.0).is_ok()
    }

    fn data_now(&self, node: client::cache::NodeId) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let notifier = self.notifier.clone();
        Box::pin(async move {
            let drop_pages = move || Self::tell(notifier.inval_inode(NodeId(node.0), 0, 0));
            // A panic there has been reported; nobody can say more about the pages.
            let _ = tokio::task::spawn_blocking(drop_pages).await;
        })
    }
}
