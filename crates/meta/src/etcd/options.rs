//! Which cluster, and how it is reached.

use super::call::refused;
use crate::MetaError;
use base::limits::META_REQUEST_TIME_MAX;
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use std::fmt;
use std::time::Duration;

/// A connection that says nothing for this long is asked whether it is there. etcd refuses to be
/// asked more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(6);

/// Which cluster, and how it is reached.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    endpoints: Vec<String>,
    prefix: String,
    user: Option<User>,
    tls: Option<Tls>,
    compacts: bool,
}

/// Who we are for a cluster that asks.
#[derive(Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How a cluster is recognised, and how it recognises us. Everything is PEM.
#[derive(Clone)]
pub struct Tls {
    /// Certificates that sign those of the members.
    pub authority: String,
    /// Our certificate and its private key.
    pub identity: Option<(String, String)>,
    /// The name in the certificates of the members, if it is not that of the endpoint.
    pub server_name: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("has_identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl EtcdOptions {
    /// The cluster whose members have these endpoints, `HOST:PORT` each; all keys lie behind
    /// `prefix`.
    #[must_use]
    pub fn new<S: Into<String>>(endpoints: impl IntoIterator<Item = S>, prefix: &str) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: prefix.to_owned(),
            user: None,
            tls: None,
            compacts: true,
        }
    }

    /// With this user.
    #[must_use]
    pub fn with_user(mut self, user: User) -> Self {
        self.user = Some(user);
        self
    }

    /// Encrypted.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Somebody else compacts the history of the cluster; `META_HISTORY_TIME` of it or more should
    /// stay.
    #[must_use]
    pub fn without_compaction(mut self) -> Self {
        self.compacts = false;
        self
    }

    pub(super) fn compacts(&self) -> bool {
        self.compacts
    }

    /// What stands before every key.
    pub(super) fn prefix(&self) -> Vec<u8> {
        [self.prefix.as_bytes(), b"/"].concat()
    }

    pub(super) async fn connect(&self) -> Result<Client, MetaError> {
        if self.endpoints.is_empty() {
            return Err(MetaError::Invalid("a cluster has at least one endpoint"));
        }
        let mut options = ConnectOptions::new()
            .with_connect_timeout(META_REQUEST_TIME_MAX)
            .with_keep_alive(PING_INTERVAL, META_REQUEST_TIME_MAX)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some(User { name, password }) = &self.user {
            options = options
                .with_user(name, password)
                .with_auto_token_refresh(true);
        }
        let mut scheme = "http";
        if let Some(tls) = &self.tls {
            scheme = "https";
            let mut with = TlsOptions::new().ca_certificate(Certificate::from_pem(&tls.authority));
            if let Some((certificate, key)) = &tls.identity {
                with = with.identity(Identity::from_pem(certificate, key));
            }
            if let Some(name) = &tls.server_name {
                with = with.domain_name(name);
            }
            options = options.with_tls(with);
        }
        let endpoints = self.endpoints.iter();
        let endpoints: Vec<_> = endpoints.map(|at| format!("{scheme}://{at}")).collect();
        let connecting = Client::connect(endpoints, Some(options));
        match tokio::time::timeout(META_REQUEST_TIME_MAX, connecting).await {
            Ok(connected) => connected.map_err(refused),
            Err(_) => Err(MetaError::Unavailable("no member answers".to_owned())),
        }
    }
}
