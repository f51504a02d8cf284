//! A version as people name it: by a name that points to it, or by its digest.

use ::disk::{DiskError, Manifest, Source, Tag, TagRecord, Trust, VersionId};
use std::fmt;
use std::str::FromStr;

/// Which version is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Name(Tag),
    Version(VersionId),
}

impl FromStr for Target {
    type Err = DiskError;

    fn from_str(text: &str) -> Result<Self, DiskError> {
        match text.parse() {
            Ok(version) => Ok(Self::Version(version)),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Version(version) => version.fmt(f),
        }
    }
}

impl Target {
    /// The version, and what it is.
    pub(super) fn manifest(
        &self,
        source: &dyn Source,
        trust: &Trust,
    ) -> Result<(VersionId, Manifest), DiskError> {
        let version = match self {
            Self::Name(name) => TagRecord::read(source, name, trust)?.version(),
            Self::Version(version) => *version,
        };
        Ok((version, Manifest::read(source, version, trust)?))
    }
}

/// The beginning of a digest: enough to tell a person's versions apart.
pub(super) fn short(version: VersionId) -> String {
    version.to_string()[..12].to_owned()
}
