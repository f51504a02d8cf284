//! Reads given, fetches expected: one table row per pattern, as the kernel's requests show it.

mod common;

use base::{Extent, ExtentSet, Time};
use common::near::{Client, cached_run, runs, swapped};
use common::{KIB, MIB, READ_BYTES as READ, gigabit_far};
use readahead::Advice;
use std::time::Duration;

const SIZE: u64 = 4000 * MIB;

/// A generator whose numbers are the same on each run.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) % below
    }
}

#[test]
fn sequential_is_known_at_the_first_read_of_a_file_or_the_second_elsewhere() {
    let mut client = Client::new(SIZE);
    client.read(Extent::new(0, READ));
    client.assert_fetched("from the front", Extent::new(READ, READ));

    let mut client = Client::new(SIZE);
    client.read(Extent::new(700 * MIB, READ));
    assert_eq!(client.unread(), 0, "one read in the middle says nothing");
    client.read(Extent::new(700 * MIB + READ, READ));
    client.assert_fetched(
        "from the middle",
        Extent::new(700 * MIB + 2 * READ, 3 * READ),
    );
}

#[test]
fn a_reordered_sequential_reader_is_one_stream_without_waste() {
    let order = [
        0, 2, 1, 4, 5, 3, 9, 6, 7, 8, 11, 10, 12, 17, 13, 14, 15, 16, 18, 19,
    ];
    let mut client = Client::new(SIZE);
    client.read_all(order.map(|at| Extent::new(at * READ, READ)));
    client.assert_fetched("the rest", Extent::new(20 * READ, 8 * READ));
    client.assert_only_within("the rest", &[Extent::new(0, 20 * MIB)]);
    assert_eq!(client.streams.tally().wasted_bytes, 0);
}

#[test]
fn a_stride_is_known_in_its_third_run_and_its_gaps_are_left_out() {
    type Arrange = fn(Vec<Extent>) -> Vec<Extent>;
    // Before the front of a swapped run is there, its end seems to be one request later.
    let arrangements: [(&str, Arrange, u64); 2] =
        [("in order", |reads| reads, 0), ("swapped", swapped, READ)];
    for (name, arrange, slack) in arrangements {
        for (len, step) in [(3 * MIB, 9 * MIB), (MIB, 3 * MIB), (256 * KIB, 5 * MIB)] {
            let mut client = Client::new(SIZE);
            for at in 0..2 {
                client.read_all(arrange(cached_run(at * step, len)));
            }
            client.forget();
            let third = arrange(cached_run(2 * step, len));
            client.read_all(third.iter().copied().take(6));
            let asked = |at: u64| Extent::new(at * step, len + READ);
            let what = format!("{name}, {len} + {}", step - len);
            let rest = Extent::between(2 * step + 6 * READ, asked(2).end());
            client.assert_fetched(&what, rest);
            client.read_all(third.iter().copied().skip(6));
            client.assert_fetched(&what, Extent::new(3 * step, 256 * KIB));
            let allowed: Vec<Extent> = (1..400)
                .map(asked)
                .map(|run| Extent::new(run.offset, run.len + slack))
                .collect();
            client.assert_only_within(&what, &allowed);
        }
    }
}

#[test]
fn a_long_stride_is_fetched_many_runs_ahead() {
    let mut client = Client::new(SIZE);
    for at in 0..12 {
        client.read_all(cached_run(at * 9 * MIB, 3 * MIB));
    }
    for at in 12..17 {
        client.assert_fetched("paper figure 5", Extent::new(at * 9 * MIB, 3 * MIB + READ));
    }
    assert!(client.streams.tally().wasted_bytes + client.unread() < 30 * MIB);
}

