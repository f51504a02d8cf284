//! `azekura mount`.
//!
//! A mount is a process of its own, which the command starts and waits for until it is ready:
//! [`crate::background`].

mod background;
mod options;
mod process;
mod ticket;

pub(super) use options::{OptionError, Options};

use crate::address::VolumeAddress;
use crate::cli::tickets::TicketFile;
use crate::config::Config;
use crate::connect::{GOODBYE_TIME_MAX, WayArgs, enter, principal, runtime};
use crate::errors::{Code, Failure, Result, plain_io};
use crate::mounts::Mounted;
use crate::{logging, output};
use base::ByteSize;
use client::cache::NodeId;
use client::transport::TransportOptions;
use client::volume::Volume;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Mount a volume on a directory; returns when it is ready
///
/// Requests that the server does not answer within --timeout end with an error; the mount goes on
/// and works again when the server does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Options of -o: ro, rw, allow_other, suid, nosuid, dev, nodev, exec, noexec, plain, timeout=TIME,
log=FILE, ticket=FILE. Set-id bits and device files do not count unless root asks
for suid or dev. Options for others (_netdev, nofail, x-systemd...) are accepted and left to them.

Examples:
  azekura mount far.example:7700/genomes mnt/g --read-only --timeout 10s
  azekura mount 127.0.0.1:7700/lab mnt/lab --ticket cam.json
  far.example:7700/genomes /mnt/g azekura ro,_netdev,nofail 0 0      # in /etc/fstab")]
pub(super) struct Mount {
    /// HOST:PORT/VOLUME
    #[arg(value_name = "ADDR/VOLUME")]
    volume: VolumeAddress,
    /// An existing directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
    /// Let users other than this one in; not root needs user_allow_other in /etc/fuse.conf
    #[arg(long)]
    allow_other: bool,
    /// Options as in fstab, separated by commas
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<Options>,
    /// Stay in the foreground and log to standard error
    #[arg(long)]
    foreground: bool,
    /// File for what the mount has to say in the background
    /// [default: ~/.local/state/azekura/mount-DIR.log]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// What was reserved, as `azekura reserve create --json` has printed it: what is read and
    /// written in its window goes at its rate; - for standard input
    #[arg(long, value_name = "FILE")]
    ticket: Option<PathBuf>,
    /// Check that the volume could be mounted, without mounting it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    way: WayArgs,
    /// One request in flight with a buffer of this size, to compare with
    #[arg(long, value_name = "SIZE", hide = true)]
    blocking: Option<ByteSize>,
    /// Tell the process that started this one when the mount is ready
    #[arg(long, hide = true, requires = "foreground")]
    report: bool,
}

/// What is to be mounted where and how, with everything decided.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) volume: VolumeAddress,
    /// Absolute.
    pub(super) directory: PathBuf,
    pub(super) options: Options,
    pub(super) blocking: Option<ByteSize>,
    pub(super) verbose: u8,
}

impl Mount {
    pub(super) fn run(self, config: &Config, verbose: u8) -> Result<()> {
        let mut options = Options {
            read_only: self.read_only,
            allow_other: self.allow_other,
            plain: self.way.plain,
            ..Options::default()
        };
        for more in self.options {
            options.merge(more);
        }
        options.timeout = self.way.timeout.or(options.timeout);
        options.log = self.log.or(options.log);
        options.ticket = self.ticket.or(options.ticket);
        let plan = Plan {
            volume: self.volume,
            directory: self.directory,
            options,
            blocking: self.blocking,
            verbose,
        };
        match (self.report, self.foreground, self.dry_run) {
            (true, ..) => process::run_reporting(&plan, config),
            (_, _, true) => {
                logging::to_stderr(verbose);
                plan.check(config)
            }
            (_, true, _) => {
                logging::to_stderr(verbose);
                let plan = plan.prepared()?;
                let hidden = plan.hidden();
                process::run(&plan, config, || {
                    note(hidden);
                    Ok(())
                })
            }
            _ => {
                logging::to_stderr(verbose);
                plan.start(config)
            }
        }
    }
}

impl Plan {
    /// Starts the mount in the background and waits until it is ready.
    ///
    /// # Errors
    /// What kept it from getting ready.
    pub(super) fn start(self, config: &Config) -> Result<()> {
        let mut plan = self.prepared()?;
        let log = match plan.options.log.take() {
            Some(log) => {
                std::path::absolute(&log).map_err(|error| Failure::local(log.display(), error))?
            }
            None => config.mount_log(&plan.directory)?,
        };
        plan.options.log = Some(log);
        let mut input = None;
        if let Some(path) = &plan.options.ticket {
            let file = TicketFile::read(path)?;
            ticket::announce(&ticket::of(&file)?)?;
            // What was read from standard input is there no more.
            input = (path == Path::new("-")).then(|| file.value.to_string());
        }
        let limit = background::ready_time_max(plan.timeout(config));
        // Afterwards nobody sees it.
        let hidden = plan.hidden();
        background::start(&plan, input, limit)?;
        note(hidden);
        Ok(())
    }

    /// What is to be said of a directory that is not empty.
    fn hidden(&self) -> Option<String> {
        let mut entries = std::fs::read_dir(&self.directory).ok()?;
        entries.next()?.ok()?;
        Some(format!(
            "{} is not empty; what lies in it is hidden while the volume is mounted there",
            self.directory.display()
        ))
    }

