//! Attributes: reading, changing, and what writing does to them.
//!
//! A combined change is made as a whole or not at all; its parts are judged in the order in which
//! an export makes them one after the other.

use super::appends::Appends;
use super::hold::OpenInode;
use super::judge::{self, WRITE};
use super::record::{Chore, Content, Done, Inode, Xattrs};
use super::rich::RichFile;
use super::space::Space;
use super::tree::Namespace;
use super::turn::Turn;
use super::work::{Stop, Work};
use super::xattr::CAPABILITY;
use base::limits::NAMESPACE_FILE_BYTES_MAX;
use base::{
    AttributeChange, Attributes, Extent, FileKind, FsError, Handle, Principal, SetTime, Timestamp,
};

const NANOS: u32 = 1_000_000_000;

/// What bytes of a file have become at its stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// They were written.
    Data,
    /// They have space, and are what they were.
    Space,
    /// They are a hole.
    Hole,
}

/// What somebody has done to the contents of a file at its stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Under which generation of the layout.
    pub generation: u64,
    /// The byte behind the last one that the file has at least from now on.
    pub end: u64,
    /// Which bytes.
    pub extent: Extent,
    /// What they have become.
    pub what: What,
    /// The place, if it is an append: all that was left of it is there.
    pub place: Option<u64>,
}

/// An append's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its number.
    pub place: u64,
    /// The generation of the layout when it was given.
    pub generation: u64,
    /// Where it begins.
    pub begin: u64,
    /// The file with it.
    pub attributes: Attributes,
}

/// What of an append's place is still to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Under this generation of the layout.
    pub generation: u64,
    /// In order, apart from each other.
    pub parts: Vec<Extent>,
}

impl Written {
    fn note(&self, before: u64, space: &mut Space) {
        match self.what {
            What::Hole => space.on_hole(self.extent),
            What::Data | What::Space if self.extent.is_empty() => {}
            What::Data | What::Space => space.on_present(self.extent),
        }
        space.on_size(before, before.max(self.end));
    }

    /// Whether it is not known to come after the appends to the file: an append may have put its
    /// bytes there after these, or may still do so.
    fn meets(&self, inode: &Inode) -> bool {
        let is_replaced = self.what != What::Space && self.place.is_none();
        let appends = inode.appends.as_ref().filter(|_| is_replaced);
        appends.is_some_and(|appends| appends.meets(self.extent))
    }

    /// Whether it meets appends and has to wait for none.
    fn overtakes(&self, inode: &Inode, turn: &Turn) -> bool {
        self.meets(inode) && self.last_before(inode, turn).is_none()
    }

    /// The last of the appends that it has to wait for. An append waits for earlier ones.
    fn last_before(&self, inode: &Inode, turn: &Turn) -> Option<u64> {
        let earlier = |place: u64| place.saturating_sub(1);
        let through = self.place.map_or(u64::MAX, earlier);
        inode.last_before(self.reach(), through.min(turn.waits_through()))
    }

    /// How far it reaches: as far as it makes the file at least, or changes bytes.
    #[must_use]
    pub fn reach(&self) -> u64 {
        match self.what {
            What::Data | What::Hole => self.end.max(self.extent.end()),
            What::Space => self.end,
        }
    }

    /// The file as it is with that.
    fn apply(&self, inode: &mut Inode) -> Result<(), FsError> {
        if self.end.max(self.extent.end()) > NAMESPACE_FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        let Content::File(size, _) = &mut inode.content else {
            return Err(FsError::Invalid);
        };
        let before = *size;
        *size = before.max(self.end);
        inode.note_space(before, |space| self.note(before, space));
        Ok(())
    }
}

/// The generation of a file's layout.
fn generation(inode: &Inode) -> Result<u64, FsError> {
    match &inode.content {
        Content::File(_, layout) => Ok(layout.generation),
        _ => Err(FsError::Invalid),
    }
}

impl Namespace {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn attributes(
        &self,
        turn: &Turn,
        _who: &Principal,
        handle: &Handle,
    ) -> Result<Attributes, FsError> {
        self.look(turn, |work| Ok(work.find(handle)?.attributes()))
    }

