//! Contents that are written again after a loss: whose they are.

use crate::appends::{fresh, place, stored, two};
use crate::client::Client;
use crate::files::{at, file};
use crate::parallel::{layout, truncate, world};
use crate::world::{World, is_root};
use base::{Extent, FsError, Handle, OpenId, Principal};
use bytes::Bytes;
use wire::message::{Access, LayoutPurpose, Step, WriteAt};

/// Whether a client may write these bytes again.
async fn is_own(client: &mut Client, handle: &Handle, offset: u64, len: u64) -> bool {
    let purpose = LayoutPurpose::WritePartAgain(Extent::new(offset, len));
    match layout(client, handle, purpose).await {
        Ok(_) => true,
        Err(FsError::Io) => false,
        other => panic!("{other:?}"),
    }
}

async fn writes(client: &mut Client, handle: &Handle, offset: u64, len: u64) {
    let generation = fresh(client, handle).await.generation;
    let extent = Extent::new(offset, len);
    let told = stored(client, handle, generation, extent, None).await;
    told.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_taken_again_from_whoever_wrote_them_last() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    writes(&mut one, &handle, 0, 100).await;
    writes(&mut two, &handle, 50, 10).await;
    for (offset, len) in [(0, 50), (60, 40)] {
        assert!(is_own(&mut one, &handle, offset, len).await);
        assert!(!is_own(&mut two, &handle, offset, len).await);
    }
    assert!(is_own(&mut two, &handle, 50, 10).await);
    for (offset, len) in [(0, 100), (49, 2), (59, 2)] {
        assert!(!is_own(&mut one, &handle, offset, len).await);
        assert!(!is_own(&mut two, &handle, offset, len).await);
    }
    // An older client asks for the whole file.
    let whole = layout(&mut one, &handle, LayoutPurpose::WriteAgain).await;
    assert_eq!(whole, Err(FsError::Io));
    // An append has its bytes from when it is given its place.
    let (number, generation, offset) = place(&mut two, &handle, 20).await;
    assert_eq!(offset, 100);
    assert!(!is_own(&mut one, &handle, 110, 1).await);
    let extent = Extent::new(100, 20);
    let told = stored(&mut two, &handle, generation, extent, Some(number)).await;
    told.unwrap();
    assert!(is_own(&mut two, &handle, 100, 20).await);
    // What is cut off is not the writer's any more.
    truncate(&mut two, &handle, 90).await.unwrap();
    assert!(is_own(&mut one, &handle, 60, 30).await);
    assert!(!is_own(&mut one, &handle, 60, 31).await);
    truncate(&mut one, &handle, 0).await.unwrap();
    assert!(!is_own(&mut two, &handle, 50, 10).await);
    writes(&mut two, &handle, 0, 10).await;
    assert!(is_own(&mut two, &handle, 0, 10).await);
    assert!(!is_own(&mut two, &handle, 0, 11).await);
}

/// The file is root's, and others may read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncation_that_is_refused_makes_nobody_the_last_writer() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    writes(&mut one, &handle, 0, 100).await;
    two.who = Principal::alone(1000, 1000);
    for size in [0, 50] {
        let refused = truncate(&mut two, &handle, size).await;
        assert_eq!(refused.err(), Some(FsError::AccessDenied));
    }
    for access in [Access::Write, Access::ReadWrite] {
        let open = Step::Open {
            target: at(&handle),
            open: OpenId(9),
            access,
            truncate: true,
        };
        assert_eq!(two.step(open).await.err(), Some(FsError::AccessDenied));
    }
    // What a server has lost is taken again from who had written it, and from nobody else.
    two.who = Principal::root();
    assert!(!is_own(&mut two, &handle, 0, 100).await);
    assert!(is_own(&mut one, &handle, 0, 100).await);
    truncate(&mut two, &handle, 50).await.unwrap();
    assert!(is_own(&mut one, &handle, 0, 50).await);
    assert!(!is_own(&mut one, &handle, 0, 51).await);
}

/// An export loses something with the server's machine, or when a flush of its disk has failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncation_that_is_refused_leaves_what_an_export_has_lost_to_its_writer() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    for name in ["refused", "cut"] {
        std::fs::write(world.tree.join(name), b"before").unwrap();
    }
    std::fs::write(world.data.join("flush-failed"), b"").unwrap();
    world.restart().await;
    let (mut one, mut two) = (world.client().await, world.client().await);
    one.attach().await;
    let root = two.attach().await.handle;
    let mut is_taken = Vec::new();
    for (name, who) in [
        ("refused", Principal::alone(1000, 1000)),
        ("cut", Principal::root()),
    ] {
        two.who = Principal::root();
        let handle = two.lookup(&root, name).await.unwrap().handle;
        two.who = who;
        let cut = truncate(&mut two, &handle, 0).await;
        assert_eq!(cut.is_ok(), name == "cut", "{cut:?}");
        let again = Step::Write {
            file: file(&handle, None),
            at: WriteAt::Again(0),
            bytes: 5,
        };
        let (results, _) = one
            .steps_with(vec![again], Bytes::from_static(b"again"))
            .await;
        is_taken.push(results[0].is_ok());
    }
    assert_eq!(is_taken, [true, false]);
    assert_eq!(std::fs::read(world.tree.join("cut")).unwrap(), b"");
    let refused = std::fs::read(world.tree.join("refused")).unwrap();
    assert_eq!(refused, b"againe");
}
