//! `azekura cp`.

use crate::address::{Address, AddressError, FileAddress, Location, VolumeAddress};
use crate::config::Config;
use crate::connect::{GOODBYE_TIME_MAX, WayArgs, enter, runtime, unless_interrupted};
use crate::copy::{Copied, Directory, Plan, Settings, Source, Target, Tree, copy};
use crate::errors::{Code, Context, Failure, Result, plain_io};
use crate::heard::Heard;
use crate::output;
use base::{FileKind, Name};
use clap::ArgGroup;
use client::transport::TransportOptions;
use client::volume::Volume;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use serde_json::json;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Copy files between this machine and volumes, without a mount
///
/// A path on this machine is written as usual, a file of a volume as HOST:PORT/VOLUME:/PATH.
/// When the command returns, everything is safe at the target's server. Symbolic links within a
/// copied directory are copied as links, holes of files stay holes; pipes, sockets and devices are
/// not copied.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("keeping").multiple(true)))]
#[command(after_help = "\
Examples:
  azekura cp photos/first.raw 127.0.0.1:7700/photos:/third.raw
  azekura cp -r -p ./results far.example:7700/lab:/
  azekura cp -a ./results far.example:7700/lab:/
  azekura cp -r --acls ./results far.example:7700/lab:/
  azekura cp -r -p --continue ./results far.example:7700/lab:/  # the rest")]
pub(super) struct Cp {
    /// Sources and, last, the target
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    locations: Vec<Operand>,
    /// Copy directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// Keep owner, mode and times
    #[arg(short, long, group = "keeping")]
    preserve: bool,
    /// As -r -p, and keep hard links, ACLs and other extended attributes
    #[arg(short, long, group = "keeping")]
    archive: bool,
    /// As -p, and keep ACLs, rich ones as well; what the target cannot have of one is told
    #[arg(long, group = "keeping")]
    acls: bool,
    /// Skip files whose size and time of change are at the target already
    #[arg(long = "continue", requires = "keeping")]
    resume: bool,
    /// Say what would be copied, without copying
    #[arg(long)]
    dry_run: bool,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

/// A location as it was written.
#[derive(Clone, Debug)]
struct Operand {
    location: Location,
    /// It ends with `/`: only a directory is meant.
    is_directory: bool,
}

impl FromStr for Operand {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Ok(Self {
            location: text.parse()?,
            is_directory: text.ends_with('/') || text.ends_with("/."),
        })
    }
}

/// Volumes that this command is in, each by one session.
struct Volumes<'a> {
    config: &'a Config,
    way: &'a WayArgs,
    open: Vec<(VolumeAddress, Arc<Volume>)>,
    heard: Heard,
}

impl Cp {
    pub(super) fn run(mut self, config: &Config) -> Result<()> {
        self.recursive |= self.archive;
        self.preserve |= self.archive || self.acls;
        runtime()?.block_on(async {
            let mut volumes = Volumes {
                config,
                way: &self.way,
                open: Vec::new(),
                heard: Heard::default(),
            };
            let mut copied = Copied::default();
            let outcome = unless_interrupted(self.copy(&mut volumes, &mut copied)).await;
            volumes.close().await;
            outcome.map_err(|failure| match failure.code() {
                Code::Interrupted if failure.is_trouble() => self.interrupted(&copied),
                _ => failure,
            })
        })
    }

    /// How far it came, and how it goes on.
    fn interrupted(&self, copied: &Copied) -> Failure {
        let files = output::count(copied.files, "file");
        let bytes = output::size(copied.bytes);
        if self.dry_run {
            return Failure::interrupted("interrupted");
        }
        let failure = Failure::interrupted(match copied.files {
            0 => "interrupted before the first file was complete; part of it may be at the target"
                .to_owned(),
            _ => format!(
                "interrupted after {files} ({bytes}), the last of which may not have arrived"
            ),
        });
        failure.hint(if self.preserve {
            "repeat with --continue for the rest"
        } else {
            "repeat it; with -p, --continue could tell what is there already"
        })
    }

    /// Says what would be done.
    fn tell(&self, plan: &Plan) -> Result<()> {
        let (files, directories) = plan.count();
        let skipped = plan.skipped();
        if self.json {
            return output::json(&json!({
                "dry_run": true, "files": files, "directories": directories, "bytes": plan.bytes,
                "failed": skipped.len(),
            }));
        }
        for line in &skipped {
            output::note(format_args!("would not be copied: {line}"));
        }
        let bytes = output::size(plan.bytes);
        let files = output::count(files as u64, "file");
        let directories = output::count(directories as u64, "directory");
        output::line(format_args!(
            "would copy {files} of {bytes} and {directories}"
        ))
    }

