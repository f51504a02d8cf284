//! A server that speaks the protocol and lies.
//!
//! It has a certificate of the right cluster, greets as servers do, and keeps an honest volume: a
//! root with one file. What it says is first made as an honest server would say it; then the test
//! makes of it what it wants.

use base::{
    Attributes, BootId, ClusterId, Extent, FileKind, FileSystemStat, FsError, Handle, Name,
    Principal, RequestId, Timestamp, VolumeId, WriteVerifier,
};
use bytes::Bytes;
use client::cache::NodeId;
use client::transport::{ConnectError, Endpoint, Transport, TransportOptions};
use client::volume::{View, Volume};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wire::frame::{Class, Frame, FrameKind};
use wire::identity::{Authority, ClientVerifier, Credential, server_config};
use wire::link::{Connection, FrameWriter, LinkError, accept};
use wire::message::{
    Compound, CompoundReply, ConnectionRole, DirectoryEntry, Entry, Features, Hello, Lease, Reply,
    Request, Step, StepReply, Target, Welcome, WriteAt, decode, encode,
};
use wire::version::WireVersion;

/// Within which every call of a test's client is answered.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(3);
/// Within which one fails that gets no answer, on a machine that is busy.
pub(crate) const END_TIME_MAX: Duration = Duration::from_secs(25);
/// Length of the one file.
pub(crate) const FILE_BYTES: u64 = 1 << 20;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a plain name")
}

pub(crate) fn handle(text: &str) -> Handle {
    Handle::new(text.as_bytes()).expect("a short text")
}

pub(crate) fn attributes(kind: FileKind, inode: u64) -> Attributes {
    let time = Timestamp {
        seconds: 1_700_000_000,
        nanos: 1,
    };
    Attributes {
        kind,
        mode: 0o755,
        links: 1,
        uid: 0,
        gid: 0,
        inode,
        device: 0,
        size: if kind == FileKind::File {
            FILE_BYTES
        } else {
            4096
        },
        blocks: 8,
        block_size: 4096,
        accessed: time,
        modified: time,
        changed: time,
        created: None,
        protected: false,
    }
}

pub(crate) fn root() -> Entry {
    Entry {
        handle: handle("root"),
        attributes: attributes(FileKind::Directory, 2),
        lease: Lease::None,
    }
}

pub(crate) fn file() -> Entry {
    Entry {
        handle: handle("file"),
        attributes: attributes(FileKind::File, 3),
        lease: Lease::None,
    }
}

pub(crate) fn listed(name: Name, cookie: u64, entry: Option<Entry>) -> DirectoryEntry {
    DirectoryEntry {
        name,
        inode: 3,
        kind: entry.as_ref().map_or(FileKind::File, |e| e.attributes.kind),
        cookie,
        entry,
    }
}

/// A request as it came.
pub(crate) struct Asked {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
}

impl Asked {
    /// Its steps, if it is about files.
    pub(crate) fn steps(&self) -> &[Step] {
        match &self.request {
            Request::Files(compound) => &compound.steps,
            _ => &[],
        }
    }
}

/// An answer as an honest server would give it.
pub(crate) struct Said {
    pub(crate) reply: Reply,
    pub(crate) payload: Bytes,
}

impl Said {
    /// The results, to be changed.
    pub(crate) fn results(&mut self) -> &mut Vec<Result<StepReply, FsError>> {
        match &mut self.reply {
            Reply::Files(files) => &mut files.results,
            other => panic!("{other:?} has no results"),
        }
    }

    /// The results, if it has any.
    pub(crate) fn results_or_none(&mut self) -> &mut [Result<StepReply, FsError>] {
        match &mut self.reply {
            Reply::Files(files) => &mut files.results,
            _ => &mut [],
        }
    }

    pub(crate) fn frame(&self, id: RequestId) -> Frame {
        Frame {
            kind: FrameKind::Reply,
            class: Class::Metadata,
            resent: false,
            request: id,
            body: encode(&self.reply),
            payload: self.payload.clone().into(),
        }
    }
}

/// Makes the frame with this number of a flood.
pub(crate) type Flood = Box<dyn Fn(u64) -> Option<Frame> + Send + Sync>;

/// Makes frames of what an honest server would answer.
pub(crate) type Answerer = Box<dyn Fn(&Asked, Said) -> Vec<Frame> + Send + Sync>;

