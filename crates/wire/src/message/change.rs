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
    /// Whether a copy of a request goes on behind it if it fails, provided that the same is so of
    /// all steps after it: each is about a name of its own.
    #[must_use]
    pub const fn goes_on_in_copies(&self) -> bool {
        matches!(self, Self::CreateFile { .. } | Self::Remove { .. })
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{FileRef, Target};
    use base::{Handle, OpenId, Principal};

    fn asks(steps: Vec<Step>) -> (bool, bool) {
        let who = Principal::root();
        let compound = Compound {
            who,
            settled: Default::default(),
            steps,
        };
        (compound.is_change(), compound.alters_files())
    }

    #[test]
    fn what_only_makes_durable_or_closes_must_not_run_twice_and_leaves_files_as_they_are() {
        let target = || Target::Handle(Handle::new(b"1").expect("short"));
        let file = || FileRef {
            target: target(),
            open: None,
        };
        let read = || Step::Read {
            file: file(),
            offset: 0,
            bytes: 1,
        };
        let leave = || {
            let target = target();
            vec![
                Step::Close { open: OpenId(1) },
                Step::Commit {
                    file: file(),
                    data_only: false,
                },
                Step::SyncDirectory {
                    target: target.clone(),
                },
                Step::SyncFileSystem { target },
            ]
        };
        assert_eq!(asks(vec![read()]), (false, false));
        for step in leave() {
            assert_eq!(asks(vec![read(), step.clone()]), (true, false), "{step:?}");
        }
        let longer = Step::Write {
            file: file(),
            at: crate::message::WriteAt::End,
            bytes: 1,
        };
        let steps = leave().into_iter().chain([longer, read()]);
        assert_eq!(asks(steps.collect()), (true, true));
    }
}
