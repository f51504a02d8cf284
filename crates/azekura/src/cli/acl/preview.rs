//! `azekura acl preview`: one file as it would be, before anything is done.
//!
//! Three commands say what would come of a change, and each answers another question:
//!
//! | command | of | question |
//! |---|---|---|
//! | `acl set --dry-run` | each file | which list would be set? |
//! | `acl plan` | a tree, in sums | how many files would change, who gains and loses what there? |
//! | `acl preview` | one file | what would it be, entry by entry, for whom, to other programs? |
//!
//! It is the only one that works *before* rich ACLs are turned on: it makes the view of mode and
//! POSIX ACL itself, as the server will show it. So an administrator sees what people will see,
//! what an edit would come to, and who would be allowed more by the edit than by the kernel's rule,
//! without having turned anything on. Without an edit it says what setting the list unchanged would
//! mean, which is what a restored backup does.
//!
//! Like `plan` it is computed here from what the server tells everybody who may look, by the crate
//! that the server decides with; nothing is sent that could change anything.

use super::edit::Edit;
use super::get::entry_json;
use super::plan::{named, posix, posix_acl, wider};
use super::who::LocalIds;
use super::{NFS4, Place, at, failed, is_truth, who};
use crate::address::FileAddress;
use crate::config::Config;
use crate::connect::WayArgs;
use crate::errors::{Code, Failure, Result};
use crate::output;
use acl::{
    Ace, Below, Caller, Change, Id, Identities, PosixAcl, PosixWho, RichAcl, Rights, Target, Truth,
    UnixIds, changes,
};
use base::{Attributes, FileKind, FsError, Principal};
use client::volume::Volume;
use serde_json::{Value, json};

/// Show what a file would be: its list before and after, for whom, to other programs
///
/// Works before rich ACLs are turned on as well. Nothing is changed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  azekura acl preview 127.0.0.1:7700/office:/plans\n  \
                  azekura acl preview 127.0.0.1:7700/office:/plans/q3.xlsx --add D::bob:w --as bob"
)]
pub(in crate::cli) struct Preview {
    /// HOST:PORT/VOLUME:/PATH
    #[arg(value_name = "ADDR/VOLUME:/PATH")]
    file: FileAddress,
    #[command(flatten)]
    edit: Edit,
    /// Show the rights of this user of this machine, before and after; can be repeated
    #[arg(long = "as", value_name = "USER")]
    users: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

/// A file as the server tells it.
struct Now {
    attributes: Attributes,
    /// Whether rich ACLs are on.
    is_on: bool,
    /// Whether a rich ACL is the truth.
    is_rich: bool,
    access: Option<PosixAcl>,
    list: RichAcl,
}

/// What it would be.
struct Then {
    list: RichAcl,
    changes: Vec<Change>,
    /// In words, and how many more there are.
    widenings: (Vec<String>, usize),
    below: Below,
    /// By user: number, rights before, rights after.
    users: Vec<(u32, Rights, Rights)>,
}

impl Preview {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let users: Vec<Principal> = self
            .users
            .iter()
            .map(|user| who::user(user))
            .collect::<Result<_>>()?;
        let work = async |place: Place| look(&place).await;
        let now = at(config, &self.file, &self.way, work)?;
        let then = now.then(&self.edit, &users)?;
        match self.json {
            true => output::json(&self.as_json(&now, &then)),
            false => output::write(&self.as_text(&now, &then)),
        }
    }

    fn as_json(&self, now: &Now, then: &Then) -> Value {
        let entries = then.list.aces().iter().map(|ace| {
            let mut entry = entry_json(ace);
            entry["is_new"] = (!now.list.aces().contains(ace)).into();
            entry
        });
        let users = then.users.iter().map(|(uid, before, after)| {
            json!({"uid": uid, "before": before.to_string(), "after": after.to_string()})
        });
        let changes = then.changes.iter().map(|change| {
            json!({
                "who": named(&change.who, &UnixIds),
                "gained": change.gained.to_string(),
                "lost": change.lost.to_string(),
            })
        });
        json!({
            "file": self.file.to_string(),
            "enabled": now.is_on,
            "origin": now.origin(),
            "entries": entries.collect::<Vec<_>>(),
            "removed": now.gone(then).map(entry_json).collect::<Vec<_>>(),
            "changes": changes.collect::<Vec<_>>(),
            "widenings": then.widenings.0,
            "widenings_more": then.widenings.1,
            "users": users.collect::<Vec<_>>(),
            "mode": format!("{:04o}", then.below.mode),
            "posix_acl": posix_texts(then.below.access.as_ref(), &UnixIds),
        })
    }

