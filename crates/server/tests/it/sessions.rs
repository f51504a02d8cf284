//! Sessions over lost connections and restarts; nothing runs twice.

use crate::client::{Client, Ended, Mode, frame, name};
use crate::files::{at, create, file, link, made, mkdir, remove, rename, write};
use crate::world::{World, is_root, new_session};
use base::{AttributeChange, Extent, FsError, Handle, LockOwner, OpenId};
use bytes::Bytes;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use wire::frame::FrameKind;
use wire::message::{
    Access, CompoundReply, ConnectionRole, Farewell, FileRef, LockKind, LockMode, LockRange,
    Refusal, RenameMode, Reply, Request, Step, StepReply, Target, WriteAt,
};

fn lock(owner: u64, mode: LockMode) -> LockRange {
    LockRange {
        kind: LockKind::Posix,
        mode,
        extent: Extent::new(0, 10),
        owner: LockOwner(owner),
        pid: 1,
    }
}

async fn resend(client: &mut Client, id: u64, request: &Request, payload: &Bytes) -> Reply {
    let mut again = frame(FrameKind::Request, id, request);
    again.resent = true;
    again.payload = payload.clone().into();
    client.send_frame(again).await;
    client.reply(id).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn opens_and_locks_outlive_the_connection() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let session = new_session();
    let role = ConnectionRole::Main;
    let mut client = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    assert!(!client.welcome.session_known);
    let root = client.attach().await.handle;
    let a = made(&client.step(create(&root, "a", Some(1))).await);
    let take = |owner, wait| Step::Lock {
        target: at(&a),
        lock: lock(owner, LockMode::Exclusive),
        wait,
        reclaim: false,
    };
    assert_eq!(client.step(take(1, false)).await, Ok(StepReply::Done));
    std::fs::remove_file(world.tree.join("a")).unwrap();
    drop(client);

    let mut other = world.client().await;
    other.attach().await;
    let mut client = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    assert!(client.welcome.session_known);
    // The file has no name any more; only an open that stands can write to it.
    let (results, _) = client
        .steps_with(vec![write(&a, Some(1), 0, 3)], Bytes::from_static(b"abc"))
        .await;
    assert!(
        matches!(results[0], Ok(StepReply::Written { bytes: 3, .. })),
        "{results:?}"
    );
    assert_eq!(client.step(take(2, false)).await, Err(FsError::WouldBlock));
}

