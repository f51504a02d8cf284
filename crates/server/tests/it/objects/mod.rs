//! Objects over the wire: steps, tickets, bounds, and what survives.

mod again;
mod bounds;
mod killed;
mod steps;
mod tickets;

use crate::client::{ANSWER_TIME_MAX, Client, frame};
use crate::world::World;
use base::ticket::{Class, Head, ObjectScope, Operations, Slice, Terms, Ticket};
use base::{ClusterId, ObjectId, RequestId, ServerId, StoreId, TicketId, VolumeId};
use bytes::Bytes;
use server::{NewStore, Server};
use std::path::Path;
use std::time::{Duration, Instant};
use store::device::{Capability, DeviceOptions, Direction, FileDevice, MeasuredRate};
use wire::frame::FrameKind;
use wire::message::{
    ObjectBatch, ObjectError, ObjectReply, ObjectRequest, ObjectStep, ObjectStepReply, Reply,
    Request, Settled,
};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const VOLUME: VolumeId = VolumeId([0x11; 16]);

pub(crate) type Results = Vec<Result<ObjectStepReply, ObjectError>>;

/// A store of so many MiB in a file, said to do 256 MiB/s of everything.
pub(crate) fn format(path: &Path, mib: u64) -> StoreId {
    format_as(path, mib, (256 * MIB, &[64 << 10, 1 << 20]))
}

/// The same, said to do so many bytes a second of requests of these sizes.
fn format_as(path: &Path, mib: u64, (rate, sizes): (u64, &[u32])) -> StoreId {
    let mut rates = Vec::new();
    for (direction, write_percent) in [(Direction::Read, 0), (Direction::Write, 100)] {
        for size_bytes in sizes.iter().copied() {
            rates.push(MeasuredRate {
                direction,
                size_bytes,
                depth: 4,
                write_percent,
                low_bytes_per_second: rate,
                median_bytes_per_second: rate / 5 * 6,
                sample_count: 4,
            });
        }
    }
    let capability = Capability {
        allocation_unit_bytes: 256 << 10,
        sample_millis: 60,
        region_bytes: 1 << 30,
        rates,
    };
    let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
    let options = DeviceOptions::default();
    let file = FileDevice::create(path, mib * MIB, options, go_on).unwrap();
    let format = store::Format {
        store: StoreId([0x77; 16]),
        sizes: store::Sizes::for_device(mib * MIB, 256 << 10),
        lifetimes: store::Lifetimes::default(),
        capability: capability.encode(),
    };
    store::Core::format(&file, &format).unwrap();
    format.store
}

/// A cluster whose server has one store.
pub(crate) async fn with_store(mib: u64) -> (World, StoreId) {
    with_formatted(|path| format(path, mib)).await
}

/// A cluster whose server has one store, whose device takes no more than 4 KiB at once.
pub(crate) async fn with_small_pieces(mib: u64) -> (World, StoreId) {
    let sizes = [4096, 64 << 10, 1 << 20];
    with_formatted(|path| format_as(path, mib, (6 * MIB, &sizes))).await
}

async fn with_formatted(format: impl FnOnce(&Path) -> StoreId) -> (World, StoreId) {
    let mut world = World::bare().await;
    drop(world.server.take());
    let path = world.path().join("disk");
    let store = format(&path);
    let new = NewStore {
        path,
        size_bytes: None,
    };
    assert_eq!(Server::add_store(&world.data, &new).unwrap(), store);
    world.start().await;
    (world, store)
}

/// The seconds since 1970 at the server.
pub(crate) fn now(world: &World) -> u64 {
    world.server().storage().now().as_nanos() / 1_000_000_000
}

/// Terms for half of the device, from now on for an hour.
pub(crate) fn terms(world: &World, store: StoreId) -> Terms {
    let now = now(world);
    Terms {
        operations: Operations::READ_WRITE,
        burst_millis: 100,
        start_secs: now,
        end_secs: now + 3600,
        lifetime_end_secs: now + 7200,
        slices: vec![Slice {
            device: store,
            share_ppm: 500_000,
            stripe_unit_bytes: 0,
            au_budget: 100,
        }],
        path: Vec::new(),
    }
}

