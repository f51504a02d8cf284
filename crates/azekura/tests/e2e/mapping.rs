//! A shared mapping of a file.
#![expect(unsafe_code, reason = "mapping memory is unsafe")]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;

/// The first bytes of a file, mapped for reading and writing until this is dropped.
pub(crate) struct Mapping {
    address: *mut u8,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes; the file must stay that long.
    pub(crate) fn new(file: &File, len: usize) -> Self {
        let (rights, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so nothing else is mapped there.
        let address = unsafe { mmap(std::ptr::null_mut(), len, rights, shared, file, 0) };
        let address = address.unwrap().cast();
        Self { address, len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `len` bytes as long as `self` lives, and this test alone uses
        // the file.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the borrow that `bytes` gives out has ended.
        let _ = unsafe { munmap(self.address.cast(), self.len) };
    }
}
