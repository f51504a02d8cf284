//! Rust source seen as tokens, well enough to count braces.
//!
//! A full parser would be a heavy dependency for the first program that a fresh machine compiles.
//! The rules need less: what is a comment or a literal, where a function begins and ends, which
//! items are public. Comments, strings and character literals are blanked (each byte becomes a
//! blank, line ends stay), so that offsets and line numbers hold in both texts.

use std::ops::Range;

/// A source text without its comments and literals.
pub(crate) struct Code {
    text: String,
    line_starts: Vec<usize>,
}

/// An identifier, a number or one punctuation character.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) offset: usize,
}

/// A function's name and the lines that it takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) first_line: usize,
    pub(crate) last_line: usize,
}

impl Code {
    pub(crate) fn of(source: &str) -> Self {
        let text = blank(source);
        let starts = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let line_starts = std::iter::once(0)
            .chain(starts.map(|(at, _)| at + 1))
            .collect();
        Self { text, line_starts }
    }

    /// The line, from 1, of a byte offset.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }

    /// Tokens of the whole file.
    pub(crate) fn tokens(&self) -> Vec<Token<'_>> {
        tokens(&self.text)
    }

    /// Tokens outside items marked `#[cfg(test)]`.
    pub(crate) fn tokens_without_tests(&self) -> Vec<Token<'_>> {
        let all = self.tokens();
        let tests = test_items(&all);
        let keep = |token: &Token<'_>| !tests.iter().any(|range| range.contains(&token.offset));
        all.into_iter().filter(keep).collect()
    }

    /// All functions with a body, nested ones as well.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let tokens = self.tokens();
        let starts = tokens
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| pair[0].text == "fn");
        starts
            .filter(|(_, pair)| is_identifier(pair[1].text))
            .filter_map(|(at, pair)| {
                let end = item_end(&tokens, at)?;
                (tokens[end].text == "}").then(|| Function {
                    name: pair[1].text.to_owned(),
                    first_line: self.line_of(pair[0].offset),
                    last_line: self.line_of(tokens[end].offset),
                })
            })
            .collect()
    }
}

/// Whether a token can be a name.
pub(crate) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Offsets of items marked `#[cfg(test)]`, attribute included.
fn test_items(tokens: &[Token<'_>]) -> Vec<Range<usize>> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let marks = tokens.windows(MARK.len()).enumerate();
    marks
        .filter(|(_, window)| window.iter().map(|token| token.text).eq(MARK))
        .filter_map(|(at, window)| {
            let end = item_end(tokens, at + MARK.len())?;
            Some(window[0].offset..tokens[end].offset + 1)
        })
        .collect()
}

/// Index of the token that ends the item beginning at `start`: its closing brace, or its semicolon.
fn item_end(tokens: &[Token<'_>], start: usize) -> Option<usize> {
    // Brackets and braces are balanced in code that compiles, so one depth serves all of them.
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 && token.text == "}" {
                    return Some(index);
                }
            }
            ";" if depth == 0 => return Some(index),
            _ => {}
        }
    }
    None
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((offset, first)) = rest.next() {
        let mut end = offset + first.len_utf8();
        if first.is_whitespace() {
            continue;
        }
        if word(first) {
            while let Some((at, c)) = rest.next_if(|&(_, c)| word(c)) {
                end = at + c.len_utf8();
            }
        }
        found.push(Token {
            text: &text[offset..end],
            offset,
        });
    }
    found
}

/// Blanks comments and literals, byte for byte.
fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let end = literal_end(bytes, at, after_word);
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(
                bytes[at..end]
                    .iter()
                    .map(|&b| if b == b'\n' { b'\n' } else { b' ' }),
            );
            at = end;
        }
    }
    String::from_utf8(out).expect("whole comments and literals were replaced by ASCII")
}

