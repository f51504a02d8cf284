//! Fetching ahead of what is read: along profiles, around what no profile leads to, along what is
//! read from front to back, and, if that is wanted, all the rest.
//!
//! ```text
//! a read        asks for its own chunks first; then as much is asked for ahead as there is room
//!               for; then it waits
//! a landing     makes room, into which the next request goes
//!
//! plan          a profile that is followed          1st
//! around        the surroundings of a surprise      2nd
//! streams       reads from front to back            3rd, of the crate readahead
//! near          what follows where many waited      4th
//! rest          everything                          last
//! ```
//!
//! **Demand before prediction.** Whoever waits has asked before anything else is, and half of the
//! requests that a server is asked at once are never taken by anybody who does not wait. While
//! somebody waits for something that nobody foresaw, no more than a quarter of the window is
//! filled, so that it does not queue behind what can wait.
//!
//! **Profiles before guesses.** From reads of what is in a profile that is followed nothing else is
//! guessed: what comes next is known, and a guess of 4 KiB is a whole chunk. A reader who goes
//! through the whole image passes them all the same.
//!
//! **The window** is that of a mount's reads ([`readahead::LinkEstimator`]): what the line has
//! shown to carry. It counts bytes as they are transferred. Reads from front to back are found by
//! the same crate, which counts bytes of the image: they are taken for as many as others came as a
//! moment ago (`ahead/shrink.rs`).
//!
//! **Bounds.** Requests and bytes that nobody waits for, and tasks that have not yet kept what
//! came. Without a cache, what was fetched and is not read yet is in memory: then no more than half
//! of that is fetched ahead.
//!
//! Source: paper section 2 (blocks are foreseen from a history of use, and fetched before they are
//! needed) and 5 (for programs in general).

mod around;
mod near;
mod plan;
mod rest;
mod shrink;
#[cfg(test)]
mod tests;

pub use plan::Plan;

use crate::chunk::{ChunkSpec, Zeros};
use crate::fetch::{Claim, Fetcher, Landed, Run};
use crate::index::Index;
use crate::name::FileName;
use crate::observe::Observer;
use crate::source::Source;
use around::Around;
use base::limits::{
    DISK_AHEAD_BYTES_MAX, DISK_AHEAD_CHUNKS_MAX, DISK_AHEAD_REQUESTS_MAX,
    DISK_PACK_WHOLE_BYTES_MAX, DISK_REST_REQUESTS_MAX,
};
use base::{Extent, Time};
use near::Near;
use plan::Wants;
use readahead::{FileStreams, Line, LinkEstimator, Sent};
use rest::Rest;
use shrink::Shrink;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tasks at once, those included whose chunks are being kept.
const TASKS_MAX: usize = 4 * DISK_AHEAD_REQUESTS_MAX;
/// Chunks that are looked at for one request when everything is fetched: what is in the cache is
/// passed over, which takes some microseconds each under the lock.
const REST_LOOKS_MAX: usize = 4096;

/// What an image is fetched ahead by.
#[derive(Clone, Debug, Default)]
pub struct Foresight {
    /// Its profiles.
    pub plans: Vec<Plan>,
    /// The names of those that are followed at once; others are when they are recognised.
    pub follow: Vec<String>,
    /// Whether reads from front to back are followed as well.
    pub sequential: bool,
    /// Whether the line is filled with what follows where somebody waits, after many waits for what
    /// nobody foresaw; not without a cache.
    pub near: bool,
    /// Whether everything else is fetched meanwhile, into half of the cache at most; not without a
    /// cache.
    pub rest: bool,
    /// How long a round trip to the source takes at most, if that is known.
    pub rtt: Option<Duration>,
}

/// What fetching ahead has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AheadCounts {
    /// Requests that nobody waited for.
    pub requests: u64,
    /// Bytes that came by these.
    pub bytes: u64,
    /// Chunks that were asked for ahead.
    pub chunks: u64,
    /// Those of them that have been read.
    pub used_chunks: u64,
    /// Chunks that did not come as they should have.
    pub failed_chunks: u64,
    /// Profiles that are followed.
    pub followed: u64,
}

