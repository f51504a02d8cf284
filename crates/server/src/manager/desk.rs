//! The desk: questions in, answers out, while this manager has its seat.
//!
//! A round takes what has come: errands that are back, questions, the time. Each is a step on the
//! book, and says what is to be answered and what is to be done after it. All changes of a round go
//! to the engine as one transaction. When that is durable, answers and errands go out.

mod renew;

use super::answers::{failure, refusal, rejected, unavailable};
use super::ask::{Wish, identity_in};
use super::book::{Book, Change, Created, Rejected, failed};
use super::errands::{Errand, Outcome, Returned, Task};
use super::ledger;
use super::plan::{Ask, Instead, Lack, Short};
use super::record::{Row, RowState, identity, ticket_id};
use super::report::{report, summary};
use super::servers::{Servers, Trouble};
use base::limits::{
    META_OPERATIONS_MAX, RESERVE_BATCH_MAX, RESERVE_ERRANDS_MAX, RESERVE_LIST_MAX,
    RESERVE_TRIES_MAX,
};
use base::{TicketId, VolumeId};
use meta::MetaError;
use reservation::Moment;
use std::collections::HashMap;
use std::sync::mpsc::SyncSender;
use tokio::sync::oneshot;
use wire::message::{
    ReserveError, ReserveLimits, ReserveName, ReserveReply, ReserveRequest, ReserveState,
    ReserveTerms, ServerTicket,
};

/// After how long an account is asked for again that a server has not given.
const COLLECT_AGAIN_SECS: u64 = 30;
/// Changes that one step makes at most.
const CHANGES_OF_A_STEP_MAX: usize = 4;

/// In place of a reservation's number where there is none, or it is only tried out.
const NOBODY: TicketId = TicketId([0; 16]);

/// Where an answer goes.
pub(crate) type Reply = oneshot::Sender<ReserveReply>;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) is_admin: bool,
    pub(crate) uid: u32,
}

/// A question, with the volume that it names.
pub(crate) struct Question {
    pub(crate) who: Asker,
    pub(crate) volume: VolumeId,
    pub(crate) request: ReserveRequest,
    pub(crate) reply: Reply,
}

/// How a reign ends that did not end in order.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) MetaError);

/// See the module's head.
pub(crate) struct Desk {
    book: Book,
    ledger: ledger::Ledger,
    servers: Servers,
    errands: SyncSender<Errand>,
    /// Which reign of this process it is: what errands of another one came to is not this one's.
    reign: u64,
    /// Errands that are out.
    out: usize,
    /// When accounts are asked for again that a server has not given.
    again: HashMap<TicketId, Moment>,
    /// Rows that could not be cleared away, to be tried again.
    stuck: Vec<TicketId>,
    /// What this round has changed.
    changes: Vec<Change>,
    answers: Vec<(Reply, ReserveReply)>,
    after: Vec<Errand>,
    is_looking: bool,
}

/// What a step came to: an answer, or an errand that has to be back first.
enum Step {
    Answer(ReserveReply),
    Errand(TicketId, Option<Row>, Task),
}

type Stepped = Result<Step, Rejected>;

impl Desk {
    /// Begins with what the ledger has.
    pub(crate) fn new(
        book: Book,
        ledger: ledger::Ledger,
        servers: Servers,
        (reign, errands): (u64, SyncSender<Errand>),
    ) -> Self {
        let unfinished = book.rows_after(None).filter(|(_, row)| {
            // Nobody waits for these any more: those who asked were told nothing.
            matches!(row.state, RowState::Pending | RowState::Leaving)
        });
        let stuck = unfinished.map(|(id, _)| id).collect();
        Self {
            book,
            ledger,
            servers,
            errands,
            reign,
            out: 0,
            again: HashMap::new(),
            stuck,
            changes: Vec::new(),
            answers: Vec::new(),
            after: Vec::new(),
            is_looking: false,
        }
    }

    /// Leaves the seat to another.
    pub(crate) async fn resign(self) {
        self.ledger.resign().await;
    }

    /// Goes on to the present second.
    pub(crate) fn look_at_the_clock(&mut self) {
        let now = Moment::at_or_before(self.servers.now());
        self.book.advance(now);
    }