/// Where the comment or literal that begins at `at` ends; `at` itself if none begins there.
fn literal_end(bytes: &[u8], at: usize, after_word: bool) -> usize {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_end(bytes, at),
        [b'"', ..] => string_end(bytes, at + 1),
        [b'\'', ..] => character_end(bytes, at),
        [b'r' | b'b' | b'c', ..] if !after_word => prefixed_end(bytes, at),
        _ => at,
    }
}

/// Rust's block comments nest.
fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(bytes.len())
}

/// The end of a string whose content begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A character literal's end, or `at` for a lifetime.
fn character_end(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes.iter().skip(at + 3).position(|&b| b == b'\'');
        return close.map_or(bytes.len(), |offset| at + 3 + offset + 1);
    }
    // One character of up to four bytes, then the quote.
    let width = match bytes.get(at + 1) {
        Some(0..=0x7f) => 1,
        Some(0x80..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(_) => 4,
        None => return at,
    };
    if bytes.get(at + 1 + width) == Some(&b'\'') {
        at + width + 2
    } else {
        at
    }
}

/// Strings with a prefix: raw ones, byte and C strings. A raw identifier is none of them.
fn prefixed_end(bytes: &[u8], at: usize) -> usize {
    let letters = bytes[at..]
        .iter()
        .take_while(|b| matches!(b, b'r' | b'b' | b'c'))
        .count();
    let prefix = &bytes[at..at + letters];
    let after = at + letters;
    let hashes = bytes[after..].iter().take_while(|&&b| b == b'#').count();
    match (prefix, bytes.get(after + hashes)) {
        (b"r" | b"br" | b"cr", Some(b'"')) => {
            let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
            let content = after + hashes + 1;
            let found = bytes[content..]
                .windows(close.len())
                .position(|window| window == close);
            found.map_or(bytes.len(), |offset| content + offset + close.len())
        }
        (b"b" | b"c", Some(b'"')) if hashes == 0 => string_end(bytes, after + 1),
        (b"b", Some(b'\'')) if hashes == 0 => character_end(bytes, after),
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_blank(source: &str, expected: &str) {
        let blanked = blank(source);
        assert_eq!(blanked.len(), source.len());
        assert_eq!(
            blanked.split_whitespace().collect::<Vec<_>>().join(" "),
            expected
        );
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        check_blank("a // {\nb /* { /* } */ { */ c", "a b c");
        check_blank(r#"f("{ \" }", x)"#, "f( , x)");
        check_blank("r#\"raw \" { \"# + br##\"x\"# {\"##;", "+ ;");
        check_blank("b\"{\" c\"{\" b'{' r#type", "r#type");
        check_blank(
            "match c { '{' => 1, '\\'' => 2, '\\u{7b}' => 3, 'é' => 4 }",
            "match c { => 1, => 2, => 3, => 4 }",
        );
        check_blank("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        check_blank("\"never closed {", "");
    }

    #[test]
    fn functions_are_measured() {
        let source = "fn one() {}\ntrait T { fn none(&self); }\n\
                      pub fn three<F: Fn(fn(u8)) -> [u8; 2]>(f: F)\n\
                      where F: Copy {\n    if x { y(\"}\") }\n}\n";
        let functions = Code::of(source).functions();
        let lines = functions
            .iter()
            .map(|f| (f.name.as_str(), f.first_line, f.last_line));
        assert_eq!(lines.collect::<Vec<_>>(), [("one", 1, 1), ("three", 3, 6)]);
    }

    #[test]
    fn test_items_can_be_left_out() {
        let source = "use a;\n#[cfg(test)]\nmod tests { fn x() { std::fs::read(1) } }\nfn y() {}";
        let code = Code::of(source);
        let words: Vec<_> = code
            .tokens_without_tests()
            .iter()
            .map(|token| token.text)
            .collect();
        assert_eq!(words, ["use", "a", ";", "fn", "y", "(", ")", "{", "}"]);
        let line = code
            .tokens()
            .iter()
            .find(|token| token.text == "y")
            .map(|t| code.line_of(t.offset));
        assert_eq!(line, Some(4));
    }
}
