//! The complete check: every record against every other, every byte against its checksum.
//!
//! Some records are *primary*: objects, their attributes and places, checksums, and what a
//! reservation was granted. All others follow from them: who uses an AU, what a holder uses, which
//! AUs and pages are in use, and the lists by which things are found. The check makes the derived
//! ones anew ([`records`]) and says where they are not what the store has. So a repair has nothing
//! to invent: it writes what was derived ([`crate::repair`]).
//!
//! If pages of records cannot be read, an examination of the device goes on from what the older
//! superblock and the log have. A store that is open cannot: it writes to both meanwhile. Its check
//! names these pages, as its scrub does, and the data that the others do not vouch for any more
//! ([`left`]). It derives nothing then: what follows from records of which some are missing would
//! be called wrong, or lost, though a repair may have them all.

mod bytes;
mod finding;
mod holders;
mod left;
mod records;
mod tolerant;

use crate::StoreError;
use crate::core::Core;
pub(crate) use bytes::{Bad, SOME_RECORDS, Source, bad_parts, locate};
pub use finding::{Finding, Kind, Mend};
pub(crate) use records::{Derived, derive};
use std::collections::{BTreeMap, BTreeSet};
pub(crate) use tolerant::{Tolerant, is_unreadable};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects there are.
    pub objects: u64,
    /// Bytes of allocation units that were read and fit their checksums.
    pub verified_bytes: u64,
    /// What is wrong, or was before it was repaired.
    pub findings: Vec<Finding>,
}

impl Core {
    /// Checks everything; with `data`, also reads every byte.
    ///
    /// # Errors
    /// The device's.
    pub fn check(&self, data: bool) -> Result<Report, StoreError> {
        let mut findings = match check_pages(self) {
            Err(error) if error.damage().is_some() => return left::check(self, data),
            other => other?,
        };
        let derived = derive(self, &[])?;
        let mut bad = derived.bad;
        let verified_bytes = match data {
            true => check_data(self, &aus_in_use(self)?, &mut bad, &mut |_, _| {})?,
            false => 0,
        };
        findings.extend(derived.findings);
        findings.extend(locate(self, self.layout.au_bytes, &bad)?);
        Ok(Report {
            objects: derived.objects,
            verified_bytes,
            findings,
        })
    }
}

/// Pages in use are those of the tree and of the map, and nothing else.
pub(crate) fn check_pages(core: &Core) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Vec::new();
    let freed: BTreeSet<u64> = core.pages.freed().collect();
    let mut found: BTreeSet<u64> = core.pages.chain().iter().copied().collect();
    let mut twice = Vec::new();
    core.tree.visit_pages(&mut |page| {
        if !found.insert(page) {
            twice.push(page);
        }
    })?;
    let said: BTreeSet<u64> = core.pages.used().filter(|p| !freed.contains(p)).collect();
    for page in twice {
        let what = format!("page {page} of the records is in use twice");
        findings.push(Finding::new(Kind::PageMap, Mend::Possible, what));
    }
    for page in found.symmetric_difference(&said) {
        let what = match said.contains(page) {
            true => format!("page {page} is lost: taken on the map, and in no records"),
            false => format!("page {page} is in use, and free on the map"),
        };
        findings.push(Finding::new(Kind::PageMap, Mend::Possible, what));
    }
    Ok(findings)
}

/// Is told how many bytes of allocation units were read, and of how many.
pub type CheckProgress<'a> = dyn FnMut(u64, u64) + 'a;

/// AUs with bytes of objects.
pub(crate) fn aus_in_use(core: &Core) -> Result<Vec<u32>, StoreError> {
    records::aus_in_use(core, core.layout.au_count)
}

/// Reads every byte of these AUs; says how many fit their checksums.
pub(crate) fn check_data(
    core: &Core,
    aus: &[u32],
    bad: &mut BTreeMap<u32, Vec<Bad>>,
    progress: &mut CheckProgress<'_>,
) -> Result<u64, StoreError> {
    let mut verified_bytes = 0;
    let au_bytes = core.layout.au_bytes;
    let total_bytes = aus.len() as u64 * au_bytes;
    for (number, au) in (1..).zip(aus) {
        let whole = base::Extent::new(0, au_bytes);
        let (fits, parts) = bad_parts(core, &*core.device, *au, whole)?;
        verified_bytes += fits;
        let known = bad.entry(*au).or_default();
        for part in parts {
            // What is lost is known already.
            if !known.iter().any(|other| other.extent.covers(part.extent)) {
                known.push(part);
            }
        }
        progress(number * au_bytes, total_bytes);
    }
    bad.retain(|_, parts| !parts.is_empty());
    Ok(verified_bytes)
}
