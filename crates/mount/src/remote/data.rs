//! Open files: open, read, write, close, space.

use super::names::Part;
use super::{Call, RemoteFs};
use crate::kernel::{CopyFileRange, FOpenFlags, Fh, Opened, Read, Release, Whence, Write};
use base::{Extent, FsError, LockOwner, Principal};
use bytes::Bytes;
use client::volume::{Creation, OpenFile, Overshoot, View, Volume};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::sync::Arc;
use wire::message::{Access, AllocateMode, LockKind, SeekWhat};

fn access(flags: OFlags) -> Access {
    if flags.contains(OFlags::RDWR) {
        Access::ReadWrite
    } else if flags.contains(OFlags::WRONLY) {
        Access::Write
    } else {
        Access::Read
    }
}

fn opened(file: &OpenFile, fh: Fh) -> Opened {
    let mut flags = FOpenFlags::empty();
    if file.keep_data {
        flags |= FOpenFlags::KEEP_CACHE;
    }
    if file.append && file.access.writes() {
        // Through the page cache, the kernel makes two requests of a write that ends beyond a page
        // it does not have, and between the two of them another machine's record could stand.
        flags |= FOpenFlags::DIRECT_IO;
    }
    Opened::new(fh, flags)
}

/// Which space operation a combination of flags is.
fn allocate_mode(flags: FallocateFlags) -> Option<AllocateMode> {
    const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
    const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE;
    const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;
    if flags.is_empty() {
        Some(AllocateMode::Extend)
    } else if flags == KEEP {
        Some(AllocateMode::KeepSize)
    } else if flags == PUNCH | KEEP {
        Some(AllocateMode::PunchHole)
    } else if flags == ZERO {
        Some(AllocateMode::ZeroRange)
    } else if flags == ZERO | KEEP {
        Some(AllocateMode::ZeroRangeKeepSize)
    } else {
        None
    }
}

impl RemoteFs {
    pub(super) fn open(&self, mut call: Call, flags: OFlags) {
        let who = call.who();
        let access = access(flags);
        let append = flags.contains(OFlags::APPEND);
        if !access.writes()
            && let Some(file) = self.volume.open_cached(&who, call.node)
        {
            return self.part().answer_opened(call, file);
        }
        call.answer.wait(None);
        let (volume, this) = (Arc::clone(&self.volume), self.part());
        self.runtime.spawn(async move {
            match volume.open(&who, call.node, access, append).await {
                Ok(file) => this.answer_opened(call, file),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    pub(super) fn create(&self, call: Call, name: &Bytes, mode: u16, umask: u16, flags: OFlags) {
        let Some((mut call, name)) = Self::name(call, name) else {
            return;
        };
        let who = call.who();
        let append = flags.contains(OFlags::APPEND);
        let creation = Creation {
            parent: call.node,
            name,
            mode,
            umask,
        };
        if let Some((view, file)) =
            self.volume
                .try_create_ahead(&who, &creation, access(flags), append)
        {
            return self.part().answer_created(call, &view, file);
        }
        call.answer.wait(None);
        let (volume, this) = (Arc::clone(&self.volume), self.part());
        self.runtime.spawn(async move {
            let (exclusive, truncate) =
                (flags.contains(OFlags::EXCL), flags.contains(OFlags::TRUNC));
            let made = volume
                .create(&who, &creation, exclusive, access(flags), truncate, append)
                .await;
            match made {
                Ok((mut view, file)) => {
                    // The kernel compares no versions: as with links.
                    view.attributes_leased = false;
                    this.answer_created(call, &view, file);
                }
                Err(error) => call.answer.fail(error),
            }
        });
    }

    pub(super) fn read(&self, mut call: Call, read: Read) {
        let Some(file) = self.handles.file(read.fh) else {
            return call.answer.error(Errno::BADF);
        };
        let extent = Extent::new(read.offset, u64::from(read.size));
        let open = Some(file.open);
        // Of a read past the page cache the program itself waits for the answer.
        let for_cache = read.lock_owner.is_none() && !read.flags.contains(OFlags::DIRECT);
        let overshoot = for_cache.then(|| self.volume.judge_overshoot(file.node, extent));
        let waiting = match overshoot.flatten() {
            Some(Overshoot::Refused) => return call.answer.fail(FsError::WouldBlock),
            Some(Overshoot::Waiting(waiting)) => Some(waiting),
            None => None,
        };
        if waiting.is_none()
            && let Some(pieces) = self.volume.read_cached(file.node, open, &file.who, extent)
        {
            return call.answer.data(&pieces);
        }
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            if let Some(waiting) = waiting
                && let Err(error) = waiting.wanted().await
            {
                return call.answer.fail(error);
            }
            match volume.read(&file.who, file.node, open, extent).await {
                Ok(pieces) => call.answer.data(&pieces),
                Err(error) => {
                    volume.on_read_failed(file.node, extent);
                    call.answer.fail(error);
                }
            }
        });
    }

    pub(super) fn write(&self, mut call: Call, write: Write) {
        let Some(file) = self.handles.file(write.fh) else {
            return call.answer.error(Errno::BADF);
        };
        // Pages written back by the kernel have no caller; they were dirtied through this open.
        let who = if write.from_cache {
            file.who.clone()
        } else {
            self.writer(&call, &file)
        };
        let (append, from_cache) = (
            write.flags.contains(OFlags::APPEND) && !write.from_cache,
            write.from_cache,
        );
        let bytes = write.data.len() as u32;
        let write = client::file::Write {
            offset: write.offset,
            data: write.data,
            who,
            open: Some(file.open),
            append,
            permits: Vec::new(),
        };
        let node = file.node;
        // Of what it writes back from its cache the kernel keeps more.
        let written = move |volume: &Volume, call: Call| {
            if !from_cache {
                volume.on_written(node);
            }
            call.answer.written(bytes);
        };
        let write = match self.volume.try_write(node, write) {
            Ok(()) => return written(&self.volume, call),
            Err(write) => write,
        };
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let taken = match from_cache {
                true => volume.write_back(node, write).await,
                false => volume.write(node, write).await,
            };
            match taken {
                Ok(()) => written(&volume, call),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    /// Who writes: it decides whether set-id bits are dropped. Mostly who opened.
    fn writer(&self, call: &Call, file: &OpenFile) -> Principal {
        if file.who.uid == call.uid && file.who.gid == call.gid {
            file.who.clone()
        } else {
            call.who()
        }
    }

    pub(super) fn flush(&self, mut call: Call, fh: Fh, owner: LockOwner) {
        let Some(file) = self.handles.file(fh) else {
            return call.answer.error(Errno::BADF);
        };
        self.handles.on_flush(fh, owner);
        let locks = self.volume.holds_lock(file.node, LockKind::Posix, owner);
        if !locks && self.volume.is_clean(&file) {
            return call.answer.done();
        }
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let flushed = volume.flush(&file).await;
            let released = volume
                .release_locks(&file.who, file.node, LockKind::Posix, owner)
                .await;
            call.answer.outcome(flushed.and(released));
        });
    }

    pub(super) fn release(&self, call: Call, release: Release) {
        if let Some(file) = self.handles.remove(release.fh) {
            let flock = release
                .flock_unlock
                .then_some((LockKind::Flock, release.lock_owner));
            let ranges = self.handles.take_lockers(release.fh).into_iter();
            let locks = ranges.map(|owner| (LockKind::Posix, owner)).chain(flock);
            for (kind, owner) in
                locks.filter(|(kind, owner)| self.volume.holds_lock(file.node, *kind, *owner))
            {
                let (volume, file) = (Arc::clone(&self.volume), Arc::clone(&file));
                self.runtime.spawn(async move {
                    // Nobody waits for it, and the volume sees to it until the server has heard.
                    let _ = volume
                        .release_locks(&file.who, file.node, kind, owner)
                        .await;
                });
            }
            self.volume.release(&file);
        }
        call.answer.done();
    }

    pub(super) fn fsync(&self, mut call: Call, fh: Fh, data_only: bool) {
        let Some(file) = self.handles.file(fh) else {
            return call.answer.error(Errno::BADF);
        };
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let outcome = volume
                .commit(&file.who, file.node, Some(file.open), data_only)
                .await;
            call.answer.outcome(outcome);
        });
    }

