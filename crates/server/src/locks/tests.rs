//! The table against a model that keeps a mode per byte and owner.

use super::*;
use proptest::prelude::*;

const SPACE: u64 = 12;
const OWNERS: u64 = 4;
const FILES: u8 = 2;

fn file(number: u8) -> Handle {
    Handle::new(&[number + 1]).unwrap()
}

fn owner(number: u64) -> Owner {
    Owner {
        session: SessionKey(1 + number as u32 / 2),
        owner: LockOwner(number),
    }
}

fn range(kind: LockKind, mode: LockMode, extent: Extent, who: Owner) -> LockRange {
    LockRange {
        kind,
        mode,
        extent,
        owner: who.owner,
        pid: 7,
    }
}

fn posix(mode: LockMode, offset: u64, len: u64, who: Owner) -> LockRange {
    range(LockKind::Posix, mode, Extent::new(offset, len), who)
}

fn flock(mode: LockMode, who: Owner) -> LockRange {
    range(LockKind::Flock, mode, Extent::new(0, u64::MAX), who)
}

/// The simplest thing that can be right: one mode per file, owner and byte; waiters in a list.
#[derive(Default)]
struct Model {
    bytes: HashMap<(u8, u64, u64), LockMode>,
    waiting: Vec<Wanted>,
}

#[derive(Clone, Debug)]
struct Wanted {
    ticket: Ticket,
    file: u8,
    owner: u64,
    mode: LockMode,
    extent: Extent,
    polite: bool,
}

fn clash(a: LockMode, b: LockMode) -> bool {
    a == LockMode::Exclusive || b == LockMode::Exclusive
}

impl Model {
    fn holders(&self, w: &Wanted) -> Vec<u64> {
        (0..OWNERS)
            .filter(|o| *o != w.owner)
            .filter(|o| {
                (w.extent.offset..w.extent.end()).any(|b| {
                    self.bytes
                        .get(&(w.file, *o, b))
                        .is_some_and(|m| clash(*m, w.mode))
                })
            })
            .collect()
    }

    fn behind(&self, w: &Wanted, ahead: usize) -> bool {
        w.polite
            && self.waiting[..ahead].iter().any(|o| {
                o.file == w.file
                    && o.owner != w.owner
                    && o.extent.overlaps(w.extent)
                    && clash(o.mode, w.mode)
            })
    }

    fn holds_any(&self, owner: u64) -> bool {
        self.bytes.keys().any(|(_, o, _)| *o == owner)
    }

    fn deadlock(&self, w: &Wanted) -> bool {
        // Reachability by repetition, without any cleverness.
        let mut reached: HashSet<u64> = self.holders(w).into_iter().collect();
        for _ in 0..=OWNERS {
            let more: Vec<u64> = self
                .waiting
                .iter()
                .filter(|o| reached.contains(&o.owner))
                .flat_map(|o| self.holders(o))
                .collect();
            reached.extend(more);
        }
        reached.contains(&w.owner)
    }

    fn set(&mut self, file: u8, owner: u64, mode: LockMode, extent: Extent) {
        for byte in extent.offset..extent.end() {
            if mode == LockMode::Unlock {
                self.bytes.remove(&(file, owner, byte));
            } else {
                self.bytes.insert((file, owner, byte), mode);
            }
        }
        if mode != LockMode::Unlock {
            self.waiting
                .iter_mut()
                .filter(|w| w.owner == owner)
                .for_each(|w| w.polite = false);
        }
    }

    fn admit(&mut self) -> Vec<Ticket> {
        let mut admitted = Vec::new();
        while let Some(next) = (0..self.waiting.len()).find(|i| {
            self.holders(&self.waiting[*i]).is_empty() && !self.behind(&self.waiting[*i], *i)
        }) {
            let w = self.waiting.remove(next);
            self.set(w.file, w.owner, w.mode, w.extent);
            admitted.push(w.ticket);
        }
        admitted
    }
}

#[derive(Clone, Debug)]
enum Op {
    Lock {
        file: u8,
        owner: u64,
        mode: LockMode,
        offset: u64,
        len: u64,
        wait: bool,
    },
    Cancel(usize),
    Test {
        file: u8,
        owner: u64,
        mode: LockMode,
        offset: u64,
        len: u64,
    },
    Release {
        file: u8,
        owner: u64,
    },
    EndSession(u32),
}

