//! Volumes whose mode bits do not say all: the server is asked what a caller may.
//!
//! On such a volume the machine's kernel cannot judge by mode and POSIX ACL, so whoever answers it
//! from here must know the server's verdict first: for a look-up that the directory may be
//! searched, for an open or a listing that it may be read. Verdicts are kept with the inode's lease
//! ([`crate::cache::Verdicts`]), so that the second look-up costs no round trip. Nothing that would
//! take a decision of our own is answered ahead: no creations, no removals.

use super::Volume;
use crate::cache::NodeId;
use base::{FsError, Principal};
use std::sync::atomic::Ordering;
use wire::message::{Explanation, Step, StepReply, Target};

impl Volume {
    /// Asks whether the volume has rich ACLs, and behaves accordingly from here on. To be called
    /// before the first operation.
    ///
    /// # Errors
    /// The server's; then it is taken to have none.
    pub async fn learn_rights(&self, who: &Principal) -> Result<bool, FsError> {
        let step = Step::Access {
            target: self.target(NodeId::ROOT).await?,
            rights: 0,
        };
        let (StepReply::Access { is_rich }, _) = self.step(who, step).await? else {
            return Err(FsError::Io);
        };
        self.rich.store(is_rich, Ordering::Release);
        Ok(is_rich)
    }

    /// Whether only the server knows what a caller may.
    #[must_use]
    pub fn is_rich(&self) -> bool {
        self.rich.load(Ordering::Acquire)
    }

    /// Whether a caller may do all of `rights` (4 reading, 2 writing, 1 executing or searching)
    /// with an inode, if it is known here.
    #[must_use]
    pub fn verdict(&self, who: &Principal, node: NodeId, rights: u8) -> Option<bool> {
        if !self.transport.leases_hold() {
            return None;
        }
        self.nodes().get(node)?.verdict(who, rights)
    }

    /// Whether a caller may do all of `rights` with an inode.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] if not; else the server's.
    pub async fn judge(&self, who: &Principal, node: NodeId, rights: u8) -> Result<(), FsError> {
        match self.verdict(who, node, rights) {
            Some(true) => return Ok(()),
            Some(false) => return Err(FsError::AccessDenied),
            None => {}
        }
        let step = Step::Access {
            target: self.target(node).await?,
            rights,
        };
        let asked = self.nodes().get(node).and_then(|known| known.asking());
        let judged = match self.step(who, step).await {
            Ok((StepReply::Access { .. }, _)) => Ok(()),
            Ok(_) => Err(FsError::Io),
            Err(error) => Err(error),
        };
        if let (Some(asked), Ok(()) | Err(FsError::AccessDenied)) = (asked, judged)
            && let Some(known) = self.nodes().get_mut(node)
        {
            known.note_verdict(asked, who, rights, judged.is_ok());
        }
        judged
    }

    /// Whether somebody may do all of `rights`, as in NFSv4, with an inode, and what decides;
    /// `directory` is where its name is.
    ///
    /// # Errors
    /// The server's, for the caller `asks`.
    pub async fn explain(
        &self,
        asks: &Principal,
        node: NodeId,
        directory: Option<NodeId>,
        who: &Principal,
        rights: u32,
    ) -> Result<Explanation, FsError> {
        let directory: Option<Target> = match directory {
            Some(directory) => Some(self.target(directory).await?),
            None => None,
        };
        let step = Step::Explain {
            target: self.target(node).await?,
            directory,
            who: who.clone(),
            rights,
        };
        match self.step(asks, step).await? {
            (StepReply::Explained(explanation), _) => Ok(explanation),
            _ => Err(FsError::Io),
        }
    }

    /// What decides about an inode is being changed from here.
    pub(super) fn end_verdicts(&self, node: NodeId) {
        if let Some(known) = self.nodes().get_mut(node) {
            known.end_verdicts();
        }
    }
}
