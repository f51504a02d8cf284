//! The operations of [`crate::mix`], asked of a whole server over loopback by a client that keeps
//! nothing: what rich ACLs take away from who does not look at them, beside all that a request
//! takes otherwise (the line, TLS, sessions, threads, leases).
//!
//! Each run begins with a copy of the same image, mounted anew at the same place, and with a server
//! that is started anew on the same data, so that its handles are good: the first pass is cold.
//! Who asks has found all handles in an earlier run.

use crate::Cli;
use crate::lists::Service;
use crate::mix::{LISTED_MAX, Op, drawn, operations, used};
use crate::place::Kind;
use crate::report::{Goal, Report, median};
use crate::tree::{FILE_BYTES, Found, Tree, directory_name, somebody};
use anyhow::{Context, Result, bail};
use base::{AttributeChange, Handle, Name, Principal, SetTime};
use bytes::Bytes;
use client::transport::{Call, Endpoint, Transport, TransportOptions};
use figures::Random;
use serde::Serialize;
use server::{DataError, RunningServer, Server, ServerConfig, ServerError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use wire::frame::Class;
use wire::identity::Credential;
use wire::message::{
    AclViewsAsk, AdminReply, AdminRequest, FileRef, Step, StepReply, Target, VolumeKind, WriteAt,
};

const VOLUME: &str = "office";
/// Reading, as access(2) has it.
const READ: u8 = 4;
/// For a server to give its directory up, and a session its goodbye.
const END_TIME_MAX: Duration = Duration::from_secs(20);
/// As of [`crate::mix`].
const COLD_GOAL: f64 = 0.98;
const WARM_GOAL: f64 = 0.995;

/// Operations a second of one run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Passed {
    cold_per_second: f64,
    warm_per_second: f64,
}

/// All rounds on one file system with one service.
#[derive(Serialize)]
struct Case {
    file_system: Kind,
    service: &'static str,
    off: Vec<Passed>,
    on: Vec<Passed>,
}

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let runtime = Runtime::new()?;
    let mut all = Vec::new();
    for kind in &cli.file_systems {
        for service in Service::ALL {
            eprintln!("served: {kind}, {}", service.name());
            let case = runtime.block_on(Case::measure(cli, *kind, service))?;
            case.tell(report);
            all.push(case);
        }
    }
    report.section("served", &all)
}

impl Case {
    async fn measure(cli: &Cli, kind: Kind, service: Service) -> Result<Self> {
        let tree = Tree::new(cli, kind, service)?;
        let place = Place::new(cli)?;
        let found = place.prepare(&tree).await?;
        let mut case = Self {
            file_system: kind,
            service: service.name(),
            off: Vec::new(),
            on: Vec::new(),
        };
        for round in 0..cli.repeat {
            // Each begins as often as the other.
            for is_on in [round % 2 == 1, round % 2 == 0] {
                let passed = place.run(&tree, &found, is_on, operations(cli)).await?;
                match is_on {
                    true => case.on.push(passed),
                    false => case.off.push(passed),
                }
            }
        }
        Ok(case)
    }

    fn tell(&self, report: &mut Report) {
        let place = format!("{}, {}", self.file_system, self.service);
        let of = [
            ("cold", COLD_GOAL, "at least 98 %"),
            ("warm", WARM_GOAL, "at least 99.5 %"),
        ];
        for (word, least, words) in of {
            let rate = |passed: &Passed| match word {
                "cold" => passed.cold_per_second,
                _ => passed.warm_per_second,
            };
            let [off, on] =
                [&self.off, &self.on].map(|all| all.iter().map(rate).collect::<Vec<_>>());
            let ratios: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on / off).collect();
            let [off, on] = [off, on].map(|rates| median(&rates));
            let text = format!(
                "**{:.1} %** of {off:.0} operations/s ({:+.2} us each)",
                median(&ratios) * 100.0,
                (1.0 / on - 1.0 / off) * 1e6
            );
            let what = format!("{place}: rich ACLs on, beside off, of a whole server, {word}");
            report.row(&what, &ratios, Goal::at_least(least, words), text);
        }
    }
}

/// A server's data, and where it finds the tree.
struct Place {
    directory: TempDir,
    point: TempDir,
    credential: Arc<Credential>,
}

