//! Attributes: reading, changing, and what writing does to them.
//!
//! A combined change is made as a whole or not at all; its parts are judged in the order in which
//! an export makes them one after the other.

use super::hold::OpenInode;
use super::judge::{self, EXECUTE, READ, WRITE};
use super::record::{Chore, Content, Done, Inode, Xattrs};
use super::space::Space;
use super::tree::Namespace;
use super::turn::Turn;
use super::work::{Stop, Work};
use super::xattr::CAPABILITY;
use base::limits::NAMESPACE_FILE_BYTES_MAX;
use base::{
    AttributeChange, Attributes, Extent, FileKind, FsError, Handle, Principal, Rights, SetTime,
    Timestamp,
};

const NANOS: u32 = 1_000_000_000;

/// What somebody has done to the contents of a file at its stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The byte behind the last one that the file has at least from now on.
    pub end: u64,
    /// Which bytes were written, or given space, or made a hole.
    pub extent: Extent,
    /// Whether they were made a hole.
    pub is_hole: bool,
}

impl Written {
    fn note(&self, before: u64, space: &mut Space) {
        match self.is_hole {
            true => space.on_hole(self.extent),
            false if self.extent.is_empty() => {}
            false => space.on_present(self.extent),
        }
        space.on_size(before, before.max(self.end));
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

    /// Whether the caller may do all of `wanted` with an inode.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] if not.
    pub fn check_access(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        wanted: Rights,
    ) -> Result<(), FsError> {
        let bit = |is_wanted, bit| if is_wanted { bit } else { 0 };
        let wanted =
            bit(wanted.read, READ) | bit(wanted.write, WRITE) | bit(wanted.execute, EXECUTE);
        self.look(turn, |work| {
            Ok(judge::permits(&work.find(handle)?, who, wanted)?)
        })
    }

    /// Changes attributes and returns all of them as they are afterwards. With `file`, an open file
    /// of the same inode, a new size needs no permission beyond that of the open, as in
    /// ftruncate(2).
    ///
    /// # Errors
    /// As the kernel judges; nothing is changed then.
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
            refuse_half_changes(&inode, who, change)?;
            if let Some(size) = change.size {
                match file {
                    Some(file) if !file.writes() => return Err(FsError::Invalid.into()),
                    Some(_) => {}
                    None => may_truncate(&inode, who, size)?,
                }
                work.resize(&mut inode, who, size)?;
            }
            if change.uid.is_some() || change.gid.is_some() {
                judge::change_owner(&mut inode, who, change.uid, change.gid)?;
                if !inode.is_directory() {
                    work.drop_capability(&mut inode)?;
                }
                inode.changed = work.now();
            }
            if let Some(mode) = change.mode {
                judge::change_mode(&mut inode, who, mode)?;
                inode.changed = work.now();
            }
            if change.accessed.is_some() || change.modified.is_some() {
                work.set_times(&mut inode, who, change.accessed, change.modified)?;
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
    /// [`FsError::Invalid`] if it is no file, [`FsError::FileTooLarge`].
    pub fn wrote(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        written: &Written,
    ) -> Result<Attributes, FsError> {
        let end = written.end;
        self.change(turn, |work| {
            let mut inode = work.find(handle)?;
            if work.done_before().is_some() {
                return Ok(inode.attributes());
            }
            if end.max(written.extent.end()) > NAMESPACE_FILE_BYTES_MAX {
                return Err(FsError::FileTooLarge.into());
            }
            let Content::File(size, _) = &mut inode.content else {
                return Err(FsError::Invalid.into());
            };
            let before = *size;
            *size = before.max(end);
            inode.note_space(before, |space| written.note(before, space));
            work.touch(&mut inode, who)?;
            work.done(Done::Changed);
            let attributes = inode.attributes();
            work.put(inode)?;
            Ok(attributes)
        })
    }

    /// Makes a file longer by `bytes` that `who`, who has it open for writing, will put there; says
    /// where they begin. What asks so is given places one after the other.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is no file, [`FsError::FileTooLarge`].
    pub fn extend(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        bytes: u64,
    ) -> Result<(u64, Attributes), FsError> {
        self.change(turn, |work| {
            let mut inode = work.find(handle)?;
            if let Some(Done::Extended(begin)) = work.done_before() {
                return Ok((begin, inode.attributes()));
            }
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
            work.touch(&mut inode, who)?;
            work.done(Done::Extended(begin));
            let attributes = inode.attributes();
            work.put(inode)?;
            Ok((begin, attributes))
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

/// truncate(2).
fn may_truncate(inode: &Inode, who: &Principal, size: u64) -> Result<(), FsError> {
    match inode.kind {
        _ if i64::try_from(size).is_err() => Err(FsError::Invalid),
        FileKind::File => judge::permits(inode, who, WRITE),
        FileKind::Directory => Err(FsError::IsDirectory),
        _ => Err(FsError::Invalid),
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
    /// read or written there again.
    pub(super) fn resize(
        &mut self,
        inode: &mut Inode,
        who: &Principal,
        after: u64,
    ) -> Result<(), Stop> {
        let number = inode.number;
        let Content::File(size, layout) = &mut inode.content else {
            return Err(FsError::Invalid.into());
        };
        if i64::try_from(after).is_err() {
            return Err(FsError::Invalid.into());
        }
        if after > NAMESPACE_FILE_BYTES_MAX && after > *size {
            return Err(FsError::FileTooLarge.into());
        }
        if after < *size && !layout.columns.0.is_empty() {
            self.chore(Chore::Cut {
                inode: number,
                layout: layout.clone(),
                size: after,
            });
        }
        let before = std::mem::replace(size, after);
        inode.note_space(before, |space| space.on_size(before, after));
        self.touch(inode, who)
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

    /// utimensat(2).
    fn set_times(
        &mut self,
        inode: &mut Inode,
        who: &Principal,
        accessed: Option<SetTime>,
        modified: Option<SetTime>,
    ) -> Result<(), Stop> {
        may_set(accessed)?;
        may_set(modified)?;
        if !judge::is_owner(inode, who) {
            // Who may write may say that he has; anything else is for owners.
            let is_touch = [accessed, modified] == [Some(SetTime::Now); 2];
            match is_touch {
                true => judge::permits(inode, who, WRITE)?,
                false => return Err(FsError::NotPermitted.into()),
            }
        }
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
