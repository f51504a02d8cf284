//! Memory of read-ahead, shared over all files of a mount.
//!
//! A byte of memory is worth the reads it will answer. A file that consumes twice as fast as
//! another needs twice the bytes ahead for the same time without stall, so equal marginal utility
//! (hits per byte held) means shares in proportion to consumption. The budget keeps for each
//! account a score, the bytes used lately (halved every two seconds), and grants:
//!
//! ```text
//! share = floor + (half of the budget) x score / sum of scores
//! floor = (half of the budget) / number of accounts      so that a new file can show its worth
//! ```
//!
//! While a quarter of the memory is free, an account may go beyond its share; when more than seven
//! eighths are taken, the accounts above their share with the fewest hits per byte are asked to
//! give back. A sixteenth is kept for reads on demand, which ask [`Budget::demand_room_bytes`].
//!
//! Bytes count from request to release, in flight and held alike: what is under way will need a
//! buffer. If every byte is announced by [`Budget::on_taken`] within the room that was named, the
//! sum never exceeds the limit.
//!
//! Source: Gill and Bathen, AMP (FAST 2007): wasted read-ahead has no utility, so depth follows
//! use.

use base::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time in which a score halves: several round trips of any line, less than a user's patience.
const SCORE_HALF_LIFE: Duration = Duration::from_secs(2);
/// Shares are computed anew after this time; also how long an account that was asked to give back
/// is left alone.
const BALANCE_INTERVAL: Duration = Duration::from_millis(100);

/// Who holds memory: one per file, numbered by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(pub u64);

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    held_bytes: u64,
    /// Bytes used, halved every [`SCORE_HALF_LIFE`].
    score: f64,
    reclaimed_at: Option<Time>,
}

/// Bytes held and in flight, by account. See the module head.
#[derive(Clone, Debug)]
pub struct Budget {
    bytes_max: u64,
    held_bytes: u64,
    accounts: BTreeMap<Account, Entry>,
    score_sum: f64,
    balanced_at: Time,
}

