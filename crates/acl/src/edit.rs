//! What an edit of a rich ACL was: written down when it is made.

use crate::{Change, Origin, Target, Truth, Widening, changes, widenings};

/// Entries up to which it is said what an edit means for each of those who have one; the time that
/// takes grows with the square.
const TOLD_ENTRIES_MAX: usize = 256;

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What was the truth before.
    pub before: Origin,
    /// What is now.
    pub after: Origin,
    /// Where the file lay at that moment, for people.
    pub path: String,
    /// Who gained and lost what; nothing for lists of more than 256 entries.
    pub changes: Vec<Change>,
    /// Groups whose common members may do at once from now on what they could not; as `changes`,
    /// nothing for long lists.
    pub widenings: Vec<Widening>,
}

impl Edit {
    /// What it means that one truth about a file takes the place of another.
    #[must_use]
    pub fn of(before: &Truth<'_>, after: &Truth<'_>, target: &Target) -> Self {
        let silent = Self::without_words(before.origin(), after.origin());
        if before.entries().max(after.entries()) > TOLD_ENTRIES_MAX {
            return silent;
        }
        let wider = match (before, after) {
            (Truth::Posix(file), Truth::Rich(_)) => widenings(file).collect(),
            _ => Vec::new(),
        };
        Self {
            changes: changes(before, after, target),
            widenings: wider,
            ..silent
        }
    }

    /// One of which it is not known, or need not be said, what it means for whom.
    #[must_use]
    pub fn without_words(before: Origin, after: Origin) -> Self {
        Self {
            before,
            after,
            path: String::new(),
            changes: Vec::new(),
            widenings: Vec::new(),
        }
    }
}

impl Truth<'_> {
    fn origin(&self) -> Origin {
        match self {
            Self::Posix(_) => Origin::Posix,
            Self::Rich(_) => Origin::Rich,
        }
    }

    fn entries(&self) -> usize {
        match self {
            Self::Posix(file) => file.access.map_or(0, |access| access.entries().len()),
            Self::Rich(list) => list.aces().len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ace, PosixFile, RichAcl, Rights, Who};

    const TARGET: Target = Target {
        uid: 1,
        gid: 10,
        is_directory: false,
    };

    #[test]
    fn an_edit_says_who_gains_unless_there_are_too_many() {
        let file = PosixFile {
            uid: 1,
            gid: 10,
            mode: 0o600,
            access: None,
        };
        let list = |users: std::ops::Range<u32>| {
            let aces = users.map(|uid| Ace::allow(Who::User(uid), Rights::READ_DATA));
            RichAcl::new(aces.collect()).unwrap()
        };
        let edit = |list: &RichAcl| Edit::of(&Truth::Posix(file), &Truth::Rich(list), &TARGET);
        let told = edit(&list(7..8));
        assert_eq!((told.before, told.after), (Origin::Posix, Origin::Rich));
        let gains = |change: &&Change| change.who == Who::User(7);
        let gain = told.changes.iter().find(gains).unwrap();
        assert_eq!(gain.gained, Rights::READ_DATA);
        assert!(edit(&list(0..300)).changes.is_empty());
    }
}
