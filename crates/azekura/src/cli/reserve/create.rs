//! `azekura reserve create`, and `when`, which only asks.

use super::time::{Between, When as Time, seconds, stretch, within};
use super::{Place, ask_for_one, bounded_name, shown};
use crate::config::{Config, Span};
use crate::connect::WayArgs;
use crate::errors::{Code, Failure, Result};
use crate::output;
use base::limits::RESERVE_SLICES_MAX;
use base::{ByteSize, Rate, StoreId};
use jiff::Zoned;
use std::time::Duration;
use wire::message::{ReserveRequest, ReserveTerms, ReserveWindow};

/// For how long what was written stays after the window if nothing else is said.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(86_400);
/// Rates below this, in bytes a second, are hardly meant: somebody has left out the unit.
const RATE_ODD: u64 = 1000;
/// What a command that cannot be meant ends with, as everywhere on the command line.
const EXIT_USAGE: u8 = 2;
/// How far `when` looks if nothing else is said.
const LOOK_SECONDS: u64 = 30 * 86_400;

/// What is wanted.
#[derive(Debug, clap::Args)]
struct Wanted {
    /// HOST:PORT/VOLUME, or HOST:PORT for objects that programs keep in its stores themselves
    #[arg(value_name = "ADDR[/VOLUME]")]
    place: Place,
    /// Rate of reading
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    read: Option<Rate>,
    /// Rate of writing
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
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
    /// For objects that programs keep: how long they stay after the window [default: 24h]. Leave it
    /// out for files of a volume: they stay until they are removed, and what they have not taken of
    /// the space is given back when the window is over. With it, the space is for objects that end,
    /// and files are not sure of it
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
        let found = self.ask(config, &name, window, dry_run)?;
        if self.json {
            return output::json(&found.json());
        }
        output::write(&found.text(&self.place))
    }

    fn ask(
        &self,
        config: &Config,
        name: &str,
        window: ReserveWindow,
        dry_run: bool,
    ) -> Result<shown::Reserved> {
        if self.stores.len() > RESERVE_SLICES_MAX {
            let why = format!("at most {RESERVE_SLICES_MAX} stores carry a reservation");
            let hint = format!("--on at most {RESERVE_SLICES_MAX} times");
            return Err(invalid(why).hint(hint).exit(EXIT_USAGE));
        }
        let mut request = [0; 16];
        getrandom(&mut request)?;
        let create = ReserveRequest::Create {
            request,
            volume: self.place.volume.clone(),
            name: name.to_owned(),
            terms: self.terms(window),
            dry_run,
        };
        ask_for_one(config, &self.place.server, &self.way, create, self.json)
    }

    /// Remarks about what is hardly meant.
    fn remark(&self) {
        let rates = [("--read", self.read), ("--write", self.write)];
        for (option, rate) in rates {
            if let Some(rate) = rate.filter(|rate| (1..RATE_ODD).contains(&rate.0)) {
                let digits = rate.0;
                output::note(format_args!(
                    "{option} is {rate}; if {digits} MB/s are meant, write {option} {digits}MB/s"
                ));
            }
        }
    }
}

pub(super) fn getrandom(bytes: &mut [u8]) -> Result<()> {
    let got = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(Failure::local("random numbers", "too few")),
        Err(error) => Err(Failure::local("random numbers", error)),
    }
}

pub(super) fn invalid(why: impl Into<String>) -> Failure {
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
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "within",
        allow_hyphen_values = true
    )]
    from: Option<Time>,
    /// Until when
    #[arg(long, value_name = "TIME", conflicts_with_all = ["duration", "within"],
        allow_hyphen_values = true)]
    until: Option<Time>,
    /// As early as it fits between these, for as long as --for says
    #[arg(long, value_name = "EARLIEST..LATEST", requires = "duration")]
    within: Option<Between>,
    /// How it is called; made up if it is left out
    #[arg(long, value_name = "NAME", default_value = "", value_parser = bounded_name)]
    name: String,
    /// Only ask whether it would be admitted
    #[arg(long)]
    dry_run: bool,
}

