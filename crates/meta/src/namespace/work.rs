//! One operation while it is worked out: what it sees, what it will change.
//!
//! Nothing is changed until the operation is known to succeed: it collects inodes and names as they
//! are to be, and [`Work::finish`] writes them to memory and into a batch, all at once. If
//! something it needs is not in memory, it stops, that is read, and it begins anew.

use super::cache::{Cache, Link, Slot};
use super::cookie::Cookies;
use super::key::Keys;
use super::layout::NUMBERS_MAX;
use super::pipe::{Pipe, Write};
use super::read::Want;
use super::record::{
    Chore, Content, Done, Head, Inode, Outcome, Place, StoredName, StoredPlace, Xattrs, encode,
    nanos, timestamp,
};
use super::rich::{EditCounts, RichRecord, RichRules};
use super::seal::Seal;
use super::turn::{Identity, Turn};
use base::{FileKind, FsError, Handle, Name, QuickMap, RequestId, SessionId, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one volume's operations go by and do not change.
pub(super) struct Rules {
    pub(super) keys: Keys,
    pub(super) cookies: Cookies,
    pub(super) seal: Seal,
    /// Of inodes that are made in this run.
    pub(super) generation: u32,
    /// The time of day.
    pub(super) clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    pub(super) rich: RichRules,
}

/// Everything that is in memory.
pub(super) struct State {
    pub(super) cache: Cache,
    pub(super) pipe: Pipe,
    pub(super) head: Head,
    /// What requests have done that are not settled.
    pub(super) outcomes: BTreeMap<(SessionId, RequestId), Outcome>,
    /// How many edits of rich ACLs there were.
    pub(super) edits: EditCounts,
    /// How often inodes are held.
    pub(super) holders: QuickMap<u64, usize>,
    /// Inodes that were let go of and may have no name.
    pub(super) abandoned: Vec<u64>,
}

/// Why an operation does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    /// It fails.
    Error(FsError),
    /// It needs something that is not in memory.
    Missing(Want),
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Self {
        Self::Error(error)
    }
}

/// What an operation makes of a name: directory, hash, name, inode.
type Naming = (u64, u64, Name, Option<(u64, FileKind)>);

struct Staged {
    number: u64,
    slot: Slot,
    /// Where it lay before; none if it is new.
    before: Option<Place>,
}

pub(super) struct Work<'a> {
    pub(super) state: &'a mut State,
    pub(super) rules: &'a Rules,
    pub(super) turn: &'a Turn,
    staged: Vec<Staged>,
    names: Vec<Naming>,
    xattrs: Vec<(u64, Xattrs)>,
    /// Rich ACLs that do not lie in their inodes.
    lists: Vec<(u64, Option<Arc<RichRecord>>)>,
    pub(super) edits: EditCounts,
    /// What is written down of an edit.
    pub(super) words: Option<String>,
    orphans: Vec<(u64, bool)>,
    chores: Vec<Chore>,
    finished: Vec<u64>,
    settled: Vec<(SessionId, RequestId)>,
    done: Option<Done>,
    now: Option<Timestamp>,
    head: Head,
}

impl<'a> Work<'a> {
    pub(super) fn new(state: &'a mut State, rules: &'a Rules, turn: &'a Turn) -> Self {
        Self {
            head: state.head,
            edits: state.edits,
            state,
            rules,
            turn,
            staged: Vec::new(),
            names: Vec::new(),
            xattrs: Vec::new(),
            lists: Vec::new(),
            words: None,
            orphans: Vec::new(),
            chores: Vec::new(),
            finished: Vec::new(),
            settled: Vec::new(),
            done: None,
            now: None,
        }
    }

    /// The time of this change: later than that of every change before, so that two states of an
    /// inode never have the same.
    pub(super) fn now(&mut self) -> Timestamp {
        *self.now.get_or_insert_with(|| {
            let now = nanos((self.rules.clock)()).max(self.head.now + 1);
            self.head.now = now;
            timestamp(now)
        })
    }

    fn note(&self, batch: u64) {
        if batch > self.state.pipe.durable() {
            self.turn.note(batch);
        }
    }

