//! Files whose truth is a rich ACL: who may do what with them through the export, what the kernel
//! says of the same files, and what lies beside them.

mod crashed;
mod decided;
mod heirs;
mod races;
mod stored;
mod switched;
mod views;

use crate::common::{LocalUser, Served, name};
use acl::{Ace, RichAcl, Rights, Target, UnixIds};
use base::{Access, AttributeChange, Attributes, FileKind, FsError, Handle, Node, Principal};
use export::OpenOptions;
use std::path::PathBuf;

/// Nobody writes edits down.
const NOTED: export::Note<'static> = &|_| Ok(());
const ALICE: u32 = 2001;
const BOB: u32 = 2002;
const CAROL: u32 = 2003;
const STAFF: u32 = 3001;
const AUDIT: u32 = 3002;

fn alice() -> Principal {
    Principal::new(ALICE, STAFF, vec![STAFF])
}

fn bob() -> Principal {
    Principal::new(BOB, 3012, vec![AUDIT, STAFF])
}

fn carol() -> Principal {
    Principal::alone(CAROL, 3013)
}

/// A served tree with rich ACLs on, and the users of the machine.
struct World {
    tree: Served,
    root: LocalUser,
    bob: LocalUser,
    carol: LocalUser,
}

impl World {
    fn new() -> Self {
        Self::at(Served::temporary)
    }

    fn at(tree: impl FnOnce() -> Served) -> Self {
        // Threads take after the one that starts them, so these start before it acts for anybody.
        let root = LocalUser::new(Principal::root());
        let (bob, carol) = (LocalUser::new(bob()), LocalUser::new(carol()));
        let tree = tree();
        tree.export.set_rich(true);
        Self {
            tree,
            root,
            bob,
            carol,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.tree.path.join(path)
    }

    /// Makes the file system of the tree one that cannot be written. What other tests start has
    /// this one's descriptors until it is another program, and what is open for writing is in the
    /// way.
    fn make_read_only(&self) {
        self.locally("timeout 20 sh -c 'until mount -o remount,ro $PWD; do sleep 0.1; done'");
    }

    /// Something that an administrator does in the tree without asking the server.
    fn locally(&self, script: &str) -> String {
        let (script, top) = (script.to_owned(), self.tree.path.clone());
        self.root.run(move || {
            let mut command = std::process::Command::new("sh");
            let output = command.args(["-ec", &script]).current_dir(top).output();
            let output = output.expect("there is a shell");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{script}: {errors}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }

    /// A file of Alice's and of staff.
    fn file(&self, path: &str, mode: &str) -> Node {
        self.locally(&format!(
            "printf text > {path}; chown {ALICE}:{STAFF} {path}; chmod {mode} {path}"
        ));
        self.tree.find(path)
    }

    fn directory(&self, path: &str, mode: &str) -> Node {
        self.locally(&format!(
            "mkdir {path}; chown {ALICE}:{STAFF} {path}; chmod {mode} {path}"
        ));
        self.tree.find(path)
    }

    fn set(&self, who: &Principal, node: &Node, entries: &[&str]) -> Result<Attributes, FsError> {
        let Served { export, worker, .. } = &self.tree;
        let value = value(&node.attributes, entries);
        let set = export.set_acl(worker, who, &node.handle, &value, NOTED);
        set.map(|(attributes, _)| attributes)
    }

    fn get(&self, who: &Principal, handle: &Handle) -> Result<Vec<String>, FsError> {
        let Served { export, worker, .. } = &self.tree;
        let value = export.get_xattr(worker, who, handle, b"system.nfs4_acl")?;
        let list = RichAcl::from_nfs4(&value, &UnixIds).expect("what the export says is a list");
        Ok(list
            .aces()
            .iter()
            .map(|ace| ace.to_text(&UnixIds))
            .collect())
    }

    fn open(&self, who: &Principal, handle: &Handle, access: Access) -> Result<(), FsError> {
        let Served { export, worker, .. } = &self.tree;
        let opened = export.open_file(worker, who, handle, OpenOptions::new(access));
        opened.map(drop)
    }

    fn remove(&self, who: &Principal, parent: &Handle, file: &str) -> Result<(), FsError> {
        let Served { export, worker, .. } = &self.tree;
        export.unlink(worker, who, parent, &name(file)).map(drop)
    }

    fn change(
        &self,
        who: &Principal,
        handle: &Handle,
        change: &AttributeChange,
    ) -> Result<Attributes, FsError> {
        let Served { export, worker, .. } = &self.tree;
        export.set_attributes(worker, who, handle, change, None)
    }

    fn attributes(&self, handle: &Handle) -> Attributes {
        let Served { export, worker, .. } = &self.tree;
        let attributes = export.attributes(worker, &Principal::root(), handle);
        attributes.expect("it is there")
    }
}

fn target(attributes: &Attributes) -> Target {
    Target {
        uid: attributes.uid,
        gid: attributes.gid,
        is_directory: attributes.kind == FileKind::Directory,
    }
}

fn list(attributes: &Attributes, entries: &[&str]) -> RichAcl {
    let is_directory = attributes.kind == FileKind::Directory;
    let ace = |text: &&str| Ace::from_text(text, is_directory, &UnixIds).expect("an entry");
    RichAcl::new(entries.iter().map(ace).collect()).expect("a list")
}

fn value(attributes: &Attributes, entries: &[&str]) -> Vec<u8> {
    let list = list(attributes, entries);
    list.to_nfs4(&target(attributes), &UnixIds).expect("small")
}

const DENIED: Result<(), FsError> = Err(FsError::AccessDenied);
/// All that an open for writing takes.
const WRITING: Rights = Rights::WRITE_DATA.or(Rights::APPEND_DATA);
