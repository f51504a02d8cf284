//! The thread of a manager: takes its seat, reads the ledger, serves; begins anew if it lost it.

use super::answers::failure;
use super::book::Book;
use super::desk::{Desk, Ended, Question};
use super::errands::{self, Errand, Returned};
use super::ledger::{Ledger, LedgerError};
use super::servers::Servers;
use base::limits::{
    META_CAMPAIGN_INTERVAL, RESERVE_BATCH_MAX, RESERVE_ERRANDS_MAX, RESERVE_TICK_INTERVAL,
};
use meta::{Engine, MetaError, campaign};
use reservation::Moment;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use wire::message::ReserveError;

/// The seat of the manager of a cluster.
pub(crate) const SEAT: &str = "reservations";
/// How long one campaign for the seat of an engine lasts that nobody else uses.
pub(super) const CAMPAIGN_TIME: Duration = Duration::from_secs(1);
/// How long to wait before an engine that failed is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// An engine that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Engine>, MetaError>> + Send>>;
/// Opens the engine of a manager; again, when it has failed.
pub type Open = Box<dyn Fn() -> Opening + Send>;

/// Why a manager does not begin.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The ledger cannot be opened or read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The system has no thread for it.
    #[error("no thread for the manager: {0}")]
    Thread(std::io::Error),
}

/// What the thread has.
pub(crate) struct Reign {
    pub(crate) open: Open,
    pub(crate) servers: Servers,
    pub(crate) holder: String,
    /// How long it tries to have the seat before those who ask are told that it has none.
    pub(crate) campaign_time: Duration,
    pub(crate) questions: Receiver<Question>,
}

impl Reign {
    /// Serves until nobody can ask any more. `told` hears of the first ledger that was read, or why
    /// it could not be.
    pub(crate) fn run(mut self, told: &std::sync::mpsc::Sender<Result<(), ManagerError>>) {
        // Beside this thread one that keeps the seat: reading a large ledger takes longer than a
        // seat is trusted.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("manager-seat")
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = told.send(Err(ManagerError::Thread(error)));
                return;
            }
        };
        let (errands, errands_in) = sync_channel(RESERVE_ERRANDS_MAX);
        let (back, mut returned) = channel(RESERVE_ERRANDS_MAX);
        let servers = self.servers.clone();
        let errands_thread = std::thread::Builder::new()
            .name("manager-errands".to_owned())
            .spawn(move || errands::run(&servers, &errands_in, &back));
        let errands_thread = match errands_thread {
            Ok(thread) => thread,
            Err(error) => {
                let _ = told.send(Err(ManagerError::Thread(error)));
                return;
            }
        };
        runtime.block_on(self.reigns(told, errands, &mut returned));
        // What is under way at a store is waited for; what it came to shows at the next start.
        drop(returned);
        if errands_thread.join().is_err() {
            tracing::error!("the errands of the manager ended by a panic");
        }
    }

    async fn reigns(
        &mut self,
        told: &std::sync::mpsc::Sender<Result<(), ManagerError>>,
        errands: std::sync::mpsc::SyncSender<Errand>,
        returned: &mut Receiver<Returned>,
    ) {
        let mut is_first = true;
        for reign in 0.. {
            match self.begin((reign, errands.clone())).await {
                Ok(desk) => {
                    let _ = told.send(Ok(()));
                    is_first = false;
                    match self.serve(desk, returned).await {
                        None => return,
                        Some(Ended(error)) => tracing::warn!(%error, "not the manager any more"),
                    }
                }
                Err(LedgerError::Engine(MetaError::Held { holder, .. })) => {
                    let _ = told.send(Ok(()));
                    is_first = false;
                    tracing::debug!(holder, "somebody else is the manager");
                }
                Err(error) if is_first => {
                    let _ = told.send(Err(error.into()));
                    return;
                }
                Err(error) => tracing::error!(%error, "the manager cannot begin"),
            }
            // What was under way belongs to the reign that is over.
            while let Ok(Some(_)) = timeout(META_CAMPAIGN_INTERVAL, returned.recv()).await {}
            if !self.decline(Instant::now() + PAUSE).await {
                return;
            }
        }
    }

    /// Takes the seat and reads the ledger.
    async fn begin(
        &self,
        errands: (u64, std::sync::mpsc::SyncSender<Errand>),
    ) -> Result<Desk, LedgerError> {
        let engine = (self.open)().await?;
        let seat = campaign(&*engine, SEAT, &self.holder, self.campaign_time).await?;
        let ledger = Ledger::new(engine, seat);
        let now = Moment::at_or_before(self.servers.now());
        let devices = self.servers.devices();
        let mut book = ledger
            .read(|limits| {
                let mut book = Book::new(now, limits);
                book.set_devices(devices);
                book
            })
            .await?;
        book.advance(now);
        Ok(Desk::new(book, ledger, self.servers.clone(), errands))
    }

    /// Serves until the seat is lost, or (none) nobody can ask any more.
    async fn serve(&mut self, mut desk: Desk, returned: &mut Receiver<Returned>) -> Option<Ended> {
        let mut tick = interval(RESERVE_TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = desk.deposed() => {
                    let why = "its seat was not renewed in time, or another has it".to_owned();
                    return Some(Ended(MetaError::Unavailable(why)));
                }
                // Before questions, of which there may always be another one.
                _ = tick.tick() => {
                    desk.look_at_the_clock();
                    desk.tick();
                }
                back = returned.recv() => {
                    desk.look_at_the_clock();
                    desk.returned(back?);
                }
                question = self.questions.recv() => {
                    let Some(question) = question else {
                        desk.resign().await;
                        return None;
                    };
                    desk.look_at_the_clock();
                    desk.ask(question);
                }
            }
            for _ in 1..RESERVE_BATCH_MAX {
                if !desk.has_room() {
                    break;
                }
                if let Ok(back) = returned.try_recv() {
                    desk.returned(back);
                } else if let Ok(question) = self.questions.try_recv() {
                    desk.ask(question);
                } else {
                    break;
                }
            }
            if let Err(ended) = desk.finish().await {
                return Some(ended);
            }
        }
    }

    /// Answers everybody that there is no manager here, until a time; says whether anybody can
    /// still ask.
    async fn decline(&mut self, until: Instant) -> bool {
        loop {
            tokio::select! {
                () = sleep_until(until) => return true,
                question = self.questions.recv() => {
                    let Some(question) = question else {
                        return false;
                    };
                    let why = "this server is not the manager at the moment";
                    let _ = question.reply.send(failure(ReserveError::Unavailable, why));
                }
            }
        }
    }
}
