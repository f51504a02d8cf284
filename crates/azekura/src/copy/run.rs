//! Carrying a plan out.

use super::plan::{Plan, PlannedFile, Target, special};
use super::{Directory, File, Kept, Meta, Settings, Tree};
use crate::errors::{Code, Failure, Result};
use crate::output;
use crate::progress::Progress;
use base::FileKind;
use base::limits::DATA_BYTES_MAX;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Files under way at once: enough that small files do not wait for round trips, few enough that
/// their buffers (1 MiB each) stay small against the client's own.
const FILES_MAX: usize = 64;
/// Directories made at once.
const DIRECTORIES_MAX: usize = 64;
/// From here on inode numbers are those that mounts give to files which the server has not seen.
const CREATED_AHEAD: u64 = 1 << 63;
/// Bytes that a server is asked to copy by itself in one request.
const SERVER_COPY_BYTES: u64 = base::limits::COPY_BYTES_MAX;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copied {
    pub(crate) files: u64,
    pub(crate) links: u64,
    pub(crate) directories: u64,
    /// Bytes of data that were copied.
    pub(crate) bytes: u64,
    /// Files that were at the target already.
    pub(crate) present: u64,
    /// Files and directories that were not copied.
    pub(crate) failed: u64,
    /// Of these, pipes, sockets and devices.
    pub(crate) special: u64,
    /// Rich ACLs of which the target has what a POSIX ACL can say.
    pub(crate) reduced: u64,
    pub(crate) elapsed: Duration,
}

/// What came of one file.
enum Outcome {
    Copied(Filled),
    Linked,
    Present(u64),
}

/// What has gone into a file.
struct Filled {
    bytes: u64,
    /// What of its rich ACL the target does not take, in words.
    lost: Option<String>,
}

/// A file on its way.
struct Job {
    source: Tree,
    source_directory: Directory,
    target: Arc<Target>,
    target_directory: Directory,
    file: PlannedFile,
    settings: Settings,
    progress: Progress,
}

/// Copies everything, naming what fails, and waits until it is durable. What has been done is
/// counted as it happens, for those who break it off.
///
/// # Errors
/// Where nothing can be done: the target does not take what was written. Single failures are
/// counted in the result.
pub(crate) async fn copy(
    plan: Plan,
    target: Target,
    settings: Settings,
    copied: &mut Copied,
) -> Result<()> {
    let started = Instant::now();
    let progress = Progress::bytes("copying", plan.bytes);
    let target = Arc::new(target);
    for (path, failure) in &plan.skipped {
        tell(&progress, copied, path, failure);
    }
    for path in &plan.specials {
        copied.special += 1;
        tell(&progress, copied, path, &special());
    }
    let made = make_directories(&plan, &target, &progress, copied).await?;
    copy_files(&plan, &target, &made, settings, &progress, copied).await?;
    link_names(&plan, &target, &made, &progress, copied).await;
    finish_directories(&plan, &target, &made, settings, &progress, copied).await;
    let durable = target.tree.sync().await;
    progress.finish();
    durable.map_err(|failure| failure.during("making the copy durable"))?;
    copied.elapsed = started.elapsed();
    Ok(())
}

fn tell(progress: &Progress, copied: &mut Copied, path: &str, failure: &Failure) {
    copied.failed += 1;
    let number = failure.code().number();
    progress.note(&format!(
        "not copied: {path}: {} ({number})",
        failure.message()
    ));
}

fn reduce(progress: &Progress, copied: &mut Copied, path: &str, lost: &str) {
    copied.reduced += 1;
    progress.note(&format!(
        "{path}: there are no rich ACLs at the target; by its mode and POSIX ACL: {lost}"
    ));
}

fn crashed(error: &tokio::task::JoinError) -> Failure {
    Failure::new(Code::Internal, format!("a task ended: {error}"))
}