/// The next run would give nobody the time to take it again.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_a_lock_of_which_the_next_run_would_not_know() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let note = world.data.join("locks-held");
    std::os::unix::fs::symlink("/nowhere/at all", &note).unwrap();
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let a = made(&client.step(create(&root, "a", Some(1))).await);
    let take = |owner| Step::Lock {
        target: at(&a),
        lock: lock(owner, LockMode::Exclusive),
        wait: false,
        reclaim: false,
    };
    for owner in [1, 2] {
        assert_eq!(client.step(take(owner)).await, Err(FsError::Io));
    }
    std::fs::remove_file(&note).unwrap();
    assert_eq!(client.step(take(3)).await, Ok(StepReply::Done));
    assert!(note.exists());
    assert_eq!(client.step(take(1)).await, Err(FsError::WouldBlock));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_sent_twice_runs_once() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let session = new_session();
    let role = ConnectionRole::Main;
    let mut client = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    let root = client.attach().await.handle;
    let a = made(&client.step(create(&root, "a", Some(1))).await);
    let append = Step::Write {
        file: file(&a, Some(1)),
        at: WriteAt::End,
        bytes: 4,
    };
    let request = client.compound(vec![append]);
    let payload = Bytes::from_static(b"1234");
    let id = client.new_id();
    let mut first = frame(FrameKind::Request, id, &request);
    first.payload = payload.clone().into();
    client.send_frame(first).await;
    let (answer, _) = client.reply(id).await.unwrap();
    for _ in 0..3 {
        drop(client);
        client = world
            .client_as(&world.admin, session, role, Mode::Tls)
            .await;
        assert_eq!(resend(&mut client, id, &request, &payload).await, answer);
    }
    assert_eq!(std::fs::read(world.tree.join("a")).unwrap(), b"1234");
    // A copy that a dead socket delivers late, without the mark.
    let mut late = frame(FrameKind::Request, id, &request);
    late.payload = payload.clone().into();
    client.send_frame(late).await;
    assert_eq!(client.reply(id).await.unwrap().0, answer);
    assert_eq!(std::fs::read(world.tree.join("a")).unwrap(), b"1234");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_when_its_connection_ends_is_carried_out_when_it_is_sent_again() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let session = new_session();
    let connect = || world.client_as(&world.admin, session, ConnectionRole::Main, Mode::Tls);
    let mut client = connect().await;
    let root = client.attach().await.handle;
    let a = made(&client.step(create(&root, "a", None)).await);
    for round in 0..10u8 {
        let payload = Bytes::from(vec![b'a' + round; 3]);
        let mut sent = Vec::new();
        for place in 0..100 {
            let id = client.new_id();
            let request = client.compound(vec![write(&a, None, place * 3, 3)]);
            let mut first = frame(FrameKind::Request, id, &request);
            first.payload = payload.clone().into();
            client.connection.writer.write(first).await.unwrap();
            sent.push((id, request));
        }
        // The end comes right behind them, before the threads have got to them.
        client.connection.writer.finish().await.unwrap();
        let ended = std::mem::replace(&mut client, connect().await);
        for (id, request) in &sent {
            let reply = resend(&mut client, *id, request, &payload).await;
            let Reply::Files(CompoundReply { results, .. }) = reply else {
                panic!("{reply:?}")
            };
            assert!(matches!(
                results[..],
                [Ok(StepReply::Written { bytes: 3, .. })]
            ));
        }
        drop(ended);
        let whole = std::fs::read(world.tree.join("a")).unwrap();
        assert_eq!(whole, payload.repeat(100));
        client.settled = client.new_id();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_reply_a_restart_swallowed_is_answered_and_not_repeated() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let session = new_session();
    let role = ConnectionRole::Main;
    let mut client = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    let root = client.attach().await.handle;
    let target = made(&client.step(create(&root, "target", Some(1))).await);
    client.step(create(&root, "gone", None)).await.unwrap();
    client.settled = client.new_id();
    client.step(create(&root, "from", None)).await.unwrap();
    let mut sent = Vec::new();
    for (step, payload) in once_only(&root, &target) {
        let id = client.new_id();
        let request = client.compound(vec![step]);
        let mut first = frame(FrameKind::Request, id, &request);
        first.payload = payload.clone().into();
        client.send_frame(first).await;
        let (answer, _) = client.reply(id).await.unwrap();
        sent.push((id, request, payload, answer));
    }
    // As if none of the replies had arrived.
    drop(client);
    world.restart().await;
    let mut client = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    assert!(!client.welcome.session_known);
    for (id, request, payload, before) in &sent {
        let again = resend(&mut client, *id, request, payload).await;
        assert_eq!(told(before), told(&again), "{id}");
    }
    assert_eq!(std::fs::read(world.tree.join("target")).unwrap(), b"abc");
    assert_eq!(std::fs::read(world.tree.join("whole")).unwrap(), b"content");
    assert_eq!(std::fs::read_dir(&world.tree).unwrap().count(), 6);
    // The open that the first copy made is there again, for whoever goes on with it.
    let made = client.lookup(&root, "made").await.unwrap().handle;
    let goes_on = vec![write(&made, Some(7), 0, 1)];
    let (results, _) = client.steps_with(goes_on, Bytes::from_static(b"x")).await;
    assert!(results[0].is_ok(), "{results:?}");
}

/// One step of each kind that must not run twice, with its payload.
fn once_only(root: &Handle, target: &Handle) -> Vec<(Step, Bytes)> {
    let whole = Step::CreateFile {
        parent: at(root),
        name: name("whole"),
        mode: 0o600,
        umask: 0,
        change: base::AttributeChange::default(),
        bytes: 7,
    };
    let append = Step::Write {
        file: file(target, Some(1)),
        at: WriteAt::End,
        bytes: 3,
    };
    let none = Bytes::new;
    vec![
        (create(root, "made", Some(7)), none()),
        (whole, Bytes::from_static(b"content")),
        (mkdir(root, "d"), none()),
        (link(target, root, "link"), none()),
        (remove(root, "gone"), none()),
        (rename(root, "from", "to", RenameMode::NoReplace), none()),
        (append, Bytes::from_static(b"abc")),
    ]
}

