//! Attributes of an object: small values under short names, each a record of its own.

use super::{Purpose, Transaction};
use crate::StoreError;
use crate::core::Core;
use crate::key::{ATTRIBUTE_BYTES_MAX, ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTES_MAX, Key};
use crate::record::Onode;
use base::{ObjectId, Time};

/// An attribute's name and its contents.
pub type Attribute = (Vec<u8>, Vec<u8>);

impl Transaction<'_> {
    /// Gives an attribute these contents, or removes it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Attribute`], [`StoreError::Damaged`].
    pub fn set_attribute(
        &mut self,
        object: ObjectId,
        name: &[u8],
        contents: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let onode = self.onode(object)?;
        let number = onode.number;
        let key = Key::Attribute(number, name.to_vec());
        let Some(contents) = contents else {
            if self.value(&key)?.is_some() {
                self.serve(Purpose::Removal);
                self.use_records(onode.holder, -ATTRIBUTE_RECORDS)?;
                self.remove(key);
            }
            return Ok(());
        };
        let fits = (1..=ATTRIBUTE_NAME_BYTES_MAX).contains(&name.len())
            && contents.len() <= ATTRIBUTE_BYTES_MAX;
        let (from, to) = bounds(number);
        let others = self.range(&from, &to, ATTRIBUTES_MAX)?;
        let is_there = others.iter().any(|(other, _)| *other == key);
        if !fits || (others.len() == ATTRIBUTES_MAX && !is_there) {
            return Err(StoreError::Attribute);
        }
        if !is_there {
            self.use_records(onode.holder, ATTRIBUTE_RECORDS)?;
        }
        self.serve(Purpose::Growth);
        self.staged.layer.put(key, Some(contents.into()));
        Ok(())
    }

    /// Gives an object the attributes of another one.
    pub(super) fn copy_attributes(
        &mut self,
        from: &Onode,
        object: ObjectId,
    ) -> Result<(), StoreError> {
        let (first, end) = bounds(from.number);
        for (key, value) in self.range(&first, &end, ATTRIBUTES_MAX)? {
            if let Key::Attribute(_, name) = key {
                self.set_attribute(object, &name, Some(&value))?;
            }
        }
        Ok(())
    }

    /// What an object counts for among the records that a holder may have.
    pub(super) fn records_of(&self, onode: &Onode) -> Result<i64, StoreError> {
        let (from, to) = bounds(onode.number);
        let attributes = self.range(&from, &to, ATTRIBUTES_MAX)?.len() as i64;
        Ok(1 + attributes * ATTRIBUTE_RECORDS)
    }

    /// Removes the attributes of an object.
    pub(super) fn remove_attributes(&mut self, onode: &Onode) -> Result<(), StoreError> {
        let (from, to) = bounds(onode.number);
        for (key, _) in self.range_left(&from, &to, ATTRIBUTES_MAX)? {
            self.use_records(onode.holder, -ATTRIBUTE_RECORDS)?;
            self.remove(key);
        }
        Ok(())
    }
}

/// What an attribute counts for among the records that a holder may have: eight objects.
pub(crate) const ATTRIBUTE_RECORDS: i64 = 8;

impl Core {
    /// The attributes of an object, in the order of their names.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`], the device's.
    pub fn attributes(&self, now: Time, object: ObjectId) -> Result<Vec<Attribute>, StoreError> {
        let (from, to) = bounds(self.onode(now, object)?.number);
        let records = self.range(&from, &to, ATTRIBUTES_MAX)?;
        let attributes = records.into_iter().filter_map(|(key, value)| match key {
            Key::Attribute(_, name) => Some((name, value.to_vec())),
            _ => None,
        });
        Ok(attributes.collect())
    }
}

/// Before and behind the attributes of one object.
fn bounds(number: u64) -> (Key, Key) {
    let from = Key::Attribute(number, Vec::new());
    (from, Key::Attribute(number.saturating_add(1), Vec::new()))
}
