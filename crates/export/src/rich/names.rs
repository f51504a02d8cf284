//! Who is meant by a name in a list that a client sends.
//!
//! Lists go out with numbers. They come in as people write them, so a name without a domain is
//! looked up among the users and groups that the server knows, by whoever can do that
//! ([`Names`]). A name of another domain is nobody here; it is kept as it is.

use acl::{Id, Identities, Sid, UnixIds};

/// Finds users and groups by name. May block, as user databases do.
pub trait Names: Send + Sync {
    /// Whose name it is, among groups or among users.
    fn find(&self, name: &str, is_group: bool) -> Option<Id>;
}

/// Numbers, and the names that somebody knows.
pub(super) struct Known<'a>(pub(super) Option<&'a dyn Names>);

impl Identities for Known<'_> {
    fn sid(&self, id: Id) -> Sid {
        UnixIds.sid(id)
    }

    fn of_sid(&self, sid: &Sid) -> Option<Id> {
        UnixIds.of_sid(sid)
    }

    fn name(&self, id: Id) -> String {
        UnixIds.name(id)
    }

    fn of_name(&self, name: &str, is_group: bool) -> Option<Id> {
        let by_number = UnixIds.of_name(name, is_group);
        by_number.or_else(|| match name.contains('@') {
            true => None,
            false => self.0?.find(name, is_group),
        })
    }
}
