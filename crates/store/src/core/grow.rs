//! Growing: the device has become larger.
//!
//! The new allocation units come into use when both superblocks know of them, so that whichever of
//! the two is intact finds the places that the log speaks of.

use super::{Core, Due};
use crate::StoreError;

impl Core {
    /// Takes in what the device has become longer by; says how many allocation units that makes.
    /// Durable when it returns.
    ///
    /// # Errors
    /// [`StoreError::Sizes`] if there would be too many, those of [`Self::checkpoint`].
    pub fn grow(&mut self) -> Result<u32, StoreError> {
        self.check_writable()?;
        if self.is_driven {
            return Err(StoreError::Due(Due::Checkpoint));
        }
        let layout = self.layout.grown_to(self.device.len_bytes())?;
        let more = layout.au_count - self.layout.au_count;
        if more == 0 {
            return Ok(0);
        }
        self.superblock_mut().layout = layout;
        self.checkpoint()?;
        self.checkpoint()?;
        self.layout = layout;
        self.pages.grow_to(layout);
        self.space.grow(more);
        self.update_capacity();
        Ok(more)
    }
}
