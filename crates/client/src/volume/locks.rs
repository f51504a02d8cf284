//! Advisory locks, held at the server.
//!
//! What this session holds is remembered here for two reasons: a server that has been restarted
//! must be told, and a wait that is broken off may have been granted at that very moment, in which
//! case the lock must be put back to what it was.
//!
//! *Nothing outlives its owner.* What is let go is forgotten here before the server is told, so it
//! is not taken again after a restart; and the server is told for as long as it takes, whether or
//! not somebody still waits for it. No two requests for one holder are under way at once
//! ([`held::Turn`]), so none of them overtakes another: not taking again what is just being let go,
//! nor letting go what was taken since.

mod held;

use super::Volume;
use crate::cache::NodeId;
use crate::clock::now;
use crate::pause::Pause;
use crate::transport::{Call, CallError, FileResponse, TimeLimit};
use base::{Extent, FsError, LockOwner, Principal, RequestId};
pub(super) use held::HeldLocks;
use held::{Holder, Turn};
use std::pin::Pin;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wire::message::{LockKind, LockMode, LockRange, Refusal, Step, StepReply, Target};

/// How long who breaks off waits for the server to hear of it. A signal must end a program also
/// without a server.
const PUT_BACK_TIME_MAX: Duration = Duration::from_secs(1);

/// First wait before a server is told again that had no room or failed; doubles up to
/// [`RETRY_TIME_MAX`].
const RETRY_TIME_MIN: Duration = Duration::from_millis(100);
/// When it has come to this, a server that fails is not told again.
const RETRY_TIME_MAX: Duration = Duration::from_secs(10);

/// Holders whose locks are taken again at once after a restart of the server.
const RECLAIMED_AT_ONCE: usize = 64;

/// A lock that somebody wants.
struct Wanted {
    who: Principal,
    node: NodeId,
    target: Target,
    lock: LockRange,
}

impl Wanted {
    fn holder(&self) -> Holder {
        Holder::of(self.node, &self.lock)
    }
}

/// Whether the server may do a moment later what it did not do now.
fn is_passing(error: FsError) -> bool {
    matches!(error, FsError::Io | FsError::NoMemory | FsError::TimedOut)
}

/// Whether the server may have carried out a request that ended so.
fn may_have_run(error: CallError) -> bool {
    match error {
        CallError::Refused(refusal) => refusal == Refusal::Cancelled,
        CallError::TimedOut | CallError::Protocol => true,
        CallError::Closed | CallError::Failed(_) | CallError::TooLong => false,
    }
}