    /// Finds the sources, with everything below them, and the target.
    async fn plan(&self, volumes: &mut Volumes<'_>) -> Result<(Plan, Target)> {
        let (target, sources) = self
            .locations
            .split_last()
            .expect("clap demands two or more");
        let mut found = Vec::new();
        for source in sources {
            let source = volumes.source(&source.location, self.recursive).await;
            found.push(source?);
        }
        let target = volumes.target(target, &mut found).await?;
        let plan = Plan::make(found, self.recursive, self.archive).await?;
        Ok((plan, target))
    }

    async fn copy(&self, volumes: &mut Volumes<'_>, copied: &mut Copied) -> Result<()> {
        let heard = volumes.heard.clone();
        let (plan, target) = heard.unless_silent(self.plan(volumes)).await?;
        if self.dry_run {
            return self.tell(&plan);
        }
        let settings = Settings {
            preserve: self.preserve,
            resume: self.resume,
            attributes: self.archive,
            acls: self.acls,
        };
        let copying = heard.unless_silent(copy(plan, target, settings, copied));
        copying.await.map_err(incomplete)?;
        if self.json {
            output::json(&copied.to_json())?;
        } else {
            output::note(copied.summary());
        }
        if copied.failed > 0 {
            let message = format!("not copied: {}", output::count(copied.failed, "file"));
            let failure = Failure::new(Code::CopyIncomplete, message);
            return Err(if copied.failed == copied.special {
                failure.hint("pipes, sockets and devices are never copied; the rest has been")
            } else if !self.recursive {
                failure.hint("the reasons are named above; when they are gone, repeat the command")
            } else {
                failure
            });
        }
        Ok(())
    }
}

/// A source that is not there.
fn missing(location: &Location) -> Failure {
    let failure = Failure::new(Code::FileNotFound, format!("there is no file {location}"));
    failure.hint(match location {
        Location::Local(_) => "is the path right? a file of a volume is HOST:PORT/VOLUME:/PATH, \
                               never without the port"
            .to_owned(),
        Location::Remote(address) => {
            let above = address.above(address.path.len().saturating_sub(1));
            format!("azekura ls {above} shows what is there")
        }
    })
}

/// Says of a server that has gone on the way what is at the target now.
fn incomplete(failure: Failure) -> Failure {
    match failure.code() {
        Code::Unreachable | Code::TimedOut => {
            failure.leaving("what is at the target may be incomplete")
        }
        _ => failure,
    }
}

