//! Carrying a group out until the outcome of each of its transactions is certain.
//!
//! A transaction is answered when it has happened, or when it is certain that it never will. If a
//! request was not answered, the same one is sent again. If then a condition does not hold, or the
//! time is over, the slot is written for nobody before the answer: else the first request might
//! still be on its way, and happen later.

use super::Shared;
use super::call::{Pauses, Trouble, once, revision_of};
use super::request::{Judged, Member};
use crate::MetaError;
use crate::engine::{Committed, Revision};
use crate::queue::Job;
use etcd_client::{Txn, TxnOp, TxnOpResponse, TxnResponse};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// Carries a group out. The permit is for requests that have not had their time.
pub(super) async fn carry_out(shared: Arc<Shared>, jobs: Vec<Job>, permit: OwnedSemaphorePermit) {
    let mut members = Vec::with_capacity(jobs.len());
    for job in jobs {
        match timeout_at(job.deadline, shared.slots.take(&shared.prefix)).await {
            Ok(Ok(slot)) => members.push(Member {
                mark: shared.slots.mark(job.id),
                job,
                slot,
                is_unknown: false,
                fenced: None,
            }),
            Ok(Err(error)) => job.answer(Err(error)),
            Err(_) => job.answer(Err(MetaError::Unavailable(
                "too many transactions are of unknown outcome".to_owned(),
            ))),
        }
    }
    let mut permit = Some(permit);
    let mut pauses = Pauses::new();
    let mut trouble = String::new();
    while !members.is_empty() {
        let end = members.iter().map(|member| member.job.deadline).max();
        if end.is_some_and(|end| end <= Instant::now()) {
            // Others need not wait until this is certain.
            permit.take();
            members = shared.give_up(members, &trouble);
            if members.is_empty() {
                break;
            }
        }
        let request = members
            .iter()
            .map(|member| TxnOp::txn(shared.request(member)));
        let request = Txn::new().and_then(request.collect::<Vec<_>>());
        let mut client = shared.client.kv_client();
        match once(client.txn(request)).await {
            Ok(answer) => members = shared.judge_all(members, &answer),
            Err(passing) => {
                let again = shared.not_answered(members, passing).await;
                (members, trouble) = again;
                pauses.pause().await;
            }
        }
    }
}

impl Shared {
    /// Their time is over: what was never sent, or never taken, is answered; the rest is not to
    /// happen any more.
    fn give_up(&self, members: Vec<Member>, trouble: &str) -> Vec<Member> {
        let late = || MetaError::Unavailable(format!("it was tried in vain: {trouble}"));
        let mut left = Vec::new();
        for mut member in members {
            if member.is_unknown || member.fenced.is_some() {
                member.fenced.get_or_insert_with(late);
                left.push(member);
            } else {
                let written = member.slot.written;
                self.settle(member, written, Err(late()));
            }
        }
        left
    }

    /// What a request means that was not carried out, or not answered, and why.
    async fn not_answered(
        &self,
        mut members: Vec<Member>,
        trouble: Trouble,
    ) -> (Vec<Member>, String) {
        match trouble {
            Trouble::Passing(text) => {
                for member in &mut members {
                    member.is_unknown = true;
                }
                (members, text)
            }
            Trouble::NoLease => {
                // The next request says what is still wrong.
                let renewed = self.slots.renew(&self.client).await;
                let text = renewed
                    .err()
                    .map_or_else(String::new, |error| error.to_string());
                (members, text)
            }
            Trouble::Busy(text) => (members, text),
            other => {
                let error = MetaError::from(other);
                let mut left = Vec::new();
                for member in members {
                    if member.is_unknown {
                        left.push(member);
                    } else {
                        let written = member.slot.written;
                        self.settle(member, written, Err(error.clone()));
                    }
                }
                (left, error.to_string())
            }
        }
    }

    /// Answers those whose outcome the answer makes certain; the others are left.
    fn judge_all(&self, members: Vec<Member>, answer: &TxnResponse) -> Vec<Member> {
        let parts: Vec<_> = answer.op_responses();
        let parts = parts.iter().filter_map(|part| match part {
            TxnOpResponse::Txn(part) => Some(part),
            _ => None,
        });
        let parts: Vec<&TxnResponse> = parts.collect();
        let at = match revision_of(answer.header()) {
            Ok(at) if parts.len() == members.len() => at,
            _ => {
                let damaged = "an answer of the cluster has not the parts of its request";
                let passing = |mut member: Member| {
                    member.is_unknown = true;
                    member.fenced = Some(MetaError::Damaged(damaged.to_owned()));
                    member
                };
                return members.into_iter().map(passing).collect();
            }
        };
        let has_written = parts.iter().any(|part| part.succeeded());
        let before = Revision(at.0 - u64::from(has_written));
        self.groups
            .fetch_add(u64::from(has_written), Ordering::Relaxed);
        let mut left = Vec::new();
        for (member, part) in members.into_iter().zip(parts) {
            let judged = self.judge(&member, part, at, before);
            left.extend(self.conclude(member, judged));
        }
        left
    }

    /// Answers a member, or says how it goes on.
    fn conclude(&self, mut member: Member, judged: Judged) -> Option<Member> {
        match judged {
            Judged::Committed(revision) => {
                self.transactions.fetch_add(1, Ordering::Relaxed);
                let written = revision.0.cast_signed();
                self.settle(member, written, Ok(Committed { revision }));
                None
            }
            Judged::Fenced(revision) => {
                let error = member.fenced.take();
                let error = error.unwrap_or(MetaError::Forgotten(member.job.id));
                self.settle(member, revision.0.cast_signed(), Err(error));
                None
            }
            // It may still be on its way from before.
            Judged::Refused(error) if member.is_unknown => {
                member.fenced = Some(error);
                Some(member)
            }
            Judged::Refused(error) => {
                let written = member.slot.written;
                self.settle(member, written, Err(error));
                None
            }
            // The lease of the slots was over. What was sent before may have happened before that.
            Judged::Moved(written) if member.is_unknown => {
                let id = member.job.id;
                self.settle(member, written, Err(MetaError::Forgotten(id)));
                None
            }
            Judged::Moved(written) => {
                member.slot.written = written;
                Some(member)
            }
        }
    }

    /// The outcome of a transaction is certain, or nobody can find it out any more.
    fn settle(&self, member: Member, written: i64, outcome: crate::queue::Outcome) {
        let Member { job, slot, .. } = member;
        self.slots.give_back(slot, written);
        job.answer(outcome);
    }
}
