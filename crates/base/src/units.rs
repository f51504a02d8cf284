//! Sizes and rates as people write them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of bytes. Reads `4096`, `300MB`, `2GiB`; prints with a binary unit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ByteSize(pub u64);

/// Bytes per second. Reads `80MiB/s`, `1Gbit/s`; prints with a decimal unit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Rate(pub u64);

/// Text that is not a size or a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}; write it like {example}")]
pub struct ParseUnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// Multipliers by unit. Decimal as in SI, binary as in IEC 80000-13; a bare letter is binary, as
/// in dd(1) and truncate(1).
const UNITS: [(&str, u64); 20] = [
    ("", 1),
    ("B", 1),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("P", 1 << 50),
    ("E", 1 << 60),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
    ("PIB", 1 << 50),
    ("EIB", 1 << 60),
];

fn parse_units(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_uppercase();
    let multiplier = units.iter().find(|(name, _)| *name == unit)?.1;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(multiplier);
    }
    let fraction: f64 = number.parse().ok()?;
    let value = fraction * multiplier as f64;
    // 2^53 and above would not be exact; nobody writes such sizes with a fraction.
    (value.is_finite() && value < 9e15).then_some(value as u64)
}

impl FromStr for ByteSize {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        parse_units(text, &UNITS)
            .map(Self)
            .ok_or_else(|| ParseUnitError {
                text: text.to_owned(),
                what: "a size",
                example: "4096, 300MB or 2GiB",
            })
    }
}

impl FromStr for Rate {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || ParseUnitError {
            text: text.to_owned(),
            what: "a rate",
            example: "80MiB/s, 300MB/s or 1Gbit/s",
        };
        let per_second = text.trim().strip_suffix("/s").unwrap_or(text.trim());
        let bits = per_second
            .strip_suffix("bit/s")
            .or_else(|| per_second.strip_suffix("bit"))
            .or_else(|| per_second.strip_suffix("bps"));
        match bits {
            Some(bits) => {
                let prefix = format!("{bits}B");
                parse_units(&prefix, &UNITS)
                    .map(|b| Self(b / 8))
                    .ok_or_else(error)
            }
            None => parse_units(per_second, &UNITS).map(Self).ok_or_else(error),
        }
    }
}

fn scaled(f: &mut fmt::Formatter<'_>, value: u64, step: f64, units: &[&str]) -> fmt::Result {
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= step && unit + 1 < units.len() {
        scaled /= step;
        unit += 1;
    }
    if unit == 0 {
        return f.pad(&format!("{value} {}", units[0]));
    }
    f.pad(&format!("{scaled:.1} {}", units[unit]))
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let size = |text: &str| text.parse::<ByteSize>().map(|s| s.0).ok();
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("300MB"), Some(300_000_000));
        assert_eq!(size("2GiB"), Some(2 << 30));
        assert_eq!(size("1.5 KiB"), Some(1536));
        assert_eq!(size("64k"), Some(65536));
        assert_eq!(size("1PiB"), Some(1 << 50));
        assert_eq!(size("9EiB"), Some(9 << 60));
        for bad in [
            "",
            "MB",
            "-1",
            "5 apples",
            "1e3",
            "99999999TB",
            "16EiB",
            "1.2.3",
        ] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn rates_are_read_in_bytes_and_in_bits() {
        let rate = |text: &str| text.parse::<Rate>().map(|r| r.0).ok();
        assert_eq!(rate("80MiB/s"), Some(80 << 20));
        assert_eq!(rate("1Gbit/s"), Some(125_000_000));
        assert_eq!(rate("100Mbit"), Some(12_500_000));
        assert_eq!(rate("20MB/s"), Some(20_000_000));
        assert_eq!(rate("fast"), None);
    }

    #[test]
    fn they_print_with_one_decimal_and_a_unit() {
        assert_eq!(ByteSize(1536).to_string(), "1.5 KiB");
        assert_eq!(ByteSize(12).to_string(), "12 B");
        assert_eq!(Rate(117_700_000).to_string(), "117.7 MB/s");
    }
}
