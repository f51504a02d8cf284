//! When, as people write it: `now`, `+2h`, `19:00`, RFC 3339; `19:00..23:00`.
//!
//! Seconds since 1970. A start is rounded down and an end up, so that no second is missing.

use crate::config::Span;
use jiff::{Timestamp, ToSpan, Zoned, civil};
use std::str::FromStr;

/// A point in time, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum When {
    Now,
    /// So long from now.
    After(Span),
    /// The next time that a clock here shows this.
    Clock(civil::Time),
    At(Timestamp),
}

/// Two points in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Between(pub(super) When, pub(super) When);

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let what = match text.starts_with('-') {
                true => "is in the past",
                false => "is no time",
            };
            format!("{text:?} {what}; write it like now, +2h, +3d, 19:00 or 2026-05-01T19:00:00Z")
        };
        if text == "now" {
            return Ok(Self::Now);
        }
        if let Some(span) = text.strip_prefix('+') {
            return span.parse().map(Self::After).map_err(|_| wrong());
        }
        let is_clock = text.len() == 5 || text.len() == 8;
        let clock = is_clock.then(|| text.parse::<civil::Time>().ok()).flatten();
        match clock {
            Some(time) => Ok(Self::Clock(time)),
            None => text.parse().map(Self::At).map_err(|_| wrong()),
        }
    }
}

impl FromStr for Between {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no span of time; write it like 19:00..23:00 or now..+24h");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        Ok(Self(from.parse()?, to.parse()?))
    }
}

impl When {
    fn resolve(&self, now: &Zoned) -> Option<Timestamp> {
        match self {
            Self::Now => Some(now.timestamp()),
            Self::After(span) => now.timestamp().checked_add(span.0).ok(),
            Self::At(time) => Some(*time),
            Self::Clock(time) => {
                let today = now.with().time(*time).build().ok()?;
                // What is not later today is meant for tomorrow.
                let next = match &today > now {
                    true => today,
                    false => now
                        .checked_add(1.day())
                        .ok()?
                        .with()
                        .time(*time)
                        .build()
                        .ok()?,
                };
                Some(next.timestamp())
            }
        }
    }

    /// The second in which it lies.
    ///
    /// # Errors
    /// A time that cannot be, as text.
    pub(super) fn start(&self, now: &Zoned) -> Result<u64, String> {
        let time = self.resolve(now).ok_or("the time is out of range")?;
        u64::try_from(time.as_second()).map_err(|_| "a time before 1970".to_owned())
    }

    /// The first second that is not before it.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(super) fn end(&self, now: &Zoned) -> Result<u64, String> {
        let time = self.resolve(now).ok_or("the time is out of range")?;
        let start = self.start(now)?;
        Ok(start + u64::from(time.subsec_nanosecond() > 0))
    }
}

/// Both ends of a stretch of time; a clock's time is the next one after its start.
///
/// # Errors
/// A time that cannot be, as text.
pub(super) fn stretch(from: &When, to: &When, now: &Zoned) -> Result<(u64, u64), String> {
    let start = from.start(now)?;
    let begun = i64::try_from(start).ok();
    let begun = begun.and_then(|start| Timestamp::from_second(start).ok());
    let end = match (to, begun) {
        (When::Clock(_), Some(begun)) => to.end(&begun.to_zoned(now.time_zone().clone()))?,
        _ => to.end(now)?,
    };
    Ok((start, end))
}

/// A span in which a window is looked for. Between two times of a clock, the span that has begun
/// counts if the window can still lie in it: at 20:53, `20:00..06:00` is tonight.
///
/// # Errors
/// A time that cannot be, as text.
pub(super) fn within(
    from: &When,
    to: &When,
    duration_secs: u64,
    now: &Zoned,
) -> Result<(u64, u64), String> {
    let next = stretch(from, to, now)?;
    let (When::Clock(begun), When::Clock(_)) = (from, to) else {
        return Ok(next);
    };
    let today = now.with().time(*begun).build().ok();
    let last = today.and_then(|today| match &today > now {
        true => today
            .checked_sub(1.day())
            .ok()?
            .with()
            .time(*begun)
            .build()
            .ok(),
        false => Some(today),
    });
    let Some(last) = last else { return Ok(next) };
    let end = to.end(&last)?;
    let present = When::Now.start(now)?;
    let fits = end
        .checked_sub(present)
        .is_some_and(|left| left > duration_secs);
    Ok(if fits { (present, end) } else { next })
}

/// Whole seconds of a span, rounded up.
pub(super) fn seconds(span: Span) -> u64 {
    span.0.as_secs() + u64::from(span.0.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_clock_times_that_has_begun_is_meant_while_it_suffices() {
        let now: Zoned = "2026-05-01T20:53:00+02:00[+02:00]".parse().expect("a time");
        let begin = now.timestamp().as_second().unsigned_abs();
        let span = |text: &str, hours: u64| {
            let Between(from, to) = text.parse().expect(text);
            within(&from, &to, hours * 3600, &now).expect(text)
        };
        let (until_six, until_eight) = (begin + 547 * 60, begin + 1387 * 60);
        assert_eq!(span("20:00..06:00", 1), (begin, until_six));
        assert_eq!(
            span("20:00..06:00", 10),
            (until_eight, until_eight + 36_000)
        );
        assert_eq!(span("22:00..06:00", 1), (begin + 67 * 60, until_six));
        assert_eq!(
            span("22:00..21:00", 1).0,
            begin + 67 * 60,
            "seven minutes are too few"
        );
        assert_eq!(span("now..06:00", 1), (begin, until_six));
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        let now: Zoned = "2026-05-01T18:30:00.5+02:00[+02:00]"
            .parse()
            .expect("a time");
        let at = |text: &str| text.parse::<When>().expect(text).start(&now).expect(text);
        let begin = now.timestamp().as_second().unsigned_abs();
        assert_eq!(at("now"), begin);
        assert_eq!(at("+2h"), begin + 7200);
        assert_eq!(at("+3d"), begin + 3 * 86_400);
        assert_eq!(at("19:00"), begin + 1800);
        assert_eq!(at("18:00"), begin + 84_600, "tomorrow");
        assert_eq!(at("2026-05-01T19:00:00Z"), begin + 9000);
        let end = |text: &str| text.parse::<When>().expect(text).end(&now).expect(text);
        assert_eq!(end("+2h"), begin + 7201, "an end is rounded up");
        let time = |text: &str| text.parse::<When>().expect(text);
        let night = stretch(&time("18:00"), &time("06:00"), &now).expect("a night");
        assert_eq!(
            night,
            (begin + 84_600, begin + 84_600 + 12 * 3600),
            "the next day's"
        );
        for wrong in ["", "19", "19:60", "+", "+x", "tomorrow", "2026-05-01"] {
            assert!(wrong.parse::<When>().is_err(), "{wrong}");
        }
        assert!("now..+24h".parse::<Between>().is_ok());
        assert!("now".parse::<Between>().is_err() && "..".parse::<Between>().is_err());
    }
}