    /// The inode that a handle names.
    pub(super) fn find(&self, handle: &Handle) -> Result<Inode, Stop> {
        let (number, generation) = self.rules.seal.open(handle)?;
        let inode = self.inode(number)?;
        match inode.generation == generation {
            true => Ok(inode),
            false => Err(FsError::Stale.into()),
        }
    }

    /// As [`Self::find`], a directory.
    pub(super) fn directory(&self, handle: &Handle) -> Result<Inode, Stop> {
        let inode = self.find(handle)?;
        match inode.is_directory() {
            true => Ok(inode),
            false => Err(FsError::NotDirectory.into()),
        }
    }

    /// An inode as it is now.
    pub(super) fn inode(&self, number: u64) -> Result<Inode, Stop> {
        let staged = self.staged.iter().find(|staged| staged.number == number);
        let slot = match staged {
            Some(staged) => &staged.slot,
            None => self.slot(number)?,
        };
        let inode = slot.inode.as_ref().ok_or(FsError::Stale)?;
        Ok(inode.clone())
    }

    /// What memory has of an inode.
    pub(super) fn slot(&self, number: u64) -> Result<&Slot, Stop> {
        let slot = self.state.cache.slot(number);
        let slot = slot.ok_or(Stop::Missing(Want::Inode(number)))?;
        self.note(slot.batch);
        Ok(slot)
    }

    pub(super) fn place(&self, number: u64) -> Result<Place, Stop> {
        let staged = self.staged.iter().find(|staged| staged.number == number);
        match staged {
            Some(staged) => Ok(staged.slot.place.clone()),
            None => Ok(self.slot(number)?.place.clone()),
        }
    }

    /// What a name of a directory leads to.
    pub(super) fn child(
        &mut self,
        directory: u64,
        name: &Name,
    ) -> Result<Option<(u64, FileKind)>, Stop> {
        let hash = self.rules.cookies.of(name);
        let Some(folder) = self.state.cache.folder(directory) else {
            return Err(Stop::Missing(Want::FirstNames(directory)));
        };
        let found = folder.names.get(&(hash, Some(name.clone()))).copied();
        let is_known = folder.is_known(hash);
        match found {
            Some(link) => {
                self.note(link.batch);
                Ok(link.inode)
            }
            None if is_known => Ok(None),
            None => Err(Stop::Missing(Want::Name(directory, hash, name.clone()))),
        }
    }

    pub(super) fn xattrs(&self, inode: &Inode) -> Result<Arc<Xattrs>, Stop> {
        let staged = self
            .xattrs
            .iter()
            .find(|(number, _)| *number == inode.number);
        if let Some((_, xattrs)) = staged {
            return Ok(Arc::new(xattrs.clone()));
        }
        if !inode.has_xattrs {
            return Ok(Arc::default());
        }
        match self.state.cache.xattrs(inode.number) {
            Some((xattrs, batch)) => {
                self.note(*batch);
                Ok(Arc::clone(xattrs))
            }
            None => Err(Stop::Missing(Want::Xattrs(inode.number))),
        }
    }

    /// The rich ACL of an inode that has one apart, if it is in memory.
    pub(super) fn list_apart(&self, number: u64) -> Option<Arc<RichRecord>> {
        let staged = self.lists.iter().find(|(other, _)| *other == number);
        let list = match staged {
            Some((_, list)) => list,
            None => {
                let (list, batch) = self.state.cache.list(number)?;
                self.note(*batch);
                list
            }
        };
        let missing = || Arc::new(RichRecord::missing());
        Some(list.clone().unwrap_or_else(missing))
    }

    /// The rich ACL of an inode is to lie apart like this, or not at all.
    pub(super) fn put_list_apart(&mut self, number: u64, list: Option<Arc<RichRecord>>) {
        self.lists.retain(|(other, _)| *other != number);
        self.lists.push((number, list));
    }

    /// The number that the next thing gets.
    pub(super) fn next_number(&self) -> u64 {
        self.head.next
    }

    /// A number for something new.
    pub(super) fn number(&mut self) -> Result<u64, FsError> {
        let number = self.head.next;
        if number >= NUMBERS_MAX {
            return Err(FsError::NoSpace);
        }
        self.head.next += 1;
        Ok(number)
    }

