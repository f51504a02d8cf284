//! CPU time of processes, from /proc.

use std::collections::{HashMap, HashSet};
use std::fs;

/// Clock ticks a second in /proc, fixed at 100 for user space on Linux.
const TICKS_PER_S: f64 = 100.0;

/// Parent and CPU seconds (reaped children included) of one process; `None` when it is gone.
fn stat(pid: &str) -> Option<(u32, f64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the fields start behind it.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks: f64 = fields
        .get(11..15)?
        .iter()
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    Some((parent, ticks / TICKS_PER_S))
}

/// CPU seconds of one process, by its id or `self`.
pub(crate) fn of_process(pid: &str) -> Option<f64> {
    stat(pid).map(|(_, seconds)| seconds)
}

/// Every process: parent and CPU seconds.
pub(crate) struct Census {
    processes: HashMap<u32, (u32, f64)>,
}

impl Census {
    pub(crate) fn take() -> Self {
        let mut processes = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let (Ok(pid), Some(stat)) = (name.parse(), stat(&name)) {
                processes.insert(pid, stat);
            }
        }
        Self { processes }
    }

    pub(crate) fn pids(&self) -> HashSet<u32> {
        self.processes.keys().copied().collect()
    }

    fn descends_from(&self, pid: u32, ancestors: &HashSet<u32>) -> bool {
        let mut at = pid;
        while let Some((parent, _)) = self.processes.get(&at) {
            if ancestors.contains(&at) {
                return true;
            }
            at = *parent;
        }
        false
    }

    /// CPU seconds of the servers (given) with their children, and of all others but `ours`:
    /// in the container of the harness, these are the client's.
    pub(crate) fn server_and_client_s(
        &self,
        servers: &HashSet<u32>,
        ours: &HashSet<u32>,
    ) -> (f64, f64) {
        let (mut server_s, mut client_s) = (0.0, 0.0);
        for (pid, (_, seconds)) in &self.processes {
            if ours.contains(pid) {
                continue;
            }
            if self.descends_from(*pid, servers) {
                server_s += seconds;
            } else {
                client_s += seconds;
            }
        }
        (server_s, client_s)
    }
}
