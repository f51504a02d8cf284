//! Which entry decides whether somebody may do something with a file: what of it [`acl::Asked`] is
//! to be asked about.

use super::{RichFile, target_of};
use crate::export::Export;
use crate::stat::stat;
use crate::worker::Worker;
use acl::{Asked, Explained, Judged, PosixAcl, PosixFile, Rights};
use base::{Attributes, FsError, Handle, Principal};
use rustix::fd::AsFd;

/// What decides about an inode, and its attributes.
struct Found {
    rich: Option<RichFile>,
    access: Option<PosixAcl>,
    attributes: Attributes,
}

impl Found {
    fn asked(&self) -> Asked<'_> {
        let attributes = &self.attributes;
        let by = match &self.rich {
            Some(rich) => Judged::Rich(rich.list.as_deref()),
            None => Judged::Posix(PosixFile {
                uid: attributes.uid,
                gid: attributes.gid,
                mode: attributes.mode & 0o777,
                access: self.access.as_ref(),
            }),
        };
        Asked {
            by,
            target: target_of(attributes),
            mode: attributes.mode,
        }
    }
}

impl Export {
    /// Whether `who` may do all of `wanted` with an inode, and why. `directory` is where it has its
    /// name, and is asked about removal.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] if who asks may not read the ACL; else as [`Export::attributes`].
    pub fn explain(
        &self,
        worker: &Worker,
        asks: &Principal,
        (handle, directory): (&Handle, Option<&Handle>),
        who: &Principal,
        wanted: Rights,
    ) -> Result<Explained, FsError> {
        let caller = worker.assume(asks)?;
        let pin = self.resolve(&caller, handle)?;
        let found = self.found(handle, &*pin)?;
        if let Some(rich) = &found.rich {
            self.judge_rich(rich, asks, Rights::READ_ACL)?;
        }
        let removes = wanted.contains(Rights::DELETE);
        let holder = match directory.filter(|_| removes) {
            Some(directory) => {
                let pin = self.resolve(&caller, directory)?;
                Some(self.found(directory, &*pin)?)
            }
            None => None,
        };
        let holder = holder.as_ref().map(Found::asked);
        Ok(found.asked().explain(holder.as_ref(), who, wanted))
    }

    fn found(&self, handle: &Handle, fd: impl AsFd) -> Result<Found, FsError> {
        let fd = fd.as_fd();
        let rich = self.rich_file(handle, fd)?;
        let attributes = match &rich {
            Some(rich) => rich.attributes.clone(),
            None => stat(fd)?.attributes,
        };
        let value = match &rich {
            Some(_) => None,
            None => self.read_own(fd, "system.posix_acl_access")?,
        };
        let access = match value {
            Some(value) => PosixAcl::from_xattr(&value).map_err(|_| FsError::Io)?,
            None => None,
        };
        Ok(Found {
            rich,
            access,
            attributes,
        })
    }
}
