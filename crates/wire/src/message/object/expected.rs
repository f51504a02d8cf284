//! Which replies to object requests are answers: as [`super::super::Expected`], for objects.

use super::super::expected::Unexpected;
use super::{ObjectReply, ObjectRequest, ObjectStep, ObjectStepReply};

/// What one step's reply may be.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Done,
    Appended { bytes: u64 },
    Data { bytes_max: u32 },
    Attributes,
    Info([u8; 16]),
    Objects { from: [u8; 16], count_max: usize },
    Space,
    Sought { from: u64 },
}

/// What a request's reply may be.
#[derive(Clone, Debug)]
enum Whole {
    Done,
    Stores,
    Ticket,
    Record { from_second: u64 },
    Results(Vec<Answer>),
    Devices,
}

/// What the reply to an object request may be.
#[derive(Clone, Debug)]
pub struct ExpectedObjects(Whole);

impl ExpectedObjects {
    /// What may be answered to this.
    #[must_use]
    pub fn of(request: &ObjectRequest) -> Self {
        Self(match request {
            ObjectRequest::Stores => Whole::Stores,
            ObjectRequest::OpenTicket { .. } => Whole::Ticket,
            ObjectRequest::CloseTicket { .. } | ObjectRequest::Revoke { .. } => Whole::Done,
            ObjectRequest::Devices => Whole::Devices,
            ObjectRequest::TicketRecord { from_second, .. }
            | ObjectRequest::LineageRecord { from_second, .. } => Whole::Record {
                from_second: *from_second,
            },
            ObjectRequest::Batch(batch) => {
                Whole::Results(batch.steps.iter().map(Answer::to).collect())
            }
        })
    }

    /// Whether this, with `payload_bytes` of payload, is an answer.
    ///
    /// # Errors
    /// [`Unexpected`]: nothing of the reply may be believed.
    pub fn check(&self, reply: &ObjectReply, payload_bytes: usize) -> Result<(), Unexpected> {
        let is_answer = match (&self.0, reply) {
            (Whole::Results(answers), ObjectReply::Results { results, .. }) => {
                let failed = matches!(results.last(), Some(Err(_)));
                let complete =
                    results.len() == answers.len() || (failed && results.len() < answers.len());
                let mut told_bytes = 0;
                let mut fits = complete;
                for (at, (answer, result)) in answers.iter().zip(results).enumerate() {
                    match result {
                        Ok(reply) => {
                            fits &= answer.is(reply);
                            told_bytes += data_bytes(reply);
                        }
                        Err(_) => fits &= at + 1 == results.len(),
                    }
                }
                return match fits && told_bytes == payload_bytes as u64 {
                    true => Ok(()),
                    false => Err(Unexpected),
                };
            }
            (Whole::Results(_), _) => false,
            (_, ObjectReply::Failed(_))
            | (Whole::Done, ObjectReply::Done)
            | (Whole::Stores, ObjectReply::Stores(_))
            | (Whole::Devices, ObjectReply::Devices(_))
            | (Whole::Ticket, ObjectReply::Ticket { .. }) => true,
            (Whole::Record { from_second }, ObjectReply::Record { seconds, total }) => {
                let ascend = seconds
                    .windows(2)
                    .all(|pair| pair[0].second < pair[1].second);
                let first = seconds.first();
                ascend
                    && first.is_none_or(|first| first.second >= *from_second)
                    && total.kept <= total.seconds
            }
            _ => false,
        };
        match is_answer && payload_bytes == 0 {
            true => Ok(()),
            false => Err(Unexpected),
        }
    }
}

fn data_bytes(reply: &ObjectStepReply) -> u64 {
    match reply {
        ObjectStepReply::Data { bytes } => u64::from(*bytes),
        _ => 0,
    }
}

