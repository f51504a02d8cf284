//! Listings: of one directory, page by page, and of those that will be listed next.
//!
//! A page is asked for as soon as the one before it has arrived, and taken over while the server
//! makes the next: names and nodes are known, and a program that lists sees them, from the moment
//! at which their page is here.

use super::{View, Volume};
use crate::cache::{Listed, NODES_IDLE_MAX, NodeId};
use crate::file::{Completion, FetchOutcome};
use crate::transport::{Call, CallError, Pending};
use base::limits::{DIRECTORY_ENTRIES_MAX, LISTINGS_BYTES_MAX};
use base::{FileKind, FsError, Name, Principal};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Notify;
use wire::frame::Class;
use wire::message::{DirectoryEntry, Lease, Step, StepReply, Target};

/// Largest directory that is listed only because of look-ups.
const ENTRIES_AHEAD_MAX: usize = 65536;

/// Directories listed ahead at once: at 100 ms, enough for a thousand directories a second.
const DIRECTORIES_AHEAD_MAX: usize = 128;

/// Bytes that a listing is taken to have, about a hundred entries, when it is asked how many the
/// line holds in one round trip.
const LISTING_BYTES: u64 = 16 << 10;
/// What a server takes for an entry with its attributes, on a fast machine.
const ENTRY_TIME: Duration = Duration::from_micros(4);
/// What an entry of a listing takes beside its own bytes and those of its name: the counters and
/// the allocator's part of the name, and a list that doubles as it grows.
const ENTRY_BYTES_BESIDE: usize = 80;
/// Least entries of a page. Each page costs both sides some 100 us beside its entries.
const PAGE_ENTRIES_MIN: usize = 512;

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

/// The entries of a directory, as far as they have arrived.
#[derive(Debug)]
pub struct Listing {
    pages: RwLock<Pages>,
    grown: Notify,
    /// Memory that all listings of the volume hold.
    held_bytes: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Pages {
    entries: Vec<ListingEntry>,
    /// There are no more, or none can be had.
    end: Option<FetchOutcome>,
    /// What `entries` hold of the volume's memory for listings.
    bytes: u64,
}

impl Listing {
    fn new(held_bytes: &Arc<AtomicU64>) -> Self {
        Self {
            pages: RwLock::default(),
            grown: Notify::new(),
            held_bytes: Arc::clone(held_bytes),
        }
    }

    /// Adds entries, if there is memory for them.
    fn grow(&self, entries: Vec<ListingEntry>) -> FetchOutcome {
        let bytes = entries.iter().map(entry_bytes).sum::<u64>();
        let before = self.held_bytes.fetch_add(bytes, Ordering::AcqRel);
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        pages.bytes += bytes;
        if before + bytes > LISTINGS_BYTES_MAX {
            return Err(FsError::Overflow);
        }
        pages.entries.extend(entries);
        drop(pages);
        self.grown.notify_waiters();
        Ok(())
    }

    fn end(&self, outcome: FetchOutcome) {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        // The first end stands.
        pages.end.get_or_insert(outcome);
        drop(pages);
        self.grown.notify_waiters();
    }

    /// What can be said at `first` now: `Some(Ok(true))` if there is an entry, `Some(Ok(false))` if
    /// the listing ends before it, `None` if it has not arrived.
    #[must_use]
    pub fn at(&self, first: usize) -> Option<Result<bool, FsError>> {
        let pages = self.read();
        if first < pages.entries.len() {
            return Some(Ok(true));
        }
        pages.end.map(|end| end.map(|()| false))
    }

    /// Waits until something can be said at `first`; whether there is an entry.
    ///
    /// # Errors
    /// Why the listing ended before its end.
    pub async fn reach(&self, first: usize) -> Result<bool, FsError> {
        loop {
            let grown = self.grown.notified();
            if let Some(outcome) = self.at(first) {
                return outcome;
            }
            grown.await;
        }
    }

