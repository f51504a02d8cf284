//! The conditions of a run: machine, kernel, link, versions.

use std::process::Command;

use azlink::{Link, Queue};

use crate::results::Conditions;
use crate::systems::System;

fn read(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn field(text: &str, name: &str) -> String {
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_default();
    line.split_once(':')
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

/// What is the same for the whole run.
pub(crate) fn of_machine(systems: &[Box<dyn System>]) -> Conditions {
    let cpu = field(&read("/proc/cpuinfo"), "model name");
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let memory_kib: u64 = memory
        .split(' ')
        .next()
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0);
    let date = Command::new("date")
        .args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])
        .output();
    Conditions {
        date: date
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            .unwrap_or_default(),
        kernel: read("/proc/sys/kernel/osrelease"),
        cpus: format!("{cpus} x {cpu}"),
        memory_mib: memory_kib >> 10,
        systems: systems
            .iter()
            .map(|system| (system.name().to_owned(), system.about()))
            .collect(),
        ..Conditions::default()
    }
}

/// Adds what the link is.
pub(crate) fn note_link(conditions: &mut Conditions, link: &Link, tcp_buffer: &str) {
    let settings = link.settings();
    let rate = settings.to_client.rate_bits_per_s.unwrap_or(0);
    conditions.rate_mbit = rate as f64 / 1e6;
    conditions.loss = settings.to_client.loss;
    conditions.queue = match settings.queue {
        Queue::Auto => "drop-tail, max(rate x RTT, 20 ms)".to_owned(),
        Queue::Bytes(bytes) => format!("drop-tail, {bytes} bytes"),
    };
    conditions.is_real_time = link.is_real_time();
    conditions.tcp = format!(
        "{}, buffers up to {tcp_buffer}, no metrics kept between connections",
        read("/proc/sys/net/ipv4/tcp_congestion_control")
    );
    conditions.notes = vec![
        "Data on tmpfs at the server; fresh mount and empty cache for every measurement; systems \
         in turn within each repeat; content incompressible and checked in full."
            .to_owned(),
        "A rate is that of the second half of the bytes; `whole` counts from the start of the \
         mount, slow start included. MB = 1,000,000 bytes."
            .to_owned(),
        "Wire ratio: IP bytes in the direction of the data, from after the mount until the link is \
         quiet after the unmount, by the link's own counters, per useful byte; TCP/IP headers \
         alone make 1.036."
            .to_owned(),
        "syncfs(2) does not reach FUSE servers on this kernel; creation ends with fsync of the \
         directory."
            .to_owned(),
    ];
}
