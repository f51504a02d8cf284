//! Which devices carry a reservation: as few servers as can, and what would fit instead.
//!
//! Pure: devices and calendars are arguments, so is the time.
//!
//! A file that is written under a reservation is striped evenly, so of `n` devices each carries an
//! n-th of the rate and of the space. For one server, then two, and so on, all numbers of devices
//! are tried that these can have; the first that fits is taken, on the devices that have least to
//! do at their busiest second in all windows ("best fit by peak"). Each server carries its devices'
//! part of the rate on its line, if lines are reserved.
//!
//! A window can only begin to fit at the second after something else has ended, or one at which it
//! may begin at all. So counter-offers look at these moments alone, and one that is offered is
//! admitted as it is if nothing happens in between.

use super::Resource;
use super::record::{RowSlice, windows};
use crate::storage::Plan;
use base::limits::{RESERVE_SLICES_MAX, RESERVE_STARTS_MAX, TICKET_SLICES_MAX};
use base::{ServerId, StoreId};
use reservation::scheduler::{Operation, WHOLE_PPM};
use reservation::{Calendar, Interval, Ledger, Moment};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bits of the fractions in which a slower rate is looked for.
const PART_BITS: u32 = 32;
/// Starts that are looked at for one offer, over all windows of a series.
const STARTS_LOOKED_AT_MAX: usize = 1 << 17;
/// Windows of a series as many as which cost what one start is worth.
const WINDOWS_OF_A_START: usize = 8;
/// Starts that are tried however long a series is.
const STARTS_MIN: usize = 16;

/// A device as a manager knows it.
#[derive(Clone, Debug)]
pub(crate) struct PlanDevice {
    pub(crate) server: ServerId,
    pub(crate) store: StoreId,
    /// What requests cost.
    pub(crate) plan: Arc<Plan>,
    /// Whether it is an exported directory: it carries what is reserved for its volume, and that
    /// names it.
    pub(crate) is_export: bool,
    /// Whether it was measured: nothing is promised of what was not.
    pub(crate) is_measured: bool,
    /// Whether it is well at the moment.
    pub(crate) is_well: bool,
    pub(crate) au_bytes: u64,
    pub(crate) au_count: u64,
}

impl PlanDevice {
    /// The part of its time that both rates take, in millionths; none if it is more than the whole.
    fn share(&self, read: u64, write: u64) -> Option<u64> {
        let part = |operation, rate| match rate {
            0 => Some(0),
            rate => self.plan.share_ppm(operation, rate),
        };
        let all = part(Operation::Read, read)? + part(Operation::Write, write)?;
        (all <= WHOLE_PPM).then_some(u64::from(all))
    }

    /// Allocation units for so many bytes that are striped over it. One more than they fill, since
    /// a file ends somewhere within one.
    fn aus(&self, bytes: u64) -> u64 {
        match bytes {
            0 => 0,
            bytes => bytes.div_ceil(self.au_bytes) + 1,
        }
    }
}

/// What is to be carried, at one start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) read: u64,
    pub(crate) write: u64,
    pub(crate) space_bytes: u64,
    /// The first window.
    pub(crate) window: Interval,
    pub(crate) every_secs: u64,
    pub(crate) count: u32,
    /// If not empty, these and all of them.
    pub(crate) stores: Vec<StoreId>,
    /// The stores that come into question; none if all do.
    pub(crate) among: Option<Arc<BTreeSet<StoreId>>>,
    /// Stores that have said that they lack space, or that are away.
    pub(crate) without: Vec<Lack>,
}

/// What a store has said that it can give at most, where the calendars did not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) store: StoreId,
    /// Allocation units; none if it is not to be asked at all.
    pub(crate) aus: u64,
}

impl Ask {
    /// The least that a store has said that it has.
    fn room_said(&self, store: StoreId) -> Option<u64> {
        let said = self.without.iter().filter(|lack| lack.store == store);
        said.map(|lack| lack.aus).min()
    }
}

