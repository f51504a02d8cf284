//! A client of NBD: its negotiation, cut into pieces anywhere, and its requests.
//!
//! The first byte says how many cuts follow; the rest is what the client says. Where a negotiation
//! ends in an agreement, what is left are requests.
#![no_main]

use base::Extent;
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use wire::nbd::{Agreement, Command, Facts, Negotiation, Progress, Request, Rules};

/// What is answered, how it ended, and what was not read.
fn negotiate(facts: &Facts, pieces: &[&[u8]]) -> (Vec<u8>, Option<Progress>, Vec<u8>) {
    let mut output = BytesMut::new();
    let mut input = BytesMut::new();
    let mut negotiation = Negotiation::begin(facts, &mut output);
    let mut ended = None;
    for piece in pieces {
        input.extend_from_slice(piece);
        if matches!(ended, None | Some(Ok(Progress::Wants(_)))) {
            ended = Some(negotiation.advance(&mut input, &mut output));
        }
    }
    let ended = ended.and_then(Result::ok);
    (output.to_vec(), ended, input.to_vec())
}

fn judge(requests: &[u8], agreement: Agreement, is_read_only: bool) {
    let rules = Rules {
        len_bytes: 1 << 20,
        is_read_only,
        agreement,
    };
    let device = Extent::new(0, rules.len_bytes);
    for bytes in requests.chunks_exact(Request::BYTES) {
        let Ok(request) = Request::parse(bytes) else {
            return;
        };
        assert!(request.payload_bytes() <= request.memory_bytes() as usize);
        match request.judge(&rules) {
            Ok(Command::Read { extent, .. }) => assert!(device.covers(extent)),
            Ok(Command::Status { extent, .. }) => {
                assert!(agreement.tells_holes && device.covers(extent));
            }
            Ok(
                Command::Write { extent, .. }
                | Command::Trim { extent, .. }
                | Command::WriteZeros { extent, .. },
            ) => assert!(!is_read_only && device.covers(extent)),
            Ok(Command::Flush) | Err(_) => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else {
        return;
    };
    let (cuts, said) = rest.split_at(rest.len().min(usize::from(count % 16)));
    let facts = Facts {
        name: "base:1".to_owned(),
        description: "a disk".to_owned(),
        len_bytes: 1 << 20,
        block_bytes: 4096,
        is_read_only: count & 128 != 0,
    };
    let whole = negotiate(&facts, &[said]);
    // An option has 16 bytes, and an answer to it at most some hundreds.
    assert!(whole.0.len() <= 18 + 40 * said.len());
    let mut pieces = Vec::new();
    let mut left = said;
    for cut in cuts {
        let (piece, rest) = left.split_at(left.len().min(usize::from(*cut)));
        pieces.push(piece);
        left = rest;
    }
    pieces.push(left);
    let cut = negotiate(&facts, &pieces);
    assert_eq!(whole, cut);
    if let Some(Progress::Agreed(agreement)) = whole.1 {
        judge(&whole.2, agreement, facts.is_read_only);
    }
});
