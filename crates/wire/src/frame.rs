//! Frames: what travels on a connection.
//!
//! A frame is a fixed header, a body (one postcard message) and a payload (raw file data). Body and
//! header share one checksum, the payload has its own, which is left out under TLS, where every
//! byte is authenticated already. Payloads stay apart so that file data never passes through the
//! serializer: it goes from the socket into the buffer that the application reads, and from where
//! it was read, in one piece or several, to the socket.
//!
//! The bytes are drawn in `docs/formats/wire.md`.

use crate::payload::Payload;
use base::RequestId;
use base::limits::{FRAME_BODY_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX};
use bytes::Bytes;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"AZK1";
/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Client to server, first on every connection: [`crate::message::Hello`].
    Hello = 1,
    /// Server to client, the answer: [`crate::message::Welcome`].
    Welcome = 2,
    /// Client to server on a connection without TLS: [`crate::message::Proof`].
    Proof = 3,
    /// Client to server: [`crate::message::Request`].
    Request = 4,
    /// Server to client: [`crate::message::Reply`] to the request of the same id.
    Reply = 5,
    /// Client to server: the request of this id is not wanted any more. No body.
    Cancel = 6,
    /// Server to client, unasked: [`crate::message::Notice`].
    Notice = 7,
    /// Either way, last on a connection: [`crate::message::Farewell`], why it ends.
    Farewell = 8,
}

/// How urgent a frame is; lower goes first at every queue on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Metadata, leases, locks: small, somebody waits.
    Metadata = 0,
    /// Data that an application waits for.
    Demand = 1,
    /// Data that an application has written.
    Write = 2,
    /// Data that it will probably want.
    Prediction = 3,
    /// Nobody waits.
    Background = 4,
}

impl Class {
    /// All classes, most urgent first.
    pub const ALL: [Self; 5] = [
        Self::Metadata,
        Self::Demand,
        Self::Write,
        Self::Prediction,
        Self::Background,
    ];

    /// Position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One frame. `body` is at most 1 MiB, `payload` at most 1 MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is for.
    pub kind: FrameKind,
    /// How urgent it is.
    pub class: Class,
    /// Whether this request was sent before and its reply was lost with a connection.
    pub resent: bool,
    /// Which request it belongs to; 0 for kinds without one.
    pub request: RequestId,
    /// One postcard message.
    pub body: Bytes,
    /// Raw file data.
    pub payload: Payload,
}

const FLAG_PAYLOAD_CHECKSUM: u16 = 1;
const FLAG_RESENT: u16 = 2;
const FLAGS_KNOWN: u16 = FLAG_PAYLOAD_CHECKSUM | FLAG_RESENT;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    kind: u8,
    class: u8,
    flags: U16,
    request: U64,
    body_bytes: U32,
    payload_bytes: U32,
    payload_checksum: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
/// The header's checksum covers all before it, then the body.
const CHECKED_BYTES: usize = HEADER_BYTES - 4;

/// A header that has been read and whose lengths are within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    kind: FrameKind,
    class: Class,
    flags: u16,
    request: RequestId,
    body_bytes: usize,
    payload_bytes: usize,
    payload_checksum: u32,
    checksum: u32,
    head_checksum: u32,
}

/// Why bytes are not a frame. Each of them ends the connection: after a bad frame nothing tells
/// where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer speaks something else, or frames have slipped.
    #[error("not an Azekura frame (first bytes {0:02x?})")]
    Magic([u8; 4]),
    /// A kind of a newer version.
    #[error("frame of unknown kind {0}")]
    Kind(u8),
    /// A class of a newer version.
    #[error("frame of unknown class {0}")]
    Class(u8),
    /// Flags of a newer version.
    #[error("frame with unknown flags {0:#06x}")]
    Flags(u16),
    /// A body or payload over the limit.
    #[error("frame too large: body {body} bytes, payload {payload} bytes")]
    TooLarge {
        /// Announced body bytes.
        body: u32,
        /// Announced payload bytes.
        payload: u32,
    },
    /// Header or body damaged under way.
    #[error("frame damaged: checksum of header and body does not match")]
    Checksum,
    /// Payload damaged under way.
    #[error("frame damaged: checksum of payload does not match")]
    PayloadChecksum,
}