    /// Waits until somebody else has the seat.
    pub(crate) async fn deposed(&self) {
        self.ledger.deposed().await;
    }

    /// Makes everything that this round has changed durable, then answers.
    ///
    /// # Errors
    /// [`Ended`]: the book may not be what the ledger has.
    pub(crate) async fn finish(&mut self) -> Result<(), Ended> {
        let changes = std::mem::take(&mut self.changes);
        let answers = std::mem::take(&mut self.answers);
        let after = std::mem::take(&mut self.after);
        match self.ledger.write(&changes).await {
            Ok(()) => {
                for (reply, answer) in answers {
                    // Who does not wait any more can ask again.
                    let _ = reply.send(answer);
                }
                for errand in after {
                    self.send(errand);
                }
                Ok(())
            }
            Err(error) => {
                for change in changes.into_iter().rev() {
                    if let Change::Row {
                        id,
                        before: Some(before),
                        ..
                    } = &change
                        && matches!(before.state, RowState::Pending | RowState::Leaving)
                    {
                        // Its errand is over, and what came of it is not written down.
                        self.stuck.push(*id);
                    }
                    self.book.undo(change);
                }
                for errand in &after {
                    match errand.task {
                        // If it leaves no more, the tick sees that.
                        Task::Leave { .. } => self.stuck.push(errand.id),
                        Task::Collect => drop(self.again.remove(&errand.id)),
                        _ => {}
                    }
                }
                let replies = answers.into_iter().map(|(reply, _)| reply);
                let waiting = after.into_iter().filter_map(|errand| {
                    self.is_looking &= !matches!(errand.task, Task::Devices);
                    errand.reply
                });
                for reply in replies.chain(waiting.collect::<Vec<_>>()) {
                    let _ = reply.send(unavailable(&error));
                }
                match ledger::has_certainly_not_happened(&error) {
                    true => Ok(()),
                    false => Err(Ended(error)),
                }
            }
        }
    }

    fn send(&mut self, errand: Errand) {
        self.out += 1;
        match self.errands.try_send(errand) {
            Ok(()) => {}
            Err(refused) => {
                self.out -= 1;
                let (std::sync::mpsc::TrySendError::Full(errand)
                | std::sync::mpsc::TrySendError::Disconnected(errand)) = refused;
                self.is_looking &= !matches!(errand.task, Task::Devices);
                if matches!(errand.task, Task::Collect) {
                    self.again.remove(&errand.id);
                }
                if matches!(errand.task, Task::Leave { .. } | Task::Confirm { .. }) {
                    self.stuck.push(errand.id);
                }
                if let Some(reply) = errand.reply {
                    let _ = reply.send(failure(ReserveError::Unavailable, "the stores are busy"));
                }
            }
        }
    }

    fn errand(&mut self, id: TicketId, row: Option<Row>, task: Task, reply: Option<Reply>) {
        let (now, reign) = (self.book.now(), self.reign);
        self.after.push(Errand {
            reign,
            task,
            id,
            row,
            now,
            reply,
        });
    }

    /// What the time asks for.
    pub(crate) fn tick(&mut self) {
        if !self.is_looking {
            self.is_looking = true;
            self.errand(NOBODY, None, Task::Devices, None);
        }
        let room = RESERVE_ERRANDS_MAX.saturating_sub(self.out + 1);
        let stuck: Vec<_> = self.stuck.drain(..room.min(self.stuck.len())).collect();
        for id in stuck {
            // What is held after all is nobody's to clear away, and what is gone is cleared away.
            let is_left = |row: &&Row| matches!(row.state, RowState::Pending | RowState::Leaving);
            if let Some(row) = self.book.row(id).filter(is_left).cloned() {
                let has_tickets = row.state == RowState::Leaving;
                self.errand(id, Some(row), Task::Leave { has_tickets }, None);
            }
        }
        let room = room.saturating_sub(self.after.len());
        let now = self.book.now();
        let is_asked = |id: &TicketId| self.again.get(id).is_some_and(|again| *again > now);
        let due = self.book.due(now).filter(|id| !is_asked(id));
        // A round is one transaction.
        let due: Vec<_> = due.take((room / 2).min(RESERVE_BATCH_MAX / 2)).collect();
        for id in due {
            let Some(row) = self.book.row(id).cloned() else {
                continue;
            };
            if row.is_held() && row.account_end().is_some() {
                // Unless it comes back: so a server that is away keeps nobody else waiting.
                self.again.insert(id, now.plus(COLLECT_AGAIN_SECS));
                self.errand(id, Some(row), Task::Collect, None);
            } else {
                self.again.remove(&id);
                let struck = self.book.remove(id);
                self.changes.extend(struck);
            }
        }
    }

