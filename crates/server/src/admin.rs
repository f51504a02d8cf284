//! Administration: volumes, credentials, status. Blocking: small files are written and made
//! durable.

use crate::core::{Core, Ending};
use crate::data::{ParallelRecord, VolumePlace, VolumeRecord, new_volume_id};
use crate::overlap;
use crate::rich;
use crate::tree::{self, Parallel, Tree};
use crate::views;
use crate::volume::{Volume, summary};
use base::limits::{
    ADMIN_TEXT_BYTES_MAX, CREDENTIALS_PER_REPLY_MAX, JOIN_SECONDS_MAX, LAYOUT_COLUMNS_MAX,
    SESSION_IDLE_TIME_MAX, SUMMARY_TEXT_BYTES_MAX,
};
use base::{SessionId, StoreId, VolumeId};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;
use wire::identity::Peer;
use wire::message::{
    AclViewsAsk, AdminError, AdminReply, AdminRequest, CredentialKind, Farewell, Refusal, Reply,
    ServerStatus, SessionSummary, VolumeKind, VolumeSummary, WorkerSummary,
};

use crate::data::RegistryError;

/// Longest name of a volume.
const VOLUME_NAME_BYTES_MAX: usize = 63;

type Outcome = Result<AdminReply, (AdminError, String)>;

/// Answers an administrator, or anybody who asks for what the status shows: the volumes are in it.
pub(crate) fn answer(core: &Arc<Core>, asker: &Peer, request: AdminRequest) -> Reply {
    let kind = asker.kind;
    let is_admin = kind.is_admin();
    let is_open = match request {
        AdminRequest::Status | AdminRequest::VolumeList => true,
        // It keeps a copy.
        AdminRequest::CredentialList { .. } => kind == CredentialKind::Server,
        _ => false,
    };
    if !is_admin && !is_open {
        return Reply::Refused(Refusal::Forbidden);
    }
    if is_change(&request) && core.data.authority.is_none() {
        let managers = core.data.managers.join(", ");
        return Reply::Admin(AdminReply::Failed {
            code: AdminError::Invalid,
            message: format!("this server keeps objects only; its manager is at {managers}"),
        });
    }
    let outcome = match request {
        AdminRequest::Status => Ok(AdminReply::Status(status(core, is_admin))),
        AdminRequest::VolumeList => Ok(AdminReply::Volumes(volumes(core))),
        AdminRequest::VolumeShow { name } => show(core, &name),
        AdminRequest::VolumeCreate {
            name,
            kind,
            dry_run,
        } => create_volume(core, &name, &kind, dry_run),
        AdminRequest::VolumeDelete { name, dry_run } => delete_volume(core, &name, dry_run),
        AdminRequest::JoinCreate(terms) => {
            let is_manager = matches!(terms.kind, CredentialKind::Manager { .. });
            if is_manager && core.lead.is_none() {
                return Reply::Admin(AdminReply::Failed {
                    code: AdminError::Invalid,
                    message: "this cluster has one manager, which keeps everything in its data \
                              directory; a cluster of several begins with --init --meta"
                        .to_owned(),
                });
            }
            let seconds = terms.seconds_valid.clamp(1, JOIN_SECONDS_MAX);
            let secret = core
                .registry()
                .add_join(terms.kind, seconds, SystemTime::now());
            secret.map(AdminReply::JoinSecret).map_err(|e| failure(&e))
        }
        AdminRequest::CredentialList { skip } => {
            let (list, more) = core
                .registry()
                .credentials(skip as usize, CREDENTIALS_PER_REPLY_MAX);
            Ok(AdminReply::Credentials { list, more })
        }
        AdminRequest::CredentialRevoke { serial, dry_run } => revoke(core, asker, &serial, dry_run),
        AdminRequest::Scrub {
            store,
            bytes_per_second,
        } => scrub(core, store, bytes_per_second),
        AdminRequest::AclStatus { name } => rich::status(core, &name),
        AdminRequest::AclSwitch { name, on, dry_run } => rich::switch(core, &name, on, dry_run),
        AdminRequest::AclViews { name, ask } => views::answer(core, &name, &ask),
    };
    Reply::Admin(
        outcome.unwrap_or_else(|(code, message)| AdminReply::Failed {
            code,
            message: cut(message, ADMIN_TEXT_BYTES_MAX),
        }),
    )
}

