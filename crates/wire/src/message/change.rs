//! Which requests change something.

use super::{Compound, Step};

impl Compound {
    /// Whether a request changes anything, so that it must not run twice, and so that whoever gives
    /// it up does not know how things stand.
    #[must_use]
    pub fn is_change(&self) -> bool {
        self.steps.iter().any(Step::is_change)
    }

    /// Whether some step may change what the server says of files.
    #[must_use]
    pub fn alters_files(&self) -> bool {
        let alters = |step: &Step| {
            let leaves = matches!(
                step,
                Step::Lock { .. }
                    | Step::Close { .. }
                    | Step::Commit { .. }
                    | Step::SyncDirectory { .. }
                    | Step::SyncFileSystem { .. }
            );
            step.is_change() && !leaves
        };
        self.steps.iter().any(alters)
    }
}

impl Step {
    fn is_change(&self) -> bool {
        !matches!(
            self,
            Step::Attach { .. }
                | Step::Lookup { .. }
                | Step::Attributes { .. }
                | Step::ReadLink { .. }
                | Step::Open {
                    truncate: false,
                    ..
                }
                | Step::Read { .. }
                | Step::Seek { .. }
                | Step::ReadDirectory { .. }
                | Step::Fetch { .. }
                | Step::StatFileSystem { .. }
                | Step::GetXattr { .. }
                | Step::ListXattrs { .. }
                | Step::TestLock { .. }
                | Step::Layout { .. }
                | Step::After { .. }
                | Step::Access { .. }
                | Step::Explain { .. }
                | Step::PlaceLeft { .. }
        )
    }
}
