//! One word, one meaning: public identifiers avoid the words that docs/glossary.md rules out.
//!
//! Only words that have no other honest use in their crates are listed; `inode`, `block` or `node`
//! mean something to FUSE and to devices and cannot be judged without reading.

use super::Finding;
use crate::source::{Token, is_identifier};
use crate::tree::Tree;

/// A word, what to say instead, and the crates where it is ruled out (none listed: in all).
const RULED_OUT: [(&str, &str, &[&str]); 13] = [
    ("blob", "object, chunk or the file's name", &[]),
    ("shard", "stripe unit, layout", &[]),
    ("booking", "reservation", &[]),
    (
        "token",
        "ticket; a secret for joining is a join string",
        &[],
    ),
    ("ttl", "lifetime", &[]),
    ("osd", "storage server", &[]),
    ("master", "manager", &[]),
    ("slave", "storage server", &[]),
    ("throttle", "scheduler, share", &[]),
    ("trustee", "principal", &[]),
    ("lookahead", "read-ahead, fetch", &[]),
    ("prefetch", "fetch", &["readahead", "client", "wire"]),
    ("snapshot", "crash state", &["sim", "verify"]),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let Some(crate_name) = file.crate_name() else {
            continue;
        };
        let code = file.code();
        let tokens = code.tokens();
        for name in public_names(&tokens) {
            for (word, instead, crates) in RULED_OUT {
                let here = crates.is_empty() || crates.contains(&crate_name);
                if here && words(name.text).any(|part| part == word || part == format!("{word}s")) {
                    let message = format!("{}: say {instead}, not {word}", name.text);
                    findings.push(Finding::new(file, code.line_of(name.offset), message));
                }
            }
        }
    }
    findings
}

/// The parts of a name in snake or camel case, in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut parts = vec![String::new()];
    let mut lower_before = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && lower_before) {
            parts.push(String::new());
        }
        if c != '_' {
            parts
                .last_mut()
                .expect("begins with one part")
                .extend(c.to_lowercase());
        }
        lower_before = c.is_lowercase() || c.is_ascii_digit();
    }
    parts.into_iter()
}

/// Names of public items, public fields and the variants of public enums.
fn public_names<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    const ITEMS: [&str; 10] = [
        "fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "macro",
    ];
    const MODIFIERS: [&str; 4] = ["async", "unsafe", "extern", "mut"];
    let mut names = Vec::new();
    for start in (0..tokens.len()).filter(|&at| tokens[at].text == "pub") {
        let mut rest = tokens[start + 1..].iter().peekable();
        let mut item = None;
        while let Some(token) =
            rest.next_if(|token| ITEMS.contains(&token.text) || MODIFIERS.contains(&token.text))
        {
            item = Some(token.text);
        }
        // `pub(crate)` and `pub use` make nothing public under a name of its own.
        let Some(name) = rest.next().filter(|name| is_identifier(name.text)) else {
            continue;
        };
        let field = rest.peek().is_some_and(|next| next.text == ":");
        if item.is_some() || field {
            names.push(*name);
        }
        if item == Some("enum") {
            names.extend(variants(&tokens[start..]));
        }
    }
    names
}

/// The variants of the enum that begins the tokens.
fn variants<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut depth = 0_i32;
    let mut expected = false;
    let mut found = Vec::new();
    for token in tokens {
        match token.text {
            "{" | "(" | "[" => {
                depth += 1;
                expected = expected || (token.text == "{" && depth == 1);
            }
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 && token.text == "}" {
                    break;
                }
            }
            "," if depth == 1 => expected = true,
            text if depth == 1 && expected && is_identifier(text) => {
                found.push(*token);
                expected = false;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ruled_out_words_are_found() {
        let source = "pub struct ShardMap;\npub const fn entry_ttl() {}\n\
                      pub struct A {\n    pub osd_count: u32,\n}\n\
                      pub enum B {\n    #[error(\"x\")]\n\
                      Good(u8),\n    TokenExpired { at: u8 },\n}\n\
                      pub async fn prefetches() {}\n";
        let path = "crates/client/src/lib.rs";
        let expected = [1, 2, 4, 9].map(|line| format!("{path}:{line}"));
        assert_eq!(crate::tidy::found(check, &[(path, source)]), expected);
        let fetch = "pub fn prefetch_window() {}\n";
        assert_eq!(crate::tidy::found(check, &[(path, fetch)]).len(), 1);
        assert!(crate::tidy::found(check, &[("crates/disk/src/lib.rs", fetch)]).is_empty());
    }

    #[test]
    fn private_names_and_other_words_pass() {
        let source = "struct Shard { token: u8 }\npub(crate) fn shard() {}\npub use x::Token;\n\
                      pub fn mastery(token: u8) -> Tokenizer { let ttl = 1; }\n\
                      pub enum C { Fine(Token), Blobless { shard: u8 } }\n";
        assert!(crate::tidy::found(check, &[("crates/a/src/lib.rs", source)]).is_empty());
    }
}
