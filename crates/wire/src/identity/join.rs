//! Join strings: what an administrator hands to the owner of a new machine.
//!
//! ```text
//! azk1-  base32( authority fingerprint 32 | secret 32 | crc32c of both, little-endian 4 )
//! ```
//! The checksum is for people who copy by hand; the alphabet (Crockford's) has no look-alikes, and
//! upper case, spaces and dashes are read kindly.

use rustls::pki_types::CertificateDer;
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "azk1-";
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const BYTES: usize = 32 + 32 + 4;

/// SHA-256 of an authority's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// The authority to trust and the secret to show it. `Display` writes the secret, `Debug` does not.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinString {
    /// The cluster's authority.
    pub fingerprint: Fingerprint,
    /// Good for one credential.
    pub secret: [u8; 32],
}

/// Text that is not a join string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinStringError {
    /// It begins with something else.
    #[error("a join string begins with {PREFIX:?}")]
    Prefix,
    /// Characters are missing, added or not of the alphabet.
    #[error("the join string is incomplete or has a character that does not belong there")]
    Text,
    /// A character is wrong.
    #[error("the join string has a wrong character (its checksum does not match)")]
    Checksum,
}

impl fmt::Debug for JoinString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinString")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for JoinString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; BYTES];
        bytes[..32].copy_from_slice(&self.fingerprint.0);
        bytes[32..64].copy_from_slice(&self.secret);
        let checksum = crc32c::crc32c(&bytes[..64]);
        bytes[64..].copy_from_slice(&checksum.to_le_bytes());
        let mut text = String::from(PREFIX);
        // Five bits a character, most significant first; the last one is filled with zeros.
        let bits = BYTES * 8;
        for first in (0..bits).step_by(5) {
            let value = (first..first + 5).fold(0, |value, bit| {
                let one = bit < bits && bytes[bit / 8] >> (7 - bit % 8) & 1 == 1;
                value << 1 | usize::from(one)
            });
            text.push(char::from(ALPHABET[value]));
        }
        f.write_str(&text)
    }
}

impl FromStr for JoinString {
    type Err = JoinStringError;

    fn from_str(text: &str) -> Result<Self, JoinStringError> {
        let text = text.trim().to_ascii_lowercase();
        let text = text.strip_prefix(PREFIX).ok_or(JoinStringError::Prefix)?;
        let mut bytes = [0u8; BYTES];
        let mut bit = 0;
        for c in text
            .bytes()
            .filter(|c| !c.is_ascii_whitespace() && *c != b'-')
        {
            let c = match c {
                b'o' => b'0',
                b'i' | b'l' => b'1',
                other => other,
            };
            let value = ALPHABET
                .iter()
                .position(|a| *a == c)
                .ok_or(JoinStringError::Text)?;
            for shift in (0..5).rev() {
                let one = value >> shift & 1 == 1;
                match bytes.get_mut(bit / 8) {
                    Some(byte) => *byte |= u8::from(one) << (7 - bit % 8),
                    None if one => return Err(JoinStringError::Text),
                    None => {}
                }
                bit += 1;
            }
        }
        if bit != (BYTES * 8).next_multiple_of(5) {
            return Err(JoinStringError::Text);
        }
        let (data, checksum) = bytes.split_at(64);
        if crc32c::crc32c(data).to_le_bytes() != checksum {
            return Err(JoinStringError::Checksum);
        }
        let (fingerprint, secret) = data.split_at(32);
        Ok(Self {
            fingerprint: Fingerprint(fingerprint.try_into().expect("split at 32")),
            secret: secret.try_into().expect("64 less 32"),
        })
    }
}
