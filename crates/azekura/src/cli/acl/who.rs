//! Users and groups of this machine by name, and entries as people write them.

use crate::errors::{Code, Failure, Result};
use acl::{Ace, Id, Identities, Rights, Sid, UnixIds, Who};
use base::Principal;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;

/// Names of this machine's user database; numbers where it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalIds;

impl Identities for LocalIds {
    fn sid(&self, id: Id) -> Sid {
        UnixIds.sid(id)
    }

    fn of_sid(&self, sid: &Sid) -> Option<Id> {
        UnixIds.of_sid(sid)
    }

    fn name(&self, id: Id) -> String {
        let name = match id {
            Id::User(uid) => User::from_uid(Uid::from_raw(uid))
                .ok()
                .flatten()
                .map(|u| u.name),
            Id::Group(gid) => Group::from_gid(Gid::from_raw(gid))
                .ok()
                .flatten()
                .map(|g| g.name),
        };
        name.unwrap_or_else(|| UnixIds.name(id))
    }

    fn of_name(&self, name: &str, is_group: bool) -> Option<Id> {
        if let Some(id) = UnixIds.of_name(name, is_group) {
            return Some(id);
        }
        match is_group {
            true => {
                let group = Group::from_name(name).ok().flatten()?;
                Some(Id::Group(group.gid.as_raw()))
            }
            false => {
                let user = User::from_name(name).ok().flatten()?;
                Some(Id::User(user.uid.as_raw()))
            }
        }
    }
}

/// The group of those of whom no group is known.
const NOBODYS_GROUP: u32 = 65_534;

/// A user of this machine, with all groups: a name or a number.
pub(super) fn user(text: &str) -> Result<Principal> {
    let number = text.parse::<u32>().ok();
    let found = match number {
        Some(uid) => User::from_uid(Uid::from_raw(uid)),
        None => User::from_name(text),
    };
    let Some(user) = found.ok().flatten() else {
        // A number needs no name: files have owners who are gone. Which groups such a user had
        // nobody knows, and it is not to be that of somebody else.
        return number
            .map(|uid| Principal::alone(uid, NOBODYS_GROUP))
            .ok_or_else(|| unknown(text));
    };
    let groups = CString::new(user.name.as_str()).ok();
    let groups = groups.and_then(|name| getgrouplist(&name, user.gid).ok());
    let groups = groups.unwrap_or_default().into_iter().map(Gid::as_raw);
    Ok(Principal::new(
        user.uid.as_raw(),
        user.gid.as_raw(),
        groups.collect(),
    ))
}

fn unknown(name: &str) -> Failure {
    let failure = Failure::new(Code::AclWho, format!("nobody here is called {name:?}"));
    match Group::from_name(name) {
        Ok(Some(_)) => failure.hint(format!(
            "there is a group of that name: A:g:{name}:RIGHTS, or group:{name}:RIGHTS"
        )),
        _ => failure,
    }
}

/// Reads an entry: `A::aya:rwa` as nfs4_setfacl(1) has it, `u:aya:rw-`, `g:audit:r` or `o::r` as
/// setfacl(1), or `user:aya:read`, `group:audit:read,write`.
pub(super) fn entry(text: &str, is_directory: bool) -> Result<Ace> {
    let no_entry = |why: &dyn std::fmt::Display| {
        Failure::new(Code::AclText, format!("{text:?} is no entry: {why}"))
    };
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let is_group = match kind {
        "u" | "user" | "o" | "other" => false,
        "g" | "group" => true,
        "m" | "mask" => return Err(no_entry(&"a rich ACL has no mask; say what each one has")),
        "d" | "default" => {
            return Err(no_entry(
                &"what is inherited is said as A:fd:aya:rx, by nfs4_acl(5)",
            ));
        }
        _ => {
            let ace = Ace::from_text(text, is_directory, &LocalIds);
            return ace.map_err(|error| no_entry(&error)).and_then(known);
        }
    };
    let (name, rights) = rest
        .rsplit_once(':')
        .ok_or_else(|| no_entry(&"WHO:RIGHTS is missing"))?;
    let who = match (kind, name, is_group) {
        ("o" | "other", "", _) => Who::Everyone,
        ("o" | "other", _, _) => return Err(no_entry(&"others have no name")),
        (_, "", false) => Who::Owner,
        (_, "", true) => Who::OwningGroup,
        (_, name, _) => {
            let id = LocalIds
                .of_name(name, is_group)
                .ok_or_else(|| unknown(name))?;
            Who::from(id)
        }
    };
    let rights = rights_of(rights, is_directory).ok_or_else(|| {
        no_entry(&"rights are of rwx-, or read, write, execute, delete, ... with commas")
    })?;
    Ok(Ace::allow(who, rights))
}

/// Whether an entry is in the letters of setfacl(1), which says with them all that somebody has.
pub(super) fn is_of_mode(text: &str) -> bool {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let rights = rest.rsplit_once(':').map_or("", |(_, rights)| rights);
    matches!(kind, "u" | "user" | "g" | "group" | "o" | "other") && is_mode(rights)
}

/// What the letters `rwx` stand for, without what everybody has.
pub(super) fn modes(is_directory: bool) -> Rights {
    rights_of("rwx", is_directory).map_or(Rights::NONE, |rights| rights - Rights::LOOK)
}

