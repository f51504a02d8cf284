//! Appends to files of parallel volumes that meet truncations and writes of others: places, and
//! generations of layouts, as clients see them.

use crate::client::Client;
use crate::files::{create, file};
use crate::parallel::{attributes, get, layout, made, truncate, world};
use crate::world::{World, is_root};
use base::limits::APPEND_WAIT_TIME_MAX;
use base::{AttributeChange, Attributes, Extent, FsError, Handle};
use bytes::Bytes;
use std::time::Instant;
use wire::message::{
    FileLayout, LayoutPurpose, ObjectError, ObjectStep, ObjectStepReply, Reply, Step, StepReply,
    StoredWhat, Target,
};

/// An append's place: its number, the generation, where it begins.
pub(crate) async fn place(client: &mut Client, handle: &Handle, bytes: u32) -> (u64, u64, u64) {
    let step = Step::Place {
        file: file(handle, None),
        bytes,
    };
    match client.step(step).await {
        Ok(StepReply::Placed {
            place,
            generation,
            offset,
            ..
        }) => (place, generation, offset),
        other => panic!("{other:?}"),
    }
}

/// What is left of it, and under which generation.
pub(crate) async fn left(
    client: &mut Client,
    handle: &Handle,
    place: u64,
) -> Result<(u64, Vec<Extent>), FsError> {
    let step = Step::PlaceLeft {
        file: file(handle, None),
        place,
    };
    match client.step(step).await? {
        StepReply::PlaceLeft { generation, parts } => Ok((generation, parts)),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn telling(
    handle: &Handle,
    generation: u64,
    extent: Extent,
    place: Option<u64>,
) -> Step {
    Step::Stored {
        file: file(handle, None),
        generation,
        end: extent.end(),
        extent,
        what: StoredWhat::Data,
        place,
    }
}

pub(crate) async fn stored(
    client: &mut Client,
    handle: &Handle,
    generation: u64,
    extent: Extent,
    place: Option<u64>,
) -> Result<Attributes, FsError> {
    let step = telling(handle, generation, extent, place);
    let sent = client.send_steps(vec![step]).await;
    answered(client, sent).await
}

/// The answer to a request of one step, about a file.
pub(crate) async fn answered(client: &mut Client, request: u64) -> Result<Attributes, FsError> {
    match client.reply(request).await.unwrap().0 {
        Reply::Files(reply) => match &reply.results[..] {
            [Ok(StepReply::Attributes { attributes, .. })] => Ok(attributes.clone()),
            [Err(error)] => Err(*error),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn fresh(client: &mut Client, handle: &Handle) -> FileLayout {
    let fresh = layout(client, handle, LayoutPurpose::Write).await;
    fresh.unwrap()
}

/// Writes at the store by a layout, making the object if it is not there.
async fn put(
    client: &mut Client,
    layout: &FileLayout,
    offset: u64,
    data: &[u8],
) -> Result<(), ObjectError> {
    let column = layout.columns[0];
    let create = ObjectStep::Create {
        object: column.object,
        end_secs: None,
    };
    match client.object_step(column.store, None, create).await {
        Ok(_) | Err(ObjectError::Exists) => {}
        other => panic!("{other:?}"),
    }
    let steps = vec![ObjectStep::WriteUnder {
        object: column.object,
        generation: layout.generation,
        offset,
        bytes: data.len() as u32,
    }];
    let data = Bytes::copy_from_slice(data);
    let (results, _) = client.objects(column.store, None, steps, data).await;
    match &results[..] {
        [Ok(ObjectStepReply::Done)] => Ok(()),
        [Err(error)] => Err(*error),
        other => panic!("{other:?}"),
    }
}

/// Two clients of a volume, and an empty file.
pub(crate) async fn two(world: &World) -> (Client, Client, Handle) {
    let (mut one, mut two) = (world.client().await, world.client().await);
    one.obeys = true;
    two.obeys = true;
    let root = one.attach().await.handle;
    two.attach().await;
    let handle = made(&mut one, create(&root, "log", None)).await.handle;
    (one, two, handle)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_was_cut_off_before_it_was_written_overwrites_nothing() {
    if !is_root() {
        return;
    }
    let mut world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    let before = fresh(&mut one, &handle).await;
    let (number, generation, offset) = place(&mut one, &handle, 10).await;
    assert_eq!((generation, offset), (before.generation, 0));
    // No store has anything of the file yet, and is to refuse the append all the same.
    truncate(&mut two, &handle, 0).await.unwrap();
    assert_eq!(
        put(&mut one, &before, 0, &[1; 10]).await,
        Err(ObjectError::Superseded)
    );
    let after = fresh(&mut two, &handle).await;
    assert!(after.generation > before.generation);
    let extent = Extent::new(0, 20);
    put(&mut two, &after, 0, &[2; 20]).await.unwrap();
    stored(&mut two, &handle, after.generation, extent, None)
        .await
        .unwrap();
    let column = after.columns[0];
    let (results, _) = two
        .objects(column.store, None, vec![ObjectStep::Commit], Bytes::new())
        .await;
    assert!(results.iter().all(Result::is_ok));
    // Neither a restart of the manager nor one of the store makes anybody forget.
    world.restart().await;
    let mut one = world.client().await;
    one.attach().await;
    let late = put(&mut one, &before, 0, &[1; 10]).await;
    assert_eq!(late, Err(ObjectError::Superseded));
    let told = stored(&mut one, &handle, before.generation, extent, Some(number)).await;
    assert_eq!(told, Err(FsError::WouldBlock));
    let nothing = (after.generation, Vec::new());
    assert_eq!(left(&mut one, &handle, number).await, Ok(nothing));
    let data = get(&mut one, &after, Extent::new(0, 100)).await.unwrap();
    assert_eq!(data[..], [2; 20]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_after_an_append_waits_until_it_is_there_and_nobody_sees_it_before() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    let layout = fresh(&mut one, &handle).await;
    let (first, generation, _) = place(&mut one, &handle, 10).await;
    let (second, ..) = place(&mut two, &handle, 10).await;
    put(&mut two, &layout, 10, &[2; 10]).await.unwrap();
    let extents = [0, 10].map(|offset| Extent::new(offset, 10));
    let later = telling(&handle, generation, extents[1], Some(second));
    let later = two.send_steps(vec![later]).await;
    put(&mut one, &layout, 0, &[1; 10]).await.unwrap();
    let told = stored(&mut one, &handle, generation, extents[0], Some(first)).await;
    assert_eq!(told.unwrap().size, 10, "the other one is not there before");
    assert_eq!(answered(&mut two, later).await.unwrap().size, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_gets_another_size_when_what_was_appended_before_is_there() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    let layout = fresh(&mut one, &handle).await;
    let (number, generation, _) = place(&mut one, &handle, 10).await;
    let change = AttributeChange {
        size: Some(4),
        ..AttributeChange::default()
    };
    let target = Target::Handle(handle.clone());
    let cut = vec![Step::SetAttributes {
        target,
        change,
        open: None,
    }];
    let cut = two.send_steps(cut).await;
    put(&mut one, &layout, 0, &[1; 10]).await.unwrap();
    let extent = Extent::new(0, 10);
    let told = stored(&mut one, &handle, generation, extent, Some(number)).await;
    assert_eq!(told.unwrap().size, 10, "it was not cut before");
    assert_eq!(answered(&mut two, cut).await.unwrap().size, 4);
    let data = get(&mut one, &layout, Extent::new(0, 100)).await.unwrap();
    assert_eq!(data[..], [1; 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_written_again_waits_for_no_append() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    let before = fresh(&mut two, &handle).await;
    truncate(&mut two, &handle, 4).await.unwrap();
    place(&mut one, &handle, 10).await;
    let extent = Extent::new(0, 20);
    let told = stored(&mut two, &handle, before.generation, extent, None).await;
    assert_eq!(told, Err(FsError::WouldBlock));
    // Who waits in vain has the place shown.
    assert_eq!(attributes(&mut two, &handle).await.unwrap().size, 4);
    // Nor does anybody who does not say which place he has: his own is shown at once.
    let step = Step::Extend {
        file: file(&handle, None),
        bytes: 5,
    };
    match two.step(step).await {
        Ok(StepReply::Written { offset, .. }) => assert_eq!(offset, 14),
        other => panic!("{other:?}"),
    }
    assert_eq!(attributes(&mut one, &handle).await.unwrap().size, 19);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cut_leaves_of_an_append_is_written_and_no_more() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    let (first, ..) = place(&mut one, &handle, 10).await;
    let (second, ..) = place(&mut two, &handle, 10).await;
    // Longer and shorter: behind the places, which nobody waits for very long, then within the
    // second.
    truncate(&mut two, &handle, 100).await.unwrap();
    truncate(&mut two, &handle, 14).await.unwrap();
    let (generation, parts) = left(&mut one, &handle, first).await.unwrap();
    assert_eq!(parts, [Extent::new(0, 10)]);
    let (_, parts) = left(&mut two, &handle, second).await.unwrap();
    assert_eq!(parts, [Extent::new(10, 4)]);
    let layout = fresh(&mut one, &handle).await;
    assert_eq!(layout.generation, generation);
    put(&mut one, &layout, 0, &[1; 10]).await.unwrap();
    put(&mut two, &layout, 10, &[2; 4]).await.unwrap();
    for (client, extent, number) in [
        (&mut one, Extent::new(0, 10), first),
        (&mut two, Extent::new(10, 4), second),
    ] {
        let told = stored(client, &handle, generation, extent, Some(number)).await;
        assert_eq!(told.unwrap().size, 14);
        let told = left(client, &handle, number).await;
        assert_eq!(told, Ok((generation, Vec::new())), "the place is not open");
    }
    let data = get(&mut one, &layout, Extent::new(0, 100)).await.unwrap();
    assert_eq!(data[..], [[1; 10].as_slice(), &[2; 4]].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_written_where_an_append_is_given_its_place_writes_after_it() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    let before = fresh(&mut two, &handle).await;
    put(&mut two, &before, 0, &[2; 4]).await.unwrap();
    // He has not told of it when the append comes, of which a part is still on its way.
    let (number, generation, offset) = place(&mut one, &handle, 10).await;
    assert_eq!((generation, offset), (before.generation, 0));
    put(&mut one, &before, 0, &[1; 6]).await.unwrap();
    let extent = Extent::new(0, 4);
    let told = stored(&mut two, &handle, generation, extent, None).await;
    assert_eq!(told, Err(FsError::WouldBlock), "nobody knows who was first");
    assert_eq!(
        put(&mut one, &before, 6, &[1; 4]).await,
        Err(ObjectError::Superseded)
    );
    let after = fresh(&mut two, &handle).await;
    put(&mut two, &after, 0, &[2; 4]).await.unwrap();
    let told = stored(&mut two, &handle, after.generation, extent, None).await;
    assert_eq!(told.unwrap().size, 10);
    let (generation, parts) = left(&mut one, &handle, number).await.unwrap();
    assert_eq!(
        (generation, &parts[..]),
        (after.generation, &[Extent::new(4, 6)][..])
    );
    put(&mut one, &after, 4, &[1; 6]).await.unwrap();
    stored(&mut one, &handle, generation, parts[0], Some(number))
        .await
        .unwrap();
    let data = get(&mut one, &after, Extent::new(0, 100)).await.unwrap();
    assert_eq!(data[..], [[2; 4].as_slice(), &[1; 6]].concat());
    assert_eq!(attributes(&mut one, &handle).await.unwrap().size, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_too_many_open_places_the_oldest_is_given_up_and_its_holder_is_told() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, _, handle) = two(&world).await;
    let before = fresh(&mut one, &handle).await;
    let (first, ..) = place(&mut one, &handle, 1).await;
    for _ in 1..base::limits::NAMESPACE_PLACES_MAX {
        place(&mut one, &handle, 1).await;
    }
    let step = Step::Place {
        file: file(&handle, None),
        bytes: 1,
    };
    assert_eq!(one.step(step).await, Err(FsError::WouldBlock));
    let (last, generation, _) = place(&mut one, &handle, 1).await;
    assert!(generation > before.generation);
    let late = put(&mut one, &before, 0, &[1]).await;
    assert_eq!(late, Err(ObjectError::Superseded));
    assert_eq!(left(&mut one, &handle, first).await, Err(FsError::Io));
    assert!(left(&mut one, &handle, last).await.is_ok());
}

async fn give_up(client: &mut Client, handle: &Handle, place: u64) -> u64 {
    let step = Step::GivePlaceUp {
        file: file(handle, None),
        place,
    };
    match client.step(step).await {
        Ok(StepReply::Attributes { attributes, .. }) => attributes.size,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_cannot_be_written_is_nobodys_wait_and_what_was_written_of_it_is_gone() {
    if !is_root() {
        return;
    }
    let world = world().await;
    // Who has made the file has a lease, and gives it back to nobody here.
    let (mut one, _, handle) = two(&world).await;
    let before = fresh(&mut one, &handle).await;
    let (failed, generation, _) = place(&mut one, &handle, 10).await;
    put(&mut one, &before, 0, &[1; 4]).await.unwrap();
    assert_eq!(give_up(&mut one, &handle, failed).await, 0);
    // What is on its way comes to nothing.
    let late = put(&mut one, &before, 4, &[1; 6]).await;
    assert_eq!(late, Err(ObjectError::Superseded));
    let extent = Extent::new(0, 10);
    let told = stored(&mut one, &handle, generation, extent, Some(failed)).await;
    assert_eq!(told, Err(FsError::WouldBlock));
    let begin = Instant::now();
    let after = fresh(&mut one, &handle).await;
    let [first, second] = [
        place(&mut one, &handle, 2).await,
        place(&mut one, &handle, 2).await,
    ];
    assert_eq!((first.2, second.2), (0, 2));
    put(&mut one, &after, 2, &[2; 2]).await.unwrap();
    // Behind this one something is on its way.
    assert_eq!(give_up(&mut one, &handle, first.0).await, 2);
    let extent = Extent::new(2, 2);
    let told = stored(&mut one, &handle, second.1, extent, Some(second.0)).await;
    assert_eq!(told.unwrap().size, 4);
    assert!(begin.elapsed() < APPEND_WAIT_TIME_MAX / 2);
    let data = get(&mut one, &after, Extent::new(0, 100)).await.unwrap();
    assert_eq!(data[..], [0, 0, 2, 2]);
    assert_eq!(give_up(&mut one, &handle, failed).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_put_behind_the_end_and_not_told_is_gone_when_the_file_becomes_longer() {
    if !is_root() {
        return;
    }
    let world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    let before = fresh(&mut one, &handle).await;
    put(&mut one, &before, 0, &[1; 30]).await.unwrap();
    let extent = Extent::new(0, 10);
    stored(&mut one, &handle, before.generation, extent, None)
        .await
        .unwrap();
    truncate(&mut two, &handle, 100).await.unwrap();
    let data = get(&mut two, &before, Extent::new(0, 100)).await.unwrap();
    assert_eq!(data[..], [1; 10]);
    let late = put(&mut one, &before, 10, &[1; 20]).await;
    assert_eq!(late, Err(ObjectError::Superseded));
}
