//! From bytes of the device to a [`Message`].
//!
//! The kernel is trusted, and yet nothing is taken for granted: every length, every NUL and every
//! number with a closed set of meanings is checked, and what does not fit is a [`ParseError`] that
//! says where. So a kernel that speaks otherwise than agreed is found out at the first request,
//! not by the data that it loses; and the parser can be fed anything.

use super::abi::UNIQUE_RESEND;
use super::abi::flags::InitFlags;
use super::abi::input::{self, InHeader};
use super::abi::opcode::Opcode;
use super::cursor::Cursor;
use super::operation;
use super::request::{NodeId, Request, SecurityLabel, Unique};
use bytes::Bytes;
use zerocopy::FromBytes;

/// What one read of the device brings.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The kernel's offer: the first message.
    Init(InitOffer),
    /// Something to answer.
    Request(Request),
    /// Lookups that the kernel has forgotten. Not answered.
    Forget(Vec<Forget>),
    /// The caller of a request no longer wants to wait. Not answered.
    Interrupt {
        /// The request, which may not have been seen yet or be answered already.
        target: Unique,
    },
    /// The end: the last message of a mount, not sent when the connection is aborted.
    Destroy {
        /// To answer.
        unique: Unique,
    },
}

/// What the kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitOffer {
    /// To answer.
    pub unique: Unique,
    /// Major version of the protocol.
    pub major: u32,
    /// Minor version of the protocol.
    pub minor: u32,
    /// The most that the kernel reads ahead, in bytes.
    pub max_readahead: u32,
    /// Everything else.
    pub flags: InitFlags,
}

/// The kernel has dropped an inode, or some of the lookups that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The inode.
    pub node: NodeId,
    /// How many answers with this inode are taken back. When all are, the number may be used for
    /// another inode.
    pub lookups: u64,
}

/// Bytes that are no message of the protocol as it was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad request {opcode} from the kernel: {flaw}")]
pub struct ParseError {
    /// The request to answer, if it got that far and wants an answer.
    pub unique: Option<Unique>,
    /// The number of the operation, 0 if there was none.
    pub opcode: u32,
    /// What is wrong.
    pub flaw: Flaw,
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// An operation that this module does not know: newer, or of no use over a network.
    #[error("the operation is not known")]
    UnknownOperation,
    /// Its header states another length than it has.
    #[error("its length is not the stated one")]
    Length,
    /// It ends within a structure or within data.
    #[error("it is truncated")]
    Truncated,
    /// Something follows its last field.
    #[error("something follows its last field")]
    Trailing,
    /// A string without NUL.
    #[error("a string has no end")]
    Unterminated,
    /// An empty name, or one with a slash.
    #[error("a name is empty or has a slash")]
    BadName,
    /// A number outside its closed set of meanings.
    #[error("a number has no meaning")]
    BadNumber,
}

/// How to read what depends on the agreement made at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parser {
    /// [`InitFlags::SETXATTR_EXT`] is in force.
    pub setxattr_ext: bool,
}

impl Parser {
    /// Parses one message; what it carries is copied out of `bytes`.
    ///
    /// # Errors
    /// [`ParseError`] if it is not exactly one message.
    pub fn parse(self, bytes: &[u8]) -> Result<Message, ParseError> {
        self.parse_either(bytes, None)
    }

    /// Parses one message; the data that it carries stays where it is.
    ///
    /// # Errors
    /// [`ParseError`] if it is not exactly one message.
    pub fn parse_shared(self, bytes: &Bytes) -> Result<Message, ParseError> {
        self.parse_either(bytes, Some(bytes))
    }

