//! No link: both ends in one namespace, joined by loopback. What the software itself costs.
//!
//! Servers are started for each system alone, so that every process in the container that is not
//! the harness belongs to it and CPU time can be attributed.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use azlink::{Namespace, TcpTuning};

use crate::app::{Pattern, Workload};
use crate::cli::LoopbackArgs;
use crate::content::{Verify, seed_of};
use crate::dataset::{self, BIG};
use crate::measure::CpuMeter;
use crate::results::{Measurement, Results};
use crate::site::{Ends, Programs, Site};
use crate::systems::{System, systems};
use crate::{conditions, wan};

const BIG_BYTES: u64 = 1 << 30;
const FILES: u64 = 10_000;
/// Made before any server starts: some servers list a directory once and believe it for minutes.
const META: &str = "meta";
const CAP: Duration = Duration::from_secs(30);

/// What is measured, in the order of the table.
const OPS: [&str; 7] = [
    "seq", "write", "create", "create8", "stat", "list", "unlink",
];

/// Runs everything and writes results after each measurement.
pub(crate) fn run(args: &LoopbackArgs, programs: Programs) -> anyhow::Result<()> {
    let all = systems(&args.systems, &programs)?;
    let mut conditions = conditions::of_machine(&all);
    conditions.repeats = args.repeats();
    conditions.is_quick = args.quick;
    conditions.notes = vec![
        "No link; server and client on one machine, data on tmpfs; fresh mount for every figure, \
         so stat and list are cold at the client (the server's page cache is warm)."
            .to_owned(),
        format!("{FILES} empty files; create8: 8 processes, each in its own directory."),
        "What azekura-parallel reads was written through a mount before; its stores are on tmpfs."
            .to_owned(),
        "CPU: user and system time of all processes of the system, client and server; the reader's \
         own time is not in it. Sequential read checks one word per page."
            .to_owned(),
    ];
    let mut results = Results::new("loopback", conditions);
    let (present, skipped) = wan::sort_out(all);
    results.skipped = skipped;
    let namespace = Namespace::new(TcpTuning::default())?;
    let mut site = Site::new(Ends::Loopback(namespace), programs)?;
    let mut base = File::create(site.data().join(BIG))?;
    dataset::write_content(&mut base, seed_of(BIG), BIG_BYTES)?;
    dataset::make_files(&site.data().join(META), FILES, 0)?;
    for repeat in 0..args.repeats() {
        for system in &present {
            if system.keeps_data() {
                fill(&mut site, system.as_ref())?;
            }
            for op in OPS {
                if op != "seq" && system.is_read_only() && !matches!(op, "stat" | "list") {
                    continue;
                }
                let one = measure(&mut site, system.as_ref(), op, repeat);
                wan::report(&one);
                results.add(one);
                wan::save(&results, args.json.as_deref())?;
            }
            site.stop_servers();
        }
    }
    wan::finish(&results, None, args.markdown.as_deref())
}

fn measure(site: &mut Site, system: &dyn System, op: &str, repeat: u32) -> Measurement {
    let mut m = Measurement {
        op: op.to_owned(),
        system: system.name().to_owned(),
        repeat,
        unit: if is_of_bytes(op) { "GB/s" } else { "files/s" }.to_owned(),
        load1: figures::load_average(),
        ..Measurement::default()
    };
    if let Err(error) = attempt(site, system, op, &mut m) {
        m.value = None;
        m.error = Some(format!("{error:#}"));
    }
    m
}

fn attempt(
    site: &mut Site,
    system: &dyn System,
    op: &str,
    m: &mut Measurement,
) -> anyhow::Result<()> {
    let out = format!("out-{}", site.mount_number());
    at_server(site, system, |root| {
        let out = root.join(&out);
        std::fs::create_dir(&out)?;
        if op == "unlink" {
            dataset::make_files(&out, FILES, 0)?;
        }
        Ok(())
    })?;
    let mut mounted = site.mount(system)?;
    m.mount_s = mounted.mount_s;
    let at = |name: &str| mounted.point().join(name).to_string_lossy().into_owned();
    let dir = at(&out);
    let workload = match op {
        "seq" => Workload::Read {
            file: at(BIG),
            seed: seed_of(BIG),
            pattern: Pattern::Sequential { bytes: BIG_BYTES },
            call_bytes: 128 << 10,
            verify: Verify::Pages,
        },
        "write" => Workload::Write {
            file: format!("{dir}/{BIG}"),
            seed: seed_of(BIG),
            bytes: BIG_BYTES,
            call_bytes: 128 << 10,
        },
        "create" => Workload::CreateEmpty {
            dir,
            files: FILES,
            processes: 1,
        },
        "create8" => Workload::CreateEmpty {
            dir,
            files: FILES,
            processes: 8,
        },
        "stat" => Workload::Stat {
            dir: at(META),
            files: FILES,
        },
        "list" => Workload::List {
            dir: at(META),
            files: FILES,
        },
        "unlink" => Workload::Unlink { dir, files: FILES },
        other => unreachable!("{other} is not in OPS"),
    };
    let cpu = CpuMeter::start(site, &mounted);
    let outcome = site.run_app(&workload, CAP, &mut mounted, || {})?;
    (m.cpu_server_s, m.cpu_client_s) = cpu.read();
    mounted.close()?;
    at_server(site, system, |root| {
        Ok(std::fs::remove_dir_all(root.join(&out))?)
    })?;
    (m.done, m.total, m.seconds) = (outcome.done, outcome.total, outcome.seconds);
    m.is_capped = outcome.is_capped();
    let per_s = outcome.done as f64 / outcome.seconds;
    m.value = Some(if is_of_bytes(op) { per_s / 1e9 } else { per_s });
    Ok(())
}

/// Whether bytes are counted, not files.
fn is_of_bytes(op: &str) -> bool {
    matches!(op, "seq" | "write")
}

/// Does something with the tree that a system serves, without the mount that is measured.
fn at_server(
    site: &mut Site,
    system: &dyn System,
    work: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if !system.keeps_data() {
        return work(&site.data());
    }
    let mounted = site.mount(system)?;
    work(mounted.point())?;
    mounted.close()
}

/// What is read, for a system that has it in its own keeping.
fn fill(site: &mut Site, system: &dyn System) -> anyhow::Result<()> {
    at_server(site, system, |root| {
        if root.join(BIG).exists() {
            return Ok(());
        }
        let mut base = File::create(root.join(BIG))?;
        dataset::write_content(&mut base, seed_of(BIG), BIG_BYTES)?;
        base.sync_all()?;
        dataset::make_files(&root.join(META), FILES, 0)
    })
}
