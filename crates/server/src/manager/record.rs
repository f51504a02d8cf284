//! What the ledger has of one reservation, and what follows from it.
//!
//! A row of the metadata engine, drawn in `docs/formats/manager.md`. Everything else that a manager
//! knows of a reservation is computed from its row, by functions of this file: the claims on the
//! calendars, the numbers of its tickets, what each of them says. So a manager that reads the rows
//! of another one comes to the same calendar and issues the same tickets.

use super::Resource;
use base::limits::{RESERVE_KEPT_TIME, TICKET_CLOCK_ERROR_MAX};
use base::ticket::{Class, Head, Operations, Slice, Terms};
use base::{ClusterId, ServerId, StoreId, TicketId, VolumeId};
use reservation::{Claim, Interval, Moment};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use wire::message::ReserveLimits;

/// The newest version of the rows. What needs nothing of it is written as [`FORMAT_BEFORE`], so
/// that a manager of the release before can take over.
pub const MANAGER_FORMAT_VERSION: u8 = 2;
/// The version without [`RowState::LeavingUnused`] and without [`Row::told`].
const FORMAT_BEFORE: u8 = 1;
/// How keys of reservations begin; the identity follows.
pub(super) const ROWS: [u8; 2] = *b"rr";
/// The key of the limits.
pub(super) const LIMITS: [u8; 2] = *b"rl";
/// Seconds after a window in which its share still counts: it is good until its end by a clock that
/// is late, and the next one from its start by a clock that is early.
pub(super) const GUARD_SECONDS: u64 = 2 * TICKET_CLOCK_ERROR_MAX.as_secs();

/// How far a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RowState {
    /// Stores are being asked for its space. Nobody was told yes.
    Pending,
    /// It was admitted.
    Held,
    /// Everything is being given back. Nobody is told that it is there.
    Leaving,
    /// It was given back. Who sends its question again is not given it anew; its tickets are
    /// remembered as revoked for as long.
    Gone,
    /// As `Leaving`, unless something was written in its space: then it is `Held` again, without
    /// its rate.
    LeavingUnused,
}

impl RowState {
    /// Whether it is being given back.
    pub(crate) fn is_leaving(self) -> bool {
        matches!(self, Self::Leaving | Self::LeavingUnused)
    }

    /// Whether something is being done about it at the stores, until which it is neither held nor
    /// gone.
    pub(crate) fn is_unfinished(self) -> bool {
        self == Self::Pending || self.is_leaving()
    }
}

/// One device's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowSlice {
    pub(crate) server: ServerId,
    pub(crate) store: StoreId,
    /// Millionths of the device's time.
    pub(crate) share_ppm: u32,
    pub(crate) stripe_unit_bytes: u32,
    /// Allocation units.
    pub(crate) aus: u64,
}

impl RowSlice {
    /// Where it is.
    pub(crate) fn at(&self) -> (ServerId, StoreId) {
        (self.server, self.store)
    }
}

/// What was delivered in the windows that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivered {
    /// Windows that were accounted for.
    pub(crate) windows: u32,
    pub(crate) seconds: u64,
    pub(crate) kept: u64,
    pub(crate) bytes: u64,
    /// Whether a store was found without its space.
    pub(crate) space_lost: bool,
}

impl Delivered {
    /// With what stores have said of a window.
    pub(crate) fn with(mut self, window: u32, told: &[Told]) -> Self {
        self.windows = self.windows.max(window + 1);
        told.iter().for_each(|told| self.add(told));
        self
    }

    /// Adds what one store has said of a window.
    fn add(&mut self, told: &Told) {
        self.seconds = self.seconds.saturating_add(told.seconds);
        self.kept = self.kept.saturating_add(told.kept);
        self.bytes = self.bytes.saturating_add(told.bytes);
        self.space_lost |= told.space_lost;
    }
}

