//! One connection: handshake, reading requests, writing replies.
//!
//! Two tasks. The reader decodes frames and hands requests to the pool, all that one read from the
//! socket brought at once. The writer sends replies as they come, the most urgent first. Nothing is
//! answered before the client is authenticated, but a request to enrol on a connection that said it
//! is for that. Whatever cannot be read as a message, or comes out of order, ends the connection.

use crate::admin;
use crate::cluster;
use crate::core::{Core, Ending};
use crate::enrol;
use crate::link::{Destination, Link, Next, last_frame};
use crate::manager;
use crate::memory::Arrival;
use crate::pending::PendingPlace;
use crate::pool::Turn;
use crate::session::Session;
use crate::steps::{BytesPermits, Execution, Incoming, Waited, payload_bytes, reply_estimate};
use crate::storage::ObjectIncoming;
use base::RequestId;
use base::limits::{FRAME_TIME_MAX, HANDSHAKE_TIME_MAX, WARM_BYTES_MAX};
use bytes::Bytes;
use rustls::pki_types::UnixTime;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::frame::{Class, Frame, FrameKind};
use wire::identity::Peer;
use wire::link::{BulkSocket, Connection, FrameReader, FrameWriter, LinkError};
use wire::message::{
    AdminRequest, Body, ConnectionRole, CredentialKind, Farewell, Features, Hello, Notice,
    ObjectRequest, Proof, Refusal, Reply, Request, Welcome, decode, frame,
};
use wire::version::WireVersion;

/// Time that a last frame gets to reach a peer that may not read.
const FAREWELL_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Why a connection ends.
enum End {
    /// Say this first.
    Farewell(Farewell),
    /// The connection is broken, or the peer has gone.
    Link(LinkError),
    /// The peer said farewell, or everything is said.
    Quiet,
}

impl From<LinkError> for End {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Frame(error) => {
                tracing::debug!(%error, "not a frame");
                Self::Farewell(Farewell::Protocol)
            }
            other => Self::Link(other),
        }
    }
}

impl From<Farewell> for End {
    fn from(farewell: Farewell) -> Self {
        Self::Farewell(farewell)
    }
}

/// Serves one connection to its end. `place` counts it as not yet authenticated.
pub(crate) async fn serve(core: Arc<Core>, connection: Connection, place: PendingPlace) {
    let Connection {
        mut reader,
        mut writer,
        peer_certificates,
        encrypted,
        peer,
        socket,
    } = connection;
    let handshake = Handshake {
        core: &core,
        peer,
        encrypted,
        certificates: &peer_certificates,
        place: &place,
    };
    let deadline =
        tokio::time::timeout(HANDSHAKE_TIME_MAX, handshake.run(&mut reader, &mut writer));
    let outcome = tokio::select! {
        outcome = deadline => outcome,
        () = place.sent_away() => return,
    };
    if !core.may_speak() {
        return;
    }
    match outcome {
        Ok(Ok(Some((session, link)))) => {
            let bulk = socket.filter(|_| link.role == ConnectionRole::Bulk);
            run(&core, session, link, (reader, writer), bulk.map(Arc::new)).await;
        }
        Ok(Ok(None)) => end(writer, None).await,
        Ok(Err(End::Farewell(farewell))) => {
            tracing::info!(%peer, %farewell, "connection refused");
            end(writer, Some(last_frame(&farewell))).await;
        }
        Ok(Err(End::Link(error))) => tracing::debug!(%peer, %error, "connection lost"),
        Ok(Err(End::Quiet)) | Err(_) => {}
    }
}

/// Zeros that all warming replies share, so that asking for many of them takes no memory.
fn zeros(bytes: u32) -> Bytes {
    static ZEROS: [u8; WARM_BYTES_MAX as usize] = [0; WARM_BYTES_MAX as usize];
    Bytes::from_static(&ZEROS[..bytes.min(WARM_BYTES_MAX) as usize])
}

async fn end(mut writer: FrameWriter, last: Option<Frame>) {
    let finish = async {
        if let Some(last) = last {
            writer.write(last).await?;
        }
        writer.finish().await
    };
    // The peer may be gone, or not reading; it has been told as far as it can be.
    let _ = tokio::time::timeout(FAREWELL_TIME_MAX, finish).await;
}

