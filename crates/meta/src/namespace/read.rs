//! Reading what is not in memory from the engine.

use super::cache::Cache;
use super::cookie::Cookies;
use super::key::{Keys, name_parts};
use super::record::{Inode, Place, StoredName, StoredPlace, Xattrs, decode};
use super::rich::{RichRecord, StoredRich};
use crate::{Engine, Entry, MetaError};
use base::limits::META_PAGE_ENTRIES_MAX;
use base::{FileKind, Name};
use std::sync::Arc;

/// Names that a look-up in a directory reads that nobody has looked at before: most directories are
/// then known as a whole.
const LOOKUP_PAGE: usize = 128;

/// What is missing in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Inode(u64),
    /// A name in a directory, with its hash.
    Name(u64, u64, Name),
    /// The first names of a directory.
    FirstNames(u64),
    /// So many names of a directory whose hashes are greater than this.
    Names(u64, u64, usize),
    Xattrs(u64),
    /// The rich ACL of an inode, which lies apart from it.
    List(u64),
}

/// A name as it lies in the engine.
#[derive(Debug)]
pub(super) enum NameFound {
    Inode(Box<Inode>),
    Reference(u64, FileKind),
}

/// What the engine has.
#[derive(Debug)]
pub(super) enum Found {
    /// It changed while it was read.
    Nothing,
    NoInode(u64),
    Inode(Box<Inode>, Place),
    Name(u64, u64, Name, Option<NameFound>),
    /// Directory, names with hashes from here to there.
    Names {
        directory: u64,
        from: u64,
        to: u64,
        names: Vec<(u64, Name, NameFound)>,
    },
    Xattrs(u64, Xattrs),
    List(u64, Option<Box<RichRecord>>),
}

fn name_found(bytes: &[u8]) -> Result<NameFound, MetaError> {
    Ok(match decode("a name", bytes)? {
        StoredName::Inode(inode) => NameFound::Inode(Box::new(inode.inode())),
        StoredName::Reference(inode, kind) => NameFound::Reference(inode, kind),
        StoredName::Rich(inode, list) => NameFound::Inode(Box::new(inode.with(list))),
    })
}

/// A name with its hash, from its entry.
pub(super) fn named(entry: &Entry) -> Result<(u64, u64, Name, NameFound), MetaError> {
    let parts = name_parts(&entry.key);
    let parts = parts.ok_or_else(|| MetaError::Damaged("a key is no name".to_owned()))?;
    Ok((parts.0, parts.1, parts.2, name_found(&entry.value)?))
}

/// Reads what is wanted; the engine answers with a state that is not older than the call.
pub(super) async fn read(
    engine: &dyn Engine,
    keys: Keys,
    cookies: Cookies,
    want: Want,
) -> Result<Found, MetaError> {
    match want {
        Want::Inode(number) => read_inode(engine, keys, cookies, number).await,
        Want::Name(directory, hash, name) => {
            let (entry, _) = engine.get(&keys.name(directory, hash, &name)).await?;
            let found = entry.map(|entry| name_found(&entry.value)).transpose()?;
            Ok(Found::Name(directory, hash, name, found))
        }
        Want::FirstNames(directory) => read_names(engine, keys, directory, 0, LOOKUP_PAGE).await,
        Want::Names(directory, after, count) => {
            read_names(engine, keys, directory, after, count).await
        }
        Want::Xattrs(number) => {
            let (entry, _) = engine.get(&keys.xattrs(number)).await?;
            let xattrs = entry.map(|entry| decode("extended attributes", &entry.value));
            Ok(Found::Xattrs(
                number,
                xattrs.transpose()?.unwrap_or_default(),
            ))
        }
        Want::List(number) => {
            let (entry, _) = engine.get(&keys.list(number)).await?;
            let list = entry.map(|entry| {
                let list = decode_list(&entry.value);
                // Whoever may can put another one in its place.
                Box::new(list.unwrap_or_else(|_| RichRecord::missing()))
            });
            Ok(Found::List(number, list))
        }
    }
}

