//! The bounds that hold for every sequence of reads, by any application, on any line.

mod common;

use base::{Extent, ExtentSet, Rate, Time};
use common::{App, GIGABIT, KIB, MIB, Path, READ_BYTES, World, calls_of};
use proptest::prelude::*;
use readahead::{Advice, CREDIT_INITIAL_BYTES, FileStreams, Line, Tally};
use std::time::Duration;

const SIZE: u64 = 600 * MIB;

/// A stretch of an application's life.
fn segment() -> impl Strategy<Value = Vec<Extent>> {
    let position = 0..SIZE / READ_BYTES;
    let jump = position
        .clone()
        .prop_map(|at| vec![Extent::new(at * READ_BYTES, READ_BYTES)]);
    let sequential = (position.clone(), 1..150u64).prop_map(|(at, reads)| {
        calls_of(Extent::new(at * READ_BYTES, reads * READ_BYTES)).collect()
    });
    let reverse = (position.clone(), 1..60u64).prop_map(|(at, reads)| {
        (0..reads.min(at + 1))
            .map(|back| Extent::new((at - back) * READ_BYTES, READ_BYTES))
            .collect()
    });
    let stride =
        (position.clone(), 1..12u64, 1..80u64, 2..30u64).prop_map(|(at, len, gap, runs)| {
            let start = move |run: u64| (at + run * (len + gap)) * READ_BYTES;
            (0..runs)
                .flat_map(|run| calls_of(Extent::new(start(run), len * READ_BYTES)))
                .collect::<Vec<_>>()
        });
    let small = prop::collection::vec((0..SIZE, 1..64 * KIB), 1..30).prop_map(|calls| {
        calls
            .into_iter()
            .map(|(at, len)| Extent::new(at, len))
            .collect()
    });
    let interleaved = (position.clone(), position, 2..60u64).prop_map(|(one, two, reads)| {
        let read = |start: u64, at: u64| Extent::new((start + at) * READ_BYTES, READ_BYTES);
        (0..reads)
            .flat_map(|at| [read(one, at), read(two, at)])
            .collect()
    });
    prop_oneof![4 => jump, 3 => sequential, 1 => reverse, 2 => stride, 1 => small, 1 => interleaved]
}

fn calls() -> impl Strategy<Value = Vec<Extent>> {
    let within = |call: &Extent| call.end() <= SIZE && !call.is_empty();
    prop::collection::vec(segment(), 1..25)
        .prop_map(move |segments| {
            segments
                .into_iter()
                .flatten()
                .filter(within)
                .collect::<Vec<_>>()
        })
        .prop_filter("reads something", |calls| !calls.is_empty())
}

/// The bound of the crate head, with everything unread counted as wasted.
fn assert_bound(tally: Tally, pipe_bytes_max: u64) {
    let spent_bytes = tally.wasted_bytes + tally.unread_bytes;
    let allowed_bytes = tally.useful_bytes / 10
        + pipe_bytes_max * (1 + tally.pattern_changes)
        + CREDIT_INITIAL_BYTES;
    assert!(
        spent_bytes <= allowed_bytes,
        "{tally:?}, a pipe of {pipe_bytes_max}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn waste_is_bounded_for_every_sequence_of_reads(
        calls in calls(),
        rtt_millis in prop::sample::select(vec![0u64, 10, 25, 100]),
        cached in any::<bool>(),
        speed in prop::sample::select(vec![5_000_000u64, 60_000_000, 2_000_000_000]),
    ) {
        let app = App { cached, speed, ..App::new(calls, SIZE) };
        let outcome = World::new(Path::fixed(rtt_millis, GIGABIT), app).run();
        assert_bound(outcome.tally, outcome.pipe_bytes_max);
        // What crossed the line is what was asked on demand and on a guess, and nothing else.
        let tally = outcome.tally;
        let guessed = tally.hit_bytes + tally.wasted_bytes + tally.unread_bytes;
        prop_assert!(outcome.wire_bytes <= tally.useful_bytes - tally.hit_bytes + guessed);
    }

    #[test]
    fn random_reading_wastes_at_most_a_twentieth(
        seeds in prop::collection::vec(0..SIZE / READ_BYTES, 1500),
        rtt_millis in prop::sample::select(vec![0u64, 25, 100]),
        cached in any::<bool>(),
    ) {
        let calls = seeds.iter().map(|at| Extent::new(at * READ_BYTES, READ_BYTES)).collect();
        let app = App { cached, ..App::new(calls, SIZE) };
        let tally = World::new(Path::fixed(rtt_millis, GIGABIT), app).run().tally;
        let spent_bytes = tally.wasted_bytes + tally.unread_bytes;
        prop_assert!(spent_bytes * 20 <= tally.useful_bytes, "{tally:?}");
    }
}

