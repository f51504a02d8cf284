//! One direction of the link as pure arithmetic: frames and times in, frames and times out.
//!
//! ```text
//! offer(now) -> [ drop-tail queue, bytes ] -> wire: size / rate -> loss -> [ delay line ] -> due
//! ```
//! The wire serves the queue in order; a frame departs when its last bit has left and is due half
//! a round trip (and jitter) later. Service is computed lazily but exactly: [`Shaper::advance`]
//! replays what the wire did until `now`, with the rate that was in force then, and it runs before
//! every change of the settings and before every admission. A frame whose transmission takes
//! longer than [`PIECE_NS`] is cut at segment borders, so that a slow wire delivers smoothly.
//!
//! The delay line is FIFO: after the RTT falls, frames do not overtake those already under way;
//! they arrive together with the last of these, as on a line whose path was shortened behind it.

use std::collections::VecDeque;

use figures::Random;

use crate::counters::Counters;
use crate::frame::Frame;

/// Transmission time above which a super-packet is cut into smaller ones.
const PIECE_NS: u64 = 1_000_000;
/// Bytes under way at most, against a link without a rate that is offered more than it delivers.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// Settings of one direction in the units of the arithmetic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WireSettings {
    pub(crate) delay_ns: u64,
    pub(crate) jitter_ns: u64,
    pub(crate) rate_bits_per_s: Option<u64>,
    pub(crate) queue_bytes_max: u64,
    pub(crate) loss: f64,
    pub(crate) is_up: bool,
}

struct Waiting {
    arrived_ns: u64,
    frame: Frame,
}

struct UnderWay {
    due_ns: u64,
    frame: Frame,
}

/// Queue, wire and delay line of one direction.
pub(crate) struct Shaper {
    settings: WireSettings,
    random: Random,
    queue: VecDeque<Waiting>,
    queue_bytes: u64,
    /// When the wire has sent the last bit of the frame before.
    wire_free_ns: u64,
    line: VecDeque<UnderWay>,
    line_bytes: u64,
    last_due_ns: u64,
    pub(crate) counters: Counters,
}

impl Shaper {
    pub(crate) fn new(settings: WireSettings, seed: u64) -> Self {
        Self {
            settings,
            random: Random::new(seed),
            queue: VecDeque::new(),
            queue_bytes: 0,
            wire_free_ns: 0,
            line: VecDeque::new(),
            line_bytes: 0,
            last_due_ns: 0,
            counters: Counters::default(),
        }
    }

    /// Changes the settings from `now_ns` on. A cut loses what is queued and under way.
    pub(crate) fn set(&mut self, now_ns: u64, settings: WireSettings) {
        self.advance(now_ns);
        self.settings = settings;
        if !settings.is_up {
            let queued: u64 = self
                .queue
                .drain(..)
                .map(|waiting| waiting.frame.segments())
                .sum();
            let flying: u64 = self
                .line
                .drain(..)
                .map(|under_way| under_way.frame.segments())
                .sum();
            self.counters.cut_segments += queued + flying;
            self.queue_bytes = 0;
            self.line_bytes = 0;
            self.wire_free_ns = now_ns;
        }
    }

    /// Admits a frame that the sender handed to the link at `now_ns`.
    pub(crate) fn offer(&mut self, now_ns: u64, frame: Frame) {
        self.advance(now_ns);
        self.counters.offered_packets += 1;
        self.counters.offered_segments += frame.segments();
        if !self.settings.is_up {
            self.counters.cut_segments += frame.segments();
            return;
        }
        let Some(rate) = self.settings.rate_bits_per_s else {
            self.depart(now_ns, frame);
            return;
        };
        let segments = frame.segments();
        let segment_ns = transmission_ns(frame.segment_wire_bytes(), rate).max(1);
        let piece_segments = (PIECE_NS / segment_ns).max(1);
        if segments <= piece_segments {
            self.enqueue(now_ns, frame);
        } else {
            for from in (0..segments).step_by(piece_segments as usize) {
                let to = (from + piece_segments).min(segments);
                self.enqueue(now_ns, frame.part(from, to));
            }
        }
        self.advance(now_ns);
    }

    /// Puts a frame into the queue as far as its segments fit; the others are dropped.
    fn enqueue(&mut self, now_ns: u64, frame: Frame) {
        let room = self
            .settings
            .queue_bytes_max
            .saturating_sub(self.queue_bytes);
        let segments = frame.segments();
        let fitting = if frame.wire_bytes() <= room {
            segments
        } else {
            (room / frame.segment_wire_bytes()).min(segments)
        };
        self.counters.queue_dropped_segments += segments - fitting;
        if fitting == 0 {
            return;
        }
        let frame = if fitting == segments {
            frame
        } else {
            frame.part(0, fitting)
        };
        self.queue_bytes += frame.wire_bytes();
        self.counters.queue_bytes_peak = self.counters.queue_bytes_peak.max(self.queue_bytes);
        self.queue.push_back(Waiting {
            arrived_ns: now_ns,
            frame,
        });
    }

