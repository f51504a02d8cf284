//! Objects to which somebody appends: one after the other, because each append begins where the one
//! before has ended.
//!
//! An append whose turn at the device has come while another one writes to its object is put aside:
//! it keeps no lane and no place at the device, however many there are, and is carried out when the
//! one before is done. It was chosen by then, and is not charged again.

use super::dispatch::{Aside, Task, put_aside};
use base::ObjectId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module's head. By object, whatever waits for the one that is at work.
#[derive(Default)]
pub(super) struct Appends(Mutex<BTreeMap<ObjectId, VecDeque<(Aside, Task)>>>);

/// The right to append to an object, as long as it is there.
struct Appending {
    appends: Arc<Appends>,
    object: ObjectId,
}

impl Appends {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectId, VecDeque<(Aside, Task)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries an append out, now or when those before it are done. Says how many bytes were moved
    /// by now.
    pub(super) fn carry_out(self: &Arc<Self>, object: ObjectId, append: Task) -> u64 {
        let mut objects = self.lock();
        if let Some(waiting) = objects.get_mut(&object) {
            let Some(aside) = put_aside() else {
                // Nowhere but in a lane. Dropped, it has failed, and without the lock.
                drop(objects);
                return 0;
            };
            waiting.push_back((aside, append));
            return 0;
        }
        objects.insert(object, VecDeque::new());
        drop(objects);
        self.begun(object, append)()
    }

    /// An append that has the right to its object. Whatever becomes of it, the next one has it.
    fn begun(self: &Arc<Self>, object: ObjectId, append: Task) -> Task {
        let appends = self.clone();
        let turn = Appending { appends, object };
        Box::new(move || {
            let moved = append();
            drop(turn);
            moved
        })
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().values().map(VecDeque::len).sum()
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        loop {
            let mut objects = self.appends.lock();
            let next = objects.get_mut(&self.object).and_then(VecDeque::pop_front);
            let Some((aside, append)) = next else {
                objects.remove(&self.object);
                return;
            };
            drop(objects);
            // One that nobody carries out any more is dropped here, one after the other.
            if aside.go_on(|| self.appends.begun(self.object, append)) {
                return;
            }
        }
    }
}
