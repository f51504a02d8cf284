//! Bytes against their checksums, and whose bytes they are.

use super::{Finding, Kind, Mend};
use crate::content::{self, GroupAt, View};
use crate::core::Core;
use crate::key::{Key, Value};
use crate::layout::{GROUP_BYTES, PIECE_BYTES, SPAN_BYTES};
use crate::leaf::Group;
use crate::read::Plan;
use crate::record::{Home, Onode, Place, decode};
use crate::transaction::object::slot_offset;
use crate::{Damage, StoreError};
use base::{BlockDevice, Extent, ObjectId};
use std::collections::BTreeMap;

/// Bytes of an AU that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    /// Which bytes of the AU.
    pub(crate) extent: Extent,
    /// What is wrong with them.
    pub(crate) damage: Damage,
}

/// Records that are looked at together.
pub(crate) const SOME_RECORDS: usize = 4096;
/// Bytes that are read at once.
const STEP_BYTES: u64 = 4 * SPAN_BYTES;

/// The bytes of a part of an AU that are covered by checksums and fit them, and those parts that
/// do not. The part begins and ends at spans.
///
/// # Errors
/// The device's.
pub(crate) fn bad_parts(
    view: &impl View,
    device: &dyn BlockDevice,
    au: u32,
    part: Extent,
) -> Result<(u64, Vec<Bad>), StoreError> {
    let (mut fits, mut bad) = (0, Vec::new());
    let mut offset = part.offset;
    while offset < part.end() {
        let step = Extent::between(offset, part.end().min(offset + STEP_BYTES));
        match read(view, device, au, step) {
            Ok(covered) => fits += covered,
            Err(error) if error.damage().is_none() => return Err(error),
            Err(_) => {
                for at in GroupAt::each(au, step) {
                    fits += bad_parts_of_group(view, device, at, &mut bad)?;
                }
            }
        }
        offset = step.end();
    }
    Ok((fits, bad))
}

/// Reads and verifies; says how many bytes checksums cover.
fn read(
    view: &impl View,
    device: &dyn BlockDevice,
    au: u32,
    part: Extent,
) -> Result<u64, StoreError> {
    let mut plan = Plan::default();
    content::plan(view, au, part, 0, &mut plan)?;
    let mut bytes = vec![0; part.len as usize];
    plan.carry_out(device, &mut bytes)?;
    Ok(plan.covered_bytes())
}

fn bad_parts_of_group(
    view: &impl View,
    device: &dyn BlockDevice,
    at: GroupAt,
    bad: &mut Vec<Bad>,
) -> Result<u64, StoreError> {
    let start = u64::from(at.group) * GROUP_BYTES;
    let group = match view.view_leaf(&at.key()) {
        Ok(leaf) => leaf.group(at.index()).clone(),
        Err(error) => {
            let damage = match error.damage().ok_or(error)? {
                Damage::Unreadable(at) => Damage::Page(at),
                damage => damage,
            };
            let extent = Extent::new(start, GROUP_BYTES);
            bad.push(Bad { extent, damage });
            return Ok(0);
        }
    };
    // Each checksum on its own, so that what is beside a bad one is not taken for bad.
    let parts: Vec<Extent> = match &group {
        Group::Empty | Group::Lost => Vec::new(),
        Group::Coarse(sum) => vec![Extent::new(start, u64::from(sum.len))],
        Group::Fine(pieces) => (0..)
            .zip(pieces)
            .map(|(piece, sum)| Extent::new(start + piece * PIECE_BYTES, u64::from(sum.len)))
            .collect(),
    };
    let mut fits = 0;
    for extent in parts {
        match read(view, device, at.au, extent) {
            Ok(covered) => fits += covered,
            Err(error) => {
                let damage = error.damage().ok_or(error)?;
                bad.push(Bad { extent, damage });
            }
        }
    }
    Ok(fits)
}

