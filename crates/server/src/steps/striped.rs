//! Contents that lie in stores: where, and what became of them.
//!
//! Clients of a parallel volume read and write its files at the stores. Here they ask where that is
//! and say when they have written. Whoever caches the file hears of it then, before the writer
//! does; the writer's data is at the stores by that time, so whoever asks them next gets it.
//!
//! Who makes a file longer than up to where an append was given its place comes after the append.
//! He waits here until it is told, for [`APPEND_WAIT_TIME_MAX`] at most, and no thread with him.
//! What was begun while he waited he does not wait for before he comes in his turn. After that he
//! does, or the file would be shorter than he was told: but no more is put before him then.

use super::{Execution, Place, Stop};
use crate::lease::Change;
use crate::opens::Use;
use crate::tree::Parallel;
use base::limits::APPEND_WAIT_TIME_MAX;
use base::{Attributes, Extent, FsError, Handle, Time};
use export::Worker;
use meta::namespace::{Placed, What, Written};
use wire::message::{
    CredentialKind, FileRef, LayoutPurpose, Lease, Refusal, Step, StepReply, StoredWhat,
};

/// How far a step is that waits for appends to a file.
#[derive(Default)]
pub(super) struct Waiting {
    /// Since when it waits for those that it has found.
    since: Option<Time>,
    /// The file as it was when the step's change was made. What is left is to be seen.
    done: Option<Attributes>,
    /// Files that are being cut meanwhile.
    cut: Vec<Handle>,
}

impl Execution {
    /// Of a parallel volume, nothing is answered that may be lost. No thread waits for that.
    pub(super) fn settle(mut self: Box<Self>) {
        let Some(volume) = self.parallel.get().cloned() else {
            return self.reply();
        };
        let parallel = volume.tree.parallel().expect("it was entered as one");
        let cuts = std::mem::take(&mut self.cuts);
        if cuts.is_empty() && parallel.names.is_durable(&self.turn) {
            return self.reply();
        }
        let cut = cuts.iter().map(|cut| volume.outer(cut.handle()));
        let cut: Vec<Change> = cut.map(Change::Inode).collect();
        let runtime = parallel.runtime().clone();
        runtime.spawn(async move {
            let parallel = volume.tree.parallel().expect("it is one");
            match parallel.settle(&self.turn, cuts).await {
                Ok(()) => {
                    parallel.note_chores();
                    self.reply_of_cut(&cut);
                }
                Err(error) => {
                    tracing::error!(volume = volume.name, %error, "a request is not answered");
                    self.refuse(Refusal::OutcomeUnknown);
                }
            }
        });
    }

