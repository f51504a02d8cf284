//! Relative links in Markdown lead somewhere: to a file of the project and, after `#`, to a heading
//! in it. So do the documents that comments in the code refer to. Links to other sites are not
//! followed, so that the check needs no network.

use super::Finding;
use crate::tree::{File, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("md") {
        for (number, line) in prose(file) {
            for target in targets(&line) {
                if let Some(message) = fault(tree, file, &target) {
                    findings.push(Finding::new(file, number, message));
                }
            }
        }
    }
    for file in tree.rust().filter(|file| !file.path.starts_with("xtask/")) {
        for (number, line) in file
            .lines()
            .filter(|(_, line)| line.trim_start().starts_with("//"))
        {
            for path in documents(line).filter(|path| !tree.contains(path)) {
                findings.push(Finding::new(file, number, format!("{path} does not exist")));
            }
        }
    }
    findings
}

/// Paths of documents in a comment.
fn documents(comment: &str) -> impl Iterator<Item = &str> {
    let words =
        comment.split(|c: char| !c.is_alphanumeric() && !matches!(c, '/' | '.' | '-' | '_'));
    // A full stop at the end belongs to the sentence.
    let words = words.map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.starts_with("docs/") && word.ends_with(".md"))
}

/// What is wrong with a link's target, if anything.
fn fault(tree: &Tree, from: &File, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let resolved = if path.is_empty() {
        from.path.clone()
    } else {
        resolve(&from.path, path)?
    };
    if !tree.contains(&resolved) {
        return Some(format!("{target} leads nowhere: {resolved} does not exist"));
    }
    if anchor.is_empty() || !resolved.ends_with(".md") {
        return None;
    }
    let found = headings(tree.get(&resolved)?).any(|heading| heading == anchor);
    (!found).then(|| format!("{target} leads nowhere: {resolved} has no such heading"))
}

/// A path relative to a file's directory, as a path from the root. A path out of the project comes
/// back with its `..`, which no file has.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    Some(parts.join("/"))
}

/// The lines outside fenced code, with inline code blanked.
fn prose(file: &File) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    file.lines().filter_map(move |(number, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        let pieces = line.split('`').enumerate();
        let text = pieces.map(|(index, piece)| if index % 2 == 0 { piece } else { "x" });
        (!fenced).then(|| (number, text.collect()))
    })
}

/// Targets of `[text](target)` and of `[label]: target`.
fn targets(line: &str) -> Vec<String> {
    let clean = |text: &str| {
        let target = text.split_whitespace().next().unwrap_or_default();
        target.trim_matches(['<', '>']).to_owned()
    };
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    let mut found: Vec<String> = inline.map(|(target, _)| clean(target)).collect();
    if let Some((label, target)) = line.split_once("]: ")
        && label.starts_with('[')
    {
        found.push(clean(target));
    }
    found
}

/// The anchors that a renderer gives to a page's headings.
fn headings(file: &File) -> impl Iterator<Item = String> {
    let titles = file.lines().filter(|(_, line)| line.starts_with('#'));
    titles.map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: (&str, &str) = ("docs/other.md", "# Other page\n\n## What it is, exactly\n");

    #[test]
    fn dead_links_are_found() {
        let text = "[a](nowhere.md)\n[b](other.md#no-heading)\n[c]: ../gone.md\n\
                    [d](../../up.md)\n[e](#x)\n";
        let expected = [1, 2, 3, 4, 5].map(|line| format!("docs/page.md:{line}"));
        assert_eq!(
            crate::tidy::found(check, &[("docs/page.md", text), OTHER]),
            expected
        );
    }

    #[test]
    fn comments_refer_to_documents_that_exist() {
        let code = "//! Drawn in `docs/other.md`.\n/// See docs/gone.md.\nlet x = \"docs/no.md\";\n\
                    // and (docs/gone.md)\n";
        let path = "crates/a/src/lib.rs";
        let found = crate::tidy::found(check, &[(path, code), OTHER]);
        assert_eq!(found, [format!("{path}:2"), format!("{path}:4")]);
    }

    #[test]
    fn living_links_pass() {
        let text = "# Here\n[a](other.md) [b](./other.md#what-it-is-exactly \"title\")\n\
                    [c](../docs)\n\
                    [d](https://example.org/x) `[e](gone.md)` [f](#here)\n```\n[g](gone.md)\n```\n";
        assert!(crate::tidy::found(check, &[("docs/page.md", text), OTHER]).is_empty());
    }
}
