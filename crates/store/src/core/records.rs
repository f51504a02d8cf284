//! The records that a layer changes.

use crate::key::{Key, Value};
use std::collections::{BTreeMap, btree_map};
use std::ops::Deref;

/// Changed records in the order of their keys; one without contents is removed.
///
/// Most look-ups are for records that nobody has changed: an overwrite asks for its object's
/// holder, place and AU and changes none of them. So it is noted of which kinds there are records:
/// where there is none, nothing is searched.
#[derive(Debug, Default)]
pub(crate) struct Records {
    map: BTreeMap<Key, Option<Value>>,
    /// A bit for each kind of which a record was put here.
    kinds: u16,
}

impl Records {
    /// The change of a record, if there is one.
    pub(crate) fn get(&self, key: &Key) -> Option<&Option<Value>> {
        match self.kinds & key.kind() {
            0 => None,
            _ => self.map.get(key),
        }
    }

    /// Changes a record; what was there before.
    pub(crate) fn insert(&mut self, key: Key, value: Option<Value>) -> Option<Option<Value>> {
        self.kinds |= key.kind();
        self.map.insert(key, value)
    }
}

/// For reading in order. What changes it is above, or it would not be noted.
impl Deref for Records {
    type Target = BTreeMap<Key, Option<Value>>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl IntoIterator for Records {
    type Item = (Key, Option<Value>);
    type IntoIter = btree_map::IntoIter<Key, Option<Value>>;

    fn into_iter(self) -> Self::IntoIter {
        self.map.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ObjectId;
    use proptest::prelude::*;

    fn keys() -> impl Strategy<Value = Key> {
        (0..13_u8, 0..3_u8).prop_map(|(kind, number)| {
            let (long, short) = (u64::from(number), u32::from(number));
            let object = ObjectId([number; 16]);
            match kind {
                0 => Key::Object(object),
                1 => Key::Attribute(long, vec![number]),
                2 => Key::Place(long, short),
                3 => Key::Au(short),
                4 => Key::Leaf(short, 0),
                5 => Key::AuMap(short),
                6 => Key::Room(long, short),
                7 => Key::Dead(long),
                8 => Key::Holder(long),
                9 => Key::Member(long, object),
                10 => Key::End(long, 0),
                11 => Key::Over(long),
                _ => Key::Lost(short),
            }
        })
    }

    proptest! {
        #[test]
        fn whatever_was_put_is_found_and_nothing_else(
            put in prop::collection::vec((keys(), any::<bool>()), 0..12),
            asked in prop::collection::vec(keys(), 40),
        ) {
            let (mut records, mut model) = (Records::default(), BTreeMap::new());
            for (key, is_there) in put {
                let value = is_there.then(|| Value::from(*b"contents"));
                prop_assert_eq!(records.insert(key.clone(), value.clone()),
                    model.insert(key, value));
            }
            for key in asked.iter().chain(model.keys()) {
                prop_assert_eq!(records.get(key), model.get(key));
            }
            prop_assert!(records.into_iter().eq(model));
        }
    }
}
