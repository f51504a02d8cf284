//! The two pure structures, and how long a session may take to obey.

use super::former::Former;
use super::notes::{Noted, Notes};
use super::recall::{Asked, Recalls};
use super::table::LeaseTable;
use super::{Caching, Change, TAKEN_AT_ONCE_MAX};
use crate::clock::Clock;
use crate::link::{Link, LinkKey};
use crate::session::{Session, SessionKey, Sessions};
use base::limits::{
    DISTRUST_TIME, LEASE_TIME, RECALL_DISTRUSTED_TIME_MAX, RECALL_TIME_MAX, RECALL_WRITING_TIME_MAX,
};
use base::{Handle, Name, SessionId, Time, VolumeId};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;
use wire::identity::Peer;
use wire::message::{ConnectionRole, CredentialKind, Features, Lease, Notice, Recall, RecallItem};

const A: SessionKey = SessionKey(1);
const B: SessionKey = SessionKey(2);

fn handle(number: u8) -> Handle {
    Handle::new(&[number + 1]).unwrap()
}

fn at(seconds: u64) -> Time {
    Time::from_secs(100 + seconds)
}

fn item(number: u8) -> RecallItem {
    RecallItem {
        handle: handle(number),
        what: Recall::Everything,
    }
}

#[test]
fn a_directory_is_leased_alone_until_somebody_else_comes() {
    let mut table = LeaseTable::default();
    let d = handle(0);
    assert_eq!(
        table.grant(A, &d, Lease::Exclusive, at(0)),
        Lease::Exclusive
    );
    // A plain look does not take away what the session has.
    assert_eq!(table.grant(A, &d, Lease::Read, at(0)), Lease::Exclusive);
    // Without a contest nobody gets in.
    assert_eq!(table.grant(B, &d, Lease::Read, at(0)), Lease::None);
    assert_eq!(
        table.contest(Some(A), &d, at(0)),
        None,
        "the holder does not contest itself"
    );
    assert_eq!(table.contest(Some(B), &d, at(0)), Some(A));
    assert_eq!(table.contest(Some(B), &d, at(0)), None);
    assert_eq!(table.held(A, &d), Lease::Read);
    // Before B has been served, A must not get it back.
    assert_eq!(table.grant(A, &d, Lease::Exclusive, at(1)), Lease::Read);
    assert_eq!(table.grant(B, &d, Lease::Exclusive, at(1)), Lease::Read);
    // B stays away, and after a while A is alone again.
    table.give_back(B, &d, at(1));
    assert_eq!(table.grant(A, &d, Lease::Exclusive, at(1)), Lease::Read);
    assert_eq!(
        table.grant(A, &d, Lease::Exclusive, at(9)),
        Lease::Exclusive
    );
    assert_eq!(table.exclusives(), 1);
}

#[test]
fn a_file_that_somebody_else_writes_is_leased_to_nobody_but_the_writer() {
    let mut table = LeaseTable::default();
    let f = handle(0);
    table.add_writer(A, &f);
    table.add_writer(A, &f);
    assert_eq!(table.grant(B, &f, Lease::Read, at(0)), Lease::None);
    assert_eq!(table.grant(A, &f, Lease::Read, at(0)), Lease::Read);
    table.remove_writer(A, &f, at(0));
    assert_eq!(
        table.grant(B, &f, Lease::Read, at(0)),
        Lease::None,
        "one open is left"
    );
    table.remove_writer(A, &f, at(0));
    assert_eq!(table.grant(B, &f, Lease::Read, at(0)), Lease::Read);
}

#[test]
fn a_change_is_noticed_by_who_looked_before_it_and_leased_after_it() {
    let mut table = LeaseTable::default();
    let then = table.moment();
    assert!(!table.changed_since(&handle(0), then));
    table.change_inode(Some(A), &handle(0), at(0));
    table.change_entry(Some(A), &handle(1));
    assert!(table.changed_since(&handle(0), then) && table.changed_since(&handle(1), then));
    assert!(
        !table.changed_since(&handle(2), then),
        "unconcerned inodes stay believable"
    );
    assert!(!table.changed_since(&handle(0), table.moment()));
    let then = table.moment();
    for _ in 0..5000 {
        table.change_inode(None, &handle(3), at(0));
    }
    assert!(
        table.changed_since(&handle(2), then),
        "what is forgotten counts as changed"
    );
    let then = table.moment();
    table.note_change_of_all();
    assert!(table.changed_since(&handle(2), then));
}

