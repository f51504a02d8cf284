//! Who may do what with a file, by POSIX ACLs.
//!
//! Everything here is a function of its arguments: no I/O, no clock, no table of users. Bytes are
//! read and refused, never trusted; what cannot be judged grants nothing.
//!
//! | noun | says |
//! |---|---|
//! | [`PosixAcl`] | the list of POSIX 1003.1e as Linux keeps it: valid, or it does not exist |
//! | [`PosixFile`] | what the kernel judges a file by: owner, group, mode, ACL |
//! | [`Caller`] | who asks, with groups that are found quickly |
//!
//! The rules are those of the running kernel, not those of the draft, because what a file server
//! grants must be what a local process gets. They differ where a mask is empty, and where somebody
//! is in several groups (see [`PosixFile`]).

mod caller;
mod codec;
mod error;
mod identity;
mod posix;
mod rich;
mod view;

pub use caller::Caller;
pub use codec::{Descriptor, Source, Stored};
pub use error::AclError;
pub use identity::{Id, Identities, IdentityTable, UnixIds};
pub use posix::{PosixAcl, PosixDecision, PosixEntry, PosixFile, PosixGround, PosixWho, bits};
pub use rich::{
    Ace, AceFlags, AceKind, Control, Decision, Ground, Origin, RichAcl, Rights, Sid, Target, Who,
};
