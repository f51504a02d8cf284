//! Checks a link from inside: round trips by UDP echo, goodput by TCP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::{Direction, Link, LinkError, SERVER_ADDRESS, Side};

/// Largest wait of a probe for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const ECHO_PORT: u16 = 7007;
const BULK_PORT: u16 = 7008;

/// Round trips of a small datagram.
#[derive(Debug, Clone, Serialize)]
pub struct RoundTrips {
    /// Datagrams sent.
    pub sent: usize,
    /// Times of those that came back, in milliseconds, in order of sending.
    pub times_ms: Vec<f64>,
}

impl RoundTrips {
    /// The shortest round trip in milliseconds; infinite when none came back.
    pub fn min_ms(&self) -> f64 {
        self.times_ms.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The median round trip in milliseconds; infinite when none came back.
    pub fn median_ms(&self) -> f64 {
        figures::median(&self.times_ms).unwrap_or(f64::INFINITY)
    }
}

/// Sends `count` datagrams, `gap` apart, from client to server and back.
///
/// # Errors
/// [`LinkError::Io`] when sockets cannot be made.
pub fn round_trips(link: &Link, count: usize, gap: Duration) -> Result<RoundTrips, LinkError> {
    let io = |error| LinkError::io("probing round trips", error);
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ECHO_PORT));
    let server = link.namespace(Side::Server).run(bind)?.map_err(io)?;
    let client = link.namespace(Side::Client).run(bind)?.map_err(io)?;
    server
        .set_read_timeout(Some(Duration::from_millis(100)))
        .map_err(io)?;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut datagram = [0u8; 64];
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                if let Ok((len, peer)) = server.recv_from(&mut datagram) {
                    // A lost echo is what the probe counts.
                    let _ = server.send_to(&datagram[..len], peer);
                }
            }
        });
        let trips = send_and_time(&client, count, gap);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        trips.map_err(io)
    })
}

fn send_and_time(client: &UdpSocket, count: usize, gap: Duration) -> std::io::Result<RoundTrips> {
    client.connect((SERVER_ADDRESS, ECHO_PORT))?;
    let start = Instant::now();
    let mut sent_at = Vec::with_capacity(count);
    let mut times: Vec<Option<f64>> = vec![None; count];
    let mut datagram = [0u8; 64];
    let mut collect = |until: Instant, sent_at: &[Instant], times: &mut [Option<f64>]| {
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            client.set_read_timeout(Some(left.max(Duration::from_micros(50))))?;
            if let Ok(len) = client.recv(&mut datagram) {
                let number = u64::from_le_bytes(datagram[..8].try_into().unwrap_or_default());
                if let Some(at) = sent_at.get(number as usize).filter(|_| len >= 8) {
                    times[number as usize] = Some(at.elapsed().as_secs_f64() * 1e3);
                }
            }
            if sent_at.len() == count && times.iter().all(Option::is_some) {
                break;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    for number in 0..count {
        sent_at.push(Instant::now());
        // A link that is down may refuse; the datagram then counts as lost.
        let _ = client.send(&(number as u64).to_le_bytes());
        collect(start + gap * (number as u32 + 1), &sent_at, &mut times)?;
    }
    collect(Instant::now() + ANSWER_MAX, &sent_at, &mut times)?;
    Ok(RoundTrips {
        sent: count,
        times_ms: times.into_iter().flatten().collect(),
    })
}

/// Goodput of one TCP connection.
#[derive(Debug, Clone, Serialize)]
pub struct Goodput {
    /// Payload bits per second over the whole time, slow start included.
    pub whole_mbit_per_s: f64,
    /// The same over the second half of the time.
    pub steady_mbit_per_s: f64,
}

/// Sends for `time` over one connection in the given direction.
///
/// # Errors
/// [`LinkError::Io`] when the connection fails.
pub fn goodput(link: &Link, direction: Direction, time: Duration) -> Result<Goodput, LinkError> {
    let io = |error| LinkError::io("probing goodput", error);
    let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, BULK_PORT));
    let listener = link.namespace(Side::Server).run(listen)?.map_err(io)?;
    let server: SocketAddr = (SERVER_ADDRESS, BULK_PORT).into();
    let connect = || TcpStream::connect_timeout(&server, ANSWER_MAX);
    let client = link.namespace(Side::Client).run(connect)?.map_err(io)?;
    let (accepted, _) = listener.accept().map_err(io)?;
    let (sender, receiver) = match direction {
        Direction::ToServer => (client, accepted),
        Direction::ToClient => (accepted, client),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| send_until_closed(sender));
        receive_for(receiver, time).map_err(io)
    })
}

fn send_until_closed(mut sender: TcpStream) {
    let buffer = vec![0x5Au8; 256 << 10];
    // The receiver ends the probe by closing; that is the error waited for.
    let _ = sender.set_write_timeout(Some(ANSWER_MAX * 5));
    while sender.write_all(&buffer).is_ok() {}
}

fn receive_for(mut receiver: TcpStream, time: Duration) -> std::io::Result<Goodput> {
    receiver.set_read_timeout(Some(ANSWER_MAX * 5))?;
    let mut buffer = vec![0u8; 256 << 10];
    let start = Instant::now();
    let (mut bytes, mut half) = (0u64, None);
    while start.elapsed() < time {
        bytes += receiver.read(&mut buffer)? as u64;
        if half.is_none() && start.elapsed() >= time / 2 {
            half = Some((start.elapsed(), bytes));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let (half_time, half_bytes) = half.unwrap_or_default();
    let mbit = |bytes: u64, seconds: f64| bytes as f64 * 8.0 / 1e6 / seconds;
    Ok(Goodput {
        whole_mbit_per_s: mbit(bytes, seconds),
        steady_mbit_per_s: mbit(bytes - half_bytes, seconds - half_time.as_secs_f64()),
    })
}
