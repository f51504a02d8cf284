//! One measurement: fresh mount, workload, unmount, counters.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use azlink::LinkCounters;

use crate::app::Outcome;
use crate::cpu::Census;
use crate::mounted::Mounted;
use crate::plan::{Figure, Op, Scale};
use crate::results::Measurement;
use crate::site::Site;
use crate::steps;
use crate::systems::System;

/// What a client asked for too much may still be arriving after its end; it counts as waste.
const QUIET_MAX: Duration = Duration::from_secs(3);
/// How long an acknowledged write that was not durable is waited for, to be able to go on.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Measures; an error of the system under test becomes a measurement with an error.
pub(crate) fn measure(
    site: &mut Site,
    system: &dyn System,
    op: &Op,
    scale: Scale,
    rtt_ms: f64,
    repeat: u32,
) -> Measurement {
    let mut measurement = Measurement {
        op: op.name.to_owned(),
        system: system.name().to_owned(),
        rtt_ms,
        repeat,
        unit: op.figure.unit().to_owned(),
        load1: figures::load_average(),
        ..Measurement::default()
    };
    let before = site.link().map(azlink::Link::settings);
    if let Err(error) = attempt(site, system, op, scale, &mut measurement) {
        measurement.value = None;
        measurement.error = Some(format!("{error:#}"));
    }
    if let (Some(link), Some(settings)) = (site.link(), before) {
        link.set(settings);
    }
    measurement
}

fn attempt(
    site: &mut Site,
    system: &dyn System,
    op: &Op,
    scale: Scale,
    m: &mut Measurement,
) -> anyhow::Result<()> {
    let out = format!("out-{}", site.mount_number());
    let out_at_server = site.data().join(&out);
    if op.writes {
        std::fs::create_dir(&out_at_server)?;
    }
    let is_steps = op.name == "steps";
    if let Some(link) = site.link().filter(|_| is_steps) {
        steps::prepare(link, scale);
    }
    let mut mounted = site.mount(system)?;
    m.mount_s = mounted.mount_s;
    reset(site);
    let draw = u64::from(m.repeat) + 1;
    let workload = op.workload(scale, mounted.point(), &out, draw);
    let cap = if is_steps {
        steps::length(scale)
    } else {
        op.cap
    };
    let cpu = CpuMeter::start(site, &mounted);
    let mut begun = Vec::new();
    let outcome = site.run_app(&workload, cap, &mut mounted, || {
        if let Some(link) = site.link().filter(|_| is_steps) {
            begun = steps::follow(link, scale);
        }
    })?;
    (m.cpu_server_s, m.cpu_client_s) = cpu.read();
    if let Some(expected) = op.expected(&site.data(), &out, outcome.done) {
        let missing = expected.missing();
        m.is_durable = Some(missing.is_none());
        settle(|| expected.missing().is_none());
    }
    mounted.close()?;
    quiet(site);
    if op.writes {
        std::fs::remove_dir_all(&out_at_server).context("removing what was written")?;
    }
    note_outcome(m, op, &outcome);
    note_wire(m, op, site);
    if is_steps {
        m.steps = steps::judge(&outcome, &begun, scale);
        m.rate_line = rate_line(&outcome);
    }
    m.value = figure(op, m, &outcome);
    Ok(())
}

/// CPU of the system under test over a workload.
pub(crate) struct CpuMeter {
    servers: HashSet<u32>,
    ours: HashSet<u32>,
    before: (f64, f64),
}

impl CpuMeter {
    /// Starts just before a workload: its own processes come later and belong to nobody.
    pub(crate) fn start(site: &Site, mounted: &Mounted) -> Self {
        let census = Census::take();
        let servers = site.server_ids();
        // Process 1 reaps and this process measures; neither is part of a system.
        let ours = HashSet::from([1, std::process::id()]);
        let before = census.server_and_client_s(&servers, &ours);
        assert!(
            mounted
                .client_id()
                .is_none_or(|id| census.pids().contains(&id)),
            "a client in the foreground lives while its mount does"
        );
        Self {
            servers,
            ours,
            before,
        }
    }