#[test]
fn a_wait_ends_when_every_session_has_obeyed() {
    let mut recalls = Recalls::default();
    let tokens = [
        recalls.add(A, item(0), at(0)),
        recalls.add(B, item(0), at(0)),
    ];
    assert_eq!(recalls.wait(&[], "nobody"), Some("nobody"));
    assert_eq!(recalls.wait(&tokens, "both"), None);
    assert!(recalls.obeyed(A, 1).is_empty(), "it has not been sent yet");
    let (a, _) = recalls.next_notice(A).unwrap();
    let (b, _) = recalls.next_notice(B).unwrap();
    assert!(recalls.next_notice(A).is_none());
    assert!(recalls.obeyed(A, a).is_empty());
    assert!(recalls.obeyed(A, a).is_empty(), "once is once");
    assert_eq!(recalls.obeyed(B, b), ["both"]);
    assert!(!recalls.is_recalling());
    assert_eq!(recalls.wait(&tokens, "late"), Some("late"));
}

#[test]
fn recalls_gather_until_they_are_sent_and_are_sent_again_on_a_new_connection() {
    let mut recalls = Recalls::<()>::default();
    let first = recalls.add(A, item(0), at(0));
    assert_eq!(
        recalls.add(A, item(0), at(0)),
        first,
        "the same thing twice is one item"
    );
    assert_eq!(recalls.add(A, item(1), at(0)), first);
    let entry = RecallItem {
        handle: handle(1),
        what: Recall::Entry(Name::new("x").unwrap()),
    };
    assert_eq!(recalls.add(A, entry, at(0)), first);
    let (id, items) = recalls.next_notice(A).unwrap();
    assert!(matches!(items, Asked::Items(items) if items.len() == 3));
    let second = recalls.add(A, item(2), at(0));
    assert_ne!(second, first, "what was sent does not grow");
    recalls.resend(A);
    assert_eq!(recalls.next_notice(A).unwrap().0, id);
    let next = recalls.next_notice(A).unwrap().1;
    assert_eq!(next, Asked::Items(vec![item(2)]));
}

#[test]
fn a_vanished_session_holds_nobody_up_and_its_old_answers_mean_nothing() {
    let mut recalls = Recalls::default();
    let token = recalls.add(A, item(0), at(0));
    recalls.wait(&[token], 1);
    let (old, _) = recalls.next_notice(A).unwrap();
    assert_eq!(recalls.drop_session(A), [1]);
    let token = recalls.add(A, item(0), at(0));
    recalls.wait(&[token], 2);
    recalls.next_notice(A).unwrap();
    assert!(recalls.obeyed(A, old).is_empty());
}

/// A session of the bearer of this credential, with a connection for notices.
fn session(caching: &Caching, byte: u8, serial: &str) -> Arc<Session> {
    let peer = Peer {
        kind: CredentialKind::Admin,
        serial: serial.to_owned(),
        label: "tester".to_owned(),
    };
    let (id, clock) = (SessionId([byte; 16]), &caching.clock);
    let session = caching.sessions.open(id, &peer, "tester", clock).unwrap();
    let (key, share) = (LinkKey(byte.into()), session.share.clone());
    let (address, role) = ("127.0.0.1:1".parse().unwrap(), ConnectionRole::Main);
    let link = Link::new(key, address, role, share, Weak::new());
    session.join(&link).unwrap();
    session
}

/// A session with a lease that is being recalled, and what it is recalled by.
fn recalling() -> (Caching, Arc<Session>, Time) {
    let (sessions, clock) = (Arc::new(Sessions::new()), Clock::start());
    let caching = Caching::new(sessions, (Notes::none(), Vec::new()), clock);
    let (holder, other) = (session(&caching, 1, "01"), session(&caching, 2, "02"));
    let inode = handle(0);
    let lease = caching.grant(&holder, &inode, Lease::Read);
    assert_eq!(lease, Lease::Read);
    let tokens = caching.changed(Some(&other), &[Change::Inode(inode)]);
    assert_eq!(tokens.len(), 1);
    let now = caching.clock.now();
    (caching, holder, now)
}

