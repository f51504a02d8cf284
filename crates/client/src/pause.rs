//! Pauses before another try.

use std::time::Duration;

/// A pause before another try, twice as long each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    next: Duration,
    most: Duration,
}

impl Pause {
    /// Of `first`, and never longer than `most`.
    pub(crate) const fn new(first: Duration, most: Duration) -> Self {
        Self { next: first, most }
    }

    /// For a request of which the server has done nothing, for others to be answered first.
    pub(crate) const fn put_off() -> Self {
        Self::new(Duration::from_millis(25), Duration::from_secs(2))
    }

    /// The one that comes next.
    pub(crate) const fn next(&self) -> Duration {
        self.next
    }

    /// Whether it will not grow any more.
    pub(crate) fn is_longest(&self) -> bool {
        self.next >= self.most
    }

    /// The one that comes next, which the one after it follows.
    pub(crate) fn step(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.most);
        now
    }

    /// Waits for it.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.step()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_most() {
        let mut pause = Pause::new(Duration::from_millis(3), Duration::from_millis(10));
        let steps: Vec<u128> = (0..4).map(|_| pause.step().as_millis()).collect();
        assert_eq!(steps, [3, 6, 10, 10]);
        assert!(pause.is_longest());
    }
}