/// What a peer does otherwise than an honest server.
pub(crate) struct Lies {
    /// Makes something else of a greeting: of the connection with this number.
    pub(crate) welcome: fn(usize, &mut Welcome),
    /// What is sent for an answer.
    pub(crate) answer: Answerer,
    /// What is sent unasked, without end, on every main connection; `None` for nothing now.
    pub(crate) flood: Option<Flood>,
    /// Whether connections are closed as soon as they stand.
    pub(crate) hangs_up: bool,
    pub(crate) tls: bool,
}

impl Default for Lies {
    fn default() -> Self {
        Self {
            welcome: |_, _| {},
            answer: Box::new(|asked, said| vec![said.frame(asked.id)]),
            flood: None,
            hangs_up: false,
            tls: true,
        }
    }
}

/// Lies in the results of requests for files; everything else is honest.
pub(crate) fn results(lie: impl Fn(&Asked, &mut Said) + Send + Sync + 'static) -> Answerer {
    Box::new(move |asked, mut said| {
        if !asked.steps().is_empty() {
            lie(asked, &mut said);
        }
        vec![said.frame(asked.id)]
    })
}

pub(crate) struct Peer {
    address: SocketAddr,
    credential: Arc<Credential>,
    plain: bool,
    connections: Arc<AtomicUsize>,
    listening: JoinHandle<()>,
    serving: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.listening.abort();
        for task in self.serving.lock().unwrap().drain(..) {
            task.abort();
        }
    }
}

const CLUSTER: ClusterId = ClusterId([7; 16]);
pub(crate) const BOOT: BootId = BootId([1; 16]);

impl Peer {
    pub(crate) async fn start(lies: Lies) -> Self {
        let authority = Authority::create(CLUSTER).unwrap();
        let server = authority.issue_server().unwrap();
        let kind = wire::message::CredentialKind::Host;
        let client = authority.issue_local(kind, "tester", SystemTime::now());
        let verifier = ClientVerifier::new(&server).unwrap();
        let config = server_config(&server, &verifier).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let serving = Arc::<Mutex<Vec<JoinHandle<()>>>>::default();
        let (plain, counted, tasks) = (!lies.tls, connections.clone(), serving.clone());
        let lies = Arc::new(lies);
        let listening = tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let (lies, config) = (lies.clone(), config.clone());
                let number = counted.fetch_add(1, Ordering::Relaxed);
                let task = tokio::spawn(async move {
                    let tls = lies.tls.then_some(config);
                    if let Ok(connection) = accept(stream, from, tls).await {
                        // The client hangs up when it has had enough.
                        let _ = serve(connection, number, &lies).await;
                    }
                });
                tasks.lock().unwrap().push(task);
            }
        });
        Self {
            address,
            credential: Arc::new(client.unwrap()),
            plain,
            connections,
            listening,
            serving,
        }
    }

    /// How many connections have been made.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Ends the connection with this number.
    pub(crate) fn hang_up(&self, number: usize) {
        self.serving.lock().unwrap()[number].abort();
    }

    pub(crate) async fn connect(&self) -> Result<Transport, ConnectError> {
        self.connect_with(REQUEST_TIME_MAX).await
    }

    /// Connects for calls that are answered within `request_time_max`.
    pub(crate) async fn connect_with(
        &self,
        request_time_max: Duration,
    ) -> Result<Transport, ConnectError> {
        self.connect_by(request_time_max, 3).await
    }

    async fn connect_by(
        &self,
        request_time_max: Duration,
        connections: usize,
    ) -> Result<Transport, ConnectError> {
        let endpoint = Endpoint {
            server: None,
            name: "peer".to_owned(),
            addresses: vec![self.address],
            credential: self.credential.clone(),
            plain: self.plain,
            host: "tester".to_owned(),
        };
        let options = TransportOptions {
            request_time_max,
            connections,
            ..TransportOptions::default()
        };
        Transport::connect(endpoint, options).await
    }

    /// Its volume, entered on one connection, which carries everything.
    pub(crate) async fn volume_on_one(&self) -> Arc<Volume> {
        let transport = self.connect_by(END_TIME_MAX, 1).await;
        let transport = transport.expect("a good greeting");
        Volume::attach(transport, "v").await.expect("a good root")
    }

    /// Its volume, entered.
    pub(crate) async fn volume(&self) -> Arc<Volume> {
        let transport = self.connect().await.expect("a good greeting");
        Volume::attach(transport, "v").await.expect("a good root")
    }
}

