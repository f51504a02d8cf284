//! Contents that lie in stores: where, and what became of them.
//!
//! Clients of a parallel volume read and write its files at the stores. Here they ask where that is
//! and say when they have written. Whoever caches the file hears of it then, before the writer
//! does; the writer's data is at the stores by that time, so whoever asks them next gets it.

use super::{Execution, Place, Stop};
use crate::lease::Change;
use crate::opens::Use;
use crate::tree::Parallel;
use base::{Attributes, FsError};
use export::Worker;
use meta::namespace::Written;
use wire::message::{FileRef, LayoutPurpose, Lease, Step, StepReply};

impl Execution {
    pub(super) fn striped(&mut self, worker: &Worker, step: &Step) -> Result<StepReply, Stop> {
        match step {
            Step::Layout { file, purpose } => self.layout(worker, file, *purpose),
            Step::Wrote {
                file,
                generation,
                end,
                extent,
                is_hole,
            } => {
                let written = Written {
                    end: *end,
                    extent: *extent,
                    is_hole: *is_hole,
                };
                self.wrote(worker, file, *generation, &written)
            }
            Step::Extend { file, bytes } => self.extend(worker, file, *bytes),
            _ => unreachable!("the dispatcher sends only these here"),
        }
    }

    fn layout(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        purpose: LayoutPurpose,
    ) -> Result<StepReply, Stop> {
        let what = match purpose {
            LayoutPurpose::Read => Use::Read,
            LayoutPurpose::Write | LayoutPurpose::WriteAgain => Use::Write,
        };
        let (place, _) = self.file_ref(worker, file, what)?;
        let is_mine = || self.core.again.may_store(self.session.id, &place.outer);
        if purpose == LayoutPurpose::WriteAgain && !is_mine() {
            tracing::warn!(
                volume = place.volume.name,
                host = self.session.host,
                "data that was lost is not taken again: others have changed the file since"
            );
            return Err(FsError::Io.into());
        }
        let layout = parallel(&place)?.layout(&self.turn, &place.inner)?;
        self.note(place.outer);
        Ok(StepReply::Layout(layout))
    }

    fn wrote(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        generation: u64,
        written: &Written,
    ) -> Result<StepReply, Stop> {
        let (place, _) = self.file_ref(worker, file, Use::Write)?;
        let parallel = parallel(&place)?;
        // What is gone already makes the file no longer.
        parallel.check_generation(&place.inner, generation)?;
        self.changes(&place);
        let noted = (parallel.names).wrote(&self.turn, &self.who, &place.inner, written);
        // After the size: a cut that begins now takes nothing away that is not to go.
        let outcome = noted.and_then(|attributes| {
            parallel.check_generation(&place.inner, generation)?;
            Ok(attributes)
        });
        self.written(place, outcome, |attributes| StepReply::Attributes {
            attributes,
            lease: Lease::None,
        })
    }

    fn extend(&mut self, worker: &Worker, file: &FileRef, bytes: u32) -> Result<StepReply, Stop> {
        let (place, _) = self.file_ref(worker, file, Use::Write)?;
        let parallel = parallel(&place)?;
        // What cannot be written is not to become a hole.
        parallel.check_reach(&self.turn, &place.inner)?;
        self.changes(&place);
        self.identify();
        let extended = (parallel.names).extend(&self.turn, &self.who, &place.inner, bytes.into());
        self.turn.begin(None);
        let mut offset = 0;
        let outcome = extended.map(|(begin, attributes)| {
            offset = begin;
            attributes
        });
        self.written(place, outcome, |attributes| StepReply::Written {
            offset,
            bytes: bytes.into(),
            attributes,
        })
    }

    /// Everybody hears that a file has changed, whether that went well or not.
    fn written(
        &mut self,
        place: Place,
        outcome: Result<Attributes, FsError>,
        reply: impl FnOnce(Attributes) -> StepReply,
    ) -> Result<StepReply, Stop> {
        self.changed(&[Change::Inode(place.outer.clone())]);
        let attributes = outcome?;
        self.note(place.outer);
        Ok(reply(attributes))
    }
}

fn parallel(place: &Place) -> Result<&Parallel, FsError> {
    let parallel = place.volume.tree.parallel();
    parallel.ok_or(FsError::NotSupported)
}
