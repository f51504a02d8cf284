//! `azekura reserve create`, and `when`, which only asks.

use super::time::{Between, When as Time, seconds, stretch};
use super::{Place, ask, reserved, shown};
use crate::config::{Config, Span};
use crate::connect::WayArgs;
use crate::errors::{Code, Failure, Result};
use crate::output;
use base::{ByteSize, Rate, StoreId};
use jiff::Zoned;
use std::time::Duration;
use wire::message::{ReserveRequest, ReserveTerms, ReserveWindow};

/// For how long what was written stays after the window if nothing else is said.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(86_400);
/// How far `when` looks if nothing else is said.
const LOOK_SECONDS: u64 = 30 * 86_400;

/// What is wanted.
#[derive(Debug, clap::Args)]
struct Wanted {
    /// HOST:PORT/VOLUME, or HOST:PORT for objects that programs keep in its stores themselves
    #[arg(value_name = "ADDR[/VOLUME]")]
    place: Place,
    /// Rate of reading
    #[arg(long, value_name = "RATE")]
    read: Option<Rate>,
    /// Rate of writing
    #[arg(long, value_name = "RATE")]
    write: Option<Rate>,
    /// For how long an idle share is saved, at most 1s
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    burst: Span,
    /// Space for what is written
    #[arg(long, value_name = "SIZE")]
    space: Option<ByteSize>,
    /// How long the window is: 90s, 30m, 1h 30m, 7d, 2w
    #[arg(long = "for", value_name = "TIME")]
    duration: Option<Span>,
    /// Again so long after each start; with --count, all of them or none
    #[arg(long, value_name = "TIME", requires = "count")]
    every: Option<Span>,
    /// How often
    #[arg(long, value_name = "N", requires = "every")]
    count: Option<u32>,
    /// How long objects that programs keep stay after the window [default: 24h]. Files of a volume
    /// stay until they are removed, and what they have not taken of the space is given back when
    /// the window is over
    #[arg(long, value_name = "TIME")]
    lifetime: Option<Span>,
    /// On this store, for a file that lies there; may be repeated, and then all of them are meant
    #[arg(long = "on", value_name = "STORE", value_parser = store)]
    stores: Vec<StoreId>,
    /// Print JSON, with the tickets; a refusal with its offers, too
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

fn store(text: &str) -> Result<StoreId, String> {
    let wrong = || format!("{text:?} is no identity of a store; azekura status lists them");
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut id = [0; 16];
    for (at, byte) in id.iter_mut().enumerate().filter(|_| is_hex) {
        let digits = &text[2 * at..2 * at + 2];
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    is_hex.then_some(StoreId(id)).ok_or_else(wrong)
}

impl Wanted {
    fn terms(&self, window: ReserveWindow) -> ReserveTerms {
        let millis = self.burst.0.as_millis();
        ReserveTerms {
            read_bytes_per_second: self.read.map_or(0, |rate| rate.0),
            write_bytes_per_second: self.write.map_or(0, |rate| rate.0),
            burst_millis: u32::try_from(millis).unwrap_or(u32::MAX),
            space_bytes: self.space.map_or(0, |size| size.0),
            window,
            every_secs: self.every.map_or(0, seconds),
            count: self.count.unwrap_or(1),
            lifetime_secs: match self.lifetime {
                Some(lifetime) => seconds(lifetime),
                None if self.place.volume.is_empty() => LIFETIME_DEFAULT.as_secs(),
                None => 0,
            },
            stores: self.stores.clone(),
        }
    }

    fn run(
        self,
        config: &Config,
        name: String,
        window: ReserveWindow,
        dry_run: bool,
    ) -> Result<()> {
        let mut request = [0; 16];
        getrandom(&mut request)?;
        let create = ReserveRequest::Create {
            request,
            volume: self.place.volume.clone(),
            name,
            terms: self.terms(window),
            dry_run,
        };
        let server = &self.place.server;
        let reply = ask(config, server, &self.way, create)?;
        let found = reserved(server, reply, self.json)?;
        if self.json {
            return output::json(&found.json());
        }
        output::write(&found.text(&self.place))
    }
}

fn getrandom(bytes: &mut [u8]) -> Result<()> {
    let got = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(Failure::local("random numbers", "too few")),
        Err(error) => Err(Failure::local("random numbers", error)),
    }
}

fn invalid(why: impl Into<String>) -> Failure {
    Failure::new(Code::ReserveInvalid, why)
}

/// Reserve speed, space or both
///
/// In the window, the reserved rate is kept whatever others do; outside of it and beyond it, what
/// is written and read shares with everybody. What was asked for is admitted as it is or refused,
/// with the nearest thing that would be; then the exit code is 3.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  azekura reserve create 127.0.0.1:7700/lab --write 20MB/s --space 300MB --for 2m --name run42
  azekura reserve create 127.0.0.1:7700/lab --read 400MB/s --from 19:00 --until 21:00
  azekura reserve create 127.0.0.1:7700/lab --write 1GB/s --within 20:00..06:00 --for 1h
  azekura reserve create 127.0.0.1:7700/lab --read 1GB/s --from 03:00 --for 30m \
    --every 24h --count 365")]
pub(in crate::cli) struct Create {
    #[command(flatten)]
    wanted: Wanted,
    /// From when on: now, +2h, 19:00 or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", conflicts_with = "within")]
    from: Option<Time>,
    /// Until when
    #[arg(long, value_name = "TIME", conflicts_with_all = ["duration", "within"])]
    until: Option<Time>,
    /// As early as it fits between these, for as long as --for says
    #[arg(long, value_name = "EARLIEST..LATEST", requires = "duration")]
    within: Option<Between>,
    /// How it is called; made up if it is left out
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Only ask whether it would be admitted
    #[arg(long)]
    dry_run: bool,
}

impl Create {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let window = self.window(&Zoned::now())?;
        self.wanted.run(config, self.name, window, self.dry_run)
    }