pub(crate) fn head(id: u8) -> Head {
    Head {
        class: Class::Standard,
        cluster: ClusterId([0; 16]),
        server: ServerId([0; 16]),
        id: TicketId([id; 16]),
        epoch: 5,
        holder: 1000,
        volume: VOLUME,
        key_id: 0,
    }
}

pub(crate) fn issue(world: &World, id: u8, terms: &Terms) -> Ticket {
    world.server().storage().issue(&head(id), terms)
}

/// An object of the volume.
pub(crate) fn object(number: u64) -> ObjectId {
    ObjectScope::new(VOLUME, b"").object(number.to_le_bytes())
}

pub(crate) fn read(number: u64, offset: u64, bytes: u32) -> ObjectStep {
    ObjectStep::Read {
        object: object(number),
        offset,
        bytes,
    }
}

pub(crate) fn write(number: u64, offset: u64, bytes: u32) -> ObjectStep {
    ObjectStep::Write {
        object: object(number),
        offset,
        bytes,
    }
}

pub(crate) fn create(number: u64) -> ObjectStep {
    ObjectStep::Create {
        object: object(number),
        end_secs: None,
    }
}

pub(crate) fn batch(store: StoreId, ticket: Option<u32>, steps: Vec<ObjectStep>) -> Request {
    Request::Object(ObjectRequest::Batch(ObjectBatch {
        store,
        ticket,
        settled: Settled::all_below(RequestId(0)),
        steps,
    }))
}

impl Client {
    /// Sends a batch and does not wait.
    pub(crate) async fn send_batch(
        &mut self,
        store: StoreId,
        ticket: Option<u32>,
        steps: Vec<ObjectStep>,
        payload: Bytes,
    ) -> u64 {
        let id = self.new_id();
        let mut request = frame(FrameKind::Request, id, &batch(store, ticket, steps));
        request.payload = payload.into();
        self.send_frame(request).await;
        id
    }

    /// The whole answer to a batch.
    pub(crate) async fn results(&mut self, id: u64) -> (ObjectReply, Results, Bytes) {
        let (reply, payload) = self.reply(id).await.unwrap();
        let Reply::Object(reply) = reply else {
            panic!("{reply:?}")
        };
        let ObjectReply::Results { results, .. } = &reply else {
            panic!("{reply:?}")
        };
        let results = results.clone();
        (reply, results, payload)
    }

    /// Carries steps out; once more as long as others are to write again first.
    pub(crate) async fn objects(
        &mut self,
        store: StoreId,
        ticket: Option<u32>,
        steps: Vec<ObjectStep>,
        payload: Bytes,
    ) -> (Results, Bytes) {
        let end = Instant::now() + ANSWER_TIME_MAX;
        loop {
            let (steps, payload) = (steps.clone(), payload.clone());
            let (results, payload) = self.objects_now(store, ticket, steps, payload).await;
            if results[..] != [Err(ObjectError::NotYet)] || Instant::now() > end {
                return (results, payload);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The same, asked once.
    pub(crate) async fn objects_now(
        &mut self,
        store: StoreId,
        ticket: Option<u32>,
        steps: Vec<ObjectStep>,
        payload: Bytes,
    ) -> (Results, Bytes) {
        let id = self.send_batch(store, ticket, steps, payload).await;
        let (_, results, payload) = self.results(id).await;
        (results, payload)
    }

    /// One step without payload.
    pub(crate) async fn object_step(
        &mut self,
        store: StoreId,
        ticket: Option<u32>,
        step: ObjectStep,
    ) -> Result<ObjectStepReply, ObjectError> {
        let (mut results, _) = self.objects(store, ticket, vec![step], Bytes::new()).await;
        results.remove(0)
    }

    pub(crate) async fn ask_object(&mut self, request: ObjectRequest) -> ObjectReply {
        match self.call(&Request::Object(request)).await {
            Reply::Object(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn show(&mut self, number: u32, ticket: &Ticket) -> ObjectReply {
        let ticket = ticket.to_bytes();
        self.ask_object(ObjectRequest::OpenTicket { number, ticket })
            .await
    }

    /// Shows a ticket that is good.
    pub(crate) async fn open(&mut self, number: u32, ticket: &Ticket) {
        let reply = self.show(number, ticket).await;
        assert!(matches!(reply, ObjectReply::Ticket { .. }), "{reply:?}");
    }
}