/// Makes all directories, those above before those below; `None` for the ones that failed.
async fn make_directories(
    plan: &Plan,
    target: &Arc<Target>,
    progress: &Progress,
    copied: &mut Copied,
) -> Result<Vec<Option<Directory>>> {
    let mut made: Vec<Option<Directory>> = vec![None; plan.directories.len()];
    let mut order: Vec<usize> = (0..plan.directories.len()).collect();
    order.sort_by_key(|index| plan.directories[*index].depth);
    for level in order.chunk_by(|a, b| plan.directories[*a].depth == plan.directories[*b].depth) {
        let mut running = JoinSet::new();
        let mut level = level.iter();
        loop {
            while running.len() < DIRECTORIES_MAX
                && let Some(&index) = level.next()
            {
                let planned = &plan.directories[index];
                let Some(above) = above(planned.parent, &made, target) else {
                    copied.failed += 1;
                    continue;
                };
                let (target, name) = (Arc::clone(target), planned.name.clone());
                // Its files can be made whatever its mode; the mode proper follows at the end.
                let mode = planned.meta.mode & 0o777 | 0o700;
                running.spawn(async move {
                    (index, target.tree.make_directory(&above, &name, mode).await)
                });
            }
            let Some(finished) = running.join_next().await else {
                break;
            };
            let (index, outcome) = finished.map_err(|error| crashed(&error))?;
            match outcome {
                Ok(directory) => {
                    made[index] = Some(directory);
                    copied.directories += 1;
                }
                Err(failure) => tell(progress, copied, &plan.path(Some(index)), &failure),
            }
        }
    }
    Ok(made)
}

/// The directory at the target in which something is to be made.
fn above(parent: Option<usize>, made: &[Option<Directory>], target: &Target) -> Option<Directory> {
    match parent {
        None => Some(target.directory.clone()),
        Some(index) => made[index].clone(),
    }
}

async fn copy_files(
    plan: &Plan,
    target: &Arc<Target>,
    made: &[Option<Directory>],
    settings: Settings,
    progress: &Progress,
    copied: &mut Copied,
) -> Result<()> {
    let mut running = JoinSet::new();
    let mut files = plan.files.iter();
    loop {
        while running.len() < FILES_MAX
            && let Some(file) = files.next()
        {
            let path = plan.file_path(file);
            let Some(target_directory) = above(file.parent, made, target) else {
                // Its directory has been reported.
                copied.failed += 1;
                continue;
            };
            let job = Job {
                source: plan.trees[file.tree].clone(),
                source_directory: file.source.clone(),
                target: Arc::clone(target),
                target_directory,
                file: file.clone(),
                settings,
                progress: progress.clone(),
            };
            running.spawn(async move { (path, job.run().await) });
        }
        let Some(finished) = running.join_next().await else {
            return Ok(());
        };
        let (path, outcome) = finished.map_err(|error| crashed(&error))?;
        match outcome {
            Ok(Outcome::Copied(filled)) => {
                copied.files += 1;
                copied.bytes += filled.bytes;
                if let Some(lost) = filled.lost {
                    reduce(progress, copied, &path, &lost);
                }
            }
            Ok(Outcome::Linked) => copied.links += 1,
            Ok(Outcome::Present(bytes)) => {
                copied.present += 1;
                progress.add(bytes);
            }
            Err(failure) => tell(progress, copied, &path, &failure),
        }
    }
}

/// Further names of files that have been copied.
async fn link_names(
    plan: &Plan,
    target: &Target,
    made: &[Option<Directory>],
    progress: &Progress,
    copied: &mut Copied,
) {
    for (file, first) in &plan.names {
        let first = &plan.files[*first];
        let to = above(file.parent, made, target);
        let (Some(from), Some(to)) = (above(first.parent, made, target), to) else {
            // Its directory has been reported.
            copied.failed += 1;
            continue;
        };
        let (from, to) = ((&from, &first.target_name), (&to, &file.target_name));
        match target.tree.hard_link(from, to).await {
            Ok(()) => copied.links += 1,
            Err(failure) => tell(progress, copied, &plan.file_path(file), &failure),
        }
    }
}

/// Extended attributes, modes and times of directories, once nothing changes in them any more:
/// deepest first, for a mode can close the way down.
async fn finish_directories(
    plan: &Plan,
    target: &Target,
    made: &[Option<Directory>],
    settings: Settings,
    progress: &Progress,
    copied: &mut Copied,
) {
    let mut order: Vec<usize> = (0..plan.directories.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(plan.directories[*index].depth));
    for index in order {
        let (planned, Some(directory)) = (&plan.directories[index], &made[index]) else {
            continue;
        };
        let opened_up = planned.meta.mode & 0o700 != 0o700;
        if settings.preserve || opened_up {
            let outcome = async {
                let (tree, meta) = (&target.tree, &planned.meta);
                let source = &plan.trees[planned.tree];
                let kept = match settings.keeps_any() {
                    true => source.xattrs(&planned.source, settings).await?,
                    false => Kept::default(),
                };
                if !kept.is_rich() {
                    tree.set_xattrs(directory, &kept).await?;
                }
                tree.set_meta(directory, meta, settings.preserve).await?;
                // A mode would take away again what the list allows beyond it.
                let takes = kept.is_rich() && tree.set_xattrs(directory, &kept).await?;
                Ok::<_, Failure>((kept.is_rich() && !takes).then(|| kept.lost(meta)))
            };
            let path = plan.path(Some(index));
            match outcome.await {
                Ok(None) => {}
                Ok(Some(lost)) => reduce(progress, copied, &path, &lost),
                Err(failure) => tell(progress, copied, &path, &failure),
            }
        }
    }
}

