//! `azekura top`: a mount at work.

use crate::config::Span;
use crate::errors::Result;
use crate::mounts::Mounted;
use crate::output::{self, rate, size, span};
use base::Rate;
use serde_json::Value;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the mount may take to answer: it does not ask the server for this.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Silence that is no pause between heartbeats any more.
pub(super) const SILENCE_SHOWN: Duration = Duration::from_secs(5);
/// To the upper left corner, and forget what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Show what a mount does: window, bytes in flight, hits, waste, rates
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura top mnt/photos --once --json")]
pub(super) struct Top {
    /// A mounted directory, or anything below it
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Once instead of again and again
    #[arg(long)]
    once: bool,
    /// Print JSON, one line each time
    #[arg(long)]
    json: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Span,
}

impl Top {
    pub(super) fn run(self) -> Result<()> {
        let mounted = Mounted::containing(&self.directory)?;
        let clear = !self.once && io::stdout().is_terminal();
        let mut before: Option<(Instant, Value)> = None;
        loop {
            let status = mounted.status(ANSWER_TIME_MAX)?;
            let now = Instant::now();
            if self.json {
                output::json(&status)?;
            } else {
                let earlier = before.as_ref().map(|(at, status)| (now - *at, status));
                let page = page(&mounted.path.to_string_lossy(), &status, earlier);
                output::write(if clear { CLEAR } else { "" })?;
                output::write(&page)?;
            }
            if self.once {
                return Ok(());
            }
            before = Some((now, status));
            std::thread::sleep(self.interval.0);
        }
    }
}

/// A mount's figures, now and at the look before.
struct Figures<'a> {
    now: &'a Value,
    earlier: Option<(Duration, &'a Value)>,
}

impl Figures<'_> {
    fn number(&self, key: &str) -> u64 {
        self.now.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    fn text(&self, key: &str) -> String {
        output::plain(self.now.get(key).and_then(Value::as_str).unwrap_or("?"))
    }

    fn size(&self, key: &str) -> String {
        size(self.number(key))
    }

    /// What is shown of a figure that is not measured yet.
    fn known(&self, key: &str, show: impl FnOnce(u64) -> String) -> String {
        match self.number(key) {
            0 => "unknown".to_owned(),
            number => show(number),
        }
    }

    /// A share of what `of` counts.
    fn share(&self, key: &str, of: &str) -> String {
        if self.number(of) == 0 {
            return "-".to_owned();
        }
        let share = self.now.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        format!("{:.1} %", share * 100.0)
    }

    /// A count of bytes, with its rate over the time since the look before.
    fn flow(&self, key: &str) -> String {
        let now = self.number(key);
        let lately = self.earlier.map_or(String::new(), |(time, earlier)| {
            let then = earlier.get(key).and_then(Value::as_u64).unwrap_or(now);
            format!("  {}", rate(now.saturating_sub(then), time))
        });
        format!("{}{lately}", size(now))
    }

    fn line(&self) -> String {
        let again = output::count(self.number("reconnects"), "connection");
        let silence = Duration::from_millis(self.number("silence_millis"));
        if self
            .now
            .get("connected")
            .and_then(Value::as_bool)
            .unwrap_or(false)
        {
            if silence > SILENCE_SHOWN {
                return format!(
                    "connected, nothing heard for {}, {again} made again",
                    span(silence)
                );
            }
            return format!("connected, {again} made again");
        }
        format!("not connected for {}, {again} made again", span(silence))
    }
}

