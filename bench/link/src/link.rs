//! The link: two namespaces, two devices, two carriers.
//!
//! ```text
//!  client namespace 10.77.0.1          this process           server namespace 10.77.0.2
//!  [ az0 ] --TUN--> queue, wire, delay, loss (to-server thread) --TUN--> [ az0 ]
//!  [ az0 ] <--TUN-- queue, wire, delay, loss (to-client thread) <--TUN-- [ az0 ]
//! ```
//! Everything is held by descriptors of this process and vanishes with it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command as Process;
use std::sync::Mutex;

use figures::Random;

use crate::LinkError;
use crate::carrier::Carrier;
use crate::counters::LinkCounters;
use crate::namespace::{Namespace, TcpTuning};
use crate::settings::{Command, Direction, LinkSettings};
use crate::shaper::WireSettings;

/// Address of the client's end.
pub const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Address of the server's end.
pub const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const INTERFACE: &str = "az0";

/// An end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where the mount is.
    Client,
    /// Where the data is.
    Server,
}

/// How a link is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkOptions {
    /// What the link is at first.
    pub settings: LinkSettings,
    /// Seed of loss and jitter.
    pub seed: u64,
    /// TCP settings of both namespaces.
    pub tuning: TcpTuning,
}

/// A running link. Dropping it stops the carriers and gives the namespaces up.
pub struct Link {
    client: Namespace,
    server: Namespace,
    settings: Mutex<LinkSettings>,
    to_server: Carrier,
    to_client: Carrier,
}

impl Link {
    /// Makes namespaces and devices and starts carrying.
    ///
    /// # Errors
    /// [`LinkError::Io`] from the kernel; see [`crate::why_not`] to ask beforehand.
    pub fn start(options: &LinkOptions) -> Result<Self, LinkError> {
        let client = Namespace::new(options.tuning)?;
        let server = Namespace::new(options.tuning)?;
        let client_device = client.make_tun(INTERFACE, CLIENT_ADDRESS)?;
        let server_device = server.make_tun(INTERFACE, SERVER_ADDRESS)?;
        let copy = |device: &File| {
            device
                .try_clone()
                .map_err(|error| LinkError::io("copying a descriptor", error))
        };
        let settings = options.settings;
        let mut seeds = Random::new(options.seed);
        let to_server = Carrier::start(
            "az-to-server",
            copy(&client_device)?,
            copy(&server_device)?,
            wire_settings(&settings, Direction::ToServer),
            seeds.bits(),
        )?;
        let to_client = Carrier::start(
            "az-to-client",
            server_device,
            client_device,
            wire_settings(&settings, Direction::ToClient),
            seeds.bits(),
        )?;
        Ok(Self {
            client,
            server,
            settings: Mutex::new(settings),
            to_server,
            to_client,
        })
    }

    /// The namespace of one end.
    pub fn namespace(&self, side: Side) -> &Namespace {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// A command that will run at one end and die with the thread that starts it.
    pub fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Process {
        self.namespace(side).command(program)
    }

    /// Whether the carriers got the real-time class; without it, figures are not to be trusted.
    pub fn is_real_time(&self) -> bool {
        self.to_server.is_real_time() && self.to_client.is_real_time()
    }

    /// The settings in force.
    pub fn settings(&self) -> LinkSettings {
        *self.settings.lock().expect("no holder of this lock panics")
    }

    /// Replaces all settings at once.
    pub fn set(&self, settings: LinkSettings) {
        *self.settings.lock().expect("no holder of this lock panics") = settings;
        self.to_server
            .set(wire_settings(&settings, Direction::ToServer));
        self.to_client
            .set(wire_settings(&settings, Direction::ToClient));
    }

    /// Carries out one command; `Stats` has no effect (see [`Link::counters`]).
    pub fn apply(&self, command: &Command) {
        match command {
            Command::Stats => {}
            Command::Reset => {
                self.to_server.reset();
                self.to_client.reset();
            }
            other => {
                let mut settings = self.settings();
                settings.apply(other);
                self.set(settings);
            }
        }
    }

    /// Counters of both directions since the last reset.
    pub fn counters(&self) -> LinkCounters {
        LinkCounters {
            to_server: self.to_server.counters(),
            to_client: self.to_client.counters(),
        }
    }
}

fn wire_settings(settings: &LinkSettings, direction: Direction) -> WireSettings {
    let way = settings.way(direction);
    WireSettings {
        delay_ns: settings.rtt.as_nanos() as u64 / 2,
        jitter_ns: settings.jitter.as_nanos() as u64,
        rate_bits_per_s: way.rate_bits_per_s,
        queue_bytes_max: settings.queue_bytes_max(direction),
        loss: way.loss,
        is_up: settings.is_up,
    }
}
