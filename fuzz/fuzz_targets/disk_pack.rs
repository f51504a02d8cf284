//! The front of a pack.
#![no_main]

use disk::Front;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(front) = Front::from_bytes(data) {
        assert_eq!(front.to_bytes(), data);
        let places = front.chunks().iter().map(|chunk| chunk.place);
        let end = places.fold(data.len() as u64, |end, place| {
            assert_eq!(place.offset, end);
            place.end()
        });
        assert_eq!(end, front.file_bytes());
    }
});
