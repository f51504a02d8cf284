//! One decision by a list of 1,000 entries for somebody in 500 groups, and by shorter ones.

use crate::Cli;
use crate::report::{Goal, Report};
use acl::{Ace, Caller, RichAcl, Rights, Target, Who};
use base::Principal;
use figures::Random;
use std::hint::black_box;
use std::time::Instant;

const ENTRIES: u32 = 1_000;
const GROUPS: u32 = 500;
/// Decisions of one figure.
const DECISIONS: u32 = 20_000;
/// Different callers.
const CALLERS: u32 = 16;
const GOAL_NANOS: f64 = 5_000.0;

pub(crate) fn measure(cli: &Cli, report: &mut Report) {
    let named = [
        ("that no entry is for: all are looked at", false),
        ("in the last entry's group", true),
    ];
    for (who, is_last) in named {
        let list = list(is_last);
        let figures: Vec<f64> = (0..cli.repeat as u64)
            .map(|round| nanos(&list, round))
            .collect();
        let what = format!(
            "decision, {ENTRIES} entries, {GROUPS} groups, for somebody {who}, nanoseconds"
        );
        report.row_of_less(&what, &figures, Goal::at_most(GOAL_NANOS, "at most 5 us"));
    }
    let making: Vec<f64> = (0..cli.repeat as u64).map(making).collect();
    let what = format!("preparing a caller with {GROUPS} groups for decisions, nanoseconds");
    report.row_of_less(&what, &making, Goal::none());
}

/// Entries for users and groups that nobody here is or is in, the last maybe for everybody's.
fn list(has_last: bool) -> RichAcl {
    let aces = (0..ENTRIES).map(|entry| {
        let who = match entry % 2 {
            0 => Who::User(1_000_000 + entry),
            _ if has_last && entry == ENTRIES - 1 => Who::Group(200_000),
            _ => Who::Group(1_000_000 + entry),
        };
        Ace::allow(who, Rights::READ_DATA | Rights::EXECUTE)
    });
    RichAcl::new(aces.collect()).expect("it is not too long")
}

fn somebody(seed: u64) -> Principal {
    let mut random = Random::new(seed);
    let groups = (0..GROUPS).map(|group| 200_000 + group * 7 + random.below(7) as u32);
    let groups = groups.chain([200_000]).take(GROUPS as usize);
    Principal::new(70_000 + seed as u32, 70_000, groups.collect())
}

fn nanos(list: &RichAcl, round: u64) -> f64 {
    let people = (0..CALLERS).map(|who| somebody(round * 100 + u64::from(who)));
    let people: Vec<Principal> = people.collect();
    let callers: Vec<Caller<'_>> = people.iter().map(Caller::new).collect();
    let target = Target {
        uid: 1,
        gid: 1,
        is_directory: false,
    };
    let begin = Instant::now();
    for number in 0..DECISIONS {
        let caller = &callers[(number % CALLERS) as usize];
        black_box(list.decide(black_box(caller), &target, Rights::READ_DATA));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(DECISIONS)
}

fn making(round: u64) -> f64 {
    let somebody = somebody(round);
    let begin = Instant::now();
    for _ in 0..DECISIONS {
        black_box(Caller::new(black_box(&somebody)));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(DECISIONS)
}