    /// Makes an inode; its name is to be added.
    pub(super) fn make(&mut self, inode: Inode, place: Place) {
        self.head.inodes += 1;
        self.staged.push(Staged {
            number: inode.number,
            slot: Slot {
                inode: Some(inode),
                place,
                batch: 0,
            },
            before: None,
        });
    }

    /// An inode is to be like this.
    pub(super) fn put(&mut self, inode: Inode) -> Result<(), Stop> {
        let place = self.place(inode.number)?;
        self.put_at(inode, place)
    }

    /// An inode is to be like this and lie there.
    pub(super) fn put_at(&mut self, inode: Inode, place: Place) -> Result<(), Stop> {
        let number = inode.number;
        self.stage(number, Some(inode), place)
    }

    /// An inode is to be no more.
    pub(super) fn remove(&mut self, inode: &Inode) -> Result<(), Stop> {
        self.head.inodes -= 1;
        if inode.has_xattrs {
            self.xattrs.retain(|(number, _)| *number != inode.number);
            self.xattrs.push((inode.number, Xattrs::new()));
        }
        if inode.has_list_apart() {
            self.put_list_apart(inode.number, None);
        }
        self.stage(inode.number, None, Place::Here)
    }

    fn stage(&mut self, number: u64, inode: Option<Inode>, place: Place) -> Result<(), Stop> {
        let slot = Slot {
            inode,
            place,
            batch: 0,
        };
        match self
            .staged
            .iter_mut()
            .find(|staged| staged.number == number)
        {
            Some(staged) => staged.slot = slot,
            None => {
                let before = Some(self.slot(number)?.place.clone());
                self.staged.push(Staged {
                    number,
                    slot,
                    before,
                });
            }
        }
        Ok(())
    }

    /// A name is to lead there, or to be no more.
    pub(super) fn name(&mut self, directory: u64, name: &Name, inode: Option<(u64, FileKind)>) {
        let hash = self.rules.cookies.of(name);
        let is_same = |(at, _, other, _): &&mut Naming| *at == directory && other == name;
        match self.names.iter_mut().find(is_same) {
            Some(naming) => naming.3 = inode,
            None => self.names.push((directory, hash, name.clone(), inode)),
        }
    }

    pub(super) fn set_xattrs(&mut self, inode: &mut Inode, xattrs: Xattrs) {
        inode.has_xattrs = !xattrs.is_empty();
        self.xattrs.retain(|(number, _)| *number != inode.number);
        self.xattrs.push((inode.number, xattrs));
    }

    /// An inode has no name and is open, or is not there any more.
    pub(super) fn orphan(&mut self, number: u64, is_orphan: bool) {
        self.orphans.push((number, is_orphan));
    }

    /// Stores will have to do this.
    pub(super) fn chore(&mut self, chore: Chore) {
        self.chores.push(chore);
    }

    /// Stores have done this.
    pub(super) fn finish_chore(&mut self, number: u64) {
        self.finished.push(number);
    }

    /// A client has the answer to a request.
    pub(super) fn settle(&mut self, session: SessionId, request: RequestId) {
        self.settled.push((session, request));
    }

    /// What goes on record for the request's identity.
    pub(super) fn done(&mut self, done: Done) {
        self.done = Some(done);
    }

    /// What an earlier copy of this request has done.
    pub(super) fn done_before(&self) -> Option<Done> {
        let Identity {
            session,
            request,
            step,
        } = self.turn.identity()?;
        let outcome = self.state.outcomes.get(&(session, request))?;
        // Whether it is durable is not known of each; the last batch is later than all.
        self.note(self.state.pipe.newest());
        let done = outcome.steps.iter().find(|(other, _)| *other == step);
        done.map(|(_, done)| *done)
    }

