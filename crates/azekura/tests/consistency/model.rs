//! One directory as it should be: what the volume is, and what each machine still has for itself.
//!
//! Names and attributes are the same for all (C1, C3). Written data is seen on the writer's machine
//! from the `write` on (C2), elsewhere from some moment before the `close` returns (C1).

use crate::history::{Action, Attributes, CLIENTS, Id, NAMES, Slot, Text};
use std::collections::BTreeMap;

/// An inode, named after the operation that made it.
pub(crate) type Inode = Id;

/// A write that only its own machine sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Local {
    writer: Id,
    append: bool,
    text: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct File {
    mode: u16,
    links: u8,
    xattr: Option<u8>,
    bytes: Vec<u8>,
    local: [Vec<Local>; CLIENTS],
}

fn write(bytes: &mut Vec<u8>, append: bool, text: &Text) {
    if append {
        bytes.extend_from_slice(text);
    } else {
        let rest = bytes.split_off(bytes.len().min(text.len()));
        bytes.clear();
        bytes.extend_from_slice(text);
        bytes.extend(rest);
    }
}

impl File {
    pub(crate) fn attributes(&self, client: usize) -> Attributes {
        Attributes {
            mode: self.mode,
            links: self.links,
            size: self.bytes(client).len(),
        }
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.links == 0
    }

    pub(crate) fn is_nearly_removed(&self) -> bool {
        self.links <= 1
    }

    pub(crate) fn xattr(&self) -> Option<u8> {
        self.xattr
    }

    /// Contents as a machine sees them.
    pub(crate) fn bytes(&self, client: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for local in &self.local[client] {
            write(&mut bytes, local.append, &local.text);
        }
        bytes
    }

    /// Whether a machine has an append under way: where it lands is for the server to say, and the
    /// machine shows it where it would have landed if nobody else changed the file.
    pub(crate) fn is_appending(&self, client: usize) -> bool {
        self.local[client].iter().any(|local| local.append)
    }
}

/// A name or a file as it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Name(Slot, Option<Inode>),
    File(Inode, File),
}

impl Part {
    /// Whether both are states of the same thing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(a, _), Self::Name(b, _)) => a == b,
            (Self::File(a, _), Self::File(b, _)) => a == b,
            _ => false,
        }
    }
}

/// The directory and its files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tree {
    names: [Option<Inode>; NAMES],
    files: BTreeMap<Inode, File>,
}

impl Tree {
    pub(crate) fn name(&self, name: Slot) -> Option<Inode> {
        self.names[name]
    }

    pub(crate) fn file(&self, inode: Inode) -> &File {
        &self.files[&inode]
    }

    /// What is otherwise in this state than in a later one, as it is here.
    pub(crate) fn changed_until(&self, later: &Self) -> Vec<Part> {
        let names = (0..NAMES).filter(|name| self.names[*name] != later.names[*name]);
        let names = names.map(|name| Part::Name(name, self.names[name]));
        let files = self.files.iter().filter(|(inode, file)| {
            let later = later.files.get(inode);
            later.is_some_and(|later| later != *file)
        });
        let files = files.map(|(inode, file)| Part::File(*inode, file.clone()));
        names.chain(files).collect()
    }

    /// Carries out a change of names, if it is possible in this state.
    pub(crate) fn change_names(&self, id: Id, action: &Action) -> Option<Self> {
        use crate::history::Renaming;
        let mut tree = self.clone();
        match *action {
            Action::Create { name, mode } => {
                if tree.names[name].is_some() {
                    return None;
                }
                tree.names[name] = Some(id);
                let file = File {
                    mode,
                    links: 1,
                    ..File::default()
                };
                tree.files.insert(id, file);
            }
            Action::Unlink { name } => {
                let inode = tree.names[name].take()?;
                tree.drop_link(inode);
            }
            Action::Rename { from, to, renaming } => {
                let moved = tree.names[from]?;
                let there = tree.names[to];
                match (renaming, there) {
                    (Renaming::Exchange, None) | (Renaming::NoReplace, Some(_)) => return None,
                    (Renaming::Exchange, Some(_)) => tree.names.swap(from, to),
                    // Two names of one file: nothing happens, POSIX says.
                    (_, Some(other)) if other == moved => {}
                    (_, other) => {
                        tree.names[to] = tree.names[from].take();
                        if let Some(other) = other {
                            tree.drop_link(other);
                        }
                    }
                }
            }
            _ => unreachable!("not a change of names: {action:?}"),
        }
        Some(tree)
    }

    fn drop_link(&mut self, inode: Inode) {
        self.files
            .get_mut(&inode)
            .expect("names lead to files")
            .links -= 1;
    }

    /// Carries out a change of one inode, if it is possible in this state.
    pub(crate) fn change_inode(&self, inode: Inode, action: &Action) -> Option<Self> {
        let mut tree = self.clone();
        let file = tree.files.get_mut(&inode).expect("inodes stay");
        match *action {
            Action::Link { to, .. } => {
                if tree.names[to].is_some() || file.links == 0 {
                    return None;
                }
                file.links += 1;
                tree.names[to] = Some(inode);
            }
            Action::Chmod { mode, .. } => file.mode = mode,
            Action::Truncate { size, .. } => file.bytes.resize(size, 0),
            Action::SetXattr { value, .. } => file.xattr = Some(value),
            Action::Overwrite { empty, .. } => {
                if empty {
                    file.bytes.clear();
                }
            }
            Action::Append { .. } => {}
            _ => unreachable!("not a change of an inode: {action:?}"),
        }
        Some(tree)
    }

    /// The writer's machine sees a write.
    pub(crate) fn write_here(&self, client: usize, inode: Inode, id: Id, action: &Action) -> Self {
        let (append, text) = match *action {
            Action::Overwrite { text, .. } => (false, text),
            Action::Append { text, .. } => (true, text),
            _ => unreachable!("not a write: {action:?}"),
        };
        let mut tree = self.clone();
        let file = tree.files.get_mut(&inode).expect("inodes stay");
        file.local[client].push(Local {
            writer: id,
            append,
            text,
        });
        tree
    }

    /// Everybody sees a write.
    pub(crate) fn write_there(&self, client: usize, inode: Inode, id: Id) -> Self {
        let mut tree = self.clone();
        let file = tree.files.get_mut(&inode).expect("inodes stay");
        let locals = &mut file.local[client];
        let at = locals.iter().position(|local| local.writer == id);
        let local = locals.remove(at.expect("it was written here before"));
        write(&mut file.bytes, local.append, &local.text);
        tree
    }

    /// Forgets files that no name and none of `used` leads to.
    pub(crate) fn forget_unused(&mut self, used: impl Fn(Inode) -> bool) {
        self.files
            .retain(|inode, file| file.links > 0 || used(*inode));
    }
}
