//! What the link is at one moment, and the commands that change it.
//!
//! The same words serve the command line, the control socket and the schedule file:
//!
//! ```text
//! rtt 100ms            round trip; each direction delays by half of it
//! rate 1000Mbit        both directions; `rate to-client 100Mbit` only one; `rate unlimited`
//! queue auto           drop-tail limit in bytes; auto = max(rate x RTT, 20 ms of the rate)
//! loss 1%              share of segments lost after they occupied the wire; per direction too
//! jitter 2ms           extra delay, uniform in [0, 2 ms], order kept
//! down / up            cut the cable / join it again; what was under way is lost
//! reset                counters to zero
//! stats                counters as JSON
//! ```

use std::time::Duration;

use serde::Serialize;

use crate::{LinkError, units};

/// The way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the client's namespace to the server's.
    ToServer,
    /// From the server's namespace to the client's.
    ToClient,
}

/// Both directions, in the order in which per-direction arrays are kept.
pub const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// Limit of the queue before the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// The larger of rate x RTT and 20 ms of the rate.
    Auto,
    /// So many wire bytes.
    Bytes(u64),
}

/// What may differ between the two directions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Way {
    /// Wire rate; `None` is unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// Share of segments lost, 0..=1.
    pub loss: f64,
}

/// The state of the link that commands change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkSettings {
    /// Round-trip time without queueing.
    pub rtt: Duration,
    /// Largest extra delay per direction.
    pub jitter: Duration,
    /// Queue limit of each direction.
    pub queue: Queue,
    /// Client to server.
    pub to_server: Way,
    /// Server to client.
    pub to_client: Way,
    /// False while the cable is cut.
    pub is_up: bool,
}

impl Default for LinkSettings {
    fn default() -> Self {
        let way = Way {
            rate_bits_per_s: Some(1_000_000_000),
            loss: 0.0,
        };
        Self {
            rtt: Duration::ZERO,
            jitter: Duration::ZERO,
            queue: Queue::Auto,
            to_server: way,
            to_client: way,
            is_up: true,
        }
    }
}

impl LinkSettings {
    /// Settings of one direction.
    pub fn way(&self, direction: Direction) -> Way {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    /// Queue limit of one direction in wire bytes; without a rate nothing ever queues.
    pub fn queue_bytes_max(&self, direction: Direction) -> u64 {
        let Some(rate) = self.way(direction).rate_bits_per_s else {
            return u64::MAX;
        };
        match self.queue {
            Queue::Bytes(bytes) => bytes,
            Queue::Auto => {
                let depth = self.rtt.max(Duration::from_millis(20));
                (rate as f64 / 8.0 * depth.as_secs_f64()) as u64
            }
        }
    }

    /// Applies a command that sets something; `Reset` and `Stats` change no setting.
    pub fn apply(&mut self, command: &Command) {
        match *command {
            Command::Rtt(rtt) => self.rtt = rtt,
            Command::Jitter(jitter) => self.jitter = jitter,
            Command::Queue(queue) => self.queue = queue,
            Command::Rate(only, rate) => self.each(only, |way| way.rate_bits_per_s = rate),
            Command::Loss(only, loss) => self.each(only, |way| way.loss = loss),
            Command::Down => self.is_up = false,
            Command::Up => self.is_up = true,
            Command::Reset | Command::Stats => {}
        }
    }

    fn each(&mut self, only: Option<Direction>, change: impl Fn(&mut Way)) {
        if only != Some(Direction::ToClient) {
            change(&mut self.to_server);
        }
        if only != Some(Direction::ToServer) {
            change(&mut self.to_client);
        }
    }
}

/// One change or question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command {
    /// Set the round-trip time.
    Rtt(Duration),
    /// Set the rate of one direction or of both.
    Rate(Option<Direction>, Option<u64>),
    /// Set the queue limit.
    Queue(Queue),
    /// Set the loss of one direction or of both.
    Loss(Option<Direction>, f64),
    /// Set the jitter.
    Jitter(Duration),
    /// Cut the cable.
    Down,
    /// Join the cable.
    Up,
    /// Set the counters to zero.
    Reset,
    /// Ask for the counters.
    Stats,
}

impl std::str::FromStr for Command {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let refused = || LinkError::Command(text.trim().to_owned());
        let (only, words) = match words.as_slice() {
            [verb, "to-server", rest @ ..] => {
                (Some(Direction::ToServer), [&[*verb], rest].concat())
            }
            [verb, "to-client", rest @ ..] => {
                (Some(Direction::ToClient), [&[*verb], rest].concat())
            }
            all => (None, all.to_vec()),
        };
        match (words.as_slice(), only) {
            (["rate", value], only) => Ok(Self::Rate(only, units::rate(value)?)),
            (["loss", value], only) => Ok(Self::Loss(only, units::share(value)?)),
            (["rtt", value], None) => Ok(Self::Rtt(units::duration(value)?)),
            (["jitter", value], None) => Ok(Self::Jitter(units::duration(value)?)),
            (["queue", "auto"], None) => Ok(Self::Queue(Queue::Auto)),
            (["queue", value], None) => Ok(Self::Queue(Queue::Bytes(units::size(value)?))),
            (["down"], None) => Ok(Self::Down),
            (["up"], None) => Ok(Self::Up),
            (["reset"], None) => Ok(Self::Reset),
            (["stats"], None) => Ok(Self::Stats),
            _ => Err(refused()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_read_as_documented() {
        let mut settings = LinkSettings::default();
        for line in [
            "rtt 100ms",
            "rate to-client 100Mbit",
            "loss 1%",
            "jitter 2ms",
            "down",
        ] {
            settings.apply(&line.parse().unwrap());
        }
        assert_eq!(settings.rtt, Duration::from_millis(100));
        assert_eq!(settings.to_client.rate_bits_per_s, Some(100_000_000));
        assert_eq!(settings.to_server.rate_bits_per_s, Some(1_000_000_000));
        assert_eq!(settings.to_server.loss, 0.01);
        assert!(!settings.is_up);
        for line in [
            "",
            "rtt",
            "rtt to-client 5ms",
            "rate fast",
            "explode",
            "down now",
        ] {
            assert!(line.parse::<Command>().is_err(), "{line}");
        }
    }

    #[test]
    fn the_automatic_queue_is_a_product_of_rate_and_delay_but_at_least_20_ms() {
        let mut settings = LinkSettings::default();
        assert_eq!(settings.queue_bytes_max(Direction::ToClient), 2_500_000);
        settings.apply(&"rtt 100ms".parse().unwrap());
        assert_eq!(settings.queue_bytes_max(Direction::ToClient), 12_500_000);
        settings.apply(&"queue 64KiB".parse().unwrap());
        assert_eq!(settings.queue_bytes_max(Direction::ToClient), 65_536);
    }
}
