//! What is measured, by which programs, in which order.

use super::files::{FILE_BYTES_MAX, Took};
use super::{bonnie, fio};
use serde::{Deserialize, Serialize};

/// A figure that a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Bytes a second, one written at a time.
    CharWrite,
    /// Bytes a second, one read at a time, of what is in memory.
    CharRead,
    /// Bytes a second, in blocks, until they are on the disk.
    BlockWrite,
    /// Bytes a second, in blocks, until the calls have taken them.
    CachedWrite,
    /// Bytes a second, in blocks, with nothing of them in memory.
    BlockRead,
    /// Bytes a second, in blocks that are read, changed and written in their place, in memory.
    Rewrite,
    /// Blocks a second, at places drawn by chance, in memory.
    Seeks,
    /// Small files a second, until they are on the disk.
    Create,
    /// Small files a second, until they are gone from the disk.
    Delete,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::CharWrite,
        Self::CharRead,
        Self::BlockWrite,
        Self::CachedWrite,
        Self::BlockRead,
        Self::Rewrite,
        Self::Seeks,
        Self::Create,
        Self::Delete,
    ];

    /// As in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CharWrite => "char_write",
            Self::CharRead => "char_read",
            Self::BlockWrite => "block_write",
            Self::CachedWrite => "cached_write",
            Self::BlockRead => "block_read",
            Self::Rewrite => "rewrite",
            Self::Seeks => "seeks",
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }

    /// The measure with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// With which others it is measured.
    #[must_use]
    pub const fn group(self) -> Group {
        match self {
            Self::CharWrite | Self::CharRead | Self::Rewrite | Self::Seeks => Group::Char,
            Self::BlockWrite | Self::CachedWrite | Self::BlockRead => Group::Block,
            Self::Create | Self::Delete => Group::Files,
        }
    }

    /// Whether it reads what bonnie++ has just written, and so from memory as far as that has room:
    /// between its parts bonnie++ empties no caches, and nobody else can.
    #[must_use]
    pub const fn is_from_cache(self) -> bool {
        matches!(self, Self::CharRead | Self::Rewrite | Self::Seeks)
    }

    /// Whether it is in bytes a second, and not in things a second.
    #[must_use]
    pub const fn is_in_bytes(self) -> bool {
        !matches!(self, Self::Seeks | Self::Create | Self::Delete)
    }
}

/// What one program found out about one of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// What.
    pub measure: Measure,
    /// In bytes or things a second.
    pub rate: f64,
    /// Processor time that it took, as a share of one processor, if the program says so itself.
    pub cpu: Option<f64>,
}

/// Measures that are made together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Byte by byte, by bonnie++.
    Char,
    /// In blocks, by fio.
    Block,
    /// Small files, by this program.
    Files,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Char, Self::Block, Self::Files];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Char => "char",
            Self::Block => "block",
            Self::Files => "files",
        }
    }

    /// The group with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// The program that must be installed, and its Debian package.
    #[must_use]
    pub const fn program(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Char => Some(("bonnie++", "bonnie++")),
            Self::Block => Some(("fio", "fio")),
            Self::Files => None,
        }
    }
}

/// How much is written, read, made and deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// What is measured.
    pub groups: Vec<Group>,
    /// Bytes that are written and read in blocks.
    pub bytes: u64,
    /// Bytes of one call of these.
    pub io_bytes: u64,
    /// Bytes that are written and read one by one.
    pub char_bytes: u64,
    /// Small files.
    pub files: u64,
}

impl Work {
    /// Bytes that are in files at most, at one time; or in objects of a store, of which the
    /// smallest takes a whole unit.
    #[must_use]
    pub fn stored_bytes(&self, in_store: bool) -> u64 {
        let each = if in_store {
            STORE_UNIT_BYTES
        } else {
            FILE_BYTES_MAX
        };
        let of = |group| match group {
            Group::Char => self.char_bytes,
            Group::Block => self.bytes,
            Group::Files => self.files.saturating_mul(each),
        };
        self.groups.iter().copied().map(of).max().unwrap_or(0)
    }

