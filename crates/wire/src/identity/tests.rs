//! Who gets in and who does not, with real handshakes in memory.

use super::*;
use crate::message::CredentialKind;
use base::{ClusterId, SessionId};
use proptest::prelude::*;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const YEAR: Duration = Duration::from_secs(366 * 86_400);

#[derive(Debug)]
struct FixedTime(SystemTime);

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix(self.0))
    }
}

fn unix(time: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(time.duration_since(SystemTime::UNIX_EPOCH).unwrap())
}

fn authority(id: u8) -> Authority {
    Authority::create(ClusterId([id; 16])).unwrap()
}

struct Server {
    config: Arc<ServerConfig>,
    verifier: ClientVerifier,
}

fn server(authority: &Authority) -> Server {
    let credential = authority.issue_server().unwrap();
    let verifier = ClientVerifier::new(&credential).unwrap();
    Server {
        config: server_config(&credential, &verifier).unwrap(),
        verifier,
    }
}

fn client(authority: &Authority, kind: CredentialKind) -> Credential {
    authority
        .issue_local(kind, "laptop", SystemTime::now())
        .unwrap()
}

/// Runs a handshake to its end and returns what the server saw of the client.
fn handshake(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
) -> Result<(Vec<CertificateDer<'static>>, ClientConnection), String> {
    handshake_with(client, server, server_name())
}

/// The same with a server of this name.
fn handshake_with(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: rustls::pki_types::ServerName<'static>,
) -> Result<(Vec<CertificateDer<'static>>, ClientConnection), String> {
    let mut client = ClientConnection::new(client, name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    for _ in 0..8 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server
                .process_new_packets()
                .map_err(|e| format!("server: {e}"))?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client
                .process_new_packets()
                .map_err(|e| format!("client: {e}"))?;
        }
        if !client.is_handshaking() && !server.is_handshaking() {
            // One byte each way: in TLS 1.3 a client is done before it is accepted.
            client.writer().write_all(b"x").unwrap();
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server
                .process_new_packets()
                .map_err(|e| format!("server: {e}"))?;
            let mut byte = [0];
            server.reader().read_exact(&mut byte).unwrap();
            return Ok((
                server.peer_certificates().unwrap_or_default().to_vec(),
                client,
            ));
        }
    }
    Err("the handshake did not end".to_owned())
}

fn now() -> UnixTime {
    UnixTime::now()
}

#[test]
fn each_kind_of_credential_is_recognised_as_what_it_is() {
    let authority = authority(1);
    let server = server(&authority);
    let kinds = [
        CredentialKind::Admin,
        CredentialKind::Host,
        CredentialKind::User { uid: 0 },
        CredentialKind::User { uid: u32::MAX },
    ];
    for kind in kinds {
        let credential = client(&authority, kind);
        let config = client_config(&credential).unwrap();
        let (certificates, _) = handshake(config, server.config.clone()).unwrap();
        let peer = server.verifier.verify(&certificates, now()).unwrap();
        assert_eq!(peer.kind, kind);
        assert_eq!(peer.label, "laptop");
        assert_eq!(peer.serial.len(), 32, "{}", peer.serial);
    }
}

#[test]
fn a_client_of_another_cluster_is_refused_and_refuses() {
    let (ours, theirs) = (authority(1), authority(2));
    let config = client_config(&client(&theirs, CredentialKind::Admin)).unwrap();
    let error = handshake(config, server(&ours).config).unwrap_err();
    assert!(
        error.starts_with("client: "),
        "the client leaves first: {error}"
    );

    // A client that believes our server but shows their certificate.
    let mut mixed = client(&theirs, CredentialKind::Admin);
    mixed = Credential::from_pem(&mixed.to_pem().replacen(
        &theirs.certificate_pem(),
        &ours.certificate_pem(),
        1,
    ))
    .unwrap();
    let error = handshake(client_config(&mixed).unwrap(), server(&ours).config).unwrap_err();
    assert!(error.starts_with("server: "), "{error}");
}

/// A storage server's credential, as it comes of its enrolment.
fn storage_server(authority: &Authority, id: u8) -> Credential {
    let enrolment = Enrolment::new().unwrap();
    let (id, now) = (base::ServerId([id; 16]), SystemTime::now());
    let request = enrolment.signing_request();
    let signed = authority.issue_storage_server(id, "disks", request, now);
    let manager = authority.issue_server().unwrap();
    let proven = [manager.authority().clone()];
    enrolment
        .complete(&signed.unwrap(), &proven, authority.fingerprint())
        .unwrap()
}