/// A rich ACL that lies apart from its inode.
pub(super) fn decode_list(bytes: &[u8]) -> Result<RichRecord, MetaError> {
    let stored: StoredRich<'_> = decode("a rich ACL", bytes)?;
    Ok(stored.record())
}

async fn read_inode(
    engine: &dyn Engine,
    keys: Keys,
    cookies: Cookies,
    number: u64,
) -> Result<Found, MetaError> {
    let (entry, _) = engine.get(&keys.inode(number)).await?;
    let Some(entry) = entry else {
        return Ok(Found::NoInode(number));
    };
    let (directory, name) = match decode("a place", &entry.value)? {
        StoredPlace::At(directory, name) => (directory, name),
        here => {
            let inode = here.here().expect("what lies nowhere else lies here");
            return Ok(Found::Inode(Box::new(inode), Place::Here));
        }
    };
    let (entry, _) = engine
        .get(&keys.name(directory, cookies.of(&name), &name))
        .await?;
    match entry.map(|entry| name_found(&entry.value)).transpose()? {
        Some(NameFound::Inode(inode)) if inode.number == number => {
            Ok(Found::Inode(inode, Place::At(directory, name)))
        }
        _ => Ok(Found::Nothing),
    }
}

async fn read_names(
    engine: &dyn Engine,
    keys: Keys,
    directory: u64,
    after: u64,
    count: usize,
) -> Result<Found, MetaError> {
    let count = count.clamp(2, META_PAGE_ENTRIES_MAX);
    let page = engine
        .range(&keys.names_after(directory, after), count, None)
        .await?;
    let mut names = Vec::with_capacity(page.entries.len());
    for entry in &page.entries {
        let (_, hash, name, found) = named(entry)?;
        names.push((hash, name, found));
    }
    let mut to = u64::MAX;
    if page.has_more {
        // Names of the last hash may go on in the next page.
        let last = names.last().map_or(0, |(hash, ..)| *hash);
        names.retain(|(hash, ..)| *hash < last);
        to = last.saturating_sub(1);
        if to <= after {
            return Err(MetaError::Damaged(
                "too many names with one hash".to_owned(),
            ));
        }
    }
    Ok(Found::Names {
        directory,
        from: after.saturating_add(1),
        to,
        names,
    })
}

/// Notes what was found, where memory does not know better.
pub(super) fn learn(cache: &mut Cache, cookies: Cookies, found: Found) {
    match found {
        Found::Nothing => {}
        Found::NoInode(number) => cache.learn_slot(number, None, Place::Here),
        Found::Inode(inode, place) => {
            if let Place::At(directory, name) = &place {
                let spot = (cookies.of(name), Some(name.clone()));
                cache.learn_name(*directory, spot, Some((inode.number, inode.kind)));
            }
            cache.learn_slot(inode.number, Some(*inode), place);
        }
        Found::Name(directory, hash, name, found) => {
            learn_name(cache, directory, hash, name, found)
        }
        Found::Names {
            directory,
            from,
            to,
            names,
        } => {
            for (hash, name, found) in names {
                learn_name(cache, directory, hash, name, Some(found));
            }
            // No name has a hash below all cookies.
            let from = if from == 1 { 0 } else { from };
            cache.learn_names(directory, from, to);
        }
        Found::Xattrs(number, xattrs) => cache.learn_xattrs(number, xattrs),
        Found::List(number, list) => cache.learn_list(number, list.map(Arc::from)),
    }
}

fn learn_name(cache: &mut Cache, directory: u64, hash: u64, name: Name, found: Option<NameFound>) {
    let target = match &found {
        None => None,
        Some(NameFound::Inode(inode)) => Some((inode.number, inode.kind)),
        Some(NameFound::Reference(inode, kind)) => Some((*inode, *kind)),
    };
    cache.learn_name(directory, (hash, Some(name.clone())), target);
    if let Some(NameFound::Inode(inode)) = found {
        cache.learn_slot(inode.number, Some(*inode), Place::At(directory, name));
    }
}
