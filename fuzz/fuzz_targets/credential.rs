//! A credential's PEM file, damaged.
//!
//! No key lies in the corpus: the lines `A`, `C` and `K` of the input stand for the authority's
//! certificate, the own one and the key of a credential that each run makes for itself. What
//! follows a NUL damages the text: two bytes say where, one says how.
#![no_main]

use base::ClusterId;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use std::time::SystemTime;
use wire::identity::{Authority, Credential};
use wire::message::CredentialKind;

static BLOCKS: OnceLock<Vec<String>> = OnceLock::new();

fn blocks() -> Vec<String> {
    let authority = Authority::create(ClusterId([1; 16])).expect("keys can be made");
    let credential = authority
        .issue_local(CredentialKind::Host, "fuzz", SystemTime::now())
        .expect("certificates can be made");
    let mut blocks = vec![String::new()];
    for line in credential.to_pem().split_inclusive('\n') {
        blocks.last_mut().expect("never empty").push_str(line);
        if line.starts_with("-----END") {
            blocks.push(String::new());
        }
    }
    assert_eq!(
        blocks.len(),
        4,
        "two certificates and a key, and nothing after"
    );
    blocks
}

fuzz_target!(|data: &[u8]| {
    let blocks = BLOCKS.get_or_init(blocks);
    let (lines, damage) = match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let mut text = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        match line {
            b"A\n" => text.extend_from_slice(blocks[0].as_bytes()),
            b"C\n" => text.extend_from_slice(blocks[1].as_bytes()),
            b"K\n" => text.extend_from_slice(blocks[2].as_bytes()),
            other => text.extend_from_slice(other),
        }
    }
    for step in damage.chunks_exact(3) {
        let at = usize::from(step[0]) << 8 | usize::from(step[1]);
        if let Some(byte) = text.get_mut(at) {
            *byte = step[2];
        }
    }
    let text = String::from_utf8_lossy(&text);
    if let Ok(credential) = Credential::from_pem(&text) {
        let again = Credential::from_pem(&credential.to_pem()).expect("it was just written");
        assert_eq!(again.cluster(), credential.cluster());
        assert_eq!(again.certificate(), credential.certificate());
    }
});