struct Handshake<'c> {
    core: &'c Arc<Core>,
    peer: SocketAddr,
    encrypted: bool,
    certificates: &'c [rustls::pki_types::CertificateDer<'static>],
    place: &'c PendingPlace,
}

impl Handshake<'_> {
    /// Greets and authenticates. `None` after an enrolment, which is all that its connection is
    /// for.
    async fn run(
        &self,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<Option<(Arc<Session>, Arc<Link>)>, End> {
        let hello: Hello = expect(reader, FrameKind::Hello).await?;
        let version = WireVersion::negotiate(hello.version_min, hello.version_max).ok_or(
            Farewell::Version {
                min: WireVersion::OLDEST,
                max: WireVersion::NEWEST,
            },
        )?;
        let cluster = self.core.data.cluster;
        if hello.cluster.is_some_and(|wanted| wanted != cluster) {
            return Err(Farewell::Cluster.into());
        }
        let challenge = (!self.encrypted).then(crate::data::random);
        let welcome = Welcome {
            version,
            features: self.features().common(hello.features),
            cluster,
            boot: self.core.data.boot,
            write_verifier: self.core.data.write_verifier,
            store_verifier: self.core.storage.verifier(),
            session_known: self.core.sessions.is_known(hello.session),
            challenge,
        };
        if hello.role == ConnectionRole::Enrolment {
            greet(writer, &welcome).await?;
            self.enrol(reader, writer).await?;
            return Ok(None);
        }
        if let Some(challenge) = &challenge {
            greet(writer, &welcome).await?;
            let proof: Proof = expect(reader, FrameKind::Proof).await?;
            let peer = self.core.client_verifier.verify_proof(
                &proof,
                challenge,
                hello.session,
                UnixTime::now(),
            );
            self.look_again(&peer).await;
            return Ok(Some(self.join(&hello, &welcome, peer)?));
        }
        let peer = self
            .core
            .client_verifier
            .verify(self.certificates, UnixTime::now());
        self.look_again(&peer).await;
        // The session is joined first: what the welcome says of it must stay true.
        let joined = self.join(&hello, &welcome, peer)?;
        if let Err(end) = greet(writer, &welcome).await {
            leave(self.core, &joined.0, &joined.1);
            return Err(end);
        }
        Ok(Some(joined))
    }

    fn features(&self) -> Features {
        match &self.core.lead {
            Some(_) => Features::OURS,
            None => Features::AFTER
                .with(Features::WRITE_AGAIN)
                .with(Features::APPEND)
                .with(Features::GIVE_PLACE_UP),
        }
    }

    /// Whether somebody with this credential is let in now.
    fn is_valid(&self, peer: &Peer) -> bool {
        match (peer.kind, &self.core.member) {
            (CredentialKind::Manager { epoch }, Some(member)) => member.obeys(self.core, epoch),
            (CredentialKind::Manager { .. }, None) => false,
            _ => self.core.credentials.contains(&peer.serial),
        }
    }

    /// A credential that this server does not know may be one that the manager has just given out.
    async fn look_again(&self, peer: &Result<Peer, wire::identity::IdentityError>) {
        if let (Some(member), Ok(peer)) = (&self.core.member, peer)
            && !matches!(peer.kind, CredentialKind::Manager { .. })
            && !self.core.credentials.contains(&peer.serial)
        {
            member.look_again(self.core).await;
        }
    }

    fn join(
        &self,
        hello: &Hello,
        welcome: &Welcome,
        peer: Result<Peer, wire::identity::IdentityError>,
    ) -> Result<(Arc<Session>, Arc<Link>), End> {
        let peer = peer.map_err(|error| {
            tracing::info!(address = %self.peer, %error, "a client is not authenticated");
            Farewell::Unauthenticated
        })?;
        if !self.is_valid(&peer) {
            tracing::info!(address = %self.peer, serial = peer.serial, "credential is not valid");
            return Err(Farewell::Unauthenticated.into());
        }
        let core = self.core;
        // Nobody takes a connection away that has joined its session.
        if !self.place.release() {
            return Err(End::Quiet);
        }
        let session = core
            .sessions
            .open(hello.session, &peer, &hello.host, &core.clock)?;
        // It has ended since its client was told that it goes on.
        if welcome.session_known && !session.is_begun() {
            return Err(Farewell::Ending.into());
        }
        let link = Link::new(
            core.next_link(),
            self.peer,
            hello.role,
            session.share.clone(),
            Arc::downgrade(&core.pool),
        );
        session.join(&link)?;
        session.set_features(welcome.features);
        // A credential revoked at this moment may not have seen this connection.
        if !self.is_valid(&peer) {
            core.end_session(&session, Ending::Broken(Farewell::Unauthenticated));
            return Err(Farewell::Unauthenticated.into());
        }
        if hello.role == ConnectionRole::Main {
            core.caching.resend(&session);
        }
        Ok((session, link))
    }

    async fn enrol(&self, reader: &mut FrameReader, writer: &mut FrameWriter) -> Result<(), End> {
        let frame_in = reader.read().await?;
        if frame_in.kind != FrameKind::Request || !frame_in.payload.is_empty() {
            return Err(Farewell::Protocol.into());
        }
        let request = decode(&frame_in.body).map_err(|_| Farewell::Protocol)?;
        if !matches!(
            request,
            Request::Enrol { .. } | Request::EnrolServer { .. } | Request::EnrolManager { .. }
        ) {
            return Err(Farewell::Unauthenticated.into());
        }
        let reply = if self.encrypted {
            let core = self.core.clone();
            let outcome = tokio::task::spawn_blocking(move || enrol::answer(&core, request)).await;
            outcome.unwrap_or(Reply::Refused(Refusal::Overloaded))
        } else {
            // The secret has just crossed the line in the clear; it is worth nothing here.
            Reply::Refused(Refusal::Forbidden)
        };
        writer
            .write(frame(FrameKind::Reply, frame_in.request, &reply))
            .await?;
        writer.flush().await?;
        Ok(())
    }
}

