//! Entries as people write them, in the notation of nfs4_acl(5): `TYPE:FLAGS:WHO:RIGHTS`.
//!
//! ```text
//! A::OWNER@:rwatTcCy      D:g:3001:w      A:fdi:EVERYONE@:R      U:S:1000:d
//! ```
//! Types are A (allow), D (deny), U (audit). Flags: `f` new files have it, `d` new directories have
//! it, `n` these do not pass it on, `i` only inherited, `S` and `F` audit what was allowed and what
//! was not, `g` the name is a group's, `I` it was inherited. Rights are letters, or `R`, `W` and
//! `X` for what reading, writing and executing take.

use super::rights::LETTERS;
use super::{Ace, AceFlags, AceKind, Rights, Who};
use crate::codec::{name_of, who_named};
use crate::{AclError, Identities};

/// Flags by letter; that of groups is the name's and not among them.
const FLAGS: [(AceFlags, char); 7] = [
    (AceFlags::FILE_INHERIT, 'f'),
    (AceFlags::DIRECTORY_INHERIT, 'd'),
    (AceFlags::NO_PROPAGATE, 'n'),
    (AceFlags::INHERIT_ONLY, 'i'),
    (AceFlags::SUCCESSFUL, 'S'),
    (AceFlags::FAILED, 'F'),
    (AceFlags::INHERITED, 'I'),
];
const GROUP: char = 'g';

const READING: Rights = Rights::READ_DATA.or(Rights::READ_NAMED).or(Rights::LOOK);
const WRITING: Rights = Rights::WRITE_DATA
    .or(Rights::APPEND_DATA)
    .or(Rights::WRITE_NAMED)
    .or(Rights::OWN)
    .or(Rights::LOOK);
const EXECUTING: Rights = Rights::EXECUTE.or(Rights::LOOK);

impl Ace {
    /// As one line of text.
    #[must_use]
    pub fn to_text(&self, identities: &impl Identities) -> String {
        let kind = match self.kind {
            AceKind::Allow => 'A',
            AceKind::Deny => 'D',
            AceKind::Audit => 'U',
        };
        let (name, is_group) = name_of(&self.who, identities);
        let set = FLAGS.iter().filter(|(flag, _)| self.flags.contains(*flag));
        let mut flags: String = set.map(|(_, letter)| letter).collect();
        if is_group {
            flags.push(GROUP);
        }
        format!("{kind}:{flags}:{name}:{}", self.rights)
    }

    /// Reads such a line. Where it is for a directory, `W` has the right to remove what is in it.
    ///
    /// # Errors
    /// [`AclError::Malformed`].
    pub fn from_text(
        text: &str,
        is_directory: bool,
        identities: &impl Identities,
    ) -> Result<Self, AclError> {
        let (kind, rest) = text.split_once(':').ok_or(SHAPE)?;
        let (letters, rest) = rest.split_once(':').ok_or(SHAPE)?;
        let (name, rights) = rest.rsplit_once(':').ok_or(SHAPE)?;
        let kind = match kind {
            "A" => AceKind::Allow,
            "D" => AceKind::Deny,
            "U" => AceKind::Audit,
            _ => return Err(AclError::Malformed("an entry begins with A, D or U")),
        };
        let mut flags = AceFlags::NONE;
        let mut is_group = name == "GROUP@";
        for letter in letters.chars() {
            match FLAGS.iter().find(|(_, known)| *known == letter) {
                Some((flag, _)) => flags = flags.with(*flag),
                None if letter == GROUP => is_group = true,
                None => return Err(AclError::Malformed("a flag is one of f d n i S F g I")),
            }
        }
        if name.is_empty() {
            return Err(AclError::Malformed("an entry is for somebody"));
        }
        Ok(Self {
            kind,
            flags,
            rights: rights_of(rights, is_directory)?,
            who: who_named(name, is_group, identities)?,
        })
    }
}

impl Who {
    /// Who it is, as in an entry's text, and whether that is a group.
    #[must_use]
    pub fn to_text(&self, identities: &impl Identities) -> (String, bool) {
        name_of(self, identities)
    }
}

const SHAPE: AclError = AclError::Malformed("an entry is TYPE:FLAGS:WHO:RIGHTS");

fn rights_of(letters: &str, is_directory: bool) -> Result<Rights, AclError> {
    let mut rights = Rights::NONE;
    for letter in letters.chars() {
        rights |= match letter {
            'R' => READING,
            'W' if is_directory => WRITING | Rights::DELETE_CHILD,
            'W' => WRITING,
            'X' => EXECUTING,
            _ => {
                let known = LETTERS.iter().find(|(_, known)| *known == letter);
                known.map(|(right, _)| *right).ok_or(AclError::Malformed(
                    "a right is one of r w a x d D t T n N c C o y R W X",
                ))?
            }
        };
    }
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UnixIds;

    fn read(text: &str) -> Result<Ace, AclError> {
        Ace::from_text(text, false, &UnixIds)
    }

    #[test]
    fn entries_are_read_as_they_are_written() {
        for text in [
            "A::OWNER@:rwatTcCy",
            "D:g:3001:w",
            "A:fdi:EVERYONE@:rx",
            "U:SF:1000:d",
            "A:I:GROUP@:r",
            "A:g:staff@example.org:r",
            "A::S-1-5-21-1-2-3-4:rw",
        ] {
            let ace = read(text).expect(text);
            let written = ace.to_text(&UnixIds);
            assert_eq!(read(&written), Ok(ace), "{text} {written}");
        }
        let ace = read("D:g:3001:w").expect("an entry");
        assert_eq!(ace, Ace::deny(Who::Group(3001), Rights::WRITE_DATA));
        let ace = read("A::7:R").expect("an entry");
        assert_eq!(ace.rights.to_string(), "rtncy");
        let directory = Ace::from_text("A::7:W", true, &UnixIds).expect("an entry");
        assert!(directory.rights.contains(Rights::DELETE_CHILD));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for text in [
            "",
            "A",
            "A::x",
            "X::1:r",
            "L::1:r",
            "A:z:1:r",
            "A::1:q",
            "A:::r",
            "allow::1:r",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