impl Answer {
    fn to(step: &ObjectStep) -> Self {
        match step {
            ObjectStep::Append { bytes, .. } => Self::Appended {
                bytes: u64::from(*bytes),
            },
            ObjectStep::Read { bytes, .. } => Self::Data { bytes_max: *bytes },
            ObjectStep::Attributes { .. } => Self::Attributes,
            ObjectStep::Info { object } => Self::Info(object.0),
            ObjectStep::List { from, count_max } => Self::Objects {
                from: from.0,
                count_max: *count_max as usize,
            },
            ObjectStep::SpaceUsed { .. } => Self::Space,
            ObjectStep::Seek { offset, .. } => Self::Sought { from: *offset },
            ObjectStep::Create { .. }
            | ObjectStep::Cut { .. }
            | ObjectStep::Discard { .. }
            | ObjectStep::Allocate { .. }
            | ObjectStep::Write { .. }
            | ObjectStep::Truncate { .. }
            | ObjectStep::Punch { .. }
            | ObjectStep::WriteUnder { .. }
            | ObjectStep::PunchUnder { .. }
            | ObjectStep::AllocateUnder { .. }
            | ObjectStep::CutUnder { .. }
            | ObjectStep::SetAttribute { .. }
            | ObjectStep::RemoveAttribute { .. }
            | ObjectStep::Delete { .. }
            | ObjectStep::Commit
            | ObjectStep::ConfirmSpace { .. }
            | ObjectStep::TrySpace { .. }
            | ObjectStep::ExtendSpace { .. }
            | ObjectStep::ReleaseSpace { .. } => Self::Done,
        }
    }

