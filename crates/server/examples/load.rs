//! What the server costs, without a file system client: raw frames over loopback.
//!
//! `cargo run --release -p server --example load [SECONDS [WHICH]]` (root) starts a server in a
//! process of its own and prints, for each load, its rate and the server's processor time, which is
//! read from `/proc`. The client's side is in another process, so that its cost is left out.

use base::{Handle, Name, OpenId, Principal, RequestId, SessionId};
use bytes::Bytes;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::frame::{Class, Frame, FrameKind};
use wire::identity::{Credential, client_config, server_name};
use wire::link::Connection;
use wire::message::{
    Access, AdminRequest, Compound, CompoundReply, ConnectionRole, Features, FileRef, Hello, Reply,
    Request, Settled, Step, StepReply, Target, VolumeKind, decode,
};
use wire::version::WireVersion;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Requests that a pipelined client keeps under way.
const DEPTH: usize = 32;

struct Client {
    connection: Connection,
    last_id: u64,
}

fn frame<T: wire::message::Body>(kind: FrameKind, id: u64, class: Class, message: &T) -> Frame {
    Frame {
        class,
        ..wire::message::frame(kind, RequestId(id), message)
    }
}

impl Client {
    async fn connect(address: SocketAddr, admin: &Credential, tls: bool, n: u8) -> Outcome<Self> {
        let session = SessionId([n; 16]);
        let config = if tls {
            Some((client_config(admin)?, server_name()))
        } else {
            None
        };
        let mut connection = wire::link::connect(address, config, Duration::from_secs(5)).await?;
        let hello = Hello {
            version_min: WireVersion::OLDEST,
            version_max: WireVersion::NEWEST,
            features: Features::OURS,
            session,
            role: ConnectionRole::Main,
            cluster: None,
            last_boot: None,
            host: "load".to_owned(),
        };
        connection
            .writer
            .write(frame(FrameKind::Hello, 0, Class::Metadata, &hello))
            .await?;
        connection.writer.flush().await?;
        let welcome: wire::message::Welcome = decode(&connection.reader.read().await?.body)?;
        if let Some(challenge) = welcome.challenge {
            let proof = admin.sign_proof(&challenge, session)?;
            connection
                .writer
                .write(frame(FrameKind::Proof, 0, Class::Metadata, &proof))
                .await?;
            connection.writer.flush().await?;
        }
        Ok(Self {
            connection,
            last_id: 0,
        })
    }

    async fn send(&mut self, class: Class, request: &Request) -> Outcome<u64> {
        self.last_id += 1;
        let out = frame(FrameKind::Request, self.last_id, class, request);
        self.connection.writer.write(out).await?;
        Ok(self.last_id)
    }

    async fn send_step(&mut self, class: Class, step: Step) -> Outcome<u64> {
        let settled = Settled::all_below(RequestId(self.last_id.saturating_sub(4 * DEPTH as u64)));
        let compound = Compound {
            who: Principal::root(),
            settled,
            steps: vec![step],
        };
        self.send(class, &Request::Files(compound)).await
    }

    /// The next reply; notices are obeyed.
    async fn receive(&mut self) -> Outcome<(Reply, Bytes)> {
        loop {
            let frame_in = self.connection.reader.read().await?;
            match frame_in.kind {
                FrameKind::Reply => {
                    let payload = frame_in.payload.into_bytes();
                    return Ok((decode(&frame_in.body)?, payload));
                }
                FrameKind::Notice => {
                    let notice: wire::message::Notice = decode(&frame_in.body)?;
                    let id = notice.id();
                    self.send(Class::Metadata, &Request::RecallDone(id)).await?;
                    self.connection.writer.flush().await?;
                }
                other => return Err(format!("the server sent {other:?}").into()),
            }
        }
    }

    async fn step(&mut self, step: Step) -> Outcome<(StepReply, Bytes)> {
        self.send_step(Class::Metadata, step).await?;
        self.connection.writer.flush().await?;
        loop {
            match self.receive().await? {
                (Reply::Files(CompoundReply { mut results, .. }), payload) => {
                    return Ok((results.remove(0)?, payload));
                }
                (Reply::Done, _) => {}
                (other, _) => return Err(format!("{other:?}").into()),
            }
        }
    }

    /// Ends the session, so that nobody waits for its leases.
    async fn end(mut self) -> Outcome<()> {
        self.send(Class::Metadata, &Request::EndSession).await?;
        self.connection.writer.flush().await?;
        self.receive().await?;
        Ok(())
    }

    async fn attach(&mut self) -> Outcome<Handle> {
        match self
            .step(Step::Attach {
                volume: "lab".to_owned(),
            })
            .await?
            .0
        {
            StepReply::Attached { root, .. } => Ok(root.handle),
            other => Err(format!("{other:?}").into()),
        }
    }

