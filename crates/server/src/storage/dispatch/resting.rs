//! Lanes that rest, and which of them is woken for what.
//!
//! A piece wakes one lane, once: waking is dear beside a piece, and all that are woken want the
//! same lock. The last that came to rest is the first to be called, because its memory is at hand.
//! One, the *keeper*, sleeps no longer than until the order has to be asked again; it is called
//! last.

use base::Time;

/// Lanes by number, with what wakes them.
pub(super) struct Resting<T> {
    lanes: Vec<(usize, T)>,
    /// The lane that sleeps until that time, and no longer.
    keeper: Option<(usize, Time)>,
    /// Lanes that were called and have not come yet.
    called: usize,
}

impl<T: Clone> Resting<T> {
    pub(super) fn new() -> Self {
        Self {
            lanes: Vec::new(),
            keeper: None,
            called: 0,
        }
    }

    /// A lane rests. It sleeps until the time that is returned, or until it is woken; `ask` is
    /// when the order has to be asked again.
    pub(super) fn rest(&mut self, lane: usize, waker: T, ask: Time) -> Option<Time> {
        self.lanes.push((lane, waker));
        if self.keeper.is_some_and(|(_, until)| until <= ask) {
            return None;
        }
        self.keeper = Some((lane, ask));
        Some(ask)
    }

    /// A lane does not sleep any more: whether it was called. If not, it has slept long enough.
    pub(super) fn came(&mut self, lane: usize) -> bool {
        let Some(at) = self.lanes.iter().position(|(other, _)| *other == lane) else {
            self.called -= 1;
            return true;
        };
        self.lanes.remove(at);
        self.keeper.take_if(|(keeper, _)| *keeper == lane);
        false
    }

    /// Whom to wake while there are `ready` pieces and the order has to be asked again at `ask`,
    /// if ever.
    pub(super) fn call(&mut self, ready: usize, ask: Option<Time>) -> Vec<T> {
        let wanted = ready.saturating_sub(self.called).min(self.lanes.len());
        let mut woken: Vec<T> = (0..wanted).map(|_| self.take()).collect();
        self.called += wanted;
        let is_kept = |ask| self.keeper.is_some_and(|(_, until)| until <= ask);
        if ask.is_some_and(|ask| !is_kept(ask)) {
            // It stays among those that rest, and asks when it has come.
            let (keeper, _) = self.keeper.unzip();
            let keeps = |(lane, _): &&(usize, T)| keeper.is_none_or(|keeper| keeper == *lane);
            woken.extend(
                self.lanes
                    .iter()
                    .find(keeps)
                    .map(|(_, waker)| waker.clone()),
            );
        }
        woken
    }

    /// The lane that is called next; there is one.
    fn take(&mut self) -> T {
        let keeper = self.keeper.map(|(keeper, _)| keeper);
        let at = self.lanes.len() - 1;
        let is_keeper = keeper == Some(self.lanes[at].0);
        let (lane, waker) = self.lanes.remove(at - usize::from(is_keeper && at > 0));
        self.keeper.take_if(|(keeper, _)| *keeper == lane);
        waker
    }

    /// All that rest, to be woken for their end.
    pub(super) fn end(&mut self) -> Vec<T> {
        self.keeper = None;
        self.called += self.lanes.len();
        self.lanes.drain(..).map(|(_, waker)| waker).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    #[test]
    fn the_last_is_called_first_and_the_keeper_last() {
        let mut resting = Resting::new();
        assert_eq!(resting.rest(0, 'a', at(5)), Some(at(5)));
        assert_eq!(resting.rest(1, 'b', at(5)), None);
        assert_eq!(resting.rest(2, 'c', at(3)), Some(at(3)), "the keeper now");
        assert_eq!(resting.call(1, None), ['b']);
        assert_eq!(resting.call(1, None), [], "one has been called for it");
        assert_eq!(resting.call(3, Some(at(3))), ['a', 'c']);
        assert!(resting.came(0) && resting.came(1) && resting.came(2));
    }

    #[test]
    fn an_earlier_time_wakes_the_keeper_and_so_does_one_that_nobody_keeps() {
        let mut resting = Resting::new();
        assert_eq!(resting.rest(0, 'a', at(5)), Some(at(5)));
        assert_eq!(resting.rest(1, 'b', at(6)), None);
        assert_eq!(resting.call(0, Some(at(5))), []);
        assert_eq!(resting.call(0, Some(at(4))), ['a']);
        assert!(!resting.came(0), "it asks the order");
        assert_eq!(resting.call(0, None), []);
        assert_eq!(
            resting.call(0, Some(at(9))),
            ['b'],
            "nobody keeps that time"
        );
        assert!(!resting.came(1));
        assert_eq!(resting.rest(1, 'b', at(9)), Some(at(9)));
        assert_eq!(resting.end(), ['b']);
        assert!(resting.came(1));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Pieces(usize),
        /// The lane at this place of those that are awake or woken goes on.
        Lane(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1usize..4).prop_map(Step::Pieces),
            (0usize..64).prop_map(Step::Lane)
        ]
    }

    proptest! {
        /// As the dispatcher does it: no piece waits while a lane rests, and no piece wakes two.
        #[test]
        fn each_piece_wakes_one_lane_at_most_and_none_is_left(
            steps in proptest::collection::vec(step(), 1..200),
            lanes in 1usize..6,
        ) {
            let mut resting = Resting::new();
            let (mut ready, mut pieces, mut calls) = (0usize, 0, 0);
            // At work; and called, but not there yet.
            let (mut busy, mut woken): (Vec<usize>, Vec<usize>) = ((0..lanes).collect(), vec![]);
            for step in steps {
                match step {
                    Step::Pieces(count) => {
                        (ready, pieces) = (ready + count, pieces + count);
                    }
                    Step::Lane(place) => {
                        let awake = busy.len() + woken.len();
                        if awake == 0 {
                            continue;
                        }
                        let place = place % awake;
                        let lane = match place.checked_sub(busy.len()) {
                            None => busy.remove(place),
                            Some(place) => {
                                let lane = woken.remove(place);
                                prop_assert!(resting.came(lane));
                                lane
                            }
                        };
                        match ready.checked_sub(1) {
                            Some(left) => {
                                ready = left;
                                busy.push(lane);
                            }
                            None => drop(resting.rest(lane, lane, at(5))),
                        }
                    }
                }
                let called = resting.call(ready, None);
                calls += called.len();
                woken.extend(called);
                prop_assert!(calls <= pieces);
                let rests = lanes - busy.len() - woken.len();
                prop_assert!(rests == 0 || ready <= woken.len(), "{ready} wait, {rests} rest");
            }
        }
    }
}
