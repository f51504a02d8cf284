//! The tickets of a mount: read from what `azekura reserve create --json` has printed.

use crate::connect::enter_failed;
use crate::errors::{Code, Failure, Result};
use crate::output;
use base::TicketId;
use base::limits::TICKET_BYTES_MAX;
use client::object::{MountTicket, ObjectCallError};
use client::volume::Volume;
use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;
use wire::message::{ObjectError, TicketRefusal};

/// Most bytes of the file: 64 tickets in hexadecimal, and what is said of them.
const FILE_BYTES_MAX: u64 = 64 * 2 * TICKET_BYTES_MAX as u64 + (1 << 20);

/// The tickets in a file.
///
/// # Errors
/// [`Code::BadTicket`].
pub(super) fn read(path: &Path) -> Result<Vec<MountTicket>> {
    let shown = path.display().to_string();
    let bad = |why: &str| Failure::new(Code::BadTicket, format!("{shown}: {why}"));
    let opened = std::fs::File::open(path);
    let file = opened.map_err(|error| Failure::local(&shown, error))?;
    let mode = file.metadata().map_or(0, |metadata| metadata.mode());
    if mode & 0o077 != 0 {
        tracing::warn!(
            file = shown,
            "others may read the ticket and use it; chmod 600 keeps it"
        );
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Failure::local(&shown, error))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|_| bad("this is not what `azekura reserve create --json` prints"))?;
    let list = value["tickets"].as_array();
    let list = list.ok_or_else(|| bad("there are no tickets in it"))?;
    // Parts of tickets say nothing of it, and are not renewed.
    let reservation = value["id"].as_str().and_then(identity);
    let tickets = list.iter().map(|ticket| {
        let bytes = ticket["ticket"].as_str().and_then(from_hex);
        let bytes = bytes.ok_or_else(|| bad("a ticket is not in hexadecimal"))?;
        let read = MountTicket::new(&bytes);
        let read = read.map_err(|error| bad(&format!("a ticket is damaged: {error}")))?;
        Ok(match reservation {
            Some(reservation) => read.of(reservation),
            None => read,
        })
    });
    let tickets: Vec<MountTicket> = tickets.collect::<Result<_>>()?;
    if tickets.is_empty() {
        return Err(bad(
            "the reservation has no tickets: it is over, or was only tried",
        ));
    }
    Ok(tickets)
}

fn identity(text: &str) -> Option<TicketId> {
    let bytes = from_hex(text)?;
    Some(TicketId(bytes.try_into().ok()?))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bytes = (0..text.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok());
    is_hex.then(|| bytes.collect())?
}

/// Says from when on they are good, if not yet, by this machine's clock.
pub(super) fn announce(tickets: &[MountTicket]) -> Result<()> {
    let start = tickets.iter().map(|ticket| ticket.terms().start_secs).max();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    match start {
        Some(start) if start > now => output::line(format_args!(
            "the reservation begins at {}; until then the mount shares with everybody",
            output::moment(i64::try_from(start).unwrap_or(i64::MAX))
        )),
        _ => Ok(()),
    }
}

/// Uses tickets for a volume from now on.
///
/// # Errors
/// [`Code::BadTicket`] for those that are not good, or for another volume.
pub(super) async fn put_to_use(
    address: &crate::address::VolumeAddress,
    volume: &Volume,
    tickets: Vec<MountTicket>,
) -> Result<()> {
    let bad = |why: String| Failure::new(Code::BadTicket, why).during(format!("volume {address}"));
    if tickets
        .iter()
        .any(|ticket| ticket.head().volume != volume.id())
    {
        return Err(bad("the ticket is for another volume".to_owned()));
    }
    let moment = |secs| output::moment(i64::try_from(secs).unwrap_or(i64::MAX));
    let windows = tickets.iter().map(|ticket| {
        let (terms, id) = (ticket.terms(), ticket.head().id);
        (id, moment(terms.start_secs), moment(terms.end_secs))
    });
    let windows: Vec<_> = windows.collect();
    let outcome = volume.use_tickets(tickets).await;
    for (reservation, from, until) in windows {
        tracing::info!(%reservation, from, until, "mounted with a ticket");
    }
    match outcome {
        Ok(())
        | Err(ObjectCallError::Object(ObjectError::Ticket(TicketRefusal::NotYet { .. }))) => Ok(()),
        Err(ObjectCallError::Object(error)) => Err(bad(error.to_string())),
        Err(ObjectCallError::Call(error)) => Err(enter_failed(address, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("room");
        let failure = read(file.path()).expect_err("it is no ticket");
        assert_eq!(failure.code(), Code::BadTicket);
        failure.message().to_owned()
    }

    #[test]
    fn what_is_no_ticket_is_named() {
        assert!(refused("run42").contains("not what"));
        assert!(refused("{}").contains("no tickets in it"));
        assert!(refused(r#"{"tickets": []}"#).contains("over"));
        assert!(refused(r#"{"tickets": [{"ticket": "0g"}]}"#).contains("hexadecimal"));
        assert!(refused(r#"{"tickets": [{"ticket": "é0"}]}"#).contains("hexadecimal"));
        assert!(refused(r#"{"tickets": [{"ticket": "00"}]}"#).contains("damaged"));
        let gone = read(Path::new("/nonexistent/ticket")).expect_err("none");
        assert!(gone.message().contains("/nonexistent/ticket"));
    }
}
