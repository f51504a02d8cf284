//! A repository that several servers have.
//!
//! The quickest is asked; if it has not answered within the time in which it usually does, a second
//! one is asked as well, and the first good answer is taken. An error leads to the next mirror at
//! once. That one mirror has no such file says little while another has it, since copies are made
//! one after the other: only if all say so there is none.
//!
//! Whether an answer is right is seen later, by whoever knows the digest. He says so
//! ([`Source::doubt`]), and who has given it is not asked for a while. Which mirror to ask is
//! decided in `health.rs`.

use super::health::{MirrorCounts, Standing};
use super::{Part, Reading, Refusal, Source, SourceError, Wanted};
use crate::name::FileName;
use base::Time;
use base::limits::DISK_MIRRORS_MAX;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Answers of which it is known who has given them, until somebody doubts them: more than are under
/// way at once.
const ANSWERS_MAX: usize = 1024;

/// Several sources of the same files. Clones share what they know.
#[derive(Clone, Debug)]
pub struct Mirrors {
    shared: Arc<Shared>,
    runtime: Handle,
}

#[derive(Debug)]
struct Shared {
    mirrors: Vec<Arc<dyn Source>>,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    standing: Standing,
    /// Who has given which file; the oldest first.
    answers: VecDeque<(FileName, usize)>,
}

/// A number of mirrors with which there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} mirrors; 1 to {DISK_MIRRORS_MAX} can be used")]
pub struct BadMirrors(pub usize);

/// What became of one request to one mirror.
struct Outcome {
    mirror: usize,
    took: Duration,
    answer: Result<Bytes, SourceError>,
}

impl Mirrors {
    /// Of these sources. Requests are tasks of `runtime`.
    ///
    /// # Errors
    /// [`BadMirrors`] if there are none or too many.
    pub fn new(mirrors: Vec<Arc<dyn Source>>, runtime: Handle) -> Result<Self, BadMirrors> {
        if mirrors.is_empty() || mirrors.len() > DISK_MIRRORS_MAX {
            return Err(BadMirrors(mirrors.len()));
        }
        let state = State {
            standing: Standing::new(mirrors.len()),
            answers: VecDeque::new(),
        };
        let shared = Arc::new(Shared {
            mirrors,
            begun: Instant::now(),
            state: Mutex::new(state),
        });
        Ok(Self { shared, runtime })
    }

    /// Where each is, and how it has answered.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, MirrorCounts)> {
        let places = self.shared.mirrors.iter().map(|mirror| mirror.place());
        places.zip(self.shared.state().standing.counts()).collect()
    }

    /// Requests for which a second mirror was asked, because the first took long.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.shared.state().standing.seconds()
    }
}

impl Shared {
    fn now(&self) -> Time {
        let nanos = self.begun.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> String {
        let places: Vec<_> = self.mirrors.iter().map(|mirror| mirror.place()).collect();
        places.join(", ")
    }

    async fn read(&self, file: &FileName, wanted: Wanted) -> Result<Bytes, SourceError> {
        let wants_middle = matches!(wanted.part, Part::Extent(extent) if extent.offset > 0);
        let is_apt = |at: usize| !wants_middle || self.mirrors[at].gives_parts();
        let order = self.state().standing.order(self.now(), is_apt);
        let mut order = order.into_iter().peekable();
        let mut running = JoinSet::new();
        // Who is asked, and since when.
        let mut asked: Vec<(usize, Instant)> = Vec::new();
        let mut refused: Option<SourceError> = None;
        loop {
            if asked.is_empty() {
                let Some(mirror) = order.next() else {
                    return Err(refused.unwrap_or_else(|| self.over(file)));
                };
                self.ask(&mut running, &mut asked, mirror, file, wanted);
            }
            let patience = self.state().standing.patience();
            let patience = patience.filter(|_| asked.len() == 1 && order.peek().is_some());
            let joined = match patience {
                None => running.join_next().await,
                Some(patience) => match tokio::time::timeout(patience, running.join_next()).await {
                    Ok(joined) => joined,
                    Err(_) => {
                        self.state().standing.on_second();
                        let second = order.next().expect("it was looked at");
                        self.ask(&mut running, &mut asked, second, file, wanted);
                        continue;
                    }
                },
            };
            let Some(Ok(outcome)) = joined else {
                return Err(self.over(file));
            };
            asked.retain(|&(mirror, _)| mirror != outcome.mirror);
            match self.judge(file, outcome, &asked) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => refused = Some(worse(refused, error)),
            }
        }
    }

