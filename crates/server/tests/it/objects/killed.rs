//! A server that is killed at any moment: what was committed with a ticket is there.

use super::{create, issue, object, read, terms, with_store, write};
use crate::client::{Client, Mode};
use crate::world::{World, is_root, new_session};
use base::{ObjectId, StoreId, TicketId};
use bytes::Bytes;
use reservation::{Interval, Moment};
use server::{Server, ServerConfig, SpaceRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::message::{ConnectionRole, ObjectStep, ObjectStepReply};

const DATA: &str = "AZEKURA_TEST_KILLED_DATA";
const ROUNDS: u64 = 3;
/// What is committed in a round before its kill, so that there is something to lose.
const ROUND_COMMITS_MIN: u64 = 7;
/// Nothing here takes longer.
const WORK_TIME_MAX: Duration = Duration::from_secs(60);
const LENGTH: u32 = 64 << 10;

/// Not a test of its own: the server that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_works_until_it_is_killed() {
    let Some(data) = std::env::var_os(DATA) else {
        return;
    };
    let config = ServerConfig {
        plain: true,
        ..ServerConfig::new(PathBuf::from(data), "127.0.0.1:0".parse().unwrap())
    };
    let server = Server::start(config).await.unwrap();
    println!("\nlistening {}", server.address());
    tokio::time::sleep(Duration::from_secs(60)).await;
}

fn begin(world: &World) -> (Child, std::net::SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("objects::killed::a_server_works_until_it_is_killed")
        .env(DATA, &world.data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        let address = line.strip_prefix("listening ")?;
        Some(address.parse().unwrap())
    });
    (child, address.expect("it listens"))
}

/// What an object has if its version is this one.
fn contents(number: u64, version: u64) -> Bytes {
    let word = (number << 32 | version).to_le_bytes();
    word.iter().copied().cycle().take(LENGTH as usize).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_acknowledged_and_committed_is_lost() {
    if !is_root() {
        return;
    }
    let (mut world, store) = with_store(48).await;
    let good = terms(&world, store);
    let request = SpaceRequest {
        ticket: TicketId([1; 16]),
        interval: Interval::new(
            Moment::from_secs(good.start_secs),
            Moment::from_secs(good.end_secs),
        )
        .unwrap(),
        aus: 60,
        records: 100,
    };
    let storage = world.server().storage().clone();
    storage.confirm_space(store, &request).unwrap();
    let ticket = issue(&world, 1, &good);
    drop(storage);
    drop(world.server.take());
    // By object: the version that was committed, and the last that was begun.
    let mut said: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut commits = 0;
    let (session, role) = (new_session(), ConnectionRole::Main);
    for round in 0..ROUNDS {
        let (mut child, address) = begin(&world);
        let mut client = Client::connect(address, &world.admin, session, role, Mode::Tls)
            .await
            .unwrap();
        client.open(1, &ticket).await;
        judge(&mut client, store, &said).await;
        let end = Instant::now() + Duration::from_millis(150 + 100 * round);
        // In the middle of the work, on machines of any speed.
        let (done, seen) = tokio::sync::watch::channel(0);
        let killer = tokio::spawn(async move {
            tokio::time::sleep_until(end.into()).await;
            let mut seen = seen;
            let enough = seen.wait_for(|commits| *commits >= ROUND_COMMITS_MIN);
            tokio::time::timeout(WORK_TIME_MAX, enough)
                .await
                .expect("commits in time")
                .unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        });
        commits += work(&mut client, store, round, &mut said, &done).await;
        killer.await.unwrap();
    }
    world.start().await;
    let mut client = world.client().await;
    client.open(1, &ticket).await;
    judge(&mut client, store, &said).await;
    assert!(commits > 20, "only {commits}");
    let used = world
        .server()
        .storage()
        .space_used(store, TicketId([1; 16]));
    assert!(
        matches!(used, Ok(Some((60, 1..=60)))),
        "the reservation is there"
    );
}

/// Writes and commits until the server is gone; says how often.
async fn work(
    client: &mut Client,
    store: StoreId,
    round: u64,
    said: &mut BTreeMap<u64, (u64, u64)>,
    done: &tokio::sync::watch::Sender<u64>,
) -> u64 {
    let (mut version, mut commits) = (round * 1_000_000, 0);
    // A creation without an answer may have been done or not.
    let is_there = |(number, (done, _)): (&u64, &(u64, u64))| (*done > 0).then_some(*number);
    let mut there: BTreeSet<u64> = said.iter().filter_map(is_there).collect();
    loop {
        version += 1;
        let number = version % 7;
        let is_new = !there.contains(&number);
        let known = said.entry(number).or_default();
        known.1 = version;
        let mut steps = if is_new { vec![create(number)] } else { vec![] };
        steps.extend([write(number, 0, LENGTH), ObjectStep::Commit]);
        let id = client
            .send_frame_quietly(store, Some(1), steps, contents(number, version))
            .await;
        let Some(id) = id else { return commits };
        let Ok((reply, _)) = client.reply(id).await else {
            return commits;
        };
        let wire::message::Reply::Object(wire::message::ObjectReply::Results { results, .. }) =
            reply
        else {
            panic!("{reply:?}")
        };
        if is_new && results[0] == Err(wire::message::ObjectError::Exists) {
            there.insert(number);
            continue;
        }
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        said.insert(number, (version, version));
        there.insert(number);
        commits += 1;
        done.send_replace(commits);
    }
}

impl Client {
    /// As `send_batch`, to a server that may be gone.
    async fn send_frame_quietly(
        &mut self,
        store: StoreId,
        ticket: Option<u32>,
        steps: Vec<ObjectStep>,
        payload: Bytes,
    ) -> Option<u64> {
        let id = self.new_id();
        let request = super::batch(store, ticket, steps);
        let mut frame = crate::client::frame(wire::frame::FrameKind::Request, id, &request);
        frame.payload = payload.into();
        let writer = &mut self.connection.writer;
        writer.write(frame).await.ok()?;
        writer.flush().await.ok()?;
        Some(id)
    }
}

/// Every object has what was committed last, or what was begun after that.
async fn judge(client: &mut Client, store: StoreId, said: &BTreeMap<u64, (u64, u64)>) {
    for (number, (done, begun)) in said {
        let step = vec![read(*number, 0, LENGTH)];
        let (results, payload) = client.objects(store, Some(1), step, Bytes::new()).await;
        let object: ObjectId = object(*number);
        if *done == 0 {
            continue;
        }
        assert_eq!(
            results,
            [Ok(ObjectStepReply::Data { bytes: LENGTH })],
            "{object}"
        );
        let versions = [*done, *begun].map(|version| contents(*number, version));
        // 64 KiB are sixteen pieces of a small write: each is the old one or the new one.
        let is_one = payload
            .chunks(4096)
            .zip(versions[0].chunks(4096).zip(versions[1].chunks(4096)))
            .all(|(there, (old, new))| there == old || there == new);
        assert!(is_one, "{object}: neither {done} nor {begun}");
    }
}
