//! Parallel volumes: names at the server, contents in its stores, as a client sees both.

use crate::client::{Client, Mode, name};
use crate::files::{at, create, file, link, mkdir, remove, rename};
use crate::objects::with_store;
use crate::world::{World, is_root, new_session};
use base::{AttributeChange, Attributes, Extent, FsError, Handle, OpenId};
use bytes::Bytes;
use std::time::{Duration, Instant};
use wire::message::{
    Access, AdminError, AdminReply, AdminRequest, ConnectionRole, CredentialKind, Entry,
    FileLayout, LayoutPurpose, Lease, ObjectError, ObjectStep, ObjectStepReply, RenameMode, Reply,
    Request, Step, StepReply, Target, VolumeKind,
};

/// A server with a store of 64 MiB and the parallel volume `lab`.
pub(crate) async fn world() -> World {
    let (world, _) = with_store(64).await;
    let mut admin = world.client().await;
    let reply = make(&mut admin, "lab", false).await;
    assert!(
        matches!(reply, Reply::Admin(AdminReply::Volumes(_))),
        "{reply:?}"
    );
    admin.call(&Request::EndSession).await;
    world
}

async fn make(admin: &mut Client, name: &str, dry_run: bool) -> Reply {
    let request = AdminRequest::VolumeCreate {
        name: name.to_owned(),
        kind: VolumeKind::Parallel {
            unit_log2: None,
            width: 4,
        },
        dry_run,
    };
    admin.call(&Request::Admin(request)).await
}