async fn greet(writer: &mut FrameWriter, welcome: &Welcome) -> Result<(), End> {
    writer
        .write(frame(FrameKind::Welcome, RequestId(0), welcome))
        .await?;
    writer.flush().await?;
    Ok(())
}

/// Reads the one message that may come now.
async fn expect<T: Body>(reader: &mut FrameReader, kind: FrameKind) -> Result<T, End> {
    let frame = reader.read().await?;
    if frame.kind != kind || !frame.payload.is_empty() {
        // A request before the proof, on a plain connection, among others.
        return Err(Farewell::Protocol.into());
    }
    Ok(decode(&frame.body).map_err(|_| Farewell::Protocol)?)
}

async fn run(
    core: &Arc<Core>,
    session: Arc<Session>,
    link: Arc<Link>,
    (mut reader, writer): (FrameReader, FrameWriter),
    bulk: Option<Arc<BulkSocket>>,
) {
    tracing::info!(
        host = session.host,
        address = %link.peer,
        role = ?link.role,
        "connected"
    );
    let sending = send(
        core.clone(),
        session.clone(),
        link.clone(),
        writer,
        bulk.clone(),
    );
    let sending = tokio::spawn(sending);
    reader.share_room(link.share.frame_bytes.clone());
    let mut receiver = Receiver {
        core: core.clone(),
        session: session.clone(),
        link: link.clone(),
        reader,
        bulk,
    };
    let mut batch = Vec::new();
    let outcome = tokio::select! {
        outcome = receiver.run(&mut batch) => outcome,
        () = link.closing() => End::Quiet,
    };
    // What was read last goes the way of what waits: it is remembered already.
    core.pool.push(batch);
    let farewell = match outcome {
        End::Farewell(farewell) => {
            let address = link.peer;
            tracing::warn!(host = session.host, %address, %farewell, "connection ended");
            Some(farewell)
        }
        End::Link(error) => {
            tracing::debug!(host = session.host, %error, "connection lost");
            None
        }
        End::Quiet => None,
    };
    link.close(farewell.as_ref());
    leave(core, &session, &link);
    if sending.await.is_err() {
        tracing::error!("a connection's writer ended by a panic");
    }
}

