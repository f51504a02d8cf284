//! An image's index, as casync or anybody else may have written it.
#![no_main]

use base::Extent;
use disk::Index;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(index) = Index::from_bytes(data) {
        let again = Index::from_bytes(&index.to_bytes());
        assert_eq!(again.as_ref(), Ok(&index));
        let image = Extent::new(0, index.image_bytes());
        assert_eq!(index.chunks_of(image), 0..index.chunk_count());
    }
});
