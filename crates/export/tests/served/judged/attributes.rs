//! Attributes, plain and extended, and what a user may do.

use super::{ALICE, BOB, OTHERS, Outcome, STAFF, Side, done, sorted};
use base::{AttributeChange, SetTime, Timestamp};
use export::{Rights, XattrMode};
use rustix::fs::{
    Access, AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Chmod(u16),
    Chown(Option<u32>, Option<u32>),
    Times(Option<SetTime>, Option<SetTime>),
    MayDo {
        read: bool,
        write: bool,
        execute: bool,
    },
    Attributes,
    SetXattr(&'static str, &'static [u8]),
    SetAcl,
    GetXattr(&'static str),
    ListXattrs,
    RemoveXattr(&'static str),
}

const OLD: SetTime = SetTime::To(Timestamp {
    seconds: 1_000_000_000,
    nanos: 123_456_789,
});
const ACL: &str = "system.posix_acl_access";
/// `cap_net_bind_service=ep`, version 2.
const CAPABILITY: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

impl Op {
    pub(super) fn all() -> Vec<Self> {
        let owners = [
            (Some(BOB), None),
            (None, Some(STAFF)),
            (None, Some(OTHERS)),
            (Some(ALICE), Some(STAFF)),
        ];
        let now = Some(SetTime::Now);
        let times = [
            (now, now),
            (Some(OLD), Some(OLD)),
            (None, Some(OLD)),
            (now, None),
        ];
        let mut all = vec![
            Self::Attributes,
            Self::SetXattr("user.colour", b"blue"),
            Self::SetXattr("trusted.colour", b"blue"),
            Self::SetXattr("security.capability", CAPABILITY),
            Self::SetAcl,
            Self::GetXattr("user.there"),
            Self::GetXattr("user.missing"),
            Self::GetXattr(ACL),
            Self::ListXattrs,
            Self::RemoveXattr("user.there"),
            Self::RemoveXattr(ACL),
        ];
        all.extend([0o644, 0o4755, 0o2755, 0o7777].map(Self::Chmod));
        all.extend(owners.map(|(uid, gid)| Self::Chown(uid, gid)));
        all.extend(times.map(|(accessed, modified)| Self::Times(accessed, modified)));
        for bits in [0, 1, 2, 4, 7] {
            let [read, write, execute] = [bits & 4 != 0, bits & 2 != 0, bits & 1 != 0];
            all.push(Self::MayDo {
                read,
                write,
                execute,
            });
        }
        all
    }

    pub(super) fn locally(self, base: &Path) -> Result<String, Errno> {
        let file = base.join("d/f");
        match self {
            Self::Chmod(mode) => done(rustix::fs::chmod(file, Mode::from_raw_mode(mode.into()))),
            Self::Chown(uid, gid) => done(rustix::fs::chown(
                file,
                uid.map(Uid::from_raw),
                gid.map(Gid::from_raw),
            )),
            Self::Times(accessed, modified) => {
                let times = Timestamps {
                    last_access: spec(accessed),
                    last_modification: spec(modified),
                };
                done(rustix::fs::utimensat(CWD, file, &times, AtFlags::empty()))
            }
            Self::MayDo {
                read,
                write,
                execute,
            } => {
                let mut wanted = Access::empty();
                wanted.set(Access::READ_OK, read);
                wanted.set(Access::WRITE_OK, write);
                wanted.set(Access::EXEC_OK, execute);
                done(rustix::fs::access(file, wanted))
            }
            Self::Attributes => {
                let stat = rustix::fs::lstat(file)?;
                Ok(format!(
                    "{} {} {}",
                    stat.st_mode & 0o7777,
                    stat.st_uid,
                    stat.st_gid
                ))
            }
            Self::SetXattr(name, value) => {
                done(rustix::fs::setxattr(file, name, value, XattrFlags::empty()))
            }
            Self::SetAcl => done(rustix::fs::setxattr(
                file,
                ACL,
                &acl_value(),
                XattrFlags::empty(),
            )),
            Self::GetXattr(name) => {
                let mut value = vec![0; 1024];
                let len = rustix::fs::getxattr(file, name, &mut value)?;
                Ok(format!("{:?}", &value[..len]))
            }
            Self::ListXattrs => {
                let mut list = vec![0; 1024];
                let len = rustix::fs::listxattr(file, &mut list)?;
                let names = list[..len]
                    .split(|b| *b == 0)
                    .filter(|name| !name.is_empty());
                Ok(sorted(names.map(<[u8]>::to_vec)))
            }
            Self::RemoveXattr(name) => done(rustix::fs::removexattr(file, name)),
        }
    }

    pub(super) fn served(self, side: &Side<'_>) -> Outcome {
        let (export, worker, who) = (&side.tree.export, &side.tree.worker, side.who);
        let file = side.file()?;
        let change = |change| {
            let after = export.set_attributes(worker, who, &file, &change, None)?;
            assert_eq!(export.attributes(worker, who, &file), Ok(after));
            Ok(String::new())
        };
        match self {
            Self::Chmod(mode) => change(AttributeChange {
                mode: Some(mode),
                ..Default::default()
            }),
            Self::Chown(uid, gid) => change(AttributeChange {
                uid,
                gid,
                ..Default::default()
            }),
            Self::Times(accessed, modified) => change(AttributeChange {
                accessed,
                modified,
                ..Default::default()
            }),
            Self::MayDo {
                read,
                write,
                execute,
            } => {
                let wanted = Rights {
                    read,
                    write,
                    execute,
                };
                done(export.check_access(worker, who, &file, wanted))
            }
            Self::Attributes => {
                let found = export.attributes(worker, who, &file)?;
                Ok(format!("{} {} {}", found.mode, found.uid, found.gid))
            }
            Self::SetXattr(name, value) => {
                let (name, set) = (name.as_bytes(), XattrMode::Set);
                done(export.set_xattr(worker, who, &file, name, value, set))
            }
            Self::SetAcl => {
                let (name, set) = (ACL.as_bytes(), XattrMode::Set);
                done(export.set_xattr(worker, who, &file, name, &acl_value(), set))
            }
            Self::GetXattr(name) => {
                let value = export.get_xattr(worker, who, &file, name.as_bytes())?;
                Ok(format!("{value:?}"))
            }
            Self::ListXattrs => Ok(sorted(export.list_xattrs(worker, who, &file)?.into_iter())),
            Self::RemoveXattr(name) => {
                done(export.remove_xattr(worker, who, &file, name.as_bytes()))
            }
        }
    }
}

/// `u::rw,u:2003:rwx,g::r,m::rwx,o::-` as the kernel's version 2 of it.
fn acl_value() -> Vec<u8> {
    let nobody = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (1, 6, nobody),
        (2, 7, 2003),
        (4, 4, nobody),
        (0x10, 7, nobody),
        (0x20, 0, nobody),
    ];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn spec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        Some(SetTime::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        Some(SetTime::To(t)) => Timespec {
            tv_sec: t.seconds,
            tv_nsec: t.nanos.into(),
        },
    }
}
