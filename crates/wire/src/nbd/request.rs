//! Requests: what a client asks of the device, and whether it may.

use super::NbdError;
use base::Extent;
use base::limits::NBD_REQUEST_BYTES_MAX;
use bytes::Buf;

const MAGIC: u32 = 0x2560_9513;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

/// Done only when it is durable. Valid with every request.
const FLAG_FUA: u16 = 1;
/// Zeros that keep their space.
const FLAG_NO_HOLE: u16 = 1 << 1;
/// All that was read in one piece.
const FLAG_DF: u16 = 1 << 2;
/// One run is enough.
const FLAG_REQ_ONE: u16 = 1 << 3;

/// What a request that was not done failed with; the numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// The device is read only.
    NotPermitted = 1,
    /// The device failed.
    Io = 5,
    /// A request that makes no sense.
    Invalid = 22,
    /// No space, or behind the end.
    NoSpace = 28,
    /// Too much for one piece.
    Overflow = 75,
}

/// A request as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How it is to be done.
    pub flags: u16,
    /// What is to be done.
    pub kind: u16,
    /// The client's name for it, which its reply has.
    pub cookie: u64,
    /// Where.
    pub offset: u64,
    /// How much.
    pub len: u32,
}

/// A request that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read bytes.
    Read {
        /// Which.
        extent: Extent,
        /// In one piece, holes as zeros.
        is_whole: bool,
    },
    /// Write the bytes that came with it.
    Write {
        /// Where.
        extent: Extent,
        /// Done only when durable.
        is_durable: bool,
    },
    /// Make everything durable that was done before.
    Flush,
    /// Forget bytes.
    Trim {
        /// Which.
        extent: Extent,
        /// Done only when durable.
        is_durable: bool,
    },
    /// Make bytes zeros.
    WriteZeros {
        /// Which.
        extent: Extent,
        /// Done only when durable.
        is_durable: bool,
        /// They keep their space.
        keeps_space: bool,
    },
    /// Say which bytes are holes.
    Status {
        /// Among which.
        extent: Extent,
        /// One run is enough.
        is_one_enough: bool,
    },
}

/// What requests of a connection are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Length of the device in bytes.
    pub len_bytes: u64,
    /// Whether it refuses changes.
    pub is_read_only: bool,
    /// What was agreed.
    pub agreement: super::Agreement,
}

impl Request {
    /// Length of a request without the bytes that it writes.
    pub const BYTES: usize = 28;

    /// Reads a request's first [`Self::BYTES`] bytes.
    ///
    /// # Errors
    /// [`NbdError`]: nothing behind it can be understood, and the connection is to be closed.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, NbdError> {
        if bytes.len() < Self::BYTES || bytes.get_u32() != MAGIC {
            return Err(NbdError::Protocol("a request begins otherwise"));
        }
        let request = Self {
            flags: bytes.get_u16(),
            kind: bytes.get_u16(),
            cookie: bytes.get_u64(),
            offset: bytes.get_u64(),
            len: bytes.get_u32(),
        };
        if request.payload_bytes() > NBD_REQUEST_BYTES_MAX as usize {
            return Err(NbdError::TooLong {
                what: "a write",
                bytes: request.len.into(),
            });
        }
        Ok(request)
    }

    /// Bytes that follow it.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        match self.kind {
            WRITE => self.len as usize,
            _ => 0,
        }
    }

    /// Bytes of memory that it takes until it is answered.
    #[must_use]
    pub fn memory_bytes(&self) -> u32 {
        match self.kind {
            READ | WRITE => self.len.min(NBD_REQUEST_BYTES_MAX),
            _ => 0,
        }
    }

    /// Whether the client goes.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        self.kind == DISCONNECT
    }

    /// Whether it is a read: its reply has another form.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.kind == READ
    }

    /// What is to be done.
    ///
    /// # Errors
    /// What the client is told if it may not.
    pub fn judge(&self, rules: &Rules) -> Result<Command, Errno> {
        let extent = Extent::new(self.offset, self.len.into());
        let is_inside = extent.len == u64::from(self.len)
            && Extent::new(0, rules.len_bytes).covers(extent)
            && self.offset <= rules.len_bytes;
        let is_durable = self.flags & FLAG_FUA != 0;
        let has = |flag| self.flags & flag != 0;
        let whole_flag = if rules.agreement.is_structured {
            FLAG_DF
        } else {
            0
        };
        let (known_flags, command) = match self.kind {
            READ => {
                let is_whole = has(FLAG_DF);
                (whole_flag, Command::Read { extent, is_whole })
            }
            WRITE => (0, Command::Write { extent, is_durable }),
            FLUSH => (0, Command::Flush),
            TRIM => (0, Command::Trim { extent, is_durable }),
            WRITE_ZEROES => {
                let keeps_space = has(FLAG_NO_HOLE);
                let command = Command::WriteZeros {
                    extent,
                    is_durable,
                    keeps_space,
                };
                (FLAG_NO_HOLE, command)
            }
            BLOCK_STATUS if rules.agreement.tells_holes => {
                let is_one_enough = has(FLAG_REQ_ONE);
                let command = Command::Status {
                    extent,
                    is_one_enough,
                };
                (FLAG_REQ_ONE, command)
            }
            _ => return Err(Errno::Invalid),
        };
        if self.flags & !(FLAG_FUA | known_flags) != 0 {
            return Err(Errno::Invalid);
        }
        let changes = matches!(self.kind, WRITE | TRIM | WRITE_ZEROES);
        match command {
            _ if changes && rules.is_read_only => Err(Errno::NotPermitted),
            Command::Flush if self.offset != 0 || self.len != 0 => Err(Errno::Invalid),
            Command::Flush => Ok(command),
            Command::Write { .. } | Command::WriteZeros { .. } if !is_inside => Err(Errno::NoSpace),
            _ if !is_inside => Err(Errno::Invalid),
            Command::Read { is_whole, .. } if self.len > NBD_REQUEST_BYTES_MAX => {
                Err(if is_whole {
                    Errno::Overflow
                } else {
                    Errno::Invalid
                })
            }
            Command::Status { .. } if self.len == 0 => Err(Errno::Invalid),
            command => Ok(command),
        }
    }
}