    /// Whether the transaction of this round has room for another step.
    pub(crate) fn has_room(&self) -> bool {
        self.changes.len() + CHANGES_OF_A_STEP_MAX <= META_OPERATIONS_MAX
    }

    /// Takes a question in.
    pub(crate) fn ask(&mut self, question: Question) {
        let Question {
            who,
            volume,
            request,
            reply,
        } = question;
        let stepped = if self.ledger.is_trusted() {
            self.step(who, volume, request)
        } else {
            Err(failed(
                ReserveError::Unavailable,
                "another manager may have the seat",
            ))
        };
        self.go_on(stepped, reply);
    }

    fn go_on(&mut self, stepped: Stepped, reply: Reply) {
        match stepped {
            Ok(Step::Answer(answer)) => self.answers.push((reply, answer)),
            Ok(Step::Errand(id, _, task)) if self.out + self.after.len() >= RESERVE_ERRANDS_MAX => {
                // It is noted already that it leaves.
                self.stuck
                    .extend(matches!(task, Task::Leave { .. }).then_some(id));
                let answer = failure(ReserveError::Unavailable, "the stores are busy");
                self.answers.push((reply, answer));
            }
            Ok(Step::Errand(id, row, task)) => self.errand(id, row, task, Some(reply)),
            Err(rejected) => self.answers.push((reply, refusal(rejected))),
        }
    }

    fn step(&mut self, who: Asker, volume: VolumeId, request: ReserveRequest) -> Stepped {
        match request {
            ReserveRequest::Create {
                request,
                name,
                terms,
                dry_run,
                ..
            } => self.create(who, volume, (request, name, terms), dry_run),
            ReserveRequest::List { after } => Ok(Step::Answer(self.list(who, after))),
            ReserveRequest::Show(which) => {
                let id = self.find(who, volume, &which)?;
                Ok(Step::Answer(self.shown(id, true)))
            }
            ReserveRequest::Extend {
                which,
                end_secs,
                dry_run,
            } => self.extend(who, volume, &which, Moment::from_secs(end_secs), dry_run),
            ReserveRequest::Release { which, dry_run } => {
                let id = self.find(who, volume, &which)?;
                let row = self.book.judge_release(id)?;
                match dry_run {
                    true => Ok(Step::Answer(self.possible(id, &row))),
                    false => Ok(Step::Errand(id, self.book.row(id).cloned(), Task::Revoke)),
                }
            }
            ReserveRequest::Cancel {
                which,
                discard,
                dry_run,
            } => self.cancel(who, volume, &which, discard, dry_run),
            ReserveRequest::Report { which, from_second } => {
                let id = self.find(who, volume, &which)?;
                let row = self.book.row(id).cloned();
                Ok(Step::Errand(id, row, Task::Report { from_second }))
            }
            ReserveRequest::Limits => {
                let limits = self.book.limits().clone();
                Ok(Step::Answer(ReserveReply::Limits(limits)))
            }
            ReserveRequest::SetLimits { limits, dry_run } => self.set_limits(who, limits, dry_run),
            ReserveRequest::Renew {
                reservation,
                ticket,
            } => self.renew(reservation, &ticket).map(Step::Answer),
        }
    }

    fn create(
        &mut self,
        who: Asker,
        volume: VolumeId,
        (request, name, terms): ([u8; 16], String, ReserveTerms),
        dry_run: bool,
    ) -> Stepped {
        if !who.is_admin && !self.book.limits().users.contains(&who.uid) {
            let why = "an administrator has to allow it: azekura reserve limits ADDR --allow UID";
            return Err(failed(ReserveError::Forbidden, why));
        }
        let id = identity(who.uid, request);
        let wish = Wish {
            volume,
            holder: who.uid,
            name: match name.is_empty() {
                true => self.book.name_for(volume, id),
                false => name,
            },
            terms,
        };
        if !wish
            .terms
            .stores
            .iter()
            .all(|store| self.book.knows(*store))
        {
            // An export that was measured this moment.
            self.book.set_devices(self.servers.devices());
        }
        if dry_run {
            return self.try_out(wish, Vec::new());
        }
        self.admit(id, wish, Vec::new())
    }