    /// Changes attributes and returns all of them as they are afterwards. With `file`, an open file
    /// of the same inode, a new size needs no permission beyond that of the open, as in
    /// ftruncate(2).
    ///
    /// # Errors
    /// As the kernel judges; [`FsError::WouldBlock`] if a new size has to wait for appends
    /// ([`Self::is_behind`]). Nothing is changed then.
    pub fn set_attributes(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        change: &AttributeChange,
        file: Option<&OpenInode>,
    ) -> Result<Attributes, FsError> {
        self.change(turn, |work| {
            let mut inode = work.find(handle)?;
            if work.done_before().is_some() {
                return Ok(inode.attributes());
            }
            let rich = work.rich(&inode)?;
            work.judge_change(&inode, rich.as_ref(), who, change, file)?;
            if let Some(size) = change.size {
                work.resize(&mut inode, who, size)?;
            }
            work.change_owner_and_mode(&mut inode, rich.as_ref(), who, change)?;
            if change.accessed.is_some() || change.modified.is_some() {
                if rich.is_none() {
                    may_set_times(&inode, who, change)?;
                }
                work.set_times(&mut inode, change.accessed, change.modified)?;
            }
            let attributes = inode.attributes();
            if !change.is_empty() {
                work.done(Done::Changed);
                work.put(inode)?;
            }
            Ok(attributes)
        })
    }

    /// Something was written into the stores by `who`, who has the file open for that: it is at
    /// least so long now, its times say so, and set-user-ID bits fall as they do locally.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is no file, [`FsError::FileTooLarge`]; [`FsError::WouldBlock`] if
    /// a new generation has begun since, or has to ([`Self::overtake`]): nobody knows whether what
    /// was written is there, and it is to be written again.
    pub fn wrote(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        written: &Written,
    ) -> Result<Attributes, FsError> {
        self.change(turn, |work| {
            let mut inode = work.find(handle)?;
            if work.done_before().is_some() {
                return Ok(inode.attributes());
            }
            let is_superseded = generation(&inode)? != written.generation;
            let is_behind = written.last_before(&inode, turn).is_some();
            if is_superseded || is_behind || written.meets(&inode) {
                return Err(FsError::WouldBlock.into());
            }
            match written.place {
                Some(place) => inode.note_appends(|appends| appends.on_told(place)),
                None => inode.keep(written.end),
            }
            written.apply(&mut inode)?;
            work.touch(&mut inode, who)?;
            work.done(Done::Changed);
            let attributes = inode.attributes();
            work.put(inode)?;
            Ok(attributes)
        })
    }