    /// Makes everything so; false if there was nothing to change.
    pub(super) fn finish(mut self) -> bool {
        let mut writes = self.writes();
        self.write_outcome(&mut writes);
        if writes.is_empty() {
            return false;
        }
        let before = self.state.head;
        self.state.head = self.head;
        self.state.edits = self.edits;
        let batch = self.state.pipe.write(writes, before);
        self.turn.note(batch);
        let cache = &mut self.state.cache;
        for Staged {
            number,
            mut slot,
            before,
        } in self.staged
        {
            slot.batch = batch;
            match &slot.inode {
                None => cache.remove_folder(number),
                Some(inode) if inode.is_directory() && before.is_none() => cache.put_folder(number),
                Some(_) => {}
            }
            cache.put_slot(number, slot);
        }
        for (directory, hash, name, inode) in self.names {
            cache.put_name(directory, (hash, Some(name)), Link { inode, batch });
        }
        for (number, xattrs) in self.xattrs {
            let xattrs = (!xattrs.is_empty()).then(|| Arc::new(xattrs));
            cache.put_xattrs(number, xattrs, batch);
        }
        for (number, list) in self.lists {
            cache.put_list(number, list, batch);
        }
        let durable = self.state.pipe.durable();
        cache.tidy(durable);
        true
    }

    fn writes(&mut self) -> Vec<Write> {
        let keys = self.rules.keys;
        let mut writes = Vec::with_capacity(8);
        for Staged {
            number,
            slot,
            before,
        } in &self.staged
        {
            let Some(inode) = &slot.inode else {
                writes.push((keys.inode(*number), None));
                continue;
            };
            match &slot.place {
                Place::Here => writes.push((keys.inode(*number), Some(inode.own_entry()))),
                Place::At(directory, name) => {
                    let hash = self.rules.cookies.of(name);
                    let entry = inode.name_entry();
                    writes.push((keys.name(*directory, hash, name), Some(entry)));
                    if before.as_ref() != Some(&slot.place) {
                        let place = encode(&StoredPlace::At(*directory, name.clone()));
                        writes.push((keys.inode(*number), Some(place)));
                    }
                }
            }
        }
        for (directory, hash, name, target) in &self.names {
            let key = keys.name(*directory, *hash, name);
            match target {
                None => writes.push((key, None)),
                Some((inode, kind)) if !self.lies_at(*inode, *directory, name) => {
                    writes.push((key, Some(encode(&StoredName::Reference(*inode, *kind)))));
                }
                // It is written with the inode.
                Some(_) => {}
            }
        }
        for (number, xattrs) in &self.xattrs {
            let value = (!xattrs.is_empty()).then(|| encode(xattrs));
            writes.push((keys.xattrs(*number), value));
        }
        for (number, list) in &self.lists {
            let value = list.as_ref().map(|list| list.entry());
            writes.push((keys.list(*number), value));
        }
        if let Some(words) = self.words.take() {
            writes.extend(self.edits.writes(keys, words));
        }
        for (number, is_orphan) in &self.orphans {
            writes.push((keys.orphan(*number), is_orphan.then(Vec::new)));
        }
        for chore in std::mem::take(&mut self.chores) {
            let number = self.head.next;
            self.head.next += 1;
            writes.push((keys.chore(number), Some(encode(&chore))));
        }
        writes.extend(
            self.finished
                .iter()
                .map(|number| (keys.chore(*number), None)),
        );
        writes
    }

    fn lies_at(&self, inode: u64, directory: u64, name: &Name) -> bool {
        self.staged.iter().any(|staged| {
            staged.number == inode
                && matches!(&staged.slot.place, Place::At(at, n) if *at == directory && n == name)
        })
    }

    fn write_outcome(&mut self, writes: &mut Vec<Write>) {
        let keys = self.rules.keys;
        for (session, request) in &self.settled {
            if self.state.outcomes.remove(&(*session, *request)).is_some() {
                writes.push((keys.outcome(*session, *request), None));
            }
        }
        let (Some(done), Some(identity)) = (self.done, self.turn.identity()) else {
            return;
        };
        let key = (identity.session, identity.request);
        let outcome = self.state.outcomes.entry(key).or_insert(Outcome {
            at: self.head.now,
            steps: Vec::new(),
        });
        outcome.steps.push((identity.step, done));
        writes.push((keys.outcome(key.0, key.1), Some(encode(outcome))));
    }
}

/// The layout of a file.
pub(super) fn layout(inode: &Inode) -> Option<&super::layout::Layout> {
    match &inode.content {
        Content::File(_, layout) => Some(layout),
        _ => None,
    }
}
