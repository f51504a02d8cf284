//! What a disk can do wrong.

use crate::Random;
use base::DeviceAction;
use std::io;

/// An operation that does not go as it should. See [`CrashDisk::arm`](super::CrashDisk::arm).
#[derive(Clone, Debug)]
pub struct Fault {
    action: DeviceAction,
    /// Operations of this kind that still go well.
    left: u64,
    lasts: bool,
    effect: Effect,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The operation fails and nothing of it is done. A flush that fails leaves everything that
    /// was not yet durable in doubt, for ever.
    Fails(Failure),
    /// A write or trim fails and some of its sectors, by chance, are changed nevertheless. Other
    /// actions: as [`Self::Fails`].
    FailsHalfway(Failure, Random),
    /// A write, trim or flush says that it succeeded and does nothing; a read goes well.
    Lies,
    /// A read returns one bit, by chance, the wrong way; the medium is as it was. Other actions go
    /// well.
    FlipsBit(Random),
}

/// The system's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// As `EIO`.
    InputOutput,
    /// As `ENOSPC`: a sparse file, or a device of thin provision.
    NoSpace,
}

impl Failure {
    pub(super) fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::InputOutput => 5,
            Self::NoSpace => 28,
        })
    }
}

impl Fault {
    /// Operation `nth` of the kind `action`, counted from now and from 0, goes wrong; the others do
    /// not.
    #[must_use]
    pub fn once(action: DeviceAction, nth: u64, effect: Effect) -> Self {
        Self {
            action,
            left: nth,
            lasts: false,
            effect,
        }
    }

    /// It and all after it.
    #[must_use]
    pub fn from(action: DeviceAction, nth: u64, effect: Effect) -> Self {
        Self {
            lasts: true,
            ..Self::once(action, nth, effect)
        }
    }
}

/// The effect on an operation that is about to be carried out, from the faults that are armed. The
/// one armed first goes first; each counts operations for itself.
pub(super) fn strike(faults: &mut Vec<Fault>, action: DeviceAction) -> Option<Effect> {
    let mut effect = None;
    faults.retain_mut(|fault| {
        if fault.action != action {
            return true;
        }
        if fault.left > 0 {
            fault.left -= 1;
            return true;
        }
        if effect.is_none() {
            // A fork, so that a fault that lasts does not tear or flip at the same place always.
            effect = Some(match &mut fault.effect {
                Effect::FailsHalfway(failure, random) => {
                    Effect::FailsHalfway(*failure, random.fork())
                }
                Effect::FlipsBit(random) => Effect::FlipsBit(random.fork()),
                other => other.clone(),
            });
        }
        fault.lasts
    });
    effect
}
