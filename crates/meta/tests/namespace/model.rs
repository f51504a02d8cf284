//! A naive tree in memory beside the namespace: random histories of several users, with memory for
//! a handful of inodes, so that everything is read again and again, and with restarts in between.
//!
//! The model has no counters: links are counted, names are looked for, a way up is searched.

use crate::history::{Op, Outcome, Random, sorted, users};
use crate::judged::in_namespace;
use crate::world::{World, list, options, root, runtime};
use base::{AttributeChange, FileKind, FsError, Handle, Name, Principal};
use meta::namespace::{NamespaceOptions, RenameMode, Turn};
use meta::{Embedded, Engine};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const HISTORIES: u64 = 6;
const OPERATIONS: usize = 250;

#[derive(Clone, Debug)]
struct Inode {
    kind: FileKind,
    mode: u16,
    uid: u32,
    gid: u32,
    size: u64,
    names: BTreeMap<Name, usize>,
}

/// Inodes by number; those without a name are forgotten by nobody looking for them.
struct Model(Vec<Inode>);

type Answer<T> = Result<T, FsError>;

impl Model {
    fn new() -> Self {
        Self(vec![Inode {
            kind: FileKind::Directory,
            mode: 0o777,
            uid: 0,
            gid: 0,
            size: 0,
            names: BTreeMap::new(),
        }])
    }