/// What carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Width {
    /// By ascending server and store.
    pub(crate) slices: Vec<RowSlice>,
    /// Bytes a second of each server's line; none without a rate.
    pub(crate) lines: Vec<(ServerId, u64)>,
}

/// What there is too little of, where it is closest to enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// Fewer devices that promises can be made of than are needed.
    Stores { wanted: u64, room: u64 },
    /// An amount of a resource, from a moment on.
    Of {
        resource: Resource,
        wanted: u64,
        room: u64,
        from: Moment,
    },
    /// Allocation units that a store does not have at all.
    Space {
        store: StoreId,
        wanted: u64,
        room: u64,
    },
}

/// An offer: the same at another time, or slower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    Later(Ask),
    Earlier(Ask),
    Slower(Ask),
}

impl Instead {
    /// What would be admitted.
    pub(crate) fn ask(&self) -> &Ask {
        let (Self::Later(ask) | Self::Earlier(ask) | Self::Slower(ask)) = self;
        ask
    }
}

/// Devices and calendars, to be asked.
pub(crate) struct Planner<'a> {
    pub(crate) devices: &'a BTreeMap<StoreId, PlanDevice>,
    pub(crate) ledger: &'a Ledger<base::TicketId, Resource>,
    pub(crate) has_lines: bool,
}

/// A device that could carry its part, with the peak that it has without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    peak: u64,
    store: StoreId,
    share: u64,
    aus: u64,
}

