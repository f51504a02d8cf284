//! Commits that are sent right behind the writes that they cover.

use crate::client::{Client, Mode, frame};
use crate::files::{at, create, file, made, write};
use crate::world::{World, is_root, new_session};
use base::limits::AFTER_WAITS_MAX;
use base::{FsError, Handle, RequestId};
use bytes::Bytes;
use std::time::Duration;
use wire::frame::{Frame, FrameKind};
use wire::message::{
    CompoundReply, ConnectionRole, Features, Refusal, Reply, Request, Step, StepReply,
};

/// A session with two connections, and a file.
struct Pair {
    world: World,
    main: Client,
    bulk: Client,
    file: Handle,
}

impl Pair {
    async fn new() -> Self {
        let world = World::new().await;
        let session = new_session();
        let (main, bulk) = (ConnectionRole::Main, ConnectionRole::Bulk);
        let client = async |role| {
            world
                .client_as(&world.admin, session, role, Mode::Tls)
                .await
        };
        let mut main = client(main).await;
        let bulk = client(bulk).await;
        assert!(main.welcome.features.have(Features::AFTER));
        let root = main.attach().await.handle;
        let file = made(&main.step(create(&root, "a", None)).await);
        Self {
            world,
            main,
            bulk,
            file,
        }
    }

    /// The steps of a commit behind these requests.
    fn commit(&self, writes: &[u64]) -> Vec<Step> {
        let requests = writes.iter().map(|id| RequestId(*id)).collect();
        let commit = Step::Commit {
            file: file(&self.file, None),
            data_only: true,
        };
        vec![Step::After { requests }, commit]
    }

    /// A write of three bytes with this number.
    fn write(&self, id: u64, offset: u64) -> Frame {
        let steps = vec![write(&self.file, None, offset, 3)];
        let mut request = frame(FrameKind::Request, id, &self.bulk.compound(steps));
        request.payload = Bytes::from_static(b"abc").into();
        request
    }
}

fn results(reply: Reply) -> Vec<Result<StepReply, FsError>> {
    match reply {
        Reply::Files(CompoundReply { results, .. }) => results,
        other => panic!("{other:?}"),
    }
}

/// No reply comes for a while.
async fn waits(client: &mut Client, id: u64) {
    let reply = tokio::time::timeout(Duration::from_millis(100), client.reply(id)).await;
    assert!(reply.is_err(), "answered too early: {reply:?}");
}