/// Fetches ahead for one image.
#[derive(Debug)]
pub(crate) struct Ahead {
    index: Arc<Index>,
    zeros: Zeros,
    source: Arc<dyn Source>,
    fetcher: Fetcher,
    observer: Arc<Observer>,
    /// Where the chunks of plans are in the image.
    numbers: HashMap<ChunkSpec, usize>,
    begun: Instant,
    /// What may be fetched ahead and not be read yet, in bytes of the image.
    unread_bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    link: LinkEstimator,
    plans: Vec<Plan>,
    around: Around,
    streams: Option<FileStreams>,
    near: Option<Near>,
    rest: Option<Rest>,
    /// Chunks that reads from front to back will need next.
    coming: Range<usize>,
    /// Where the last read ended from which something was guessed.
    guessed_to: u64,
    unread: HashSet<ChunkSpec>,
    unread_bytes: u64,
    /// Chunks that are on their way because they were foreseen, read or not.
    flying: HashSet<ChunkSpec>,
    shrink: Shrink,
    /// Reads that wait for what nobody foresaw.
    surprised: usize,
    in_flight: usize,
    tasks: usize,
    /// The program ends, and nothing is asked for any more.
    is_over: bool,
    counts: AheadCounts,
}

/// What a read was, until it is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// Somebody waits for what nobody foresaw.
    is_surprise: bool,
    /// What comes next was guessed from it: it is in no profile that is followed, or goes on where
    /// one ended that is in none.
    is_guessed_from: bool,
}

/// One request.
enum Request {
    /// With its place, if it was found by reads from front to back.
    Chunk(Claim, Option<Extent>),
    /// With its number, if nothing says that it will be read.
    Guess(Claim, usize),
    Run(Run),
}

impl Request {
    fn specs(&self) -> Vec<ChunkSpec> {
        match self {
            Self::Chunk(claim, _) | Self::Guess(claim, _) => vec![claim.spec()],
            Self::Run(run) => run.chunks.iter().map(|(claim, _)| claim.spec()).collect(),
        }
    }
}

impl Ahead {
    pub(crate) fn new(
        index: &Arc<Index>,
        zeros: &Zeros,
        source: &Arc<dyn Source>,
        fetcher: &Fetcher,
        observer: &Arc<Observer>,
        foresight: Foresight,
    ) -> Arc<Self> {
        let mut plans = foresight.plans;
        Plan::distinguish(&mut plans);
        for plan in &mut plans {
            if foresight.follow.iter().any(|name| name == plan.name()) {
                plan.follow();
            }
        }
        let mut link = LinkEstimator::new(DISK_AHEAD_BYTES_MAX);
        if let Some(rtt) = foresight.rtt {
            link.expect_rtt(rtt);
        }
        let in_memory = fetcher.memory_bytes_max() / 2;
        let near = fetcher.cache().filter(|_| foresight.near);
        let rest = fetcher.cache().filter(|_| foresight.rest);
        let ahead = Arc::new(Self {
            index: Arc::clone(index),
            zeros: zeros.clone(),
            source: Arc::clone(source),
            fetcher: fetcher.clone(),
            observer: Arc::clone(observer),
            numbers: numbers_of(index, &plans),
            begun: Instant::now(),
            unread_bytes_max: fetcher.cache().map_or(in_memory, |_| u64::MAX),
            state: Mutex::new(State {
                link,
                plans,
                around: Around::default(),
                streams: foresight.sequential.then(FileStreams::new),
                near: near.map(|cache| Near::new(index.chunk_count(), cache.bytes_max() / 2)),
                rest: rest.map(|cache| Rest::new(index.chunk_count(), cache.bytes_max() / 2)),
                coming: 0..0,
                guessed_to: u64::MAX,
                unread: HashSet::new(),
                unread_bytes: 0,
                flying: HashSet::new(),
                shrink: Shrink::default(),
                surprised: 0,
                in_flight: 0,
                tasks: 0,
                is_over: false,
                counts: AheadCounts::default(),
            }),
        });
        ahead.pump(ahead.state());
        ahead
    }

