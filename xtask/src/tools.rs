//! Programs on `PATH`, and what to say when they are missing.

use std::path::PathBuf;

/// Directories where Debian keeps administrators' programs, which a user's `PATH` may lack.
const ADMINISTRATORS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The path of a program, or `None`. PostgreSQL's programs lie outside `PATH` on Debian; a name
/// with a slash is looked up as a path in which `*` stands for the largest version there is.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if let Some((before, after)) = program.split_once('*') {
        let mut versions: Vec<u32> = std::fs::read_dir(before)
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        versions.sort_unstable_by(|a, b| b.cmp(a));
        let paths = versions
            .iter()
            .map(|version| PathBuf::from(format!("{before}{version}{after}")));
        return { paths }.find(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(ADMINISTRATORS.map(PathBuf::from));
    directories
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// "skipped: why", the one line for what cannot run here.
pub(crate) fn skipped(what: &str, why: &str) {
    println!("{what}: skipped: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_and_by_version() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
        let scratch = crate::scratch::Scratch::new("tools").unwrap();
        for version in ["9", "15", "notes"] {
            let bin = scratch.directory(&format!("{version}/bin")).unwrap();
            std::fs::write(bin.join("initdb"), "").unwrap();
        }
        let pattern = format!("{}/*/bin/initdb", scratch.path().display());
        assert_eq!(find(&pattern), Some(scratch.path().join("15/bin/initdb")));
    }
}
