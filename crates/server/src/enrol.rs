//! Giving credentials for join secrets: to clients, to servers that keep objects, and to managers
//! all that managers have in common. Blocking: what is given is noted first, durably.

use crate::core::Core;
use crate::data::{Enrolling, RegistryError};
use base::ServerId;
use rustls::pki_types::CertificateDer;
use std::sync::PoisonError;
use std::time::SystemTime;
use wire::identity::{ClientVerifier, Peer};
use wire::message::{CredentialKind, ManagerSecrets, Refusal, Reply, Request, SharedKey};

type Certificate = CertificateDer<'static>;

/// Answers somebody who has a join secret and nothing else.
pub(crate) fn answer(core: &Core, request: Request) -> Reply {
    match request {
        Request::Enrol {
            secret,
            signing_request,
            label,
        } => enrol(core, &secret, &signing_request, &label, None),
        Request::EnrolServer {
            secret,
            signing_request,
            label,
            server,
        } => enrol(core, &secret, &signing_request, &label, Some(server)),
        Request::EnrolManager {
            secret,
            signing_request,
            label,
        } => enrol_manager(core, &secret, &signing_request, &label),
        _ => Reply::Refused(Refusal::Forbidden),
    }
}

/// Uses a join secret up and notes the credential that is given for it, which `sign` makes.
fn give(
    core: &Core,
    registry: &mut crate::data::Registry,
    (secret, for_whom): (&[u8; 32], Enrolling),
    sign: impl FnOnce(CredentialKind) -> Result<Certificate, wire::identity::IdentityError>,
) -> Result<(Certificate, Peer), Refusal> {
    let now = SystemTime::now();
    let kind = match registry.take_join(secret, for_whom, now) {
        Ok(kind) => kind,
        Err(RegistryError::NotFound) => return Err(Refusal::JoinString),
        Err(error) => {
            tracing::error!(%error, "cannot use a join secret up");
            return Err(Refusal::Overloaded);
        }
    };
    // The machine of a manager is given an administrator's credential.
    let kind = match kind {
        CredentialKind::Manager { .. } => CredentialKind::Admin,
        kind => kind,
    };
    let issued = sign(kind).and_then(|cert| {
        let verifier: &ClientVerifier = &core.client_verifier;
        let chain = std::slice::from_ref(&cert);
        let peer = verifier.verify(chain, rustls::pki_types::UnixTime::now())?;
        Ok((cert, peer))
    });
    let (certificate, peer) = issued.map_err(|error| {
        tracing::error!(%error, "cannot issue a credential");
        Refusal::Overloaded
    })?;
    let noted = registry.add_credential(&peer.serial, kind, &peer.label, now);
    noted.map_err(|error| {
        tracing::error!(%error, "cannot record a credential");
        Refusal::Overloaded
    })?;
    Ok((certificate, peer))
}

/// Gives a client without a credential one, or a server that is to keep objects, for a join secret.
fn enrol(
    core: &Core,
    secret: &[u8; 32],
    signing_request: &[u8],
    label: &str,
    server: Option<ServerId>,
) -> Reply {
    let (Some(authority), Some(members)) = (&core.data.authority, &core.members) else {
        return Reply::Refused(Refusal::JoinString);
    };
    let now = SystemTime::now();
    let sign = |kind| match server {
        Some(server) => authority.issue_storage_server(server, label, signing_request, now),
        None => authority.issue(kind, label, signing_request, now),
    };
    // Signed first: a request that cannot be signed must not use the secret up. Which kind the
    // secret is for is known only once it is taken, so the trial is for the least there is.
    if sign(CredentialKind::Host).is_err() {
        return Reply::Refused(Refusal::Malformed);
    }
    let mut members = members.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Err(error)) = server.map(|server| members.check(server)) {
        tracing::warn!(%error, "a server is not let in");
        return Reply::Refused(Refusal::Forbidden);
    }
    let mut registry = core.registry();
    let for_whom = match server {
        Some(_) => Enrolling::StorageServer,
        None => Enrolling::Client,
    };
    let given = give(core, &mut registry, (secret, for_whom), sign);
    let (certificate, peer) = match given {
        Ok(given) => given,
        Err(refusal) => return Reply::Refused(refusal),
    };
    if let Some(server) = server {
        let noted = members.add(server, &peer.serial, &peer.label);
        // One of several managers has a credential for as long as it leads.
        let own = match &core.lead {
            Some(_) => Ok(None),
            None => crate::data::manager_credential(&core.data, &mut registry).map(Some),
        };
        match (noted, own) {
            (Ok(()), Ok(Some(credential))) => core.cluster.set_credential(credential),
            (Ok(()), Ok(None)) => {}
            (noted, own) => {
                tracing::error!(?noted, own = ?own.err(), "cannot note a server");
                return Reply::Refused(Refusal::Overloaded);
            }
        }
    }
    tracing::info!(label = peer.label, serial = peer.serial, kind = ?peer.kind, "enrolled");
    Reply::Enrolled {
        certificate: certificate.to_vec(),
    }
}

/// Gives a machine that is to be a manager what all managers have. What it gets makes it as good as
/// this one: the join secret is for that, and the connection's other end holds it.
fn enrol_manager(core: &Core, secret: &[u8; 32], signing_request: &[u8], label: &str) -> Reply {
    let data = &core.data;
    let (Some(authority), Some(meta)) = (&data.authority, &data.meta) else {
        return Reply::Refused(Refusal::JoinString);
    };
    let sign = |kind| authority.issue(kind, label, signing_request, SystemTime::now());
    // Signed first: see above.
    if sign(CredentialKind::Host).is_err() {
        return Reply::Refused(Refusal::Malformed);
    }
    let mut registry = core.registry();
    match give(core, &mut registry, (secret, Enrolling::Manager), sign) {
        Ok((certificate, peer)) => {
            tracing::info!(
                label = peer.label,
                serial = peer.serial,
                "a manager has enrolled"
            );
            Reply::ManagerEnrolled(Box::new(ManagerSecrets {
                certificate: certificate.to_vec(),
                authority: authority.certificate_pem(),
                authority_key: authority.key_pem(),
                handle_key: SharedKey(data.names_key),
                meta: meta.to_string(),
            }))
        }
        Err(refusal) => Reply::Refused(refusal),
    }
}
