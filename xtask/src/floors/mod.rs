//! The house's floors, mechanically.
//!
//! A crate imports only from floors below its own ([`imports`]), and the crates of the two lowest
//! floors stay pure: no I/O, no threads, no clock, no locks, no async ([`purity`]). The table here
//! is the only place where a crate is given its floor; a crate that is not in it fails the check,
//! so a new crate is a decision.

mod imports;
mod manifest;
mod purity;

use crate::args::Args;
use crate::tree::Tree;
use crate::workspace;
use anyhow::{Result, bail};
use manifest::Manifest;

/// Each crate's floor.
const FLOORS: [(&str, u8); 16] = [
    ("azekura", 5),
    ("mount", 4),
    ("console", 4),
    ("server", 3),
    ("client", 3),
    ("verify", 3),
    ("store", 2),
    ("export", 2),
    ("disk", 2),
    ("meta", 2),
    ("wire", 2),
    ("reservation", 1),
    ("readahead", 1),
    ("acl", 1),
    ("sim", 1),
    ("base", 0),
];
/// The highest floor whose crates must be pure.
const PURE_FLOOR_MAX: u8 = 1;

fn floor_of(name: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|&(_, floor)| floor)
}

/// `cargo xtask floors`
pub(crate) fn run(args: Args) -> Result<()> {
    args.finish_empty()?;
    check()
}

/// Judges every crate and prints every breach.
pub(crate) fn check() -> Result<()> {
    let tree = Tree::read(workspace::root())?;
    let manifests = manifest::read_all(&tree)?;
    let breaches = judge(&tree, &manifests);
    for breach in &breaches {
        println!("{breach}");
    }
    if !breaches.is_empty() {
        bail!("floors: {} breaches", breaches.len());
    }
    println!("floors: {} crates, no breaches", manifests.len());
    Ok(())
}

fn judge(tree: &Tree, manifests: &[Manifest]) -> Vec<String> {
    let mut breaches = imports::judge(manifests);
    for manifest in manifests {
        if floor_of(&manifest.name).is_some_and(|floor| floor <= PURE_FLOOR_MAX) {
            breaches.extend(purity::judge_dependencies(manifest));
            breaches.extend(purity::judge_source(tree, &manifest.name));
        }
    }
    breaches
}