/// What one store has said of the window that is accounted for next, while others have not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Which of the row's slices.
    pub(crate) slice: u16,
    pub(crate) seconds: u64,
    pub(crate) kept: u64,
    pub(crate) bytes: u64,
    pub(crate) space_lost: bool,
}

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) state: RowState,
    pub(crate) volume: VolumeId,
    pub(crate) holder: u32,
    pub(crate) name: String,
    /// Digest of what was asked for, so that the same question is known again.
    pub(crate) asked: [u8; 16],
    pub(crate) read_bytes_per_second: u64,
    pub(crate) write_bytes_per_second: u64,
    pub(crate) burst_millis: u32,
    pub(crate) space_bytes: u64,
    /// The first window.
    pub(crate) window: Interval,
    pub(crate) every_secs: u64,
    pub(crate) count: u32,
    pub(crate) lifetime_secs: u64,
    /// From when on its rate was given back.
    pub(crate) released: Option<Moment>,
    /// By ascending server and store.
    pub(crate) slices: Vec<RowSlice>,
    /// Bytes a second of each server's network.
    pub(crate) lines: Vec<(ServerId, u64)>,
    pub(crate) delivered: Delivered,
    /// By ascending slice. Behind everything else in the bytes, and not there if it is empty.
    #[serde(skip)]
    pub(crate) told: Vec<Told>,
}

/// A row's bytes cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowError {
    /// A newer release wrote them.
    #[error("format version {0}; this release reads up to {MANAGER_FORMAT_VERSION}")]
    Newer(u8),
    /// They make no sense.
    #[error("not what was written")]
    Damaged,
}

/// A value of the ledger.
pub(super) trait Value: Serialize + DeserializeOwned {
    /// The oldest version that has all that it says.
    fn version(&self) -> u8 {
        FORMAT_BEFORE
    }

    /// What this version has behind it.
    fn rest(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes over what version 2 has behind it; says whether that makes sense.
    fn take_rest(&mut self, rest: &[u8]) -> bool {
        rest.is_empty()
    }
}

impl Value for ReserveLimits {}

impl Value for Row {
    fn version(&self) -> u8 {
        match self.state == RowState::LeavingUnused || !self.told.is_empty() {
            true => MANAGER_FORMAT_VERSION,
            false => FORMAT_BEFORE,
        }
    }

    fn rest(&self) -> Vec<u8> {
        match self.told.is_empty() {
            true => Vec::new(),
            false => postcard::to_stdvec(&self.told).expect("rows are plain data"),
        }
    }

    fn take_rest(&mut self, rest: &[u8]) -> bool {
        if rest.is_empty() {
            return true;
        }
        match postcard::take_from_bytes::<Vec<Told>>(rest) {
            Ok((told, [])) if !told.is_empty() => {
                self.told = told;
                true
            }
            _ => false,
        }
    }
}

/// Bytes of a value of the ledger: its version, a checksum of the rest, the rest.
pub(super) fn encode<T: Value>(value: &T) -> Vec<u8> {
    let mut body = postcard::to_stdvec(value).expect("rows are plain data");
    body.extend(value.rest());
    let mut bytes = vec![value.version()];
    bytes.extend(crc32c::crc32c(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Reads what [`encode`] wrote.
pub(super) fn decode<T: Value>(bytes: &[u8]) -> Result<T, RowError> {
    let (version, rest) = bytes.split_first().ok_or(RowError::Damaged)?;
    if *version > MANAGER_FORMAT_VERSION {
        return Err(RowError::Newer(*version));
    }
    let (checksum, body) = rest.split_first_chunk().ok_or(RowError::Damaged)?;
    if *version == 0 || crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(RowError::Damaged);
    }
    let (mut value, rest): (T, _) =
        postcard::take_from_bytes(body).map_err(|_| RowError::Damaged)?;
    let has_rest = *version > FORMAT_BEFORE || rest.is_empty();
    match has_rest && value.take_rest(rest) {
        true => Ok(value),
        false => Err(RowError::Damaged),
    }
}

/// Where a reservation's row lies.
pub(super) fn key(id: TicketId) -> Vec<u8> {
    [&ROWS[..], &id.0].concat()
}

/// The identity in a key of a row.
pub(super) fn id_of(key: &[u8]) -> Option<TicketId> {
    let id = key.strip_prefix(&ROWS)?;
    Some(TicketId(id.try_into().ok()?))
}

/// The identity of what a user asks for with a number of his choice. Nobody else comes to the same,
/// so nobody can find out or take what others have.
pub(crate) fn identity(holder: u32, request: [u8; 16]) -> TicketId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"azekura reservation, version 1");
    hasher.update(&holder.to_le_bytes()).update(&request);
    TicketId(first_half(&hasher))
}

/// Digest of a question.
pub(crate) fn digest<T: Serialize>(asked: &T) -> [u8; 16] {
    let bytes = postcard::to_stdvec(asked).expect("questions are plain data");
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"azekura question, version 1").update(&bytes);
    first_half(&hasher)
}

