//! What must not run twice, over a crash. In this build outcomes live in memory only.
use base::{FileKind, FsError, Handle, Name, RequestId, SessionId, Timestamp};

pub(crate) type Key = (SessionId, RequestId, usize);

pub(crate) enum Past {
    NotDone,
    Unknown,
    Failed(FsError),
    Answered,
    Done {
        changed: Option<Timestamp>,
        written: Option<(u64, u64)>,
    },
}

pub(crate) enum Intent {
    Make {
        parent: Handle,
        name: Name,
        kind: FileKind,
        uid: u32,
    },
    Link {
        parent: Handle,
        name: Name,
        target: Handle,
    },
    Remove {
        parent: Handle,
        name: Name,
        victim: Option<Handle>,
    },
    Rename {
        parent: Handle,
        name: Name,
        to_parent: Handle,
        to_name: Name,
        exchange: bool,
        moved: Option<Handle>,
        replaced: Option<Handle>,
    },
    Append {
        file: Handle,
        size: u64,
        bytes: u64,
    },
}
impl Intent {
    pub(crate) fn make(parent: &Handle, name: &Name, kind: FileKind, uid: u32) -> Self {
        Self::Make {
            parent: parent.clone(),
            name: name.clone(),
            kind,
            uid,
        }
    }
}
#[derive(Default)]
pub(crate) struct Journal;
impl Journal {
    pub(crate) fn open(
        _: &std::path::Path,
        _: &crate::volume::Volumes,
    ) -> Result<Self, crate::data::DataError> {
        Ok(Self)
    }
    pub(crate) fn past(&self, _: Key) -> Past {
        Past::NotDone
    }
    pub(crate) fn begin(&self, _: Key, _: &Intent) {}
    pub(crate) fn end(&self, _: Key, _: Option<FsError>) {}
    pub(crate) fn finished(&self, _: SessionId, _: RequestId) {}
    pub(crate) fn settle(&self, _: SessionId, _: RequestId) {}
}
