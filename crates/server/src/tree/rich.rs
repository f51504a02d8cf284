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

/// An edit, and what is left to be done about it.
pub(crate) struct Edited {
    pub(crate) after: Attributes,
    /// What is still to be written down. Of a parallel volume it is, with the edit.
    pub(crate) to_note: Option<Edit>,
}

/// How an edit is said in words.
pub(crate) type Words<'a> = &'a dyn Fn(&Edit) -> String;

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
        words: Words<'_>,
    ) -> Result<Edited, FsError> {
        match self {
            Self::Export(export) => {
                let (after, to_note) = export.set_acl(by.worker, by.who, handle, value)?;
                Ok(Edited { after, to_note })
            }
            Self::Parallel(parallel) => {
                let list = read(value)?;
                let after = (parallel.names).set_acl(by.turn, by.who, handle, &list, words)?;
                Ok(Edited {
                    after,
                    to_note: None,
                })
            }
        }
    }

    /// Takes the rich ACL of a file away.
    pub(crate) fn remove_acl(
        &self,
        by: By<'_>,
        handle: &Handle,
        words: Words<'_>,
    ) -> Result<Edited, FsError> {
        match self {
            Self::Export(export) => {
                let (after, to_note) = export.remove_acl(by.worker, by.who, handle)?;
                Ok(Edited { after, to_note })
            }
            Self::Parallel(parallel) => {
                let after = (parallel.names).remove_acl(by.turn, by.who, handle, words)?;
                Ok(Edited {
                    after,
                    to_note: None,
                })
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