#[test]
fn very_many_leases_are_called_back_part_by_part_and_others_have_their_turn_between() {
    let caching = Caching::new(
        Arc::new(Sessions::new()),
        (Notes::none(), Vec::new()),
        Clock::start(),
    );
    let (holder, gone) = (session(&caching, 1, "01"), session(&caching, 2, "02"));
    let numbered = |number: u32| Handle::new(&number.to_le_bytes()).unwrap();
    let count = 2 * TAKEN_AT_ONCE_MAX as u32 + 1;
    for number in 0..count {
        caching.grant(&holder, &numbered(number), Lease::Read);
    }
    let concerned = |handle: &Handle| *handle != numbered(0);
    let next = || loop {
        if let Some(Notice::Recall { id, items }) = caching.next_notice(&holder) {
            break (id, items.len());
        }
        std::thread::yield_now();
    };
    let mut parts = Vec::new();
    let minute = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let all = scope.spawn(|| caching.changed_all(concerned, minute));
        while parts.iter().sum::<usize>() < count as usize - 1 {
            let (id, items) = next();
            parts.push(items);
            // Nothing follows before this is obeyed, and the table is free meanwhile.
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(caching.next_notice(&holder), None);
            assert_eq!(caching.grant(&gone, &handle(200), Lease::Read), Lease::Read);
            caching.obeyed(&holder, id);
        }
        all.join().unwrap();
    });
    assert_eq!(parts, [TAKEN_AT_ONCE_MAX; 2]);
    let held = |who: &Session, handle: &Handle| caching.lock().table.held(who.key, handle);
    assert_eq!(held(&holder, &numbered(0)), Lease::Read);
    assert!((1..count).all(|number| held(&holder, &numbered(number)) == Lease::None));
    // Who does not obey is waited for once.
    for number in 1..count {
        caching.grant(&gone, &numbered(number), Lease::Read);
    }
    let begun = std::time::Instant::now();
    caching.changed_all(concerned, Duration::from_secs(1));
    let taken = begun.elapsed();
    assert!(taken < Duration::from_millis(1900), "{taken:?}");
    assert!((1..count).all(|number| held(&gone, &numbered(number)) == Lease::None));
}

#[test]
fn who_does_not_obey_and_does_nothing_is_ended_and_who_writes_back_has_longer() {
    let second = Duration::from_secs(1);
    let is_ended = |caching: &Caching, holder: &Session, now| {
        // It answers all the while.
        holder.hear(now);
        let ended = caching.expire_at(now);
        ended.iter().any(|session| session.key == holder.key)
    };
    let (caching, idle, since) = recalling();
    assert!(!is_ended(&caching, &idle, since + RECALL_TIME_MAX - second));
    assert!(is_ended(&caching, &idle, since + RECALL_TIME_MAX + second));

    let (caching, busy, since) = recalling();
    let mut now = since;
    while now.since(since) + RECALL_TIME_MAX < RECALL_WRITING_TIME_MAX {
        now = now + RECALL_TIME_MAX - second;
        assert!(!is_ended(&caching, &busy, now), "{:?}", now.since(since));
        busy.note_change(now);
    }
    let end = since + RECALL_WRITING_TIME_MAX;
    busy.note_change(end);
    assert!(!is_ended(&caching, &busy, end - second));
    assert!(is_ended(&caching, &busy, end + second), "not for ever");

    let (caching, stuck, since) = recalling();
    let now = since + RECALL_TIME_MAX;
    stuck.note_change(since + second);
    assert!(!is_ended(&caching, &stuck, now + second));
    assert!(
        is_ended(&caching, &stuck, now + 2 * second),
        "it has stopped writing"
    );
}