impl Volume {
    fn held_locks(&self) -> std::sync::MutexGuard<'_, HeldLocks> {
        self.locks.lock().expect("no panic happens under this lock")
    }

    /// Takes, changes or releases a lock. Waits for it if `wait`, until `broken_off` is ready.
    ///
    /// # Errors
    /// `WouldBlock` without `wait`, `Interrupted` when broken off, `Deadlock`, or the server's. A
    /// lock that is released is released all the same, if need be later.
    pub async fn lock(
        &self,
        who: &Principal,
        node: NodeId,
        lock: LockRange,
        wait: bool,
        broken_off: impl Future<Output = ()>,
    ) -> Result<(), FsError> {
        if lock.mode == LockMode::Unlock {
            return self.unlock(who, node, lock).await;
        }
        let (who, target) = (who.clone(), self.target(node).await?);
        let wanted = Wanted {
            who,
            node,
            target,
            lock,
        };
        tokio::pin!(broken_off);
        let turn = tokio::select! {
            turn = self.lock_turn(wanted.holder()) => turn,
            () = &mut broken_off => return Err(FsError::Interrupted),
            () = sleep(self.transport.request_time_max()), if !wait => {
                return Err(FsError::TimedOut);
            }
        };
        let losses = self.held_locks().losses();
        let step = Step::Lock {
            target: wanted.target.clone(),
            lock,
            wait,
            reclaim: false,
        };
        // Another thread may let go while this one waits.
        let turn = (!wait).then_some(turn);
        let (id, outcome) = self.ask_for(&wanted.who, step, wait, broken_off).await?;
        let error = match outcome.map(|mut response| response.results.pop()) {
            Ok(Some(Ok(_))) => return self.on_locked(wanted, turn, losses).await,
            Ok(Some(Err(error))) => return self.on_not_locked(wanted, turn, error).await,
            Ok(None) => CallError::Protocol,
            Err(error) => error,
        };
        if may_have_run(error) {
            let heard = self.put_back(wanted, turn, id);
            // Else the caller has waited for long enough.
            if error != CallError::TimedOut {
                heard.await;
            }
        }
        Err(match error {
            CallError::Refused(Refusal::Cancelled) => FsError::Interrupted,
            error => error.to_fs_error(),
        })
    }

    /// What the server says of a lock, and the request by which it was asked for last: again as
    /// long as nothing was done, for others to be answered first.
    ///
    /// # Errors
    /// [`FsError::TimedOut`] without `wait`, [`FsError::Interrupted`]: it was not asked any more.
    async fn ask_for(
        &self,
        who: &Principal,
        step: Step,
        wait: bool,
        mut broken_off: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(Option<RequestId>, Result<FileResponse, CallError>), FsError> {
        let call = Call::within(match wait {
            true => TimeLimit::Endless,
            false => TimeLimit::Short,
        });
        let (begun, mut pause) = (now(), Pause::put_off());
        loop {
            let steps = vec![step.clone()];
            let call = call.clone().since(begun);
            let pending = self.transport.submit_steps(who, steps, call);
            let id = pending.id();
            let answer = pending.files();
            tokio::pin!(answer);
            let outcome = tokio::select! {
                outcome = &mut answer => outcome,
                () = &mut broken_off => {
                    if let Some(id) = id {
                        self.transport.cancel(id);
                    }
                    return match answer.await {
                        Err(CallError::Refused(Refusal::Overloaded)) => Err(FsError::Interrupted),
                        outcome => Ok((id, outcome)),
                    };
                }
            };
            if !matches!(outcome, Err(CallError::Refused(Refusal::Overloaded))) {
                return Ok((id, outcome));
            }
            if !wait && now().since(begun) + pause.next() >= self.transport.request_time_max() {
                return Err(FsError::TimedOut);
            }
            tokio::select! {
                () = pause.wait() => {}
                () = &mut broken_off => return Err(FsError::Interrupted),
            }
        }
    }

    /// The server has granted a lock; `losses` are those from before it was asked.
    async fn on_locked(
        &self,
        wanted: Wanted,
        turn: Option<Turn>,
        losses: u64,
    ) -> Result<(), FsError> {
        let (holder, node, extent) = (wanted.holder(), wanted.node, wanted.lock.extent);
        let apply = |held: &mut HeldLocks, lock| {
            held.apply(node, &wanted.who, &wanted.target, lock);
        };
        let (before, is_old) = {
            let mut held = self.held_locks();
            let (before, _) = held.within(holder, extent);
            apply(&mut held, wanted.lock);
            (before, held.losses() != losses)
        };
        drop(turn);
        // Nobody knows which run of the server has granted an old one.
        let stands = match is_old {
            true => self.reclaim_in_time(holder, extent).await,
            false => Ok(()),
        };
        let fresh = match stands {
            Ok(()) => self.refresh_under_lock(node).await,
            Err(error) => Err(error),
        };
        if let Err(error) = fresh {
            {
                let mut held = self.held_locks();
                held.release(holder, extent);
                before.into_iter().for_each(|lock| apply(&mut held, lock));
            }
            self.put_back(wanted, None, None).await;
            return Err(error);
        }
        Ok(())
    }

    /// The server has refused a lock. If it was to be another mode of a whole file's lock, that may
    /// be gone.
    async fn on_not_locked(
        &self,
        wanted: Wanted,
        turn: Option<Turn>,
        error: FsError,
    ) -> Result<(), FsError> {
        let holder = wanted.holder();
        if holder.kind == LockKind::Flock && self.held_locks().holds(holder) {
            self.put_back(wanted, turn, None).await;
        }
        Err(error)
    }

    /// Taking a lock is also asking for what others wrote under it: when it is taken, nothing that
    /// is older is left here or in the kernel.
    async fn refresh_under_lock(&self, node: NodeId) -> Result<(), FsError> {
        let hold = self.transport.leases_hold();
        let epoch = {
            let nodes = self.nodes();
            let known = nodes.get(node).ok_or(FsError::Stale)?;
            if hold && known.is_leased() && known.kernel_data == Some(known.attributes.changed) {
                return Ok(());
            }
            known.epoch
        };
        if let Ok(file) = self.file(node) {
            let freed = file.lock().distrust();
            self.budget().on_freed(file.account, freed);
        }
        self.drop_pages(node).await?;
        if let Some(known) = self.nodes().get_mut(node) {
            let is_true = hold && known.is_leased() && known.epoch == epoch;
            known.kernel_data = is_true.then_some(known.attributes.changed);
        }
        Ok(())
    }

    /// A lock is not wanted after all; whatever the server made of the request for it, it is as it
    /// was before. To be waited for until the server has heard, or for a while.
    fn put_back(
        &self,
        wanted: Wanted,
        turn: Option<Turn>,
        request: Option<RequestId>,
    ) -> impl Future<Output = ()> + use<> {
        let this = self.arc();
        let work = tokio::spawn(async move {
            let holder = wanted.holder();
            let _turn = match turn {
                Some(turn) => turn,
                None => this.lock_turn(holder).await,
            };
            let (before, free) = this.held_locks().within(holder, wanted.lock.extent);
            let unlock = free.into_iter().map(|extent| LockRange {
                mode: LockMode::Unlock,
                extent,
                ..wanted.lock
            });
            for lock in unlock.chain(before) {
                let step = Step::Lock {
                    target: wanted.target.clone(),
                    lock,
                    wait: false,
                    reclaim: lock.mode != LockMode::Unlock,
                };
                match this.tell(&wanted.who, step, request).await {
                    Ok(()) | Err(CallError::Closed) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a broken-off lock could not be put back");
                        this.held_locks().release(holder, lock.extent);
                    }
                }
            }
        });
        async move {
            // It goes on if this is over first.
            let _ = timeout(PUT_BACK_TIME_MAX, work).await;
        }
    }

    /// Carries out a step about locks, however long the server is away: behind a `request`, if it
    /// is still under way there.
    async fn tell(
        &self,
        who: &Principal,
        step: Step,
        request: Option<RequestId>,
    ) -> Result<(), CallError> {
        let mut behind = request.filter(|_| self.transport.lets_wait());
        let mut pause = Pause::new(RETRY_TIME_MIN, RETRY_TIME_MAX);
        loop {
            let after = behind.map(|id| Step::After { requests: vec![id] });
            let steps: Vec<Step> = after.into_iter().chain([step.clone()]).collect();
            let count = steps.len();
            let call = Call::within(TimeLimit::Endless);
            let pending = self.transport.submit_steps(who, steps, call);
            let error = match pending.files().await {
                Ok(mut response) if response.results.len() == count => {
                    match response.results.pop() {
                        Some(Ok(_)) => return Ok(()),
                        Some(Err(error)) => error.into(),
                        None => CallError::Protocol,
                    }
                }
                // The request is not to be waited for: it is not there, or for too long.
                _ if behind.take().is_some() => continue,
                Ok(_) => CallError::Protocol,
                Err(error) => error,
            };
            let is_given_up = match error {
                // That ends at the latest when the session does.
                CallError::Refused(Refusal::Overloaded) => false,
                CallError::Failed(error) => !is_passing(error) || pause.is_longest(),
                _ => true,
            };
            if is_given_up {
                return Err(error);
            }
            pause.wait().await;
        }
    }

    /// Which lock stands in the way of `lock`?
    ///
    /// # Errors
    /// The server's.
    pub async fn test_lock(
        &self,
        who: &Principal,
        node: NodeId,
        lock: LockRange,
    ) -> Result<Option<LockRange>, FsError> {
        let step = Step::TestLock {
            target: self.target(node).await?,
            lock,
        };
        match self.step(who, step).await? {
            (StepReply::Lock(found), _) => Ok(found),
            _ => Err(FsError::Io),
        }
    }

    /// Whether an owner has a lock here, so that closing a descriptor must release it.
    #[must_use]
    pub fn holds_lock(&self, node: NodeId, kind: LockKind, owner: LockOwner) -> bool {
        self.held_locks().holds(Holder { node, kind, owner })
    }

    /// Releases a part of what an owner holds.
    async fn unlock(&self, who: &Principal, node: NodeId, lock: LockRange) -> Result<(), FsError> {
        let drained = self.drain_locked(node).await;
        let released = self.let_go(who, node, lock).await;
        drained.and(released)
    }

    /// Releases everything that an owner holds on a file.
    ///
    /// # Errors
    /// The server's, or `TimedOut`; it is released all the same, if need be later.
    pub async fn release_locks(
        &self,
        who: &Principal,
        node: NodeId,
        kind: LockKind,
        owner: LockOwner,
    ) -> Result<(), FsError> {
        let holder = Holder { node, kind, owner };
        if !self.held_locks().holds(holder) {
            return Ok(());
        }
        // Errors are told elsewhere.
        let _ = self.drain_locked(node).await;
        self.let_go(who, node, holder.nothing()).await
    }

    /// Who gets a lock next finds what was written under it.
    async fn drain_locked(&self, node: NodeId) -> Result<(), FsError> {
        let Ok(file) = self.file(node) else {
            return Ok(());
        };
        self.drained_for_others(node, &file).await
    }

    /// Lets go of a lock, here at once, and at the server when it can be told.
    async fn let_go(
        &self,
        who: &Principal,
        node: NodeId,
        unlock: LockRange,
    ) -> Result<(), FsError> {
        let holder = Holder::of(node, &unlock);
        let held = self.held_locks().get(holder);
        let target = match held {
            Some(held) => held.target,
            None => self.target(node).await?,
        };
        let step = if unlock == holder.nothing() {
            Step::ReleaseLocks {
                target,
                owner: holder.owner,
                kind: holder.kind,
            }
        } else {
            Step::Lock {
                target,
                lock: unlock,
                wait: false,
                reclaim: false,
            }
        };
        let (this, who) = (self.arc(), who.clone());
        let work = tokio::spawn(async move {
            let _turn = this.lock_turn(holder).await;
            // Before the server hears of it: if it is restarted, nobody takes it again.
            this.held_locks().release(holder, unlock.extent);
            let told = this.tell(&who, step, None).await;
            if let Err(error) = told
                && error != CallError::Closed
            {
                tracing::warn!(%error, "a lock could not be released");
            }
            told.map_err(CallError::to_fs_error)
        });
        match timeout(self.transport.request_time_max(), work).await {
            Ok(Ok(told)) => told,
            Ok(Err(_)) => Err(FsError::Io),
            Err(_) => Err(FsError::TimedOut),
        }
    }

    /// The server may have forgotten what we hold. Before it answers anything.
    pub(super) fn on_locks_lost(&self) {
        self.held_locks().on_loss();
    }

    /// The server runs anew: tell it what we hold.
    pub(super) async fn reclaim_locks(&self) {
        let holders = self.held_locks().holders();
        for holders in holders.chunks(RECLAIMED_AT_ONCE) {
            let mut under_way = JoinSet::new();
            for holder in holders.iter().copied() {
                let this = self.arc();
                under_way.spawn(async move { this.reclaim(holder).await });
            }
            under_way.join_all().await;
        }
    }

    /// As [`Self::reclaim`], for somebody who waits for a lock of this extent.
    async fn reclaim_in_time(&self, holder: Holder, extent: Extent) -> Result<(), FsError> {
        let this = self.arc();
        let work = tokio::spawn(async move { this.reclaim(holder).await });
        // It goes on if this is over first.
        let done = timeout(self.transport.request_time_max(), work).await;
        done.map_err(|_| FsError::TimedOut)?
            .map_err(|_| FsError::Io)?;
        let (_, free) = self.held_locks().within(holder, extent);
        if free.is_empty() {
            Ok(())
        } else {
            Err(FsError::Io)
        }
    }

    /// Takes again what one still holds when it is its turn.
    async fn reclaim(&self, holder: Holder) {
        let _turn = self.lock_turn(holder).await;
        let Some(held) = self.held_locks().get(holder) else {
            return;
        };
        for lock in held.ranges {
            let step = Step::Lock {
                target: held.target.clone(),
                lock,
                wait: false,
                reclaim: true,
            };
            if let Err(error) = self.tell(&held.who, step, None).await
                && error != CallError::Closed
            {
                tracing::error!(%error, "a lock was lost when the server restarted");
                self.held_locks().release(holder, lock.extent);
            }
        }
    }
}
