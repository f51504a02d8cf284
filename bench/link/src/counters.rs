//! What the link counts, per direction. Bytes on the wire are measured here, outside the systems
//! under test, so that waste cannot be hidden from the count.

use serde::Serialize;

/// Counters of one direction since the start or the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Counters {
    /// Packets and super-packets read from the sender's device.
    pub offered_packets: u64,
    /// The same as segments on a real wire.
    pub offered_segments: u64,
    /// Segments that left on the wire, lost ones included.
    pub wire_segments: u64,
    /// Bytes that they occupied: IP packets and 38 bytes of Ethernet around each.
    pub wire_bytes: u64,
    /// Segments dropped because the queue was full.
    pub queue_dropped_segments: u64,
    /// Segments lost at random.
    pub lost_segments: u64,
    /// Segments lost because the cable was cut.
    pub cut_segments: u64,
    /// Most bytes that waited in the queue at once.
    pub queue_bytes_peak: u64,
    /// Deliveries to the receiver's device.
    pub delivered_packets: u64,
    /// Deliveries that the receiver's device refused.
    pub refused_packets: u64,
    /// How late deliveries were against their computed time, summed, in nanoseconds.
    pub late_ns_sum: u64,
    /// The latest delivery, in nanoseconds.
    pub late_ns_max: u64,
    /// Deliveries more than 1 ms late.
    pub late_1ms_packets: u64,
}

impl Counters {
    /// Bytes of the IP packets that left on the wire, as a packet capture counts them. With full
    /// segments they are 1.036 of the payload.
    pub fn ip_bytes(&self) -> u64 {
        self.wire_bytes - self.wire_segments * crate::frame::ETHERNET_BYTES
    }

    /// Mean lateness of a delivery in microseconds: how well the machine kept up.
    pub fn late_us_mean(&self) -> f64 {
        if self.delivered_packets == 0 {
            return 0.0;
        }
        self.late_ns_sum as f64 / self.delivered_packets as f64 / 1e3
    }

    /// Counts one delivery.
    pub(crate) fn delivered(&mut self, late_ns: u64) {
        self.delivered_packets += 1;
        self.late_ns_sum += late_ns;
        self.late_ns_max = self.late_ns_max.max(late_ns);
        self.late_1ms_packets += u64::from(late_ns > 1_000_000);
    }
}

/// Counters of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LinkCounters {
    /// Client to server.
    pub to_server: Counters,
    /// Server to client.
    pub to_client: Counters,
}
