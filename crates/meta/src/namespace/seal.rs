//! Handles of a namespace: an inode under an authentication code.
//!
//! ```text
//! offset  bytes  meaning
//!      0      1  version, 2: no handle of an exported tree begins so
//!      1      8  inode, little-endian
//!      9      4  generation, little-endian
//!     13     16  BLAKE3 of everything before under the volume's key, cut to 16 bytes
//! ```
//! The volume is in the key, as with an export.

use super::record::Inode;
use base::{FsError, Handle, VolumeId};

const VERSION: u8 = 2;
const BODY_BYTES: usize = 13;
const CODE_BYTES: usize = 16;

/// Makes and checks the handles of one volume.
#[derive(Clone)]
pub(super) struct Seal {
    key: [u8; 32],
}

impl Seal {
    /// `secret` is the manager's; it must outlive restarts, or all handles become stale.
    pub(super) fn new(secret: &[u8; 32], volume: VolumeId) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(b"azekura namespace handle, version 2");
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

    pub(super) fn close(&self, inode: &Inode) -> Handle {
        self.close_number(inode.number, inode.generation)
    }

    pub(super) fn close_number(&self, inode: u64, generation: u32) -> Handle {
        let mut bytes = [0; BODY_BYTES + CODE_BYTES];
        bytes[0] = VERSION;
        bytes[1..9].copy_from_slice(&inode.to_le_bytes());
        bytes[9..BODY_BYTES].copy_from_slice(&generation.to_le_bytes());
        let code = self.code(&bytes[..BODY_BYTES]);
        bytes[BODY_BYTES..].copy_from_slice(&code);
        Handle::new(&bytes).expect("its length is within bounds")
    }

    /// Inode and generation.
    ///
    /// # Errors
    /// [`FsError::Stale`] for everything that [`Seal::close`] of this volume did not make.
    pub(super) fn open(&self, handle: &Handle) -> Result<(u64, u32), FsError> {
        let (body, code) = handle
            .as_bytes()
            .split_first_chunk::<BODY_BYTES>()
            .ok_or(FsError::Stale)?;
        // The comparison takes the same time wherever the first difference is.
        let differs = |difference, (a, b): (u8, &u8)| difference | (a ^ b);
        let difference = self.code(body).into_iter().zip(code).fold(0, differs);
        if body[0] != VERSION || code.len() != CODE_BYTES || difference != 0 {
            return Err(FsError::Stale);
        }
        let inode = body[1..9].try_into().expect("eight bytes");
        let generation = body[9..].try_into().expect("four bytes");
        Ok((u64::from_le_bytes(inode), u32::from_le_bytes(generation)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_cut_and_other_volume_is_refused() {
        let seal = |secret, volume| Seal::new(&[secret; 32], VolumeId([volume; 16]));
        let handle = seal(1, 1).close_number(1 << 40, 9);
        assert_eq!(seal(1, 1).open(&handle), Ok((1 << 40, 9)));
        assert_eq!(seal(2, 1).open(&handle), Err(FsError::Stale));
        assert_eq!(seal(1, 2).open(&handle), Err(FsError::Stale));
        let bytes = handle.as_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut forged = bytes.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            let forged = Handle::new(&forged).unwrap();
            assert_eq!(seal(1, 1).open(&forged), Err(FsError::Stale), "bit {bit}");
        }
        for cut in 1..bytes.len() {
            let short = Handle::new(&bytes[..cut]).unwrap();
            assert_eq!(seal(1, 1).open(&short), Err(FsError::Stale));
        }
        let long = Handle::new(&[bytes, &[0]].concat()).unwrap();
        assert_eq!(seal(1, 1).open(&long), Err(FsError::Stale));
    }
}