    fn try_out(&self, wish: Wish, without: Vec<Lack>) -> Stepped {
        let row = self.book.judge(&wish, &without)?;
        if row.space_bytes == 0 {
            return Ok(Step::Answer(self.possible(NOBODY, &row)));
        }
        Ok(Step::Errand(NOBODY, Some(row), Task::Try { wish, without }))
    }

    fn admit(&mut self, id: TicketId, wish: Wish, without: Vec<Lack>) -> Stepped {
        let has_room = self.out + self.after.len() < RESERVE_ERRANDS_MAX;
        if wish.terms.space_bytes > 0 && !has_room {
            return Err(failed(ReserveError::Unavailable, "the stores are busy"));
        }
        match self.book.create(id, &wish, &without)? {
            Created::Again => Ok(Step::Answer(self.shown(id, true))),
            Created::New(change) => {
                self.changes.push(change);
                if wish.terms.space_bytes == 0 {
                    return Ok(Step::Answer(self.shown(id, true)));
                }
                let row = self.book.row(id).cloned();
                Ok(Step::Errand(id, row, Task::Confirm { wish, without }))
            }
        }
    }

    fn extend(
        &mut self,
        who: Asker,
        volume: VolumeId,
        which: &ReserveName,
        end: Moment,
        dry_run: bool,
    ) -> Stepped {
        let id = self.find(who, volume, which)?;
        let row = self.book.row(id).cloned();
        let change = self.book.extend(id, end)?;
        let has_space = row.as_ref().is_some_and(|row| row.space_bytes > 0);
        if dry_run {
            let longer = self.book.row(id).expect("it was just changed").clone();
            self.book.undo(change);
            return Ok(Step::Answer(self.possible(id, &longer)));
        }
        if has_space {
            // Space first: what a store has too long ends with the reservation, what it has too
            // short would be a promise that is not kept.
            self.book.undo(change);
            return Ok(Step::Errand(id, row, Task::Extend { end }));
        }
        self.changes.push(change);
        Ok(Step::Answer(self.shown(id, true)))
    }

    fn cancel(
        &mut self,
        who: Asker,
        volume: VolumeId,
        which: &ReserveName,
        discard: bool,
        dry_run: bool,
    ) -> Stepped {
        let id = self.find(who, volume, which)?;
        let row = self.book.row(id).cloned().expect("it was just found");
        if row.space_bytes > 0 && !discard {
            return Ok(Step::Errand(id, Some(row), Task::CheckUnused { dry_run }));
        }
        if dry_run {
            return Ok(Step::Answer(ReserveReply::Done));
        }
        Ok(self.leave(id))
    }

    fn leave(&mut self, id: TicketId) -> Step {
        let change = self.book.leave(id);
        self.changes.extend(change);
        let row = self.book.row(id).cloned();
        Step::Errand(id, row, Task::Leave { has_tickets: true })
    }

    fn set_limits(&mut self, who: Asker, limits: ReserveLimits, dry_run: bool) -> Stepped {
        if !who.is_admin {
            return Err(failed(
                ReserveError::Forbidden,
                "limits are set by administrators",
            ));
        }
        let change = self.book.set_limits(limits.clone())?;
        match dry_run {
            true => self.book.undo(change),
            false => self.changes.push(change),
        }
        Ok(Step::Answer(ReserveReply::Limits(limits)))
    }

    /// The reservation that is meant, if there is one that the asker may see.
    fn find(
        &self,
        who: Asker,
        volume: VolumeId,
        which: &ReserveName,
    ) -> Result<TicketId, Rejected> {
        let by_name = || self.book.named(volume, &which.name);
        let id = identity_in(&which.name).or_else(by_name);
        let known = id.and_then(|id| Some((id, self.book.row(id)?)));
        let found = known.filter(|(_, row)| {
            let is_there = row.state == RowState::Held && row.volume == volume;
            is_there && (who.is_admin || row.holder == who.uid)
        });
        found.map(|(id, _)| id).ok_or_else(|| {
            let why = format!("there is no reservation {:?}", which.name);
            failed(ReserveError::NotFound, why)
        })
    }