/// Whose bytes these are: a finding for each object and run of bytes. What is nobody's, or lies
/// beyond an object's end, is no finding.
pub(crate) fn locate(
    source: &impl Source,
    au_bytes: u64,
    bad: &BTreeMap<u32, Vec<Bad>>,
) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Vec::new();
    if bad.is_empty() {
        return Ok(findings);
    }
    let mut objects: BTreeMap<u64, (ObjectId, u64)> = BTreeMap::new();
    let end = Key::Attribute(0, Vec::new());
    for_each(source, &Key::MIN, &end, |key, value| {
        let (Key::Object(object), Ok(onode)) = (key, decode::<Onode>(value)) else {
            return;
        };
        match onode.home {
            Home::Own => drop(objects.insert(onode.number, (*object, onode.size_bytes))),
            Home::Packed(slot) => {
                let bytes = Extent::new(slot_offset(slot), onode.size_bytes);
                for part in bad.get(&slot.au).into_iter().flatten() {
                    let here = part.extent.intersection(bytes);
                    let within = Extent::new(here.offset.saturating_sub(bytes.offset), here.len);
                    findings.extend(finding(*object, within, part.damage));
                }
            }
            Home::Lost => {}
        }
    })?;
    for_each(source, &Key::Place(0, 0), &Key::Au(0), |key, value| {
        let (Key::Place(number, index), Ok(place)) = (key, decode::<Place>(value)) else {
            return;
        };
        let Some((object, size_bytes)) = objects.get(number) else {
            return;
        };
        for part in bad.get(&place.au).into_iter().flatten() {
            let start = u64::from(*index) * au_bytes + part.extent.offset;
            let there = Extent::new(start, part.extent.len);
            let there = there.intersection(Extent::new(0, *size_bytes));
            findings.extend(finding(*object, there, part.damage));
        }
    })?;
    Ok(joined(findings))
}

fn finding(object: ObjectId, extent: Extent, damage: Damage) -> Option<Finding> {
    let (kind, what) = match damage {
        Damage::Data(at) => (
            Kind::Data,
            format!("not what was written; on the device from byte {at} on"),
        ),
        Damage::Unreadable(at) => (
            Kind::Data,
            format!("cannot be read; on the device from byte {at} on"),
        ),
        Damage::Lost => (Kind::Lost, "the checksums are lost".to_owned()),
        other => (Kind::Record, other.to_string()),
    };
    let found = Finding::new(kind, Mend::Impossible, what);
    (!extent.is_empty()).then(|| found.of(object).at(extent))
}

/// One finding for what lies side by side in an object.
fn joined(mut findings: Vec<Finding>) -> Vec<Finding> {
    let place = |finding: &Finding| (finding.object, finding.extent);
    findings.sort_by_key(place);
    findings.dedup_by(|next, before| match (next.extent, &mut before.extent) {
        (Some(after), Some(extent))
            if (next.object, next.kind) == (before.object, before.kind)
                && after.offset <= extent.end() =>
        {
            *extent = Extent::between(extent.offset, extent.end().max(after.end()));
            true
        }
        _ => false,
    });
    findings
}

/// Where records are read from, some at a time.
pub(crate) trait Source {
    /// The first records that are left of a range.
    fn some(&self, from: &Key, to: &Key) -> Result<Vec<(Key, Value)>, StoreError>;
}

impl Source for Core {
    fn some(&self, from: &Key, to: &Key) -> Result<Vec<(Key, Value)>, StoreError> {
        self.range_left(from, to, SOME_RECORDS)
    }
}

/// Every record that is left of a range.
pub(super) fn for_each(
    source: &impl Source,
    from: &Key,
    to: &Key,
    mut visit: impl FnMut(&Key, &Value),
) -> Result<(), StoreError> {
    let mut from = from.clone();
    let mut is_first = true;
    loop {
        let records = source.some(&from, to)?;
        let fresh = records.iter().filter(|(key, _)| is_first || *key != from);
        fresh.for_each(|(key, value)| visit(key, value));
        match records.last() {
            Some((last, _)) if records.len() == SOME_RECORDS => from = last.clone(),
            _ => return Ok(()),
        }
        is_first = false;
    }
}
