//! Objects written and read one after another: at the allocation unit, and of other sizes (the
//! paper's Figure 6).

use crate::Cli;
use crate::fio;
use crate::place::{MIB, Place, id, noise, rate};
use crate::report::{Report, median};
use anyhow::{Result, ensure};
use figures::{Chart, Colour, Series};
use std::collections::VecDeque;
use std::time::Instant;
use store::device::AlignedBuffer;
use store::{Store, Terms};

/// Length of the file.
const LEN_BYTES: u64 = 4 << 30;
/// Bytes of one turn.
const TURN_BYTES: u64 = 1 << 30;
/// Bytes of one turn of Figure 6.
const SIZES_BYTES: u64 = 256 << 20;
/// Objects of one turn at most: each of more than a quarter of an allocation unit has its own.
const SIZES_OBJECTS_MAX: u64 = 2048;
/// Requests under way, here and in fio.
const DEPTH: usize = 4;
/// Longest request.
const REQUEST: u64 = MIB;

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let place = Place::new(&cli.directory, LEN_BYTES, cli.unit)?;
    pairs(cli, &place, "", report)?;
    figure6(cli, &place, report)
}

/// The same at the allocation unit, on a loop device.
pub(crate) fn measure_loop(cli: &Cli, report: &mut Report) -> Result<()> {
    let place = Place::new_loop(&cli.directory, LEN_BYTES, cli.unit)?;
    pairs(cli, &place, ", loop device", report)
}

fn pairs(cli: &Cli, place: &Place, whereon: &str, report: &mut Report) -> Result<()> {
    let goal = Some((0.95, "at least 95 % of fio"));
    let (mut ours, mut theirs) = (Pair::default(), Pair::default());
    // Who comes first has what a device allows in a burst after a pause: each comes first as often.
    for turn in 0..cli.repeat as u64 {
        let first = beside(place, cli.unit, TURN_BYTES)?;
        let run = |half| objects(place, cli.unit, TURN_BYTES, 2 * turn + half);
        ours.add(middle(run(0)?, run(1)?));
        theirs.add(middle(first, beside(place, cli.unit, TURN_BYTES)?));
    }
    let unit = format!("{} KiB", cli.unit >> 10);
    let fio = "fio, O_DIRECT, io_uring, QD4";
    report.ratio(
        &format!("objects of {unit} written{whereon}"),
        ("MB/s", &ours.write),
        (fio, &theirs.write),
        goal,
    );
    report.ratio(
        &format!("objects of {unit} read{whereon}"),
        ("MB/s", &ours.read),
        (fio, &theirs.read),
        goal,
    );
    Ok(())
}

#[derive(Default)]
struct Pair {
    write: Vec<f64>,
    read: Vec<f64>,
}

impl Pair {
    fn add(&mut self, (write, read): (f64, f64)) {
        self.write.push(write);
        self.read.push(read);
    }
}

/// Of two runs that take the same bytes: the rate of both together.
fn middle(one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    let both = |one: f64, other: f64| 2.0 / (1.0 / one + 1.0 / other);
    (both(one.0, other.0), both(one.1, other.1))
}

fn beside(place: &Place, block: u64, bytes: u64) -> Result<(f64, f64)> {
    let depth = format!("--iodepth={DEPTH}");
    let write = fio::run(place, "write", block, bytes, &[&depth, "--end_fsync=1"])?;
    let read = fio::run(place, "read", block, bytes, &[&depth])?;
    Ok((write.rate, read.rate))
}

/// Writes new objects of that size, then reads them.
fn objects(place: &Place, size: u64, bytes: u64, seed: u64) -> Result<(f64, f64)> {
    let store = place.fresh()?;
    let data = noise(size as usize, seed + 1);
    let count = bytes / size;
    let begin = Instant::now();
    for number in 0..count {
        store.create(id(number), Terms::Default)?;
        store.write_buffer(id(number), 0, &data)?;
    }
    store.commit()?;
    let written = rate(bytes, begin.elapsed());
    let begin = Instant::now();
    let mut last = AlignedBuffer::new(0);
    let mut under_way = VecDeque::new();
    for number in 0..count {
        for offset in (0..size).step_by(REQUEST as usize) {
            if under_way.len() == DEPTH {
                last = next(&mut under_way)?;
            }
            let len = REQUEST.min(size - offset) as usize;
            under_way.push_back(store.start_read(id(number), offset, len)?);
        }
    }
    while !under_way.is_empty() {
        last = next(&mut under_way)?;
    }
    let read = rate(bytes, begin.elapsed());
    ensure!(data.ends_with(&last), "other bytes were read");
    drop(store);
    Ok((written, read))
}

fn next(under_way: &mut VecDeque<store::Reading>) -> Result<AlignedBuffer> {
    let reading = under_way.pop_front().expect("there is one");
    Ok(reading.wait()?)
}

fn figure6(cli: &Cli, place: &Place, report: &mut Report) -> Result<()> {
    let mut lines = [(); 4].map(|()| Vec::new());
    for shift in 0..=10 {
        let size = (64 << 10) << shift;
        let bytes = SIZES_BYTES.min(SIZES_OBJECTS_MAX * size);
        let (mut ours, mut theirs) = (Pair::default(), Pair::default());
        for turn in 0..cli.repeat.div_ceil(2) {
            theirs.add(beside(place, size.min(4 * MIB), bytes)?);
            ours.add(objects(place, size, bytes, turn as u64)?);
        }
        let figures = [&ours.write, &theirs.write, &ours.read, &theirs.read];
        for (line, figures) in lines.iter_mut().zip(figures) {
            line.push((f64::from(shift), median(figures)));
        }
    }
    let [write, fio_write, read, fio_read] = lines;
    report.chart(Chart {
        title: "Figure 6: size of the object and throughput".into(),
        subtitle: "fio: blocks of that size, of 4 MiB at most".into(),
        x_label: "size of the object".into(),
        x_names: (0..=10)
            .map(|shift| match 64_u64 << shift {
                kib if kib < 1024 => format!("{kib}K"),
                kib => format!("{}M", kib >> 10),
            })
            .collect(),
        y_label: "MB/s".into(),
        series: vec![
            Series::with_dots("write", Colour::Blue, write),
            Series::with_dots("write, fio", Colour::SkyBlue, fio_write),
            Series::with_dots("read", Colour::Vermilion, read),
            Series::with_dots("read, fio", Colour::Orange, fio_read),
        ],
        ..Chart::default()
    });
    Ok(())
}

/// Reads a part of an object with several requests under way; how fast.
pub(crate) fn read_part(store: &Store, number: u64, offset: u64, len: u64) -> Result<f64> {
    let begin = Instant::now();
    let mut under_way = VecDeque::new();
    for at in (offset..offset + len).step_by(REQUEST as usize) {
        if under_way.len() == DEPTH {
            next(&mut under_way)?;
        }
        under_way.push_back(store.start_read(id(number), at, REQUEST as usize)?);
    }
    while !under_way.is_empty() {
        next(&mut under_way)?;
    }
    Ok(rate(len, begin.elapsed()))
}
