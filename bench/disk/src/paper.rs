//! The paper's Table 1 and its figures of time, for each length of chunks: what was asked for, what
//! was read for it, and how long that took at each distance.
//!
//! The profile is that of one run and the run that is measured another one: whoever measures with
//! the run by which he has trained measures an upper bound, and the table says so.

use crate::replay::{How, Published, Row};
use crate::trace::Step;
use anyhow::Result;
use disk::{HowToTrain, Profile, Publishing, Repository, SigningKey, Trust, publish, train};
use figures::{Chart, Colour, Scale, Series};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which chunks, and how far away.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Grid {
    /// Lengths of chunks in KiB.
    #[arg(long, value_delimiter = ',', default_value = "64,128,256,512")]
    pub(crate) chunks: Vec<u32>,
    /// Round trips in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,25,50,100")]
    pub(crate) rtts: Vec<u64>,
}

/// An image and what is done with it.
pub(crate) struct Measured<'a> {
    pub(crate) image: &'a Path,
    pub(crate) profile: &'a Profile,
    pub(crate) run: &'a [Step],
    /// Think before each read as long as the machine did that was recorded.
    pub(crate) pace: bool,
    /// Where repositories and caches lie meanwhile.
    pub(crate) directory: PathBuf,
}

const HOWS: [How; 3] = [How::Demand, How::Sequential, How::Trained];
const COLOURS: [Colour; 4] = [
    Colour::Blue,
    Colour::Green,
    Colour::Orange,
    Colour::Vermilion,
];

impl Measured<'_> {
    /// A row for each length, distance and way.
    pub(crate) fn rows(&self, grid: &Grid) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for &chunk_kib in &grid.chunks {
            self.measure(chunk_kib, &grid.rtts, &mut rows)?;
        }
        Ok(rows)
    }

    fn measure(&self, chunk_kib: u32, rtts: &[u64], rows: &mut Vec<Row>) -> Result<()> {
        let directory = tempfile::tempdir_in(&self.directory)?;
        let repository = Repository::create(directory.path().join("images"))?;
        let key = SigningKey::open_or_create(&directory.path().join("key"))?;
        let how = Publishing {
            chunk_bytes: chunk_kib << 10,
            ..Publishing::new("image:1".parse()?, 0)
        };
        let published = publish(&repository, self.image, &how, &key, &|_| {})?;
        let version = published.version.expect("it is no dry run");
        let how = HowToTrain::new(0);
        let profiles = std::slice::from_ref(self.profile);
        let report = train(&repository, version, profiles, &how, &key, &|_| {})?;
        println!(
            "chunks of {chunk_kib} KiB: {} chunks, {:.1} MB; trained {} chunks, {:.1} MB more, \
             pack {:.1} MB",
            published.chunks,
            published.new_bytes as f64 / 1e6,
            report.chunks,
            report.new_bytes as f64 / 1e6,
            report.pack_bytes as f64 / 1e6,
        );
        head();
        let trust = Trust::Keys(vec![key.public()]);
        let published = Published {
            directory: &directory.path().join("images"),
            trust: &trust,
            chunk_kib,
            profile: self.profile.name(),
        };
        for &rtt in rtts {
            for how in HOWS {
                let row = published.run(how, Duration::from_millis(rtt), self.run, self.pace)?;
                print(&row);
                rows.push(row);
            }
        }
        Ok(())
    }
}

fn head() {
    println!(
        "{:>9} {:>6} {:>8} {:>8} {:>6} {:>8} {:>7} {:>8} {:>9} {:>9} {:>6} {:>6}",
        "how",
        "rtt ms",
        "s",
        "wait s",
        "waits",
        "requests",
        "most",
        "wire MB",
        "inflated",
        "asked",
        "fill",
        "unread",
    );
}

fn print(row: &Row) {
    let mega = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{:>9} {:>6} {:>8.2} {:>8.2} {:>6} {:>8} {:>7} {:>8.1} {:>9.1} {:>9.1} {:>5.1}% {:>6}",
        row.how,
        row.rtt_ms,
        row.seconds,
        row.wait_seconds,
        row.waits,
        row.requests,
        row.in_flight_most,
        mega(row.wire_bytes),
        mega(row.inflated_bytes),
        mega(row.touched_bytes),
        row.fill_rate * 100.0,
        row.unread_chunks,
    );
}

/// Table 1 of the paper: of each length of chunks, at whichever distance.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut out = "| chunks | how | requests | asked MB | read MB | fill | wire MB |\n\
                   | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    let farthest = rows.iter().map(|row| row.rtt_ms).max().unwrap_or(0);
    for row in rows.iter().filter(|row| row.rtt_ms == farthest) {
        let mega = |bytes: u64| bytes as f64 / 1e6;
        out += &format!(
            "| {} KiB | {} | {} | {:.1} | {:.1} | {:.1} % | {:.1} |\n",
            row.chunk_kib,
            row.how,
            row.requests,
            mega(row.touched_bytes),
            mega(row.inflated_bytes),
            row.fill_rate * 100.0,
            mega(row.wire_bytes),
        );
    }
    out
}

/// The paper's figures: time over distance for each length of chunks, one chart for each way; and
/// the fill rates of Table 1.
pub(crate) fn charts(rows: &[Row], conditions: &str) -> Vec<Chart> {
    let mut lengths: Vec<u32> = rows.iter().map(|row| row.chunk_kib).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let of = |how: How, x: &dyn Fn(&Row) -> f64, y: &dyn Fn(&Row) -> f64| {
        let series = |(number, length): (usize, &u32)| {
            let points = rows
                .iter()
                .filter(|row| row.chunk_kib == *length && row.how == how.name());
            let points = points.map(|row| (x(row), y(row))).collect();
            Series::with_dots(
                &format!("{length} KiB"),
                COLOURS[number % COLOURS.len()],
                points,
            )
        };
        lengths.iter().enumerate().map(series).collect::<Vec<_>>()
    };
    let times = HOWS.map(|how| Chart {
        title: format!("Time of a run, {}", how.name()),
        subtitle: conditions.to_owned(),
        x_label: "round trip, ms".to_owned(),
        y_label: "s".to_owned(),
        y_scale: Scale::Log,
        series: of(how, &|row| row.rtt_ms as f64, &|row| row.seconds),
        ..Chart::default()
    });
    let mut charts = Vec::from(times);
    charts.push(fill_rates(rows, &lengths, conditions));
    charts
}

fn fill_rates(rows: &[Row], lengths: &[u32], conditions: &str) -> Chart {
    let fill = |how: How| {
        let of_length = |(number, length): (usize, &u32)| {
            let of = |row: &&Row| row.chunk_kib == *length && row.how == how.name();
            let row = rows.iter().find(of)?;
            Some((number as f64, row.fill_rate * 100.0))
        };
        lengths.iter().enumerate().filter_map(of_length).collect()
    };
    Chart {
        title: "Fill rate: what was asked for of what was read".to_owned(),
        subtitle: conditions.to_owned(),
        x_label: "length of chunks".to_owned(),
        x_names: lengths
            .iter()
            .map(|length| format!("{length} KiB"))
            .collect(),
        y_label: "%".to_owned(),
        series: vec![
            Series::with_dots("on demand", Colour::Blue, fill(How::Demand)),
            Series::with_dots("trained", Colour::Vermilion, fill(How::Trained)),
        ],
        ..Chart::default()
    }
}
