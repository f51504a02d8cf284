//! The agreement at the start of a mount: what the kernel offers, what the file system wants, what
//! holds.

use super::abi::flags::InitFlags;
use super::abi::output::InitOut;
use super::abi::{MAJOR, MINOR_MAX, MINOR_MIN};
use super::buffer::WRITE_HEADERS_BYTES;
use super::device::{Device, Received};
use super::parse::{InitOffer, Message, ParseError, Parser};
use super::reply::Replier;
use base::limits::DATA_BYTES_MAX;
use rustix::io::Errno;
use std::sync::Arc;

/// The kernel counts requests in pages; 4 KiB is the smallest page that Linux has.
const PAGE_BYTES: u32 = 4096;
/// The smallest largest write: an extended attribute of 64 KiB must fit with all its headers.
const MAX_WRITE_BYTES_MIN: u32 = 128 << 10;
/// Room beside the data of a write: its headers, and what a kernel may append to them.
const HEADERS_BYTES: usize = 4096;

/// What the file system wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Features; those that the kernel does not have are not in force, and
    /// [`Agreement::flags`] says so.
    pub flags: InitFlags,
    /// Largest write, in bytes: 128 KiB to 1 MiB. Reads are bounded alike.
    pub max_write_bytes: u32,
    /// The most that the kernel reads ahead, in bytes; it may have a lower bound of its own.
    pub max_readahead_bytes: u32,
    /// Requests under way that no application waits for.
    pub max_background: u16,
    /// From how many of these on the kernel takes the mount to be congested.
    pub congestion_threshold: u16,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            flags: InitFlags::empty(),
            max_write_bytes: DATA_BYTES_MAX,
            max_readahead_bytes: DATA_BYTES_MAX,
            max_background: 64,
            congestion_threshold: 48,
        }
    }
}

/// What holds for a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Minor version of the protocol: the smaller of the kernel's and 45.
    pub minor: u32,
    /// Everything that the kernel has.
    pub offered: InitFlags,
    /// What is in force.
    pub flags: InitFlags,
    /// Largest write, in bytes.
    pub max_write_bytes: u32,
    /// Largest read, write or listing, in pages of 4 KiB.
    pub max_pages: u16,
    /// The most that the kernel reads ahead, in bytes.
    pub max_readahead_bytes: u32,
}

impl Agreement {
    pub(crate) fn parser(&self) -> Parser {
        Parser {
            setxattr_ext: self.flags.contains(InitFlags::SETXATTR_EXT),
        }
    }

    /// The size of the buffer for reading the device.
    pub(crate) fn buffer_bytes(&self) -> usize {
        HEADERS_BYTES + usize::try_from(self.max_write_bytes).expect("a megabyte fits")
    }
}

/// Why no agreement was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// The kernel's protocol is too old.
    #[error("the kernel speaks FUSE {major}.{minor}; {MAJOR}.{MINOR_MIN} (Linux 5.4) is needed")]
    TooOld {
        /// Major version of the kernel.
        major: u32,
        /// Minor version of the kernel.
        minor: u32,
    },
    /// Something else came instead of an offer.
    #[error("the kernel began with something else than its offer")]
    OutOfTurn,
    /// Bytes that make no sense.
    #[error("{0}")]
    Parse(ParseError),
    /// The mount went away.
    #[error("the mount went away before it was ready")]
    Gone,
    /// The device failed.
    #[error("cannot read the FUSE device: {0}")]
    Device(Errno),
}

/// Answers the kernel's offer on `device`.
pub(crate) fn negotiate(device: &Arc<Device>, wishes: &Wishes) -> Result<Agreement, InitError> {
    let mut buffer = vec![0; HEADERS_BYTES + WRITE_HEADERS_BYTES + DATA_BYTES_MAX as usize];
    loop {
        let len = match device.receive(&mut buffer).map_err(InitError::Device)? {
            Received::Message(len) => len,
            Received::Ended => return Err(InitError::Gone),
        };
        let offer = match Parser::default()
            .parse(&buffer[..len])
            .map_err(InitError::Parse)?
        {
            Message::Init(offer) => offer,
            Message::Request(request) => {
                Replier::new(Arc::clone(device), request.unique).error(Errno::IO);
                return Err(InitError::OutOfTurn);
            }
            _ => return Err(InitError::OutOfTurn),
        };
        let replier = Replier::new(Arc::clone(device), offer.unique);
        if offer.major > MAJOR {
            // The kernel makes its offer again in our version.
            replier.structure(&InitOut {
                major: MAJOR,
                minor: MINOR_MAX,
                ..Default::default()
            });
            continue;
        }
        if offer.major < MAJOR || offer.minor < MINOR_MIN {
            replier.error(Errno::PROTO);
            return Err(InitError::TooOld {
                major: offer.major,
                minor: offer.minor,
            });
        }
        let (agreement, answer) = agree(&offer, wishes);
        replier.structure(&answer);
        return Ok(agreement);
    }
}

