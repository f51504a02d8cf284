//! What commands print: lines, tables, JSON; to standard output, all at once.
//!
//! Standard output carries results only, so that it can be piped; progress and warnings go to
//! standard error. A reader that has seen enough (`| head`) ends the command, which is no failure.

use crate::errors::{Failure, Result, plain_io};
use base::{ByteSize, Rate};
use comfy_table::{Cell, CellAlignment, Table, presets};
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

/// Prints one line of a result.
pub(crate) fn line(text: impl fmt::Display) -> Result<()> {
    write(&format!("{text}\n"))
}

/// Prints a JSON document, one line.
pub(crate) fn json(value: &serde_json::Value) -> Result<()> {
    line(value)
}

/// Prints as it is.
pub(crate) fn write(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::enough()),
        Err(error) => Err(Failure::local("standard output", plain_io(&error))
            .hint("only this text is lost: what the command was to do is done")),
        Ok(()) => Ok(()),
    }
}

/// Says something beside the result.
pub(crate) fn note(text: impl fmt::Display) {
    // Nobody can be told that standard error is gone.
    // In one piece: others write to the same log, or read it.
    let _ = io::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

/// A table without lines: columns are apart by blanks, as in `ls` and `df`.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(head);
    for row in rows {
        table.add_row(row.iter().map(|text| {
            // Numbers with their units stand under each other.
            let is_figure = text.starts_with(|c: char| c.is_ascii_digit()) && text.len() < 12;
            let alignment = if is_figure {
                CellAlignment::Right
            } else {
                CellAlignment::Left
            };
            Cell::new(plain(text)).set_alignment(alignment)
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines = table.to_string();
    lines
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// Text of others without control characters, and those that turn a line round, which must not
/// reach the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().flat_map(escape).collect()
}

/// Text of others without the system's numbers: "not supported", not "not supported (os error 95)".
pub(crate) fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match digits.strip_prefix(')') {
            Some(rest) => plain.push_str(rest),
            None => plain.extend([" (os error ", part]),
        }
    }
    plain
}

fn escape(c: char) -> Vec<char> {
    if base::is_unseen(c) {
        c.escape_default().collect()
    } else {
        vec![c]
    }
}

/// A number of things: `1 file`, `2 files`, `3 directories`.
pub(crate) fn count(number: u64, one: &str) -> String {
    match (number, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {one}s"),
    }
}

/// A rate over a time, in bytes per second.
pub(crate) fn rate(bytes: u64, time: Duration) -> Rate {
    let nanos = time.as_nanos().max(1);
    let per_second = u128::from(bytes) * 1_000_000_000 / nanos;
    Rate(u64::try_from(per_second).unwrap_or(u64::MAX))
}

/// A size for people: `12.3 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// A time span for people, with two digits that matter: `850 µs`, `12 ms`, `3.4 s`, `2 h 5 min`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    if time < Duration::from_millis(1) {
        format!("{} µs", time.as_micros())
    } else if seconds == 0 {
        format!("{} ms", time.as_millis())
    } else if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else if seconds < 3600 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else if seconds < 86_400 {
        format!("{} h {} min", seconds / 3600, seconds % 3600 / 60)
    } else {
        format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600)
    }
}

/// A time that is known to the second.
pub(crate) fn seconds(seconds: u64) -> String {
    if seconds < 60 {
        format!("{seconds} s")
    } else {
        span(Duration::from_secs(seconds))
    }
}

/// A moment as RFC 3339 in UTC; what is out of range, as plain seconds.
pub(crate) fn moment(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| seconds.to_string(), |moment| moment.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn tables_align_figures_to_the_right() {
        let rows = [
            ["photos".to_owned(), "1.0 KiB".to_owned()],
            ["b\u{1b}[2J".to_owned(), "12 B".to_owned()],
        ];
        expect![[r#"
            NAME        SIZE
            photos      1.0 KiB
            b\u{1b}[2J     12 B
        "#]]
        .assert_eq(&table(["NAME", "SIZE"], &rows));
    }

    #[test]
    fn numbers_of_the_system_are_left_out_and_what_follows_is_not() {
        let shown = |text: &str| without_numbers(text);
        assert_eq!(shown("in use (os error 16)"), "in use");
        let within = "no handles (not supported (os error 95)); export /a (os error 2) or b";
        assert_eq!(shown(within), "no handles (not supported); export /a or b");
        assert_eq!(shown("plain"), "plain");
        assert_eq!(shown("a (os error x)"), "a (os error x)");
    }

    #[test]
    fn spans_and_moments_have_units() {
        let shown = |millis| span(Duration::from_millis(millis));
        assert_eq!(span(Duration::from_micros(850)), "850 µs");
        assert_eq!(
            [12, 3400, 125_000, 7_500_000, 100_000_000].map(shown),
            ["12 ms", "3.4 s", "2 min 5 s", "2 h 5 min", "1 d 3 h"]
        );
        assert_eq!(
            [0, 1, 59, 60].map(seconds),
            ["0 s", "1 s", "59 s", "1 min 0 s"]
        );
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(i64::MAX), i64::MAX.to_string());
        assert_eq!(
            rate(1000, Duration::from_millis(500)).to_string(),
            "2.0 kB/s"
        );
    }
}
