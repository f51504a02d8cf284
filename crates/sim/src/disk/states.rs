//! Crash states: what a disk may be found as after a loss of power.

use super::CrashDisk;
use super::image::Image;
use super::log::{Certainty, Flushed, Operation};
use super::window::{Choices, Window};
use std::fmt;
use std::sync::Arc;

/// Which crash states to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Of what is left to chance.
    pub seed: u64,
    /// Stretches between two flushes with at most this many states are gone through completely.
    pub exhaustive_states_max: u64,
    /// States drawn by chance from each larger stretch, beside those that are taken always (see
    /// `disk/window.rs`).
    pub sampled_states: u64,
}

impl Policy {
    /// 4,096 states of a small stretch, 64 sampled ones of a large one.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            exhaustive_states_max: 4096,
            sampled_states: 64,
        }
    }
}

/// The crash states of a log under a policy, in order. Equal log and policy, equal states.
///
/// The iterator begins at number 0; [`Self::get`] makes any state again.
#[derive(Clone, Debug)]
pub struct CrashStates {
    policy: Policy,
    /// With the number of their first state.
    windows: Vec<(u64, Arc<Window>)>,
    state_count: u64,
    next: u64,
}

impl CrashStates {
    pub(super) fn new(
        policy: Policy,
        mut certainty: Certainty,
        first_position: u64,
        operations: &[Operation],
    ) -> Self {
        let mut states = Self {
            policy,
            windows: Vec::new(),
            state_count: 0,
            next: 0,
        };
        let mut position = first_position;
        for operation in operations {
            let settles = matches!(operation, Operation::Flush(Flushed::Durable));
            if settles && !certainty.pending.is_empty() {
                states.add(Window::new(position, &certainty, &policy));
            }
            certainty.follow(position, operation);
            position += 1;
        }
        // The last stretch counts even if nothing was written in it: then its one state is what
        // the last flush has made certain.
        states.add(Window::new(position, &certainty, &policy));
        states
    }

    fn add(&mut self, window: Window) {
        let first = self.state_count;
        self.state_count = first.saturating_add(window.state_count());
        self.windows.push((first, Arc::new(window)));
    }

    /// How many there are, whatever has been taken from the iterator.
    #[must_use]
    pub fn state_count(&self) -> u64 {
        self.state_count
    }

    /// State `number`; `None` from [`Self::state_count`] on.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<CrashState> {
        if number >= self.state_count {
            return None;
        }
        let after = self.windows.partition_point(|(first, _)| *first <= number);
        let (first, window) = &self.windows[after - 1];
        let choices = window.choices(&self.policy, number - first);
        Some(CrashState {
            number,
            seed: self.policy.seed,
            position: window.position,
            image: window.image(&choices),
            window: Arc::clone(window),
            choices,
        })
    }
}

impl Iterator for CrashStates {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        let state = self.get(self.next)?;
        self.next += 1;
        Some(state)
    }
}

/// One disk that a loss of power may leave. Its `Display` form says what it lacks.
#[derive(Clone, Debug)]
pub struct CrashState {
    /// Among the states of its log and policy.
    pub number: u64,
    /// How many operations (as [`CrashDisk::position`] counts) had returned when power was lost.
    /// Whatever was acknowledged at this position or before must be there.
    pub position: u64,
    /// The content.
    pub image: Image,
    seed: u64,
    window: Arc<Window>,
    choices: Choices,
}

impl CrashState {
    /// A disk with this content, to be opened.
    #[must_use]
    pub fn disk(&self) -> CrashDisk {
        CrashDisk::from_image(self.image.clone())
    }
}

/// Changes that a text names; it counts the others.
const NAMED_MAX: usize = 12;

impl fmt::Display for CrashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, seed, position) = (self.number, self.seed, self.position);
        let (changes, lacking) = (
            self.window.change_count(),
            self.window.lacks(&self.choices).count(),
        );
        write!(
            f,
            "crash state {number} of seed {seed}: power lost after {position} operations; \
             {lacking} of {changes} unflushed changes incomplete"
        )?;
        let lacks = self.window.lacks(&self.choices).enumerate();
        for (index, (change, sectors, missing)) in lacks.take(NAMED_MAX) {
            let separator = if index == 0 { ':' } else { ',' };
            let (position, offset) = (change.position, self.window.offset_of(change));
            write!(
                f,
                "{separator} operation {position} at {offset} ({missing} of {sectors} sectors)"
            )?;
        }
        if lacking > NAMED_MAX {
            write!(f, ", and {} more", lacking - NAMED_MAX)?;
        }
        Ok(())
    }
}
