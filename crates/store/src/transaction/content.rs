//! Writing bytes of an AU.
//!
//! Bytes go one of two ways. *Direct*: into place now, before the entry of the log that speaks of
//! them; only where no live byte is. *Deferred*: as pieces of 4 KiB in the entry, and into place
//! at the next checkpoint; torn writes do no harm there because the log has the piece.
//!
//! An AU some of whose bytes ceased to be live in this batch takes no direct writes until the
//! batch is durable: a crash before that makes those bytes live again.

use super::Transaction;
use crate::content::{self, GroupAt, View};
use crate::key::Key;
use crate::layout::{GROUP_BYTES, Layout, PIECE_BYTES};
use crate::leaf::{Group, Leaf, Sum};
use crate::log::entry::PieceAt;
use crate::planted::{Mistake, planted};
use crate::read::Plan;
use crate::{Damage, StoreError};
use base::{BlockDevice, Extent};
use std::sync::Arc;

const PIECE: usize = PIECE_BYTES as usize;
/// Zeros for what lies between two writes.
static ZEROS: [u8; GROUP_BYTES as usize] = [0; GROUP_BYTES as usize];

impl View for Transaction<'_> {
    fn view_leaf(&self, key: &Key) -> Result<Leaf, StoreError> {
        self.leaf(key)
    }

    fn view_piece(&self, at: PieceAt) -> Option<Arc<[u8]>> {
        self.piece(at).cloned()
    }

    fn view_layout(&self) -> &Layout {
        &self.core.layout
    }
}

/// Direct writes that lie side by side, as one.
struct Direct<'a> {
    data: &'a [u8],
    /// Where on the device, and which part of the data.
    run: Option<(u64, usize, usize)>,
}

impl Direct<'_> {
    fn add(
        &mut self,
        device: &dyn BlockDevice,
        offset: u64,
        from: usize,
        to: usize,
    ) -> Result<(), StoreError> {
        if let Some((start, first, end)) = &mut self.run
            && *start + (*end - *first) as u64 == offset
            && *end == from
        {
            *end = to;
            return Ok(());
        }
        self.write(device)?;
        self.run = Some((offset, from, to));
        Ok(())
    }

    fn write(&mut self, device: &dyn BlockDevice) -> Result<(), StoreError> {
        if let Some((offset, from, to)) = self.run.take() {
            device.write_at(offset, &self.data[from..to])?;
        }
        Ok(())
    }
}