    fn parse_either(self, bytes: &[u8], shared: Option<&Bytes>) -> Result<Message, ParseError> {
        let Ok((header, body)) = InHeader::read_from_prefix(bytes) else {
            return Err(ParseError {
                unique: None,
                opcode: 0,
                flaw: Flaw::Truncated,
            });
        };
        let opcode = Opcode::from_number(header.opcode);
        let answered = !matches!(
            opcode,
            Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt)
        );
        let failed = |flaw| ParseError {
            unique: answered.then_some(Unique(header.unique)),
            opcode: header.opcode,
            flaw,
        };
        if usize::try_from(header.len) != Ok(bytes.len()) {
            return Err(failed(Flaw::Length));
        }
        let opcode = opcode.ok_or_else(|| failed(Flaw::UnknownOperation))?;
        self.message(opcode, &header, body, shared).map_err(failed)
    }

    fn message(
        self,
        opcode: Opcode,
        header: &InHeader,
        body: &[u8],
        shared: Option<&Bytes>,
    ) -> Result<Message, Flaw> {
        let extensions_len = usize::from(header.extensions_len) * 8;
        let body_len = body
            .len()
            .checked_sub(extensions_len)
            .ok_or(Flaw::Truncated)?;
        let (body, extensions) = body.split_at(body_len);
        let mut cursor = Cursor::new(body, shared);
        let message = match opcode {
            // A newer kernel may append to its offer.
            Opcode::Init => return init(header, body),
            Opcode::Destroy => Message::Destroy {
                unique: Unique(header.unique),
            },
            Opcode::Forget => {
                let forget: input::ForgetIn = cursor.take()?;
                Message::Forget(vec![Forget {
                    node: NodeId(header.node),
                    lookups: forget.lookups,
                }])
            }
            Opcode::BatchForget => Message::Forget(batch_forget(&mut cursor)?),
            Opcode::Interrupt => {
                let interrupt: input::InterruptIn = cursor.take()?;
                Message::Interrupt {
                    target: Unique(interrupt.unique),
                }
            }
            _ => {
                let operation = operation::parse(self, opcode, header, &mut cursor)?;
                let mut request = Request {
                    unique: Unique(header.unique),
                    resent: header.unique & UNIQUE_RESEND != 0,
                    node: NodeId(header.node),
                    uid: header.uid,
                    gid: header.gid,
                    pid: header.pid,
                    groups: Vec::new(),
                    security: Vec::new(),
                    operation,
                };
                extend(&mut request, Cursor::new(extensions, None))?;
                Message::Request(request)
            }
        };
        cursor.finish()?;
        Ok(message)
    }
}

/// The number of the operation of a message, if it has a whole header.
pub(crate) fn opcode(bytes: &[u8]) -> Option<Opcode> {
    let (header, _) = InHeader::read_from_prefix(bytes).ok()?;
    Opcode::from_number(header.opcode)
}

fn init(header: &InHeader, body: &[u8]) -> Result<Message, Flaw> {
    // Old kernels send less, new ones fill the rest with what was not agreed on.
    let known = body.len().min(size_of::<input::InitIn>());
    if known < input::INIT_IN_BYTES_OLD {
        return Err(Flaw::Truncated);
    }
    let mut whole = [0; size_of::<input::InitIn>()];
    whole[..known].copy_from_slice(&body[..known]);
    let init: input::InitIn = zerocopy::transmute!(whole);
    let mut flags = InitFlags::from_bits_retain(u64::from(init.flags));
    if flags.contains(InitFlags::INIT_EXT) {
        flags |= InitFlags::from_bits_retain(u64::from(init.flags2) << 32);
    }
    Ok(Message::Init(InitOffer {
        unique: Unique(header.unique),
        major: init.major,
        minor: init.minor,
        max_readahead: init.max_readahead,
        flags,
    }))
}

fn batch_forget(cursor: &mut Cursor<'_>) -> Result<Vec<Forget>, Flaw> {
    let batch: input::BatchForgetIn = cursor.take()?;
    let count = usize::try_from(batch.count).map_err(|_| Flaw::Truncated)?;
    // Compared before anything is allocated: the count is only a claim.
    if count > cursor.len() / size_of::<input::ForgetOne>() {
        return Err(Flaw::Truncated);
    }
    let one = |cursor: &mut Cursor<'_>| -> Result<Forget, Flaw> {
        let one: input::ForgetOne = cursor.take()?;
        Ok(Forget {
            node: NodeId(one.node),
            lookups: one.lookups,
        })
    };
    (0..count).map(|_| one(cursor)).collect()
}

/// Reads what follows a request: groups and security labels.
fn extend(request: &mut Request, mut cursor: Cursor<'_>) -> Result<(), Flaw> {
    while cursor.len() > 0 {
        let header: input::ExtensionHeader = cursor.take()?;
        let size = usize::try_from(header.size).map_err(|_| Flaw::Truncated)?;
        let len = size
            .checked_sub(size_of::<input::ExtensionHeader>())
            .ok_or(Flaw::Truncated)?;
        let mut extension = Cursor::new(cursor.slice(len)?, None);
        if header.kind <= input::EXTENSION_SECURITY_MAX {
            for _ in 0..header.kind {
                request.security.push(security_label(&mut extension)?);
            }
        } else if header.kind == input::EXTENSION_GROUPS {
            let count: u32 = extension.take()?;
            for _ in 0..count {
                request.groups.push(extension.take()?);
            }
        }
        // Other kinds were not agreed on; they are passed over.
    }
    Ok(())
}

fn security_label(cursor: &mut Cursor<'_>) -> Result<SecurityLabel, Flaw> {
    let context: input::SecurityContext = cursor.take()?;
    let size = usize::try_from(context.size).map_err(|_| Flaw::Truncated)?;
    Ok(SecurityLabel {
        name: cursor.string()?,
        value: cursor.data(size)?,
    })
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
