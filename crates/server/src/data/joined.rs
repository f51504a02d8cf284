//! The data directory of a server that joins a cluster.
//!
//! It has the cluster's authority as a certificate, never its key: what it keeps is its own
//! certificate with that key, where the manager is, and a copy of the manager's list of
//! credentials, so that it knows its clients while the manager is away.

use super::{
    ADMIN, BootFile, ClusterFile, DataDirectory, DataError, MetaAddress, Registry, SecretFile,
    enter_new, file, random, to_hex,
};
use base::ServerId;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use wire::identity::{Authority, Credential, Fingerprint, IdentityError};
use wire::message::ManagerSecrets;

/// A directory in which everything lies but what the manager gives.
#[derive(Debug)]
pub struct Joining {
    path: PathBuf,
    server: ServerId,
    _lock: File,
}

impl Joining {
    /// The identity that this server has chosen.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Makes the directory one of a server of the cluster whose authority has signed this
    /// credential, and whose manager is at one of these addresses.
    ///
    /// # Errors
    /// [`DataError`].
    pub fn complete(self, credential: &Credential, managers: Vec<String>) -> Result<(), DataError> {
        let path = &self.path;
        credential.save(&path.join("server"))?;
        let secrets = SecretFile {
            authority_key: String::new(),
            handle_key: to_hex(&random::<32>()),
        };
        file::write(path, "secrets", &secrets)?;
        file::write(path, "boot", &BootFile::default())?;
        Registry::init_joined(path)?;
        let authority = credential.authority_pem();
        let cluster = ClusterFile {
            cluster: to_hex(&credential.cluster().0),
            authority,
            managers,
            meta: None,
        };
        file::write(path, "cluster", &cluster)
    }
}

/// A directory that becomes one of a manager beside others.
#[derive(Debug)]
pub struct JoiningManager {
    path: PathBuf,
    _lock: File,
}

impl JoiningManager {
    /// Makes it so, with what another manager has given; `admin` is the credential of this
    /// machine's administrator.
    ///
    /// # Errors
    /// [`DataError`].
    pub fn complete(self, admin: &Credential, given: &ManagerSecrets) -> Result<(), DataError> {
        let path = &self.path;
        let authority = Authority::load(&given.authority, &given.authority_key)?;
        let is_ours = authority.fingerprint() == Fingerprint::of(admin.authority());
        let meta = given.meta.parse::<MetaAddress>().ok();
        let (true, Some(meta)) = (is_ours, meta) else {
            return Err(DataError::Identity(IdentityError::Malformed(
                "what the other manager has sent",
            )));
        };
        admin.save(&path.join(ADMIN))?;
        authority.issue_server()?.save(&path.join("server"))?;
        let secrets = SecretFile {
            authority_key: authority.key_pem(),
            handle_key: to_hex(&given.handle_key.0),
        };
        file::write(path, "secrets", &secrets)?;
        file::write(path, "boot", &BootFile::default())?;
        let cluster = ClusterFile {
            cluster: to_hex(&authority.cluster().0),
            authority: authority.certificate_pem(),
            managers: Vec::new(),
            meta: Some(meta.to_string()),
        };
        file::write(path, "cluster", &cluster)
    }
}

impl DataDirectory {
    /// Begins a directory for a manager that is to join others.
    pub(crate) fn join_managers(path: &Path) -> Result<JoiningManager, DataError> {
        let lock = enter_new(path)?;
        Ok(JoiningManager {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Begins a directory for a server that is to join a cluster, with an identity and whatever
    /// `prepare` makes. What an earlier try has left is made anew: its identity may be known to the
    /// manager already, and its certificate is lost.
    pub(crate) fn join_with<E: From<DataError>>(
        path: &Path,
        prepare: impl FnOnce(&Path) -> Result<ServerId, E>,
    ) -> Result<Joining, E> {
        let lock = enter_new(path)?;
        let state = path.join("storage.toml");
        match fs::remove_file(&state) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let (path, source) = (state, error);
                return Err(DataError::Io { path, source }.into());
            }
            _ => {}
        }
        Ok(Joining {
            path: path.to_owned(),
            server: prepare(path)?,
            _lock: lock,
        })
    }
}
