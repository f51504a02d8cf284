//! What becomes of a question when its errand is back.

use super::super::answers::{failure, later, rejected};
use super::super::ask::Wish;
use super::super::book::{Rejected, failed};
use super::super::errands::{Errand, Outcome, Progress, Returned, Task};
use super::super::plan::{Ask, Instead, Lack, Short};
use super::super::record::{Row, RowState};
use super::super::report::{report, summary};
use super::super::servers::Trouble;
use super::{Desk, NOBODY, Step, Stepped};
use base::TicketId;
use base::limits::RESERVE_TRIES_MAX;
use reservation::Moment;
use wire::message::{ReserveError, ReserveReply};

impl Desk {
    /// Takes back what an errand has come to.
    pub(crate) fn returned(&mut self, returned: Returned) {
        let Returned { errand, outcome } = returned;
        let Errand {
            task,
            id,
            row,
            reply,
            now: sent,
            reign,
            progress,
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
            Ok(outcome) => self.came_back(task, (id, row, sent), outcome),
            Err(trouble) => self.came_to_trouble(task, (id, row), trouble, progress),
        };
        match reply {
            Some(reply) => self.go_on(stepped, reply),
            // Nobody waits: what has changed has changed.
            None => self.tell(id, stepped),
        }
    }

    /// Says once that something about a reservation has to wait, and once that it is done.
    fn tell(&mut self, id: TicketId, stepped: Stepped) {
        let why = match stepped {
            Err(Rejected::Failed(_, why)) => Some(why),
            Ok(Step::Answer(answer)) => match *answer {
                ReserveReply::Later { message } => Some(message),
                _ => None,
            },
            Ok(Step::Errand(_)) | Err(Rejected::Short { .. }) => return,
        };
        match why {
            Some(why) if self.told.insert(id) => {
                tracing::warn!(%id, why, "a reservation is not cleared away yet");
            }
            Some(why) => {
                tracing::debug!(%id, why, "a reservation is still not cleared away");
            }
            None if self.told.remove(&id) => {
                tracing::info!(%id, "a reservation is cleared away that had to wait");
            }
            None => {}
        }
    }

    fn came_back(
        &mut self,
        task: Task,
        (id, row, sent): (TicketId, Option<Row>, Moment),
        outcome: Outcome,
    ) -> Stepped {
        let done = Ok(Step::answer(ReserveReply::Done));
        match (task, outcome) {
            (_, Outcome::Devices(devices)) => {
                self.is_looking = false;
                self.looked(devices);
                done
            }
            (Task::Try { .. }, _) => {
                let row = row.expect("it was tried out with its row");
                Ok(Step::answer(self.possible(NOBODY, &row)))
            }
            (Task::Offers { short, .. }, Outcome::Offers(offers)) => {
                Err(Rejected::Short { short, offers })
            }
            (Task::Confirm { .. }, _) => {
                self.changes.extend(self.book.confirm(id));
                Ok(Step::answer(self.shown(id, true)))
            }
            (Task::Extend { end }, _) => {
                let change = self.book.extend(id, end)?;
                self.changes.push(change);
                Ok(Step::answer(self.shown(id, true)))
            }
            (Task::Revoke, _) => self.revoked(id, row.as_ref(), sent),
            (Task::CheckUnused { dry_run }, Outcome::Used(used)) => match (used, dry_run) {
                (0, true) => done,
                (0, false) => Ok(self.leave(id, false)),
                (used, _) => {
                    let why = format!("{used} allocation units of its space are in use");
                    Err(failed(ReserveError::InUse, why))
                }
            },
            (Task::Leave { has_tickets, .. }, outcome) => self.left(id, has_tickets, &outcome),
            (Task::Collect, Outcome::Delivered(delivered)) => {
                let is_the_window = self.is_the_window(id, row.as_ref());
                self.forget_account(id);
                if is_the_window {
                    self.changes.extend(self.book.deliver(id, delivered));
                }
                done
            }
            (_, Outcome::Report(delivered, record)) => {
                let row = row.expect("a report is about a row");
                let summary = summary(id, &row, self.book.now());
                Ok(Step::answer(ReserveReply::Report(report(
                    summary, delivered, record,
                ))))
            }
            (_, _) => done,
        }
    }