    fn list(&self, who: Asker, after: Option<TicketId>) -> ReserveReply {
        let own = self.book.rows_after(after).filter(|(_, row)| {
            row.state == RowState::Held && (who.is_admin || row.holder == who.uid)
        });
        let now = self.book.now();
        let mut list: Vec<_> = own
            .map(|(id, row)| summary(id, row, now))
            .take(RESERVE_LIST_MAX + 1)
            .collect();
        let more = list.len() > RESERVE_LIST_MAX;
        list.truncate(RESERVE_LIST_MAX);
        ReserveReply::Reservations { list, more }
    }

    fn possible(&self, id: TicketId, row: &Row) -> ReserveReply {
        let mut summary = summary(id, row, self.book.now());
        summary.state = ReserveState::Possible;
        ReserveReply::Reserved {
            summary,
            occurrence: 0,
            tickets: Vec::new(),
        }
    }

    /// A reservation as it is, with tickets for its present or next window.
    fn shown(&self, id: TicketId, with_tickets: bool) -> ReserveReply {
        let now = self.book.now();
        let Some(row) = self.book.row(id) else {
            return failure(ReserveError::NotFound, "it is gone");
        };
        let occurrence = row.present(now);
        let is_live = row.released.is_none() && row.end() > now;
        let servers = row.servers().into_iter();
        let tickets = servers
            .filter(|_| with_tickets && is_live)
            .filter_map(|server| {
                let (head, terms) = row.ticket(id, occurrence, server, 0)?;
                debug_assert_eq!(
                    head.id,
                    ticket_id(id, occurrence),
                    "one number for all servers"
                );
                let ticket = self.servers.issue(server, &head, &terms)?;
                Some(ServerTicket {
                    server,
                    ticket: ticket.to_bytes(),
                })
            });
        ReserveReply::Reserved {
            summary: summary(id, row, now),
            occurrence,
            tickets: tickets.collect(),
        }
    }

    /// Takes back what an errand has come to.
    pub(crate) fn returned(&mut self, returned: Returned) {
        let Returned { errand, outcome } = returned;
        let Errand {
            task,
            id,
            row,
            reply,
            reign,
            ..
        } = errand;
        if reign != self.reign {
            // What it was about shows in the ledger, which this reign has read.
            let why = "the manager has begun anew; ask again";
            let answer = failure(ReserveError::Unavailable, why);
            self.answers.extend(reply.map(|reply| (reply, answer)));
            return;
        }
        self.out -= 1;
        let stepped = match outcome {
            Ok(outcome) => self.came_back(task, id, row, outcome),
            Err(trouble) => self.came_to_trouble(task, id, row, trouble),
        };
        match reply {
            Some(reply) => self.go_on(stepped, reply),
            // Nobody waits: what has changed has changed.
            None => {
                if let Err(Rejected::Failed(code, why)) = stepped {
                    tracing::warn!(%id, ?code, why, "a reservation is not cleared away yet");
                }
            }
        }
    }