    fn as_text(&self, now: &Now, then: &Then) -> String {
        let state = if now.is_on { "on" } else { "off" };
        let origin = now.origin();
        let mut text = format!(
            "# file: {}\n# origin: {origin}; rich ACLs are {state}\n",
            self.file
        );
        for ace in then.list.aces() {
            let mark = if now.list.aces().contains(ace) {
                ' '
            } else {
                '+'
            };
            text.push_str(&line(mark, ace));
        }
        for ace in now.gone(then) {
            text.push_str(&line('-', ace));
        }
        let rows = then.changes.iter().map(|change| {
            [
                named(&change.who, &LocalIds),
                change.gained.to_string(),
                change.lost.to_string(),
            ]
        });
        let rows: Vec<[String; 3]> = rows.collect();
        if !rows.is_empty() {
            text.push_str(&output::table(["WHO", "GAINS", "LOSES"], &rows));
        }
        let rows = then.users.iter().map(|(uid, before, after)| {
            let name = LocalIds.name(Id::User(*uid));
            [name, before.to_string(), after.to_string()]
        });
        let rows: Vec<[String; 3]> = rows.collect();
        if !rows.is_empty() {
            text.push_str(&output::table(["USER", "BEFORE", "AFTER"], &rows));
        }
        let (widenings, more) = &then.widenings;
        for widening in widenings {
            text.push_str(&format!("at once, refused by the POSIX ACL: {widening}\n"));
        }
        if *more > 0 {
            text.push_str(&format!("and so of {more} more pairs of groups\n"));
        }
        let posix = posix_texts(then.below.access.as_ref(), &LocalIds).join(",");
        let mode = then.below.mode;
        text.push_str(&format!("to programs of the server: mode {mode:04o}"));
        if !posix.is_empty() {
            text.push_str(&format!(", ACL {posix}"));
        }
        text.push('\n');
        text
    }
}

impl Now {
    fn origin(&self) -> &'static str {
        if self.is_rich { "rich" } else { "posix" }
    }

    fn target(&self) -> Target {
        Target {
            uid: self.attributes.uid,
            gid: self.attributes.gid,
            is_directory: self.attributes.kind == FileKind::Directory,
        }
    }

    /// Entries that would be there no more.
    fn gone<'a>(&'a self, then: &'a Then) -> impl Iterator<Item = &'a Ace> {
        let entries = self.list.aces().iter();
        entries.filter(|ace| !then.list.aces().contains(ace))
    }

    fn then(&self, edit: &Edit, users: &[Principal]) -> Result<Then> {
        let target = self.target();
        // Once it is set, it is a list like any other, and no view.
        let list = edit.apply(&self.list, target.is_directory)?;
        let file = posix(&self.attributes, self.access.as_ref());
        let before = match self.is_rich {
            true => Truth::Rich(&self.list),
            false => Truth::Posix(file),
        };
        let after = Truth::Rich(&list);
        let wider = (!self.is_rich).then(|| wider(&file));
        let rights = users.iter().map(|user| {
            let caller = Caller::new(user);
            let of = |truth: &Truth<'_>| match user.uid {
                0 => Rights::ALL,
                _ => truth.rights_of(&caller, &target),
            };
            (user.uid, of(&before), of(&after))
        });
        let below = list.posix_below(&target);
        let below = below.map_err(|error| Failure::new(Code::AclText, error.to_string()))?;
        Ok(Then {
            changes: changes(&before, &after, &target),
            widenings: wider.unwrap_or_default(),
            users: rights.collect(),
            below,
            list,
        })
    }
}

/// What the server says of a file, also of a volume whose rich ACLs are off.
async fn look(place: &Place) -> Result<Now> {
    let Place {
        volume, who, view, ..
    } = place;
    let of = |name: &'static [u8]| posix_acl(volume, who, view.node, name);
    let access = of(b"system.posix_acl_access").await?;
    let default = match view.attributes.kind {
        FileKind::Directory => of(b"system.posix_acl_default").await?,
        _ => None,
    };
    let shown = shown(volume, who, place).await?;
    let is_on = shown.is_some();
    let is_rich = is_on && is_truth(volume, who, view.node).await?;
    let is_directory = view.attributes.kind == FileKind::Directory;
    let list = shown.unwrap_or_else(|| {
        let file = posix(&view.attributes, access.as_ref());
        RichAcl::view(&file, default.as_ref(), is_directory)
    });
    Ok(Now {
        attributes: view.attributes.clone(),
        is_on,
        is_rich,
        access,
        list,
    })
}