impl Create {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        self.wanted.remark();
        let mut window = self.window(&Zoned::now())?;
        if self.begins_now()
            && let Some(duration) = self.wanted.duration.map(seconds)
        {
            // It begins when the manager has answered, which may have to start or to measure
            // first. So it is asked for twice: the second answer takes no time.
            let trial = self.wanted.ask(config, &self.name, window, true)?;
            window = counted(duration, trial.summary.start_secs, &Zoned::now())?;
        }
        self.wanted.run(config, self.name, window, self.dry_run)
    }

    /// Whether the window begins with the answer and is as long as `--for` says.
    fn begins_now(&self) -> bool {
        let is_now = matches!(self.from, None | Some(Time::Now));
        is_now && self.until.is_none() && self.within.is_none()
    }

    fn window(&self, now: &Zoned) -> Result<ReserveWindow> {
        let duration = self.wanted.duration.map(seconds);
        if let (Some(Between(earliest, latest)), Some(duration_secs)) = (&self.within, duration) {
            return within_span(earliest, latest, duration_secs, now);
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

/// The window of so many seconds from now on, or from the manager's present time if that is later.
/// The present second has begun, so one more is taken.
fn counted(duration: u64, manager_secs: u64, now: &Zoned) -> Result<ReserveWindow> {
    let start_secs = Time::Now.start(now).map_err(invalid)?.max(manager_secs);
    Ok(ReserveWindow::At {
        start_secs,
        end_secs: start_secs.saturating_add(duration).saturating_add(1),
    })
}

/// A window somewhere in a span.
fn within_span(
    earliest: &Time,
    latest: &Time,
    duration_secs: u64,
    now: &Zoned,
) -> Result<ReserveWindow> {
    let span = within(earliest, latest, duration_secs, now).map_err(invalid)?;
    let (earliest_secs, latest_secs) = span;
    let room = latest_secs.saturating_sub(earliest_secs);
    if room < duration_secs {
        let why = format!(
            "a window of {} is longer than the {} between {} and {}",
            output::seconds(duration_secs),
            output::seconds(room),
            shown::moment(earliest_secs),
            shown::moment(latest_secs),
        );
        return Err(invalid(why).hint("a shorter --for, or a wider --within"));
    }
    Ok(ReserveWindow::Within {
        earliest_secs,
        latest_secs,
        duration_secs,
    })
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
        let window = match &self.within {
            Some(Between(earliest, latest)) => within_span(earliest, latest, duration_secs, &now)?,
            None => {
                let start = Time::Now.start(&now).map_err(invalid)?;
                ReserveWindow::Within {
                    earliest_secs: start,
                    latest_secs: start.saturating_add(LOOK_SECONDS + duration_secs),
                    duration_secs,
                }
            }
        };
        self.wanted.remark();
        self.wanted
            .run(config, shown::TRIAL.to_owned(), window, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_from_now_on_is_as_long_as_was_asked_for() {
        let now: Zoned = "2026-05-01T18:30:00.5+02:00[+02:00]"
            .parse()
            .expect("a time");
        let here = now.timestamp().as_second().unsigned_abs();
        for manager in [here - 5, here, here + 3] {
            let window = counted(600, manager, &now).expect("a window");
            let ReserveWindow::At { end_secs, .. } = window else {
                unreachable!("it begins now");
            };
            // The manager's clock goes on to the next second at most.
            assert!(end_secs - (manager.max(here) + 1) >= 600, "{window:?}");
        }
    }

    #[test]
    fn a_window_longer_than_its_span_is_named_so() {
        let now: Zoned = "2026-05-01T18:30:00+02:00[+02:00]".parse().expect("a time");
        let Between(from, to) = "now..+10m".parse().expect("a span");
        let failure = within_span(&from, &to, 1800, &now).expect_err("it is longer");
        assert!(failure.message().contains("longer than"), "{failure}");
        assert!(failure.hint_text().contains("--within"), "{failure}");
    }
}
