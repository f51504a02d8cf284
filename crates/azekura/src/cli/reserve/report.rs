//! `azekura reserve report`.

use super::{Which, ask, chart, shown};
use crate::config::Config;
use crate::connect::{WayArgs, unexpected_reply};
use crate::errors::{Context, Result};
use crate::output;
use base::{ByteSize, Rate};
use serde_json::{Value, json};
use std::path::PathBuf;
use wire::message::{
    ReportSecond, ReserveReply, ReserveReport, ReserveRequest, ReserveState, Shortfall,
};

/// Show what was delivered, second by second
///
/// A second counts as kept if the reservation had its share of every device, or did not want it.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Report {
    #[command(flatten)]
    which: Which,
    /// Print JSON: `windows_met` (0 to 1; null before the first second), `space_kept`, every second
    /// that is remembered
    #[arg(long)]
    json: bool,
    /// Draw the bytes of each second into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    way: WayArgs,
}

impl Report {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let request = ReserveRequest::Report {
            which: self.which.name(),
            from_second: 0,
        };
        let server = &self.which.place.server;
        let ReserveReply::Report(report) = ask(config, server, &self.way, request)? else {
            return Err(unexpected_reply(server));
        };
        if let Some(path) = &self.svg {
            std::fs::write(path, chart::draw(&report)).context(path.display())?;
        }
        if self.json {
            return output::json(&report_json(&report));
        }
        output::write(&text(&report))
    }
}

/// The part of the seconds that were kept, if there have been any.
fn windows_met(report: &ReserveReport) -> Option<f64> {
    let seconds = Some(report.seconds).filter(|seconds| *seconds > 0)?;
    Some(report.kept as f64 / seconds as f64)
}

/// Why there is no second yet.
fn not_yet(state: ReserveState) -> &'static str {
    match state {
        ReserveState::Active => "nothing is measured yet; it takes some seconds",
        _ => "nothing is measured yet",
    }
}

fn cause(shortfall: Shortfall) -> &'static str {
    match shortfall {
        Shortfall::NoDemand => "nothing was asked for",
        Shortfall::TooFewInFlight => "too few requests under way",
        Shortfall::SlowDevice => "the device was slower than measured",
        Shortfall::Degraded => "the device has been too slow for seconds",
        Shortfall::ServerAway => "the server was not there",
    }
}

/// Why it was less than was promised; nothing if no more was wanted.
fn shortfall(second: &ReportSecond) -> Option<&'static str> {
    let wanted = |shortfall: &Shortfall| *shortfall != Shortfall::NoDemand;
    second.shortfall.filter(wanted).map(cause)
}

fn report_json(report: &ReserveReport) -> Value {
    let seconds = report.record.iter().map(|second| {
        json!({
            "second": output::moment(i64::try_from(second.second).unwrap_or(i64::MAX)),
            "bytes": second.bytes,
            "promised_micros": second.promised_micros,
            "served_micros": second.served_micros,
            "shortfall": shortfall(second),
        })
    });
    json!({
        "reservation": shown::summary_json(&report.summary),
        "windows_met": windows_met(report),
        "space_kept": report.space_kept,
        "seconds": report.seconds,
        "seconds_kept": report.kept,
        "bytes": report.bytes,
        "record": seconds.collect::<Vec<_>>(),
    })
}

fn is_missed(second: &ReportSecond) -> bool {
    matches!(
        second.shortfall,
        Some(Shortfall::SlowDevice | Shortfall::Degraded | Shortfall::ServerAway)
    )
}

/// The seconds that were missed, by cause. Those that a server was away for are one line.
fn missed_rows(record: &[ReportSecond]) -> Vec<[String; 3]> {
    let mut runs: Vec<(&ReportSecond, u64)> = Vec::new();
    for one in record.iter().filter(|one| is_missed(one)) {
        let is_away = one.shortfall == Some(Shortfall::ServerAway) && one.bytes == 0;
        match runs.last_mut() {
            Some((first, count))
                if is_away
                    && first.bytes == 0
                    && first.shortfall == one.shortfall
                    && first.second.saturating_add(*count) == one.second =>
            {
                *count += 1;
            }
            _ => runs.push((one, 1)),
        }
    }
    let row = |(one, count): (&ReportSecond, u64)| {
        let when = output::moment(i64::try_from(one.second).unwrap_or(i64::MAX));
        let why = one.shortfall.map_or("", cause);
        let why = match count {
            1 => why.to_owned(),
            count => format!("{why} for {count} seconds"),
        };
        [when, Rate(one.bytes).to_string(), why]
    };
    runs.into_iter().map(row).collect()
}

