//! What a program says it will read, as the value of an extended attribute.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mount::remote::extents;

fuzz_target!(|value: &[u8]| {
    if let Some(hints) = extents(value) {
        let spelled: Vec<String> = hints
            .iter()
            .map(|hint| format!("{}+{}", hint.offset, hint.end() - hint.offset))
            .collect();
        assert_eq!(extents(spelled.join(" ").as_bytes()), Some(hints));
    }
});