/// The figures for people.
fn page(path: &str, now: &Value, earlier: Option<(Duration, &Value)>) -> String {
    let all = Figures { now, earlier };
    let both = |down: String, up: String| format!("down {down}, up {up}");
    let measured = |key: &str| all.known(key, |rate| Rate(rate).to_string());
    let in_flight = both(
        all.size("in_flight_bytes"),
        all.size("upload_in_flight_bytes"),
    );
    let requests = output::count(all.number("requests_in_flight"), "request");
    let held = format!(
        "{} data, {}, {}",
        all.size("buffered_bytes"),
        output::count(all.number("nodes"), "inode"),
        output::count(all.number("leases"), "lease")
    );
    let hits = format!(
        "data {}, names {}",
        all.share("hit_rate", "read_bytes"),
        all.share("lookup_hit_rate", "lookups")
    );
    let rates = both(
        measured("download_bytes_per_second"),
        measured("upload_bytes_per_second"),
    );
    let rows = [
        ("line", all.line()),
        (
            "round trip",
            all.known("rtt_micros", |micros| span(Duration::from_micros(micros))),
        ),
        ("measured rate", rates),
        (
            "window",
            both(all.size("window_bytes"), all.size("upload_window_bytes")),
        ),
        ("in flight", format!("{in_flight}, {requests}")),
        ("received", all.flow("bytes_received")),
        ("sent", all.flow("bytes_sent")),
        ("read by programs", all.flow("read_bytes")),
        ("written", all.flow("written_bytes")),
        ("not yet safe", all.size("unwritten_bytes")),
        ("hits", hits),
        ("wasted", all.size("wasted_bytes")),
        ("held", held),
    ];
    let mut page = format!("{} on {}\n", all.text("source"), output::plain(path));
    let tickets = now.get("tickets").and_then(Value::as_array);
    let tickets = tickets.into_iter().flatten().map(reserved);
    for (name, value) in rows.into_iter().chain(tickets) {
        writeln!(page, "  {name:<17} {value}").expect("writing to a string cannot fail");
    }
    page
}

/// What a ticket is worth, and what was moved with it.
fn reserved(ticket: &Value) -> (&'static str, String) {
    let all = Figures {
        now: ticket,
        earlier: None,
    };
    let moment = |key| output::moment(i64::try_from(all.number(key)).unwrap_or(i64::MAX));
    let when = match all.text("state").as_str() {
        "in_force" => format!("until {}", moment("end_seconds")),
        "over" => "over".to_owned(),
        _ => format!("not in force, from {} on", moment("start_seconds")),
    };
    let (with, without) = (all.size("bytes"), all.size("bytes_without"));
    (
        "reserved",
        format!("{when}, {with} moved, {without} without"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn figures_are_shown_with_units_and_rates() {
        let status = |received: u64| {
            json!({
                "source": "far:7700/lab", "connected": true, "reconnects": 1, "rtt_micros": 100_100,
                "window_bytes": 12 << 20, "in_flight_bytes": 8 << 20, "requests_in_flight": 8,
                "bytes_received": received, "hit_rate": 0.987, "lookup_hit_rate": 1.0,
                "wasted_bytes": 4096, "unwritten_bytes": 0,
                "download_bytes_per_second": 117_700_000, "read_bytes": 1024, "nodes": 1,
                "tickets": [{
                    "state": "in_force", "start_seconds": 0, "end_seconds": 60,
                    "bytes": 4 << 20, "bytes_without": 1024,
                }],
            })
        };
        let (then, now) = (status(1 << 20), status((1 << 20) + 58_850_000));
        let page = page("/mnt/lab", &now, Some((Duration::from_millis(500), &then)));
        expect![[r#"
            far:7700/lab on /mnt/lab
              line              connected, 1 connection made again
              round trip        100 ms
              measured rate     down 117.7 MB/s, up unknown
              window            down 12.0 MiB, up 0 B
              in flight         down 8.0 MiB, up 0 B, 8 requests
              received          57.1 MiB  117.7 MB/s
              sent              0 B  0 B/s
              read by programs  1.0 KiB  0 B/s
              written           0 B  0 B/s
              not yet safe      0 B
              hits              data 98.7 %, names -
              wasted            4.0 KiB
              held              0 B data, 1 inode, 0 leases
              reserved          until 1970-01-01T00:01:00Z, 4.0 MiB moved, 1.0 KiB without
        "#]]
        .assert_eq(&page);
    }
}