    /// Something is read, and has been asked for; `must_wait` says that it is not here. What is
    /// said is to be handed back when the read is over.
    pub(crate) fn on_read(
        self: &Arc<Self>,
        extent: Extent,
        numbers: &[usize],
        must_wait: bool,
    ) -> Noted {
        let now = self.now();
        let mut state = self.state();
        let specs: Vec<_> = numbers.iter().map(|&at| self.index.spec(at)).collect();
        let mut foreseen = 0;
        for spec in &specs {
            foreseen += usize::from(state.on_chunk_read(spec));
        }
        let is_planned = specs.iter().all(|spec| state.plans_foresee(spec));
        if must_wait && !is_planned {
            state.around.on_surprise(&self.index, extent);
        }
        let behind = numbers.last().map_or(0, |last| last + 1);
        if let Some(rest) = state.rest.as_mut().filter(|_| must_wait) {
            rest.go_on_from(behind);
        }
        let noted = Noted {
            is_surprise: must_wait && foreseen < specs.len(),
            is_guessed_from: !is_planned || state.guessed_to == extent.offset,
        };
        if noted.is_guessed_from {
            state.guessed_to = extent.end();
        }
        if let Some(streams) = state.streams.as_mut().filter(|_| noted.is_guessed_from) {
            streams.on_read(now, extent, self.index.image_bytes());
            for &number in numbers {
                streams.on_demanded(self.index.chunk(number).extent);
            }
            // What is on its way comes, and what came is kept as long as there is room.
            while streams.poll_cancel(now).is_some() {}
        }
        if noted.is_surprise && state.surprised == 0 && !state.is_led() {
            let window_bytes = state.link.window_bytes();
            if let Some(near) = &mut state.near {
                near.on_wait(behind, window_bytes);
            }
        }
        state.surprised += usize::from(noted.is_surprise);
        self.pump(state);
        noted
    }

    /// The read is over.
    pub(crate) fn on_answered(self: &Arc<Self>, extent: Extent, noted: Noted) {
        let now = self.now();
        let mut state = self.state();
        if let Some(streams) = state.streams.as_mut().filter(|_| noted.is_guessed_from) {
            streams.on_used(now, extent);
        }
        state.surprised -= usize::from(noted.is_surprise);
        self.pump(state);
    }

    /// Follows a profile from now on. False if there is none of this name.
    pub(crate) fn follow(self: &Arc<Self>, name: &str) -> bool {
        let mut state = self.state();
        let found = state.plans.iter_mut().find(|plan| plan.name() == name);
        let is_known = found.map(Plan::follow).is_some();
        self.pump(state);
        is_known
    }

    pub(crate) fn counts(&self) -> AheadCounts {
        let state = self.state();
        let followed = state.plans.iter().filter(|plan| plan.is_followed());
        AheadCounts {
            followed: followed.count() as u64,
            ..state.counts
        }
    }

