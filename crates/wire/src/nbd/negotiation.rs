//! The negotiation: from the greeting to the first request, as bytes in and bytes out.
//!
//! "Fixed newstyle": the server greets, the client says what it can, then sends options one by one
//! until one of them begins the transmission. A client of the older newstyle sends only the last
//! one. There is one device, under its own name and under the empty one.

use super::NbdError;
use super::option::{EXPORT_NAME, Flawed, HEAD_BYTES, OPTION_MAGIC, OptionHead, Wish};
use base::limits::{NBD_OPTIONS_MAX, NBD_REQUEST_BYTES_MAX};
use bytes::{Buf, BufMut, BytesMut};

/// "NBDMAGIC".
const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// What the server can, and what the client can: fixed newstyle, and no zeros behind the answer to
/// the oldest option.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const RESERVED_BYTES: usize = 124;

const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;
const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
const REP_ERR_INVALID: u32 = (1 << 31) + 3;
const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

const FLAG_HAS_FLAGS: u16 = 1;
const FLAG_READ_ONLY: u16 = 1 << 1;
const FLAG_SEND_FLUSH: u16 = 1 << 2;
const FLAG_SEND_FUA: u16 = 1 << 3;
const FLAG_SEND_TRIM: u16 = 1 << 5;
const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
const FLAG_SEND_DF: u16 = 1 << 7;
const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;

/// The one thing that is told about blocks: whether they are holes.
const NAMESPACE: &str = "base:";
const ALLOCATION: &str = "base:allocation";
/// By what replies name it.
pub(super) const ALLOCATION_ID: u32 = 1;

/// What a client is told about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// For people.
    pub description: String,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// The length in which it is best read and written, in bytes.
    pub block_bytes: u32,
    /// Whether it refuses changes.
    pub is_read_only: bool,
}

impl Facts {
    fn flags(&self, is_structured: bool) -> u16 {
        let changes = if self.is_read_only {
            FLAG_READ_ONLY
        } else {
            FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES
        };
        let always = FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN;
        let whole = if is_structured { FLAG_SEND_DF } else { 0 };
        always | changes | whole
    }

    fn is_named(&self, name: &str) -> bool {
        name.is_empty() || name == self.name
    }

    /// What is best, as the protocol allows it: a power of two from 512 bytes up.
    fn preferred_bytes(&self) -> u32 {
        let block = self.block_bytes.max(4096);
        block
            .checked_next_power_of_two()
            .map_or(4096, |bytes| bytes.min(NBD_REQUEST_BYTES_MAX))
    }
}

/// What holds for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Replies say where data is.
    pub is_structured: bool,
    /// It may be asked where holes are.
    pub tells_holes: bool,
}

/// How far a negotiation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The input must have so many bytes before it can go on.
    Wants(usize),
    /// Requests follow.
    Agreed(Agreement),
    /// The client wants nothing more.
    Ended,
}

enum Stage {
    ClientFlags,
    Option,
    Data(OptionHead),
}

/// The server's side of one negotiation.
pub struct Negotiation<'a> {
    facts: &'a Facts,
    stage: Stage,
    leaves_zeros_out: bool,
    agreement: Agreement,
    options: usize,
}

impl<'a> Negotiation<'a> {
    /// Begins one; the greeting is appended to `output`.
    #[must_use]
    pub fn begin(facts: &'a Facts, output: &mut BytesMut) -> Self {
        output.put_u64(GREETING_MAGIC);
        output.put_u64(OPTION_MAGIC);
        output.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
        Self {
            facts,
            stage: Stage::ClientFlags,
            leaves_zeros_out: false,
            agreement: Agreement::default(),
            options: 0,
        }
    }