async fn serve(connection: Connection, number: usize, lies: &Lies) -> Result<(), LinkError> {
    let Connection {
        mut reader,
        mut writer,
        ..
    } = connection;
    let hello: Hello = decode(&reader.read().await?.body).expect("the client is honest");
    let mut welcome = Welcome {
        version: WireVersion::NEWEST,
        features: Features::OURS,
        cluster: CLUSTER,
        boot: BOOT,
        write_verifier: WriteVerifier(BOOT.0),
        store_verifier: WriteVerifier(BOOT.0),
        session_known: number > 0,
        challenge: (!lies.tls).then_some([5; 32]),
    };
    (lies.welcome)(number, &mut welcome);
    let greeting = wire::message::frame(FrameKind::Welcome, RequestId(0), &welcome);
    writer.write(greeting).await?;
    writer.flush().await?;
    if lies.hangs_up {
        return Ok(());
    }
    let is_main = hello.role == ConnectionRole::Main;
    let flood = lies.flood.as_ref().filter(|_| is_main);
    let (sender, mut asked) = mpsc::unbounded_channel();
    let read = async {
        loop {
            // The channel outlives this.
            let _ = sender.send(reader.read().await?);
        }
    };
    let write = async {
        let mut flooded = 0;
        loop {
            match (asked.try_recv(), flood) {
                (Ok(frame), _) => respond(&mut writer, frame, lies).await?,
                (Err(_), Some(flood)) => {
                    let Some(frame) = flood(flooded) else {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        continue;
                    };
                    writer.write(frame).await?;
                    flooded += 1;
                    tokio::task::yield_now().await;
                }
                (Err(_), None) => {
                    let Some(frame) = asked.recv().await else {
                        return Ok(());
                    };
                    respond(&mut writer, frame, lies).await?;
                }
            }
        }
    };
    tokio::select! {
        outcome = read => outcome,
        outcome = write => outcome,
    }
}

async fn respond(writer: &mut FrameWriter, frame: Frame, lies: &Lies) -> Result<(), LinkError> {
    if frame.kind != FrameKind::Request {
        return Ok(());
    }
    let id = frame.request;
    let request = decode(&frame.body).expect("the client is honest");
    let asked = Asked { id, request };
    let said = honest(&asked.request);
    for frame in (lies.answer)(&asked, said) {
        writer.write(frame).await?;
    }
    writer.flush().await
}

/// What an honest server says.
fn honest(request: &Request) -> Said {
    let mut payload = Vec::new();
    let reply = match request {
        Request::Files(compound) => Reply::Files(carry_out(compound, &mut payload)),
        Request::Warm { bytes } => {
            payload = vec![0; *bytes as usize];
            Reply::Done
        }
        _ => Reply::Done,
    };
    Said {
        reply,
        payload: payload.into(),
    }
}

fn carry_out(compound: &Compound, payload: &mut Vec<u8>) -> CompoundReply {
    let mut results = Vec::new();
    for step in &compound.steps {
        let result = carry_out_step(step, payload);
        let failed = result.is_err();
        results.push(result);
        if failed {
            break;
        }
    }
    CompoundReply {
        results,
        server_micros: 10,
    }
}

/// The inode that a step means.
fn meant(target: &Target) -> Entry {
    match target {
        Target::Handle(found) if *found == root().handle => root(),
        Target::Result(_) => root(),
        Target::Handle(_) => file(),
    }
}

