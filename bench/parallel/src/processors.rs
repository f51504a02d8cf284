//! How busy the processors are.

use anyhow::{Context, Result};

/// Ticks of all processors since the machine started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    busy: u64,
    stolen: u64,
    all: u64,
}

impl Ticks {
    pub(crate) fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        Self::parse(&text).context("/proc/stat makes no sense")
    }

    /// From the first line: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks = line.split_whitespace().take(8);
        let ticks: Vec<u64> = ticks.map(str::parse).collect::<Result<_, _>>().ok()?;
        let [user, nice, system, idle, waiting, irq, softirq, stolen] = *ticks.as_array()?;
        let busy = user + nice + system + irq + softirq;
        Some(Self {
            busy,
            stolen,
            all: busy + idle + waiting + stolen,
        })
    }

    /// Shares of what the processors could have done since then: how busy they were, and how much
    /// of them others had.
    pub(crate) fn since(self, before: Self) -> (f64, f64) {
        let all = (self.all - before.all).max(1) as f64;
        let share = |now: u64, before: u64| (now - before) as f64 / all;
        (
            share(self.busy, before.busy),
            share(self.stolen, before.stolen),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_that_there_was() {
        let before = Ticks::parse("cpu  10 0 10 100 0 0 0 0 0 0\ncpu0 1\n").expect("a line");
        let now = Ticks::parse("cpu  40 5 30 120 5 1 4 15 7 7\n").expect("a line");
        let (busy, stolen) = now.since(before);
        assert!((busy - 0.6).abs() < 1e-9, "{busy}");
        assert!((stolen - 0.15).abs() < 1e-9, "{stolen}");
        assert!(Ticks::parse("cpu  1 2 3\n").is_none());
    }
}