impl Place {
    fn new(cli: &Cli) -> Result<Self> {
        let new = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix("azekura-bench-").tempdir_in(&cli.directory)
        };
        let directory = new()?;
        let made = Server::init(&directory.path().join("server"))?;
        Ok(Self {
            directory,
            point: new()?,
            credential: Arc::new(made.admin),
        })
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("server")
    }

    /// Waits until the run before has given the directory up.
    async fn start(&self) -> Result<RunningServer> {
        let config = ServerConfig::new(self.data(), "127.0.0.1:0".parse()?);
        let begin = Instant::now();
        loop {
            match Server::start(config.clone()).await {
                Err(ServerError::Data(DataError::InUse(_))) if begin.elapsed() < END_TIME_MAX => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                started => return Ok(started?),
            }
        }
    }

    async fn line(&self, server: &RunningServer) -> Result<Line> {
        let endpoint = Endpoint {
            name: "bench".to_owned(),
            addresses: vec![server.address()],
            credential: self.credential.clone(),
            plain: false,
            host: "bench".to_owned(),
            server: None,
        };
        let options = TransportOptions {
            connections: 1,
            ..TransportOptions::default()
        };
        let transport = Transport::connect(endpoint, options).await?;
        Ok(Line { transport })
    }

    /// Makes the volume, measures what views cost, so that no other run does, and finds handles.
    async fn prepare(&self, tree: &Tree) -> Result<Found> {
        let image = tree.image.copy()?;
        let mounted = image.mount_on(self.point.path())?;
        let server = self.start().await?;
        let line = self.line(&server).await?;
        let kind = VolumeKind::Export {
            path: self.point.path().to_string_lossy().into_owned(),
            read_only: false,
        };
        let name = VOLUME.to_owned();
        let create = AdminRequest::VolumeCreate {
            name,
            kind,
            dry_run: false,
        };
        line.administer(create).await?;
        line.switch(true).await?;
        let (name, ask) = (VOLUME.to_owned(), AclViewsAsk::Calibrate);
        line.administer(AdminRequest::AclViews { name, ask })
            .await?;
        line.switch(false).await?;
        let found = line.find(tree).await?;
        line.end(server).await;
        drop(mounted);
        Ok(found)
    }

    async fn run(
        &self,
        tree: &Tree,
        found: &Found,
        is_on: bool,
        operations: usize,
    ) -> Result<Passed> {
        let image = tree.image.copy()?;
        let mounted = image.mount_on(self.point.path())?;
        let server = self.start().await?;
        let line = self.line(&server).await?;
        line.switch(is_on).await?;
        line.attach().await?;
        let mut client = Client {
            line: &line,
            found,
            who: somebody(),
            made: Vec::new(),
        };
        let cold = client.pass(operations, 0).await?;
        let warm = client.pass(operations, 1).await?;
        line.end(server).await;
        drop(mounted);
        let rate = |time: Duration| operations as f64 / time.as_secs_f64();
        Ok(Passed {
            cold_per_second: rate(cold),
            warm_per_second: rate(warm),
        })
    }
}

/// A session with the server.
struct Line {
    transport: Transport,
}

impl Line {
    async fn end(self, server: RunningServer) {
        self.transport.close(END_TIME_MAX).await;
        server.shutdown().await;
    }

    async fn administer(&self, request: AdminRequest) -> Result<()> {
        match self.transport.admin(request).await? {
            AdminReply::Failed { code, message } => bail!("{code:?}: {message}"),
            _ => Ok(()),
        }
    }

    async fn switch(&self, on: bool) -> Result<()> {
        let switch = AdminRequest::AclSwitch {
            name: VOLUME.to_owned(),
            on,
            dry_run: false,
        };
        self.administer(switch).await
    }

    async fn attach(&self) -> Result<Handle> {
        let volume = VOLUME.to_owned();
        let attach = Step::Attach { volume };
        match self.transport.step(&Principal::root(), attach).await? {
            StepReply::Attached { root, .. } => Ok(root.handle),
            other => bail!("no volume, but {other:?}"),
        }
    }

    async fn lookup(&self, parent: &Handle, name: &Name) -> Result<Handle> {
        let step = lookup(parent, name);
        match self.transport.step(&Principal::root(), step).await? {
            StepReply::Found { entry, .. } => Ok(entry.context("it is not there")?.handle),
            other => bail!("nothing found, but {other:?}"),
        }
    }

