//! No link: both ends in one namespace, joined by loopback. What the software itself costs.
//!
//! Servers are started for each system alone, so that every process in the container that is not
//! the harness belongs to it and CPU time can be attributed.

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
const OPS: [&str; 6] = ["seq", "create", "create8", "stat", "list", "unlink"];

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
        "CPU: user and system time of all processes of the system, client and server; the reader's \
         own time is not in it. Sequential read checks one word per page."
            .to_owned(),
    ];
    let mut results = Results::new("loopback", conditions);
    let (present, skipped) = wan::sort_out(all);
    results.skipped = skipped;
    let namespace = Namespace::new(TcpTuning::default())?;
    let mut site = Site::new(Ends::Loopback(namespace), programs)?;
    let mut base = std::fs::File::create(site.data().join(BIG))?;
    dataset::write_content(&mut base, seed_of(BIG), BIG_BYTES)?;
    dataset::make_files(&site.data().join(META), FILES, 0)?;
    for repeat in 0..args.repeats() {
        for system in &present {
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
        unit: if op == "seq" { "GB/s" } else { "files/s" }.to_owned(),
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
    let out_at_server = site.data().join(&out);
    std::fs::create_dir(&out_at_server)?;
    if op == "unlink" {
        dataset::make_files(&out_at_server, FILES, 0)?;
    }
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
    std::fs::remove_dir_all(&out_at_server)?;
    (m.done, m.total, m.seconds) = (outcome.done, outcome.total, outcome.seconds);
    m.is_capped = outcome.is_capped();
    let per_s = outcome.done as f64 / outcome.seconds;
    m.value = Some(if op == "seq" { per_s / 1e9 } else { per_s });
    Ok(())
}
