//! `azekura acl plan`.

use super::edit::Edit;
use super::tree::{Visit, walk};
use super::who::LocalIds;
use super::{Place, at, is_truth, read};
use crate::address::FileAddress;
use crate::config::Config;
use crate::connect::WayArgs;
use crate::errors::{Code, Failure, Result};
use crate::output;
use acl::{
    Change, Identities, PosixAcl, PosixFile, RichAcl, Target, Truth, UnixIds, Widening, changes,
    widenings,
};
use base::{Attributes, FsError, Principal};
use client::cache::NodeId;
use client::volume::Volume;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Files that are named one by one.
const NAMED_MAX: usize = 100;
/// Pairs of groups that are named of one file.
const WIDENINGS_MAX: usize = 100;

/// Say what giving rights would mean, for whom, without changing anything
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  azekura acl plan 127.0.0.1:7700/office --grant group:audit:read \
                  --recursive --dry-run"
)]
pub(in crate::cli) struct Plan {
    /// HOST:PORT/VOLUME or HOST:PORT/VOLUME:/PATH
    #[arg(value_name = "ADDR/VOLUME[:/PATH]")]
    file: FileAddress,
    /// An entry that would go before all others, as for `acl set`; can be repeated
    #[arg(long, value_name = "ENTRY", required = true)]
    grant: Vec<String>,
    /// All that is below a directory as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// A plan changes nothing in any case
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

/// What was found so far.
#[derive(Default)]
struct Found {
    files: u64,
    would_change: u64,
    would_become_rich: u64,
    /// Files whose lists would change and nobody's rights.
    without_effect: u64,
    /// Changes of rights, by whom and what, with how many files they are of.
    by_change: BTreeMap<(String, String, String), u64>,
    widenings: u64,
    named: Vec<Value>,
}

impl Plan {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let edit = Edit::granting(self.grant.clone());
        let work = async |place: Place| {
            let mut found = Found::default();
            let count = walk(&place, self.recursive, async |visit: Visit<'_>| {
                look(&visit, &edit, &mut found).await
            });
            found.files = count.await?;
            Ok(found)
        };
        let found = at(config, &self.file, &self.way, work)?;
        match self.json {
            true => output::json(&found.as_json()),
            false => output::write(&found.as_text()),
        }
    }
}

impl Found {
    fn as_json(&self) -> Value {
        let changes = self.by_change.iter().map(|((who, gained, lost), files)| {
            json!({"who": who, "gained": gained, "lost": lost, "files": files})
        });
        json!({
            "files": self.files,
            "would_change": self.would_change,
            "would_become_rich": self.would_become_rich,
            "without_effect": self.without_effect,
            "changes": changes.collect::<Vec<_>>(),
            "widenings": self.widenings,
            "first": self.named,
        })
    }

    fn as_text(&self) -> String {
        let of = output::count(self.files, "file");
        let mut text = format!(
            "{} of {of} would change, {} of them from POSIX to rich ACLs\n",
            self.would_change, self.would_become_rich
        );
        if self.without_effect > 0 {
            let files = output::count(self.without_effect, "file");
            text.push_str(&format!("in {files} nobody's rights would change\n"));
        }
        let rows = self.by_change.iter().map(|((who, gained, lost), files)| {
            [who.clone(), gained.clone(), lost.clone(), files.to_string()]
        });
        let rows: Vec<[String; 4]> = rows.collect();
        if !rows.is_empty() {
            text.push_str(&output::table(["WHO", "GAINS", "LOSES", "FILES"], &rows));
        }
        if self.widenings > 0 {
            text.push_str(&format!(
                "in {} who is in two groups may do at once what the POSIX ACL refuses at once\n",
                output::count(self.widenings, "file")
            ));
        }
        text
    }
}