fn agree(offer: &InitOffer, wishes: &Wishes) -> (Agreement, InitOut) {
    // Without the first two the sizes below mean nothing, and the third tells an abort from an
    // unmount. Every kernel of MINOR_MIN has them.
    let needed = InitFlags::BIG_WRITES | InitFlags::MAX_PAGES | InitFlags::ABORT_ERROR;
    let mut flags = offer.flags & (wishes.flags | needed);
    if flags.bits() >> 32 != 0 {
        flags |= InitFlags::INIT_EXT;
    }
    let max_write_bytes = wishes
        .max_write_bytes
        .clamp(MAX_WRITE_BYTES_MIN, DATA_BYTES_MAX);
    let max_pages = u16::try_from(max_write_bytes / PAGE_BYTES).expect("a megabyte has 256 pages");
    let agreement = Agreement {
        minor: offer.minor.min(MINOR_MAX),
        offered: offer.flags,
        flags,
        max_write_bytes,
        max_pages,
        max_readahead_bytes: wishes.max_readahead_bytes.min(offer.max_readahead),
    };
    let low = |bits: u64| u32::try_from(bits & 0xffff_ffff).expect("32 bits");
    let answer = InitOut {
        major: MAJOR,
        minor: agreement.minor,
        max_readahead: agreement.max_readahead_bytes,
        flags: low(flags.bits()),
        max_background: wishes.max_background,
        congestion_threshold: wishes.congestion_threshold,
        max_write: max_write_bytes,
        // Times are in nanoseconds.
        time_gran: 1,
        max_pages,
        flags2: low(flags.bits() >> 32),
        // Opens may be passed through to a file system that is not itself stacked on another.
        max_stack_depth: u32::from(flags.contains(InitFlags::PASSTHROUGH)),
        ..Default::default()
    };
    (agreement, answer)
}

#[cfg(test)]
mod tests {
    use super::super::request::Unique;
    use super::*;

    fn offer(minor: u32, flags: InitFlags) -> InitOffer {
        InitOffer {
            unique: Unique(2),
            major: 7,
            minor,
            max_readahead: 128 << 10,
            flags,
        }
    }

    #[test]
    fn only_what_both_sides_have_is_in_force() {
        let offered = InitFlags::MAX_PAGES
            | InitFlags::BIG_WRITES
            | InitFlags::POSIX_LOCKS
            | InitFlags::FLOCK_LOCKS;
        let wanted = InitFlags::POSIX_LOCKS | InitFlags::WRITEBACK_CACHE;
        let wishes = Wishes {
            flags: wanted,
            ..Wishes::default()
        };
        let (agreement, answer) = agree(&offer(31, offered), &wishes);
        let expected = InitFlags::POSIX_LOCKS | InitFlags::MAX_PAGES | InitFlags::BIG_WRITES;
        assert_eq!(agreement.flags, expected);
        assert_eq!(agreement.offered, offered);
        assert_eq!((agreement.minor, answer.minor), (31, 31));
        assert_eq!(u64::from(answer.flags), expected.bits());
        assert_eq!(answer.flags2, 0);
        assert_eq!((answer.max_write, answer.max_pages), (1 << 20, 256));
        assert_eq!(agreement.max_readahead_bytes, 128 << 10);
    }

    #[test]
    fn upper_flags_travel_in_the_second_field() {
        let offered = InitFlags::all();
        let wanted = InitFlags::PASSTHROUGH | InitFlags::CREATE_SUPP_GROUP;
        let wishes = Wishes {
            flags: wanted,
            max_write_bytes: 1,
            ..Wishes::default()
        };
        let (agreement, answer) = agree(&offer(99, offered), &wishes);
        assert!(agreement.flags.contains(wanted | InitFlags::INIT_EXT));
        assert_eq!(answer.flags2, (1 << 2) | (1 << 5));
        assert_eq!(answer.max_stack_depth, 1);
        assert_eq!(answer.minor, MINOR_MAX);
        assert_eq!(agreement.max_write_bytes, MAX_WRITE_BYTES_MIN);
    }
}
