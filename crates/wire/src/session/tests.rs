//! Tests of the session, without sockets.

use super::*;
use proptest::prelude::*;

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
        deadline: Time::from_secs(30),
    }
}

fn session(up: usize) -> ClientSession {
    let mut session = ClientSession::new(3, RequestId(1));
    for connection in 0..up {
        session.handle_up(ConnectionIndex(connection));
    }
    session
}

fn drain(session: &mut ClientSession, connection: ConnectionIndex) -> Vec<RequestId> {
    std::iter::from_fn(|| session.poll_transmit(Time::ZERO, connection, WINDOWS))
        .map(|frame| frame.request)
        .collect()
}

#[test]
fn predictions_never_use_the_main_connection_while_a_bulk_one_stands() {
    let mut s = session(2);
    let predicted = s.submit(read(Class::Prediction, 1 << 20)).expect("room");
    let demanded = s.submit(read(Class::Demand, 1 << 17)).expect("room");
    assert_eq!(drain(&mut s, ConnectionIndex::MAIN), [demanded]);
    assert_eq!(drain(&mut s, BULK), [predicted]);
    s.handle_down(BULK);
    assert_eq!(drain(&mut s, ConnectionIndex::MAIN), [predicted]);
}

#[test]
fn requests_without_data_that_counts_are_spread_over_bulk_connections() {
    let mut s = session(3);
    // One has a transfer already, but not so much more that it is passed over.
    s.submit(read(Class::Prediction, 64 << 10)).expect("room");
    assert_eq!(drain(&mut s, BULK).len(), 1);
    for _ in 0..9 {
        s.submit(read(Class::Prediction, 0)).expect("room");
    }
    let mut sent = [0; 3];
    while let Some(ready) = s.ready_connection(WINDOWS) {
        let frame = s.poll_transmit(Time::ZERO, ready, WINDOWS);
        assert!(frame.is_some(), "{ready:?} was said to have something");
        sent[ready.0] += 1;
    }
    assert_eq!(sent, [0, 4, 5]);
}

