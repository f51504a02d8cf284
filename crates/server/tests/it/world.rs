//! A cluster with one exported directory, gone when the test is over.

use crate::client::{Client, Mode};
use base::SessionId;
use server::{RunningServer, Server, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use wire::identity::{Authority, Credential, Enrolment, JoinString};
use wire::message::{
    AdminReply, AdminRequest, ConnectionRole, CredentialKind, JoinTerms, Reply, Request, VolumeKind,
};

/// A server at work and what lies around it.
pub(crate) struct World {
    pub(crate) server: Option<RunningServer>,
    pub(crate) admin: Credential,
    pub(crate) data: PathBuf,
    pub(crate) tree: PathBuf,
    directory: tempfile::TempDir,
}

static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// A session nobody has had.
pub(crate) fn new_session() -> SessionId {
    let mut id = [0; 16];
    let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    id[..8].copy_from_slice(&number.to_le_bytes());
    id[8..].copy_from_slice(&(time as u64).to_le_bytes());
    SessionId(id)
}

/// Whether exports can work here.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: serving files for users needs root");
    }
    root
}

impl World {
    /// A cluster with the volume `lab`.
    pub(crate) async fn new() -> Self {
        let world = Self::bare().await;
        let mut admin = world.client().await;
        let path = world.tree.to_str().unwrap().to_owned();
        let kind = VolumeKind::Export {
            path,
            read_only: false,
        };
        let request = AdminRequest::VolumeCreate {
            name: "lab".to_owned(),
            kind,
            dry_run: false,
        };
        let reply = admin.call(&Request::Admin(request)).await;
        assert!(
            matches!(reply, Reply::Admin(AdminReply::Volumes(_))),
            "{reply:?}"
        );
        admin.call(&Request::EndSession).await;
        world
    }

    /// A cluster without volumes.
    pub(crate) async fn bare() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (data, tree) = (directory.path().join("data"), directory.path().join("tree"));
        std::fs::create_dir(&tree).unwrap();
        let admin = Server::init(&data).unwrap().admin;
        let mut world = Self {
            server: None,
            admin,
            data,
            tree,
            directory,
        };
        world.start().await;
        world
    }

    pub(crate) async fn start(&mut self) {
        let config = ServerConfig {
            plain: true,
            ..ServerConfig::new(&self.data, "127.0.0.1:0".parse().unwrap())
        };
        // A server that was dropped gives its directory up when its last task has ended.
        for _ in 0..500 {
            match Server::start(config.clone()).await {
                Ok(server) => {
                    self.server = Some(server);
                    return;
                }
                Err(server::ServerError::Data(server::DataError::InUse(_))) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the data directory stays in use");
    }

    /// Stops the server without a word and starts it again.
    pub(crate) async fn restart(&mut self) {
        drop(self.server.take());
        self.start().await;
    }

    pub(crate) fn server(&self) -> &RunningServer {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// An administrator's main connection in a session of its own, under TLS.
    pub(crate) async fn client(&self) -> Client {
        self.client_as(
            &self.admin.clone(),
            new_session(),
            ConnectionRole::Main,
            Mode::Tls,
        )
        .await
    }

    pub(crate) async fn client_as(
        &self,
        credential: &Credential,
        session: SessionId,
        role: ConnectionRole,
        mode: Mode,
    ) -> Client {
        let address = self.server().address();
        Client::connect(address, credential, session, role, mode)
            .await
            .unwrap()
    }

    /// A credential of this kind, by enrolment.
    pub(crate) async fn enrol(&self, kind: CredentialKind) -> Credential {
        let join = self.join_string(kind).await;
        let enrolment = Enrolment::new().unwrap();
        let (reply, chain) = Client::enrol(self.server().address(), &join, &enrolment).await;
        let Reply::Enrolled { certificate } = reply else {
            panic!("{reply:?}")
        };
        enrolment
            .complete(&certificate, &chain, join.fingerprint)
            .unwrap()
    }

    pub(crate) async fn join_string(&self, kind: CredentialKind) -> JoinString {
        let mut admin = self.client().await;
        let terms = JoinTerms {
            kind,
            seconds_valid: 60,
        };
        let reply = admin
            .call(&Request::Admin(AdminRequest::JoinCreate(terms)))
            .await;
        let Reply::Admin(AdminReply::JoinSecret(secret)) = reply else {
            panic!("{reply:?}")
        };
        JoinString {
            fingerprint: self.server().fingerprint(),
            secret,
        }
    }

    /// A credential of another cluster that says it is of this one.
    pub(crate) fn foreign_credential(&self) -> Credential {
        let authority = Authority::create(self.server().cluster()).unwrap();
        authority
            .issue_local(CredentialKind::Admin, "x", SystemTime::now())
            .unwrap()
    }
}