/// Whether a request changes what a manager keeps.
fn is_change(request: &AdminRequest) -> bool {
    matches!(
        request,
        AdminRequest::VolumeCreate { .. }
            | AdminRequest::VolumeDelete { .. }
            | AdminRequest::JoinCreate(_)
            | AdminRequest::CredentialRevoke { .. }
            | AdminRequest::AclSwitch { .. }
            | AdminRequest::AclViews {
                ask: AclViewsAsk::Store { .. },
                ..
            }
    )
}

/// The beginning of a text, of at most so many bytes.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

/// A text in a list: if it is longer than so many bytes, the words that it begins with, and a sign
/// that there is more.
fn abridged(text: String, bytes_max: usize) -> String {
    const MORE: &str = " ...";
    if text.len() <= bytes_max {
        return text;
    }
    let begin = &text[..text.floor_char_boundary(bytes_max - MORE.len())];
    // A single word may be as long as that, a path for example.
    let words = begin.rsplit_once(' ').map_or(begin, |(words, _)| words);
    format!("{words}{MORE}")
}

fn failure(error: &RegistryError) -> (AdminError, String) {
    let code = match error {
        RegistryError::Exists => AdminError::Exists,
        RegistryError::NotFound => AdminError::NotFound,
        RegistryError::Limit(..) => AdminError::Limit,
        RegistryError::Data(_) => AdminError::Io,
    };
    (code, error.to_string())
}

fn invalid(why: impl Into<String>) -> (AdminError, String) {
    (AdminError::Invalid, why.into())
}

fn show(core: &Core, name: &str) -> Outcome {
    find(core, name).map(|volume| AdminReply::Volumes(vec![volume]))
}

/// All volumes. What is wrong with one is told in full where it alone is asked for.
fn volumes(core: &Core) -> Vec<VolumeSummary> {
    let mut all = core.volumes.summaries();
    for volume in &mut all {
        let trouble = volume.trouble.take();
        volume.trouble = trouble.map(|text| abridged(text, SUMMARY_TEXT_BYTES_MAX));
    }
    all
}

fn find(core: &Core, name: &str) -> Result<VolumeSummary, (AdminError, String)> {
    let mut volumes = core.volumes.summaries();
    volumes.retain(|v| v.name == name);
    volumes
        .pop()
        .ok_or_else(|| (AdminError::NotFound, format!("there is no volume {name:?}")))
}

fn create_volume(core: &Arc<Core>, name: &str, kind: &VolumeKind, dry_run: bool) -> Outcome {
    check_name(name)?;
    // What is found of the others holds until this one is among them.
    let _creating = core.creating.lock().unwrap_or_else(PoisonError::into_inner);
    let place = match kind {
        VolumeKind::Export { .. } if core.lead.is_some() => {
            return Err(invalid(
                "a directory is one machine's, and another manager could not serve it; export it \
                 from a server of its own",
            ));
        }
        VolumeKind::Export { path, read_only } => VolumePlace::Export {
            path: check_path(core.data.path(), Path::new(path))?,
            read_only: *read_only,
            rich: false,
            store: acl::Policy::default(),
            root: None,
        },
        VolumeKind::Parallel { unit_log2, width } => {
            VolumePlace::Parallel(check_layout(core, *unit_log2, *width)?)
        }
    };
    if core.registry().volume(name).is_some() {
        return Err((
            AdminError::Exists,
            format!("there is a volume {name:?} already"),
        ));
    }
    let mut id = new_volume_id();
    while !core.volumes.is_free(id) {
        id = new_volume_id();
    }
    let mut record = VolumeRecord {
        id,
        name: name.to_owned(),
        place,
    };
    let ground = core.ground();
    if let VolumePlace::Export { path, .. } = &record.place {
        if let Some(why) = overlap::refusal(path, &core.volumes.summaries()) {
            return Err(invalid(why));
        }
        // Opened before it is recorded: what cannot be served is refused now, with its reason.
        let opened = Volume::open(&record, &ground);
        let opened = opened.map_err(|e| invalid(e.to_string()))?;
        if let VolumePlace::Export { root, .. } = &mut record.place {
            *root = opened.root().cloned();
        }
    }
    if !dry_run {
        core.registry()
            .add_volume(record.clone())
            .map_err(|e| failure(&e))?;
        if let Some(volume) = core.volumes.add(&record, &ground) {
            begin(core, &volume);
        }
        tracing::info!(name, place = ?record.place, "volume created");
    }
    Ok(AdminReply::Volumes(vec![summary(&record, None)]))
}

