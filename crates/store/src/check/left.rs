//! The check of an open store some of whose pages of records cannot be read: what is left of it.

use super::bytes::for_each;
use super::records::aus_in_use;
use super::{Finding, Kind, Mend, Report, SOME_RECORDS, Source, Tolerant, check_data, locate};
use crate::StoreError;
use crate::core::Core;
use crate::key::{Key, Value};
use crate::layout::PAGE_BYTES;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pages that are kept in memory; each is needed again soon or not at all.
const CACHE_PAGES: usize = 256;

/// The records that can be read.
struct Left<'a> {
    core: &'a Core,
    tree: Tree,
}

impl Source for Left<'_> {
    fn some(&self, from: &Key, to: &Key) -> Result<Vec<(Key, Value)>, StoreError> {
        self.core.range_over(&self.tree, from, to, SOME_RECORDS)
    }
}

/// Names the pages that cannot be read and, with `data`, what does not fit its checksum or has none
/// that can be read.
pub(super) fn check(core: &Core, data: bool) -> Result<Report, StoreError> {
    let layout = &core.layout;
    let device = Arc::new(Tolerant::new(core.device.clone()));
    let (root, height) = core.tree.root();
    let tree = Tree::new(device.clone(), root, height, CACHE_PAGES).skipping_damage();
    let mut report = Report::default();
    for gap in tree.gaps()? {
        let at = gap.pointer.page.saturating_mul(PAGE_BYTES);
        let what = format!("the records at byte {at} are damaged");
        let finding = Finding::new(Kind::Page, Mend::Possible, what);
        report.findings.push(finding);
    }
    let left = Left { core, tree };
    let end = Key::Attribute(0, Vec::new());
    for_each(&left, &Key::MIN, &end, |_, _| report.objects += 1)?;
    if data {
        let (aus, mut bad) = (aus_in_use(&left, layout.au_count)?, BTreeMap::new());
        report.verified_bytes = check_data(core, &aus, &mut bad, &mut |_, _| {})?;
        let found = locate(&left, layout.au_bytes, &bad)?;
        report.findings.extend(found);
    }
    report.findings.extend(device.findings(layout));
    Ok(report)
}