    /// Whether what was written has to wait for appends: they were given their places before, and
    /// are not known to be there; the last of these places, for [`Turn::wait_through`]. What is to
    /// be written again, because a new generation has begun since, waits for none.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn waits(
        &self,
        turn: &Turn,
        handle: &Handle,
        written: &Written,
    ) -> Result<Option<u64>, FsError> {
        self.look(turn, |work| {
            let inode = work.find(handle)?;
            match generation(&inode)? == written.generation {
                true => Ok(written.last_before(&inode, turn)),
                false => Ok(None),
            }
        })
    }

    /// Whether whoever makes a file so long has to wait for appends, and the last of their places;
    /// or whoever has made it so long, until that is seen.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn is_behind(
        &self,
        turn: &Turn,
        handle: &Handle,
        end: u64,
    ) -> Result<Option<u64>, FsError> {
        self.look(turn, |work| {
            let inode = work.find(handle)?;
            Ok(inode.last_before(end, turn.waits_through()))
        })
    }

    /// Nobody waits any longer for the appends of [`Self::waits`] and [`Self::is_behind`]. The file
    /// is as long as with them from now on, and has zeros where their bytes are still to come.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn show_places(&self, turn: &Turn, handle: &Handle, end: u64) -> Result<(), FsError> {
        self.change(turn, |work| {
            let mut inode = work.find(handle)?;
            let through = turn.waits_through();
            if inode.last_before(end, through).is_some() {
                inode.note_appends(|appends| appends.show(end, through));
                inode.changed = work.now();
                work.put(inode)?;
            }
            Ok(())
        })
    }

    /// Whether a new generation has to begin because of what was written: an append was given its
    /// place where somebody has written and not told so.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn is_met(&self, turn: &Turn, handle: &Handle, written: &Written) -> Result<bool, FsError> {
        self.look(turn, |work| {
            let inode = work.find(handle)?;
            Ok(generation(&inode)? == written.generation && written.overtakes(&inode, turn))
        })
    }

    /// What was written comes after the appends that it meets. In the new generation that begins,
    /// it is to be written again, and they are not written there any more. The file is so long as
    /// if it were there already: what is appended from now on does not meet it.
    ///
    /// # Errors
    /// As [`Self::wrote`], without the last.
    pub fn overtake(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        written: &Written,
    ) -> Result<Attributes, FsError> {
        self.change(turn, |work| {
            let mut inode = work.find(handle)?;
            if generation(&inode)? == written.generation && written.overtakes(&inode, turn) {
                written.apply(&mut inode)?;
                inode.note_appends(|appends| appends.replace(written.extent));
                work.supersede(&mut inode)?;
                work.touch(&mut inode, who)?;
                work.put(inode.clone())?;
            }
            Ok(inode.attributes())
        })
    }

    /// If a file has as many open places as it can have, the oldest is given up, and a new
    /// generation begins: what is on its way there does not arrive any more.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn give_up_place(&self, turn: &Turn, handle: &Handle) -> Result<(), FsError> {
        self.change(turn, |work| {
            let mut inode = work.find(handle)?;
            if inode.appends.as_deref().is_some_and(Appends::is_full) {
                inode.note_appends(Appends::give_up_oldest);
                work.supersede(&mut inode)?;
                work.put(inode)?;
            }
            Ok(())
        })
    }

    /// Whoever has an append's place cannot write it, and nobody waits for it any longer. If
    /// nothing came after it, and the file `can_be_cut` at its stores, the file ends where it did
    /// without it, and a new generation begins: what is on its way there does not arrive any more.
    /// Else the file is as long as with it, with zeros where nothing was written. Nothing happens
    /// if the place is not open: this may be asked again.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn give_up(
        &self,
        turn: &Turn,
        handle: &Handle,
        place: u64,
        can_be_cut: bool,
    ) -> Result<Attributes, FsError> {
        self.change(turn, |work| {
            let mut inode = work.find(handle)?;
            let is_open = inode.appends.as_ref().is_some_and(|it| it.has(place));
            if !is_open {
                return Ok(inode.attributes());
            }
            let Content::File(size, _) = inode.content else {
                return Err(FsError::Invalid.into());
            };
            let end = inode.note_appends(|appends| appends.give_up(place, size));
            if let Some(end) = end.filter(|_| can_be_cut) {
                if let Content::File(bytes, _) = &mut inode.content {
                    *bytes = end;
                }
                inode.note_space(size, |space| space.on_size(size, end));
                work.begin_generation(&mut inode, end)?;
            }
            inode.changed = work.now();
            let attributes = inode.attributes();
            work.put(inode)?;
            Ok(attributes)
        })
    }

    /// What is still to be written of an append's place, and under which generation: what others
    /// have cut off or written since is not.
    ///
    /// # Errors
    /// [`FsError::Io`] if that is not known any more; see [`Namespace`].
    pub fn left(&self, turn: &Turn, handle: &Handle, place: u64) -> Result<Left, FsError> {
        self.look(turn, |work| {
            let inode = work.find(handle)?;
            let left = inode.appends.as_ref().map(|appends| appends.left(place));
            Ok(Left {
                generation: generation(&inode)?,
                parts: left.transpose()?.unwrap_or_default(),
            })
        })
    }

    /// Gives `bytes` a place at the end of a file, where `who`, who has it open for writing, will
    /// put them; says where they begin. What asks so is given places one after the other. The file
    /// is longer when [`Self::wrote`] says that they are there.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is no file, [`FsError::FileTooLarge`]; [`FsError::WouldBlock`] if
    /// too many places are open ([`Self::give_up_place`]).
    pub fn extend(
        &self,
        turn: &Turn,
        _who: &Principal,
        handle: &Handle,
        bytes: u64,
    ) -> Result<Placed, FsError> {
        self.change(turn, |work| {
            let mut inode = work.find(handle)?;
            let generation = generation(&inode)?;
            let placed = |place, generation, begin, inode: &Inode| Placed {
                place,
                generation,
                begin,
                attributes: inode.attributes(),
            };
            match work.done_before() {
                Some(Done::Placed(place, under, begin)) => {
                    return Ok(placed(place, under, begin, &inode));
                }
                Some(Done::Extended(begin)) => return Ok(placed(0, generation, begin, &inode)),
                _ => {}
            }
            if inode.appends.as_deref().is_some_and(Appends::is_full) {
                return Err(FsError::WouldBlock.into());
            }
            let place = work.number()?;
            let Content::File(size, _) = &mut inode.content else {
                return Err(FsError::Invalid.into());
            };
            let begin = *size;
            let end = begin.saturating_add(bytes);
            if end > NAMESPACE_FILE_BYTES_MAX {
                return Err(FsError::FileTooLarge.into());
            }
            *size = end;
            inode.note_space(begin, |space| {
                space.on_present(Extent::between(begin, end));
            });
            inode.note_appends(|appends| appends.give(place, Extent::between(begin, end)));
            work.done(Done::Placed(place, generation, begin));
            let placed = placed(place, generation, begin, &inode);
            work.put(inode)?;
            Ok(placed)
        })
    }
}

