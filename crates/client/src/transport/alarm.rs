//! An alarm by the clock that goes on while the machine sleeps: it rings at once when the machine
//! wakes up after its time. A usual timer would wait for as long as it had left before.

use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// See the module's head. Where there is no such timer it never rings.
pub(super) struct Alarm(Option<AsyncFd<OwnedFd>>);

impl Alarm {
    #[expect(
        deprecated,
        reason = "unsound for what may close its descriptor, which an OwnedFd does not; the other \
                  way is unsafe code"
    )]
    pub(super) fn new() -> Self {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags);
        let timer = timer.map_err(std::io::Error::from).and_then(AsyncFd::new);
        if let Err(error) = &timer {
            tracing::warn!(%error, "what the kernel keeps is dropped late if the machine sleeps");
        }
        Self(timer.ok())
    }

    /// It is to ring after this time, which is not zero.
    pub(super) fn set(&self, left: Duration) {
        let Some(timer) = &self.0 else { return };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        // It takes any time of this kind.
        let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Waits until it rings.
    pub(super) async fn rings(&self) {
        let Some(timer) = &self.0 else {
            return std::future::pending().await;
        };
        match timer.readable().await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test]
    async fn it_rings_each_time_that_it_is_set() {
        let alarm = Alarm::new();
        for _ in 0..3 {
            alarm.set(Duration::from_millis(5));
            timeout(Duration::from_secs(60), alarm.rings())
                .await
                .unwrap();
            // It rings once.
            let again = timeout(Duration::from_millis(20), alarm.rings());
            assert!(again.await.is_err());
        }
    }
}
