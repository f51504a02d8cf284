//! A kernel that asks for one request more than each run has, and programs that do or do not want
//! it.

mod common;

use base::{Extent, ExtentSet, Time};
use common::{KIB, MIB, READ_BYTES as READ, gigabit_far};
use proptest::prelude::*;
use readahead::{FileStreams, Verdict};
use std::time::Duration;

const SIZE: u64 = 4000 * MIB;

/// A client on a line that answers at once, and the bytes it asked for.
#[derive(Default)]
struct Client {
    streams: FileStreams,
    now: Time,
    wire_bytes: u64,
    /// Here and not used.
    held: ExtentSet,
    waiting: Vec<Extent>,
    waits: u64,
    /// Refused, each byte at most once.
    refused: ExtentSet,
    refusals: u64,
}

impl Client {
    /// The kernel asks for `read`; `false` if that was refused or waits.
    fn kernel_reads(&mut self, read: Extent) -> bool {
        match self.streams.judge_overshoot(read) {
            Verdict::Serve => {
                self.serve(read);
                true
            }
            Verdict::Wait => {
                self.waits += 1;
                self.waiting.push(read);
                false
            }
            Verdict::Refuse => {
                self.refuse(read);
                false
            }
        }
    }

    fn serve(&mut self, read: Extent) {
        self.now = self.now + Duration::from_millis(1);
        self.streams.on_read(self.now, read, SIZE);
        for missing in self.held.missing(read) {
            self.streams.on_demanded(missing);
            self.wire_bytes += missing.len;
        }
        while let Some(fetch) = self.streams.poll_fetch(self.now, &gigabit_far(), 64 * MIB) {
            self.wire_bytes += fetch.extent.len;
            self.held.insert(fetch.extent);
            self.streams.on_fetched(self.now, fetch.extent);
        }
        self.held.remove(read);
        self.streams.on_dropped(read);
        self.streams.on_used(self.now, read);
        while let Some(extent) = self.streams.poll_cancel(self.now) {
            self.held.remove(extent);
        }
        while let Some(extent) = self.streams.poll_refused() {
            self.waiting.retain(|waiting| *waiting != extent);
            self.refuse(extent);
        }
    }

    fn refuse(&mut self, extent: Extent) {
        assert!(!self.refused.overlaps(extent), "{extent} refused twice");
        self.refused.insert(extent);
        self.refusals += 1;
    }

    /// Time is up for all that waits.
    fn time_passes(&mut self) {
        for extent in std::mem::take(&mut self.waiting) {
            self.streams.on_wanted(extent);
            self.serve(extent);
        }
    }

    /// A program reads `run`; the kernel asks for one request more, and the program does not.
    fn run(&mut self, run: Extent) {
        let mut offset = run.offset;
        while offset < run.end() + READ {
            self.kernel_reads(Extent::new(offset, READ));
            offset += READ;
        }
    }

    /// A program reads `run`, all of it, however it comes.
    fn run_wanted(&mut self, run: Extent) {
        let mut offset = run.offset;
        while offset < run.end() {
            let read = Extent::new(offset, READ);
            if !self.kernel_reads(read) {
                self.time_passes();
                if self.refused.overlaps(read) {
                    assert!(
                        self.kernel_reads(read),
                        "{read} is asked for again and served"
                    );
                }
            }
            offset += READ;
        }
    }
}

/// 8 runs of 512 KiB, 1.5 MiB apart, in each of 64 groups.
fn nested() -> impl Iterator<Item = Extent> {
    (0..64).flat_map(|group| {
        (0..8).map(move |run| Extent::new(group * 16 * MIB + run * 1536 * KIB, 512 * KIB))
    })
}

#[test]
fn the_kernels_overshoot_stays_off_the_line() {
    let mut client = Client::default();
    nested().for_each(|run| client.run(run));
    client.time_passes();
    let useful = nested().map(|run| run.len).sum::<u64>();
    // What it fetched beyond the program's last run is another matter.
    let wire = client.wire_bytes - client.streams.tally().unread_bytes;
    assert!(wire < useful * 101 / 100, "{wire} of {useful}");
    assert!(client.waits - client.refusals <= 2, "mistakes");
    assert!(client.refusals > 480, "{} of 512", client.refusals);
}

#[test]
fn runs_that_are_wanted_to_their_end_seldom_wait() {
    let mut client = Client::default();
    for run in nested() {
        client.run_wanted(Extent::new(run.offset, 640 * KIB));
    }
    assert!(client.waits <= 3, "{} waits", client.waits);
}

#[test]
fn a_run_that_goes_on_is_served_and_learned_anew() {
    let mut client = Client::default();
    let mut runs: Vec<Extent> = nested().collect();
    let later = runs.split_off(256);
    runs.into_iter().for_each(|run| client.run(run));
    let before = client.waits;
    for run in later {
        client.run_wanted(Extent::new(run.offset, 1 << 20));
    }
    assert!(client.waits - before <= 4, "{}", client.waits - before);
}

#[test]
fn what_was_refused_is_fetched_in_one_piece() {
    let mut client = Client::default();
    nested().take(128).for_each(|run| client.run(run));
    let refused = client.refused.iter().last().expect("some were refused");
    let page = Extent::new(refused.offset, 4 * KIB);
    assert_eq!(client.streams.with_refused(page), refused);
    assert!(client.kernel_reads(page) && client.kernel_reads(refused));
}

#[derive(Clone, Debug)]
enum Act {
    Run {
        at: u64,
        pieces: u64,
        overshoots: bool,
    },
    Runs {
        at: u64,
        pieces: u64,
        step: u64,
        count: u64,
    },
    Page {
        at: u64,
    },
    TimePasses,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0..400_u64, 1..8_u64, any::<bool>()).prop_map(|(at, pieces, overshoots)| Act::Run {
            at,
            pieces,
            overshoots
        }),
        (0..400_u64, 2..6_u64, 8..16_u64, 4..24_u64).prop_map(|(at, pieces, step, count)| {
            Act::Runs {
                at,
                pieces,
                step,
                count,
            }
        }),
        (0..12_800_u64).prop_map(|at| Act::Page { at }),
        Just(Act::TimePasses),
    ];
    prop::collection::vec(act, 1..40)
}

proptest! {
    #[test]
    fn no_byte_is_refused_twice_and_all_are_served_when_asked_again(acts in acts()) {
        let mut client = Client::default();
        for act in acts {
            match act {
                Act::Run { at, pieces, overshoots } => {
                    let run = Extent::new(at * READ, pieces * READ);
                    if overshoots { client.run(run) } else { client.run_wanted(run) }
                }
                Act::Runs { at, pieces, step, count } => {
                    for number in 0..count {
                        client.run(Extent::new((at + number * step) * READ, pieces * READ));
                    }
                }
                Act::Page { at } => {
                    client.kernel_reads(Extent::new(at * 4 * KIB, 4 * KIB));
                }
                Act::TimePasses => client.time_passes(),
            }
        }
        client.time_passes();
        let refused: Vec<Extent> = client.refused.iter().collect();
        for extent in refused {
            prop_assert_eq!(client.streams.judge_overshoot(extent), Verdict::Serve);
        }
    }
}
