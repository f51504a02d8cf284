//! Who a client is, by its certificate.

use super::authority::kind_uri;
use super::credential::proof_message;
use super::tls::{provider, roots};
use super::{Credential, IdentityError};
use crate::message::{CredentialKind, Proof};
use base::SessionId;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::fmt;
use std::sync::Arc;
use x509_parser::extensions::GeneralName;

/// How a storage server's certificate says what it is.
const SERVER_URI: &str = "azekura:server";

/// What a client's certificate says, once it is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// For whom it speaks.
    pub kind: CredentialKind,
    /// The certificate's serial number in lower-case hexadecimal: the credential's identity.
    pub serial: String,
    /// How the client called itself when it enrolled.
    pub label: String,
}

impl Peer {
    /// Reads a certificate without judging it.
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
            .map_err(|_| IdentityError::Malformed("the client's certificate"))?;
        let names = parsed
            .subject_alternative_name()
            .ok()
            .flatten()
            .ok_or(IdentityError::NotCredential)?;
        let uri = match names.value.general_names[..] {
            [GeneralName::URI(uri)] => uri,
            // A server that has joined is a client of the manager with the same certificate.
            [GeneralName::DNSName(_), GeneralName::URI(uri)] if uri == SERVER_URI => uri,
            _ => return Err(IdentityError::NotCredential),
        };
        let kind = match uri {
            "azekura:admin" => CredentialKind::Admin,
            "azekura:host" => CredentialKind::Host,
            SERVER_URI => CredentialKind::Server,
            other => numbered(other).ok_or(IdentityError::NotCredential)?,
        };
        // One spelling for one meaning: `azekura:user:+7` and `azekura:user:007` are nobody.
        if kind_uri(kind) != uri {
            return Err(IdentityError::NotCredential);
        }
        let label = parsed.subject().iter_common_name().next();
        let label = label
            .and_then(|n| n.as_str().ok())
            .unwrap_or_default()
            .to_owned();
        let serial = parsed
            .raw_serial()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        Ok(Self {
            kind,
            serial,
            label,
        })
    }
}

/// Kinds with a number behind them.
fn numbered(uri: &str) -> Option<CredentialKind> {
    if let Some(epoch) = uri.strip_prefix("azekura:manager:") {
        let epoch = epoch.parse().ok()?;
        return Some(CredentialKind::Manager { epoch });
    }
    let uid = uri.strip_prefix("azekura:user:")?.parse().ok()?;
    Some(CredentialKind::User { uid })
}

/// Judges clients' certificates against one authority.
#[derive(Clone)]
pub struct ClientVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientVerifier").finish_non_exhaustive()
    }
}

impl ClientVerifier {
    /// A verifier for the authority of a server's credential.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`] where the authority's certificate is none.
    pub fn new(server: &Credential) -> Result<Self, IdentityError> {
        let roots = Arc::new(roots(server.authority())?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .allow_unauthenticated()
            .build()
            .map_err(|_| IdentityError::Malformed("the authority's certificate"))?;
        Ok(Self { verifier })
    }

    pub(super) fn for_tls(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier)
    }

    /// Who the client of a connection is. The chain is judged again although the handshake has
    /// judged it: a resumed TLS session brings the certificate of a handshake long past.
    ///
    /// # Errors
    /// [`IdentityError::Untrusted`], [`IdentityError::NotCredential`],
    /// [`IdentityError::Malformed`].
    pub fn verify(
        &self,
        certificates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Peer, IdentityError> {
        let (own, others) = certificates
            .split_first()
            .ok_or(IdentityError::NotCredential)?;
        self.verifier
            .verify_client_cert(own, others, now)
            .map_err(IdentityError::Untrusted)?;
        Peer::read(own)
    }

    /// Who the client of a plain connection is, by its proof.
    ///
    /// # Errors
    /// As [`Self::verify`], and [`IdentityError::BadProof`].
    pub fn verify_proof(
        &self,
        proof: &Proof,
        challenge: &[u8; 32],
        session: SessionId,
        now: UnixTime,
    ) -> Result<Peer, IdentityError> {
        let certificate = CertificateDer::from(proof.certificate.as_slice());
        let peer = self.verify(std::slice::from_ref(&certificate), now)?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|_| IdentityError::Malformed("the client's certificate"))?;
        let key = ring::signature::UnparsedPublicKey::new(
            &ring::signature::ECDSA_P256_SHA256_ASN1,
            &parsed.public_key().subject_public_key.data,
        );
        key.verify(&proof_message(challenge, session), &proof.signature)
            .map_err(|_| IdentityError::BadProof)?;
        Ok(peer)
    }
}