/// What an edit would mean for one file.
async fn look(visit: &Visit<'_>, edit: &Edit, found: &mut Found) -> Result<()> {
    let Visit {
        volume, who, view, ..
    } = visit;
    let attributes = &view.attributes;
    let is_directory = visit.is_directory();
    let target = Target {
        uid: attributes.uid,
        gid: attributes.gid,
        is_directory,
    };
    let before = read(volume, who, view.node).await?;
    let after = edit.apply(&before, is_directory)?;
    if before.aces() == after.aces() {
        return Ok(());
    }
    let (told, (wider, more), becomes_rich) = match is_truth(volume, who, view.node).await? {
        true => (of_rich(&before, &after, &target), (Vec::new(), 0), false),
        false => {
            let access = posix_acl(volume, who, view.node, b"system.posix_acl_access").await?;
            let file = posix(attributes, access.as_ref());
            let told = changes(&Truth::Posix(file), &Truth::Rich(&after), &target);
            (told, wider(&file), true)
        }
    };
    found.would_change += 1;
    found.would_become_rich += u64::from(becomes_rich);
    found.widenings += u64::from(!wider.is_empty());
    found.without_effect += u64::from(told.is_empty() && wider.is_empty());
    let names = told.iter().map(|change| {
        let who = name(change);
        (who, change.gained.to_string(), change.lost.to_string())
    });
    let names: Vec<_> = names.collect();
    if found.named.len() < NAMED_MAX {
        let changes = names
            .iter()
            .map(|(who, gained, lost)| json!({"who": who, "gained": gained, "lost": lost}));
        found.named.push(json!({
            "file": visit.path,
            "changes": changes.collect::<Vec<_>>(),
            "widenings": wider,
            "widenings_more": more,
        }));
    }
    for change in names {
        *found.by_change.entry(change).or_default() += 1;
    }
    Ok(())
}

fn of_rich(before: &RichAcl, after: &RichAcl, target: &Target) -> Vec<Change> {
    changes(&Truth::Rich(before), &Truth::Rich(after), target)
}

pub(super) fn posix<'a>(attributes: &Attributes, access: Option<&'a PosixAcl>) -> PosixFile<'a> {
    PosixFile {
        uid: attributes.uid,
        gid: attributes.gid,
        mode: attributes.mode & 0o777,
        access,
    }
}

/// A POSIX ACL of a file, if it has one.
pub(super) async fn posix_acl(
    volume: &Volume,
    who: &Principal,
    node: NodeId,
    name: &[u8],
) -> Result<Option<PosixAcl>> {
    let value = volume.xattr(who, node, name).await;
    let value = match value {
        Ok(value) => value,
        Err(FsError::NoData | FsError::NotSupported) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    PosixAcl::from_xattr(&value).map_err(|error| {
        let message = format!("the server sends what is no POSIX ACL: {error}");
        Failure::new(Code::Protocol, message)
    })
}

fn name(change: &Change) -> String {
    named(&change.who, &LocalIds)
}

pub(super) fn named(who: &acl::Who, identities: &impl Identities) -> String {
    let (name, is_group) = who.to_text(identities);
    match (name.ends_with('@'), is_group) {
        (true, _) => name,
        (false, true) => format!("group {name}"),
        (false, false) => format!("user {name}"),
    }
}

/// What the members of two groups may do at once when the view of a POSIX ACL is the truth, in
/// words; and how many more pairs there are than are named. They are as many as the square of the
/// groups, whom a file's owner chooses.
pub(super) fn wider(file: &PosixFile<'_>) -> (Vec<String>, usize) {
    let mut all = widenings(file);
    let named = all.by_ref().take(WIDENINGS_MAX);
    let named = named.map(|pair| widening_text(&pair)).collect();
    (named, all.count())
}

fn widening_text(widening: &Widening) -> String {
    let [one, other] = widening.groups.each_ref().map(|who| named(who, &UnixIds));
    format!("{one} and {other}: {}", widening.bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use acl::{PosixEntry, PosixWho};

    #[test]
    fn pairs_of_groups_are_named_up_to_a_number_and_counted_beyond() {
        let entry = |who, bits| PosixEntry { who, bits };
        let mut entries = vec![entry(PosixWho::Owner, 6)];
        entries.push(entry(PosixWho::OwningGroup, 0));
        let groups = (0..60).map(|gid| entry(PosixWho::Group(gid), 4 >> (gid % 2)));
        entries.extend(groups);
        entries.extend([entry(PosixWho::Mask, 7), entry(PosixWho::Others, 0)]);
        let access = PosixAcl::new(entries).unwrap();
        let file = PosixFile {
            uid: 1,
            gid: 1_000,
            mode: 0o670,
            access: Some(&access),
        };
        let (named, more) = wider(&file);
        assert_eq!(
            (named.len(), more),
            (WIDENINGS_MAX, 30 * 30 - WIDENINGS_MAX)
        );
        assert_eq!(named[0], "group 0 and group 1: 6");
    }
}
