//! The machine that is measured on, and what else it is doing. What cannot be read is left empty:
//! a run goes on without it.

use serde::Serialize;
use std::fmt;
use std::process::Command;

/// Machine and moment, as they stand in the JSON and above a table.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Universal time, as in RFC 3339.
    pub date: String,
    /// Its release.
    pub kernel: String,
    /// How many there are, and their model.
    pub processors: String,
}

impl Machine {
    /// This machine, now.
    pub fn now() -> Self {
        let date = Command::new("date")
            .args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])
            .output();
        let count = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            date: date
                .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
                .unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease"),
            processors: format!("{count} x {}", field(&cpuinfo, "model name")),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            date,
            kernel,
            processors,
        } = self;
        write!(f, "{date}, kernel {kernel}, {processors}")
    }
}

/// Memory of the machine, in MiB.
pub fn memory_mib() -> u64 {
    let meminfo = read("/proc/meminfo");
    let kib: Option<u64> = first_word(field(&meminfo, "MemTotal")).parse().ok();
    kib.unwrap_or(0) >> 10
}

/// Load average over the last minute.
pub fn load_average() -> f64 {
    let load: Option<f64> = first_word(&read("/proc/loadavg")).parse().ok();
    load.unwrap_or(0.0)
}

fn read(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// The value of the first line that begins with `name`.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or("", |(_, value)| value.trim())
}

fn first_word(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_what_follows_its_name() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some: 3 GHz\nmodel name\t: Other\n";
        assert_eq!(field(cpuinfo, "model name"), "Some: 3 GHz");
        assert_eq!(field(cpuinfo, "stepping"), "");
        assert_eq!(
            first_word(field("MemTotal:     8053028 kB", "MemTotal")),
            "8053028"
        );
    }

    #[test]
    fn this_machine_says_what_it_is() {
        let machine = Machine::now();
        let is_date = machine.date.len() == "2026-01-01T00:00:00Z".len();
        assert!(is_date && machine.date.ends_with('Z'), "{machine}");
        assert!(!machine.kernel.is_empty() && !machine.processors.starts_with("0 "));
        assert!(memory_mib() > 0 && load_average() >= 0.0);
    }
}
