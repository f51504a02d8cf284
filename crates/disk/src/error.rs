//! What can be wrong with what was read.

/// Why bytes are not what they should be. Whoever knows where they lie says so beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A file that begins otherwise.
    #[error("not an index of an image")]
    NotAnIndex,
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
    #[error("the chunk's bytes are others than its name says")]
    Digest,
}
