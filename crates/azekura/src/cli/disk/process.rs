//! A disk that is in use: what `serve` and `attach` have in common.
//!
//! Like a mount, it is a process of its own, which the command starts and waits for until it is
//! ready ([`crate::background`]). It is found again by [`super::running`].

use super::opened::{Ahead, CacheArgs, Opened, Writing, open};
use super::overlay::{OverlayArgs, Place as OverlayPlace};
use super::place::Image;
use super::running::Running;
use super::{map, now, recording, runtime};
use crate::background::{self, Start};
use crate::config::Config;
use crate::errors::{Code, Context, Result};
use crate::output;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long it may take until a disk is ready: a name, a manifest and an index from a server that
/// is asked four times for each.
const READY_TIME_MAX: Duration = Duration::from_secs(180);
/// How long what is still under way may hold up the end of the process.
pub(super) const END_TIME_MAX: Duration = Duration::from_secs(5);

/// How a disk is used
#[derive(Clone, Debug, clap::Args)]
pub(super) struct How {
    #[command(flatten)]
    cache: CacheArgs,
    /// What is written lies on this machine, and can be committed, or thrown away
    #[arg(long)]
    writable: bool,
    #[command(flatten)]
    overlay: OverlayArgs,
    /// Fetch ahead what this profile needs, because that is about to be done; several times for
    /// several. Others are followed when they are recognised
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// Fetch everything else meanwhile, from where it is read on, into half of the cache at most: a
    /// line that is idle is used, and more comes than is read
    #[arg(long)]
    fetch_all: bool,
    /// When it ends, write what was read and in which order to this new file, for
    /// `azekura disk train` and `azekura disk map`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// When it ends, show chunk by chunk what was asked for and what was fetched, in this file: a
    /// picture if it is called .svg, else JSON as of `azekura disk map`
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Stay in the foreground and log to standard error
    #[arg(long)]
    foreground: bool,
    /// File for what the process in the background has to say
    /// [default: one for each place, in ~/.local/state/azekura/disks]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Only check that it could be done
    #[arg(long)]
    dry_run: bool,
    /// Print JSON when it is ready
    #[arg(long)]
    json: bool,
    /// Tell the process that started this one when the disk is ready
    #[arg(long, hide = true, requires = "foreground")]
    report: bool,
}

/// A disk that is to be used, with everything decided.
pub(super) struct Plan {
    pub(super) image: Image,
    pub(super) how: How,
    pub(super) overlay: Option<OverlayPlace>,
    /// The command with its own arguments, the disk's not among them.
    pub(super) command: Vec<OsString>,
    /// The argument behind the disk, if there is one.
    pub(super) directory: Option<PathBuf>,
    /// Where it will be found, for the name of its log.
    pub(super) place: String,
    /// What it is, for people.
    pub(super) done: &'static str,
    pub(super) verbose: u8,
}

/// What is done with a disk that was opened: calls what it is given when it is ready, and returns
/// when it has ended.
pub(super) type Body<'a> =
    dyn Fn(&Runtime, &Opened, &dyn Fn(Running) -> Result<()>) -> Result<()> + 'a;

impl How {
    /// Whether another process of this program listens.
    pub(super) fn is_reporting(&self) -> bool {
        self.report
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable || self.overlay.is_named()
    }
}

impl Plan {
    /// Decides where everything lies.
    ///
    /// # Errors
    /// Of directories that must be made.
    pub(super) fn new(config: &Config, image: Image, how: How, verbose: u8) -> Result<Self> {
        let image = image.absolute()?;
        let overlay = match how.is_writable() {
            true => Some(how.overlay.place(config, &image)?),
            false => None,
        };
        let how = How {
            cache: how.cache.absolute()?,
            record: how.record.as_deref().map(recording::checked).transpose()?,
            map: how.map.as_deref().map(map::checked).transpose()?,
            ..how
        };
        Ok(Self {
            image,
            how,
            overlay,
            command: Vec::new(),
            directory: None,
            place: String::new(),
            done: "",
            verbose,
        })
    }

    /// Does it: here, in the background, or not at all.
    ///
    /// # Errors
    /// What keeps it from getting ready, and, in the foreground, how it ended.
    pub(super) fn go(&self, config: &Config, body: &Body<'_>) -> Result<()> {
        let how = &self.how;
        match (how.report, how.dry_run, how.foreground) {
            (true, ..) => {
                let log = how.log.as_deref();
                background::run_reporting(log, self.verbose, |ready| self.run(config, body, ready))
            }
            (_, true, _) => self.check(config),
            (_, _, true) => self.run(config, body, &|said| {
                crate::notify::tell("READY=1");
                self.print(&said)
            }),
            _ => self.print(&self.start(config)?),
        }
    }