#[test]
fn the_window_bounds_the_sum_over_connections_but_not_demand() {
    let mut s = session(3);
    for _ in 0..20 {
        s.submit(read(Class::Prediction, 1 << 20)).expect("room");
    }
    let bulk = [BULK, ConnectionIndex(2), BULK, ConnectionIndex(2)];
    let sent: usize = bulk
        .map(|connection| drain(&mut s, connection).len())
        .iter()
        .sum();
    assert_eq!(sent, 4);
    let demanded = s.submit(read(Class::Demand, 1 << 20)).expect("room");
    assert_eq!(drain(&mut s, ConnectionIndex::MAIN), [demanded]);
    assert_eq!(s.in_flight().read_bytes, 5 << 20);
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

#[test]
fn whoever_may_send_something_is_named_until_nobody_may() {
    let mut s = session(3);
    s.spread_demand(true);
    let classes = [
        Class::Metadata,
        Class::Demand,
        Class::Write,
        Class::Prediction,
    ];
    for number in 0..200_u64 {
        let class = classes[number as usize % 4];
        let bytes = [4 << 10, 128 << 10, 1 << 20][number as usize % 3];
        s.submit(read(class, bytes)).expect("room");
    }
    let mut sent = 0;
    while let Some(ready) = s.ready_connection(WINDOWS) {
        let frame = s.poll_transmit(Time::ZERO, ready, WINDOWS);
        assert!(frame.is_some(), "{ready:?} was named and has nothing");
        sent += 1;
    }
    for connection in 0..3 {
        let rest = drain(&mut s, ConnectionIndex(connection));
        assert!(rest.is_empty(), "connection {connection} was not named");
    }
    assert!(sent > 50, "{sent}");
}

#[test]
fn one_request_larger_than_the_window_still_goes() {
    let mut s = session(2);
    let id = s.submit(read(Class::Prediction, 64 << 20)).expect("room");
    assert_eq!(drain(&mut s, BULK), [id]);
}

#[test]
fn unanswered_requests_of_a_broken_connection_are_sent_again_in_order_and_marked() {
    let mut s = session(2);
    let ids: Vec<_> = (0..3)
        .map(|_| s.submit(read(Class::Metadata, 0)).expect("room"))
        .collect();
    assert_eq!(drain(&mut s, ConnectionIndex::MAIN), ids);
    assert!(s.handle_reply(ConnectionIndex::MAIN, ids[1]).is_some());
    s.handle_down(ConnectionIndex::MAIN);
    s.handle_up(ConnectionIndex::MAIN);
    let again: Vec<_> =
        std::iter::from_fn(|| s.poll_transmit(Time::ZERO, ConnectionIndex::MAIN, WINDOWS))
            .collect();
    assert!(again.iter().all(|frame| frame.resent));
    assert_eq!(
        again.iter().map(|f| f.request).collect::<Vec<_>>(),
        [ids[0], ids[2]]
    );
}

#[test]
fn a_cancelled_request_is_told_to_the_server_and_its_reply_dropped() {
    let mut s = session(2);
    let id = s.submit(read(Class::Prediction, 1 << 20)).expect("room");
    drain(&mut s, BULK);
    s.cancel(id);
    let frame = s
        .poll_transmit(Time::ZERO, BULK, WINDOWS)
        .expect("a cancel frame");
    assert_eq!((frame.kind, frame.request), (FrameKind::Cancel, id));
    assert_eq!(s.in_flight().read_bytes, 1 << 20, "still on the line");
    assert_eq!(s.handle_reply(BULK, id), None);
    assert_eq!(s.in_flight(), InFlight::default());
}

#[test]
fn that_a_request_is_taken_back_is_told_again_when_the_connection_broke() {
    let mut s = session(1);
    let id = s.submit(read(Class::Metadata, 0)).expect("room");
    assert_eq!(drain(&mut s, ConnectionIndex::MAIN), [id]);
    s.cancel(id);
    let frame = s.poll_transmit(Time::ZERO, ConnectionIndex::MAIN, WINDOWS);
    assert_eq!(frame.map(|frame| frame.kind), Some(FrameKind::Cancel));
    s.handle_down(ConnectionIndex::MAIN);
    s.handle_up(ConnectionIndex::MAIN);
    let later = s.submit(read(Class::Metadata, 0)).expect("room");
    let sent = std::iter::from_fn(|| s.poll_transmit(Time::ZERO, ConnectionIndex::MAIN, WINDOWS));
    let sent: Vec<_> = sent.map(|frame| (frame.kind, frame.request)).collect();
    assert_eq!(sent, [(FrameKind::Cancel, id), (FrameKind::Request, later)]);
}

#[test]
fn expired_requests_are_reported_once_and_late_replies_are_dropped() {
    let mut s = session(1);
    let id = s.submit(read(Class::Demand, 1)).expect("room");
    drain(&mut s, ConnectionIndex::MAIN);
    assert_eq!(s.poll_expired(Time::from_secs(29)), None);
    assert_eq!(s.poll_expired(Time::from_secs(30)), Some(id));
    assert_eq!(s.poll_expired(Time::from_secs(31)), None);
    assert_eq!(s.handle_reply(ConnectionIndex::MAIN, id), None);
}

#[test]
fn a_waiting_prediction_that_is_demanded_goes_first() {
    let mut s = session(2);
    for _ in 0..8 {
        s.submit(read(Class::Prediction, 1 << 20)).expect("room");
    }
    let wanted = s.submit(read(Class::Prediction, 1 << 20)).expect("room");
    s.promote(wanted, Class::Demand);
    assert_eq!(drain(&mut s, ConnectionIndex::MAIN), [wanted]);
}

proptest! {
    /// Whatever happens in whatever order, the accounts come back to zero, every request is
    /// answered, expired or given up exactly once, and the bulk window holds.
    #[test]
    fn accounts_balance(steps in prop::collection::vec((0u8..7, 0usize..64), 1..400)) {
        let mut s = ClientSession::new(3, RequestId(1));
        let mut up = [false; 3];
        let mut on_line: Vec<(ConnectionIndex, RequestId)> = Vec::new();
        let mut open = BTreeSet::new();
        for (what, n) in steps {
            let connection = ConnectionIndex(n % 3);
            match what {
                0 | 1 => {
                    let class = Class::ALL[n % 5];
                    let mut submission = read(class, (n as u64) << 15);
                    if class == Class::Write {
                        let payload = Bytes::from(vec![0; n << 10]);
                        submission = Submission { payload, ..read(class, 0) };
                    }
                    open.insert(s.submit(submission).expect("room"));
                }
                2 => on_line.extend(
                    s.poll_transmit(Time::ZERO, connection, WINDOWS)
                        .filter(|frame| frame.kind == FrameKind::Request)
                        .map(|frame| (connection, frame.request))
                ),
                3 => if !on_line.is_empty() {
                    let (connection, id) = on_line.remove(n % on_line.len());
                    let answered = s.handle_reply(connection, id).is_some();
                    prop_assert_eq!(answered, open.remove(&id));
                },
                4 => {
                    up[connection.0] = !up[connection.0];
                    if up[connection.0] {
                        s.handle_up(connection);
                    } else {
                        s.handle_down(connection);
                        on_line.retain(|(c, _)| *c != connection);
                    }
                }
                5 => if let Some(id) = open.iter().nth(n).copied() {
                    open.remove(&id);
                    s.cancel(id);
                },
                _ => if let Some(id) = open.iter().nth(n).copied() {
                    s.promote(id, Class::Demand);
                },
            }
        }
        (0..3).filter(|c| !up[*c]).for_each(|c| s.handle_up(ConnectionIndex(c)));
        loop {
            let mut moved = false;
            for connection in (0..3).map(ConnectionIndex) {
                while let Some(frame) = s.poll_transmit(Time::ZERO, connection, WINDOWS) {
                    if frame.kind == FrameKind::Request {
                        on_line.push((connection, frame.request));
                    }
                    moved = true;
                }
            }
            for (connection, id) in on_line.drain(..) {
                moved = true;
                if s.handle_reply(connection, id).is_some() {
                    prop_assert!(open.remove(&id));
                }
            }
            if !moved { break }
        }
        prop_assert!(open.is_empty(), "never answered: {open:?}");
        prop_assert_eq!(s.in_flight(), InFlight::default());
        prop_assert_eq!(s.queued_read_bytes(), 0);
    }
}

#[test]
fn what_waits_for_hours_is_all_that_stays_unsettled() {
    let mut s = session(2);
    let mut known = Settled::default();
    let waits = s.submit(read(Class::Demand, 1)).expect("room");
    for number in 0..5000 {
        let id = s.submit(read(Class::Demand, 1)).expect("room");
        let sent = drain(&mut s, ConnectionIndex::MAIN);
        assert_eq!(sent.last(), Some(&id));
        // Every hundredth takes until ten others have been answered.
        if number % 100 != 0 {
            assert!(s.handle_reply(ConnectionIndex::MAIN, id).is_some());
        }
        let settled = s.settled();
        let old = known.clone();
        known.advance(&settled);
        assert_eq!(known, settled, "takes nothing back of {old:?}");
        assert!(!settled.covers(waits));
        assert!(number % 100 != 0 || !settled.covers(id));
        assert!(settled.except.len() <= STRAGGLERS_MAX);
        if number > 2 * STRAGGLER_DISTANCE {
            let far = RequestId(id.0 - STRAGGLER_DISTANCE - 100);
            let replied = !(far.0 - waits.0 - 1).is_multiple_of(100);
            assert_eq!(settled.covers(far), replied, "{far:?} of {settled:?}");
        }
    }
}

proptest! {
    #[test]
    fn what_is_settled_is_what_is_answered(
        replies in prop::collection::vec(0..200_usize, 1..3000)
    ) {
        let mut s = session(2);
        let mut open: Vec<RequestId> = Vec::new();
        let mut known = Settled::default();
        for place in replies {
            while open.len() <= place {
                open.push(s.submit(read(Class::Demand, 1)).expect("room"));
            }
            drain(&mut s, ConnectionIndex::MAIN);
            let id = open.remove(place);
            prop_assert!(s.handle_reply(ConnectionIndex::MAIN, id).is_some());
            let settled = s.settled();
            known.advance(&settled);
            prop_assert_eq!(&known, &settled);
            prop_assert!(open.iter().all(|id| !settled.covers(*id)));
        }
    }
}
