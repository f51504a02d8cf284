//! Bounds of images, repositories and served disks.

use std::time::Duration;

/// Largest chunk of an image that is read. Published here are 64 to 512 KiB; casync and desync make
/// up to 256 KiB unless told otherwise. Every fetch in flight may need as much memory.
pub const DISK_CHUNK_BYTES_MAX: u32 = 4 << 20;
/// Chunks of one image: 1 TiB in chunks of 256 KiB, with an index of 160 MiB that is in memory.
pub const DISK_INDEX_CHUNKS_MAX: usize = 4 << 20;
/// Longest image: an offset is never negative for the kernel, with room for what is put before it.
pub const DISK_IMAGE_BYTES_MAX: u64 = 1 << 62;
/// How often a file of a repository is asked for before it is an error: with pauses of 0.1, 0.2 and
/// 0.4 s between, enough for a server that is started anew behind a balancer.
pub const DISK_TRIES_MAX: u32 = 4;
/// Requests of one disk under way at a web server. Chunks of 80 KB, as they are packed, then fill
/// 400 Mbit/s at 100 ms; browsers and proxies bear as many connections from one house.
pub const DISK_REQUESTS_MAX: usize = 64;
/// Threads that write and flush chunks for one publisher. A journalling file system flushes about
/// as many new files with one commit: chunks of 256 KiB at 500 MB/s with commits of 30 ms.
pub const DISK_SETTLERS: usize = 64;
/// Chunks that one publisher puts into a bucket at once, and as many that he asks for.
pub const DISK_UPLOADS: usize = 16;
/// Chunks of one read of a disk that are under way and in memory at once: as many as requests.
pub const DISK_READ_CHUNKS_MAX: usize = DISK_REQUESTS_MAX;
/// How long one waits for the turn to count the bytes of a cache: longer than another process goes
/// through the directory of a large one.
pub const DISK_CACHE_TURN_TIME_MAX: Duration = Duration::from_secs(20);
/// How long one waits for a chunk that another process fetches, before fetching it oneself: the
/// time of one try and a half at a slow server.
pub const DISK_FETCH_LOCK_TIME_MAX: Duration = Duration::from_secs(90);
/// How long an overlay that is open elsewhere is waited for. What a killed process had under way
/// keeps it locked for a moment after its end, for longer where the disk is busy.
pub const DISK_OVERLAY_LOCK_TIME_MAX: Duration = Duration::from_secs(5);
/// Findings of one check of a repository that are kept; all are counted.
pub const DISK_FINDINGS_MAX: usize = 10_000;
/// A manifest's or tag's file: all that the following bounds allow, twice.
pub const DISK_RECORD_BYTES_MAX: u64 = 64 << 10;
/// Versions from which one version was made: one, or as many as somebody merges by hand.
pub const DISK_PARENTS_MAX: usize = 16;
/// Packs of one version: a profile each.
pub const DISK_PACKS_MAX: usize = 64;
/// Touches of one profile: a boot of Debian has some 200; a tar of a hundred thousand files that
/// lie anywhere has this many. A recording that has reached it stays as it is.
pub const DISK_TOUCHES_MAX: usize = 1 << 17;
/// Bytes of one profile, of which each 4 KiB are an entry of a table while profiles are merged: a
/// million entries. Whoever reads more reads an image, and needs no profile for that.
pub const DISK_PROFILE_BYTES_MAX: u64 = 4 << 30;
/// A profile's file: each touch has at most 29 bytes.
pub const DISK_PROFILE_FILE_BYTES_MAX: u64 = 4 << 20;
/// Chunks of one pack: a boot of Debian has some 300; these are 2 GiB, if they have 32 KiB each.
pub const DISK_PACK_CHUNKS_MAX: usize = 1 << 16;
/// What is before the chunks of a pack: the largest profile, and the longest table of 40 bytes for
/// each chunk.
pub const DISK_PACK_FRONT_BYTES_MAX: u64 = 32 + DISK_PROFILE_FILE_BYTES_MAX + 40 * (1 << 16);
/// A pack that is read whole, because its server does not know ranges: it is in memory then. From a
/// longer one nothing is read.
pub const DISK_PACK_WHOLE_BYTES_MAX: u64 = 64 << 20;
/// Requests of one disk that nobody waits for, at a web server: half of all, so that whoever waits
/// finds the other half free.
pub const DISK_AHEAD_REQUESTS_MAX: usize = DISK_REQUESTS_MAX / 2;
/// The same for a disk of which everything is fetched, because somebody has asked for that: three
/// quarters of all. One program that reads has one request under way, or a few.
pub const DISK_REST_REQUESTS_MAX: usize = DISK_REQUESTS_MAX / 4 * 3;
/// Bytes, packed, that nobody waits for and that are under way: a gigabit at 100 ms holds 12 MB.
pub const DISK_AHEAD_BYTES_MAX: u64 = 16 << 20;
/// Chunks of one image that were fetched ahead and that nobody has read yet: each is noted, with 50
/// bytes. Beyond, nothing is fetched ahead.
pub const DISK_AHEAD_CHUNKS_MAX: usize = 1 << 18;
/// Sources of one image at once: more mirrors than a site has.
pub const DISK_MIRRORS_MAX: usize = 16;
/// What a publisher says about a version.
pub const DISK_NOTE_BYTES_MAX: usize = 1024;
/// Connections of a repository that is served over HTTP. Each has a thread while a file is read for
/// it, and tokio has 512 of these.
pub const DISK_WEB_CONNECTIONS_MAX: usize = 256;
/// From a connection, or an answer, to the end of the next request's head.
pub const DISK_WEB_HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// For a connection: 4 GiB of a pack at 10 Mbit/s.
pub const DISK_WEB_CONNECTION_TIME_MAX: Duration = Duration::from_secs(3600);
/// Moves of a tag that can be taken back.
pub const DISK_TAG_HISTORY_MAX: usize = 256;
/// Connections to one served disk. Programs that copy open 4, a virtual machine 1; each may hold
/// [`NBD_CONNECTION_BYTES_MAX`].
pub const NBD_CONNECTIONS_MAX: usize = 16;
/// The data of one option of the negotiation: a name of 4,096 bytes, as the protocol allows, and as
/// much again of what is asked about it.
pub const NBD_OPTION_BYTES_MAX: usize = 8192;
/// Options of one negotiation. Clients send about five.
pub const NBD_OPTIONS_MAX: usize = 128;
/// Longest name or text in a negotiation, as the protocol says.
pub const NBD_TEXT_BYTES_MAX: usize = 4096;
/// Largest read or write: what clients may send that have not asked for the largest.
pub const NBD_REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Bytes of one connection's requests and replies that are in memory: one request of the largest
/// size, or 128 of 256 KiB, which fill a gigabit at 250 ms.
pub const NBD_CONNECTION_BYTES_MAX: u32 = NBD_REQUEST_BYTES_MAX;
/// Requests of one connection that are under way. Programs that copy have 64.
pub const NBD_CONNECTION_REQUESTS_MAX: usize = 256;
/// Threads that read from one disk at once for all its connections: each waits for chunks from far
/// away, of which as many may be under way.
pub const NBD_READERS_MAX: usize = DISK_REQUESTS_MAX;
/// Threads that write and flush at once. They have their own so that a flush does not wait for
/// reads; they wait for a local disk.
pub const NBD_WRITERS_MAX: usize = 16;
/// How far one question about holes is answered. A disk that was written in every other block has
/// 32,768 runs in so much, which are found within milliseconds.
pub const NBD_STATUS_BYTES_MAX: u64 = 256 << 20;
/// Runs in one answer about holes: 32 KiB.
pub const NBD_STATUS_RUNS_MAX: usize = 4096;
/// Runs in the reply to one read; with more of them the zeros are sent.
pub const NBD_READ_RUNS_MAX: usize = 64;
/// How long what is under way may take when a server of a disk ends: a read that is fetched for the
/// last time.
pub const NBD_STOP_TIME_MAX: Duration = Duration::from_secs(20);