    /// Takes what it can from the front of `input` and appends the answers to `output`.
    ///
    /// # Errors
    /// [`NbdError`]: the connection is to be closed, after what is in `output` was sent.
    pub fn advance(
        &mut self,
        input: &mut BytesMut,
        output: &mut BytesMut,
    ) -> Result<Progress, NbdError> {
        loop {
            let wanted = match self.stage {
                Stage::ClientFlags => 4,
                Stage::Option => HEAD_BYTES,
                Stage::Data(head) => head.data_bytes,
            };
            if input.len() < wanted {
                return Ok(Progress::Wants(wanted));
            }
            let bytes = input.split_to(wanted);
            match self.stage {
                Stage::ClientFlags => {
                    self.take_client_flags(&bytes)?;
                    self.stage = Stage::Option;
                }
                Stage::Option => {
                    self.options += 1;
                    if self.options > NBD_OPTIONS_MAX {
                        return Err(NbdError::Protocol("options without end"));
                    }
                    self.stage = Stage::Data(OptionHead::parse(&bytes)?);
                }
                Stage::Data(head) => {
                    self.stage = Stage::Option;
                    let wish = Wish::parse(head.number, bytes.freeze());
                    if let Some(end) = self.answer(head.number, wish, output)? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    fn take_client_flags(&mut self, mut bytes: &[u8]) -> Result<(), NbdError> {
        let flags = bytes.get_u32();
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(NbdError::Protocol("the client wants what was not offered"));
        }
        self.leaves_zeros_out = flags & u32::from(NO_ZEROES) != 0;
        Ok(())
    }

    /// Answers one option. What it returns ends the negotiation.
    fn answer(
        &mut self,
        number: u32,
        wish: Result<Wish, Flawed>,
        output: &mut BytesMut,
    ) -> Result<Option<Progress>, NbdError> {
        let mut reply = |kind, data: &[u8]| put_reply(output, number, kind, data);
        match wish {
            // It has no answer but the device.
            Err(Flawed) if number == EXPORT_NAME => {
                return Err(NbdError::Protocol("a name that cannot be one"));
            }
            Err(Flawed) => reply(REP_ERR_INVALID, b"the option contradicts itself"),
            Ok(Wish::Unknown) => reply(REP_ERR_UNSUP, b"not known here"),
            Ok(Wish::Abort) => {
                reply(REP_ACK, b"");
                return Ok(Some(Progress::Ended));
            }
            Ok(Wish::List) => {
                let mut data = BytesMut::new();
                put_text(&mut data, &self.facts.name);
                data.put_slice(self.facts.description.as_bytes());
                reply(REP_SERVER, &data);
                reply(REP_ACK, b"");
            }
            Ok(Wish::StructuredReply) => {
                self.agreement.is_structured = true;
                reply(REP_ACK, b"");
            }
            Ok(Wish::ExportName(name)) => {
                if !self.facts.is_named(&name) {
                    return Err(NbdError::UnknownExport);
                }
                self.put_export(output);
                return Ok(Some(Progress::Agreed(self.agreement)));
            }
            Ok(Wish::Info { name, .. } | Wish::MetaContext { name, .. })
                if !self.facts.is_named(&name) =>
            {
                reply(REP_ERR_UNKNOWN, b"there is no such device");
            }
            Ok(Wish::Info { facts, goes_on, .. }) => {
                for info in self.infos(&facts) {
                    reply(REP_INFO, &info);
                }
                reply(REP_ACK, b"");
                return Ok(goes_on.then_some(Progress::Agreed(self.agreement)));
            }
            Ok(Wish::MetaContext { queries, sets, .. }) => {
                if sets && !self.agreement.is_structured {
                    reply(REP_ERR_INVALID, b"only with structured replies");
                    return Ok(None);
                }
                let is_wanted = wants_allocation(&queries, sets);
                if sets {
                    self.agreement.tells_holes = is_wanted;
                }
                if is_wanted {
                    let mut data = BytesMut::new();
                    data.put_u32(if sets { ALLOCATION_ID } else { 0 });
                    data.put_slice(ALLOCATION.as_bytes());
                    reply(REP_META_CONTEXT, &data);
                }
                reply(REP_ACK, b"");
            }
        }
        Ok(None)
    }

    /// The answer to the oldest option.
    fn put_export(&self, output: &mut BytesMut) {
        output.put_u64(self.facts.len_bytes);
        output.put_u16(self.facts.flags(self.agreement.is_structured));
        if !self.leaves_zeros_out {
            output.put_bytes(0, RESERVED_BYTES);
        }
    }

    fn infos(&self, wanted: &[u16]) -> Vec<BytesMut> {
        let facts = self.facts;
        let info = |kind: u16, fill: &dyn Fn(&mut BytesMut)| {
            let mut data = BytesMut::new();
            data.put_u16(kind);
            fill(&mut data);
            data
        };
        // This one is sent whether it is wanted or not.
        let mut infos = vec![info(INFO_EXPORT, &|data| {
            data.put_u64(facts.len_bytes);
            data.put_u16(facts.flags(self.agreement.is_structured));
        })];
        if wanted.contains(&INFO_NAME) {
            infos.push(info(INFO_NAME, &|data| {
                data.put_slice(facts.name.as_bytes())
            }));
        }
        if wanted.contains(&INFO_DESCRIPTION) {
            let description = facts.description.as_bytes();
            infos.push(info(INFO_DESCRIPTION, &|data| data.put_slice(description)));
        }
        if wanted.contains(&INFO_BLOCK_SIZE) {
            infos.push(info(INFO_BLOCK_SIZE, &|data| {
                data.put_u32(1);
                data.put_u32(facts.preferred_bytes());
                data.put_u32(NBD_REQUEST_BYTES_MAX);
            }));
        }
        infos
    }
}

/// Whether queries name what can be asked about blocks. To list, no query means all, and a
/// namespace alone all that is in it.
fn wants_allocation(queries: &[String], sets: bool) -> bool {
    let is_listed = |query: &String| !sets && query == NAMESPACE;
    (queries.is_empty() && !sets)
        || queries
            .iter()
            .any(|query| query == ALLOCATION || is_listed(query))
}

fn put_reply(output: &mut BytesMut, option: u32, kind: u32, data: &[u8]) {
    output.put_u64(REPLY_MAGIC);
    output.put_u32(option);
    output.put_u32(kind);
    output.put_u32(data.len() as u32);
    output.put_slice(data);
}

fn put_text(output: &mut BytesMut, text: &str) {
    output.put_u32(text.len() as u32);
    output.put_slice(text.as_bytes());
}
