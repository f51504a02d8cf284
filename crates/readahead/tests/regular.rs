//! Whoever reads regularly is known after at most three accesses, whatever the figures: what comes
//! next is fetched, and nothing that is not part of the pattern.
//!
//! It takes longer where one reader's requests out of order look the same: in gaps of 1 MiB and
//! less, and in blocks below 1 MiB, but for single requests, that are read backwards. Patterns of
//! two levels and several readers of one file take longer, too, as `patterns.rs` says.

mod common;

use base::Extent;
use common::near::{Client, cached_run, swapped};
use common::{KIB, MIB, READ_BYTES as READ};
use proptest::prelude::*;

const SIZE: u64 = 40_000 * MIB;
/// Requests from one run to the next that are no requests out of order.
const GAP_MIN: u64 = 10;
/// What is fetched of the next access at least, as soon as it is known.
const HEAD: u64 = 128 * KIB;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_in_sequence_is_known_at_the_second_read(
        at in 0..200_000u64,
        reads in 2..40u64,
        reordered in any::<bool>(),
    ) {
        let begin = at * READ;
        // Two the wrong way round are a reader that goes backwards.
        let count = reads.max(2 + u64::from(reordered));
        let mut reads: Vec<Extent> =
            (0..count).map(|at| Extent::new(begin + at * READ, READ)).collect();
        let end = begin + count * READ;
        if reordered {
            reads = swapped(reads);
        }
        let mut client = Client::new(SIZE);
        client.read_all(reads);
        client.assert_fetched("what follows", Extent::new(end, HEAD));
        client.assert_only_within("what follows", &[Extent::between(begin, SIZE)]);
    }

    #[test]
    fn a_constant_stride_is_known_after_its_third_run(
        at in 0..20_000u64,
        run in 1..40u64,
        gap in GAP_MIN..400,
        more in 0..5u64,
        reordered in any::<bool>(),
    ) {
        let (begin, len, step) = (at * READ, run * READ, (run + gap) * READ);
        let mut client = Client::new(SIZE);
        for number in 0..3 + more {
            if number == 2 {
                client.forget();
            }
            let reads = cached_run(begin + number * step, len);
            client.read_all(if reordered { swapped(reads) } else { reads });
        }
        let next = begin + (3 + more) * step;
        client.assert_fetched("the next run", Extent::new(next, HEAD));
        // With one request beyond each run, as the kernel's own read-ahead makes it; in a swapped
        // run its end seems to be one request later.
        let slack = READ * (1 + u64::from(reordered));
        let runs = (0..=SIZE / step).map(|number| Extent::new(begin + number * step, len + slack));
        client.assert_only_within("nothing between the runs", &runs.collect::<Vec<_>>());
    }

    #[test]
    fn who_reads_backwards_is_known_after_the_third_block(
        top in 10_000..100_000u64,
        block in (1..25u64).prop_filter("see the head", |block| *block == 1 || *block >= 8),
        more in 0..8u64,
    ) {
        let (top, len) = (top * READ, block * READ);
        let mut client = Client::new(SIZE);
        for number in 1..=3 + more {
            if number == 3 {
                client.forget();
            }
            let begin = top - number * len;
            client.read_all((0..block).map(|at| Extent::new(begin + at * READ, READ)));
        }
        let read_down_to = top - (3 + more) * len;
        client.assert_fetched("the block below", Extent::new(read_down_to - len, HEAD));
        client.assert_only_within("above", &[Extent::between(0, top + READ)]);
    }

    #[test]
    fn strides_backwards_are_known_after_the_third_run(
        top in 50_000..100_000u64,
        run in 1..12u64,
        gap in GAP_MIN..200,
    ) {
        let (top, len, step) = (top * READ, run * READ, (run + gap) * READ);
        let mut client = Client::new(SIZE);
        for number in 0..4 {
            if number == 2 {
                client.forget();
            }
            client.read_all(cached_run(top - number * step, len));
        }
        client.assert_fetched("the next run", Extent::new(top - 4 * step, HEAD));
        let runs = (0..=top / step).map(|number| Extent::new(top - number * step, len + READ));
        client.assert_only_within("nothing between the runs", &runs.collect::<Vec<_>>());
    }

    #[test]
    fn two_readers_of_one_file_are_both_followed(
        starts in (0..90_000u64, 100_000..200_000u64),
        rounds in 6..30u64,
    ) {
        let starts = [starts.0 * READ, starts.1 * READ];
        let mut client = Client::new(SIZE);
        for round in 0..rounds {
            client.read_all(starts.map(|start| Extent::new(start + round * READ, READ)));
        }
        for start in starts {
            client.assert_fetched("each goes on", Extent::new(start + rounds * READ, HEAD));
        }
        let both = starts.map(|start| Extent::new(start, 3000 * MIB));
        client.assert_only_within("nothing else", &both);
    }
}
