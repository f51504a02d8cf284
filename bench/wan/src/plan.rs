//! The operations of the comparison: what each does, how large it is, and what its figure means.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;

use crate::app::{Pattern, Workload};
use crate::content::{Verify, seed_of};
use crate::dataset::{self, BIG, Expected, OTHER, OTHER_BYTES, SMALL, WALK};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const CALL_BYTES: u64 = 128 * KIB;
const NAMES: [&str; 13] = [
    "seq",
    "stride",
    "reverse",
    "nested",
    "interleaved",
    "random",
    "random32",
    "walk",
    "small",
    "write",
    "create",
    "steps",
    "demand",
];

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) is_quick: bool,
}

impl Scale {
    /// Full size or the quick one.
    fn of(self, full: u64, quick: u64) -> u64 {
        if self.is_quick { quick } else { full }
    }

    pub(crate) fn big_bytes(self) -> u64 {
        self.of(3072 * MIB, 1536 * MIB)
    }
}

/// What the figure of an operation is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// MB/s over the second half.
    SteadyRate,
    /// MB/s over all, fsync included.
    WholeRate,
    /// Seconds for all, extrapolated when capped.
    Seconds,
    /// Median milliseconds of a call.
    Latency,
    /// The slowest recovery after a step, in round trips.
    Recovery,
}

impl Figure {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::SteadyRate | Self::WholeRate => "MB/s",
            Self::Seconds => "s",
            Self::Latency => "ms",
            Self::Recovery => "RTT",
        }
    }
}

/// One operation.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) figure: Figure,
    pub(crate) writes: bool,
    /// Time after which the workload stops and its figure is extrapolated.
    pub(crate) cap: Duration,
}

/// The operations named, or all.
pub(crate) fn ops(names: &[String], cap: Duration) -> anyhow::Result<Vec<Op>> {
    if let Some(unknown) = names.iter().find(|name| !NAMES.contains(&name.as_str())) {
        bail!(
            "unknown operation `{unknown}`; there are {}",
            NAMES.join(", ")
        );
    }
    let wanted = |name: &&str| names.is_empty() || names.iter().any(|n| n == name);
    Ok(NAMES
        .into_iter()
        .filter(wanted)
        .map(|name| op(name, cap))
        .collect())
}

fn op(name: &'static str, cap: Duration) -> Op {
    let (title, figure) = match name {
        "seq" => ("sequential read", Figure::SteadyRate),
        "stride" => ("stride 3 + 6 MiB", Figure::SteadyRate),
        "reverse" => ("reverse read", Figure::SteadyRate),
        "nested" => ("two-level stride", Figure::SteadyRate),
        "interleaved" => ("8 interleaved streams", Figure::SteadyRate),
        "random" => ("random 128 KiB, one reader, median", Figure::Latency),
        "random32" => ("random 128 KiB, 32 readers", Figure::WholeRate),
        "walk" => ("walk of 10,100 entries", Figure::Seconds),
        "small" => ("2,000 files of 8 KiB, read", Figure::Seconds),
        "write" => ("write 512 MiB + fsync", Figure::WholeRate),
        "create" => ("2,000 files of 8 KiB, created + fsync", Figure::Seconds),
        "steps" => ("slowest recovery after a step", Figure::Recovery),
        "demand" => ("4 KiB demand read beside bulk, median", Figure::Latency),
        other => unreachable!("{other} is not in NAMES"),
    };
    let writes = matches!(name, "write" | "create");
    Op {
        name,
        title,
        figure,
        writes,
        cap,
    }
}

impl Op {
    /// The workload on a mount. `out` is the name of a fresh directory; `draw` seeds random places.
    pub(crate) fn workload(&self, scale: Scale, mount: &Path, out: &str, draw: u64) -> Workload {
        let at = |path: &str| mount.join(path).to_string_lossy().into_owned();
        let read = |pattern| Workload::Read {
            file: at(BIG),
            seed: seed_of(BIG),
            pattern,
            call_bytes: CALL_BYTES,
            verify: Verify::Full,
        };
        let random = |readers, reads_each| Workload::Random {
            file: at(BIG),
            seed: seed_of(BIG),
            file_bytes: scale.big_bytes(),
            call_bytes: CALL_BYTES,
            readers,
            reads_each,
            draw,
        };
        match self.name {
            "walk" => Workload::Walk {
                root: at(WALK),
                entries: dataset::WALK_DIRS * (dataset::WALK_FILES_EACH + 1),
            },
            "small" => Workload::Small {
                dir: at(SMALL),
                files: dataset::SMALL_FILES,
                file_bytes: dataset::SMALL_BYTES,
            },
            "random" => random(1, scale.of(100, 30) as u32),
            "random32" => random(32, scale.of(128, 32) as u32),
            "write" => Workload::Write {
                file: at(&format!("{out}/written")),
                seed: seed_of("written"),
                bytes: scale.of(512 * MIB, 256 * MIB),
                call_bytes: CALL_BYTES,
            },
            "create" => Workload::Create {
                dir: at(out),
                files: dataset::SMALL_FILES,
                file_bytes: dataset::SMALL_BYTES,
            },
            "demand" => Workload::Demand {
                bulk: at(BIG),
                bulk_seed: seed_of(BIG),
                bulk_bytes: scale.big_bytes(),
                file: at(OTHER),
                seed: seed_of(OTHER),
                file_bytes: OTHER_BYTES,
                reads: scale.of(50, 20) as u32,
                draw,
            },
            name => read(self.pattern(name, scale)),
        }
    }

    fn pattern(&self, name: &str, scale: Scale) -> Pattern {
        match name {
            "seq" => Pattern::Sequential {
                bytes: scale.of(1024 * MIB, 256 * MIB),
            },
            "reverse" => Pattern::Reverse {
                bytes: scale.of(512 * MIB, 256 * MIB),
            },
            "stride" => Pattern::Stride {
                runs: scale.of(227, 113),
                run_bytes: 3 * MIB,
                step_bytes: 9 * MIB,
            },
            "nested" => Pattern::Nested {
                groups: scale.of(128, 64),
                group_bytes: 16 * MIB,
                runs: 8,
                run_bytes: 512 * KIB,
                step_bytes: 1536 * KIB,
            },
            "interleaved" => Pattern::Interleaved {
                streams: 8,
                apart_bytes: scale.of(256 * MIB, 128 * MIB),
                bytes_each: scale.of(64 * MIB, 32 * MIB),
            },
            "steps" => Pattern::Sequential {
                bytes: scale.big_bytes(),
            },
            other => unreachable!("{other} reads in no pattern"),
        }
    }

    /// What must lie at the server after `done` units of a writing workload.
    pub(crate) fn expected(&self, data: &Path, out: &str, done: u64) -> Option<Expected> {
        let out = data.join(out);
        match self.name {
            "write" => Some(Expected::OneFile {
                path: out.join("written"),
                seed: seed_of("written"),
                bytes: done,
            }),
            "create" => Some(Expected::Files {
                dir: out,
                files: done,
                file_bytes: dataset::SMALL_BYTES,
            }),
            _ => None,
        }
    }
}
