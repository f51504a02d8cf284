//! New files in directories that have a rich ACL; chmod and chown of files that have one.
//!
//! What each change takes, the crate `acl` says. A new mode lies over the list
//! ([`RichAcl::with_shown_mode`]); a new owner is another one whom the list means; so what mode and
//! POSIX ACL say of it is said anew. The umask plays no part where something is inherited, as with
//! a default ACL.

use super::super::acl::Acl;
use super::super::record::Inode;
use super::super::work::{Stop, Work};
use super::judge::{RichFile, target_of};
use super::record::{Before, RichRecord};
use acl::{RichAcl, Target};
use base::{FileKind, FsError};

/// What a new inode gets of its directory's rich ACL.
pub(in crate::namespace) enum Heir {
    /// It has none: what there is of POSIX ACLs counts.
    NotRich,
    /// Nothing: its mode without the umask says all.
    Nothing,
    /// A list.
    List(Box<RichAcl>),
}

impl Work<'_> {
    /// What a new inode inherits of a directory.
    pub(in crate::namespace) fn heir(
        &self,
        directory: &Inode,
        target: &Target,
        kind: FileKind,
        (mode, umask): (u16, u16),
    ) -> Result<Heir, Stop> {
        let Some(holder) = self.rich(directory)? else {
            return Ok(Heir::NotRich);
        };
        let list = holder.list().filter(|_| kind != FileKind::Symlink);
        let heir = list.and_then(|list| list.inherited(target, mode & 0o777, umask));
        Ok(heir.map_or(Heir::Nothing, |list| Heir::List(Box::new(list))))
    }

    /// Makes a list the truth of an inode: mode and POSIX ACL say of it what they can.
    pub(in crate::namespace) fn write_truth(
        &mut self,
        inode: &mut Inode,
        list: &RichAcl,
        before: Option<Before>,
    ) -> Result<(), Stop> {
        tell(inode, list);
        let record = RichRecord::new(list, inode.mode, before)?;
        self.set_rich(inode, Some(record));
        Ok(())
    }

    /// After a change of mode, owner or group.
    pub(in crate::namespace) fn change_truth(
        &mut self,
        inode: &mut Inode,
        rich: &RichFile,
        mode: Option<u16>,
    ) -> Result<(), Stop> {
        let list = rich.list().ok_or(FsError::Io)?;
        let list = match mode {
            Some(mode) => list.with_shown_mode(mode, &target_of(inode), inode.access.is_some()),
            None => list.clone(),
        };
        self.write_truth(inode, &list, rich.before().cloned())
    }

    /// Whether and where an inode has a rich ACL.
    pub(super) fn set_rich(&mut self, inode: &mut Inode, record: Option<RichRecord>) {
        let placed = record.map(RichRecord::placed);
        let (rich, apart) = match placed {
            Some((rich, apart)) => (Some(rich), apart),
            None => (None, None),
        };
        let was_apart = inode.has_list_apart();
        inode.rich = rich;
        if was_apart || apart.is_some() {
            self.put_list_apart(inode.number, apart);
        }
    }
}

/// Gives an inode the mode and POSIX ACL that say the most without allowing anybody more. Of a list
/// that is too long for a POSIX ACL they say what its owner has, or nothing.
fn tell(inode: &mut Inode, list: &RichAcl) {
    let (permissions, access) = match list.posix_below(&target_of(inode)) {
        Err(_) => (0, None),
        Ok(below) => match &below.access {
            None => (below.mode, None),
            Some(access) => match Acl::decode(&access.to_xattr()) {
                Ok(access) => (below.mode, access),
                Err(_) => (below.alone(), None),
            },
        },
    };
    inode.mode = inode.mode & !0o777 | permissions;
    inode.access = access.map(Box::new);
    let default = list.default_told().filter(|_| inode.is_directory());
    let default = default.and_then(|default| Acl::decode(&default.to_xattr()).ok().flatten());
    inode.default = default.map(Box::new);
}