fn carry_out_step(step: &Step, payload: &mut Vec<u8>) -> Result<StepReply, FsError> {
    let attributes_of = |target: &Target| StepReply::Attributes {
        attributes: meant(target).attributes,
        lease: Lease::None,
    };
    Ok(match step {
        Step::Attach { .. }
        | Step::Lookup { .. }
        | Step::ReadDirectory { .. }
        | Step::ReadLink { .. }
        | Step::StatFileSystem { .. }
        | Step::ListXattrs { .. } => tell(step),
        Step::Read { offset, bytes, .. } => read(*offset, *bytes, payload),
        Step::Write { .. } | Step::CopyRange { .. } => write(step),
        Step::Attributes { target }
        | Step::SetAttributes { target, .. }
        | Step::Open { target, .. }
        | Step::SetXattr { target, .. }
        | Step::RemoveXattr { target, .. } => attributes_of(target),
        Step::Commit { file, .. } | Step::Allocate { file, .. } => attributes_of(&file.target),
        Step::Access { .. } => StepReply::Access { is_rich: false },
        Step::Seek { offset, .. } => StepReply::Position(*offset),
        Step::GetXattr { .. } => return Err(FsError::NoData),
        Step::Fetch { handles, .. } => StepReply::Contents {
            files: vec![None; handles.len()],
        },
        Step::TestLock { .. } => StepReply::Lock(None),
        Step::Remove { .. }
        | Step::RemoveDirectory { .. }
        | Step::Rename { .. }
        | Step::Create { .. }
        | Step::CreateFile { .. }
        | Step::MakeDirectory { .. }
        | Step::MakeNode { .. }
        | Step::MakeSymlink { .. }
        | Step::Link { .. } => change_name(step),
        Step::Close { .. }
        | Step::After { .. }
        | Step::SyncDirectory { .. }
        | Step::SyncFileSystem { .. }
        | Step::Lock { .. }
        | Step::ReleaseLocks { .. } => StepReply::Done,
        // Of parallel volumes, and explanations.
        Step::Layout { .. }
        | Step::Wrote { .. }
        | Step::Extend { .. }
        | Step::Place { .. }
        | Step::PlaceLeft { .. }
        | Step::Stored { .. }
        | Step::GivePlaceUp { .. }
        | Step::Explain { .. } => return Err(FsError::NotSupported),
    })
}

/// What the volume has.
fn tell(step: &Step) -> StepReply {
    match step {
        Step::Attach { .. } => StepReply::Attached {
            volume: VolumeId([9; 16]),
            root: root(),
            read_only: false,
            parallel: false,
        },
        Step::Lookup { name: wanted, .. } => StepReply::Found {
            entry: (*wanted == name("file")).then(file),
            parent_lease: Lease::None,
            inline_bytes: None,
        },
        Step::ReadDirectory { .. } => StepReply::Directory {
            entries: vec![listed(name("file"), 1, Some(file()))],
            end: true,
            lease: Lease::None,
        },
        Step::ReadLink { .. } => StepReply::LinkTarget(b"elsewhere".to_vec()),
        Step::StatFileSystem { .. } => StepReply::FileSystem(FileSystemStat::default()),
        Step::ListXattrs { .. } => StepReply::XattrNames(Vec::new()),
        other => panic!("{other:?} asks for something else"),
    }
}

/// A part of the one file.
fn read(offset: u64, bytes: u32, payload: &mut Vec<u8>) -> StepReply {
    let whole = Extent::new(0, FILE_BYTES);
    let part = whole.intersection(Extent::new(offset, u64::from(bytes)));
    payload.extend((part.offset..part.end()).map(|at| at as u8));
    StepReply::Data {
        bytes: part.len as u32,
        end_of_file: part.end() == FILE_BYTES,
    }
}

/// Looks for the one file, as its clients do.
pub(crate) async fn look(volume: &Volume) -> Result<Option<View>, FsError> {
    let (who, name) = (Principal::root(), name("file"));
    let found = volume.lookup(&who, NodeId::ROOT, &name);
    timeout(END_TIME_MAX, found).await.expect("an end")
}

fn change_name(step: &Step) -> StepReply {
    match step {
        Step::Remove { .. } | Step::RemoveDirectory { .. } => StepReply::Removed {
            parent: root().attributes,
            parent_lease: root().lease,
            entry: None,
        },
        Step::Rename { .. } => StepReply::Renamed {
            parent: root().attributes,
            to_parent: root().attributes,
            entry: file(),
            replaced: None,
        },
        _ => StepReply::Created {
            entry: file(),
            new: true,
            parent: root().attributes,
            parent_lease: Lease::None,
        },
    }
}

fn write(step: &Step) -> StepReply {
    match step {
        Step::Write { at, bytes, .. } => StepReply::Written {
            offset: match at {
                WriteAt::Offset(offset) | WriteAt::Again(offset) => *offset,
                WriteAt::End => FILE_BYTES,
            },
            bytes: u64::from(*bytes),
            attributes: file().attributes,
        },
        Step::CopyRange {
            target_offset,
            bytes,
            ..
        } => StepReply::Written {
            offset: *target_offset,
            bytes: *bytes,
            attributes: file().attributes,
        },
        other => panic!("{other:?} writes nothing"),
    }
}
