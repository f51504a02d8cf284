//! The bytes of every message, pinned.
//!
//! A reordered enum, a field in another place or a wider number would change the wire without a
//! sound: both ends of a test are built from the same code. So the bytes of at least one value of
//! every variant lie in `tests/golden/`, one line each. `UPDATE_GOLDEN=1` writes them anew; a
//! change there needs a new version in `crates/wire/src/version.rs`, unless it only adds lines.

use crate::generate::generated;
use crate::{part, read_part, samples};
use bytes::Bytes;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Write};
use std::path::Path;
use wire::frame::Header;
use wire::message::{
    AdminReply, AdminRequest, Body, ClusterReply, ClusterRequest, Farewell, Hello, Notice,
    ObjectError, ObjectReply, ObjectRequest, ObjectStep, ObjectStepReply, Proof, Reply, Request,
    ReserveReply, ReserveRequest, Step, StepReply, TicketRefusal, Welcome, decode, encode,
};

fn table(samples: &[samples::Sample]) -> String {
    let mut table = String::new();
    for (name, bytes) in samples {
        write!(table, "{name} ").unwrap();
        for byte in bytes {
            write!(table, "{byte:02x}").unwrap();
        }
        table.push('\n');
    }
    table
}

#[test]
fn every_message_has_the_bytes_that_it_had() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (file, samples) in samples::all() {
        let path = directory.join(file).with_extension("txt");
        let table = table(&samples);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &table).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        for (line, (golden, now)) in golden.lines().zip(table.lines()).enumerate() {
            assert_eq!(now, golden, "{file}.txt, line {}", line + 1);
        }
        assert_eq!(table.lines().count(), golden.lines().count(), "{file}.txt");
    }
}

#[test]
fn every_golden_line_is_read_as_what_it_is_called() {
    fn reads<T: DeserializeOwned + Serialize>(bytes: &[u8], name: &str) {
        let value: T = read_part(bytes).unwrap_or_else(|| panic!("{name} cannot be read"));
        assert_eq!(part(&value), bytes, "{name}");
    }
    for (file, samples) in samples::all() {
        for (name, bytes) in &samples {
            match (file, name.as_str()) {
                ("step", _) => reads::<Step>(bytes, name),
                ("step_reply", _) => reads::<StepReply>(bytes, name),
                ("request", _) => reads::<Request>(bytes, name),
                ("reply", _) => reads::<Reply>(bytes, name),
                ("notice", _) => reads::<Notice>(bytes, name),
                ("admin_request", _) => reads::<AdminRequest>(bytes, name),
                ("admin_reply", _) => reads::<AdminReply>(bytes, name),
                ("object_request", _) => reads::<ObjectRequest>(bytes, name),
                ("object_step", _) => reads::<ObjectStep>(bytes, name),
                ("object_step_reply", _) => reads::<ObjectStepReply>(bytes, name),
                ("object_reply", _) => reads::<ObjectReply>(bytes, name),
                ("object_error", _) => reads::<ObjectError>(bytes, name),
                ("ticket_refusal", _) => reads::<TicketRefusal>(bytes, name),
                ("cluster_request", _) => reads::<ClusterRequest>(bytes, name),
                ("cluster_reply", _) => reads::<ClusterReply>(bytes, name),
                ("reserve_request", _) => reads::<ReserveRequest>(bytes, name),
                ("reserve_reply", _) => reads::<ReserveReply>(bytes, name),
                ("handshake", "Hello") => reads::<Hello>(bytes, name),
                ("handshake", "Welcome") => reads::<Welcome>(bytes, name),
                ("handshake", "Proof") => reads::<Proof>(bytes, name),
                ("handshake", _) => reads::<Farewell>(bytes, name),
                // Words are read where messages contain them.
                (_, _) => assert!(file.ends_with("word")),
            }
        }
    }
}

