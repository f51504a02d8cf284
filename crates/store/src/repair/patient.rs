//! The store that is examined: its records as far as they are known, in memory alone.

use super::Examination;
use super::views::{View, Views};
use crate::check::{Bad, Derived, Finding, Kind, Mend, check_pages, locate};
use crate::content::View as _;
use crate::core::{Core, leaf_key, sum_at, write_superblock};
use crate::key::Key;
use crate::layout::{LOG_OFFSET, PAGE_BYTES, PIECE_BYTES};
use crate::log::entry::{self, Change, PieceAt};
use crate::log::sector::{self, SECTOR_BYTES};
use crate::log::{Log, Replay};
use crate::lost::{Lost, Range, intersection};
use crate::pages::Pages;
use crate::record::encode;
use crate::superblock::{LogHead, opening_after};
use crate::tree::{Gap, Tree};
use crate::{Damage, StoreError};
use base::{BlockDevice, Extent, ObjectId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of the log that are read at once.
const SCAN_BYTES: u64 = 1 << 20;

/// The store that is examined.
pub(super) struct Patient {
    pub(super) core: Core,
    cache_pages: usize,
    /// Damaged pages of the tree that it is based on.
    gaps: Vec<Gap>,
    /// Keys whose records no tree has.
    gone: Vec<Range>,
    /// Pieces of the log that the last checkpoint has put into their places.
    settled: BTreeSet<PieceAt>,
    /// Damaged sectors of the log, none of which is needed.
    bad_sectors: Vec<u64>,
    /// Sectors of the log in which one bit has flipped.
    flipped_sectors: Vec<u64>,
    /// The damage in the log from which on nothing is replayed.
    given_up_at: Option<u64>,
}

/// What it is made from.
struct Sources<'a> {
    base: &'a View,
    /// Where else records can be had from.
    other: Option<&'a View>,
    /// From where on the log is replayed.
    head: LogHead,
}

