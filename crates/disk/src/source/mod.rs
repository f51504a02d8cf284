//! Where a repository's files come from.
//!
//! A [`Source`] gives files by name, whole or in part, and never more bytes than it was asked for.
//! It promises nothing about what they are: a web server may be old, broken or somebody else's. So
//! chunks leave this module only through [`fetch_chunk`], which unpacks and verifies them, and asks
//! again where a second answer may be a better one.
//!
//! Whatever a source does takes bounded time: [`Http`] limits each try and their number.

mod directory;
mod health;
mod http;
mod kept;
mod mirrors;

pub use directory::Directory;
pub use health::MirrorCounts;
pub(crate) use http::client;
pub use http::{BadAddress, Http, HttpOptions};
pub use kept::Kept;
pub use mirrors::{BadMirrors, Mirrors};

use crate::chunk::{self, ChunkSpec, Digest};
use crate::error::{Damage, DiskError};
use crate::name::FileName;
use base::Extent;
use base::limits::DISK_TRIES_MAX;
use bytes::Bytes;
use reqwest::Url;
use std::fmt;
use std::pin::Pin;

/// An answer that is under way.
pub type Reading<'a> = Pin<Box<dyn Future<Output = Result<Bytes, SourceError>> + Send + 'a>>;

/// Gives files of one repository.
pub trait Source: Send + Sync + fmt::Debug {
    /// Reads a file, or the part of it that is wanted.
    fn read<'a>(&'a self, file: &'a FileName, wanted: Wanted) -> Reading<'a>;

    /// Reads a file, or a part of it, for a thread that has nothing else to do.
    ///
    /// # Errors
    /// [`SourceError`].
    fn read_now(&self, file: &FileName, part: Part) -> Result<Bytes, SourceError>;

    /// What came last under this name was not what it should be. A source with several servers asks
    /// another one the next time.
    fn doubt(&self, _file: &FileName) {}

    /// Whether a part of a file comes alone, as far as is known: a web server that does not know
    /// ranges sends everything before it as well.
    fn gives_parts(&self) -> bool {
        true
    }

    /// Where it is, for people; without passwords.
    fn place(&self) -> String;
}

/// Which bytes of a file are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub part: Part,
    /// Whether caches on the way shall be passed by, because what they have is wrong.
    pub past_caches: bool,
}

/// A file or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it; it is an error if it has more than so many bytes.
    Whole {
        /// The most.
        bytes_max: u64,
    },
    /// These bytes; it is an error if some are not there.
    Extent(Extent),
}

impl Wanted {
    /// The whole file, which has at most so many bytes.
    #[must_use]
    pub const fn whole(bytes_max: u64) -> Self {
        Self {
            part: Part::Whole { bytes_max },
            past_caches: false,
        }
    }

    /// A part of a file.
    #[must_use]
    pub const fn extent(extent: Extent) -> Self {
        Self {
            part: Part::Extent(extent),
            past_caches: false,
        }
    }
}

/// Why a source did not give a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} at {place}: {refusal}")]
pub struct SourceError {
    /// Which file.
    pub file: FileName,
    /// Of which source.
    pub place: String,
    /// Why.
    pub refusal: Refusal,
}

/// What a source says instead of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It says so.
    #[error("there is no such file")]
    NotFound,
    /// More bytes than the file can have.
    #[error("longer than {bytes_max} bytes")]
    TooLong {
        /// The most that was wanted.
        bytes_max: u64,
    },
    /// Fewer bytes than the part that was wanted.
    #[error("it has no bytes {0}")]
    TooShort(Extent),
    /// A status that another try does not change.
    #[error("the server answers with status {0}")]
    Status(u16),
    /// An address to which nobody can be asked, or redirections without end.
    #[error("{0}")]
    Address(String),
    /// No answer, or one that broke off, as often as it was tried.
    #[error("{reason} ({tries} tries)")]
    Unavailable {
        /// The last reason.
        reason: String,
        /// How often it was tried.
        tries: u32,
    },
    /// The system says so.
    #[error("{0}")]
    Failed(String),
}

impl Refusal {
    /// Whether another name would have been answered.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound)
    }
}

/// Why there is no chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Nothing came.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// What came is not the chunk.
    #[error("{file} at {place}: {damage}")]
    Damaged {
        /// Which file.
        file: FileName,
        /// Of which source.
        place: String,
        /// What is wrong with it.
        damage: Damage,
    },
}

/// An address as it may be shown and logged: without a password.
pub(crate) fn shown(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut parsed) if parsed.password().is_some() => {
            // Only URLs that cannot have one refuse.
            let _ = parsed.set_password(Some("..."));
            parsed.into()
        }
        Ok(_) => url.to_owned(),
        // Nobody can say where in it a password ends.
        Err(_) => match url.rsplit_once('@') {
            Some((_, rest)) => format!("...@{rest}"),
            None => url.to_owned(),
        },
    }
}

/// Reads a file, or the part of it, whose digest (SHA-512/256) is known. What has another one is
/// asked for a second time: of another server, if there are several.
///
/// # Errors
/// [`DiskError`]; [`Damage::Digest`] if the second answer is as wrong as the first.
pub(crate) fn read_known(
    source: &dyn Source,
    file: &FileName,
    part: Part,
    digest: [u8; 32],
) -> Result<Bytes, DiskError> {
    for _ in 0..2 {
        let bytes = source.read_now(file, part)?;
        if Digest::Sha512Half.id_of(&bytes).0 == digest {
            return Ok(bytes);
        }
        source.doubt(file);
    }
    Err(DiskError::Damaged {
        place: format!("{file} at {}", source.place()),
        damage: Damage::Digest,
    })
}

/// A chunk that was fetched and verified.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Its bytes.
    pub bytes: Bytes,
    /// The form in which it is stored.
    pub packed: Bytes,
}

/// Fetches a chunk and verifies it. What is not the chunk is asked for again, past the caches: a
/// connection that was cut or a damaged cache on the way need not be the end.
///
/// # Errors
/// [`FetchError`].
///
/// # Panics
/// If called outside a tokio runtime.
pub async fn fetch_chunk(source: &dyn Source, spec: ChunkSpec) -> Result<Fetched, FetchError> {
    let file = FileName::of_chunk(&spec.id);
    let mut wanted = Wanted::whole(chunk::packed_bytes_max(spec.len_bytes));
    let mut tries = 0;
    loop {
        let packed = source.read(&file, wanted).await?;
        let unpacking = packed.clone();
        // Half a millisecond and more of computing does not belong on a thread that serves sockets.
        let unpack = move || chunk::unpack(&spec, &unpacking);
        let unpacked = tokio::task::spawn_blocking(unpack).await;
        tries += 1;
        let unpacked = unpacked.unwrap_or(Err(Damage::Frame));
        if unpacked.is_err() {
            source.doubt(&file);
        }
        match unpacked {
            Ok(bytes) => return Ok(Fetched { bytes, packed }),
            Err(damage) if tries >= DISK_TRIES_MAX => {
                let place = source.place();
                return Err(FetchError::Damaged {
                    file,
                    place,
                    damage,
                });
            }
            Err(_) => wanted.past_caches = true,
        }
    }
}