    pub(super) fn fallocate(
        &self,
        mut call: Call,
        fh: Fh,
        offset: u64,
        length: u64,
        flags: FallocateFlags,
    ) {
        let Some(file) = self.handles.file(fh) else {
            return call.answer.error(Errno::BADF);
        };
        let Some(mode) = allocate_mode(flags) else {
            return call.answer.error(Errno::OPNOTSUPP);
        };
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let extent = Extent::new(offset, length);
            let outcome = volume
                .allocate(&who, file.node, Some(file.open), mode, extent)
                .await;
            call.answer.outcome(outcome);
        });
    }

    pub(super) fn lseek(&self, mut call: Call, fh: Fh, offset: u64, whence: Whence) {
        let Some(file) = self.handles.file(fh) else {
            return call.answer.error(Errno::BADF);
        };
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let open = Some(file.open);
            let found = match whence {
                Whence::End => volume
                    .attributes(&file.who, file.node)
                    .await
                    .map(|view| view.attributes.size.saturating_add(offset)),
                Whence::Data => {
                    volume
                        .seek(&file.who, file.node, open, offset, SeekWhat::Data)
                        .await
                }
                Whence::Hole => {
                    volume
                        .seek(&file.who, file.node, open, offset, SeekWhat::Hole)
                        .await
                }
            };
            match found {
                Ok(offset) => call.answer.offset(offset),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    pub(super) fn copy_file_range(&self, mut call: Call, copy: CopyFileRange) {
        let (Some(source), Some(target)) = (
            self.handles.file(copy.fh_in),
            self.handles.file(copy.fh_out),
        ) else {
            return call.answer.error(Errno::BADF);
        };
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            let source = (source.node, Some(source.open), copy.offset_in);
            let target = (target.node, Some(target.open), copy.offset_out);
            match volume.copy_range(&who, source, target, copy.length).await {
                Ok(bytes) => call.answer.copied(bytes, copy.wide),
                Err(error) => call.answer.fail(error),
            }
        });
    }
}

impl Part {
    fn answer_opened(&self, call: Call, file: OpenFile) {
        let fh = self.handles.insert_file(file.clone());
        if !call.answer.opened(&opened(&file, fh)) {
            self.handles.remove(fh);
            self.volume.release(&file);
        }
    }

    fn answer_created(&self, call: Call, view: &View, file: OpenFile) {
        let view = self.volume.introduce(view);
        let fh = self.handles.insert_file(file.clone());
        if !call.answer.created(&self.entry(&view), &opened(&file, fh)) {
            self.handles.remove(fh);
            self.volume.release(&file);
            self.volume.forget(&[(view.node, 1)]);
            // Nor does the kernel know that the name is there now.
            self.volume.tell_names();
        }
    }
}