/// The list that the server shows; none where rich ACLs are off.
async fn shown(volume: &Volume, who: &Principal, place: &Place) -> Result<Option<RichAcl>> {
    if place.view.attributes.kind == FileKind::Symlink {
        return Err(Failure::new(Code::AclOff, "a symbolic link has no ACL"));
    }
    let value = match volume.xattr(who, place.view.node, NFS4).await {
        Ok(value) => value,
        Err(FsError::NotSupported) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let list = RichAcl::from_nfs4(&value, &UnixIds).map_err(|error| {
        let message = format!("the server sends what is no ACL: {error}");
        Failure::new(Code::Protocol, message)
    })?;
    Ok(Some(list))
}

fn line(mark: char, ace: &Ace) -> String {
    format!("{mark} {}\n", output::plain(&ace.to_text(&LocalIds)))
}

/// Entries as setfacl(1) writes them; none of what a mode says alone.
fn posix_texts(access: Option<&PosixAcl>, identities: &impl Identities) -> Vec<String> {
    let entries = access.into_iter().flat_map(PosixAcl::entries);
    let text = |entry: &acl::PosixEntry| {
        let who = match entry.who {
            PosixWho::Owner => "user:".to_owned(),
            PosixWho::User(uid) => format!("user:{}", identities.name(Id::User(uid))),
            PosixWho::OwningGroup => "group:".to_owned(),
            PosixWho::Group(gid) => format!("group:{}", identities.name(Id::Group(gid))),
            PosixWho::Mask => "mask:".to_owned(),
            PosixWho::Others => "other:".to_owned(),
        };
        let letter = |bit, letter| if entry.bits & bit != 0 { letter } else { '-' };
        let [read, write, execute] = [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')];
        format!("{who}:{read}{write}{execute}")
    };
    entries.map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use acl::PosixEntry;

    fn now(access: Option<PosixAcl>) -> Now {
        let time = base::Timestamp {
            seconds: 0,
            nanos: 0,
        };
        let attributes = Attributes {
            kind: FileKind::File,
            mode: 0o640,
            links: 1,
            uid: 1,
            gid: 2,
            inode: 3,
            device: 0,
            size: 0,
            blocks: 0,
            block_size: 4096,
            accessed: time,
            modified: time,
            changed: time,
            created: None,
            protected: false,
        };
        let file = posix(&attributes, access.as_ref());
        Now {
            list: RichAcl::view(&file, None, false),
            attributes,
            is_on: false,
            is_rich: false,
            access,
        }
    }

    #[test]
    fn an_edit_shows_who_gains_what_and_what_the_file_system_is_told() {
        let edit = Edit {
            add: vec!["A::7:r".to_owned()],
            ..Edit::default()
        };
        let users = [Principal::alone(7, 7), Principal::alone(8, 8)];
        let now = now(None);
        let then = now.then(&edit, &users).expect("it is an entry");
        let gained: Vec<_> = then.changes.iter().map(|c| (&c.who, c.gained)).collect();
        assert_eq!(gained, [(&acl::Who::User(7), Rights::READ_DATA)]);
        let [(_, before, after), (_, other, same)] = then.users[..] else {
            panic!("two were asked for");
        };
        assert!(!before.contains(Rights::READ_DATA) && after.contains(Rights::READ_DATA));
        assert_eq!(other, same);
        let told = posix_texts(then.below.access.as_ref(), &UnixIds);
        assert!(told.contains(&"user:7:r--".to_owned()), "{told:?}");
        assert_eq!(now.gone(&then).count(), 0);
    }

    #[test]
    fn what_only_two_groups_together_may_is_told() {
        let entry = |who, bits| PosixEntry { who, bits };
        let access = PosixAcl::new(vec![
            entry(PosixWho::Owner, 6),
            entry(PosixWho::OwningGroup, 4),
            entry(PosixWho::Group(9), 2),
            entry(PosixWho::Mask, 6),
            entry(PosixWho::Others, 0),
        ]);
        let mut now = now(Some(access.expect("in order")));
        now.attributes.mode = 0o660;
        let then = now.then(&Edit::default(), &[]).expect("nothing is edited");
        assert_eq!((then.widenings.0.len(), then.widenings.1), (1, 0));
        assert!(then.changes.is_empty(), "{:?}", then.changes);
    }
}
