//! Servers that do not answer any more while a command works.
//!
//! Each request waits for its answer for as long as `--timeout` says, and most commands ask for one
//! thing after another: with a server that is gone, each would wait for that long again. So a
//! command ends when nothing has been heard of one of its servers for that time. What it says then
//! is what connecting to that server comes to at this moment.

use crate::address::Address;
use crate::connect::resolve;
use crate::errors::{Code, Failure, Result, from_link};
use crate::output;
use base::limits::LEASE_TRUST_TIME;
use client::transport::Transport;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use wire::link::LinkError;

/// How often it is looked.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// What one look counts at most: while this process stands still (Ctrl-Z), it hears nobody.
const LOOK_TIME_MAX: Duration = Duration::from_secs(1);
/// How long it may take to find out whether a server that is not heard can be connected to.
const QUESTION_TIME_MAX: Duration = Duration::from_secs(2);

struct Watched {
    server: Address,
    transport: Transport,
    /// For how long nothing has been heard of it while this process went on.
    silence: Duration,
}

/// The servers that a command has a session with. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Watched>>>);

impl Heard {
    /// From now on its silence ends the work.
    pub(crate) fn add(&self, server: &Address, transport: &Transport) {
        self.servers().push(Watched {
            server: server.clone(),
            transport: transport.clone(),
            silence: Duration::ZERO,
        });
    }

    /// Works until it is done, or one of the servers has been silent for as long as a request may
    /// take. Then what was begun is dropped.
    ///
    /// # Errors
    /// The work's, [`Code::Unreachable`] or [`Code::TimedOut`].
    pub(crate) async fn unless_silent<T>(
        &self,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            biased;
            outcome = work => match outcome {
                Err(failure) if failure.code() == Code::TimedOut => {
                    Err(self.explained(failure).await)
                }
                outcome => outcome,
            },
            (server, time) = self.until_silent() => Err(match why_unreachable(&server).await {
                Some(why) => why,
                None => {
                    let time = output::seconds(time.as_secs());
                    Failure::new(Code::TimedOut, format!("{server} has not answered for {time}"))
                }
            }),
        }
    }

    async fn until_silent(&self) -> (Address, Duration) {
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let step = last.elapsed();
            last = Instant::now();
            if let Some(found) = self.look(step) {
                return found;
            }
        }
    }

    /// A look at all of them, that long after the last one; one that has been silent for too long,
    /// and for how long that is.
    fn look(&self, step: Duration) -> Option<(Address, Duration)> {
        self.servers().iter_mut().find_map(|watched| {
            let told = watched.transport.figures().silence;
            watched.silence = silence_after(watched.silence, step, told);
            // A server that is well is heard more often than by this time, with nothing to do.
            let time_max = watched.transport.request_time_max().max(LEASE_TRUST_TIME);
            let is_silent = watched.silence >= time_max;
            is_silent.then(|| (watched.server.clone(), time_max))
        })
    }

    /// A request has got no answer in time: says why, if that shows.
    async fn explained(&self, failure: Failure) -> Failure {
        let servers: Vec<Address> = self.servers().iter().map(|it| it.server.clone()).collect();
        for server in &servers {
            if let Some(why) = why_unreachable(server).await {
                return why;
            }
        }
        failure
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long a server has been silent by a look that comes `step` after the last one, which
/// found `before`, if the last word from it came `told` ago.
fn silence_after(before: Duration, step: Duration, told: Duration) -> Duration {
    if told < step {
        told.min(LOOK_TIME_MAX)
    } else {
        before + step.min(LOOK_TIME_MAX)
    }
}

/// Why a server that does not answer cannot be connected to; `None` if it can, or that does not
/// show at once.
pub(crate) async fn why_unreachable(server: &Address) -> Option<Failure> {
    let connecting = async {
        let addresses = resolve(server).await.ok()?;
        TcpStream::connect(addresses.as_slice()).await.err()
    };
    let asked = tokio::time::timeout(QUESTION_TIME_MAX, connecting).await;
    let error = asked.ok()??;
    Some(from_link(&server.to_string(), &LinkError::Io(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_while_this_process_goes_on() {
        let millis = Duration::from_millis;
        let step = millis(100);
        // Nothing is heard, then something.
        let silence = silence_after(millis(400), step, millis(505));
        assert_eq!(silence, millis(500));
        assert_eq!(silence_after(silence, step, millis(30)), millis(30));
        // The process was stopped for an hour.
        let stopped = Duration::from_secs(3600);
        let silence = silence_after(millis(100), stopped, stopped + millis(100));
        assert_eq!(silence, millis(1100));
        let silence = silence_after(millis(100), stopped, stopped - millis(1));
        assert_eq!(silence, LOOK_TIME_MAX);
    }
}
