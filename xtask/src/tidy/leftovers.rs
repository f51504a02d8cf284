//! Nothing unfinished, silenced or left over from a search: no placeholder or debugging macro, no
//! ignored test, no marker of work to be done. What is open belongs in the issue list.

use super::Finding;
use crate::source::Token;
use crate::tree::Tree;

const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// In two pieces, because this file is checked too.
const MARKERS: [[&str; 2]; 3] = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let code = file.code();
        for message_at in code.tokens().windows(3).filter_map(leftover) {
            let (offset, message) = message_at;
            findings.push(Finding::new(file, code.line_of(offset), message));
        }
        for (number, line) in file.lines() {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            for word in words.filter(|word| MARKERS.iter().any(|pieces| pieces.concat() == *word)) {
                findings.push(Finding::new(
                    file,
                    number,
                    format!("{word}: open work is an issue"),
                ));
            }
        }
    }
    findings
}

fn leftover(tokens: &[Token<'_>]) -> Option<(usize, String)> {
    let [first, second, third] = tokens else {
        return None;
    };
    if MACROS.contains(&first.text) && second.text == "!" && matches!(third.text, "(" | "[" | "{") {
        return Some((first.offset, format!("{}! is left over", first.text)));
    }
    let ignored = [first.text, second.text, third.text] == ["#", "[", "ignore"];
    ignored.then(|| {
        (
            first.offset,
            "an ignored test proves nothing; skip it with a reason".into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_found() {
        let marker = format!("// {}: more\n", MARKERS[0].concat());
        let files = [
            ("a.rs", "fn f() {\n    todo!()\n}\nfn g() { dbg![1]; }\n"),
            ("b.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n"),
            ("c.rs", marker.as_str()),
        ];
        assert_eq!(
            crate::tidy::found(check, &files),
            ["a.rs:2", "a.rs:4", "b.rs:2", "c.rs:1"]
        );
    }

    #[test]
    fn words_in_text_are_not_macros() {
        let text = "// Not todo!() but done.\nlet todo = \"dbg!(x)\"; if todo != x {}\n";
        assert!(crate::tidy::found(check, &[("a.rs", text)]).is_empty());
    }
}
