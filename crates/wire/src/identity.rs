//! Identity: the credentials by which the two sides know each other.
//!
//! A cluster has one certificate authority, made when its first server is initialised and kept by
//! that one, its manager. It vouches for these certificates (ECDSA P-256, X.509):
//!
//! * the manager's, for the fixed name [`SERVER_NAME`]. Clients trust the authority and nothing
//!   else, so whatever address they dialled, only the manager of their cluster can answer;
//! * those of storage servers that have joined, for a name that has their identity in it
//!   ([`storage_server_dns_name`]): none of them can answer in the place of another. They are
//!   clients of the manager, too, with `azekura:server` as below;
//! * clients', whose subject alternative name is a URI that says for whom the bearer may speak:
//!   `azekura:admin`, `azekura:host` or `azekura:user:UID`.
//!
//! Under TLS both prove themselves in the handshake. On a plain connection the client signs the
//! server's challenge ([`Credential::sign_proof`], [`ClientVerifier::verify_proof`]); nobody
//! vouches for the server there, which is why plain connections are for loopback and closed
//! networks.
//!
//! A machine without a credential gets one by a [`JoinString`]: it pins the authority by
//! fingerprint and carries a one-time secret, so a man in the middle neither learns the secret nor
//! can answer in the server's place. The private key never leaves the machine that made it.
//!
//! Certificates live ten years; what ends them earlier is the server's list of revoked serial
//! numbers. Every function that judges a certificate takes or reads the time through rustls, so
//! tests move the clock.

mod authority;
mod credential;
mod join;
mod peer;
mod tls;

pub use authority::Authority;
pub use credential::{Credential, Enrolment};
pub use join::{Fingerprint, JoinString, JoinStringError};
pub use peer::{ClientVerifier, Peer};
pub use tls::{client_config, enrol_config, server_config, server_name, storage_server_name};

use std::io;
use std::path::PathBuf;

/// The name in every server's certificate.
pub const SERVER_NAME: &str = "azekura-server";

/// The name in the certificate of a storage server that has joined: its own, so that it can answer
/// neither in the manager's place nor in that of another one.
#[must_use]
pub fn storage_server_dns_name(server: base::ServerId) -> String {
    format!("s-{server}.{SERVER_NAME}")
}

/// Why a credential cannot be made, read or believed. No variant carries a secret.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Text or bytes that are not what they should be.
    #[error("{0} cannot be read")]
    Malformed(&'static str),
    /// A certificate that the cluster's authority did not sign, or that is out of date, or for
    /// another purpose.
    #[error("the certificate is not valid here: {0}")]
    Untrusted(#[source] rustls::Error),
    /// A certificate of the authority that is not a client's.
    #[error("the certificate does not say for whom it speaks")]
    NotCredential,
    /// The signature over the challenge is not the certificate's bearer's.
    #[error("the proof does not match the certificate")]
    BadProof,
    /// Key generation or signing failed.
    #[error("the certificate cannot be made: {0}")]
    Issue(#[from] rcgen::Error),
    /// TLS cannot be set up with these keys.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[source] rustls::Error),
    /// Others can read the private key.
    #[error("{path} can be read by other users (mode {mode:03o}); run: chmod 600 {path}")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The credential's file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests;
