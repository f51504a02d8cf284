//! The certificate authority of a cluster.

use super::{Credential, Fingerprint, IdentityError, SERVER_NAME, storage_server_dns_name};
use crate::message::CredentialKind;
use base::{ClusterId, ServerId};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use std::fmt;
use std::time::{Duration, SystemTime};

/// How long certificates live. They end earlier by revocation; a machine that captures data for
/// years must not stop because nobody renewed a file.
const VALID_TIME: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How far before its making a certificate is valid: peers' clocks may be behind.
const BACKDATED_TIME: Duration = Duration::from_secs(86_400);
/// Most characters of a common name (X.520, `ub-common-name`).
const LABEL_CHARS_MAX: usize = 64;
/// Subject of an authority, followed by the cluster's identity.
const SUBJECT_PREFIX: &str = "azekura cluster ";

/// A cluster's authority: what may sign certificates. Its `Debug` form has no secret.
pub struct Authority {
    cluster: ClusterId,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes the authority of a new cluster.
    ///
    /// # Errors
    /// [`IdentityError::Issue`] if the system has no randomness.
    pub fn create(cluster: ClusterId) -> Result<Self, IdentityError> {
        Self::create_at(cluster, SystemTime::now())
    }

    /// As [`Self::create`], as if it were `now`.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_at(cluster: ClusterId, now: SystemTime) -> Result<Self, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = valid_from(now);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, format!("{SUBJECT_PREFIX}{cluster}"));
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self {
            cluster,
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// Reads what [`Self::certificate_pem`] and [`Self::key_pem`] gave.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`].
    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Self, IdentityError> {
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|_| IdentityError::Malformed("the authority's certificate"))?;
        let cluster = cluster_of(&certificate)?;
        let key = KeyPair::from_pem(key_pem)
            .map_err(|_| IdentityError::Malformed("the authority's key"))?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .map_err(|_| IdentityError::Malformed("the authority's certificate"))?;
        Ok(Self {
            cluster,
            certificate,
            issuer,
        })
    }

    /// The cluster that it vouches for.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Its certificate, for everybody.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.certificate.to_vec()))
    }

    /// Its private key, for the server's own disk only.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// By what a join string pins it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Makes a server's key and certificate.
    ///
    /// # Errors
    /// [`IdentityError::Issue`].
    pub fn issue_server(&self) -> Result<Credential, IdentityError> {
        self.issue_server_at(SystemTime::now())
    }

    /// As [`Self::issue_server`], as if it were `now`.
    ///
    /// # Errors
    /// As [`Self::issue_server`].
    pub fn issue_server_at(&self, now: SystemTime) -> Result<Credential, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = leaf(now, SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth)?;
        params.subject_alt_names = vec![SanType::DnsName(SERVER_NAME.try_into()?)];
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(self.credential(certificate.der(), &key))
    }

    /// Makes a client's key and certificate on the spot; for the credential that belongs to the
    /// server's own administrator, which never travels.
    ///
    /// # Errors
    /// [`IdentityError::Issue`].
    pub fn issue_local(
        &self,
        kind: CredentialKind,
        label: &str,
        now: SystemTime,
    ) -> Result<Credential, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = client_params(kind, label, now)?.signed_by(&key, &self.issuer)?;
        Ok(self.credential(certificate.der(), &key))
    }

    /// Signs a client's request. Only its public key is taken over; whatever else it asks for is
    /// ignored.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`] for a request that cannot be read, is not signed by its own key
    /// or has a key of another kind than P-256.
    pub fn issue(
        &self,
        kind: CredentialKind,
        label: &str,
        signing_request: &[u8],
        now: SystemTime,
    ) -> Result<CertificateDer<'static>, IdentityError> {
        self.sign(&client_params(kind, label, now)?, signing_request)
    }

    /// As [`Self::issue`], for a storage server: it answers under a name of its own, and is a
    /// client of the manager.
    ///
    /// # Errors
    /// As [`Self::issue`].
    pub fn issue_storage_server(
        &self,
        server: ServerId,
        label: &str,
        signing_request: &[u8],
        now: SystemTime,
    ) -> Result<CertificateDer<'static>, IdentityError> {
        let mut params = client_params(CredentialKind::Server, label, now)?;
        let name = storage_server_dns_name(server);
        let name = SanType::DnsName(name.as_str().try_into()?);
        params.subject_alt_names.insert(0, name);
        let purposes = &mut params.extended_key_usages;
        purposes.push(ExtendedKeyUsagePurpose::ServerAuth);
        self.sign(&params, signing_request)
    }

    fn sign(
        &self,
        params: &CertificateParams,
        signing_request: &[u8],
    ) -> Result<CertificateDer<'static>, IdentityError> {
        let malformed = || IdentityError::Malformed("the signing request");
        let request = CertificateSigningRequestDer::from(signing_request);
        let request =
            CertificateSigningRequestParams::from_der(&request).map_err(|_| malformed())?;
        if *request.public_key.algorithm() != PKCS_ECDSA_P256_SHA256 {
            return Err(malformed());
        }
        let certificate = params.signed_by(&request.public_key, &self.issuer)?;
        Ok(certificate.der().clone())
    }

    fn credential(&self, certificate: &CertificateDer<'static>, key: &KeyPair) -> Credential {
        Credential::from_parts(
            self.cluster,
            self.certificate.clone(),
            certificate.clone(),
            key.serialize_pem(),
        )
    }
}

