//! Appends of 16 MiB, each durable, to one object or each to another one, and reading them in the
//! same order (the paper's Figures 7 and 8).
//!
//! A device is not equally fast for half a minute. So each of the first and of the last appends has
//! one to a new object beside it, and these pairs are what is compared.
//!
//! Beside them the naive record of an object: its extents and a checksum of 8 bytes for each 4 KiB,
//! written whole at every commit, as EBOFS did. It has the same data, the same requests and the
//! same number of flushes; only its record grows with the object.

use crate::Cli;
use crate::place::{MIB, Place, id, noise, rate};
use crate::report::{Report, median};
use crate::stream::read_part;
use anyhow::Result;
use figures::{Chart, Colour, Series};
use std::time::Instant;
use store::device::{AlignedBuffer, Queue, Request, Ring};
use store::{Store, Terms};

const APPEND: u64 = 16 * MIB;
/// Appends that are compared at the beginning and the end.
const EDGE: usize = 64;

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let count = cli.appends;
    let place = Place::new(
        &cli.directory,
        (count + 2 * EDGE as u64) * APPEND + count * APPEND / 16 + (1 << 30),
        cli.unit,
    )?;
    let data = noise(APPEND as usize, 3);
    let naive = naive(&place, &data, count)?;
    let (mut kept, mut shares) = (Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..cli.repeat {
        let store = place.fresh()?;
        let before = store.status().written_bytes;
        let (one, pairs) = write_beside_new(&store, &data, count)?;
        store.checkpoint()?;
        let written = store.status().written_bytes - before;
        kept.push(edges(&pairs));
        let data_bytes = (count + pairs.len() as u64) * APPEND;
        shares.push((written - data_bytes) as f64 / data_bytes as f64);
        let reads = reads(&store, count, |_| 0)?;
        store.stop()?;
        last = Some((one, reads));
    }
    let store = place.fresh()?;
    let many = write_many(&store, &data, count)?;
    let many_reads = reads(&store, count, |number| number + 1)?;
    store.stop()?;
    let (one, one_reads) = last.expect("it was measured at least once");
    report.share(
        &format!(
            "{count} appends of 16 MiB to one object, beside new ones: last {EDGE} against first"
        ),
        &kept,
        Some((0.98, "at least 98 %")),
    );
    report.share("the same with a naive record", &[edges(&naive)], None);
    report.share_at_most(
        "records written for the appends, of the data",
        &shares,
        0.001,
    );
    report_charts(report, [&one, &many, &naive], [&one_reads, &many_reads]);
    Ok(())
}

fn report_charts(
    report: &mut Report,
    [one, many, naive]: [&[f64]; 3],
    [one_reads, many_reads]: [&[f64]; 2],
) {
    let chart = |title: &str, x_label: &str, lines: &[(&str, Colour, &[f64])]| Chart {
        title: title.into(),
        subtitle: "each point is the median of 16".into(),
        x_label: x_label.into(),
        y_label: "MB/s".into(),
        series: lines
            .iter()
            .map(|(name, colour, rates)| Series::without_dots(name, *colour, smoothed(rates)))
            .collect(),
        ..Chart::default()
    };
    report.chart(chart(
        "Figure 7: writing in sequence, 16 MiB at a time, each durable",
        "append",
        &[
            ("one object", Colour::Blue, one),
            ("many objects", Colour::Green, many),
            ("naive record", Colour::Vermilion, naive),
        ],
    ));
    report.chart(chart(
        "Figure 8: reading in sequence, 16 MiB at a time",
        "read",
        &[
            ("one object", Colour::Blue, one_reads),
            ("many objects", Colour::Green, many_reads),
        ],
    ));
}

/// Rates of appends to one object, and what the first and the last of them are of those of appends
/// to a new object right after each.
fn write_beside_new(
    store: &Store,
    data: &AlignedBuffer,
    count: u64,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let edge = (EDGE as u64).min(count / 2);
    let (mut rates, mut pairs) = (Vec::new(), Vec::new());
    store.create(id(0), Terms::Default)?;
    for number in 0..count {
        let own = append(store, 0, number * APPEND, data)?;
        rates.push(own);
        if number < edge || number >= count - edge {
            let new = count + number;
            store.create(id(new), Terms::Default)?;
            pairs.push(own / append(store, new, 0, data)?);
        }
    }
    Ok((rates, pairs))
}

/// One durable append; its rate.
fn append(store: &Store, object: u64, offset: u64, data: &AlignedBuffer) -> Result<f64> {
    let begin = Instant::now();
    store.write_buffer(id(object), offset, data)?;
    store.commit()?;
    Ok(rate(APPEND, begin.elapsed()))
}

/// The last ones against the first ones.
fn edges(rates: &[f64]) -> f64 {
    let edge = EDGE.min(rates.len() / 2);
    median(&rates[rates.len() - edge..]) / median(&rates[..edge])
}

fn smoothed(rates: &[f64]) -> Vec<(f64, f64)> {
    let points = rates.chunks(16).enumerate();
    points
        .map(|(index, rates)| ((index * 16) as f64, median(rates)))
        .collect()
}

/// Rates of appends to an object each.
fn write_many(store: &Store, data: &AlignedBuffer, count: u64) -> Result<Vec<f64>> {
    let write = |number| {
        store.create(id(number), Terms::Default)?;
        append(store, number, 0, data)
    };
    (1..=count).map(write).collect()
}

fn reads(store: &Store, count: u64, object_of: impl Fn(u64) -> u64) -> Result<Vec<f64>> {
    let read = |number| match object_of(number) {
        0 => read_part(store, 0, number * APPEND, APPEND),
        object => read_part(store, object, 0, APPEND),
    };
    (0..count).map(read).collect()
}

/// Data and two flushes for each append, as the store does it, and the whole record in between.
fn naive(place: &Place, data: &AlignedBuffer, count: u64) -> Result<Vec<f64>> {
    let ring = Ring::new(crate::place::device(&place.path)?, 16 << 20)?;
    let record_at = count * APPEND;
    let mut record: Vec<u8> = Vec::new();
    let mut rates = Vec::new();
    for number in 0..count {
        let begin = Instant::now();
        put(&ring, number * APPEND, data)?;
        for piece in data.chunks(4096) {
            let sum = u64::from(crc32c::crc32c(piece));
            record.extend_from_slice(&sum.to_le_bytes());
        }
        record.extend_from_slice(&[0; 16]);
        ring.start(Request::Flush)?.wait()?;
        let mut whole = AlignedBuffer::new(record.len().next_multiple_of(4096));
        whole[..record.len()].copy_from_slice(&record);
        // In turn, as a record that must not be written over would be.
        let turn = (number % 2) * (count * APPEND / 32).next_multiple_of(MIB);
        put(&ring, record_at + turn, &whole)?;
        ring.start(Request::Flush)?.wait()?;
        rates.push(rate(APPEND, begin.elapsed()));
    }
    Ok(rates)
}

fn put(ring: &Ring, offset: u64, data: &AlignedBuffer) -> Result<()> {
    let mut under_way = Vec::new();
    for at in (0..data.len()).step_by(MIB as usize) {
        let buffer = data.share(at..(at + MIB as usize).min(data.len()));
        let offset = offset + at as u64;
        under_way.push(ring.start(Request::Write { offset, buffer })?);
    }
    for pending in under_way {
        pending.wait()?;
    }
    Ok(())
}
