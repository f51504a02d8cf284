//! Names: look-up, listing, and listing ahead.

use super::{View, Volume};
use crate::cache::{Listed, NodeId};
use crate::file::Completion;
use crate::transport::Call;
use base::limits::{DIRECTORY_ENTRIES_MAX, INLINE_BYTES_MAX};
use base::{FileKind, FsError, Name, Principal};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::frame::Class;
use wire::message::{DirectoryEntry, Step, StepReply};

/// Look-ups that miss in a directory before it is listed whole: a program that asks for two names
/// one after another tends to ask for more.
const MISSES_BEFORE_LISTING: u32 = 3;
/// Largest directory that is listed only because of look-ups.
const ENTRIES_AHEAD_MAX: usize = 65536;
/// Directories listed ahead at once: at 100 ms, enough for a thousand directories a second.
const DIRECTORIES_AHEAD_MAX: usize = 128;
/// Bytes that a listing is taken to have, about a hundred entries, when it is asked how many the
/// line holds in one round trip.
const LISTING_BYTES: u64 = 16 << 10;
/// Contents that come with a look-up when nothing is known of their use: less than a round trip's
/// worth of any line.
const INLINE_BYTES_GUESS: u32 = 4096;

/// An entry of a directory as a listing shows it.
#[derive(Clone, Debug)]
pub struct ListingEntry {
    /// Its name.
    pub name: Name,
    /// Its kind.
    pub kind: FileKind,
    /// Its inode number.
    pub inode: u64,
    /// The node, where its attributes came along.
    pub node: Option<NodeId>,
}

/// All entries of a directory at one time.
pub type Listing = Arc<Vec<ListingEntry>>;

impl Volume {
    /// Finds a name, if the answer is here: `Some(None)` if it does not exist.
    #[must_use]
    pub fn lookup_cached(&self, parent: NodeId, name: &Name) -> Option<Option<View>> {
        if !self.transport.leases_hold() {
            return None;
        }
        let nodes = self.nodes();
        let found = match nodes.name(parent, name)? {
            None => None,
            Some(node) => {
                let known = nodes.get(node)?;
                if !known.attributes_leased() && known.handle.is_some() {
                    return None;
                }
                Some(View {
                    node,
                    attributes: known.attributes.clone(),
                    attributes_leased: known.attributes_last(),
                    name_leased: true,
                })
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
            parent: self.target(parent).await?,
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
            let contents = response
                .payload
                .slice(..(bytes as usize).min(response.payload.len()));
            let changed = entry.map_or_else(Default::default, |entry| entry.attributes.changed);
            self.keep_contents(node, contents, changed, response.recalls_seen);
        }
        let mut view = self.view(node)?;
        view.name_leased = held;
        Ok(Some(view))
    }

    /// The whole of a directory, if it is here.
    #[must_use]
    pub fn list_cached(&self, directory: NodeId) -> Option<Listing> {
        if !self.transport.leases_hold() {
            return None;
        }
        let nodes = self.nodes();
        let known = nodes.get(directory)?;
        let entries = known.directory.as_ref()?;
        if !known.is_leased() || !entries.is_complete() {
            return None;
        }
        let mut listing: Vec<ListingEntry> = entries
            .present()
            .filter_map(|(name, node)| {
                let attributes = &nodes.get(node)?.attributes;
                Some(ListingEntry {
                    name: name.clone(),
                    kind: attributes.kind,
                    inode: attributes.inode,
                    node: Some(node),
                })
            })
            .collect();
        let known = entries.present().count();
        drop(nodes);
        if listing.len() < known {
            return None;
        }
        listing.sort_by(|a, b| a.name.cmp(&b.name));
        Some(Arc::new(listing))
    }

    /// All entries of a directory.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn list(&self, who: &Principal, directory: NodeId) -> Result<Listing, FsError> {
        self.walked(who, directory);
        if let Some(listing) = self.list_cached(directory) {
            return Ok(listing);
        }
        let under_way = {
            let mut nodes = self.nodes();
            let known = nodes.get_mut(directory).ok_or(FsError::Stale)?;
            known.directory_mut().listing.clone()
        };
        if let Some(under_way) = under_way {
            let _ = under_way.wait().await;
            if let Some(listing) = self.list_cached(directory) {
                return Ok(listing);
            }
        }
        // Entries that exist only here must be at the server before it lists. What it refuses is
        // not there, and is for those to hear who sync.
        let _ = self.settle_directory(directory).await;
        self.fetch_listing(who, directory, usize::MAX, Class::Metadata)
            .await
    }