impl Budget {
    /// A budget of `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            held_bytes: 0,
            accounts: BTreeMap::new(),
            score_sum: 0.0,
            balanced_at: Time::ZERO,
        }
    }

    /// Bytes held and in flight over all accounts.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Bytes of one account.
    #[must_use]
    pub fn account_bytes(&self, account: Account) -> u64 {
        self.accounts
            .get(&account)
            .map_or(0, |entry| entry.held_bytes)
    }

    /// Bytes that `account` may take now on a guess.
    pub fn room_bytes(&mut self, now: Time, account: Account) -> u64 {
        self.balance(now);
        let entry = self.accounts.entry(account).or_default();
        let held_bytes = entry.held_bytes;
        let share_bytes = self.share_bytes(account);
        let reserve_bytes = self.bytes_max / 16;
        let free_bytes = self
            .bytes_max
            .saturating_sub(self.held_bytes)
            .saturating_sub(reserve_bytes);
        let borrow_bytes = free_bytes.saturating_sub(self.bytes_max / 4);
        share_bytes
            .saturating_sub(held_bytes)
            .max(borrow_bytes)
            .min(free_bytes)
    }

    /// Bytes that a read on demand may take now, whatever its account.
    #[must_use]
    pub fn demand_room_bytes(&self) -> u64 {
        self.bytes_max.saturating_sub(self.held_bytes)
    }

    /// `account` asked the server for `bytes`, on a guess or on demand.
    pub fn on_taken(&mut self, account: Account, bytes: u64) {
        self.accounts.entry(account).or_default().held_bytes += bytes;
        self.held_bytes += bytes;
    }

    /// The application used `bytes` of what `account` held.
    pub fn on_used(&mut self, account: Account, bytes: u64) {
        let entry = self.accounts.entry(account).or_default();
        entry.score += bytes as f64;
        self.score_sum += bytes as f64;
    }

    /// `account` gave `bytes` back: freed, cancelled or failed.
    ///
    /// # Panics
    /// If the account does not hold that much: the client counted one buffer twice.
    pub fn on_freed(&mut self, account: Account, bytes: u64) {
        let entry = self.accounts.entry(account).or_default();
        assert!(
            entry.held_bytes >= bytes,
            "{account:?} gives back more than it took"
        );
        entry.held_bytes -= bytes;
        self.held_bytes -= bytes;
    }

    /// Which account should give back how many bytes, while memory is short. An account is named at
    /// most every 100 ms, whether it could give or not.
    pub fn poll_reclaim(&mut self, now: Time) -> Option<(Account, u64)> {
        self.balance(now);
        let excess_bytes = self.held_bytes.saturating_sub(self.bytes_max / 8 * 7);
        if excess_bytes == 0 {
            return None;
        }
        let asked_lately = |entry: &Entry| {
            entry
                .reclaimed_at
                .is_some_and(|at| now.since(at) < BALANCE_INTERVAL)
        };
        let utility = |entry: &Entry| entry.score / entry.held_bytes as f64;
        let (account, over_bytes) = self
            .accounts
            .iter()
            .filter(|(_, entry)| entry.held_bytes > 0 && !asked_lately(entry))
            .map(|(&account, entry)| {
                (
                    account,
                    utility(entry),
                    entry.held_bytes.saturating_sub(self.share_bytes(account)),
                )
            })
            .filter(|&(_, _, over_bytes)| over_bytes > 0)
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(account, _, over_bytes)| (account, over_bytes))?;
        // Down to three quarters, so that the next request does not reclaim again.
        let bytes = over_bytes.min(excess_bytes + self.bytes_max / 8);
        if let Some(entry) = self.accounts.get_mut(&account) {
            entry.reclaimed_at = Some(now);
        }
        Some((account, bytes))
    }

    fn share_bytes(&self, account: Account) -> u64 {
        let half = (self.bytes_max - self.bytes_max / 16) as f64 / 2.0;
        let floor = half / self.accounts.len().max(1) as f64;
        let score = self.accounts.get(&account).map_or(0.0, |entry| entry.score);
        let earned = if self.score_sum > 0.0 {
            half * (score / self.score_sum)
        } else {
            0.0
        };
        (floor + earned) as u64
    }

    fn balance(&mut self, now: Time) {
        let elapsed = now.since(self.balanced_at);
        if elapsed < BALANCE_INTERVAL {
            return;
        }
        self.balanced_at = now;
        let keep = 0.5f64.powf(elapsed.as_secs_f64() / SCORE_HALF_LIFE.as_secs_f64());
        self.score_sum = 0.0;
        self.accounts.retain(|_, entry| {
            entry.score *= keep;
            // Less than a page of use and no memory: the file is closed or asleep.
            let alive = entry.held_bytes > 0 || entry.score >= 4096.0;
            if alive {
                self.score_sum += entry.score;
            }
            alive
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// Takes all the room an account is given, in requests of 128 KiB.
    fn fill(budget: &mut Budget, now: Time, account: Account, wanted_bytes: u64) -> u64 {
        let mut taken_bytes = 0;
        while taken_bytes < wanted_bytes && budget.room_bytes(now, account) >= 128 << 10 {
            budget.on_taken(account, 128 << 10);
            taken_bytes += 128 << 10;
        }
        taken_bytes
    }

    fn reclaim_all(budget: &mut Budget, now: Time) {
        while let Some((account, bytes)) = budget.poll_reclaim(now) {
            budget.on_freed(account, bytes.min(budget.account_bytes(account)));
        }
    }

    #[test]
    fn one_file_alone_may_fill_nearly_three_quarters() {
        let mut budget = Budget::new(256 * MIB);
        let taken_bytes = fill(&mut budget, Time::ZERO, Account(1), u64::MAX);
        assert!(
            (160 * MIB..=240 * MIB).contains(&taken_bytes),
            "{taken_bytes}"
        );
        assert!(budget.demand_room_bytes() >= 16 * MIB);
    }

    #[test]
    fn five_hundred_streaming_files_all_get_their_floor_within_the_limit() {
        let mut budget = Budget::new(256 * MIB);
        let mut now = Time::ZERO;
        for round in 0..50 {
            now = Time::from_millis(round * 20);
            for file in 0..500 {
                let account = Account(file);
                fill(&mut budget, now, account, MIB);
                let used_bytes = budget.account_bytes(account).min(256 << 10);
                budget.on_used(account, used_bytes);
                budget.on_freed(account, used_bytes);
                assert!(budget.held_bytes() <= 256 * MIB);
            }
            reclaim_all(&mut budget, now);
        }
        let floors = (0..500).filter(|&file| {
            fill(&mut budget, now, Account(file), MIB);
            budget.account_bytes(Account(file)) >= 128 << 10
        });
        assert_eq!(floors.count(), 500);
    }

    #[test]
    fn memory_moves_from_a_file_that_sleeps_to_one_that_reads() {
        let mut budget = Budget::new(64 * MIB);
        fill(&mut budget, Time::ZERO, Account(1), u64::MAX);
        let before_bytes = budget.account_bytes(Account(1));
        let mut now = Time::ZERO;
        for step in 0..100 {
            now = Time::from_millis(step * 100);
            fill(&mut budget, now, Account(2), u64::MAX);
            let used_bytes = budget.account_bytes(Account(2)).min(MIB);
            budget.on_used(Account(2), used_bytes);
            reclaim_all(&mut budget, now);
        }
        assert!(budget.account_bytes(Account(1)) < before_bytes * 3 / 4);
        assert!(budget.account_bytes(Account(2)) > budget.account_bytes(Account(1)));
        assert!(budget.held_bytes() <= 64 * MIB, "at {now}");
    }

    #[test]
    fn an_account_without_memory_or_use_is_forgotten() {
        let mut budget = Budget::new(64 * MIB);
        for file in 0..10_000 {
            let now = Time::from_millis(file);
            budget.room_bytes(now, Account(file));
        }
        assert!(
            budget.accounts.len() < 200,
            "{} accounts",
            budget.accounts.len()
        );
    }

    proptest! {
        #[test]
        fn the_limit_holds_whatever_happens(
            acts in prop::collection::vec((0u64..6, 0u8..4, 0u64..20 * MIB, 0u64..3000), 1..300)
        ) {
            let mut budget = Budget::new(64 * MIB);
            let mut now = Time::ZERO;
            for (file, act, bytes, millis) in acts {
                let account = Account(file);
                now = now + Duration::from_millis(millis);
                match act {
                    0 => {
                        let room_bytes = budget.room_bytes(now, account);
                        budget.on_taken(account, bytes.min(room_bytes));
                    }
                    1 => budget.on_taken(account, bytes.min(budget.demand_room_bytes())),
                    2 => {
                        budget.on_used(account, bytes);
                        let freed_bytes = bytes.min(budget.account_bytes(account));
                        budget.on_freed(account, freed_bytes);
                    }
                    _ => reclaim_all(&mut budget, now),
                }
                prop_assert!(budget.held_bytes() <= 64 * MIB);
                let sum = (0..6).map(|file| budget.account_bytes(Account(file))).sum::<u64>();
                prop_assert_eq!(sum, budget.held_bytes());
            }
        }
    }
}