#[test]
fn who_has_not_obeyed_gets_no_leases_in_another_session_either() {
    let second = Duration::from_secs(1);
    let (caching, holder, since) = recalling();
    let beside = session(&caching, 3, "01");
    let other = session(&caching, 4, "04");
    let inodes = [handle(5), handle(6)];
    let leased = caching.grant(&beside, &inodes[0], Lease::Read);
    assert_eq!(leased, Lease::Read);
    let late = since + RECALL_TIME_MAX + second;
    holder.hear(late);
    assert_eq!(caching.expire_at(late).len(), 1);
    caching.sessions.remove(&holder);
    // What another of its sessions still has holds nobody up for as long.
    caching.changed(Some(&other), &[Change::Inode(inodes[0].clone())]);
    let later = caching.clock.now() + RECALL_DISTRUSTED_TIME_MAX + second;
    beside.hear(later);
    assert_eq!(caching.expire_at(later).len(), 1);
    caching.sessions.remove(&beside);
    let next = session(&caching, 7, "01");
    let moment = caching.moment();
    let found = || inodes.iter().map(|inode| (inode, Lease::Read));
    let leases = |who: &Session| {
        let (entered, _) = caching.enter(who, &handle(7), Lease::Read, false).unwrap();
        let granted = caching.grant(who, &handle(8), Lease::Read);
        let found = caching.grant_found(who, found(), moment);
        let made = caching.made(who, &[], &handle(9), Lease::Read, moment).1;
        let all = found.into_iter().map(|(lease, _)| lease);
        all.chain([entered, granted, made]).collect::<Vec<_>>()
    };
    assert_eq!(leases(&next), [Lease::None; 5]);
    assert_eq!(leases(&other), [Lease::Read; 5]);
    let until = later + DISTRUST_TIME;
    assert!(!next.may_cache(until - second) && next.may_cache(until));
}

#[test]
fn what_panics_when_it_goes_on_harms_neither_who_lets_it_nor_others() {
    fn panics() {
        panic!("as a request may");
    }
    let waiting = || {
        let (sessions, clock) = (Arc::new(Sessions::new()), Clock::start());
        let caching = Caching::new(sessions, (Notes::none(), Vec::new()), clock);
        let (holder, other) = (session(&caching, 1, "01"), session(&caching, 2, "02"));
        let inode = handle(0);
        let lease = caching.grant(&holder, &inode, Lease::Read);
        assert_eq!(lease, Lease::Read);
        let tokens = caching.changed(Some(&other), &[Change::Inode(inode)]);
        let (telling, told) = mpsc::channel();
        caching.wait(&tokens, Box::new(panics));
        caching.wait(&tokens, Box::new(move || telling.send(()).unwrap()));
        assert!(told.try_recv().is_err(), "nobody has obeyed");
        (caching, holder, told)
    };
    let (caching, obedient, told) = waiting();
    let Some(Notice::Recall { id, .. }) = caching.next_notice(&obedient) else {
        panic!("it is to be recalled");
    };
    caching.obeyed(&obedient, id);
    assert_eq!(told.try_recv(), Ok(()));

    let (caching, _silent, told) = waiting();
    let late = caching.clock.now() + LEASE_TIME + Duration::from_secs(1);
    assert!(caching.expire_at(late).is_empty());
    assert_eq!(told.try_recv(), Ok(()));

    let (caching, gone, told) = waiting();
    caching.end_session(gone.key);
    assert_eq!(told.try_recv(), Ok(()));

    // Where there is nothing to wait for, it goes on at once.
    caching.wait(&[], Box::new(panics));
}

fn leased(had: [(SessionKey, Lease); 2]) -> Vec<(SessionKey, Noted)> {
    let noted = |(key, lease)| (key, Noted::leased(lease));
    had.map(noted).to_vec()
}

