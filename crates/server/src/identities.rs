//! Who has which SID and which other name: the table that an administrator writes into
//! `identities.toml` of the data directory, for all volumes.
//!
//! ```text
//! [[identity]]
//! user = 1105                                    # or group = ...
//! sid = "S-1-5-21-3623811015-3361044348-30300820-1013"
//! name = "aya@example.org"                       # one of both, or both
//! ```
//! By it a list that a client sets is read; what goes out are numbers, as ever. Whom neither the
//! table nor this machine's user database knows stays himself, and is nobody here.
//!
//! It is read when a volume is opened. A table that says two things about one, or that cannot be
//! read, closes the volumes: entries that deny somebody would otherwise deny nobody.

use ::acl::{Id, Identities, IdentityTable, Sid};
use export::Names;
use nix::unistd::{Group, User};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Name of the file.
const FILE: &str = "identities.toml";
/// A table of more is nobody's handwriting: a hundred bytes for each of 80,000.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: {why}; correct it, or take the file away, and restart the server",
    path.display()
)]
pub(crate) struct IdentitiesError {
    path: PathBuf,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    #[serde(default)]
    identity: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    user: Option<u32>,
    group: Option<u32>,
    sid: Option<String>,
    name: Option<String>,
}

/// Users and groups by the table, and by this machine's user database.
#[derive(Debug, Default)]
pub(crate) struct KnownNames(IdentityTable);

impl KnownNames {
    /// That of a data directory; empty if nobody has written one. Blocks.
    pub(crate) fn read(data: &Path) -> Result<Self, IdentitiesError> {
        let path = data.join(FILE);
        let mut text = String::new();
        let read = File::open(&path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
        let outcome = match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => Err(error.to_string()),
            Ok(bytes) if bytes as u64 > FILE_BYTES_MAX => Err("it is too long".to_owned()),
            Ok(_) => parse(&text),
        };
        outcome
            .map(Self)
            .map_err(|why| IdentitiesError { path, why })
    }
}

fn parse(text: &str) -> Result<IdentityTable, String> {
    let file: TableFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let mut table = IdentityTable::default();
    for (place, entry) in file.identity.iter().enumerate() {
        add(&mut table, entry).map_err(|why| format!("identity {}: {why}", place + 1))?;
    }
    Ok(table)
}

fn add(table: &mut IdentityTable, entry: &Entry) -> Result<(), String> {
    let id = match (entry.user, entry.group) {
        (Some(uid), None) => Id::User(uid),
        (None, Some(gid)) => Id::Group(gid),
        _ => return Err("it is of one user or of one group".to_owned()),
    };
    if entry.sid.is_none() && entry.name.is_none() {
        return Err("it has neither a sid nor a name".to_owned());
    }
    if let Some(text) = &entry.sid {
        let sid: Sid = text.parse().map_err(|_| format!("{text:?} is no SID"))?;
        if !table.add_sid(id, sid) {
            return Err(format!("{text} is somebody's already, or he has another"));
        }
    }
    if let Some(name) = &entry.name
        && !table.add_name(id, name)
    {
        return Err(format!(
            "{name:?} is somebody's already, or he has another, or it is no name"
        ));
    }
    Ok(())
}

impl Names for KnownNames {
    fn find(&self, name: &str, is_group: bool) -> Option<Id> {
        if let Some(id) = self.0.of_name(name, is_group) {
            return Some(id);
        }
        // A name of another domain is nobody in the user database, whatever that makes of it.
        if name.contains('@') {
            return None;
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

    fn of_sid(&self, sid: &Sid) -> Option<Id> {
        self.0.of_sid(sid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SID: &str = "S-1-5-21-1-2-3-1013";

    #[test]
    fn the_table_goes_before_the_user_database_and_says_one_thing_of_each() {
        let text = format!(
            "[[identity]]\nuser = 1105\nsid = \"{SID}\"\nname = \"aya@example.org\"\n\
             [[identity]]\ngroup = 9\nname = \"audit\"\n"
        );
        let known = KnownNames(parse(&text).unwrap());
        let sid: Sid = SID.parse().unwrap();
        assert_eq!(known.of_sid(&sid), Some(Id::User(1105)));
        assert_eq!(known.find("aya@example.org", false), Some(Id::User(1105)));
        assert_eq!(known.find("aya@example.org", true), None);
        assert_eq!(known.find("audit", true), Some(Id::Group(9)));
        assert_eq!(known.find("root", false), Some(Id::User(0)));
        assert_eq!(known.find("root@example.org", false), None);
        let own = "S-1-22-1-7".parse().unwrap();
        assert_eq!(known.of_sid(&own), Some(Id::User(7)));
        assert_eq!(known.of_sid(&"S-1-5-21-9".parse().unwrap()), None);
    }

    #[test]
    fn what_is_no_table_is_said_and_where() {
        let one = format!("[[identity]]\nuser = 1\nsid = \"{SID}\"\n");
        for (text, why) in [
            (format!("{one}{one}"), "identity 2: S-1-5-21"),
            (
                one.replace("user = 1", "user = 1\ngroup = 1"),
                "identity 1: it is of one",
            ),
            (
                "[[identity]]\nuser = 1\n".to_owned(),
                "neither a sid nor a name",
            ),
            (one.replace(SID, "S-1-x"), "is no SID"),
            (one.replace(SID, "S-1-22-1-5"), "somebody's already"),
            (one.replace(SID, "S-1-1-0"), "somebody's already"),
            (
                "[[identity]]\nuser = 1\nname = \"EVERYONE@\"\n".to_owned(),
                "no name",
            ),
            ("[[identity]]\nuser = 1\nnome = \"a\"\n".to_owned(), "nome"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let data = tempfile::tempdir().unwrap();
        assert!(KnownNames::read(data.path()).is_ok(), "there need be none");
        std::fs::write(data.path().join(FILE), "nonsense").unwrap();
        let error = KnownNames::read(data.path()).unwrap_err().to_string();
        assert!(
            error.contains(FILE) && error.contains("correct it"),
            "{error}"
        );
    }
}