    fn ask(
        &self,
        running: &mut JoinSet<Outcome>,
        asked: &mut Vec<(usize, Instant)>,
        mirror: usize,
        file: &FileName,
        wanted: Wanted,
    ) {
        let (source, file) = (Arc::clone(&self.mirrors[mirror]), file.clone());
        let begun = Instant::now();
        asked.push((mirror, begun));
        running.spawn(async move {
            let answer = source.read(&file, wanted).await;
            let took = begun.elapsed();
            Outcome {
                mirror,
                took,
                answer,
            }
        });
    }

    /// Notes an answer. `others` have been asked as well, and have not answered.
    fn judge(
        &self,
        file: &FileName,
        outcome: Outcome,
        others: &[(usize, Instant)],
    ) -> Result<Bytes, SourceError> {
        let mut state = self.state();
        let mirror = outcome.mirror;
        match &outcome.answer {
            Ok(_) => {
                state.standing.on_answer(mirror, outcome.took);
                for (other, since) in others {
                    state.standing.on_slower(*other, since.elapsed());
                }
                if state.answers.len() == ANSWERS_MAX {
                    state.answers.pop_front();
                }
                state.answers.push_back((file.clone(), mirror));
            }
            // It has answered, and may be right.
            Err(error) if error.refusal.is_not_found() => {}
            Err(_) => state.standing.on_failure(self.now(), mirror),
        }
        outcome.answer
    }

    fn over(&self, file: &FileName) -> SourceError {
        SourceError {
            file: file.clone(),
            place: self.place(),
            refusal: Refusal::Failed("the program is about to end".into()),
        }
    }
}

/// Of two errors the one to tell: that there is no such file only if all say so.
fn worse(before: Option<SourceError>, error: SourceError) -> SourceError {
    match before {
        Some(before) if !before.refusal.is_not_found() => before,
        _ => error,
    }
}

impl Source for Mirrors {
    fn read<'a>(&'a self, file: &'a FileName, wanted: Wanted) -> Reading<'a> {
        Box::pin(self.shared.read(file, wanted))
    }

    fn read_now(&self, file: &FileName, part: Part) -> Result<Bytes, SourceError> {
        let (shared, name) = (Arc::clone(&self.shared), file.clone());
        let wanted = Wanted {
            part,
            past_caches: false,
        };
        let (sender, receiver) = mpsc::channel();
        // Whoever has gone does not want to know.
        self.runtime
            .spawn(async move { drop(sender.send(shared.read(&name, wanted).await)) });
        // Each mirror answers in bounded time, unless the runtime ends before.
        receiver
            .recv()
            .unwrap_or_else(|_| Err(self.shared.over(file)))
    }

    fn gives_parts(&self) -> bool {
        self.shared
            .mirrors
            .iter()
            .any(|mirror| mirror.gives_parts())
    }

    fn doubt(&self, file: &FileName) {
        let mut state = self.shared.state();
        let last = state.answers.iter().rposition(|(name, _)| name == file);
        let Some((_, mirror)) = last.and_then(|at| state.answers.remove(at)) else {
            return;
        };
        state.standing.on_wrong(self.shared.now(), mirror);
        drop(state);
        let place = self.shared.mirrors[mirror].place();
        tracing::warn!(%file, %place, "not what it should be; other mirrors are asked");
        self.shared.mirrors[mirror].doubt(file);
    }

    fn place(&self) -> String {
        self.shared.place()
    }
}