impl Volumes<'_> {
    async fn enter(&mut self, address: &VolumeAddress) -> Result<Arc<Volume>> {
        if let Some((_, volume)) = self.open.iter().find(|(known, _)| known == address) {
            return Ok(Arc::clone(volume));
        }
        let server: &Address = &address.server;
        let options = TransportOptions {
            line: self.config.line(server),
            ..TransportOptions::default()
        };
        let volume = enter(self.config, address, self.way, options).await?;
        self.heard.add(server, volume.transport());
        self.open.push((address.clone(), Arc::clone(&volume)));
        Ok(volume)
    }

    async fn close(self) {
        for (address, volume) in self.open {
            let transport = volume.transport();
            let (line, received) = (transport.line_memory(), transport.figures().bytes_received);
            if let Err(failure) = self.config.save_line(&address.server, line, received) {
                tracing::debug!("cannot remember the line: {}", failure.message());
            }
            // Everything was made durable before, or has been reported.
            volume.transport().close(GOODBYE_TIME_MAX).await;
        }
    }

    async fn source(&mut self, location: &Location, recursive: bool) -> Result<Source> {
        let missing = || missing(location);
        let (tree, parent, name, target_name) = match location {
            Location::Local(path) => {
                let (directory, name, target_name) = split_local(path, recursive)?;
                let (tree, root) = Tree::local(&directory).await?;
                (tree, root, name, target_name)
            }
            Location::Remote(FileAddress { volume, path }) => {
                let Some((name, above)) = path.split_last() else {
                    return self.whole_volume(volume).await;
                };
                let (tree, root) = Tree::remote(self.enter(volume).await?)?;
                let parent = descend(&tree, root, above).await?.ok_or_else(missing)?;
                (tree, parent, name.clone(), name.clone())
            }
        };
        let (meta, directory) = tree.lookup(&parent, &name).await?.ok_or_else(missing)?;
        Ok(Source {
            tree,
            parent,
            name,
            target_name,
            meta,
            directory,
        })
    }

    /// A volume's root has no name in a directory; at the target it gets the volume's.
    async fn whole_volume(&mut self, address: &VolumeAddress) -> Result<Source> {
        let volume = self.enter(address).await?;
        let who = crate::connect::principal(volume.transport())?;
        let view = volume.attributes(&who, client::cache::NodeId::ROOT).await?;
        let name = Name::new(&address.volume)
            .map_err(|error| Failure::new(Code::Invalid, error.to_string()))?;
        let (tree, root) = Tree::remote(volume)?;
        Ok(Source {
            tree,
            parent: root.clone(),
            name: name.clone(),
            target_name: name,
            meta: crate::copy::meta_of(&view.attributes),
            directory: root,
        })
    }

    /// Finds the target. If it is a directory, everything goes into it; if it is not, the one
    /// source gets its name.
    async fn target(&mut self, operand: &Operand, sources: &mut [Source]) -> Result<Target> {
        let location = &operand.location;
        let (tree, parent, name) = match location {
            Location::Local(path) => {
                if path.is_dir() {
                    let (tree, directory) = Tree::local(path).await?;
                    return Ok(Target { tree, directory });
                }
                let path = match sources {
                    [one] if one.meta.kind == FileKind::File && !operand.is_directory => {
                        written_through(path)?
                    }
                    _ => path.clone(),
                };
                let (directory, name, _) = split_local(&path, true)?;
                let (tree, root) = Tree::local(&directory).await?;
                (tree, root, name)
            }
            Location::Remote(FileAddress { volume, path }) => {
                let (tree, root) = Tree::remote(self.enter(volume).await?)?;
                let Some((name, above)) = path.split_last() else {
                    return Ok(Target {
                        tree,
                        directory: root,
                    });
                };
                let missing = || {
                    let message = format!("the directory for {location} does not exist");
                    Failure::new(Code::FileNotFound, message)
                };
                let parent = descend(&tree, root, above).await?.ok_or_else(missing)?;
                (tree, parent, name.clone())
            }
        };
        let kind = match tree.lookup(&parent, &name).await? {
            Some((meta, directory)) if meta.kind == FileKind::Directory => {
                return Ok(Target { tree, directory });
            }
            found => found.map(|(meta, _)| meta.kind),
        };
        let [source] = sources else {
            let message = format!("{location} is no directory, and there are several sources");
            return Err(Failure::new(Code::Invalid, message).hint("make it, or copy one at a time"));
        };
        if source.meta.kind != FileKind::Directory {
            check_target(operand, kind)?;
        }
        source.target_name = name;
        Ok(Target {
            tree,
            directory: parent,
        })
    }
}

/// Whether a file can be put where `kind` is, or nothing.
fn check_target(
    Operand {
        location,
        is_directory,
    }: &Operand,
    kind: Option<FileKind>,
) -> Result<()> {
    if *is_directory {
        let what = match kind {
            Some(_) => "is no directory",
            None => "does not exist",
        };
        let message = format!("{location} {what}, and a name that ends with / is a directory's");
        return Err(Failure::new(Code::Invalid, message)
            .hint("make the directory first; or leave the / out for a file of that name"));
    }
    match kind {
        None | Some(FileKind::File | FileKind::Symlink) => Ok(()),
        Some(_) => Err(no_file(location)),
    }
}

fn no_file(what: impl std::fmt::Display) -> Failure {
    let message = format!("{what} is a pipe, a socket or a device, to which nothing is copied");
    Failure::new(Code::Invalid, message)
        .hint("copy into a file; of a mounted volume, other programs can read it")
}

/// The file to which a target on this machine leads: a link that the user named as the target is
/// written through, as cp(1) does it, if there is a file behind it.
fn written_through(path: &Path) -> Result<PathBuf> {
    if !path.is_symlink() {
        return Ok(path.to_owned());
    }
    let shown = Location::Local(path.to_owned());
    let failed = |errno: Errno| Failure::local(&shown, plain_io(&errno.into()));
    // The kernel follows it, and refuses links that others have left in directories for everybody.
    let opened = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => {
            let message = format!("{shown} is a symbolic link to a file that does not exist");
            return Err(Failure::new(Code::FileNotFound, message)
                .hint("remove the link, or name the file itself as the target"));
        }
        opened => opened.map_err(failed)?,
    };
    let stat = rustix::fs::fstat(&opened).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(no_file(&shown));
    }
    let itself = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let real = std::fs::read_link(itself).context(&shown)?;
    // A file that has been removed since, or is not to be seen from here, has another path or none.
    match rustix::fs::lstat(&real) {
        Ok(there) if (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino) => Ok(real),
        _ => {
            let message = format!("{shown} is a symbolic link to a file that has no name any more");
            Err(Failure::new(Code::FileNotFound, message).hint("name a file as the target"))
        }
    }
}

