//! Handles: the kernel's file handle under an authentication code.
//!
//! ```text
//! offset  bytes  meaning
//!      0      1  version, 1
//!      1      4  type of the kernel's handle, little-endian
//!      5      n  the kernel's handle, 1 to 128 bytes (ext4: 8, XFS and tmpfs: 12)
//!    5+n     16  BLAKE3 of everything before under the volume's key, cut to 16 bytes
//! ```
//!
//! The volume is not written into the handle but into the key: each volume has its own, derived
//! from the server's. A handle of another volume fails just as a forged one does, and the 8 or 16
//! bytes are saved in every directory entry that crosses the line. `root` may open any inode of a
//! file system by guessing its number; the code is what keeps a client from doing so.

use crate::sys::{KERNEL_HANDLE_BYTES_MAX, KernelHandle};
use base::{FsError, Handle, VolumeId, limits::HANDLE_BYTES_MAX};
use std::fmt;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 5;
/// Forging one handle takes 2^127 tries on average.
const CODE_BYTES: usize = 16;

const _: () = assert!(HEAD_BYTES + KERNEL_HANDLE_BYTES_MAX + CODE_BYTES <= HANDLE_BYTES_MAX);

/// A server's secret for the authentication of handles. It must outlive restarts, or all handles
/// become stale; whoever knows it can name every inode of the exported file systems.
#[derive(Clone)]
pub struct HandleKey([u8; 32]);

impl HandleKey {
    /// Wraps 32 random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

/// Makes and checks the handles of one volume.
#[derive(Clone)]
pub(crate) struct Seal {
    key: [u8; 32],
}

impl Seal {
    pub(crate) fn new(key: &HandleKey, volume: VolumeId) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        hasher.update(b"azekura export handle, version 1");
        hasher.update(&volume.0);
        Self {
            key: *hasher.finalize().as_bytes(),
        }
    }

    fn code(&self, body: &[u8]) -> [u8; CODE_BYTES] {
        let mut code = [0; CODE_BYTES];
        code.copy_from_slice(&blake3::keyed_hash(&self.key, body).as_bytes()[..CODE_BYTES]);
        code
    }

    /// The handle that a client gets for the kernel's.
    pub(crate) fn close(&self, kernel: &KernelHandle) -> Handle {
        let inner = kernel.as_bytes();
        let body = HEAD_BYTES + inner.len();
        let mut bytes = [0; HANDLE_BYTES_MAX];
        bytes[0] = VERSION;
        bytes[1..HEAD_BYTES].copy_from_slice(&kernel.kind().to_le_bytes());
        bytes[HEAD_BYTES..body].copy_from_slice(inner);
        let code = self.code(&bytes[..body]);
        bytes[body..body + CODE_BYTES].copy_from_slice(&code);
        Handle::new(&bytes[..body + CODE_BYTES])
            .expect("the longest sealed handle is within bounds")
    }

    /// The kernel's handle in a client's.
    ///
    /// # Errors
    /// [`FsError::Stale`] for everything that [`Seal::close`] of this volume did not make.
    pub(crate) fn open(&self, handle: &Handle) -> Result<KernelHandle, FsError> {
        let bytes = handle.as_bytes();
        let body = bytes.len().checked_sub(CODE_BYTES).ok_or(FsError::Stale)?;
        if body <= HEAD_BYTES || bytes[0] != VERSION {
            return Err(FsError::Stale);
        }
        let (body, code) = bytes.split_at(body);
        // The comparison takes the same time wherever the first difference is.
        let difference = self
            .code(body)
            .iter()
            .zip(code)
            .fold(0, |difference, (a, b)| difference | (a ^ b));
        if difference != 0 {
            return Err(FsError::Stale);
        }
        let kind = i32::from_le_bytes([body[1], body[2], body[3], body[4]]);
        KernelHandle::new(kind, &body[HEAD_BYTES..]).ok_or(FsError::Stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(key: u8, volume: u8) -> Seal {
        Seal::new(&HandleKey::new([key; 32]), VolumeId([volume; 16]))
    }

    #[test]
    fn a_handle_opens_only_under_its_own_key_and_volume() {
        let kernel = KernelHandle::new(0x81, b"inode and generation").expect("short");
        let handle = seal(1, 1).close(&kernel);
        let opened = seal(1, 1).open(&handle).expect("its own");
        assert_eq!(
            (opened.kind(), opened.as_bytes()),
            (0x81, &b"inode and generation"[..])
        );
        assert_eq!(seal(2, 1).open(&handle).err(), Some(FsError::Stale));
        assert_eq!(seal(1, 2).open(&handle).err(), Some(FsError::Stale));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        for len in [1, 8, 12, KERNEL_HANDLE_BYTES_MAX] {
            let kernel = KernelHandle::new(1, &vec![0xa5; len]).expect("within bounds");
            let seal = seal(7, 7);
            let handle = seal.close(&kernel);
            let bytes = handle.as_bytes();
            for bit in 0..bytes.len() * 8 {
                let mut forged = bytes.to_vec();
                forged[bit / 8] ^= 1 << (bit % 8);
                let forged = Handle::new(&forged).expect("same length");
                assert_eq!(seal.open(&forged).err(), Some(FsError::Stale), "bit {bit}");
            }
            for cut in 1..bytes.len() {
                let short = Handle::new(&bytes[..cut]).expect("not empty");
                assert_eq!(seal.open(&short).err(), Some(FsError::Stale), "{cut} bytes");
            }
            let long = Handle::new(&[bytes, &[0]].concat()).expect("within bounds");
            assert_eq!(seal.open(&long).err(), Some(FsError::Stale));
        }
    }

    #[test]
    fn the_key_does_not_show_in_logs() {
        assert_eq!(format!("{:?}", HandleKey::new([0x41; 32])), "HandleKey(..)");
    }
}