impl Job {
    async fn run(self) -> Result<Outcome> {
        let PlannedFile {
            name,
            target_name,
            meta,
            ..
        } = &self.file;
        let there = self
            .target
            .tree
            .lookup(&self.target_directory, target_name)
            .await?;
        if let Some((there, _)) = &there {
            if self.settings.resume && is_present(meta, there) {
                return Ok(Outcome::Present(meta.size));
            }
            if self.source.is_same(&self.target.tree) && meta.identity == there.identity {
                return Err(same_file());
            }
        }
        if meta.kind == FileKind::Symlink {
            let leads_to = self.source.read_link(&self.source_directory, name).await?;
            let tree = &self.target.tree;
            tree.make_link(&self.target_directory, target_name, leads_to)
                .await?;
            if self.settings.preserve {
                tree.set_link_meta(&self.target_directory, target_name, meta)
                    .await?;
            }
            return Ok(Outcome::Linked);
        }
        self.copy_file(there.as_ref().map(|(meta, _)| meta))
            .await
            .map(Outcome::Copied)
    }

    /// Whether the file at the target is the source, reached by another way: the exported directory
    /// on the server's own machine, a mount, another volume that has the file, too. Emptying the
    /// target would then destroy what is to be copied.
    async fn is_source(&self, source: &File, there: &Meta) -> Result<bool> {
        let now = source.meta().await?;
        if there.kind != FileKind::File || now.size != there.size {
            return Ok(false);
        }
        let number = |meta: &Meta| meta.identity.1;
        if number(&now) == number(there) {
            return Ok(now.changed == there.changed);
        }
        if number(&now).max(number(there)) < CREATED_AHEAD {
            return Ok(false);
        }
        // Which file of the server a number of a mount's own stands for is seen by a change that
        // changes nothing: of one file, both sides show it. Who may not make it did not make the
        // file just now.
        let (tree, directory) = (&self.target.tree, &self.target_directory);
        let touched = tree.touch(directory, &self.file.target_name, there);
        Ok(touched.await.is_ok() && source.meta().await?.changed != now.changed)
    }

    async fn copy_file(&self, there: Option<&Meta>) -> Result<Filled> {
        let PlannedFile {
            name,
            target_name,
            meta,
            ..
        } = &self.file;
        let source = self.source.open(&self.source_directory, name).await?;
        if let Some(there) = there
            && self.is_source(&source, there).await?
        {
            return Err(same_file());
        }
        // A file that will get its owner and mode at the end is nobody else's until then.
        let mode = if self.settings.preserve {
            0o600
        } else {
            meta.mode & 0o777
        };
        let target = self
            .target
            .tree
            .create(&self.target_directory, target_name, mode)
            .await?;
        let outcome = self.fill(&source, &target).await;
        let Err(failure) = outcome else {
            return outcome;
        };
        if failure.code() != Code::TimedOut {
            target.give_up().await;
        }
        Err(self.name_rest(failure).await)
    }

    /// Says of a copy that broke off what is at the target now: as with cp(1), as much of the file
    /// as has arrived, under its final name.
    async fn name_rest(&self, failure: Failure) -> Failure {
        match failure.code() {
            // It is about just that.
            Code::Mismatch => failure,
            // Asking would take as long again.
            Code::TimedOut => failure.leaving("what is at the target may be incomplete"),
            _ => {
                let (tree, name) = (&self.target.tree, &self.file.target_name);
                match tree.lookup(&self.target_directory, name).await {
                    Ok(None) => failure,
                    Ok(Some(_)) => failure.leaving("an incomplete file is left at the target"),
                    Err(_) => failure.leaving("what is at the target may be incomplete"),
                }
            }
        }
    }