    /// What is done with a store, in its order. It keeps nothing in memory of the kernel, and has
    /// no characters.
    pub(super) fn store_acts(&self) -> Vec<Act> {
        let acts = |one, other| [one, other].map(|what| Act::Run(Program::Objects(what)));
        let of = |group: &Group| match group {
            Group::Char => Vec::new(),
            Group::Block => acts(Objects::Write, Objects::Read).to_vec(),
            Group::Files => acts(Objects::Create, Objects::Delete).to_vec(),
        };
        self.groups.iter().flat_map(of).collect()
    }

    /// What is done, in its order.
    pub(super) fn acts(&self) -> Vec<Act> {
        let mut acts = Vec::new();
        for group in &self.groups {
            acts.extend(match group {
                Group::Block => [
                    Act::Run(Program::Fio { is_write: true }),
                    Act::Forget,
                    Act::Run(Program::Fio { is_write: false }),
                ]
                .to_vec(),
                Group::Char => vec![Act::Run(Program::Bonnie)],
                Group::Files => [
                    Act::Run(Program::Files { is_create: true }),
                    Act::Forget,
                    Act::Run(Program::Files { is_create: false }),
                ]
                .to_vec(),
            });
            acts.push(Act::Clear);
        }
        acts
    }
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// A program is run.
    Run(Program),
    /// What is in memory of files is written and forgotten.
    Forget,
    /// What the programs have made is removed.
    Clear,
}

/// A program that measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Fio { is_write: bool },
    Bonnie,
    Files { is_create: bool },
    Objects(Objects),
}

/// What is done with objects of a store, by this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// One object is written in blocks.
    Write,
    /// It is read.
    Read,
    /// Small ones are made.
    Create,
    /// They are deleted.
    Delete,
}

impl Objects {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Write, Self::Read, Self::Create, Self::Delete];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }

    /// What of it was found out.
    fn values(self, took: Took) -> Vec<Value> {
        let rate = |measure, things: u64, seconds: f64| Value {
            measure,
            rate: things as f64 / seconds.max(1e-9),
            cpu: None,
        };
        match self {
            Self::Write => vec![
                rate(Measure::BlockWrite, took.bytes, took.durable_seconds),
                rate(Measure::CachedWrite, took.bytes, took.seconds),
            ],
            Self::Read => vec![rate(Measure::BlockRead, took.bytes, took.seconds)],
            Self::Create => vec![rate(Measure::Create, took.files, took.durable_seconds)],
            Self::Delete => vec![rate(Measure::Delete, took.files, took.durable_seconds)],
        }
    }
}

/// What stands for the device among the arguments of a program.
pub(super) const DEVICE: &str = "{}";
/// The smallest unit in which a store gives space, in bytes: with it stores are made here.
const STORE_UNIT_BYTES: u64 = 64 << 10;

/// A program to be run in the directory of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its name; of `azekura` it is the one that runs.
    pub program: String,
    /// Its arguments; `{}` stands for the device.
    pub arguments: Vec<String>,
}

impl Program {
    /// How it is called.
    pub(super) fn job(self, work: &Work, is_root: bool) -> Job {
        let (program, arguments) = match self {
            Self::Fio { is_write } => ("fio", fio::arguments(is_write, work.bytes, work.io_bytes)),
            Self::Bonnie => ("bonnie++", bonnie::arguments(work.char_bytes, is_root)),
            Self::Files { is_create } => {
                let what = if is_create { "create" } else { "delete" };
                let words = ["verify", "files", what, &work.files.to_string()];
                ("azekura", words.map(str::to_owned).to_vec())
            }
            Self::Objects(what) => {
                let sizes = [work.bytes, work.io_bytes, work.files];
                let [bytes, io_bytes, files] = sizes.map(|size| size.to_string());
                let words = ["verify", "objects", what.name(), DEVICE];
                let sizes = [
                    "--bytes",
                    &bytes,
                    "--io-bytes",
                    &io_bytes,
                    "--files",
                    &files,
                ];
                let words = words.iter().chain(&sizes);
                ("azekura", words.map(|word| (*word).to_owned()).collect())
            }
        };
        Job {
            program: program.to_owned(),
            arguments,
        }
    }

