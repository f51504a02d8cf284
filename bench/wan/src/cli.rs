//! The command line of `wan`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};

use crate::contain::contained;
use crate::results::Results;
use crate::site::Programs;
use crate::{app, install, loopback, wan};

/// Azekura and its peers on one link, workload by workload.
#[derive(Debug, Parser)]
#[command(name = "wan", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    wan: WanArgs,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// No link: what the software itself costs on one machine.
    Loopback(LoopbackArgs),
    /// Table and charts from the JSON of earlier runs; several runs become one, so that a long
    /// comparison can be made in parts.
    Report {
        /// The JSON.
        #[arg(required = true)]
        json: Vec<PathBuf>,
        /// Where to write the charts.
        #[arg(long)]
        svg: Option<PathBuf>,
        /// Document whose marked part becomes the table; printed when absent.
        #[arg(long)]
        markdown: Option<PathBuf>,
    },
    /// One workload, as its own process.
    #[command(hide = true)]
    App {
        /// The workload as JSON.
        workload: String,
        /// Seconds until it stops.
        #[arg(long)]
        cap: f64,
    },
}

/// The comparison over a link.
#[derive(Debug, Args)]
pub(crate) struct WanArgs {
    /// One repeat and smaller sizes.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Operations, all when absent: seq, stride, reverse, nested, interleaved, random, random32,
    /// walk, small, write, create, steps, demand.
    #[arg(long, value_delimiter = ',')]
    pub(crate) ops: Vec<String>,
    /// Round-trip times in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,25,100")]
    pub(crate) rtts: Vec<f64>,
    /// Systems: azekura, azekura-first (knows nothing of the line from a mount before),
    /// azekura-plain, azekura-blocking (seq and stride only), sshfs (two rows),
    /// sshfs-tuned, sshfs-ra16, rclone (two rows), rclone-http, rclone-sftp.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "azekura,azekura-blocking,sshfs,rclone"
    )]
    pub(crate) systems: Vec<String>,
    /// Repeats of everything [default: 5, with --quick 1].
    #[arg(long)]
    repeat: Option<u32>,
    /// Seconds after which a workload stops and is extrapolated [default: 15, with --quick 8].
    #[arg(long)]
    cap: Option<u64>,
    /// Wire rate of both directions.
    #[arg(long, default_value = "1000Mbit")]
    pub(crate) rate: String,
    /// Share of segments lost in each direction.
    #[arg(long, default_value = "0")]
    pub(crate) loss: String,
    /// Ceiling of TCP's self-tuned buffers; `kernel` leaves it as found.
    #[arg(long, default_value = "64MiB")]
    pub(crate) tcp_buffer: String,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Where to write all results.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Where to write the charts.
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
    /// Document whose marked part becomes the table; printed when absent.
    #[arg(long)]
    pub(crate) markdown: Option<PathBuf>,
}

/// The comparison without a link.
#[derive(Debug, Args)]
pub(crate) struct LoopbackArgs {
    /// One repeat.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Systems, as for the comparison over a link; also `null` (FUSE alone) and `local`.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "azekura,azekura-plain,null,sshfs-tuned,rclone-http,local"
    )]
    pub(crate) systems: Vec<String>,
    /// Repeats of everything [default: 5, with --quick 1].
    #[arg(long)]
    repeat: Option<u32>,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Where to write all results.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Document whose marked part becomes the table; printed when absent.
    #[arg(long)]
    pub(crate) markdown: Option<PathBuf>,
}

/// Where the systems' programs are.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// The azekura program; `cargo xtask bench` names the one it built.
    #[arg(long, env = "AZEKURA", default_value = "target/release/azekura")]
    azekura: PathBuf,
    /// The file system that does nothing but FUSE; `cargo xtask bench` names the one it built.
    #[arg(
        long,
        env = "AZEKURA_NULL",
        default_value = "target/release/examples/null"
    )]
    null: PathBuf,
    /// The rclone program; found, or built when the installed one is too old, when absent.
    #[arg(long)]
    rclone: Option<PathBuf>,
    /// Install and build nothing.
    #[arg(long)]
    no_install: bool,
}

impl WanArgs {
    pub(crate) fn cap(&self) -> Duration {
        Duration::from_secs(self.cap.unwrap_or(if self.quick { 8 } else { 15 }))
    }

    pub(crate) fn repeats(&self) -> u32 {
        self.repeat.unwrap_or(if self.quick { 1 } else { 5 })
    }
}

impl LoopbackArgs {
    pub(crate) fn repeats(&self) -> u32 {
        self.repeat.unwrap_or(if self.quick { 1 } else { 5 })
    }
}

impl ProgramArgs {
    /// Finds the programs; installs peers that are missing if some peer is wanted.
    fn prepare(&self, systems: &[String]) -> anyhow::Result<Programs> {
        let wants = |peer: &str| systems.iter().any(|system| system.starts_with(peer));
        if !self.no_install && (wants("sshfs") || wants("rclone")) {
            install::packages();
        }
        let may_build = !self.no_install && wants("rclone");
        Ok(Programs {
            azekura: std::path::absolute(&self.azekura)?,
            null: std::path::absolute(&self.null)?,
            rclone: install::rclone(self.rclone.as_deref(), may_build),
        })
    }
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Some(Verb::App { workload, cap }) => {
                let workload: app::Workload = serde_json::from_str(&workload)?;
                let outcome = app::run(&workload, Duration::from_secs_f64(cap));
                println!("{}", serde_json::to_string(&outcome)?);
                Ok(ExitCode::SUCCESS)
            }
            Some(Verb::Report {
                json,
                svg,
                markdown,
            }) => {
                let mut results = Results::load(&json[0])?;
                for other in &json[1..] {
                    results.absorb(Results::load(other)?)?;
                }
                wan::finish(&results, svg.as_deref(), markdown.as_deref())?;
                Ok(ExitCode::SUCCESS)
            }
            Some(Verb::Loopback(args)) => {
                check(&[&args.json, &args.markdown])?;
                contained(|| loopback::run(&args, args.programs.prepare(&args.systems)?))
            }
            None => {
                let args = self.wan;
                check(&[&args.json, &args.svg, &args.markdown])?;
                contained(|| wan::run(&args, args.programs.prepare(&args.systems)?))
            }
        }
    }
}

/// Refuses what cannot work here, before anything is started.
fn check(outputs: &[&Option<PathBuf>]) -> anyhow::Result<()> {
    for path in outputs.iter().copied().flatten() {
        if std::path::absolute(path)?.starts_with("/run") {
            bail!(
                "{} would vanish: /run is private during a run",
                path.display()
            );
        }
    }
    if let Some(why) = azlink::why_not() {
        bail!("skipped: {why}");
    }
    Ok(())
}
