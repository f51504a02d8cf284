//! The records of all layers in one order, and lists that are consumed from their front.
//!
//! A record that was removed since the last checkpoint is still in the tree and is hidden there. So
//! a list whose first record is removed again and again (the ends of reservations, the objects of
//! one that is over) begins with more and more of what is hidden, and who looked for its first
//! record from the beginning each time would take the square of their number. Therefore
//!
//! * layers are merged as far as somebody asks, and no further;
//! * of each such list it is kept in mind before which key there is nothing: its *front*. A record
//!   that is put before it takes it back.

use super::Core;
use crate::StoreError;
use crate::key::{Key, Value};
use crate::tree::Tree;
use base::ObjectId;
use std::iter::Peekable;
use std::vec;

/// Records that are read from the tree together, after the first ones, if what they hide is more.
const TOGETHER_MAX: usize = 1024;

/// The keys before which there is nothing of a list.
#[derive(Debug)]
pub(crate) struct Fronts {
    end: Key,
    over: Key,
    dead: Key,
    /// Of the holder that is being removed.
    member: Key,
    /// Of the deleted object whose AUs are being given back.
    place: Key,
}

impl Default for Fronts {
    fn default() -> Self {
        Self {
            end: Key::End(0, 0),
            over: Key::Over(0),
            dead: Key::Dead(0),
            member: Key::Member(0, ObjectId([0; 16])),
            place: Key::Place(0, 0),
        }
    }
}

impl Fronts {
    fn list_of(&mut self, key: &Key) -> Option<&mut Key> {
        match key {
            Key::End(..) => Some(&mut self.end),
            Key::Over(_) => Some(&mut self.over),
            Key::Dead(_) => Some(&mut self.dead),
            Key::Member(..) => Some(&mut self.member),
            Key::Place(..) => Some(&mut self.place),
            _ => None,
        }
    }

    /// A record was put.
    pub(crate) fn on_put(&mut self, key: &Key) {
        match (key, &self.member, &self.place) {
            // Those of others are not looked for from here.
            (Key::Member(holder, _), Key::Member(here, _), _) if holder != here => {}
            (Key::Place(number, _), _, Key::Place(here, _)) if number != here => {}
            _ => {
                if let Some(front) = self.list_of(key).filter(|front| key < *front) {
                    front.clone_from(key);
                }
            }
        }
    }

    /// From where on to look for what is at `from` or behind it, in the list that begins there.
    fn begin(&mut self, from: &Key) -> Key {
        let front = match (from, &self.member, &self.place) {
            (Key::Member(holder, _), Key::Member(here, _), _) if holder != here => None,
            (Key::Place(number, _), _, Key::Place(here, _)) if number != here => None,
            _ => self.list_of(from).cloned(),
        };
        front.map_or_else(|| from.clone(), |front| front.max(from.clone()))
    }

    /// There is nothing from where the list begins up to, not including, `key`.
    fn move_to(&mut self, key: &Key) {
        if let Some(front) = self.list_of(key) {
            front.clone_from(key);
        }
    }
}

impl Core {
    /// The first records from `from` up to, not including, `to`.
    pub(crate) fn range(
        &self,
        from: &Key,
        to: &Key,
        count_max: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        let found = self.range_left(from, to, count_max)?;
        let end = match found.last() {
            Some((last, _)) if found.len() == count_max => last,
            _ => to,
        };
        self.lost.check_range(from, end)?;
        Ok(found)
    }

    /// The same of what is left where records were lost.
    pub(crate) fn range_left(
        &self,
        from: &Key,
        to: &Key,
        count_max: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        self.range_over(&self.tree, from, to, count_max)
    }

