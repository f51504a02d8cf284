//! Path components.
//!
//! Names come from users, from servers and from peers' directories; all three can be hostile. A
//! string becomes a [`Name`] only if it is one component, so nothing past this border ever joins
//! `..`, a slash or a NUL into a path, in either direction.

use crate::limits::NAME_BYTES_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// One path component: 1 to 255 bytes, not `.` or `..`, without `/` and NUL. Not necessarily UTF-8.
/// Copies share the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

/// Why bytes are not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The empty string, `.` or `..`.
    #[error("a name must not be empty, \".\" or \"..\"")]
    Reserved,
    /// A slash or a NUL byte.
    #[error("a name must not contain a slash or a NUL byte")]
    Separator,
    /// More than 255 bytes.
    #[error("a name has at most {NAME_BYTES_MAX} bytes")]
    TooLong,
}

impl Name {
    /// Checks `bytes` and makes them a name.
    ///
    /// # Errors
    /// [`NameError`] says which rule is broken.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, NameError> {
        let bytes = bytes.as_ref();
        check(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// The name's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as the operating system's string.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

/// Not generic, so that it is compiled here: other crates may be compiled without optimisation.
fn check(bytes: &[u8]) -> Result<(), NameError> {
    if matches!(bytes, b"" | b"." | b"..") {
        return Err(NameError::Reserved);
    }
    if bytes.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong);
    }
    if bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(NameError::Separator);
    }
    Ok(())
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters of a foreign name must not reach a terminal.
        write!(f, "{}", String::from_utf8_lossy(&self.0).escape_debug())
    }
}

impl AsRef<OsStr> for Name {
    fn as_ref(&self) -> &OsStr {
        self.as_os_str()
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl serde::de::Visitor<'_> for NameVisitor {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a path component")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Name, E> {
                Name::new(bytes).map_err(E::custom)
            }
        }

        deserializer.deserialize_bytes(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_components_become_names() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", &[b'x'; 256]] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        for good in [
            &b"a"[..],
            b"...",
            b".hidden",
            b"\xff\xfe",
            "日本".as_bytes(),
            &[b'x'; 255],
        ] {
            assert_eq!(Name::new(good).expect("a legal name").as_bytes(), good);
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(
            Name::new("a\x1b[2Jb").expect("legal").to_string(),
            "a\\u{1b}[2Jb"
        );
    }
}