fn first_half(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    half
}

/// The number of the ticket for one window: the reservation's own for the first.
pub(crate) fn ticket_id(id: TicketId, occurrence: u32) -> TicketId {
    if occurrence == 0 {
        return id;
    }
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(b"azekura occurrence, version 1")
        .update(&id.0);
    hasher.update(&occurrence.to_le_bytes());
    TicketId(first_half(&hasher))
}

impl Row {
    /// Whether it is promised.
    pub(crate) fn is_held(&self) -> bool {
        self.state == RowState::Held
    }

    /// The windows, first to last, as they were admitted.
    pub(crate) fn planned(&self) -> impl Iterator<Item = Interval> + use<> {
        windows(self.window, self.every_secs, self.count)
    }

    /// One window as far as it was not given back.
    pub(crate) fn occurrence(&self, number: u32) -> Option<Interval> {
        if number >= self.count {
            return None;
        }
        let delay = self.every_secs.saturating_mul(u64::from(number));
        let window = self.window.later_by(delay)?;
        window.before(self.released.unwrap_or(Moment::FOREVER))
    }

    /// The end of the next window that is to be accounted for; none if all are. With space for
    /// files it is the end that was admitted, also of a window that was given back: the rest of the
    /// space is given back then.
    pub(crate) fn account_end(&self) -> Option<Moment> {
        self.account_end_of(self.delivered.windows)
    }

    /// Until when that account waits for servers that are away: until the one of the next window is
    /// due, which they would keep waiting, or for so long as a reservation that is over is kept.
    pub(crate) fn account_until(&self) -> Option<Moment> {
        let kept = self.account_end()?.plus(RESERVE_KEPT_TIME.as_secs());
        let next = self.account_end_of(self.delivered.windows.saturating_add(1));
        let next = next.map_or(Moment::FOREVER, |end| end.plus(GUARD_SECONDS));
        Some(kept.min(next))
    }

    fn account_end_of(&self, number: u32) -> Option<Moment> {
        match self.space_bytes > 0 && self.is_for_files() {
            true => Some(self.planned().nth(number as usize)?.end()),
            false => Some(self.occurrence(number)?.end()),
        }
    }

    /// The window that lasts at `now` or is the next one; the last one if all are over.
    pub(crate) fn present(&self, now: Moment) -> u32 {
        let all = (0..self.count).filter(|number| self.occurrence(*number).is_some());
        let mut last = 0;
        for number in all {
            last = number;
            let window = self.occurrence(number);
            if window.is_some_and(|window| window.end() > now) {
                break;
            }
        }
        last
    }

    /// The second after the last one of its last window, as it was admitted.
    pub(crate) fn last_end(&self) -> Moment {
        let later = self
            .every_secs
            .saturating_mul(u64::from(self.count.saturating_sub(1)));
        self.window.end().plus(later)
    }

    /// The second after the last one that it has.
    pub(crate) fn end(&self) -> Moment {
        self.released
            .unwrap_or(Moment::FOREVER)
            .min(self.last_end())
    }

    /// The second from which on nothing of what was written is left.
    pub(crate) fn space_end(&self) -> Moment {
        self.last_end().plus(self.lifetime_secs)
    }

    /// Whether its space is for files, which stay: it is held without end, so that what they take
    /// is theirs for good, and what they have not taken is given back after each window.
    pub(crate) fn is_for_files(&self) -> bool {
        self.volume != VolumeId([0; 16]) && self.lifetime_secs == 0
    }

