//! `azekura acl explain`.

use super::{Place, at, failed, who};
use crate::address::FileAddress;
use crate::config::Config;
use crate::connect::WayArgs;
use crate::errors::{Code, Failure, Result};
use crate::output;
use acl::{Ace, Id, Identities, Rights, UnixIds};
use base::FsError;
use serde_json::{Value, json};
use wire::message::{AclEntryText, AclGrounds, Explanation};

/// Say whether somebody may do something with a file, and what decides
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  azekura acl explain 127.0.0.1:7700/office:/plans/q3.xlsx --as aya \
                  --want delete"
)]
pub(in crate::cli) struct Explain {
    /// HOST:PORT/VOLUME:/PATH
    #[arg(value_name = "ADDR/VOLUME:/PATH")]
    file: FileAddress,
    /// For whom: a name of this machine or a number; whoever runs the command without it
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// What: read, write, append, execute, delete, ... with commas, or letters of nfs4_acl(5)
    #[arg(long, value_name = "RIGHTS", default_value = "read")]
    want: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

/// What decides.
struct Decided {
    explanation: Explanation,
    /// The directory on the way that may not be searched, if there is one; else it is the file
    /// itself, or the directory in which its name is.
    above: Option<String>,
}

impl Explain {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let rights = who::wanted(&self.want)?;
        let somebody = self.user.as_deref().map(who::user).transpose()?;
        let work = async |place: Place| {
            let somebody = somebody.unwrap_or_else(|| place.who.clone());
            let Place {
                volume,
                who,
                view,
                above,
            } = place;
            let explain = async |node, directory, rights: Rights| {
                volume
                    .explain(&who, node, directory, &somebody, rights.bits())
                    .await
            };
            let mut directory = None;
            for (node, path) in &above {
                let explained = explain(*node, directory, Rights::EXECUTE).await;
                directory = Some(*node);
                // Whoever asks may know the file's list and not this one's.
                let explanation = match explained {
                    Err(FsError::AccessDenied) => continue,
                    explained => explained.map_err(failed)?,
                };
                if !explanation.is_allowed {
                    let above = Some(path.clone());
                    return Ok((Decided { explanation, above }, somebody.uid));
                }
            }
            let explained = explain(view.node, directory, rights).await;
            let explanation = explained.map_err(|error| self.refused(error))?;
            let above = None;
            Ok((Decided { explanation, above }, somebody.uid))
        };
        let (decided, uid) = at(config, &self.file, &self.way, work)?;
        match self.json {
            true => output::json(&self.as_json(&decided, uid)),
            false => output::write(&self.as_text(&decided, uid)),
        }
    }

    fn refused(&self, error: FsError) -> Failure {
        match error {
            FsError::AccessDenied => {
                let message = format!("you may not read the ACL of {}", self.file);
                Failure::new(Code::FileDenied, message)
                    .hint("whoever may read it (c in a rich ACL) may ask for anybody")
            }
            other => failed(other),
        }
    }

    fn as_json(&self, decided: &Decided, uid: u32) -> Value {
        let Decided { explanation, above } = decided;
        let decided_at = match (above, explanation.is_directorys) {
            (Some(_), _) => "above",
            (None, true) => "directory",
            (None, false) => "file",
        };
        let entry = explanation.entry.as_ref();
        let entry = entry.map(|AclEntryText { place, text }| json!({"place": place, "text": text}));
        json!({
            "file": self.file.to_string(),
            "uid": uid,
            "want": self.want,
            "allowed": explanation.is_allowed,
            "origin": if explanation.is_rich { "rich" } else { "posix" },
            "decided_by": word(explanation.grounds),
            "decided_at": decided_at,
            "above": above,
            "rights": letters(explanation.rights),
            "entry": entry,
        })
    }

    fn as_text(&self, decided: &Decided, uid: u32) -> String {
        let Decided { explanation, above } = decided;
        let verdict = if explanation.is_allowed {
            "allowed"
        } else {
            "denied"
        };
        let name = who::LocalIds.name(Id::User(uid));
        let of = match (above, explanation.is_directorys) {
            (Some(path), _) => format!("the directory {}'s ", path.escape_debug()),
            (None, true) => "the directory's ".to_owned(),
            (None, false) => "its ".to_owned(),
        };
        let list = if explanation.is_rich {
            "rich ACL"
        } else {
            "POSIX ACL"
        };
        let by = match (&explanation.entry, explanation.grounds) {
            (Some(AclEntryText { place, text }), _) => {
                // The server writes numbers, and people here have names.
                let ace = Ace::from_text(text, false, &UnixIds);
                let text = ace.map_or_else(|_| text.clone(), |ace| ace.to_text(&who::LocalIds));
                format!(
                    "entry {} of {of}{list}: {}",
                    place + 1,
                    output::plain(&text)
                )
            }
            (None, AclGrounds::Superuser) => "user 0 is not judged".to_owned(),
            (None, AclGrounds::OwnerBits) => format!("the owner's bits of {of}mode"),
            (None, AclGrounds::GroupBits) => format!("the group's bits of {of}mode"),
            (None, AclGrounds::OthersBits) => format!("the bits of others in {of}mode"),
            (None, AclGrounds::Groups) => {
                format!("none of the groups that {name} is in allows it all, by {of}POSIX ACL")
            }
            (None, AclGrounds::Owner) if explanation.is_allowed => {
                "the owner may, whatever the list says".to_owned()
            }
            (None, AclGrounds::Owner) => "only the owner may".to_owned(),
            (None, AclGrounds::Mode) => format!("chmod, or the mode at creation, over {of}{list}"),
            (None, AclGrounds::Unreadable) => {
                format!("{of}stored ACL cannot be read, and allows nothing")
            }
            (None, AclGrounds::Sticky) => {
                "in a sticky directory only owners remove names, or set its attributes".to_owned()
            }
            (None, AclGrounds::NoExecuteBit) => {
                "its mode shows no x for anybody, and such a file no kernel runs".to_owned()
            }
            (None, AclGrounds::Everybody) => {
                "everybody may who may search the directories on the way".to_owned()
            }
            (None, _) => format!("no entry of {of}{list} speaks of it"),
        };
        let rights = letters(explanation.rights);
        format!(
            "{verdict}: {} for {name} (uid {uid}) at {}\n  by: {by}\n  about: {rights}\n",
            self.want, self.file
        )
    }
}

fn letters(rights: u32) -> String {
    Rights::from_bits(rights).map_or_else(|| format!("{rights:#x}"), |rights| rights.to_string())
}

/// As in `docs/reference/json.md`.
fn word(grounds: AclGrounds) -> &'static str {
    match grounds {
        AclGrounds::Superuser => "superuser",
        AclGrounds::OwnerBits => "owner_bits",
        AclGrounds::GroupBits => "group_bits",
        AclGrounds::OthersBits => "others_bits",
        AclGrounds::PosixEntry => "posix_entry",
        AclGrounds::Groups => "groups",
        AclGrounds::RichEntry => "rich_entry",
        AclGrounds::Owner => "owner",
        AclGrounds::Mode => "mode",
        AclGrounds::Nothing => "nothing",
        AclGrounds::Unreadable => "unreadable",
        AclGrounds::Sticky => "sticky",
        AclGrounds::NoExecuteBit => "no_execute_bit",
        AclGrounds::Everybody => "everybody",
    }
}
