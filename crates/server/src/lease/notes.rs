//! Which sessions have leases, which have written into stores, and which volumes they use, on disk.
//!
//! ```text
//! sessions    slots of 32 bytes:
//!             name 16 | lease u8 | writes u8 | zeros 2 | volume 4 | zeros 4 | crc32c u32 of these
//! ```
//! A session has a slot from its first lease or write on, which says the best lease that it was
//! ever given, whether it has ever written into objects of this server, and the first bytes of the
//! identity of the volume that it had entered by then, zeros if that is not known: a mount that is
//! idle over a restart has its volume still mounted.
//! A slot is written before the lease is given, or the write carried out, into the page cache, a
//! microsecond each: it survives `kill -9`. When a machine starts anew, its time has mostly run
//! out. Drawn in `docs/formats/server-data.md`.

use crate::data::DataError;
use crate::session::Session;
use crate::volume::{Tag, tag};
use base::limits::SESSIONS_MAX;
use base::{SessionId, VolumeId};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::message::Lease;

const SLOT_BYTES: usize = 32;
/// Where the volume stands in a slot.
const VOLUME: std::ops::Range<usize> = 20..24;
/// Of a session whose volume is not known; an older server has noted it.
const NO_VOLUME: Tag = [0; 4];
/// Sessions, those that are ending, and those of the run before.
const SLOTS_MAX: usize = 4 * SESSIONS_MAX;
/// When noting is tried again after it was refused: each entry of a listing would try it.
const REFUSED_TIME: Duration = Duration::from_secs(1);

/// What is noted of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The best lease that it was ever given.
    pub(crate) lease: Lease,
    /// Whether it has written into objects of this server's stores.
    pub(crate) writes: bool,
}

impl Noted {
    /// Of a session that has no slot.
    pub(crate) const NOTHING: Self = Self::leased(Lease::None);

    /// It had such a lease at best, and wrote nothing.
    pub(crate) const fn leased(lease: Lease) -> Self {
        let writes = false;
        Self { lease, writes }
    }

    /// It wrote, and had no lease.
    pub(crate) const WRITES: Self = Self {
        lease: Lease::None,
        writes: true,
    };

    /// This and that.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            lease: self.lease.max(other.lease),
            writes: self.writes || other.writes,
        }
    }
}

/// The file, and whose slots there are.
pub(crate) struct Notes {
    /// None of one of several managers: who takes over lets the time pass in which anything is
    /// believed.
    file: Option<File>,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    owners: Vec<Option<Owner>>,
    /// Until when nothing is tried after the disk, or the room, has refused something.
    refuses_until: Option<Instant>,
}

/// Whose a slot is.
#[derive(Clone, Copy)]
struct Owner {
    id: SessionId,
    noted: Noted,
    volume: Tag,
}

impl Owner {
    /// Whose slot is free.
    fn nothing(id: SessionId) -> Self {
        Self {
            id,
            noted: Noted::NOTHING,
            volume: NO_VOLUME,
        }
    }
}

impl Notes {
    /// Nothing is noted.
    pub(crate) fn none() -> Self {
        Self {
            file: None,
            slots: Mutex::default(),
        }
    }

