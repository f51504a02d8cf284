//! What to do about a question that a manager does not take: each cause has its remedy.

use crate::errors::{Code, Failure};
use wire::message::ReserveError;

/// Parts of a manager's words, and what to do then.
const REMEDIES: [(&str, &str); 21] = [
    (
        "a name has",
        "another --name, such as run42, or none: then one is made up",
    ),
    (
        "nothing is asked for",
        "--read RATE, --write RATE or --space SIZE",
    ),
    ("a rate is at most", "a lower --read or --write"),
    ("space is at most", "a smaller --space"),
    ("an idle share", "--burst 1s or less"),
    (
        "a window lasts",
        "a shorter --for or an earlier --until; or many windows: --every TIME --count N",
    ),
    (
        "a window begins at least",
        "a longer --every or a shorter window",
    ),
    (
        "more than ten years",
        "an earlier --until; what is needed after that is reserved later",
    ),
    ("year 9000", "an earlier --from and --until"),
    ("a lifetime is", "a shorter --lifetime"),
    ("named twice", "each store once with --on"),
    ("at most 64 stores", "--on at most 64 times"),
    (
        "windows are reserved at once",
        "a smaller --count; without space, `azekura reserve extend` lets a series go on later",
    ),
    (
        "does not come again",
        "--count 2 or more, or neither --every nor --count",
    ),
    (
        "ends after its start",
        "an --until after --from, or --for TIME",
    ),
    (
        "more than all of a device",
        "--unreserved and --background are at most 100 together; what is left out stays as it is",
    ),
    ("a line carries", "a lower --network"),
    (
        "not later than the present one",
        "an --until after the present end, which `azekura reserve show` says; `release` gives back \
         early",
    ),
    (
        "several windows with space",
        "`azekura reserve create` for the further windows",
    ),
    (
        "no further window",
        "an --until that is a whole --every after the last end, or later",
    ),
    (
        "more windows than are kept",
        "an earlier --until; a further series begins where this one ends",
    ),
];

/// The failure that a manager's answer is.
pub(super) fn failure(error: ReserveError, message: String) -> Failure {
    let code = match error {
        ReserveError::NoVolume => Code::NotFound,
        ReserveError::NotFound => Code::NoReservation,
        ReserveError::Exists | ReserveError::Invalid => Code::ReserveInvalid,
        ReserveError::Forbidden => Code::MayNotReserve,
        ReserveError::Over => Code::ReserveOver,
        ReserveError::InUse => Code::SpaceInUse,
        ReserveError::Unreservable => Code::Unreservable,
        ReserveError::Unavailable => Code::ManagerDown,
        ReserveError::Limit => Code::ServerLimit,
        ReserveError::Storage | ReserveError::Away => Code::StorageAway,
    };
    match (error, hint(error, &message)) {
        (ReserveError::Forbidden, Some(hint)) if hint == ALLOWED => {
            Failure::new(code, "this user may not reserve here").hint(hint)
        }
        (_, Some(hint)) => Failure::new(code, message).hint(hint),
        (_, None) => Failure::new(code, message),
    }
}

/// What to do for whoever may not reserve.
const ALLOWED: &str = "an administrator allows it: azekura reserve limits ADDR --allow UID";

fn hint(error: ReserveError, message: &str) -> Option<&'static str> {
    let hint = match error {
        ReserveError::Forbidden if message.contains("limits are set") => {
            "ask one of them; `azekura reserve limits ADDR` shows what is set"
        }
        ReserveError::Forbidden => ALLOWED,
        ReserveError::Exists if message.contains("there is a reservation") => {
            "another --name; or `azekura reserve cancel` gives that one back"
        }
        ReserveError::Exists => "ask again",
        ReserveError::Invalid => {
            let fits = |(part, _): &&(&str, &str)| message.contains(part);
            REMEDIES.iter().find(fits)?.1
        }
        ReserveError::Over if message.contains("the window is over") => {
            "a later --from, --until or --within; a clock time is the next one of this machine's \
             time zone"
        }
        ReserveError::Over => "reserve the time that is still needed: azekura reserve create",
        ReserveError::Limit if message.contains("windows are planned") => {
            "a smaller --count; a further series begins where this one ends"
        }
        ReserveError::Unreservable => return Some(unreservable(message)),
        ReserveError::Storage => {
            "ask again; if it fails again, `azekura status ADDR` and the servers' logs say more"
        }
        _ => return None,
    };
    Some(hint)
}

fn unreservable(message: &str) -> &'static str {
    if message.contains("no space") {
        "leave --space out; files of a parallel volume can have space"
    } else if message.contains("lie in no store") {
        "leave --on out; files of a parallel volume lie in stores"
    } else if message.contains("no store that could") || message.contains("and no store") {
        "name a volume, ADDR/VOLUME, or give the server a store: `azekura server --init`, --store"
    } else {
        "see to what the message says and ask again: then it is measured again"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_remedy_of_its_own() {
        let hint = |error, message: &str| failure(error, message.to_owned()).hint_text().to_owned();
        let invalid = |message| hint(ReserveError::Invalid, message);
        let of_limits = invalid("more than all of a device is kept back");
        assert!(of_limits.contains("at most 100"), "{of_limits}");
        let not_later = invalid("the new end is not later than the present one");
        assert!(not_later.contains("--until"), "{not_later}");
        assert!(invalid("a window lasts at most ten years").contains("--every"));
        assert!(invalid("1 to 3660 windows are reserved at once").contains("--count"));
        let taken = hint(ReserveError::Exists, "there is a reservation \"a\" already");
        assert!(taken.contains("--name"), "{taken}");
        let limits = hint(ReserveError::Forbidden, "limits are set by administrators");
        assert!(!limits.contains("--allow"), "{limits}");
        let may_not = failure(
            ReserveError::Forbidden,
            "an administrator has to".to_owned(),
        );
        assert!(may_not.hint_text().contains("--allow") && may_not.message().contains("may not"));
        assert!(!hint(ReserveError::Over, "its window is over").is_empty());
        let storage = failure(ReserveError::Storage, "a store did not answer".to_owned());
        assert!(storage.hint_text().contains("ask again") && storage.code() == Code::StorageAway);
        let away = failure(ReserveError::Away, "storage server 1 is away".to_owned());
        assert!(away.hint_text().contains("azekura status"), "{away}");
        assert_eq!(away.code(), Code::StorageAway);
        let many = failure(ReserveError::Limit, "windows are planned".to_owned());
        assert!(many.hint_text().contains("--count"), "{many}");
    }

    #[test]
    fn a_name_with_a_word_in_it_is_no_volume() {
        let lost = "there is no reservation \"volume1\"".to_owned();
        let lost = failure(ReserveError::NotFound, lost);
        assert_eq!(lost.code(), Code::NoReservation);
        let nowhere = failure(
            ReserveError::NoVolume,
            "there is no volume \"a\"".to_owned(),
        );
        assert_eq!(nowhere.code(), Code::NotFound);
    }
}