    fn parents(&self, inode: usize) -> impl Iterator<Item = usize> + '_ {
        let all = self.0.iter().enumerate();
        all.filter(move |(_, at)| at.names.values().any(|child| *child == inode))
            .map(|(number, _)| number)
    }

    fn links(&self, inode: usize) -> u32 {
        let is_directory = |number: &usize| self.0[*number].kind == FileKind::Directory;
        let names = self.0.iter().flat_map(|at| at.names.values());
        match is_directory(&inode) {
            true => {
                let below = self.0[inode]
                    .names
                    .values()
                    .filter(|child| is_directory(child));
                2 + u32::try_from(below.count()).unwrap()
            }
            false => u32::try_from(names.filter(|child| **child == inode).count()).unwrap(),
        }
    }

    fn is_below(&self, mut inode: usize, top: usize) -> bool {
        while inode != top {
            match self.parents(inode).next() {
                Some(parent) => inode = parent,
                None => return false,
            }
        }
        true
    }

    fn may(&self, inode: usize, who: &Principal, wanted: u16) -> Answer<()> {
        let Inode {
            mode,
            uid,
            gid,
            kind,
            ..
        } = &self.0[inode];
        let bits = match who.uid {
            0 if wanted & 1 == 0 || *kind == FileKind::Directory || mode & 0o111 != 0 => 7,
            same if same == *uid => mode >> 6,
            _ if who.is_member(*gid) => mode >> 3,
            _ => *mode,
        };
        match bits & wanted == wanted {
            true => Ok(()),
            false => Err(FsError::AccessDenied),
        }
    }

    fn enter(&self, at: usize, who: &Principal) -> Answer<()> {
        match self.0[at].kind {
            FileKind::Directory => self.may(at, who, 1),
            _ => Err(FsError::NotDirectory),
        }
    }

    fn child(&self, at: usize, name: &Name) -> Answer<usize> {
        self.0[at].names.get(name).copied().ok_or(FsError::NotFound)
    }

    fn make(&mut self, at: usize, name: &Name, who: &Principal, new: Inode) -> Answer<()> {
        self.enter(at, who)?;
        if self.child(at, name).is_ok() {
            return Err(FsError::Exists);
        }
        self.may(at, who, 3)?;
        let number = self.0.len();
        let parent = &mut self.0[at];
        parent.names.insert(name.clone(), number);
        let (sets_gid, gid) = (parent.mode & 0o2000 != 0, parent.gid);
        let mut new = new;
        new.uid = who.uid;
        new.gid = if sets_gid { gid } else { who.gid };
        if new.kind == FileKind::Directory {
            new.mode = new.mode & 0o1777 | if sets_gid { 0o2000 } else { 0 };
        } else if sets_gid && new.mode & 0o2010 == 0o2010 && who.uid != 0 && !who.is_member(gid) {
            new.mode &= !0o2000;
        }
        self.0.push(new);
        Ok(())
    }

    fn may_remove(&self, at: usize, victim: usize, who: &Principal, dir: bool) -> Answer<()> {
        self.may(at, who, 3)?;
        let owners = [0, self.0[at].uid, self.0[victim].uid];
        if self.0[at].mode & 0o1000 != 0 && !owners.contains(&who.uid) {
            return Err(FsError::NotPermitted);
        }
        match (dir, self.0[victim].kind == FileKind::Directory) {
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, at: usize, name: &Name, who: &Principal, dir: bool) -> Answer<()> {
        self.enter(at, who)?;
        let victim = self.child(at, name)?;
        self.may_remove(at, victim, who, dir)?;
        if !self.0[victim].names.is_empty() {
            return Err(FsError::NotEmpty);
        }
        self.0[at].names.remove(name);
        Ok(())
    }

    fn link(&mut self, node: usize, at: usize, name: &Name, who: &Principal) -> Answer<()> {
        self.enter(at, who)?;
        if self.child(at, name).is_ok() {
            return Err(FsError::Exists);
        }
        let source = &self.0[node];
        let is_safe = source.kind == FileKind::File
            && source.mode & 0o4000 == 0
            && source.mode & 0o2010 != 0o2010
            && self.may(node, who, 6).is_ok();
        if who.uid != 0 && who.uid != source.uid && !is_safe {
            return Err(FsError::NotPermitted);
        }
        self.may(at, who, 3)?;
        if self.0[node].kind == FileKind::Directory {
            return Err(FsError::NotPermitted);
        }
        self.0[at].names.insert(name.clone(), node);
        Ok(())
    }

    fn rename(
        &mut self,
        (at, name): (usize, &Name),
        (to, to_name): (usize, &Name),
        mode: RenameMode,
        who: &Principal,
    ) -> Answer<()> {
        self.enter(at, who)?;
        self.enter(to, who)?;
        let moved = self.child(at, name)?;
        let there = self.child(to, to_name).ok();
        let exchanges = mode == RenameMode::Exchange;
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => return Err(FsError::Exists),
            (RenameMode::Exchange, None) => return Err(FsError::NotFound),
            _ => {}
        }
        if self.is_below(to, moved) {
            return Err(FsError::Invalid);
        }
        if let Some(there) = there
            && at != to
            && self.is_below(at, there)
        {
            return Err(if exchanges {
                FsError::Invalid
            } else {
                FsError::NotEmpty
            });
        }
        if there == Some(moved) {
            return Ok(());
        }
        let is_directory = |number: usize| self.0[number].kind == FileKind::Directory;
        self.may_remove(at, moved, who, is_directory(moved))?;
        match there {
            None => self.may(to, who, 3)?,
            Some(there) => {
                let as_directory = is_directory(if exchanges { there } else { moved });
                self.may_remove(to, there, who, as_directory)?;
            }
        }
        let others = there.filter(|_| exchanges);
        for inode in [Some(moved), others].into_iter().flatten() {
            if at != to && is_directory(inode) {
                self.may(inode, who, 2)?;
            }
        }
        if there.is_some_and(|there| !exchanges && !self.0[there].names.is_empty()) {
            return Err(FsError::NotEmpty);
        }
        self.0[at].names.remove(name);
        self.0[to].names.insert(to_name.clone(), moved);
        if let Some(other) = others {
            self.0[at].names.insert(name.clone(), other);
        }
        Ok(())
    }

    fn set(&mut self, node: usize, change: &AttributeChange, who: &Principal) -> Answer<()> {
        let owns = who.uid == self.0[node].uid;
        if let Some(size) = change.size {
            match self.0[node].kind {
                FileKind::File => self.may(node, who, 2)?,
                FileKind::Directory => return Err(FsError::IsDirectory),
                _ => return Err(FsError::Invalid),
            }
            self.0[node].size = size;
            if who.uid != 0 {
                self.drop_bits(node, who);
            }
        }
        let inode = &self.0[node];
        if change.uid.is_some() || change.gid.is_some() {
            let keeps = change.uid.is_none_or(|uid| owns && uid == inode.uid);
            let knows = |gid| owns && (gid == inode.gid || who.is_member(gid));
            if who.uid != 0 && !(keeps && change.gid.is_none_or(knows)) {
                return Err(FsError::NotPermitted);
            }
            if inode.kind != FileKind::Directory {
                self.drop_bits(node, who);
            }
            let inode = &mut self.0[node];
            inode.uid = change.uid.unwrap_or(inode.uid);
            inode.gid = change.gid.unwrap_or(inode.gid);
        }
        if let Some(mode) = change.mode {
            let inode = &mut self.0[node];
            if inode.kind == FileKind::Symlink {
                return Err(FsError::NotSupported);
            }
            if who.uid != 0 && !owns {
                return Err(FsError::NotPermitted);
            }
            let keeps = who.uid == 0 || who.is_member(inode.gid);
            inode.mode = mode & if keeps { 0o7777 } else { 0o5777 };
        }
        Ok(())
    }

    fn drop_bits(&mut self, node: usize, who: &Principal) {
        let inode = &mut self.0[node];
        inode.mode &= !0o4000;
        let is_member = who.uid == 0 || who.is_member(inode.gid);
        if inode.mode & 0o010 != 0 || !is_member {
            inode.mode &= !0o2000;
        }
    }

    fn carry_out(&mut self, op: &Op, who: &Principal) -> Outcome {
        let new = |kind, mode, size| Inode {
            kind,
            mode,
            uid: 0,
            gid: 0,
            size,
            names: BTreeMap::new(),
        };
        let done = |answer: Answer<()>| answer.map(|()| String::new());
        match op {
            Op::Lookup(at, name) => done(
                self.enter(*at, who)
                    .and_then(|()| self.child(*at, name).map(drop)),
            ),
            Op::Create(at, name, mode, umask) => {
                // The set-group-ID bit is judged before the umask.
                let made = self.make(*at, name, who, new(FileKind::File, *mode, 0));
                self.mask_last(made.is_ok(), *umask);
                done(made)
            }
            Op::MakeDirectory(at, name, mode, umask) => {
                let made = self.make(*at, name, who, new(FileKind::Directory, *mode, 0));
                self.mask_last(made.is_ok(), *umask);
                done(made)
            }
            Op::Symlink(_, _, b"") => Err(FsError::NotFound),
            Op::Symlink(at, name, target) => {
                let link = new(FileKind::Symlink, 0o777, target.len() as u64);
                done(self.make(*at, name, who, link))
            }
            Op::Link(node, at, name) => done(self.link(*node, *at, name, who)),
            Op::Unlink(at, name) => done(self.remove(*at, name, who, false)),
            Op::RemoveDirectory(at, name) => done(self.remove(*at, name, who, true)),
            Op::Rename(at, name, to, to_name, mode) => {
                done(self.rename((*at, name), (*to, to_name), *mode, who))
            }
            Op::Set(node, change) => done(self.set(*node, change, who)),
            Op::Access(node, wanted) => done(self.may(*node, who, (*wanted).into())),
            Op::List(at) => {
                if self.0[*at].kind != FileKind::Directory {
                    return Err(FsError::NotDirectory);
                }
                self.may(*at, who, 4)?;
                Ok(sorted(
                    self.0[*at]
                        .names
                        .keys()
                        .map(|name| name.as_bytes().to_vec()),
                ))
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn mask_last(&mut self, is_made: bool, umask: u16) {
        if let Some(last) = self.0.last_mut().filter(|_| is_made) {
            last.mode &= !umask;
        }
    }
}

/// Whether the model knows what this does.
fn is_modelled(op: &Op) -> bool {
    match op {
        Op::Set(_, change) => change.accessed.is_none() && change.modified.is_none(),
        Op::MakeNode(..) | Op::Open(..) | Op::ReadLink(_) => false,
        Op::SetXattr(..) | Op::SetAcl(..) | Op::GetXattr(..) => false,
        Op::ListXattrs(_) | Op::RemoveXattr(..) => false,
        _ => true,
    }
}

/// A namespace with hardly any memory.
fn open(path: &Path) -> World {
    let runtime = runtime();
    let engine: Arc<dyn Engine> = runtime.block_on(Embedded::open(path)).unwrap();
    let options = NamespaceOptions {
        cache_entries_max: 40,
        ..options()
    };
    World::on(runtime, engine, options)
}

/// Goes through both trees: the model's numbers and the handles of what is there.
fn walk(world: &World, model: &Model) -> (Vec<usize>, Vec<Handle>, Vec<usize>) {
    let (mut numbers, mut handles, mut directories) = (vec![0], vec![world.top()], Vec::new());
    let mut next = 0;
    while next < numbers.len() {
        let (inode, handle) = (&model.0[numbers[next]], handles[next].clone());
        let attributes = world
            .durably(|namespace, turn| namespace.attributes(turn, &root(), &handle))
            .unwrap();
        let is_directory = inode.kind == FileKind::Directory;
        let shown = (
            attributes.kind,
            attributes.mode,
            attributes.uid,
            attributes.gid,
        );
        assert_eq!(shown, (inode.kind, inode.mode, inode.uid, inode.gid));
        assert_eq!(attributes.links, model.links(numbers[next]), "{inode:?}");
        assert!(is_directory || attributes.size == inode.size);
        if is_directory {
            directories.push(next);
            let entries = world.durably(|namespace, turn| list(namespace, turn, &root(), &handle));
            let entries = entries.unwrap();
            assert_eq!(entries.len(), inode.names.len());
            for entry in entries {
                numbers.push(inode.names[&entry.name]);
                handles.push(entry.node.unwrap().handle);
            }
        }
        next += 1;
    }
    (numbers, handles, directories)
}

/// The same operation with the model's numbers.
fn renumbered(op: &Op, numbers: &[usize]) -> Op {
    let mut op = op.clone();
    match &mut op {
        Op::Lookup(at, _)
        | Op::Create(at, ..)
        | Op::MakeDirectory(at, ..)
        | Op::Symlink(at, ..)
        | Op::Unlink(at, _)
        | Op::RemoveDirectory(at, _)
        | Op::Set(at, _)
        | Op::Access(at, _)
        | Op::List(at) => *at = numbers[*at],
        Op::Link(one, other, _) | Op::Rename(one, _, other, ..) => {
            (*one, *other) = (numbers[*one], numbers[*other]);
        }
        other => unreachable!("{other:?}"),
    }
    op
}

#[test]
fn random_histories_are_those_of_a_naive_tree() {
    let users = users();
    let (mut all, mut refused) = (0, 0);
    for history in 0..HISTORIES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("meta");
        let mut world = open(&path);
        let mut model = Model::new();
        let change = AttributeChange {
            mode: Some(0o777),
            ..Default::default()
        };
        let (turn, top) = (Turn::new(), world.top());
        world
            .namespace
            .set_attributes(&turn, &root(), &top, &change, None)
            .unwrap();
        let mut random = Random::new(1000 + history);
        for index in 0..OPERATIONS {
            let (numbers, handles, directories) = walk(&world, &model);
            let op = Op::random(&mut random, numbers.len(), &directories);
            let who = &users[random.below(2 * users.len()).saturating_sub(users.len())];
            if !is_modelled(&op) {
                continue;
            }
            let turn = Turn::new();
            let ours = in_namespace(&op, &world.namespace, &turn, who, &handles);
            world.namespace.wait_here(&turn).unwrap();
            let theirs = model.carry_out(&renumbered(&op, &numbers), who);
            assert_eq!(
                ours, theirs,
                "history {history}, {index}: {op:?} by {who:?}"
            );
            all += 1;
            refused += usize::from(ours.is_err());
            if random.below(60) == 0 {
                world.checked();
                world.close();
                world = open(&path);
            }
        }
        world.checked();
        world.close();
    }
    println!("{all} operations, {refused} refused");
    assert!(
        refused * 5 > all && refused * 10 < all * 9,
        "{refused} of {all} refused"
    );
}
