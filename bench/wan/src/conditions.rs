//! The conditions of a run: machine, kernel, link, versions.

use azlink::{Link, Queue};
use figures::{Machine, memory_mib};

use crate::results::Conditions;
use crate::systems::System;

/// What is the same for the whole run.
pub(crate) fn of_machine(systems: &[Box<dyn System>]) -> Conditions {
    let Machine {
        date,
        kernel,
        processors,
    } = Machine::now();
    Conditions {
        date,
        kernel,
        cpus: processors,
        memory_mib: memory_mib(),
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
    let control = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    conditions.tcp = format!(
        "{}, buffers up to {tcp_buffer}, no metrics kept between connections",
        control.unwrap_or_default().trim()
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
