//! Records that somebody has signed, and keys.
//!
//! Chunks and indexes are named by their digests; what says which digest is meant must be signed,
//! or whoever can write to the web server chooses what a far machine boots. A signature covers the
//! record's kind, too, so that a manifest is never taken for a tag.
//!
//! Ed25519, by ring. Drawn in `docs/formats/disk.md`.

use crate::DISK_FORMAT_VERSION;
use crate::error::{Damage, DiskError};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;

const MAGIC: [u8; 8] = *b"AZKDISKR";
const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
/// Magic, version, kind, length and key.
const HEAD_BYTES: usize = 16 + KEY_BYTES;
const BODY_AT: usize = HEAD_BYTES + SIGNATURE_BYTES;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    Manifest = 1,
    Tag = 2,
    Training = 3,
}

/// By whom a record is signed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::ChunkId(self.0).fmt(f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = crate::chunk::NotAnId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(|id: crate::ChunkId| Self(id.0))
    }
}

/// Whose records are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of these keys.
    Keys(Vec<PublicKey>),
    /// Anybody's, as long as the signature fits: for looking at a repository, and for a first
    /// contact whose key is then remembered.
    Anybody,
}

impl Trust {
    /// These, and one more.
    pub(crate) fn with(&self, key: PublicKey) -> Self {
        match self {
            Self::Anybody => Self::Anybody,
            Self::Keys(keys) => Self::Keys([keys.as_slice(), &[key]].concat()),
        }
    }

    fn covers(&self, key: PublicKey) -> bool {
        match self {
            Self::Keys(keys) => keys.contains(&key),
            Self::Anybody => true,
        }
    }
}

/// What signs.
pub struct SigningKey(Ed25519KeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.public())
    }
}

impl SigningKey {
    /// The key in a file; if there is none, a new one, readable for its owner alone.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn open_or_create(path: &Path) -> Result<Self, DiskError> {
        match fs::read(path) {
            Ok(bytes) => Self::from_pkcs8(&bytes).map_err(DiskError::file("read the key", path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::create(path).map_err(DiskError::file("make the key", path))
            }
            Err(error) => Err(DiskError::file("read the key", path)(error)),
        }
    }

    fn from_pkcs8(bytes: &[u8]) -> io::Result<Self> {
        let key = Ed25519KeyPair::from_pkcs8(bytes);
        key.map(Self)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }

    fn create(path: &Path) -> io::Result<Self> {
        let bytes = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| io::Error::other("no randomness"))?;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // Whole or not there, and never another's that was made at the same time.
        let number = std::process::id();
        let new = directory.join(format!(".key-{number}.new"));
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(bytes.as_ref())?;
        file.sync_all()?;
        let linked = fs::hard_link(&new, path);
        fs::remove_file(&new)?;
        match linked {
            Ok(()) => File::open(directory)?.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Self::from_pkcs8(&fs::read(path)?)
    }

    /// The key of golden bytes and other tests.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn from_seed(seed: &[u8; 32]) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed of this length is a key"))
    }

    /// By which its records are known.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(key)
    }

    /// The record as a file.
    pub(crate) fn sign(&self, kind: Kind, record: &impl Serialize) -> Vec<u8> {
        let body = postcard::to_stdvec(record).expect("records are plain data");
        self.sign_body(kind, &body)
    }

    /// The same, of a record that is bytes already.
    pub(crate) fn sign_body(&self, kind: Kind, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BODY_AT + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&DISK_FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&(kind as u16).to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.public().0);
        bytes.extend_from_slice(body);
        let signature = self.0.sign(&bytes);
        bytes.splice(HEAD_BYTES..HEAD_BYTES, signature.as_ref().iter().copied());
        bytes
    }
}

