//! Asking for a secret on a terminal: what is typed is not shown.
//!
//! The terminal is the same one before and after, whatever ends the question: Enter, an error, or a
//! signal. A process that a signal ends at once would leave a terminal on which nobody sees what
//! they type, so SIGINT and SIGTERM end the question in order, and the keys that stop or kill a
//! process without that (Ctrl-Z, Ctrl-\) mean nothing while it waits.

use crate::cli::Signals;
use crate::errors::{Context, Failure, Result};
use crate::output;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::{self, BufRead, Read};

/// What a special character is set to that no key shall have (`_POSIX_VDISABLE`).
const NO_KEY: u8 = 0;

/// Standard input's terminal while it does not show what is typed.
struct Hidden {
    before: Termios,
}

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The end of the line is shown: what follows begins on a line of its own.
        hidden.local_modes.insert(LocalModes::ECHONL);
        hidden.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
        hidden.special_codes[SpecialCodeIndex::VQUIT] = NO_KEY;
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self { before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // What was typed and not read goes away with it: it may be the rest of the secret. If the
        // terminal is gone, there is nothing to be put right.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Reads one line of at most `bytes_max` bytes from standard input, a terminal, without showing it.
///
/// # Errors
/// Of the terminal, or [`crate::errors::Code::Interrupted`].
pub(crate) async fn ask_secret(prompt: &str, bytes_max: u64) -> Result<String> {
    // Before the terminal changes: a signal that comes then must not end the process at once.
    let mut signals = Signals::new()?;
    let hidden = Hidden::begin().context("the terminal")?;
    output::note(prompt);
    let (sender, answer) = tokio::sync::oneshot::channel();
    // A thread that nobody waits for: reading cannot be broken off.
    std::thread::spawn(move || sender.send(read_line(bytes_max)));
    let line = tokio::select! {
        answer = answer => answer.unwrap_or_else(|_| Ok(String::new())).context("standard input"),
        () = signals.wait() => Err(Failure::interrupted("interrupted; nothing was sent")),
    };
    drop(hidden);
    line
}

/// Reads one line of at most `bytes_max` bytes from standard input.
///
/// # Errors
/// The system's.
pub(crate) fn read_line(bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    let mut bounded = io::BufReader::new(io::stdin().lock().take(bytes_max));
    bounded.read_line(&mut text)?;
    Ok(text)
}
