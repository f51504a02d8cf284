//! Recorded runs: which bytes a machine has read of its disk, in order, and how long it thought
//! before each read.
//!
//! The input is the log of nbdkit's filter of that name, or lines of offset and length in bytes.
//! Reads that were under way together are read one after the other here: that is the worst case.

use anyhow::{Context, Result, bail};
use base::Extent;
use disk::Profile;
use disk::profile::Touch;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// One read of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) think: Duration,
    pub(crate) extent: Extent,
}

/// Reads a log.
pub(crate) fn read(path: &Path) -> Result<Vec<Step>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let steps = if text.contains("connection=") {
        of_nbdkit(&text)
    } else {
        of_numbers(&text)?
    };
    if steps.is_empty() {
        bail!("{}: no reads", path.display());
    }
    Ok(steps)
}

/// The reads of a run that `azekura disk serve --record` has written down: each unit once.
pub(crate) fn of_profile(profile: &Profile) -> Vec<Step> {
    let step = |touch: &Touch| Step {
        think: Duration::ZERO,
        extent: touch.extent,
    };
    profile.touches().iter().map(step).collect()
}

fn of_numbers(text: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(offset)), Some(Ok(len))) = (numbers.next(), numbers.next()) else {
            bail!("{line:?} is no offset and length");
        };
        steps.push(Step {
            think: Duration::ZERO,
            extent: Extent::new(offset, len),
        });
    }
    Ok(steps)
}

/// `2026-11-24 02:07:23.080415 connection=1 Read id=1 offset=0x0 count=0x200 ...`, and behind it a
/// line with the same id and `return=0`, whatever lies between.
fn of_nbdkit(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut under_way: HashMap<String, ()> = HashMap::new();
    let mut idle_since: Option<f64> = None;
    for line in text.lines().filter(|line| line.contains(" Read ")) {
        let word = |name: &str| {
            let found = line.split(name).nth(1)?;
            found.split_whitespace().next().map(str::to_owned)
        };
        let Some((time, id)) = seconds(line).zip(word(" id=")) else {
            continue;
        };
        let hex = |name| u64::from_str_radix(word(name)?.strip_prefix("0x")?, 16).ok();
        if let Some((offset, len)) = hex(" offset=").zip(hex(" count=")) {
            let idle = idle_since.filter(|_| under_way.is_empty());
            let think = idle.map_or(0.0, |since| (time - since).max(0.0));
            under_way.insert(id, ());
            steps.push(Step {
                think: Duration::from_secs_f64(think),
                extent: Extent::new(offset, len),
            });
        } else if line.contains("return=") {
            under_way.remove(&id);
            idle_since = Some(time);
        }
    }
    steps
}

/// Seconds of the day in the line's time.
fn seconds(line: &str) -> Option<f64> {
    let clock = line.split_whitespace().nth(1)?;
    let mut parts = clock.split(':').map(str::parse::<f64>);
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    Some(hours.ok()? * 3600.0 + minutes.ok()? * 60.0 + seconds.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_nbdkit_is_read() {
        let log = "\
2026-11-24 10:00:00.000000 connection=1 Connect export=\"\" tls=0 size=0x40000000
2026-11-24 10:00:01.000000 connection=1 Read id=1 offset=0x0 count=0x1000 ...
2026-11-24 10:00:01.250000 connection=1 Read id=1 return=0 (Success)
2026-11-24 10:00:02.250000 connection=1 Read id=2 offset=0x2000 count=0x200 ...
2026-11-24 10:00:02.300000 connection=1 Read id=3 offset=0x8000 count=0x200 ...
2026-11-24 10:00:02.400000 connection=1 Read id=2 return=0 (Success)
";
        let steps = of_nbdkit(log);
        let extents: Vec<_> = steps.iter().map(|step| step.extent.offset).collect();
        assert_eq!(extents, [0, 0x2000, 0x8000]);
        let thinks: Vec<_> = steps.iter().map(|step| step.think.as_millis()).collect();
        assert_eq!(thinks, [0, 1000, 0]);
    }

    #[test]
    fn numbers_are_read() {
        let steps = of_numbers("0 4096\n\n8192 512\n").unwrap();
        assert_eq!(steps[1].extent, Extent::new(8192, 512));
        assert!(of_numbers("a b").is_err());
    }
}
