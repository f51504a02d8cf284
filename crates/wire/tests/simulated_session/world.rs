//! Client and server, the line between them, and what goes wrong with it.

use crate::client::Client;
use crate::server::{Sending, Server};
use base::Time;
use sim::{Agenda, ConnectionId, Connections, Network, NodeId, Random, Shape};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::frame::Frame;

pub(crate) const CLIENT: NodeId = NodeId(0);
pub(crate) const SERVER: NodeId = NodeId(1);

/// What happens to the line. `E` is what a test has to do itself.
pub(crate) enum Event<E> {
    /// A connection breaks; both ends know.
    Reset { slot: usize },
    /// The client gives a connection up. What it had sent is still on its way, and the server
    /// notices after this time.
    GiveUp { slot: usize, linger: Duration },
    /// The server notices.
    ServerCloses(ConnectionId),
    /// The client tries to connect.
    Connect { slot: usize },
    /// The server is killed and starts again at once; every connection breaks.
    Restart,
    /// The line is another one.
    Reshape(Shape),
    /// One direction is cut, or both.
    Cut(Vec<(NodeId, NodeId)>),
    /// Everything stands again.
    Heal,
    /// The test's own.
    Test(E),
}

pub(crate) struct World<E> {
    pub(crate) now: Time,
    pub(crate) agenda: Agenda<Event<E>>,
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) connections: Connections<Frame>,
    slot_of: BTreeMap<ConnectionId, usize>,
    cut: bool,
    /// How long the client waits before it connects again, at most.
    pub(crate) reconnect_time_max: Duration,
    random: Random,
}

/// Both directions.
pub(crate) const LANES: [(NodeId, NodeId); 2] = [(CLIENT, SERVER), (SERVER, CLIENT)];

impl<E> World<E> {
    /// A world whose connections all stand.
    pub(crate) fn new(
        mut random: Random,
        shape: Shape,
        segment_bytes: u64,
        client: Client,
        server: Server,
    ) -> Self {
        let mut network = Network::new(random.fork());
        network.join(CLIENT, SERVER, shape);
        let repeat_time = shape.delay * 2 + Duration::from_millis(1);
        let mut world = Self {
            now: Time::ZERO,
            agenda: Agenda::new(),
            client,
            server,
            connections: Connections::new(network, segment_bytes, repeat_time),
            slot_of: BTreeMap::new(),
            cut: false,
            reconnect_time_max: Duration::from_secs(1),
            random,
        };
        for slot in 0..world.client.slots.len() {
            world.connect(slot);
        }
        world
    }

    fn connect(&mut self, slot: usize) {
        let connection = self.connections.connect(CLIENT, SERVER);
        self.slot_of.insert(connection, slot);
        self.client.handle_up(slot, connection);
    }

    /// Sends whatever the session lets go.
    fn pump(&mut self) {
        for slot in 0..self.client.slots.len() {
            while let Some(connection) = self.client.slots[slot]
                && let Some(frame) = self.client.poll_transmit(self.now, slot)
            {
                self.send(connection, (CLIENT, SERVER), frame);
            }
        }
    }

    fn send(&mut self, connection: ConnectionId, ends: (NodeId, NodeId), frame: Frame) {
        let bytes = frame.wire_bytes() as u64;
        self.connections
            .send(self.now, connection, ends, bytes, frame);
    }

    fn answer(&mut self, answer: Option<Sending>) {
        if let Some((connections, frame)) = answer {
            for connection in connections {
                self.send(connection, (SERVER, CLIENT), frame.clone());
            }
        }
    }

    /// Lets the world go on up to `end`. `on_test` does the test's own events, and is asked with
    /// `None` after each moment whether there is more to submit.
    pub(crate) fn run_until(&mut self, end: Time, mut on_test: impl FnMut(&mut Self, Option<E>)) {
        loop {
            on_test(self, None);
            self.pump();
            let times = [
                self.connections.next_time(),
                self.server.next_time(),
                self.agenda.next_time(),
                self.client.session.next_deadline(),
            ];
            let next = times.into_iter().flatten().min().unwrap_or(Time::MAX);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            self.act(&mut on_test);
        }
    }

    fn act(&mut self, on_test: &mut impl FnMut(&mut Self, Option<E>)) {
        let now = self.now;
        while let Some(arrival) = self.connections.poll(now) {
            let connection = arrival.connection;
            if arrival.to == SERVER {
                let answer = self.server.handle_frame(now, connection, &arrival.frame);
                self.answer(answer);
            } else {
                let slot = self.slot_of[&connection];
                assert_eq!(
                    self.client.slots[slot],
                    Some(connection),
                    "heard when closed"
                );
                self.client.handle_frame(now, slot, &arrival.frame);
            }
        }
        while let Some(answer) = self.server.poll(now) {
            self.answer(Some(answer));
        }
        while let Some(event) = self.agenda.poll(now) {
            self.on_event(event, on_test);
        }
        self.client.expire(now);
    }

    fn on_event(&mut self, event: Event<E>, on_test: &mut impl FnMut(&mut Self, Option<E>)) {
        match event {
            Event::Reset { slot } => {
                if let Some(connection) = self.client.slots[slot] {
                    self.connections.reset(connection);
                    self.lose(slot);
                }
            }
            Event::GiveUp { slot, linger } => {
                if let Some(connection) = self.client.slots[slot] {
                    self.connections.close(connection, CLIENT);
                    self.agenda.after(linger, Event::ServerCloses(connection));
                    self.lose(slot);
                }
            }
            Event::ServerCloses(connection) => self.connections.reset(connection),
            Event::Connect { slot } if self.cut => {
                let wait = self.reconnect_wait();
                self.agenda.after(wait, Event::Connect { slot });
            }
            Event::Connect { slot } => self.connect(slot),
            Event::Restart => {
                self.server.restart();
                for (connection, slot) in std::mem::take(&mut self.slot_of) {
                    self.connections.reset(connection);
                    if self.client.slots[slot] == Some(connection) {
                        self.lose(slot);
                    }
                }
            }
            Event::Reshape(shape) => {
                for (from, to) in LANES {
                    self.connections
                        .network()
                        .reshape(self.now, from, to, shape);
                }
            }
            Event::Cut(lanes) => {
                self.cut = true;
                for (from, to) in lanes {
                    self.connections.network().cut(self.now, from, to);
                }
            }
            Event::Heal => {
                self.cut = false;
                for (from, to) in LANES {
                    self.connections.network().heal(from, to);
                }
            }
            Event::Test(event) => on_test(self, Some(event)),
        }
    }

    /// Never nothing: a line that is cut would be tried for ever in one moment.
    fn reconnect_wait(&mut self) -> Duration {
        Duration::from_millis(1) + self.random.up_to(self.reconnect_time_max)
    }

    fn lose(&mut self, slot: usize) {
        self.client.handle_down(self.now, slot);
        let wait = self.reconnect_wait();
        self.agenda.after(wait, Event::Connect { slot });
    }
}