/// Begins the background work of a volume.
pub(crate) fn begin(core: &Arc<Core>, volume: &Arc<Volume>) {
    match &volume.tree {
        Tree::Export(_) => {
            note_root(core, volume);
            crate::watch::start(core, volume);
            views::begin(core, volume);
        }
        Tree::Parallel(_) => {
            let task = core.background.add(format!("chores {}", volume.name));
            tree::start(task, volume);
        }
    }
}

/// Notes which directory an export is, if that is new: of a volume that was made before it was
/// noted, and of a file system in memory, which is another one after each start of the machine.
/// Then those of all exports are noted at once.
fn note_root(core: &Core, volume: &Volume) {
    let mut registry = core.registry();
    let record = registry.volume(&volume.name).map(|record| &record.place);
    if let Some(VolumePlace::Export { root, .. }) = record
        && root.as_ref() != volume.root()
        && let Err(error) = registry.note_roots(core.volumes.roots())
    {
        tracing::warn!(%error, "which directories the exports are is not noted");
    }
}

/// How files are to be laid out, if the stores take that.
fn check_layout(
    core: &Core,
    unit_log2: Option<u8>,
    width: u16,
) -> Result<ParallelRecord, (AdminError, String)> {
    let devices = core.cluster.devices();
    let largest = devices.iter().map(|device| device.au_bytes).max();
    let usual = largest.map_or(0, |au| au.next_power_of_two().ilog2() as u8);
    let unit_log2 = unit_log2.unwrap_or(usual);
    if !(12..=30).contains(&unit_log2) && !devices.is_empty() {
        return Err(invalid("a stripe unit has 4 KiB to 1 GiB"));
    }
    if width == 0 || usize::from(width) > LAYOUT_COLUMNS_MAX {
        let why = format!("a file has 1 to {LAYOUT_COLUMNS_MAX} columns");
        return Err(invalid(why));
    }
    let record = ParallelRecord {
        unit_log2,
        width,
        rich: false,
    };
    let tried = Parallel::check(record, &core.cluster);
    tried.map_err(|error| invalid(error.to_string()))?;
    Ok(record)
}

/// Begins to read all that a store has, or all stores.
fn scrub(core: &Core, store: Option<StoreId>, bytes_per_second: Option<u64>) -> Outcome {
    let devices = core.storage.devices().into_iter();
    let mut stores: Vec<StoreId> = devices.map(|device| device.store).collect();
    stores.retain(|id| store.is_none_or(|store| store == *id));
    if stores.is_empty() {
        let what = store.map_or("no store".to_owned(), |store| format!("no store {store}"));
        return Err((AdminError::NotFound, format!("this server has {what}")));
    }
    for store in stores {
        core.scrubs.ask(store, bytes_per_second);
    }
    Ok(AdminReply::Done)
}

fn check_name(name: &str) -> Result<(), (AdminError, String)> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if begins && name.len() <= VOLUME_NAME_BYTES_MAX && name.chars().all(allowed) {
        return Ok(());
    }
    Err(invalid(format!(
        "a volume's name has 1 to {VOLUME_NAME_BYTES_MAX} of a-z 0-9 - _ . and begins with a \
         letter or digit"
    )))
}

