//! Ten thousand servers and a million reservations through a year, in virtual time.
//!
//! Each hour the clock goes on, what is over is forgotten, and as many ask as are missing to the
//! million. Nine of ten want one window of some hours within two months; most others a series of
//! days or weeks; one in a hundred all evenings of a year. All of a series is admitted or nothing.
//! Sixteen servers are asked for their room in the first window, and the four with most of it are
//! taken; who is refused tries another sixteen, three times in all.
//!
//! Beside it, everything that was admitted on a few servers is kept in a plain list. Each day the
//! calendars of these servers are held against it, second by second in a sample.

use crate::report::Row;
use crate::times::Times;
use crate::workload::now;
use figures::Random;
use reservation::{Claim, Interval, Ledger, Moment, Refusal};
use std::collections::VecDeque;
use std::time::Instant;

const SERVERS: u64 = 10_000;
const ASKED: u64 = 16;
const WIDTH: usize = 4;
const TRIES: usize = 3;
/// What a server has, in thousandths of its time.
const CAPACITY: u64 = 1000;
const GUARD_SECONDS: u64 = 2;
/// Servers whose reservations are kept in a list besides.
const WATCHED: u32 = 16;
/// Seconds that are looked at for each of them each day.
const LOOKS: u64 = 64;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

type Servers = Ledger<u64, u32>;

/// What the year brought.
#[derive(Default)]
struct Year {
    admissions: Times,
    admitted: u64,
    /// Windows of one server each.
    claims: u64,
    refused: u64,
    checked: u64,
}

/// Runs the year; `count` reservations live at any time.
pub(crate) fn year(count: usize, days: u64, seed: u64) -> anyhow::Result<Vec<Row>> {
    let mut random = Random::new(seed);
    let mut ledger = Servers::new(now());
    for server in 0..SERVERS as u32 {
        ledger.add_resource(server, CAPACITY, GUARD_SECONDS);
    }
    let mut lists: Vec<VecDeque<Claim<u32>>> = vec![VecDeque::new(); WATCHED as usize];
    let mut year = Year::default();
    let begun = Instant::now();
    let (mut next, mut live, mut memory) = (0, 0, 0);
    for hour in 0..=days * 24 {
        let present = now().plus(hour * HOUR);
        ledger.advance(present);
        live -= forget(&mut ledger)?;
        while live < count {
            if let Some(claims) = ask(&mut ledger, next, &mut random, &mut year)? {
                live += 1;
                for claim in claims.iter().filter(|claim| claim.resource < WATCHED) {
                    lists[claim.resource as usize].push_back(*claim);
                }
            }
            next += 1;
        }
        if hour % 24 == 0 {
            memory = memory.max(used(&ledger));
            for (server, list) in (0..).zip(&mut lists) {
                year.checked += check(&ledger, server, list, &mut random)?;
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let rows = vec![
        Row::times("an admission, refused tries included", &mut year.admissions),
        Row::count("reservations admitted", year.admitted),
        Row::count("windows of one server each", year.claims),
        Row::count("asked in vain, three times each", year.refused),
        Row::count(
            "seconds held against a plain list, none different",
            year.checked,
        ),
        Row::memory("memory of all calendars at most", memory),
        Row::seconds("the year took", seconds),
    ];
    Ok(rows)
}

/// Forgets what does not count any more; how many.
fn forget(ledger: &mut Servers) -> anyhow::Result<usize> {
    let over = ledger.now().minus(GUARD_SECONDS);
    let ended: Vec<u64> = ledger.ended_by(over).map(|(_, id)| id).collect();
    for id in &ended {
        ledger.forget(*id)?;
    }
    Ok(ended.len())
}

/// One asks, up to three times; what he got.
fn ask(
    ledger: &mut Servers,
    id: u64,
    random: &mut Random,
    year: &mut Year,
) -> anyhow::Result<Option<Vec<Claim<u32>>>> {
    let windows = windows(ledger.now(), random);
    let amount = 50 + random.below(251);
    let firsts: Vec<u64> = (0..TRIES).map(|_| random.below(SERVERS)).collect();
    let got = year.admissions.time(|| {
        for first in firsts {
            let claims = choose(ledger, first, &windows, amount);
            match ledger.admit(id, &claims) {
                Ok(()) => return Ok(Some(claims)),
                Err(Refusal::Short { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(None)
    })?;
    match &got {
        Some(claims) => {
            year.admitted += 1;
            year.claims += claims.len() as u64;
        }
        None => year.refused += 1,
    }
    Ok(got)
}

/// What somebody wants: windows of one length.
fn windows(present: Moment, random: &mut Random) -> Vec<Interval> {
    let hours = 1 + random.below(8);
    let (start, count, period) = match random.below(100) {
        // Evenings from seven to nine.
        0 => {
            let today = present.as_secs() / DAY * DAY;
            let evening = today + DAY + 19 * HOUR;
            return (0..365)
                .map(|day| window(evening + day * DAY, 2 * HOUR))
                .collect();
        }
        1..10 => {
            let period = [DAY, 7 * DAY][random.below(2) as usize];
            (random.below(30 * DAY), 5 + random.below(26), period)
        }
        _ => (random.below(60 * DAY), 1, DAY),
    };
    let first = present.as_secs() + start;
    (0..count)
        .map(|number| window(first + number * period, hours * HOUR))
        .collect()
}

fn window(start: u64, seconds: u64) -> Interval {
    let [start, end] = [start, start + seconds].map(Moment::from_secs);
    Interval::new(start, end).expect("an hour at least")
}

/// The four of sixteen servers that have most room in the first window, in all windows.
fn choose(ledger: &Servers, first: u64, windows: &[Interval], amount: u64) -> Vec<Claim<u32>> {
    let room = |step: u64| {
        let server = ((first + step * (SERVERS / ASKED)) % SERVERS) as u32;
        let calendar = ledger.calendar(server).expect("it was added");
        (calendar.room(windows[0]), server)
    };
    let mut asked: Vec<_> = (0..ASKED).map(room).collect();
    asked.sort_unstable_by(|a, b| b.cmp(a));
    let of_all = asked[..WIDTH].iter().flat_map(|&(_, resource)| {
        windows.iter().map(move |&interval| Claim {
            resource,
            amount,
            interval,
        })
    });
    of_all.collect()
}

fn used(ledger: &Servers) -> usize {
    let calendars = ledger.calendars();
    calendars.map(|(_, calendar)| calendar.memory_bytes()).sum()
}

/// Holds a calendar against a list, at random seconds of the next two months and where somebody
/// begins. Says how many.
fn check(
    ledger: &Servers,
    server: u32,
    list: &mut VecDeque<Claim<u32>>,
    random: &mut Random,
) -> anyhow::Result<u64> {
    let calendar = ledger.calendar(server).expect("it was added");
    let present = ledger.now();
    list.retain(|claim| calendar.occupied(claim.interval).end() > present);
    for look in 0..LOOKS {
        let second = match list.get(random.below(list.len().max(1) as u64) as usize) {
            Some(claim) if look % 2 == 0 => claim.interval.start().max(present),
            _ => present.plus(random.below(60 * DAY)),
        };
        let at = window(second.as_secs(), 1);
        let counts = |claim: &&Claim<u32>| calendar.occupied(claim.interval).contains(second);
        let taken: u64 = list.iter().filter(counts).map(|claim| claim.amount).sum();
        let said = calendar.peak(at);
        anyhow::ensure!(
            said == taken && taken <= CAPACITY,
            "server {server}, {second}: {said} in the calendar, {taken} in the list"
        );
    }
    Ok(LOOKS)
}
