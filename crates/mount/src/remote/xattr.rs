//! Extended attributes: the volume's own, and a few that talk to the mount.
//!
//! | attribute | on | read | write |
//! |---|---|---|---|
//! | `user.azekura.status` | the root | figures of the mount, JSON | - |
//! | `user.azekura.sync` | anything | waits until everything is durable, then `1` | the same |
//! | `user.azekura.will_read` | a file | - | `offset+length` ...: what will be read, in order |
//! | `user.azekura.advise` | a file | - | `normal`, `sequential` or `random` |
//!
//! They are never listed and never reach the server. The kernel lets whoever may read an inode read
//! them, and whoever may write it write them.
//!
//! What can be read can be read as `system.azekura....`, too. The kernel then does not look whether
//! the caller may read the inode, for which it may have to ask the server: so a mount tells its
//! figures while the server is silent.

use super::answer::Answer;
use super::{Call, RemoteFs};
use base::{Extent, FsError};
use bytes::Bytes;
use client::volume::ReadAdvice;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::sync::Arc;

const OURS: &[u8] = b"user.azekura.";
/// The same, for reading only.
const READABLE: &[u8] = b"system.azekura.";
/// Extents in one hint.
const HINTS_MAX: usize = 4096;

fn own(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(OURS)
}

/// Reads `offset+length offset+length ...`, which whoever may write the file can set; `None` if it
/// is anything else.
#[must_use]
pub fn extents(text: &[u8]) -> Option<Vec<Extent>> {
    let text = std::str::from_utf8(text).ok()?;
    let extents: Option<Vec<Extent>> = text
        .split_ascii_whitespace()
        .take(HINTS_MAX + 1)
        .map(|part| {
            let (offset, len) = part.split_once('+')?;
            Some(Extent::new(offset.parse().ok()?, len.parse().ok()?))
        })
        .collect();
    extents.filter(|extents| !extents.is_empty() && extents.len() <= HINTS_MAX)
}

impl RemoteFs {
    pub(super) fn get_xattr(&self, mut call: Call, name: Bytes, room: u32) {
        if let Some(own) = own(&name).or_else(|| name.strip_prefix(READABLE)) {
            return match own {
                b"status" => call.answer.xattr(self.status().as_bytes(), room),
                b"sync" => self.sync_all(call, move |answer| answer.xattr(b"1", room)),
                _ => call.answer.error(Errno::NODATA),
            };
        }
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            match volume.xattr(&who, call.node, &name).await {
                Ok(value) => call.answer.xattr(&value, room),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    pub(super) fn list_xattr(&self, mut call: Call, room: u32) {
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            match volume.xattr_names(&who, call.node).await {
                Ok(names) => call.answer.xattr(&names, room),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    pub(super) fn set_xattr(&self, mut call: Call, name: Bytes, value: Bytes, flags: XattrFlags) {
        if own(&name).is_some() || name.starts_with(READABLE) {
            return self.command(call, &name, value);
        }
        let create = if flags.contains(XattrFlags::CREATE) {
            Some(true)
        } else if flags.contains(XattrFlags::REPLACE) {
            Some(false)
        } else {
            None
        };
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let outcome = volume
                .set_xattr(&who, call.node, &name, &value, create)
                .await;
            call.answer.outcome(outcome);
        });
    }

    /// Makes everything durable, whoever asks.
    fn sync_all(&self, mut call: Call, done: impl FnOnce(Answer) + Send + 'static) {
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            match volume.sync(&who).await {
                Ok(()) => done(call.answer),
                Err(error) => {
                    if !call.answer.outcome(Err(error)) {
                        volume.on_unheard(error);
                    }
                }
            }
        });
    }

    fn command(&self, call: Call, name: &[u8], value: Bytes) {
        let who = call.who();
        match own(name) {
            Some(b"sync") => self.sync_all(call, Answer::done),
            Some(b"will_read") => match extents(&value) {
                Some(extents) => {
                    let outcome = self.volume.will_read(&who, call.node, &extents);
                    call.answer.outcome(outcome);
                }
                None => call.answer.fail(FsError::Invalid),
            },
            Some(b"advise") => {
                let advice = match value.as_ref() {
                    b"normal" => ReadAdvice::Normal,
                    b"sequential" => ReadAdvice::Sequential,
                    b"random" => ReadAdvice::Random,
                    _ => return call.answer.fail(FsError::Invalid),
                };
                call.answer.outcome(self.volume.advise(call.node, advice));
            }
            _ => call.answer.error(Errno::OPNOTSUPP),
        }
    }

    pub(super) fn remove_xattr(&self, mut call: Call, name: Bytes) {
        if own(&name).is_some() || name.starts_with(READABLE) {
            return call.answer.error(Errno::NODATA);
        }
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let outcome = volume.remove_xattr(&who, call.node, &name).await;
            call.answer.outcome(outcome);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_or_refused() {
        assert_eq!(
            extents(b"0+10 4096+1"),
            Some(vec![Extent::new(0, 10), Extent::new(4096, 1)])
        );
        for bad in [&b""[..], b"1", b"a+b", b"1+", b"\xff", b"1+2 x"] {
            assert_eq!(extents(bad), None, "{bad:?}");
        }
    }
}
