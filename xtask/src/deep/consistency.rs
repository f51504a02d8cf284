//! Two machines on one volume, every answer explained by the promises.
//!
//! The test itself is an end-to-end test of the product, `crates/azekura/tests/consistency/`: it
//! runs some seconds in `cargo xtask ci` and `--seconds` here.

use super::{Subject, end_to_end};
use anyhow::Result;
use std::time::Duration;

/// Build included; a run ends its last round and then checks the files that all keep open.
const REST_LIMIT: Duration = Duration::from_secs(20 * 60);

pub(crate) fn prepare() -> Result<Option<String>> {
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let seconds = subject.options.seconds;
    let mut settings = vec![("AZEKURA_CONSISTENCY_SECONDS", seconds.to_string())];
    // Without one it begins with another seed each time, and says which.
    let seed = subject.options.seed.map(|seed| seed.to_string());
    settings.extend(seed.map(|seed| ("AZEKURA_CONSISTENCY_SEED", seed)));
    // On each kind of volume, one after the other or at once.
    let limit = REST_LIMIT + Duration::from_secs(2 * seconds);
    end_to_end("consistency", &settings, subject.options.volume, limit)
}
