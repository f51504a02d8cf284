//! Durations, rates, sizes and shares as a person writes them: `100ms`, `1000Mbit`, `64MiB`, `1%`.
//!
//! A bare number is a millisecond, a bit per second or a byte. Rates are decimal bits per second,
//! as network equipment counts them; sizes know both `MB` and `MiB`.

use std::time::Duration;

use crate::LinkError;

/// Splits `12.5ms` into its number and its unit.
fn number_and_unit(text: &str) -> Result<(f64, &str), LinkError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let number = text[..end]
        .parse::<f64>()
        .map_err(|_| LinkError::Unit(text.to_owned()))?;
    Ok((number, text[end..].trim()))
}

/// Reads a duration; units `us`, `ms` (also without a unit) and `s`.
///
/// # Errors
/// [`LinkError::Unit`] when the text is not a number with one of these units.
pub fn duration(text: &str) -> Result<Duration, LinkError> {
    let (number, unit) = number_and_unit(text)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" | "" => number / 1e3,
        "s" => number,
        _ => return Err(LinkError::Unit(text.to_owned())),
    };
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads a rate in bits per second; `None` for `unlimited`.
///
/// # Errors
/// [`LinkError::Unit`] for an unknown unit or a rate under 1 bit/s.
pub fn rate(text: &str) -> Result<Option<u64>, LinkError> {
    if text.trim() == "unlimited" {
        return Ok(None);
    }
    let (number, unit) = number_and_unit(text)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "bit" | "bit/s" => 1.0,
        "kbit" | "kbit/s" => 1e3,
        "mbit" | "mbit/s" => 1e6,
        "gbit" | "gbit/s" => 1e9,
        _ => return Err(LinkError::Unit(text.to_owned())),
    };
    let bits_per_second = (number * scale) as u64;
    if bits_per_second == 0 {
        return Err(LinkError::Unit(text.to_owned()));
    }
    Ok(Some(bits_per_second))
}

/// Reads a size in bytes.
///
/// # Errors
/// [`LinkError::Unit`] for an unknown unit.
pub fn size(text: &str) -> Result<u64, LinkError> {
    let (number, unit) = number_and_unit(text)?;
    let scale = match unit {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1048576.0,
        "GiB" => 1073741824.0,
        _ => return Err(LinkError::Unit(text.to_owned())),
    };
    Ok((number * scale) as u64)
}

/// Reads a share: `1%` and `0.01` are the same.
///
/// # Errors
/// [`LinkError::Unit`] when it is not between 0 and 1.
pub fn share(text: &str) -> Result<f64, LinkError> {
    let (number, unit) = number_and_unit(text)?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(LinkError::Unit(text.to_owned())),
    };
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(LinkError::Unit(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_read_as_written() {
        assert_eq!(duration("100ms").unwrap(), Duration::from_millis(100));
        assert_eq!(duration("25").unwrap(), Duration::from_millis(25));
        assert_eq!(duration("250us").unwrap(), Duration::from_micros(250));
        assert_eq!(rate("1000Mbit").unwrap(), Some(1_000_000_000));
        assert_eq!(rate("1Gbit/s").unwrap(), Some(1_000_000_000));
        assert_eq!(rate("unlimited").unwrap(), None);
        assert_eq!(size("64MiB").unwrap(), 64 << 20);
        assert_eq!(size("3MB").unwrap(), 3_000_000);
        assert!((share("1%").unwrap() - 0.01).abs() < 1e-12);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "ms", "12 parsecs", "-5ms"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(rate("0Mbit").is_err());
        assert!(share("101%").is_err());
        assert!(size("1XB").is_err());
    }
}
