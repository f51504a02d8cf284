//! Who is who: numbers of this machine, names of NFSv4, SIDs of Windows.
//!
//! The map is deterministic and complete from numbers outwards: whoever has a number has a name and
//! a SID, if need be his number as text and S-1-22-1-UID. Back it is partial, and who is not in it
//! is kept as himself.

use crate::{Sid, Who};
use std::collections::BTreeMap;

/// A user or group by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// A user.
    User(u32),
    /// A group.
    Group(u32),
}

/// Finds numbers, names and SIDs from each other.
pub trait Identities {
    /// A SID; no other number may have the same.
    fn sid(&self, id: Id) -> Sid;
    /// Whose SID it is.
    fn of_sid(&self, sid: &Sid) -> Option<Id>;
    /// A name, which needs no domain; no other user or group, respectively, may have the same.
    fn name(&self, id: Id) -> String;
    /// Whose name it is, among groups or among users.
    fn of_name(&self, name: &str, is_group: bool) -> Option<Id>;
}

/// Numbers as text, and the SIDs S-1-22-1-UID and S-1-22-2-GID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixIds;

impl Identities for UnixIds {
    fn sid(&self, id: Id) -> Sid {
        match id {
            Id::User(uid) => Sid::of_uid(uid),
            Id::Group(gid) => Sid::of_gid(gid),
        }
    }

    fn of_sid(&self, sid: &Sid) -> Option<Id> {
        let user = sid.unix_uid().map(Id::User);
        user.or(sid.unix_gid().map(Id::Group))
    }

    fn name(&self, id: Id) -> String {
        let (Id::User(number) | Id::Group(number)) = id;
        number.to_string()
    }

    fn of_name(&self, name: &str, is_group: bool) -> Option<Id> {
        let number: u32 = name.parse().ok()?;
        // A sign or a leading zero would be a second name of the same.
        let is_plain = number.to_string() == name;
        is_plain.then_some(match is_group {
            true => Id::Group(number),
            false => Id::User(number),
        })
    }
}

/// A table of those who have other names or SIDs; all others are as in [`UnixIds`].
#[derive(Clone, Debug, Default)]
pub struct IdentityTable {
    sids: BTreeMap<Id, Sid>,
    of_sids: BTreeMap<Sid, Id>,
    names: BTreeMap<Id, String>,
    of_names: BTreeMap<(String, bool), Id>,
}

impl IdentityTable {
    /// Says who has a SID. `false`, and nothing changes, if one of both has another already or the
    /// SID is one that [`UnixIds`] gives away.
    pub fn add_sid(&mut self, id: Id, sid: Sid) -> bool {
        let is_free = !self.sids.contains_key(&id) && !self.of_sids.contains_key(&sid);
        if !is_free || UnixIds.of_sid(&sid).is_some() || is_special_sid(&sid) {
            return false;
        }
        self.sids.insert(id, sid.clone());
        self.of_sids.insert(sid, id);
        true
    }

    /// Says who has a name; as [`IdentityTable::add_sid`].
    pub fn add_name(&mut self, id: Id, name: &str) -> bool {
        let is_group = matches!(id, Id::Group(_));
        let key = (name.to_owned(), is_group);
        let is_free = !self.names.contains_key(&id) && !self.of_names.contains_key(&key);
        let is_number = UnixIds.of_name(name, is_group).is_some();
        if !is_free || is_number || name.parse::<Sid>().is_ok() || is_special_name(name) {
            return false;
        }
        self.names.insert(id, name.to_owned());
        self.of_names.insert(key, id);
        true
    }
}

impl Identities for IdentityTable {
    fn sid(&self, id: Id) -> Sid {
        match self.sids.get(&id) {
            Some(sid) => sid.clone(),
            None => UnixIds.sid(id),
        }
    }

    fn of_sid(&self, sid: &Sid) -> Option<Id> {
        self.of_sids.get(sid).copied().or(UnixIds.of_sid(sid))
    }

    fn name(&self, id: Id) -> String {
        match self.names.get(&id) {
            Some(name) => name.clone(),
            None => UnixIds.name(id),
        }
    }

    fn of_name(&self, name: &str, is_group: bool) -> Option<Id> {
        let known = self.of_names.get(&(name.to_owned(), is_group)).copied();
        known.or(UnixIds.of_name(name, is_group))
    }
}

/// Names that NFSv4 keeps for classes of callers.
pub(crate) fn is_special_name(name: &str) -> bool {
    name.ends_with('@')
}

/// SIDs that are nobody's but describe a class of callers.
pub(crate) fn is_special_sid(sid: &Sid) -> bool {
    let special = [
        Sid::everyone(),
        Sid::creator_owner(),
        Sid::creator_group(),
        Sid::owner_rights(),
    ];
    special.contains(sid)
}

impl From<Id> for Who {
    fn from(id: Id) -> Self {
        match id {
            Id::User(uid) => Self::User(uid),
            Id::Group(gid) => Self::Group(gid),
        }
    }
}
