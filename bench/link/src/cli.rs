//! The command line of `azlink`.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use azlink::{
    Command, Direction, Link, LinkOptions, LinkSettings, Schedule, Side, TcpTuning, control, probe,
    sys, units,
};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// A network link with delay, rate, queue and loss between two network namespaces.
#[derive(Debug, Parser)]
#[command(name = "azlink", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Keep a link up; prints one line of JSON with the namespaces when it is ready.
    Up {
        #[command(flatten)]
        link: LinkArgs,
    },
    /// Run a command at the client's end of a new link.
    Run {
        #[command(flatten)]
        link: LinkArgs,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Run a command at one end of the link that this one runs in.
    Exec {
        /// The end.
        side: SideArg,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Send a command to a link (`rtt 50ms`, `down`, `stats`...) and print its state as JSON.
    Ctl {
        /// The control socket.
        #[arg(long, env = "AZLINK_CONTROL")]
        control: PathBuf,
        /// The command.
        command: Vec<String>,
    },
    /// Measure round trips and TCP goodput over a new link; prints JSON.
    Probe {
        #[command(flatten)]
        link: LinkArgs,
        /// Seconds of TCP in each direction.
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SideArg {
    Client,
    Server,
}

/// What the link is.
#[derive(Debug, Args)]
struct LinkArgs {
    /// Round-trip time.
    #[arg(long, default_value = "0ms")]
    rtt: String,
    /// Wire rate of both directions (`1000Mbit`, `unlimited`).
    #[arg(long, default_value = "1000Mbit")]
    rate: String,
    /// Wire rate from client to server, if it differs.
    #[arg(long)]
    rate_to_server: Option<String>,
    /// Wire rate from server to client, if it differs.
    #[arg(long)]
    rate_to_client: Option<String>,
    /// Drop-tail queue in bytes; `auto` is the larger of rate x RTT and 20 ms.
    #[arg(long, default_value = "auto")]
    queue: String,
    /// Share of segments lost in each direction (`1%`).
    #[arg(long, default_value = "0")]
    loss: String,
    /// Largest extra delay per direction.
    #[arg(long, default_value = "0ms")]
    jitter: String,
    /// File of `TIME COMMAND` lines, run from the start.
    #[arg(long)]
    schedule: Option<PathBuf>,
    /// Seed of loss and jitter.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ceiling of TCP's self-tuned buffers inside; as the kernel has it when absent.
    #[arg(long)]
    tcp_buffer: Option<String>,
    /// Where to make the control socket.
    #[arg(long)]
    control: Option<PathBuf>,
}

impl LinkArgs {
    fn options(&self) -> anyhow::Result<LinkOptions> {
        let mut settings = LinkSettings::default();
        let mut lines = vec![
            format!("rtt {}", self.rtt),
            format!("rate {}", self.rate),
            format!("queue {}", self.queue),
            format!("loss {}", self.loss),
            format!("jitter {}", self.jitter),
        ];
        lines.extend(
            self.rate_to_server
                .iter()
                .map(|rate| format!("rate to-server {rate}")),
        );
        lines.extend(
            self.rate_to_client
                .iter()
                .map(|rate| format!("rate to-client {rate}")),
        );
        for line in lines {
            settings.apply(&line.parse()?);
        }
        let buffer_bytes_max = self.tcp_buffer.as_deref().map(units::size).transpose()?;
        Ok(LinkOptions {
            settings,
            seed: self.seed,
            tuning: TcpTuning {
                buffer_bytes_max,
                forgets_paths: true,
            },
        })
    }

    fn schedule(&self) -> anyhow::Result<Schedule> {
        let Some(path) = &self.schedule else {
            return Ok(Schedule::default());
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading schedule {}", path.display()))?;
        Ok(Schedule::parse(&text)?)
    }

    fn start(&self) -> anyhow::Result<Arc<Link>> {
        let schedule = self.schedule()?;
        let options = self.options()?;
        if let Some(why) = azlink::why_not() {
            bail!("skipped: {why}");
        }
        let link = Arc::new(Link::start(&options)?);
        if !link.is_real_time() {
            eprintln!("azlink: no real-time class here: delays and rates will be inexact");
        }
        if let Some(path) = &self.control {
            control::serve(Arc::clone(&link), path)?;
        }
        let scheduled = Arc::clone(&link);
        std::thread::spawn(move || follow(&scheduled, &schedule));
        Ok(link)
    }
}

fn follow(link: &Link, schedule: &Schedule) {
    let start = Instant::now();
    for (time, command) in schedule.steps() {
        std::thread::sleep(time.saturating_sub(start.elapsed()));
        link.apply(command);
    }
}

/// Removes the control socket at the end, whatever the end is.
struct ControlFile<'a>(Option<&'a Path>);

impl Drop for ControlFile<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // Nobody can use it any more; that it is gone already is fine.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Up { link } => up(&link),
            Verb::Run { link, command } => run(link, &command),
            Verb::Exec { side, command } => exec(side, &command),
            Verb::Ctl { control, command } => ctl(&control, &command.join(" ")),
            Verb::Probe { link, seconds } => measure(&link, seconds),
        }
    }
}

