//! `disk`: what a recorded run of a machine costs when its disk is an image far away.
//!
//! ```text
//! main -> trace     a run as nbdkit has logged it, or as numbers
//!      -> server    a web server at a distance
//!      -> replay    the run done again: on demand, with read-ahead, trained
//! ```
//! With every length of chunks this is the paper's Table 1 (what was asked for, what was read for
//! it, the fill rate), and with every distance its figures 7 to 18 and 20. The profile is that of
//! one run and the run that is measured another one: whoever measures with the run by which he has
//! trained measures an upper bound, and the table says so.

mod replay;
mod server;
mod trace;

use anyhow::Result;
use clap::Parser;
use disk::{HowToTrain, Profile, Publishing, Repository, SigningKey, Trace, Trust, publish, train};
use replay::{How, Published, Row};
use std::path::PathBuf;
use std::time::Duration;
use trace::Step;

/// Images from chunks, measured.
#[derive(Debug, Parser)]
#[command(name = "disk", version)]
struct Cli {
    /// The image.
    #[arg(long)]
    image: PathBuf,
    /// The runs by which the image is trained; their profiles are merged.
    #[arg(long, value_delimiter = ',', required = true)]
    train: Vec<PathBuf>,
    /// The run that is measured.
    #[arg(long)]
    run: PathBuf,
    /// Lengths of chunks in KiB.
    #[arg(long, value_delimiter = ',', default_value = "64,128,256,512")]
    chunks: Vec<u32>,
    /// Round trips in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,25,50,100")]
    rtts: Vec<u64>,
    /// Think before each read as long as the machine did that was recorded.
    #[arg(long)]
    pace: bool,
    /// Where repositories and caches lie meanwhile.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let run = trace::read(&cli.run)?;
    let mut profile: Option<Profile> = None;
    let length = std::fs::metadata(&cli.image)?.len();
    for path in &cli.train {
        let recorded = recorded(length, &trace::read(path)?)?;
        profile = Some(match profile {
            Some(profile) => profile.merged(&recorded),
            None => recorded,
        });
    }
    let profile = profile.expect("one at least is required");
    if cli.train.contains(&cli.run) {
        println!("trained by the run that is measured: an upper bound");
    }
    let mut rows = Vec::new();
    for &chunk_kib in &cli.chunks {
        measure(&cli, chunk_kib, &profile, &run, &mut rows)?;
    }
    if let Some(path) = &cli.json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

fn recorded(image_bytes: u64, steps: &[Step]) -> Result<Profile> {
    let mut trace = Trace::new(image_bytes);
    let mut time = Duration::ZERO;
    for step in steps {
        time += step.think;
        trace.on_read(time, step.extent);
    }
    Ok(Profile::new("run", &trace)?)
}

fn measure(
    cli: &Cli,
    chunk_kib: u32,
    profile: &Profile,
    run: &[Step],
    rows: &mut Vec<Row>,
) -> Result<()> {
    let directory = tempfile::tempdir_in(&cli.directory)?;
    let repository = Repository::create(directory.path().join("images"))?;
    let key = SigningKey::open_or_create(&directory.path().join("key"))?;
    let how = Publishing {
        chunk_bytes: chunk_kib << 10,
        ..Publishing::new("image:1".parse()?, 0)
    };
    let published = publish(&repository, &cli.image, &how, &key, &|_| {})?;
    let version = published.version.expect("it is no dry run");
    let how = HowToTrain::new(0);
    let report = train(
        &repository,
        version,
        std::slice::from_ref(profile),
        &how,
        &key,
        &|_| {},
    )?;
    println!(
        "chunks of {chunk_kib} KiB: {} chunks, {:.1} MB; trained {} chunks, {:.1} MB more, \
         pack {:.1} MB",
        published.chunks,
        published.new_bytes as f64 / 1e6,
        report.chunks,
        report.new_bytes as f64 / 1e6,
        report.pack_bytes as f64 / 1e6,
    );
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
    let trust = Trust::Keys(vec![key.public()]);
    let published = Published {
        directory: &directory.path().join("images"),
        trust: &trust,
        chunk_kib,
    };
    for &rtt in &cli.rtts {
        for how in [How::Demand, How::Sequential, How::Trained] {
            let row = published.run(how, Duration::from_millis(rtt), run, cli.pace)?;
            print(&row);
            rows.push(row);
        }
    }
    Ok(())
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
