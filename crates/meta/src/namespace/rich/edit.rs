//! The rich ACL as clients see and set it, and the way back.
//!
//! What is shown of a file whose truth is POSIX is a view. To set exactly what is shown changes
//! nothing; so a program that reads and writes back, as backups do, makes nobody's ACL rich. Who
//! may set one is who may change the mode: the owner, and whoever has WRITE_ACL by a rich ACL.

use super::super::judge;
use super::super::record::{Done, Inode, Place};
use super::super::tree::Namespace;
use super::super::turn::Turn;
use super::super::work::{Stop, Work};
use super::judge::{Posix, RichFile, target_of};
use super::record::Before;
use acl::{AclError, Edit, Origin, RichAcl, Rights, Target, Truth, UnixIds};
use base::limits::ACL_WALK_DEPTH_MAX;
use base::{Attributes, FileKind, FsError, Handle, Principal};

/// How an edit is said in words.
pub type Words<'a> = &'a dyn Fn(&Edit) -> String;

/// A list as clients are given it.
fn as_sent(list: &RichAcl, target: &Target) -> Result<Vec<u8>, FsError> {
    let sent = list.to_nfs4(target, &UnixIds);
    sent.map_err(|error| match error {
        AclError::TooLarge { .. } => FsError::TooBig,
        _ => FsError::Invalid,
    })
}

impl Namespace {
    /// Sets the rich ACL of a file, which is its truth from then on. Returns the attributes
    /// afterwards. Unless nothing has changed, `words` say in the same transaction what was done.
    ///
    /// # Errors
    /// [`FsError::NotPermitted`] or [`FsError::AccessDenied`] for who may not;
    /// [`FsError::NotSupported`] if rich ACLs are off, and for symbolic links; [`FsError::TooBig`];
    /// see [`Namespace`].
    pub fn set_acl(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        list: &RichAcl,
        words: Words<'_>,
    ) -> Result<Attributes, FsError> {
        if !self.is_rich() {
            return Err(FsError::NotSupported);
        }
        self.change(turn, |work| {
            let inode = work.find(handle)?;
            if work.done_before().is_some() {
                return Ok(inode.attributes());
            }
            let rich = work.may_edit(&inode, who)?;
            let target = target_of(&inode);
            // Of one that cannot be read nothing is known but that this one takes its place.
            let shown = work.shown(&inode, rich.as_ref()).ok();
            let sent = as_sent(list, &target)?;
            let is_shown = |shown: &RichAcl| as_sent(shown, &target).is_ok_and(|own| own == sent);
            if shown.as_ref().is_some_and(is_shown) {
                return Ok(inode.attributes());
            }
            let (edit, before) = match &rich {
                Some(rich) => {
                    let edit = rich
                        .list()
                        .map(|before| Edit::of(&Truth::Rich(before), &Truth::Rich(list), &target));
                    let unsaid = || Edit::without_words(Origin::Rich, Origin::Rich);
                    (edit.unwrap_or_else(unsaid), rich.before().cloned())
                }
                None => {
                    let posix = Posix::of(&inode)?;
                    let before = Truth::Posix(posix.file(&inode));
                    let edit = Edit::of(&before, &Truth::Rich(list), &target);
                    (edit, Some(Before::of(&inode)))
                }
            };
            work.edited(inode, edit, words, |work, inode| {
                work.write_truth(inode, list, before)
            })
        })
    }

    /// Takes the rich ACL of a file away: mode and POSIX ACLs are what they were before it got one,
    /// and the truth. Those of a file that never had any truth but a rich one stay what that could
    /// say in them. Returns as [`Namespace::set_acl`]; nothing happens to a file without one.
    ///
    /// # Errors
    /// As [`Namespace::set_acl`].
    pub fn remove_acl(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        words: Words<'_>,
    ) -> Result<Attributes, FsError> {
        if !self.is_rich() {
            return Err(FsError::NotSupported);
        }
        self.change(turn, |work| {
            let inode = work.find(handle)?;
            if work.done_before().is_some() {
                return Ok(inode.attributes());
            }
            let Some(rich) = work.may_edit(&inode, who)? else {
                return Ok(inode.attributes());
            };
            let mut after = inode.clone();
            if let Some(before) = rich.before() {
                before.restore(&mut after);
            }
            let edit = match rich.list() {
                Some(list) => {
                    let posix = Posix::of(&after)?;
                    let is_now = Truth::Posix(posix.file(&after));
                    Edit::of(&Truth::Rich(list), &is_now, &rich.target)
                }
                None => Edit::without_words(Origin::Rich, Origin::Posix),
            };
            work.edited(after, edit, words, |work, inode| {
                work.set_rich(inode, None);
                Ok(())
            })
        })
    }

