//! The tickets of a mount: read from what `azekura reserve create --json` has printed.

use crate::cli::tickets::TicketFile;
use crate::connect::enter_failed;
use crate::errors::{Code, Failure, Result};
use crate::output;
use client::object::{MountTicket, ObjectCallError};
use client::volume::Volume;
use std::path::Path;
use std::time::SystemTime;
use wire::message::{ObjectError, TicketRefusal};

/// The tickets in a file; `-` is standard input.
///
/// # Errors
/// [`Code::BadTicket`].
pub(super) fn read(path: &Path) -> Result<Vec<MountTicket>> {
    of(&TicketFile::read(path)?)
}

/// The tickets of a file that was read.
///
/// # Errors
/// As [`read`].
pub(super) fn of(file: &TicketFile) -> Result<Vec<MountTicket>> {
    // With whose it is, it is renewed: a part ends as its maker wanted it.
    let reservation = file.reservation();
    let tickets = file.tickets.iter().map(|bytes| {
        let ticket = MountTicket::new(bytes).map_err(|error| {
            let why = format!("{}: a ticket is damaged: {error}", file.shown);
            Failure::new(Code::BadTicket, why)
        })?;
        Ok(match reservation {
            Some(reservation) => ticket.of(reservation),
            None => ticket,
        })
    });
    tickets.collect()
}

/// In a server's words: parts that are open have all of their ticket.
const NOTHING_LEFT: &str = "left of the ticket that it was split from";

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
        Err(ObjectCallError::Object(error)) => {
            let failure = bad(error.to_string());
            Err(match failure.message().contains(NOTHING_LEFT) {
                true => {
                    failure.hint("other parts of the ticket have it; end a mount that uses one")
                }
                false => failure,
            })
        }
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