    /// Shows the entries from `first` on that have arrived to `show`, until it says that it has no
    /// room.
    pub fn each_from(&self, first: usize, mut show: impl FnMut(usize, &ListingEntry) -> bool) {
        let pages = self.read();
        let entries = pages.entries.iter().enumerate().skip(first);
        for (place, entry) in entries {
            if show(place, entry) {
                break;
            }
        }
    }

    /// All entries, when they have arrived.
    async fn all(&self) -> Result<Vec<ListingEntry>, FsError> {
        self.reach(usize::MAX).await?;
        Ok(self.read().entries.clone())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Pages> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let pages = self.pages.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.held_bytes.fetch_sub(pages.bytes, Ordering::AcqRel);
    }
}

/// Memory that an entry takes, with what the allocator adds to its name.
fn entry_bytes(entry: &ListingEntry) -> u64 {
    (size_of::<ListingEntry>() + ENTRY_BYTES_BESIDE + entry.name.as_bytes().len()) as u64
}

/// A page on its way into the table.
struct Page {
    entries: Vec<DirectoryEntry>,
    recalls_seen: u64,
    /// The directory's.
    lease: Lease,
}

/// What the pages so far have shown.
struct Shown {
    /// The directory's when its listing was begun.
    epoch: u64,
    listed: Vec<Listed>,
    /// Every page came with a lease, and every entry with its attributes.
    whole: bool,
    /// Entries so far.
    count: usize,
    /// There are more names than the table has room for: nothing of it is remembered.
    huge: bool,
    /// Where pages have ended. Who comes there again would go round for ever.
    ends: HashSet<u64>,
    /// Recalls received when the oldest page was asked for.
    recalls_seen: u64,
}

impl Shown {
    fn nothing(epoch: u64) -> Self {
        Self {
            epoch,
            listed: Vec::new(),
            whole: true,
            count: 0,
            huge: false,
            ends: HashSet::new(),
            recalls_seen: u64::MAX,
        }
    }
}

impl Volume {
    /// The whole of a directory, if it is here.
    #[must_use]
    pub fn list_cached(&self, directory: NodeId) -> Option<Arc<Listing>> {
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
        let cached = Listing::new(&self.listings_bytes);
        cached.grow(listing).ok()?;
        cached.end(Ok(()));
        Some(Arc::new(cached))
    }

    /// All entries of a directory.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn list(
        &self,
        who: &Principal,
        directory: NodeId,
    ) -> Result<Vec<ListingEntry>, FsError> {
        self.list_open(who, directory).await?.all().await
    }