fn leave(core: &Core, session: &Session, link: &Arc<Link>) {
    link.close(None);
    session.leave(link);
    core.pool.close(link.key);
    link.share.forget(link.key);
}

/// The writing side: replies and notices, the most urgent first, then the farewell.
async fn send(
    core: Arc<Core>,
    session: Arc<Session>,
    link: Arc<Link>,
    mut writer: FrameWriter,
    bulk: Option<Arc<BulkSocket>>,
) {
    let last = loop {
        // What a manager says whose seat may be another one's is worth nothing.
        if !core.may_speak() {
            break None;
        }
        if link.role == ConnectionRole::Main
            && !link.is_closed()
            && let Some(notice) = core.caching.next_notice(&session)
        {
            if writer
                .write(frame::<Notice>(FrameKind::Notice, RequestId(0), &notice))
                .await
                .is_err()
            {
                break None;
            }
            continue;
        }
        match link.next() {
            Next::Frame(outgoing) => {
                let (frame, permits) = outgoing.split();
                let payload = frame.payload.clone();
                let written = writer.write(frame).await;
                drop(permits);
                if written.is_err() {
                    break None;
                }
                for piece in payload.into_pieces() {
                    core.buffers.put(piece);
                }
                if let Some(socket) = &bulk {
                    socket.on_written(writer.bytes_written());
                }
            }
            Next::Last(last) => break last,
            Next::Idle => {
                if writer.flush().await.is_err() {
                    break None;
                }
                link.count_sent(writer.bytes_written());
                link.wait().await;
            }
        }
    };
    link.count_sent(writer.bytes_written());
    link.close(None);
    end(writer, last).await;
}

/// The reading side.
struct Receiver {
    core: Arc<Core>,
    session: Arc<Session>,
    link: Arc<Link>,
    reader: FrameReader,
    bulk: Option<Arc<BulkSocket>>,
}

impl Receiver {
    async fn run(&mut self, batch: &mut Vec<Turn>) -> End {
        loop {
            let frame = match self.next_frame(batch).await {
                Ok(frame) => frame,
                Err(error) => return error.into(),
            };
            self.session.hear(self.core.clock.now());
            if self.link.role == ConnectionRole::Main {
                self.session.begin();
            }
            self.link.count_received(self.reader.bytes_read());
            let outcome = match frame.kind {
                FrameKind::Request => self.request(frame, batch).await,
                FrameKind::Cancel => {
                    // What waits in the batch must be where cancelling looks for it.
                    self.core.pool.push(batch.drain(..));
                    self.cancel(frame.request);
                    Ok(())
                }
                FrameKind::Farewell => Err(End::Quiet),
                _ => Err(Farewell::Protocol.into()),
            };
            if let Err(end) = outcome {
                return end;
            }
        }
    }

    /// The next frame. If the socket must be waited for, what has been read so far goes to work.
    async fn next_frame(&mut self, batch: &mut Vec<Turn>) -> Result<Frame, LinkError> {
        let mut read = pin!(self.reader.read_within(FRAME_TIME_MAX));
        let at_once = poll_fn(|context| match read.as_mut().poll(context) {
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
            Poll::Pending => Poll::Ready(None),
        });
        match at_once.await {
            Some(frame) => frame,
            None => {
                if !batch.is_empty() {
                    self.core.pool.push(batch.drain(..));
                }
                read.await
            }
        }
    }

    /// What a frame asks for. A recall that is obeyed is heard of before there is room for the
    /// request: what has taken all room may wait for that.
    fn decode(&self, frame: &Frame) -> Result<Request, End> {
        let request = decode::<Request>(&frame.body).map_err(|_| Farewell::Protocol)?;
        if let Request::RecallDone(recall) = request {
            self.core.caching.obeyed(&self.session, recall);
        }
        Ok(request)
    }

