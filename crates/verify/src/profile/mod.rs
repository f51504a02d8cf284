//! A profile: everything that can be verified, as parts that one command runs one after the other.
//!
//! ```text
//! part   = a name, the arguments of its own command, its weight, the least time that it needs
//! budget = what is left of the time, divided among the parts that are left by their weights
//! ```
//!
//! Parts are commands that anybody can run, each with its result in a file: what a part has found
//! is there as soon as it is done, and a run that was ended goes on behind it. The parts whose work
//! is given come first. Those that go through states as long as there is time come last, so that
//! what the others have not used is theirs.

mod budget;

pub use budget::{Budget, Share};

use crate::crash::Target;
use crate::results::Kind;
use std::time::Duration;

/// Which parts there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As much as five minutes on two processors tell.
    Quick,
    /// Everything, as long as it takes: days.
    Full,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Quick, Self::Full];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// The profile with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// How long it may take unless somebody says otherwise.
    #[must_use]
    pub const fn time(self) -> Option<Duration> {
        match self {
            Self::Quick => Some(Duration::from_secs(300)),
            Self::Full => None,
        }
    }
}

/// What is run, on what it depends on the machine.
#[derive(Clone, Debug)]
pub struct Given {
    /// Whether it is run by root.
    pub is_root: bool,
    /// File systems that can be made here.
    pub made: Vec<Target>,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Where large files are made, if the user has said so.
    pub scratch: Option<String>,
    /// The directory of the results. Somebody who is not root measures there.
    pub directory: String,
}

/// A part of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name, unique within the profile.
    pub name: String,
    /// What kind of result it has.
    pub kind: Kind,
    /// The arguments of its command.
    pub arguments: Vec<String>,
    /// Its share of the time, against those of the others.
    pub weight: u32,
    /// With less time it has no result.
    pub least: Duration,
}

/// Something that is no part here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Which part.
    pub name: String,
    /// Why not.
    pub why: String,
}

/// The parts of a profile, in their order, and what is not one of them here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// To be run.
    pub parts: Vec<Part>,
    /// Not to be run.
    pub absent: Vec<Absent>,
}

/// Sizes of memory of the paper's figures 6 to 8, without every second of them.
const MEMORY: [(u64, &str); 5] = [
    (256 << 20, "256MiB"),
    (512 << 20, "512MiB"),
    (1 << 30, "1GiB"),
    (2 << 30, "2GiB"),
    (4 << 30, "4GiB"),
];
/// More states than there are.
const ALL_STATES: &str = "1000000";

/// The least time of each kind: what it takes until there is something to tell.
const fn least(kind: Kind) -> Duration {
    Duration::from_secs(match kind {
        Kind::Crash => 2,
        Kind::Speed => 6,
        Kind::Tune => 12,
        // A machine boots in 10 to 30 s.
        Kind::Powercut => 45,
    })
}

const fn weight(kind: Kind) -> u32 {
    match kind {
        Kind::Crash => 3,
        Kind::Speed | Kind::Powercut => 12,
        Kind::Tune => 6,
    }
}

impl Parts {
    /// Those of a profile on this machine.
    #[must_use]
    pub fn new(profile: Profile, given: &Given) -> Self {
        let mut parts = Self::default();
        match profile {
            Profile::Quick => parts.quick(given),
            Profile::Full => parts.full(given),
        }
        parts
    }

    fn add(&mut self, name: &str, kind: Kind, words: &str, more: &[&str]) {
        let words = words.split(' ').filter(|word| !word.is_empty());
        let mut arguments = vec!["verify".to_owned(), kind.name().to_owned()];
        arguments.extend(words.chain(more.iter().copied()).map(str::to_owned));
        arguments.push("--json".to_owned());
        self.parts.push(Part {
            name: name.to_owned(),
            kind,
            arguments,
            weight: weight(kind),
            least: least(kind),
        });
    }

    fn leave_out(&mut self, name: &str, why: &str) {
        self.absent.push(Absent {
            name: name.to_owned(),
            why: why.to_owned(),
        });
    }

