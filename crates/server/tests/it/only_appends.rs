//! Opens that only append, as the wire has them: nothing else is done through them, on an export
//! and on a parallel volume.

use crate::client::{Client, name};
use crate::files::{at, create, file};
use crate::parallel;
use crate::world::{World, is_root};
use acl::{Ace, RichAcl, Rights, Target, UnixIds, Who};
use base::{AttributeChange, Extent, FsError, Handle, OpenId, Principal};
use bytes::Bytes;
use wire::message::{
    Access, AdminReply, AdminRequest, AllocateMode, LayoutPurpose, Reply, Request, Step, StepReply,
    StoredWhat, WriteAt,
};

const APPENDER: u32 = 2001;

/// A file of root's, to which somebody else may append, and he.
async fn prepared(world: &World) -> (Handle, Client) {
    let mut root = world.client().await;
    let request = AdminRequest::AclSwitch {
        name: "lab".to_owned(),
        on: true,
        dry_run: false,
    };
    let reply = root.call(&Request::Admin(request)).await;
    let is_on = matches!(&reply, Reply::Admin(AdminReply::Acl(summary)) if summary.is_on);
    assert!(is_on, "{reply:?}");
    let top = root.attach().await.handle;
    let made = root.step(create(&top, "log", Some(1))).await;
    let Ok(StepReply::Created { entry, .. }) = made else {
        panic!("{made:?}")
    };
    let list = RichAcl::new(vec![
        Ace::allow(Who::User(APPENDER), Rights::APPEND_DATA),
        Ace::allow(Who::Owner, Rights::READ_DATA | Rights::WRITE_DATA),
    ]);
    let target = Target {
        uid: 0,
        gid: 0,
        is_directory: false,
    };
    let set = Step::SetXattr {
        target: at(&entry.handle),
        name: b"system.nfs4_acl".to_vec(),
        value: list.unwrap().to_nfs4(&target, &UnixIds).unwrap(),
        create: None,
    };
    root.step(set).await.unwrap();
    let mut appender = world.client().await;
    appender.who = Principal::alone(APPENDER, APPENDER);
    appender.attach().await;
    let found = appender.lookup(&top, "log").await.unwrap();
    assert_eq!(found.handle, entry.handle);
    (entry.handle, appender)
}

fn open(handle: &Handle, open: u64, access: Access, truncate: bool) -> Step {
    Step::Open {
        target: at(handle),
        open: OpenId(open),
        access,
        truncate,
    }
}

fn cut(handle: &Handle, open: Option<u64>) -> Step {
    Step::SetAttributes {
        target: at(handle),
        change: AttributeChange {
            size: Some(0),
            ..AttributeChange::default()
        },
        open: open.map(OpenId),
    }
}

/// What is refused of either kind of volume; 7 is an open that only appends, 8 is none.
async fn refuses_the_rest(client: &mut Client, handle: &Handle) {
    let denied = Err(FsError::AccessDenied);
    for access in [Access::Write, Access::ReadWrite, Access::ReadAppend] {
        let opened = client.step(open(handle, 3, access, false)).await;
        assert_eq!(opened.map(drop), denied, "{access:?}");
    }
    let opened = client.step(open(handle, 3, Access::Append, true)).await;
    assert_eq!(opened.map(drop), denied, "it truncates");
    let opened = client.step(open(handle, 7, Access::Append, false)).await;
    opened.unwrap();
    for (through, expected) in [(Some(7), FsError::BadOpen), (None, FsError::AccessDenied)] {
        let cut = client.step(cut(handle, through)).await;
        assert_eq!(cut.map(drop), Err(expected), "{through:?}");
    }
    for (through, expected) in [(7, FsError::BadOpen), (8, FsError::AccessDenied)] {
        let allocate = Step::Allocate {
            file: file(handle, Some(through)),
            mode: AllocateMode::PunchHole,
            extent: Extent::new(0, 3),
        };
        let allocated = client.step(allocate).await;
        assert_eq!(allocated.map(drop), Err(expected), "{through}");
        let read = Step::Read {
            file: file(handle, Some(through)),
            offset: 0,
            bytes: 3,
        };
        assert_eq!(
            client.step(read).await.map(drop),
            Err(expected),
            "{through}"
        );
    }
}