/// The subject alternative name that says for whom a client speaks.
pub(super) fn kind_uri(kind: CredentialKind) -> String {
    match kind {
        CredentialKind::Admin => "azekura:admin".to_owned(),
        CredentialKind::Host => "azekura:host".to_owned(),
        CredentialKind::User { uid } => format!("azekura:user:{uid}"),
        CredentialKind::Server => "azekura:server".to_owned(),
        CredentialKind::Manager { epoch } => format!("azekura:manager:{epoch}"),
    }
}

/// The cluster that an authority's certificate names.
pub(super) fn cluster_of(certificate: &CertificateDer<'_>) -> Result<ClusterId, IdentityError> {
    let malformed = || IdentityError::Malformed("the authority's certificate");
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| malformed())?;
    let name = parsed
        .subject()
        .iter_common_name()
        .next()
        .ok_or_else(malformed)?;
    let hex = name
        .as_str()
        .ok()
        .and_then(|n| n.strip_prefix(SUBJECT_PREFIX));
    let hex = hex
        .filter(|h| h.len() == 32 && h.is_ascii())
        .ok_or_else(malformed)?;
    let mut id = [0; 16];
    for (byte, digits) in id.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| malformed())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| malformed())?;
    }
    Ok(ClusterId(id))
}

fn valid_from(now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = (now - BACKDATED_TIME).into();
    params.not_after = (now + VALID_TIME).into();
    params
}

fn leaf(
    now: SystemTime,
    subject: &str,
    purpose: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, IdentityError> {
    let mut serial = [0u8; 16];
    SystemRandom::new()
        .fill(&mut serial)
        .map_err(|_| rcgen::Error::RingUnspecified)?;
    // A serial number is a positive integer without a leading zero byte (RFC 5280, 4.1.2.2); fixed
    // leading bits keep its hexadecimal form at 32 digits.
    serial[0] = serial[0] & 0x3f | 0x40;
    let mut params = valid_from(now);
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    params.distinguished_name.push(DnType::CommonName, subject);
    Ok(params)
}

fn client_params(
    kind: CredentialKind,
    label: &str,
    now: SystemTime,
) -> Result<CertificateParams, IdentityError> {
    // The label comes from a client and ends up in other people's terminals.
    let label: String = label
        .chars()
        .filter(|c| !c.is_control())
        .take(LABEL_CHARS_MAX)
        .collect();
    let mut params = leaf(now, &label, ExtendedKeyUsagePurpose::ClientAuth)?;
    params.subject_alt_names = vec![SanType::URI(kind_uri(kind).as_str().try_into()?)];
    Ok(params)
}