#[test]
fn a_former_session_is_asked_once_to_forget_and_once_to_send_what_it_made_ahead() {
    const C: SessionKey = SessionKey(3);
    let mut recalls = Recalls::<()>::default();
    let had = [(A, Lease::Exclusive), (B, Lease::Read)];
    let mut former = Former::new(leased(had), at(0));
    assert_eq!(former.forget(&mut recalls, C, at(0)).len(), 2);
    assert_eq!(former.forget(&mut recalls, A, at(1)).len(), 1, "only B");
    assert_eq!(former.forget(&mut recalls, C, at(1)).len(), 2, "the same");
    let settle = former.settle(&mut recalls, C, at(1));
    assert_eq!(settle.len(), 1, "B had no directory alone");
    assert!(former.settle(&mut recalls, A, at(1)).is_empty());
    // Nothing that is recalled beside them is in the way of obeying them.
    recalls.add(A, item(7), at(1));
    recalls.add(A, item(8), at(1));
    let mut sent = std::iter::from_fn(|| recalls.next_notice(A)).collect::<Vec<_>>();
    let asked: Vec<_> = sent.iter().map(|(_, asked)| asked.clone()).collect();
    let items = Asked::Items(vec![item(7), item(8)]);
    assert_eq!(asked, [Asked::Forget, Asked::Settle, items]);
    recalls.obeyed(A, sent.remove(0).0);
    assert_eq!(former.forget(&mut recalls, C, at(2)).len(), 1, "only B");
    assert_eq!(former.settle(&mut recalls, C, at(2)).len(), 1);
    recalls.obeyed(A, sent.remove(0).0);
    assert!(former.settle(&mut recalls, C, at(2)).is_empty());
    assert!(recalls.next_notice(A).is_none(), "nobody is asked twice");
}

#[test]
fn who_is_back_is_waited_for_until_he_has_obeyed_and_who_is_not_for_a_while() {
    const C: SessionKey = SessionKey(3);
    let mut recalls = Recalls::<()>::default();
    let had = [(A, Lease::Exclusive), (B, Lease::Exclusive)];
    let mut former = Former::new(leased(had), at(0));
    assert!(former.is_awaited(A, at(5)) && former.is_awaited(B, at(5)));
    assert!(!former.is_awaited(C, at(5)));
    // It is asked as soon as it is back, although nobody waits for it.
    former.on_main(&mut recalls, A, true, at(5));
    let sent = std::iter::from_fn(|| recalls.next_notice(A)).collect::<Vec<_>>();
    assert_eq!(sent.len(), 2);
    assert!(!former.is_awaited(A, at(5)));
    assert!(former.sweep(&recalls, at(6)) && !former.sweep(&recalls, at(6)));
    assert!(!former.is_awaited(B, at(6)));
    for wait in [Former::forget::<()>, Former::settle] {
        let tokens = wait(&mut former, &mut recalls, C, at(60));
        assert_eq!(tokens.iter().map(|t| t.session).collect::<Vec<_>>(), [A]);
    }
    for (id, _) in sent {
        recalls.obeyed(A, id);
    }
    former.sweep(&recalls, at(61));
    assert!(former.forget(&mut recalls, C, at(61)).is_empty());
    assert!(former.settle(&mut recalls, C, at(61)).is_empty());
}

#[test]
fn what_obeys_a_recall_of_the_run_before_obeys_none_of_this_one() {
    let mut before = Recalls::<()>::of_run(7);
    before.add(A, item(0), at(0));
    let (old, _) = before.next_notice(A).unwrap();
    let mut recalls = Recalls::<()>::of_run(8);
    let token = recalls.add(A, item(0), at(0));
    recalls.next_notice(A).unwrap();
    recalls.obeyed(A, old);
    assert!(recalls.is_open(token));
}

