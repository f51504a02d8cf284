//! Messages: one of each kind, any number at random, their bytes and what others' bytes can do.
//! One program, because each program compiles the coding of all messages once more.
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

mod generate;
#[macro_use]
mod samples;
mod acl_samples;
mod cluster_samples;
mod counting;
mod golden;
mod hostile;
mod object_samples;
mod place_samples;
mod reserve_samples;

/// A value as it is encoded within a message.
fn part<T: serde::Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("messages are plain data")
}

/// The value that has these bytes, all of them, within a message.
fn read_part<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}