    fn quick(&mut self, given: &Given) {
        let scratch = scratch(given);
        let little = "--size 16MiB --char-size 1MiB --files 500 --repeat 3";
        let targets = self.targets(given);
        match given.is_root && !targets.is_empty() {
            true => self.add(
                "speed",
                Kind::Speed,
                &format!("--target {targets} {little}"),
                &scratch,
            ),
            false => self.directory(given, little),
        }
        let tune = "--target ext4 --flush-time 30s,1s --waits 0s,2s --size 4MiB --repeat 1";
        self.add("tune", Kind::Tune, tune, &scratch);
        let cuts = "--target ext4 --how close,fsync --size 1MiB --wait 0s,5s --cuts-max 3";
        self.power_cuts(Profile::Quick, cuts, given);
        self.crashes(given, "--no-recoveries");
    }

    /// What somebody who is not root can measure.
    fn directory(&mut self, given: &Given, sizes: &str) {
        // With a slash it is no name of a file system.
        let directory = format!("{}/", given.directory.trim_end_matches('/'));
        let more = ["--target", &directory, "--keep-caches"];
        self.add("speed", Kind::Speed, sizes, &more);
    }

    fn full(&mut self, given: &Given) {
        let scratch = scratch(given);
        let targets = self.targets(given);
        let repeats = "--repeat 6 --files 100000";
        match given.is_root && !targets.is_empty() {
            true => self.add(
                "speed",
                Kind::Speed,
                &format!("--target {targets} --block-size 1KiB,4KiB {repeats}"),
                &scratch,
            ),
            false => self.directory(given, repeats),
        }
        for target in given.made.iter().filter(|one| **one != Target::Store) {
            self.matrix(target.name(), given, &scratch);
        }
        let cuts = "--size 1MiB,10MiB,100MiB --wait 0s,5s,10s --flush-time 30s,3s,1s --how \
                    close,fsync,fdatasync,rename --disk-cache none,lost --half-width 0.1 \
                    --cuts-max 100";
        self.crashes(given, "");
        self.power_cuts(Profile::Full, cuts, given);
    }

    /// Every cut is kept beside the results, so that none is made twice.
    fn power_cuts(&mut self, profile: Profile, words: &str, given: &Given) {
        let (directory, name) = (given.directory.trim_end_matches('/'), profile.name());
        let state = format!("{directory}/{name}-powercut.jsonl");
        let more = [&scratch(given)[..], &["--state", &state]].concat();
        self.add("powercut", Kind::Powercut, words, &more);
    }

    /// Sections 4 and 5 of the paper, of one file system.
    fn matrix(&mut self, name: &str, given: &Given, scratch: &[&str]) {
        let fits = MEMORY
            .iter()
            .filter(|(bytes, _)| *bytes <= given.memory_bytes);
        let memory: Vec<&str> = fits.map(|(_, size)| *size).collect();
        let part = format!("memory-{name}");
        match memory.len() < 2 {
            true => self.leave_out(&part, "the machine has less than 512 MiB of memory"),
            false => {
                let memory = memory.join(",");
                let words = format!(
                    "--target {name} --memory {memory} --size 1GiB --char-size 16MiB --measure \
                     char,block --repeat 6"
                );
                self.add(&part, Kind::Speed, &words, scratch);
            }
        }
        let flush = format!("--target {name} --flush-time 30s,10s,5s,3s,1s");
        let words = format!("{flush} --measure block --repeat 6");
        self.add(&format!("flush-{name}"), Kind::Speed, &words, scratch);
        let words =
            format!("--target {name} --set max_sectors_kb=16,32,64,128 --measure block --repeat 6");
        self.add(&format!("cluster-{name}"), Kind::Speed, &words, scratch);
        let words = format!("{flush} --repeat 6");
        self.add(&format!("tune-{name}"), Kind::Tune, &words, scratch);
    }

    /// All sequences of one operation with all their states, on every file system, and as many
    /// workloads on the store.
    fn crashes(&mut self, given: &Given, more: &str) {
        for target in &given.made {
            let name = target.name();
            let words = match target {
                // A store has other operations, and more of them than anybody can go through.
                Target::Store => format!("--target store --points 10000 {more}"),
                _ => format!("--target {name} --workload one --points {ALL_STATES} {more}"),
            };
            self.add(&format!("crash-{name}"), Kind::Crash, &words, &[]);
        }
    }

    /// The names of file systems that can be made; the others are left out.
    fn targets(&mut self, given: &Given) -> String {
        for target in Target::ALL {
            if !given.made.contains(&target) {
                let (program, package) = target.maker();
                let name = target.name();
                let why = format!("{program} is not installed (apt-get install {package})");
                self.leave_out(&format!("crash-{name}"), &why);
            }
        }
        let names: Vec<&str> = given.made.iter().map(|target| target.name()).collect();
        names.join(",")
    }

