//! Who is meant by a name in a list that a client sends.
//!
//! Lists go out with numbers. They come in as people write them, so names and SIDs are looked up
//! among the users and groups that the server knows, by whoever can do that ([`Names`]). Whom he
//! does not know is nobody here, and is kept as he is.

use acl::{Id, Identities, Sid, UnixIds};

/// Finds users and groups by name and SID. May block, as user databases do.
pub trait Names: Send + Sync {
    /// Whose name it is, among groups or among users.
    fn find(&self, name: &str, is_group: bool) -> Option<Id>;

    /// Whose SID it is.
    fn of_sid(&self, sid: &Sid) -> Option<Id>;
}

/// Numbers, and the names that somebody knows.
pub struct Known<'a>(pub Option<&'a dyn Names>);

impl Identities for Known<'_> {
    fn sid(&self, id: Id) -> Sid {
        UnixIds.sid(id)
    }

    fn of_sid(&self, sid: &Sid) -> Option<Id> {
        let known = self.0.and_then(|names| names.of_sid(sid));
        known.or_else(|| UnixIds.of_sid(sid))
    }

    fn name(&self, id: Id) -> String {
        UnixIds.name(id)
    }

    fn of_name(&self, name: &str, is_group: bool) -> Option<Id> {
        let by_number = UnixIds.of_name(name, is_group);
        by_number.or_else(|| self.0?.find(name, is_group))
    }
}