    /// Whether `reply` is such an answer.
    fn is(self, reply: &ObjectStepReply) -> bool {
        match (self, reply) {
            (Self::Done, ObjectStepReply::Done)
            | (Self::Space, ObjectStepReply::Space { .. })
            | (Self::Attributes, ObjectStepReply::Attributes(_)) => true,
            (Self::Appended { bytes }, ObjectStepReply::Appended { offset }) => {
                offset.checked_add(bytes).is_some()
            }
            (Self::Data { bytes_max }, ObjectStepReply::Data { bytes }) => *bytes <= bytes_max,
            (Self::Sought { from }, ObjectStepReply::Sought { found, next }) => {
                // It is found, or the search goes on farther behind, or it is over.
                found.is_none_or(|found| found >= from && next.is_none())
                    && next.is_none_or(|next| next > from)
            }
            (Self::Info(object), ObjectStepReply::Info(info)) => info.object.0 == object,
            (Self::Objects { from, count_max }, ObjectStepReply::Objects { list, next }) => {
                let ids = || list.iter().map(|summary| summary.object.0);
                let ascend = ids().zip(ids().skip(1)).all(|(one, other)| one < other);
                // A page brings the reader on, or is the last one.
                let goes_on = next.is_none_or(|next| {
                    next.0 > from && ids().next_back().is_none_or(|last| next.0 > last)
                });
                list.len() <= count_max
                    && ascend
                    && ids().next().is_none_or(|first| first >= from)
                    && goes_on
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ObjectBatch, ObjectError, ObjectSummary, RecordSecond, RecordTotal};
    use super::*;
    use crate::message::{SeekWhat, Settled};
    use base::{ObjectId, RequestId, StoreId, WriteVerifier};

    const STORE: StoreId = StoreId([1; 16]);

    fn id(byte: u8) -> ObjectId {
        ObjectId([byte; 16])
    }

    fn batch(steps: Vec<ObjectStep>) -> ExpectedObjects {
        ExpectedObjects::of(&ObjectRequest::Batch(ObjectBatch {
            store: STORE,
            ticket: None,
            settled: Settled::all_below(RequestId(0)),
            steps,
        }))
    }

    fn results(results: Vec<Result<ObjectStepReply, ObjectError>>) -> ObjectReply {
        ObjectReply::Results {
            verifier: WriteVerifier([0; 16]),
            results,
            server_micros: 1,
        }
    }

    fn read(bytes: u32) -> ObjectStep {
        ObjectStep::Read {
            object: id(1),
            offset: 0,
            bytes,
        }
    }

    #[test]
    fn data_is_no_more_than_was_asked_for_and_all_of_the_payload() {
        let two = batch(vec![read(10), read(5)]);
        let data = |bytes| Ok(ObjectStepReply::Data { bytes });
        assert!(two.check(&results(vec![data(10), data(3)]), 13).is_ok());
        assert!(two.check(&results(vec![data(10), data(3)]), 12).is_err());
        assert!(two.check(&results(vec![data(11), data(0)]), 11).is_err());
        assert!(
            two.check(&results(vec![data(10)]), 10).is_err(),
            "one is missing"
        );
        let failed = Err(ObjectError::Damaged);
        assert!(
            two.check(&results(vec![data(10), failed.clone()]), 10)
                .is_ok()
        );
        assert!(two.check(&results(vec![failed.clone()]), 0).is_ok());
        assert!(two.check(&results(vec![failed, data(5)]), 5).is_err());
        assert!(two.check(&ObjectReply::Done, 0).is_err());
    }

    #[test]
    fn another_steps_answer_is_none() {
        let append = batch(vec![ObjectStep::Append {
            object: id(1),
            bytes: 4,
        }]);
        let at = |offset| results(vec![Ok(ObjectStepReply::Appended { offset })]);
        assert!(append.check(&at(100), 0).is_ok());
        assert!(
            append.check(&at(u64::MAX - 3), 0).is_err(),
            "beyond all bytes"
        );
        assert!(
            append
                .check(&results(vec![Ok(ObjectStepReply::Done)]), 0)
                .is_err()
        );
        let info = |object| {
            ObjectStepReply::Info(ObjectSummary {
                object,
                size_bytes: 0,
                end_secs: 0,
                is_reserved: false,
            })
        };
        let asked = batch(vec![ObjectStep::Info { object: id(2) }]);
        assert!(asked.check(&results(vec![Ok(info(id(2)))]), 0).is_ok());
        assert!(asked.check(&results(vec![Ok(info(id(3)))]), 0).is_err());
    }

    #[test]
    fn a_search_finds_something_goes_on_or_ends() {
        let asked = batch(vec![ObjectStep::Seek {
            object: id(1),
            offset: 100,
            what: SeekWhat::Data,
        }]);
        let sought = |found, next| {
            let reply = Ok(ObjectStepReply::Sought { found, next });
            asked.check(&results(vec![reply]), 0).is_ok()
        };
        assert!(sought(Some(100), None) && sought(None, Some(101)) && sought(None, None));
        assert!(!sought(Some(99), None), "before what was asked for");
        assert!(!sought(None, Some(100)), "no progress");
        assert!(!sought(Some(200), Some(300)), "both");
    }

    #[test]
    fn a_listing_goes_on_or_ends() {
        let asked = batch(vec![ObjectStep::List {
            from: id(3),
            count_max: 2,
        }]);
        let page = |ids: &[u8], next: Option<u8>| {
            let summary = |byte: &u8| ObjectSummary {
                object: id(*byte),
                size_bytes: 1,
                end_secs: u64::MAX,
                is_reserved: false,
            };
            let list = ids.iter().map(summary).collect();
            let next = next.map(id);
            asked
                .check(
                    &results(vec![Ok(ObjectStepReply::Objects { list, next })]),
                    0,
                )
                .is_ok()
        };
        assert!(page(&[3, 4], Some(5)) && page(&[], None) && page(&[], Some(9)));
        assert!(!page(&[3, 4, 5], Some(6)), "more than was asked for");
        assert!(!page(&[2], Some(5)) && !page(&[4, 3], Some(5)) && !page(&[3, 3], None));
        assert!(
            !page(&[3, 4], Some(4)) && !page(&[], Some(3)),
            "no progress"
        );
    }

    #[test]
    fn other_requests_have_their_own_answers_or_fail() {
        let open = ExpectedObjects::of(&ObjectRequest::OpenTicket {
            number: 1,
            ticket: Vec::new(),
        });
        assert!(open.check(&ObjectReply::Ticket { now_nanos: 1 }, 0).is_ok());
        assert!(
            open.check(&ObjectReply::Failed(ObjectError::Busy), 0)
                .is_ok()
        );
        assert!(open.check(&ObjectReply::Done, 0).is_err());
        assert!(
            open.check(&ObjectReply::Ticket { now_nanos: 1 }, 1)
                .is_err()
        );
        let record = ExpectedObjects::of(&ObjectRequest::TicketRecord {
            number: 1,
            store: STORE,
            from_second: 5,
        });
        let second = |second| RecordSecond {
            second,
            bytes: 0,
            served_micros: 0,
            promised_micros: 0,
            shortfall: None,
        };
        let check = |seconds: &[u64], kept| {
            let seconds: Vec<_> = seconds.iter().copied().map(second).collect();
            let total = RecordTotal {
                seconds: 2,
                kept,
                bytes: 0,
            };
            record
                .check(&ObjectReply::Record { seconds, total }, 0)
                .is_ok()
        };
        assert!(check(&[5, 6], 2) && check(&[], 0));
        assert!(!check(&[4], 0) && !check(&[6, 6], 0) && !check(&[], 3));
    }
}
