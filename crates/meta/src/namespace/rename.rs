//! Renaming: the one change of four inodes and two names.
//!
//! The order of the questions is that of `do_renameat2` and `vfs_rename`. A directory never comes
//! to lie below itself: the way from the new parent to the top is gone before anything is judged.

use super::record::{Done, Inode, Place, ROOT};
use super::tree::Namespace;
use super::turn::Turn;
use super::work::{Stop, Work};
use base::{FsError, Handle, Name, Principal, RenameMode, Renamed};

/// Parents, names and what has them.
struct Move<'a> {
    who: &'a Principal,
    from: Inode,
    from_name: &'a Name,
    to: Inode,
    to_name: &'a Name,
    moved: Inode,
    replaced: Option<Inode>,
    mode: RenameMode,
}

impl Namespace {
    /// Gives an inode another name, maybe in another directory.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NotFound`] if there is nothing to exchange with,
    /// [`FsError::Invalid`] for a directory into itself; else as the kernel judges.
    #[expect(
        clippy::too_many_arguments,
        reason = "renameat2(2) with its context has as many"
    )]
    pub fn rename(
        &self,
        turn: &Turn,
        who: &Principal,
        from: &Handle,
        from_name: &Name,
        to: &Handle,
        to_name: &Name,
        mode: RenameMode,
    ) -> Result<Renamed, FsError> {
        self.change(turn, |work| {
            if work.done_before().is_some() {
                return Ok(Renamed {
                    moved: None,
                    replaced: None,
                });
            }
            let (from, to) = (work.find(from)?, work.find(to)?);
            for parent in [&from, &to] {
                if !parent.is_directory() {
                    return Err(FsError::NotDirectory.into());
                }
                work.search(parent, who)?;
            }
            let moved = work.child(from.number, from_name)?;
            let (moved, _) = moved.ok_or(FsError::NotFound)?;
            let replaced = work.child(to.number, to_name)?;
            match (mode, replaced) {
                (RenameMode::NoReplace, Some(_)) => return Err(FsError::Exists.into()),
                (RenameMode::Exchange, None) => return Err(FsError::NotFound.into()),
                _ => {}
            }
            let replaced = replaced.map(|(number, _)| work.inode(number)).transpose()?;
            let plan = Move {
                who,
                from_name,
                to_name,
                moved: work.inode(moved)?,
                replaced,
                from,
                to,
                mode,
            };
            plan.check_loops(work)?;
            // Also if it is nothing: what comes after it may make it something.
            work.done(Done::Renamed);
            if plan
                .replaced
                .as_ref()
                .is_some_and(|other| other.number == moved)
            {
                // Two names of one inode, or one name: nothing happens.
                let node = work.node(&plan.moved);
                return Ok(Renamed {
                    moved: Some(node.clone()),
                    replaced: Some(node),
                });
            }
            plan.judge(work)?;
            match mode {
                RenameMode::Exchange => plan.exchange(work),
                RenameMode::Replace | RenameMode::NoReplace => plan.carry_out(work),
            }
        })
    }
}

