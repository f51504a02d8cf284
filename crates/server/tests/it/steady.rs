//! Files of parallel volumes that somebody appends to all the time: one append is always on its
//! way. Who makes such a file longer waits for those that were begun before, and sees what he did.

use crate::appends::{answered, fresh, left, place, stored, telling, two};
use crate::client::Client;
use crate::parallel::{attributes, world};
use crate::world::is_root;
use base::limits::APPEND_WAIT_TIME_MAX;
use base::{AttributeChange, Attributes, Extent, FsError, Handle};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use wire::message::{Request, Step, Target};

/// Where nobody who appends here comes to.
const FAR: u64 = 1 << 20;
/// What waits for nothing but appends under way takes no longer, also on a machine that is busy.
const SOON: Duration = Duration::from_secs(3);

/// An append is at the stores, whatever generation has begun since; the file as it is then.
async fn tell(client: &mut Client, handle: &Handle, open: (u64, u64, u64)) -> Attributes {
    let (number, mut generation, offset) = open;
    let extent = Extent::new(offset, 10);
    loop {
        match stored(client, handle, generation, extent, Some(number)).await {
            Ok(attributes) => return attributes,
            Err(error) => assert_eq!(error, FsError::WouldBlock),
        }
        let (since, parts) = left(client, handle, number).await.unwrap();
        assert_eq!(parts, [extent], "nobody has taken anything of it away");
        generation = since;
    }
}

/// Appends until something else is over; nobody sees anything that is not there.
async fn append_while<T>(
    client: &mut Client,
    handle: &Handle,
    mut open: (u64, u64, u64),
    other: JoinHandle<T>,
) -> T {
    loop {
        let next = place(client, handle, 10).await;
        tell(client, handle, open).await;
        // The next one may be before what the other one makes of the file meanwhile.
        let size = attributes(client, handle).await.unwrap().size;
        assert!(size <= next.2, "{size} is shown, and {next:?} is not there");
        open = next;
        if other.is_finished() {
            return other.await.unwrap();
        }
    }
}

/// One client appends, and another one asks for this; the file as it is told then.
async fn beside_appends(ask: impl FnOnce(&Handle, u64) -> Step) -> Attributes {
    let world = world().await;
    let (mut one, mut two, handle) = two(&world).await;
    let layout = fresh(&mut two, &handle).await;
    let open = place(&mut one, &handle, 10).await;
    let step = ask(&handle, layout.generation);
    let begin = Instant::now();
    let other = tokio::spawn({
        let handle = handle.clone();
        async move {
            let sent = two.send_steps(vec![step]).await;
            let told = answered(&mut two, sent).await.unwrap();
            let time = begin.elapsed();
            let looked = attributes(&mut two, &handle).await.unwrap();
            assert!(looked.size >= told.size, "{looked:?} after {told:?}");
            two.call(&Request::EndSession).await;
            (told, time)
        }
    });
    // It is behind this one.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!other.is_finished());
    let (told, time) = append_while(&mut one, &handle, open, other).await;
    assert!(time < SOON, "it took {time:?}");
    assert!(SOON < APPEND_WAIT_TIME_MAX);
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_writes_behind_the_end_waits_for_no_append_that_is_begun_later() {
    if !is_root() {
        return;
    }
    let extent = Extent::new(FAR, 10);
    let told = beside_appends(|handle, generation| telling(handle, generation, extent, None)).await;
    assert!(told.size >= extent.end(), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_who_makes_a_file_longer() {
    if !is_root() {
        return;
    }
    let told = beside_appends(|handle, _| Step::SetAttributes {
        target: Target::Handle(handle.clone()),
        change: AttributeChange {
            size: Some(FAR),
            ..AttributeChange::default()
        },
        open: None,
    })
    .await;
    assert!(told.size >= FAR, "{told:?}");
}
