//! fsx: random operations on one file, each read compared with what was written.
//!
//! A seed gives the same operations every time, so a failure is replayed by its seed. A seed that
//! fails is run again on a local directory: what fails there too is not the subject's fault, and
//! the report says so (the suite fails all the same, because then it proves nothing).

use super::{Subject, install};
use crate::process::{self, Outcome};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const VERSION: &str = "0.3.2";
/// A seed of 20,000 operations takes seconds; a hanging mount takes for ever.
const SEED_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Every operation that Linux has. Sizes are kept small enough that holes, mappings and truncation
/// meet in the same pages.
const CONFIGURATION: &str = r#"
flen = 1048576

[opsize]
max = 131072

[weights]
close_open = 1
copy_file_range = 5
fdatasync = 1
fsync = 1
invalidate = 1
mapread = 10
mapwrite = 10
posix_fadvise = 1
posix_fallocate = 5
punch_hole = 5
read = 10
sendfile = 5
truncate = 5
write = 10
"#;

pub(crate) fn prepare() -> Result<Option<String>> {
    install::install("fsx", VERSION, "")?;
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let configuration = subject.scratch.join("fsx.toml");
    std::fs::write(&configuration, CONFIGURATION)?;
    let (first, seeds) = (subject.options.first_seed(), subject.options.seeds);
    let operations = subject.options.operations;
    let started = Instant::now();
    let mut failed = Vec::new();
    for seed in first..first + seeds {
        let file = subject.directory.join(format!("seed-{seed}"));
        let outcome = run_seed(seed, operations, &configuration, &file, &subject.scratch)?;
        if outcome.success {
            std::fs::remove_file(&file)?;
            continue;
        }
        let local = subject.scratch.join(format!("seed-{seed}"));
        let again = run_seed(seed, operations, &configuration, &local, &subject.scratch)?;
        let there = if again.success {
            "passes"
        } else {
            "fails as well"
        };
        println!(
            "seed {seed}: {} (on a local directory it {there})",
            outcome.end
        );
        println!("{}", outcome.output.trim_end());
        failed.push(seed);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds of {operations} operations in {seconds:.0} s, {} failed",
        failed.len()
    );
    if !failed.is_empty() {
        bail!("seeds that fail: {failed:?}");
    }
    Ok(())
}

fn run_seed(
    seed: u64,
    operations: u64,
    configuration: &Path,
    file: &Path,
    artifacts: &Path,
) -> Result<Outcome> {
    let mut command = Command::new(install::path("fsx"));
    command
        .arg("-f")
        .arg(configuration)
        .arg("-P")
        .arg(artifacts);
    command
        .args(["-S", &seed.to_string(), "-N", &operations.to_string()])
        .arg(file);
    process::capture(&mut command, SEED_LIMIT)
}
