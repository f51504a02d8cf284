//! The client's session under any sequence of events.
#![no_main]

use azekura_fuzz::Input;
use base::{RequestId, Time};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use wire::frame::{Class, Frame, FrameKind};
use wire::session::{ClientSession, ConnectionIndex, InFlight, Submission, Windows};

const CONNECTIONS: usize = 3;

/// A session with what the outside knows of it.
struct World {
    session: ClientSession,
    now: Time,
    windows: Windows,
    up: [bool; CONNECTIONS],
    on_line: Vec<(usize, RequestId)>,
    /// Requests that somebody waits for.
    open: BTreeSet<RequestId>,
    given_up: BTreeSet<RequestId>,
}

impl World {
    fn new() -> Self {
        Self {
            session: ClientSession::new(CONNECTIONS, RequestId(1)),
            now: Time::ZERO,
            windows: Windows {
                read_bytes: 1 << 20,
                write_bytes: 1 << 20,
            },
            up: [false; CONNECTIONS],
            on_line: Vec::new(),
            open: BTreeSet::new(),
            given_up: BTreeSet::new(),
        }
    }

    fn submit(&mut self, n: usize) {
        let class = Class::ALL[n % Class::ALL.len()];
        let write_bytes = if class == Class::Write { n << 10 } else { 0 };
        let submission = Submission {
            class,
            body: Bytes::from_static(b"body"),
            payload: Bytes::from(vec![0; write_bytes]),
            reply_bytes: if class == Class::Write {
                0
            } else {
                (n as u64) << 12
            },
            deadline: if n % 3 == 0 {
                Time::MAX
            } else {
                Time::from_millis(n as u64 * 20)
            },
        };
        let id = self
            .session
            .submit(submission)
            .expect("far below the limit");
        assert!(self.open.insert(id));
    }

    fn transmit(&mut self, connection: usize) -> bool {
        let before = self.session.in_flight();
        let index = ConnectionIndex(connection);
        let Some(frame) = self.session.poll_transmit(self.now, index, self.windows) else {
            return false;
        };
        assert!(self.up[connection]);
        match frame.kind {
            FrameKind::Cancel => assert!(self.given_up.contains(&frame.request)),
            FrameKind::Request => self.sent(connection, &frame, before),
            kind => panic!("a session sends no {kind:?}"),
        }
        true
    }

    fn sent(&mut self, connection: usize, frame: &Frame, before: InFlight) {
        assert!(
            self.open.contains(&frame.request),
            "sent though nobody waits"
        );
        assert!(!self.session.settled().covers(frame.request));
        let reading = self.session.reply_bytes(frame.request);
        if frame.class > Class::Demand {
            assert!(connection > 0 || !self.up[1..].contains(&true));
            let fits = before.read_bytes + reading <= self.windows.read_bytes;
            assert!(reading == 0 || before.read_bytes == 0 || fits);
        }
        self.on_line.push((connection, frame.request));
    }

    fn reply(&mut self, n: usize) {
        if self.on_line.is_empty() {
            return;
        }
        let (connection, id) = self.on_line.swap_remove(n % self.on_line.len());
        let answered = self.session.handle_reply(ConnectionIndex(connection), id);
        assert_eq!(answered.is_some(), self.open.remove(&id));
        // Once more, and on another connection: nobody waits.
        for connection in 0..CONNECTIONS {
            assert_eq!(
                self.session.handle_reply(ConnectionIndex(connection), id),
                None
            );
        }
    }

    fn toggle(&mut self, connection: usize) {
        self.up[connection] = !self.up[connection];
        if self.up[connection] {
            self.session.handle_up(ConnectionIndex(connection));
        } else {
            self.session.handle_down(ConnectionIndex(connection));
            self.on_line.retain(|(c, _)| *c != connection);
        }
    }

    fn expire(&mut self, n: usize) {
        self.now = self.now + std::time::Duration::from_millis(n as u64);
        while let Some(id) = self.session.poll_expired(self.now) {
            assert!(self.open.remove(&id), "expired twice or after its end");
            self.given_up.insert(id);
        }
    }

    fn cancel(&mut self, n: usize) {
        if let Some(id) = self.open.iter().nth(n).copied() {
            self.open.remove(&id);
            self.given_up.insert(id);
            self.session.cancel(id);
        }
    }

    /// Brings everything to its end: nothing is left.
    fn finish(mut self) {
        for connection in 0..CONNECTIONS {
            if !self.up[connection] {
                self.toggle(connection);
            }
        }
        loop {
            let mut moved = false;
            for connection in 0..CONNECTIONS {
                while self.transmit(connection) {
                    moved = true;
                }
            }
            moved |= !self.on_line.is_empty();
            while !self.on_line.is_empty() {
                self.reply(0);
            }
            if !moved {
                break;
            }
        }
        assert!(self.open.is_empty(), "never answered: {:?}", self.open);
        assert_eq!(self.session.in_flight(), InFlight::default());
        assert_eq!(self.session.queued_read_bytes(), 0);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::new();
    let mut input = Input::new(data);
    while let (Some(what), Some(n)) = (input.byte(), input.byte()) {
        let n = usize::from(n);
        match what % 9 {
            0 | 1 => world.submit(n),
            2 | 3 => _ = world.transmit(n % CONNECTIONS),
            4 => world.reply(n),
            5 => world.toggle(n % CONNECTIONS),
            6 => world.cancel(n),
            7 => world.expire(n),
            _ => {
                world.windows.read_bytes = (n as u64) << 12;
                if let Some(id) = world.open.iter().nth(n) {
                    world.session.promote(*id, Class::Demand);
                }
            }
        }
    }
    world.finish();
});