impl Patient {
    /// Puts together what is known; says what is damaged.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the log that counts is; the device's.
    pub(super) fn new(
        views: &Views,
        how: Examination,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, StoreError> {
        let newest = &views.newest;
        let layout = newest.superblock.layout;
        let older = views.older.as_ref();
        let older = older.filter(|older| older.superblock.layout == layout);
        if let Some(older) = older {
            let is_older_whole = older.gaps.is_empty();
            let head = older.superblock.log_head;
            let sources = match newest.gaps.is_empty() || !is_older_whole {
                true => Sources {
                    base: newest,
                    other: Some(older),
                    head,
                },
                false => Sources {
                    base: older,
                    other: None,
                    head,
                },
            };
            let mut found = Vec::new();
            match Self::of(views, &sources, how, &mut found) {
                Ok(patient) => {
                    findings.extend(found);
                    return Ok(patient);
                }
                Err(StoreError::Damaged(Damage::Log(at))) => {
                    let what = format!("the log at byte {at} is damaged, which has been used");
                    findings.push(Finding::new(Kind::Log, Mend::Possible, what));
                }
                Err(other) => return Err(other),
            }
        }
        let sources = Sources {
            base: newest,
            other: None,
            head: newest.superblock.log_head,
        };
        Self::of(views, &sources, how, findings)
    }

    fn of(
        views: &Views,
        sources: &Sources,
        how: Examination,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, StoreError> {
        let cache_pages = how.options.cache_pages;
        let Sources { base, other, head } = sources;
        let pages = pages(base, *other)?;
        let mut core = Core::assemble(
            views.device.clone(),
            base.superblock.clone(),
            pages,
            cache_pages,
        );
        core.tree = base.tree.clone();
        let newest = &views.newest.superblock;
        core.superblock_mut().lifetimes = newest.lifetimes;
        core.superblock_mut()
            .capability
            .clone_from(&newest.capability);
        check_map(base, *other, &mut core, findings)?;
        match core.load_space() {
            // What is in use follows from the records.
            Ok(()) | Err(StoreError::Damaged(_)) => {}
            Err(other) => return Err(other),
        }
        let mut patient = Self {
            core,
            cache_pages,
            gaps: base.gaps.clone(),
            gone: Vec::new(),
            settled: BTreeSet::new(),
            bad_sectors: Vec::new(),
            flipped_sectors: Vec::new(),
            given_up_at: None,
        };
        patient.fill(*other)?;
        patient.tell_gaps(&views.newest, findings);
        patient.replay(*head, views, how, findings)?;
        patient.scan_log(findings)?;
        patient.core.load_lost()?;
        patient.note_lost();
        Ok(patient)
    }

    /// Takes from the other tree what this one has lost.
    fn fill(&mut self, other: Option<&View>) -> Result<(), StoreError> {
        for gap in &self.gaps {
            let Some(other) = other else {
                self.gone.push(gap.range.clone());
                continue;
            };
            let (from, to) = &gap.range;
            for (key, value) in other.tree.range(from, to, usize::MAX)? {
                if !matches!(key, Key::AuMap(_)) {
                    self.core.put_unlogged(key, Some(value));
                }
            }
            let both = other.gaps.iter();
            let gone = both.filter_map(|theirs| intersection(&theirs.range, &gap.range));
            self.gone.extend(gone);
        }
        Ok(())
    }

    fn tell_gaps(&self, newest: &View, findings: &mut Vec<Finding>) {
        for gap in &newest.gaps {
            let is_lost = |gone: &Range| {
                let primary = [
                    (Key::MIN, Key::Au(0)),
                    (Key::Leaf(0, 0), Key::AuMap(0)),
                    (Key::Holder(0), Key::Member(0, ObjectId([0; 16]))),
                ];
                let here = intersection(gone, &gap.range);
                here.is_some_and(|here| primary.iter().any(|p| intersection(p, &here).is_some()))
            };
            let (mend, how) = match self.gone.iter().any(is_lost) {
                true => (Mend::Impossible, "cannot be restored"),
                false => (Mend::Possible, "are damaged"),
            };
            let at = gap.pointer.page.saturating_mul(PAGE_BYTES);
            let what = format!("the records at byte {at} {how}");
            findings.push(Finding::new(Kind::Page, mend, what));
        }
    }

    /// Reads the log into the layer over the tree.
    fn replay(
        &mut self,
        head: LogHead,
        views: &Views,
        how: Examination,
        findings: &mut Vec<Finding>,
    ) -> Result<(), StoreError> {
        let newest = &views.newest.superblock;
        let layout = newest.layout;
        let mut replay = Replay::new(&*views.device, &layout, head);
        loop {
            let sequence = replay.end().0.sequence;
            let is_used = sequence < newest.log_head.sequence;
            let body = match replay.read() {
                Ok(Some(body)) => body,
                Ok(None) if is_used => {
                    let next = replay.end().0.position;
                    let at = LOG_OFFSET + next % layout.log_bytes;
                    return Err(Damage::Log(at).into());
                }
                Ok(None) => match replay.check_end() {
                    Ok(()) => break,
                    Err(StoreError::Damaged(damage)) => {
                        self.give_up(damage, how, findings)?;
                        break;
                    }
                    Err(other) => return Err(other),
                },
                Err(StoreError::Damaged(damage)) if !is_used => {
                    self.give_up(damage, how, findings)?;
                    break;
                }
                Err(other) => return Err(other),
            };
            let (counters, changes) = entry::decode(&body)?;
            self.core.raise_counters(counters);
            for change in changes {
                if let Change::Piece(at, _) = &change {
                    match sequence < newest.log_head.sequence {
                        true => self.settled.insert(*at),
                        false => self.settled.remove(at),
                    };
                }
                self.core.replay_change(change)?;
            }
        }
        self.core.raise_counters(newest.counters);
        let (next, opening) = replay.end();
        let opening = opening_after(opening.max(newest.opening), views.is_single)?;
        self.core.superblock_mut().opening = opening;
        self.core.resume_log(Log::new(&layout, opening, next, next));
        Ok(())
    }

    /// Goes on without what the log had from some damage on, if that is wished or nothing is going
    /// to be written.
    fn give_up(
        &mut self,
        damage: Damage,
        how: Examination,
        findings: &mut Vec<Finding>,
    ) -> Result<(), StoreError> {
        if how.repair && !how.give_up_log {
            return Err(damage.into());
        }
        let (mend, so) = match how.give_up_log {
            true => (Mend::Possible, "what came after it is given up"),
            false => (
                Mend::Impossible,
                "acknowledged changes may be lost; --repair --give-up-log goes on without them",
            ),
        };
        let what = format!("{damage} is damaged: {so}");
        findings.push(Finding::new(Kind::Log, mend, what));
        if let Damage::Log(at) = damage {
            self.given_up_at = Some(at);
        }
        Ok(())
    }

    /// Looks for sectors that would be in the way when the log comes to them. All that are needed
    /// were read before. If entries were given up, the next one gets a number beyond all that there
    /// can have been: what is left of them must not look like its successors, and who remembers how
    /// far the store was is not to take it for an older state of itself, which nobody wanted.
    fn scan_log(&mut self, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
        let log_bytes = self.core.layout.log_bytes;
        let (mut at, mut last) = (0, 0);
        while at < log_bytes {
            let mut bytes = vec![0; SCAN_BYTES.min(log_bytes - at) as usize];
            self.core.device.read_at(LOG_OFFSET + at, &mut bytes)?;
            for (offset, sector) in (LOG_OFFSET + at..)
                .step_by(SECTOR_BYTES)
                .zip(bytes.chunks_mut(SECTOR_BYTES))
            {
                let is_intact = sector::is_intact(sector);
                match sector::decode(sector, offset) {
                    Ok(stamp) => {
                        last = last.max(stamp.map_or(0, |stamp| stamp.sequence));
                        self.flipped_sectors.extend((!is_intact).then_some(offset));
                    }
                    Err(_) => self.bad_sectors.push(offset),
                }
            }
            at += SCAN_BYTES;
        }
        if self.given_up_at.is_some() {
            let layout = self.core.layout;
            let next = self.core.durable_log().1;
            // An entry has a page at least.
            let beyond = next.sequence.checked_add(log_bytes / PAGE_BYTES);
            let beyond = beyond.zip(last.checked_add(1));
            let (beyond, after_last) = beyond.ok_or(Damage::Log(LOG_OFFSET))?;
            let sequence = beyond.max(after_last);
            let next = LogHead { sequence, ..next };
            let opening = self.core.superblock().opening;
            self.core.resume_log(Log::new(&layout, opening, next, next));
        }
        if let Some(first) = self.flipped_sectors.first() {
            let count = self.flipped_sectors.len();
            let sectors = if count == 1 { "sector" } else { "sectors" };
            let what = format!("one bit has flipped in {count} {sectors} of the log: at {first}");
            findings.push(Finding::new(Kind::Log, Mend::Possible, what));
        }
        // What was told of already.
        let others = self.bad_sectors.iter();
        let others = others.filter(|at| Some(**at) != self.given_up_at);
        let others: Vec<u64> = others.copied().collect();
        if let Some(first) = others.first() {
            let count = others.len();
            let what = match count {
                1 => format!("1 sector of the log, not in use, is damaged: at {first}"),
                _ => {
                    format!("{count} sectors of the log, not in use, are damaged: from {first} on")
                }
            };
            findings.push(Finding::new(Kind::Log, Mend::Possible, what));
        }
        Ok(())
    }

    /// Keeps in mind which records there may have been, where no names are known of them.
    fn note_lost(&mut self) {
        let number = self.core.counters.number;
        let places = (Key::Place(0, 0), Key::Place(number, 0));
        let attributes = (
            Key::Attribute(0, Vec::new()),
            Key::Attribute(number, Vec::new()),
        );
        let mut kinds = vec![places, attributes.clone()];
        let members = (Key::Member(0, ObjectId([0; 16])), Key::End(0, 0));
        let lacks = |range: &Range| self.gone.iter().any(|g| intersection(g, range).is_some());
        if lacks(&members) {
            kinds.push((Key::MIN, attributes.0));
        }
        let new = self.gone.iter().flat_map(|gone| {
            let part = move |kind: &Range| intersection(kind, gone);
            kinds.iter().filter_map(part)
        });
        let known = self.core.lost.ranges().iter().cloned();
        self.core.lost = Lost::of(known.chain(new));
    }

    /// Keys whose records cannot be read.
    pub(super) fn gone(&self) -> &[Range] {
        &self.gone
    }

    /// Whether pages of the tree are damaged.
    pub(super) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Looks whether pieces that went through the log are in their places. Those that are need not
    /// be written again.
    pub(super) fn check_settled(&mut self) -> Result<Vec<Finding>, StoreError> {
        let mut bad: BTreeMap<u32, Vec<Bad>> = BTreeMap::new();
        for at in std::mem::take(&mut self.settled) {
            let Some(bytes) = self.core.piece(at).cloned() else {
                continue;
            };
            let sum = match self.core.view_leaf(&leaf_key(at)) {
                Ok(leaf) => sum_at(&leaf, at),
                Err(StoreError::Damaged(_)) => continue,
                Err(other) => return Err(other),
            };
            let within = u64::from(at.piece) * PIECE_BYTES;
            let mut there = vec![0; bytes.len()];
            let offset = self.core.layout.au_offset(at.au) + within;
            self.core.device.read_at(offset, &mut there)?;
            if !sum.fits(&bytes) || sum.fits(&there) {
                self.core.forget_piece(at);
            } else {
                let extent = Extent::new(within, u64::from(sum.len));
                let damage = Damage::Data(offset);
                bad.entry(at.au).or_default().push(Bad { extent, damage });
            }
        }
        let mut findings = locate(&self.core, self.core.layout.au_bytes, &bad)?;
        for finding in &mut findings {
            finding.mend = Mend::Possible;
            finding.what.push_str(", and the log has it");
        }
        Ok(findings)
    }

    /// Writes what was found out, durably.
    pub(super) fn mend(
        mut self,
        device: &Arc<dyn BlockDevice>,
        views: &Views,
        derived: Derived,
    ) -> Result<(), StoreError> {
        for (offset, page) in &views.mended {
            device.write_at(*offset, page)?;
        }
        let mut blank = [0; SECTOR_BYTES];
        sector::blank(&mut blank);
        for offset in &self.bad_sectors {
            device.write_at(*offset, &blank)?;
        }
        for offset in &self.flipped_sectors {
            let mut sector = [0; SECTOR_BYTES];
            device.read_at(*offset, &mut sector)?;
            sector::decode(&mut sector, *offset)?;
            device.write_at(*offset, &sector)?;
        }
        let newest = &views.newest.superblock;
        match self.core.superblock().epoch == newest.epoch && !views.is_single {
            // It may be in doubt, and the next one takes the place of the one that is certain.
            true => write_superblock(&**device, newest)?,
            false => device.flush()?,
        }
        let core = &mut self.core;
        let (root, height) = core.tree.root();
        let tree = Tree::new(device.clone(), root, height, self.cache_pages);
        core.tree = tree.skipping_damage();
        core.device = device.clone();
        core.counters = derived.counters;
        for (key, value) in derived.changes {
            core.put_unlogged(key, value);
        }
        for (number, range) in (0..).zip(core.lost.ranges().to_vec()) {
            core.put_unlogged(Key::Lost(number), Some(encode(&range)));
        }
        for gap in &self.gaps {
            // A change in it, so that the page is replaced.
            if !core.has_unlogged(&gap.range.0) {
                core.put_unlogged(gap.range.0.clone(), None);
            }
        }
        core.space.mend(&derived.claimed, &derived.released);
        // Both superblocks are to have it.
        core.checkpoint()?;
        core.checkpoint()
    }
}

/// The map of pages, made anew if it cannot be read.
fn pages(base: &View, other: Option<&View>) -> Result<Pages, StoreError> {
    match &base.pages {
        Some(pages) => Ok(pages.clone()),
        None => derived_pages(base, other),
    }
}

fn derived_pages(base: &View, other: Option<&View>) -> Result<Pages, StoreError> {
    let records = base.tree_pages()?;
    let mut kept = base.all_pages()?;
    if let Some(other) = other {
        kept.extend(other.all_pages()?);
    }
    Ok(Pages::derive(base.superblock.layout, &records, &kept))
}

/// Says what is wrong with the map of pages, and makes it right.
fn check_map(
    base: &View,
    other: Option<&View>,
    core: &mut Core,
    findings: &mut Vec<Finding>,
) -> Result<(), StoreError> {
    let wrong = match &base.pages {
        Some(_) => check_pages(core)?,
        None => {
            let what = "the map of the pages of records is damaged";
            vec![Finding::new(Kind::PageMap, Mend::Possible, what)]
        }
    };
    if !wrong.is_empty() {
        core.pages = derived_pages(base, other)?;
        // What is below a damaged page is not known: that is not the map's fault.
        findings.extend(wrong.into_iter().filter(|_| base.gaps.is_empty()));
    }
    Ok(())
}
