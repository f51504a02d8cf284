//! Changes of attributes of files that the server does not know yet.
//!
//! They go with the creation, in its creator's name, and if the server refuses any of them the file
//! is not made. So only what it is certain to allow is answered ahead: what the creator does with
//! what is his. Everything else waits until the server has the file, and is judged by itself. That
//! root may change owners counts as certain once the server has let him: an export may lie on a
//! file system on which he is nobody.

use super::Volume;
use crate::cache::NodeId;
use crate::volume::attributes::{resolve, wall_clock};
use base::{AttributeChange, Attributes, Principal, mode};
use std::sync::atomic::Ordering;

/// The group may execute.
const GROUP_EXECUTES: u16 = 0o010;

impl Volume {
    /// Attributes of a file that exists only here are changed here, unless it is on its way or the
    /// server might refuse that; whether they are.
    pub(in crate::volume) fn change_ahead(
        &self,
        who: &Principal,
        node: NodeId,
        change: &AttributeChange,
    ) -> bool {
        if change.size.is_some() {
            return false;
        }
        let mut nodes = self.nodes();
        let mut files = self.ahead.files();
        let file = files.get_mut(&node);
        let file = file.filter(|file| !file.sent && file.who == *who);
        let (Some(known), Some(file)) = (nodes.get_mut(node), file) else {
            return false;
        };
        let shown = &mut known.attributes;
        if !self.is_certain(who, shown, change) {
            return false;
        }
        let pending = &mut file.change;
        if change.uid.is_some() || change.gid.is_some() {
            // The server changes the owner first, and takes no bits away that come after it.
            let gid = shown.gid;
            shown.mode = when_given(who, gid, shown.mode);
            pending.mode = pending.mode.map(|bits| when_given(who, gid, bits));
        }
        add(pending, change);
        show(shown, change);
        true
    }

    /// Whether the server is certain to let the creator of a file change it like that.
    fn is_certain(&self, who: &Principal, shown: &Attributes, change: &AttributeChange) -> bool {
        if change.uid.is_none() && change.gid.is_none() {
            return true;
        }
        if self.transport.sole_user().is_some() {
            // Which groups the user has there, only the server knows.
            return false;
        }
        match who.uid {
            0 => self.ahead.gives.load(Ordering::Acquire),
            _ => keeps(who, shown, change),
        }
    }

    /// A file that exists only here is written to: that dates it, whatever time was set before, and
    /// takes set-id bits away that are not root's to give.
    pub(in crate::volume) fn count_write_ahead(&self, node: NodeId, who: &Principal) {
        let mut nodes = self.nodes();
        let mut files = self.ahead.files();
        let file = files.get_mut(&node).filter(|file| !file.sent);
        let (Some(known), Some(file)) = (nodes.get_mut(node), file) else {
            return;
        };
        file.change.modified = None;
        let shown = known.attributes.mode;
        if who.uid == 0 || when_written(shown) == shown {
            return;
        }
        known.attributes.mode = when_written(shown);
        file.mode = when_written(file.mode);
        file.change.mode = file.change.mode.map(when_written);
        drop(files);
        drop(nodes);
        self.tell_attributes(node);
    }

    /// The server has let a caller change the owner of something.
    pub(in crate::volume) fn learn_giving(&self, who: &Principal) {
        if who.uid == 0 {
            self.ahead.gives.store(true, Ordering::Release);
        }
    }
}

/// Whether a change leaves a file of `who` with him, and with one of his groups or its own.
fn keeps(who: &Principal, shown: &Attributes, change: &AttributeChange) -> bool {
    let is_his = |gid: u32| gid == shown.gid || who.is_member(gid);
    change.uid.is_none_or(|uid| uid == who.uid) && change.gid.is_none_or(is_his)
}

/// Permission bits of a file of the group `gid` after `who` has changed its owner or group, as in
/// chown(2): its rights are not for others to give. Set-group-ID on what the group does not execute
/// is no right.
fn when_given(who: &Principal, gid: u32, bits: u16) -> u16 {
    let setgid = match who.uid != 0 && !who.is_member(gid) {
        true => mode::SETGID,
        false => 0,
    };
    when_written(bits) & !setgid
}

/// Permission bits of a file that somebody else than root has written to.
const fn when_written(bits: u16) -> u16 {
    let is_right = bits & GROUP_EXECUTES != 0;
    let setgid = if is_right { mode::SETGID } else { 0 };
    bits & !(mode::SETUID | setgid)
}

/// Adds a change to those that go with the creation.
fn add(pending: &mut AttributeChange, change: &AttributeChange) {
    pending.mode = change.mode.or(pending.mode);
    pending.uid = change.uid.or(pending.uid);
    pending.gid = change.gid.or(pending.gid);
    pending.accessed = change.accessed.or(pending.accessed);
    pending.modified = change.modified.or(pending.modified);
}

/// Shows a change before the server has made it.
fn show(attributes: &mut Attributes, change: &AttributeChange) {
    let now = wall_clock();
    attributes.mode = change.mode.unwrap_or(attributes.mode);
    attributes.uid = change.uid.unwrap_or(attributes.uid);
    attributes.gid = change.gid.unwrap_or(attributes.gid);
    let accessed = change.accessed.map(|time| resolve(time, now));
    attributes.accessed = accessed.unwrap_or(attributes.accessed);
    let modified = change.modified.map(|time| resolve(time, now));
    attributes.modified = modified.unwrap_or(attributes.modified);
    attributes.changed = now;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_away_has_no_rights_of_its_giver() {
        let (root, user) = (Principal::root(), Principal::new(1000, 100, vec![200]));
        let cases = [
            (&root, 5, 0o4755, 0o0755),
            (&root, 5, 0o2755, 0o0755),
            (&root, 5, 0o6745, 0o2745),
            (&root, 5, 0o1777, 0o1777),
            (&user, 100, 0o6711, 0o0711),
            (&user, 200, 0o2744, 0o2744),
            (&user, 300, 0o2744, 0o0744),
        ];
        for (who, gid, before, after) in cases {
            assert_eq!(when_given(who, gid, before), after, "{who:?} {before:o}");
        }
    }
}