    fn window(&self, now: &Zoned) -> Result<ReserveWindow> {
        let duration = self.wanted.duration.map(seconds);
        if let (Some(Between(earliest, latest)), Some(duration_secs)) = (&self.within, duration) {
            let (earliest_secs, latest_secs) = stretch(earliest, latest, now).map_err(invalid)?;
            return Ok(ReserveWindow::Within {
                earliest_secs,
                latest_secs,
                duration_secs,
            });
        }
        let from = self.from.as_ref().unwrap_or(&Time::Now);
        let start_secs = from.start(now).map_err(invalid)?;
        let end_secs = match (&self.until, duration) {
            (Some(until), _) => stretch(from, until, now).map_err(invalid)?.1,
            (None, Some(duration)) => start_secs.saturating_add(duration),
            (None, None) => {
                return Err(invalid("the window has no end").hint("--until TIME or --for TIME"));
            }
        };
        Ok(ReserveWindow::At {
            start_secs,
            end_secs,
        })
    }
}

/// Ask when something would fit, without taking it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  azekura reserve when 127.0.0.1:7700/lab --write 800MB/s --for 2h --within now..+72h")]
pub(in crate::cli) struct When {
    #[command(flatten)]
    wanted: Wanted,
    /// Between these [default: now and thirty days later]
    #[arg(long, value_name = "EARLIEST..LATEST", requires = "duration")]
    within: Option<Between>,
}

impl When {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let now = Zoned::now();
        let duration = self.wanted.duration.map(seconds);
        let duration_secs =
            duration.ok_or_else(|| invalid("for how long?").hint("--for TIME, such as 2h"))?;
        let (earliest_secs, latest_secs) = match &self.within {
            Some(Between(earliest, latest)) => stretch(earliest, latest, &now).map_err(invalid)?,
            None => {
                let start = Time::Now.start(&now).map_err(invalid)?;
                (start, start.saturating_add(LOOK_SECONDS + duration_secs))
            }
        };
        let window = ReserveWindow::Within {
            earliest_secs,
            latest_secs,
            duration_secs,
        };
        self.wanted
            .run(config, shown::TRIAL.to_owned(), window, true)
    }
}