    /// The same with another view of the tree.
    pub(crate) fn range_over(
        &self,
        tree: &Tree,
        from: &Key,
        to: &Key,
        count_max: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let mut over = self.overlay.records.range(from..to).peekable();
        let frozen = self.frozen.as_ref().map(|frozen| &frozen.layer.records);
        let frozen = frozen.into_iter();
        let mut frozen = frozen
            .flat_map(|records| records.range(from..to))
            .peekable();
        let mut below = Below::new(tree, (from, to), count_max);
        let mut found = Vec::new();
        while found.len() < count_max {
            count_look();
            let in_tree = below.peek()?.map(|(key, _)| key);
            let changed = [
                over.peek().map(|(key, _)| *key),
                frozen.peek().map(|(key, _)| *key),
            ];
            let Some(next) = changed.into_iter().flatten().chain(in_tree).min().cloned() else {
                break;
            };
            // What is above hides what is below.
            let below = below.next_if_is(&next);
            let frozen = frozen.next_if(|(key, _)| **key == next);
            let over = over.next_if(|(key, _)| **key == next);
            let value = match over.or(frozen) {
                Some((_, value)) => value.clone(),
                None => below,
            };
            found.extend(value.map(|value| (next, value)));
        }
        Ok(found)
    }

    /// The first records of a list from `from` on up to, not including, `to`, if what was removed
    /// from its front is not looked at again. What is between where the list begins and `from` is
    /// not there.
    pub(crate) fn first_of_list(
        &mut self,
        from: &Key,
        to: &Key,
        count_max: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        let front = self.fronts.begin(from);
        let found = self.range(&front, to, count_max)?;
        let first = found.first().map_or(to, |(key, _)| key);
        if first.kind() == from.kind() {
            self.fronts.move_to(first);
        }
        Ok(found)
    }

    /// The first places that are left of an object that is deleted.
    pub(crate) fn first_places(
        &mut self,
        number: u64,
        count_max: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        let front = self.fronts.begin(&Key::Place(number, 0));
        let found = self.range_left(&front, &Key::Place(number, u32::MAX), count_max)?;
        if let Some((first, _)) = found.first() {
            self.fronts.move_to(first);
        }
        Ok(found)
    }
}

/// The tree's part of a range, some records at a time.
struct Below<'a> {
    tree: &'a Tree,
    to: &'a Key,
    some: Peekable<vec::IntoIter<(Key, Value)>>,
    /// The last one that was read, if there may be more behind it.
    last: Option<Key>,
    together: usize,
    /// Where to begin; none if it was begun.
    from: Option<&'a Key>,
}

impl<'a> Below<'a> {
    fn new(tree: &'a Tree, (from, to): (&'a Key, &'a Key), together: usize) -> Self {
        Self {
            tree,
            to,
            some: Vec::new().into_iter().peekable(),
            last: None,
            together: together.max(1),
            from: Some(from),
        }
    }

    fn peek(&mut self) -> Result<Option<&(Key, Value)>, StoreError> {
        if self.some.peek().is_none() {
            self.read_more()?;
        }
        Ok(self.some.peek())
    }

    fn next_if_is(&mut self, key: &Key) -> Option<Value> {
        let next = self.some.next_if(|(next, _)| next == key);
        next.map(|(_, value)| value)
    }

    fn read_more(&mut self) -> Result<(), StoreError> {
        let last = self.last.take();
        let (from, count) = match (self.from.take(), &last) {
            (Some(from), _) => (from, self.together),
            // It is read once more.
            (None, Some(last)) => (last, self.together.saturating_add(1)),
            (None, None) => return Ok(()),
        };
        let mut some = self.tree.range(from, self.to, count)?;
        let is_all = some.len() < count;
        if some.first().map(|(key, _)| key) == last.as_ref() && last.is_some() {
            some.remove(0);
        }
        self.last = some.last().filter(|_| !is_all).map(|(key, _)| key.clone());
        // Who skips much skips faster and faster; who asked for more than that got it at once.
        self.together = self.together.max(16).saturating_mul(2).min(TOGETHER_MAX);
        self.some = some.into_iter().peekable();
        Ok(())
    }
}

#[cfg(not(test))]
const fn count_look() {}

#[cfg(test)]
pub(crate) use in_tests::{count_look, take_looks};

/// How much work it was: what a clock would say of it depends on the machine.
#[cfg(test)]
mod in_tests {
    use std::cell::Cell;

    thread_local! {
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn count_look() {
        LOOKS.set(LOOKS.get() + 1);
    }

    /// How many records of layers were looked at by this thread since it was asked last.
    pub(crate) fn take_looks() -> u64 {
        LOOKS.take()
    }
}
