//! Removals answered ahead.
//!
//! A name is taken away at once if all that the server would look at is known here: the directory
//! is leased to this session alone, the name leads to a file with leased attributes, without
//! another name, that is not protected and that nobody has open here, and the same caller has
//! already removed something from the directory by the server's leave. So `rm -r` over distance
//! does not wait for each name. The step says which file is meant: if the line is cut for longer
//! than a lease and others put something else there, that stays.
//!
//! What comes later about the name, or about the directory as a whole, waits for the removal, as it
//! does for a creation. A refusal brings the name back, and is reported as that of a creation is.

use super::{AHEAD_MAX, Volume};
use crate::cache::NodeId;
use crate::file::Completion;
use crate::volume::attributes::wall_clock;
use crate::volume::change::forget_name;
use crate::volume::freeing::Freer;
use crate::volume::gather::{Errand, Parcel};
use base::{Attributes, FileKind, FsError, Handle, Name, Principal, QuickMap};
use bytes::Bytes;
use std::sync::atomic::Ordering;
use wire::message::{Entry, Lease, Step, Target};

/// A name of which the server does not know yet that it is gone.
#[derive(Debug)]
struct Removal {
    parent_handle: Handle,
    file: Handle,
    who: Principal,
    completion: Completion,
    /// Its space is not free yet.
    freer: Freer,
}

/// All of them, by directory and name.
#[derive(Debug, Default)]
pub(super) struct Removals {
    by_directory: QuickMap<NodeId, QuickMap<Name, Removal>>,
    count: usize,
}

impl Removals {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn get(&self, directory: NodeId, name: &Name) -> Option<&Removal> {
        self.by_directory.get(&directory)?.get(name)
    }

    pub(super) fn contains(&self, directory: NodeId, name: &Name) -> bool {
        self.get(directory, name).is_some()
    }

    pub(super) fn completion(&self, directory: NodeId, name: &Name) -> Option<Completion> {
        let removal = self.get(directory, name)?;
        Some(removal.completion.clone())
    }

    /// Of all removals, or of those from one directory.
    fn completions(&self, directory: Option<NodeId>) -> Vec<Completion> {
        let wanted = |id: &NodeId| directory.is_none_or(|directory| directory == *id);
        let directories = self.by_directory.iter().filter(|(id, _)| wanted(id));
        let removals = directories.flat_map(|(_, names)| names.values());
        removals.map(|removal| removal.completion.clone()).collect()
    }

    fn insert(&mut self, directory: NodeId, name: Name, removal: Removal) {
        let names = self.by_directory.entry(directory).or_default();
        let before = names.insert(name, removal);
        assert!(before.is_none(), "a name is gone once");
        self.count += 1;
    }

    fn remove(&mut self, directory: NodeId, name: &Name) -> Option<Removal> {
        let names = self.by_directory.get_mut(&directory)?;
        let removal = names.remove(name)?;
        if names.is_empty() {
            self.by_directory.remove(&directory);
        }
        self.count -= 1;
        Some(removal)
    }
}

/// What the server says of a name that was taken away ahead.
pub(in crate::volume) struct Taken {
    pub(in crate::volume) entry: Option<Entry>,
    pub(in crate::volume) parent: Attributes,
    pub(in crate::volume) parent_lease: Lease,
    /// Recalls received when the removal was sent.
    pub(in crate::volume) seen: u64,
}

impl Volume {
    /// Answers the removal of a file's name ahead, if it may be; whether it was.
    #[must_use]
    pub fn try_remove_ahead(&self, who: &Principal, parent: NodeId, name: &Name) -> bool {
        self.remove_ahead(who, parent, name).is_some()
    }

