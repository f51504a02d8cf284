//! Each refusal of a ticket has its reason; what a ticket allows is what can be done with it.

use super::{create, head, issue, now, object, read, terms, with_store, write};
use crate::client::{Client, Mode};
use crate::world::{is_root, new_session};
use base::ticket::{ObjectScope, Operations, Ticket, TicketKey};
use base::{StoreId, TicketId, VolumeId};
use bytes::Bytes;
use reservation::{Interval, Moment};
use server::SpaceRequest;
use wire::message::{
    ConnectionRole, CredentialKind, ObjectError, ObjectReply, ObjectRequest, ObjectStep,
    ObjectStepReply, TicketRefusal as Refusal,
};

async fn refusal(client: &mut Client, ticket: Vec<u8>) -> Refusal {
    let request = ObjectRequest::OpenTicket { number: 9, ticket };
    match client.ask_object(request).await {
        ObjectReply::Failed(ObjectError::Ticket(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_ticket_that_is_worth_nothing_is_refused_with_its_reason() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(32).await;
    let storage = world.server().storage().clone();
    let mut client = world.client().await;
    let (good, now) = (terms(&world, store), now(&world));
    let bytes = issue(&world, 1, &good).to_bytes();
    let mut refuse = async |bytes: &[u8], expected: Refusal| {
        let got = refusal(&mut client, bytes.to_vec()).await;
        // Seconds go on while the test runs.
        match (got, expected) {
            (Refusal::NotYet { seconds }, Refusal::NotYet { seconds: most }) => {
                assert!((1..=most).contains(&seconds), "{seconds}");
            }
            (Refusal::Expired { seconds }, Refusal::Expired { seconds: least }) => {
                assert!(seconds >= least, "{seconds}");
            }
            _ => assert_eq!(got, expected),
        }
    };
    refuse(&bytes[..bytes.len() - 1], Refusal::Truncated).await;
    // What follows head and terms is read as a link as soon as it is longer than a code; a code of
    // chance would be read as anything.
    let terms_end = bytes.len() - 32;
    refuse(
        &[&bytes[..terms_end], &[0; 132]].concat(),
        Refusal::Malformed,
    )
    .await;
    refuse(b"not a ticket at all", Refusal::Malformed).await;
    let altered = |at: usize, by: u8| {
        let mut bytes = bytes.clone();
        bytes[at] ^= by;
        bytes
    };
    refuse(&altered(4, 3), Refusal::UnknownVersion(2)).await;
    refuse(&altered(8, 1), Refusal::OtherCluster).await;
    refuse(&altered(24, 1), Refusal::OtherServer).await;
    refuse(&altered(88, 2), Refusal::UnknownKey(3)).await;
    refuse(&altered(72, 1), Refusal::Forged).await;
    refuse(&altered(bytes.len() - 1, 1), Refusal::Forged).await;
    // As replayed from another server of the cluster, which has a key of its own.
    let theirs = TicketKey::new(1, [9; 32]);
    let other = base::ticket::Head {
        cluster: storage.place().cluster,
        server: base::ServerId([9; 16]),
        ..head(1)
    };
    refuse(
        &Ticket::issue(&theirs, &other, &good).to_bytes(),
        Refusal::OtherServer,
    )
    .await;
    let at = |start, end| base::ticket::Terms {
        start_secs: start,
        end_secs: end,
        ..good.clone()
    };
    let early = issue(&world, 1, &at(now + 500, now + 600)).to_bytes();
    refuse(&early, Refusal::NotYet { seconds: 500 }).await;
    let late = issue(&world, 1, &at(now - 600, now - 500)).to_bytes();
    refuse(&late, Refusal::Expired { seconds: 500 }).await;
    let mut elsewhere = good.clone();
    elsewhere.slices[0].device = StoreId([1; 16]);
    refuse(&issue(&world, 1, &elsewhere).to_bytes(), Refusal::NoSlice).await;
    storage.revoke(&[(TicketId([2; 16]), now + 9999)]).unwrap();
    refuse(&issue(&world, 2, &good).to_bytes(), Refusal::Revoked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_beyond_the_whole_and_tickets_of_an_old_epoch_are_refused() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(32).await;
    let mut client = world.client().await;
    let good = terms(&world, store);
    // Parts: two with the whole share each.
    let whole = issue(&world, 3, &good);
    let part = |id: u8| whole.narrow(TicketId([id; 16]), &good).unwrap();
    client.open(1, &part(1)).await;
    let second = refusal(&mut client, part(12).to_bytes()).await;
    assert_eq!(second, Refusal::Oversplit { room_ppm: 0 });
    world.server().storage().raise_epoch(6).unwrap();
    let old = refusal(&mut client, part(1).to_bytes()).await;
    assert_eq!(old, Refusal::Revoked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_allows_what_it_says_for_as_long_as_it_is_good() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(32).await;
    let storage = world.server().storage().clone();
    let user = world.enrol(CredentialKind::User { uid: 1000 }).await;
    let role = ConnectionRole::Main;
    let mut user = world.client_as(&user, new_session(), role, Mode::Tls).await;
    let mut admin = world.client().await;
    admin.object_step(store, None, create(1)).await.unwrap();
    let good = terms(&world, store);
    let reads = base::ticket::Terms {
        operations: Operations::READ,
        ..good.clone()
    };
    user.open(1, &issue(&world, 1, &reads)).await;
    let ticket = |refusal| Err(ObjectError::Ticket(refusal));
    let nothing = Ok(ObjectStepReply::Data { bytes: 0 });
    assert_eq!(
        user.object_step(store, Some(1), read(1, 0, 10)).await,
        nothing
    );
    let written = user.object_step(store, Some(1), create(2)).await;
    assert_eq!(written, ticket(Refusal::Operation));
    let not_shown = user.object_step(store, Some(7), read(1, 0, 10)).await;
    assert_eq!(not_shown, ticket(Refusal::NotOpen));
    let foreign = ObjectStep::Info {
        object: ObjectScope::new(VolumeId([9; 16]), b"").object([1; 8]),
    };
    let outside = user.object_step(store, Some(1), foreign).await;
    assert_eq!(outside, ticket(Refusal::Scope));
    let under = base::ticket::Terms {
        path: b"runs/42".to_vec(),
        ..good.clone()
    };
    user.open(2, &issue(&world, 2, &under)).await;
    let plain = user.object_step(store, Some(2), read(1, 0, 10)).await;
    assert_eq!(plain, ticket(Refusal::Scope));
    let runs = ObjectScope::new(super::VOLUME, b"runs/42").object([1; 8]);
    let make = |end_secs| ObjectStep::Create {
        object: runs,
        end_secs,
    };
    let long = user.object_step(store, Some(2), make(Some(u64::MAX))).await;
    assert_eq!(long, ticket(Refusal::Lifetime));
    user.object_step(store, Some(2), make(None)).await.unwrap();
    let Ok(ObjectStepReply::Info(info)) = user
        .object_step(store, Some(2), ObjectStep::Info { object: runs })
        .await
    else {
        panic!()
    };
    assert_eq!(info.end_secs, good.lifetime_end_secs);
    let list = ObjectStep::List {
        from: object(0),
        count_max: 9,
    };
    let listed = user.object_step(store, Some(2), list).await;
    assert_eq!(listed, Err(ObjectError::Forbidden));
    // Taken back in the middle of a session.
    let until = good.end_secs + 10;
    storage.revoke(&[(TicketId([1; 16]), until)]).unwrap();
    let revoked = user.object_step(store, Some(1), read(1, 0, 10)).await;
    assert_eq!(revoked, ticket(Refusal::Revoked));
    user.ask_object(ObjectRequest::CloseTicket { number: 1 })
        .await;
    let closed = user.object_step(store, Some(1), read(1, 0, 10)).await;
    assert_eq!(closed, ticket(Refusal::NotOpen));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_is_drawn_from_the_reservation_and_from_each_part() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(32).await;
    let storage = world.server().storage().clone();
    let mut client = world.client().await;
    let mut good = terms(&world, store);
    good.slices[0].au_budget = 8;
    let request = SpaceRequest {
        ticket: TicketId([1; 16]),
        interval: Interval::new(
            Moment::from_secs(good.start_secs),
            Moment::from_secs(good.end_secs),
        )
        .unwrap(),
        aus: 8,
        records: 50,
    };
    storage.confirm_space(store, &request).unwrap();
    let whole = issue(&world, 1, &good);
    let parts = whole
        .split(&[TicketId([1; 16]), TicketId([2; 16])])
        .unwrap();
    client.open(1, &whole).await;
    client.open(2, &parts[0]).await;
    client.open(3, &parts[1]).await;
    let unit: u32 = 256 << 10;
    let data = |units: u32| Bytes::from(vec![7; (units * unit) as usize]);
    let mut put = async |ticket, number, units: u32| {
        let steps = vec![create(number), write(number, 0, units * unit)];
        let (mut results, _) = client
            .objects(store, Some(ticket), steps, data(units))
            .await;
        results.pop().unwrap()
    };
    let budget = Err(ObjectError::Ticket(Refusal::Budget));
    assert_eq!(put(2, 1, 4).await, Ok(ObjectStepReply::Done));
    assert_eq!(put(2, 2, 1).await, budget, "a part has four");
    assert_eq!(put(3, 3, 3).await, Ok(ObjectStepReply::Done));
    assert_eq!(put(1, 4, 1).await, Ok(ObjectStepReply::Done));
    // Nothing is left of the whole, whatever the other part was told.
    assert_eq!(put(3, 5, 1).await, Err(ObjectError::SpaceUsed));
    let used = storage.space_used(store, TicketId([1; 16])).unwrap();
    assert_eq!(used, Some((8, 8)));
    let info = ObjectStep::Info { object: object(1) };
    let Ok(ObjectStepReply::Info(info)) = client.object_step(store, Some(1), info).await else {
        panic!()
    };
    assert!(info.is_reserved && info.end_secs == good.end_secs);
    let record = ObjectRequest::TicketRecord {
        number: 2,
        store,
        from_second: 0,
    };
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let ObjectReply::Record { seconds, total } = client.ask_object(record).await else {
        panic!()
    };
    let moved: u64 = seconds.iter().map(|second| second.bytes).sum();
    assert_eq!((moved, total.bytes), (1 << 20, 1 << 20));
    storage.release_space(store, TicketId([1; 16])).unwrap();
    let gone = client.object_step(store, Some(1), read(1, 0, 1)).await;
    assert!(gone.is_err(), "objects go with their space: {gone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_objects_are_drawn_from_a_part_and_a_rate_alone_gives_none() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(32).await;
    let mut client = world.client().await;
    let mut good = terms(&world, store);
    let until = [good.start_secs, good.end_secs].map(Moment::from_secs);
    let request = SpaceRequest {
        ticket: TicketId([1; 16]),
        interval: Interval::new(until[0], until[1]).unwrap(),
        aus: 2,
        records: 500,
    };
    let storage = world.server().storage().clone();
    storage.confirm_space(store, &request).unwrap();
    good.slices[0].au_budget = 2;
    let parts = issue(&world, 1, &good)
        .split(&[TicketId([1; 16]), TicketId([2; 16])])
        .unwrap();
    client.open(1, &parts[0]).await;
    client.open(2, &parts[1]).await;
    let steps = |numbers: std::ops::Range<u64>| numbers.map(create).collect::<Vec<_>>();
    // A unit of 256 KiB, in blocks of 4 KiB.
    for numbers in [0..32, 32..64] {
        let (made, _) = client
            .objects(store, Some(1), steps(numbers), Bytes::new())
            .await;
        assert!(made.iter().all(Result::is_ok), "{made:?}");
    }
    let budget = Err(ObjectError::Ticket(Refusal::Budget));
    let one_more = client.object_step(store, Some(1), create(64)).await;
    assert_eq!(one_more, budget);
    let again = client.object_step(store, Some(1), create(7)).await;
    assert_eq!(again, Err(ObjectError::Exists));
    let other = client.object_step(store, Some(2), create(64)).await;
    assert_eq!(
        other,
        Ok(ObjectStepReply::Done),
        "the other part has its own"
    );
    // A user alone, with a rate and no space.
    let user = world.enrol(CredentialKind::User { uid: 1000 }).await;
    let role = ConnectionRole::Main;
    let mut user = world.client_as(&user, new_session(), role, Mode::Tls).await;
    good.slices[0].au_budget = 0;
    user.open(1, &issue(&world, 3, &good)).await;
    let made = user.object_step(store, Some(1), create(100)).await;
    assert_eq!(made, budget);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_object_is_paid_for_and_what_failed_is_not() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(32).await;
    let mut client = world.client().await;
    let mut good = terms(&world, store);
    let until = [good.start_secs, good.end_secs].map(Moment::from_secs);
    let request = SpaceRequest {
        ticket: TicketId([1; 16]),
        interval: Interval::new(until[0], until[1]).unwrap(),
        aus: 8,
        records: 500,
    };
    let storage = world.server().storage().clone();
    storage.confirm_space(store, &request).unwrap();
    good.slices[0].au_budget = 8;
    let parts = issue(&world, 1, &good)
        .split(&[TicketId([1; 16]), TicketId([2; 16])])
        .unwrap();
    client.open(1, &parts[0]).await;
    let truncate = |size_bytes| ObjectStep::Truncate {
        object: object(1),
        size_bytes,
    };
    let cut = |number, generation| ObjectStep::CutUnder {
        object: object(number),
        generation,
        size_bytes: 0,
    };
    let done = Ok(ObjectStepReply::Done);
    let budget = Err(ObjectError::Ticket(Refusal::Budget));
    let mut step = async |step| client.object_step(store, Some(1), step).await;
    assert_eq!(step(create(1)).await, done);
    // The part has four units of 256 KiB.
    assert_eq!(step(truncate(1 << 30)).await, budget);
    assert_eq!(step(truncate(256 << 10)).await, done);
    assert_eq!(step(truncate(0)).await, done);
    // What is refused has grown nothing.
    assert_eq!(step(cut(1, 5)).await, done);
    let late = ObjectStep::WriteUnder {
        object: object(1),
        generation: 4,
        offset: 400 << 10,
        bytes: 20 << 10,
    };
    let data = || Bytes::from(vec![7; 20 << 10]);
    for _ in 0..10 {
        let (results, _) = client
            .objects(store, Some(1), vec![late.clone()], data())
            .await;
        assert_eq!(results, [Err(ObjectError::Superseded)]);
    }
    let steps = vec![write(1, 400 << 10, 20 << 10)];
    let (results, _) = client.objects(store, Some(1), steps, data()).await;
    assert_eq!(results, [done]);
    // A user alone, with a rate and no space: there is no way round a budget.
    let user = world.enrol(CredentialKind::User { uid: 1000 }).await;
    let role = ConnectionRole::Main;
    let mut user = world.client_as(&user, new_session(), role, Mode::Tls).await;
    good.slices[0].au_budget = 0;
    user.open(1, &issue(&world, 3, &good)).await;
    let mut step = async |step| user.object_step(store, Some(1), step).await;
    assert_eq!(step(cut(100, 1)).await, Err(ObjectError::Forbidden));
    assert_eq!(step(create(100)).await, budget);
    assert_eq!(step(truncate(1 << 20)).await, budget);
    let gone = ObjectStep::Discard { object: object(1) };
    assert_eq!(step(gone).await, Err(ObjectError::Forbidden));
}
