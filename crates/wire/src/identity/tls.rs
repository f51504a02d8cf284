//! TLS as both sides use it: version 1.3 only, mutual, one authority.

use super::{ClientVerifier, Credential, Fingerprint, IdentityError, SERVER_NAME};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::sync::Arc;

/// TLS sessions that a server remembers by ticket are not stored; a client gets this many tickets
/// by each connection, enough for one that breaks again and again. They are used for connections
/// that are made again: those of a mount begin at the same time, before there is a ticket.
const TICKETS: u8 = 4;

/// The cryptography of both sides. AES-128 goes first: it is as unbroken as AES-256 and a quarter
/// cheaper per byte, and the bytes are what this program is about.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
            TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..rustls::crypto::ring::default_provider()
    })
}

/// A store that trusts one authority.
pub(super) fn roots(authority: &CertificateDer<'static>) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    roots
        .add(authority.clone())
        .map_err(|_| IdentityError::Malformed("the authority's certificate"))?;
    Ok(roots)
}

/// The name that a client must demand of a server.
#[must_use]
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).expect("the constant is a legal name")
}

/// The name that must be demanded of a storage server that has joined.
///
/// # Panics
/// Never: digits and letters are a legal name.
#[must_use]
pub fn storage_server_name(server: base::ServerId) -> ServerName<'static> {
    let name = super::storage_server_dns_name(server);
    ServerName::try_from(name).expect("digits and letters are a legal name")
}

/// How a client with a credential connects. Make it once per mount: it keeps the tickets with which
/// further connections are set up in one round trip less.
///
/// # Errors
/// [`IdentityError::Malformed`] or [`IdentityError::Tls`] if certificate and key do not fit.
pub fn client_config(credential: &Credential) -> Result<Arc<ClientConfig>, IdentityError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(IdentityError::Tls)?
        .with_root_certificates(roots(credential.authority())?)
        .with_client_auth_cert(vec![credential.certificate().clone()], credential.key()?)
        .map_err(IdentityError::Tls)?;
    Ok(Arc::new(config))
}

/// How a server accepts. A client without a certificate gets through the handshake, because it may
/// be here to enrol; the connection then answers nothing else.
///
/// # Errors
/// As [`client_config`].
pub fn server_config(
    credential: &Credential,
    verifier: &ClientVerifier,
) -> Result<Arc<ServerConfig>, IdentityError> {
    // The authority's certificate is sent along for those who know it by fingerprint only.
    let chain = vec![
        credential.certificate().clone(),
        credential.authority().clone(),
    ];
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(IdentityError::Tls)?
        .with_client_cert_verifier(verifier.for_tls())
        .with_single_cert(chain, credential.key()?)
        .map_err(IdentityError::Tls)?;
    config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(IdentityError::Tls)?;
    config.send_tls13_tickets = usize::from(TICKETS);
    Ok(Arc::new(config))
}

/// How a client without a credential connects in order to enrol: it trusts the authority that the
/// join string pins, and only that.
///
/// # Errors
/// [`IdentityError::Tls`].
pub fn enrol_config(fingerprint: Fingerprint) -> Result<Arc<ClientConfig>, IdentityError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(IdentityError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedAuthority { fingerprint }))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Believes a server whose chain ends in the authority of this fingerprint.
#[derive(Debug)]
struct PinnedAuthority {
    fingerprint: Fingerprint,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = others
            .iter()
            .find(|c| Fingerprint::of(c) == self.fingerprint)
            .ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|_| CertificateError::UnknownIssuer)?
            .verify_server_cert(own, &[], name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
