//! Lists with a bound, decoded.
//!
//! A body is at most 1 MiB, but a list of one-byte elements decodes into far more memory than it
//! took on the line. Every list in a message therefore names its bound and is refused while it is
//! being read, not after.

use base::Principal;
use base::limits::GROUPS_MAX;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// Deserializes a list of at most `MAX` elements; for `#[serde(deserialize_with = ...)]`.
///
/// # Errors
/// The deserializer's, or one that names the bound.
pub(crate) fn list<'de, const MAX: usize, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct List<const MAX: usize, T>(PhantomData<T>);

    impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for List<MAX, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            // The announced length is the peer's word; memory grows with what really arrives.
            let mut list = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(16));
            while let Some(element) = seq.next_element()? {
                if list.len() == MAX {
                    return Err(A::Error::invalid_length(MAX + 1, &self));
                }
                list.push(element);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(List::<MAX, T>(PhantomData))
}

/// Deserializes a caller with at most [`GROUPS_MAX`] groups.
///
/// # Errors
/// The deserializer's, or one that names the bound.
pub(crate) fn principal<'de, D>(deserializer: D) -> Result<Principal, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(rename = "Principal")]
    struct Bounded {
        uid: u32,
        gid: u32,
        #[serde(deserialize_with = "list::<GROUPS_MAX, _, _>")]
        groups: Vec<u32>,
    }
    let Bounded { uid, gid, groups } = Bounded::deserialize(deserializer)?;
    Ok(Principal {
        uid,
        gid,
        groups: groups.into(),
    })
}

/// Deserializes text of at most `MAX` bytes.
///
/// # Errors
/// The deserializer's, or one that names the bound.
pub(crate) fn text<'de, const MAX: usize, D>(deserializer: D) -> Result<String, D::Error>
where
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    if text.len() > MAX {
        return Err(D::Error::invalid_length(text.len(), &"a shorter text"));
    }
    Ok(text)
}

/// As [`text`], of text that may be missing.
///
/// # Errors
/// As [`text`].
pub(crate) fn optional_text<'de, const MAX: usize, D>(
    deserializer: D,
) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    match text {
        Some(text) if text.len() > MAX => {
            Err(D::Error::invalid_length(text.len(), &"a shorter text"))
        }
        text => Ok(text),
    }
}
