//! Rich ACLs of a volume's files, whatever they lie in.

use super::{By, Tree};
use ::acl::{Edit, Explained, RichAcl};
use base::{Attributes, FsError, Handle, Principal};

/// What was done with rich ACLs since the volume was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RichFigures {
    /// Made of POSIX ACLs to be shown.
    pub(crate) views: u64,
    /// Decisions by them.
    pub(crate) judged: u64,
    /// Of these, refusals.
    pub(crate) refused: u64,
    /// Files of which it is in memory whether they have one; of a parallel volume, lists that do
    /// not lie in the inodes.
    pub(crate) kept: u64,
}

/// How an edit is written down: of an export before it is made, of a parallel volume with it.
#[derive(Clone, Copy)]
pub(crate) struct Noting<'a> {
    pub(crate) note: &'a dyn Fn(&Edit) -> Result<(), FsError>,
    pub(crate) words: &'a dyn Fn(&Edit) -> String,
}

impl Tree {
    /// Whether rich ACLs are on.
    pub(crate) fn is_rich(&self) -> bool {
        match self {
            Self::Export(export) => export.is_rich(),
            Self::Parallel(parallel) => parallel.names.is_rich(),
        }
    }

    pub(crate) fn set_rich(&self, is_on: bool) {
        match self {
            Self::Export(export) => export.set_rich(is_on),
            Self::Parallel(parallel) => parallel.names.set_rich(is_on),
        }
    }

    pub(crate) fn rich_figures(&self) -> RichFigures {
        match self {
            Self::Export(export) => {
                let figures = export.rich_figures();
                RichFigures {
                    views: figures.views,
                    judged: figures.judged,
                    refused: figures.refused,
                    kept: figures.kept,
                }
            }
            Self::Parallel(parallel) => {
                let figures = parallel.names.rich_figures();
                RichFigures {
                    views: figures.views,
                    judged: figures.judged,
                    refused: figures.refused,
                    kept: figures.kept,
                }
            }
        }
    }

    /// Sets the rich ACL of a file; `value` is that of `system.nfs4_acl`, `read` makes a list of
    /// it.
    pub(crate) fn set_acl(
        &self,
        by: By<'_>,
        handle: &Handle,
        value: &[u8],
        read: impl FnOnce(&[u8]) -> Result<RichAcl, FsError>,
        noting: Noting<'_>,
    ) -> Result<Attributes, FsError> {
        match self {
            Self::Export(export) => {
                let set = export.set_acl(by.worker, by.who, handle, value, noting.note);
                set.map(|(after, _)| after)
            }
            Self::Parallel(parallel) => {
                let list = read(value)?;
                (parallel.names).set_acl(by.turn, by.who, handle, &list, noting.words)
            }
        }
    }

    /// Takes the rich ACL of a file away.
    pub(crate) fn remove_acl(
        &self,
        by: By<'_>,
        handle: &Handle,
        noting: Noting<'_>,
    ) -> Result<Attributes, FsError> {
        match self {
            Self::Export(export) => {
                let removed = export.remove_acl(by.worker, by.who, handle, noting.note);
                removed.map(|(after, _)| after)
            }
            Self::Parallel(parallel) => {
                (parallel.names).remove_acl(by.turn, by.who, handle, noting.words)
            }
        }
    }

    /// Whether `who` may do all of `rights` with an inode, and why; `directory` is where its name
    /// is.
    pub(crate) fn explain(
        &self,
        by: By<'_>,
        asked: (&Handle, Option<&Handle>),
        who: &Principal,
        rights: ::acl::Rights,
    ) -> Result<Explained, FsError> {
        match self {
            Self::Export(export) => export.explain(by.worker, by.who, asked, who, rights),
            Self::Parallel(parallel) => {
                (parallel.names).explain(by.turn, by.who, asked, who, rights)
            }
        }
    }
}