    /// Keeps `depth` requests under way until the time is over; replies and payload bytes.
    async fn pipeline(
        &mut self,
        class: Class,
        depth: usize,
        time: Duration,
        mut next: impl FnMut(u64) -> Step,
    ) -> Outcome<(u64, u64)> {
        let (mut sent, mut done, mut bytes) = (0, 0, 0);
        let begun = Instant::now();
        while begun.elapsed() < time || done < sent {
            while begun.elapsed() < time && sent - done < depth as u64 {
                self.send_step(class, next(sent)).await?;
                sent += 1;
            }
            self.connection.writer.flush().await?;
            match self.receive().await? {
                (Reply::Files(CompoundReply { mut results, .. }), payload) => {
                    results.remove(0)?;
                    bytes += payload.len() as u64;
                    done += 1;
                }
                (Reply::Done, _) => {}
                (other, _) => return Err(format!("{other:?}").into()),
            }
        }
        Ok((done, bytes))
    }
}

struct ServerProcess {
    child: Child,
    address: SocketAddr,
    /// Only loads whose name contains this are run.
    only: String,
}

impl ServerProcess {
    fn start(directory: &Path, only: &str) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve".as_ref(), directory.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        Ok(Self {
            child,
            address: line.trim().parse()?,
            only: only.to_owned(),
        })
    }

    /// Processor seconds, user and system.
    fn cpu(&self) -> Outcome<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks = |n: usize| {
            fields
                .get(n)
                .and_then(|f| f.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        Ok((ticks(11) + ticks(12)) / 100.0)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Its input ends, and so does it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

async fn serve(directory: &Path) -> Outcome<()> {
    let config = server::ServerConfig {
        plain: true,
        ..server::ServerConfig::new(directory.join("data"), "127.0.0.1:0".parse()?)
    };
    let running = server::Server::start(config).await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", running.address())?;
    out.flush()?;
    tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop)).await?;
    running.shutdown().await;
    Ok(())
}

fn say(text: &str) -> Outcome<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

async fn measure(
    server: &ServerProcess,
    what: &str,
    load: impl Future<Output = Outcome<(u64, u64)>>,
) -> Outcome<()> {
    if !what.contains(&server.only) {
        return Ok(());
    }
    let (cpu, begun) = (server.cpu()?, Instant::now());
    let (done, bytes) = load.await?;
    let (cpu, time) = (server.cpu()? - cpu, begun.elapsed().as_secs_f64());
    let mut line = format!(
        "{what:<34} {:>9.0}/s  server {:>6.1} us each",
        done as f64 / time,
        cpu * 1e6 / done as f64
    );
    if bytes > 0 {
        let gigabytes = bytes as f64 / 1e9;
        line += &format!(
            "  {:>6.2} GB/s  {:>5.2} CPU s/GB",
            gigabytes / time,
            cpu / gigabytes
        );
    }
    say(&line)
}

async fn run(seconds: u64, only: &str) -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let tree = directory.path().join("tree");
    std::fs::create_dir(&tree)?;
    let admin = server::Server::init(&directory.path().join("data"))?.admin;
    std::fs::write(tree.join("big"), vec![7; 256 << 20])?;
    for n in 0..1000 {
        std::fs::write(tree.join(format!("small{n}")), vec![7; 8192])?;
    }
    let server = ServerProcess::start(directory.path(), only)?;
    let time = Duration::from_secs(seconds);
    let mut setup = Client::connect(server.address, &admin, true, 1).await?;
    let kind = VolumeKind::Export {
        path: tree.to_str().ok_or("path")?.to_owned(),
        read_only: false,
    };
    let create = AdminRequest::VolumeCreate {
        name: "lab".to_owned(),
        kind,
        dry_run: false,
    };
    setup.send(Class::Metadata, &Request::Admin(create)).await?;
    setup.connection.writer.flush().await?;
    setup.receive().await?;
    setup.end().await?;
    for tls in [false, true] {
        let name = if tls { "TLS" } else { "plain" };
        reads(&server, &admin, tls, name, time).await?;
    }
    metadata(&server, &admin, time).await?;
    creates(&server, &admin, time).await
}

