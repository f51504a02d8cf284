//! What became of steps that were interrupted: the tree is asked.
//!
//! | step | it ran if | it did not if |
//! |---|---|---|
//! | make | it is there, of the kind, the owner's or by root, not older than the intent | else |
//! | link | the name is the inode's, whose time of change is not before the intent | it is not |
//! | remove | the name is not the victim's any more | it is |
//! | rename | the new name is the inode's and the old one is not | the old name still is |
//! | append | the file has grown by at most so much | it has not grown |
//!
//! Everything else is unknown: a directory that is gone, a volume that cannot be served, two
//! interrupted steps about one name or one file.

use super::record::{Act, Done, Intent, State};
use crate::volume::{Volume, Volumes};
use base::{FsError, Handle, Name, Principal, Timestamp};
use export::{Node, Worker};
use std::collections::HashMap;
use std::sync::Arc;

/// Verdicts on interrupted steps, in order.
pub(super) fn resolve(intents: &[Intent], volumes: &Volumes) -> Vec<State> {
    // A thread of its own, because a worker's identity stays with its thread.
    std::thread::scope(|scope| {
        let judging = scope.spawn(|| match Worker::new() {
            Ok(worker) => judge_all(intents, volumes, &worker),
            Err(error) => {
                tracing::error!(%error, "cannot look what became of interrupted requests");
                vec![State::Unknown; intents.len()]
            }
        });
        judging
            .join()
            .unwrap_or_else(|_| vec![State::Unknown; intents.len()])
    })
}

/// Whether files are as long as they should be; what cannot be told counts as such.
pub(super) fn reach(ends: &[(Handle, u64)], volumes: &Volumes) -> Vec<bool> {
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let worker = Worker::new().ok()?;
            let mut sizes: HashMap<&Handle, Option<u64>> = HashMap::new();
            let size = |file: &Handle| {
                let (volume, inner) = volumes.by_handle(file).ok()?;
                let root = Principal::root();
                let found = volume.tree.export()?.attributes(&worker, &root, &inner);
                found.ok().map(|attributes| attributes.size)
            };
            let mut is_there = Vec::with_capacity(ends.len());
            for (file, end) in ends {
                let size = *sizes.entry(file).or_insert_with(|| size(file));
                is_there.push(size.is_none_or(|size| size >= *end));
            }
            Some(is_there)
        });
        let looked = looking.join().ok().flatten();
        looked.unwrap_or_else(|| vec![true; ends.len()])
    })
}

fn judge_all(intents: &[Intent], volumes: &Volumes, worker: &Worker) -> Vec<State> {
    let mut touched: HashMap<(&Handle, Option<&Name>), usize> = HashMap::new();
    for place in intents.iter().flat_map(places) {
        *touched.entry(place).or_default() += 1;
    }
    let judge = |intent: &Intent| {
        if places(intent).iter().any(|place| touched[place] > 1) {
            return State::Unknown;
        }
        let tree = Tree { volumes, worker };
        tree.judge(intent).unwrap_or(State::Unknown)
    };
    intents.iter().map(judge).collect()
}

/// The names and files that a step concerns.
fn places(intent: &Intent) -> Vec<(&Handle, Option<&Name>)> {
    match &intent.act {
        Act::Make { parent, name, .. }
        | Act::Link { parent, name, .. }
        | Act::Remove { parent, name, .. } => vec![(parent, Some(name))],
        Act::Rename {
            parent,
            name,
            to_parent,
            to_name,
            ..
        } => {
            vec![(parent, Some(name)), (to_parent, Some(to_name))]
        }
        Act::Append { file, .. } => vec![(file, None)],
    }
}

struct Tree<'t> {
    volumes: &'t Volumes,
    worker: &'t Worker,
}

impl Tree<'_> {
    fn judge(&self, intent: &Intent) -> Result<State, FsError> {
        let since = intent.since;
        match &intent.act {
            Act::Make { .. } => self.judge_make(&intent.act, since),
            Act::Link {
                parent,
                name,
                target,
            } => Ok(match self.lookup(parent, name)? {
                Some((handle, node)) if handle == *target && node.attributes.changed >= since => {
                    State::Done(Done::inode(handle))
                }
                _ => State::NotDone,
            }),
            Act::Remove {
                parent,
                name,
                victim,
            } => {
                let Some(victim) = victim else {
                    return Ok(State::NotDone);
                };
                Ok(match self.lookup(parent, name)? {
                    Some((handle, _)) if handle == *victim => State::NotDone,
                    _ => State::Done(Done::default()),
                })
            }
            Act::Rename { .. } => self.judge_rename(&intent.act),
            Act::Append { file, size, bytes } => self.judge_append(file, *size, *bytes),
        }
    }

    fn judge_make(&self, act: &Act, since: Timestamp) -> Result<State, FsError> {
        let Act::Make {
            parent,
            name,
            kind,
            uid,
            fills,
        } = act
        else {
            unreachable!("the caller matched it")
        };
        let Some((handle, node)) = self.lookup(parent, name)? else {
            return Ok(State::NotDone);
        };
        let found = node.attributes;
        let born = found.created.unwrap_or(found.changed);
        // Root may have given it away by the same step.
        let is_theirs = found.uid == *uid || *uid == 0;
        if found.kind != *kind || !is_theirs || born < since {
            return Ok(State::NotDone);
        }
        let unfilled = fills.then_some(found.changed);
        Ok(State::Done(Done {
            unfilled,
            ..Done::inode(handle)
        }))
    }

    fn judge_rename(&self, act: &Act) -> Result<State, FsError> {
        let Act::Rename {
            parent,
            name,
            to_parent,
            to_name,
            exchange,
            moved,
            replaced,
        } = act
        else {
            unreachable!("the caller matched it")
        };
        let Some(moved) = moved else {
            return Ok(State::NotDone);
        };
        let old = self.lookup(parent, name)?.map(|(handle, _)| handle);
        let new = self.lookup(to_parent, to_name)?.map(|(handle, _)| handle);
        let is_moved = |handle: &Option<Handle>| handle.as_ref() == Some(moved);
        Ok(if is_moved(&old) {
            State::NotDone
        } else if is_moved(&new) && (!exchange || old == *replaced) {
            State::Done(Done::inode(moved.clone()))
        } else {
            State::Unknown
        })
    }

    fn judge_append(&self, file: &Handle, size: u64, bytes: u64) -> Result<State, FsError> {
        let (volume, inner) = self.volumes.by_handle(file)?;
        let root = Principal::root();
        let export = volume.tree.export().ok_or(FsError::Stale)?;
        let now = export.attributes(self.worker, &root, &inner)?.size;
        Ok(match now.checked_sub(size) {
            Some(0) if bytes > 0 => State::NotDone,
            Some(grown) if grown <= bytes => State::Done(Done {
                written: Some((size, grown)),
                ..Done::default()
            }),
            _ => State::Unknown,
        })
    }

    fn lookup(&self, parent: &Handle, name: &Name) -> Result<Option<(Handle, Node)>, FsError> {
        let (volume, inner): (Arc<Volume>, Handle) = self.volumes.by_handle(parent)?;
        let export = volume.tree.export().ok_or(FsError::Stale)?;
        match export.lookup(self.worker, &Principal::root(), &inner, name) {
            Ok(node) => Ok(Some((volume.outer(&node.handle), node))),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
