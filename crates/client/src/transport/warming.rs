//! Warming a connection: bytes without meaning, so that slow start is over before somebody waits.
//!
//! A TCP connection that begins, or whose line is long, sends 15 KB in its first round trip and
//! twice as much in each further one. Over distance the first megabytes of a mount would take a
//! second. So a new bulk connection at once asks for a first window's bytes, then for twice as many
//! each time the answer is here: never more than the connection can send at once, so that nothing
//! real waits behind. It stops when there is something real to carry, which warms it as well, or at
//! its share of what the line holds, as far as that is remembered from an earlier mount.

use base::limits::WARM_BYTES_MAX;
use readahead::LineMemory;
use std::time::Duration;

/// Round trip from which on connections are warmed and demands are spread: below, slow start is
/// over before it is noticed.
pub(super) const DISTANCE: Duration = Duration::from_millis(5);
/// Bytes of the first round: ten segments, with the frame and TLS around them.
const FIRST_BYTES: u32 = 14_000;
/// Bytes of the last round on a line that is not known yet: both rounds of eight connections are a
/// quarter of a second of a 10 Mbit/s line.
const UNKNOWN_BYTES_MAX: u32 = 2 * FIRST_BYTES;

/// How far one connection is.
#[derive(Debug, Default)]
pub(super) struct Warming {
    /// Bytes of this round; 0 when it is over.
    round_bytes: u32,
    download_bytes_max: u32,
    upload_bytes_max: u32,
    /// Whether the round's request is still to be sent.
    due: bool,
}

impl Warming {
    /// For one of `connections` connections over a line that takes `round_trip`, as remembered:
    /// download, upload.
    pub(super) fn new(
        round_trip: Duration,
        connections: usize,
        line: &(Option<LineMemory>, Option<LineMemory>),
    ) -> Self {
        if round_trip < DISTANCE {
            return Self::default();
        }
        let share = |line: &Option<LineMemory>| {
            let share = line.map_or(u64::from(UNKNOWN_BYTES_MAX), |line| {
                line.bdp_bytes() / connections.max(1) as u64
            });
            u32::try_from(share).map_or(WARM_BYTES_MAX, |share| share.min(WARM_BYTES_MAX))
        };
        Self {
            round_bytes: FIRST_BYTES,
            download_bytes_max: share(&line.0),
            upload_bytes_max: share(&line.1),
            due: true,
        }
    }

    /// The next round, if one is due: bytes down and up. `is_idle`: nothing real is on the
    /// connection.
    pub(super) fn next_round(&mut self, is_idle: bool) -> Option<(u32, u32)> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        let fitting = |bytes_max| {
            if self.round_bytes <= bytes_max {
                self.round_bytes
            } else {
                0
            }
        };
        let round = (
            fitting(self.download_bytes_max),
            fitting(self.upload_bytes_max),
        );
        if !is_idle || round == (0, 0) {
            self.round_bytes = 0;
            return None;
        }
        Some(round)
    }

    /// The round was answered.
    pub(super) fn on_answered(&mut self) {
        self.round_bytes = self.round_bytes.saturating_mul(2);
        self.due = self.round_bytes > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(mut warming: Warming, idle_rounds: usize) -> Vec<(u32, u32)> {
        let mut rounds = Vec::new();
        while let Some(round) = warming.next_round(rounds.len() < idle_rounds) {
            rounds.push(round);
            assert!(warming.next_round(true).is_none(), "one at a time");
            warming.on_answered();
        }
        rounds
    }

    fn line(bdp_bytes: u64) -> Option<LineMemory> {
        Some(LineMemory {
            rtt_nanos: 100_000_000,
            rate_bytes_per_second: bdp_bytes * 10,
        })
    }

    #[test]
    fn each_round_doubles_up_to_the_share_of_the_line_in_each_direction() {
        let far = Duration::from_millis(100);
        let known = Warming::new(far, 8, &(line(12_500_000), line(500_000)));
        let sizes = [
            (14_000, 14_000),
            (28_000, 28_000),
            (56_000, 56_000),
            (112_000, 0),
        ];
        assert_eq!(rounds(known, 99), sizes);
        let unknown = Warming::new(far, 8, &(None, None));
        assert_eq!(rounds(unknown, 99), [(14_000, 14_000), (28_000, 28_000)]);
    }

    #[test]
    fn nothing_is_sent_without_distance_or_beside_real_requests() {
        let near = Warming::new(Duration::from_millis(1), 8, &(line(12_500_000), None));
        assert!(rounds(near, 99).is_empty());
        let far = Duration::from_millis(100);
        let busy = Warming::new(far, 8, &(line(12_500_000), None));
        assert_eq!(rounds(busy, 1).len(), 1);
    }
}