    /// Copies data and attributes into the new file.
    async fn fill(&self, source: &File, target: &File) -> Result<Filled> {
        let meta = &self.file.meta;
        let bytes = if meta.stored < meta.size {
            self.copy_around_holes(source, target).await?
        } else {
            self.copy_data(source, target, 0, u64::MAX).await?
        };
        let xattrs = match self.settings.keeps_any() {
            true => source.xattrs(self.settings).await?,
            false => Kept::default(),
        };
        let at_source = source.meta().await?.size;
        let kept = self.settings.preserve.then_some(meta);
        let (at_target, takes_rich) = target.finish(kept, &xattrs).await?;
        if bytes != at_source {
            let message = format!("it changed while it was copied: {bytes} of {at_source} bytes");
            return Err(Failure::new(Code::Mismatch, message));
        }
        if at_target != bytes {
            let message = format!("the target has {at_target} bytes of {bytes}");
            return Err(Failure::new(Code::Mismatch, message));
        }
        let has_lost = xattrs.is_rich() && !takes_rich;
        Ok(Filled {
            bytes,
            lost: has_lost.then(|| xattrs.lost(meta)),
        })
    }

    /// Copies what is data, and nothing where the source has holes, as cp(1) does it. Returns the
    /// size that the source had when it was looked at.
    async fn copy_around_holes(&self, source: &File, target: &File) -> Result<u64> {
        let size = self.file.meta.size;
        let mut offset = 0;
        while let Some(data) = source.next_data(offset, size).await? {
            self.progress.add(data.offset - offset);
            offset = self
                .copy_data(source, target, data.offset, data.end())
                .await?;
            if offset < data.end() {
                // It has become shorter.
                return Ok(offset);
            }
        }
        self.progress.add(size - offset);
        target.set_size(size).await?;
        Ok(size)
    }

    /// Copies from `offset` to `end`, or until the source has no more; returns up to where.
    async fn copy_data(
        &self,
        source: &File,
        target: &File,
        mut offset: u64,
        end: u64,
    ) -> Result<u64> {
        let mut at_server = true;
        loop {
            let left = end - offset;
            if left == 0 {
                return Ok(offset);
            }
            if at_server {
                match source
                    .copy_at_server(target, offset, SERVER_COPY_BYTES.min(left))
                    .await?
                {
                    Some(0) => return Ok(offset),
                    Some(bytes) => {
                        offset += bytes;
                        self.progress.add(bytes);
                        continue;
                    }
                    None => at_server = false,
                }
            }
            let wanted =
                u32::try_from(left).map_or(DATA_BYTES_MAX, |left| left.min(DATA_BYTES_MAX));
            let pieces = source.read(offset, wanted).await?;
            let before = offset;
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                let bytes = piece.len() as u64;
                target.write(offset, piece).await?;
                offset += bytes;
                self.progress.add(bytes);
            }
            if offset == before {
                return Ok(offset);
            }
        }
    }
}

fn same_file() -> Failure {
    Failure::new(Code::Invalid, "source and target are the same file")
}

/// Whether an earlier copy with preserved times brought this file over: its time of change is set
/// last, so a file that was interrupted does not have it.
fn is_present(source: &Meta, there: &Meta) -> bool {
    source.kind == FileKind::File
        && there.kind == FileKind::File
        && source.size == there.size
        && source.modified == there.modified
}

impl Copied {
    /// One line for people.
    pub(crate) fn summary(&self) -> String {
        let Self {
            files,
            links,
            directories,
            bytes,
            present,
            failed,
            reduced,
            elapsed,
            ..
        } = self;
        let mut parts = vec![output::count(*files, "file"), output::size(*bytes)];
        let counted = [(links, "link"), (directories, "directory")];
        parts.extend(
            counted
                .iter()
                .filter(|(number, _)| **number > 0)
                .map(|(number, one)| output::count(**number, one)),
        );
        let others = [
            (present, "there already"),
            (failed, "not copied"),
            (reduced, "with less than their rich ACLs"),
        ];
        parts.extend(
            others
                .iter()
                .filter(|(number, _)| **number > 0)
                .map(|(number, what)| format!("{number} {what}")),
        );
        let rate = output::rate(*bytes, *elapsed);
        format!("{} in {}, {rate}", parts.join(", "), output::span(*elapsed))
    }

    /// As in `docs/reference/json.md`.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "files": self.files,
            "links": self.links,
            "directories": self.directories,
            "bytes": self.bytes,
            "present": self.present,
            "failed": self.failed,
            "acls_reduced": self.reduced,
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}
