//! What is answered when something is refused.

use super::Resource;
use super::book::{Rejected, failed};
use super::plan::{Instead, Short};
use super::servers::Trouble;
use meta::MetaError;
use reservation::Moment;
use wire::message::{
    ReserveError, ReserveOffer, ReserveOfferKind, ReserveReply, ReserveShort, Scarce,
};

pub(super) fn rejected(trouble: Trouble) -> Rejected {
    match trouble {
        Trouble::Short {
            store,
            wanted,
            room,
            ..
        } => Rejected::Short {
            short: Short::Space {
                store,
                wanted,
                room,
            },
            offers: Vec::new(),
        },
        Trouble::TooManyRevoked => failed(
            ReserveError::Limit,
            "a storage server remembers as many revoked tickets as it can; try again when the \
             windows of some are over",
        ),
        Trouble::Left(trouble) => rejected(*trouble),
        Trouble::Away { why, .. } | Trouble::Silent(why) => failed(ReserveError::Away, why),
        Trouble::Failed(why) => failed(ReserveError::Storage, why),
    }
}

/// What becomes of a question whose errand is under way for good, whatever has kept it: who asked
/// has nothing left to do.
pub(super) fn later(trouble: Trouble) -> ReserveReply {
    let why = match trouble {
        Trouble::Left(trouble) => return later(*trouble),
        Trouble::TooManyRevoked => {
            "a storage server remembers as many revoked tickets as it can".to_owned()
        }
        Trouble::Short { store, .. } => format!("store {store} lacks space"),
        Trouble::Away { why, .. } | Trouble::Silent(why) | Trouble::Failed(why) => why,
    };
    ReserveReply::Later {
        message: crate::admin::cut(why, base::limits::ADMIN_TEXT_BYTES_MAX),
    }
}

pub(crate) fn failure(code: ReserveError, why: impl Into<String>) -> ReserveReply {
    let message = crate::admin::cut(why.into(), base::limits::ADMIN_TEXT_BYTES_MAX);
    ReserveReply::Failed { code, message }
}

pub(crate) fn unavailable(error: &MetaError) -> ReserveReply {
    failure(ReserveError::Unavailable, format!("the ledger: {error}"))
}

pub(super) fn refusal(rejected: Rejected) -> ReserveReply {
    match rejected {
        Rejected::Failed(code, why) => failure(code, why),
        Rejected::Short { short, offers } => ReserveReply::Refused {
            short: scarce(short),
            offers: offers.iter().map(offer).collect(),
        },
    }
}

fn scarce(short: Short) -> ReserveShort {
    let (what, wanted, room, from) = match short {
        Short::Stores { wanted, room } => (Scarce::Stores, wanted, room, Moment::default()),
        Short::Space {
            store,
            wanted,
            room,
        } => (Scarce::Space(store), wanted, room, Moment::default()),
        Short::Of {
            resource,
            wanted,
            room,
            from,
        } => {
            let what = match resource {
                Resource::Device(store) => Scarce::Device(store),
                Resource::Line(server) => Scarce::Network(server),
            };
            (what, wanted, room, from)
        }
    };
    ReserveShort {
        what,
        wanted,
        room,
        from_secs: from.as_secs(),
    }
}

fn offer(instead: &Instead) -> ReserveOffer {
    let (kind, ask) = match instead {
        Instead::Later(ask) => (ReserveOfferKind::Later, ask),
        Instead::Earlier(ask) => (ReserveOfferKind::Earlier, ask),
        Instead::Slower(ask) => (ReserveOfferKind::Slower, ask),
    };
    ReserveOffer {
        kind,
        start_secs: ask.window.start().as_secs(),
        end_secs: ask.window.end().as_secs(),
        read_bytes_per_second: ask.read,
        write_bytes_per_second: ask.write,
    }
}