#[test]
fn reverse_reading_is_known_at_the_third_read() {
    let top = 1000 * MIB;
    let mut client = Client::new(SIZE);
    client.read_all((1..=3).map(|at| Extent::new(top - at * READ, READ)));
    client.assert_fetched("one request a step", Extent::new(top - 4 * READ, READ));
    client.assert_only_within("one request a step", &[Extent::new(0, top - 3 * READ)]);

    let mut client = Client::new(SIZE);
    let block = |at: u64| (0..8).map(move |read| Extent::new(top - at * MIB + read * READ, READ));
    client.read_all((1..=3).flat_map(block));
    client.assert_fetched("blocks of a megabyte", Extent::new(top - 4 * MIB, MIB));
}

#[test]
fn a_two_level_stride_is_known_in_its_third_outer_turn() {
    let run = |outer: u64, inner: u64| cached_run(outer * 200 * MIB + inner * 4 * MIB, MIB);
    let mut client = Client::new(SIZE);
    for outer in 0..2 {
        (0..5).for_each(|inner| client.read_all(run(outer, inner)));
    }
    client.forget();
    for inner in 0..4 {
        client.read_all(run(2, inner));
    }
    client.assert_fetched("inner", Extent::new(400 * MIB + 16 * MIB, MIB));
    client.assert_fetched("the next outer turn", Extent::new(600 * MIB, MIB));
    client.assert_fetched("the next outer turn", Extent::new(604 * MIB, MIB));
    let planned = |outer: u64| {
        (0..5).map(move |inner| Extent::new(outer * 200 * MIB + inner * 4 * MIB, MIB + READ))
    };
    let allowed: Vec<Extent> = (1..20).flat_map(planned).collect();
    client.assert_only_within("nothing after the fifth inner run", &allowed);
}

#[test]
fn eight_interleaved_readers_are_each_followed() {
    let starts = [3, 17, 90, 41, 800, 1200, 1900, 2500].map(|start| start * MIB);
    let round = |at: u64| starts.map(|start| Extent::new(start + at * READ, READ));
    let mut client = Client::new(SIZE);
    (0..3).for_each(|at| client.read_all(round(at)));
    let known = round(3)
        .iter()
        .filter(|next| client.fetched.overlaps(**next))
        .count();
    // The others are known as well, but may not yet spend more on a guess.
    assert!(known >= 4, "{known} of 8 in the third round");
    (3..6).for_each(|at| client.read_all(round(at)));
    for next in round(6) {
        client.assert_fetched("each goes on", next);
    }
    (6..20).for_each(|at| client.read_all(round(at)));
    for next in round(20) {
        client.assert_fetched("each goes on", Extent::new(next.offset, 4 * READ));
    }
    assert_eq!(client.streams.tally().wasted_bytes, 0);
}

/// As eight readers of one descriptor look behind the kernel: it reads on by itself at the front of
/// the file, so the first reader is a call ahead.
#[test]
fn no_interleaved_reader_is_left_behind() {
    let mut client = Client::new(SIZE);
    let call = |reader: u64, at: u64| {
        let at = at + u64::from(reader == 0 && at > 0);
        Extent::new(reader * 120 * MIB + at * READ, READ)
    };
    client.read_all([Extent::new(0, READ), Extent::new(READ, READ)]);
    client.read_all((1..8).map(|reader| call(reader, 0)));
    (1..12).for_each(|at| client.read_all((0..8).map(|reader| call(reader, at))));
    (0..8).for_each(|reader| client.assert_fetched(&format!("reader {reader}"), call(reader, 12)));
    (12..40).for_each(|at| client.read_all((0..8).map(|reader| call(reader, at))));
    for reader in 0..8 {
        let next = Extent::new(call(reader, 40).offset, 8 * READ);
        client.assert_fetched(&format!("reader {reader}, later"), next);
    }
}

#[test]
fn two_interleaved_strides_are_both_fetched() {
    let call = |reader: u64, at: u64| {
        let (run, within) = (at / 4, at % 4);
        Extent::new(reader * 2000 * MIB + run * 7 * MIB + within * READ, READ)
    };
    let mut client = Client::new(SIZE);
    for at in 0..40 {
        client.read_all([call(0, at), call(1, at)]);
    }
    for reader in 0..2 {
        client.assert_fetched(
            "the next run",
            Extent::new(reader * 2000 * MIB + 70 * MIB, 4 * READ),
        );
    }
}

