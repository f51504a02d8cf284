//! One bearer who takes all that he can get, over many sessions: what it costs the others.

use crate::client::{Client, Mode, frame};
use crate::files::{at, create, made};
use crate::hostile::{is_alone, resident};
use crate::world::{World, is_root, new_session};
use base::limits::CREDENTIAL_REPLY_BYTES_MAX;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use wire::frame::{Class, FrameKind};
use wire::identity::Credential;
use wire::link::{Connection, FrameReader, FrameWriter};
use wire::message::{ConnectionRole, CredentialKind, FileRef, Request, Step, WriteAt, encode};

/// Sessions that list without end. None of them is to be answered twice while a write waits.
const GREEDY: u64 = 12;

/// A session of somebody, who has entered the volume.
async fn enter(world: &World, credential: &Credential) -> (Client, base::Handle) {
    let (id, role) = (new_session(), ConnectionRole::Main);
    let mut client = world.client_as(credential, id, role, Mode::Plain).await;
    let root = client.attach().await.handle;
    (client, root)
}

/// Sends a request again and again, as fast as the server takes it.
fn flood(mut writer: FrameWriter, request: &Request, class: Class) -> JoinHandle<FrameWriter> {
    let body = encode(request);
    tokio::spawn(async move {
        for id in 0.. {
            let mut out = frame(FrameKind::Request, 1_000_000 + id, &());
            out.body = body.clone();
            out.class = class;
            if writer.write(out).await.is_err() || writer.flush().await.is_err() {
                break;
            }
        }
        writer
    })
}

/// Reads, counts and forgets.
fn drain(mut reader: FrameReader, answers: Arc<AtomicU64>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while reader.read().await.is_ok() {
            answers.fetch_add(1, Ordering::Relaxed);
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_read_no_replies_hold_together_what_their_credential_may() {
    if !is_root()
        || !is_alone(
            "greedy::sessions_that_read_no_replies_hold_together_what_their_credential_may",
        )
    {
        return;
    }
    let world = World::new().await;
    std::fs::write(world.tree.join("big"), vec![7; 1 << 20]).unwrap();
    let greedy = world.enrol(CredentialKind::Host).await;
    let mut witness = world.client().await;
    let root = witness.attach().await.handle;
    let big = witness.lookup(&root, "big").await.unwrap().handle;
    let before = resident();
    let mut ready = Vec::new();
    for _ in 0..24 {
        let (mut client, root) = enter(&world, &greedy).await;
        let own = client.lookup(&root, "big").await.unwrap().handle;
        let read = Step::Read {
            file: FileRef {
                target: at(&own),
                open: None,
            },
            offset: 0,
            bytes: 1 << 20,
        };
        ready.push((client.compound(vec![read]), client.connection));
    }
    // Their own credential is at its bound soon, and they wait for each other.
    let (mut readers, mut sending) = (Vec::new(), Vec::new());
    for (request, Connection { reader, writer, .. }) in ready {
        readers.push(reader);
        sending.push(flood(writer, &request, Class::Prediction));
    }
    let (mut grown, mut slowest) = (0, Duration::ZERO);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        grown = grown.max(resident().saturating_sub(before));
        let begun = Instant::now();
        let looked = witness.step(Step::Attributes { target: at(&big) }).await;
        assert!(looked.is_ok());
        slowest = slowest.max(begun.elapsed());
    }
    for task in sending {
        task.abort();
    }
    // What workers had begun beyond it, and the stock of buffers; 768 MiB without the bound.
    let bound = (CREDENTIAL_REPLY_BYTES_MAX + (128 << 20)) as u64;
    assert!(grown < bound, "{} MiB more", grown >> 20);
    assert!(grown > bound / 4, "{} MiB more: no test", grown >> 20);
    let time_max = Duration::from_secs(2);
    assert!(slowest < time_max, "the others waited {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_more_than_can_be_done_does_not_keep_others_from_writing() {
    if !is_root()
        || !is_alone("greedy::who_asks_for_more_than_can_be_done_does_not_keep_others_from_writing")
    {
        return;
    }
    let world = World::new().await;
    // Where nobody else has looked: whoever has a lease is asked first.
    std::fs::create_dir(world.tree.join("quiet")).unwrap();
    let wide = world.tree.join("wide");
    std::fs::create_dir(&wide).unwrap();
    for file in 0..2000 {
        std::fs::write(wide.join(format!("file-{file}")), "").unwrap();
    }
    let greedy = world.enrol(CredentialKind::Host).await;
    let mut ready = Vec::new();
    for _ in 0..GREEDY {
        let (mut client, root) = enter(&world, &greedy).await;
        let wide = client.lookup(&root, "wide").await.unwrap().handle;
        let list = Step::ReadDirectory {
            target: at(&wide),
            cookie: 0,
            entries_max: 1000,
        };
        ready.push((client.compound(vec![list; 16]), client.connection));
    }
    let answers = Arc::new(AtomicU64::new(0));
    let floods = ready.into_iter().map(|(request, connection)| {
        let Connection { reader, writer, .. } = connection;
        let reading = drain(reader, Arc::clone(&answers));
        (reading, flood(writer, &request, Class::Metadata))
    });
    let flooding: Vec<_> = floods.collect();
    let mut honest = world.client().await;
    let root = honest.attach().await.handle;
    let quiet = honest.lookup(&root, "quiet").await.unwrap().handle;
    let file = made(&honest.step(create(&quiet, "file", None)).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Counted and not timed: on a busy machine a single listing takes long.
    let mut passed_over = 0;
    for round in 0..20 {
        let write = Step::Write {
            file: FileRef {
                target: at(&file),
                open: None,
            },
            at: WriteAt::Offset(round * 4096),
            bytes: 4096,
        };
        let data = Bytes::from(vec![1; 4096]);
        let before = answers.load(Ordering::Relaxed);
        let (results, _) = honest.write_steps(vec![write], data).await;
        assert!(results[0].is_ok(), "{results:?}");
        passed_over = passed_over.max(answers.load(Ordering::Relaxed) - before);
    }
    let goes_on = flooding.iter().all(|(_, sending)| !sending.is_finished());
    assert!(goes_on, "nobody asks for much any more");
    for (reading, sending) in flooding {
        reading.abort();
        sending.abort();
    }
    assert!(
        passed_over <= GREEDY,
        "a write waited for {passed_over} listings"
    );
}
