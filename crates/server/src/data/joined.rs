//! The data directory of a server that joins a cluster.
//!
//! It has the cluster's authority as a certificate, never its key: what it keeps is its own
//! certificate with that key, where the manager is, and a copy of the manager's list of
//! credentials, so that it knows its clients while the manager is away.

use super::{
    BootFile, ClusterFile, DataDirectory, DataError, Registry, SecretFile, enter_new, file, random,
    to_hex,
};
use base::ServerId;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use wire::identity::Credential;

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
        };
        file::write(path, "cluster", &cluster)
    }
}

impl DataDirectory {
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
