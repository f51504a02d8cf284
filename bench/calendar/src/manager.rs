//! What a manager does: of sixteen devices the four with most room, then all four or none.

use crate::report::Row;
use crate::times::Times;
use crate::workload::{amount, interval, now};
use figures::Random;
use reservation::{Claim, Interval, Ledger};
use std::time::Instant;

const DEVICES: u64 = 64;
const ASKED: u64 = 16;
const WIDTH: usize = 4;
const CAPACITY: u64 = 1 << 31;
/// Windows below this, and of `LONG_SECONDS` or more, are told apart: what an admission costs is
/// not to depend on how long the window is.
const SHORT_SECONDS: u64 = 3_600;
const LONG_SECONDS: u64 = 86_400;

type Devices = Ledger<u64, u32>;

/// Admissions through the ledger, and the ledger made anew from its records.
pub(crate) fn admissions(count: usize, operations: usize, seed: u64) -> anyhow::Result<Vec<Row>> {
    let mut random = Random::new(seed);
    let mut ledger = empty();
    for id in 0..count as u64 {
        let (interval, amount) = (interval(&mut random), amount(&mut random));
        let claims = choose(&ledger, interval, amount, random.below(DEVICES));
        ledger.admit(id, &claims)?;
    }
    let [mut admissions, mut withdrawals] = [Times::default(), Times::default()];
    let [mut short, mut long] = [Times::default(), Times::default()];
    let start = Instant::now();
    for oldest in 0..operations as u64 {
        let id = count as u64 + oldest;
        let (interval, amount) = (interval(&mut random), amount(&mut random));
        let first = random.below(DEVICES);
        admissions.time(|| {
            let claims = choose(&ledger, interval, amount, first);
            ledger.admit(id, &claims)
        })?;
        match interval.duration_seconds() {
            Some(seconds) if seconds < SHORT_SECONDS => short.count_last_of(&admissions),
            Some(seconds) if seconds < LONG_SECONDS => {}
            _ => long.count_last_of(&admissions),
        }
        withdrawals.time(|| ledger.withdraw(oldest))?;
    }
    let per_second = operations as f64 / start.elapsed().as_secs_f64();
    let memory: usize = ledger
        .calendars()
        .map(|(_, calendar)| calendar.memory_bytes())
        .sum();

    let start = Instant::now();
    let mut anew = empty();
    for (id, claims) in ledger.reservations() {
        anew.restore(id, claims)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    anyhow::ensure!(anew == ledger, "the ledger made anew is another one");
    Ok(vec![
        Row::times(
            "4 of 16 devices by most room, admitted together",
            &mut admissions,
        ),
        Row::times("of these, windows below an hour", &mut short),
        Row::times("of these, windows of a day or more", &mut long),
        Row::times("the same withdrawn", &mut withdrawals),
        Row::rate("admissions and withdrawals, pairs a second", per_second),
        Row::memory("64 devices, 4 wide: memory of all calendars", memory),
        Row::seconds("64 devices, 4 wide: ledger made anew", seconds),
    ])
}

fn empty() -> Devices {
    let mut ledger = Ledger::new(now());
    for device in 0..DEVICES as u32 {
        ledger.add_resource(device, CAPACITY, 2);
    }
    ledger
}

fn choose(ledger: &Devices, interval: Interval, amount: u64, first: u64) -> Vec<Claim<u32>> {
    let room = |step: u64| {
        let device = ((first + step * (DEVICES / ASKED)) % DEVICES) as u32;
        let calendar = ledger.calendar(device).expect("it was added");
        (calendar.room(interval), device)
    };
    let mut asked: Vec<_> = (0..ASKED).map(room).collect();
    asked.sort_unstable_by(|a, b| b.cmp(a));
    let claim = |&(_, resource): &(u64, u32)| Claim {
        resource,
        amount,
        interval,
    };
    asked[..WIDTH].iter().map(claim).collect()
}
