//! Images and their repositories: what their errors mean for the user.

use super::{Code, Failure, plain_io};
use crate::output;
use ::disk::source::{FetchError, Refusal, SourceError};
use ::disk::{Damage, DiskError};
use std::io;
use std::path::Path;

impl From<DiskError> for Failure {
    fn from(error: DiskError) -> Self {
        // Places and names come from others.
        let message = output::plain(&error.to_string());
        match error {
            DiskError::Source(error) => error.into(),
            DiskError::Fetch(error) => error.into(),
            DiskError::Damaged { damage, .. } => damaged(message, damage),
            DiskError::Untrusted { key, .. } => Self::new(Code::DiskUntrusted, message).hint(
                format!("if the publisher says that this key is theirs: --key {key}"),
            ),
            DiskError::Name(_)
            | DiskError::Tag(_)
            | DiskError::Profile(_)
            | DiskError::NoCache
            | DiskError::TooManyProfiles(_)
            | DiskError::ChunkBytes(_)
            | DiskError::ImageTooLong(_) => Self::new(Code::DiskInvalid, message),
            DiskError::NoProfile(_) | DiskError::NotKept(_) => {
                Self::new(Code::DiskNotFound, message)
            }
            DiskError::Changed(_) => Self::new(Code::DiskChanged, message),
            DiskError::Busy { path, seconds } => busy(&path, seconds),
            DiskError::File {
                action,
                path,
                source,
            } => file(action, &path, &source),
            DiskError::Bucket { .. } => Self::new(Code::DiskRepository, message),
            DiskError::OnlyInDirectory { .. } => Self::new(Code::DiskRepository, message)
                .hint("copy the bucket into a directory, or leave it: nothing is in the way"),
            DiskError::Contested { .. } => Self::new(Code::DiskBusy, message)
                .hint("nothing was lost; the same command again does it"),
            DiskError::Device(error) => error.into(),
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let code = match error.refusal {
            Refusal::NotFound => Code::DiskNotFound,
            Refusal::TooLong { .. } | Refusal::TooShort(_) => Code::DiskDamaged,
            Refusal::Status(_)
            | Refusal::Address(_)
            | Refusal::Unavailable { .. }
            | Refusal::Failed(_) => Code::DiskRepository,
        };
        Self::new(code, output::plain(&error.to_string()))
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        let message = output::plain(&error.to_string());
        match error {
            FetchError::Source(error) => error.into(),
            FetchError::Damaged { damage, .. } => damaged(message, damage),
        }
    }
}

fn damaged(message: String, damage: Damage) -> Failure {
    let failure = Failure::new(Code::DiskDamaged, message);
    match damage {
        Damage::Newer(_) => failure.hint("use that release or a later one; nothing was changed"),
        Damage::OtherCompression(_) => failure.hint("make it anew with `azekura disk publish`"),
        Damage::Foreign => {
            failure.hint("it was made for another version; the page of this code says more")
        }
        _ => failure,
    }
}

fn busy(path: &Path, seconds: u64) -> Failure {
    let path = output::plain(&path.to_string_lossy());
    let waited = match seconds {
        0 => String::new(),
        _ => format!("; waited {seconds} s"),
    };
    Failure::new(Code::DiskBusy, format!("{path} is in use{waited}"))
}

fn file(action: &str, path: &Path, error: &io::Error) -> Failure {
    let path = output::plain(&path.to_string_lossy());
    let message = format!("cannot {action} {path}: {}", plain_io(error));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Failure::new(Code::NoSpace, message)
        }
        io::ErrorKind::NotFound if action.contains("repository") => {
            Failure::new(Code::DiskRepository, message)
                .hint("is the path right? `azekura disk publish` makes a repository")
        }
        _ => Failure::new(Code::Local, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_reason_chooses_the_code() {
        let tag: std::result::Result<::disk::Tag, _> = "base".parse();
        let name = Failure::from(tag.expect_err("no label"));
        expect![[r#"
            error: "base" is no name of an image: image:label, of letters, digits and . _ -
              hint: `azekura disk --help` says how images are named
              code: AZ1005 (docs/errors/AZ1005.md)"#]]
        .assert_eq(&name.to_string());
        let source = |refusal| SourceError {
            file: ::disk::FileName::new("tags/base@1.azt").expect("a name"),
            place: "http://far/\u{1b}[2J".to_owned(),
            refusal,
        };
        let code = |refusal| Failure::from(DiskError::from(source(refusal))).code();
        assert_eq!(code(Refusal::NotFound), Code::DiskNotFound);
        assert_eq!(code(Refusal::Status(403)), Code::DiskRepository);
        assert_eq!(code(Refusal::TooLong { bytes_max: 1 }), Code::DiskDamaged);
        let shown = Failure::from(source(Refusal::NotFound)).to_string();
        assert!(!shown.contains('\u{1b}'), "{shown}");
        let full = DiskError::File {
            action: "write",
            path: "chunk".into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        assert_eq!(Failure::from(full).code(), Code::NoSpace);
        let newer = DiskError::Damaged {
            place: "a tag".to_owned(),
            damage: Damage::Newer(9),
        };
        assert!(Failure::from(newer).hint_text().contains("release"));
    }
}
