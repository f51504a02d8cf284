//! Names: look-up.

use super::{View, Volume};
use crate::cache::NodeId;
use crate::transport::Call;
use base::limits::INLINE_BYTES_MAX;
use base::{FsError, Name, Principal};
use std::sync::atomic::Ordering;
use wire::frame::Class;
use wire::message::{Step, StepReply};

/// Look-ups that miss in a directory before it is listed whole: a program that asks for two names
/// one after another tends to ask for more.
const MISSES_BEFORE_LISTING: u32 = 3;
/// Contents that come with a look-up when nothing is known of their use: less than a round trip's
/// worth of any line.
const INLINE_BYTES_GUESS: u32 = 4096;

impl Volume {
    /// Finds a name, if the answer is here: `Some(None)` if it does not exist.
    #[must_use]
    pub fn lookup_cached(&self, parent: NodeId, name: &Name) -> Option<Option<View>> {
        if !self.transport.leases_hold() {
            return None;
        }
        let mut nodes = self.nodes();
        let found = match nodes.name(parent, name)? {
            None => None,
            Some(node) => {
                let known = nodes.get_mut(node)?;
                if !known.attributes_leased() && known.handle.is_some() {
                    return None;
                }
                let keeps = known.attributes_last();
                Some(View::of(node, known, keeps, true))
            }
        };
        drop(nodes);
        self.counters.lookups.fetch_add(1, Ordering::Relaxed);
        self.counters.lookup_hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Finds a name; `None` if it does not exist.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn lookup(
        &self,
        who: &Principal,
        parent: NodeId,
        name: &Name,
    ) -> Result<Option<View>, FsError> {
        if let Some(found) = self.lookup_cached(parent, name) {
            return Ok(found);
        }
        self.counters.lookups.fetch_add(1, Ordering::Relaxed);
        let (inline_bytes_max, list, changes) = {
            let mut nodes = self.nodes();
            let known = nodes.get_mut(parent).ok_or(FsError::Stale)?;
            let changes = known.changes;
            let directory = known.directory_mut();
            directory.misses += 1;
            directory.lookups += 1;
            let wanted = directory.opens > 0 && directory.contents_wanted();
            let inline = if wanted {
                INLINE_BYTES_MAX
            } else {
                INLINE_BYTES_GUESS
            };
            (inline, directory.misses == MISSES_BEFORE_LISTING, changes)
        };
        if list {
            self.list_ahead(who, parent);
        }
        let step = Step::Lookup {
            parent: self.target_with(parent, name).await?,
            name: name.clone(),
            inline_bytes_max,
        };
        let call = Call::read(Class::Metadata, 0);
        let (mut replies, response) = self.steps(who, vec![step], call).await?;
        let Some(StepReply::Found {
            entry,
            parent_lease,
            inline_bytes,
        }) = replies.pop()
        else {
            return Err(FsError::Io);
        };
        let mut nodes = self.nodes();
        let node = entry
            .as_ref()
            .map(|entry| nodes.apply(entry, response.recalls_seen));
        let held = nodes.take_lease(parent, parent_lease, response.recalls_seen)
            && nodes.changes(parent) == changes;
        if held {
            nodes.set_name(parent, name, node);
        }
        drop(nodes);
        let Some(node) = node else { return Ok(None) };
        if let Some(bytes) = inline_bytes {
            let mut contents = response.payload.into_bytes();
            contents.truncate(bytes as usize);
            let changed = entry.map_or_else(Default::default, |entry| entry.attributes.changed);
            self.keep_contents(node, contents, changed, response.recalls_seen);
        }
        let mut view = self.view(node)?;
        view.name_leased = held;
        Ok(Some(view))
    }
}
