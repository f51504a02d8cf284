//! `azekura acl get`.

use super::{Place, at, is_truth, read};
use crate::address::FileAddress;
use crate::cli::acl::who::LocalIds;
use crate::config::Config;
use crate::connect::WayArgs;
use crate::errors::Result;
use crate::output;
use acl::{Ace, Id, Identities, UnixIds};
use serde_json::{Value, json};

/// Show the rich ACL of a file
///
/// Of a file whose truth is its mode and POSIX ACL, that is what they say in the words of a rich
/// ACL.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura acl get 127.0.0.1:7700/office:/plans/q3.xlsx")]
pub(in crate::cli) struct Get {
    /// HOST:PORT/VOLUME:/PATH
    #[arg(value_name = "ADDR/VOLUME:/PATH")]
    file: FileAddress,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Get {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let work = async |place: Place| {
            let Place {
                volume, who, view, ..
            } = place;
            let list = read(&volume, &who, view.node).await?;
            let is_rich = is_truth(&volume, &who, view.node).await?;
            Ok((list, is_rich, view.attributes))
        };
        let (list, is_rich, attributes) = at(config, &self.file, &self.way, work)?;
        let origin = if is_rich { "rich" } else { "posix" };
        if self.json {
            let entries: Vec<Value> = list.aces().iter().map(entry_json).collect();
            return output::json(&json!({
                "origin": origin,
                "owner": attributes.uid,
                "group": attributes.gid,
                "entries": entries,
            }));
        }
        let owner = LocalIds.name(Id::User(attributes.uid));
        let group = LocalIds.name(Id::Group(attributes.gid));
        let mut text = format!(
            "# file: {}\n# owner: {owner}\n# group: {group}\n",
            self.file
        );
        text.push_str(&format!("# origin: {origin}\n"));
        for ace in list.aces() {
            text.push_str(&output::plain(&ace.to_text(&LocalIds)));
            text.push('\n');
        }
        output::write(&text)
    }
}

/// An entry as in `docs/reference/json.md`: with numbers, as they are everywhere.
pub(super) fn entry_json(ace: &Ace) -> Value {
    let (who, is_group) = ace.who.to_text(&UnixIds);
    json!({
        "text": ace.to_text(&UnixIds),
        "who": who,
        "is_group": is_group,
        "rights": ace.rights.to_string(),
    })
}
