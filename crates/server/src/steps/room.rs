//! Room in the body of a reply.
//!
//! A step's reply has a part that its kind bounds, and room for that is set aside for all steps of
//! a request before the first one runs: what has changed something can always be told. The rest is
//! for what is known with the reply only, as a page of entries or the value of an attribute. The
//! steps that take of it change nothing, and fail where it does not suffice.

use base::limits::{
    COMPOUND_STEPS_MAX, DIRECTORY_ENTRIES_MAX, FRAME_BODY_BYTES_MAX, LAYOUT_COLUMNS_MAX,
    XATTR_BYTES_MAX,
};
use wire::message::Step;

/// What is set aside for a step. The largest reply of all, to a rename, has two handles and four
/// times attributes, some 900 bytes; what stands around the replies of a request fits in as well.
pub(super) const STEP_BYTES: usize = 1024;
/// A directory entry in a reply beside its name and handle, or what is said of a small file:
/// attributes of largest numbers.
pub(super) const ENTRY_BYTES: usize = 160;
/// A column of a layout: three identities.
const COLUMN_BYTES: usize = 48;

// Room is set aside for whatever a request may consist of, and an attribute fits in besides.
const _: () = assert!(DIRECTORY_ENTRIES_MAX <= LAYOUT_COLUMNS_MAX * COLUMN_BYTES);
const _: () = assert!(
    COMPOUND_STEPS_MAX * (STEP_BYTES + LAYOUT_COLUMNS_MAX * COLUMN_BYTES) + XATTR_BYTES_MAX
        < FRAME_BODY_BYTES_MAX
);

/// Bytes of the reply's body that the steps of a request may take beyond what is set aside.
pub(super) fn beside(steps: &[Step]) -> usize {
    let aside: usize = steps.iter().map(set_aside).sum();
    FRAME_BODY_BYTES_MAX.saturating_sub(aside)
}

/// What is set aside for a step.
fn set_aside(step: &Step) -> usize {
    let listed = match step {
        Step::Layout { .. } => LAYOUT_COLUMNS_MAX * COLUMN_BYTES,
        // A file that is left out takes a byte.
        Step::Fetch { handles, .. } => handles.len(),
        _ => 0,
    };
    STEP_BYTES + listed
}

#[cfg(test)]
mod tests;