impl Transaction<'_> {
    /// Reads `len` bytes of an AU.
    pub(super) fn read_au(&self, au: u32, offset: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let mut plan = Plan::default();
        content::plan(self, au, Extent::new(offset, len as u64), 0, &mut plan)?;
        let mut bytes = vec![0; len];
        plan.carry_out(&*self.core.device, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes `data` at `offset` of an AU that no other object shares.
    pub(super) fn write_au(
        &mut self,
        au: u32,
        offset: u64,
        data: &[u8],
        is_large: bool,
    ) -> Result<(), StoreError> {
        let is_direct = is_large && !self.core.is_cut(au) && !self.staged.cut.contains(&au);
        let device = self.core.device.clone();
        let mut direct = Direct { data, run: None };
        let mut known: Option<(Key, Leaf)> = None;
        let mut at_data = 0;
        for at in GroupAt::each(au, Extent::new(offset, data.len() as u64)) {
            let key = at.key();
            let mut leaf = match known.take() {
                Some((same, leaf)) if same == key => leaf,
                other => {
                    if let Some((key, leaf)) = other {
                        self.put_leaf(key, &leaf);
                    }
                    self.leaf(&key)?
                }
            };
            let group = leaf.group_mut(at.index());
            let part = &data[at_data..][..at.to - at.from];
            if is_direct && self.extend_group(at, group, part)? {
                direct.add(
                    &*device,
                    at.offset(&self.core.layout) + at.from as u64,
                    at_data,
                    at_data + part.len(),
                )?;
            } else {
                self.defer(at, group, part)?;
            }
            at_data += part.len();
            known = Some((key, leaf));
        }
        if let Some((key, leaf)) = known {
            self.put_leaf(key, &leaf);
        }
        direct.write(&*device)
    }

    /// Takes `part` into the checksum of a group behind all that it has, with zeros between; false
    /// if it would not be behind, or the group is fine.
    fn extend_group(
        &mut self,
        at: GroupAt,
        group: &mut Group,
        part: &[u8],
    ) -> Result<bool, StoreError> {
        let sum = match group {
            Group::Empty => Sum::default(),
            Group::Coarse(sum) if sum.len as usize <= at.from => *sum,
            Group::Coarse(_) if at.from == 0 && planted(Mistake::DirectOverLive) => Sum::default(),
            Group::Coarse(_) | Group::Fine(_) | Group::Lost => return Ok(false),
        };
        let gap = &ZEROS[..at.from - sum.len as usize];
        if !gap.is_empty() {
            let offset = at.offset(&self.core.layout) + u64::from(sum.len);
            self.core.device.write_at(offset, gap)?;
        }
        *group = Group::Coarse(sum.append(gap).append(part));
        self.staged.is_direct = true;
        Ok(true)
    }

    /// Puts `part` into pieces that go through the log.
    fn defer(&mut self, at: GroupAt, group: &mut Group, part: &[u8]) -> Result<(), StoreError> {
        match group {
            // What goes as a whole need not be readable.
            Group::Coarse(sum) if at.from == 0 && sum.len as usize <= part.len() => {
                *group = Group::Fine(Vec::new());
            }
            _ => self.refine(at, group)?,
        }
        let mut rest = part;
        for (piece, from, to) in at.pieces() {
            let (new, after) = rest.split_at(to - from);
            rest = after;
            let len = to.max(group.piece(piece).len as usize);
            if new.len() == len {
                self.put_piece(at, group, piece, new.into());
                continue;
            }
            let mut bytes = vec![0; len];
            self.read_piece(at, group, piece, &mut bytes)?;
            bytes[from..to].copy_from_slice(new);
            self.put_piece(at, group, piece, bytes.into());
        }
        Ok(())
    }

    /// Makes bytes of an AU zeros that no checksum covers, as if they had never been written.
    pub(super) fn clear_au(&mut self, au: u32, extent: Extent) -> Result<(), StoreError> {
        self.staged.cut.insert(au);
        for at in GroupAt::each(au, extent) {
            let key = at.key();
            let mut leaf = self.leaf(&key)?;
            let group = leaf.group_mut(at.index());
            if *group == Group::Empty {
                continue;
            }
            if at.from == 0 && at.to as u64 == GROUP_BYTES {
                *group = Group::Empty;
            } else {
                self.clear_group(at, group)?;
            }
            self.put_leaf(key, &leaf);
        }
        Ok(())
    }

    fn clear_group(&mut self, at: GroupAt, group: &mut Group) -> Result<(), StoreError> {
        if let Group::Coarse(sum) = group
            && sum.len as usize <= at.from
        {
            return Ok(());
        }
        self.refine(at, group)?;
        for (piece, from, to) in at.pieces() {
            let len = group.piece(piece).len as usize;
            if len <= from {
                continue;
            }
            // What goes as a whole need not be readable.
            let mut bytes = Vec::new();
            if from > 0 || to < len {
                bytes.resize(len, 0);
                let read = self.read_piece(at, group, piece, &mut bytes);
                if let Err(StoreError::Damaged(Damage::Data(_))) = read {
                    self.clear_damaged(at, group, (piece, from, to))?;
                    continue;
                }
                read?;
                match to >= len {
                    true => bytes.truncate(from),
                    false => bytes[from..to].fill(0),
                }
            }
            self.put_piece(at, group, piece, bytes.into());
        }
        Ok(())
    }

    /// As [`Self::clear_group`] for a part of a piece that is damaged: what is left of it stays so.
    /// What is cut off its end is gone; a hole in it shows once the piece is written.
    fn clear_damaged(
        &self,
        at: GroupAt,
        group: &mut Group,
        (piece, from, to): (usize, usize, usize),
    ) -> Result<(), StoreError> {
        if to >= group.piece(piece).len as usize {
            let mut bytes = vec![0; from];
            let offset = at.offset(&self.core.layout) + (piece * PIECE) as u64;
            self.core.device.read_at(offset, &mut bytes)?;
            group.set_piece(piece, Sum::of_others(&bytes));
        }
        Ok(())
    }

    /// Gives a coarse group a checksum per piece; its bytes are verified on the way. If they are
    /// damaged, each piece is so from now on: what is written becomes readable, and whatever is cut
    /// off or cleared can be, but no other byte is vouched for.
    fn refine(&mut self, at: GroupAt, group: &mut Group) -> Result<(), StoreError> {
        let Group::Coarse(sum) = group else {
            return Ok(());
        };
        let whole = GroupAt {
            from: 0,
            to: sum.len as usize,
            ..at
        };
        let mut plan = Plan::default();
        content::plan_group(self, whole, group, 0, &mut plan);
        let mut bytes = vec![0; whole.to];
        let device = &*self.core.device;
        let verified = match plan.carry_out(device, &mut bytes) {
            // It may have been the way from the device, and not the device.
            Err(StoreError::Damaged(Damage::Data(_))) => plan.carry_out(device, &mut bytes),
            other => other,
        };
        *group = match verified {
            Ok(()) => Group::refined(&bytes),
            Err(StoreError::Damaged(Damage::Data(_))) => {
                device.read_at(at.offset(&self.core.layout), &mut bytes)?;
                Group::spoilt(&bytes)
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    fn read_piece(
        &self,
        at: GroupAt,
        group: &Group,
        piece: usize,
        bytes: &mut [u8],
    ) -> Result<(), StoreError> {
        let from = piece * PIECE;
        let one = GroupAt {
            from,
            to: from + bytes.len(),
            ..at
        };
        let mut plan = Plan::default();
        content::plan_group(self, one, group, 0, &mut plan);
        plan.carry_out(&*self.core.device, bytes)
    }

    fn put_piece(&mut self, at: GroupAt, group: &mut Group, piece: usize, bytes: Arc<[u8]>) {
        group.set_piece(piece, Sum::of(&bytes));
        self.staged.layer.pieces.insert(at.piece(piece), bytes);
    }
}