    /// Keeps those with one of these names.
    ///
    /// # Errors
    /// The first name that no part has.
    pub fn only(&mut self, names: &[String]) -> Result<(), String> {
        let known = self.parts.iter().map(|part| &part.name);
        let known: Vec<&String> = known
            .chain(self.absent.iter().map(|one| &one.name))
            .collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
            let all: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
            return Err(format!(
                "{unknown} is no part; there are {}",
                all.join(", ")
            ));
        }
        self.parts.retain(|part| names.contains(&part.name));
        self.absent.retain(|one| names.contains(&one.name));
        Ok(())
    }
}

fn scratch(given: &Given) -> Vec<&str> {
    match &given.scratch {
        Some(directory) => vec!["--scratch", directory],
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn given() -> Given {
        Given {
            is_root: true,
            made: Target::ALL.to_vec(),
            memory_bytes: 3 << 30,
            scratch: None,
            directory: "/srv/x".into(),
        }
    }

    fn names(parts: &Parts) -> Vec<&str> {
        parts.parts.iter().map(|part| part.name.as_str()).collect()
    }

    #[test]
    fn what_has_given_work_comes_before_what_takes_the_time_that_is_left() {
        let parts = Parts::new(Profile::Quick, &given());
        let known = [
            "speed",
            "tune",
            "powercut",
            "crash-ext4",
            "crash-xfs",
            "crash-btrfs",
            "crash-ext3",
            "crash-ext2",
            "crash-store",
        ];
        assert_eq!(names(&parts), known);
        assert!(parts.absent.is_empty());
        for part in &parts.parts {
            assert_eq!(part.arguments[..2], ["verify", part.kind.name()]);
            assert_eq!(part.arguments.last().map(String::as_str), Some("--json"));
        }
    }

    #[test]
    fn what_the_machine_lacks_is_left_out_by_name() {
        let little = Given {
            made: vec![Target::Ext4, Target::Store],
            memory_bytes: 300 << 20,
            ..given()
        };
        let parts = Parts::new(Profile::Full, &little);
        assert!(names(&parts).contains(&"flush-ext4") && !names(&parts).contains(&"flush-xfs"));
        let absent: Vec<&str> = parts.absent.iter().map(|one| one.name.as_str()).collect();
        let known = [
            "crash-xfs",
            "crash-btrfs",
            "crash-ext3",
            "crash-ext2",
            "memory-ext4",
        ];
        assert_eq!(absent, known);
        assert!(parts.absent[0].why.contains("apt-get install xfsprogs"));
        let speed = &parts.parts[0];
        assert!(
            speed.arguments.contains(&"ext4,store".to_owned()),
            "{speed:?}"
        );
    }

    #[test]
    fn memory_is_not_asked_for_that_is_not_there() {
        let parts = Parts::new(Profile::Full, &given());
        let memory = parts.parts.iter().find(|part| part.name == "memory-xfs");
        let arguments = &memory.expect("there are 3 GiB").arguments;
        assert!(
            arguments.contains(&"256MiB,512MiB,1GiB,2GiB".to_owned()),
            "{arguments:?}"
        );
        let unique: BTreeSet<&str> = names(&parts).into_iter().collect();
        assert_eq!(unique.len(), parts.parts.len());
    }

    #[test]
    fn without_root_a_directory_is_measured() {
        let user = Given {
            is_root: false,
            scratch: Some("/big".into()),
            ..given()
        };
        let parts = Parts::new(Profile::Quick, &user);
        let speed = parts.parts[0].arguments.join(" ");
        assert!(speed.contains("--target /srv/x/ --keep-caches"), "{speed}");
        let tune = parts.parts[1].arguments.join(" ");
        assert!(tune.ends_with("--scratch /big --json"), "{tune}");
    }

    #[test]
    fn parts_are_chosen_by_their_names() {
        let mut parts = Parts::new(Profile::Quick, &given());
        let wrong = parts.only(&["crash".to_owned()]).unwrap_err();
        assert!(wrong.contains("crash-ext4"), "{wrong}");
        parts
            .only(&["crash-store".to_owned(), "speed".to_owned()])
            .unwrap();
        assert_eq!(names(&parts), ["speed", "crash-store"]);
    }
}