    /// Replays the wire until `now_ns`: every frame whose transmission began by then departs.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        while let Some(head) = self.queue.front() {
            let start_ns = self.wire_free_ns.max(head.arrived_ns);
            if start_ns > now_ns {
                return;
            }
            let Some(waiting) = self.queue.pop_front() else {
                return;
            };
            let wire_bytes = waiting.frame.wire_bytes();
            self.queue_bytes -= wire_bytes;
            let sending_ns = self
                .settings
                .rate_bits_per_s
                .map_or(0, |rate| transmission_ns(wire_bytes, rate));
            self.wire_free_ns = start_ns + sending_ns;
            self.depart(self.wire_free_ns, waiting.frame);
        }
    }

    /// The last bit left at `departed_ns`: count it, lose some segments, start the others' flight.
    fn depart(&mut self, departed_ns: u64, frame: Frame) {
        self.counters.wire_bytes += frame.wire_bytes();
        self.counters.wire_segments += frame.segments();
        let delay_ns = self.settings.delay_ns + self.random.below(self.settings.jitter_ns);
        let due_ns = self.last_due_ns.max(departed_ns + delay_ns);
        self.last_due_ns = due_ns;
        if self.settings.loss > 0.0 {
            self.lose_some(due_ns, frame);
        } else {
            self.fly(due_ns, frame);
        }
    }

    /// Draws for each segment and sends on the runs of survivors.
    fn lose_some(&mut self, due_ns: u64, frame: Frame) {
        let segments = frame.segments();
        let mut run_start = 0;
        for index in 0..segments {
            if self.random.unit() < self.settings.loss {
                self.counters.lost_segments += 1;
                if run_start < index {
                    self.fly(due_ns, frame.part(run_start, index));
                }
                run_start = index + 1;
            }
        }
        if run_start < segments {
            self.fly(due_ns, frame.part(run_start, segments));
        }
    }

    fn fly(&mut self, due_ns: u64, frame: Frame) {
        let bytes = frame.bytes().len() as u64;
        if self.line_bytes + bytes > LINE_BYTES_MAX {
            self.counters.queue_dropped_segments += frame.segments();
            return;
        }
        self.line_bytes += bytes;
        self.line.push_back(UnderWay { due_ns, frame });
    }

    /// When something is to be done next without a new offer: the first delivery.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        if let Some(first) = self.line.front() {
            return Some(first.due_ns);
        }
        // With nothing under way, the next delivery follows the start of the next transmission.
        self.queue
            .front()
            .map(|head| self.wire_free_ns.max(head.arrived_ns))
    }

    /// Takes the next frame that is due by `now_ns`, with the time it was due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(u64, Frame)> {
        self.advance(now_ns);
        if self.line.front()?.due_ns > now_ns {
            return None;
        }
        let under_way = self.line.pop_front()?;
        self.line_bytes -= under_way.frame.bytes().len() as u64;
        Some((under_way.due_ns, under_way.frame))
    }
}