    fn now(&self) -> Time {
        let nanos = self.begun.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for as much as there is room for. Nothing is given to the runtime under the lock: what
    /// it does not take any more it drops at once, and that wants the lock.
    fn pump(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut requests = Vec::new();
        while !state.is_over
            && state.tasks < TASKS_MAX
            && state.unread_bytes < self.unread_bytes_max
            && state.unread.len() < DISK_AHEAD_CHUNKS_MAX
        {
            let Some(request) = self.next(&mut state) else {
                break;
            };
            let sent = self.note(&mut state, &request);
            requests.push((sent, request));
        }
        drop(state);
        for (sent, request) in requests {
            self.send(sent, request);
        }
    }

    /// The next request, if there is room for one.
    fn next(&self, state: &mut State) -> Option<Request> {
        let room = state.room_bytes();
        if room > 0
            && state.in_flight < DISK_AHEAD_REQUESTS_MAX
            && let Some(request) = self.next_foreseen(state, room)
        {
            return Some(request);
        }
        self.next_of_rest(state)
    }

    /// Along a profile, else around what surprised, else from front to back.
    fn next_foreseen(&self, state: &mut State, room: u64) -> Option<Request> {
        let claim = |spec: &ChunkSpec| self.fetcher.claim(spec);
        let extent_bytes = state.link.extent_bytes();
        for plan in state.plans.iter_mut().filter(|plan| plan.is_followed()) {
            let (piece_bytes, gap_bytes) = if self.source.gives_parts() {
                (plan.piece_bytes(extent_bytes), None)
            } else if plan.left_bytes() <= DISK_PACK_WHOLE_BYTES_MAX {
                // Whatever part is asked for, everything before it comes as well: once is enough.
                (u64::MAX, Some(u64::MAX))
            } else {
                plan.on_pack_failed();
                (0, None)
            };
            match plan.next(piece_bytes, gap_bytes, &claim) {
                Some(Wants::Chunk(claim)) => return Some(Request::Chunk(claim, None)),
                Some(Wants::Run(run)) => return Some(Request::Run(run)),
                None => {}
            }
        }
        let around = state.around.next(&self.index, &self.zeros, &claim);
        if let Some((claim, number)) = around {
            return Some(Request::Guess(claim, number));
        }
        self.next_in_order(state, room)
            .or_else(|| self.next_near(state))
    }

    /// Of what follows where somebody waited.
    fn next_near(&self, state: &mut State) -> Option<Request> {
        let is_led = state.is_led();
        let near = state.near.as_mut().filter(|_| !is_led)?;
        let shrink = state.shrink;
        self.next_of(near.chunks()?, shrink)
    }

    /// Of all the rest. What is foreseen goes before it, also while that has no room.
    fn next_of_rest(&self, state: &mut State) -> Option<Request> {
        let bdp_bytes = state.link.line().bdp_bytes();
        let in_flight_bytes = state.link.in_flight_bytes();
        let is_busy = state.plans.iter().any(Plan::is_busy);
        let is_free = state.in_flight < DISK_REST_REQUESTS_MAX
            && in_flight_bytes < state.link.window_bytes()
            && !is_busy;
        let rest = state.rest.as_mut().filter(|_| is_free)?;
        if !rest.has_room(self.now(), bdp_bytes, in_flight_bytes) {
            return None;
        }
        self.next_of(rest, state.shrink)
    }

    /// The next chunk of those that is neither here nor on its way.
    fn next_of(&self, chunks: &mut Rest, shrink: Shrink) -> Option<Request> {
        for _ in 0..REST_LOOKS_MAX {
            let number = chunks.next()?;
            let spec = self.index.spec(number);
            if !self.zeros.has(&spec)
                && let Some(claim) = self.fetcher.claim(&spec)
            {
                chunks.on_taken(shrink.packed(spec.len_bytes.into()));
                return Some(Request::Guess(claim, number));
            }
        }
        None
    }

    fn next_in_order(&self, state: &mut State, room: u64) -> Option<Request> {
        let now = self.now();
        loop {
            for number in state.coming.by_ref() {
                let (spec, extent) = (self.index.spec(number), self.index.chunk(number).extent);
                if !self.zeros.has(&spec)
                    && let Some(claim) = self.fetcher.claim(&spec)
                {
                    return Some(Request::Chunk(claim, Some(extent)));
                }
                if let Some(streams) = &mut state.streams {
                    streams.on_fetched(now, extent);
                }
            }
            let line = scaled(&state.link.line(), &state.shrink);
            let room = state.shrink.unpacked(room);
            let fetch = state.streams.as_mut()?.poll_fetch(now, &line, room)?;
            state.coming = self.index.chunks_of(fetch.extent);
        }
    }

    /// A request is about to be sent.
    fn note(&self, state: &mut State, request: &Request) -> Sent {
        let bytes = match request {
            Request::Chunk(claim, _) | Request::Guess(claim, _) => {
                state.shrink.packed(claim.spec().len_bytes.into())
            }
            Request::Run(run) => run.extent().len,
        };
        for spec in request.specs() {
            state.counts.chunks += 1;
            state.flying.insert(spec);
            if state.unread.insert(spec) {
                state.unread_bytes += u64::from(spec.len_bytes);
            }
            self.observer.on_inflated(self.numbers.get(&spec).copied());
        }
        match request {
            Request::Chunk(_, Some(extent)) => {
                self.observer.on_inflated(self.index.chunks_of(*extent));
            }
            Request::Guess(_, number) => self.observer.on_inflated([*number]),
            Request::Chunk(_, None) | Request::Run(_) => {}
        }
        state.counts.requests += 1;
        state.in_flight += 1;
        state.tasks += 1;
        state.link.on_sent(self.now(), bytes)
    }

    fn send(self: &Arc<Self>, sent: Sent, request: Request) {
        let (ahead, source) = (Arc::clone(self), Arc::clone(&self.source));
        let specs = request.specs();
        let task = Task {
            ahead: Arc::clone(self),
            is_done: false,
        };
        self.fetcher.runtime().spawn(async move {
            match request {
                Request::Guess(claim, _) => {
                    let landed = move |landed| ahead.on_landed(sent, &specs, landed, None, None);
                    claim.fetch(source, landed).await;
                }
                Request::Chunk(claim, extent) => {
                    let landed = move |landed| ahead.on_landed(sent, &specs, landed, extent, None);
                    claim.fetch(source, landed).await;
                }
                Request::Run(run) => {
                    let file = run.file.clone();
                    let landed = move |landed| {
                        ahead.on_landed(sent, &specs, landed, None, Some(&file));
                    };
                    run.fetch(source, landed).await;
                }
            }
            task.end();
        });
    }

    /// A request has come back.
    fn on_landed(
        self: &Arc<Self>,
        sent: Sent,
        specs: &[ChunkSpec],
        landed: Landed,
        extent: Option<Extent>,
        file: Option<&FileName>,
    ) {
        let now = self.now();
        let mut state = self.state();
        state.in_flight -= 1;
        for spec in specs {
            state.flying.remove(spec);
        }
        state.counts.bytes += landed.bytes;
        state.counts.failed_chunks += landed.failed as u64;
        if landed.failed > 0 {
            state.link.on_lost(now, sent);
        } else if landed.bytes == 0 {
            state.link.on_cancelled(now, sent);
        } else {
            // A run has gaps, and leaves out what others fetch.
            if let [spec] = specs {
                state.shrink.note(spec.len_bytes.into(), landed.bytes);
            }
            state.link.on_reply(now, sent, landed.bytes, Duration::ZERO);
        }
        if let (Some(extent), Some(streams)) = (extent, &mut state.streams) {
            if landed.failed > 0 {
                streams.on_dropped(extent);
            } else {
                streams.on_fetched(now, extent);
            }
        }
        if landed.failed > 0 {
            if let Some(rest) = &mut state.rest {
                rest.pause(now);
            }
            for plan in state.plans.iter_mut().filter(|plan| plan.file() == file) {
                plan.on_pack_failed();
            }
        }
        self.pump(state);
    }
}

impl State {
    /// Bytes that may be asked for now; one request always may.
    fn room_bytes(&self) -> u64 {
        if self.in_flight == 0 {
            return self.link.room_bytes().max(1);
        }
        if self.surprised == 0 {
            return self.link.room_bytes();
        }
        (self.link.window_bytes() / 4).saturating_sub(self.link.in_flight_bytes())
    }