    /// Makes mode and POSIX ACL the truth of a file again whose rich ACL says the same; whether it
    /// has such a one. With `dry_run` nothing is changed.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn compact_acl(
        &self,
        turn: &Turn,
        handle: &Handle,
        dry_run: bool,
        words: Words<'_>,
    ) -> Result<bool, FsError> {
        self.change(turn, |work| {
            let inode = work.find(handle)?;
            let Some(rich) = work.rich(&inode)? else {
                return Ok(false);
            };
            let posix = Posix::of(&inode)?;
            let is_view = |list: &RichAcl| {
                let default = posix.default.as_ref();
                list.is_view_of(&posix.file(&inode), default, inode.is_directory())
            };
            if !rich.list().is_some_and(is_view) {
                return Ok(false);
            }
            if !dry_run {
                let edit = Edit::without_words(Origin::Rich, Origin::Posix);
                work.edited(inode.clone(), edit, words, |work, inode| {
                    work.set_rich(inode, None);
                    Ok(())
                })?;
            }
            Ok(true)
        })
    }
}

impl Before {
    fn of(inode: &Inode) -> Self {
        Self {
            mode: inode.mode & 0o777,
            access: inode.access.as_deref().cloned(),
            default: inode.default.as_deref().cloned(),
        }
    }

    fn restore(&self, inode: &mut Inode) {
        inode.mode = inode.mode & !0o777 | self.mode;
        inode.access = self.access.clone().map(Box::new);
        inode.default = self.default.clone().map(Box::new);
    }
}

impl Work<'_> {
    /// The value of `system.nfs4_acl`.
    pub(in crate::namespace) fn get_nfs4(
        &self,
        inode: &Inode,
        who: &Principal,
    ) -> Result<Vec<u8>, Stop> {
        if inode.kind == FileKind::Symlink {
            return Err(FsError::NotSupported.into());
        }
        let rich = self.rich(inode)?;
        if let Some(rich) = &rich
            && !self.allows(rich, who, Rights::READ_ACL)
        {
            return Err(FsError::AccessDenied.into());
        }
        let list = self.shown(inode, rich.as_ref())?;
        Ok(as_sent(&list, &target_of(inode))?)
    }

    /// The list that is shown of a file.
    fn shown(&self, inode: &Inode, rich: Option<&RichFile>) -> Result<RichAcl, FsError> {
        if let Some(rich) = rich {
            return rich.list().cloned().ok_or(FsError::Io);
        }
        let posix = Posix::of(inode)?;
        self.rules.rich.count_view();
        let (file, default) = (posix.file(inode), posix.default.as_ref());
        Ok(RichAcl::view(&file, default, inode.is_directory()))
    }

    /// Whether a caller may set a file's ACL.
    fn may_edit(&self, inode: &Inode, who: &Principal) -> Result<Option<RichFile>, Stop> {
        if inode.kind == FileKind::Symlink {
            return Err(FsError::NotSupported.into());
        }
        match self.rich(inode)? {
            Some(rich) if self.allows(&rich, who, Rights::WRITE_ACL) => Ok(Some(rich)),
            Some(_) => Err(FsError::AccessDenied.into()),
            None if judge::is_owner(inode, who) => Ok(None),
            None => Err(FsError::NotPermitted.into()),
        }
    }

    /// Makes an edit, and writes it down.
    fn edited(
        &mut self,
        mut inode: Inode,
        edit: Edit,
        words: Words<'_>,
        make: impl FnOnce(&mut Self, &mut Inode) -> Result<(), Stop>,
    ) -> Result<Attributes, Stop> {
        let path = self.path_of(&inode)?;
        make(self, &mut inode)?;
        inode.changed = self.now();
        let attributes = inode.attributes();
        let (before, after) = (edit.before, edit.after);
        self.note_edit(before, after, words(&Edit { path, ..edit }));
        self.done(Done::Changed);
        self.put(inode)?;
        Ok(attributes)
    }

    /// Where an inode lies, for people; one that has or had several names is said by its number.
    fn path_of(&self, inode: &Inode) -> Result<String, Stop> {
        let (mut path, mut number) = (String::new(), inode.number);
        for _ in 0..ACL_WALK_DEPTH_MAX {
            match self.place(number)? {
                Place::At(parent, name) => {
                    path = format!("/{name}{path}");
                    number = parent;
                }
                Place::Here if path.is_empty() && inode.is_directory() => return Ok("/".to_owned()),
                Place::Here if path.is_empty() => return Ok(format!("inode {number}")),
                Place::Here => break,
            }
        }
        Ok(path)
    }
}