    /// Reads all pages of a directory and takes over what they say.
    async fn fetch_listing(
        &self,
        who: &Principal,
        directory: NodeId,
        entries_max: usize,
        class: Class,
    ) -> Result<Listing, FsError> {
        let target = self.target(directory).await?;
        let completion = Completion::default();
        let asked = {
            let mut nodes = self.nodes();
            let known = nodes.get_mut(directory).ok_or(FsError::Stale)?;
            known.directory_mut().listing = Some(completion.clone());
            (known.epoch, known.changes)
        };
        let mut pages = Vec::new();
        let mut leased = true;
        let mut cookie = 0;
        let outcome = loop {
            let step = Step::ReadDirectory {
                target: target.clone(),
                cookie,
                entries_max: DIRECTORY_ENTRIES_MAX as u32,
            };
            let call = Call {
                class,
                ..Call::metadata()
            };
            let (reply, response) = match self.steps(who, vec![step], call).await {
                Ok((mut replies, response)) => (replies.pop(), response),
                Err(error) => break Err(error),
            };
            let Some(StepReply::Directory {
                entries,
                end,
                lease,
            }) = reply
            else {
                break Err(FsError::Io);
            };
            let mut nodes = self.nodes();
            leased &= nodes.take_lease(directory, lease, response.recalls_seen);
            drop(nodes);
            let Some(last) = entries.last() else {
                break Ok(());
            };
            cookie = last.cookie;
            pages.push((entries, response.recalls_seen));
            if end {
                break Ok(());
            }
            if pages.len() * DIRECTORY_ENTRIES_MAX > entries_max {
                break Err(FsError::TooBig);
            }
        };
        let listing = outcome.map(|()| self.take_listing(directory, &pages, leased, asked));
        if let Some(known) = self.nodes().get_mut(directory) {
            known.directory_mut().listing = None;
        }
        completion.set(listing.as_ref().map(|_| ()).map_err(|error| *error));
        listing
    }

    /// Takes over the beginning of the root, which came with its handle.
    pub(super) fn take_first_listing(&self, reply: StepReply, recalls_seen: u64) {
        let StepReply::Directory {
            entries,
            end: true,
            lease,
        } = reply
        else {
            return;
        };
        let root = NodeId::ROOT;
        let mut nodes = self.nodes();
        let leased = nodes.take_lease(root, lease, recalls_seen);
        let Some(asked) = nodes.get(root).map(|known| (known.epoch, known.changes)) else {
            return;
        };
        drop(nodes);
        self.take_listing(root, &[(entries, recalls_seen)], leased, asked);
    }

    fn take_listing(
        &self,
        directory: NodeId,
        pages: &[(Vec<DirectoryEntry>, u64)],
        leased: bool,
        asked: (u64, u64),
    ) -> Listing {
        let mut listing = Vec::new();
        let mut listed = Vec::new();
        let mut whole = true;
        let mut nodes = self.nodes();
        for (entries, recalls_seen) in pages {
            for found in entries {
                let node = found
                    .entry
                    .as_ref()
                    .map(|entry| nodes.apply(entry, *recalls_seen));
                if let Some(node) = node {
                    if let Some(known) = nodes.get_mut(node) {
                        known.parent = Some(directory);
                    }
                    let is_directory = found.kind == FileKind::Directory;
                    listed.push(Listed {
                        name: found.name.clone(),
                        node,
                        is_directory,
                    });
                } else {
                    whole = false;
                }
                let inode = node
                    .and_then(|node| nodes.get(node))
                    .map_or(found.inode, |node| node.attributes.inode);
                let entry = ListingEntry {
                    name: found.name.clone(),
                    kind: found.kind,
                    inode,
                    node,
                };
                listing.push(entry);
            }
        }
        // A name may have been recalled between the pages, or since the last one.
        let recalled = |(_, seen): &(_, u64)| nodes.is_recalled_since(directory, *seen);
        let current = leased && whole && !pages.iter().any(recalled);
        if let Some(known) = nodes.get_mut(directory) {
            let believed = current && known.is_leased() && (known.epoch, known.changes) == asked;
            let entries = known.directory_mut();
            if believed {
                entries.complete(listed);
            } else {
                entries.set_order(&listed);
            }
        }
        Arc::new(listing)
    }

    /// Lists a directory in the background.
    fn list_ahead(&self, who: &Principal, directory: NodeId) {
        {
            let mut nodes = self.nodes();
            let Some(known) = nodes.get_mut(directory) else {
                return;
            };
            if known.handle.is_none() || known.attributes.kind != FileKind::Directory {
                return;
            }
            let leased = known.is_leased();
            let entries = known.directory_mut();
            if entries.listing.is_some() || (leased && entries.is_complete()) {
                return;
            }
        }
        let (this, who) = (self.arc(), who.clone());
        tokio::spawn(async move {
            // A guess that fails costs nothing but itself.
            let _ = this
                .fetch_listing(&who, directory, ENTRIES_AHEAD_MAX, Class::Prediction)
                .await;
        });
    }

    /// A directory is being listed: if its siblings are being listed in order, list those ahead.
    fn walked(&self, who: &Principal, directory: NodeId) {
        let (line, ..) = self.transport.download_room();
        let count_max = (line.window_bytes / LISTING_BYTES) as usize;
        let count_max = count_max.clamp(8, DIRECTORIES_AHEAD_MAX);
        let ahead: Vec<NodeId> = {
            let mut nodes = self.nodes();
            let Some(parent) = nodes.get(directory).and_then(|node| node.parent) else {
                return;
            };
            let Some(entries) = nodes
                .get_mut(parent)
                .and_then(|parent| parent.directory.as_mut())
            else {
                return;
            };
            let Some(order) = entries.order() else { return };
            let sequence = &order.directories;
            let Some((listed, sorted)) = sequence.position.get(&directory) else {
                return;
            };
            entries.neighbours.on_list(*listed, *sorted);
            let count = sequence.listed.len();
            match entries.neighbours.next_directories(count, count_max) {
                Some((readahead::Order::Listed, range)) => sequence.listed[range].to_vec(),
                Some((readahead::Order::Sorted, range)) => sequence.sorted[range].to_vec(),
                None => return,
            }
        };
        for directory in ahead {
            self.list_ahead(who, directory);
        }
    }
}