    fn remove_ahead(&self, who: &Principal, parent: NodeId, name: &Name) -> Option<()> {
        if !self.transport.leases_hold() || self.is_rich() {
            return None;
        }
        let mut nodes = self.nodes();
        let known = nodes.get(parent)?;
        let directory = known.directory.as_ref()?;
        if known.lease != Lease::Exclusive || directory.removes.as_ref() != Some(who) {
            return None;
        }
        let parent_handle = known.handle.clone()?;
        let victim = nodes.get(directory.get(name)??)?;
        let idle = victim.pins == 0
            && victim
                .file
                .as_ref()
                .is_none_or(|file| file.lock().written.is_empty());
        let lone = victim.attributes.links == 1 && victim.attributes.kind != FileKind::Directory;
        if !idle || !lone || victim.attributes.protected || !victim.attributes_leased() {
            return None;
        }
        let removal = Removal {
            parent_handle,
            file: victim.handle.clone()?,
            who: who.clone(),
            completion: Completion::default(),
            freer: self.freeing.begin(),
        };
        {
            // Under the same lock under which the lease was found to stand, as for creations.
            let mut removals = self.ahead.removals();
            if removals.count >= AHEAD_MAX || removals.contains(parent, name) {
                return None;
            }
            removals.insert(parent, name.clone(), removal);
        }
        nodes.note_change(parent, name);
        nodes.set_name(parent, name, None);
        if let Some(known) = nodes.get_mut(parent) {
            let now = wall_clock();
            known.attributes.modified = now;
            known.attributes.changed = now;
        }
        drop(nodes);
        self.counters.removed_ahead.fetch_add(1, Ordering::Relaxed);
        self.gather(Errand::Removal(parent, name.clone()));
        Some(())
    }

    /// The server has let a caller remove something from a directory.
    pub(in crate::volume) fn learn_removal(&self, who: &Principal, directory: NodeId) {
        let mut nodes = self.nodes();
        if let Some(known) = nodes.get_mut(directory)
            && known.lease == Lease::Exclusive
        {
            known.directory_mut().removes = Some(who.clone());
        }
    }

    /// The step for a name that is gone only here.
    pub(in crate::volume) fn pack_removal(&self, parent: NodeId, name: Name) -> Option<Parcel> {
        let removals = self.ahead.removals();
        let removal = removals.get(parent, &name)?;
        let step = Step::Remove {
            parent: Target::Handle(removal.parent_handle.clone()),
            name: name.clone(),
            file: Some(removal.file.clone()),
        };
        Some(Parcel {
            who: removal.who.clone(),
            errand: Errand::Removal(parent, name),
            step,
            contents: Bytes::new(),
            permits: Vec::new(),
            again: false,
        })
    }

    /// The server has answered a removal that was answered ahead.
    pub(in crate::volume) fn removed(
        &self,
        parent: NodeId,
        name: &Name,
        outcome: Result<Taken, FsError>,
    ) {
        // It is taken out last: whoever finds none must find what the server says of it.
        let outcome = match outcome {
            Ok(taken) => {
                let mut nodes = self.nodes();
                if let Some(entry) = &taken.entry {
                    nodes.apply_lost(entry, taken.seen);
                }
                nodes.refresh(parent, &taken.parent, taken.parent_lease, taken.seen);
                Ok(())
            }
            // Gone, by whomever, also with its directory, or another file's by now.
            Err(FsError::NotFound | FsError::Stale) => {
                forget_name(&mut self.nodes(), parent, name);
                Ok(())
            }
            Err(error) => {
                self.restore(parent, name, error);
                Err(error)
            }
        };
        let removal = self.ahead.removals().remove(parent, name);
        if let Some(removal) = removal {
            drop(removal.freer);
            removal.completion.set(outcome);
        }
    }

    /// The name is still there.
    fn restore(&self, parent: NodeId, name: &Name, error: FsError) {
        if !self.transport.is_closed() {
            tracing::error!(%name, %error, "the server refused a removal that was answered ahead");
        }
        let mut nodes = self.nodes();
        nodes.note_change(parent, name);
        forget_name(&mut nodes, parent, name);
        if let Some(directory) = nodes
            .get_mut(parent)
            .and_then(|node| node.directory.as_mut())
        {
            directory.removes = None;
        }
        drop(nodes);
        self.report_ahead(parent, error);
    }

    /// Waits for the server's word on one removal.
    pub(super) async fn settle_removal(&self, removal: Completion) -> Result<(), FsError> {
        self.send_gathered();
        self.until_told(removal).await
    }

    /// Waits until the server knows of every name that is gone, in one directory or everywhere.
    pub(super) async fn settle_removals(&self, directory: Option<NodeId>) -> Result<(), FsError> {
        let waiting = self.ahead.removals().completions(directory);
        let mut outcome = Ok(());
        for removal in waiting {
            let told = self.settle_removal(removal).await;
            outcome = outcome.and(told);
            if told == Err(FsError::TimedOut) {
                break;
            }
        }
        outcome
    }
}
