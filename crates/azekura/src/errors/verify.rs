//! Crash runs and speed runs: what their errors mean for the user.

use super::{Code, Failure};
use ::verify::actor::ActorError;
use ::verify::crash::CrashError;
use ::verify::powercut::PowercutError;
use ::verify::speed::SpeedError;
use base::ByteSize;
use std::io;

/// What says how much room a speed run needs.
const ROOM: &str = "--size, --char-size and --files say how much is written, --scratch where";

impl From<CrashError> for Failure {
    fn from(error: CrashError) -> Self {
        // Tools and logs say what they like.
        let message = crate::output::plain(&error.to_string());
        match error {
            CrashError::NoTool { package, .. } => {
                Self::new(Code::CrashNeeds, message).hint(format!("apt-get install {package}"))
            }
            CrashError::Actor(error) => error.into(),
            CrashError::Stuck { source, again, .. } => {
                let again = crate::output::plain(&format!("again: {again}"));
                Self::new(Self::from(*source).code(), message).hint(again)
            }
            CrashError::Device(_) => Self::new(Code::CrashStuck, message)
                .hint("fewer or shorter steps write less; the page of this code has the bounds"),
            CrashError::Invalid(_) => Self::new(Code::Internal, message),
            CrashError::Keep { .. } | CrashError::States(_) => Self::new(Code::Local, message),
            CrashError::Workload(_)
            | CrashError::Log { .. }
            | CrashError::Second(_)
            | CrashError::Subject(_)
            | CrashError::MountOptions(_)
            | CrashError::NoState(_) => Self::new(Code::CrashInvalid, message),
        }
    }
}

impl From<ActorError> for Failure {
    fn from(error: ActorError) -> Self {
        Self::new(Code::CrashStuck, crate::output::plain(&error.to_string()))
    }
}

impl From<SpeedError> for Failure {
    fn from(error: SpeedError) -> Self {
        let message = crate::output::without_numbers(&error.to_string());
        let message = crate::output::plain(&message);
        match error {
            SpeedError::NoTool { package, .. } => {
                Self::new(Code::CrashNeeds, message).hint(format!("apt-get install {package}"))
            }
            SpeedError::NoRoot(_) => Self::new(Code::CrashNeeds, message).hint(
                "as this user a directory can be measured: --target DIR/ without --memory, \
                 --flush-time and --set",
            ),
            SpeedError::Busy => Self::new(Code::SpeedBusy, message),
            SpeedError::Directory { path, source } => {
                let code = match source.kind() {
                    io::ErrorKind::NotFound => Code::FileNotFound,
                    _ => Code::Local,
                };
                let (path, why) = (path.display(), super::plain_io(&source));
                Self::new(code, crate::output::plain(&format!("{path}: {why}")))
            }
            SpeedError::NoDisk { parameter, .. } => {
                let hint = "its other partitions would have it, too: name the whole disk";
                Self::new(Code::CrashInvalid, message)
                    .hint(format!("{hint}, or leave --set {parameter} out"))
            }
            SpeedError::NoRoom { path, needed, free } => {
                let (path, needed, free) = (path.display(), ByteSize(needed), ByteSize(free));
                let message = format!("{path}: {needed} are needed and {free} are free");
                Self::new(Code::NoSpace, crate::output::plain(&message)).hint(ROOM)
            }
            SpeedError::Full(_) => Self::new(Code::NoSpace, message).hint(ROOM),
            SpeedError::Program(_) => Self::new(Code::SpeedFailed, message),
            SpeedError::Actor(error) => error.into(),
        }
    }
}

impl From<PowercutError> for Failure {
    fn from(error: PowercutError) -> Self {
        let message = crate::output::without_numbers(&error.to_string());
        let message = crate::output::plain(&message);
        match error {
            PowercutError::NoTool { package, .. } => {
                Self::new(Code::CrashNeeds, message).hint(format!("apt-get install {package}"))
            }
            PowercutError::Kernel(_) => Self::new(Code::PowercutKernel, message),
            PowercutError::Guest(_) => Self::new(Code::PowercutGuest, message),
            PowercutError::State { .. } => Self::new(Code::PowercutState, message),
            PowercutError::NoRoom { path, needed, free } => {
                let (path, needed, free) = (path.display(), ByteSize(needed), ByteSize(free));
                let message = format!("{path}: {needed} are needed and {free} are free");
                Self::new(Code::NoSpace, crate::output::plain(&message))
                    .hint("--size and --jobs say how much is needed, --scratch where")
            }
            PowercutError::Local { path, source } => {
                let code = match source.kind() {
                    io::ErrorKind::StorageFull => Code::NoSpace,
                    _ => Code::Local,
                };
                let (path, why) = (path.display(), super::plain_io(&source));
                Self::new(code, crate::output::plain(&format!("{path}: {why}")))
            }
            PowercutError::Interrupted => Self::interrupted(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_missing_tool_is_named_with_its_package() {
        let failure = Failure::from(CrashError::NoTool {
            program: "mkfs.xfs",
            package: "xfsprogs",
        });
        expect![[r#"
            error: mkfs.xfs is not installed
              hint: apt-get install xfsprogs
              code: AZ1202 (docs/errors/AZ1202.md)"#]]
        .assert_eq(&failure.to_string());
    }

    #[test]
    fn what_does_not_go_on_is_told_from_what_cannot_be_used() {
        let code = |error: CrashError| Failure::from(error).code();
        assert_eq!(code(ActorError::Ended.into()), Code::CrashStuck);
        let stuck = CrashError::Stuck {
            source: Box::new(ActorError::Ended.into()),
            state: "3/prefix:1".into(),
            workload: "pages".into(),
            log: "whose log is /x/ext4-pages.azkc".into(),
            again: "azekura verify crash --replay /x/ext4-pages.azkc".into(),
        };
        let stuck = Failure::from(stuck);
        assert_eq!(stuck.code(), Code::CrashStuck);
        assert!(
            stuck
                .message()
                .ends_with("tried, whose log is /x/ext4-pages.azkc")
        );
        assert!(stuck.hint_text().starts_with("again: azekura verify"));
        let none = CrashError::NoState("3/prefix:1".into());
        assert_eq!(code(none), Code::CrashInvalid);
        let shown = Failure::from(CrashError::Subject("\u{1b}[2J".into())).to_string();
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}
