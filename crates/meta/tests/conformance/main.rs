//! One set of tests for both engines: whatever a program may rely on, it may rely on with each.
//!
//! | file | what it holds |
//! |---|---|
//! | `worlds` | an embedded engine in a directory; a cluster of three members on loopback |
//! | `entries` | entries, conditions, bounds |
//! | `model` | random transactions beside a naive map |
//! | `history` | many clients at once: what they saw has one order |
//! | `watches`, `pages` | every change once; pages of one state |
//! | `seats` | one leader, and nothing from a deposed one |
//! | `killed` | an embedded engine whose process is killed |
//! | `members` | a cluster whose members are killed or stopped; its history, certificates, users |
//!
//! The cluster needs the programs `etcd` and `setpriv`; without them its tests say that they are
//! skipped.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test's helpers end it and speak as its own lines do"
)]

mod entries;
mod history;
mod killed;
mod members;
mod model;
mod pages;
mod seats;
mod watches;
mod worlds;

/// Each behaviour, with each engine.
macro_rules! conformance {
    ($($module:ident :: $name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::$module::$name(&crate::worlds::File::new()).await;
            })*
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(cluster) = crate::worlds::Prefix::of_cluster() {
                    crate::$module::$name(&cluster).await;
                }
            })*
        }
    };
}

conformance!(
    entries::what_is_written_is_read,
    entries::the_first_condition_that_fails_is_named,
    entries::a_transaction_happens_as_a_whole_or_not_at_all,
    entries::what_is_over_a_bound_is_refused_and_the_bound_itself_is_not,
    entries::a_program_cannot_reach_what_is_not_its_own,
    entries::what_was_written_is_there_after_opening_again,
    model::random_transactions_are_those_of_a_naive_map,
    history::what_many_clients_see_has_one_order,
    history::of_those_who_want_the_same_one_gets_it,
    pages::pages_are_of_one_state_while_others_write,
    pages::large_values_come_in_smaller_pages,
    watches::a_watch_tells_every_change_once_and_in_order,
    watches::a_watch_goes_on_from_any_revision,
    seats::a_seat_has_one_holder,
    seats::a_seat_that_is_left_can_be_taken_at_once,
    seats::nothing_of_a_deposed_leader_happens_after_the_next_has_begun,
);
