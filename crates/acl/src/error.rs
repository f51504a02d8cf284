//! Why bytes or entries are no ACL.

/// Why an ACL is refused. Nothing of it has been used then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// The bytes end before what they announce.
    #[error("an ACL that ends too early")]
    Truncated,
    /// A version that this program does not know.
    #[error("version {0} of an ACL is not known")]
    UnknownVersion(u32),
    /// More than a bound allows.
    #[error("an ACL with more than {max} {what}")]
    TooLarge {
        /// The bound.
        max: usize,
        /// What is counted.
        what: &'static str,
    },
    /// The parts are there and make no ACL.
    #[error("no ACL: {0}")]
    Malformed(&'static str),
}