/// Reads a signed record; the signature fits. Whether the key is trusted is said beside it.
pub(crate) fn open<T: Serialize + DeserializeOwned>(
    kind: Kind,
    bytes: &[u8],
) -> Result<(T, PublicKey), Damage> {
    if bytes.len() < BODY_AT || bytes[..8] != MAGIC {
        return Err(Damage::NotARecord);
    }
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    if short(8) > DISK_FORMAT_VERSION {
        return Err(Damage::Newer(short(8)));
    }
    if short(10) != kind as u16 {
        return Err(Damage::NotARecord);
    }
    let length = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    let (head, rest) = bytes.split_at(HEAD_BYTES);
    let (signature, body) = rest.split_at(SIGNATURE_BYTES);
    if short(8) != DISK_FORMAT_VERSION || body.len() != length as usize {
        return Err(Damage::Record);
    }
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(&head[16..]);
    let signed = [head, body].concat();
    let verified = UnparsedPublicKey::new(&ED25519, key).verify(&signed, signature);
    verified.map_err(|_| Damage::Signature)?;
    let record: T = postcard::from_bytes(body).map_err(|_| Damage::Record)?;
    // One record, one form: what is behind the fields, or a number in more bytes than it needs,
    // would be signed and mean nothing.
    if postcard::to_stdvec(&record).ok().as_deref() != Some(body) {
        return Err(Damage::Record);
    }
    Ok((record, PublicKey(key)))
}

/// [`open`], if it is signed by somebody who is trusted.
pub(crate) fn open_trusted<T: Serialize + DeserializeOwned>(
    kind: Kind,
    bytes: &[u8],
    trust: &Trust,
    place: impl FnOnce() -> String,
) -> Result<T, DiskError> {
    match open(kind, bytes) {
        Ok((record, key)) if trust.covers(key) => Ok(record),
        Ok((_, key)) => Err(DiskError::Untrusted {
            place: place(),
            key,
        }),
        Err(damage) => Err(DiskError::Damaged {
            place: place(),
            damage,
        }),
    }
}

/// A digest in records: its bytes.
pub(crate) type Bytes32 = [u8; 32];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Note(String, u64);

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let made = SigningKey::open_or_create(&path).unwrap().public();
        assert_eq!(SigningKey::open_or_create(&path).unwrap().public(), made);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        fs::write(&path, b"something else").unwrap();
        let error = SigningKey::open_or_create(&path).unwrap_err();
        assert!(matches!(error, DiskError::File { .. }), "{error}");
    }

    #[test]
    fn only_who_is_trusted_is_believed() {
        let (key, other) = (
            SigningKey::from_seed(&[1; 32]),
            SigningKey::from_seed(&[2; 32]),
        );
        let bytes = key.sign(Kind::Tag, &Note("a".into(), 7));
        let read = |kind, trust: &Trust| -> Result<Note, DiskError> {
            open_trusted(kind, &bytes, trust, || "here".into())
        };
        for trust in [
            Trust::Anybody,
            Trust::Keys(vec![other.public(), key.public()]),
        ] {
            assert_eq!(read(Kind::Tag, &trust).unwrap(), Note("a".into(), 7));
        }
        for trust in [Trust::Keys(vec![other.public()]), Trust::Keys(vec![])] {
            let error = read(Kind::Tag, &trust).unwrap_err();
            assert!(matches!(error, DiskError::Untrusted { .. }), "{error}");
        }
        let error = read(Kind::Manifest, &Trust::Anybody).unwrap_err();
        assert!(matches!(
            error,
            DiskError::Damaged {
                damage: Damage::NotARecord,
                ..
            }
        ));
    }

    #[test]
    fn a_record_of_a_newer_release_is_named() {
        let key = SigningKey::from_seed(&[1; 32]);
        let mut bytes = key.sign(Kind::Tag, &Note(String::new(), 0));
        bytes[8] = 2;
        assert_eq!(open::<Note>(Kind::Tag, &bytes), Err(Damage::Newer(2)));
    }

    proptest! {
        #[test]
        fn every_flipped_bit_and_every_cut_is_refused(
            text in ".{0,60}",
            number in any::<u64>(),
            at in any::<prop::sample::Index>(),
            bit in 0_u32..8,
            more in any::<u8>(),
        ) {
            let key = SigningKey::from_seed(&[3; 32]);
            let note = Note(text, number);
            let mut bytes = key.sign(Kind::Manifest, &note);
            let (read, by) = open::<Note>(Kind::Manifest, &bytes).unwrap();
            prop_assert_eq!((read, by), (note, key.public()));
            let at = at.index(bytes.len());
            prop_assert!(open::<Note>(Kind::Manifest, &bytes[..at]).is_err());
            bytes.push(more);
            prop_assert!(open::<Note>(Kind::Manifest, &bytes).is_err());
            bytes.pop();
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(open::<Note>(Kind::Manifest, &bytes).is_err());
        }
    }
}
