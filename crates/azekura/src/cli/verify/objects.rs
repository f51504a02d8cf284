//! The program that measures a store: one long object in blocks, or many small ones.
//!
//! The store is opened as a server opens it, with its threads and its queue, and each write waits
//! for the one before, as those of fio do.

use crate::errors::{Failure, Result};
use ::store::device::{DeviceOptions, FileDevice};
use ::store::{Options, Store, StoreError, Terms};
use ::verify::speed::Objects;
use ::verify::speed::files::{Contents, Took};
use base::{ObjectId, Time};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// The object that is written and read in blocks.
const LONG: ObjectId = ObjectId([0xff; 16]);

/// Write, read, make or delete objects of a store
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(in crate::cli) struct Work {
    /// write, read, create or delete
    #[arg(value_parser = what)]
    what: Objects,
    /// The device with the store
    device: PathBuf,
    /// How long the long object is
    #[arg(long)]
    bytes: u64,
    /// How much of it by one call
    #[arg(long)]
    io_bytes: u64,
    /// How many small ones
    #[arg(long)]
    files: u64,
}

fn what(text: &str) -> Result<Objects, String> {
    let mut all = Objects::ALL.into_iter();
    let names = Objects::ALL.map(Objects::name).join(", ");
    all.find(|what| what.name() == text)
        .ok_or(format!("there are {names}"))
}

fn small(number: u64) -> ObjectId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    ObjectId(id)
}

impl Work {
    pub(super) fn run(self) -> Result<()> {
        let device = FileDevice::open(&self.device, DeviceOptions::default())?;
        let clock = Arc::new(|| Time::from_secs(1));
        let store = Store::open(Arc::new(device), Options::default(), clock)?;
        let started = Instant::now();
        let bytes = self.act(&store)?;
        let seconds = started.elapsed().as_secs_f64();
        store.commit()?;
        let took = Took {
            files: self.files,
            bytes,
            seconds,
            durable_seconds: started.elapsed().as_secs_f64(),
        };
        store.stop()?;
        let took = serde_json::to_value(took);
        crate::output::json(&took.map_err(|error| Failure::local("figures", error))?)
    }

    /// How many bytes it moved.
    fn act(&self, store: &Store) -> Result<u64, StoreError> {
        let mut moved = 0;
        match self.what {
            Objects::Write => {
                store.create(LONG, Terms::Default)?;
                let block: Vec<u8> = (0..self.io_bytes).map(|at| (at % 251) as u8).collect();
                while moved < self.bytes {
                    let len = self.io_bytes.min(self.bytes - moved);
                    let block = &block[..usize::try_from(len).expect("it is in memory")];
                    store.write(LONG, moved, block)?;
                    moved += len;
                }
            }
            Objects::Read => {
                let mut block = vec![0; usize::try_from(self.io_bytes).expect("bounded")];
                while moved < self.bytes {
                    match store.read(LONG, moved, &mut block)? {
                        0 => break,
                        read => moved += read as u64,
                    }
                }
            }
            Objects::Create => {
                let mut contents = Contents::of(self.files);
                for number in 0..self.files {
                    let content = contents.next_file();
                    store.create(small(number), Terms::Default)?;
                    store.write(small(number), 0, content)?;
                    moved += content.len() as u64;
                }
            }
            Objects::Delete => {
                for number in 0..self.files {
                    store.delete(small(number))?;
                }
            }
        }
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_objects_are_different_ones_and_none_is_the_long_one() {
        assert_ne!(small(1), small(256));
        assert_ne!(small(u64::MAX), LONG);
        assert_eq!(what("delete"), Ok(Objects::Delete));
        assert!(what("list").is_err());
    }
}
