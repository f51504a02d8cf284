//! The header of a frame.
#![no_main]

use base::limits::{FRAME_BODY_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use wire::frame::{HEADER_BYTES, Header};

fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_first_chunk::<HEADER_BYTES>() else {
        return;
    };
    let Ok(header) = Header::decode(head) else {
        return;
    };
    assert!(header.body_bytes() <= FRAME_BODY_BYTES_MAX);
    assert!(header.payload_bytes() <= FRAME_PAYLOAD_BYTES_MAX);
    let Some((body, rest)) = rest.split_at_checked(header.body_bytes()) else {
        return;
    };
    let Some((payload, _)) = rest.split_at_checked(header.payload_bytes()) else {
        return;
    };
    if header.check_body(body).is_err() {
        return;
    }
    let body = Bytes::copy_from_slice(body);
    let payload = Bytes::copy_from_slice(payload);
    if let Ok(frame) = header.into_frame(body, payload) {
        let has_payload_checksum = head[6] & 1 != 0;
        let again = frame.encode_header(has_payload_checksum);
        // A checksum over no payload, or one that is announced and not there, is written otherwise.
        if !frame.payload.is_empty() && has_payload_checksum {
            assert_eq!(again, *head);
        }
        assert!(Header::decode(&again).is_ok());
    }
});
