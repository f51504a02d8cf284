//! Bad input: a clear answer or a closed connection, bounded memory, nobody else disturbed.

use crate::client::{Client, Ended, Mode, expect, frame, hello, open_line};
use crate::files::{at, create, made};
use crate::world::{World, is_root, new_session};
use base::FsError;
use base::limits::{
    COMPOUND_STEPS_MAX, CONNECTION_REPLY_BYTES_MAX, CONNECTIONS_MAX, CONNECTIONS_PENDING_MAX,
    REPLIES_KEPT_BYTES_MAX, XATTR_BYTES_MAX,
};
use bytes::Bytes;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::frame::{Class, FrameKind, HEADER_BYTES};
use wire::message::{
    Compound, ConnectionRole, Farewell, FileRef, Lease, Refusal, Reply, Request, Settled, Step,
    StepReply, Target, Welcome, encode,
};

/// Writes bytes and reads until the server closes, within a time.
async fn closes_after(world: &World, bytes: &[u8], time_max: Duration) -> Vec<u8> {
    let mut stream = TcpStream::connect(world.server().address()).await.unwrap();
    // The server may close before all is written.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(time_max, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the connection stays open");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_frames_end_the_connection_before_authentication() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let good = frame(
        FrameKind::Hello,
        0,
        &hello(new_session(), ConnectionRole::Main),
    );
    let mut good_bytes = good.encode_header(true).to_vec();
    good_bytes.extend_from_slice(&good.body);
    let mut huge = good_bytes.clone();
    huge[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut damaged = good_bytes.clone();
    damaged[HEADER_BYTES + 1] ^= 1;
    let mut trailing = frame(
        FrameKind::Hello,
        0,
        &hello(new_session(), ConnectionRole::Main),
    );
    trailing.body = Bytes::from([&trailing.body[..], b"x"].concat());
    let mut trailing_bytes = trailing.encode_header(true).to_vec();
    trailing_bytes.extend_from_slice(&trailing.body);
    let request = frame(FrameKind::Request, 1, &Request::Ping);
    let mut request_bytes = request.encode_header(true).to_vec();
    request_bytes.extend_from_slice(&request.body);
    let inputs: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n.....................",
        &[0xff; 64],
        &huge,
        &damaged,
        &trailing_bytes,
        &request_bytes,
        b"\x16\x03\x01\x00\x05hello",
    ];
    for input in inputs {
        closes_after(&world, input, Duration::from_secs(5)).await;
    }
    let mut client = world.client().await;
    client.attach().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_half_a_greeting_is_sent_away_in_time_and_disturbs_nobody() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let begun = Instant::now();
    let mut slow = Vec::new();
    for n in 0..CONNECTIONS_PENDING_MAX + 40 {
        let mut stream = TcpStream::connect(world.server().address()).await.unwrap();
        let first: &[u8] = if n % 2 == 0 { b"AZK1\x01" } else { b"\x16\x03" };
        let _ = stream.write_all(first).await;
        slow.push(stream);
    }
    // All places for the unauthenticated are taken; they come free when their time is over.
    let address = world.server().address();
    let time_max = base::limits::HANDSHAKE_TIME_MAX + Duration::from_secs(4);
    let mut client = loop {
        let role = ConnectionRole::Main;
        match Client::connect(address, &world.admin, new_session(), role, Mode::Tls).await {
            Ok(client) => break client,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        assert!(
            begun.elapsed() < time_max,
            "the slow ones keep everybody out"
        );
    };
    client.attach().await;
    for mut stream in slow {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(time_max, stream.read_to_end(&mut rest)).await;
        assert!(read.is_ok(), "a slow connection stays open");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_out_of_order_or_malformed_ends_an_authenticated_connection() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut witness = world.client().await;
    let root = witness.attach().await.handle;
    let a = made(&witness.step(create(&root, "a", None)).await);
    let step = |bytes| Step::Write {
        file: FileRef {
            target: at(&a),
            open: None,
        },
        at: wire::message::WriteAt::Offset(0),
        bytes,
    };
    let compound = |steps: Vec<Step>| {
        Request::Files(Compound {
            who: base::Principal::root(),
            settled: Settled::default(),
            steps,
        })
    };
    let mut garbage = frame(FrameKind::Request, 5, &Request::Ping);
    garbage.body = Bytes::from_static(&[0xff; 20]);
    let mut trailing = frame(FrameKind::Request, 5, &Request::Ping);
    trailing.body = Bytes::from_static(&[0, 0]);
    let mut short_payload = frame(FrameKind::Request, 5, &compound(vec![step(10)]));
    short_payload.payload = Bytes::from_static(b"123").into();
    let mut payload_on_ping = frame(FrameKind::Request, 5, &Request::Ping);
    payload_on_ping.payload = Bytes::from_static(b"123").into();
    let many = vec![Step::Attributes { target: at(&root) }; base::limits::COMPOUND_STEPS_MAX + 1];
    let overflowing = vec![step(u32::MAX); 3];
    let inputs = [
        garbage,
        trailing,
        short_payload,
        payload_on_ping,
        frame(FrameKind::Request, 5, &compound(many)),
        frame(FrameKind::Request, 5, &compound(overflowing)),
        frame(
            FrameKind::Hello,
            0,
            &hello(new_session(), ConnectionRole::Main),
        ),
        frame(FrameKind::Reply, 5, &Reply::Done),
        frame(FrameKind::Welcome, 5, &Reply::Done),
    ];
    for input in inputs {
        let mut client = world.client().await;
        let kind = input.kind;
        client.send_frame(input).await;
        let outcome = client.ended().await;
        let protocol = matches!(outcome, Ended::Farewell(Farewell::Protocol));
        assert!(protocol, "{kind:?}: {outcome:?}");
    }
    assert_eq!(std::fs::read(world.tree.join("a")).unwrap(), b"");
    assert_eq!(witness.call(&Request::Ping).await, Reply::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_unread_replies_cost_their_connection_and_bounded_memory() {
    if !is_root()
        || !is_alone(
            "hostile::ten_thousand_unread_replies_cost_their_connection_and_bounded_memory",
        )
    {
        return;
    }
    let world = World::new().await;
    std::fs::write(world.tree.join("big"), vec![7; 1 << 20]).unwrap();
    let mut witness = world.client().await;
    let root = witness.attach().await.handle;
    let big = witness.lookup(&root, "big").await.unwrap().handle;
    let role = ConnectionRole::Main;
    let greedy = world
        .client_as(&world.admin, new_session(), role, Mode::Plain)
        .await;
    let before = resident();
    let read = Step::Read {
        file: FileRef {
            target: Target::Handle(big.clone()),
            open: None,
        },
        offset: 0,
        bytes: 1 << 20,
    };
    let request = greedy.compound(vec![read]);
    let body = encode(&request);
    let mut connection = greedy.connection;
    let sending = tokio::spawn(async move {
        for id in 0..10_000 {
            let mut out = frame(FrameKind::Request, 100 + id, &());
            out.body = body.clone();
            out.class = Class::Demand;
            if connection.writer.write(out).await.is_err() {
                break;
            }
            if connection.writer.flush().await.is_err() {
                break;
            }
        }
        // Not one reply is read.
        tokio::time::sleep(Duration::from_secs(60)).await;
        connection
    });
    let mut grown = 0;
    let mut slowest = Duration::ZERO;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        grown = grown.max(resident().saturating_sub(before));
        let begun = Instant::now();
        assert!(
            witness
                .step(Step::Attributes { target: at(&big) })
                .await
                .is_ok()
        );
        slowest = slowest.max(begun.elapsed());
    }
    sending.abort();
    // Replies up to the bound, what the workers had begun beyond it, the stock of buffers.
    let bound = (CONNECTION_REPLY_BYTES_MAX + (96 << 20)) as u64;
    assert!(grown < bound, "{} MiB more", grown >> 20);
    assert!(
        slowest < Duration::from_secs(2),
        "the others waited {slowest:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_with_data_that_are_never_settled_are_refused_beyond_a_bound() {
    if !is_root()
        || !is_alone("hostile::replies_with_data_that_are_never_settled_are_refused_beyond_a_bound")
    {
        return;
    }
    let world = World::new().await;
    std::fs::write(world.tree.join("big"), vec![7; 1 << 20]).unwrap();
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let big = client.lookup(&root, "big").await.unwrap().handle;
    // A close must not run twice, so the whole reply is kept.
    let steps = || {
        let read = Step::Read {
            file: FileRef {
                target: at(&big),
                open: None,
            },
            offset: 0,
            bytes: 1 << 20,
        };
        let close = Step::Close {
            open: base::OpenId(77),
        };
        vec![close, read]
    };
    let before = resident();
    let mut refused = 0;
    for _ in 0..300 {
        let id = client.send_steps(steps()).await;
        refused += match client.reply(id).await.unwrap() {
            (Reply::Files(_), payload) => usize::from(payload.len() != 1 << 20) * 1000,
            (Reply::Refused(Refusal::Overloaded), _) => 1,
            (other, _) => panic!("{other:?}"),
        };
    }
    assert_eq!(refused, 300 - (REPLIES_KEPT_BYTES_MAX >> 20) + 1);
    // Twice the bound, as the client of this test is in the same process, and the stock of buffers.
    let bound = 2 * REPLIES_KEPT_BYTES_MAX as u64 + (64 << 20);
    let grown = resident().saturating_sub(before);
    assert!(grown < bound, "{} MiB more", grown >> 20);
    client.settled = client.new_id();
    assert_eq!(client.steps(steps()).await.1.len(), 1 << 20);
}

/// Whether this is the process that a test has for itself, because it measures what a process holds
/// or how long others wait. Where it is not, the test runs there and has passed when this returns.
pub(crate) fn is_alone(test: &str) -> bool {
    const ALONE: &str = "AZEKURA_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let complained = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}{complained}");
    assert!(said.contains("1 passed"), "{test} is no test: {said}");
    false
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_a_bounded_number_of_connections_and_one_main() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let session = new_session();
    let mut first = world
        .client_as(&world.admin, session, ConnectionRole::Main, Mode::Tls)
        .await;
    let mut kept = Vec::new();
    for _ in 1..CONNECTIONS_MAX {
        kept.push(
            world
                .client_as(&world.admin, session, ConnectionRole::Bulk, Mode::Tls)
                .await,
        );
    }
    let address = world.server().address();
    let outcome = Client::connect(
        address,
        &world.admin,
        session,
        ConnectionRole::Bulk,
        Mode::Tls,
    )
    .await;
    assert!(matches!(
        outcome.err(),
        Some(Ended::Farewell(Farewell::Overloaded))
    ));
    let mut second = world
        .client_as(&world.admin, session, ConnectionRole::Main, Mode::Tls)
        .await;
    let outcome = first.ended().await;
    assert!(
        matches!(outcome, Ended::Farewell(Farewell::Replaced)),
        "{outcome:?}"
    );
    assert_eq!(second.call(&Request::Ping).await, Reply::Done);
    assert_eq!(kept[0].call(&Request::Ping).await, Reply::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn strange_wishes_get_clear_answers() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    // An empty request, and reads of nothing and of everything.
    assert!(client.steps(vec![]).await.0.is_empty());
    let a = made(&client.step(create(&root, "a", None)).await);
    let read = |offset, bytes| Step::Read {
        file: FileRef {
            target: at(&a),
            open: None,
        },
        offset,
        bytes,
    };
    for step in [read(0, 0), read(u64::MAX, u32::MAX), read(0, u32::MAX)] {
        match client.step(step).await {
            Ok(StepReply::Data { bytes: 0, .. }) | Err(FsError::Invalid | FsError::Overflow) => {}
            other => panic!("{other:?}"),
        }
    }
    let none = client
        .step(Step::Attach {
            volume: "none".to_owned(),
        })
        .await;
    assert_eq!(none, Err(FsError::NotFound));
    let close = client
        .step(Step::Close {
            open: base::OpenId(77),
        })
        .await;
    assert_eq!(close, Ok(StepReply::Done), "as often as one likes");
    assert_eq!(
        client.call(&Request::RecallDone(u64::MAX)).await,
        Reply::Done
    );
    assert_eq!(
        client
            .call(&Request::ReturnLeases(vec![root.clone(); 100]))
            .await,
        Reply::Done
    );
    // 64 listings of a directory do not fit into one reply.
    for n in 0..200 {
        std::fs::write(world.tree.join(format!("{}{n}", "y".repeat(200))), "").unwrap();
    }
    let list = Step::ReadDirectory {
        target: at(&root),
        cookie: 0,
        entries_max: 4096,
    };
    let (results, _) = client.steps(vec![list; 64]).await;
    assert_eq!(results.last(), Some(&Err(FsError::Overflow)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_replies_fill_a_frame_harms_neither_its_sender_nor_others() {
    if !is_root() {
        return;
    }
    // Where extended attributes of the largest size are.
    let world = crate::parallel::world().await;
    let mut maker = world.client().await;
    let root = maker.attach().await.handle;
    let xattr = |file: &base::Handle, bytes| Step::SetXattr {
        target: at(file),
        name: b"user.large".to_vec(),
        value: vec![7; bytes],
        create: None,
    };
    let (largest, last) = (XATTR_BYTES_MAX, XATTR_BYTES_MAX - 1024);
    let mut files = Vec::new();
    for (name, bytes) in [("a", largest), ("b", last)] {
        let file = made(&maker.step(create(&root, name, None)).await);
        maker.step(xattr(&file, bytes)).await.unwrap();
        files.push(file);
    }
    maker.call(&Request::EndSession).await;
    let [mut silent, mut greedy] = [world.client().await, world.client().await];
    for client in [&mut silent, &mut greedy] {
        client.attach().await;
    }
    let found = silent.lookup(&root, "a").await.unwrap();
    assert_eq!(found.lease, Lease::Read);
    // By the values alone 1 KiB is left of the body of the reply, and the attributes take 3 KiB.
    let get = |file: &base::Handle| Step::GetXattr {
        target: at(file),
        name: b"user.large".to_vec(),
    };
    let mut steps = vec![xattr(&files[0], largest)];
    steps.extend(std::iter::repeat_n(get(&files[0]), 15));
    steps.push(get(&files[1]));
    let target = at(&files[0]);
    steps.extend(std::iter::repeat_n(Step::Attributes { target }, 47));
    assert_eq!(steps.len(), COMPOUND_STEPS_MAX);
    // It is answered when the silent one's lease is over.
    let (results, _) = greedy.steps(steps).await;
    let is_whole = |result: &&Result<StepReply, FsError>| {
        let Ok(StepReply::Xattr(value)) = result else {
            return false;
        };
        value.len() == largest
    };
    let values = results.iter().filter(is_whole);
    assert_eq!((values.count(), results.len()), (15, 17));
    assert_eq!(results.last(), Some(&Err(FsError::Overflow)));
    // What times out still does.
    let mut third = world.client().await;
    third.attach().await;
    let mut silent = world.client().await;
    silent.attach().await;
    let found = silent.lookup(&root, "b").await.unwrap();
    assert_eq!(found.lease, Lease::Read);
    third.step(xattr(&files[1], 1)).await.unwrap();
    assert_eq!(greedy.call(&Request::Ping).await, Reply::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_and_clusters_that_are_not_ours_are_told_so() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let address = world.server().address();
    for (wrong, expected) in [(true, "version"), (false, "cluster")] {
        let mut connection = open_line(address, None, Mode::Plain).await.unwrap();
        let mut greeting = hello(new_session(), ConnectionRole::Main);
        if wrong {
            greeting.version_min = wire::version::WireVersion(900);
            greeting.version_max = wire::version::WireVersion(901);
        } else {
            greeting.cluster = Some(base::ClusterId([9; 16]));
        }
        connection
            .writer
            .write(frame(FrameKind::Hello, 0, &greeting))
            .await
            .unwrap();
        connection.writer.flush().await.unwrap();
        let outcome = expect::<Welcome>(&mut connection, FrameKind::Welcome).await;
        let fits = match outcome {
            Err(Ended::Farewell(Farewell::Version { .. })) => expected == "version",
            Err(Ended::Farewell(Farewell::Cluster)) => expected == "cluster",
            _ => false,
        };
        assert!(fits, "{expected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_says_farewell() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let mut client = world.client().await;
    client.attach().await;
    world.server.take().unwrap().shutdown().await;
    let outcome = client.ended().await;
    assert!(
        matches!(outcome, Ended::Farewell(Farewell::Stopping)),
        "{outcome:?}"
    );
    world.start().await;
    world.client().await.attach().await;
}