async fn write(
    client: &mut Client,
    handle: &Handle,
    open: u64,
    at: WriteAt,
) -> Result<u64, FsError> {
    let step = Step::Write {
        file: file(handle, Some(open)),
        at,
        bytes: 4,
    };
    let (mut results, _) = client
        .write_steps(vec![step], Bytes::from_static(b"more"))
        .await;
    match results.remove(0)? {
        StepReply::Written { offset, .. } => Ok(offset),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_appended_to_and_not_written() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    std::fs::write(world.tree.join("before"), "x").unwrap();
    let (handle, mut client) = prepared(&world).await;
    refuses_the_rest(&mut client, &handle).await;
    assert_eq!(write(&mut client, &handle, 7, WriteAt::End).await, Ok(0));
    assert_eq!(write(&mut client, &handle, 7, WriteAt::End).await, Ok(4));
    for offset in [0, 8, 100] {
        let written = write(&mut client, &handle, 7, WriteAt::Offset(offset)).await;
        assert_eq!(written, Err(FsError::BadOpen), "{offset}");
    }
    // An open that the server does not know is made for what is asked.
    assert_eq!(write(&mut client, &handle, 9, WriteAt::End).await, Ok(8));
    let written = write(&mut client, &handle, 9, WriteAt::Offset(0)).await;
    assert_eq!(written, Err(FsError::AccessDenied));
    // Once more, where it was: only where it goes on the file.
    let again = write(&mut client, &handle, 7, WriteAt::Again(4)).await;
    assert_eq!(again, Err(FsError::BadOpen));
    assert_eq!(
        write(&mut client, &handle, 7, WriteAt::Again(12)).await,
        Ok(12)
    );
    let log = std::fs::read(world.tree.join("log")).unwrap();
    assert_eq!(log, b"moremoremoremore");
    // As a creation that finds the file there.
    let root = client.attach().await.handle;
    let step = |access| Step::Create {
        parent: at(&root),
        name: name("log"),
        mode: 0o600,
        umask: 0,
        exclusive: false,
        open: Some((OpenId(11), access, false)),
    };
    let made = client.step(step(Access::Write)).await;
    assert_eq!(made.map(drop), Err(FsError::AccessDenied));
    client.step(step(Access::Append)).await.unwrap();
    assert_eq!(write(&mut client, &handle, 11, WriteAt::End).await, Ok(16));
}

/// Where the file lies is said to who appends in order to append.
async fn layouts_are_for_what_is_open(client: &mut Client, handle: &Handle) {
    let layout = |open, purpose| Step::Layout {
        file: file(handle, Some(open)),
        purpose,
    };
    for (open, purpose, expected) in [
        (7, LayoutPurpose::Write, Some(FsError::BadOpen)),
        (8, LayoutPurpose::Write, Some(FsError::AccessDenied)),
        (7, LayoutPurpose::Read, Some(FsError::BadOpen)),
        (7, LayoutPurpose::Append, None),
        (9, LayoutPurpose::Append, None),
    ] {
        let found = client.step(layout(open, purpose)).await;
        assert_eq!(found.err(), expected, "{open} {purpose:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parallel_volume_gives_places_at_the_end_and_nothing_else() {
    if !is_root() {
        return;
    }
    let world = parallel::world().await;
    let (handle, mut client) = prepared(&world).await;
    refuses_the_rest(&mut client, &handle).await;
    layouts_are_for_what_is_open(&mut client, &handle).await;
    let through = |open| file(&handle, Some(open));
    let place = Step::Place {
        file: through(7),
        bytes: 4,
    };
    let placed = client.step(place).await;
    let Ok(StepReply::Placed {
        place,
        generation,
        offset,
        ..
    }) = placed
    else {
        panic!("{placed:?}")
    };
    assert_eq!(offset, 0);
    let stored_as = |what, extent: Extent, place| Step::Stored {
        file: through(7),
        generation,
        end: extent.end(),
        extent,
        what,
        place,
    };
    let stored = |extent, place| stored_as(StoredWhat::Data, extent, place);
    // Nobody makes a hole by calling it his append.
    for what in [StoredWhat::Hole, StoredWhat::Space] {
        let told = client
            .step(stored_as(what, Extent::new(0, 4), Some(place)))
            .await;
        assert_eq!(told.map(drop), Err(FsError::BadOpen), "{what:?}");
    }
    client
        .step(stored(Extent::new(0, 4), Some(place)))
        .await
        .unwrap();
    // What it has appended it may have to write once more, by a layout of its own; anything else
    // not.
    let again = client.step(stored(Extent::new(0, 4), None)).await;
    assert_eq!(again.map(drop), Err(FsError::WouldBlock));
    let elsewhere = client.step(stored(Extent::new(2, 9), None)).await;
    assert_eq!(elsewhere.map(drop), Err(FsError::BadOpen));
    let hole = Step::Wrote {
        file: through(7),
        generation,
        end: 0,
        extent: Extent::new(0, 4),
        is_hole: true,
    };
    assert_eq!(client.step(hole).await.map(drop), Err(FsError::BadOpen));
}