    /// The notes in a data directory, and what the run before has left there: its sessions.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub(crate) fn open(directory: &Path) -> Result<(Self, Vec<(SessionId, Noted)>), DataError> {
        let path = directory.join("sessions");
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .and_then(|file| Ok((read(&file)?, file)));
        let (found, file) = opened.map_err(|source| DataError::Io { path, source })?;
        let notes = Self {
            file: Some(file),
            slots: Mutex::new(Slots {
                owners: found.clone(),
                refuses_until: None,
            }),
        };
        let former = found.into_iter().flatten();
        let former = former.map(|owner| (owner.id, owner.noted));
        Ok((notes, former.collect()))
    }

    /// As it is on a disk that takes nothing.
    #[cfg(test)]
    pub(super) fn read_only(mut self, directory: &Path) -> Self {
        self.file = Some(File::open(directory.join("sessions")).unwrap());
        self
    }

    /// Notes that a session has such a lease, or writes, unless that is known. Whether that
    /// succeeded: a lease that cannot be noted must not be given.
    pub(super) fn raise(&self, session: &Session, more: Noted) -> bool {
        let known = session.noted();
        if known.with(more) == known {
            return true;
        }
        let Some(file) = &self.file else {
            return true;
        };
        let mut slots = self.lock();
        let Slots {
            owners,
            refuses_until,
        } = &mut *slots;
        let now = Instant::now();
        if refuses_until.is_some_and(|until| now < until) {
            return false;
        }
        // Another thread may have noted more.
        let own = place_of(owners, session.id);
        let known = own.and_then(|place| owners[place]);
        let volume = known.map(|owner| owner.volume);
        let volume = volume.filter(|volume| *volume != NO_VOLUME);
        let owner = Owner {
            id: session.id,
            noted: session.noted().with(more),
            volume: volume.unwrap_or_else(|| session.entered().map_or(NO_VOLUME, tag)),
        };
        let free = || owners.iter().position(Option::is_none);
        let place = own.or_else(free).unwrap_or(owners.len());
        let written = match place < SLOTS_MAX {
            true => write(file, place, owner),
            false => Err(io::ErrorKind::QuotaExceeded.into()),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "sessions cannot be noted, and get no leases");
            *refuses_until = Some(now + REFUSED_TIME);
            return false;
        }
        *refuses_until = None;
        if place == owners.len() {
            owners.push(None);
        }
        owners[place] = Some(owner);
        session.set_noted(owner.noted);
        true
    }

    /// Everything that was ever written into stores is durable, and this run ends: the next one
    /// need not wait for anybody who would write it again.
    pub(super) fn forget_writes(&self) {
        let Some(file) = &self.file else {
            return;
        };
        for (place, slot) in self.lock().owners.iter_mut().enumerate() {
            let Some(owner) = slot.filter(|owner| owner.noted.writes) else {
                continue;
            };
            let owner = match owner.noted.lease {
                Lease::None => Owner::nothing(owner.id),
                lease => Owner {
                    noted: Noted::leased(lease),
                    ..owner
                },
            };
            if let Err(error) = write(file, place, owner) {
                tracing::warn!(%error, "that a session has written nothing cannot be noted");
            }
            *slot = Some(owner).filter(|owner| owner.noted != Noted::NOTHING);
        }
    }

    /// These sessions are over, or will not come back; unless `is_over` says otherwise of one.
    pub(super) fn remove(&self, ids: &[SessionId], is_over: impl Fn(SessionId) -> bool) {
        let Some(file) = &self.file else {
            return;
        };
        let owners = &mut self.lock().owners;
        for id in ids {
            let own = place_of(owners, *id);
            // Under the lock: whoever is back notes its leases before or after this.
            let Some(place) = own.filter(|_| is_over(*id)) else {
                continue;
            };
            if let Err(error) = write(file, place, Owner::nothing(*id)) {
                tracing::warn!(%error, "the end of a session cannot be noted");
            }
            owners[place] = None;
        }
    }

    /// The sessions that have used a volume, as far as that is known.
    pub(super) fn users(&self, volume: VolumeId) -> Vec<SessionId> {
        let wanted = tag(volume);
        if wanted == NO_VOLUME {
            return Vec::new();
        }
        let slots = self.lock();
        let owners = slots.owners.iter().flatten();
        let users = owners.filter(|owner| owner.volume == wanted);
        users.map(|owner| owner.id).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of a session.
fn place_of(owners: &[Option<Owner>], id: SessionId) -> Option<usize> {
    let is_own = |slot: &Option<Owner>| slot.is_some_and(|owner| owner.id == id);
    owners.iter().position(is_own)
}

fn write(file: &File, place: usize, owner: Owner) -> io::Result<()> {
    let mut slot = [0; SLOT_BYTES];
    slot[..16].copy_from_slice(&owner.id.0);
    slot[16] = owner.noted.lease as u8;
    slot[17] = u8::from(owner.noted.writes);
    slot[VOLUME].copy_from_slice(&owner.volume);
    let checksum = crc32c::crc32c(&slot[..SLOT_BYTES - 4]);
    slot[SLOT_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    file.write_all_at(&slot, (place * SLOT_BYTES) as u64)
}

fn read(file: &File) -> io::Result<Vec<Option<Owner>>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length.min(SLOTS_MAX * SLOT_BYTES)];
    file.read_exact_at(&mut bytes, 0)?;
    let slots = bytes.as_chunks::<SLOT_BYTES>().0;
    Ok(slots.iter().map(decode).collect())
}

/// Nobody's, or damaged: a machine that lost power may have left anything.
fn decode(slot: &[u8; SLOT_BYTES]) -> Option<Owner> {
    let (body, checksum) = slot.split_last_chunk()?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let lease = match body[16] {
        0 => Lease::None,
        1 => Lease::Read,
        2 => Lease::Exclusive,
        _ => return None,
    };
    let owner = Owner {
        id: SessionId(*body.first_chunk()?),
        noted: Noted {
            lease,
            writes: body[17] != 0,
        },
        volume: body.get(VOLUME)?.try_into().ok()?,
    };
    Some(owner).filter(|owner| owner.noted != Noted::NOTHING)
}