/// Anything a client may do between two reads.
#[derive(Clone, Debug)]
enum Act {
    Read(Extent),
    Poll { window_bytes: u64, room_bytes: u64 },
    Arrive,
    Fail,
    Drop(Extent),
    Reclaim(u64),
    Wait(u64),
    Advise(Advice),
    Hint(Vec<Extent>),
    Resize(u64),
}

fn extent() -> impl Strategy<Value = Extent> {
    (0..80 * MIB, 0..3 * MIB).prop_map(|(at, len)| Extent::new(at, len))
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let read = (0..600u64, 1..8u64)
        .prop_map(|(at, len)| Act::Read(Extent::new(at * READ_BYTES, len * 64 * KIB)));
    let advice = prop_oneof![
        Just(Advice::Normal),
        Just(Advice::Sequential),
        Just(Advice::Random),
        extent().prop_map(Advice::WillNeed),
        extent().prop_map(Advice::DontNeed),
    ];
    let act = prop_oneof![
        8 => read,
        2 => extent().prop_map(Act::Read),
        8 => (1..64u64, 0..20 * MIB)
            .prop_map(|(at, room_bytes)| Act::Poll { window_bytes: at * 256 * KIB, room_bytes }),
        4 => Just(Act::Arrive),
        1 => Just(Act::Fail),
        2 => extent().prop_map(Act::Drop),
        1 => (0..8 * MIB).prop_map(Act::Reclaim),
        1 => (0..20_000u64).prop_map(Act::Wait),
        1 => advice.prop_map(Act::Advise),
        1 => prop::collection::vec(extent(), 0..4).prop_map(Act::Hint),
        1 => (0..90 * MIB).prop_map(Act::Resize),
    ];
    prop::collection::vec(act, 1..200)
}

/// A client that checks each answer against what it knows.
struct Client {
    streams: FileStreams,
    now: Time,
    size: u64,
    /// In flight or held.
    mine: ExtentSet,
    in_flight: Vec<Extent>,
    pipe_bytes_max: u64,
    /// Whether the last act was one after which the client asks what to give up.
    prompt: bool,
    /// Read and not dropped since: must not be given up.
    wanted: ExtentSet,
}

impl Client {
    fn act(&mut self, act: Act) {
        self.prompt = matches!(act, Act::Arrive | Act::Wait(_));
        self.now = self.now + Duration::from_millis(1);
        match act {
            Act::Read(read) => self.read(read),
            Act::Poll {
                window_bytes,
                room_bytes,
            } => self.poll(window_bytes, room_bytes),
            Act::Arrive => {
                for extent in self.in_flight.drain(..) {
                    self.streams.on_fetched(self.now, extent);
                }
            }
            Act::Fail => {
                if let Some(extent) = self.in_flight.pop() {
                    self.drop(extent);
                }
            }
            Act::Drop(extent) => self.drop(extent),
            Act::Reclaim(bytes) => self.streams.reclaim(bytes),
            Act::Wait(millis) => self.now = self.now + Duration::from_millis(millis),
            Act::Advise(advice) => self.streams.advise(advice),
            Act::Hint(extents) => self.streams.will_read(&extents),
            Act::Resize(size) => self.size = size,
        }
        while let Some(extent) = self.streams.poll_cancel(self.now) {
            assert!(
                self.mine.covers(extent),
                "{extent} given up, but never asked for"
            );
            self.mine.remove(extent);
        }
    }

