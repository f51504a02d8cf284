//! Rich ACLs of volumes: turned on and off, set and taken away by clients, explained, and each edit
//! written down.
//!
//! # Turning on
//!
//! The volume's record says it, durable before it is answered, and the export or the namespace
//! looks at one flag ([`crate::tree::Tree::set_rich`]). No file is touched, so it takes the same
//! time whatever their number. Clients have their leases called back, because what they were told
//! of rights is not so any more; mounts stay.
//!
//! # What is written down
//!
//! Every edit that makes a rich ACL the truth of a file, replaces one, or goes back, is a line in
//! `acl/VOLUME.log` of the data directory, on the disk before it is made; one that cannot be
//! written down is not made. It says when, who, where the file lay, and who gains and loses what.
//! What somebody in several groups may do at once from then on, which the kernel had refused, is
//! said with the first edit. If the file system then refuses the edit, another line says so; after
//! a loss of power the last line may be of an edit that was not made. The file is put aside at 8
//! MiB, and one such is kept. A parallel volume has the lines in its namespace, each in the
//! transaction of its edit, so that they go with the volume from manager to manager.

use crate::admin::cut;
use crate::core::Core;
use crate::data::RegistryError;
use crate::volume::{Volume, tag};
use ::acl::{AclError, Change, Edit, Explained, Grounds, Origin, RichAcl, Rights, UnixIds};
use base::limits::{ACL_AUDIT_BYTES_MAX, ACL_AUDIT_LINES_PER_REPLY_MAX, ACL_TEXT_BYTES_MAX};
use base::{FsError, Handle, Principal};
use export::Known;
use meta::namespace::Namespace;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::message::{
    AclEntryText, AclGrounds, AclLine, AclSummary, AdminError, AdminReply, Explanation,
};

/// Name of the directory.
const DIRECTORY: &str = "acl";
/// What a line says when a rich ACL became the truth, and when it ceased to be.
const BECAME_RICH: &str = " posix->rich ";
const WENT_BACK: &str = " rich->posix ";
const STAYED_RICH: &str = " rich->rich ";
/// What a line says before that if the edit was written down, and then refused.
const NOT_MADE: &str = " not made:";

/// How long a part of all leases that are called back is waited for; a client on a long line, or
/// one that is gone, does not hold the others up.
const OBEYING_TIME_MAX: Duration = Duration::from_millis(50);
/// How long whoever turns rich ACLs on or off waits for all of them.
const CALLING_BACK_TIME_MAX: Duration = Duration::from_millis(500);

pub(crate) type Outcome = Result<AdminReply, (AdminError, String)>;

/// Turns the rich ACLs of a volume on or off.
pub(crate) fn switch(core: &Arc<Core>, name: &str, on: bool, dry_run: bool) -> Outcome {
    let volume = find(core, name)?;
    if let (true, Some(export)) = (on, volume.tree.export()) {
        export.check_rich().map_err(|error| {
            let why = match error {
                FsError::NotSupported => "its file system keeps no attributes of that kind",
                FsError::NotPermitted => {
                    "the server may not set attributes of that kind; run it \
                                          as root, with CAP_SYS_ADMIN"
                }
                _ => "its file system cannot be asked",
            };
            (
                AdminError::Invalid,
                format!("{name} cannot have rich ACLs: {why}"),
            )
        })?;
    }
    if !dry_run {
        let changed = core.registry().set_rich(name, on);
        changed.map_err(|error| match &error {
            RegistryError::NotFound => (AdminError::NotFound, error.to_string()),
            _ => (AdminError::Io, error.to_string()),
        })?;
        volume.tree.set_rich(on);
        call_back(core, &volume);
        tracing::info!(name, on, "rich ACLs switched");
        crate::views::begin(core, &volume);
        if let Some(export) = volume.tree.export() {
            export.nudge_views();
        }
    }
    let mut summary = summary(&volume);
    summary.is_on = on;
    Ok(AdminReply::Acl(summary))
}

