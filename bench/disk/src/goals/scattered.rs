//! A tar of files here and there, at each distance: on demand, with the rest of the disk fetched
//! meanwhile, and trained by another run.

use super::Options;
use super::image::Images;
use super::peers;
use super::report::{Goal, Report};
use super::site::{How, Site};
use crate::paper::{self, Measured};
use crate::trace;
use anyhow::{Context, Result, ensure};
use disk::Profile;
use figures::{Chart, Colour, Random, Scale, Series};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// By what the image is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    OnDemand,
    All,
    Trained,
}

impl Way {
    const EACH: [Self; 3] = [Self::OnDemand, Self::All, Self::Trained];

    fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on demand",
            Self::All => "all of it fetched",
            Self::Trained => "trained",
        }
    }
}

/// What one tar has cost.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    image: &'static str,
    how: Way,
    rtt_ms: u64,
    /// Until the file system was there, and from then to the tar's end.
    ready_seconds: f64,
    seconds: f64,
    wait_seconds: f64,
    waits: u64,
    requests: u64,
    wire_bytes: u64,
    asked_bytes: u64,
    fill_rate: f64,
}

/// The files of the tar, in a list.
fn list(site: &Site, images: &Images, options: &Options) -> Result<PathBuf> {
    let path = site.path("list");
    let mut random = Random::new(options.seed + 1);
    let files = images.some(options.scattered, &mut random)?;
    fs::write(&path, files.join("\n"))?;
    Ok(path)
}

/// Reads the files of a list; how long that takes. What tar writes goes through a pipe: it reads
/// nothing for `/dev/null`.
pub(super) fn tar(root: &Path, list: &Path) -> Result<Duration> {
    let begin = Instant::now();
    let mut command = Command::new("tar");
    command.args(["-cf", "-", "--no-recursion", "--verbatim-files-from", "-C"]);
    command.arg(root).arg("-T").arg(list);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("tar")?;
    let mut pipe = child.stdout.take().context("its output")?;
    io::copy(&mut pipe, &mut io::sink())?;
    ensure!(child.wait()?.success(), "tar has failed");
    Ok(begin.elapsed())
}

/// The tar with an empty cache, the one of median time of several.
fn run(
    site: &Site,
    image: &'static str,
    (rtt_ms, way): (u64, Way),
    list: &Path,
    repeat: usize,
) -> Result<Row> {
    let mut rows = Vec::new();
    for _ in 0..repeat.max(1) {
        rows.push(once(site, image, (rtt_ms, way), list)?);
    }
    rows.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(rows.swap_remove(rows.len() / 2))
}

fn once(site: &Site, image: &'static str, (rtt_ms, how): (u64, Way), list: &Path) -> Result<Row> {
    site.far(rtt_ms);
    let before = site.requests();
    let attach = How {
        profile: (how == Way::Trained).then_some("scattered"),
        is_whole: how == Way::All,
        ..How::default()
    };
    let disk = site.attach(&site.url(image), "base:1", attach)?;
    let ready = disk.ready;
    let took = tar(disk.root()?, list)?;
    // What is still under way then is not for the tar.
    let (requests, wire_bytes) = (site.requests() - before, site.wire_bytes());
    let used = disk.end()?;
    let number = |key: &str| used[key].as_u64().unwrap_or_default();
    let row = Row {
        image,
        how,
        rtt_ms,
        ready_seconds: ready.as_secs_f64(),
        seconds: took.as_secs_f64(),
        wait_seconds: used["wait_seconds"].as_f64().unwrap_or_default(),
        waits: number("waits"),
        requests,
        wire_bytes,
        asked_bytes: number("asked_bytes"),
        fill_rate: used["fill_rate"].as_f64().unwrap_or_default(),
    };
    eprintln!("{}", row.text());
    Ok(row)
}

impl Row {
    fn text(&self) -> String {
        format!(
            "{} {} {} ms: ready in {:.2} s, {:.2} s, of which {:.2} s in {} waits; {} requests, \
             {:.1} MB, fill rate {:.1} %",
            self.image,
            self.how.name(),
            self.rtt_ms,
            self.ready_seconds,
            self.seconds,
            self.wait_seconds,
            self.waits,
            self.requests,
            self.wire_bytes as f64 / 1e6,
            self.fill_rate * 100.0,
        )
    }
}

/// Records the tar on a disk that is near, and trains the image by it; what that came to.
fn train(site: &Site, image: &str, list: &Path) -> Result<Value> {
    let repository = format!("www/{image}");
    let record = site.path("scattered.profile");
    // Another image's run.
    let _ = fs::remove_file(&record);
    let how = How {
        record: Some(&record),
        ..How::default()
    };
    let disk = site.attach(&repository, "base:1", how)?;
    tar(disk.root()?, list)?;
    disk.end()?;
    let file = record.to_string_lossy();
    site.json(&["train", "base:1", &file, "--at", &repository])
}