    /// The entries of a directory as they come.
    ///
    /// # Errors
    /// The server's, for this caller, if there is not even a first page.
    pub async fn list_open(
        &self,
        who: &Principal,
        directory: NodeId,
    ) -> Result<Arc<Listing>, FsError> {
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
            // Whoever lists so long that others cannot wait for it has them list for themselves.
            let limit = self.transport.request_time_max();
            let _ = tokio::time::timeout(limit, under_way.wait()).await;
            if let Some(listing) = self.list_cached(directory) {
                return Ok(listing);
            }
        }
        // Entries that exist only here must be at the server before it lists. What it refuses is
        // not there, and is for those to hear who sync.
        let _ = self.settle_directory(directory).await;
        let listing = Arc::new(Listing::new(&self.listings_bytes));
        let (this, who, growing) = (self.arc(), who.clone(), Arc::clone(&listing));
        tokio::spawn(async move {
            this.fetch_listing(&who, directory, &growing, usize::MAX)
                .await;
        });
        listing.reach(0).await?;
        Ok(listing)
    }

    /// Reads all pages of a directory and takes over what they say. A listing of at most
    /// `entries_max` is a guess that nobody waits for.
    async fn fetch_listing(
        &self,
        who: &Principal,
        directory: NodeId,
        listing: &Listing,
        entries_max: usize,
    ) {
        let class = if entries_max == usize::MAX {
            Class::Metadata
        } else {
            Class::Prediction
        };
        let completion = Completion::default();
        let begun = {
            let mut nodes = self.nodes();
            // Under this lock: who creates ahead from now on is noted as well.
            let ahead = self.names_ahead(directory);
            nodes.get_mut(directory).ok_or(FsError::Stale).map(|known| {
                let directory = known.directory_mut();
                directory.begin_listing(completion.clone(), ahead);
                known.epoch
            })
        };
        let outcome = match begun {
            Ok(epoch) => {
                let pages = self.fetch_pages(who, directory, listing, (entries_max, class), epoch);
                let outcome = pages.await;
                if let Some(known) = self.nodes().get_mut(directory) {
                    known.directory_mut().end_listing();
                }
                outcome
            }
            Err(error) => Err(error),
        };
        listing.end(outcome);
        completion.set(outcome);
    }

    async fn fetch_pages(
        &self,
        who: &Principal,
        directory: NodeId,
        listing: &Listing,
        (entries_max, class): (usize, Class),
        epoch: u64,
    ) -> FetchOutcome {
        let target = self.target(directory).await?;
        let page_entries = self.page_entries();
        let mut shown = Shown::nothing(epoch);
        let mut pending = self.ask_page(who, &target, 0, page_entries, class);
        loop {
            let mut response = pending.files().await.map_err(CallError::to_fs_error)?;
            let reply = response.results.pop().ok_or(FsError::Io)??;
            let StepReply::Directory {
                entries,
                end,
                lease,
            } = reply
            else {
                return Err(FsError::Io);
            };
            let last = entries.last().map(|last| last.cookie).filter(|_| !end);
            shown.count = shown.count.saturating_add(entries.len());
            if last.is_some() && shown.count > entries_max {
                return Err(FsError::TooBig);
            }
            if last.is_some_and(|cookie| !shown.ends.insert(cookie)) {
                return Err(FsError::Io);
            }
            let next = last.map(|cookie| self.ask_page(who, &target, cookie, page_entries, class));
            if next.is_some() {
                // The connection's writer sends it before this task goes on.
                tokio::task::yield_now().await;
            }
            let page = Page {
                entries,
                recalls_seen: response.recalls_seen,
                lease,
            };
            listing.grow(self.take_page(directory, page, &mut shown))?;
            match next {
                Some(next) => pending = next,
                None => break,
            }
        }
        self.take_listing(directory, shown);
        Ok(())
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
        let Some(known) = nodes.get_mut(root) else {
            return;
        };
        // Nothing has been done here yet.
        known
            .directory_mut()
            .begin_listing(Completion::default(), Vec::new());
        let mut shown = Shown::nothing(known.epoch);
        drop(nodes);
        let page = Page {
            entries,
            recalls_seen,
            lease,
        };
        let _ = self.take_page(root, page, &mut shown);
        self.take_listing(root, shown);
        if let Some(known) = self.nodes().get_mut(root) {
            known.directory_mut().end_listing();
        }
    }

    /// Entries to ask for at once: at least as many as the server makes in a round trip, so that it
    /// does not wait for us, and not many more, so that we do not wait for it.
    fn page_entries(&self) -> usize {
        let (line, ..) = self.transport.download_room();
        let made = line.rtt.as_nanos() / ENTRY_TIME.as_nanos();
        let made = usize::try_from(made).unwrap_or(usize::MAX);
        if line.rtt.is_zero() {
            DIRECTORY_ENTRIES_MAX
        } else {
            made.clamp(PAGE_ENTRIES_MIN, DIRECTORY_ENTRIES_MAX)
        }
    }

    fn ask_page(
        &self,
        who: &Principal,
        target: &Target,
        cookie: u64,
        entries_max: usize,
        class: Class,
    ) -> Pending {
        let step = Step::ReadDirectory {
            target: target.clone(),
            cookie,
            entries_max: entries_max as u32,
        };
        let call = Call {
            class,
            ..Call::metadata()
        };
        self.transport.submit_steps(who, vec![step], call)
    }

    /// Takes over one page: nodes, and under the directory's lease names. What a look-up of each
    /// entry would have brought.
    fn take_page(&self, directory: NodeId, page: Page, shown: &mut Shown) -> Vec<ListingEntry> {
        let mut listing = Vec::with_capacity(page.entries.len());
        if shown.listed.len() > NODES_IDLE_MAX {
            (shown.huge, shown.whole) = (true, false);
            shown.listed = Vec::new();
        }
        let first = shown.listed.len();
        shown.recalls_seen = shown.recalls_seen.min(page.recalls_seen);
        // All under one lock: a recall between the lease and the names would be missed.
        let mut nodes = self.nodes();
        let leased = nodes.take_lease(directory, page.lease, page.recalls_seen);
        shown.whole &= leased;
        for found in page.entries {
            let node = found
                .entry
                .as_ref()
                .map(|entry| nodes.apply(entry, page.recalls_seen));
            let mut inode = found.inode;
            if let Some(node) = node {
                if let Some(known) = nodes.get_mut(node) {
                    known.parent = Some(directory);
                    inode = known.attributes.inode;
                }
                if !shown.huge {
                    shown.listed.push(Listed {
                        name: found.name.clone(),
                        node,
                        is_directory: found.kind == FileKind::Directory,
                    });
                }
            } else {
                shown.whole = false;
            }
            listing.push(ListingEntry {
                name: found.name,
                kind: found.kind,
                inode,
                node,
            });
        }
        if let Some(known) = nodes.get_mut(directory)
            && leased
            && known.is_leased()
            && known.epoch == shown.epoch
        {
            known.directory_mut().learn(&shown.listed[first..]);
        }
        // Once as a name, and once for its place in the listing.
        nodes.note_names(2 * listing.len());
        let idle = nodes.evict();
        drop(nodes);
        self.return_leases(idle);
        listing
    }

    /// Takes over that these are all names.
    fn take_listing(&self, directory: NodeId, shown: Shown) {
        let mut nodes = self.nodes();
        // A name may have been recalled between the pages, or since the last one.
        let recalled = nodes.is_recalled_since(directory, shown.recalls_seen);
        if let Some(known) = nodes.get_mut(directory) {
            let current = !recalled && known.epoch == shown.epoch && known.is_leased();
            let entries = known.directory_mut();
            if shown.whole && current {
                entries.complete(shown.listed);
            } else {
                entries.set_order(shown.listed);
            }
        }
    }

    /// Shows the entries of a listing from `first` on to `tell`, each with what is known of its
    /// node, until it says that it has no room. Nodes count as known to the kernel from then on;
    /// they are returned, so that they can be forgotten if it does not take them.
    pub fn tell_listing(
        &self,
        directory: NodeId,
        listing: &Listing,
        first: usize,
        mut tell: impl FnMut(usize, &ListingEntry, Option<&View>) -> bool,
    ) -> Vec<NodeId> {
        let hold = self.transport.leases_hold();
        let pages = listing.read();
        let mut told = Vec::new();
        // One lock for all of them: the kernel takes a hundred or two at once.
        let mut nodes = self.nodes();
        for (place, entry) in pages.entries.iter().enumerate().skip(first) {
            let view = entry.node.and_then(|node| {
                let name_leased = nodes.name(directory, &entry.name) == Some(Some(node));
                let known = nodes.get_mut(node)?;
                let leased = known.attributes_last() || known.handle.is_none();
                Some(View::of(node, known, hold && leased, hold && name_leased))
            });
            if tell(place, entry, view.as_ref()) {
                break;
            }
            if let Some(view) = view {
                nodes.reference(view.node);
                told.push(view.node);
            }
        }
        told
    }

    /// Lists a directory in the background.
    pub(super) fn list_ahead(&self, who: &Principal, directory: NodeId) {
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
            let listing = Listing::new(&this.listings_bytes);
            let _ = this
                .fetch_listing(&who, directory, &listing, ENTRIES_AHEAD_MAX)
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
