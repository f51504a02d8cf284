//! A transaction as a request of etcd, and what its answer says.
//!
//! ```text
//!  compare  slot was written at N | guard's seat was written at its epoch | conditions
//!  success  slot = mark           | changes
//!  failure  get slot              | get seat                              | get what is compared
//! ```
//! The reads of a failure are made at the same revision as its comparison, so they say why.

use super::Shared;
use super::slots::Slot;
use crate::engine::Revision;
use crate::queue::Job;
use crate::transaction::{Change, Condition, Guard, Transaction};
use crate::{KeyRange, MetaError, space};
use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, PutOptions, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};

/// A job with its slot.
pub(super) struct Member {
    pub(super) job: Job,
    pub(super) slot: Slot,
    /// What the slot says when it has happened.
    pub(super) mark: Vec<u8>,
    /// A request was sent that was not answered.
    pub(super) is_unknown: bool,
    /// It is not to happen any more; this is the answer then.
    pub(super) fenced: Option<MetaError>,
}

/// What an answer says about a member.
pub(super) enum Judged {
    /// It has happened, and its slot was written, both at this revision.
    Committed(Revision),
    /// It has not, because of this.
    Refused(MetaError),
    /// Its slot was written last at this revision, so that it never happens any more.
    Fenced(Revision),
    /// Its slot is not as it was left, and does not tell who wrote it.
    Moved(i64),
}

/// Operations of which etcd takes a limited number for a member.
pub(super) fn operations(transaction: &Transaction) -> usize {
    let compared = transaction.conditions.len() + usize::from(transaction.guard.is_some());
    compared.max(transaction.changes.len()) + 1
}

impl Shared {
    /// The part of a request for one member.
    pub(super) fn request(&self, member: &Member) -> Txn {
        let slot = &member.slot;
        let untouched = Compare::mod_revision(slot.key.clone(), CompareOp::Equal, slot.written);
        let lease = PutOptions::new().with_lease(self.slots.lease());
        let mark = match member.fenced {
            Some(_) => self.slots.nobodys(),
            None => member.mark.clone(),
        };
        let mut compared = vec![untouched];
        let mut done = vec![TxnOp::put(slot.key.clone(), mark, Some(lease))];
        let mut told = vec![TxnOp::get(slot.key.clone(), None)];
        if member.fenced.is_none() {
            let transaction = &member.job.transaction;
            if let Some(Guard { seat, epoch }) = &transaction.guard {
                let seat = self.place(&space::seat(seat));
                compared.push(written_at(seat.clone(), *epoch));
                told.push(TxnOp::get(seat, Some(GetOptions::new().with_keys_only())));
            }
            for condition in &transaction.conditions {
                let (compare, get) = self.condition(condition);
                compared.push(compare);
                told.push(get);
            }
            done.extend(transaction.changes.iter().map(|change| self.change(change)));
        }
        Txn::new().when(compared).and_then(done).or_else(told)
    }

    fn condition(&self, condition: &Condition) -> (Compare, TxnOp) {
        let get = |key: Vec<u8>| TxnOp::get(key, Some(GetOptions::new().with_keys_only()));
        match condition {
            Condition::Absent(key) => {
                let key = self.place(key);
                (absent(key.clone()), get(key))
            }
            Condition::Present(key) => {
                let key = self.place(key);
                let present = Compare::create_revision(key.clone(), CompareOp::Greater, 0);
                (present, get(key))
            }
            Condition::WrittenAt(key, at) => {
                let key = self.place(key);
                (written_at(key.clone(), *at), get(key))
            }
            Condition::Empty(range) => {
                let (start, end) = self.bounds(range);
                let options = GetOptions::new().with_keys_only().with_limit(1);
                let get = TxnOp::get(start.clone(), Some(options.with_range(end.clone())));
                (absent(start).with_range(end), get)
            }
        }
    }

    fn change(&self, change: &Change) -> TxnOp {
        match change {
            Change::Put(key, value) => TxnOp::put(self.place(key), value.clone(), None),
            Change::Delete(key) => TxnOp::delete(self.place(key), None),
            Change::DeleteRange(range) => {
                let (start, end) = self.bounds(range);
                TxnOp::delete(start, Some(DeleteOptions::new().with_range(end)))
            }
        }
    }

    fn bounds(&self, range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
        let place = space::below(&self.prefix, range);
        let end = place
            .end()
            .expect("what a program names has an end below its prefix");
        (place.start().to_vec(), end.to_vec())
    }

    /// What the answer to a member's part says. The request was carried out at `at`; `before` is
    /// the state that all of it was compared with.
    pub(super) fn judge(
        &self,
        member: &Member,
        answer: &TxnResponse,
        at: Revision,
        before: Revision,
    ) -> Judged {
        if answer.succeeded() {
            return match member.fenced {
                Some(_) => Judged::Fenced(at),
                None => Judged::Committed(at),
            };
        }
        let told = answer.op_responses();
        let mut told = told.iter().map(|told| match told {
            TxnOpResponse::Get(entries) => Some(entries),
            _ => None,
        });
        let slot = told.next().flatten().and_then(|slot| slot.kvs().first());
        let written = slot.map_or(0, |slot| slot.mod_revision());
        let says = slot.map_or(&[][..], |slot| slot.value());
        if says == member.mark {
            return Judged::Committed(Revision(written.cast_unsigned()));
        }
        if written != member.slot.written {
            return match says == self.slots.nobodys() {
                true => Judged::Fenced(Revision(written.cast_unsigned())),
                false => Judged::Moved(written),
            };
        }
        Judged::Refused(reason(&member.job.transaction, told, before))
    }
}

fn absent(key: Vec<u8>) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

fn written_at(key: Vec<u8>, at: Revision) -> Compare {
    Compare::mod_revision(key, CompareOp::Equal, at.0.cast_signed())
}

/// The first thing that does not hold, from what was read.
fn reason<'a>(
    transaction: &Transaction,
    mut told: impl Iterator<Item = Option<&'a GetResponse>>,
    at: Revision,
) -> MetaError {
    let mut found = || {
        let entry = told.next().flatten().and_then(|told| told.kvs().first());
        entry.map(|entry| Revision(entry.mod_revision().cast_unsigned()))
    };
    if let Some(Guard { seat, epoch }) = &transaction.guard
        && found() != Some(*epoch)
    {
        return MetaError::Deposed {
            seat: seat.clone(),
            epoch: *epoch,
        };
    }
    let fails = |condition: &Condition| match (condition, found()) {
        (Condition::Absent(_) | Condition::Empty(_), found) => found.is_some(),
        (Condition::Present(_), found) => found.is_none(),
        (Condition::WrittenAt(_, at), found) => found != Some(*at),
    };
    match transaction.conditions.iter().position(fails) {
        Some(condition) => MetaError::Conflict { condition, at },
        None => MetaError::Unavailable("a comparison failed without a reason".to_owned()),
    }
}
