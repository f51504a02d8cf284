//! Appends: bytes that are given a place before they are written.
//!
//! The manager gives a place, once; the append comes in its turn by that. The bytes follow, by a
//! layout of the generation under which the place was given, and when they are there the file is
//! longer. If a new generation has begun, others have cut the file or gone before: then the manager
//! says what is left of the place, and that is written, which may be nothing. What stores had got
//! before is cut off or written over, and what was on its way they refuse. Of an append that cannot
//! be written the place is given up.

use super::carry::{Carrying, Done, Result, Told, data_of, write_part};
use super::map::Part;
use crate::object::StoreClient;
use base::{Extent, FsError};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::message::{
    FileLayout, FileRef, LayoutPurpose, Step, StepReply, StoredWhat, Target, WriteAt,
};

/// The place of an append.
#[derive(Clone, Debug)]
pub(super) struct Given {
    number: u64,
    whole: Extent,
    /// What is still to be written of it...
    left: Vec<Extent>,
    /// ... under this generation of the layout.
    generation: u64,
    /// The manager was told that it is written.
    is_told: bool,
}

impl Carrying<'_> {
    /// What goes to the end gets its place there, once; by the numbers of the steps.
    pub(super) async fn give_places(
        &self,
        steps: &mut [Step],
        places: &mut BTreeMap<usize, Given>,
    ) -> Result<()> {
        for (index, step) in steps.iter_mut().enumerate() {
            if let Step::Write {
                file,
                at: at @ WriteAt::End,
                bytes,
            } = step
            {
                let given = self.give_place(file, *bytes).await?;
                *at = WriteAt::Offset(given.whole.offset);
                places.insert(index, given);
            }
        }
        Ok(())
    }

    /// Of what could not be written, or not be told, the places are waited for no longer.
    pub(super) async fn give_places_up(&self, steps: &[Step], places: &BTreeMap<usize, Given>) {
        for (index, given) in places.iter().filter(|(_, given)| !given.is_told) {
            let Some(Step::Write { file, .. }) = steps.get(*index) else {
                continue;
            };
            let step = Step::GivePlaceUp {
                file: file.clone(),
                place: given.number,
            };
            if let Err(error) = self.ask(step).await {
                // Others wait for it as for that of a machine that has died.
                tracing::debug!(%error, "the place of an append is not given up");
            }
        }
    }

    async fn give_place(&self, file: &FileRef, bytes: u32) -> Result<Given> {
        let step = Step::Place {
            file: file.clone(),
            bytes,
        };
        let mut patience = self.patience();
        let placed = loop {
            match self.ask(step.clone()).await {
                // As many as there can be are open: an old one is given up.
                Err(FsError::WouldBlock) => patience.wait().await?,
                placed => break placed?,
            }
        };
        let StepReply::Placed {
            place,
            generation,
            offset,
            ..
        } = placed
        else {
            return Err(FsError::Io);
        };
        let whole = Extent::new(offset, bytes.into());
        Ok(Given {
            number: place,
            whole,
            left: Some(whole)
                .filter(|whole| !whole.is_empty())
                .into_iter()
                .collect(),
            generation,
            is_told: false,
        })
    }

    /// Writes what is left of a place.
    pub(super) async fn append(
        &self,
        file: &FileRef,
        given: &mut Given,
        data: Bytes,
    ) -> Result<Done<StepReply>> {
        let Target::Handle(handle) = &file.target else {
            return Err(FsError::Invalid);
        };
        let purpose = match self.only_appends(file) {
            true => LayoutPurpose::Append,
            false => LayoutPurpose::Write,
        };
        let mut patience = self.patience();
        loop {
            let layout = self.layout(file, purpose).await?;
            if layout.generation > given.generation {
                if given.is_told {
                    // A store may have lost it since, as it may lose anything else.
                    let at = WriteAt::Again(given.whole.offset);
                    return self.write(file, at, data).await;
                }
                self.look_what_is_left(file, given).await?;
            }
            if layout.generation == given.generation {
                match self.try_append(file, &layout, given, &data).await {
                    // It is being cut, or was; or another manager takes over.
                    Err(FsError::WouldBlock) => patience.pardon(self.take_waited()),
                    other => return other,
                }
            }
            self.forget(handle);
            patience.wait().await?;
        }
    }

    async fn look_what_is_left(&self, file: &FileRef, given: &mut Given) -> Result<()> {
        let step = Step::PlaceLeft {
            file: file.clone(),
            place: given.number,
        };
        let StepReply::PlaceLeft { generation, parts } = self.ask(step).await? else {
            return Err(FsError::Io);
        };
        // Whatever a server says, there are no other bytes.
        let parts = parts.iter().map(|part| part.intersection(given.whole));
        given.left = parts.filter(|part| !part.is_empty()).collect();
        given.generation = generation;
        Ok(())
    }

    async fn try_append(
        &self,
        file: &FileRef,
        layout: &FileLayout,
        given: &mut Given,
        data: &Bytes,
    ) -> Result<Done<StepReply>> {
        let offset = given.whole.offset;
        let (reply, runs) = match (given.left.first(), given.left.last()) {
            (Some(first), Some(last)) => {
                let act = |store: StoreClient, generation: u64, part: Part| {
                    let data = data_of(data, offset, part.file);
                    async move { write_part(&store, generation, part, data).await }
                };
                let left = given.left.iter();
                let pieces = left.flat_map(|part| self.pieces(layout, *part)).collect();
                let told = Told {
                    end: last.end(),
                    extent: Extent::between(first.offset, last.end()),
                    what: StoredWhat::Data,
                    place: Some(given.number),
                };
                let changed = self.try_change(file, (layout.generation, told), pieces, &act);
                changed.await?
            }
            // All of it was cut off.
            _ => {
                let target = file.target.clone();
                (self.ask(Step::Attributes { target }).await?, Vec::new())
            }
        };
        given.is_told = true;
        let StepReply::Attributes { attributes, .. } = reply else {
            return Err(FsError::Io);
        };
        let reply = StepReply::Written {
            offset,
            bytes: data.len() as u64,
            attributes,
        };
        Ok((reply, runs))
    }
}
