//! Extended attributes on their way from one tree to another, ACLs above all.
//!
//! With `--acls` a copy has the source's truth, where the target can have it:
//!
//! | the truth at the source | the target | gets |
//! |---|---|---|
//! | mode and POSIX ACL | anything | these; a rich ACL that it has inherited goes |
//! | a rich ACL | takes rich ACLs | the rich ACL |
//! | a rich ACL | takes none | the mode and POSIX ACL that the source shows |
//!
//! In the last case nobody is allowed more than at the source, because what a file with a rich ACL
//! shows in POSIX's words is the most that these can say without that. What gets lost is told file
//! by file, and counted; it is no failure, for the copy is as good as its file system lets it be.

use super::{ACLS, Meta, Xattr};
use acl::{AceFlags, PosixAcl, PosixFile, RichAcl, Target, Truth, UnixIds, changes};
use base::FileKind;

/// A rich ACL; listed where it is the truth.
pub(super) const NFS4: &[u8] = b"system.nfs4_acl";
/// Principals that are named in a note.
const NAMED_MAX: usize = 3;

/// Attributes that are to be kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) xattrs: Vec<Xattr>,
    /// Whether the target is to have the source's truth about rights.
    pub(crate) acls: bool,
}

impl Kept {
    fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.xattrs.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }

    /// Whether the source's truth is a rich ACL.
    pub(super) fn is_rich(&self) -> bool {
        self.rich().is_some()
    }

    pub(super) fn rich(&self) -> Option<&[u8]> {
        self.value(NFS4)
    }

    /// All but the rich ACL; without POSIX ACLs if the target has taken that.
    pub(super) fn others(&self, has_rich: bool) -> impl Iterator<Item = &Xattr> {
        self.xattrs.iter().filter(move |(name, _)| {
            let name = name.as_slice();
            name != NFS4 && !(has_rich && ACLS.contains(&name))
        })
    }

    /// What the target has to lose before it gets these: nothing if it has no rich ACL.
    pub(super) fn in_the_way<'a>(
        &self,
        names: impl Iterator<Item = &'a [u8]>,
    ) -> Vec<&'static [u8]> {
        let mut names = names;
        if !self.acls || self.rich().is_some() || !names.any(|name| name == NFS4) {
            return Vec::new();
        }
        let posix = ACLS.into_iter().filter(|name| self.value(name).is_none());
        [NFS4].into_iter().chain(posix).collect()
    }

    /// What a target loses that takes no rich ACLs, in words.
    pub(crate) fn lost(&self, meta: &Meta) -> String {
        let list = self
            .rich()
            .and_then(|v| RichAcl::from_nfs4(v, &UnixIds).ok());
        let access = self.value(ACLS[0]);
        let access = access.and_then(|value| PosixAcl::from_xattr(value).ok().flatten());
        let Some(list) = list else {
            return "its ACL cannot be read".to_owned();
        };
        let target = Target {
            uid: meta.uid,
            gid: meta.gid,
            is_directory: meta.kind == FileKind::Directory,
        };
        let file = PosixFile {
            uid: meta.uid,
            gid: meta.gid,
            mode: meta.mode & 0o777,
            access: access.as_ref(),
        };
        let told = changes(&Truth::Rich(&list), &Truth::Posix(file), &target);
        let losers = told.iter().filter(|change| !change.lost.is_empty());
        let words = losers.clone().take(NAMED_MAX).map(|change| {
            let (name, is_group) = change.who.to_text(&UnixIds);
            let kind = if is_group && !name.ends_with('@') {
                "group "
            } else {
                ""
            };
            format!("{kind}{name} -{}", change.lost)
        });
        let words: Vec<String> = words.collect();
        let more = losers.count().saturating_sub(NAMED_MAX);
        let heirs = list.aces().iter().any(|ace| {
            ace.flags.contains(AceFlags::FILE_INHERIT)
                || ace.flags.contains(AceFlags::DIRECTORY_INHERIT)
        });
        let mut text = match words.is_empty() {
            true => "nobody loses a right".to_owned(),
            false => words.join(", "),
        };
        if more > 0 {
            text.push_str(&format!(" and {more} more"));
        }
        if heirs && target.is_directory {
            text.push_str("; what is inherited from it is lost as well");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acl::{Ace, Rights, Who};
    use base::Timestamp;

    fn meta() -> Meta {
        let time = Timestamp {
            seconds: 0,
            nanos: 0,
        };
        Meta {
            kind: FileKind::File,
            mode: 0o600,
            uid: 1,
            gid: 2,
            size: 0,
            stored: 0,
            links: 1,
            accessed: time,
            modified: time,
            changed: time,
            identity: (0, 1),
        }
    }

    fn kept(xattrs: &[(&[u8], &[u8])]) -> Kept {
        let xattrs = xattrs
            .iter()
            .map(|(name, value)| (name.to_vec(), value.to_vec()));
        Kept {
            xattrs: xattrs.collect(),
            acls: true,
        }
    }

    #[test]
    fn what_a_posix_acl_cannot_say_is_told() {
        let owner = Rights::READ_DATA | Rights::WRITE_DATA | Rights::APPEND_DATA;
        let list = RichAcl::new(vec![
            Ace::allow(Who::Owner, owner),
            Ace::allow(Who::User(7), Rights::DELETE),
        ]);
        let target = Target {
            uid: 1,
            gid: 2,
            is_directory: false,
        };
        let value = list.expect("short").to_nfs4(&target, &UnixIds);
        let text = kept(&[(NFS4, &value.expect("small"))]).lost(&meta());
        assert!(text.contains("7 -d"), "{text}");
        let text = kept(&[(NFS4, b"?")]).lost(&meta());
        assert!(text.contains("cannot be read"), "{text}");
    }

    #[test]
    fn an_inherited_rich_acl_gives_way_to_the_sources_posix_acl() {
        let posix = kept(&[(ACLS[0], b"x"), (b"user.a", b"y")]);
        let at_target = [NFS4, b"user.b"];
        let gone = posix.in_the_way(at_target.into_iter());
        assert_eq!(gone, [NFS4, ACLS[1]]);
        assert!(posix.in_the_way([&b"user.b"[..]].into_iter()).is_empty());
        let rich = kept(&[(NFS4, b"x"), (ACLS[0], b"y")]);
        assert!(rich.in_the_way(at_target.into_iter()).is_empty());
        assert_eq!(rich.others(true).count(), 0);
        assert_eq!(rich.others(false).count(), 1);
        let without = Kept {
            acls: false,
            ..posix
        };
        assert!(without.in_the_way(at_target.into_iter()).is_empty());
    }
}
