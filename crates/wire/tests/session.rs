//! What goes on which connection, and what does not hold what back: single cases. Everything at
//! once is in `simulated_session`.

use base::{RequestId, Time};
use bytes::Bytes;
use wire::frame::Class;
use wire::session::{ClientSession, ConnectionIndex, Submission, Windows};

const WINDOWS: Windows = Windows {
    read_bytes: 4 << 20,
    write_bytes: 4 << 20,
};
const BULK: ConnectionIndex = ConnectionIndex(1);

fn read(class: Class, bytes: u64) -> Submission {
    Submission {
        class,
        body: Bytes::from_static(b"r"),
        payload: Bytes::new(),
        reply_bytes: bytes,
        deadline: Time::MAX,
    }
}

fn session(up: usize) -> ClientSession {
    let mut session = ClientSession::new(3, RequestId(1));
    for connection in 0..up {
        session.handle_up(ConnectionIndex(connection));
    }
    session
}

/// The requests of all frames that may go now.
fn drain(session: &mut ClientSession, connection: ConnectionIndex) -> Vec<RequestId> {
    std::iter::from_fn(|| session.poll_transmit(Time::ZERO, connection, WINDOWS))
        .map(|frame| frame.request)
        .collect()
}

#[test]
fn the_main_connection_alone_fills_the_whole_window() {
    for connections in [1, 3] {
        let mut s = ClientSession::new(connections, RequestId(1));
        s.handle_up(ConnectionIndex::MAIN);
        for _ in 0..8 {
            s.submit(read(Class::Prediction, 1 << 20)).expect("room");
        }
        assert_eq!(drain(&mut s, ConnectionIndex::MAIN).len(), 4);
    }
}

#[test]
fn a_large_prediction_is_not_starved_by_small_background_reads() {
    let mut s = session(2);
    let small: Vec<_> = (0..40)
        .map(|_| s.submit(read(Class::Background, 128 << 10)).expect("room"))
        .collect();
    assert_eq!(drain(&mut s, BULK).len(), 32);
    let large = s.submit(read(Class::Prediction, 1 << 20)).expect("room");
    for (answered, id) in small[..8].iter().enumerate() {
        assert_eq!(drain(&mut s, BULK), [], "after {answered} answers");
        s.handle_reply(BULK, *id);
    }
    assert_eq!(drain(&mut s, BULK), [large]);
}

#[test]
fn writes_that_wait_hold_no_reads_back() {
    let mut s = session(2);
    for _ in 0..6 {
        let payload = Bytes::from(vec![0; 1 << 20]);
        let write = Submission {
            payload,
            ..read(Class::Write, 0)
        };
        s.submit(write).expect("room");
    }
    let predicted = s.submit(read(Class::Prediction, 1 << 20)).expect("room");
    let sent = drain(&mut s, BULK);
    assert_eq!((sent.len(), sent.last()), (5, Some(&predicted)));
}

#[test]
fn a_request_taken_back_between_two_connections_is_told_to_the_server() {
    let mut s = session(2);
    let sent = s.submit(read(Class::Metadata, 0)).expect("room");
    drain(&mut s, ConnectionIndex::MAIN);
    s.handle_down(ConnectionIndex::MAIN);
    let unsent = s.submit(read(Class::Metadata, 0)).expect("room");
    s.cancel(unsent);
    s.cancel(sent);
    let undo = s.submit(read(Class::Metadata, 0)).expect("room");
    s.handle_up(ConnectionIndex::MAIN);
    assert_eq!(drain(&mut s, BULK), []);
    assert_eq!(drain(&mut s, ConnectionIndex::MAIN), [sent, undo]);
}
