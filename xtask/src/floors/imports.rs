//! Who may import whom.
//!
//! Only lower floors, with three additions: tests above the pure floors may use `sim`, which lies
//! below them anyway; `verify` judges from outside and may import no engine but `wire`; the roof is
//! imported by nobody.

use super::floor_of;
use super::manifest::{Dependency, Manifest};

/// Crates that may import less than their floor would allow.
const NARROWED: [(&str, &[&str]); 1] = [("verify", &["base", "sim", "wire"])];

pub(crate) fn judge(manifests: &[Manifest]) -> Vec<String> {
    manifests.iter().flat_map(judge_one).collect()
}

fn judge_one(manifest: &Manifest) -> Vec<String> {
    let name = &manifest.name;
    let Some(floor) = floor_of(name) else {
        return vec![format!(
            "{name}: has no floor; give it one in xtask/src/floors/mod.rs"
        )];
    };
    let mut breaches = Vec::new();
    if !manifest.has_lints {
        breaches.push(format!("{name}: Cargo.toml lacks [lints] workspace = true"));
    }
    let narrowed = NARROWED
        .iter()
        .find(|(narrow, _)| narrow == name)
        .map(|(_, allowed)| allowed);
    for Dependency { package, is_dev } in &manifest.dependencies {
        let Some(theirs) = floor_of(package) else {
            continue;
        };
        let kind = if *is_dev { "tests import" } else { "imports" };
        if theirs >= floor {
            breaches.push(format!(
                "{name} (floor {floor}) {kind} {package} (floor {theirs}): only lower floors"
            ));
        } else if narrowed.is_some_and(|allowed| !allowed.contains(&package.as_str())) {
            breaches.push(format!("{name} {kind} {package}: it judges from outside"));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::super::manifest::parse;
    use super::*;

    fn check(name: &str, section: &str, imported: &str) -> Vec<String> {
        let manifest = parse(&format!(
            "[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n\
             [{section}]\n{imported}.workspace = true\n"
        ));
        judge(&[manifest.unwrap()])
    }

    #[test]
    fn own_and_higher_floors_are_breaches() {
        for (name, section, imported) in [
            ("base", "dependencies", "sim"),
            ("wire", "dependencies", "export"),
            ("client", "dependencies", "server"),
            ("client", "dev-dependencies", "server"),
            ("readahead", "dependencies", "wire"),
            ("readahead", "dev-dependencies", "sim"),
            ("mount", "build-dependencies", "azekura"),
            ("verify", "dependencies", "store"),
            ("verify", "dev-dependencies", "readahead"),
        ] {
            assert_eq!(
                check(name, section, imported).len(),
                1,
                "{name} {section} {imported}"
            );
        }
    }

    #[test]
    fn lower_floors_and_foreign_crates_pass() {
        for (name, section, imported) in [
            ("azekura", "dependencies", "mount"),
            ("mount", "dependencies", "client"),
            ("verify", "dependencies", "wire"),
            ("wire", "dev-dependencies", "sim"),
            ("wire", "dependencies", "tokio"),
        ] {
            assert!(
                check(name, section, imported).is_empty(),
                "{name} {section} {imported}"
            );
        }
    }

    #[test]
    fn an_unknown_crate_and_missing_lints_are_breaches() {
        assert_eq!(check("cellar", "dependencies", "bytes").len(), 1);
        let manifest = parse("[package]\nname = \"base\"\n").unwrap();
        assert_eq!(judge(&[manifest]).len(), 1);
    }
}
