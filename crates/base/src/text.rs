//! Characters of texts that others have written.

/// Whether a terminal shows a character otherwise than it stands in the text, or not at all:
/// control characters, those that turn the direction round, and those without width.
#[must_use]
pub fn is_unseen(c: char) -> bool {
    let unseen = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    unseen || c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_or_turns_a_text_round_is_known() {
        for c in ['\n', '\u{7f}', '\u{9b}', '\u{200e}', '\u{202e}', '\u{2066}'] {
            assert!(is_unseen(c), "{c:?}");
        }
        for c in ['a', ' ', 'ä', '日', '\u{301}', '🦀'] {
            assert!(!is_unseen(c), "{c:?}");
        }
    }
}
