//! A client of frames: it sends what it is told, in any order, well formed or not.

use base::{FsError, Handle, Name, Principal, RequestId, SessionId};
use bytes::Bytes;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::frame::{Class, Frame, FrameKind};
use wire::identity::{Credential, Enrolment, JoinString, client_config, enrol_config, server_name};
use wire::link::{self, Connection, LinkError};
use wire::message::{
    Compound, CompoundReply, ConnectionRole, Entry, Farewell, Features, Hello, Notice, Reply,
    Request, Settled, Step, StepReply, Target, Welcome, decode,
};
use wire::version::WireVersion;

/// How long a test waits for an answer before it fails.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Tls,
    Plain,
}

/// Why a connection was not made, or ended.
#[derive(Debug)]
#[expect(dead_code, reason = "shown when a test fails")]
pub(crate) enum Ended {
    Farewell(Farewell),
    Link(LinkError),
}

pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) welcome: Welcome,
    pub(crate) who: Principal,
    pub(crate) settled: u64,
    /// Replies that came while another was awaited.
    pub(crate) replies: HashMap<RequestId, (Reply, Bytes)>,
    pub(crate) notices: Vec<Notice>,
    /// Whether recalls are obeyed as they come.
    pub(crate) obeys: bool,
}

pub(crate) fn hello(session: SessionId, role: ConnectionRole) -> Hello {
    Hello {
        version_min: WireVersion::OLDEST,
        version_max: WireVersion::NEWEST,
        features: Features::OURS,
        session,
        role,
        cluster: None,
        last_boot: None,
        host: "tester".to_owned(),
    }
}