pub(super) fn measure(
    site: &Site,
    images: &Images,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let list = list(site, images, options)?;
    let rtts = &options.grid.rtts;
    let far = *rtts.iter().max().context("no distance is named")?;
    let mut rows = Vec::new();
    for (image, path) in [("fresh", &images.fresh), ("aged", &images.aged)] {
        site.publish(path, image, "base:1")?;
        let mut pack_bytes = f64::NAN;
        for way in Way::EACH {
            if way == Way::Trained {
                let trained = train(site, image, &list)?;
                pack_bytes = trained["pack_bytes"].as_f64().unwrap_or(f64::NAN);
            }
            for &rtt in rtts {
                rows.push(run(site, image, (rtt, way), &list, options.repeat)?);
            }
        }
        judge(report, &rows, image, far, options.scattered, pack_bytes);
    }
    chart(report, &rows);
    report.table(&table(&rows));
    report.section("scattered", &rows)?;
    if rtts.contains(&peers::TAR_RTT_MS) {
        peers::tars(site, &images.fresh, &list, report)?;
    }
    Ok(())
}

fn judge(report: &mut Report, rows: &[Row], image: &str, far: u64, files: usize, pack_bytes: f64) {
    let found = |how: Way| {
        let is_it = |row: &&Row| row.image == image && row.how == how && row.rtt_ms == far;
        rows.iter().find(is_it)
    };
    let what = format!("tar of {files} scattered files at {far} ms, {image} image");
    let goals = [
        (Way::OnDemand, Goal::at_most(12.0, "<= 12 s")),
        (Way::All, Goal::at_most(12.0, "<= 12 s")),
        (Way::Trained, Goal::at_most(1.5, "<= 1.5 s")),
    ];
    for (how, goal) in goals {
        if let Some(row) = found(how) {
            let (name, figure) = (how.name(), row.seconds);
            report.row(&format!("{what}, {name}"), goal, figure, row.text());
        }
    }
    if let Some(row) = found(Way::Trained) {
        let ratio = row.wire_bytes as f64 / pack_bytes;
        let text = format!(
            "{ratio:.2}: {:.1} MB on the line, headers and the index among them, for {:.1} MB",
            row.wire_bytes as f64 / 1e6,
            pack_bytes / 1e6
        );
        let goal = Goal::at_most(1.15, "<= 1.15 x the compressed pages that were asked for");
        report.row(&format!("{what}, wire trained"), goal, ratio, text);
    }
}

fn chart(report: &mut Report, rows: &[Row]) {
    let series = [
        ("fresh", Way::OnDemand, Colour::Blue),
        ("fresh", Way::All, Colour::Green),
        ("fresh", Way::Trained, Colour::Vermilion),
        ("aged", Way::OnDemand, Colour::SkyBlue),
        ("aged", Way::All, Colour::Purple),
        ("aged", Way::Trained, Colour::Orange),
    ];
    let series = series.map(|(image, how, colour)| {
        let is_it = |row: &&Row| row.image == image && row.how == how;
        let points = rows.iter().filter(is_it);
        let points = points.map(|row| (row.rtt_ms as f64, row.seconds));
        Series::with_dots(
            &format!("{image}, {}", how.name()),
            colour,
            points.collect(),
        )
    });
    report.chart(Chart {
        title: "A tar of scattered files".to_owned(),
        subtitle: "with an empty cache; trained by another run".to_owned(),
        x_label: "round trip, ms".to_owned(),
        y_label: "s".to_owned(),
        y_scale: Scale::Log,
        series: series.into(),
        ..Chart::default()
    });
}

fn table(rows: &[Row]) -> String {
    let mut out = "| image | how | ms | s | waited s | waits | requests | MB | fill |\n\
                   | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for row in rows {
        out += &format!(
            "| {} | {} | {} | {:.2} | {:.2} | {} | {} | {:.1} | {:.1} % |\n",
            row.image,
            row.how.name(),
            row.rtt_ms,
            row.seconds,
            row.wait_seconds,
            row.waits,
            row.requests,
            row.wire_bytes as f64 / 1e6,
            row.fill_rate * 100.0,
        );
    }
    out
}

/// The paper's table and figures, by the same tar.
pub(super) fn paper(
    site: &Site,
    images: &Images,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let list = list(site, images, options)?;
    site.publish(&images.fresh, "paper", "base:1")?;
    let mut recorded = Vec::new();
    // One to train by, another one to measure.
    for name in ["scattered", "again"] {
        let path = site.path(&format!("{name}-paper.profile"));
        let how = How {
            record: Some(&path),
            ..How::default()
        };
        let disk = site.attach("www/paper", "base:1", how)?;
        tar(disk.root()?, &list)?;
        disk.end()?;
        let bytes = fs::read(&path)?;
        let profile = Profile::from_bytes(&bytes);
        recorded.push(profile.map_err(|damage| anyhow::anyhow!("{damage:?}"))?);
    }
    let run = trace::of_profile(&recorded[1]);
    let measured = Measured {
        image: &images.fresh,
        profile: &recorded[0],
        run: &run,
        pace: false,
        directory: options.directory.clone(),
    };
    let rows = measured.rows(&options.grid)?;
    let conditions = "one read after the other, by extents; each answer one round trip later";
    for chart in paper::charts(&rows, conditions) {
        report.chart(chart);
    }
    report.table(&paper::table(&rows));
    report.section("paper", &rows)
}