fn is_mode(rights: &str) -> bool {
    !rights.is_empty() && rights.chars().all(|letter| "rwx-".contains(letter))
}

/// An entry for somebody whom this machine does not know is not sent by mistake; a name with a
/// domain is meant to be somebody else's.
fn known(ace: Ace) -> Result<Ace> {
    match &ace.who {
        Who::Name { name, .. } if !name.contains('@') => Err(unknown(name)),
        _ => Ok(ace),
    }
}

/// Words for rights.
const WORDS: [(&str, &[Rights]); 13] = [
    (
        "read",
        &[Rights::READ_DATA, Rights::READ_NAMED, Rights::LOOK],
    ),
    (
        "write",
        &[
            Rights::WRITE_DATA,
            Rights::APPEND_DATA,
            Rights::WRITE_NAMED,
            Rights::LOOK,
        ],
    ),
    ("execute", &[Rights::EXECUTE, Rights::LOOK]),
    ("search", &[Rights::EXECUTE, Rights::LOOK]),
    ("append", &[Rights::APPEND_DATA]),
    ("delete", &[Rights::DELETE]),
    ("delete-child", &[Rights::DELETE_CHILD]),
    ("read-attributes", &[Rights::READ_ATTRIBUTES]),
    ("write-attributes", &[Rights::WRITE_ATTRIBUTES]),
    ("read-acl", &[Rights::READ_ACL]),
    ("write-acl", &[Rights::WRITE_ACL]),
    ("write-owner", &[Rights::WRITE_OWNER]),
    ("all", &[Rights::ALL]),
];

/// `rw-`, or words with commas between them. In a directory writing is also removing.
fn rights_of(text: &str, is_directory: bool) -> Option<Rights> {
    let words: Vec<&str> = match is_mode(text) {
        true => {
            let word = |letter| match letter {
                'r' => Some("read"),
                'w' => Some("write"),
                'x' => Some("execute"),
                _ => None,
            };
            text.chars().filter_map(word).collect()
        }
        false => text.split(',').collect(),
    };
    let mut rights = Rights::NONE;
    for word in words {
        let (_, parts) = WORDS.iter().find(|(known, _)| *known == word)?;
        rights = parts.iter().fold(rights, |all, part| all | *part);
        if is_directory && word == "write" {
            rights |= Rights::DELETE_CHILD;
        }
    }
    Some(rights)
}

/// What somebody wants to do: words, or letters of nfs4_acl(5). Only what it is about, without what
/// entries that allow it say beside that.
pub(super) fn wanted(text: &str) -> Result<Rights> {
    let mut rights = Rights::NONE;
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let found = WORDS.iter().find(|(known, _)| *known == word);
        rights |= match found {
            Some(("read", _)) => Rights::READ_DATA,
            Some(("write", _)) => Rights::WRITE_DATA | Rights::APPEND_DATA,
            Some(("execute" | "search", _)) => Rights::EXECUTE,
            Some((_, parts)) => parts.iter().fold(Rights::NONE, |all, part| all | *part),
            None => {
                let letters = Ace::from_text(&format!("A::EVERYONE@:{word}"), false, &UnixIds);
                let ace = letters.map_err(|_| {
                    Failure::new(Code::AclText, format!("{word:?} is no right")).hint(
                        "read, write, append, execute, delete, delete-child, read-acl, \
                         write-acl, write-owner, read-attributes, write-attributes, all",
                    )
                })?;
                ace.rights
            }
        };
    }
    match rights == Rights::NONE {
        true => Err(Failure::new(Code::AclText, "no right is named")),
        false => Ok(rights),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_taken_in_the_words_of_three_tools() {
        let text = |entry_text: &str| {
            let ace = entry(entry_text, false).map_err(|failure| failure.code());
            ace.map(|ace| ace.to_text(&UnixIds))
        };
        assert_eq!(text("A::7:rw"), Ok("A::7:rw".to_owned()));
        assert_eq!(text("u:7:rw-"), Ok("A::7:rwatnNcy".to_owned()));
        assert_eq!(text("group:7:read"), Ok("A:g:7:rtncy".to_owned()));
        assert_eq!(text("o::x"), Ok("A::EVERYONE@:xtcy".to_owned()));
        assert_eq!(text("user:root:delete"), Ok("A::0:d".to_owned()));
        assert_eq!(
            text("A::somebody@example.org:r"),
            Ok("A::somebody@example.org:r".to_owned())
        );
        for nobody in ["u:no such user:r", "A::no-such-user:r"] {
            assert_eq!(text(nobody), Err(Code::AclWho), "{nobody}");
        }
        for nonsense in [
            "", "u", "u:7", "o:7:r", "u:7:rq", "A::7:q", "X::7:r", "m::r", "d:u:7:r",
        ] {
            assert_eq!(text(nonsense), Err(Code::AclText), "{nonsense}");
        }
    }

    #[test]
    fn wishes_are_words_or_letters() {
        let of = |text: &str| wanted(text).ok().map(|rights| rights.to_string());
        assert_eq!(of("delete"), Some("d".to_owned()));
        assert_eq!(of("read,write"), Some("rwa".to_owned()));
        assert_eq!(of("rx"), Some("rx".to_owned()));
        for nothing in ["fly", "", ","] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
    }
}
