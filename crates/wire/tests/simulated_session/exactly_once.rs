//! Trouble by seed: connections that break, linger and come back, cut lines, impatient callers.

use crate::client::{Asked, Client, End, What};
use crate::server::Server;
use crate::world::{CLIENT, Event, LANES, SERVER, World};
use base::{Rate, RequestId, Time};
use sim::{Random, Shape};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::frame::Class;
use wire::message::{CompoundReply, Refusal, Reply, StepReply};
use wire::session::InFlight;

const SEEDS: u64 = 3000;
/// The trouble is over after this time; the longest deadline and the longest lock come after it.
const TROUBLE_SECONDS: u64 = 20;
const END: Time = Time::from_secs(200);

/// What the applications do.
enum Act {
    Submit,
    TakeBack,
    Promote,
}

type Troubled = World<Act>;

fn millis(random: &mut Random, below: u64) -> Duration {
    Duration::from_millis(random.below(below))
}

fn shape(random: &mut Random) -> Shape {
    Shape {
        delay: millis(random, 150),
        jitter: millis(random, 40),
        loss: *random.pick(&[0.0, 0.0, 0.02, 0.2]),
        duplication: *random.pick(&[0.0, 0.0, 0.1]),
        rate: Rate(*random.pick(&[300_000, 3_000_000, 100_000_000])),
        // Without congestion control a short queue before a slow line would never drain.
        queue_bytes: *random.pick(&[300_000, u64::MAX]),
    }
}

fn world(seed: u64) -> (Troubled, Random) {
    let mut random = Random::new(seed);
    let connections = random.within(1..5) as usize;
    let cap_bytes = *random.pick(&[1, 20_000, 300_000, 100_000_000]);
    let service_time_max = millis(&mut random, 300);
    let server = Server::new(random.fork(), service_time_max, Duration::from_secs(40));
    let client = Client::new(connections, cap_bytes);
    let shape = shape(&mut random);
    let mut world = World::new(random.fork(), shape, 4000, client, server);
    world.reconnect_time_max = Duration::from_millis(random.within(1..2000));
    let end = Duration::from_secs(TROUBLE_SECONDS);
    let mut at = |random: &mut Random, event| world.agenda.after(random.up_to(end), event);
    for _ in 0..random.below(150) {
        at(&mut random, Event::Test(Act::Submit));
    }
    for _ in 0..random.below(30) {
        at(&mut random, Event::Test(Act::TakeBack));
        at(&mut random, Event::Test(Act::Promote));
    }
    for _ in 0..random.below(20) {
        let slot = random.below(connections as u64) as usize;
        let linger = millis(&mut random, 5000);
        let event = if random.chance(0.5) {
            Event::Reset { slot }
        } else {
            Event::GiveUp { slot, linger }
        };
        at(&mut random, event);
    }
    if random.chance(0.3) {
        at(&mut random, Event::Restart);
    }
    for _ in 0..random.below(3) {
        let one = *random.pick(&LANES);
        let lanes = if random.chance(0.3) {
            vec![one]
        } else {
            LANES.to_vec()
        };
        at(&mut random, Event::Cut(lanes));
        at(&mut random, Event::Heal);
        at(
            &mut random,
            Event::Reshape(self::shape(&mut Random::new(seed))),
        );
    }
    world
        .agenda
        .at(Time::from_secs(TROUBLE_SECONDS), Event::Heal);
    (world, random)
}

fn act(world: &mut Troubled, random: &mut Random, act: &Act) {
    let open = |book: &BTreeMap<RequestId, Asked>, random: &mut Random| {
        let open = book.iter().filter(|(_, asked)| asked.end.is_none());
        let open: Vec<RequestId> = open.map(|(id, _)| *id).collect();
        (!open.is_empty()).then(|| *random.pick(&open))
    };
    match act {
        Act::Submit => submit(world, random),
        Act::TakeBack => {
            if let Some(id) = open(&world.client.book, random) {
                world.client.take_back(world.now, id);
            }
        }
        Act::Promote => {
            if let Some(id) = open(&world.client.book, random) {
                world.client.session.promote(id, Class::Demand);
            }
        }
    }
}

fn submit(world: &mut Troubled, random: &mut Random) {
    let bytes = *random.pick(&[1, 4096, 50_000, 200_000]);
    let what = *random.pick(&[
        What::Read(bytes),
        What::Read(bytes),
        What::Append(bytes),
        What::Append(bytes),
        What::Close,
        What::Lock,
    ]);
    let class = match what {
        What::Read(_) => *random.pick(&[Class::Demand, Class::Prediction, Class::Background]),
        What::Append(_) => Class::Write,
        What::Close | What::Lock => Class::Metadata,
    };
    let patience = *random.pick(&[50, 1000, 5000, 30_000]);
    let patience = (what != What::Lock).then(|| Duration::from_millis(patience));
    world.client.submit(world.now, class, what, patience);
}

/// What must be true of every request when everything is over.
fn check_ends(world: &Troubled) {
    for (id, asked) in &world.client.book {
        let Some((at, end)) = &asked.end else {
            panic!("{id} never ended: {asked:?}");
        };
        let ran = world.server.executed.get(id);
        match end {
            End::Expired => assert!(*at >= asked.deadline, "{id} expired early"),
            End::TakenBack => {}
            End::Answered {
                reply,
                payload_bytes,
            } => {
                assert!(
                    *at <= asked.deadline,
                    "{id} was answered after its time: {asked:?}"
                );
                check_answer(asked.what, reply, *payload_bytes, ran.copied());
            }
        }
    }
}

