//! Publishing an image that is in memory, and committing what was changed of a disk.

use super::Options;
use super::image::{self, Images};
use super::report::{Goal, Report};
use super::site::{How, Site, has, timed};
use anyhow::{Context, Result};
use figures::{Random, median};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const MIB: u64 = 1 << 20;
/// Pieces that are changed begin where neither chunks nor blocks do.
const OFF_GRID: u64 = 3 << 9;

pub(super) fn measure(site: &Site, images: &Images, report: &mut Report) -> Result<()> {
    let mut rates = Vec::new();
    for digest in ["sha512-256", "sha256"] {
        rates.clear();
        for round in 0..ROUNDS {
            // So that it is read from memory.
            io::copy(&mut File::open(&images.fresh)?, &mut io::sink())?;
            let to = site.path(&format!("publish-{digest}-{round}"));
            let (path, to_text) = (images.fresh.to_string_lossy(), to.to_string_lossy());
            let words = ["publish", &path, "--to", &to_text, "--name", "base:1"];
            let begin = Instant::now();
            let said = site.json(&[&words[..], &["--digest", digest]].concat())?;
            let took = begin.elapsed();
            let number = |key: &str| said[key].as_u64().unwrap_or_default();
            let bytes = number("image_bytes") - number("hole_bytes");
            rates.push(bytes as f64 / took.as_secs_f64() / 1e6);
            fs::remove_dir_all(&to)?;
        }
        let rate = median(&rates).context("no round")?;
        let text = format!("{rate:.0} MB/s (median of {ROUNDS}: {rates:.0?})");
        let what = format!("publish, {digest}");
        report.row(&what, Goal::at_least(200.0, ">= 200 MB/s"), rate, text);
    }
    if has("casync") {
        let took = casync(site, &images.fresh)?;
        let bytes = fs::metadata(&images.fresh)?.len() as f64;
        let rate = bytes / took.as_secs_f64() / 1e6;
        report.note(format!(
            "casync make of the same, holes included: {rate:.0} MB/s"
        ));
    }
    Ok(())
}

fn casync(site: &Site, image: &Path) -> Result<Duration> {
    let store = site.path("casync-store");
    let mut command = site.near("casync");
    command.args(["make", "--chunk-size=262144:262144:262144"]);
    command.arg(format!("--store={}", store.display()));
    let took = timed(command.arg("casync.caibx").arg(image))?;
    fs::remove_dir_all(&store)?;
    Ok(took)
}

pub(super) fn commit(
    site: &Site,
    images: &Images,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let mut took = Vec::new();
    for (name, mib) in [("short", options.size), ("long", options.long)] {
        let image = site.path("commit.img");
        image::copy(&images.fresh, &image)?;
        File::options()
            .write(true)
            .open(&image)?
            .set_len(mib * MIB)?;
        let repository = format!("commit-{name}");
        site.publish(&image, &repository, "base:1")?;
        fs::remove_file(&image)?;
        let (seconds, new_bytes) = change(site, &format!("www/{repository}"), options)?;
        eprintln!(
            "commit of {mib} MiB: {seconds:.2} s, {:.1} MB",
            new_bytes / 1e6
        );
        took.push((mib, seconds, new_bytes));
    }
    let [(short, before, bytes), (long, after, _)] = took[..] else {
        unreachable!("two disks were committed");
    };
    let ratio = after / before;
    let text = format!(
        "{ratio:.2}: {after:.2} s of {long} MiB, {before:.2} s of {short} MiB, {:.1} MB new",
        bytes / 1e6
    );
    let what = format!(
        "commit of {} MiB changed, time of a long disk by that of a short one",
        options.changed
    );
    report.row(
        &what,
        Goal::at_most(1.5, "the same time: <= 1.5"),
        ratio,
        text,
    );
    Ok(())
}

/// Changes pieces of a disk here and there, the same of each, and commits them; the seconds that
/// the commit took, and bytes that it has stored.
fn change(site: &Site, repository: &str, options: &Options) -> Result<(f64, f64)> {
    let how = How {
        is_bare: true,
        is_writable: true,
        cache: Some("commit"),
        ..How::default()
    };
    let disk = site.attach(repository, "base:1", how)?;
    let file = File::options().write(true).open(disk.file())?;
    let mut random = Random::new(options.seed);
    let places: Vec<u64> = (0..options.size - 1).collect();
    let mut piece = vec![0; MIB as usize];
    for place in image::choose(&places, options.changed as usize, &mut random) {
        for word in piece.as_chunks_mut::<8>().0 {
            *word = random.bits().to_le_bytes();
        }
        file.write_all_at(&piece, place * MIB + OFF_GRID)?;
    }
    file.sync_all()?;
    drop(file);
    disk.end()?;
    let words = ["commit", repository, "base:1", "--name", "base:2"];
    let begin = Instant::now();
    let said = site.json(&[&words[..], &["--cache", "cache-commit"]].concat())?;
    let took = begin.elapsed().as_secs_f64();
    Ok((took, said["new_bytes"].as_f64().unwrap_or_default()))
}
