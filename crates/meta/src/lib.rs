//! What managers remember together: a small transactional map, durable, watched, with one leader.
//!
//! ```text
//!  Engine   get, range, commit, outcome, watch, lead           engine.rs
//!    │        Transaction: conditions, changes, a guard          transaction.rs
//!    │        Watch: every change once, in order                 watch.rs
//!    │        Leadership: a seat, its epoch                      leadership.rs
//!    │
//!    ├─ Embedded   one file, group commit, change log            embedded/   on redb
//!    └─ Etcd       a cluster that others run                     etcd/       on etcd-client
//!         both: bounded queue, groups, unknown outcomes          queue.rs
//!
//!  Namespace    the files of a parallel volume, on an engine    namespace/
//! ```
//!
//! An [`Engine`] maps keys to values, both bytes, in the order of the keys. What a program may rely
//! on is the same for both engines, and one set of tests holds it for both (`tests/conformance/`):
//!
//! * **Revisions** count what has happened. A transaction that changes something has a greater one
//!   than all that ended before it began; each entry says which one wrote it.
//! * **Transactions** are compared and written at once: every condition holds and every change is
//!   made, or nothing happens. They and all reads are linearizable.
//! * **Durable before answered**: what a commit has answered, and what any read has shown, survives
//!   the death of the process and of the machine; with etcd, of a minority of its members.
//! * **Unknown is said**: a transaction that may or may not have happened is [`MetaError::Unknown`]
//!   and nothing else; [`Engine::outcome`] finds out, and sees to it that what has not happened by
//!   then never does.
//! * **Pages** of a range can all be read from the state of the first one.
//! * **Watches** see each change once, in order, with no gap; or they say that history is lost.
//! * **One leader**: a seat has one holder, and its epoch is the revision at which it was taken. A
//!   transaction guarded by an epoch happens while that holder has the seat, or never.
//! * **Bounds** on everything are in `base::limits` (`META_...`).
//!
//! # Call order
//!
//! ```text
//! Embedded::open(path), or Etcd::open(options)           -> Arc<dyn Engine>
//! campaign(engine, "calendar", "manager-3", limit)       -> Leadership
//! engine.range(...), page by page; engine.watch(all, revision of the pages)
//! Transaction::new().guarded_by(&leadership).when(...).put(...)  -> engine.commit
//!     Conflict: read again. Deposed: stop leading. Unknown: engine.outcome(id)
//! ```
//!
//! # What it is not
//!
//! There are no transactions over two engines. A deleted key leaves no trace to compare with: who
//! must notice that something was deleted and made anew compares revisions. Time is in no
//! answer: leadership is judged by epochs, never by clocks; a clock only decides when a seat whose
//! holder is silent is given to the next one.
//!
//! The bytes: `docs/formats/meta.md`. Why groups, slots and the change log are as they are:
//! `docs/decisions/0011-two-metadata-engines.md`.

mod embedded;
mod engine;
mod error;
mod etcd;
mod leadership;
pub mod namespace;
mod queue;
mod range;
mod space;
mod transaction;
mod watch;

pub use embedded::{Embedded, META_FORMAT_VERSION};
pub use engine::{Answer, Committed, Engine, Entry, Leader, Page, Revision, Status};
pub use error::MetaError;
pub use etcd::{Etcd, EtcdOptions, Tls, User};
pub use leadership::{Leadership, campaign};
pub use range::KeyRange;
pub use transaction::{Condition, Transaction, TransactionId};
pub use watch::{Changed, Changes, Watch};
