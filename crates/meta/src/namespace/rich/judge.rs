//! Who may do what: by a file's rich ACL if that is its truth, else as Linux judges it on ext4.
//!
//! | change | takes |
//! |---|---|
//! | a look-up | EXECUTE on the directory |
//! | a new name | see [`acl::rights_to_add`] |
//! | a removal | DELETE on what is removed, or DELETE_CHILD on the directory; and EXECUTE |
//! | a rename | the removal there, the new name here, the removal of what had that |
//!
//! That either right is enough for a removal is the rule of Windows and NFSv4 (RFC 8881, section
//! 6.2.1.3.2). In a sticky directory DELETE_CHILD is not enough for what is somebody else's. Where
//! one part of a change is judged by a rich ACL, the others are judged by what their inodes have.

use super::super::acl::Acl;
use super::super::judge::{self, EXECUTE, READ, WRITE};
use super::super::read::Want;
use super::super::record::Inode;
use super::super::tree::Namespace;
use super::super::turn::Turn;
use super::super::work::{Stop, Work};
use super::record::{Before, Rich, RichRecord};
use acl::{Asked, Explained, Judged, PosixAcl, PosixFile, RichAcl, Rights, Target};
use base::{FileKind, FsError, Handle, Principal, mode};
use std::sync::Arc;

/// A file whose truth is a rich ACL, as it is now.
pub(in crate::namespace) struct RichFile {
    record: Arc<RichRecord>,
    /// If it is not the one in the record.
    list: Option<RichAcl>,
    pub(in crate::namespace) target: Target,
}

impl RichFile {
    fn new(record: Arc<RichRecord>, inode: &Inode) -> Self {
        let target = target_of(inode);
        let list = record.list(inode.mode, &target, inode.access.is_some());
        let list = match list {
            Some(std::borrow::Cow::Owned(list)) => Some(list),
            _ => None,
        };
        Self {
            record,
            list,
            target,
        }
    }

    /// The list; `None` if it cannot be read.
    pub(in crate::namespace) fn list(&self) -> Option<&RichAcl> {
        self.list.as_ref().or_else(|| self.record.acl())
    }

    /// What was before.
    pub(super) fn before(&self) -> Option<&Before> {
        self.record.before()
    }

    fn permits(&self, who: &Principal, wanted: Rights) -> bool {
        acl::permits(self.list(), who, &self.target, wanted)
    }
}

/// The target of decisions about an inode.
pub(super) fn target_of(inode: &Inode) -> Target {
    Target {
        uid: inode.uid,
        gid: inode.gid,
        is_directory: inode.is_directory(),
    }
}

/// A POSIX ACL as `acl` has it.
pub(super) fn posix_acl(acl: Option<&Acl>) -> Result<Option<PosixAcl>, FsError> {
    // What was checked when it was set cannot be wrong; if it is, nothing wider is shown.
    let parse = |acl: &Acl| PosixAcl::from_xattr(&acl.encode()).map_err(|_| FsError::Io);
    Ok(acl.map(parse).transpose()?.flatten())
}

/// An inode's mode and POSIX ACLs.
pub(super) struct Posix {
    pub(super) access: Option<PosixAcl>,
    pub(super) default: Option<PosixAcl>,
}

impl Posix {
    pub(super) fn of(inode: &Inode) -> Result<Self, FsError> {
        Ok(Self {
            access: posix_acl(inode.access.as_deref())?,
            default: posix_acl(inode.default.as_deref())?,
        })
    }

    pub(super) fn file(&self, inode: &Inode) -> PosixFile<'_> {
        PosixFile {
            uid: inode.uid,
            gid: inode.gid,
            mode: inode.mode & 0o777,
            access: self.access.as_ref(),
        }
    }
}

