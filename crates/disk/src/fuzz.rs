//! What `fuzz/` feeds with bytes of others that they would have to sign.
//!
//! Bytes whose signature does not fit go no further, and nobody would ever get behind it by chance:
//! so any bytes are signed here, as a record of each kind.

use crate::manifest::{Manifest, TagRecord};
use crate::signed::{Kind, SigningKey, open};
use crate::training::Training;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A record: refused, or its file is what is made of what was read.
pub fn record(data: &[u8]) {
    let key = SigningKey::from_seed(&[7; 32]);
    of_kind::<Manifest>(Kind::Manifest, data, &key);
    of_kind::<TagRecord>(Kind::Tag, data, &key);
    of_kind::<Training>(Kind::Training, data, &key);
}

fn of_kind<T: Serialize + DeserializeOwned>(kind: Kind, data: &[u8], key: &SigningKey) {
    // A whole file, whose signature does not fit but in the corpus.
    let _ = open::<T>(kind, data);
    let file = key.sign_body(kind, data);
    if let Ok((record, by)) = open::<T>(kind, &file) {
        assert_eq!(by, key.public());
        assert_eq!(key.sign(kind, &record), file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_signed_bytes_do_harm(data in prop::collection::vec(any::<u8>(), 0..300)) {
            record(&data);
        }
    }
}
