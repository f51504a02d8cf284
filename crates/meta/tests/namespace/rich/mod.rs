//! Files whose truth is a rich ACL: what decides, what is stored and where, what is said of it, and
//! what is left of an edit that failed.
//!
//! | file | what it holds |
//! |---|---|
//! | `decided` | random lists decide as `acl` says, and what is told of them allows nobody more |
//! | `operations` | rights that no mode knows; heirs; owners; appending |
//! | `stored` | random edits beside a model, read again and again; large lists; lost transactions |

mod decided;
mod operations;
mod stored;

use crate::world::{World, name};
use acl::{Ace, Edit, Origin, RichAcl, Target, UnixIds};
use base::{Attributes, FileKind, FsError, Handle, Node, Principal};
use meta::namespace::{Access, OpenOptions, Turn};

pub(crate) const ALICE: u32 = 2001;
pub(crate) const BOB: u32 = 2002;
pub(crate) const CAROL: u32 = 2003;
pub(crate) const STAFF: u32 = 3001;
pub(crate) const AUDIT: u32 = 3002;
pub(crate) const DENIED: Result<(), FsError> = Err(FsError::AccessDenied);
pub(crate) const REFUSED: Result<(), FsError> = Err(FsError::NotPermitted);

pub(crate) fn alice() -> Principal {
    Principal::new(ALICE, STAFF, Vec::new())
}

pub(crate) fn bob() -> Principal {
    Principal::new(BOB, STAFF, Vec::new())
}

pub(crate) fn carol() -> Principal {
    Principal::new(CAROL, CAROL, vec![AUDIT])
}

pub(crate) fn list(entries: &[&str]) -> RichAcl {
    let aces = entries
        .iter()
        .map(|entry| Ace::from_text(entry, false, &UnixIds).unwrap());
    RichAcl::new(aces.collect()).unwrap()
}

pub(crate) fn target(attributes: &Attributes) -> Target {
    Target {
        uid: attributes.uid,
        gid: attributes.gid,
        is_directory: attributes.kind == FileKind::Directory,
    }
}

/// An edit in a few words.
pub(crate) fn words(edit: &Edit) -> String {
    let word = |origin| match origin {
        Origin::Posix => "posix",
        Origin::Rich => "rich",
    };
    format!("{} {}>{}", edit.path, word(edit.before), word(edit.after))
}

/// A namespace with rich ACLs on.
pub(crate) fn rich(world: World) -> World {
    world.namespace.set_rich(true);
    world
}

impl World {
    pub(crate) fn made(&self, who: &Principal, parent: &Handle, file: &str, mode: u16) -> Node {
        let made = self.durably(|namespace, turn| {
            let kind = FileKind::File;
            namespace.make_node(turn, who, parent, &name(file), kind, mode, 0, 0)
        });
        made.unwrap()
    }

    pub(crate) fn made_directory(&self, who: &Principal, directory: &str, mode: u16) -> Node {
        let made = self.durably(|namespace, turn| {
            namespace.make_directory(turn, who, &self.top(), &name(directory), mode, 0)
        });
        made.unwrap()
    }

    /// A top directory in which everybody may make files.
    pub(crate) fn open_top(&self) {
        let change = base::AttributeChange {
            mode: Some(0o777),
            ..base::AttributeChange::default()
        };
        let top = self.top();
        let opened = self.durably(|namespace, turn| {
            namespace.set_attributes(turn, &Principal::root(), &top, &change, None)
        });
        opened.unwrap();
    }

    pub(crate) fn set_list(
        &self,
        who: &Principal,
        handle: &Handle,
        list: &RichAcl,
    ) -> Result<Attributes, FsError> {
        self.durably(|namespace, turn| namespace.set_acl(turn, who, handle, list, &words))
    }

    pub(crate) fn set(
        &self,
        who: &Principal,
        handle: &Handle,
        entries: &[&str],
    ) -> Result<(), FsError> {
        self.set_list(who, handle, &list(entries)).map(drop)
    }

    pub(crate) fn go_back(&self, who: &Principal, handle: &Handle) -> Result<(), FsError> {
        self.durably(|namespace, turn| namespace.remove_acl(turn, who, handle, &words).map(drop))
    }

    pub(crate) fn xattr(
        &self,
        who: &Principal,
        handle: &Handle,
        name: &str,
    ) -> Result<Vec<u8>, FsError> {
        self.durably(|namespace, turn| namespace.get_xattr(turn, who, handle, name.as_bytes()))
    }

    /// What clients are shown.
    pub(crate) fn shown(&self, handle: &Handle) -> Result<Vec<u8>, FsError> {
        self.xattr(&Principal::root(), handle, "system.nfs4_acl")
    }

    pub(crate) fn open(
        &self,
        who: &Principal,
        handle: &Handle,
        access: Access,
        append: bool,
    ) -> Result<(), FsError> {
        let options = OpenOptions {
            append,
            ..OpenOptions::new(access)
        };
        let opened = self.namespace.open_file(&Turn::new(), who, handle, options);
        opened.map(drop)
    }

    pub(crate) fn attributes(&self, handle: &Handle) -> Attributes {
        let root = Principal::root();
        let found = self.namespace.attributes(&Turn::new(), &root, handle);
        found.unwrap()
    }

    pub(crate) fn remove(&self, who: &Principal, at: &Handle, file: &str) -> Result<(), FsError> {
        self.durably(|namespace, turn| namespace.unlink(turn, who, at, &name(file)).map(drop))
    }
}