#[test]
fn runs_that_vary_by_a_tenth_are_fetched_to_nearly_their_end() {
    let mut number = numbers(7);
    let mut client = Client::new(SIZE);
    let mut asked = 0;
    for at in 0..100 {
        let len = (90 + number(21)) * 3 * MIB / 100 / READ * READ;
        asked += len + READ;
        client.read_all(cached_run(at * 9 * MIB, len));
    }
    let tally = client.streams.tally();
    assert!(tally.hit_bytes >= asked * 93 / 100, "{tally:?} of {asked}");
    let wasted = tally.wasted_bytes + tally.unread_bytes;
    assert!(wasted <= asked / 10 + 28 * MIB, "{tally:?} of {asked}");
    client.assert_fetched("the next run", Extent::new(900 * MIB, 27 * MIB / 10));
}

#[test]
fn an_irregular_pass_is_known_when_it_is_repeated() {
    let mut number = numbers(11);
    let pass: Vec<Extent> = (0..60)
        .map(|_| Extent::new(number(SIZE / MIB - 1) * MIB, 2 * READ))
        .collect();
    let mut client = Client::new(SIZE);
    client.read_all(pass.clone());
    client.fetched = ExtentSet::new();
    client.read_all(pass.iter().copied().take(4));
    client.assert_fetched("the second pass", pass[4]);
    client.read_all(pass.iter().copied().skip(4).take(21));
    for next in &pass[25..30] {
        client.assert_fetched("well into the second pass", *next);
    }
}

#[test]
fn a_stride_survives_strays() {
    let mut number = numbers(3);
    let mut client = Client::new(SIZE);
    let mut demanded = 0;
    for at in 0..200 {
        let next = Extent::new(at * 5 * MIB, READ);
        demanded += u64::from(at >= 20 && !client.fetched.covers(next));
        client.read(next);
        if at % 4 == 3 {
            client.read(Extent::new((1200 + number(2000)) * MIB, READ));
        }
    }
    assert!(demanded <= 18, "{demanded} of 180 runs were not foreseen");
}

#[test]
fn a_small_file_is_fetched_whole_after_its_first_read() {
    for size in [READ + 1, 300_000, MIB] {
        let mut client = Client::new(size);
        client.read(Extent::new(0, READ));
        client.assert_fetched("the rest", Extent::between(READ, size));
    }
}

#[test]
fn random_reading_wastes_next_to_nothing() {
    for (seed, size, len) in [(1, SIZE, READ), (2, SIZE, 4 * KIB), (3, 64 * MIB, READ)] {
        let mut number = numbers(seed);
        let mut client = Client::new(size);
        for _ in 0..5000 {
            client.read(Extent::new(number(size / len) * len, len));
        }
        let useful = client.streams.tally().useful_bytes;
        assert!(
            client.unread() * 20 <= useful,
            "{:?}",
            client.streams.tally()
        );
    }
}

#[test]
fn a_seek_cancels_what_is_under_way() {
    let mut client = Client::new(SIZE);
    client.arrives = false;
    client.read_all((0..24).map(|at| Extent::new(at * READ, READ)));
    let under_way = client.streams.tally().unread_bytes;
    assert!(under_way > MIB && client.cancelled.is_empty());
    client.read_all((0..6).map(|at| Extent::new(2000 * MIB + at * READ, READ)));
    assert!(
        client.cancelled.bytes() >= under_way,
        "{:?}",
        runs(&client.cancelled)
    );
    assert_eq!(client.streams.tally().pattern_changes, 1);
}