    fn came_back(
        &mut self,
        task: Task,
        id: TicketId,
        row: Option<Row>,
        outcome: Outcome,
    ) -> Stepped {
        let done = Ok(Step::Answer(ReserveReply::Done));
        match (task, outcome) {
            (_, Outcome::Devices(devices)) => {
                self.is_looking = false;
                self.book.set_devices(devices);
                done
            }
            (Task::Try { .. }, _) => {
                let row = row.expect("it was tried out with its row");
                Ok(Step::Answer(self.possible(NOBODY, &row)))
            }
            (Task::Confirm { .. }, _) => {
                self.changes.extend(self.book.confirm(id));
                Ok(Step::Answer(self.shown(id, true)))
            }
            (Task::Extend { end }, _) => {
                let change = self.book.extend(id, end)?;
                self.changes.push(change);
                Ok(Step::Answer(self.shown(id, true)))
            }
            (Task::Revoke, _) => {
                let now = self.book.row(id);
                if now.is_some() && now.map(Row::end) != row.as_ref().map(Row::end) {
                    // It was made longer meanwhile, and so were its tickets.
                    let now = now.cloned();
                    return Ok(Step::Errand(id, now, Task::Revoke));
                }
                let change = self.book.release(id)?;
                self.changes.push(change);
                Ok(Step::Answer(self.shown(id, false)))
            }
            (Task::CheckUnused { dry_run }, Outcome::Used(used)) => match (used, dry_run) {
                (0, true) => done,
                (0, false) => Ok(self.leave(id)),
                (used, _) => {
                    let why = format!("{used} allocation units of its space are in use");
                    Err(failed(ReserveError::InUse, why))
                }
            },
            (Task::Leave { has_tickets }, _) => {
                let change = match has_tickets {
                    true => self.book.gone(id),
                    false => self.book.remove(id),
                };
                self.changes.extend(change);
                done
            }
            (Task::Collect, Outcome::Delivered(delivered)) => {
                self.again.remove(&id);
                self.changes.extend(self.book.deliver(id, delivered));
                done
            }
            (_, Outcome::Report(delivered, record)) => {
                let row = row.expect("a report is about a row");
                let summary = summary(id, &row, self.book.now());
                Ok(Step::Answer(ReserveReply::Report(report(
                    summary, delivered, record,
                ))))
            }
            (_, _) => done,
        }
    }

    fn came_to_trouble(
        &mut self,
        task: Task,
        id: TicketId,
        row: Option<Row>,
        trouble: Trouble,
    ) -> Stepped {
        match task {
            Task::Try { wish, without } => {
                let row = row.as_ref();
                self.elsewhere((wish, without), row, trouble, |desk, wish, without| {
                    desk.try_out(wish, without)
                })
            }
            Task::Confirm { wish, without } => {
                if let Trouble::Left(trouble) = trouble {
                    // The row stays until everything was given back.
                    self.stuck.push(id);
                    return Err(rejected(*trouble));
                }
                self.changes.extend(self.book.remove(id));
                let row = row.as_ref();
                self.elsewhere((wish, without), row, trouble, |desk, wish, without| {
                    desk.admit(id, wish, without)
                })
            }
            Task::Leave { .. } => {
                self.stuck.push(id);
                Err(rejected(trouble))
            }
            _ => Err(rejected(trouble)),
        }
    }

    /// A store lacks space: others may have it, and are asked `again`.
    fn elsewhere(
        &mut self,
        (wish, mut without): (Wish, Vec<Lack>),
        row: Option<&Row>,
        trouble: Trouble,
        again: impl FnOnce(&mut Self, Wish, Vec<Lack>) -> Stepped,
    ) -> Stepped {
        without.push(match trouble {
            Trouble::Short { store, room, .. } => Lack { store, aus: room },
            Trouble::Away { store, .. } => Lack { store, aus: 0 },
            _ => return Err(rejected(trouble)),
        });
        if !wish.terms.stores.is_empty() || without.len() > RESERVE_TRIES_MAX {
            return Err(self.short_of_space(row, &trouble));
        }
        match again(self, wish, without) {
            Err(Rejected::Short { .. }) => Err(self.short_of_space(row, &trouble)),
            stepped => stepped,
        }
    }

    /// The refusal that a store has given, with the time at which it would have the space if the
    /// rate is free then, too.
    fn short_of_space(&self, row: Option<&Row>, trouble: &Trouble) -> Rejected {
        let Trouble::Short {
            store,
            wanted,
            room,
            offer,
        } = trouble
        else {
            return rejected(trouble.clone());
        };
        let short = Short::Space {
            store: *store,
            wanted: *wanted,
            room: *room,
        };
        let later = row.filter(|row| row.slices.len() == 1 && row.count == 1);
        let later = later.zip(*offer).and_then(|(row, offer)| {
            let ask = Ask {
                read: row.read_bytes_per_second,
                write: row.write_bytes_per_second,
                space_bytes: row.space_bytes,
                window: row.window,
                every_secs: 0,
                count: 1,
                stores: vec![*store],
                without: Vec::new(),
            };
            let ask = ask.at(offer.start())?;
            self.book.fits(&ask).then_some(Instead::Later(ask))
        });
        Rejected::Short {
            short,
            offers: later.into_iter().collect(),
        }
    }
}
