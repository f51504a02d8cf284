//! Which sessions have leases, and which volumes they use, on disk.
//!
//! ```text
//! sessions    slots of 32 bytes:
//!             name 16 | lease u8 | zeros 3 | volume 4 | zeros 4 | crc32c u32 of these
//! ```
//! A session has a slot from its first lease on, which says the best lease that it was ever given,
//! and the first bytes of the identity of the volume that it had entered by then, zeros if that is
//! not known: a mount that is idle over a restart has its volume still mounted.
//! A slot is written before the lease is, into the page cache, a microsecond each: it survives
//! `kill -9`. When a machine starts anew, its time has mostly run out. Drawn in
//! `docs/formats/server-data.md`.

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
    volume: Tag,
}

impl Notes {
    /// Nothing is noted.
    pub(crate) fn none() -> Self {
        Self {
            file: None,
            slots: Mutex::default(),
        }
    }

    /// The notes in a data directory, and what the run before has left there: its sessions, each
    /// with the best lease that it had.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub(crate) fn open(directory: &Path) -> Result<(Self, Vec<(SessionId, Lease)>), DataError> {
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
        let slots = found
            .iter()
            .map(|slot| slot.map(|(owner, _)| owner))
            .collect();
        let notes = Self {
            file: Some(file),
            slots: Mutex::new(Slots {
                owners: slots,
                refuses_until: None,
            }),
        };
        let former = found.into_iter().flatten();
        let former = former.map(|(owner, lease)| (owner.id, lease));
        Ok((notes, former.collect()))
    }

    /// As it is on a disk that takes nothing.
    #[cfg(test)]
    pub(super) fn read_only(mut self, directory: &Path) -> Self {
        self.file = Some(File::open(directory.join("sessions")).unwrap());
        self
    }

    /// Notes that a session has such a lease, unless that is known. Whether it may be given: what
    /// cannot be noted must not.
    pub(super) fn raise(&self, session: &Session, lease: Lease) -> bool {
        if lease <= session.noted() {
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
        let lease = lease.max(session.noted());
        let own = place_of(owners, session.id);
        let noted = own.and_then(|place| owners[place]);
        let noted = noted.map(|owner| owner.volume);
        let noted = noted.filter(|volume| *volume != NO_VOLUME);
        let owner = Owner {
            id: session.id,
            volume: noted.unwrap_or_else(|| session.entered().map_or(NO_VOLUME, tag)),
        };
        let free = || owners.iter().position(Option::is_none);
        let place = own.or_else(free).unwrap_or(owners.len());
        let written = match place < SLOTS_MAX {
            true => write(file, place, owner, lease),
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
        session.set_noted(lease);
        true
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
            let owner = Owner {
                id: *id,
                volume: NO_VOLUME,
            };
            if let Err(error) = write(file, place, owner, Lease::None) {
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

fn write(file: &File, place: usize, owner: Owner, lease: Lease) -> io::Result<()> {
    let mut slot = [0; SLOT_BYTES];
    slot[..16].copy_from_slice(&owner.id.0);
    slot[16] = lease as u8;
    slot[VOLUME].copy_from_slice(&owner.volume);
    let checksum = crc32c::crc32c(&slot[..SLOT_BYTES - 4]);
    slot[SLOT_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    file.write_all_at(&slot, (place * SLOT_BYTES) as u64)
}

fn read(file: &File) -> io::Result<Vec<Option<(Owner, Lease)>>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length.min(SLOTS_MAX * SLOT_BYTES)];
    file.read_exact_at(&mut bytes, 0)?;
    let slots = bytes.as_chunks::<SLOT_BYTES>().0;
    Ok(slots.iter().map(decode).collect())
}

/// Nobody's, or damaged: a machine that lost power may have left anything.
fn decode(slot: &[u8; SLOT_BYTES]) -> Option<(Owner, Lease)> {
    let (body, checksum) = slot.split_last_chunk()?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let lease = match body[16] {
        1 => Lease::Read,
        2 => Lease::Exclusive,
        _ => return None,
    };
    let owner = Owner {
        id: SessionId(*body.first_chunk()?),
        volume: body.get(VOLUME)?.try_into().ok()?,
    };
    Some((owner, lease))
}
