//! The namespace of parallel volumes: against the kernel and a naive model, killed, over etcd.
//!
//! | file | what it holds |
//! |---|---|
//! | `world` | a namespace on an engine, asked from threads |
//! | `gate` | an engine whose transactions can be held up or turned away |
//! | `history` | random operations of several users, and what they answer |
//! | `kernel` | the same operations as system calls of those users: the oracle |
//! | `judged` | random histories: namespace and kernel say the same, about answers and the tree |
//! | `model` | random histories are those of a naive tree, read again and again |
//! | `once` | changes that are asked for twice |
//! | `appends` | places that are given before they are written |
//! | `orphans` | inodes without a name; what stores have to do |
//! | `rich` | files whose truth is a rich ACL |
//! | `listings` | large directories, changes meanwhile, bounded memory |
//! | `managers` | seats, guards, chains, a second manager, failures of the engine |
//! | `killed` | a process that is killed; nothing that was answered is lost |

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test's helpers end it and speak as its own lines do"
)]

mod appends;
mod gate;
mod history;
mod judged;
mod kernel;
mod killed;
mod listings;
mod managers;
mod model;
mod once;
mod orphans;
mod rich;
mod world;
#[path = "../conformance/worlds.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod worlds;
