//! Every step does what it says, and what was committed is there after a restart.

use super::{MIB, create, now, object, read, with_store, write};
use crate::client::{Client, Mode};
use crate::world::{World, is_root, new_session};
use base::{Extent, ObjectId, StoreId, WriteVerifier};
use bytes::Bytes;
use wire::message::{
    ConnectionRole, CredentialKind, ObjectAttribute, ObjectError, ObjectReply, ObjectRequest,
    ObjectStep, ObjectStepReply,
};

fn noise(len: usize, seed: u64) -> Bytes {
    let mut state = seed | 1;
    let byte = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(byte).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_made_written_read_and_kept() {
    if !is_root() {
        return;
    }
    let (mut world, store) = with_store(48).await;
    let mut client = world.client().await;
    let data = noise(MIB as usize, 3);
    // Several pieces, at odd places, in one request and in several.
    let steps = vec![create(1), write(1, 100_001, MIB as u32), ObjectStep::Commit];
    let id = client.send_batch(store, None, steps, data.clone()).await;
    let (reply, results, _) = client.results(id).await;
    assert_eq!(results, vec![Ok(ObjectStepReply::Done); 3]);
    let ObjectReply::Results { verifier, .. } = reply else {
        unreachable!()
    };
    let (results, payload) = client
        .objects(
            store,
            None,
            vec![read(1, 100_001, MIB as u32)],
            Bytes::new(),
        )
        .await;
    assert_eq!(results, [Ok(ObjectStepReply::Data { bytes: MIB as u32 })]);
    assert!(payload == data, "other bytes");
    let (results, payload) = client
        .objects(
            store,
            None,
            vec![
                read(1, MIB, MIB as u32 / 2),
                read(1, 100_001 + MIB - 5, 100),
            ],
            Bytes::new(),
        )
        .await;
    assert_eq!(
        results[1],
        Ok(ObjectStepReply::Data { bytes: 5 }),
        "its end"
    );
    assert_eq!(payload[payload.len() - 5..], data[data.len() - 5..]);
    let append = ObjectStep::Append {
        object: object(1),
        bytes: 5,
    };
    let (results, _) = client
        .objects(store, None, vec![append], Bytes::from_static(b"hello"))
        .await;
    let offset = 100_001 + MIB;
    assert_eq!(results, [Ok(ObjectStepReply::Appended { offset })]);
    records_are_changed(&mut client, store, offset).await;
    what_was_committed_is_there(&mut world, store, verifier).await;
}

/// Steps that change no data, up to one that fails.
async fn records_are_changed(client: &mut Client, store: StoreId, offset: u64) {
    let attribute = ObjectAttribute {
        name: b"kind".to_vec(),
        contents: b"test".to_vec(),
    };
    let steps = vec![
        ObjectStep::SetAttribute {
            object: object(1),
            attribute: attribute.clone(),
        },
        ObjectStep::Attributes { object: object(1) },
        ObjectStep::RemoveAttribute {
            object: object(1),
            name: b"kind".to_vec(),
        },
        ObjectStep::Punch {
            object: object(1),
            hole: Extent::new(offset, 4),
        },
        ObjectStep::Truncate {
            object: object(1),
            size_bytes: offset + 5 - 1,
        },
        read(1, offset, 10),
        ObjectStep::Info { object: object(1) },
        create(2),
        create(1),
        create(3),
    ];
    let (results, payload) = client.objects(store, None, steps, Bytes::new()).await;
    assert_eq!(results[1], Ok(ObjectStepReply::Attributes(vec![attribute])));
    assert_eq!(payload, [0; 4][..], "what was punched reads as zeros");
    let Ok(ObjectStepReply::Info(info)) = results[6] else {
        panic!("{results:?}")
    };
    assert_eq!((info.size_bytes, info.end_secs), (offset + 4, u64::MAX));
    assert_eq!(results.len(), 9, "nothing is done after a failure");
    assert_eq!(results[8], Err(ObjectError::Exists));
    client
        .object_step(store, None, ObjectStep::Commit)
        .await
        .unwrap();
    client.object_step(store, None, create(9)).await.unwrap();
}

async fn what_was_committed_is_there(world: &mut World, store: StoreId, verifier: WriteVerifier) {
    world.restart().await;
    let mut client = world.client().await;
    let list = ObjectStep::List {
        from: ObjectId([0; 16]),
        count_max: 10,
    };
    let id = client
        .send_batch(store, None, vec![list], Bytes::new())
        .await;
    let (reply, results, _) = client.results(id).await;
    let Ok(ObjectStepReply::Objects { list, next: None }) = &results[0] else {
        panic!("{results:?}")
    };
    let there: Vec<_> = list.iter().map(|info| info.object).collect();
    assert!(there.starts_with(&[object(1), object(2)]), "{there:?}");
    let ObjectReply::Results {
        verifier: other, ..
    } = reply
    else {
        unreachable!()
    };
    assert_ne!(verifier, other, "what was not committed may be gone");
    let delete = ObjectStep::Delete { object: object(2) };
    client.object_step(store, None, delete).await.unwrap();
    let gone = client.object_step(store, None, read(2, 0, 1)).await;
    assert_eq!(gone, Err(ObjectError::NotFound));
    let ObjectReply::Stores(stores) = client.ask_object(ObjectRequest::Stores).await else {
        panic!()
    };
    assert_eq!((stores.len(), stores[0].store), (1, store));
    assert!(stores[0].path.ends_with("disk") && !stores[0].is_quick);
    // Nine tenths of what it does: the rest is nobody's to reserve.
    assert_eq!(stores[0].read_bytes_per_second / MIB, 230);
    assert!(stores[0].done[1] > 0 && stores[0].failure.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_of_many_do_not_overwrite_each_other() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(48).await;
    let mut client = world.client().await;
    client.object_step(store, None, create(1)).await.unwrap();
    let (count, len) = (24, 150_000);
    let mut sent = Vec::new();
    for number in 0..count {
        let append = ObjectStep::Append {
            object: object(1),
            bytes: len,
        };
        let data = Bytes::from(vec![number as u8 + 1; len as usize]);
        sent.push(client.send_batch(store, None, vec![append], data).await);
    }
    let mut offsets = Vec::new();
    for id in sent {
        let (_, results, _) = client.results(id).await;
        let Ok(ObjectStepReply::Appended { offset }) = results[0] else {
            panic!("{results:?}")
        };
        offsets.push(offset);
    }
    for (number, offset) in offsets.iter().enumerate() {
        let step = vec![read(1, *offset, len)];
        let (_, payload) = client.objects(store, None, step, Bytes::new()).await;
        assert!(payload.iter().all(|byte| *byte == number as u8 + 1));
    }
    offsets.sort_unstable();
    let expected: Vec<_> = (0..count).map(|at| at * u64::from(len)).collect();
    assert_eq!(offsets, expected);
}

#[tokio::test]
async fn an_administrator_is_told_whether_there_is_space_and_takes_none() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(48).await;
    let mut client = world.client().await;
    let trial = |intervals: &[(u64, u64)], aus| ObjectStep::TrySpace {
        intervals: intervals.to_vec(),
        aus,
        records: 64,
    };
    let later = now(&world) + 1000;
    let ever = (later, u64::MAX);
    let minute = (later, later + 60);
    // It would be there, as often as somebody asks.
    for intervals in [&[minute], &[ever], &[minute]] {
        let there = client.object_step(store, None, trial(intervals, 100)).await;
        assert_eq!(there, Ok(ObjectStepReply::Done));
    }
    let refused = client
        .object_step(store, None, trial(&[minute, ever], 100))
        .await;
    let Err(ObjectError::NoRoom { wanted, room, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(room < wanted && wanted > 100, "{room} of {wanted}");
    let senseless = trial(&[minute, (10, 10)], 1);
    let refused = client.object_step(store, None, senseless).await;
    assert_eq!(refused, Err(ObjectError::Invalid));
    let host = world.enrol(CredentialKind::Host).await;
    let role = ConnectionRole::Main;
    let mut host = world.client_as(&host, new_session(), role, Mode::Tls).await;
    let refused = host.object_step(store, None, trial(&[minute], 1)).await;
    assert_eq!(refused, Err(ObjectError::Forbidden));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused_or_ends_the_connection() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(48).await;
    let mut client = world.client().await;
    client.object_step(store, None, create(1)).await.unwrap();
    let mut refused = async |step, error| {
        assert_eq!(client.object_step(store, None, step).await, Err(error));
    };
    refused(read(1, 0, MIB as u32 + 1), ObjectError::Invalid).await;
    refused(read(1, u64::MAX, 2), ObjectError::TooLong).await;
    let system = ObjectStep::Delete {
        object: ObjectId(*b"\0azk............"),
    };
    refused(system, ObjectError::Forbidden).await;
    let long = ObjectStep::Truncate {
        object: object(1),
        size_bytes: u64::MAX,
    };
    refused(long, ObjectError::TooLong).await;
    let confirm = ObjectStep::ConfirmSpace {
        ticket: base::TicketId([1; 16]),
        start_secs: 10,
        end_secs: 10,
        aus: 1,
        records: 1,
    };
    refused(confirm, ObjectError::Invalid).await;
    let other = base::StoreId([0; 16]);
    let nowhere = client.object_step(other, None, create(1)).await;
    assert_eq!(nowhere, Err(ObjectError::UnknownStore));
    let (results, _) = client.objects(store, None, vec![], Bytes::new()).await;
    assert!(results.is_empty());
    // A user has what tickets give him, and a machine no administration.
    let host = world.enrol(CredentialKind::Host).await;
    let role = ConnectionRole::Main;
    let mut host = world.client_as(&host, new_session(), role, Mode::Tls).await;
    assert!(host.object_step(store, None, read(1, 0, 1)).await.is_ok());
    let confirm = ObjectStep::ReleaseSpace {
        ticket: base::TicketId([1; 16]),
    };
    let forbidden = Err(ObjectError::Forbidden);
    assert_eq!(host.object_step(store, None, confirm).await, forbidden);
    let user = world.enrol(CredentialKind::User { uid: 1000 }).await;
    let mut user = world.client_as(&user, new_session(), role, Mode::Tls).await;
    assert_eq!(
        user.object_step(store, None, read(1, 0, 1)).await,
        forbidden
    );
    let ObjectReply::Stores(stores) = user.ask_object(ObjectRequest::Stores).await else {
        panic!()
    };
    assert_eq!(stores[0].path, "", "paths are the administrator's");
    // A payload that nobody announced.
    let id = client
        .send_batch(
            store,
            None,
            vec![write(1, 0, 3)],
            Bytes::from_static(b"four"),
        )
        .await;
    assert!(client.reply(id).await.is_err());
    assert!(now(&world) > 0);
}