    /// Checks the directory and makes its path absolute.
    pub(super) fn prepared(mut self) -> Result<Self> {
        self.directory = mount_point(&self.directory)?;
        let is_file = |ticket: &mut PathBuf| ticket != Path::new("-");
        if let Some(ticket) = self.options.ticket.take_if(is_file) {
            let absolute = std::path::absolute(&ticket);
            let absolute = absolute.map_err(|error| Failure::local(ticket.display(), error))?;
            self.options.ticket = Some(absolute);
        }
        Ok(self)
    }

    /// Says whether it could be mounted.
    fn check(self, config: &Config) -> Result<()> {
        let plan = self.prepared()?;
        runtime()?.block_on(async {
            let volume = plan.attach(config).await?;
            volume
                .detach(Duration::from_secs(1))
                .await
                .map_err(Failure::from)
        })?;
        let directory = plan.directory.display();
        output::line(format_args!(
            "{} could be mounted on {directory}",
            plan.volume
        ))?;
        note(plan.hidden());
        Ok(())
    }

    fn timeout(&self, config: &Config) -> Duration {
        config.timeout(&self.volume.server, self.options.timeout)
    }

    /// Connects and enters the volume.
    async fn attach(&self, config: &Config) -> Result<std::sync::Arc<Volume>> {
        let VolumeAddress { server, .. } = &self.volume;
        let tickets = self.options.ticket.as_deref().map(ticket::read);
        let tickets = tickets.transpose()?;
        let way = WayArgs {
            plain: self.options.plain,
            timeout: self.options.timeout,
        };
        let options = TransportOptions {
            line: config.line(server),
            blocking: self.blocking.map(|ByteSize(bytes)| bytes),
            ..TransportOptions::default()
        };
        let volume = enter(config, &self.volume, &way, options).await?;
        if self.is_export_of(&volume).await {
            volume.transport().close(GOODBYE_TIME_MAX).await;
            let shown = self.directory.display();
            let message = format!("cannot mount on {shown}: that is what the volume exports");
            let hint =
                "the server would find itself when it starts again; choose another directory";
            return Err(Failure::new(Code::MountPoint, message).hint(hint));
        }
        // If the server does not say, the kernel judges, by mode bits that never show too much.
        if let Err(error) = volume.learn_rights(&principal(volume.transport())?).await {
            tracing::debug!(%error, "the server does not say whether there are rich ACLs");
        }
        if let Some(tickets) = tickets
            && let Err(failure) = ticket::put_to_use(&self.volume, &volume, tickets).await
        {
            volume.transport().close(GOODBYE_TIME_MAX).await;
            return Err(failure);
        }
        Ok(volume)
    }

    /// Whether the directory is the very one that the server exports, on this machine. No two
    /// directories have all of this in common, unless one is a copy of the other's file system.
    async fn is_export_of(&self, volume: &Volume) -> bool {
        let Ok(root) = volume
            .attributes(volume.transport().own(), NodeId::ROOT)
            .await
        else {
            return false;
        };
        let Ok(here) = self.directory.metadata() else {
            return false;
        };
        let root = root.attributes;
        (here.ino(), here.ctime(), here.ctime_nsec())
            == (
                root.inode,
                root.changed.seconds,
                i64::from(root.changed.nanos),
            )
    }
}

fn note(what: Option<String>) {
    if let Some(what) = what {
        output::note(what);
    }
}

/// Users other than root mount where they may write.
const NEEDS_DIRECTORY: &str = "choose a directory of your own (mkdir -p ~/mnt), or mount as root";

/// How long a mount that is in the way may take to say that it lives.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// The directory as an absolute path without links, if it can be mounted on.
pub(super) fn mount_point(directory: &Path) -> Result<PathBuf> {
    let shown = directory.display();
    let unusable =
        |why: &str| Failure::new(Code::MountPoint, format!("cannot mount on {shown}: {why}"));
    if let Ok(mounted) = Mounted::at(directory) {
        let failure = if mounted.has_ended(ANSWER_TIME_MAX) {
            unusable(&format!(
                "{} was mounted there, and its process has ended",
                mounted.source
            ))
        } else {
            unusable(&format!("{} is mounted there", mounted.source))
        };
        return Err(failure.hint(format!("azekura umount {shown} takes it off")));
    }
    let real = directory
        .canonicalize()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                unusable("it does not exist").hint(format!("mkdir -p {shown}"))
            }
            io::ErrorKind::NotConnected => unusable("the process of a mount there has ended").hint(
                format!("fusermount3 -u {shown} or umount {shown} takes it off"),
            ),
            io::ErrorKind::PermissionDenied => {
                unusable("this user may not go there").hint(NEEDS_DIRECTORY)
            }
            _ => unusable(&plain_io(&error)),
        })?;
    if !real.is_dir() {
        return Err(unusable("it is not a directory").hint("name one, or make one with mkdir"));
    }
    // As fusermount3 will ask, and the kernel does not.
    if !rustix::process::geteuid().is_root()
        && rustix::fs::access(&real, rustix::fs::Access::WRITE_OK).is_err()
    {
        return Err(unusable("this user may not write to it").hint(NEEDS_DIRECTORY));
    }
    Ok(real)
}