    async fn request(&mut self, frame: Frame, batch: &mut Vec<Turn>) -> Result<(), End> {
        let arrived = Instant::now();
        let bytes = frame.body.len() + frame.payload.len();
        let request = self.decode(&frame)?;
        let permit = take(&self.core, self.link.requests.clone(), 1, batch).await?;
        let to = Destination::new(self.link.clone(), permit);
        if self.session.peer.kind == CredentialKind::Server && !is_for_servers(&request) {
            refuse(&to, &frame);
            return Ok(());
        }
        let compound = match request {
            Request::Files(compound) => compound,
            Request::Object(request) => return self.object(frame, request, to),
            other if frame.payload.is_empty() || matches!(other, Request::Warm { .. }) => {
                self.other(frame.request, frame.class, other, to);
                return Ok(());
            }
            _ => return Err(Farewell::Protocol.into()),
        };
        if payload_bytes(&compound) != Some(frame.payload.len()) {
            return Err(Farewell::Protocol.into());
        }
        let bytes_permits = room_for(&self.core, (&self.link, &self.session), bytes, batch).await?;
        let settled = compound.settled.clone();
        let remembered = compound.is_change();
        let mut incoming = Incoming {
            session: self.session.clone(),
            to,
            id: frame.request,
            class: frame.class,
            resent: frame.resent,
            arrived,
            compound,
            payload: frame.payload.into_bytes(),
            bytes_permits: Some(bytes_permits),
        };
        if remembered {
            let reply_bytes = reply_estimate(incoming.compound.steps.iter());
            self.core.journal.settle(self.session.id, &settled);
            let (arrival, waiting) = {
                let mut memory = self.session.memory();
                let to = incoming.to.clone();
                let arrival = memory.arrive(incoming.id, &settled, reply_bytes, to);
                (arrival, memory.take_ready())
            };
            self.resume(waiting);
            match arrival {
                Arrival::New(to) => incoming.to = to,
                Arrival::Answered(to, frame) => {
                    to.send(frame, None);
                    return Ok(());
                }
                Arrival::Running | Arrival::Settled => return Ok(()),
                Arrival::Full(to) => {
                    to.send(self.reply(&incoming, Refusal::Overloaded), None);
                    return Ok(());
                }
            }
        } else {
            let waiting = {
                let mut memory = self.session.memory();
                memory.settle(&settled);
                memory.take_ready()
            };
            self.resume(waiting);
        }
        let execution = Execution::new(&self.core, incoming, remembered);
        batch.extend(execution.begin_turn().map(|it| it as Turn));
        Ok(())
    }

    /// Requests go on that have waited for others.
    #[expect(clippy::vec_box, reason = "they go to the queue as they are")]
    fn resume(&self, waiting: Vec<Box<Execution>>) {
        for request in waiting {
            self.core.pool.push_resumed(request);
        }
    }

    fn object(&self, frame: Frame, request: ObjectRequest, to: Destination) -> Result<(), End> {
        let incoming = ObjectIncoming {
            session: self.session.clone(),
            to,
            id: frame.request,
            class: frame.class,
            payload: frame.payload.into_bytes(),
        };
        let core = &self.core;
        if let ObjectRequest::OpenTicket { number, ticket } = &request
            && let Some(judged) = core.cluster.judge(ticket)
        {
            let accepted = incoming.accept_elsewhere(&core.storage, *number, judged);
            return accepted.map_err(End::from);
        }
        let accepted = incoming.accept(&core.storage, &core.caching, request);
        accepted.map_err(End::from)
    }

    fn reply(&self, incoming: &Incoming, refusal: Refusal) -> Frame {
        Frame {
            class: incoming.class,
            ..frame(FrameKind::Reply, incoming.id, &Reply::Refused(refusal))
        }
    }

