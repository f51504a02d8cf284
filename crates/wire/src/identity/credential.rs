//! One party's certificate with its key, on disk and in memory.

use super::authority::cluster_of;
use super::{Fingerprint, IdentityError, Peer};
use crate::message::{CredentialKind, Proof};
use base::{ClusterId, SessionId};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SigningKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File of a credential within its directory: the authority's certificate, the own one, the key.
const FILE_NAME: &str = "credential.pem";
/// A credential's file is a few hundred bytes; nobody needs to read more than this.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What a client or server proves itself with. Its `Debug` form has no secret.
#[derive(Clone)]
pub struct Credential {
    cluster: ClusterId,
    authority: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key_pem: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl Credential {
    pub(super) fn from_parts(
        cluster: ClusterId,
        authority: CertificateDer<'static>,
        certificate: CertificateDer<'static>,
        key_pem: String,
    ) -> Self {
        Self {
            cluster,
            authority,
            certificate,
            key_pem,
        }
    }

    /// The cluster in which it is valid.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// For whom it speaks.
    ///
    /// # Errors
    /// [`IdentityError::NotCredential`] for a server's.
    pub fn kind(&self) -> Result<CredentialKind, IdentityError> {
        Ok(Peer::read(&self.certificate)?.kind)
    }

    /// Its serial number, by which lists name it.
    ///
    /// # Errors
    /// As [`Self::kind`].
    pub fn serial(&self) -> Result<String, IdentityError> {
        Ok(Peer::read(&self.certificate)?.serial)
    }

    /// The authority's certificate.
    #[must_use]
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    /// The authority's certificate as text.
    #[must_use]
    pub fn authority_pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.authority.to_vec()))
    }

    /// The own certificate.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The private key in the form that rustls takes.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, IdentityError> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())
            .map_err(|_| IdentityError::Malformed("the private key"))
    }

    /// The whole credential as text: authority, certificate, key. Secret.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let mut text = pem::encode(&pem::Pem::new("CERTIFICATE", self.authority.to_vec()));
        text += &pem::encode(&pem::Pem::new("CERTIFICATE", self.certificate.to_vec()));
        text += &self.key_pem;
        text
    }

    /// Reads the form that [`Self::to_pem`] writes.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`].
    pub fn from_pem(text: &str) -> Result<Self, IdentityError> {
        let malformed = || IdentityError::Malformed("the credential");
        let mut certificates = CertificateDer::pem_slice_iter(text.as_bytes());
        let authority = certificates
            .next()
            .and_then(Result::ok)
            .ok_or_else(malformed)?;
        let certificate = certificates
            .next()
            .and_then(Result::ok)
            .ok_or_else(malformed)?;
        if certificates.next().is_some() {
            return Err(malformed());
        }
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| malformed())?;
        let key = KeyPair::try_from(&key).map_err(|_| malformed())?;
        Ok(Self {
            cluster: cluster_of(&authority)?,
            authority,
            certificate,
            key_pem: key.serialize_pem(),
        })
    }

    /// Writes it into `directory`, which only its owner may enter afterwards. An earlier credential
    /// there is replaced in one step.
    ///
    /// # Errors
    /// [`IdentityError::Io`] with the path.
    pub fn save(&self, directory: &Path) -> Result<(), IdentityError> {
        let path = directory.join(FILE_NAME);
        let io_error = |source| IdentityError::Io {
            path: path.clone(),
            source,
        };
        self.write(directory, &path).map_err(io_error)
    }

    fn write(&self, directory: &Path, path: &Path) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let temporary: PathBuf = directory.join(format!(".{FILE_NAME}.{}", std::process::id()));
        // A file left by a process of the same number that was killed here is nobody's.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(self.to_pem().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(directory)?.sync_all()
    }

    /// Reads what [`Self::save`] wrote.
    ///
    /// # Errors
    /// [`IdentityError::Exposed`] where others may read the file, [`IdentityError::Io`],
    /// [`IdentityError::Malformed`].
    pub fn load(directory: &Path) -> Result<Self, IdentityError> {
        let path = directory.join(FILE_NAME);
        let io_error = |source| IdentityError::Io {
            path: path.clone(),
            source,
        };
        let file = File::open(&path).map_err(io_error)?;
        let metadata = file.metadata().map_err(io_error)?;
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(IdentityError::Exposed { path, mode });
        }
        let mut text = String::new();
        io::Read::read_to_string(&mut io::Read::take(file, FILE_BYTES_MAX), &mut text)
            .map_err(io_error)?;
        Self::from_pem(&text)
    }

    /// The proof for a plain connection: a signature over the server's challenge and the session.
    ///
    /// # Errors
    /// [`IdentityError::Issue`].
    pub fn sign_proof(
        &self,
        challenge: &[u8; 32],
        session: SessionId,
    ) -> Result<Proof, IdentityError> {
        let key = KeyPair::from_pem(&self.key_pem)?;
        let signature = key.sign(&proof_message(challenge, session))?;
        Ok(Proof {
            certificate: self.certificate.to_vec(),
            signature,
        })
    }
}

/// What a proof signs. The prefix keeps the signature from meaning anything elsewhere.
pub(super) fn proof_message(challenge: &[u8; 32], session: SessionId) -> Vec<u8> {
    [&b"azekura-proof-1"[..], challenge, &session.0].concat()
}

/// A client on its way to a credential: its key and the request that it sends.
pub struct Enrolment {
    key: KeyPair,
    signing_request: Vec<u8>,
}

impl fmt::Debug for Enrolment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enrolment").finish_non_exhaustive()
    }
}

impl Enrolment {
    /// Makes a key.
    ///
    /// # Errors
    /// [`IdentityError::Issue`] if the system has no randomness.
    pub fn new() -> Result<Self, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let request = CertificateParams::default().serialize_request(&key)?;
        Ok(Self {
            signing_request: request.der().to_vec(),
            key,
        })
    }

    /// The certificate signing request, DER, for `Request::Enrol`.
    #[must_use]
    pub fn signing_request(&self) -> &[u8] {
        &self.signing_request
    }

    /// Puts the server's answer and the certificates that it proved in the handshake together.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`] if the answer is not a certificate for this key, or the
    /// authority of `fingerprint` is not among the server's certificates.
    pub fn complete(
        self,
        certificate: &[u8],
        server_certificates: &[CertificateDer<'static>],
        fingerprint: Fingerprint,
    ) -> Result<Credential, IdentityError> {
        let authority = server_certificates
            .iter()
            .find(|c| Fingerprint::of(c) == fingerprint)
            .ok_or(IdentityError::Malformed(
                "the server's chain of certificates",
            ))?;
        let malformed = || IdentityError::Malformed("the certificate that the server sent");
        let (_, parsed) =
            x509_parser::parse_x509_certificate(certificate).map_err(|_| malformed())?;
        if parsed.public_key().subject_public_key.data != self.key.public_key_raw() {
            return Err(malformed());
        }
        Ok(Credential::from_parts(
            cluster_of(authority)?,
            authority.clone(),
            CertificateDer::from(certificate.to_vec()),
            self.key.serialize_pem(),
        ))
    }
}