    /// CPU seconds of server and client since the start.
    pub(crate) fn read(&self) -> (f64, f64) {
        let (server_s, client_s) = Census::take().server_and_client_s(&self.servers, &self.ours);
        (server_s - self.before.0, client_s - self.before.1)
    }
}

fn reset(site: &Site) {
    if let Some(link) = site.link() {
        link.apply(&azlink::Command::Reset);
    }
}

/// Waits until nothing crosses the link any more.
fn quiet(site: &Site) {
    let Some(link) = site.link() else { return };
    let pause = (link.settings().rtt * 2).max(Duration::from_millis(100));
    let start = Instant::now();
    let mut last = LinkCounters::default();
    while start.elapsed() < QUIET_MAX {
        let now = link.counters();
        if now.to_client.wire_bytes == last.to_client.wire_bytes {
            return;
        }
        last = now;
        std::thread::sleep(pause);
    }
}

fn settle(is_done: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_done() && start.elapsed() < SETTLE_MAX {
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn note_outcome(m: &mut Measurement, op: &Op, outcome: &Outcome) {
    m.done = outcome.done;
    m.total = outcome.total;
    m.seconds = outcome.seconds;
    // A sequence of steps ends by its time, which is no cap.
    m.is_capped = outcome.is_capped() && op.figure != Figure::Recovery;
    m.first_byte_s = outcome.first_byte_s;
    m.fsync_s = outcome.fsync_s;
    m.latency = outcome.latency;
    m.steady_mb_per_s = outcome.steady_bytes_per_s.map(|rate| rate / 1e6);
    if matches!(op.figure, Figure::SteadyRate | Figure::WholeRate) {
        let megabytes = outcome.done as f64 / 1e6;
        m.read_mb_per_s = Some(megabytes / outcome.seconds);
        m.whole_mb_per_s = Some(megabytes / (outcome.seconds + m.mount_s));
    }
}

fn note_wire(m: &mut Measurement, op: &Op, site: &Site) {
    let Some(link) = site.link() else { return };
    let counters = link.counters();
    m.ip_bytes_to_client = counters.to_client.ip_bytes();
    m.ip_bytes_to_server = counters.to_server.ip_bytes();
    m.queue_dropped_segments =
        counters.to_client.queue_dropped_segments + counters.to_server.queue_dropped_segments;
    m.link_late_us = counters
        .to_client
        .late_us_mean()
        .max(counters.to_server.late_us_mean());
    let useful_bytes = match op.name {
        // Items, not bytes, were counted.
        "walk" | "demand" => return,
        "small" | "create" => m.done * crate::dataset::SMALL_BYTES,
        _ => m.done,
    };
    let bulk = if op.writes {
        m.ip_bytes_to_server
    } else {
        m.ip_bytes_to_client
    };
    m.ip_bytes_per_useful = (useful_bytes > 0).then(|| bulk as f64 / useful_bytes as f64);
}

fn figure(op: &Op, m: &Measurement, outcome: &Outcome) -> Option<f64> {
    match op.figure {
        Figure::SteadyRate => m.steady_mb_per_s,
        Figure::WholeRate => m.read_mb_per_s,
        Figure::Seconds => Some(outcome.whole_s()),
        Figure::Latency => m.latency.map(|latency| latency.median_ms),
        Figure::Recovery => {
            let stepped = m.steps.iter().skip(1).filter(|step| step.rtt_ms > 0.0);
            // A rate that never came back has no recovery time; then the figure is absent.
            stepped
                .map(|step| step.recovery_rtts)
                .reduce(|a, b| Some(a?.max(b?)))?
        }
    }
}

/// The reader's rate over time, in windows of 200 ms.
fn rate_line(outcome: &Outcome) -> Vec<(f64, f64)> {
    const WINDOW_S: f64 = 0.2;
    let windows = (outcome.seconds / WINDOW_S) as u64;
    let rate = |index: u64| {
        let from_s = index as f64 * WINDOW_S;
        let bytes = steps::bytes_at(&outcome.timeline, from_s + WINDOW_S)
            - steps::bytes_at(&outcome.timeline, from_s);
        (from_s + WINDOW_S / 2.0, bytes / WINDOW_S / 1e6)
    };
    (0..windows).map(rate).collect()
}
