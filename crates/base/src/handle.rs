//! File handles.

use crate::limits::HANDLE_BYTES_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// A server's name for one inode of one volume, opaque to the client.
///
/// It stays valid over renames and server restarts and never comes to mean another file. Servers
/// authenticate what they put in: a handle that a client made up is refused as stale. Copies share
/// the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(Arc<[u8]>);

impl Handle {
    /// Wraps a server's bytes; `None` if there are none or too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty() && bytes.len() <= HANDLE_BYTES_MAX).then(|| Self(bytes.into()))
    }

    /// The server's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        write!(f, ")")
    }
}

impl Serialize for Handle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Handle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HandleVisitor;

        impl serde::de::Visitor<'_> for HandleVisitor {
            type Value = Handle;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a file handle of 1 to {HANDLE_BYTES_MAX} bytes")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Handle, E> {
                Handle::new(bytes).ok_or_else(|| E::invalid_length(bytes.len(), &self))
            }
        }

        deserializer.deserialize_bytes(HandleVisitor)
    }
}