impl Work<'_> {
    /// Whether the truth of an inode is a rich ACL, and they are on.
    pub(in crate::namespace) fn is_rich(&self, inode: &Inode) -> bool {
        inode.rich.is_some() && self.rules.rich.is_on()
    }

    /// What is the truth of an inode if that is a rich ACL, and they are on.
    pub(in crate::namespace) fn rich(&self, inode: &Inode) -> Result<Option<RichFile>, Stop> {
        let Some(rich) = inode.rich.as_ref().filter(|_| self.is_rich(inode)) else {
            return Ok(None);
        };
        let record = match rich {
            Rich::Inline(record) => Arc::clone(record),
            Rich::Apart => self
                .list_apart(inode.number)
                .ok_or(Stop::Missing(Want::List(inode.number)))?,
        };
        Ok(Some(RichFile::new(record, inode)))
    }

    /// Whether a rich ACL allows something.
    pub(in crate::namespace) fn allows(
        &self,
        rich: &RichFile,
        who: &Principal,
        wanted: Rights,
    ) -> bool {
        let is_allowed = rich.permits(who, wanted);
        self.rules.rich.count_judged(is_allowed);
        is_allowed
    }

    fn judge_rich(&self, rich: &RichFile, who: &Principal, wanted: Rights) -> Result<(), Stop> {
        match self.allows(rich, who, wanted) {
            true => Ok(()),
            false => Err(FsError::AccessDenied.into()),
        }
    }

    /// Whether `who` may do all of `rights` with an inode, which are these `bits` of a mode.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] if not.
    pub(in crate::namespace) fn judge(
        &self,
        inode: &Inode,
        who: &Principal,
        rights: Rights,
        bits: u8,
    ) -> Result<(), Stop> {
        match self.rich(inode)? {
            None => Ok(judge::permits(inode, who, bits)?),
            Some(rich) => self.judge_rich(&rich, who, rights),
        }
    }

    /// As [`Self::judge`], for who does something else if not.
    pub(in crate::namespace) fn may(
        &self,
        inode: &Inode,
        who: &Principal,
        rights: Rights,
        bits: u8,
    ) -> Result<bool, Stop> {
        match self.judge(inode, who, rights, bits) {
            Ok(()) => Ok(true),
            Err(Stop::Error(_)) => Ok(false),
            Err(missing) => Err(missing),
        }
    }

    /// Whether a directory may be searched.
    pub(in crate::namespace) fn search(
        &self,
        directory: &Inode,
        who: &Principal,
    ) -> Result<(), Stop> {
        self.judge(directory, who, Rights::EXECUTE, EXECUTE)
    }

    /// Whether a directory may get a name for an inode of this kind.
    pub(in crate::namespace) fn may_add(
        &self,
        directory: &Inode,
        who: &Principal,
        kind: FileKind,
    ) -> Result<(), Stop> {
        self.judge(directory, who, acl::rights_to_add(kind), WRITE | EXECUTE)
    }

    /// Whether a name can be taken away from `victim` in `directory`.
    pub(in crate::namespace) fn may_remove(
        &self,
        directory: &Inode,
        victim: &Inode,
        who: &Principal,
        as_directory: bool,
    ) -> Result<(), Stop> {
        let own = self.rich(victim)?;
        if own.is_some_and(|own| self.allows(&own, who, Rights::DELETE)) {
            self.search(directory, who)?;
            return Ok(judge::check_kind(victim, as_directory)?);
        }
        let Some(holder) = self.rich(directory)? else {
            return Ok(judge::may_remove(directory, victim, who, as_directory)?);
        };
        self.judge_rich(&holder, who, Rights::DELETE_CHILD | Rights::EXECUTE)?;
        acl::judge_sticky(who, (directory.mode, directory.uid), victim.uid)?;
        Ok(judge::check_kind(victim, as_directory)?)
    }

    /// Whether an inode may get a further name: that one owns it, or may read and write it.
    pub(in crate::namespace) fn may_link(
        &self,
        inode: &Inode,
        who: &Principal,
    ) -> Result<(), Stop> {
        let Some(rich) = self.rich(inode)? else {
            return Ok(judge::may_link(inode, who)?);
        };
        let is_plain =
            inode.kind == FileKind::File && inode.mode & (mode::SETUID | mode::SETGID) == 0;
        let uses = Rights::READ_DATA | Rights::WRITE_DATA;
        match judge::is_owner(inode, who) || (is_plain && self.allows(&rich, who, uses)) {
            true => Ok(()),
            false => Err(FsError::NotPermitted.into()),
        }
    }

    /// Whether a directory may come to lie in another one, which changes what it has for its
    /// parent. By a rich ACL it may if it may be removed here.
    pub(in crate::namespace) fn may_move(
        &self,
        directory: &Inode,
        who: &Principal,
    ) -> Result<(), Stop> {
        match self.is_rich(directory) {
            false => Ok(judge::permits(directory, who, WRITE)?),
            true => Ok(()),
        }
    }
}

/// What decides about an inode.
struct Found {
    rich: Option<RichFile>,
    posix: Posix,
    inode: Inode,
}

impl Found {
    fn of(work: &Work<'_>, inode: Inode) -> Result<Self, Stop> {
        Ok(Self {
            rich: work.rich(&inode)?,
            posix: Posix::of(&inode)?,
            inode,
        })
    }

    fn asked(&self) -> Asked<'_> {
        let by = match &self.rich {
            Some(rich) => Judged::Rich(rich.list()),
            None => Judged::Posix(self.posix.file(&self.inode)),
        };
        Asked {
            by,
            target: target_of(&self.inode),
            mode: self.inode.mode,
        }
    }
}

impl Namespace {
    /// Whether `who` may do all of `wanted` with an inode, and why. `directory` is where it has its
    /// name, and is asked about removal.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] if who asks may not read the ACL; see [`Namespace`].
    pub fn explain(
        &self,
        turn: &Turn,
        asks: &Principal,
        (handle, directory): (&Handle, Option<&Handle>),
        who: &Principal,
        wanted: Rights,
    ) -> Result<Explained, FsError> {
        self.look(turn, |work| {
            let found = Found::of(work, work.find(handle)?)?;
            if let Some(rich) = &found.rich {
                work.judge_rich(rich, asks, Rights::READ_ACL)?;
            }
            let directory = directory.filter(|_| wanted.contains(Rights::DELETE));
            let holder = directory.map(|directory| work.directory(directory));
            let holder = holder.transpose()?;
            let holder = holder.map(|holder| Found::of(work, holder)).transpose()?;
            let holder = holder.as_ref().map(Found::asked);
            Ok(found.asked().explain(holder.as_ref(), who, wanted))
        })
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
        wanted: base::Rights,
    ) -> Result<(), FsError> {
        let bit = |is_wanted, bit| if is_wanted { bit } else { 0 };
        let bits = bit(wanted.read, READ) | bit(wanted.write, WRITE) | bit(wanted.execute, EXECUTE);
        let rights = acl::rights_to_access(wanted);
        self.look(turn, |work| {
            work.judge(&work.find(handle)?, who, rights, bits)
        })
    }
}