async fn reads(
    server: &ServerProcess,
    admin: &Credential,
    tls: bool,
    name: &str,
    time: Duration,
) -> Outcome<()> {
    let mut client = Client::connect(server.address, admin, tls, 2 + u8::from(tls)).await?;
    let root = client.attach().await?;
    let lookup = Step::Lookup {
        parent: Target::Handle(root),
        name: Name::new("big")?,
        inline_bytes_max: 0,
    };
    let StepReply::Found {
        entry: Some(entry), ..
    } = client.step(lookup).await?.0
    else {
        return Err("big is not there".into());
    };
    let target = Target::Handle(entry.handle);
    let open = Step::Open {
        target: target.clone(),
        open: OpenId(1),
        access: Access::Read,
        truncate: false,
    };
    client.step(open).await?;
    for bytes in [1u32 << 20, 128 << 10] {
        let read = |n: u64| Step::Read {
            file: FileRef {
                target: target.clone(),
                open: Some(OpenId(1)),
            },
            offset: n * u64::from(bytes) % (256 << 20),
            bytes,
        };
        let load = client.pipeline(Class::Demand, 16, time, read);
        measure(server, &format!("read {} KiB, {name}", bytes >> 10), load).await?;
    }
    client.end().await
}

async fn metadata(server: &ServerProcess, admin: &Credential, time: Duration) -> Outcome<()> {
    let mut client = Client::connect(server.address, admin, false, 10).await?;
    let root = client.attach().await?;
    let lookup = |inline_bytes_max| {
        let root = root.clone();
        move |n: u64| Step::Lookup {
            parent: Target::Handle(root.clone()),
            name: Name::new(format!("small{}", n % 1000)).expect("a legal name"),
            inline_bytes_max,
        }
    };
    for (what, depth) in [("look-up, one at a time", 1), ("look-up, pipelined", DEPTH)] {
        let load = client.pipeline(Class::Metadata, depth, time, lookup(0));
        measure(server, what, load).await?;
    }
    let load = client.pipeline(Class::Metadata, DEPTH, time, lookup(8192));
    measure(server, "look-up with 8 KiB, pipelined", load).await?;
    let list = |_| Step::ReadDirectory {
        target: Target::Handle(root.clone()),
        cookie: 0,
        entries_max: 4096,
    };
    let load = client.pipeline(Class::Metadata, 2, time, list);
    measure(server, "listing of 1,001 with attributes", load).await?;
    client.end().await
}

async fn creates(server: &ServerProcess, admin: &Credential, time: Duration) -> Outcome<()> {
    for clients in [1u8, 8] {
        for (what, depth) in [("one at a time", 1), ("pipelined", DEPTH)] {
            // Directories first: clients that make them beside each other recall each other's
            // leases.
            let mut makers = Vec::new();
            for n in 0..clients {
                let number = 20 + n + 10 * clients + 100 * u8::from(depth == 1);
                makers.push(Maker::new(server.address, admin, number).await?);
            }
            let (sender, mut done) = tokio::sync::mpsc::channel(8);
            let load = async {
                let mut running = Vec::new();
                for mut maker in makers {
                    let sender = sender.clone();
                    running.push(tokio::spawn(async move {
                        let made = maker.create(depth, time).await;
                        sender.send(maker).await.ok();
                        made
                    }));
                }
                let mut all = 0;
                for maker in running {
                    all += maker.await??;
                }
                Ok((all, 0))
            };
            measure(server, &format!("create, {clients} clients, {what}"), load).await?;
            drop(sender);
            while let Some(maker) = done.recv().await {
                maker.client.end().await?;
            }
        }
    }
    Ok(())
}

/// A client with a directory of its own.
struct Maker {
    client: Client,
    directory: Handle,
}

impl Maker {
    async fn new(address: SocketAddr, admin: &Credential, number: u8) -> Outcome<Self> {
        let mut client = Client::connect(address, admin, false, number).await?;
        let root = client.attach().await?;
        let directory = Step::MakeDirectory {
            parent: Target::Handle(root.clone()),
            name: Name::new(format!("d{number}"))?,
            mode: 0o755,
            umask: 0,
        };
        let made = client.step(directory).await?.0;
        let StepReply::Created { entry, .. } = made else {
            return Err("not made".into());
        };
        // What it knows of the root is of no use to it any more.
        client
            .send(Class::Metadata, &Request::ReturnLeases(vec![root]))
            .await?;
        client.connection.writer.flush().await?;
        client.receive().await?;
        Ok(Self {
            client,
            directory: entry.handle,
        })
    }

    async fn create(&mut self, depth: usize, time: Duration) -> Outcome<u64> {
        let parent = Target::Handle(self.directory.clone());
        let create = |n: u64| Step::Create {
            parent: parent.clone(),
            name: Name::new(format!("f{n}")).expect("a legal name"),
            mode: 0o644,
            umask: 0,
            exclusive: true,
            open: None,
        };
        Ok(self
            .client
            .pipeline(Class::Metadata, depth, time, create)
            .await?
            .0)
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", directory] => runtime.block_on(serve(Path::new(directory))),
        [seconds] => runtime.block_on(run(seconds.parse()?, "")),
        [seconds, only] => runtime.block_on(run(seconds.parse()?, only)),
        _ => runtime.block_on(run(3, "")),
    }
}