    /// Its tickets are believed no more that could have been issued when they were taken back, and
    /// those of the window after.
    fn revoked(&mut self, id: TicketId, asked: Option<&Row>, sent: Moment) -> Stepped {
        let now = self.book.now();
        let row = self.book.row(id);
        let is_another = row.zip(asked).is_some_and(|(row, asked)| {
            // It was made longer meanwhile, and so were its tickets; or it waited for so long that
            // there are tickets of later windows.
            row.end() != asked.end() || row.present(now) > asked.present(sent) + 1
        });
        if is_another {
            let row = row.cloned();
            return Ok(Step::send(id, row, Task::Revoke));
        }
        let change = self.book.release(id)?;
        self.changes.push(change);
        Ok(Step::answer(self.shown(id, false)))
    }

    /// Everything was given back, or something had been written before its tickets were.
    fn left(&mut self, id: TicketId, has_tickets: bool, outcome: &Outcome) -> Stepped {
        self.again.forget(id);
        let row = self.book.row(id);
        if !row.is_some_and(|row| row.state.is_unfinished()) {
            // What is held is nobody's to strike, and what is gone stays for as long as it has to.
            return Ok(Step::answer(ReserveReply::Done));
        }
        if let Outcome::Used(used) = outcome {
            self.changes.extend(self.book.keep_written(id));
            let why = format!(
                "{used} allocation units of its space have come into use; its rate was given \
                 back, and what was written stays: --discard throws it away"
            );
            return Err(failed(ReserveError::InUse, why));
        }
        let change = match has_tickets {
            true => self.book.gone(id),
            false => self.book.remove(id),
        };
        self.changes.extend(change);
        Ok(Step::answer(ReserveReply::Done))
    }

    fn came_to_trouble(
        &mut self,
        task: Task,
        (id, row): (TicketId, Option<Row>),
        trouble: Trouble,
        progress: Progress,
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
                    self.free_untold(id);
                    self.put_off(id, progress);
                    return Err(rejected(*trouble));
                }
                self.changes.extend(self.book.remove(id));
                let row = row.as_ref();
                self.elsewhere((wish, without), row, trouble, |desk, wish, without| {
                    desk.admit(id, wish, without)
                })
            }
            Task::Leave { .. } => {
                self.book.free(id, &progress.revoked);
                self.free_untold(id);
                self.put_off(id, progress);
                Ok(Step::answer(later(trouble)))
            }
            Task::Collect => {
                if self.is_the_window(id, row.as_ref()) {
                    let told = progress.told.clone();
                    self.changes.extend(self.book.note_told(id, told));
                    self.put_off(id, progress);
                } else {
                    self.forget_account(id);
                }
                Err(rejected(trouble))
            }
            // It follows there: nothing goes if something turns out to be used.
            Task::CheckUnused { dry_run } if trouble.is_away() => match dry_run {
                true => Ok(Step::answer(later(trouble))),
                false => Ok(self.leave(id, false)),
            },
            Task::Revoke => Err(match rejected(trouble) {
                Rejected::Failed(ReserveError::Away, why) => {
                    let why = format!(
                        "{why}: its rate is given back by another release once it is there; the \
                         other servers believe its tickets no more"
                    );
                    failed(ReserveError::Away, why)
                }
                other => other,
            }),
            _ => Err(rejected(trouble)),
        }
    }

    /// Of what nobody was told there are no tickets: its rate is free at once, and so is its name,
    /// as who asks again means the same.
    fn free_untold(&mut self, id: TicketId) {
        let is_untold = |row: &&Row| row.state == RowState::Pending;
        let Some(row) = self.book.row(id).filter(is_untold) else {
            return;
        };
        let servers = row.servers().into_iter().collect();
        let is_named = !row.name.is_empty();
        self.book.free(id, &servers);
        if is_named {
            self.changes.extend(self.book.unname(id));
        }
    }

    /// An account is over. If its reservation is being given back meanwhile, that is not.
    fn forget_account(&mut self, id: TicketId) {
        let row = self.book.row(id);
        if !row.is_some_and(|row| row.state.is_unfinished()) {
            self.again.forget(id);
        }
    }

    /// Whether what was accounted for is still the window that is to be accounted for.
    fn is_the_window(&self, id: TicketId, asked: Option<&Row>) -> bool {
        let windows = |row: &Row| row.delivered.windows;
        let row = self.book.row(id).filter(|row| row.is_held());
        row.is_some() && row.map(windows) == asked.map(windows)
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
                among: None,
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