/// A request of several parts is refused if the caller does not own the inode and a part is for
/// owners only.
fn refuse_half_changes(
    inode: &Inode,
    who: &Principal,
    change: &AttributeChange,
) -> Result<(), FsError> {
    let explicit = |time| matches!(time, Some(SetTime::To(_)));
    let owner = change.uid.is_some() || change.gid.is_some();
    let times = change.accessed.is_some() || change.modified.is_some();
    let parts = [change.size.is_some(), owner, change.mode.is_some(), times];
    let for_owners =
        owner || change.mode.is_some() || explicit(change.accessed) || explicit(change.modified);
    let several = parts.iter().filter(|part| **part).count() > 1;
    match several && for_owners && !judge::is_owner(inode, who) {
        true => Err(FsError::NotPermitted),
        false => Ok(()),
    }
}

/// Whether an inode can have a size set.
fn check_size(inode: &Inode, size: u64) -> Result<(), FsError> {
    match inode.kind {
        _ if i64::try_from(size).is_err() => Err(FsError::Invalid),
        FileKind::File => Ok(()),
        FileKind::Directory => Err(FsError::IsDirectory),
        _ => Err(FsError::Invalid),
    }
}

/// utimensat(2), where mode and POSIX ACL judge.
fn may_set_times(inode: &Inode, who: &Principal, change: &AttributeChange) -> Result<(), FsError> {
    let times = [change.accessed, change.modified];
    times.into_iter().try_for_each(may_set)?;
    if judge::is_owner(inode, who) {
        return Ok(());
    }
    // Who may write may say that he has; anything else is for owners.
    match times == [Some(SetTime::Now); 2] {
        true => judge::permits(inode, who, WRITE),
        false => Err(FsError::NotPermitted),
    }
}

fn may_set(time: Option<SetTime>) -> Result<(), FsError> {
    match time {
        Some(SetTime::To(time)) if time.nanos >= NANOS => Err(FsError::Invalid),
        _ => Ok(()),
    }
}