impl Planner<'_> {
    /// The devices that carry it.
    ///
    /// # Errors
    /// [`Short`].
    pub(crate) fn width(&self, ask: &Ask) -> Result<Width, Short> {
        let usable = self.usable(ask)?;
        if !ask.stores.is_empty() {
            let fitting = self.of_count(ask, &usable, usable.len());
            let all = self.choose(ask, &fitting, fitting.len(), usable.len());
            return all.ok_or_else(|| self.short(ask, &usable, usable.len()));
        }
        let mut per_server: BTreeMap<ServerId, usize> = BTreeMap::new();
        for device in &usable {
            *per_server.entry(device.server).or_default() += 1;
        }
        let mut sizes: Vec<usize> = per_server.into_values().collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut known: BTreeMap<usize, BTreeMap<ServerId, Vec<Candidate>>> = BTreeMap::new();
        let mut count_max = 0;
        for servers in 1..=sizes.len() {
            count_max += sizes[servers - 1].min(TICKET_SLICES_MAX);
            for count in servers..=count_max.min(RESERVE_SLICES_MAX) {
                let fitting = known
                    .entry(count)
                    .or_insert_with(|| self.of_count(ask, &usable, count));
                if let Some(width) = self.choose(ask, fitting, servers, count) {
                    return Ok(width);
                }
            }
        }
        Err(self.short(ask, &usable, count_max.min(RESERVE_SLICES_MAX)))
    }

    /// The devices in question.
    fn usable(&self, ask: &Ask) -> Result<Vec<&PlanDevice>, Short> {
        let has_rate = ask.read > 0 || ask.write > 0;
        let is_good = |device: &&PlanDevice| {
            let is_any = ask.stores.is_empty() && !device.is_export;
            let among = ask.among.as_ref();
            let is_among = among.is_none_or(|among| among.contains(&device.store));
            let is_wanted = is_any && is_among || ask.stores.contains(&device.store);
            let can_promise = device.is_measured || !has_rate;
            let is_asked = ask.room_said(device.store) != Some(0);
            is_wanted && can_promise && device.is_well && is_asked
        };
        let usable: Vec<_> = self.devices.values().filter(is_good).collect();
        let wanted = ask.stores.len().max(1);
        if usable.len() < wanted {
            return Err(Short::Stores {
                wanted: wanted as u64,
                room: usable.len() as u64,
            });
        }
        Ok(usable)
    }

    /// The devices that can carry an n-th, by server, those with the lowest peak first.
    fn of_count(
        &self,
        ask: &Ask,
        usable: &[&PlanDevice],
        count: usize,
    ) -> BTreeMap<ServerId, Vec<Candidate>> {
        let mut fitting: BTreeMap<ServerId, Vec<Candidate>> = BTreeMap::new();
        for device in usable {
            if let Some(candidate) = self.candidate(ask, device, count) {
                fitting.entry(device.server).or_default().push(candidate);
            }
        }
        for devices in fitting.values_mut() {
            devices.sort_unstable();
            devices.truncate(TICKET_SLICES_MAX);
        }
        fitting
    }

    fn candidate(&self, ask: &Ask, device: &PlanDevice, count: usize) -> Option<Candidate> {
        let (read, write, bytes) = part(ask, count);
        let share = device.share(read, write)?;
        let aus = device.aus(bytes);
        let calendar = self.ledger.calendar(Resource::Device(device.store))?;
        // Compared first with what there is at all, which asks no calendar.
        let room = ask.room_said(device.store).unwrap_or(u64::MAX);
        if share > calendar.capacity() || aus > device.au_count.min(room) {
            return None;
        }
        let peak = self.peak(ask, calendar)?;
        let is_room = share == 0 || share <= calendar.capacity().saturating_sub(peak);
        is_room.then_some(Candidate {
            peak,
            store: device.store,
            share,
            aus,
        })
    }

    /// The most that is taken in any of the windows, guards included.
    fn peak(&self, ask: &Ask, calendar: &Calendar) -> Option<u64> {
        let now = self.ledger.now();
        let all = windows(ask.window, ask.every_secs, ask.count);
        let peaks = all.filter_map(|window| calendar.occupied(window).from_on(now));
        peaks.map(|occupied| calendar.peak(occupied)).max()
    }

    /// `count` devices of `servers` servers, if so many can: of those that can give most devices,
    /// and among these of those that have the least to do.
    fn choose(
        &self,
        ask: &Ask,
        fitting: &BTreeMap<ServerId, Vec<Candidate>>,
        servers: usize,
        count: usize,
    ) -> Option<Width> {
        let parts = fitting.iter().map(|(server, devices)| {
            let most = match self.has_lines {
                true => self.line_devices(ask, self.line_room(ask, *server), count),
                false => devices.len(),
            };
            (*server, &devices[..most.min(devices.len())])
        });
        let mut order: Vec<_> = parts.filter(|(_, devices)| !devices.is_empty()).collect();
        order.sort_by_key(|(server, devices)| {
            (std::cmp::Reverse(devices.len()), devices[0].peak, *server)
        });
        order.truncate(servers);
        let all = order
            .iter()
            .map(|(_, devices)| devices.len())
            .sum::<usize>();
        if order.len() < servers || all < count {
            return None;
        }
        // One of each server first, then those with the lowest peaks.
        let mut devices: Vec<_> = order
            .into_iter()
            .flat_map(|(server, devices)| {
                let own = devices.iter().enumerate();
                own.map(move |(at, device)| (at > 0, *device, server))
            })
            .collect();
        devices.sort_unstable();
        devices.truncate(count);
        Some(self.taken(ask, &devices, count))
    }

    /// How many of `count` devices a line of so much room can feed.
    fn line_devices(&self, ask: &Ask, room: u64, count: usize) -> usize {
        let rate = ask.read.saturating_add(ask.write);
        (1..=count)
            .rev()
            .find(|own| line_part(rate, *own, count) <= room)
            .unwrap_or(0)
    }

    fn line_room(&self, ask: &Ask, server: ServerId) -> u64 {
        let calendar = self.ledger.calendar(Resource::Line(server));
        calendar.map_or(0, |calendar| {
            let peak = self.peak(ask, calendar).unwrap_or(0);
            calendar.capacity().saturating_sub(peak)
        })
    }

    fn taken(&self, ask: &Ask, chosen: &[(bool, Candidate, ServerId)], count: usize) -> Width {
        let units = chosen
            .iter()
            .map(|(_, device, _)| self.devices[&device.store].au_bytes);
        // Units are powers of two, so the largest is a multiple of all.
        let unit = units.max().filter(|_| count > 1).unwrap_or(0);
        let unit = u32::try_from(unit).unwrap_or(u32::MAX);
        let mut slices: Vec<_> = chosen
            .iter()
            .map(|(_, device, server)| RowSlice {
                server: *server,
                store: device.store,
                share_ppm: u32::try_from(device.share).expect("a share is at most the whole"),
                stripe_unit_bytes: unit,
                aus: device.aus,
            })
            .collect();
        slices.sort_unstable_by_key(|slice| (slice.server, slice.store));
        let mut own: BTreeMap<ServerId, usize> = BTreeMap::new();
        for slice in &slices {
            *own.entry(slice.server).or_default() += 1;
        }
        let rate = ask.read.saturating_add(ask.write);
        // Also while they are not reserved: they may be later, and then it counts.
        let lines = own.into_iter().filter(|_| rate > 0);
        Width {
            slices,
            lines: lines
                .map(|(server, own)| (server, line_part(rate, own, count)))
                .collect(),
        }
    }

    /// What is closest to enough on the widest stripe.
    fn short(&self, ask: &Ask, usable: &[&PlanDevice], count: usize) -> Short {
        let (read, write, bytes) = part(ask, count);
        let mut best: Option<(u128, Short)> = None;
        let mut consider = |wanted: u64, room: u64, short: Short| {
            let part = u128::from(room) * 1_000_000 / u128::from(wanted.max(1));
            if best.as_ref().is_none_or(|(least, _)| part > *least) {
                best = Some((part, short));
            }
        };
        for device in usable {
            let resource = Resource::Device(device.store);
            let Some(calendar) = self.ledger.calendar(resource) else {
                continue;
            };
            // More than the whole device: said as what it would be, were it larger.
            let wanted = device.share(read, write).unwrap_or_else(|| {
                let fits = largest(PART_BITS, |part| {
                    let share = device.share(part_of(read, part), part_of(write, part));
                    share.is_some()
                });
                let times = (u64::from(WHOLE_PPM) << PART_BITS) / fits.max(1);
                times.max(u64::from(WHOLE_PPM) + 1)
            });
            let (room, from) = self.room(ask, calendar, wanted);
            if room < wanted {
                let short = Short::Of {
                    resource,
                    wanted,
                    room,
                    from,
                };
                consider(wanted, room, short);
            }
            let (aus, all) = (device.aus(bytes), device.au_count);
            if aus > all {
                let store = device.store;
                let (wanted, room) = (aus, all);
                let short = Short::Space {
                    store,
                    wanted,
                    room,
                };
                consider(wanted, room, short);
            }
        }
        match best {
            Some((_, short)) => short,
            None => self.short_line(ask, usable, count),
        }
    }

    /// All devices could: it is a line that cannot feed those of its server.
    fn short_line(&self, ask: &Ask, usable: &[&PlanDevice], count: usize) -> Short {
        let rate = ask.read.saturating_add(ask.write);
        let mut own: BTreeMap<ServerId, usize> = BTreeMap::new();
        for device in usable {
            *own.entry(device.server).or_default() += 1;
        }
        let short = own.into_iter().filter_map(|(server, own)| {
            let resource = Resource::Line(server);
            let wanted = line_part(rate, own, count.max(1));
            let calendar = self.ledger.calendar(resource)?;
            let (room, from) = self.room(ask, calendar, wanted);
            let part = u128::from(room) * 1_000_000 / u128::from(wanted.max(1));
            let short = Short::Of {
                resource,
                wanted,
                room,
                from,
            };
            (room < wanted).then_some((part, short))
        });
        match short.max_by_key(|(part, _)| *part) {
            Some((_, short)) => short,
            None => Short::Stores { wanted: 1, room: 0 },
        }
    }

    /// How much there is all the time, and from when on it is too little.
    fn room(&self, ask: &Ask, calendar: &Calendar, wanted: u64) -> (u64, Moment) {
        let now = self.ledger.now();
        let peak = self.peak(ask, calendar).unwrap_or(0);
        let room = calendar.capacity().saturating_sub(peak);
        let all = windows(ask.window, ask.every_secs, ask.count);
        let windows = all.filter_map(|window| calendar.occupied(window).from_on(now));
        let mut short = windows.filter(|occupied| {
            calendar.capacity().saturating_sub(calendar.peak(*occupied)) < wanted
        });
        let from = short
            .next()
            .map_or(ask.window.start(), |occupied| occupied.start());
        (room, from)
    }

    /// What would be admitted instead, the nearest in time first: between `earliest` and
    /// `latest_end`.
    pub(crate) fn instead(&self, ask: &Ask, earliest: Moment, latest_end: Moment) -> Vec<Instead> {
        let later = self.first(ask, ask.window.start(), latest_end);
        let earlier = self.last(ask, earliest);
        [
            later.map(Instead::Later),
            earlier.map(Instead::Earlier),
            self.slower(ask).map(Instead::Slower),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The first start from `earliest` on with which it fits and ends by `latest_end`, if it is one
    /// of the first [`RESERVE_STARTS_MAX`], or of fewer for long series.
    pub(crate) fn first(&self, ask: &Ask, earliest: Moment, latest_end: Moment) -> Option<Ask> {
        let length = ask.window.duration_seconds()?;
        let earliest = earliest.max(self.ledger.now());
        let last = Moment::from_secs(latest_end.as_secs().checked_sub(length)?);
        let freed = |(at, delta): (Moment, i64)| (delta < 0).then_some(at);
        let starts = self.starts(ask, freed, (earliest, last));
        let mut at = 0;
        for _ in 0..starts_tried(ask) {
            let start = *starts.get(at)?;
            let moved = ask.at(start)?;
            if self.width(&moved).is_ok() {
                return Some(moved);
            }
            let bound = self.not_before(&moved, start.plus(1), latest_end)?;
            at = starts.partition_point(|known| *known < bound);
        }
        None
    }

    /// The last start before its own, not before `earliest`, with which it fits.
    fn last(&self, ask: &Ask, earliest: Moment) -> Option<Ask> {
        let length = ask.window.duration_seconds()?;
        let earliest = earliest.max(self.ledger.now());
        let before = ask.window.start().as_secs().checked_sub(1)?;
        let guard = super::record::GUARD_SECONDS;
        let taken = |(at, delta): (Moment, i64)| {
            let start = at.as_secs().checked_sub(length + guard)?;
            (delta > 0).then_some(Moment::from_secs(start))
        };
        let starts = self.starts(ask, taken, (earliest, Moment::from_secs(before)));
        let tried = starts.iter().rev().take(starts_tried(ask));
        let mut moved = tried.filter_map(|start| ask.at(*start));
        moved.find(|moved| self.width(moved).is_ok())
    }

    /// The moments, ascending, at which it may begin or cease to fit, and both ends of the span.
    fn starts(
        &self,
        ask: &Ask,
        of_change: impl Fn((Moment, i64)) -> Option<Moment>,
        (from, to): (Moment, Moment),
    ) -> Vec<Moment> {
        if from > to {
            return Vec::new();
        }
        let delays = (0..u64::from(ask.count)).map(|number| number * ask.every_secs);
        let changes = || {
            let calendars = self.ledger.calendars();
            calendars.flat_map(|(_, calendar)| calendar.changes())
        };
        // Of a long series beside many others the first windows say enough: it is about an offer.
        let windows = (STARTS_LOOKED_AT_MAX / changes().count().max(1)).max(1);
        let delays: Vec<u64> = delays.take(windows).collect();
        let found = changes().filter_map(of_change).flat_map(|at| {
            let back = |delay: &u64| at.as_secs().checked_sub(*delay).map(Moment::from_secs);
            delays.iter().filter_map(back).collect::<Vec<_>>()
        });
        let within = found.filter(|start| *start > from && *start < to);
        let mut starts: Vec<_> = within.chain([from, to]).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// No start from `from` on and before this one fits, since fewer devices than are needed have
    /// room in the first window alone.
    fn not_before(&self, ask: &Ask, from: Moment, latest_end: Moment) -> Option<Moment> {
        let usable = self.usable(ask).ok()?;
        let length = ask.window.duration_seconds()?;
        let count_max = usable.len().min(RESERVE_SLICES_MAX);
        let counts = match ask.stores.is_empty() {
            true => 1..=count_max,
            false => count_max..=count_max,
        };
        let bounds = counts.filter_map(|count| {
            let (read, write, _) = part(ask, count);
            let starts = usable.iter().filter_map(|device| {
                let share = device.share(read, write)?;
                let calendar = self.ledger.calendar(Resource::Device(device.store))?;
                let fit = calendar.first_fit(share, Some(length), from, latest_end);
                fit.map(Interval::start)
            });
            let mut starts: Vec<_> = starts.collect();
            starts.sort_unstable();
            starts.get(count - 1).copied()
        });
        bounds.min()
    }

    /// The same at the highest rate that fits, reading and writing in the proportion that was asked
    /// for: a 2^-32nd of it is the step.
    fn slower(&self, ask: &Ask) -> Option<Ask> {
        let reduced = |part: u64| {
            let (read, write) = (part_of(ask.read, part), part_of(ask.write, part));
            let ask = ask.clone();
            Ask { read, write, ..ask }
        };
        let is_something = |slower: &Ask| {
            (ask.read == 0 || slower.read > 0) && (ask.write == 0 || slower.write > 0)
        };
        let fits = |part: u64| {
            let slower = reduced(part);
            !is_something(&slower) || self.width(&slower).is_ok()
        };
        let slower = reduced(largest(PART_BITS, fits));
        (is_something(&slower) && self.width(&slower).is_ok()).then_some(slower)
    }
}

impl Ask {
    /// The same, beginning at `start`.
    pub(crate) fn at(&self, start: Moment) -> Option<Self> {
        let length = self.window.duration_seconds()?;
        let window = Interval::new(start, start.plus(length)).ok()?;
        Some(Self {
            window,
            ..self.clone()
        })
    }
}

/// What one of `count` devices carries.
fn part(ask: &Ask, count: usize) -> (u64, u64, u64) {
    let count = count.max(1) as u64;
    (
        ask.read.div_ceil(count),
        ask.write.div_ceil(count),
        ask.space_bytes.div_ceil(count),
    )
}

/// What the line of a server with `own` of `count` devices carries.
fn line_part(rate: u64, own: usize, count: usize) -> u64 {
    let part = (u128::from(rate) * own as u128).div_ceil(count as u128);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// The largest number of so many bits for which something holds that holds for all smaller ones.
fn largest(bits: u32, holds: impl Fn(u64) -> bool) -> u64 {
    let mut found = 0;
    for bit in (0..bits).rev() {
        let next = found | 1_u64 << bit;
        if holds(next) {
            found = next;
        }
    }
    found
}

/// So many 2^32ths of a rate.
fn part_of(rate: u64, part: u64) -> u64 {
    let part = (u128::from(rate) * u128::from(part)) >> PART_BITS;
    u64::try_from(part).expect("a part is no more than the whole")
}

/// Starts that are tried for an offer: each is about all windows, and others wait meanwhile.
fn starts_tried(ask: &Ask) -> usize {
    let worth = (ask.count as usize).div_ceil(WINDOWS_OF_A_START).max(1);
    (RESERVE_STARTS_MAX / worth).max(STARTS_MIN)
}
