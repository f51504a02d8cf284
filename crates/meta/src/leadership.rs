//! Leadership: a seat, who has it, and the epoch that guards what he does.
//!
//! ```text
//!            lead                      silent, or the seat is seen to be vacant
//!  vacant ─────────► held at epoch N ──────────────────────────────────────────► lost
//!     ▲                  │ renewed every META_SEAT_RENEWAL_INTERVAL                │
//!     └──────────────────┴── resigned, dropped, deposed, engine closed ────────────┘
//! ```
//! A seat is one entry that its holder writes when there is none. Its revision is the epoch, so
//! epochs only grow. A guarded transaction compares that revision: once the entry is gone, or was
//! written anew, it never happens. No clock is asked for that. The keeper below runs beside the
//! leader only so that he keeps the seat, and learns early that he has lost it.

use crate::engine::{Answer, Engine, Revision};
use crate::transaction::Guard;
use crate::watch::Source;
use crate::{Changed, MetaError};
use base::limits::{
    META_CAMPAIGN_INTERVAL, META_KEY_BYTES_MAX, META_SEAT_RENEWAL_INTERVAL, META_SEAT_TRUST_TIME,
};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// What an engine does for whoever has a seat.
pub(crate) trait Seat: Send {
    /// Says that the holder is there.
    fn renew(&mut self) -> Answer<'_, ()>;
    /// Leaves the seat, if it is still held at this epoch.
    fn vacate(&mut self) -> Answer<'_, ()>;
}

/// A seat that is held, or was. Dropped, it is left.
pub struct Leadership {
    guard: Guard,
    /// Until when it is trusted; none after it was lost.
    trusted: watch::Receiver<Option<Instant>>,
    /// The keeper leaves the seat when this is gone.
    stop: mpsc::Sender<()>,
    ended: watch::Receiver<()>,
}

impl Leadership {
    /// Begins to keep a seat that was taken at `epoch`, by a request sent at `since`. `changes` are
    /// those of its entry after the epoch.
    pub(crate) fn keep(
        seat: &str,
        epoch: Revision,
        since: Instant,
        keeping: impl Seat + 'static,
        changes: Box<dyn Source>,
    ) -> Self {
        let (tell, trusted) = watch::channel(Some(since + META_SEAT_TRUST_TIME));
        let (stop, stopped) = mpsc::channel(1);
        let (alive, ended) = watch::channel(());
        let keeper = Keeper {
            seat: keeping,
            changes,
            tell,
            stopped,
            _alive: alive,
        };
        tokio::spawn(keeper.run());
        Self {
            guard: Guard {
                seat: seat.to_owned(),
                epoch,
            },
            trusted,
            stop,
            ended,
        }
    }

    /// The epoch: greater than that of every leader before.
    #[must_use]
    pub fn epoch(&self) -> Revision {
        self.guard.epoch
    }

    /// Which seat it is.
    #[must_use]
    pub fn seat(&self) -> &str {
        &self.guard.seat
    }

    /// Whether nobody else can have the seat yet, as far as this machine's clock runs at the same
    /// pace as others. It is for answers from memory; what is written is guarded by the epoch.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        let trusted = *self.trusted.borrow();
        trusted.is_some_and(|end| Instant::now() < end)
    }

    /// Waits until it is lost, or not trusted any more.
    pub async fn lost(&self) {
        let mut trusted = self.trusted.clone();
        loop {
            let Some(end) = *trusted.borrow_and_update() else {
                return;
            };
            match timeout_at(end, trusted.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Leaves the seat, so that another can take it at once; waits until that is done or given up.
    pub async fn resign(self) {
        let Self {
            stop, mut ended, ..
        } = self;
        drop(stop);
        // The keeper sends nothing; this returns when it has ended.
        let _ = ended.changed().await;
    }

    pub(crate) fn guard(&self) -> Guard {
        self.guard.clone()
    }
}

struct Keeper<S> {
    seat: S,
    changes: Box<dyn Source>,
    tell: watch::Sender<Option<Instant>>,
    stopped: mpsc::Receiver<()>,
    /// Dropped at the end.
    _alive: watch::Sender<()>,
}

impl<S: Seat> Keeper<S> {
    async fn run(mut self) {
        let mut due = Instant::now() + META_SEAT_RENEWAL_INTERVAL;
        let mut is_watching = true;
        loop {
            tokio::select! {
                _ = self.stopped.recv() => break,
                changes = self.changes.next(), if is_watching => match changes {
                    Ok(changes) if changes.changed.iter().any(is_deletion) => {
                        self.tell.send_replace(None);
                        return;
                    }
                    Ok(_) => {}
                    // Without a watch the renewals say whether the seat is held.
                    Err(_) => is_watching = false,
                },
                (asked, renewed) = renew(due, &mut self.seat) => {
                    due = asked + META_SEAT_RENEWAL_INTERVAL;
                    match renewed {
                        Ok(()) => {
                            self.tell.send_replace(Some(asked + META_SEAT_TRUST_TIME));
                        }
                        Err(MetaError::Deposed { .. } | MetaError::Closed) => {
                            self.tell.send_replace(None);
                            return;
                        }
                        // Trust runs out by itself.
                        Err(_) => {}
                    }
                }
            }
        }
        self.tell.send_replace(None);
        // What cannot be left now is vacant when it has been silent for long enough.
        let _ = self.seat.vacate().await;
    }
}

/// Says when it asked: the seat is kept from then on for its time, not from when the answer came.
async fn renew(due: Instant, seat: &mut impl Seat) -> (Instant, Result<(), MetaError>) {
    sleep_until(due).await;
    let asked = Instant::now();
    (asked, seat.renew().await)
}

fn is_deletion(changed: &Changed) -> bool {
    matches!(changed, Changed::Deleted(_))
}

/// The bytes that say who has a seat, or why they cannot be.
pub(crate) fn check_seat(seat: &str, holder: &str) -> Result<(), MetaError> {
    let longest = seat.len().max(holder.len());
    if seat.is_empty() {
        return Err(MetaError::Invalid("a seat has a name"));
    }
    if longest > META_KEY_BYTES_MAX {
        return Err(MetaError::TooLarge {
            what: "bytes in the name of a seat or its holder",
            size: longest,
            size_max: META_KEY_BYTES_MAX,
        });
    }
    Ok(())
}

/// Waits for a seat up to `limit` and takes it.
///
/// # Errors
/// [`MetaError::Held`] when the time is over and somebody still has it; what [`Engine::lead`] says
/// besides.
pub async fn campaign(
    engine: &dyn Engine,
    seat: &str,
    holder: &str,
    limit: Duration,
) -> Result<Leadership, MetaError> {
    let end = Instant::now() + limit;
    loop {
        match engine.lead(seat, holder).await {
            Err(MetaError::Held { .. } | MetaError::Unavailable(_))
                if Instant::now() + META_CAMPAIGN_INTERVAL < end =>
            {
                sleep(META_CAMPAIGN_INTERVAL).await;
            }
            other => return other,
        }
    }
}