    fn writing(&self) -> Writing<'_> {
        self.overlay.as_ref().map_or(Writing::No, Writing::Into)
    }

    fn open(
        &self,
        config: &Config,
        runtime: &Runtime,
        writing: Writing<'_>,
        fetch_all: bool,
    ) -> Result<Opened> {
        let follow = &self.how.profiles;
        let ahead = Ahead {
            follow,
            rest: fetch_all,
        };
        open(
            config,
            runtime,
            &self.image,
            &self.how.cache,
            writing,
            ahead,
        )
    }

    fn check(&self, config: &Config) -> Result<()> {
        let runtime = runtime()?;
        // What is there is looked at, and nothing made.
        let writing = match self.writing() {
            Writing::Into(place) if !place.file().exists() => Writing::No,
            writing => writing,
        };
        let opened = self.open(config, &runtime, writing, false)?;
        opened.finish()?;
        let (name, place) = (&self.image.name, &self.place);
        output::line(format_args!("{name} could be {} {place}", self.done))
    }

    /// Opens the disk, hands it to `body`, and makes durable what was written at the end.
    fn run(
        &self,
        config: &Config,
        body: &Body<'_>,
        ready: &dyn Fn(Value) -> Result<()>,
    ) -> Result<()> {
        crate::cli::server::raise_descriptor_limit();
        let runtime = runtime()?;
        let how = &self.how;
        let opened = self.open(config, &runtime, self.writing(), how.fetch_all)?;
        let registered = std::cell::RefCell::new(None);
        let outcome = body(&runtime, &opened, &|running| {
            *registered.borrow_mut() = Some(super::running::register(config, &running)?);
            let mut said = serde_json::to_value(&running).unwrap_or_default();
            said["since"] = json!(output::moment(running.since));
            said["image_bytes"] = json!(opened.index.image_bytes());
            said["changed_bytes"] = json!(opened.changed_bytes());
            said["is_behind"] = json!(opened.version != opened.newest);
            ready(said)
        });
        let record = how.record.as_deref();
        let recorded = record.map_or(Ok(()), |path| recording::write(path, &opened.image.trace()));
        let finished = opened.finish();
        let map = how.map.as_deref();
        let mapped = map.map_or(Ok(()), |path| {
            map::write_run(path, &self.image.name, &opened.image)
        });
        let outcome = outcome.and(finished).and(recorded).and(mapped);
        let used = opened.used();
        // Whoever waits for the end finds the overlay free.
        drop(opened);
        runtime.shutdown_timeout(END_TIME_MAX);
        if let Some(registered) = registered.into_inner() {
            registered.leave(&used, outcome.as_ref().err());
        }
        outcome
    }

    /// Starts the process and waits until it is ready.
    fn start(&self, config: &Config) -> Result<Value> {
        let log = match &self.how.log {
            Some(log) => std::path::absolute(log).context(log.display())?,
            None => {
                let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
                let name: String = self.place.chars().map(plain).collect();
                // The end tells them apart, and 255 bytes are a name's limit.
                let start = name.len().saturating_sub(200);
                config.disks("")?.join(format!("{}.log", &name[start..]))
            }
        };
        let start = Start {
            what: "disk",
            ended: Code::DiskEnded,
            arguments: self.arguments(&log),
            input: None,
            log: &log,
            limit: READY_TIME_MAX,
        };
        start.run()
    }

    /// The plan as arguments. Nothing secret is in a plan but a password in a URL, which was on a
    /// command line before.
    fn arguments(&self, log: &std::path::Path) -> Vec<OsString> {
        let mut arguments = vec!["disk".into()];
        arguments.extend(self.command.iter().cloned());
        arguments.extend(["--foreground".into(), "--report".into()]);
        arguments.extend((0..self.verbose).map(|_| OsString::from("-v")));
        arguments.extend(["--log".into(), log.into()]);
        arguments.extend(self.how.cache.arguments());
        arguments.extend(self.image.way.arguments());
        if let Some(overlay) = &self.overlay {
            arguments.extend(["--overlay".into(), overlay.path().into()]);
        }
        let profiles = self.how.profiles.iter();
        arguments.extend(profiles.map(|name| format!("--profile={name}").into()));
        arguments.extend(self.how.fetch_all.then(|| "--fetch-all".into()));
        if let Some(record) = &self.how.record {
            arguments.extend(["--record".into(), record.into()]);
        }
        if let Some(map) = &self.how.map {
            arguments.extend(["--map".into(), map.into()]);
        }
        arguments.push("--".into());
        arguments.push(self.image.place.argument());
        arguments.push(self.image.name.to_string().into());
        arguments.extend(self.directory.iter().map(OsString::from));
        arguments
    }

    /// What is told of this disk.
    pub(super) fn running(&self, opened: &Opened, kind: &str, place: String) -> Running {
        Running {
            place,
            kind: kind.to_owned(),
            repository: self.image.place.to_string(),
            name: self.image.name.to_string(),
            version: opened.version.to_string(),
            writable: self.how.is_writable(),
            overlay: self.overlay.as_ref().map(|place| place.path().to_owned()),
            device: None,
            pid: std::process::id(),
            since: now(),
        }
    }

    /// Says that it is ready, in this process or another.
    fn print(&self, said: &Value) -> Result<()> {
        if self.how.json {
            return output::json(said);
        }
        let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
        let place = match text("device") {
            "" => text("where"),
            device => device,
        };
        if said.get("is_behind") == Some(&Value::Bool(true)) {
            output::note(format_args!(
                "{} points to another version by now; this disk stays what it was, with what was \
                 written onto it (azekura disk reset begins anew)",
                self.image.name
            ));
        }
        output::line(format_args!("{} is {} {place}", self.image.name, self.done))
    }
}
