//! Pieces that stall in the store: what they wait for, and what is reserved, go on.

use super::*;

#[test]
fn the_stores_own_io_goes_through_while_every_lane_waits_for_it() {
    let dispatcher = Arc::new(dispatcher());
    let gate = dispatcher.gate();
    let released = Arc::new((Mutex::new(false), Condvar::new()));
    let tasks = (0..2 * STALLS_MAX + 64).map(|_| {
        let (gate, released) = (gate.clone(), released.clone());
        let task: Task = Box::new(move || {
            // As a change in the store that waits for a checkpoint.
            gate.on_stall();
            let (is_released, changed) = &*released;
            let waits = |is_released: &mut bool| !*is_released;
            let guard = is_released.lock().unwrap();
            drop(changed.wait_while(guard, waits).unwrap());
            1
        });
        (Operation::Write, PIECE, task)
    });
    let user = Source::User(UserKey(1));
    dispatcher.submit(user, tasks.collect::<Vec<_>>()).unwrap();
    wait_until("they stall", || {
        dispatcher.shared.lock().order.stalled() >= URGENT_STALLS
    });
    // The checkpoint: many writes one after the other.
    let begin = Instant::now();
    for _ in 0..100 {
        drop(gate.enter(Direction::Write, 128 << 10));
    }
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
    *released.0.lock().unwrap() = true;
    released.1.notify_all();
    let all = 2 * STALLS_MAX as u64 + 64;
    wait_until("all are done", || {
        dispatcher.figures().done.pieces[1] == all
    });
    // Without a stall it is scheduled, and counted.
    drop(gate.enter(Direction::Write, 4096));
    assert!(dispatcher.figures().done.pieces[2] > 0);
    dispatcher.stop();
    drop(gate.enter(Direction::Write, 4096));
}

#[test]
fn the_stores_own_io_that_waits_already_goes_through_when_every_lane_comes_to_wait_for_it() {
    // On a busy machine the lanes may stall when nobody has long to wait
    // any more, and threads may be late: then it is tried again.
    let judged = (0..10).map(|_| let_lanes_stall_before_who_waits());
    let mut tried = Vec::new();
    for (waited, in_time) in judged {
        if waited > 0 && in_time == waited {
            return;
        }
        tried.push((waited, in_time));
    }
    panic!("they wait until they have waited too long: {tried:?}");
}

/// How many of the store's own had still half of their time to wait when every lane had stalled,
/// and how many of those went through before it had passed.
fn let_lanes_stall_before_who_waits() -> (usize, usize) {
    const EARLY: usize = 64;
    let dispatcher = Arc::new(dispatcher());
    let (begun, released) = (Signal::default(), Signal::default());
    let gate = dispatcher.gate();
    let count = 2 * STALLS_MAX + 64;
    let tasks = (0..count).map(|_| {
        let (gate, begun, released) = (gate.clone(), begun.clone(), released.clone());
        let task: Task = Box::new(move || {
            begun.wait();
            gate.on_stall();
            released.wait();
            1
        });
        (Operation::Write, PIECE, task)
    });
    let user = Source::User(UserKey(1));
    dispatcher.submit(user, tasks.collect::<Vec<_>>()).unwrap();
    // Many, so that their part of the device is used up when the lanes stall.
    let early: Vec<_> = (0..EARLY)
        .map(|_| {
            let gate = gate.clone();
            thread::spawn(move || {
                let entered = Instant::now();
                let pass = gate.enter(Direction::Write, 128 << 10);
                let at = Instant::now();
                drop(pass);
                (entered, at)
            })
        })
        .collect();
    wait_until("they wait", || dispatcher.figures().waiting >= EARLY / 2);
    begun.give();
    wait_until("they stall", || {
        dispatcher.shared.lock().order.stalled() >= URGENT_STALLS
    });
    let stalled = Instant::now();
    let mut waited: Vec<_> = early.into_iter().map(|it| it.join().unwrap()).collect();
    // Before anything may fail: the dispatcher waits for its lanes.
    released.give();
    wait_until("all are done", || {
        dispatcher.figures().done.pieces[1] == count as u64
    });
    waited.retain(|(entered, at)| {
        *at > stalled && *entered + GATE_TIME_MAX > stalled + GATE_TIME_MAX / 2
    });
    let is_in_time = |(entered, at): &&(Instant, Instant)| *at - *entered < GATE_TIME_MAX;
    (waited.len(), waited.iter().filter(is_in_time).count())
}

#[test]
fn what_is_reserved_goes_on_while_a_flood_of_others_stands_in_the_store() {
    const READS: u64 = 50;
    let dispatcher = Arc::new(dispatcher());
    let (gate, released) = (dispatcher.gate(), Signal::default());
    let flood = 4 * STALLS_MAX;
    let tasks = (0..flood).map(|_| {
        let (gate, released) = (gate.clone(), released.clone());
        let task: Task = Box::new(move || {
            gate.on_stall();
            released.wait();
            1
        });
        (Operation::Write, PIECE, task)
    });
    let user = Source::User(UserKey(9));
    dispatcher.submit(user, tasks.collect::<Vec<_>>()).unwrap();
    wait_until("they stall", || {
        dispatcher.shared.lock().order.stalled() >= SHARED_STALLS_MAX
    });
    let grant = grant(1, 1, &[terms(500_000, 0, 10_000_000_000)]);
    let ticket = dispatcher.open(&grant, STORE).unwrap();
    for _ in 0..READS {
        let task: Task = Box::new(|| 1);
        let read = vec![(Operation::Read, PIECE, task)];
        dispatcher.submit(Source::Ticket(ticket), read).unwrap();
    }
    let end = Instant::now() + Duration::from_secs(20);
    while dispatcher.figures().done.pieces[0] < READS && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    let (figures, stalled) = (
        dispatcher.figures(),
        dispatcher.shared.lock().order.stalled(),
    );
    // Before anything may fail: the dispatcher waits for its lanes.
    released.give();
    assert_eq!(figures.done.pieces, [READS, 0, 0]);
    assert_eq!(
        (stalled, figures.in_flight),
        (SHARED_STALLS_MAX, SHARED_STALLS_MAX)
    );
    wait_until("all are done", || {
        dispatcher.figures().done.pieces[1] == flood as u64
    });
}
