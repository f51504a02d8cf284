//! The desk: questions in, answers out, while this manager has its seat.
//!
//! A round takes what has come: errands that are back, questions, the time. Each is a step on the
//! book, and says what is to be answered and what is to be done after it. All changes of a round go
//! to the engine as one transaction. When that is durable, answers and errands go out.

mod again;
mod back;
mod renew;

use super::answers::{failure, refusal, unavailable};
use super::ask::{Wish, identity_in};
use super::book::{Book, Change, Created, Rejected, failed};
use super::door::NO_VOLUME;
use super::errands::{Errand, Progress, Task};
use super::ledger;
use super::plan::Lack;
use super::record::{Row, RowState, identity, ticket_id};
use super::report::summary;
use super::servers::Servers;
use again::{Again, leaving};
use base::limits::{META_OPERATIONS_MAX, RESERVE_BATCH_MAX, RESERVE_ERRANDS_MAX, RESERVE_LIST_MAX};
use base::{ServerId, StoreId, TicketId, VolumeId};
use meta::MetaError;
use reservation::Moment;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use tokio::sync::oneshot;
use wire::message::{
    ReserveError, ReserveLimits, ReserveName, ReserveReply, ReserveRequest, ReserveState,
    ReserveTerms, ServerTicket,
};

/// Changes that one step makes at most.
const CHANGES_OF_A_STEP_MAX: usize = 4;

/// Gives back what is left of one whose windows are all over.
const OVER: Task = Task::Leave {
    has_tickets: false,
    discard: true,
};

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

/// What a question is about.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) volume: VolumeId,
    /// The stores in which its files can lie; none if any can.
    pub(crate) among: Option<Arc<BTreeSet<StoreId>>>,
}

impl From<VolumeId> for Place {
    fn from(volume: VolumeId) -> Self {
        Self {
            volume,
            among: None,
        }
    }
}

/// A question, with the volume that it names.
pub(crate) struct Question {
    pub(crate) who: Asker,
    pub(crate) place: Place,
    pub(crate) request: Asked,
    pub(crate) reply: Reply,
}

/// What is asked.
pub(crate) enum Asked {
    /// By somebody with a connection.
    Request(ReserveRequest),
    /// What is promised of a volume, or may be in a moment: as a list.
    Kept { after: Option<TicketId> },
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
    /// Accounts that a server has not given, and what could not be given back everywhere.
    again: Again,
    /// Rows that are to be cleared away, and for which no server was asked so far.
    stuck: BTreeSet<TicketId>,
    /// Servers that had a device in order when they were last looked at.
    well: BTreeSet<ServerId>,
    /// Rows of which it was said that they wait for a server.
    told: BTreeSet<TicketId>,
    /// What this round has changed.
    changes: Vec<Change>,
    answers: Vec<(Reply, ReserveReply)>,
    after: Vec<Errand>,
    is_looking: bool,
}

/// What a step came to: an answer, or an errand that has to be back first.
enum Step {
    Answer(Box<ReserveReply>),
    Errand(Box<(TicketId, Option<Row>, Task)>),
}

impl Step {
    fn answer(answer: ReserveReply) -> Self {
        Self::Answer(Box::new(answer))
    }

    fn send(id: TicketId, row: Option<Row>, task: Task) -> Self {
        Self::Errand(Box::new((id, row, task)))
    }
}

type Stepped = Result<Step, Rejected>;