/// The directory's real path. It must exist, and neither contain the data directory nor lie in it:
/// the server's keys would be served.
fn check_path(data: &Path, path: &Path) -> Result<PathBuf, (AdminError, String)> {
    if !path.is_absolute() {
        return Err(invalid("the path must be absolute"));
    }
    let real = path
        .canonicalize()
        .map_err(|e| invalid(format!("{}: {e}", path.display())))?;
    let metadata = real
        .metadata()
        .map_err(|e| invalid(format!("{}: {e}", real.display())))?;
    if !metadata.is_dir() {
        return Err(invalid(format!("{} is not a directory", real.display())));
    }
    if real.to_str().is_none() {
        return Err(invalid("the path is not UTF-8"));
    }
    let data = data
        .canonicalize()
        .map_err(|e| (AdminError::Io, e.to_string()))?;
    // By identity, not by name: a bind mount has another name for the same directory.
    let identity = |p: &Path| p.metadata().map(|m| (m.dev(), m.ino())).ok();
    let contains = |outer: &Path, inner: &Path| {
        let wanted = identity(outer);
        inner.ancestors().any(|a| identity(a) == wanted)
    };
    if contains(&real, &data) || contains(&data, &real) {
        return Err(invalid(format!(
            "{} overlaps the server's data directory; export a directory beside it",
            real.display()
        )));
    }
    Ok(real)
}

/// Nobody has the volume mounted. A mount that has asked for nothing since the server was started
/// is known by its note, also while it is not back yet.
fn check_unused(core: &Core, volume: VolumeId) -> Result<(), (AdminError, String)> {
    let noted = core.caching.noted_users(volume);
    let sessions = core.sessions.list_all();
    let users = sessions.iter().filter(|session| session.uses(volume));
    let users: HashSet<SessionId> = users.map(|s| s.id).chain(noted).collect();
    let count = users.len();
    if count == 0 {
        return Ok(());
    }
    let is_there = sessions.iter().any(|session| users.contains(&session.id));
    let plural = if count == 1 { "" } else { "s" };
    let message = match is_there {
        true => {
            let use_it = if count == 1 { "uses" } else { "use" };
            format!(
                "{count} session{plural} {use_it} it; unmount it there first (a machine that is \
                 gone counts for {} s more)",
                SESSION_IDLE_TIME_MAX.as_secs()
            )
        }
        false => format!(
            "{count} session{plural} used it before the server was started and may still come \
             back; try again in a few seconds"
        ),
    };
    Err((AdminError::InUse, message))
}

/// What is reserved for a volume is given back by its holders, not lost with it.
fn check_unreserved(core: &Core, volume: VolumeId) -> Result<(), (AdminError, String)> {
    let live = tokio::runtime::Handle::current().block_on(core.manager.live_of(volume));
    let live = live.map_err(|why| {
        let why = format!("whether something is reserved for it is not known: {why}");
        (AdminError::InUse, why)
    })?;
    if live.is_empty() {
        return Ok(());
    }
    let shown = abridged(live.join(", "), ADMIN_TEXT_BYTES_MAX / 2);
    let why = format!("something is reserved for it and not over: {shown}");
    Err((AdminError::Reserved, why))
}

