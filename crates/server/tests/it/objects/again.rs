//! A server that has begun anew: what its stores have lost is read when it has been written again.

use super::{Results, create, object, read, with_store, write};
use crate::client::{Client, Mode, hello};
use crate::world::{World, is_root, new_session};
use base::limits::LEASE_TIME;
use base::{SessionId, StoreId};
use bytes::Bytes;
use std::time::{Duration, Instant};
use wire::message::{
    ConnectionRole, Features, Notice, ObjectError, ObjectStep, ObjectStepReply, Request, SeekWhat,
};

const OLD: &[u8] = b"old";
const NEW: &[u8] = b"new";
const REFUSED: [Result<ObjectStepReply, ObjectError>; 1] = [Err(ObjectError::NotYet)];

/// A server that was ended and started again after this session had written, and what it wrote last
/// was not committed.
async fn begun_anew(writer: SessionId) -> (World, StoreId) {
    let (mut world, store) = with_store(48).await;
    let mut client = main(&world, writer).await;
    for (steps, data) in [
        (vec![create(1), write(1, 0, 3), ObjectStep::Commit], OLD),
        (vec![write(1, 0, 3)], NEW),
    ] {
        let (results, _) = client
            .objects(store, None, steps, Bytes::from_static(data))
            .await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    drop(client);
    world.restart().await;
    (world, store)
}

async fn main(world: &World, session: SessionId) -> Client {
    let role = ConnectionRole::Main;
    let admin = world.admin.clone();
    world.client_as(&admin, session, role, Mode::Tls).await
}

async fn look(client: &mut Client, store: StoreId) -> (Results, Bytes) {
    let steps = vec![read(1, 0, 10)];
    client.objects_now(store, None, steps, Bytes::new()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_has_lost_is_read_when_its_writer_has_written_it_again() {
    if !is_root() {
        return;
    }
    let session = new_session();
    let (world, store) = begun_anew(session).await;
    let mut reader = main(&world, new_session()).await;
    assert_eq!(look(&mut reader, store).await.0, REFUSED);
    let holes = ObjectStep::Seek {
        object: object(1),
        offset: 0,
        what: SeekWhat::Hole,
    };
    let sought = vec![holes];
    let (sought, _) = reader.objects_now(store, None, sought, Bytes::new()).await;
    assert_eq!(sought, REFUSED);
    // What does not read is carried out: the writer is not to wait for anybody.
    let commit = reader.object_step(store, None, ObjectStep::Commit).await;
    assert_eq!(commit, Ok(ObjectStepReply::Done));
    let mut writer = main(&world, session).await;
    writer.obeys = false;
    writer.receive().await.unwrap();
    let [Notice::WriteAgain { id }] = writer.notices[..] else {
        panic!("{:?}", writer.notices);
    };
    assert_eq!(look(&mut reader, store).await.0, REFUSED, "it is at it");
    assert_eq!(look(&mut writer, store).await.0, REFUSED, "so for all");
    let (again, new) = (vec![write(1, 0, 3)], Bytes::from_static(NEW));
    let (again, _) = writer.objects_now(store, None, again, new).await;
    assert_eq!(again, [Ok(ObjectStepReply::Done)]);
    assert_eq!(look(&mut reader, store).await.0, REFUSED, "not all of it");
    writer.call(&Request::RecallDone(id)).await;
    for client in [&mut reader, &mut writer] {
        let (results, data) = look(client, store).await;
        assert_eq!(results, [Ok(ObjectStepReply::Data { bytes: 3 })]);
        assert_eq!(data, NEW);
    }
    // It is asked once.
    let mut writer = main(&world, session).await;
    writer.call(&Request::Ping).await;
    assert!(writer.notices.is_empty(), "{:?}", writer.notices);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_does_not_come_back_is_waited_for_as_long_as_for_a_lease() {
    if !is_root() {
        return;
    }
    let (world, store) = begun_anew(new_session()).await;
    let begun = Instant::now();
    let mut reader = main(&world, new_session()).await;
    // An older client would not understand: it has what there is, as before.
    let mut older = hello(new_session(), ConnectionRole::Main);
    older.features = Features::AFTER;
    let address = world.server().address();
    let older = Client::greet(address, &world.admin, &older, Mode::Tls).await;
    let (results, _) = look(&mut older.unwrap(), store).await;
    assert!(results[0].is_ok(), "{results:?}");
    let refused = begun.elapsed() + Duration::from_millis(500);
    assert!(refused < LEASE_TIME, "the machine is too slow for this");
    assert_eq!(look(&mut reader, store).await.0, REFUSED);
    while look(&mut reader, store).await.0 == REFUSED {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let waited = begun.elapsed();
    let bounds = [LEASE_TIME / 2, LEASE_TIME + Duration::from_secs(4)];
    assert!(waited > bounds[0] && waited < bounds[1], "{waited:?}");
    let (results, data) = look(&mut reader, store).await;
    assert_eq!(results, [Ok(ObjectStepReply::Data { bytes: 3 })]);
    assert!(data == OLD || data == NEW, "{data:?}");
}

/// Nothing is lost by that, and nobody waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_server_that_ended_in_order_everything_is_read_at_once() {
    if !is_root() {
        return;
    }
    let (mut world, store) = with_store(48).await;
    let mut writer = main(&world, new_session()).await;
    let steps = vec![create(1), write(1, 0, 3)];
    let new = Bytes::from_static(NEW);
    let (results, _) = writer.objects(store, None, steps, new).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    world.server.take().unwrap().shutdown().await;
    world.start().await;
    let mut reader = main(&world, new_session()).await;
    let (results, data) = look(&mut reader, store).await;
    assert_eq!(results, [Ok(ObjectStepReply::Data { bytes: 3 })]);
    assert_eq!(data, NEW);
}