fn check_answer(what: What, reply: &Reply, payload_bytes: u64, ran: Option<u64>) {
    let results = match reply {
        Reply::Files(CompoundReply { results, .. }) => results,
        // After a restart the server cannot tell; the client can for what only reads.
        Reply::Refused(Refusal::OutcomeUnknown) if !matches!(what, What::Read(_)) => return,
        reply => panic!("{what:?} was answered {reply:?}"),
    };
    match (what, results.as_slice()) {
        (What::Read(asked), [Ok(StepReply::Data { bytes, .. })]) => {
            assert_eq!((*bytes, payload_bytes), (asked, u64::from(asked)));
        }
        // The answer is that of the one time it ran.
        (What::Append(_), [Ok(StepReply::Written { offset, .. })]) => {
            assert_eq!(ran, Some(*offset));
        }
        (What::Close | What::Lock, [Ok(StepReply::Done)]) => assert!(ran.is_some()),
        (what, results) => panic!("{what:?} was answered {results:?}"),
    }
}

/// Counts of what the seeds have brought about, so that a change which makes the worlds peaceful is
/// noticed.
#[derive(Debug, Default)]
struct Trouble {
    answered: usize,
    expired: usize,
    taken_back: usize,
    ran_unheard: usize,
    late_copies: u64,
    kept_replies: u64,
    unknown_outcomes: u64,
    lost_segments: u64,
}

impl Trouble {
    fn count(&mut self, world: &mut Troubled) {
        for (id, asked) in &world.client.book {
            let ran = world.server.executed.contains_key(id);
            match asked.end {
                Some((_, End::Answered { .. })) => self.answered += 1,
                Some((_, End::Expired)) => {
                    self.expired += 1;
                    self.ran_unheard += usize::from(ran);
                }
                Some((_, End::TakenBack)) => self.taken_back += 1,
                None => {}
            }
        }
        self.late_copies += world.server.late_copies;
        self.kept_replies += world.server.kept_replies;
        self.unknown_outcomes += world.server.unknown_outcomes;
        self.lost_segments += world.connections.network().counts(CLIENT, SERVER).lost;
    }
}

/// Every request is answered or expires exactly once and in its time, a request that changes
/// something never runs twice, an answered one ran once, windows and accounts hold at every frame
/// (checked where frames are sent), and in the end nothing is left.
#[test]
fn every_request_ends_once_and_no_change_runs_twice() {
    let command = "cargo test -p wire --test simulated_session every_request";
    let mut trouble = Trouble::default();
    let mut seeds = 0;
    crate::seeds(command, SEEDS).run(|seed| {
        let (mut world, mut random) = world(seed);
        world.run_until(END, |world, event| {
            if let Some(event) = event {
                act(world, &mut random, &event);
            }
        });
        check_ends(&world);
        assert_eq!(world.client.session.in_flight(), InFlight::default());
        assert_eq!(world.client.session.queued_read_bytes(), 0);
        // One more request settles all before it.
        world.client.submit(END, Class::Metadata, What::Close, None);
        world.run_until(END + Duration::from_secs(10), |_, _| {});
        assert_eq!(world.server.remembered(), 1, "replies kept for nobody");
        trouble.count(&mut world);
        seeds += 1;
    });
    if seeds == SEEDS {
        let happened = trouble.answered > 100_000
            && trouble.expired > 10_000
            && trouble.taken_back > 10_000
            && trouble.ran_unheard > 1_000
            && trouble.late_copies > 20
            && trouble.kept_replies > 1_000
            && trouble.unknown_outcomes > 1_000
            && trouble.lost_segments > 10_000;
        println!("{trouble:?}");
        assert!(happened, "these worlds are too peaceful: {trouble:?}");
    }
}

/// A program that waits for a lock is interrupted while the line is cut. The server, where the
/// request waits on, must not grant the lock to somebody who has gone.
#[test]
fn a_lock_taken_back_while_the_line_is_cut_is_never_granted() {
    let command = "cargo test -p wire --test simulated_session a_lock_taken_back";
    crate::seeds(command, 200).run(|seed| {
        let mut random = Random::new(seed);
        let connections = random.within(1..4) as usize;
        let lock_time_max = Duration::from_secs(1000);
        let server = Server::new(random.fork(), Duration::ZERO, lock_time_max);
        let shape = Shape::line(millis(&mut random, 100), Rate(1_000_000));
        let client = Client::new(connections, 1 << 20);
        let mut world: World<()> = World::new(random.fork(), shape, 4000, client, server);
        let id = world
            .client
            .submit(Time::ZERO, Class::Metadata, What::Lock, None);
        world.run_until(Time::from_secs(1), |_, _| {});
        for slot in 0..connections {
            let linger = millis(&mut random, 100_000);
            world
                .agenda
                .after(Duration::ZERO, Event::GiveUp { slot, linger });
        }
        world.run_until(Time::from_secs(1), |_, _| {});
        world.client.take_back(world.now, id);
        world.run_until(Time::from_secs(3), |_, _| {});
        let granted_before = world.server.executed.contains_key(&id);
        world.run_until(Time::from_secs(2000), |_, _| {});
        assert_eq!(world.server.executed.contains_key(&id), granted_before);
    });
}
