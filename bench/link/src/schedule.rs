//! Settings that change at stated times, for measurements of adaptation.
//!
//! ```text
//! # seconds from the start, then a command
//! 0s   rtt 0ms
//! 5s   rtt 100ms
//! 10s  rate 100Mbit
//! ```

use std::time::Duration;

use crate::settings::Command;
use crate::{LinkError, units};

/// Commands with their times, in order of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schedule {
    steps: Vec<(Duration, Command)>,
}

impl Schedule {
    /// Reads a schedule: one `TIME COMMAND` per line, `#` starts a comment.
    ///
    /// # Errors
    /// [`LinkError::Schedule`] with the line, also when times go backwards.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let mut steps: Vec<(Duration, Command)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let refuse = |why: String| LinkError::Schedule {
                line: index + 1,
                why,
            };
            let (time, command) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| refuse("expected `TIME COMMAND`".to_owned()))?;
            let time = units::duration(time).map_err(|error| refuse(error.to_string()))?;
            let command = command
                .parse()
                .map_err(|error: LinkError| refuse(error.to_string()))?;
            if steps.last().is_some_and(|(before, _)| *before > time) {
                return Err(refuse("times go backwards".to_owned()));
            }
            steps.push((time, command));
        }
        Ok(Self { steps })
    }

    /// The steps in order.
    pub fn steps(&self) -> &[(Duration, Command)] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_reads_as_documented() {
        let schedule = Schedule::parse("# head\n0s rtt 0ms\n\n5s rtt 100ms # far\n").unwrap();
        let times: Vec<u64> = schedule
            .steps()
            .iter()
            .map(|(time, _)| time.as_secs())
            .collect();
        assert_eq!(times, [0, 5]);
    }

    #[test]
    fn errors_name_the_line() {
        for text in [
            "1s rtt 5ms\n0s rtt 1ms",
            "0s rtt 0ms\nsoon rtt 1ms",
            "0s up\n1s",
        ] {
            let message = Schedule::parse(text).unwrap_err().to_string();
            assert!(message.contains("line 2"), "{message}");
        }
    }
}