    /// What it has found out.
    ///
    /// # Errors
    /// In words.
    pub(super) fn values(self, said: &str) -> Result<Vec<Value>, String> {
        match self {
            Self::Fio { is_write } => fio::values(is_write, said),
            Self::Bonnie => bonnie::values(said),
            Self::Objects(what) => {
                let took = serde_json::from_str(said).map_err(|error| error.to_string())?;
                Ok(what.values(took))
            }
            Self::Files { is_create } => {
                let took: Took = serde_json::from_str(said).map_err(|error| error.to_string())?;
                let measure = match is_create {
                    true => Measure::Create,
                    false => Measure::Delete,
                };
                let rate = took.files as f64 / took.durable_seconds.max(1e-9);
                Ok(vec![Value {
                    measure,
                    rate,
                    cpu: None,
                }])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Work {
        Work {
            groups: Group::ALL.to_vec(),
            bytes: 1 << 30,
            io_bytes: 131_072,
            char_bytes: 1 << 20,
            files: 1000,
        }
    }

    #[test]
    fn nothing_is_read_or_deleted_while_it_is_in_memory() {
        let acts = work().acts();
        for (at, act) in acts.iter().enumerate() {
            if let Act::Run(
                Program::Fio { is_write: false } | Program::Files { is_create: false },
            ) = act
            {
                assert_eq!(acts[at - 1], Act::Forget);
            }
        }
        // What bonnie++ reads is in memory, and its figures say so.
        let of_bonnie = |measure: &Measure| measure.group() == Group::Char;
        let named = Measure::ALL.into_iter().filter(|one| one.is_from_cache());
        let reads = Measure::ALL.into_iter().filter(of_bonnie);
        let reads = reads.filter(|one| *one != Measure::CharWrite);
        assert_eq!(named.collect::<Vec<_>>(), reads.collect::<Vec<_>>());
        assert_eq!(acts.iter().filter(|act| **act == Act::Clear).count(), 3);
        assert_eq!(work().stored_bytes(false), 1 << 30);
        let nothing = Work {
            groups: Vec::new(),
            ..work()
        };
        assert_eq!((nothing.acts().len(), nothing.stored_bytes(true)), (0, 0));
    }

    #[test]
    fn every_measure_has_a_name_of_its_own() {
        let mut names = Measure::ALL.map(Measure::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Measure::ALL.len());
        for group in Group::ALL {
            assert_eq!(Group::by_name(group.name()), Some(group));
        }
    }

    #[test]
    fn a_store_is_measured_by_its_objects() {
        let acts = work().store_acts();
        let objects = Objects::ALL.map(|what| Act::Run(Program::Objects(what)));
        assert_eq!(acts, objects);
        let many = Work {
            files: 100_000,
            ..work()
        };
        assert_eq!(many.stored_bytes(true), 100_000 * STORE_UNIT_BYTES);
        let took = Took {
            files: 10,
            bytes: 1000,
            seconds: 0.25,
            durable_seconds: 0.5,
        };
        let rates = |what: Objects| -> Vec<(Measure, f64)> {
            let values = what.values(took);
            values
                .iter()
                .map(|value| (value.measure, value.rate))
                .collect()
        };
        let writes = [
            (Measure::BlockWrite, 2000.0),
            (Measure::CachedWrite, 4000.0),
        ];
        assert_eq!(rates(Objects::Write), writes);
        assert_eq!(rates(Objects::Delete), [(Measure::Delete, 20.0)]);
        let job = Program::Objects(Objects::Read).job(&work(), true);
        assert_eq!(job.arguments[..4], ["verify", "objects", "read", DEVICE]);
    }

    #[test]
    fn files_are_counted_until_they_are_on_the_disk() {
        let took = Took {
            files: 1000,
            bytes: 1,
            seconds: 0.25,
            durable_seconds: 0.5,
        };
        let said = serde_json::to_string(&took).unwrap();
        let program = Program::Files { is_create: false };
        let values = program.values(&said).unwrap();
        assert_eq!(values[0].measure, Measure::Delete);
        assert!((values[0].rate - 2000.0).abs() < 1e-9);
        assert!(program.values("").is_err());
        let job = program.job(&work(), true);
        assert_eq!(job.arguments, ["verify", "files", "delete", "1000"]);
    }
}