async fn delete(admin: &mut Client, name: &str) -> Result<(), AdminError> {
    let request = AdminRequest::VolumeDelete {
        name: name.to_owned(),
        dry_run: false,
    };
    match admin.call(&Request::Admin(request)).await {
        Reply::Admin(AdminReply::Done) => Ok(()),
        Reply::Admin(AdminReply::Failed { code, .. }) => Err(code),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn made(client: &mut Client, step: Step) -> Entry {
    match client.step(step).await {
        Ok(StepReply::Created { entry, .. }) => entry,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn attributes(
    client: &mut Client,
    handle: &Handle,
) -> Result<Attributes, FsError> {
    let step = Step::Attributes { target: at(handle) };
    match client.step(step).await? {
        StepReply::Attributes { attributes, .. } => Ok(attributes),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn layout(
    client: &mut Client,
    handle: &Handle,
    purpose: LayoutPurpose,
) -> Result<FileLayout, FsError> {
    let file = file(handle, None);
    match client.step(Step::Layout { file, purpose }).await? {
        StepReply::Layout(layout) => Ok(layout),
        other => panic!("{other:?}"),
    }
}

async fn wrote(
    client: &mut Client,
    handle: &Handle,
    generation: u64,
    end: u64,
) -> Result<Attributes, FsError> {
    let step = Step::Wrote {
        file: file(handle, None),
        generation,
        end,
        extent: Extent::new(0, end),
        is_hole: false,
    };
    match client.step(step).await? {
        StepReply::Attributes { attributes, .. } => Ok(attributes),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn truncate(
    client: &mut Client,
    handle: &Handle,
    size: u64,
) -> Result<StepReply, FsError> {
    let change = AttributeChange {
        size: Some(size),
        ..AttributeChange::default()
    };
    let step = Step::SetAttributes {
        target: at(handle),
        change,
        open: None,
    };
    client.step(step).await
}

/// Writes at the only store and tells it, as a client does.
async fn write(client: &mut Client, handle: &Handle, offset: u64, data: &[u8]) -> Attributes {
    let layout = layout(client, handle, LayoutPurpose::Write).await.unwrap();
    put(client, &layout, offset, data).await;
    let end = offset + data.len() as u64;
    wrote(client, handle, layout.generation, end).await.unwrap()
}

async fn put(client: &mut Client, layout: &FileLayout, offset: u64, data: &[u8]) {
    let column = layout.columns[0];
    let create = ObjectStep::Create {
        object: column.object,
        end_secs: None,
    };
    match client.object_step(column.store, None, create).await {
        Ok(_) | Err(ObjectError::Exists) => {}
        other => panic!("{other:?}"),
    }
    let steps = vec![
        ObjectStep::Write {
            object: column.object,
            offset,
            bytes: data.len() as u32,
        },
        ObjectStep::Commit,
    ];
    let data = Bytes::copy_from_slice(data);
    let (results, _) = client.objects(column.store, None, steps, data).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

/// What the object of a file has.
pub(crate) async fn get(client: &mut Client, layout: &FileLayout, extent: Extent) -> Option<Bytes> {
    let column = layout.columns[0];
    let read = ObjectStep::Read {
        object: column.object,
        offset: extent.offset,
        bytes: extent.len as u32,
    };
    let steps = vec![read];
    let (results, data) = client
        .objects(column.store, None, steps, Bytes::new())
        .await;
    match &results[..] {
        [Ok(ObjectStepReply::Data { .. })] => Some(data),
        [Err(ObjectError::NotFound)] => None,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_there_after_a_sudden_end() {
    if !is_root() {
        return;
    }
    let mut world = world().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let directory = made(&mut client, mkdir(&root, "d")).await.handle;
    let first = made(&mut client, create(&directory, "a", None))
        .await
        .handle;
    made(&mut client, link(&first, &root, "b")).await;
    let renamed = rename(&directory, "a", "c", RenameMode::NoReplace);
    client.step(renamed).await.unwrap();
    let symlink = Step::MakeSymlink {
        parent: at(&root),
        name: name("s"),
        link_target: b"d/c".to_vec(),
    };
    made(&mut client, symlink).await;
    let xattr = Step::SetXattr {
        target: at(&first),
        name: b"user.colour".to_vec(),
        value: b"blue".to_vec(),
        create: None,
    };
    client.step(xattr).await.unwrap();
    made(&mut client, create(&root, "gone", None)).await;
    client.step(remove(&root, "gone")).await.unwrap();

    world.restart().await;
    let mut client = world.client().await;
    // Handles outlive the run.
    assert_eq!(attributes(&mut client, &first).await.unwrap().links, 2);
    assert_eq!(client.lookup(&directory, "a").await, None);
    let found = client.lookup(&directory, "c").await.unwrap();
    assert_eq!(found.handle, first);
    assert_eq!(found.lease, Lease::Read, "nobody changes it elsewhere");
    assert_eq!(client.lookup(&root, "gone").await, None);
    let (target, name) = (at(&first), b"user.colour".to_vec());
    let value = client.step(Step::GetXattr { target, name }).await;
    assert_eq!(value, Ok(StepReply::Xattr(b"blue".to_vec())));
    let (target, cookie, entries_max) = (at(&root), 0, 100);
    let step = Step::ReadDirectory {
        target,
        cookie,
        entries_max,
    };
    let Ok(StepReply::Directory { entries, end, .. }) = client.step(step).await else {
        panic!("it is a directory");
    };
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name.as_bytes()).collect();
    names.sort_unstable();
    assert!(end);
    assert_eq!(names, [b"b", b"d", b"s"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_again_after_a_restart_is_done_once() {
    if !is_root() {
        return;
    }
    let mut world = world().await;
    let session = crate::world::new_session();
    let role = wire::message::ConnectionRole::Main;
    let mode = crate::client::Mode::Tls;
    let admin = world.admin.clone();
    let mut client = world.client_as(&admin, session, role, mode).await;
    let root = client.attach().await.handle;
    let steps = vec![
        create(&root, "once", None),
        mkdir(&root, "d"),
        remove(&root, "once"),
    ];
    let request = client.compound(steps);
    let id = client.send(&request).await;
    let handles = |reply: &Reply| {
        let Reply::Files(reply) = reply else {
            panic!("{reply:?}")
        };
        let made = reply.results.iter().filter_map(|result| match result {
            Ok(StepReply::Created { entry, .. }) => Some(entry.handle.clone()),
            Ok(_) => None,
            Err(error) => panic!("{error}"),
        });
        made.collect::<Vec<_>>()
    };
    let (first, _) = client.reply(id).await.unwrap();
    // A file that nobody holds any more is removed in the background.
    let target = Target::Handle(handles(&first)[0].clone());
    let deadline = Instant::now() + Duration::from_secs(30);
    let attributes = || Step::Attributes {
        target: target.clone(),
    };
    while client.step(attributes()).await != Err(FsError::Stale) {
        assert!(Instant::now() < deadline, "the removed file stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.restart().await;
    let mut client = world.client_as(&admin, session, role, mode).await;
    let mut again = crate::client::frame(wire::frame::FrameKind::Request, id, &request);
    again.resent = true;
    client.send_frame(again).await;
    let (second, _) = client.reply(id).await.unwrap();
    // The file is gone, so the copy of its creation has nothing to show.
    let Reply::Files(copy) = &second else {
        panic!("{second:?}")
    };
    assert_eq!(handles(&first).len(), 2);
    assert_eq!(copy.results, [Err(FsError::Stale)]);
    let directory = client.lookup(&root, "d").await.unwrap();
    assert_eq!(directory.handle, handles(&first)[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_lie_in_objects_that_are_cut_and_deleted_with_the_file() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let handle = made(&mut client, create(&root, "a", None)).await.handle;
    let known = layout(&mut client, &handle, LayoutPurpose::Read)
        .await
        .unwrap();
    assert_eq!(
        write(&mut client, &handle, 0, &[7; 10_000]).await.size,
        10_000
    );
    assert_eq!(attributes(&mut client, &handle).await.unwrap().size, 10_000);
    let whole = Extent::new(0, 20_000);
    let data = get(&mut client, &known, whole).await.unwrap();
    assert_eq!(data[..], [7; 10_000]);

    truncate(&mut client, &handle, 5_000).await.unwrap();
    let cut = get(&mut client, &known, whole).await.unwrap();
    assert_eq!(cut.len(), 5_000, "it is cut before that is answered");
    // Who has written before the cut cannot know whether his bytes are there.
    let late = wrote(&mut client, &handle, known.generation, 10_000).await;
    assert_eq!(late, Err(FsError::WouldBlock));
    let fresh = layout(&mut client, &handle, LayoutPurpose::Write)
        .await
        .unwrap();
    assert_ne!(fresh.generation, known.generation);
    assert_eq!(fresh.columns, known.columns);

    client.step(remove(&root, "a")).await.unwrap();
    let gone = layout(&mut client, &handle, LayoutPurpose::Read).await;
    assert_eq!(gone, Err(FsError::Stale));
    for attempt in 0.. {
        if get(&mut client, &known, whole).await.is_none() {
            break;
        }
        assert!(attempt < 500, "the object stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whichever file has the name at that moment, while others take its place all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_created_once_more_is_cut_before_that_is_answered() {
    const ROUNDS: usize = 30;
    if !is_root() {
        return;
    }
    let world = world().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let mut other = world.client().await;
    other.attach().await;
    let from = root.clone();
    let others = tokio::spawn(async move {
        for _ in 0..ROUNDS {
            let handle = made(&mut other, create(&from, "new", None)).await.handle;
            write(&mut other, &handle, 0, &[7; 100]).await;
            other
                .step(rename(&from, "new", "a", RenameMode::Replace))
                .await
                .unwrap();
        }
    });
    let mut cut = 0;
    while !others.is_finished() || cut == 0 {
        let again = Step::Create {
            parent: at(&root),
            name: name("a"),
            mode: 0o644,
            umask: 0,
            exclusive: false,
            open: Some((OpenId(1), Access::ReadWrite, true)),
        };
        let (entry, new) = match client.step(again).await {
            Ok(StepReply::Created { entry, new, .. }) => (entry, new),
            other => panic!("{other:?}"),
        };
        assert_eq!(entry.attributes.size, 0);
        let handle = entry.handle;
        // It may have lost its name since, but is open.
        let known = layout(&mut client, &handle, LayoutPurpose::Read)
            .await
            .unwrap();
        let left = get(&mut client, &known, Extent::new(0, 1_000)).await;
        assert!(left.unwrap_or_default().is_empty(), "it is not cut yet");
        cut += usize::from(!new && known.generation > 0);
        client.step(Step::Close { open: OpenId(1) }).await.unwrap();
    }
    others.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_reads_before_a_cut_by_a_layout_that_he_knew_hears_of_it_afterwards() {
    if !is_root() {
        return;
    }
    let world = world().await;
    for attempt in 0.. {
        if hears_of_a_cut(&world, &format!("file {attempt}")).await {
            break;
        }
        assert!(attempt < 20, "nobody is quick enough here");
    }
}

/// A request has made its changes, and the stores have not cut the file yet: for as long as
/// somebody is slow to obey, which has its end. False if the reader was slower.
async fn hears_of_a_cut(world: &World, name: &str) -> bool {
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let handle = made(&mut client, create(&root, name, None)).await.handle;
    write(&mut client, &handle, 0, &[7; 100]).await;
    let (mut slow, mut reader) = (world.client().await, world.client().await);
    slow.attach().await;
    reader.attach().await;
    let known = layout(&mut reader, &handle, LayoutPurpose::Read).await;
    let known = known.unwrap();
    attributes(&mut slow, &handle).await.unwrap();
    slow.obeys = false;
    slow.notices.clear();
    let steps = [0, 100].map(|size| Step::SetAttributes {
        target: at(&handle),
        change: AttributeChange {
            size: Some(size),
            ..AttributeChange::default()
        },
        open: None,
    });
    let id = client.send_steps(steps.to_vec()).await;
    while slow.notices.is_empty() {
        slow.receive().await.unwrap();
    }
    reader.notices.clear();
    let whole = Extent::new(0, 100);
    let look = Step::Attributes {
        target: at(&handle),
    };
    match reader.step(look).await {
        Ok(StepReply::Attributes { lease, .. }) => assert_eq!(lease, Lease::Read),
        other => panic!("{other:?}"),
    }
    let early = get(&mut reader, &known, whole).await.unwrap();
    if early[..] != [7; 100] || !reader.notices.is_empty() {
        return false;
    }
    let recalls = slow.notices.iter().map(wire::message::Notice::id);
    for recall in recalls.collect::<Vec<_>>() {
        slow.send(&Request::RecallDone(recall)).await;
    }
    slow.obeys = true;
    reader.obeys = false;
    while reader.notices.is_empty() {
        reader.receive().await.unwrap();
    }
    let late = get(&mut reader, &known, whole).await.unwrap_or_default();
    assert!(!late.contains(&7), "it is cut before that is said");
    let answer = tokio::time::timeout(Duration::from_millis(200), client.reply(id)).await;
    assert!(answer.is_err(), "answered before the reader has let go");
    let recall = reader.notices[0].id();
    reader.send(&Request::RecallDone(recall)).await;
    client.reply(id).await.unwrap();
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_alone_is_told_the_objects_of_files_that_he_may_write() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let user = world.enrol(CredentialKind::User { uid: 1000 }).await;
    let role = ConnectionRole::Main;
    let mut user = world.client_as(&user, new_session(), role, Mode::Tls).await;
    (user.who.uid, user.who.gid) = (1000, 1000);
    user.attach().await;
    let modes = [(0o644, false), (0o600, false), (0o646, true)];
    for (number, (mode, is_told)) in modes.into_iter().enumerate() {
        let step = create(&root, &number.to_string(), None);
        let handle = made(&mut client, step).await.handle;
        let change = AttributeChange {
            mode: Some(mode),
            ..AttributeChange::default()
        };
        let step = Step::SetAttributes {
            target: at(&handle),
            change,
            open: None,
        };
        client.step(step).await.unwrap();
        for purpose in [LayoutPurpose::Read, LayoutPurpose::Write] {
            let told = layout(&mut user, &handle, purpose).await.map(drop);
            let expected = match is_told {
                true => Ok(()),
                false => Err(FsError::AccessDenied),
            };
            assert_eq!(told, expected, "{mode:o}, {purpose:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_file_keeps_its_contents_when_its_name_goes() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let entry = made(&mut client, create(&root, "a", Some(1))).await;
    write(&mut client, &entry.handle, 0, b"still here").await;
    client.step(remove(&root, "a")).await.unwrap();
    let mut other = world.client().await;
    other.attach().await;
    let known = layout(&mut client, &entry.handle, LayoutPurpose::Read)
        .await
        .unwrap();
    let data = get(&mut other, &known, Extent::new(0, 100)).await;
    assert_eq!(data.as_deref(), Some(&b"still here"[..]));
    let close = Step::Close { open: OpenId(1) };
    client.step(close).await.unwrap();
    for attempt in 0.. {
        if get(&mut other, &known, Extent::new(0, 1)).await.is_none() {
            break;
        }
        assert!(attempt < 500, "the object stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_caches_a_file_hears_that_it_was_written_and_appends_do_not_meet() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, mut two) = (world.client().await, world.client().await);
    let root = one.attach().await.handle;
    two.attach().await;
    let handle = made(&mut one, create(&root, "log", None)).await.handle;
    assert_eq!(attributes(&mut two, &handle).await.unwrap().size, 0);
    let reply = {
        let layout = layout(&mut one, &handle, LayoutPurpose::Write)
            .await
            .unwrap();
        put(&mut one, &layout, 0, b"abc").await;
        let step = Step::Wrote {
            file: file(&handle, None),
            generation: layout.generation,
            end: 3,
            extent: Extent::new(0, 3),
            is_hole: false,
        };
        one.send_steps(vec![step]).await
    };
    // The writer is answered when the other has heard.
    while two.notices.is_empty() {
        two.receive().await.unwrap();
    }
    one.reply(reply).await.unwrap();
    let mut places = Vec::new();
    for client in [&mut one, &mut two] {
        client.obeys = true;
        let step = Step::Extend {
            file: file(&handle, None),
            bytes: 10,
        };
        match client.step(step).await {
            Ok(StepReply::Written { offset, .. }) => places.push(offset),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(places, [3, 13]);
    assert_eq!(attributes(&mut two, &handle).await.unwrap().size, 23);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_made_where_there_are_stores_and_deleted_when_it_is_empty() {
    if !is_root() {
        return;
    }
    let bare = World::bare().await;
    let mut admin = bare.client().await;
    let reply = make(&mut admin, "lab", true).await;
    assert!(
        matches!(&reply, Reply::Admin(AdminReply::Failed { code: AdminError::Invalid, message })
            if message.contains("no store")),
        "{reply:?}"
    );
    let mut world = world().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    made(&mut client, create(&root, "a", None)).await;
    let mut admin = world.client().await;
    assert_eq!(delete(&mut admin, "lab").await, Err(AdminError::InUse));
    client.call(&Request::EndSession).await;
    assert_eq!(delete(&mut admin, "lab").await, Err(AdminError::InUse));
    let mut client = world.client().await;
    client.attach().await;
    client.step(remove(&root, "a")).await.unwrap();
    client.call(&Request::EndSession).await;
    assert_eq!(delete(&mut admin, "lab").await, Ok(()));
    // A new one of that name is another one.
    make(&mut admin, "lab", false).await;
    world.restart().await;
    let mut client = world.client().await;
    assert_ne!(client.attach().await.handle, root);
}
