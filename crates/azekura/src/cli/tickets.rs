//! Files of tickets, as `azekura reserve create --json` prints and `reserve split` writes them.

use crate::errors::{Code, Failure, Result};
use base::TicketId;
use base::limits::TICKET_BYTES_MAX;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Most bytes of the file: 64 tickets in hexadecimal, and what is said of them.
const FILE_BYTES_MAX: u64 = 64 * 2 * TICKET_BYTES_MAX as u64 + (1 << 20);

/// A file with tickets.
pub(super) struct TicketFile {
    /// How it is called when something is said of it.
    pub(super) shown: String,
    /// All that is in it.
    pub(super) value: Value,
    /// The bytes of its tickets, one or more.
    pub(super) tickets: Vec<Vec<u8>>,
}

impl TicketFile {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// [`Code::BadTicket`]; [`Code::Local`] if it cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Self::parse("standard input".to_owned(), io::stdin());
        }
        let shown = path.display().to_string();
        let opened = File::open(path);
        let file = opened.map_err(|error| Failure::local(&shown, error))?;
        let mode = file.metadata().map_or(0, |metadata| metadata.mode());
        if mode & 0o077 != 0 {
            tracing::warn!(
                file = shown,
                "others may read the ticket and use it; chmod 600 keeps it"
            );
        }
        Self::parse(shown, file)
    }

    fn parse(shown: String, file: impl Read) -> Result<Self> {
        let bad = |why: &str| Failure::new(Code::BadTicket, format!("{shown}: {why}"));
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| Failure::local(&shown, error))?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|_| bad("this is not what `azekura reserve create --json` prints"))?;
        let list = value["tickets"].as_array();
        let list = list.ok_or_else(|| bad("there are no tickets in it"))?;
        let tickets = list.iter().map(|ticket| {
            let bytes = ticket["ticket"].as_str().and_then(from_hex);
            bytes.ok_or_else(|| bad("a ticket is not in hexadecimal"))
        });
        let tickets: Vec<Vec<u8>> = tickets.collect::<Result<_>>()?;
        if tickets.is_empty() {
            return Err(bad(
                "the reservation has no tickets: it is over, or was only tried",
            ));
        }
        Ok(Self {
            shown,
            value,
            tickets,
        })
    }

    /// Whose they are; none if it is not said, or they are parts.
    pub(super) fn reservation(&self) -> Option<TicketId> {
        let id = self
            .value
            .get("part")
            .is_none()
            .then_some(&self.value["id"])?;
        let bytes = from_hex(id.as_str()?)?;
        Some(TicketId(bytes.try_into().ok()?))
    }
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bytes = (0..text.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok());
    is_hex.then(|| bytes.collect())?
}
