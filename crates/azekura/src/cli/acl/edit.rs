//! What is done to a list: entries before it, entries out of it, or all of it anew.

use super::who::entry;
use crate::errors::{Code, Failure, Result};
use acl::{Ace, AceKind, RichAcl};

/// What a command is to do with lists; entries are read for each file, because some rights mean
/// more in a directory.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Edit {
    /// Put an entry, or several with commas, first, where nothing goes before; can be repeated
    #[arg(short, long, value_name = "ENTRY")]
    pub(super) add: Vec<String>,
    /// As --add, in the place of what the list allows the same user or group so far
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
        let read = |texts: &[String]| -> Result<Vec<Ace>> {
            if texts.iter().any(|text| entries(text).is_empty()) {
                // As of a variable of a script that is not set.
                return Err(Failure::new(Code::AclText, "no entry is named")
                    .hint("a list that lets nobody in but root: D::EVERYONE@:rwaxdDtTnNcCoy"));
            }
            let each = texts.iter().flat_map(|text| entries(text));
            each.map(|text| entry(&text, is_directory)).collect()
        };
        if let Some(set) = &self.set {
            return made(read(std::slice::from_ref(set))?);
        }
        let mut aces = list.aces().to_vec();
        for gone in read(&self.remove)? {
            let place = aces.iter().position(|ace| *ace == gone);
            let place = place.ok_or_else(|| {
                Failure::new(
                    Code::AclText,
                    "an entry that is to be taken out is not there",
                )
                .hint("azekura acl get shows the entries; name one as a whole")
            })?;
            aces.remove(place);
        }
        let modified = read(&self.modify)?;
        for ace in &modified {
            let kept = |old: &Ace| {
                old.kind != AceKind::Allow || old.who != ace.who || old.flags != ace.flags
            };
            aces.retain(kept);
        }
        let first = read(&self.add)?.into_iter().chain(modified);
        made(first.chain(aces).collect())
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
    use acl::UnixIds;

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