impl Move<'_> {
    fn is_across(&self) -> bool {
        self.from.number != self.to.number
    }

    fn check_loops(&self, work: &Work<'_>) -> Result<(), Stop> {
        if !self.is_across() {
            return Ok(());
        }
        if self.moved.is_directory() && work.is_below(self.to.number, self.moved.number)? {
            return Err(FsError::Invalid.into());
        }
        if let Some(replaced) = &self.replaced
            && replaced.is_directory()
            && work.is_below(self.from.number, replaced.number)?
        {
            return Err(match self.mode {
                RenameMode::Exchange => FsError::Invalid,
                RenameMode::Replace | RenameMode::NoReplace => FsError::NotEmpty,
            }
            .into());
        }
        Ok(())
    }

    fn judge(&self, work: &Work<'_>) -> Result<(), Stop> {
        let who = self.who;
        let is_directory = self.moved.is_directory();
        work.may_remove(&self.from, &self.moved, who, is_directory)?;
        if let Some(replaced) = &self.replaced {
            let as_directory = match self.mode {
                RenameMode::Exchange => replaced.is_directory(),
                RenameMode::Replace | RenameMode::NoReplace => is_directory,
            };
            work.may_remove(&self.to, replaced, who, as_directory)?;
        }
        work.may_add(&self.to, who, self.moved.kind)?;
        let back = self.replaced.as_ref();
        let back = back.filter(|_| self.mode == RenameMode::Exchange);
        if let Some(back) = back {
            work.may_add(&self.from, who, back.kind)?;
        }
        if self.is_across() {
            // A directory's own entry for its parent changes.
            for moves in [Some(&self.moved), back].into_iter().flatten() {
                if moves.is_directory() {
                    work.may_move(moves, who)?;
                }
            }
        }
        Ok(())
    }

    fn exchange(mut self, work: &mut Work<'_>) -> Result<Renamed, Stop> {
        let replaced = self.replaced.take().expect("an exchange has two");
        let of = |inode: &Inode| Some((inode.number, inode.kind));
        work.name(self.from.number, self.from_name, of(&replaced));
        work.name(self.to.number, self.to_name, of(&self.moved));
        let (old, new) = (self.place_from(), self.place_to());
        let (first, other) = (
            u32::from(self.moved.is_directory()),
            u32::from(replaced.is_directory()),
        );
        let is_across = self.is_across();
        if is_across {
            self.from.links = self.from.links - first + other;
            self.to.links = self.to.links - other + first;
        }
        work.count(&mut self.from, 0);
        work.put(self.from)?;
        if is_across {
            work.count(&mut self.to, 0);
            work.put(self.to)?;
        }
        let moved = work.moved(self.moved, new)?;
        let replaced = work.moved(replaced, old)?;
        Ok(Renamed {
            moved: Some(work.node(&moved)),
            replaced: Some(work.node(&replaced)),
        })
    }

    fn carry_out(mut self, work: &mut Work<'_>) -> Result<Renamed, Stop> {
        let replaced = self.replaced.take();
        if let Some(replaced) = &replaced
            && matches!(replaced.content, super::record::Content::Directory(names) if names > 0)
        {
            return Err(FsError::NotEmpty.into());
        }
        let new = self.place_to();
        let target = Some((self.moved.number, self.moved.kind));
        work.name(self.from.number, self.from_name, None);
        work.name(self.to.number, self.to_name, target);
        let directories = u32::from(self.moved.is_directory());
        let gained = i64::from(replaced.is_none());
        // A directory that is replaced gives its place in the count to the one that comes.
        let links_gained = if replaced.is_none() { directories } else { 0 };
        let is_across = self.is_across();
        self.from.links -= directories;
        if is_across {
            self.to.links += links_gained;
            work.count(&mut self.to, gained);
            work.put(self.to)?;
            work.count(&mut self.from, -1);
        } else {
            self.from.links += links_gained;
            work.count(&mut self.from, gained - 1);
        }
        work.put(self.from)?;
        let replaced = replaced.map(|replaced| work.unname(replaced)).transpose()?;
        let moved = work.moved(self.moved, new)?;
        Ok(Renamed {
            moved: Some(work.node(&moved)),
            replaced: replaced.map(|replaced| work.node(&replaced)),
        })
    }

    fn place_from(&self) -> Place {
        Place::At(self.from.number, self.from_name.clone())
    }

    fn place_to(&self) -> Place {
        Place::At(self.to.number, self.to_name.clone())
    }
}

impl Work<'_> {
    /// An inode has another name now. One with several names lies by itself.
    fn moved(&mut self, mut inode: Inode, place: Place) -> Result<Inode, Stop> {
        inode.changed = self.now();
        let place = match self.place(inode.number)? {
            Place::Here => Place::Here,
            Place::At(..) => place,
        };
        self.put_at(inode.clone(), place)?;
        Ok(inode)
    }

    /// Whether a directory is `top` or lies below it.
    fn is_below(&self, mut directory: u64, top: u64) -> Result<bool, Stop> {
        // No way is longer than there are inodes.
        for _ in 0..=self.state.head.inodes {
            if directory == top {
                return Ok(true);
            }
            match self.place(directory)? {
                _ if directory == ROOT => return Ok(false),
                Place::At(parent, _) => directory = parent,
                Place::Here => return Err(FsError::Stale.into()),
            }
        }
        tracing::error!(directory, "a directory lies below itself");
        Err(FsError::Io.into())
    }
}
