//! What a crate's Cargo.toml says about its imports.

use crate::tree::Tree;
use anyhow::{Context, Result};
use toml::Table;

/// One crate below `crates/`.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Whether the workspace's lints apply to it.
    pub(crate) has_lints: bool,
}

/// One import.
#[derive(Debug)]
pub(crate) struct Dependency {
    /// The package's own name, also if it was renamed.
    pub(crate) package: String,
    /// Only for tests.
    pub(crate) is_dev: bool,
}

/// Reads every crate's manifest.
pub(crate) fn read_all(tree: &Tree) -> Result<Vec<Manifest>> {
    let files = tree.files().filter(|file| file.crate_name().is_some());
    let manifests = files.filter(|file| file.path.matches('/').count() == 2);
    manifests
        .filter(|file| file.name() == "Cargo.toml")
        .map(|file| parse(file.text()).with_context(|| file.path.clone()))
        .collect()
}

/// Reads one manifest.
///
/// Dependencies of build scripts count like others: they run on every build. So do those of a
/// single platform.
pub(crate) fn parse(text: &str) -> Result<Manifest> {
    let table: Table = text.parse()?;
    let package = table.get("package").and_then(|package| package.as_table());
    let name = package
        .and_then(|package| package.get("name")?.as_str())
        .context("no name")?;
    let mut dependencies = read_section(&table);
    if let Some(targets) = table.get("target").and_then(|target| target.as_table()) {
        let sections = targets.values().filter_map(|section| section.as_table());
        dependencies.extend(sections.flat_map(read_section));
    }
    let lints = table
        .get("lints")
        .and_then(|lints| lints.get("workspace")?.as_bool());
    Ok(Manifest {
        name: name.to_owned(),
        dependencies,
        has_lints: lints == Some(true),
    })
}

fn read_section(section: &Table) -> Vec<Dependency> {
    const KINDS: [(&str, bool); 3] = [
        ("dependencies", false),
        ("build-dependencies", false),
        ("dev-dependencies", true),
    ];
    let mut found = Vec::new();
    for (kind, is_dev) in KINDS {
        let Some(entries) = section.get(kind).and_then(|entries| entries.as_table()) else {
            continue;
        };
        for (key, value) in entries {
            let renamed = value.get("package").and_then(|name| name.as_str());
            found.push(Dependency {
                package: renamed.unwrap_or(key).to_owned(),
                is_dev,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_dependency_is_read() {
        let manifest = parse(
            "[package]\nname = \"wire\"\n[lints]\nworkspace = true\n\
             [dependencies]\nbase.workspace = true\nb = { package = \"bytes\", version = \"1\" }\n\
             [dev-dependencies]\nsim = { path = \"../sim\" }\n\
             [build-dependencies]\ncc = \"1\"\n\
             [target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n",
        )
        .unwrap();
        assert!(manifest.has_lints);
        let mut found: Vec<_> = manifest
            .dependencies
            .iter()
            .map(|dependency| (dependency.package.as_str(), dependency.is_dev))
            .collect();
        found.sort_unstable();
        let expected = [
            ("base", false),
            ("bytes", false),
            ("cc", false),
            ("libc", false),
            ("sim", true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_manifest_without_a_name_is_an_error() {
        assert!(parse("[package]\n").is_err());
        assert!(parse("[package").is_err());
    }
}