    /// What the tree has, by this server's handles.
    async fn find(&self, tree: &Tree) -> Result<Found> {
        let root = self.attach().await?;
        let mut found = Found {
            directories: Vec::new(),
            files: Vec::new(),
            links: Vec::new(),
        };
        for number in 0..tree.found.directories.len() {
            let name = Name::new(directory_name(number))?;
            let directory = self.lookup(&root, &name).await?;
            let link = self.lookup(&directory, &Name::new("link")?).await?;
            found.links.push(link);
            found.directories.push(directory);
        }
        for (at, name, _) in &tree.found.files {
            let handle = self.lookup(&found.directories[*at], name).await?;
            found.files.push((*at, name.clone(), handle));
        }
        Ok(found)
    }
}

/// Who makes the operations, one after the other.
struct Client<'a> {
    line: &'a Line,
    found: &'a Found,
    who: Principal,
    /// Names that it has made.
    made: Vec<(usize, Name)>,
}

impl Client<'_> {
    /// As [`crate::mix`] draws them: the same each time, but for names of new files.
    async fn pass(&mut self, operations: usize, pass: usize) -> Result<Duration> {
        let mut random = Random::new(2012);
        let begin = Instant::now();
        for number in 0..operations {
            let file = used(self.found.files.len(), &mut random);
            let op = drawn(&mut random);
            let Some((step, call)) = self.asked(op, file, (pass, number))? else {
                continue;
            };
            let pending = self
                .line
                .transport
                .submit_steps(&self.who, vec![step], call);
            let response = pending.files().await?;
            let result = response.results.into_iter().next();
            result
                .context("no answer to it")?
                .with_context(|| format!("{op:?} of file {file}"))?;
        }
        Ok(begin.elapsed())
    }

    /// What is asked of the server; nothing where nothing was made that could be removed.
    fn asked(
        &mut self,
        op: Op,
        file: usize,
        (pass, number): (usize, usize),
    ) -> Result<Option<(Step, Call)>> {
        let (at, name, handle) = &self.found.files[file];
        let directory = &self.found.directories[*at];
        let target = Target::Handle(handle.clone());
        let open = None;
        let mut call = Call::metadata();
        let step = match op {
            Op::Lookup => lookup(directory, name),
            Op::Attributes => Step::Attributes { target },
            Op::Read => {
                call = Call::read(Class::Demand, FILE_BYTES as u64);
                Step::Read {
                    file: FileRef { target, open },
                    offset: 0,
                    bytes: FILE_BYTES as u32,
                }
            }
            Op::Write => {
                call = Call::write(Bytes::from(vec![number as u8; FILE_BYTES]));
                Step::Write {
                    file: FileRef { target, open },
                    at: WriteAt::Offset(0),
                    bytes: FILE_BYTES as u32,
                }
            }
            Op::ReadLink => {
                let target = Target::Handle(self.found.links[*at].clone());
                Step::ReadLink { target }
            }
            Op::List | Op::ListPlus => Step::ReadDirectory {
                target: Target::Handle(directory.clone()),
                cookie: 0,
                entries_max: LISTED_MAX as u32,
            },
            Op::Create => {
                let name = Name::new(format!("new-{pass}-{number}"))?;
                self.made.push((*at, name.clone()));
                Step::Create {
                    parent: Target::Handle(directory.clone()),
                    name,
                    mode: 0o644,
                    umask: 0o022,
                    exclusive: true,
                    open: None,
                }
            }
            Op::Remove => {
                let Some((at, name)) = self.made.pop() else {
                    return Ok(None);
                };
                Step::Remove {
                    parent: Target::Handle(self.found.directories[at].clone()),
                    name,
                    file: None,
                }
            }
            Op::Space => Step::StatFileSystem { target },
            Op::SetTimes => set_times(target),
            Op::Judge => Step::Access {
                target,
                rights: READ,
            },
        };
        Ok(Some((step, call)))
    }
}

fn set_times(target: Target) -> Step {
    Step::SetAttributes {
        target,
        change: AttributeChange {
            accessed: Some(SetTime::Now),
            modified: Some(SetTime::Now),
            ..AttributeChange::default()
        },
        open: None,
    }
}

fn lookup(parent: &Handle, name: &Name) -> Step {
    Step::Lookup {
        parent: Target::Handle(parent.clone()),
        name: name.clone(),
        inline_bytes_max: 0,
    }
}