    /// Answers when nobody caches anything any more that was read before these files were cut. Who
    /// has asked since the change what they are like has a lease, and may have read at stores that
    /// had not cut them yet, by a layout that he knew.
    fn reply_of_cut(mut self: Box<Self>, cut: &[Change]) {
        if !cut.is_empty() {
            self.changed(cut);
        }
        let tokens = std::mem::take(&mut self.tokens);
        if tokens.is_empty() {
            return self.reply();
        }
        let core = self.core.clone();
        let reply = move || {
            let runtime = self.core.runtime.clone();
            runtime.spawn_blocking(move || self.reply());
        };
        core.caching.wait(&tokens, Box::new(reply));
    }

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
                let what = match is_hole {
                    true => What::Hole,
                    false => What::Data,
                };
                let written = Written {
                    generation: *generation,
                    end: *end,
                    extent: *extent,
                    what,
                    place: None,
                };
                self.stored(worker, file, &written)
            }
            Step::Stored {
                file,
                generation,
                end,
                extent,
                what,
                place,
            } => {
                let written = Written {
                    generation: *generation,
                    end: *end,
                    extent: *extent,
                    what: match what {
                        StoredWhat::Data => What::Data,
                        StoredWhat::Space => What::Space,
                        StoredWhat::Hole => What::Hole,
                    },
                    place: *place,
                };
                self.stored(worker, file, &written)
            }
            Step::Extend { file, bytes } => {
                self.give_place(worker, file, *bytes, true, |placed| StepReply::Written {
                    offset: placed.begin,
                    bytes: u64::from(*bytes),
                    attributes: placed.attributes,
                })
            }
            Step::Place { file, bytes } => {
                self.give_place(worker, file, *bytes, false, |placed| StepReply::Placed {
                    place: placed.place,
                    generation: placed.generation,
                    offset: placed.begin,
                    attributes: placed.attributes,
                })
            }
            Step::PlaceLeft { file, place } => self.place_left(worker, file, *place),
            Step::GivePlaceUp { file, place } => self.give_place_up(worker, file, *place),
            _ => unreachable!("the dispatcher sends only these here"),
        }
    }

    fn layout(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        purpose: LayoutPurpose,
    ) -> Result<StepReply, Stop> {
        let (what, again) = match purpose {
            LayoutPurpose::Read => (Use::Read, None),
            LayoutPurpose::Write => (Use::Write, None),
            LayoutPurpose::Append => (Use::Append, None),
            // Whoever has written it last may have appended it.
            LayoutPurpose::WriteAgain => (Use::Append, Some(Extent::between(0, u64::MAX))),
            LayoutPurpose::WritePartAgain(extent) => (Use::Append, Some(extent)),
        };
        if matches!(self.session.peer.kind, CredentialKind::User { .. }) {
            // Stores look at no file's rights: with a ticket for writing, who knows a file's
            // objects can write them.
            let anew = FileRef {
                open: None,
                ..file.clone()
            };
            self.file_ref(worker, &anew, Use::Write)?;
        }
        let (place, _) = self.file_ref(worker, file, what)?;
        let (noted, by) = (&self.core.again, self.session.id);
        if again.is_some_and(|extent| !noted.may_store_part(by, &place.outer, extent)) {
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

    fn stored(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        written: &Written,
    ) -> Result<StepReply, Stop> {
        let (place, _) = self.file_ref(worker, file, self.use_of_stored(file, written)?)?;
        let reply = |attributes| StepReply::Attributes {
            attributes,
            lease: Lease::None,
        };
        if let Some(after) = self.is_done_unseen() {
            self.until_seen(&place, written.end)?;
            let names = &parallel(&place)?.names;
            let now = names.attributes(&self.turn, &self.who, &place.inner);
            return self.written(place, Ok(now.unwrap_or(after)), reply);
        }
        self.wait_to_tell(&place, written)?;
        let names = &parallel(&place)?.names;
        let noted = names.wrote(&self.turn, &self.who, &place.inner, written);
        if noted == Err(FsError::WouldBlock) {
            // An append may have been given its place meanwhile.
            self.wait_to_tell(&place, written)?;
        }
        // An append has come in its turn when it was given its place.
        if noted.is_ok() && written.place.is_none() && written.what != What::Space {
            self.changes_part(&place, written.extent);
        }
        if noted == Err(FsError::WouldBlock)
            && names.is_met(&self.turn, &place.inner, written)?
            && self.may_cut(&place).is_ok()
        {
            let names = &parallel(&place)?.names;
            names.overtake(&self.turn, &self.who, &place.inner, written)?;
        }
        if let Ok(after) = &noted {
            self.note_done(after);
            self.until_seen(&place, written.end)?;
        }
        self.written(place, noted, reply)
    }

    /// What somebody must be allowed who tells that he has changed a file at its stores. Who may
    /// only append tells of appends, and of what he has appended and written again.
    fn use_of_stored(&self, file: &FileRef, written: &Written) -> Result<Use, FsError> {
        if written.what != What::Data {
            return Ok(Use::Write);
        }
        if written.place.is_some() {
            return Ok(Use::Append);
        }
        let (by, place) = (self.session.id, self.target(&file.target)?);
        let is_again = !written.extent.is_empty()
            && (self.core.again).has_written_part(by, &place.outer, written.extent);
        match is_again {
            true => Ok(Use::Append),
            false => Ok(Use::Write),
        }
    }

    fn give_place(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        bytes: u32,
        is_shown: bool,
        reply: impl FnOnce(Placed) -> StepReply,
    ) -> Result<StepReply, Stop> {
        let (place, _) = self.file_ref(worker, file, Use::Append)?;
        let found = parallel(&place)?;
        // What cannot be written is not to become a hole.
        found.check_reach(&self.turn, &place.inner)?;
        self.identify();
        let placed = (found.names).extend(&self.turn, &self.who, &place.inner, bytes.into());
        self.turn.begin(None);
        if placed == Err(FsError::WouldBlock) && self.may_cut(&place).is_ok() {
            let names = &parallel(&place)?.names;
            names.give_up_place(&self.turn, &place.inner)?;
        }
        match placed {
            Ok(placed) => {
                self.changes_part(&place, Extent::new(placed.begin, bytes.into()));
                if is_shown {
                    // Who asks so does not say which place it is that he has written.
                    let names = &parallel(&place)?.names;
                    names.show_places(&self.turn, &place.inner, u64::MAX)?;
                    return self.written(place, Ok(placed), reply);
                }
                // Nobody sees anything of it, so nobody has to hear: who does may have written
                // something that comes after it.
                self.note(place.outer);
                Ok(reply(placed))
            }
            Err(error) => self.written(place, Err(error), reply),
        }
    }

    /// Waits for appends that were given places before what was written. See
    /// [`Self::wait_for_appends`].
    fn wait_to_tell(&mut self, place: &Place, written: &Written) -> Result<bool, Stop> {
        let names = &parallel(place)?.names;
        match names.waits(&self.turn, &place.inner, written)? {
            Some(last) => self.wait_for_appends(place, written.reach(), last),
            None => Ok(false),
        }
    }

    /// Waits for appends that were given places before a file gets a size. See
    /// [`Self::wait_for_appends`].
    pub(super) fn wait_to_resize(&mut self, place: &Place, size: u64) -> Result<bool, Stop> {
        let Some(parallel) = place.volume.tree.parallel() else {
            return Ok(false);
        };
        match parallel.names.is_behind(&self.turn, &place.inner, size)? {
            Some(last) => self.wait_for_appends(place, size, last),
            None => Ok(false),
        }
    }

    /// The step's change is made, and the file is as long as it says when no append is in between.
    pub(super) fn note_done(&mut self, after: &Attributes) {
        self.wait_no_longer();
        self.waiting.done = Some(after.clone());
    }

    /// The file as it was when the step's change was made, if that was before it waited.
    pub(super) fn is_done_unseen(&self) -> Option<Attributes> {
        self.waiting.done.clone()
    }

    /// Waits until a file is as long for everybody as the step has made it: for appends that were
    /// begun while it waited for its turn.
    ///
    /// # Errors
    /// [`Stop::AfterAppends`] until then. What is cut by the request is cut meanwhile: the appends
    /// need a layout.
    pub(super) fn until_seen(&mut self, place: &Place, end: u64) -> Result<(), Stop> {
        let Some(parallel) = place.volume.tree.parallel() else {
            return Ok(());
        };
        // One that is removed is as long as it is.
        let behind = parallel.names.is_behind(&self.turn, &place.inner, end);
        if let Ok(Some(last)) = behind {
            let waits = self.wait_for_appends(place, end, last);
            if matches!(waits, Err(Stop::AfterAppends(_))) {
                let cut = parallel.cut_meanwhile(std::mem::take(&mut self.cuts));
                self.waiting.cut.extend(cut);
            }
            waits?;
        }
        let cut = std::mem::take(&mut self.waiting.cut);
        self.cuts
            .extend(cut.iter().map(|file| parallel.begin_cut(file)));
        Ok(())
    }

    /// What the present step may have waited for is none of what follows.
    pub(super) fn wait_no_longer(&mut self) {
        self.waiting = Waiting::default();
        self.turn.wait_through(None);
    }

    /// Waits for appends that were given places before whoever makes a file so long, up to the
    /// `last`. After a while the file is shown with them as it is, whatever has become of them;
    /// whether it is since now.
    ///
    /// # Errors
    /// [`Stop::AfterAppends`] until then.
    fn wait_for_appends(&mut self, place: &Place, end: u64, last: u64) -> Result<bool, Stop> {
        self.turn.wait_through(Some(last));
        if self.may_wait(place) {
            return Err(Stop::AfterAppends(place.clone()));
        }
        tracing::debug!(
            volume = place.volume.name,
            "a file is shown longer than what has been written of it: an append is late"
        );
        let names = &parallel(place)?.names;
        names.show_places(&self.turn, &place.inner, end)?;
        self.changed(&[Change::Inode(place.outer.clone())]);
        Ok(true)
    }

    /// Whether the present step may wait for appends to a file, from when it is asked so first.
    pub(super) fn may_wait(&mut self, place: &Place) -> bool {
        let now = self.core.clock.now();
        let since = *self.waiting.since.get_or_insert(now);
        place.volume.tree.parallel().is_some() && now.since(since) < APPEND_WAIT_TIME_MAX
    }

    /// Puts the request aside until more has been told of what was appended to a file.
    pub(super) fn put_behind_appends(mut self: Box<Self>, place: &Place) {
        // Others' requests on this line have the room meanwhile.
        self.reply_bytes = None;
        let pool = self.core.pool.clone();
        match place.volume.tree.parallel() {
            Some(parallel) => parallel.when_told(&place.inner, move || pool.push_resumed(self)),
            None => pool.push_resumed(self),
        }
    }

    fn place_left(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        number: u64,
    ) -> Result<StepReply, Stop> {
        let (place, _) = self.file_ref(worker, file, Use::Append)?;
        let names = &parallel(&place)?.names;
        let left = names.left(&self.turn, &place.inner, number)?;
        self.note(place.outer);
        Ok(StepReply::PlaceLeft {
            generation: left.generation,
            parts: left.parts,
        })
    }

    fn give_place_up(
        &mut self,
        worker: &Worker,
        file: &FileRef,
        number: u64,
    ) -> Result<StepReply, Stop> {
        let (place, _) = self.file_ref(worker, file, Use::Append)?;
        let can_be_cut = self.may_cut(&place).is_ok();
        let names = &parallel(&place)?.names;
        let given_up = names.give_up(&self.turn, &place.inner, number, can_be_cut);
        self.written(place, given_up, |attributes| StepReply::Attributes {
            attributes,
            lease: Lease::None,
        })
    }

    /// Everybody hears that a file has changed, whether that went well or not.
    fn written<T>(
        &mut self,
        place: Place,
        outcome: Result<T, FsError>,
        reply: impl FnOnce(T) -> StepReply,
    ) -> Result<StepReply, Stop> {
        self.changed(&[Change::Inode(place.outer.clone())]);
        if let Some(parallel) = place.volume.tree.parallel() {
            parallel.note_told(&place.inner);
        }
        let outcome = outcome?;
        self.note(place.outer);
        Ok(reply(outcome))
    }
}

fn parallel(place: &Place) -> Result<&Parallel, FsError> {
    let parallel = place.volume.tree.parallel();
    parallel.ok_or(FsError::NotSupported)
}