/// Time on the wire, rounded up to a nanosecond so that the rate is never exceeded.
fn transmission_ns(wire_bytes: u64, rate_bits_per_s: u64) -> u64 {
    (u128::from(wire_bytes) * 8 * 1_000_000_000).div_ceil(u128::from(rate_bits_per_s)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::super_packet;

    const MS: u64 = 1_000_000;

    fn wire(rate_bits_per_s: u64, delay_ms: u64) -> WireSettings {
        WireSettings {
            delay_ns: delay_ms * MS,
            jitter_ns: 0,
            rate_bits_per_s: Some(rate_bits_per_s),
            queue_bytes_max: 1 << 30,
            loss: 0.0,
            is_up: true,
        }
    }

    fn deliver_all(shaper: &mut Shaper) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        while let Some(due) = shaper.next_due_ns() {
            if let Some((due, frame)) = shaper.pop_due(due) {
                out.push((due, frame.segments()));
            }
        }
        out
    }

    #[test]
    fn frames_leave_at_the_rate_and_arrive_half_a_round_trip_later() {
        let mut shaper = Shaper::new(wire(1_000_000_000, 50), 1);
        let frame = super_packet(10 * 1448, 1448);
        let sending_ns = frame.wire_bytes() * 8;
        for _ in 0..3 {
            shaper.offer(5 * MS, frame.clone());
        }
        let dues: Vec<u64> = deliver_all(&mut shaper)
            .iter()
            .map(|(due, _)| *due)
            .collect();
        let expected: Vec<u64> = (1..=3).map(|i| 5 * MS + i * sending_ns + 50 * MS).collect();
        assert_eq!(dues, expected);
        assert_eq!(shaper.counters.wire_bytes, 3 * frame.wire_bytes());
    }

    #[test]
    fn a_slow_wire_delivers_super_packets_in_pieces() {
        let mut shaper = Shaper::new(wire(10_000_000, 0), 1);
        shaper.offer(0, super_packet(40 * 1448, 1448));
        let deliveries = deliver_all(&mut shaper);
        assert_eq!(deliveries.len(), 40);
        assert!(deliveries.iter().all(|(_, segments)| *segments == 1));
    }

    #[test]
    fn a_full_queue_drops_the_tail_by_segments() {
        let mut settings = wire(1_000_000_000, 0);
        settings.queue_bytes_max = 25 * (1448 + 40 + 38);
        let mut shaper = Shaper::new(settings, 1);
        for _ in 0..4 {
            shaper.offer(0, super_packet(10 * 1448, 1448));
        }
        // Ten segments are on the wire at once; 25 of the other thirty find room.
        assert_eq!(shaper.counters.queue_dropped_segments, 5);
        let delivered: u64 = deliver_all(&mut shaper)
            .iter()
            .map(|(_, segments)| segments)
            .sum();
        assert_eq!(delivered, 35);
    }

    #[test]
    fn loss_takes_its_share_of_segments_not_of_super_packets() {
        let mut settings = wire(10_000_000_000, 0);
        settings.loss = 0.01;
        let mut shaper = Shaper::new(settings, 7);
        for i in 0..1_000 {
            shaper.offer(i * MS, super_packet(44 * 1448, 1448));
        }
        let delivered: u64 = deliver_all(&mut shaper)
            .iter()
            .map(|(_, segments)| segments)
            .sum();
        let lost = shaper.counters.lost_segments;
        assert_eq!(delivered + lost, 44_000);
        assert!((340..=540).contains(&lost), "{lost} of 44,000 lost at 1 %");
    }

    #[test]
    fn a_rate_step_changes_what_is_still_queued() {
        let mut shaper = Shaper::new(wire(1_000_000_000, 0), 1);
        let frame = super_packet(10 * 1448, 1448);
        let (fast_ns, slow_ns) = (frame.wire_bytes() * 8, frame.wire_bytes() * 80);
        shaper.offer(0, frame.clone());
        shaper.offer(0, frame);
        shaper.set(1_000, wire(100_000_000, 0));
        let dues: Vec<u64> = deliver_all(&mut shaper)
            .iter()
            .map(|(due, _)| *due)
            .collect();
        assert_eq!(
            dues.first(),
            Some(&fast_ns),
            "the frame on the wire keeps its rate"
        );
        assert_eq!(dues.last(), Some(&(fast_ns + slow_ns)));
    }

    #[test]
    fn a_cut_loses_what_is_under_way_and_what_comes() {
        let mut shaper = Shaper::new(wire(1_000_000_000, 50), 1);
        shaper.offer(0, super_packet(10 * 1448, 1448));
        let mut down = wire(1_000_000_000, 50);
        down.is_up = false;
        shaper.set(MS, down);
        shaper.offer(2 * MS, super_packet(10 * 1448, 1448));
        assert!(deliver_all(&mut shaper).is_empty());
        assert_eq!(shaper.counters.cut_segments, 20);
        shaper.set(3 * MS, wire(1_000_000_000, 50));
        shaper.offer(3 * MS, super_packet(1448, 1448));
        assert_eq!(deliver_all(&mut shaper).len(), 1);
    }

    #[test]
    fn order_is_kept_under_jitter_and_after_the_delay_falls() {
        let mut settings = wire(1_000_000_000, 50);
        settings.jitter_ns = 5 * MS;
        let mut shaper = Shaper::new(settings, 3);
        for i in 0..50 {
            shaper.offer(i * MS / 10, super_packet(1448, 1448));
        }
        shaper.set(5 * MS, wire(1_000_000_000, 1));
        shaper.offer(5 * MS, super_packet(1448, 1448));
        let dues: Vec<u64> = deliver_all(&mut shaper)
            .iter()
            .map(|(due, _)| *due)
            .collect();
        assert!(dues.is_sorted());
        assert_eq!(dues.len(), 51);
    }
}