    /// Whether a profile is followed.
    fn is_led(&self) -> bool {
        self.plans.iter().any(Plan::is_followed)
    }

    fn plans_foresee(&self, spec: &ChunkSpec) -> bool {
        self.plans.iter().any(|plan| plan.foresees(spec))
    }

    /// Whether the chunk that is read was foreseen. One that is on its way for that reason is, also
    /// for who reads another part of it, as the next read of a stream does.
    fn on_chunk_read(&mut self, spec: &ChunkSpec) -> bool {
        for plan in &mut self.plans {
            plan.on_read(spec);
        }
        self.around.on_read(spec);
        let was_foreseen = self.unread.remove(spec);
        if was_foreseen {
            self.unread_bytes -= u64::from(spec.len_bytes);
            self.counts.used_chunks += 1;
        }
        was_foreseen || self.flying.contains(spec)
    }
}

/// A request, until what came is kept.
struct Task {
    ahead: Arc<Ahead>,
    /// It was not dropped with the runtime.
    is_done: bool,
}

impl Task {
    fn end(mut self) {
        self.is_done = true;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut state = self.ahead.state();
        state.tasks -= 1;
        state.is_over |= !self.is_done;
        self.ahead.pump(state);
    }
}

/// Where the chunks of plans are, if they are in the image.
fn numbers_of(index: &Index, plans: &[Plan]) -> HashMap<ChunkSpec, usize> {
    let wanted: HashSet<_> = plans.iter().flat_map(Plan::specs).collect();
    let mut numbers = HashMap::with_capacity(wanted.len());
    if !wanted.is_empty() {
        for number in 0..index.chunk_count() {
            let spec = index.spec(number);
            if wanted.contains(&spec) {
                numbers.entry(spec).or_insert(number);
            }
        }
    }
    numbers
}

/// A line that carries as much as that one does of what is packed.
fn scaled(line: &Line, shrink: &Shrink) -> Line {
    Line {
        rate: base::Rate(shrink.unpacked(line.rate.0)),
        window_bytes: shrink.unpacked(line.window_bytes),
        ..*line
    }
}
