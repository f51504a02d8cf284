//! One option of the negotiation: what a client sends, from bytes to types.

use super::NbdError;
use base::limits::{NBD_OPTION_BYTES_MAX, NBD_TEXT_BYTES_MAX};
use bytes::{Buf, Bytes};

/// "IHAVEOPT": the server's greeting has it, and so has every option.
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
/// Magic, number and length.
pub(super) const HEAD_BYTES: usize = 16;

pub(super) const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;

/// What comes before an option's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OptionHead {
    pub(super) number: u32,
    pub(super) data_bytes: usize,
}

impl OptionHead {
    /// Reads the first [`HEAD_BYTES`] bytes of an option.
    pub(super) fn parse(mut bytes: &[u8]) -> Result<Self, NbdError> {
        if bytes.get_u64() != OPTION_MAGIC {
            return Err(NbdError::Protocol("an option begins otherwise"));
        }
        let number = bytes.get_u32();
        let data_bytes = bytes.get_u32() as usize;
        if data_bytes > NBD_OPTION_BYTES_MAX {
            return Err(NbdError::TooLong {
                what: "an option",
                bytes: data_bytes as u64,
            });
        }
        Ok(Self { number, data_bytes })
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// This device, without an answer that could be a refusal.
    ExportName(String),
    /// To end here.
    Abort,
    /// Which devices there are.
    List,
    /// Replies that say where data is.
    StructuredReply,
    /// About a device; or the device itself.
    Info {
        name: String,
        /// Numbers of what is wanted; numbers that nobody knows are left unanswered.
        facts: Vec<u16>,
        goes_on: bool,
    },
    /// What can be asked about the device's blocks; or to be told this from now on.
    MetaContext {
        name: String,
        queries: Vec<String>,
        sets: bool,
    },
    /// Something that nobody here knows.
    Unknown,
}

/// The data of an option contradicts itself; the client is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flawed;

impl Wish {
    pub(super) fn parse(number: u32, mut data: Bytes) -> Result<Self, Flawed> {
        let data = &mut data;
        let wish = match number {
            EXPORT_NAME => {
                let len = data.len();
                Self::ExportName(text(data, len)?)
            }
            // Whoever leaves may say what he likes.
            ABORT => return Ok(Self::Abort),
            LIST => Self::List,
            STRUCTURED_REPLY => Self::StructuredReply,
            INFO | GO => {
                let name = counted_text(data)?;
                let count = usize::from(short(data)?);
                let facts = (0..count).map(|_| short(data));
                Self::Info {
                    name,
                    facts: facts.collect::<Result<_, _>>()?,
                    goes_on: number == GO,
                }
            }
            LIST_META_CONTEXT | SET_META_CONTEXT => {
                let name = counted_text(data)?;
                let count = long(data)? as usize;
                // Each has four bytes at least, so this is checked before memory is taken.
                if count > data.len() / 4 {
                    return Err(Flawed);
                }
                let queries = (0..count).map(|_| counted_text(data));
                Self::MetaContext {
                    name,
                    queries: queries.collect::<Result<_, _>>()?,
                    sets: number == SET_META_CONTEXT,
                }
            }
            _ => return Ok(Self::Unknown),
        };
        if data.is_empty() {
            Ok(wish)
        } else {
            Err(Flawed)
        }
    }
}

fn short(data: &mut Bytes) -> Result<u16, Flawed> {
    data.try_get_u16().map_err(|_| Flawed)
}

fn long(data: &mut Bytes) -> Result<u32, Flawed> {
    data.try_get_u32().map_err(|_| Flawed)
}

fn counted_text(data: &mut Bytes) -> Result<String, Flawed> {
    let len = long(data)? as usize;
    text(data, len)
}

fn text(data: &mut Bytes, len: usize) -> Result<String, Flawed> {
    if len > NBD_TEXT_BYTES_MAX || len > data.len() {
        return Err(Flawed);
    }
    let bytes = data.split_to(len);
    let text = std::str::from_utf8(&bytes).map_err(|_| Flawed)?;
    if text.contains('\0') {
        return Err(Flawed);
    }
    Ok(text.to_owned())
}
