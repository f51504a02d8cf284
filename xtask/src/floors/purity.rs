//! Purity of the lowest floors: their crates think, they do nothing.
//!
//! Two nets. Imports must be in a list of crates known to be pure: a list of what is allowed fails
//! closed, a list of what is forbidden would not know tomorrow's runtime. And the source, outside
//! tests, must not name what does I/O, spawns, locks, reads a clock or waits: paths are matched
//! token by token, so `std::fs::read` is found however it is spaced and `use std::{fs, io}` as
//! well.

use super::manifest::Manifest;
use crate::source::{Token, is_identifier};
use crate::tree::{File, Tree};

/// Crates that compute and do nothing else.
const PURE: [&str; 13] = [
    "base",
    "blake3",
    "bytes",
    "crc32c",
    "expect-test",
    "postcard",
    "proptest",
    "rustc-hash",
    "serde",
    "smallvec",
    "thiserror",
    "zerocopy",
    "criterion",
];
/// Modules of the standard library that act on the world.
const ACTING: [&str; 6] = ["env", "fs", "net", "os", "process", "thread"];
/// Names that act on the world wherever they stand.
const NAMES: [(&str, &str); 10] = [
    ("Instant", "time is an argument"),
    ("SystemTime", "time is an argument"),
    ("Mutex", "one owner, no locks"),
    ("RwLock", "one owner, no locks"),
    ("Condvar", "one owner, no locks"),
    ("mpsc", "one owner, no channels"),
    ("async", "no async"),
    ("await", "no async"),
    ("println", "no output"),
    ("eprintln", "no output"),
];
/// Where one of these names must stand nevertheless, and nowhere else: a device is called through
/// `&self` from several threads, so the simulated one has a lock around its memory.
const PLACES: [(&str, &str); 1] = [("crates/sim/src/disk/cell.rs", "Mutex")];
/// `std::os` holds the byte view of names, which does nothing.
const HARMLESS: [&str; 2] = ["OsStrExt", "OsStringExt"];

pub(crate) fn judge_dependencies(manifest: &Manifest) -> Vec<String> {
    let foreign = manifest.dependencies.iter().filter(|dependency| {
        // Own crates are judged by their floors.
        super::floor_of(&dependency.package).is_none()
    });
    foreign
        .filter(|dependency| !PURE.contains(&dependency.package.as_str()))
        .map(|dependency| {
            let (name, package) = (&manifest.name, &dependency.package);
            format!("{name} imports {package}: not known as pure (xtask/src/floors/purity.rs)")
        })
        .collect()
}

pub(crate) fn judge_source(tree: &Tree, crate_name: &str) -> Vec<String> {
    let sources = format!("crates/{crate_name}/src/");
    let files = tree.rust().filter(|file| file.path.starts_with(&sources));
    files
        .filter(|file| !is_test(file))
        .flat_map(judge_file)
        .collect()
}

/// A module that its parent includes under `#[cfg(test)]`.
fn is_test(file: &File) -> bool {
    file.name() == "tests.rs" || file.path.contains("/tests/")
}

fn judge_file(file: &File) -> Vec<String> {
    let code = file.code();
    let tokens = code.tokens_without_tests();
    let mut breaches = Vec::new();
    let mut report = |offset: usize, what: &str, why: &str| {
        breaches.push(format!(
            "{}:{}: {what}: {why}",
            file.path,
            code.line_of(offset)
        ));
    };
    for (at, token) in tokens.iter().enumerate() {
        if let Some((name, why)) = NAMES.iter().find(|(name, _)| *name == token.text)
            && !PLACES.contains(&(file.path.as_str(), *name))
        {
            report(token.offset, name, why);
        }
        if token.text == "std" && !follows_path(&tokens, at) {
            for module in acting_modules(&tokens[at + 1..]) {
                report(
                    module.offset,
                    &format!("std::{}", module.text),
                    "no effects on this floor",
                );
            }
        }
    }
    breaches
}

/// Whether the token at `at` continues a path: `crate::std` is not the library.
fn follows_path(tokens: &[Token<'_>], at: usize) -> bool {
    at >= 3 && tokens[at - 1].text == ":" && is_identifier(tokens[at - 3].text)
}

/// Acting modules in `::fs::read` or `::{fs, io::Read}`, the tokens after `std`.
fn acting_modules<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let [a, b, first, ..] = tokens else {
        return Vec::new();
    };
    if (a.text, b.text) != (":", ":") {
        return Vec::new();
    }
    let mut candidates = vec![(*first, 2)];
    if first.text == "{" {
        candidates.clear();
        let mut depth = 0_i32;
        for (at, token) in tokens.iter().enumerate().skip(2) {
            match token.text {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ if depth == 1 && matches!(tokens[at - 1].text, "{" | ",") => {
                    candidates.push((*token, at));
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    candidates.retain(|(token, at)| {
        let statement = tokens[*at..].iter().take_while(|token| token.text != ";");
        ACTING.contains(&token.text)
            && !(token.text == "os" && statement.into_iter().any(|t| HARMLESS.contains(&t.text)))
    });
    candidates.into_iter().map(|(token, _)| token).collect()
}

#[cfg(test)]
mod tests {
    use super::super::manifest::parse;
    use super::*;

    fn found(source: &str) -> Vec<String> {
        judge_source(&Tree::of(&[("crates/sim/src/lib.rs", source)]), "sim")
    }

    #[test]
    fn effects_are_found() {
        for source in [
            "use std::fs;",
            "fn f() { ::std::fs::read(x); }",
            "use std::{fmt, fs::File};",
            "fn f() -> Instant { Instant::now() }",
            "let t = std::time::SystemTime::now();",
            "std::thread::sleep(d);",
            "struct S { m: std::sync::Mutex<u8> }",
            "pub async fn f() {}",
            "println!(\"x\");",
            "use std::os::unix::fs::MetadataExt;",
        ] {
            assert!(!found(source).is_empty(), "{source}");
        }
    }

    #[test]
    fn a_name_is_allowed_in_its_place_alone() {
        let source = "struct S { m: std::sync::Mutex<u8> }";
        let judge = |path| judge_source(&Tree::of(&[(path, source)]), "sim").len();
        assert_eq!(judge(PLACES[0].0), 0);
        assert_eq!(judge("crates/sim/src/disk/mod.rs"), 1);
    }

    #[test]
    fn thought_passes() {
        let source = "use std::{fmt, time::Duration};\nuse std::os::unix::ffi::OsStrExt;\n\
                      // Reads no std::fs and no Instant.\nfn fs(net: u8) -> base::Time { x.env }\n\
                      #[cfg(test)]\nmod tests { fn t() { std::fs::read(\"golden\"); } }\n";
        assert!(found(source).is_empty(), "{:?}", found(source));
        let test = ("crates/sim/src/tests.rs", "use std::fs;");
        assert!(judge_source(&Tree::of(&[test]), "sim").is_empty());
    }

    #[test]
    fn only_pure_crates_are_imported() {
        let manifest = |package: &str, section: &str| {
            let text = format!("[package]\nname = \"sim\"\n[{section}]\n{package} = \"1\"\n");
            judge_dependencies(&parse(&text).unwrap())
        };
        assert_eq!(manifest("tokio", "dependencies").len(), 1);
        assert_eq!(manifest("rustix", "build-dependencies").len(), 1);
        assert_eq!(manifest("tempfile", "dev-dependencies").len(), 1);
        assert!(manifest("bytes", "dependencies").is_empty());
        assert!(manifest("proptest", "dev-dependencies").is_empty());
    }
}