    /// With a later end: its only window is longer, or there are more of a series, each as long as
    /// the first and none beyond the end. The tickets of windows that there were stay as they are.
    pub(crate) fn longer(&self, end: Moment) -> Result<Self, &'static str> {
        if end <= self.last_end() || end == Moment::FOREVER {
            return Err("the new end is not later than the present one");
        }
        if self.count > 1 {
            if self.space_bytes > 0 {
                return Err("several windows with space are reserved anew, not extended");
            }
            let more = end
                .since(self.last_end())
                .map_or(0, |by| by / self.every_secs);
            let count = u64::from(self.count).saturating_add(more);
            return match u32::try_from(count) {
                Ok(count) if count > self.count => Ok(Self {
                    count,
                    ..self.clone()
                }),
                Ok(_) => Err("no further window of the series ends by then"),
                Err(_) => Err("more windows than are kept at once"),
            };
        }
        let window = Interval::new(self.window.start(), end);
        Ok(Self {
            window: window.expect("it became longer"),
            ..self.clone()
        })
    }

    /// From when to when the space of one window is held.
    pub(crate) fn space_interval(&self, occurrence: Interval) -> Interval {
        let end = match self.is_for_files() {
            true => Moment::FOREVER,
            false => occurrence.end().plus(self.lifetime_secs),
        };
        Interval::new(occurrence.start(), end).expect("a lifetime makes nothing shorter")
    }

    /// What it holds of all calendars.
    pub(crate) fn claims(&self) -> Vec<Claim<Resource>> {
        self.claims_without(&BTreeSet::new())
    }

    /// What it holds of the calendars of all servers but these.
    pub(crate) fn claims_without(&self, without: &BTreeSet<ServerId>) -> Vec<Claim<Resource>> {
        if self.state == RowState::Gone {
            return Vec::new();
        }
        let slices = self.slices.iter();
        let slices = slices.filter(|slice| !without.contains(&slice.server));
        let devices = slices.map(|slice| {
            let share = u64::from(slice.share_ppm);
            (Resource::Device(slice.store), share)
        });
        let lines = self.lines.iter();
        let lines = lines.filter(|(server, _)| !without.contains(server));
        let lines = lines.map(|(server, amount)| (Resource::Line(*server), *amount));
        let parts: Vec<_> = devices.chain(lines).filter(|part| part.1 > 0).collect();
        let windows = (0..self.count).filter_map(|number| self.occurrence(number));
        let claims = windows.flat_map(|interval| {
            let claim = move |(resource, amount): &(Resource, u64)| Claim {
                resource: *resource,
                amount: *amount,
                interval,
            };
            parts.iter().map(claim).collect::<Vec<_>>()
        });
        claims.collect()
    }

    /// Its servers, each once.
    pub(crate) fn servers(&self) -> Vec<ServerId> {
        let mut servers: Vec<_> = self.slices.iter().map(|slice| slice.server).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    fn operations(&self) -> Operations {
        match (self.read_bytes_per_second, self.write_bytes_per_second) {
            (0, 0) => Operations::READ_WRITE,
            // Who has space is to write there.
            (_, 0) if self.space_bytes == 0 => Operations::READ,
            (0, _) => Operations::WRITE,
            _ => Operations::READ_WRITE,
        }
    }

    /// The ticket of one window for one server: head and terms, as every manager would say them.
    /// None if that window was given back before it began.
    pub(crate) fn ticket(
        &self,
        id: TicketId,
        occurrence: u32,
        server: ServerId,
        epoch: u64,
    ) -> Option<(Head, Terms)> {
        let window = self.occurrence(occurrence)?;
        let head = Head {
            class: Class::Standard,
            cluster: ClusterId([0; 16]),
            server,
            id: ticket_id(id, occurrence),
            epoch,
            holder: u64::from(self.holder),
            volume: self.volume,
            key_id: 0,
        };
        let own = self.slices.iter().filter(|slice| slice.server == server);
        let terms = Terms {
            operations: self.operations(),
            burst_millis: self.burst_millis,
            start_secs: window.start().as_secs(),
            end_secs: window.end().as_secs(),
            lifetime_end_secs: self.space_interval(window).end().as_secs(),
            slices: own
                .map(|slice| Slice {
                    device: slice.store,
                    share_ppm: slice.share_ppm,
                    stripe_unit_bytes: slice.stripe_unit_bytes,
                    au_budget: slice.aus,
                })
                .collect(),
            path: Vec::new(),
        };
        Some((head, terms))
    }
}

/// `count` windows like `first`, each `every_secs` later than the one before.
pub(crate) fn windows(
    first: Interval,
    every_secs: u64,
    count: u32,
) -> impl Iterator<Item = Interval> + use<> {
    (0..count).map_while(move |number| {
        let delay = every_secs.checked_mul(u64::from(number))?;
        first.later_by(delay)
    })
}