/// Has all leases on a volume called back, on a thread of its own, and waits for that as long as
/// somebody at a terminal does gladly. Where there are very many, the last go a moment later; until
/// then mounts believe what they were told before, and the server judges by what is so now.
fn call_back(core: &Arc<Core>, volume: &Volume) {
    let tag = tag(volume.id);
    let (ending, ended) = mpsc::sync_channel(1);
    let all = {
        let core = core.clone();
        move || {
            let concerns = |handle: &Handle| handle.as_bytes().starts_with(&tag);
            core.caching.changed_all(concerns, OBEYING_TIME_MAX);
            let _ = ending.try_send(());
        }
    };
    let thread = std::thread::Builder::new().name("recalls".to_owned());
    match thread.spawn(all) {
        Ok(_) => {
            let _ = ended.recv_timeout(CALLING_BACK_TIME_MAX);
        }
        Err(error) => {
            tracing::warn!(%error, "no thread calls leases back; that is done at once");
            let concerns = |handle: &Handle| handle.as_bytes().starts_with(&tag);
            core.caching.changed_all(concerns, Duration::ZERO);
        }
    }
}

/// How it is with the rich ACLs of a volume.
pub(crate) fn status(core: &Arc<Core>, name: &str) -> Outcome {
    let volume = find(core, name)?;
    Ok(AdminReply::Acl(summary(&volume)))
}

pub(crate) fn find(core: &Core, name: &str) -> Result<Arc<Volume>, (AdminError, String)> {
    core.volumes.by_name(name).map_err(|error| match error {
        FsError::NotFound => (AdminError::NotFound, format!("there is no volume {name:?}")),
        _ => (AdminError::Io, format!("volume {name:?} cannot be served")),
    })
}

/// A list that a client has sent.
pub(crate) fn read(volume: &Volume, value: &[u8]) -> Result<RichAcl, FsError> {
    let known = Known(Some(&*volume.known));
    RichAcl::from_nfs4(value, &known).map_err(|error| match error {
        AclError::TooLarge { .. } => FsError::TooBig,
        _ => FsError::Invalid,
    })
}

fn summary(volume: &Volume) -> AclSummary {
    let figures = volume.tree.rich_figures();
    let mut summary = AclSummary {
        is_on: volume.tree.is_rich(),
        views: figures.views,
        judged: figures.judged,
        refused: figures.refused,
        kept: figures.kept,
        ..AclSummary::default()
    };
    match (&volume.audit, volume.tree.parallel()) {
        (Some(audit), _) => audit.describe(&mut summary),
        (None, Some(parallel)) => describe(&parallel.names, &mut summary),
        (None, None) => {}
    }
    summary
}

/// What the namespace of a parallel volume has written down.
fn describe(names: &Namespace, summary: &mut AclSummary) {
    match names.edits_here() {
        Ok((counts, last)) => {
            summary.edits = counts.edits;
            summary.became_rich = counts.became_rich;
            summary.went_back = counts.went_back;
            let lines = last.into_iter().map(|line| cut(line, ACL_TEXT_BYTES_MAX));
            summary.last = lines.map(AclLine).collect();
        }
        Err(error) => tracing::warn!(%error, "what was written down of edits cannot be read"),
    }
}

/// What decides, for the wire.
pub(crate) fn explanation(explained: Explained) -> Explanation {
    let grounds = match explained.grounds {
        Grounds::Superuser => AclGrounds::Superuser,
        Grounds::OwnerBits => AclGrounds::OwnerBits,
        Grounds::GroupBits => AclGrounds::GroupBits,
        Grounds::OthersBits => AclGrounds::OthersBits,
        Grounds::PosixEntry => AclGrounds::PosixEntry,
        Grounds::Groups => AclGrounds::Groups,
        Grounds::RichEntry => AclGrounds::RichEntry,
        Grounds::Owner => AclGrounds::Owner,
        Grounds::Mode => AclGrounds::Mode,
        Grounds::Nothing => AclGrounds::Nothing,
        Grounds::Unreadable => AclGrounds::Unreadable,
        Grounds::Sticky => AclGrounds::Sticky,
        Grounds::NoExecuteBit => AclGrounds::NoExecuteBit,
        Grounds::Everybody => AclGrounds::Everybody,
    };
    let entry = explained.entry.map(|(place, text)| AclEntryText {
        place,
        text: cut(text, ACL_TEXT_BYTES_MAX),
    });
    Explanation {
        is_allowed: explained.is_allowed,
        is_rich: explained.origin == Origin::Rich,
        rights: explained.rights.bits(),
        grounds,
        entry,
        is_directorys: explained.is_directorys,
    }
}

/// What was done with the rich ACLs of a volume, written down.
pub(crate) struct Audit {
    path: PathBuf,
    log: Mutex<Option<Log>>,
}