/// What has no name was asked for in vain.
fn is_kept(row: &Row) -> bool {
    row.is_held() || row.state == RowState::Pending && !row.name.is_empty()
}

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
            row.state.is_unfinished()
        });
        let stuck = unfinished.map(|(id, _)| id).collect();
        Self {
            book,
            ledger,
            servers,
            errands,
            reign,
            out: 0,
            again: Again::default(),
            stuck,
            well: BTreeSet::new(),
            told: BTreeSet::new(),
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
                        && before.state.is_unfinished()
                    {
                        // Its errand is over, and what came of it is not written down.
                        self.stuck.insert(*id);
                    }
                    self.book.undo(change);
                }
                for errand in &after {
                    self.set_aside(errand);
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
                self.set_aside(&errand);
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
            progress: Progress::default(),
        });
    }

    /// What the time asks for.
    pub(crate) fn tick(&mut self) {
        if !self.is_looking {
            self.is_looking = true;
            self.errand(NOBODY, None, Task::Devices, None);
        }
        let room = RESERVE_ERRANDS_MAX.saturating_sub(self.out + 1);
        self.try_again(room);
        self.clear_away(room.saturating_sub(self.after.len()));
        let room = room.saturating_sub(self.after.len());
        let now = self.book.now();
        // Those that a server keeps waiting keep nobody else waiting.
        let due = self.book.due(now).filter(|id| !self.again.knows(*id));
        // A round is one transaction.
        let due: Vec<_> = due.take((room / 2).min(RESERVE_BATCH_MAX / 2)).collect();
        for id in due {
            let Some(row) = self.book.row(id).cloned() else {
                continue;
            };
            if row.is_held() && row.account_end().is_some() {
                self.again.begin(id);
                self.errand(id, Some(row), Task::Collect, None);
                continue;
            }
            if row.is_held() && row.space_bytes > 0 {
                // Stores may have more than the row says: an extension that came to nothing.
                self.changes.extend(self.book.leave(id, true));
                let row = self.book.row(id).cloned();
                self.again.begin(id);
                self.errand(id, row, OVER, None);
            } else {
                let struck = self.book.remove(id);
                self.changes.extend(struck);
            }
        }
    }

    /// Clears away what no server was asked for so far. It takes a half of the room: what is due is
    /// done, however much there is.
    fn clear_away(&mut self, room: usize) {
        for _ in 0..room / 2 {
            let Some(id) = self.stuck.pop_first() else {
                return;
            };
            // What is held after all is nobody's to clear away, and what is gone is cleared away.
            let is_left = |row: &&Row| row.state.is_unfinished() && !self.again.knows(id);
            if let Some(row) = self.book.row(id).filter(is_left).cloned() {
                let task = leaving(&row);
                self.again.begin(id);
                self.errand(id, Some(row), task, None);
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
            place,
            request,
            reply,
        } = question;
        let stepped = if self.ledger.is_trusted() {
            match request {
                Asked::Request(request) => self.step(who, place, request),
                Asked::Kept { after } => {
                    Ok(Step::answer(self.list(who, place.volume, after, is_kept)))
                }
            }
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
            Ok(Step::Answer(answer)) => self.answers.push((reply, *answer)),
            Ok(Step::Errand(errand)) => {
                let (id, row, task) = *errand;
                if self.out + self.after.len() < RESERVE_ERRANDS_MAX {
                    return self.errand(id, row, task, Some(reply));
                }
                // It is noted already that it leaves.
                self.again.forget(id);
                self.stuck
                    .extend(matches!(task, Task::Leave { .. }).then_some(id));
                let answer = failure(ReserveError::Unavailable, "the stores are busy");
                self.answers.push((reply, answer));
            }
            Err(rejected) => self.answers.push((reply, refusal(rejected))),
        }
    }

    fn step(&mut self, who: Asker, place: Place, request: ReserveRequest) -> Stepped {
        let volume = place.volume;
        match request {
            ReserveRequest::Create {
                request,
                name,
                terms,
                dry_run,
                ..
            } => self.create(who, place, (request, name, terms), dry_run),
            ReserveRequest::List { after } => {
                Ok(Step::answer(self.list(who, volume, after, Row::is_held)))
            }
            ReserveRequest::Show(which) => {
                let id = self.find(who, volume, &which)?;
                Ok(Step::answer(self.shown(id, true)))
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
                    true => Ok(Step::answer(self.possible(id, &row))),
                    false => Ok(Step::send(id, self.book.row(id).cloned(), Task::Revoke)),
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
                Ok(Step::send(id, row, Task::Report { from_second }))
            }
            ReserveRequest::Limits => {
                let limits = self.book.limits().clone();
                Ok(Step::answer(ReserveReply::Limits(limits)))
            }
            ReserveRequest::SetLimits { limits, dry_run } => self.set_limits(who, limits, dry_run),
            ReserveRequest::Renew {
                reservation,
                ticket,
            } => self.renew(reservation, &ticket).map(Step::answer),
        }
    }

    /// # Errors
    /// [`ReserveError::Forbidden`] for who may not reserve, or may not any more.
    fn check_allowed(&self, who: Asker) -> Result<(), Rejected> {
        if who.is_admin || self.book.limits().users.contains(&who.uid) {
            return Ok(());
        }
        let why = "an administrator has to allow it: azekura reserve limits ADDR --allow UID";
        Err(failed(ReserveError::Forbidden, why))
    }

    fn create(
        &mut self,
        who: Asker,
        Place { volume, among }: Place,
        (request, name, terms): ([u8; 16], String, ReserveTerms),
        dry_run: bool,
    ) -> Stepped {
        self.check_allowed(who)?;
        let id = identity(who.uid, request);
        if !who.is_admin && self.book.row(id).is_none() {
            self.book.check_holder(who.uid)?;
        }
        let wish = Wish {
            volume,
            holder: who.uid,
            name: match name.is_empty() {
                true => self.book.name_for(volume, id),
                false => name,
            },
            terms,
            among,
        };
        if !wish
            .terms
            .stores
            .iter()
            .all(|store| self.book.knows(*store))
        {
            // An export that was measured this moment.
            self.looked(self.servers.devices());
        }
        let asked = wish.clone();
        let stepped = match dry_run {
            true => self.try_out(wish, Vec::new()),
            false => self.admit(id, wish, Vec::new()),
        };
        stepped.or_else(|rejected| self.with_space(&asked, rejected))
    }

    /// Counter-offers come from the calendars; with space, stores are asked before they are made.
    fn with_space(&self, wish: &Wish, rejected: Rejected) -> Stepped {
        let (short, offers) = match rejected {
            Rejected::Short { short, offers } if wish.terms.space_bytes > 0 => (short, offers),
            other => return Err(other),
        };
        let rows = offers.into_iter().filter_map(|offer| {
            let row = self.book.row_of(wish, offer.ask())?;
            Some((offer, row))
        });
        let offers: Vec<_> = rows.collect();
        match offers.first() {
            Some((_, row)) => {
                let row = Some(row.clone());
                Ok(Step::send(NOBODY, row, Task::Offers { short, offers }))
            }
            None => Err(Rejected::Short {
                short,
                offers: Vec::new(),
            }),
        }
    }

    fn try_out(&self, wish: Wish, without: Vec<Lack>) -> Stepped {
        let row = self.book.judge(&wish, &without)?;
        if row.space_bytes == 0 {
            return Ok(Step::answer(self.possible(NOBODY, &row)));
        }
        Ok(Step::send(NOBODY, Some(row), Task::Try { wish, without }))
    }

    fn admit(&mut self, id: TicketId, wish: Wish, without: Vec<Lack>) -> Stepped {
        let has_room = self.out + self.after.len() < RESERVE_ERRANDS_MAX;
        if wish.terms.space_bytes > 0 && !has_room {
            return Err(failed(ReserveError::Unavailable, "the stores are busy"));
        }
        match self.book.create(id, &wish, &without)? {
            Created::Again => Ok(Step::answer(self.shown(id, true))),
            Created::New(change) => {
                // What was asked for before and could not be written down has left nothing.
                self.stuck.remove(&id);
                self.changes.push(change);
                if wish.terms.space_bytes == 0 {
                    return Ok(Step::answer(self.shown(id, true)));
                }
                let row = self.book.row(id).cloned();
                Ok(Step::send(id, row, Task::Confirm { wish, without }))
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
        self.check_allowed(who)?;
        let row = self.book.row(id).cloned();
        let change = self.book.extend(id, end)?;
        let has_space = row.as_ref().is_some_and(|row| row.space_bytes > 0);
        if dry_run {
            let longer = self.book.row(id).expect("it was just changed").clone();
            self.book.undo(change);
            return Ok(Step::answer(self.possible(id, &longer)));
        }
        if has_space {
            // Space first: what a store has too long is given back when the reservation is over,
            // what it has too short would be a promise that is not kept.
            self.book.undo(change);
            return Ok(Step::send(id, row, Task::Extend { end }));
        }
        self.changes.push(change);
        Ok(Step::answer(self.shown(id, true)))
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
            return Ok(Step::send(id, Some(row), Task::CheckUnused { dry_run }));
        }
        if dry_run {
            return Ok(Step::answer(ReserveReply::Done));
        }
        Ok(self.leave(id, true))
    }

    fn leave(&mut self, id: TicketId, discard: bool) -> Step {
        self.again.begin(id);
        let change = self.book.leave(id, discard);
        self.changes.extend(change);
        let row = self.book.row(id).cloned();
        let has_tickets = true;
        let task = Task::Leave {
            has_tickets,
            discard,
        };
        Step::send(id, row, task)
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
        Ok(Step::answer(ReserveReply::Limits(limits)))
    }

    /// The reservation that is meant, if there is one that the asker may see.
    fn find(
        &self,
        who: Asker,
        volume: VolumeId,
        which: &ReserveName,
    ) -> Result<TicketId, Rejected> {
        let by_name = || self.book.named(volume, &which.name);
        let by_id = identity_in(&which.name);
        let id = by_id.or_else(by_name);
        let known = id.and_then(|id| Some((id, self.book.row(id)?)));
        let found = known.filter(|(_, row)| {
            // By its identity one is also found whose volume is gone.
            let is_of = row.volume == volume || volume == NO_VOLUME && by_id.is_some();
            let is_there = row.state == RowState::Held && is_of;
            is_there && (who.is_admin || row.holder == who.uid)
        });
        found.map(|(id, _)| id).ok_or_else(|| {
            let why = format!("there is no reservation {:?}", which.name);
            failed(ReserveError::NotFound, why)
        })
    }

    fn list(
        &self,
        who: Asker,
        volume: VolumeId,
        after: Option<TicketId>,
        is_listed: fn(&Row) -> bool,
    ) -> ReserveReply {
        // Others' rows are not even looked at: there may be a million of them.
        let all: Box<dyn Iterator<Item = (TicketId, &Row)>> = match who.is_admin {
            true => Box::new(self.book.rows_after(after)),
            false => Box::new(self.book.rows_of(who.uid, after)),
        };
        let is_of = |row: &Row| volume == NO_VOLUME || row.volume == volume;
        let own = all.filter(|(_, row)| is_listed(row) && is_of(row));
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
}