fn returns<T>(seed: u64) -> Result<(), TestCaseError>
where
    T: DeserializeOwned + Serialize + PartialEq + Debug,
{
    let value: T = generated(seed);
    let bytes = part(&value);
    prop_assert_eq!(read_part(&bytes), Some(value));
    // Bytes after the message are not silently dropped: they may be a newer peer's.
    let longer = [&bytes[..], &[0]].concat();
    prop_assert_eq!(read_part::<T>(&longer), None);
    Ok(())
}

/// What a frame carries is encoded as a part would be, and all of it is read.
fn returns_in_a_frame<T>(seed: u64) -> Result<(), TestCaseError>
where
    T: Body + DeserializeOwned + Serialize + PartialEq + Debug,
{
    let value: T = generated(seed);
    let bytes = encode(&value);
    prop_assert_eq!(&bytes[..], &part(&value)[..]);
    prop_assert_eq!(&decode::<T>(&bytes).unwrap(), &value);
    let longer = [&bytes[..], &[0]].concat();
    prop_assert!(decode::<T>(&longer).is_err());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_encoded_is_decoded_again(seed in any::<u64>()) {
        returns_in_a_frame::<Request>(seed)?;
        returns_in_a_frame::<Reply>(seed)?;
        returns::<Step>(seed)?;
        returns::<StepReply>(seed)?;
        returns_in_a_frame::<Notice>(seed)?;
        returns_in_a_frame::<Hello>(seed)?;
        returns_in_a_frame::<Welcome>(seed)?;
        returns_in_a_frame::<Proof>(seed)?;
        returns_in_a_frame::<Farewell>(seed)?;
        returns::<AdminRequest>(seed)?;
        returns::<AdminReply>(seed)?;
        returns::<ObjectRequest>(seed)?;
        returns::<ObjectReply>(seed)?;
        returns::<ReserveRequest>(seed)?;
        returns::<ReserveReply>(seed)?;
    }
}

/// `docs/formats/wire.md` is what other clients are written from.
#[test]
fn the_document_agrees_with_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/wire.md");
    let page = std::fs::read_to_string(path).unwrap();
    for (name, bytes) in samples::all().into_iter().flat_map(|(_, samples)| samples) {
        // All enums have fewer than 128 variants, so that the number is the first byte.
        if let Some((_, variant)) = name.split_once("::") {
            let named = format!("{} `{variant}`", bytes[0]);
            assert!(
                page.contains(&named),
                "the page does not have {named} of {name}"
            );
        }
    }
    let example = page
        .split("```")
        .find(|block| block.contains("41 5a 4b 31 04"));
    let bytes: Vec<u8> = example
        .unwrap()
        .lines()
        .flat_map(|line| line.split("   ").next())
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    let (head, rest) = bytes.split_first_chunk().unwrap();
    let header = Header::decode(head).unwrap();
    let (body, payload) = rest.split_at(header.body_bytes());
    header.check_body(body).unwrap();
    let frame = header
        .into_frame(
            Bytes::copy_from_slice(body),
            Bytes::copy_from_slice(payload),
        )
        .unwrap();
    assert_eq!(frame.encode_header(true), *head);
    let Request::Files(compound) = decode(body).unwrap() else {
        panic!("another request");
    };
    assert!(matches!(compound.steps[..], [Step::Write { bytes: 5, .. }]));
    assert_eq!(frame.payload.into_bytes(), "hello");
}

#[test]
fn the_generator_makes_every_request_and_every_step() {
    let names = |text: &str| text.split([' ', '(', '{']).next().unwrap().to_owned();
    let drawn = |seed| {
        let step: Step = generated(seed);
        let reply: StepReply = generated(seed);
        [names(&format!("{step:?}")), names(&format!("{reply:?}"))]
    };
    let all: std::collections::BTreeSet<String> = (0..3000).flat_map(drawn).collect();
    let expected = samples::steps().into_iter().chain(samples::step_replies());
    for (name, _) in expected {
        let variant = name.split("::").nth(1).unwrap();
        assert!(all.contains(variant), "{name} is never generated");
    }
}
