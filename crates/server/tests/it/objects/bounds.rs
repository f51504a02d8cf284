//! Who does not read, or asks for too much, takes a bounded part of the server and nobody's turn.

use super::{MIB, batch, create, issue, read, terms, with_small_pieces, with_store, write};
use crate::client::{Client, frame};
use crate::world::is_root;
use base::limits::OBJECT_CONNECTION_BYTES_MAX;
use bytes::Bytes;
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::{ObjectError, ObjectReply, ObjectRequest, Reply, StoreSummary};

/// Requests whose replies nobody reads.
const FLOOD: u64 = 900;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_unread_replies_are_bounded_and_a_reserved_request_passes_them() {
    if !is_root() {
        return;
    }
    let (world, store) = with_store(64).await;
    let mut client = world.client().await;
    let ticket = issue(&world, 1, &terms(&world, store));
    client.open(1, &ticket).await;
    let data = Bytes::from(vec![7; MIB as usize]);
    let steps = vec![create(1), write(1, 0, MIB as u32)];
    let (results, _) = client.objects(store, None, steps, data).await;
    assert!(results.iter().all(Result::is_ok));
    // Many more than its share, on the same connection before one with a ticket.
    let mut flood = Vec::new();
    for _ in 0..FLOOD {
        let id = client.new_id();
        let request = batch(store, None, vec![read(1, 0, MIB as u32)]);
        client
            .connection
            .writer
            .write(frame(FrameKind::Request, id, &request))
            .await
            .unwrap();
        flood.push(id);
    }
    let reserved = client
        .send_batch(store, Some(1), vec![read(1, 0, 1000)], Bytes::new())
        .await;
    // Meanwhile others are served.
    let mut other = world.client().await;
    let (results, payload) = other
        .objects(store, None, vec![read(1, 0, 1000)], Bytes::new())
        .await;
    assert!(results[0].is_ok() && payload.len() == 1000);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (mut served, mut busy, mut before) = (0, 0, None);
    for _ in 0..=flood.len() {
        client.receive().await.unwrap();
        if before.is_none() && client.replies.contains_key(&base::RequestId(reserved)) {
            before = Some(client.replies.len());
        }
    }
    for id in flood {
        match judge(&mut client, id) {
            true => served += 1,
            false => busy += 1,
        }
    }
    let at_once = OBJECT_CONNECTION_BYTES_MAX as u64 / MIB;
    assert!(
        busy > 0 && served >= at_once / 2,
        "{served} served, {busy} refused"
    );
    assert_eq!(served + busy, FLOOD);
    let (_, results, _) = client.results(reserved).await;
    assert!(results[0].is_ok(), "{results:?}");
    let before = before.unwrap() as u64;
    assert!(
        before < FLOOD,
        "it has overtaken replies that were there before it: {before}"
    );
}

impl Client {
    async fn summary(&mut self) -> StoreSummary {
        match self.ask_object(ObjectRequest::Stores).await {
            ObjectReply::Stores(mut stores) => stores.remove(0),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_requests_that_have_found_no_room_for_all_of_their_pieces_nothing_is_read() {
    const BYTES: u32 = 1_000_000;
    if !is_root() {
        return;
    }
    let (world, store) = with_small_pieces(64).await;
    let mut client = world.client().await;
    let steps = vec![create(1), write(1, 0, BYTES)];
    let data = Bytes::from(vec![7; BYTES as usize]);
    let (results, _) = client.objects(store, None, steps, data).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let before = client.summary().await;
    assert_eq!(before.read_piece_bytes, 4096);
    // Far more pieces than may wait; as many bytes as a connection may have.
    let mut asked = Vec::new();
    for _ in 0..32 {
        let id = client.new_id();
        let request = batch(store, None, vec![read(1, 0, BYTES)]);
        let writer = &mut client.connection.writer;
        let frame = frame(FrameKind::Request, id, &request);
        writer.write(frame).await.unwrap();
        asked.push(id);
    }
    client.connection.writer.flush().await.unwrap();
    let (mut served, mut busy) = (0, 0);
    for id in asked {
        let (_, results, payload) = client.results(id).await;
        match results[..] {
            [Ok(_)] => {
                assert!(payload.len() == BYTES as usize && payload.iter().all(|it| *it == 7));
                served += 1;
            }
            [Err(ObjectError::Busy)] => busy += 1,
            _ => panic!("{results:?}"),
        }
    }
    assert!(busy > 0 && served > 0, "{served} served, {busy} refused");
    // The last piece is counted a moment after its bytes are sent.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let read_bytes = client.summary().await.done_bytes[1] - before.done_bytes[1];
    let wasted = read_bytes - served * u64::from(BYTES);
    // What was at the device at that moment.
    assert!(wasted <= 64 << 10, "{wasted} bytes read for nobody");
}

/// Whether a request was served, or refused because there was too much.
fn judge(client: &mut Client, id: u64) -> bool {
    let reply = client.replies.remove(&base::RequestId(id));
    let Some((Reply::Object(ObjectReply::Results { results, .. }), payload)) = reply else {
        panic!("a reply is missing")
    };
    match &results[0] {
        Ok(_) => {
            assert_eq!(payload.len() as u64, MIB);
            true
        }
        Err(ObjectError::Busy) => false,
        Err(other) => panic!("{other}"),
    }
}