/// What a client learns from an answer, but for times and link counts, which go on changing.
fn told(reply: &Reply) -> String {
    let Reply::Files(CompoundReply { results, .. }) = reply else {
        panic!("{reply:?}")
    };
    match &results[0] {
        Ok(StepReply::Created { entry, new, .. }) => format!("created {:?} {new}", entry.handle),
        Ok(StepReply::Removed { .. }) => "removed".to_owned(),
        Ok(StepReply::Renamed { entry, .. }) => format!("renamed {:?}", entry.handle),
        Ok(StepReply::Written { offset, bytes, .. }) => format!("{bytes} written at {offset}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_goes_on_writing_after_a_restart_whatever_the_mode_says() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&world.tree, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::set_permissions(world.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let session = new_session();
    let role = ConnectionRole::Main;
    let mut client = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    client.who = base::Principal::alone(1001, 1001);
    let root = client.attach().await.handle;
    // As git(1) makes its objects: not writable for anybody, but through this open.
    let step = Step::Create {
        parent: at(&root),
        name: name("object"),
        mode: 0o444,
        umask: 0,
        exclusive: true,
        open: Some((OpenId(1), Access::ReadWrite, false)),
    };
    let a = made(&client.step(step).await);
    drop(client);
    world.restart().await;
    let mut client = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    client.who = base::Principal::alone(1001, 1001);
    let put = |open| vec![write(&a, open, 0, 2)];
    let (results, _) = client
        .steps_with(put(Some(1)), Bytes::from_static(b"ab"))
        .await;
    assert!(results[0].is_ok(), "{results:?}");
    let (results, _) = client
        .steps_with(put(None), Bytes::from_static(b"ab"))
        .await;
    assert_eq!(
        results,
        [Err(FsError::AccessDenied)],
        "without an open the mode counts"
    );
    client.who = base::Principal::alone(1002, 1002);
    let (results, _) = client
        .steps_with(put(Some(2)), Bytes::from_static(b"ab"))
        .await;
    assert_eq!(
        results,
        [Err(FsError::AccessDenied)],
        "others have no such right"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_wait_are_cancelled_and_go_with_their_session() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut first = world.client().await;
    let mut second = world.client().await;
    let root = first.attach().await.handle;
    let a = made(&first.step(create(&root, "a", None)).await);
    let take = |owner, wait| Step::Lock {
        target: at(&a),
        lock: lock(owner, LockMode::Exclusive),
        wait,
        reclaim: false,
    };
    assert_eq!(first.step(take(1, true)).await, Ok(StepReply::Done));
    assert_eq!(second.step(take(1, false)).await, Err(FsError::WouldBlock));
    let test = Step::TestLock {
        target: at(&a),
        lock: lock(1, LockMode::Shared),
    };
    let held = second.step(test).await;
    assert_eq!(
        held,
        Ok(StepReply::Lock(Some(lock(1, LockMode::Exclusive))))
    );

    let waits = second.send_steps(vec![take(1, true)]).await;
    second.call(&Request::Ping).await;
    let cancel = wire::frame::Frame {
        body: Bytes::new(),
        ..frame(FrameKind::Cancel, waits, &())
    };
    second.send_frame(cancel).await;
    let (reply, _) = second.reply(waits).await.unwrap();
    assert_eq!(reply, Reply::Refused(Refusal::Cancelled));

    let waits = second.send_steps(vec![take(1, true)]).await;
    first.call(&Request::Ping).await;
    first.call(&Request::EndSession).await;
    let (reply, _) = second.reply(waits).await.unwrap();
    let Reply::Files(CompoundReply { results, .. }) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(results, [Ok(StepReply::Done)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_lock_ends_whenever_it_is_taken_back() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut first = world.client().await;
    let mut second = world.client().await;
    let root = first.attach().await.handle;
    let a = made(&first.step(create(&root, "a", None)).await);
    let take = |wait| Step::Lock {
        target: at(&a),
        lock: lock(1, LockMode::Exclusive),
        wait,
        reclaim: false,
    };
    assert_eq!(first.step(take(true)).await, Ok(StepReply::Done));
    for round in 0..400_u32 {
        let waits = second.send_steps(vec![take(true)]).await;
        // Before, while and after a worker has it in hand.
        for _ in 0..(round % 100) * 50 {
            std::hint::spin_loop();
        }
        let cancel = wire::frame::Frame {
            body: Bytes::new(),
            ..frame(FrameKind::Cancel, waits, &())
        };
        second.send_frame(cancel).await;
        let (reply, _) = second.reply(waits).await.unwrap();
        assert_eq!(reply, Reply::Refused(Refusal::Cancelled), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_over_two_clients_is_refused() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut first = world.client().await;
    let mut second = world.client().await;
    let root = first.attach().await.handle;
    let a = made(&first.step(create(&root, "a", None)).await);
    let b = made(&first.step(create(&root, "b", None)).await);
    let take = |target: &base::Handle| Step::Lock {
        target: at(target),
        lock: lock(1, LockMode::Exclusive),
        wait: true,
        reclaim: false,
    };
    assert!(first.step(take(&a)).await.is_ok());
    assert!(second.step(take(&b)).await.is_ok());
    let waits = first.send_steps(vec![take(&b)]).await;
    first.call(&Request::Ping).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(second.step(take(&a)).await, Err(FsError::Deadlock));
    let release = Step::ReleaseLocks {
        target: at(&b),
        owner: LockOwner(1),
        kind: LockKind::Posix,
    };
    assert!(second.step(release).await.is_ok());
    first.reply(waits).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_locks_are_first_for_those_who_had_them() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let session = new_session();
    let role = ConnectionRole::Main;
    let mut holder = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    let root = holder.attach().await.handle;
    let a = made(&holder.step(create(&root, "a", None)).await);
    let take = |reclaim, wait| Step::Lock {
        target: at(&a),
        lock: lock(1, LockMode::Exclusive),
        wait,
        reclaim,
    };
    assert!(holder.step(take(false, false)).await.is_ok());
    world.restart().await;
    let mut thief = world.client().await;
    assert_eq!(
        thief.step(take(false, false)).await,
        Err(FsError::WouldBlock)
    );
    let waits = thief.send_steps(vec![take(false, true)]).await;
    let mut holder = world
        .client_as(&world.admin, session, role, Mode::Tls)
        .await;
    assert_eq!(holder.step(take(true, false)).await, Ok(StepReply::Done));
    // What it holds it may ask for again, or for less; SQLite gives up so what it had to write.
    let shared = Step::Lock {
        target: at(&a),
        lock: lock(1, LockMode::Shared),
        wait: false,
        reclaim: false,
    };
    for (wanted, expected) in [
        (take(false, false), Ok(StepReply::Done)),
        (shared.clone(), Ok(StepReply::Done)),
        (shared, Ok(StepReply::Done)),
        (take(false, false), Err(FsError::WouldBlock)),
    ] {
        assert_eq!(holder.step(wanted.clone()).await, expected, "{wanted:?}");
    }
    let unlock = Step::Lock {
        target: at(&a),
        lock: lock(1, LockMode::Unlock),
        wait: false,
        reclaim: false,
    };
    assert_eq!(holder.step(unlock).await, Ok(StepReply::Done));
    let (reply, _) = thief.reply(waits).await.unwrap();
    let Reply::Files(CompoundReply { results, .. }) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(results, [Ok(StepReply::Done)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_any_user_are_noted_for_the_time_after_a_restart() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let mut holder = world.client().await;
    let root = holder.attach().await.handle;
    let a = made(&holder.step(create(&root, "a", None)).await);
    std::os::unix::fs::chown(world.tree.join("a"), Some(4321), Some(4321)).unwrap();
    let take = Step::Lock {
        target: at(&a),
        lock: lock(1, LockMode::Exclusive),
        wait: false,
        reclaim: false,
    };
    // The thread that takes the lock has just acted for this user, who may not write there.
    holder.who = base::Principal::alone(4321, 4321);
    let open = Step::Open {
        target: at(&a),
        open: base::OpenId(5),
        access: wire::message::Access::ReadWrite,
        truncate: false,
    };
    let (results, _) = holder.steps(vec![open, take.clone()]).await;
    assert_eq!(results.last(), Some(&Ok(StepReply::Done)), "{results:?}");
    assert!(world.data.join("locks-held").exists());
    world.restart().await;
    let mut thief = world.client().await;
    assert_eq!(thief.step(take).await, Err(FsError::WouldBlock));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_only_read_a_file_keeps_no_writer_of_it_away() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let a = made(&client.step(create(&root, "a", None)).await);
    let path = world.tree.join("a");
    let mode = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let take = |kind, mode| Step::Lock {
        target: at(&a),
        lock: LockRange {
            kind,
            mode,
            ..lock(1, LockMode::Exclusive)
        },
        wait: false,
        reclaim: false,
    };
    let mut reader = world.client().await;
    reader.attach().await;
    reader.who = base::Principal::alone(4321, 4321);
    let (shared, exclusive) = (LockMode::Shared, LockMode::Exclusive);
    for (kind, locks, expected) in [
        (LockKind::Posix, exclusive, Err(FsError::AccessDenied)),
        (LockKind::Posix, shared, Ok(StepReply::Done)),
        (LockKind::Posix, LockMode::Unlock, Ok(StepReply::Done)),
        (LockKind::Flock, exclusive, Ok(StepReply::Done)),
        (LockKind::Flock, LockMode::Unlock, Ok(StepReply::Done)),
    ] {
        assert_eq!(
            reader.step(take(kind, locks)).await,
            expected,
            "{kind:?} {locks:?}"
        );
    }
    // Who has it open for writing goes on, whatever becomes of its mode.
    mode(0o666);
    let open = Step::Open {
        target: at(&a),
        open: base::OpenId(5),
        access: wire::message::Access::ReadWrite,
        truncate: false,
    };
    assert!(reader.step(open).await.is_ok());
    mode(0o444);
    let taken = reader.step(take(LockKind::Posix, exclusive)).await;
    assert_eq!(taken, Ok(StepReply::Done));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_has_not_begun_can_be_taken_back() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let a = made(&client.step(create(&root, "a", None)).await);
    std::fs::write(world.tree.join("a"), vec![1; 8 << 20]).unwrap();
    let mut sent = Vec::new();
    for n in 0..200u64 {
        let id = client.new_id();
        let step = Step::Read {
            file: FileRef {
                target: Target::Handle(a.clone()),
                open: None,
            },
            offset: n * 4096,
            bytes: 1 << 20,
        };
        let request = client.compound(vec![step]);
        let mut out = frame(FrameKind::Request, id, &request);
        out.class = wire::frame::Class::Prediction;
        client.connection.writer.write(out).await.unwrap();
        sent.push(id);
    }
    for id in &sent {
        let mut cancel = frame(FrameKind::Cancel, *id, &());
        cancel.body = Bytes::new();
        client.connection.writer.write(cancel).await.unwrap();
    }
    client.connection.writer.flush().await.unwrap();
    let mut cancelled = 0;
    for id in sent {
        match client.reply(id).await.unwrap().0 {
            Reply::Refused(Refusal::Cancelled) => cancelled += 1,
            Reply::Files(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(cancelled >= 20, "only {cancelled} of 200 were taken back");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_goodbye_is_answered_the_session_has_ended_for_good() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let (session, credential) = (new_session(), world.admin.clone());
    let mut client = world
        .client_as(&credential, session, ConnectionRole::Main, Mode::Tls)
        .await;
    assert_eq!(client.call(&Request::EndSession).await, Reply::Done);
    assert!(world.server().status().sessions.is_empty());
    assert!(client.connection.reader.read().await.is_err(), "it closes");
    let address = world.server().address();
    let late = Client::connect(
        address,
        &credential,
        session,
        ConnectionRole::Bulk,
        Mode::Tls,
    );
    let refused = late.await.err();
    assert!(
        matches!(refused, Some(Ended::Farewell(Farewell::ForeignSession))),
        "{refused:?}"
    );
    assert!(world.server().status().sessions.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_goodbye_is_answered_nothing_changes_any_more() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let (session, credential) = (new_session(), world.admin.clone());
    let mut main = world
        .client_as(&credential, session, ConnectionRole::Main, Mode::Tls)
        .await;
    let mut bulk = world
        .client_as(&credential, session, ConnectionRole::Bulk, Mode::Tls)
        .await;
    let root = bulk.attach().await;
    // Many changes in every request: workers are in the middle of some whenever the end comes.
    for request in 0..64 {
        let steps = (0..32).map(|step| mkdir(&root.handle, &format!("{request}-{step}")));
        bulk.send_steps(steps.collect()).await;
    }
    let made = || std::fs::read_dir(&world.tree).unwrap().count();
    while made() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(main.call(&Request::EndSession).await, Reply::Done);
    let then = made();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(made(), then);
    assert!(then < 64 * 32, "the end came in the middle");
}

/// A session that has ended is made anew by whichever of its client's connections comes first.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_a_bulk_connection_has_begun_is_none_that_goes_on() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let session = new_session();
    let connect = |role, mode| world.client_as(&world.admin, session, role, mode);
    let bulk = connect(ConnectionRole::Bulk, Mode::Tls).await;
    assert!(!bulk.welcome.session_known);
    for mode in [Mode::Tls, Mode::Plain] {
        // Its client never hears the welcome, or hears it and says nothing.
        let mut silent = connect(ConnectionRole::Main, mode).await;
        silent.connection.writer.finish().await.unwrap();
        // It has joined, and left, before the next one.
        let Ended::Link(_) = silent.ended().await else {
            panic!("it was told a reason")
        };
    }
    let mut main = connect(ConnectionRole::Main, Mode::Tls).await;
    assert!(!main.welcome.session_known);
    main.attach().await;
    drop(main);
    let again = connect(ConnectionRole::Main, Mode::Tls).await;
    assert!(again.welcome.session_known);
}

fn filled(parent: &Handle, text: &str, bytes: u32) -> Step {
    Step::CreateFile {
        parent: at(parent),
        name: name(text),
        mode: 0o644,
        umask: 0,
        change: AttributeChange::default(),
        bytes,
    }
}

fn outcomes(reply: &Reply) -> Vec<Result<(), FsError>> {
    let Reply::Files(reply) = reply else {
        panic!("{reply:?}")
    };
    let outcome = |result: &Result<StepReply, FsError>| result.as_ref().map(drop).map_err(|e| *e);
    reply.results.iter().map(outcome).collect()
}

/// Somebody removes a file while the server is away; what came after it in the same request must
/// not be asked for anew, for then it would be there already.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_on_behind_a_file_that_is_gone_by_now() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let (session, role) = (new_session(), ConnectionRole::Main);
    let admin = world.admin.clone();
    let mut client = world.client_as(&admin, session, role, Mode::Tls).await;
    let root = client.attach().await.handle;
    let directory = made(&client.step(mkdir(&root, "d")).await);
    let steps = |parent: &Handle| vec![filled(parent, "a", 3), filled(&root, "b", 5)];
    let request = client.compound(steps(&root));
    let payload = Bytes::from_static(b"aaabbbbb");
    let id = client.new_id();
    let mut first = frame(FrameKind::Request, id, &request);
    first.payload = payload.clone().into();
    client.send_frame(first).await;
    let answer = client.reply(id).await.unwrap().0;
    assert_eq!(outcomes(&answer), [Ok(()), Ok(())]);
    std::fs::remove_file(world.tree.join("a")).unwrap();
    world.restart().await;
    let mut client = world.client_as(&admin, session, role, Mode::Tls).await;
    let copy = resend(&mut client, id, &request, &payload).await;
    assert_eq!(outcomes(&copy), [Err(FsError::Stale), Ok(())]);
    assert_eq!(std::fs::read(world.tree.join("b")).unwrap(), b"bbbbb");

    // A step that does not come to its contents leaves the others theirs.
    std::fs::remove_file(world.tree.join("b")).unwrap();
    std::fs::remove_dir(world.tree.join("d")).unwrap();
    let (request, id) = (client.compound(steps(&directory)), client.new_id());
    let copy = resend(&mut client, id, &request, &payload).await;
    assert_eq!(outcomes(&copy), [Err(FsError::Stale), Ok(())]);
    assert_eq!(std::fs::read(world.tree.join("b")).unwrap(), b"bbbbb");
}
