//! How connections begin, end and begin again.

use crate::alone;
use crate::peer::{END_TIME_MAX, Lies, Peer, REQUEST_TIME_MAX, look};
use base::{BootId, ClusterId, FsError, Principal, WriteVerifier};
use client::transport::ConnectError;
use std::time::Instant;
use tokio::time::timeout;
use wire::message::{Farewell, Features, Welcome};
use wire::version::WireVersion;

/// How a connection ends that is greeted so.
async fn greeted(welcome: fn(usize, &mut Welcome), tls: bool) -> Result<(), ConnectError> {
    let lies = Lies {
        welcome,
        tls,
        ..Lies::default()
    };
    let peer = Peer::start(lies).await;
    let outcome = timeout(END_TIME_MAX, peer.connect()).await.expect("an end");
    outcome.map(|transport| transport.abandon())
}

#[test]
fn an_impossible_greeting_is_refused() {
    alone(async {
        for tls in [true, false] {
            for version in [0, 2, u16::MAX] {
                let welcome: fn(usize, &mut Welcome) = match version {
                    0 => |_, welcome| welcome.version = WireVersion(0),
                    2 => |_, welcome| welcome.version = WireVersion(2),
                    _ => |_, welcome| welcome.version = WireVersion(u16::MAX),
                };
                let outcome = greeted(welcome, tls).await;
                assert!(
                    matches!(outcome, Err(ConnectError::Protocol { .. })),
                    "{version}: {outcome:?}"
                );
            }
            let outcome = greeted(|_, welcome| welcome.cluster = ClusterId([8; 16]), tls).await;
            assert!(
                matches!(
                    outcome,
                    Err(ConnectError::Refused {
                        reason: Farewell::Cluster,
                        ..
                    })
                ),
                "{outcome:?}"
            );
            // What nobody uses harms nobody.
            let outcome = greeted(
                |_, welcome| {
                    welcome.features = Features(u64::MAX);
                    welcome.boot = BootId([0xff; 16]);
                    welcome.write_verifier = WriteVerifier([0xff; 16]);
                },
                tls,
            );
            assert!(outcome.await.is_ok());
        }
    });
}

#[test]
fn nothing_is_signed_for_a_server_that_has_proven_itself() {
    // It may want to show the signature to another server, as this client.
    alone(async {
        let outcome = greeted(|_, welcome| welcome.challenge = Some([6; 32]), true).await;
        assert!(
            matches!(outcome, Err(ConnectError::Protocol { .. })),
            "{outcome:?}"
        );
    });
}

#[test]
fn a_server_that_hangs_up_is_called_again_ever_more_rarely() {
    alone(async {
        let lies = Lies {
            hangs_up: true,
            ..Lies::default()
        };
        let peer = Peer::start(lies).await;
        let transport = timeout(END_TIME_MAX, peer.connect())
            .await
            .unwrap()
            .unwrap();
        let begun = Instant::now();
        let entering = client::volume::Volume::attach(transport.clone(), "v");
        let outcome = timeout(END_TIME_MAX, entering).await.expect("an end");
        assert!(outcome.is_err());
        assert!(
            begun.elapsed() >= REQUEST_TIME_MAX / 2,
            "it is tried for as long as stated"
        );
        // Each of three connections waits twice as long each time: 20 ms to 1 s.
        let most = 3 * (7 + begun.elapsed().as_secs() as usize + 1);
        let made = peer.connections();
        assert!(made <= most, "{made} connections, more than {most}");
        transport.abandon();
    });
}

#[test]
fn servers_that_are_another_one_each_time_cannot_keep_a_sync_for_ever() {
    alone(async {
        // Each connection says another verifier: the one that stores is never the one that commits.
        let lies = Lies {
            welcome: |number, welcome| {
                let number = number as u8 + 1;
                welcome.boot = BootId([number; 16]);
                welcome.write_verifier = WriteVerifier([number; 16]);
                // A commit behind writes might go on their connection.
                welcome.features = Features::default();
            },
            ..Lies::default()
        };
        let peer = Peer::start(lies).await;
        let volume = peer.volume().await;
        let who = Principal::root();
        let node = look(&volume).await.unwrap().unwrap().node;
        let access = wire::message::Access::ReadWrite;
        let open = volume.open(&who, node, access, false).await.unwrap();
        let mut outcomes = Vec::new();
        for _ in 0..8 {
            // Two pieces: a single one would be stored and committed by one request.
            for offset in [0, 1 << 20] {
                let mut write = crate::replies::write(&who, &open, b"x");
                write.offset = offset;
                volume.write(node, write).await.unwrap();
            }
            let commit = volume.commit(&who, node, Some(open.open), false);
            outcomes.push(timeout(END_TIME_MAX, commit).await.expect("an end"));
        }
        // Which connection takes the write is not ours to say.
        let known = |outcome: &Result<(), FsError>| matches!(outcome, Ok(()) | Err(FsError::Io));
        assert!(outcomes.iter().all(known), "{outcomes:?}");
        assert!(outcomes.contains(&Err(FsError::Io)), "{outcomes:?}");
    });
}
