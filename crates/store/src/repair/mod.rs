//! The check of a device that may not even open as a store, and its repair.
//!
//! What a repair can put right follows from what else is on the device:
//!
//! | damaged | restored from |
//! |---|---|
//! | a superblock | the other one |
//! | a page of records with one flipped bit | its checksum |
//! | a page of records | the older superblock's records, and the log from there on |
//! | the map of pages, lists, counts, the map of AUs, counters | the records ([`crate::check`]) |
//! | bytes that lately went through the log | the log, if it reaches back so far |
//!
//! What the device cannot read is damaged like anything else ([`crate::check::Tolerant`]), and is
//! said besides.
//!
//! Nothing else is invented. Records that are gone leave a mark ([`crate::lost`]) and go on being
//! errors for whoever reads them, as bytes do that do not fit their checksums.
//!
//! **Order.** First, pages with one flipped bit are written in their places: each is unreadable
//! until its one wrong sector is there, and right after that. Everything else is one checkpoint
//! into free pages, so until its superblock is durable all is as it was, and a second one, so that
//! both superblocks have it. The first takes the place of the superblock that nothing comes from:
//! of the newest one if all its records can be had from the older, else of the older one. Only if
//! records had to come from both, a loss of power within that one write can cost what came from
//! the one that it replaces.

mod patched;
mod patient;
mod views;

use crate::check::{self, Mend, Report, Tolerant, aus_in_use, check_data, locate};
use crate::core::Options;
use crate::layout::{PAGE_BYTES, SUPERBLOCK_OFFSETS};
use crate::{Damage, StoreError};
use base::BlockDevice;
use patient::Patient;
use std::sync::Arc;
use views::Views;

/// A check of a device that nobody else uses meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Examination {
    /// How the store is opened.
    pub options: Options,
    /// Also read every byte.
    pub data: bool,
    /// Put right what can be.
    pub repair: bool,
    /// If the log is damaged, the store is what it was before that entry: what was acknowledged
    /// after it is given up.
    pub give_up_log: bool,
}

impl Examination {
    /// Checks everything, and writes nothing unless it is to repair and something can be repaired.
    /// Then what it says is done is durable.
    ///
    /// # Errors
    /// Those of opening a store that is none, of a newer format, another one, or without any
    /// superblock; [`StoreError::Damaged`] if the log is damaged and is not given up; the device's.
    pub fn run(
        self,
        device: &Arc<dyn BlockDevice>,
        progress: &mut check::CheckProgress<'_>,
    ) -> Result<Report, StoreError> {
        let tolerant = Arc::new(Tolerant::new(device.clone()));
        let device: Arc<dyn BlockDevice> = tolerant.clone();
        let mut findings = Vec::new();
        let views = Views::read(&device, self.options, &mut findings);
        let views = views.map_err(|error| unreadable(&tolerant, error))?;
        let mut patient = Patient::new(&views, self, &mut findings)?;
        let mut derived = check::derive(&patient.core, patient.gone())?;
        findings.append(&mut derived.findings);
        findings.extend(patient.check_settled()?);
        let mut bad = std::mem::take(&mut derived.bad);
        let mut report = Report {
            objects: derived.objects,
            ..Report::default()
        };
        if self.data {
            let aus = aus_in_use(&patient.core)?;
            report.verified_bytes = check_data(&patient.core, &aus, &mut bad, progress)?;
        }
        let au_bytes = patient.core.layout.au_bytes;
        findings.extend(locate(&patient.core, au_bytes, &bad)?);
        let is_possible = |mend: Mend| mend == Mend::Possible;
        let needs = patient.has_gaps() || findings.iter().any(|f| is_possible(f.mend));
        let mut unreadable = tolerant.findings(&patient.core.layout);
        if self.repair && needs {
            patient.mend(&device, &views, derived)?;
            let possible = findings.iter_mut().filter(|f| is_possible(f.mend));
            possible.for_each(|finding| finding.mend = Mend::Done);
            unreadable = tolerant.findings_now();
        }
        findings.extend(unreadable);
        report.findings = findings;
        Ok(report)
    }
}

/// Why there is no superblock: what cannot be read may be one.
fn unreadable(device: &Tolerant, error: StoreError) -> StoreError {
    let is_none = matches!(
        error,
        StoreError::NotAStore | StoreError::Damaged(Damage::Superblocks)
    );
    let failed = SUPERBLOCK_OFFSETS.iter().find_map(|at| {
        let mut page = [0; PAGE_BYTES as usize];
        device.read_strictly(*at, &mut page).err()
    });
    match failed {
        Some(failed) if is_none => failed.into(),
        _ => error,
    }
}
