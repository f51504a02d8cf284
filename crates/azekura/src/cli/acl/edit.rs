//! What is done to a list: entries before it, entries out of it, or all of it anew.
//!
//! An entry in the letters of setfacl(1), `u:aya:r--`, means there what it means to that tool: she
//! has this and no other of reading, writing and executing, whatever groups and others have. A list
//! says so with an entry that allows and one that denies the rest. Where they go is where the
//! kernel would look: owner, users, groups (each of which adds to the others), everybody.

use super::who::{entry, is_of_mode, modes};
use crate::errors::{Code, Failure, Result};
use acl::{Ace, AceKind, RichAcl, Rights, Who};

/// What a command is to do with lists; entries are read for each file, because some rights mean
/// more in a directory.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Edit {
    /// Put an entry, or several with commas, first, where nothing goes before; can be repeated
    #[arg(short, long, value_name = "ENTRY")]
    pub(super) add: Vec<String>,
    /// As --add, in the place of what the list allows the same user or group so far; in
    /// setfacl's letters (u:aya:r--) that is all of rwx there is for her
    #[arg(short, long, value_name = "ENTRY")]
    pub(super) modify: Vec<String>,
    /// Take an entry that is there out; can be repeated
    #[arg(short = 'x', long, value_name = "ENTRY")]
    pub(super) remove: Vec<String>,
    /// The whole list anew, with commas between its entries
    #[arg(short, long, value_name = "LIST", conflicts_with_all = ["add", "modify", "remove"])]
    pub(super) set: Option<String>,
}