fn modes() -> impl Strategy<Value = LockMode> + Clone {
    prop_oneof![
        Just(LockMode::Shared),
        Just(LockMode::Exclusive),
        Just(LockMode::Unlock)
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let place = (0..FILES, 0..OWNERS, modes(), 0..SPACE, 1..SPACE / 2);
    let op = prop_oneof![
        12 => (place.clone(), any::<bool>()).prop_map(|((file, owner, mode, offset, len), wait)| {
            Op::Lock { file, owner, mode, offset, len, wait }
        }),
        1 => any::<usize>().prop_map(Op::Cancel),
        2 => place.prop_map(|(file, owner, mode, offset, len)| {
            Op::Test { file, owner, mode, offset, len }
        }),
        1 => (0..FILES, 0..OWNERS).prop_map(|(file, owner)| Op::Release { file, owner }),
        1 => (1..3u32).prop_map(Op::EndSession),
    ];
    prop::collection::vec(op, 0..60)
}

fn sorted(mut tickets: Vec<Ticket>) -> Vec<Ticket> {
    tickets.sort_unstable();
    tickets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn posix_locks_agree_with_a_mode_per_byte(ops in ops()) {
        let (mut table, mut model) = (LockTable::default(), Model::default());
        for op in ops {
            match op {
                Op::Lock { file: f, owner: o, mode, offset, len, wait } => {
                    let wanted = posix(mode, offset, len, owner(o));
                    let outcome = table.lock(&file(f), owner(o), &wanted, wait);
                    let w = Wanted {
                        ticket: Ticket(0), file: f, owner: o, mode,
                        extent: wanted.extent, polite: !model.holds_any(o),
                    };
                    let free = mode == LockMode::Unlock || model.holders(&w).is_empty();
                    let behind = wait && mode != LockMode::Unlock
                        && model.behind(&w, model.waiting.len());
                    if free && !behind {
                        prop_assert_eq!(&outcome, &Outcome::Granted);
                        model.set(f, o, mode, wanted.extent);
                    } else if !wait {
                        let Outcome::Conflict(held) = outcome else {
                            return Err(TestCaseError::fail(format!("{outcome:?}")));
                        };
                        let holder = held.owner.0;
                        prop_assert!(model.holders(&w).contains(&holder));
                        for byte in held.extent.offset..held.extent.end() {
                            prop_assert_eq!(model.bytes.get(&(f, holder, byte)), Some(&held.mode));
                        }
                    } else if model.deadlock(&w) {
                        prop_assert_eq!(&outcome, &Outcome::Deadlock);
                    } else {
                        let Outcome::Waiting(ticket) = outcome else {
                            return Err(TestCaseError::fail(format!("{outcome:?}")));
                        };
                        model.waiting.push(Wanted { ticket, ..w });
                    }
                }
                Op::Cancel(n) if !model.waiting.is_empty() => {
                    let w = model.waiting.remove(n % model.waiting.len());
                    prop_assert!(table.cancel(w.ticket));
                    prop_assert!(!table.cancel(w.ticket));
                }
                Op::Cancel(_) => {}
                Op::Test { file: f, owner: o, mode, offset, len } => {
                    let wanted = posix(mode, offset, len, owner(o));
                    let found = table.test(&file(f), owner(o), &wanted);
                    let w = Wanted {
                        ticket: Ticket(0), file: f, owner: o, mode,
                        extent: wanted.extent, polite: false,
                    };
                    let expected = mode != LockMode::Unlock && !model.holders(&w).is_empty();
                    prop_assert_eq!(found.is_some(), expected);
                }
                Op::Release { file: f, owner: o } => {
                    table.release(&file(f), owner(o), LockKind::Posix);
                    model.bytes.retain(|(mf, mo, _), _| (*mf, *mo) != (f, o));
                }
                Op::EndSession(session) => {
                    table.end_session(SessionKey(session));
                    let gone = |o: u64| owner(o).session == SessionKey(session);
                    model.bytes.retain(|(_, o, _), _| !gone(*o));
                    model.waiting.retain(|w| !gone(w.owner));
                    prop_assert_eq!(table.count(SessionKey(session)), 0);
                }
            }
            prop_assert_eq!(sorted(table.take_admitted()), sorted(model.admit()));
            prop_assert_eq!(table.is_empty(), model.bytes.is_empty());
            prop_assert_eq!(table.waiting.len(), model.waiting.len());
        }
    }
}

#[test]
fn a_writer_is_not_starved_by_readers() {
    let mut table = LockTable::default();
    let f = file(0);
    assert_eq!(
        table.lock(&f, owner(0), &flock(LockMode::Shared, owner(0)), true),
        Outcome::Granted
    );
    let writer = table.lock(&f, owner(1), &flock(LockMode::Exclusive, owner(1)), true);
    let Outcome::Waiting(writer) = writer else {
        panic!("{writer:?}")
    };
    let reader = table.lock(&f, owner(2), &flock(LockMode::Shared, owner(2)), true);
    let Outcome::Waiting(reader) = reader else {
        panic!("a late reader overtakes: {reader:?}")
    };
    table.release(&f, owner(0), LockKind::Flock);
    assert_eq!(table.take_admitted(), [writer]);
    table.release(&f, owner(1), LockKind::Flock);
    assert_eq!(table.take_admitted(), [reader]);
}

#[test]
fn two_flock_holders_that_both_want_more_do_not_block_each_other() {
    let mut table = LockTable::default();
    let f = file(0);
    for o in [0, 1] {
        let shared = flock(LockMode::Shared, owner(o));
        assert_eq!(table.lock(&f, owner(o), &shared, true), Outcome::Granted);
    }
    let first = table.lock(&f, owner(0), &flock(LockMode::Exclusive, owner(0)), true);
    assert!(matches!(first, Outcome::Waiting(_)));
    // The first has given its old lock up, so nothing stands in the second one's way.
    let second = table.lock(&f, owner(1), &flock(LockMode::Exclusive, owner(1)), true);
    assert_eq!(second, Outcome::Granted);
    table.release(&f, owner(1), LockKind::Flock);
    assert_eq!(table.take_admitted().len(), 1);
}

#[test]
fn the_two_kinds_do_not_see_each_other() {
    let mut table = LockTable::default();
    let f = file(0);
    let whole = posix(LockMode::Exclusive, 0, u64::MAX, owner(0));
    assert_eq!(table.lock(&f, owner(0), &whole, false), Outcome::Granted);
    let other = flock(LockMode::Exclusive, owner(1));
    assert_eq!(table.lock(&f, owner(1), &other, false), Outcome::Granted);
}

#[test]
fn a_session_has_a_bounded_number_of_locks() {
    let mut table = LockTable::default();
    // Every other byte, so that nothing joins.
    for n in 0..LOCKS_PER_SESSION_MAX as u64 {
        let f = Handle::new(&(n / 64).to_le_bytes()).unwrap();
        let lock = posix(LockMode::Shared, n % 64 * 2, 1, owner(0));
        assert_eq!(table.lock(&f, owner(0), &lock, false), Outcome::Granted);
    }
    let more = posix(LockMode::Shared, 1, 1, owner(0));
    assert_eq!(table.lock(&file(1), owner(0), &more, false), Outcome::Limit);
    let unlock = posix(LockMode::Unlock, 0, 1, owner(0));
    let first = Handle::new(&0u64.to_le_bytes()).unwrap();
    assert_eq!(
        table.lock(&first, owner(0), &unlock, false),
        Outcome::Granted
    );
    assert_eq!(
        table.lock(&file(1), owner(0), &more, false),
        Outcome::Granted
    );
}

/// Counted and not timed: what one request looks at grows with who is there and no faster.
#[test]
fn thousands_that_hold_and_wait_are_each_looked_at_once() {
    const COUNT: u64 = 3000;
    let mut table = LockTable::default();
    let who = |number| Owner {
        session: SessionKey(1),
        owner: LockOwner(number),
    };
    let (held, wanted) = (file(0), file(1));
    let keeper = owner(1 << 20);
    let exclusive = |who| posix(LockMode::Exclusive, 0, 1, who);
    assert_eq!(
        table.lock(&wanted, keeper, &exclusive(keeper), false),
        Outcome::Granted
    );
    for number in 0..COUNT {
        let shared = posix(LockMode::Shared, 0, 1, who(number));
        let outcome = table.lock(&held, who(number), &shared, false);
        assert_eq!(outcome, Outcome::Granted);
        let outcome = table.lock(&wanted, who(number), &exclusive(who(number)), true);
        assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
    }
    // This one waits for all of them, and they wait for the keeper.
    let late = owner(2 << 20);
    let search = |table: &LockTable, owner| {
        let waiter = Waiter {
            ticket: Ticket(table.last_ticket + 1),
            owner,
            pid: 7,
            mode: Mode::Exclusive,
            extent: Extent::new(0, 1),
            polite: true,
        };
        table.search_cycle(&(held.clone(), LockKind::Posix), &waiter)
    };
    let (found, steps) = search(&table, late);
    assert!(
        !found && steps as u64 == 3 * COUNT,
        "{found}, {steps} steps"
    );
    let outcome = table.lock(&held, late, &exclusive(late), true);
    assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
    let (found, steps) = search(&table, keeper);
    assert!(found && steps as u64 <= 3 * COUNT, "{found}, {steps} steps");
    let outcome = table.lock(&held, keeper, &exclusive(keeper), true);
    assert_eq!(outcome, Outcome::Deadlock);
    table.end_session(SessionKey(1));
    // Both that are left are of other sessions; the late one has what it waited for.
    assert!(table.waiting.is_empty() && table.waits.is_empty());
    assert_eq!(table.take_admitted().len(), 1);
}
