//! A join string, as people paste it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::identity::JoinString;

fuzz_target!(|text: &str| {
    if let Ok(join) = text.parse::<JoinString>() {
        assert_eq!(join.to_string().parse::<JoinString>().as_ref(), Ok(&join));
    }
});