fn up(args: &LinkArgs) -> anyhow::Result<ExitCode> {
    die_with_parent()?;
    sys::hold_signals()?;
    let link = args.start()?;
    let _control = ControlFile(args.control.as_deref());
    let ready = serde_json::json!({
        "pid": std::process::id(),
        "client_namespace": link.namespace(Side::Client).path(),
        "server_namespace": link.namespace(Side::Server).path(),
        "client_address": azlink::CLIENT_ADDRESS,
        "server_address": azlink::SERVER_ADDRESS,
        "settings": link.settings(),
    });
    println!("{ready}");
    while sys::wait_signal()? == sys::CHILD_ENDED {}
    println!("{}", serde_json::json!({ "counters": link.counters() }));
    Ok(ExitCode::SUCCESS)
}

fn run(mut args: LinkArgs, command: &[String]) -> anyhow::Result<ExitCode> {
    die_with_parent()?;
    sys::hold_signals()?;
    let socket = std::env::temp_dir().join(format!("azlink-{}.sock", std::process::id()));
    let control = args.control.get_or_insert(socket).clone();
    let link = args.start()?;
    let _control = ControlFile(Some(&control));
    let child = link
        .command(Side::Client, &command[0])
        .args(&command[1..])
        .env("AZLINK_CONTROL", &control)
        .env(
            "AZLINK_CLIENT_NAMESPACE",
            link.namespace(Side::Client).path(),
        )
        .env(
            "AZLINK_SERVER_NAMESPACE",
            link.namespace(Side::Server).path(),
        )
        .env("AZLINK_CLIENT_ADDRESS", azlink::CLIENT_ADDRESS.to_string())
        .env("AZLINK_SERVER_ADDRESS", azlink::SERVER_ADDRESS.to_string())
        .spawn()
        .with_context(|| format!("starting {}", command[0]))?;
    attend(child)
}

/// Waits for the child; passes an ending signal on, and kills the child 5 s after it.
fn attend(mut child: Child) -> anyhow::Result<ExitCode> {
    const GRACE: Duration = Duration::from_secs(5);
    loop {
        if let Some(status) = child.try_wait()? {
            let signalled = || status.signal().map_or(1, |signal| 128 + signal);
            return Ok(ExitCode::from(status.code().unwrap_or_else(signalled) as u8));
        }
        if sys::wait_signal()? == sys::CHILD_ENDED {
            continue;
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let asked = Instant::now();
        while asked.elapsed() < GRACE && child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill()?;
    }
}

fn exec(side: SideArg, command: &[String]) -> anyhow::Result<ExitCode> {
    let variable = match side {
        SideArg::Client => "AZLINK_CLIENT_NAMESPACE",
        SideArg::Server => "AZLINK_SERVER_NAMESPACE",
    };
    let path = std::env::var(variable)
        .with_context(|| format!("{variable} is not set: this is not inside `azlink run`"))?;
    let namespace = std::fs::File::open(&path).with_context(|| format!("opening {path}"))?;
    rustix::thread::move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&namespace),
        Some(rustix::thread::LinkNameSpaceType::Network),
    )?;
    Err(Process::new(&command[0]).args(&command[1..]).exec())
        .with_context(|| format!("starting {}", command[0]))
}

fn ctl(socket: &Path, command: &str) -> anyhow::Result<ExitCode> {
    command.parse::<Command>()?;
    println!("{}", control::ask(socket, command)?);
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &LinkArgs, seconds: f64) -> anyhow::Result<ExitCode> {
    let link = args.start()?;
    let trips = probe::round_trips(&link, 20, Duration::from_millis(50))?;
    let time = Duration::from_secs_f64(seconds);
    let to_client = probe::goodput(&link, Direction::ToClient, time)?;
    let to_server = probe::goodput(&link, Direction::ToServer, time)?;
    let report = serde_json::json!({
        "settings": link.settings(),
        "round_trips": {
            "sent": trips.sent,
            "returned": trips.times_ms.len(),
            "min_ms": trips.min_ms(),
            "median_ms": trips.median_ms(),
        },
        "to_client": to_client,
        "to_server": to_server,
        "counters": link.counters(),
    });
    println!("{report:#}");
    Ok(ExitCode::SUCCESS)
}

fn die_with_parent() -> anyhow::Result<()> {
    let signal = Some(rustix::process::Signal::TERM);
    Ok(rustix::process::set_parent_process_death_signal(signal)?)
}