#[test]
fn a_storage_server_answers_under_its_own_name_alone() {
    let (ours, theirs) = (authority(1), authority(2));
    let name = |id| storage_server_name(base::ServerId([id; 16]));
    let serve = |credential: &Credential| {
        let verifier = ClientVerifier::new(credential).unwrap();
        server_config(credential, &verifier).unwrap()
    };
    let one = storage_server(&ours, 1);
    let asks = || client_config(&client(&ours, CredentialKind::Host)).unwrap();
    handshake_with(asks(), serve(&one), name(1)).unwrap();
    for other in [name(2), server_name()] {
        let error = handshake_with(asks(), serve(&one), other).unwrap_err();
        assert!(error.starts_with("client: "), "{error}");
    }
    // Nor does the manager answer for it, or one of the same identity elsewhere.
    let manager = server(&ours);
    let error = handshake_with(asks(), manager.config.clone(), name(1)).unwrap_err();
    assert!(error.starts_with("client: "), "{error}");
    let forged = storage_server(&theirs, 1);
    let error = handshake_with(asks(), serve(&forged), name(1)).unwrap_err();
    assert!(error.starts_with("client: "), "{error}");
    // It asks the manager as what it is, and so does nobody of another cluster.
    let config = client_config(&one).unwrap();
    let (certificates, _) = handshake(config, manager.config.clone()).unwrap();
    let peer = manager.verifier.verify(&certificates, now()).unwrap();
    assert_eq!(peer.kind, CredentialKind::Server);
    assert_eq!(one.serial().unwrap(), peer.serial);
    let chain = [forged.certificate().clone()];
    assert!(manager.verifier.verify(&chain, now()).is_err());
}

#[test]
fn out_of_date_certificates_are_refused_on_both_sides() {
    let authority = authority(1);
    let server = server(&authority);
    let credential = client(&authority, CredentialKind::Host);
    for wrong in [SystemTime::now() + 11 * YEAR, SystemTime::now() - 2 * YEAR] {
        let mut late_client = ClientConfig::clone(&client_config(&credential).unwrap());
        late_client.time_provider = Arc::new(FixedTime(wrong));
        let error = handshake(Arc::new(late_client), server.config.clone()).unwrap_err();
        assert!(error.starts_with("client: "), "{error}");

        let mut late_server = ServerConfig::clone(&server.config);
        late_server.time_provider = Arc::new(FixedTime(wrong));
        let config = client_config(&credential).unwrap();
        let error = handshake(config, Arc::new(late_server)).unwrap_err();
        assert!(error.starts_with("server: "), "{error}");

        let chain = [credential.certificate().clone()];
        assert!(matches!(
            server.verifier.verify(&chain, unix(wrong)),
            Err(IdentityError::Untrusted(_))
        ));
    }
}

#[test]
fn a_client_certificate_cannot_serve_and_a_server_certificate_cannot_ask() {
    let authority = authority(1);
    let server = server(&authority);
    // A client that poses as the server of its cluster.
    let imposter = client(&authority, CredentialKind::Admin);
    let config = server_config(&imposter, &server.verifier).unwrap();
    let asks = client_config(&client(&authority, CredentialKind::Host)).unwrap();
    assert!(handshake(asks, config).unwrap_err().starts_with("client: "));
    // A server's certificate used to ask.
    let credential = authority.issue_server().unwrap();
    let config = client_config(&credential).unwrap();
    assert!(
        handshake(config, server.config.clone())
            .unwrap_err()
            .starts_with("server: ")
    );
    let chain = [credential.certificate().clone()];
    assert!(server.verifier.verify(&chain, now()).is_err());
    // The authority's own certificate names nobody.
    let chain = [credential.authority().clone()];
    assert!(server.verifier.verify(&chain, now()).is_err());
}

