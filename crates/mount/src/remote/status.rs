//! The figures of a mount, as JSON. The schema is in `docs/reference/json.md`.

use super::RemoteFs;
use client::object::{TicketState, TicketStatus};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Serialize)]
struct Status<'a> {
    source: &'a str,
    volume: &'a str,
    server: &'a str,
    version: &'a str,
    pid: u32,
    connected: bool,
    silence_millis: u64,
    reconnects: u64,
    window_bytes: u64,
    upload_window_bytes: u64,
    in_flight_bytes: u64,
    upload_in_flight_bytes: u64,
    requests_in_flight: usize,
    requests_queued: usize,
    rtt_micros: u64,
    download_bytes_per_second: u64,
    upload_bytes_per_second: u64,
    bytes_received: u64,
    bytes_sent: u64,
    read_bytes: u64,
    written_bytes: u64,
    hit_rate: f64,
    wasted_bytes: u64,
    buffered_bytes: u64,
    unwritten_bytes: u64,
    has_unwritten: bool,
    lookups: u64,
    lookup_hit_rate: f64,
    nodes: usize,
    leases: usize,
    recalls: u64,
    created_ahead: u64,
    removed_ahead: u64,
    tickets: Vec<Ticket>,
}

#[derive(Serialize)]
struct Ticket {
    reservation: String,
    state: &'static str,
    start_seconds: u64,
    end_seconds: u64,
    bytes: u64,
    bytes_without: u64,
}

fn ticket(status: TicketStatus) -> Ticket {
    Ticket {
        reservation: status.reservation.to_string(),
        state: match status.state {
            TicketState::Waiting => "waiting",
            TicketState::InForce => "in_force",
            TicketState::Over => "over",
        },
        start_seconds: status.start_secs,
        end_seconds: status.end_secs,
        bytes: status.bytes,
        bytes_without: status.bytes_without,
    }
}

fn rate(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        1.0
    } else {
        part as f64 / whole as f64
    }
}

impl RemoteFs {
    /// Figures now.
    pub(super) fn status(&self) -> String {
        let figures = self.volume.transport().figures();
        let counters = self.volume.counters();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (nodes, leases) = self.volume.cache_size();
        let status = Status {
            source: &self.source,
            volume: self.volume.name(),
            server: &self.volume.transport().endpoint().name,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            connected: figures.connected,
            silence_millis: figures.silence.as_millis() as u64,
            reconnects: figures.reconnects,
            window_bytes: figures.window_bytes,
            upload_window_bytes: figures.upload_window_bytes,
            in_flight_bytes: figures.in_flight.read_bytes,
            upload_in_flight_bytes: figures.in_flight.write_bytes,
            requests_in_flight: figures.in_flight.requests,
            requests_queued: figures.in_flight.queued,
            rtt_micros: figures.line.rtt.as_micros() as u64,
            download_bytes_per_second: figures.line.rate.0,
            upload_bytes_per_second: figures.upload_line.rate.0,
            bytes_received: figures.bytes_received,
            bytes_sent: figures.bytes_sent,
            read_bytes: count(&counters.read_bytes),
            written_bytes: count(&counters.written_bytes),
            hit_rate: rate(count(&counters.hit_bytes), count(&counters.read_bytes)),
            wasted_bytes: count(&counters.wasted_bytes),
            buffered_bytes: self.volume.buffered_bytes(),
            unwritten_bytes: self.volume.unwritten_bytes(),
            has_unwritten: self.volume.has_unwritten(),
            lookups: count(&counters.lookups),
            lookup_hit_rate: rate(count(&counters.lookup_hits), count(&counters.lookups)),
            nodes,
            leases,
            recalls: count(&counters.recalls),
            created_ahead: count(&counters.created_ahead),
            removed_ahead: count(&counters.removed_ahead),
            tickets: self
                .volume
                .ticket_statuses()
                .into_iter()
                .map(ticket)
                .collect(),
        };
        serde_json::to_string(&status).expect("figures are plain data")
    }
}
