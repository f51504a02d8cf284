//! `azekura ls`.

use super::volume::list;
use crate::address::{FileAddress, Place};
use crate::config::Config;
use crate::connect::{GOODBYE_TIME_MAX, WayArgs, enter, principal, runtime, unless_interrupted};
use crate::errors::{Code, Failure, Result};
use crate::heard::Heard;
use crate::output;
use base::{Attributes, FileKind, Name, Principal};
use client::cache::NodeId;
use client::transport::TransportOptions;
use client::volume::{View, Volume};
use serde_json::{Value, json};
use std::fmt::Write;

/// List a directory of a volume, or the volumes of a server, without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura ls -l 127.0.0.1:7700/photos:/2026")]
pub(super) struct Ls {
    /// HOST:PORT, HOST:PORT/VOLUME or HOST:PORT/VOLUME:/PATH
    #[arg(value_name = "ADDR")]
    place: Place,
    /// With mode, owner, size and time of change
    #[arg(short)]
    long: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

/// A line of the listing.
struct Line {
    name: Name,
    attributes: Attributes,
    /// Where a symbolic link leads.
    leads_to: Option<Vec<u8>>,
}

impl Ls {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let address = match &self.place {
            Place::Server(server) => return list(config, server, &self.way, self.json),
            Place::File(address) => address,
        };
        let lines = runtime()?.block_on(async {
            let options = TransportOptions {
                connections: 1,
                ..TransportOptions::default()
            };
            let volume = enter(config, &address.volume, &self.way, options).await?;
            let heard = Heard::default();
            heard.add(&address.volume.server, volume.transport());
            let lines = unless_interrupted(heard.unless_silent(read(&volume, address))).await;
            volume.transport().close(GOODBYE_TIME_MAX).await;
            lines
        })?;
        if self.json {
            let entries: Vec<Value> = lines.iter().map(line_json).collect();
            return output::json(&json!({ "entries": entries }));
        }
        output::write(&if self.long {
            long(&lines)
        } else {
            short(&lines)
        })
    }
}

async fn read(volume: &Volume, address: &FileAddress) -> Result<Vec<Line>> {
    let who = principal(volume.transport())?;
    let mut at = volume.attributes(&who, NodeId::ROOT).await?;
    let mut name = None;
    for (depth, part) in address.path.iter().enumerate() {
        let found = volume.lookup(&who, at.node, part).await?;
        let missing = || {
            let failure = Failure::new(Code::FileNotFound, format!("there is no file {address}"));
            let above = address.above(depth);
            failure.hint(format!("azekura ls {above} shows what is there"))
        };
        at = found.ok_or_else(missing)?;
        name = Some(part.clone());
    }
    if at.attributes.kind == FileKind::Directory {
        return read_directory(volume, &who, at.node).await;
    }
    let name = name.expect("a volume's root is a directory");
    Ok(vec![read_line(volume, &who, name, at).await?])
}

async fn read_directory(volume: &Volume, who: &Principal, node: NodeId) -> Result<Vec<Line>> {
    let listing = volume.list(who, node).await?;
    let mut lines = Vec::with_capacity(listing.len());
    for entry in listing.iter() {
        let known = entry.node.and_then(|node| volume.attributes_cached(node));
        let view = match known {
            Some(view) => Some(view),
            None => volume.lookup(who, node, &entry.name).await?,
        };
        // It may be gone since it was listed.
        if let Some(view) = view {
            lines.push(read_line(volume, who, entry.name.clone(), view).await?);
        }
    }
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(lines)
}

async fn read_line(volume: &Volume, who: &Principal, name: Name, view: View) -> Result<Line> {
    let leads_to = match view.attributes.kind {
        FileKind::Symlink => Some(volume.read_link(who, view.node).await?),
        _ => None,
    };
    Ok(Line {
        name,
        attributes: view.attributes,
        leads_to,
    })
}

fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char_device",
        FileKind::BlockDevice => "block_device",
    }
}

/// An entry in `docs/reference/json.md`. A name that is not UTF-8 also comes in hexadecimal.
fn line_json(line: &Line) -> Value {
    let Attributes {
        kind,
        mode,
        links,
        uid,
        gid,
        inode,
        size,
        modified,
        ..
    } = &line.attributes;
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let name = line.name.as_bytes();
    let mut entry = json!({
        "name": String::from_utf8_lossy(name),
        "kind": kind_word(*kind),
        "mode": format!("{mode:04o}"),
        "links": links,
        "uid": uid,
        "gid": gid,
        "inode": inode,
        "size": size,
        "modified": moment(modified),
    });
    if std::str::from_utf8(name).is_err() {
        entry["name_hex"] = hex(name).into();
    }
    if let Some(leads_to) = &line.leads_to {
        entry["leads_to"] = String::from_utf8_lossy(leads_to).into();
    }
    entry
}

fn moment(time: &base::Timestamp) -> String {
    let nanos = i32::try_from(time.nanos).unwrap_or(0);
    jiff::Timestamp::new(time.seconds, nanos).map_or_else(
        |_| output::moment(time.seconds),
        |moment| moment.to_string(),
    )
}

fn short(lines: &[Line]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{}", line.name).expect("writing to a string cannot fail");
        text
    })
}

fn long(lines: &[Line]) -> String {
    let rows: Vec<[String; 7]> = lines
        .iter()
        .map(|line| {
            let attributes = &line.attributes;
            let arrow = line.leads_to.as_ref().map_or_else(String::new, |leads_to| {
                format!(" -> {}", output::plain(&String::from_utf8_lossy(leads_to)))
            });
            [
                mode_text(attributes.kind, attributes.mode),
                attributes.links.to_string(),
                attributes.uid.to_string(),
                attributes.gid.to_string(),
                output::size(attributes.size),
                output::moment(attributes.modified.seconds),
                format!("{}{arrow}", line.name),
            ]
        })
        .collect();
    output::table(
        ["MODE", "LINKS", "UID", "GID", "SIZE", "MODIFIED", "NAME"],
        &rows,
    )
}

/// As `ls -l` shows it: `drwxr-x--T`.
fn mode_text(kind: FileKind, mode: u16) -> String {
    let first = match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let bit = |bit: u16| mode & bit != 0;
    let run = |execute: u16, special: u16, letter: char| match (bit(execute), bit(special)) {
        (true, true) => letter,
        (false, true) => letter.to_ascii_uppercase(),
        (true, false) => 'x',
        (false, false) => '-',
    };
    let read = |mask| if bit(mask) { 'r' } else { '-' };
    let write = |mask| if bit(mask) { 'w' } else { '-' };
    [
        first,
        read(0o400),
        write(0o200),
        run(0o100, base::mode::SETUID, 's'),
        read(0o040),
        write(0o020),
        run(0o010, base::mode::SETGID, 's'),
        read(0o004),
        write(0o002),
        run(0o001, base::mode::STICKY, 't'),
    ]
    .iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_look_as_in_ls() {
        assert_eq!(mode_text(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode_text(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(FileKind::Directory, 0o1750), "drwxr-x--T");
        assert_eq!(mode_text(FileKind::File, 0o6745), "-rwsr-Sr-x");
    }
}