impl Header {
    /// Reads a header and checks every field but the checksum, which needs the body.
    ///
    /// # Errors
    /// [`FrameError`]; the connection must be closed.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let raw = RawHeader::ref_from_bytes(bytes).expect("lengths are equal by type");
        if raw.magic != MAGIC {
            return Err(FrameError::Magic(raw.magic));
        }
        let kind = match raw.kind {
            1 => FrameKind::Hello,
            2 => FrameKind::Welcome,
            3 => FrameKind::Proof,
            4 => FrameKind::Request,
            5 => FrameKind::Reply,
            6 => FrameKind::Cancel,
            7 => FrameKind::Notice,
            8 => FrameKind::Farewell,
            other => return Err(FrameError::Kind(other)),
        };
        let class = *Class::ALL
            .get(usize::from(raw.class))
            .ok_or(FrameError::Class(raw.class))?;
        let flags = raw.flags.get();
        if flags & !FLAGS_KNOWN != 0 {
            return Err(FrameError::Flags(flags));
        }
        let (body, payload) = (raw.body_bytes.get(), raw.payload_bytes.get());
        if body as usize > FRAME_BODY_BYTES_MAX || payload as usize > FRAME_PAYLOAD_BYTES_MAX {
            return Err(FrameError::TooLarge { body, payload });
        }
        Ok(Self {
            kind,
            class,
            flags,
            request: RequestId(raw.request.get()),
            body_bytes: body as usize,
            payload_bytes: payload as usize,
            payload_checksum: raw.payload_checksum.get(),
            checksum: raw.checksum.get(),
            head_checksum: crc32c::crc32c(&bytes[..CHECKED_BYTES]),
        })
    }

    /// Bytes of body that follow the header.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Bytes of payload that follow the body.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Checks the header with its body, before the payload is waited for.
    ///
    /// # Errors
    /// [`FrameError::Checksum`].
    pub fn check_body(&self, body: &[u8]) -> Result<(), FrameError> {
        assert_eq!(
            body.len(),
            self.body_bytes,
            "the caller read another length"
        );
        if crc32c::crc32c_append(self.head_checksum, body) == self.checksum {
            Ok(())
        } else {
            Err(FrameError::Checksum)
        }
    }

    /// Puts the frame together; `body` has passed [`Self::check_body`].
    ///
    /// # Errors
    /// [`FrameError::PayloadChecksum`].
    pub fn into_frame(self, body: Bytes, payload: Bytes) -> Result<Frame, FrameError> {
        assert_eq!(
            payload.len(),
            self.payload_bytes,
            "the caller read another length"
        );
        if self.flags & FLAG_PAYLOAD_CHECKSUM != 0
            && crc32c::crc32c(&payload) != self.payload_checksum
        {
            return Err(FrameError::PayloadChecksum);
        }
        Ok(Frame {
            kind: self.kind,
            class: self.class,
            resent: self.flags & FLAG_RESENT != 0,
            request: self.request,
            body,
            payload: payload.into(),
        })
    }
}

impl Frame {
    /// The header of this frame; `checksum_payload` where the connection does not authenticate its
    /// bytes itself.
    #[must_use]
    pub fn encode_header(&self, checksum_payload: bool) -> [u8; HEADER_BYTES] {
        assert!(
            self.body.len() <= FRAME_BODY_BYTES_MAX,
            "body of {} bytes",
            self.body.len()
        );
        assert!(
            self.payload.len() <= FRAME_PAYLOAD_BYTES_MAX,
            "payload of {} bytes",
            self.payload.len()
        );
        let checksum_payload = checksum_payload && !self.payload.is_empty();
        let mut flags = 0;
        if checksum_payload {
            flags |= FLAG_PAYLOAD_CHECKSUM;
        }
        if self.resent {
            flags |= FLAG_RESENT;
        }
        let payload_checksum = if checksum_payload {
            self.payload.checksum()
        } else {
            0
        };
        let mut raw = RawHeader {
            magic: MAGIC,
            kind: self.kind as u8,
            class: self.class as u8,
            flags: U16::new(flags),
            request: U64::new(self.request.0),
            body_bytes: U32::new(self.body.len() as u32),
            payload_bytes: U32::new(self.payload.len() as u32),
            payload_checksum: U32::new(payload_checksum),
            checksum: U32::new(0),
        };
        let head = crc32c::crc32c(&raw.as_bytes()[..CHECKED_BYTES]);
        raw.checksum = U32::new(crc32c::crc32c_append(head, &self.body));
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// All bytes that the frame occupies on the line.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len() + self.payload.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Result<Frame, FrameError> {
        let (head, rest) = bytes.split_at(HEADER_BYTES);
        let header = Header::decode(head.try_into().expect("32 bytes"))?;
        let (body, payload) = rest.split_at(header.body_bytes());
        header.check_body(body)?;
        header.into_frame(
            Bytes::copy_from_slice(body),
            Bytes::copy_from_slice(payload),
        )
    }

    fn sample() -> Frame {
        Frame {
            kind: FrameKind::Reply,
            class: Class::Demand,
            resent: true,
            request: RequestId(0x0102_0304_0506_0708),
            body: Bytes::from_static(b"body"),
            payload: Bytes::from_static(b"payload").into(),
        }
    }

    fn encode(frame: &Frame) -> Vec<u8> {
        let mut bytes = frame.encode_header(true).to_vec();
        bytes.extend_from_slice(&frame.body);
        for piece in frame.payload.pieces() {
            bytes.extend_from_slice(piece);
        }
        bytes
    }

    #[test]
    fn the_bytes_are_those_of_the_format_document() {
        let bytes = encode(&sample());
        assert_eq!(bytes[..8], *b"AZK1\x05\x01\x03\x00");
        assert_eq!(bytes[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[16..24], [4, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(bytes.len(), 32 + 4 + 7);
        assert_eq!(decode(&bytes), Ok(sample()));
    }

    #[test]
    fn every_single_bit_flip_is_noticed() {
        let good = encode(&sample());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let same_lengths = bad[16..24] == good[16..24];
            if same_lengths {
                assert!(decode(&bad).is_err(), "bit {bit} flipped unnoticed");
            }
        }
    }

    #[test]
    fn lengths_over_the_limit_are_refused_before_anything_is_allocated() {
        let mut bytes = [0u8; HEADER_BYTES];
        bytes.copy_from_slice(&encode(&sample())[..HEADER_BYTES]);
        bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(
            Header::decode(&bytes),
            Err(FrameError::TooLarge { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_refused(
            bytes in any::<[u8; HEADER_BYTES]>(),
            aim in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if aim {
                bytes[..4].copy_from_slice(&MAGIC);
            }
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert!(header.body_bytes() <= FRAME_BODY_BYTES_MAX);
                prop_assert!(header.payload_bytes() <= FRAME_PAYLOAD_BYTES_MAX);
            }
        }
    }
}
