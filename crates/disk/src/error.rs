//! What can go wrong, and what can be wrong with what was read.

use crate::name::{BadName, FileName};
use crate::signed::PublicKey;
use crate::source::{FetchError, SourceError};
use std::io;
use std::path::PathBuf;

/// Why bytes are not what they should be. Whoever knows where they lie says so beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A file that begins otherwise.
    #[error("not an index of an image")]
    NotAnIndex,
    /// An index of others, of which it cannot be known what it needs.
    #[error("no index can be read under this name; rename it, or move it elsewhere")]
    Name,
    /// An index that contradicts itself.
    #[error("the index is damaged: {0}")]
    Index(&'static str),
    /// More than is read into memory.
    #[error("the index has {0} chunks, more than are read")]
    IndexTooLong(u64),
    /// More than is read into memory.
    #[error("a chunk of {0} bytes is more than is read")]
    ChunkTooLong(u64),
    /// casync can be told to write these; images here are published with zstd.
    #[error("the chunk is compressed with {0}; only zstd is read")]
    OtherCompression(&'static str),
    /// No zstd frame, a damaged one, or one with more bytes than the chunk has.
    #[error("the chunk cannot be unpacked")]
    Frame,
    /// A frame of another chunk, or a file that was cut.
    #[error("the chunk has {0} bytes, fewer than the index says")]
    ChunkShort(u64),
    /// The right length, and other bytes.
    #[error("the bytes are others than the name says")]
    Digest,
    /// A file that begins otherwise, or is of another kind.
    #[error("not a signed record of this kind")]
    NotARecord,
    /// It was written by a newer release.
    #[error("the format has version {0}, which this release does not read")]
    Newer(u16),
    /// Cut, longer than it says, or with contents that no release writes.
    #[error("the record is damaged")]
    Record,
    /// A file that begins otherwise.
    #[error("not a profile")]
    NotAProfile,
    /// Cut, changed, or with contents that no recording has.
    #[error("the profile is damaged")]
    Profile,
    /// A file that begins otherwise.
    #[error("not a pack of chunks")]
    NotAPack,
    /// With contents that no release writes.
    #[error("the pack is damaged")]
    Pack,
    /// Changed after it was signed, or never signed with the key that it names.
    #[error("the signature does not fit")]
    Signature,
    /// A record of another image or version than the one that was asked for.
    #[error("the record is about something else")]
    Foreign,
}

/// Why something about images was not done.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A repository does not give a file.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is no chunk, or another one.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A file is not what it should be.
    #[error("{place}: {damage}")]
    Damaged {
        /// Where.
        place: String,
        /// What is wrong.
        damage: Damage,
    },
    /// Somebody has signed it, but nobody whom the caller trusts.
    #[error("{place} is signed by {key}, who is not trusted")]
    Untrusted {
        /// Where.
        place: String,
        /// Who has.
        key: PublicKey,
    },
    /// A name that cannot be one.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A name that is not `image:label`.
    #[error("{0:?} is no name of an image: image:label, of letters, digits and . _ -")]
    Tag(String),
    /// A name that cannot be one of a profile.
    #[error("{0:?} is no name of a profile: at most 64 letters, digits and . _ -")]
    Profile(String),
    /// The image has no profile of this name.
    #[error("the image has no profile {0:?}")]
    NoProfile(String),
    /// Nothing can be kept.
    #[error("without a cache nothing can be kept")]
    NoCache,
    /// Nothing of this image is kept here.
    #[error("nothing of {0} is kept here")]
    NotKept(String),
    /// More profiles than one version can have.
    #[error("an image has at most {0} profiles")]
    TooManyProfiles(usize),
    /// Another length of chunks than this crate makes.
    #[error("chunks have 64, 128, 256 or 512 KiB, not {0} bytes")]
    ChunkBytes(u32),
    /// An image that is longer than an index can say.
    #[error("an image of {0} bytes has more chunks than an index")]
    ImageTooLong(u64),
    /// Somebody has written to the image meanwhile.
    #[error("{0} was changed while it was read")]
    Changed(PathBuf),
    /// Others use the repository, and longer than was waited for.
    #[error("{path} is in use; waited {seconds} s")]
    Busy {
        /// Whose turn it is.
        path: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// The system says so.
    #[error("cannot {action} {path}")]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A bucket, or who keeps it, says so.
    #[error("cannot {action} {place}: {reason}")]
    Bucket {
        /// What was tried, as a verb.
        action: &'static str,
        /// With what.
        place: String,
        /// The server's reason, or the line's.
        reason: String,
    },
    /// A bucket cannot say that nobody else is at work.
    #[error("{what} works in a directory, and {place} is a bucket")]
    OnlyInDirectory {
        /// What was tried.
        what: &'static str,
        /// Which bucket.
        place: String,
    },
    /// Others have changed a file, again and again or while it was worked with.
    #[error("{file} in {place} was changed by others meanwhile")]
    Contested {
        /// Which.
        file: FileName,
        /// Where.
        place: String,
    },
    /// A device of an image that is to be published or committed says so.
    #[error(transparent)]
    Device(#[from] base::DeviceError),
}

impl DiskError {
    /// For `map_err` at a call of the system.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}