#[test]
fn without_a_certificate_the_handshake_passes_and_nobody_is_recognised() {
    let authority = authority(1);
    let server = server(&authority);
    let config = enrol_config(authority.fingerprint()).unwrap();
    let (certificates, client) = handshake(config, server.config.clone()).unwrap();
    assert!(certificates.is_empty());
    assert!(matches!(
        server.verifier.verify(&certificates, now()),
        Err(IdentityError::NotCredential)
    ));

    let enrolment = Enrolment::new().unwrap();
    let signed = authority
        .issue(
            CredentialKind::Host,
            "new",
            enrolment.signing_request(),
            SystemTime::now(),
        )
        .unwrap();
    let chain = client.peer_certificates().unwrap();
    let credential = enrolment
        .complete(&signed, chain, authority.fingerprint())
        .unwrap();
    assert_eq!(credential.cluster(), authority.cluster());
    let config = client_config(&credential).unwrap();
    let (certificates, _) = handshake(config, server.config.clone()).unwrap();
    let peer = server.verifier.verify(&certificates, now()).unwrap();
    assert_eq!(
        (peer.kind, peer.label.as_str()),
        (CredentialKind::Host, "new")
    );
}

#[test]
fn enrolment_believes_only_the_authority_that_the_join_string_pins() {
    let (ours, theirs) = (authority(1), authority(1));
    let config = enrol_config(ours.fingerprint()).unwrap();
    let error = handshake(config.clone(), server(&theirs).config).unwrap_err();
    assert!(error.starts_with("client: "), "{error}");

    // A man in the middle who appends the true authority's certificate to a chain of his own.
    let credential = theirs.issue_server().unwrap();
    let text = credential
        .to_pem()
        .replacen(&theirs.certificate_pem(), &ours.certificate_pem(), 1);
    let mixed = Credential::from_pem(&text).unwrap();
    let verifier = server(&theirs).verifier;
    let error = handshake(config, server_config(&mixed, &verifier).unwrap()).unwrap_err();
    assert!(error.starts_with("client: "), "{error}");
}

#[test]
fn an_answer_for_another_key_does_not_complete_an_enrolment() {
    let authority = authority(1);
    let (ours, other) = (Enrolment::new().unwrap(), Enrolment::new().unwrap());
    let issue =
        |request: &[u8]| authority.issue(CredentialKind::Host, "h", request, SystemTime::now());
    let signed = issue(other.signing_request()).unwrap();
    let chain = [authority.issue_server().unwrap().authority().clone()];
    assert!(
        ours.complete(&signed, &chain, authority.fingerprint())
            .is_err()
    );

    let mut damaged = other.signing_request().to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(
        issue(&damaged).is_err(),
        "a request must be signed by its own key"
    );
    assert!(issue(b"").is_err());
}

#[test]
fn a_proof_is_good_for_its_challenge_session_and_key_only() {
    let authority = authority(1);
    let verifier = server(&authority).verifier;
    let credential = client(&authority, CredentialKind::User { uid: 1000 });
    let (challenge, session) = ([7; 32], SessionId([8; 16]));
    let proof = credential.sign_proof(&challenge, session).unwrap();
    let check =
        |proof: &_, challenge: &_, session| verifier.verify_proof(proof, challenge, session, now());
    let peer = check(&proof, &challenge, session).unwrap();
    assert_eq!(peer.kind, CredentialKind::User { uid: 1000 });

    let bad_proof = |outcome: Result<Peer, IdentityError>| {
        assert!(
            matches!(outcome, Err(IdentityError::BadProof)),
            "{outcome:?}"
        );
    };
    bad_proof(check(&proof, &[9; 32], session));
    bad_proof(check(&proof, &challenge, SessionId([9; 16])));
    // An administrator's certificate with a user's signature.
    let mut stolen = proof.clone();
    stolen.certificate = client(&authority, CredentialKind::Admin)
        .certificate()
        .to_vec();
    bad_proof(check(&stolen, &challenge, session));
    for cut in 0..proof.signature.len() {
        let mut short = proof.clone();
        short.signature.truncate(cut);
        bad_proof(check(&short, &challenge, session));
    }
    let foreign = client(&self::authority(1), CredentialKind::Admin);
    let foreign = foreign.sign_proof(&challenge, session).unwrap();
    assert!(matches!(
        check(&foreign, &challenge, session),
        Err(IdentityError::Untrusted(_))
    ));
}