/// [`wire::message::frame`] with a plain number.
pub(crate) fn frame<T: wire::message::Body>(kind: FrameKind, id: u64, message: &T) -> Frame {
    wire::message::frame(kind, RequestId(id), message)
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Reads frames until `kind` comes.
pub(crate) async fn expect<T: wire::message::Body>(
    connection: &mut Connection,
    kind: FrameKind,
) -> Result<T, Ended> {
    let read = tokio::time::timeout(ANSWER_TIME_MAX, connection.reader.read()).await;
    let frame = read.expect("an answer in time").map_err(Ended::Link)?;
    match frame.kind {
        FrameKind::Farewell => Err(Ended::Farewell(decode(&frame.body).unwrap())),
        other => {
            assert_eq!(other, kind);
            Ok(decode(&frame.body).unwrap())
        }
    }
}

pub(crate) async fn open_line(
    address: SocketAddr,
    credential: Option<&Credential>,
    mode: Mode,
) -> Result<Connection, LinkError> {
    let tls = match (mode, credential) {
        (Mode::Tls, Some(credential)) => Some((client_config(credential).unwrap(), server_name())),
        _ => None,
    };
    link::connect(address, tls, ANSWER_TIME_MAX).await
}

impl Client {
    pub(crate) async fn connect(
        address: SocketAddr,
        credential: &Credential,
        session: SessionId,
        role: ConnectionRole,
        mode: Mode,
    ) -> Result<Self, Ended> {
        Self::greet(address, credential, &hello(session, role), mode).await
    }

    /// Connects and says this.
    pub(crate) async fn greet(
        address: SocketAddr,
        credential: &Credential,
        hello: &Hello,
        mode: Mode,
    ) -> Result<Self, Ended> {
        let mut connection = open_line(address, Some(credential), mode)
            .await
            .map_err(Ended::Link)?;
        let greeting = frame(FrameKind::Hello, 0, hello);
        connection
            .writer
            .write(greeting)
            .await
            .map_err(Ended::Link)?;
        connection.writer.flush().await.map_err(Ended::Link)?;
        let welcome: Welcome = expect(&mut connection, FrameKind::Welcome).await?;
        if let Some(challenge) = &welcome.challenge {
            let proof = credential.sign_proof(challenge, hello.session).unwrap();
            let proof = frame(FrameKind::Proof, 0, &proof);
            connection.writer.write(proof).await.map_err(Ended::Link)?;
            connection.writer.flush().await.map_err(Ended::Link)?;
        }
        Ok(Self {
            connection,
            welcome,
            who: Principal::root(),
            settled: 0,
            replies: HashMap::new(),
            notices: Vec::new(),
            obeys: true,
        })
    }

    /// Asks for a credential; the reply, and the certificates that the server proved.
    pub(crate) async fn enrol(
        address: SocketAddr,
        join: &JoinString,
        enrolment: &Enrolment,
    ) -> (Reply, Vec<rustls::pki_types::CertificateDer<'static>>) {
        let config = enrol_config(join.fingerprint).unwrap();
        let tls = Some((config, server_name()));
        let mut connection = link::connect(address, tls, ANSWER_TIME_MAX).await.unwrap();
        let greeting = hello(SessionId([0; 16]), ConnectionRole::Enrolment);
        connection
            .writer
            .write(frame(FrameKind::Hello, 0, &greeting))
            .await
            .unwrap();
        let request = Request::Enrol {
            secret: join.secret,
            signing_request: enrolment.signing_request().to_vec(),
            label: "machine".to_owned(),
        };
        connection
            .writer
            .write(frame(FrameKind::Request, 1, &request))
            .await
            .unwrap();
        connection.writer.flush().await.unwrap();
        let _: Welcome = expect(&mut connection, FrameKind::Welcome).await.unwrap();
        let reply = expect(&mut connection, FrameKind::Reply).await.unwrap();
        (reply, connection.peer_certificates)
    }

    /// A number that no request of any session has had.
    pub(crate) fn new_id(&mut self) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(1);
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sends a request and does not wait.
    pub(crate) async fn send(&mut self, request: &Request) -> u64 {
        let id = self.new_id();
        self.send_frame(frame(FrameKind::Request, id, request))
            .await;
        id
    }

    pub(crate) async fn send_frame(&mut self, frame: Frame) {
        self.connection.writer.write(frame).await.unwrap();
        self.connection.writer.flush().await.unwrap();
    }

    pub(crate) fn compound(&self, steps: Vec<Step>) -> Request {
        Request::Files(Compound {
            who: self.who.clone(),
            settled: Settled::all_below(RequestId(self.settled)),
            steps,
        })
    }

    pub(crate) async fn send_steps(&mut self, steps: Vec<Step>) -> u64 {
        let request = self.compound(steps);
        self.send(&request).await
    }

    /// The answer to a request.
    pub(crate) async fn reply(&mut self, id: u64) -> Result<(Reply, Bytes), Ended> {
        loop {
            if let Some(reply) = self.replies.remove(&RequestId(id)) {
                return Ok(reply);
            }
            self.receive().await?;
        }
    }

    /// Reads one frame and puts it where it belongs.
    pub(crate) async fn receive(&mut self) -> Result<(), Ended> {
        let read = tokio::time::timeout(ANSWER_TIME_MAX, self.connection.reader.read()).await;
        let frame = read.expect("an answer in time").map_err(Ended::Link)?;
        match frame.kind {
            FrameKind::Reply => {
                let reply = decode(&frame.body).expect("a reply");
                let payload = frame.payload.into_bytes();
                self.replies.insert(frame.request, (reply, payload));
            }
            FrameKind::Notice => {
                let notice: Notice = decode(&frame.body).expect("a notice");
                if self.obeys {
                    self.send(&Request::RecallDone(notice.id())).await;
                }
                self.notices.push(notice);
            }
            FrameKind::Farewell => {
                return Err(Ended::Farewell(decode(&frame.body).expect("a farewell")));
            }
            other => panic!("the server sent {other:?}"),
        }
        Ok(())
    }

    /// Reads on until the server ends this connection; how it does that. Notices may come before,
    /// replies to what was not asked may not.
    pub(crate) async fn ended(&mut self) -> Ended {
        let replies = self.replies.len();
        loop {
            if let Err(ended) = self.receive().await {
                return ended;
            }
            assert_eq!(self.replies.len(), replies, "a reply that nobody asked for");
        }
    }

    pub(crate) async fn call(&mut self, request: &Request) -> Reply {
        let id = self.send(request).await;
        self.reply(id).await.unwrap().0
    }

    /// Carries steps out; results and payload.
    pub(crate) async fn steps(
        &mut self,
        steps: Vec<Step>,
    ) -> (Vec<Result<StepReply, FsError>>, Bytes) {
        self.steps_with(steps, Bytes::new()).await
    }

    pub(crate) async fn steps_with(
        &mut self,
        steps: Vec<Step>,
        payload: Bytes,
    ) -> (Vec<Result<StepReply, FsError>>, Bytes) {
        self.steps_of(Class::Metadata, steps, payload).await
    }

    async fn steps_of(
        &mut self,
        class: Class,
        steps: Vec<Step>,
        payload: Bytes,
    ) -> (Vec<Result<StepReply, FsError>>, Bytes) {
        let id = self.new_id();
        let request = self.compound(steps);
        let mut request = frame(FrameKind::Request, id, &request);
        request.class = class;
        request.payload = payload.into();
        self.send_frame(request).await;
        let (reply, payload) = self.reply(id).await.unwrap();
        let Reply::Files(CompoundReply { results, .. }) = reply else {
            panic!("{reply:?}")
        };
        (results, payload)
    }

    /// As [`Self::steps_with`], with the class of writes.
    pub(crate) async fn write_steps(
        &mut self,
        steps: Vec<Step>,
        payload: Bytes,
    ) -> (Vec<Result<StepReply, FsError>>, Bytes) {
        self.steps_of(Class::Write, steps, payload).await
    }

    /// One step.
    pub(crate) async fn step(&mut self, step: Step) -> Result<StepReply, FsError> {
        self.steps(vec![step]).await.0.remove(0)
    }

    /// Enters the volume `lab`.
    pub(crate) async fn attach(&mut self) -> Entry {
        match self
            .step(Step::Attach {
                volume: "lab".to_owned(),
            })
            .await
        {
            Ok(StepReply::Attached { root, .. }) => root,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn lookup(&mut self, parent: &Handle, text: &str) -> Option<Entry> {
        let step = Step::Lookup {
            parent: Target::Handle(parent.clone()),
            name: name(text),
            inline_bytes_max: 0,
        };
        match self.step(step).await {
            Ok(StepReply::Found { entry, .. }) => entry,
            other => panic!("{other:?}"),
        }
    }
}