impl Edit {
    /// Allows what `entries` say before anything else does.
    pub(super) fn granting(entries: Vec<String>) -> Self {
        Self {
            add: entries,
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.add.is_empty()
            && self.modify.is_empty()
            && self.remove.is_empty()
            && self.set.is_none()
    }

    /// The list after it.
    pub(super) fn apply(&self, list: &RichAcl, is_directory: bool) -> Result<RichAcl> {
        if let Some(set) = &self.set {
            let mut aces = Vec::new();
            for said in read(std::slice::from_ref(set), is_directory)? {
                match said.is_mode {
                    true => let_have(&mut aces, said.ace, modes(is_directory)),
                    false => aces.push(said.ace),
                }
            }
            return made(aces);
        }
        let mut aces = list.aces().to_vec();
        for gone in read(&self.remove, is_directory)? {
            let place = aces.iter().position(|ace| *ace == gone.ace);
            let place = place.ok_or_else(|| {
                Failure::new(
                    Code::AclText,
                    "an entry that is to be taken out is not there",
                )
                .hint("azekura acl get shows the entries; name one as a whole")
            })?;
            aces.remove(place);
        }
        let (modes_said, modified): (Vec<Said>, Vec<Said>) = read(&self.modify, is_directory)?
            .into_iter()
            .partition(|said| said.is_mode);
        for Said { ace, .. } in &modified {
            let kept = |old: &Ace| {
                old.kind != AceKind::Allow || old.who != ace.who || old.flags != ace.flags
            };
            aces.retain(kept);
        }
        for said in modes_said {
            let_have(&mut aces, said.ace, modes(is_directory));
        }
        let added = read(&self.add, is_directory)?;
        let is_nothing = |said: &Said| said.is_mode && said.ace.rights.is_empty();
        if added.iter().any(is_nothing) {
            let why = "an entry that allows nothing changes nothing where it is added";
            return Err(Failure::new(Code::AclText, why)
                .hint("--modify u:NAME:--- takes reading, writing and executing away"));
        }
        let first = added.into_iter().chain(modified).map(|said| said.ace);
        made(first.chain(aces).collect())
    }
}

/// An entry as somebody has named it.
struct Said {
    ace: Ace,
    /// In the letters of setfacl(1).
    is_mode: bool,
}

fn read(texts: &[String], is_directory: bool) -> Result<Vec<Said>> {
    if texts.iter().any(|text| entries(text).is_empty()) {
        // As of a variable of a script that is not set.
        return Err(Failure::new(Code::AclText, "no entry is named")
            .hint("a list that lets nobody in but root: D::EVERYONE@:rwaxdDtTnNcCoy"));
    }
    let each = texts.iter().flat_map(|text| entries(text));
    let said = each.map(|text| {
        Ok(Said {
            ace: entry(&text, is_directory)?,
            is_mode: is_of_mode(&text),
        })
    });
    said.collect()
}

/// Lets somebody have what `ace` allows him, and nothing else of `modes`.
fn let_have(aces: &mut Vec<Ace>, ace: Ace, modes: Rights) {
    let is_own = |old: &Ace| old.who == ace.who && old.flags == ace.flags;
    aces.retain_mut(|old| match old.kind {
        AceKind::Allow if is_own(old) => false,
        AceKind::Deny if is_own(old) => {
            old.rights = old.rights - modes;
            !old.rights.is_empty()
        }
        _ => true,
    });
    // Where the first is that is looked at later, or that is his: nothing of him goes before.
    let place = |aces: &[Ace], later: u8| {
        let is_later = |old: &Ace| class(&old.who) >= later || old.who == ace.who;
        aces.iter()
            .position(|old| old.is_effective() && is_later(old))
            .unwrap_or(aces.len())
    };
    let rest = Ace {
        kind: AceKind::Deny,
        rights: modes - ace.rights,
        ..ace.clone()
    };
    let (allowed, denied) = match class(&ace.who) {
        EVERYBODY => (aces.len(), None),
        GROUPS => (place(aces, GROUPS), Some(place(aces, EVERYBODY))),
        own => (place(aces, own + 1), Some(place(aces, own + 1))),
    };
    // The later one first, so that the other place stays what it is.
    if let Some(denied) = denied.filter(|_| !rest.rights.is_empty()) {
        aces.insert(denied.max(allowed), rest);
    }
    if !ace.rights.is_empty() {
        aces.insert(allowed, ace);
    }
}

const GROUPS: u8 = 2;
const EVERYBODY: u8 = 3;

/// In which order the kernel looks for whom.
fn class(who: &Who) -> u8 {
    match who {
        Who::Owner | Who::OwnerRights => 0,
        Who::User(_) => 1,
        Who::OwningGroup | Who::Group(_) => GROUPS,
        Who::Everyone | Who::Sid(_) | Who::Name { .. } => EVERYBODY,
    }
}

/// The entries of a list with commas between them. A comma is in nobody's name; between the words
/// of one entry's rights it may be, and no colon comes after that.
fn entries(list: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for line in list.lines() {
        let mut is_first = true;
        for part in line.split(',').map(str::trim) {
            match entries.last_mut().filter(|_| !is_first) {
                Some(before) if !part.is_empty() && !part.contains(':') => {
                    before.push(',');
                    before.push_str(part);
                }
                _ if part.is_empty() => continue,
                _ => entries.push(part.to_owned()),
            }
            is_first = false;
        }
    }
    entries
}

fn made(aces: Vec<Ace>) -> Result<RichAcl> {
    RichAcl::new(aces).map_err(|error| Failure::new(Code::AclText, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use acl::{Caller, PosixAcl, PosixEntry, PosixFile, PosixWho, Target, UnixIds};

    fn list(texts: &[&str]) -> RichAcl {
        let aces = texts.iter().map(|text| entry(text, false).unwrap());
        RichAcl::new(aces.collect()).unwrap()
    }

    fn texts(list: &RichAcl) -> Vec<String> {
        list.aces()
            .iter()
            .map(|ace| ace.to_text(&UnixIds))
            .collect()
    }

    #[test]
    fn entries_come_first_take_the_place_of_others_and_go() {
        let before = list(&["A::7:r", "D::7:w", "A::EVERYONE@:r"]);
        let own = |text: &str| vec![text.to_owned()];
        let added = Edit::granting(own("A::8:r")).apply(&before, false).unwrap();
        assert_eq!(
            texts(&added),
            ["A::8:r", "A::7:r", "D::7:w", "A::EVERYONE@:r"]
        );
        let several = Edit::granting(own("A::8:r, D:g:9:w"));
        let several = several.apply(&before, false).unwrap();
        assert_eq!(texts(&several)[..3], ["A::8:r", "D:g:9:w", "A::7:r"]);
        let words = Edit::granting(own("group:9:read,write, A::8:r,user:8:delete"));
        let words = words.apply(&before, false).unwrap();
        assert_eq!(texts(&words)[..3], ["A:g:9:rwatnNcy", "A::8:r", "A::8:d"]);
        let modify = Edit {
            modify: own("A::7:x"),
            ..Edit::default()
        };
        let modified = modify.apply(&before, false).unwrap();
        assert_eq!(texts(&modified), ["A::7:x", "D::7:w", "A::EVERYONE@:r"]);
        let remove = Edit {
            remove: own("D::7:w"),
            ..Edit::default()
        };
        let removed = remove.apply(&before, false).unwrap();
        assert_eq!(texts(&removed), ["A::7:r", "A::EVERYONE@:r"]);
        assert_eq!(
            remove.apply(&removed, false).unwrap_err().code(),
            Code::AclText
        );
        let set = Edit {
            set: Some("A::OWNER@:rw,\n A::9:r".to_owned()),
            ..Edit::default()
        };
        assert_eq!(
            texts(&set.apply(&before, false).unwrap()),
            ["A::OWNER@:rw", "A::9:r"]
        );
    }

    /// What setfacl(1) would be told, and the kernel's ACL then.
    const SAID: [(&str, PosixWho, u8); 6] = [
        ("u::rw-", PosixWho::Owner, 6),
        ("u:7:r--", PosixWho::User(7), 4),
        ("u:8:---", PosixWho::User(8), 0),
        ("g::r-x", PosixWho::OwningGroup, 5),
        ("g:9:-w-", PosixWho::Group(9), 2),
        ("o::r-x", PosixWho::Others, 5),
    ];

    /// Every caller may by the list what the kernel lets him.
    fn judges_as_the_kernel(list: &RichAcl) {
        let mask = (PosixWho::Mask, 7);
        let (before, others) = SAID.split_at(5);
        let said = |part: &[(&str, PosixWho, u8)]| {
            part.iter()
                .map(|(_, who, bits)| (*who, *bits))
                .collect::<Vec<_>>()
        };
        let all = [said(before), vec![mask], said(others)].concat();
        let entries = all.into_iter().map(|(who, bits)| PosixEntry { who, bits });
        let kernels = PosixAcl::new(entries.collect()).unwrap();
        let (uid, gid) = (1, 10);
        let file = PosixFile {
            uid,
            gid,
            mode: 0o675,
            access: Some(&kernels),
        };
        let target = Target {
            uid,
            gid,
            is_directory: false,
        };
        for uid in [1, 7, 8, 20] {
            for groups in [&[][..], &[10], &[9], &[9, 10], &[30]] {
                let who = base::Principal::new(uid, 99, groups.to_vec());
                let caller = Caller::new(&who);
                for (bit, right) in [
                    (4, Rights::READ_DATA),
                    (2, Rights::WRITE_DATA),
                    (1, Rights::EXECUTE),
                ] {
                    let (has, had) = (
                        list.allows(&caller, &target, right),
                        file.allows(&caller, bit),
                    );
                    assert_eq!(has, had, "{uid} {groups:?} {bit} {:?}", texts(list));
                }
            }
        }
    }

    /// Whatever order they are named in, and whatever was there.
    #[test]
    fn letters_of_setfacl_mean_what_they_mean_to_the_kernel() {
        let open = list(&[
            "A::8:rwx",
            "D::7:rd",
            "A:g:11:w",
            "A::EVERYONE@:rwax",
            "D:g:9:w",
        ]);
        let words = SAID.map(|(text, ..)| text.to_owned());
        let reversed = words.iter().rev().cloned().collect();
        let set = Edit {
            set: Some(words.join(",")),
            ..Edit::default()
        };
        let modify = |modify| Edit {
            modify,
            ..Edit::default()
        };
        for edit in [set, modify(words.to_vec()), modify(reversed)] {
            let after = edit.apply(&open, false).unwrap();
            judges_as_the_kernel(&after);
            assert_eq!(edit.apply(&after, false).unwrap(), after, "again");
        }
        let nothing = Edit::granting(vec!["u:8:---".to_owned()]);
        let refused = nothing.apply(&open, false).unwrap_err();
        assert!(refused.message().contains("allows nothing"));
    }

    #[test]
    fn to_name_no_entry_is_a_mistake_and_no_empty_list() {
        let before = list(&["A::7:r"]);
        for nothing in ["", " ", ",", "\n"] {
            let set = Edit {
                set: Some(nothing.to_owned()),
                ..Edit::default()
            };
            for edit in [set, Edit::granting(vec![nothing.to_owned()])] {
                let refused = edit.apply(&before, false).unwrap_err();
                assert!(refused.message().contains("no entry"), "{nothing:?}");
            }
        }
    }
}
