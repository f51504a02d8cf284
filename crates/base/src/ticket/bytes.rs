//! The bytes of a ticket, as drawn in `docs/formats/ticket.md`. Every ticket has exactly one form:
//! what would be written differently is not read.

use super::terms::{Class, Head, Operations, Slice, Terms};
use super::verify::TicketError;
use crate::limits::{TICKET_BYTES_MAX, TICKET_LINKS_MAX};
use crate::{ClusterId, ServerId, StoreId, TicketId, VolumeId};

/// The only one there has been.
const TICKET_FORMAT_VERSION: u16 = 1;
const MAGIC: [u8; 4] = *b"AZTK";
pub(super) const CODE_BYTES: usize = 32;

pub(super) fn put_head(bytes: &mut Vec<u8>, head: &Head) {
    bytes.extend(MAGIC);
    bytes.extend(TICKET_FORMAT_VERSION.to_le_bytes());
    bytes.extend([head.class as u8, 0]);
    bytes.extend(head.cluster.0);
    bytes.extend(head.server.0);
    bytes.extend(head.id.0);
    bytes.extend(head.volume.0);
    bytes.extend(head.epoch.to_le_bytes());
    bytes.extend(head.holder.to_le_bytes());
    bytes.extend(head.key_id.to_le_bytes());
}

pub(super) fn put_terms(bytes: &mut Vec<u8>, terms: &Terms) {
    let slices = u8::try_from(terms.slices.len()).expect("valid terms have few slices");
    let path = u16::try_from(terms.path.len()).expect("valid terms have a short path");
    bytes.extend([terms.operations.bits(), slices]);
    bytes.extend(path.to_le_bytes());
    bytes.extend(terms.burst_millis.to_le_bytes());
    bytes.extend(terms.start_secs.to_le_bytes());
    bytes.extend(terms.end_secs.to_le_bytes());
    bytes.extend(terms.lifetime_end_secs.to_le_bytes());
    for slice in &terms.slices {
        bytes.extend(slice.device.0);
        bytes.extend(slice.share_ppm.to_le_bytes());
        bytes.extend(slice.stripe_unit_bytes.to_le_bytes());
        bytes.extend(slice.au_budget.to_le_bytes());
    }
    bytes.extend(&terms.path);
}

/// A ticket taken apart.
pub(super) struct Parts<'a> {
    pub(super) head: Head,
    pub(super) lineage: Vec<(TicketId, Terms)>,
    /// What each code of the chain is computed from: head and first terms, then each link.
    pub(super) signed: Vec<&'a [u8]>,
    pub(super) code: [u8; CODE_BYTES],
}

impl<'a> Parts<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, TicketError> {
        if bytes.len() > TICKET_BYTES_MAX {
            return Err(TicketError::Malformed);
        }
        let mut fields = Fields(bytes);
        let head = fields.head()?;
        let mut lineage = vec![(head.id, fields.terms()?)];
        let (mut signed, mut from) = (Vec::new(), bytes);
        loop {
            let (part, rest) = from.split_at(from.len() - fields.0.len());
            signed.push(part);
            from = rest;
            if fields.0.len() <= CODE_BYTES {
                break;
            }
            if lineage.len() > TICKET_LINKS_MAX {
                return Err(TicketError::Malformed);
            }
            lineage.push((TicketId(fields.take()?), fields.terms()?));
        }
        let code = fields.0.try_into();
        let code = code.map_err(|_| TicketError::Truncated)?;
        Ok(Self {
            head,
            lineage,
            signed,
            code,
        })
    }
}

/// What is left to read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TicketError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(TicketError::Truncated)?;
        self.0 = rest;
        Ok(*field)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], TicketError> {
        let (bytes, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(TicketError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, TicketError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, TicketError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, TicketError> {
        self.take().map(u64::from_le_bytes)
    }

    fn head(&mut self) -> Result<Head, TicketError> {
        if self.take()? != MAGIC {
            return Err(TicketError::Malformed);
        }
        let version = self.u16()?;
        if version != TICKET_FORMAT_VERSION {
            return Err(TicketError::UnknownVersion(version));
        }
        let class = match self.take()? {
            [0, 0] => Class::Standard,
            [1, 0] => Class::Assured,
            _ => return Err(TicketError::Malformed),
        };
        Ok(Head {
            class,
            cluster: ClusterId(self.take()?),
            server: ServerId(self.take()?),
            id: TicketId(self.take()?),
            volume: VolumeId(self.take()?),
            epoch: self.u64()?,
            holder: self.u64()?,
            key_id: self.u32()?,
        })
    }

    fn terms(&mut self) -> Result<Terms, TicketError> {
        let [operations, slices] = self.take()?;
        let path_bytes = self.u16()?;
        let terms = Terms {
            operations: Operations::from_bits(operations).ok_or(TicketError::Malformed)?,
            burst_millis: self.u32()?,
            start_secs: self.u64()?,
            end_secs: self.u64()?,
            lifetime_end_secs: self.u64()?,
            slices: (0..slices)
                .map(|_| self.slice())
                .collect::<Result<_, _>>()?,
            path: self.bytes(path_bytes.into())?.to_vec(),
        };
        terms
            .is_valid()
            .then_some(terms)
            .ok_or(TicketError::Malformed)
    }

    fn slice(&mut self) -> Result<Slice, TicketError> {
        Ok(Slice {
            device: StoreId(self.take()?),
            share_ppm: self.u32()?,
            stripe_unit_bytes: self.u32()?,
            au_budget: self.u64()?,
        })
    }
}
