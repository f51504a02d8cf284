//! A program on a run that nobody has recorded, and on the next version of the image: for how long
//! it waits with a profile of other runs, and without one.
//!
//! The program is Python with its own modules from the image: each run imports seven of ten of
//! them, in an order of its own, and reads a few files that no other run reads.

use super::Options;
use super::image::{Images, PYTHON, choose};
use super::report::{Goal, Report};
use super::scattered::tar;
use super::site::{How, Site, output};
use anyhow::Result;
use figures::Random;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MODULES: &str = "argparse ast asyncio base64 bdb calendar cmd code collections colorsys \
    compileall concurrent.futures configparser copy csv dataclasses datetime decimal difflib dis \
    doctest email.mime.text email.parser filecmp fractions ftplib gettext graphlib gzip hashlib \
    hmac html.parser http.client http.cookiejar http.server imaplib inspect ipaddress json \
    logging.config logging.handlers mailbox mimetypes multiprocessing.pool netrc optparse pdb \
    pickle pickletools pkgutil plistlib poplib pprint pstats pyclbr pydoc queue random sched \
    selectors shelve shlex shutil smtplib socketserver statistics string subprocess symtable \
    tarfile tempfile textwrap timeit tokenize trace traceback tracemalloc typing unittest.mock \
    urllib.request urllib.robotparser uuid wave weakref wsgiref.simple_server xml.dom.minidom \
    xml.etree.ElementTree xml.sax xmlrpc.client xmlrpc.server zipapp zipfile";
/// What is imported in one run, of a hundred.
const SHARE: usize = 70;
/// Files that a run reads and no other.
const OWN_FILES: usize = 3;
/// Runs that are recorded; the one that is measured is the next.
const RECORDED: u64 = 2;
const PROFILE: &str = "python";

/// One run.
#[derive(Debug, Serialize)]
struct Row {
    version: &'static str,
    trained: bool,
    wait_seconds: f64,
    waits: u64,
    requests: u64,
    wire_bytes: u64,
    fill_rate: f64,
}

/// What is done in one run.
struct Run {
    seed: u64,
    own: PathBuf,
}

impl Run {
    fn new(site: &Site, images: &Images, options: &Options, number: u64) -> Result<Self> {
        let seed = options.seed + 100 + number;
        let own = site.path(&format!("own-{number}"));
        let mut random = Random::new(seed);
        fs::write(&own, images.some(OWN_FILES, &mut random)?.join("\n"))?;
        Ok(Self { seed, own })
    }

    fn go(&self, root: &Path) -> Result<()> {
        let all: Vec<_> = MODULES.split_whitespace().collect();
        let mut random = Random::new(self.seed);
        let chosen = choose(&all, all.len() * SHARE / 100, &mut random);
        let library = root.join(PYTHON);
        let mut script = format!(
            "import sys, importlib\nsys.path[:] = [{:?}, {:?}]\n",
            library,
            library.join("lib-dynload")
        );
        for name in chosen {
            // Not every Python has been built with everything.
            script +=
                &format!("try: importlib.import_module({name:?})\nexcept ImportError: pass\n");
        }
        let mut command = Command::new("python3");
        output(command.args(["-I", "-S", "-B", "-c", &script]))?;
        tar(root, &self.own).map(drop)
    }
}

/// The run with an empty cache, the one of median waits of several.
fn measured(
    site: &Site,
    run: &Run,
    version: &'static str,
    trained: bool,
    options: &Options,
) -> Result<Row> {
    let mut rows = Vec::new();
    for _ in 0..options.repeat.max(1) {
        rows.push(once(site, run, version, trained, options)?);
    }
    rows.sort_by(|a, b| a.wait_seconds.total_cmp(&b.wait_seconds));
    Ok(rows.swap_remove(rows.len() / 2))
}

fn once(
    site: &Site,
    run: &Run,
    version: &'static str,
    trained: bool,
    options: &Options,
) -> Result<Row> {
    site.farthest(options)?;
    let how = How {
        profile: trained.then_some(PROFILE),
        ..How::default()
    };
    let disk = site.attach(&site.url("program"), version, how)?;
    run.go(disk.root()?)?;
    let used = disk.end()?;
    let row = Row {
        version,
        trained,
        wait_seconds: used["wait_seconds"].as_f64().unwrap_or(f64::NAN),
        waits: used["waits"].as_u64().unwrap_or_default(),
        requests: used["requests"].as_u64().unwrap_or_default(),
        wire_bytes: site.wire_bytes(),
        fill_rate: used["fill_rate"].as_f64().unwrap_or_default(),
    };
    eprintln!("{row:?}");
    Ok(row)
}

pub(super) fn measure(
    site: &Site,
    images: &Images,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    if !images.has_python {
        report.note("no program is measured: there is no python3 here".to_owned());
        return Ok(());
    }
    let far = site.farthest(options)?;
    site.publish(&images.fresh, "program", "base:1")?;
    site.publish(&images.next, "program", "base:2")?;
    let unseen = Run::new(site, images, options, RECORDED)?;
    let mut rows = Vec::new();
    for version in ["base:1", "base:2"] {
        rows.push(measured(site, &unseen, version, false, options)?);
    }
    let mut records = Vec::new();
    for number in 0..RECORDED {
        let run = Run::new(site, images, options, number)?;
        let record = site.path(&format!("python-{number}.profile"));
        let how = How {
            record: Some(&record),
            ..How::default()
        };
        let disk = site.attach("www/program", "base:1", how)?;
        run.go(disk.root()?)?;
        disk.end()?;
        records.push(record.to_string_lossy().into_owned());
    }
    let mut train = vec!["train", "base:1"];
    train.extend(records.iter().map(String::as_str));
    site.disk(&[&train[..], &["--as", PROFILE, "--at", "www/program"]].concat())?;
    let carry = ["train", "base:2", "--from", "base:1"];
    site.disk(&[&carry[..], &["--at", "www/program"]].concat())?;
    for version in ["base:1", "base:2"] {
        rows.push(measured(site, &unseen, version, true, options)?);
    }
    judge(report, &rows, far);
    report.section("program", &rows)
}

fn judge(report: &mut Report, rows: &[Row], far: u64) {
    for (version, what) in [
        ("base:1", "a run that was not recorded"),
        ("base:2", "the same on the next version"),
    ] {
        let found = |trained: bool| {
            let is_it = |row: &&Row| row.version == version && row.trained == trained;
            rows.iter().find(is_it)
        };
        let Some((before, after)) = found(false).zip(found(true)) else {
            continue;
        };
        // A run that never waits is as much better as one that waits for a millisecond.
        let ratio = before.wait_seconds / after.wait_seconds.max(0.001);
        let text = format!(
            "{ratio:.1}: waited {:.2} s in {} waits, {} requests, instead of {:.2} s in {}, {}",
            after.wait_seconds,
            after.waits,
            after.requests,
            before.wait_seconds,
            before.waits,
            before.requests,
        );
        let what = format!("Python at {far} ms, {what}: waits without a profile by those with one");
        report.row(&what, Goal::at_least(5.0, ">= 5"), ratio, text);
    }
}
