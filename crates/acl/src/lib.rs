//! Who may do what with a file, by POSIX ACLs and by rich ones.
//!
//! Everything here is a function of its arguments: no I/O, no clock, no table of users, no
//! measuring. Bytes are read and refused, never trusted; what cannot be judged allows nothing.
//!
//! | noun | says |
//! |---|---|
//! | [`PosixAcl`], [`PosixFile`] | the list of POSIX 1003.1e; what the kernel judges a file by |
//! | [`RichAcl`], [`Ace`], [`Rights`], [`Who`] | the list of NFSv4 and Windows |
//! | [`Caller`], [`Target`] | who asks, with groups that are found quickly; about which file |
//! | [`Stored`], [`Descriptor`] | a rich ACL as bytes beside a file, and for Windows |
//! | [`Identities`] | numbers, names and SIDs of the same users |
//! | [`Below`], [`Truth`], [`Widening`] | what a mode can say; what a change means for whom |
//! | [`Asked`], [`Explained`], [`Edit`] | what decides; what an edit was |
//! | [`Policy`], [`Costs`] | whether a view is stored |
//!
//! # Origin
//!
//! A file has one truth. As long as that is its mode and POSIX ACL, decisions are the kernel's, and
//! a rich ACL is a view of them ([`RichAcl::view`], [`Origin::Posix`]). The first explicit edit
//! makes the rich ACL the truth:
//!
//! ```text
//! file.allows(caller, bits)                     origin POSIX, by the kernel's rule
//! file.allows_rights(caller, .., rights)        the same, asked in rights
//! RichAcl::view(file, default, ..)              what others are shown of it, and may be stored:
//!     Policy::judge(entries, accesses, costs)     Stored::view(view, mode, Source::of(..))
//! widenings(file), changes(before, after, ..)   what the edit means for whom: written down
//! Stored::truth(acl, mode)                      origin rich
//! acl.decide(caller, target, rights)            names the entry that decided
//! acl.with_mode(..), acl.inherited(..)          chmod; a new file
//! acl.posix_below(target)                       what the file system may be told
//! permits(list, who, target, rights_to_open(..)) what an operation takes, and whether it may be
//! ```
//!
//! # What is guaranteed
//!
//! * A decision by origin POSIX is that of the running kernel for a process without capabilities,
//!   from the file or from its view, for every request. The kernel differs from the draft where a
//!   mask is empty, and from every rich ACL where somebody is in several groups; a converter that
//!   does not know that allows more.
//! * Whoever cannot be found here is kept as himself, is allowed nothing, and what is denied to him
//!   is denied to everybody.
//! * A mode never shows less than somebody has, and nothing that is said to the file system allows
//!   more. chmod is undone by chmod.
//! * A list is put into another order only where that changes nothing.
//! * Any bytes are read or refused, in memory that they stand for; stored bytes have one form.
//!
//! Source: Nakamura and others, concurrent use of heterogeneous access control information, for the
//! method and the storing rule.

mod below;
mod caller;
mod change;
mod codec;
mod edit;
mod error;
mod explain;
mod identity;
mod operation;
mod policy;
mod posix;
mod rich;
mod view;

pub use below::Below;
pub use caller::Caller;
pub use change::{Change, Truth, Widening, changes, widenings};
pub use codec::{Before, Descriptor, Source, Stored};
pub use edit::Edit;
pub use error::AclError;
pub use explain::{Asked, Explained, Grounds, Judged};
pub use identity::{Id, Identities, IdentityTable, UnixIds};
pub use operation::{
    judge_change, judge_sticky, permits, rights_to_access, rights_to_add, rights_to_open,
};
pub use policy::{Cost, Costs, Point, Policy, Step};
pub use posix::{PosixAcl, PosixDecision, PosixEntry, PosixFile, PosixGround, PosixWho, bits};
pub use rich::{
    Ace, AceFlags, AceKind, Control, Decision, Ground, Origin, RichAcl, Rights, Sid, Target, Who,
};
