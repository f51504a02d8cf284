//! Where the kernel is handed numbers and addresses that no type checks: two device controls, and
//! requests by io_uring.
//!
//! [`Kernel`] is the safe side of a ring. It owns every request that the kernel has, with its
//! buffer, from [`Kernel::give`] until its completion is there; nobody can reach a buffer in
//! between. Should it be dropped with requests under way, their memory is lost on purpose: the
//! kernel may still write there.

#![expect(unsafe_code, reason = "device controls and io_uring's submission")]

use super::queue::{Request, Submission};
use super::{AlignedBuffer, BLOCK_BYTES};
use base::Extent;
use base::limits::DEVICE_REQUESTS_MAX;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl::{self, Getter, Setter, opcode as control};
use std::io;
use std::sync::Arc;

/// Length of a block device in bytes (`BLKGETSIZE64`).
pub(super) fn block_device_len_bytes(device: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    const GET_SIZE: ioctl::Opcode = control::read::<usize>(0x12, 114);
    // SAFETY: the kernel writes one u64 for this control, whatever the `size_t` in its number says
    // (`put_u64` in `block/ioctl.c`).
    unsafe { ioctl::ioctl(device, Getter::<GET_SIZE, u64>::new()) }
}

/// Says that the bytes are not needed (`BLKDISCARD`).
pub(super) fn discard(device: BorrowedFd<'_>, extent: Extent) -> rustix::io::Result<()> {
    const DISCARD: ioctl::Opcode = control::none(0x12, 119);
    // SAFETY: the kernel reads two u64, start and length, for this control.
    unsafe {
        ioctl::ioctl(
            device,
            Setter::<DISCARD, [u64; 2]>::new([extent.offset, extent.len]),
        )
    }
}

/// The file that the ring has registered.
const THE_FILE: types::Fixed = types::Fixed(0);
/// The number of the request that watches the bell; slots are numbered from 0.
const BELL: u64 = u64::MAX;
/// Largest piece of one request: a length for the kernel is 32 bits, less a page (`MAX_RW_COUNT`).
const PIECE_BYTES_MAX: usize = i32::MAX as usize & !(BLOCK_BYTES as usize - 1);

/// A request that is the kernel's, or is about to be.
pub(super) struct Slot {
    pub(super) submission: Submission,
    /// Where it stands among all requests of the queue.
    pub(super) sequence: u64,
    /// Bytes there already: the kernel may do less than it was asked for.
    pub(super) done: usize,
    /// Completions in a row that brought nothing.
    pub(super) tries: u32,
}

/// A ring, and what the kernel has been given through it.
pub(super) struct Kernel {
    ring: IoUring,
    /// An eventfd; written to, it ends a wait.
    bell: Arc<OwnedFd>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
}

impl Kernel {
    pub(super) fn new(file: BorrowedFd<'_>, bell: Arc<OwnedFd>) -> io::Result<Self> {
        let entries = u32::try_from(DEVICE_REQUESTS_MAX + 1).expect("a few hundred");
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(entries.next_power_of_two())?;
        // The ring has a share of the file from here on.
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let slots = (0..DEVICE_REQUESTS_MAX).map(|_| None).collect();
        let free = (0..DEVICE_REQUESTS_MAX).collect();
        let mut kernel = Self {
            ring,
            bell,
            slots,
            free,
        };
        kernel.watch_bell();
        Ok(kernel)
    }

    /// Whether it has nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Gives it a request. It starts with the next [`Self::wait`].
    pub(super) fn give(&mut self, slot: Slot) {
        let number = self
            .free
            .pop()
            .expect("there is a slot for every request with a permit");
        let slot = self.slots[number].insert(slot);
        let piece = |rest: &[u8]| u32::try_from(rest.len().min(PIECE_BYTES_MAX)).expect("31 bits");
        let entry = match &mut slot.submission.request {
            Request::Read { offset, buffer } => {
                let rest = &mut buffer[slot.done..];
                opcode::Read::new(THE_FILE, rest.as_mut_ptr(), piece(rest))
                    .offset(*offset + slot.done as u64)
                    .build()
            }
            Request::Write { offset, buffer } => {
                let rest = &buffer[slot.done..];
                opcode::Write::new(THE_FILE, rest.as_ptr(), piece(rest))
                    .offset(*offset + slot.done as u64)
                    .build()
            }
            Request::Flush => opcode::Fsync::new(THE_FILE)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
        self.push(number as u64, entry);
    }

    fn watch_bell(&mut self) {
        let bell = types::Fd(self.bell.as_raw_fd());
        let readable = u32::from(PollFlags::IN.bits());
        self.push(BELL, opcode::PollAdd::new(bell, readable).build());
    }

    /// To be called for entries whose buffer is in the slot of this `number`.
    fn push(&mut self, number: u64, entry: squeue::Entry) {
        let entry = entry.user_data(number);
        // SAFETY: the pages of the entry's buffer are in a slot that is neither touched nor given
        // out before `reap` has found its completion; `drop` gives their memory up rather than free
        // it. Others may share pages that are written from, and only read them: `AlignedBuffer`
        // copies before it changes what is shared. The file is registered; the bell is open as long
        // as `self`.
        let is_pushed = unsafe { self.ring.submission().push(&entry) };
        is_pushed.expect("the ring has an entry for every slot and the bell");
    }

    /// Starts what is new; unless told otherwise, waits until there is a completion or the bell has
    /// been rung.
    pub(super) fn wait(&mut self, returns_at_once: bool) -> io::Result<()> {
        match self.ring.submit_and_wait(usize::from(!returns_at_once)) {
            Ok(_) => Ok(()),
            // Interrupted, or completions must be taken first: both mean to come again.
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Gives back what has come to an end, with the number of bytes moved.
    pub(super) fn reap(&mut self, into: &mut Vec<(Slot, Result<usize, Errno>)>) {
        let mut bell_has_rung = false;
        for completion in self.ring.completion() {
            if completion.user_data() == BELL {
                bell_has_rung = true;
                continue;
            }
            let number = completion.user_data() as usize;
            let slot = self.slots[number].take().expect("a completion comes once");
            self.free.push(number);
            let result = completion.result();
            let moved = usize::try_from(result);
            into.push((slot, moved.map_err(|_| Errno::from_raw_os_error(-result))));
        }
        if bell_has_rung {
            let mut count = [0; 8];
            // Nothing to read is as good.
            let _ = rustix::io::read(&*self.bell, &mut count);
            self.watch_bell();
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.is_idle() {
            // The kernel takes a closed ring apart in its own time; the device is to be free at
            // once. Where this fails it is free a little later.
            let _ = self.ring.submitter().unregister_files();
        }
        for mut slot in self.slots.drain(..).flatten() {
            let request = &mut slot.submission.request;
            if let Request::Read { buffer, .. } | Request::Write { buffer, .. } = request {
                std::mem::forget(std::mem::replace(buffer, AlignedBuffer::new(0)));
            }
            // Dropping the submission tells whoever waits for it.
        }
    }
}