#[test]
fn unread_data_expires_when_its_reader_stays_away() {
    let mut client = Client::new(SIZE);
    client.read_all((0..24).map(|at| Extent::new(at * READ, READ)));
    let unread = client.streams.tally().unread_bytes;
    let due = client.streams.next_timeout().unwrap();
    assert!(due > client.now + Duration::from_secs(1));
    client.now = due;
    client.fetch();
    assert_eq!(client.cancelled.bytes(), unread);
    assert_eq!(client.streams.next_timeout(), None);
}

#[test]
fn memory_is_given_back_from_the_stream_longest_not_read() {
    let mut client = Client::new(SIZE);
    client.read_all((0..24).map(|at| Extent::new(at * READ, READ)));
    client.read_all((0..3).map(|at| Extent::new(2000 * MIB + at * READ, READ)));
    client.streams.reclaim(MIB);
    client.fetch();
    assert!(client.cancelled.bytes() >= MIB);
    assert!(client.cancelled.iter().all(|run| run.end() <= 1000 * MIB));
}

#[test]
fn hints_are_fetched_first_and_in_their_order() {
    let hints = [900, 30, 2000, 4].map(|at| Extent::new(at * MIB, 700 * KIB));
    let mut client = Client::new(SIZE);
    client.streams.will_read(&hints);
    client
        .streams
        .on_read(Time::ZERO, Extent::new(0, READ), SIZE);
    client.streams.on_demanded(Extent::new(0, READ));
    let next = |client: &mut Client| client.streams.poll_fetch(Time::ZERO, &gigabit_far(), MIB);
    for hint in hints {
        for piece in [
            Extent::new(hint.offset, 512 * KIB),
            Extent::new(hint.offset + 512 * KIB, 188 * KIB),
        ] {
            assert_eq!(next(&mut client).map(|fetch| fetch.extent), Some(piece));
        }
    }
    let guess = next(&mut client).map(|fetch| fetch.extent);
    assert_eq!(guess, Some(Extent::new(READ, READ)));
}

#[test]
fn hinted_data_that_nobody_reads_makes_room_again() {
    let mut client = Client::new(SIZE);
    client.streams.will_read(&[Extent::new(0, 100 * MIB)]);
    client.fetch();
    let before = client.fetched.bytes();
    assert!(
        (14 * MIB..=21 * MIB).contains(&before),
        "one and a half windows: {before}"
    );
    client.streams.reclaim(2 * MIB);
    client.fetch();
    assert!(
        client.cancelled.bytes() >= 2 * MIB,
        "memory pressure takes hinted data too"
    );
    client.now = client.streams.next_timeout().unwrap();
    client.fetch();
    assert!(client.cancelled.bytes() >= before);
    client.fetch();
    assert!(
        client.fetched.bytes() > before,
        "the next hints have their turn"
    );
}

#[test]
fn advice_is_obeyed() {
    let front = |reads: u64| (0..reads).map(|at| Extent::new(at * READ, READ));
    let mut client = Client::new(SIZE);
    client.streams.advise(Advice::Random);
    client.read_all(front(20));
    assert_eq!(client.unread(), 0, "random: nothing on a guess");
    client.streams.advise(Advice::Normal);
    client.read_all(front(20));
    assert!(client.unread() > 0, "normal: detects again");

    let mut client = Client::new(SIZE);
    client.streams.advise(Advice::Sequential);
    client.read(Extent::new(0, READ));
    client.assert_fetched(
        "sequential: from the first read on",
        Extent::new(READ, 7 * MIB),
    );

    client
        .streams
        .advise(Advice::DontNeed(Extent::new(MIB, 3 * MIB)));
    client.forget();
    while let Some(extent) = client.streams.poll_cancel(client.now) {
        client.cancelled.insert(extent);
    }
    assert!(client.cancelled.covers(Extent::new(MIB, 3 * MIB)));
    client
        .streams
        .advise(Advice::WillNeed(Extent::new(100 * MIB, MIB)));
    client.fetch();
    client.assert_fetched("will need", Extent::new(100 * MIB, MIB));
}
