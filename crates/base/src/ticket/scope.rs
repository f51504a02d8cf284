//! Which objects a ticket reaches.
//!
//! A storage server knows objects and no paths. So whoever makes an object for a file, and knows
//! its path, says in the object's identity where it belongs: the first eight bytes are its
//! *scope*. A ticket without a path reaches all objects of its volume; one with a path reaches
//! those that were made under tickets of this very path. What lies below is not reached, and a
//! file that is moved keeps its objects: the manager, who hands out which objects a file has, is
//! the judge of paths, and lays files out anew where a ticket is to reach them.
//!
//! The other eight bytes cannot be guessed: random, or permuted with a key of the managers'. Who
//! knows them was told by the manager: a user without a credential for machines cannot list
//! objects.
//!
//! ```text
//!  0  4   volume     first bytes of BLAKE3 of the volume's identity
//!  4  4   path       zeros for none; else first bytes of BLAKE3 of volume and path
//!  8  8   number     random, or as good as that
//! ```

use super::terms::Terms;
use crate::{ObjectId, VolumeId};

/// The first half of an object's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectScope([u8; 8]);

impl ObjectScope {
    /// The scope of a volume's objects under a path; an empty one for those without.
    #[must_use]
    pub fn new(volume: VolumeId, path: &[u8]) -> Self {
        let tag = |path: &[u8]| -> [u8; 4] {
            let mut hasher = blake3::Hasher::new();
            hasher.update(b"azekura scope, version 1");
            hasher.update(&volume.0).update(path);
            let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
            // Zeros are what identities of the server's own objects begin with, and "no path".
            [a.max(1), b, c, d]
        };
        let mut scope = [0; 8];
        scope[..4].copy_from_slice(&tag(b""));
        if !path.is_empty() {
            scope[4..].copy_from_slice(&tag(path));
        }
        Self(scope)
    }

    /// The object with this number.
    #[must_use]
    pub fn object(self, number: [u8; 8]) -> ObjectId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.0);
        id[8..].copy_from_slice(&number);
        ObjectId(id)
    }
}

impl Terms {
    /// Whether a ticket for this volume with these terms reaches an object.
    #[must_use]
    pub fn reaches(&self, volume: VolumeId, object: ObjectId) -> bool {
        let scope = ObjectScope::new(volume, &self.path);
        let len = if self.path.is_empty() { 4 } else { 8 };
        object.0[..len] == scope.0[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Operations, Slice};
    use super::*;
    use crate::StoreId;

    fn terms(path: &[u8]) -> Terms {
        Terms {
            operations: Operations::READ,
            burst_millis: 0,
            start_secs: 0,
            end_secs: 1,
            lifetime_end_secs: 1,
            slices: vec![Slice {
                device: StoreId([1; 16]),
                share_ppm: 1,
                stripe_unit_bytes: 0,
                au_budget: 0,
            }],
            path: path.to_vec(),
        }
    }

    #[test]
    fn a_ticket_reaches_its_volume_or_what_was_made_under_its_path() {
        let (lab, office) = (VolumeId([1; 16]), VolumeId([2; 16]));
        let object = |volume, path: &[u8]| ObjectScope::new(volume, path).object([7; 8]);
        let plain = object(lab, b"");
        assert!(terms(b"").reaches(lab, plain) && !terms(b"").reaches(office, plain));
        let runs = object(lab, b"runs/42");
        assert!(terms(b"").reaches(lab, runs) && terms(b"runs/42").reaches(lab, runs));
        for other in [&b"runs"[..], b"runs/42/a", b"runs/43"] {
            assert!(!terms(other).reaches(lab, runs), "{other:?}");
        }
        assert!(!terms(b"runs/42").reaches(lab, plain));
        assert!(!terms(b"runs/42").reaches(office, runs));
        assert_ne!(runs.0[..4], [0, b'a', b'z', b'k']);
        assert_eq!(plain.0[4..8], [0; 4]);
        assert_eq!(runs.0[8..], [7; 8]);
    }
}