/// The file, and what it says in sum.
struct Log {
    file: File,
    bytes: u64,
    edits: u64,
    became_rich: u64,
    went_back: u64,
    last: VecDeque<String>,
}

impl Audit {
    /// That of a volume, in the server's data directory. Nothing is read or made before it is
    /// needed.
    pub(crate) fn new(data: &Path, volume: base::VolumeId) -> Self {
        Self {
            path: data.join(DIRECTORY).join(format!("{volume}.log")),
            log: Mutex::new(None),
        }
    }

    /// Writes down an edit, or that it was not made; durable when it returns. Blocks, and needs the
    /// server's identity.
    pub(crate) fn note(&self, who: &Principal, edit: &Edit, is_made: bool) -> io::Result<()> {
        let line = line(who, edit, is_made, SystemTime::now());
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log
            .as_ref()
            .is_some_and(|log| log.bytes >= ACL_AUDIT_BYTES_MAX)
        {
            fs::rename(&self.path, self.path.with_extension("old"))?;
            *log = None;
        }
        let mut open = match log.take() {
            Some(open) => open,
            None => Log::open(&self.path)?,
        };
        let written = open.file.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = written.and_then(|()| open.file.sync_data()) {
            // The edit is refused. Where that fails too the line says more than has been done, and
            // what the log ends with is read anew.
            let _ = open.file.set_len(open.bytes);
            return Err(error);
        }
        open.count(line);
        *log = Some(open);
        Ok(())
    }

    fn describe(&self, summary: &mut AclSummary) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_none() && !self.path.exists() {
            return;
        }
        let log = match &mut *log {
            Some(log) => log,
            none => match Log::open(&self.path) {
                Ok(log) => none.insert(log),
                Err(error) => {
                    tracing::warn!(%error, path = %self.path.display(), "cannot be read");
                    return;
                }
            },
        };
        summary.edits = log.edits;
        summary.became_rich = log.became_rich;
        summary.went_back = log.went_back;
        summary.last = log.last.iter().cloned().map(AclLine).collect();
    }
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600).open(path)?;
        let mut log = Self {
            file,
            bytes: 0,
            edits: 0,
            became_rich: 0,
            went_back: 0,
            last: VecDeque::new(),
        };
        for path in [path.with_extension("old"), path.to_owned()] {
            log.bytes = 0;
            let file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let mut lines = BufReader::new(file);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
                let bytes = log.bytes + line.len() as u64;
                let text = String::from_utf8_lossy(line.trim_ascii_end());
                log.count(cut(text.into_owned(), ACL_TEXT_BYTES_MAX));
                log.bytes = bytes;
                line.clear();
            }
        }
        // What is behind the last whole line was written half, and not made.
        if log.file.metadata()?.len() > log.bytes {
            log.file.set_len(log.bytes)?;
        }
        Ok(log)
    }

    fn count(&mut self, line: String) {
        self.bytes += line.len() as u64 + 1;
        // A path may say anything.
        let what = line.split('"').next().unwrap_or_default();
        let counted = [
            (&mut self.edits, ""),
            (&mut self.became_rich, BECAME_RICH),
            (&mut self.went_back, WENT_BACK),
        ];
        for (count, says) in counted {
            let one = u64::from(what.contains(says));
            *count = match what.contains(NOT_MADE) {
                true => count.saturating_sub(one),
                false => *count + one,
            };
        }
        if self.last.len() == ACL_AUDIT_LINES_PER_REPLY_MAX {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }
}

/// One edit as text, of this moment.
pub(crate) fn words(who: &Principal, edit: &Edit) -> String {
    line(who, edit, true, SystemTime::now())
}

/// One edit as text: `2026-11-24T12:00:00Z uid 1000 posix->rich "/plans": user 7 +rw -x`.
fn line(who: &Principal, edit: &Edit, is_made: bool, now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let what = match (edit.before, edit.after) {
        (Origin::Posix, _) => BECAME_RICH,
        (Origin::Rich, Origin::Posix) => WENT_BACK,
        (Origin::Rich, Origin::Rich) => STAYED_RICH,
    };
    let made = if is_made { "" } else { NOT_MADE };
    let mut text = format!("{seconds} uid {}{made}{what}{:?}", who.uid, edit.path);
    for change in &edit.changes {
        text.push_str(&format!("; {}", change_text(change)));
    }
    for widening in &edit.widenings {
        let [one, other] = widening
            .groups
            .each_ref()
            .map(|who| who.to_text(&UnixIds).0);
        let bits = ["", "x", "w", "wx", "r", "rx", "rw", "rwx"];
        let bits = bits.get(usize::from(widening.bits)).unwrap_or(&"");
        text.push_str(&format!(
            "; who is in {one} and {other} now also gets {bits} at once"
        ));
    }
    cut(text, ACL_TEXT_BYTES_MAX)
}