impl Work<'_> {
    /// Gives a file another size. What is cut off is cut off at the stores, too, before anything is
    /// read or written there again; and if it becomes longer, what somebody has put behind its end
    /// and not told of.
    pub(super) fn resize(
        &mut self,
        inode: &mut Inode,
        who: &Principal,
        after: u64,
    ) -> Result<(), Stop> {
        let through = self.turn.waits_through();
        let is_behind = inode.last_before(after, through).is_some();
        let Content::File(size, _) = &mut inode.content else {
            return Err(FsError::Invalid.into());
        };
        if i64::try_from(after).is_err() {
            return Err(FsError::Invalid.into());
        }
        if after > NAMESPACE_FILE_BYTES_MAX && after > *size {
            return Err(FsError::FileTooLarge.into());
        }
        if is_behind {
            return Err(FsError::WouldBlock.into());
        }
        let before = std::mem::replace(size, after);
        inode.note_space(before, |space| space.on_size(before, after));
        match after == before {
            true => inode.keep(after),
            false => {
                inode.note_appends(|appends| appends.cut(before.min(after)));
                self.begin_generation(inode, before.min(after))?;
            }
        }
        self.touch(inode, who)
    }

    /// Begins a new generation of a file's layout without cutting the file.
    fn supersede(&mut self, inode: &mut Inode) -> Result<(), Stop> {
        match inode.content {
            Content::File(size, _) => self.begin_generation(inode, size),
            _ => Err(FsError::Invalid.into()),
        }
    }

    /// Begins a new generation of the layout of a file that has had no more than this since the
    /// last one began. At the stores, nothing of older ones is taken any more before anybody is
    /// told of it.
    fn begin_generation(&mut self, inode: &mut Inode, size: u64) -> Result<(), Stop> {
        let number = inode.number;
        let Content::File(_, layout) = &mut inode.content else {
            return Err(FsError::Invalid.into());
        };
        if layout.columns.0.is_empty() {
            return Ok(());
        }
        layout.generation += 1;
        let layout = layout.clone();
        inode.note_appends(Appends::supersede);
        self.chore(Chore::Cut {
            inode: number,
            layout,
            size,
        });
        Ok(())
    }

    /// The contents of a file have changed.
    fn touch(&mut self, inode: &mut Inode, who: &Principal) -> Result<(), Stop> {
        inode.mode = judge::written(inode, who);
        self.drop_capability(inode)?;
        let now = self.now();
        inode.modified = now;
        inode.changed = now;
        Ok(())
    }

    /// What a program was allowed, what it has become is not.
    fn drop_capability(&mut self, inode: &mut Inode) -> Result<(), Stop> {
        if !inode.has_xattrs {
            return Ok(());
        }
        let xattrs = self.xattrs(inode)?;
        if xattrs.iter().any(|(name, _)| name == CAPABILITY) {
            let left = xattrs.iter().filter(|(name, _)| name != CAPABILITY);
            let left: Xattrs = left.cloned().collect();
            self.set_xattrs(inode, left);
        }
        Ok(())
    }

    /// Whether a change may be made. What is judged by mode and POSIX ACL is judged part by part,
    /// as it is made; a rich ACL judges all parts before the first.
    fn judge_change(
        &self,
        inode: &Inode,
        rich: Option<&RichFile>,
        who: &Principal,
        change: &AttributeChange,
        file: Option<&OpenInode>,
    ) -> Result<(), Stop> {
        match rich {
            None => refuse_half_changes(inode, who, change)?,
            Some(rich) => {
                let allows = |rights| self.allows(rich, who, rights);
                acl::judge_change(who, &rich.target, change, file.is_some(), allows)?;
            }
        }
        let Some(size) = change.size else {
            return Ok(());
        };
        match file {
            Some(file) if !file.writes() => Err(FsError::Invalid.into()),
            Some(_) => Ok(()),
            None => {
                check_size(inode, size)?;
                match rich {
                    None => Ok(judge::permits(inode, who, WRITE)?),
                    Some(_) => Ok(()),
                }
            }
        }
    }

    /// chown(2) and chmod(2).
    fn change_owner_and_mode(
        &mut self,
        inode: &mut Inode,
        rich: Option<&RichFile>,
        who: &Principal,
        change: &AttributeChange,
    ) -> Result<(), Stop> {
        let changes_owner = change.uid.is_some() || change.gid.is_some();
        if changes_owner {
            match rich {
                None => judge::change_owner(inode, who, change.uid, change.gid)?,
                Some(_) => {
                    judge::check_owner(change.uid, change.gid)?;
                    judge::give(inode, who, change.uid, change.gid);
                }
            }
            if !inode.is_directory() {
                self.drop_capability(inode)?;
            }
        }
        if let Some(mode) = change.mode {
            match rich {
                None => judge::change_mode(inode, who, mode)?,
                // Set-id bits as ever; permission bits follow from the list.
                Some(_) => {
                    let special = judge::mode_for(inode, who, mode) & !0o777;
                    inode.mode = special | inode.mode & 0o777;
                }
            }
        }
        if changes_owner || change.mode.is_some() {
            if let Some(rich) = rich {
                self.change_truth(inode, rich, change.mode)?;
            }
            inode.changed = self.now();
        }
        Ok(())
    }

    /// utimensat(2), which was judged.
    fn set_times(
        &mut self,
        inode: &mut Inode,
        accessed: Option<SetTime>,
        modified: Option<SetTime>,
    ) -> Result<(), Stop> {
        may_set(accessed)?;
        may_set(modified)?;
        let now = self.now();
        let time = |time: Option<SetTime>, before: Timestamp| match time {
            None => before,
            Some(SetTime::Now) => now,
            Some(SetTime::To(time)) => time,
        };
        inode.accessed = time(accessed, inode.accessed);
        inode.modified = time(modified, inode.modified);
        inode.changed = now;
        Ok(())
    }
}