#[test]
fn who_had_leases_is_known_to_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    let run = |found: &[(u8, Lease)]| {
        let (notes, former) = Notes::open(directory.path()).unwrap();
        let of = |(id, noted): &(SessionId, Noted)| (id.0[0], noted.lease);
        let mut had: Vec<_> = former.iter().map(of).collect();
        had.sort_unstable();
        assert_eq!(had, found);
        let (sessions, clock) = (Arc::new(Sessions::new()), Clock::start());
        Caching::new(sessions, (notes, former), clock)
    };
    let caching = run(&[]);
    let told = [1, 2, 3, 4].map(|byte| session(&caching, byte, "01"));
    for (inode, wanted) in [(1, Lease::Read), (2, Lease::Exclusive), (3, Lease::Read)] {
        let own = &told[usize::from(inode) - 1];
        assert_eq!(caching.grant(own, &handle(inode), wanted), wanted);
    }
    caching.grant(&told[0], &handle(9), Lease::Exclusive);
    caching.forget_session(&told[2]);
    caching.sweep();
    let caching = run(&[(1, Lease::Exclusive), (2, Lease::Exclusive)]);
    // The second one is back, the first one is not.
    let back = session(&caching, 2, "01");
    let other = session(&caching, 5, "01");
    let change = [Change::Inode(handle(20))];
    assert_eq!(caching.changed(Some(&other), &change).len(), 2);
    assert_eq!(caching.changed(Some(&back), &change).len(), 1);
    caching.grant(&other, &handle(5), Lease::Read);
    let still = [
        (1, Lease::Exclusive),
        (2, Lease::Exclusive),
        (5, Lease::Read),
    ];
    run(&still);
    // A slot that was torn when the power failed is nobody's.
    let path = directory.path().join("sessions");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[40] ^= 1;
    bytes.extend([7; 45]);
    std::fs::write(&path, &bytes).unwrap();
    run(&[(1, Lease::Exclusive), (5, Lease::Read)]);
}

#[test]
fn who_wrote_is_waited_for_until_it_has_written_again_and_who_is_not_back_for_a_while() {
    let end = at(0) + LEASE_TIME;
    let both = || vec![(A, Noted::WRITES), (B, Noted::leased(Lease::Read))];
    // It is not back: it has its time.
    let recalls = Recalls::<()>::default();
    let mut former = Former::new(both(), at(0));
    assert!(former.is_writing_again(&recalls, at(5)));
    assert!(!former.is_writing_again(&recalls, end));
    assert!(!Former::new(both().split_off(1), at(0)).is_writing_again(&recalls, at(0)));
    former.end(A);
    assert!(!former.is_writing_again(&recalls, at(5)), "it has ended");
    // It is back: it is asked, has nothing to forget, and is waited for beyond that time.
    let mut recalls = Recalls::<()>::default();
    let mut former = Former::new(both(), at(0));
    for _ in 0..2 {
        former.on_main(&mut recalls, A, true, at(5));
    }
    let (id, asked) = recalls.next_notice(A).unwrap();
    assert_eq!(asked, Asked::WriteAgain);
    assert!(recalls.next_notice(A).is_none(), "once");
    former.sweep(&recalls, at(60));
    assert!(former.is_writing_again(&recalls, at(60)));
    recalls.obeyed(A, id);
    assert!(!former.is_writing_again(&recalls, at(60)));
    // One that does not know what that is: as if it were not back.
    let mut recalls = Recalls::<()>::default();
    let mut former = Former::new(both(), at(0));
    former.on_main(&mut recalls, A, false, at(1));
    assert!(recalls.next_notice(A).is_none());
    former.sweep(&recalls, at(5));
    assert!(former.is_writing_again(&recalls, at(5)));
    assert!(!former.is_writing_again(&recalls, end));
}

#[test]
fn who_wrote_into_stores_is_known_to_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    let run = || {
        let notes = Notes::open(directory.path()).unwrap();
        let (sessions, clock) = (Arc::new(Sessions::new()), Clock::start());
        Caching::new(sessions, notes, clock)
    };
    let caching = run();
    assert!(!caching.is_writing_again(), "there was no run before");
    let (writer, reader) = (session(&caching, 1, "01"), session(&caching, 2, "01"));
    caching.writes_to_stores(&writer);
    caching.grant(&reader, &handle(1), Lease::Read);
    // Both of it is noted, whichever came first.
    for (own, inode) in [(&writer, 2), (&reader, 3)] {
        caching.grant(own, &handle(inode), Lease::Exclusive);
    }
    caching.writes_to_stores(&writer);
    let both = Noted::WRITES.with(Noted::leased(Lease::Exclusive));
    assert_eq!(writer.noted(), both);
    let caching = run();
    assert!(caching.is_writing_again());
    // A run that ends in order while it waits leaves the next one to wait.
    caching.all_is_durable();
    let caching = run();
    assert!(caching.is_writing_again());
    let back = session(&caching, 1, "01");
    assert_eq!(back.noted(), both);
    back.set_features(Features::WRITE_AGAIN);
    caching.resend(&back);
    let notices = std::iter::from_fn(|| caching.next_notice(&back)).collect::<Vec<_>>();
    let again = notices
        .iter()
        .find(|it| matches!(it, Notice::WriteAgain { .. }));
    assert_eq!(notices.len(), 3, "{notices:?}");
    assert!(caching.is_writing_again());
    caching.obeyed(&back, again.unwrap().id());
    assert!(!caching.is_writing_again());
    // Of one that ends in order, nobody waits for writers.
    caching.all_is_durable();
    assert!(!run().is_writing_again());
    assert_eq!(run().sessions.expect_none().len(), 2, "they had leases");
}

