//! Growing: the device has become larger.
//!
//! The new allocation units come into use when both superblocks know of them, so that whichever of
//! the two is intact finds the places that the log speaks of.

use super::{Core, Due};
use crate::StoreError;
use crate::layout::Layout;

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
        let Some(layout) = self.begin_growing()? else {
            return Ok(0);
        };
        self.checkpoint()?;
        self.checkpoint()?;
        Ok(self.end_growing(layout))
    }

    /// Lets the next superblocks have the layout of the device as it is now; none if that is what
    /// they have. No checkpoint is under way.
    pub(crate) fn begin_growing(&mut self) -> Result<Option<Layout>, StoreError> {
        self.check_writable()?;
        let layout = self.layout.grown_to(self.device.len_bytes())?;
        if layout.au_count == self.layout.au_count {
            return Ok(None);
        }
        self.superblock_mut().layout = layout;
        Ok(Some(layout))
    }

    /// Two superblocks with this layout are durable; says how many AUs there are more.
    pub(crate) fn end_growing(&mut self, layout: Layout) -> u32 {
        let more = layout.au_count - self.layout.au_count;
        self.layout = layout;
        self.pages.grow_to(layout);
        self.space.grow(more);
        self.update_capacity();
        more
    }
}
