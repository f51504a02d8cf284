//! Where files lie in a repository.
//!
//! A [`FileName`] is a path below the repository's directory or URL. It is made of components that
//! need no quoting in a URL, a shell or casync's command line (to which a colon means another
//! machine), and that never lead out: no `..`, nothing hidden, nothing absolute. So a name that
//! comes from a manifest or from a user can be joined to a directory as it is.

use crate::chunk::ChunkId;
use std::fmt;

/// The directory of the chunks. casync looks for it beside an index if it is told no other.
pub const CHUNKS: &str = "default.castr";
/// Longest component, in bytes; a name of a file with its suffix stays below what file systems
/// take.
pub const COMPONENT_BYTES_MAX: usize = 200;
/// Deepest path: what this crate makes has three components at most.
const COMPONENTS_MAX: usize = 8;

/// A path within a repository.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(Box<str>);

/// A text that is no path within a repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be a name: letters, digits and . _ - @ in at most 8 components of at most 200 \
     bytes, none of which begins with a dot"
)]
pub struct BadName(pub String);

impl FileName {
    /// Checks a relative path.
    ///
    /// # Errors
    /// [`BadName`] if a component is not made of letters, digits and `. _ - @`, or begins with a
    /// dot.
    pub fn new(path: &str) -> Result<Self, BadName> {
        let count = path.split('/').count();
        if count > COMPONENTS_MAX || !path.split('/').all(is_component) {
            return Err(BadName(path.chars().take(300).collect()));
        }
        Ok(Self(path.into()))
    }

    /// A path that this crate has made of words that it has checked.
    pub(crate) fn made(path: String) -> Self {
        debug_assert!(Self::new(&path).is_ok(), "{path:?}");
        Self(path.into())
    }

    /// Where a chunk lies: in the directory of its first four digits, as casync puts it.
    #[must_use]
    pub fn of_chunk(id: &ChunkId) -> Self {
        let id = id.to_string();
        Self::made(format!("{CHUNKS}/{}/{id}.cacnk", &id[..4]))
    }

    /// The path, with slashes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a text can be one component of a path, as it is.
pub(crate) fn is_component(text: &str) -> bool {
    let is_good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-' | b'@');
    !text.is_empty()
        && text.len() <= COMPONENT_BYTES_MAX
        && !text.starts_with(['.', '-'])
        && text.bytes().all(is_good)
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_repository_or_needs_quoting() {
        for good in ["a", "base@1.caibx", "a/b/c-d_e.f", &"x".repeat(200)] {
            assert_eq!(FileName::new(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(201);
        let deep = "x/".repeat(8) + "x";
        for bad in [
            "", ".", "..", "a/..", "../a", "/a", "a/", "a//b", ".hidden", "-rf", "a b", "a:b",
            "a%2e", "a\0", "a\\b", "a?b", "a#b", "é", "a\n", &long, &deep,
        ] {
            assert!(FileName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn chunks_lie_where_casync_looks_for_them() {
        let id = ChunkId([0xab; 32]);
        let expected = format!("default.castr/abab/{}.cacnk", "ab".repeat(32));
        assert_eq!(FileName::of_chunk(&id).as_str(), expected);
    }
}