fn text(report: &ReserveReport) -> String {
    let missed = missed_rows(&report.record);
    let space = match (report.summary.space_bytes, report.space_kept) {
        (0, _) => "none".to_owned(),
        (bytes, true) => format!("{} kept", ByteSize(bytes)),
        (bytes, false) => format!("{} NOT kept", ByteSize(bytes)),
    };
    let rows = [
        [
            "reservation".to_owned(),
            output::plain(&report.summary.name),
        ],
        [
            "state".to_owned(),
            shown::state(report.summary.state).to_owned(),
        ],
        [
            "windows met".to_owned(),
            windows_met(report).map_or_else(
                || not_yet(report.summary.state).to_owned(),
                |met| format!("{:.2} %", 100.0 * met),
            ),
        ],
        [
            "seconds".to_owned(),
            format!("{}, {} kept", report.seconds, report.kept),
        ],
        ["delivered".to_owned(), ByteSize(report.bytes).to_string()],
        ["space".to_owned(), space],
    ];
    let mut text = output::table(["REPORT", "VALUE"], &rows);
    if !missed.is_empty() {
        text += "\n";
        text += &output::table(["SHORT AT", "DELIVERED", "CAUSE"], &missed);
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use wire::message::ReservationSummary;

    pub(crate) fn example() -> ReserveReport {
        let second = |second, bytes, shortfall| ReportSecond {
            second,
            bytes,
            promised_micros: 100_000,
            served_micros: 90_000,
            shortfall,
        };
        ReserveReport {
            summary: ReservationSummary {
                id: base::TicketId([1; 16]),
                name: "run<42>".to_owned(),
                volume: base::VolumeId([0; 16]),
                holder: 0,
                state: ReserveState::Ended,
                read_bytes_per_second: 0,
                write_bytes_per_second: 20_000_000,
                burst_millis: 200,
                space_bytes: 0,
                start_secs: 100,
                end_secs: 104,
                every_secs: 0,
                count: 1,
                lifetime_secs: 0,
                released_secs: None,
                slices: Vec::new(),
            },
            seconds: 4,
            kept: 3,
            bytes: 70_000_000,
            space_kept: true,
            record: vec![
                second(100, 20_000_000, None),
                second(101, 10_000_000, Some(Shortfall::SlowDevice)),
                second(102, 0, Some(Shortfall::NoDemand)),
                second(103, 40_000_000, None),
            ],
        }
    }

    #[test]
    fn every_second_that_was_missed_is_named_with_its_cause() {
        let text = text(&example());
        assert!(text.contains("75.00 %"), "{text}");
        assert!(text.contains("run<42>"), "{text}");
        assert!(text.contains("1970-01-01T00:01:41Z"), "{text}");
        assert!(
            text.contains("slower than measured") && !text.contains("nothing was"),
            "{text}"
        );
        let mut none = example();
        none.seconds = 0;
        none.kept = 0;
        assert_eq!(report_json(&none)["windows_met"], Value::Null);
        let seconds = &report_json(&example())["record"];
        assert_eq!(
            seconds[1]["shortfall"],
            "the device was slower than measured"
        );
        assert_eq!(seconds[2]["shortfall"], Value::Null, "no more was wanted");
    }

    /// As [`example`], with two seconds in which there was no server.
    pub(crate) fn with_a_crash() -> ReserveReport {
        let mut report = example();
        for (at, second) in (104..106).enumerate() {
            let mut away = report.record[at];
            (away.second, away.bytes) = (second, 0);
            away.shortfall = Some(Shortfall::ServerAway);
            report.record.push(away);
        }
        report.seconds = 6;
        report
    }

    #[test]
    fn seconds_without_a_server_were_missed_and_are_one_line() {
        let report = with_a_crash();
        let told = text(&report);
        assert!(told.contains("50.00 %"), "{told}");
        assert_eq!(told.matches("1970-01-01T").count(), 2, "{told}");
        assert!(told.contains("1970-01-01T00:01:44Z"), "{told}");
        assert!(
            told.contains("the server was not there for 2 seconds"),
            "{told}"
        );
        let away = &report_json(&report)["record"][5];
        assert_eq!(away["shortfall"], "the server was not there");
    }
}