#[test]
fn resumed_connections_bring_the_clients_certificate_along() {
    let authority = authority(1);
    let server = server(&authority);
    let config = client_config(&client(&authority, CredentialKind::Host)).unwrap();
    handshake(config.clone(), server.config.clone()).unwrap();
    let (certificates, client) = handshake(config, server.config.clone()).unwrap();
    assert_eq!(
        client.handshake_kind(),
        Some(rustls::HandshakeKind::Resumed)
    );
    assert_eq!(
        server.verifier.verify(&certificates, now()).unwrap().kind,
        CredentialKind::Host
    );
}

#[test]
fn credentials_are_stored_for_their_owner_alone() {
    let authority = authority(1);
    let credential = client(&authority, CredentialKind::Admin);
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("nested/azekura");
    credential.save(&directory).unwrap();
    credential.save(&directory).unwrap();
    let mode = |p: &std::path::Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let files: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1, "no temporary file stays: {files:?}");
    assert_eq!(mode(&files[0]), 0o600);
    let loaded = Credential::load(&directory).unwrap();
    assert_eq!(loaded.to_pem(), credential.to_pem());

    std::fs::set_permissions(&files[0], PermissionsExt::from_mode(0o640)).unwrap();
    let error = Credential::load(&directory).unwrap_err();
    assert!(
        matches!(error, IdentityError::Exposed { mode: 0o640, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("chmod 600"));
}

#[test]
fn an_authority_survives_being_stored() {
    let first = authority(0xab);
    let again = Authority::load(&first.certificate_pem(), &first.key_pem()).unwrap();
    assert_eq!(again.cluster(), first.cluster());
    assert_eq!(again.fingerprint(), first.fingerprint());
    let credential = client(&again, CredentialKind::Host);
    handshake(client_config(&credential).unwrap(), server(&first).config).unwrap();
    assert!(Authority::load(&first.key_pem(), &first.certificate_pem()).is_err());
}

#[test]
fn debug_forms_show_no_secret() {
    let authority = authority(1);
    let credential = client(&authority, CredentialKind::Admin);
    let join = JoinString {
        fingerprint: authority.fingerprint(),
        secret: [0x5a; 32],
    };
    let enrolment = Enrolment::new().unwrap();
    let shown = format!("{authority:?} {credential:?} {join:?} {enrolment:?}");
    assert!(
        !shown.contains("PRIVATE") && !shown.contains("5a") && !shown.contains("90, 90, 90, 90")
    );
    assert!(shown.len() < 700, "{shown}");
}

#[test]
fn a_label_cannot_reach_a_terminal_with_control_characters() {
    let authority = authority(1);
    let now_system = SystemTime::now();
    let label = format!("a\x1b[2Jb{}", "x".repeat(200));
    let credential = authority
        .issue_local(CredentialKind::Host, &label, now_system)
        .unwrap();
    let chain = [credential.certificate().clone()];
    let peer = server(&authority).verifier.verify(&chain, now()).unwrap();
    assert!(
        peer.label.starts_with("a[2Jb") && peer.label.len() == 64,
        "{:?}",
        peer.label
    );
}

proptest! {
    #[test]
    fn join_strings_survive_paper_and_notice_slips(
        fingerprint in any::<[u8; 32]>(),
        secret in any::<[u8; 32]>(),
        place in 5usize..114,
    ) {
        let join = JoinString { fingerprint: Fingerprint(fingerprint), secret };
        let text = join.to_string();
        prop_assert_eq!(text.len(), 114);
        let shouted = text.to_uppercase().replace("AZK1-", "azk1-").replace('1', "L");
        let shouted = shouted.replacen("azkL-", "AZK1-", 1);
        prop_assert_eq!(&shouted.parse::<JoinString>().unwrap(), &join);
        let mut wrong = text.into_bytes();
        wrong[place] = if wrong[place] == b'7' { b'8' } else { b'7' };
        let wrong = String::from_utf8(wrong).unwrap();
        prop_assert!(wrong.parse::<JoinString>().is_err());
        prop_assert!(wrong[..wrong.len() - 1].parse::<JoinString>().is_err());
        let longer = format!("{join}0");
        prop_assert!(longer.parse::<JoinString>().is_err());
    }

    #[test]
    fn no_text_makes_the_join_string_reader_panic(text in ".{0,200}") {
        let _ = text.parse::<JoinString>();
        let _ = format!("azk1-{text}").parse::<JoinString>();
    }
}
