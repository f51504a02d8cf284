//! The comparison over a link: round trips, operations, repeats, systems, in this nesting.
//!
//! Within a repeat the systems take turns, and the order rotates, so that a slow minute of the
//! machine hits all alike.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use azlink::{Link, LinkOptions, LinkSettings, TcpTuning};
use figures::{publish, save_charts, save_json};

use crate::cli::WanArgs;
use crate::measure::measure;
use crate::plan::{Op, Scale, ops};
use crate::results::{Measurement, Results, Skipped};
use crate::site::{Ends, Programs, Site};
use crate::systems::{System, systems};
use crate::{charts, conditions, dataset, markdown};

/// Runs everything and writes results after each measurement.
pub(crate) fn run(args: &WanArgs, programs: Programs) -> anyhow::Result<()> {
    let scale = Scale {
        is_quick: args.quick,
    };
    let ops = ops(&args.ops, args.cap())?;
    let all = systems(&args.systems, &programs)?;
    let link = Link::start(&link_options(args)?)?;
    let mut conditions = conditions::of_machine(&all);
    conditions::note_link(&mut conditions, &link, &args.tcp_buffer);
    conditions.is_quick = args.quick;
    conditions.repeats = args.repeats();
    conditions.rtts_ms = args.rtts.clone();
    let mut results = Results::new("wan", conditions);
    let (present, skipped) = sort_out(all);
    results.skipped = skipped;
    if present.is_empty() {
        bail!("skipped: none of the systems is here");
    }
    let mut site = Site::new(Ends::Link(link), programs)?;
    eprintln!("making {} MiB of data", scale.big_bytes() >> 20);
    dataset::make(&site.data(), scale.big_bytes())?;

    let runs = schedule(args, &ops, &present);
    eprintln!(
        "{} measurements of up to {} s each",
        runs.len(),
        args.cap().as_secs()
    );
    for (index, run) in runs.iter().enumerate() {
        set_rtt(&site, run.rtt_ms);
        let one = measure(&mut site, run.system, run.op, scale, run.rtt_ms, run.repeat);
        eprint!("[{}/{}] ", index + 1, runs.len());
        report(&one);
        results.add(one);
        save(&results, args.json.as_deref())?;
    }
    site.stop_servers();
    finish(&results, args.svg.as_deref(), args.markdown.as_deref())
}

/// One measurement to be made.
struct Run<'a> {
    rtt_ms: f64,
    op: &'a Op,
    repeat: u32,
    system: &'a dyn System,
}

fn schedule<'a>(args: &WanArgs, ops: &'a [Op], present: &'a [Box<dyn System>]) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    for (round, &rtt_ms) in args.rtts.iter().enumerate() {
        // Steps bring their own round trips: the first round is enough for them.
        for op in ops.iter().filter(|op| op.name != "steps" || round == 0) {
            let rtt_ms = if op.name == "steps" { 0.0 } else { rtt_ms };
            for repeat in 0..args.repeats() {
                let turns = (0..present.len()).map(|turn| (turn + repeat as usize) % present.len());
                let systems = turns.map(|index| present[index].as_ref()).filter(|system| {
                    system.takes_part(op.name) && !(op.writes && system.is_read_only())
                });
                runs.extend(systems.map(|system| Run {
                    rtt_ms,
                    op,
                    repeat,
                    system,
                }));
            }
        }
    }
    runs
}

/// Charts and table of a finished run.
pub(crate) fn finish(
    results: &Results,
    svg: Option<&Path>,
    document: Option<&Path>,
) -> anyhow::Result<()> {
    if let Some(path) = svg {
        save_charts(path, &charts::of(results))?;
    }
    publish(document, &results.kind, &markdown::table(results))
}

pub(crate) fn save(results: &Results, json: Option<&Path>) -> anyhow::Result<()> {
    json.map_or(Ok(()), |path| save_json(path, results))
}

/// Systems that can take part, and the others with their reasons.
pub(crate) fn sort_out(all: Vec<Box<dyn System>>) -> (Vec<Box<dyn System>>, Vec<Skipped>) {
    let mut present = Vec::new();
    let mut skipped = Vec::new();
    for system in all {
        match system.why_not() {
            None => present.push(system),
            Some(why) => {
                eprintln!("skipped: {}: {why}", system.name());
                skipped.push(Skipped {
                    what: system.name().to_owned(),
                    why,
                });
            }
        }
    }
    (present, skipped)
}

fn link_options(args: &WanArgs) -> anyhow::Result<LinkOptions> {
    let mut settings = LinkSettings::default();
    settings.apply(&format!("rate {}", args.rate).parse()?);
    settings.apply(&format!("loss {}", args.loss).parse()?);
    let buffer_bytes_max = match args.tcp_buffer.as_str() {
        "kernel" => None,
        size => Some(azlink::units::size(size)?),
    };
    let tuning = TcpTuning {
        buffer_bytes_max,
        forgets_paths: true,
    };
    Ok(LinkOptions {
        settings,
        seed: 1,
        tuning,
    })
}

fn set_rtt(site: &Site, rtt_ms: f64) {
    if let Some(link) = site.link() {
        link.apply(&azlink::Command::Rtt(Duration::from_secs_f64(rtt_ms / 1e3)));
    }
}

/// One line per measurement, as it comes.
pub(crate) fn report(m: &Measurement) {
    let value = match (m.value, &m.error) {
        (Some(value), _) => format!("{value:.2} {}", m.unit),
        (None, Some(error)) => format!("failed: {error}"),
        (None, None) => "not reached".to_owned(),
    };
    let capped = if m.is_capped {
        format!(" (capped at {}/{})", m.done, m.total)
    } else {
        String::new()
    };
    let durable = if m.is_durable == Some(false) {
        " NOT DURABLE at fsync"
    } else {
        ""
    };
    let wire = m
        .ip_bytes_per_useful
        .map(|ratio| format!(", wire {ratio:.2}"))
        .unwrap_or_default();
    let whole = m
        .whole_mb_per_s
        .map(|rate| format!(", whole {rate:.1}"))
        .unwrap_or_default();
    eprintln!(
        "{:>6} ms  {:<12} {:<16} {value}{capped}{durable}{whole}{wire}, {:.1} s, \
         cpu {:.1}+{:.1} s, \
         late {:.0} us, load {:.1}",
        m.rtt_ms,
        m.op,
        m.system,
        m.seconds,
        m.cpu_client_s,
        m.cpu_server_s,
        m.link_late_us,
        m.load1
    );
}