    /// Requests that touch no file are answered here, but for administration.
    fn other(&self, id: RequestId, class: Class, request: Request, to: Destination) {
        let answer = move |to: &Destination, reply: &Reply, payload: Bytes| {
            let frame = frame(FrameKind::Reply, id, reply);
            to.send(
                Frame {
                    class,
                    payload: payload.into(),
                    ..frame
                },
                None,
            );
        };
        let reply = match request {
            // What was obeyed is known already.
            Request::Ping | Request::EndSession | Request::Warm { .. } | Request::RecallDone(_) => {
                Reply::Done
            }
            Request::LineChanged { is_longer } => {
                if let Some(socket) = &self.bulk {
                    socket.restart(is_longer);
                }
                Reply::Done
            }
            Request::ReturnLeases(ref handles) => {
                self.core.caching.give_back(&self.session, handles);
                Reply::Done
            }
            Request::Admin(request) => {
                let (core, session) = (self.core.clone(), self.session.clone());
                tokio::task::spawn_blocking(move || {
                    let reply = admin::answer(&core, &session.peer, request);
                    answer(&to, &reply, Bytes::new());
                });
                return;
            }
            Request::Reserve { uid, request } => {
                let (core, kind) = (self.core.clone(), self.session.peer.kind);
                tokio::spawn(async move {
                    let reply = manager::answer(&core, kind, uid, request).await;
                    answer(&to, &reply, Bytes::new());
                });
                return;
            }
            Request::Cluster(request) => {
                let (core, session) = (self.core.clone(), self.session.clone());
                tokio::task::spawn_blocking(move || {
                    let (kind, serial) = (session.peer.kind, &session.peer.serial);
                    let reply = cluster::answer(&core, kind, serial, request);
                    answer(&to, &reply, Bytes::new());
                });
                return;
            }
            Request::Enrol { .. } | Request::EnrolServer { .. } | Request::EnrolManager { .. } => {
                Reply::Refused(Refusal::Forbidden)
            }
            Request::Files(_) | Request::Object(_) => unreachable!("handled by the caller"),
        };
        let payload = match request {
            Request::Warm { bytes } => zeros(bytes),
            _ => Bytes::new(),
        };
        if request == Request::EndSession {
            self.end_session(frame(FrameKind::Reply, id, &reply));
        } else {
            answer(&to, &reply, payload);
        }
    }

    fn end_session(&self, reply: Frame) {
        let (core, session, link) = (self.core.clone(), self.session.clone(), self.link.clone());
        // Closing what it had open may take the disk's time.
        tokio::task::spawn_blocking(move || {
            core.end_session(&session, Ending::Goodbye { link, reply });
        });
    }

    fn cancel(&self, id: RequestId) {
        let core = &self.core;
        if let Some(turn) = core.pool.cancel(self.link.key, id) {
            return turn.cancel();
        }
        // First, so that whoever puts it aside in this moment sees that it was taken back.
        core.locks.cancel(self.session.key, id, &core.pool);
        let waiting = self.session.memory().take_behind(id);
        if let Some(mut request) = waiting {
            request.end_wait(Waited::Cancelled);
            core.pool.push_resumed(request);
        }
    }
}

/// Refuses a request for which the credential is not.
fn refuse(to: &Destination, request: &Frame) {
    let refused = Reply::Refused(Refusal::Forbidden);
    let answer = frame(FrameKind::Reply, request.request, &refused);
    let class = request.class;
    to.send(Frame { class, ..answer }, None);
}

/// What a storage server may ask: it speaks for nobody.
fn is_for_servers(request: &Request) -> bool {
    matches!(
        request,
        Request::Ping
            | Request::EndSession
            | Request::Warm { .. }
            | Request::LineChanged { .. }
            | Request::Cluster(_)
            | Request::Admin(AdminRequest::CredentialList { .. })
    )
}

/// Room for the bytes of a request, of the connection and of its credential.
async fn room_for(
    core: &Core,
    (link, session): (&Link, &Session),
    bytes: usize,
    batch: &mut Vec<Turn>,
) -> Result<BytesPermits, End> {
    let is_reserved = session.tickets.has_export(&core.storage);
    let shared = link.share.request_room(is_reserved);
    let own = take(core, link.request_bytes.clone(), bytes, batch).await?;
    let shared = take(core, shared, bytes, batch).await?;
    Ok((own, shared))
}

/// Takes permits; while it waits for them, what has been read so far goes to work.
async fn take(
    core: &Core,
    semaphore: Arc<Semaphore>,
    count: usize,
    batch: &mut Vec<Turn>,
) -> Result<OwnedSemaphorePermit, End> {
    let count = u32::try_from(count).expect("a frame is at most 2 MiB");
    if let Ok(permit) = semaphore.clone().try_acquire_many_owned(count) {
        return Ok(permit);
    }
    core.pool.push(batch.drain(..));
    semaphore
        .acquire_many_owned(count)
        .await
        .map_err(|_| End::Quiet)
}
