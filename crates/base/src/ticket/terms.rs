//! What a ticket says.

use crate::limits::{TICKET_PATH_BYTES_MAX, TICKET_SLICES_MAX};
use crate::{ClusterId, Name, ServerId, StoreId, TicketId, VolumeId};
use std::fmt;

/// All of a device's time, in millionths.
const WHOLE_PPM: u32 = 1_000_000;

/// What stays the same however a ticket is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How it is treated when there is not enough for all.
    pub class: Class,
    /// The cluster of whose manager it is.
    pub cluster: ClusterId,
    /// The server that it is for.
    pub server: ServerId,
    /// The reservation's number; the same at all servers.
    pub id: TicketId,
    /// Number of the manager's decisions that it belongs to; what is older than the server's is
    /// revoked.
    pub epoch: u64,
    /// The user whose it is, as the cluster numbers them.
    pub holder: u64,
    /// The volume that it is for.
    pub volume: VolumeId,
    /// Which of the server's keys its code is under; set when it is issued.
    pub key_id: u32,
}

/// How a ticket is treated when devices fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Its share shrinks with what is left.
    Standard = 0,
    /// Room was kept for it elsewhere.
    Assured = 1,
}

/// What may be done with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operations(u8);

impl Operations {
    /// Reading.
    pub const READ: Self = Self(1);
    /// Writing, which includes making objects.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const READ_WRITE: Self = Self(3);

    /// Whether all of `other` may be done.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    /// `None` for nothing at all and for bits without a meaning.
    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        matches!(bits, 1..=3).then_some(Self(bits))
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "read",
            2 => "write",
            _ => "read and write",
        })
    }
}

/// What one device of the server gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The device, by the store on it.
    pub device: StoreId,
    /// Share of its time, in millionths.
    pub share_ppm: u32,
    /// Bytes in a row that lie on it; zero for what is not striped.
    pub stripe_unit_bytes: u32,
    /// Allocation units that may be drawn.
    pub au_budget: u64,
}

/// What a ticket allows. Each part of a ticket has terms within those of the part before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What may be done.
    pub operations: Operations,
    /// For how long an idle share is saved, in milliseconds.
    pub burst_millis: u32,
    /// Its first second, in seconds since 1970 (UTC).
    pub start_secs: u64,
    /// The second that it does not have any more; the largest number means never.
    pub end_secs: u64,
    /// The latest end of objects that are made with it.
    pub lifetime_end_secs: u64,
    /// What each device gives, by ascending device.
    pub slices: Vec<Slice>,
    /// The directory within the volume to which it is restricted, names with slashes between them;
    /// empty for the whole volume.
    pub path: Vec<u8>,
}

/// Something that a part of a ticket must not have more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coordinate {
    /// What may be done.
    Operations,
    /// The burst.
    Burst,
    /// The start or the end.
    Window,
    /// The end of objects.
    Lifetime,
    /// A device that was not there, or with another stripe unit.
    Devices,
    /// A device's share.
    Share,
    /// A device's allocation units.
    Space,
    /// The path.
    Path,
}

impl fmt::Display for Coordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operations => "the set of operations",
            Self::Burst => "the burst",
            Self::Window => "the window of time",
            Self::Lifetime => "the lifetime of objects",
            Self::Devices => "the set of devices",
            Self::Share => "a device's share",
            Self::Space => "a device's space",
            Self::Path => "the path",
        })
    }
}

impl Terms {
    /// Whether a ticket can have these terms: an interval with a second in it, one to
    /// [`TICKET_SLICES_MAX`] slices by ascending device with shares up to the whole, and a path of
    /// names.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let is_share = |slice: &Slice| slice.share_ppm <= WHOLE_PPM;
        let ascend = |pair: &[Slice]| pair[0].device < pair[1].device;
        self.start_secs < self.end_secs
            && (1..=TICKET_SLICES_MAX).contains(&self.slices.len())
            && self.slices.iter().all(is_share)
            && self.slices.windows(2).all(ascend)
            && is_path(&self.path)
    }

    /// Whether a path of the volume lies where the ticket is good: the ticket's own path or below.
    #[must_use]
    pub fn covers(&self, path: &[u8]) -> bool {
        match path.strip_prefix(&self.path[..]) {
            Some(rest) => self.path.is_empty() || rest.is_empty() || rest[0] == b'/',
            None => false,
        }
    }

    /// Whether nothing of this is more than in `parent`, or what is.
    pub(super) fn within(&self, parent: &Self) -> Result<(), Coordinate> {
        let in_window = self.start_secs >= parent.start_secs && self.end_secs <= parent.end_secs;
        let rules = [
            (
                parent.operations.contains(self.operations),
                Coordinate::Operations,
            ),
            (self.burst_millis <= parent.burst_millis, Coordinate::Burst),
            (in_window, Coordinate::Window),
            (
                self.lifetime_end_secs <= parent.lifetime_end_secs,
                Coordinate::Lifetime,
            ),
            (parent.covers(&self.path), Coordinate::Path),
        ];
        if let Some((_, coordinate)) = rules.into_iter().find(|(is_kept, _)| !is_kept) {
            return Err(coordinate);
        }
        self.slices.iter().try_for_each(|slice| {
            let same = |whole: &&Slice| whole.device == slice.device;
            let whole = parent.slices.iter().find(same).ok_or(Coordinate::Devices)?;
            if slice.stripe_unit_bytes != whole.stripe_unit_bytes {
                Err(Coordinate::Devices)
            } else if slice.share_ppm > whole.share_ppm {
                Err(Coordinate::Share)
            } else if slice.au_budget > whole.au_budget {
                Err(Coordinate::Space)
            } else {
                Ok(())
            }
        })
    }
}

/// Names with slashes between them, or nothing.
fn is_path(path: &[u8]) -> bool {
    let is_name = |part: &[u8]| Name::new(part).is_ok();
    path.len() <= TICKET_PATH_BYTES_MAX
        && (path.is_empty() || path.split(|byte| *byte == b'/').all(is_name))
}