    fn read(&mut self, read: Extent) {
        self.streams.on_read(self.now, read, self.size);
        let within = read.intersection(Extent::new(0, self.size));
        self.wanted.insert(within);
        for missing in self.mine.missing(within) {
            self.streams.on_demanded(missing);
            self.mine.insert(missing);
        }
        self.streams.on_used(self.now, within);
    }

    fn drop(&mut self, extent: Extent) {
        self.streams.on_dropped(extent);
        self.mine.remove(extent);
        self.wanted.remove(extent);
    }

    fn poll(&mut self, window_bytes: u64, room_bytes: u64) {
        let rtt = Duration::from_millis(25);
        let rate = Rate(window_bytes * 30);
        let line = Line {
            rtt,
            rtt_deviation: rtt / 50,
            server_time: Duration::ZERO,
            rate,
            window_bytes,
            extent_bytes: 128 * KIB,
        };
        self.pipe_bytes_max = self
            .pipe_bytes_max
            .max(window_bytes)
            .max(2 * line.bdp_bytes());
        let mut room_bytes = room_bytes;
        while let Some(fetch) = self.streams.poll_fetch(self.now, &line, room_bytes) {
            assert!(!fetch.extent.is_empty() && fetch.extent.len <= line.extent_bytes);
            assert!(fetch.extent.len <= room_bytes, "beyond the room");
            assert!(
                !self.mine.overlaps(fetch.extent),
                "{:?} twice",
                fetch.extent
            );
            room_bytes -= fetch.extent.len;
            self.mine.insert(fetch.extent);
            self.in_flight.push(fetch.extent);
        }
    }
}

/// Reads in order until the stream has earned a deep window, then leaves it, again and again, on a
/// line whose window is more than two BDP: what it left unread must fit the allowance all the same.
fn leave_streams_at_their_deepest(reads_per_stream: &[u64]) -> Tally {
    let window_bytes = 4 * MIB;
    let line = Line {
        rtt: Duration::from_millis(10),
        rtt_deviation: Duration::ZERO,
        server_time: Duration::ZERO,
        rate: Rate(GIGABIT / 10),
        window_bytes,
        extent_bytes: 128 * KIB,
    };
    let size = 100_000 * MIB;
    let mut streams = FileStreams::new();
    let mut now = Time::ZERO;
    for (stream, reads) in (0u64..).zip(reads_per_stream) {
        // Ever longer jumps: no stride to be found.
        let start = stream * stream * 67 * MIB;
        for at in 0..*reads {
            now = now + Duration::from_micros(100);
            let read = Extent::new(start + at * READ_BYTES, READ_BYTES);
            streams.on_read(now, read, size);
            streams.on_demanded(read);
            while let Some(fetch) = streams.poll_fetch(now, &line, 64 * MIB) {
                streams.on_fetched(now, fetch.extent);
            }
            while streams.poll_cancel(now).is_some() {}
            streams.on_used(now, read);
            streams.on_dropped(read);
            assert_bound(streams.tally(), window_bytes);
        }
    }
    streams.tally()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_client_can_bring_the_books_out_of_order(acts in acts()) {
        let mut client = Client {
            streams: FileStreams::new(),
            now: Time::ZERO,
            size: 80 * MIB,
            mine: ExtentSet::new(),
            in_flight: Vec::new(),
            pipe_bytes_max: 0,
            prompt: false,
            wanted: ExtentSet::new(),
        };
        for act in acts {
            client.act(act);
            assert_bound(client.streams.tally(), client.pipe_bytes_max);
        }
    }

    #[test]
    fn streams_left_at_their_deepest_stay_within_the_bound(
        reads_per_stream in prop::collection::vec(20..100u64, 1..35)
    ) {
        leave_streams_at_their_deepest(&reads_per_stream);
    }
}

/// The bound is not met by fetching nothing: the same reader is served ahead of its reads.
#[test]
fn a_reader_that_leaves_is_still_served_ahead() {
    let tally = leave_streams_at_their_deepest(&[300; 30]);
    assert!(tally.hit_bytes * 10 >= tally.useful_bytes * 9, "{tally:?}");
    assert!(tally.pattern_changes >= 25, "{tally:?}");
}