/// Goes down from `root`; `None` where the way does not exist.
async fn descend(tree: &Tree, root: Directory, names: &[Name]) -> Result<Option<Directory>> {
    let mut at = root;
    for name in names {
        match tree.lookup(&at, name).await? {
            Some((meta, below)) if meta.kind == FileKind::Directory => at = below,
            _ => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// A path of this machine as a directory, a name in it, and the name that the user wrote. A link
/// that is named as a source is followed, except in a recursive copy.
fn split_local(path: &Path, keep_link: bool) -> Result<(PathBuf, Name, Name)> {
    let failed = |error: std::io::Error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => Code::FileNotFound,
            std::io::ErrorKind::PermissionDenied => Code::FileDenied,
            _ => Code::FileFailed,
        };
        Failure::new(code, format!("{}: {}", path.display(), plain_io(&error)))
    };
    let no_name = || {
        let message = format!("{} has no name that could be copied", path.display());
        Failure::new(Code::Invalid, message)
    };
    // `.` and `..` have no last name of their own.
    let named = match path.file_name() {
        Some(_) => path.to_owned(),
        None => path.canonicalize().map_err(failed)?,
    };
    let name = |path: &Path| {
        let name = path.file_name().ok_or_else(no_name)?;
        Name::new(name.as_encoded_bytes())
            .map_err(|error| Failure::new(Code::Invalid, error.to_string()))
    };
    let target_name = name(&named)?;
    let real = if keep_link || !named.is_symlink() {
        named
    } else {
        named.canonicalize().map_err(failed)?
    };
    let parent = match real.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => return Err(no_name()),
    };
    Ok((parent, name(&real)?, target_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_a_directory_and_a_name() {
        let split = |path: &str| {
            let (directory, name, _) = split_local(Path::new(path), true).expect(path);
            (directory.to_string_lossy().into_owned(), name.to_string())
        };
        let pair = |directory: &str, name: &str| (directory.to_owned(), name.to_owned());
        assert_eq!(split("file"), pair(".", "file"));
        assert_eq!(split("a/b/"), pair("a", "b"));
        assert_eq!(split("/x"), pair("/", "x"));
        assert!(split_local(Path::new("/"), true).is_err());
        let here = std::env::current_dir().expect("it exists");
        let name = here
            .file_name()
            .expect("tests do not run in /")
            .to_string_lossy()
            .into_owned();
        assert_eq!(split(".").1, name);
    }

    #[test]
    fn a_target_that_is_a_link_is_written_through() {
        let scratch = tempfile::tempdir().expect("a directory");
        let root = scratch.path().canonicalize().expect("it is there");
        std::fs::create_dir(root.join("below")).expect("room on the disk");
        std::fs::write(root.join("below/file"), "x").expect("room on the disk");
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, root.join(name)).expect("room on the disk");
            written_through(&root.join(name))
        };
        let real = root.join("below/file");
        assert_eq!(link("below/file", "link").expect("it is there"), real);
        assert_eq!(link("link", "twice").expect("it is there"), real);
        let refused = |to: &str, name: &str| link(to, name).expect_err(to).to_string();
        assert!(refused("missing", "dangling").contains("does not exist"));
        assert!(refused("/dev/null", "device").contains("device"));
        assert!(refused("ring", "ring").contains("symbolic links"));
        assert_eq!(
            written_through(&root.join("new")).expect("free"),
            root.join("new")
        );
    }

    #[test]
    fn a_target_with_a_slash_is_a_directory() {
        let operand = |text: &str| text.parse::<Operand>().expect(text);
        for text in ["far:7/v:/new/", "new/", "far:7/v:/new/."] {
            let failure = check_target(&operand(text), None).expect_err(text);
            assert!(failure.message().contains("does not exist"), "{failure}");
            assert!(check_target(&operand(text), Some(FileKind::File)).is_err());
        }
        assert!(check_target(&operand("far:7/v:/new"), None).is_ok());
        assert!(check_target(&operand("pipe"), Some(FileKind::Fifo)).is_err());
    }

    #[test]
    fn a_named_link_is_followed_but_keeps_its_name() {
        let scratch = tempfile::tempdir().expect("a directory");
        std::fs::write(scratch.path().join("file"), "x").expect("room on the disk");
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink("file", &link).expect("room on the disk");
        let (_, name, target_name) = split_local(&link, false).expect("it is there");
        assert_eq!(
            (name.to_string(), target_name.to_string()),
            ("file".into(), "link".into())
        );
        let (_, name, _) = split_local(&link, true).expect("it is there");
        assert_eq!(name.to_string(), "link");
    }
}