fn change_text(change: &Change) -> String {
    let (name, is_group) = change.who.to_text(&UnixIds);
    let kind = match (name.ends_with('@'), is_group) {
        (true, _) => "",
        (false, true) => "group ",
        (false, false) => "user ",
    };
    let part = |sign: char, rights: Rights| match rights.is_empty() {
        true => String::new(),
        false => format!(" {sign}{rights}"),
    };
    let (gained, lost) = (part('+', change.gained), part('-', change.lost));
    format!("{kind}{name}{gained}{lost}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::acl::Who;

    fn edit(before: Origin, after: Origin) -> Edit {
        Edit {
            before,
            after,
            path: "/srv/a\nb".to_owned(),
            changes: vec![Change {
                who: Who::User(7),
                gained: Rights::READ_DATA,
                lost: Rights::EXECUTE,
            }],
            widenings: Vec::new(),
        }
    }

    #[test]
    fn edits_are_counted_over_restarts_and_shown_in_one_line_each() {
        let data = tempfile::tempdir().unwrap();
        let id = base::VolumeId([7; 16]);
        let who = Principal::alone(1000, 1);
        let audit = Audit::new(data.path(), id);
        let mut summary = AclSummary::default();
        audit.describe(&mut summary);
        assert_eq!(summary, AclSummary::default());
        let note = |audit: &Audit, before, after, is_made| {
            audit.note(&who, &edit(before, after), is_made).unwrap();
        };
        note(&audit, Origin::Posix, Origin::Rich, true);
        note(&audit, Origin::Rich, Origin::Rich, true);
        // Written down, and refused by the file system.
        note(&audit, Origin::Rich, Origin::Posix, true);
        note(&audit, Origin::Rich, Origin::Posix, false);
        drop(audit);
        // A loss of power in the middle of a line.
        let log = data.path().join(DIRECTORY).join(format!("{id}.log"));
        let mut log = OpenOptions::new().append(true).open(log).unwrap();
        log.write_all(b"1 uid 1000 posix->rich \"/half").unwrap();
        let audit = Audit::new(data.path(), id);
        note(&audit, Origin::Rich, Origin::Posix, true);
        drop(audit);
        let audit = Audit::new(data.path(), id);
        audit.describe(&mut summary);
        assert_eq!(
            (summary.edits, summary.became_rich, summary.went_back),
            (3, 1, 1)
        );
        let AclLine(first) = &summary.last[0];
        let rest = first.split_once(' ').unwrap().1;
        assert_eq!(rest, "uid 1000 posix->rich \"/srv/a\\nb\"; user 7 +r -x");
        let AclLine(not_made) = &summary.last[3];
        assert!(
            not_made.contains(" uid 1000 not made: rich->posix "),
            "{not_made}"
        );
        let AclLine(last) = summary.last.last().unwrap();
        assert!(last.ends_with("user 7 +r -x"), "{last}");
    }

    #[test]
    fn a_log_that_cannot_be_read_is_not_cut() {
        let data = tempfile::tempdir().unwrap();
        let id = base::VolumeId([7; 16]);
        let who = Principal::alone(1000, 1);
        let edit = edit(Origin::Posix, Origin::Rich);
        Audit::new(data.path(), id).note(&who, &edit, true).unwrap();
        let log = data.path().join(DIRECTORY).join(format!("{id}.log"));
        let written = fs::read(&log).unwrap();
        let old = log.with_extension("old");
        std::os::unix::fs::symlink(&old, &old).unwrap();
        let audit = Audit::new(data.path(), id);
        assert!(audit.note(&who, &edit, true).is_err());
        assert_eq!(fs::read(&log).unwrap(), written);
        fs::remove_file(&old).unwrap();
        audit.note(&who, &edit, true).unwrap();
        let mut summary = AclSummary::default();
        audit.describe(&mut summary);
        assert_eq!(summary.edits, 2);
    }
}