#[test]
fn lease_writes_and_volume_of_a_session_are_noted_beside_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let run = || {
        let notes = Notes::open(directory.path()).unwrap();
        let (sessions, clock) = (Arc::new(Sessions::new()), Clock::start());
        Caching::new(sessions, notes, clock)
    };
    let volume = VolumeId([9; 16]);
    let caching = run();
    let [writer, leased] = [1, 2].map(|byte| session(&caching, byte, "01"));
    // Writing comes before the volume, or after it, or alone.
    caching.writes_to_stores(&writer);
    assert!(caching.noted_users(volume).is_empty());
    writer.attach(volume);
    leased.attach(volume);
    caching.grant(&writer, &handle(1), Lease::Read);
    caching.grant(&leased, &handle(2), Lease::Read);
    caching.writes_to_stores(&leased);
    caching.writes_to_stores(&session(&caching, 3, "01"));
    let users = [writer.id, leased.id];
    assert_eq!(caching.noted_users(volume), users);
    let caching = run();
    assert!(caching.is_writing_again());
    assert_eq!(caching.noted_users(volume), users);
    // Who only wrote has no slot once that is durable; the others keep theirs.
    caching.notes.forget_writes();
    let caching = run();
    assert!(!caching.is_writing_again());
    assert_eq!(caching.noted_users(volume), users);
    assert_eq!(caching.sessions.expect_none().len(), 2);
    let bytes = std::fs::read(directory.path().join("sessions")).unwrap();
    assert_eq!(bytes[16..28], [1, 0, 0, 0, 9, 9, 9, 9, 0, 0, 0, 0]);
}

#[test]
fn a_lease_that_cannot_be_noted_is_not_given() {
    let directory = tempfile::tempdir().unwrap();
    let (notes, former) = Notes::open(directory.path()).unwrap();
    let notes = notes.read_only(directory.path());
    let (sessions, clock) = (Arc::new(Sessions::new()), Clock::start());
    let caching = Caching::new(sessions, (notes, former), clock);
    let own = session(&caching, 1, "01");
    assert_eq!(caching.grant(&own, &handle(1), Lease::Read), Lease::None);
    assert_eq!(caching.count(own.key), 0);
}