fn is_committed(reply: Reply) {
    let results = results(reply);
    assert!(
        matches!(
            results[..],
            [Ok(StepReply::Done), Ok(StepReply::Attributes { .. })]
        ),
        "{results:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_waits_for_its_writes_on_whichever_connection_they_come() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new().await;
    let writes: Vec<u64> = (0..3).map(|_| pair.bulk.new_id()).collect();
    let commit = pair.main.send_steps(pair.commit(&writes)).await;
    for (at, id) in writes.iter().enumerate().rev() {
        waits(&mut pair.main, commit).await;
        // Nothing else of the connection waits with it.
        assert_eq!(pair.main.call(&Request::Ping).await, Reply::Done);
        let request = pair.write(*id, at as u64 * 3);
        pair.bulk.send_frame(request).await;
        let (reply, _) = pair.bulk.reply(*id).await.unwrap();
        assert!(results(reply)[0].is_ok());
    }
    is_committed(pair.main.reply(commit).await.unwrap().0);
    assert_eq!(
        std::fs::read(pair.world.tree.join("a")).unwrap(),
        b"abcabcabc"
    );
    // What has run need not be waited for.
    let again = pair.main.send_steps(pair.commit(&writes)).await;
    is_committed(pair.main.reply(again).await.unwrap().0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_outlives_its_connection_and_a_write_that_failed_holds_it_up_no_longer() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new().await;
    let (good, bad) = (pair.bulk.new_id(), pair.bulk.new_id());
    let id = pair.main.new_id();
    let request = pair.main.compound(pair.commit(&[good, bad]));
    let commit = |resent| {
        let frame = frame(FrameKind::Request, id, &request);
        Frame { resent, ..frame }
    };
    pair.bulk.send_frame(commit(false)).await;
    waits(&mut pair.bulk, id).await;
    // It is lost with the connection, and with it the first write.
    let session = new_session();
    drop(std::mem::replace(
        &mut pair.bulk,
        pair.world
            .client_as(&pair.world.admin, session, ConnectionRole::Main, Mode::Tls)
            .await,
    ));
    pair.main.send_frame(commit(true)).await;
    let first = pair.write(good, 0);
    pair.main.send_frame(first).await;
    waits(&mut pair.main, id).await;
    let mut second = pair.write(bad, 0);
    let Request::Files(mut compound) = wire::message::decode(&second.body).unwrap() else {
        panic!()
    };
    // There is no such open, nor a right to open.
    compound.who = base::Principal::new(1, 1, Vec::new());
    second.body = wire::message::encode(&Request::Files(compound));
    pair.main.send_frame(second).await;
    let (reply, _) = pair.main.reply(bad).await.unwrap();
    assert_eq!(results(reply), [Err(FsError::AccessDenied)]);
    is_committed(pair.main.reply(id).await.unwrap().0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_others_can_be_taken_back_whenever_that_is() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new().await;
    let never = pair.bulk.new_id();
    for round in 0..200_u32 {
        let waits = pair.main.send_steps(pair.commit(&[never])).await;
        // Before, while and after a worker has it in hand.
        for _ in 0..(round % 100) * 50 {
            std::hint::spin_loop();
        }
        let cancel = Frame {
            body: Bytes::new(),
            ..frame(FrameKind::Cancel, waits, &())
        };
        pair.main.send_frame(cancel).await;
        let (reply, _) = pair.main.reply(waits).await.unwrap();
        assert_eq!(reply, Reply::Refused(Refusal::Cancelled), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn few_wait_for_others_and_nobody_for_himself() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new().await;
    let write = pair.bulk.new_id();
    let mut waiting = Vec::new();
    for _ in 0..AFTER_WAITS_MAX {
        waiting.push(pair.main.send_steps(pair.commit(&[write])).await);
    }
    waits(&mut pair.main, waiting[0]).await;
    let steps = pair.commit(&[write]);
    assert_eq!(pair.main.steps(steps).await.0, [Err(FsError::WouldBlock)]);
    // Not even that is refused because others wait: it waits for nobody.
    let commit = pair.commit(&[]).remove(1);
    assert!(pair.main.step(commit).await.is_ok());
    let id = pair.main.new_id();
    for later in [id, id + 1000] {
        let steps = pair.commit(&[later]);
        let request = frame(FrameKind::Request, id, &pair.main.compound(steps));
        pair.main.send_frame(request).await;
        let (reply, _) = pair.main.reply(id).await.unwrap();
        // The second copy is answered as the first was.
        assert_eq!(results(reply), [Err(FsError::Invalid)]);
    }
    let request = pair.write(write, 0);
    pair.bulk.send_frame(request).await;
    for id in waiting {
        is_committed(pair.main.reply(id).await.unwrap().0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_answered_before_a_restart_has_run_as_soon_as_it_is_settled() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new().await;
    let id = pair.main.new_id();
    let request = pair.write(id, 0);
    pair.main.send_frame(request).await;
    pair.main.reply(id).await.unwrap();
    let commit = pair.main.new_id();
    let request = pair.main.compound(pair.commit(&[id]));
    pair.world.restart().await;
    let session = new_session();
    let mut client = pair
        .world
        .client_as(&pair.world.admin, session, ConnectionRole::Main, Mode::Tls)
        .await;
    let again = Frame {
        resent: true,
        ..frame(FrameKind::Request, commit, &request)
    };
    client.send_frame(again).await;
    // This run knows nothing of the write.
    waits(&mut client, commit).await;
    client.settled = id + 1;
    let look = Step::Attributes {
        target: at(&pair.file),
    };
    assert!(client.step(look).await.is_ok());
    is_committed(client.reply(commit).await.unwrap().0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_takes_those_along_who_wait() {
    if !is_root() {
        return;
    }
    let mut pair = Pair::new().await;
    let never = pair.bulk.new_id();
    let waiting = pair.main.send_steps(pair.commit(&[never])).await;
    waits(&mut pair.main, waiting).await;
    assert_eq!(pair.main.call(&Request::EndSession).await, Reply::Done);
    // Whoever waited would keep the server's directory from the next one.
    pair.world.restart().await;
    let mut pair = Pair::new().await;
    let never = pair.bulk.new_id();
    let waiting = pair.main.send_steps(pair.commit(&[never])).await;
    waits(&mut pair.main, waiting).await;
    pair.world.restart().await;
}