fn delete_volume(core: &Core, name: &str, dry_run: bool) -> Outcome {
    let volume = find(core, name)?;
    check_unused(core, volume.id)?;
    let opened = core.volumes.by_name(name).ok();
    let parallel = opened.as_ref().and_then(|volume| volume.tree.parallel());
    if let Some(parallel) = parallel
        && !(parallel.is_empty()).map_err(|error| (AdminError::Io, error.to_string()))?
    {
        let message = "it has files, and they would be lost; remove them first";
        return Err((AdminError::InUse, message.to_owned()));
    }
    check_unreserved(core, volume.id)?;
    if !dry_run {
        let record = core
            .registry()
            .remove_volume(name)
            .map_err(|e| failure(&e))?;
        core.volumes.remove(record.id);
        core.storage.forget_export(record.id);
        if let Some(parallel) = parallel {
            parallel.close();
            // If its file stays, it is in nobody's way.
            if let Err(error) = parallel.remove_names() {
                tracing::warn!(name, %error, "the names of a deleted volume stay");
            }
        }
        tracing::info!(name, "volume deleted");
    }
    Ok(AdminReply::Done)
}

/// Refuses a credential from now on. The asker's own stays, so that an administrator is left.
fn revoke(core: &Arc<Core>, asker: &Peer, serial: &str, dry_run: bool) -> Outcome {
    let serial = serial.to_ascii_lowercase();
    if !core.registry().has_credential(&serial) {
        return Err((
            AdminError::NotFound,
            format!("there is no credential {serial:?}"),
        ));
    }
    if asker.serial == serial {
        return Err((
            AdminError::InUse,
            format!("credential {serial} is the one with which this is asked"),
        ));
    }
    if !dry_run {
        let outcome = core.registry().revoke(&serial);
        // Whatever the disk said: from now on, nobody works with it.
        for session in core.sessions.list() {
            if session.peer.serial == serial {
                core.end_session(&session, Ending::Broken(Farewell::Unauthenticated));
            }
        }
        outcome.map_err(|e| failure(&e))?;
        tracing::info!(serial, "credential revoked");
    }
    Ok(AdminReply::Done)
}

/// How the server is.
pub(crate) fn status(core: &Core, with_sessions: bool) -> ServerStatus {
    let (waiting, threads, done) = core.pool.figures();
    let mut workers = core.background.summaries();
    for worker in &mut workers {
        worker.state = abridged(std::mem::take(&mut worker.state), SUMMARY_TEXT_BYTES_MAX);
    }
    workers.push(WorkerSummary {
        name: "requests".to_owned(),
        state: format!(
            "{threads} threads, {waiting} request{} waiting",
            if waiting == 1 { "" } else { "s" }
        ),
        progress: done,
    });
    ServerStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: core.data.cluster,
        boot: core.data.boot,
        seconds_up: core.clock.now().since(base::Time::ZERO).as_secs(),
        volumes: volumes(core),
        sessions: if with_sessions {
            sessions(core)
        } else {
            Vec::new()
        },
        workers,
    }
}

fn sessions(core: &Core) -> Vec<SessionSummary> {
    let now = core.clock.now();
    let mut list: Vec<SessionSummary> = Vec::new();
    for session in core.sessions.list() {
        let links = session.links();
        let (bytes_sent, bytes_received) = session.bytes();
        list.push(SessionSummary {
            host: session.host.clone(),
            address: links
                .first()
                .map(|l| l.peer.to_string())
                .unwrap_or_default(),
            kind: session.peer.kind,
            connections: u32::try_from(links.len()).unwrap_or(u32::MAX),
            opens: session.opens.len() as u64,
            locks: core.locks.count(session.key) as u64,
            leases: core.caching.count(session.key) as u64,
            requests: session.requests.load(Ordering::Relaxed),
            bytes_read: bytes_sent,
            bytes_written: bytes_received,
            seconds_idle: now.since(session.heard()).as_secs(),
        });
    }
    list.sort_by(|a, b| a.host.cmp(&b.host).then_with(|| a.address.cmp(&b.address)));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_a_list_ends_with_a_word_or_says_that_there_is_more() {
        let whole = "as long as it may be";
        assert_eq!(abridged(whole.to_owned(), whole.len()), whole);
        assert_eq!(
            abridged(whole.to_owned(), whole.len() - 1),
            "as long as it ..."
        );
        let word = "ä".repeat(20);
        let cut = abridged(word, 15);
        assert_eq!(cut, format!("{} ...", "ä".repeat(5)));
    }
}