#[test]
fn batches_are_bounded() {
    let mut recalls = Recalls::<()>::default();
    for number in 0..3000u32 {
        let handle = Handle::new(&number.to_le_bytes()).unwrap();
        recalls.add(
            A,
            RecallItem {
                handle,
                what: Recall::Everything,
            },
            at(0),
        );
    }
    let sizes: Vec<_> = std::iter::from_fn(|| recalls.next_notice(A))
        .map(|(_, asked)| match asked {
            Asked::Items(items) => items.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sizes, [1024, 1024, 952]);
}

#[derive(Clone, Debug)]
enum Op {
    Look {
        session: u32,
        handle: u8,
        exclusive: bool,
    },
    Change {
        session: u32,
        handle: u8,
    },
    ChangeEntry {
        session: u32,
        handle: u8,
    },
    GiveBack {
        session: u32,
        handle: u8,
    },
    Open {
        session: u32,
        handle: u8,
    },
    End(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let place = (1..4u32, 0..4u8);
    let op = prop_oneof![
        6 => (place.clone(), any::<bool>())
            .prop_map(|((session, handle), exclusive)| Op::Look { session, handle, exclusive }),
        3 => place.clone().prop_map(|(session, handle)| Op::Change { session, handle }),
        2 => place.clone().prop_map(|(session, handle)| Op::ChangeEntry { session, handle }),
        1 => place.clone().prop_map(|(session, handle)| Op::GiveBack { session, handle }),
        1 => place.prop_map(|(session, handle)| Op::Open { session, handle }),
        1 => (1..4u32).prop_map(Op::End),
    ];
    prop::collection::vec(op, 0..80)
}

/// Sessions that cache versions of inodes as the leases allow.
#[derive(Default)]
struct Model {
    table: LeaseTable,
    version: HashMap<u8, u64>,
    caches: HashMap<(u32, u8), (u64, Lease)>,
}

impl Model {
    fn look(&mut self, session: u32, h: u8, exclusive: bool, now: Time) {
        let key = SessionKey(session);
        if let Some(holder) = self.table.contest(Some(key), &handle(h), now) {
            let cached = self
                .caches
                .get_mut(&(holder.0, h))
                .expect("a holder caches");
            assert_eq!(cached.1, Lease::Exclusive);
            cached.1 = Lease::Read;
        }
        let wanted = if exclusive {
            Lease::Exclusive
        } else {
            Lease::Read
        };
        let lease = self.table.grant(key, &handle(h), wanted, now);
        if lease > Lease::None {
            let version = self.version.get(&h).copied().unwrap_or(0);
            self.caches.insert((session, h), (version, lease));
        }
    }

    fn change(&mut self, session: u32, h: u8, now: Time) {
        *self.version.entry(h).or_default() += 1;
        for holder in self
            .table
            .change_inode(Some(SessionKey(session)), &handle(h), now)
        {
            assert!(self.caches.remove(&(holder.0, h)).is_some());
        }
        if let Some(own) = self.caches.get_mut(&(session, h)) {
            own.0 += 1;
        }
    }

    fn change_entry(&mut self, session: u32, h: u8) {
        *self.version.entry(h).or_default() += 1;
        for holder in self
            .table
            .change_entry(Some(SessionKey(session)), &handle(h))
        {
            // It drops the entry and asks again under the lease that stays.
            self.caches
                .get_mut(&(holder.0, h))
                .expect("a holder caches")
                .0 += 1;
        }
        if let Some(own) = self.caches.get_mut(&(session, h)) {
            own.0 += 1;
        }
    }

    fn apply(&mut self, op: &Op, now: Time) {
        match *op {
            Op::Look {
                session,
                handle,
                exclusive,
            } => self.look(session, handle, exclusive, now),
            Op::Change { session, handle } => self.change(session, handle, now),
            Op::ChangeEntry { session, handle } => self.change_entry(session, handle),
            Op::GiveBack { session, handle: h } => {
                self.table.give_back(SessionKey(session), &handle(h), now);
                self.caches.remove(&(session, h));
            }
            Op::Open { session, handle: h } => {
                self.table.add_writer(SessionKey(session), &handle(h));
            }
            Op::End(session) => {
                self.table.drop_session(SessionKey(session), true, now);
                self.caches.retain(|(s, _), _| *s != session);
            }
        }
    }

    fn check(&self) {
        for ((session, h), (seen, lease)) in &self.caches {
            let latest = self.version.get(h).copied().unwrap_or(0);
            assert_eq!(*seen, latest, "session {session} believes an old version");
            assert_eq!(self.table.held(SessionKey(*session), &handle(*h)), *lease);
            let sharers = self.caches.keys().filter(|(_, other)| other == h).count();
            assert!(*lease != Lease::Exclusive || sharers == 1);
        }
        for session in 1..4 {
            let held = self.caches.keys().filter(|(s, _)| *s == session).count();
            assert_eq!(self.table.count(SessionKey(session)), held);
        }
        let alone = self
            .caches
            .values()
            .filter(|(_, l)| *l == Lease::Exclusive)
            .count();
        assert_eq!(self.table.exclusives(), alone);
    }
}

proptest! {
    /// After every answered change nobody believes an old version, and nobody shares what somebody
    /// has alone.
    #[test]
    fn nobody_believes_what_has_changed(ops in ops()) {
        let mut model = Model::default();
        for (clock, op) in ops.iter().enumerate() {
            model.apply(op, at(clock as u64));
            model.check();
        }
    }
}
