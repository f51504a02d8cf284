//! The long suites: file system tests of others and real applications on a mount.
//!
//! Each suite runs as a process of its own in namespaces of its own ([`crate::sandbox`]) with a
//! time limit, so that a hanging mount ends one suite and leaves nothing behind. What a suite needs
//! from outside (programs to install, the product's binary) is made before, where the network is as
//! usual. The subject is a directory: `--mount DIR` names one, otherwise a [`Playground`] serves
//! and mounts one of each kind of volume, or of the kind that `--volume` names. Run against a plain
//! ext4 directory, the suites show their own baseline.

mod acl;
mod acl_tests;
mod apps;
mod bench;
mod boot;
mod bucket;
mod consistency;
mod faults;
mod fsx;
mod fuzz;
mod install;
mod kill9;
mod loop_disk;
mod overlay;
mod pjdfstest;
mod playground;
mod powercut;
mod recorders;
mod report;
mod seed;
mod smbtorture;
mod store;
mod verify;

use crate::args::Args;
use crate::process;
use crate::sandbox::{self, Network};
use crate::scratch::Scratch;
use crate::tools::skipped;
use crate::workspace;
use anyhow::{Context, Result, bail};
use playground::{Playground, VolumeKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One suite.
struct Suite {
    name: &'static str,
    limit: Duration,
    /// Whether it judges a directory.
    on_mount: bool,
    /// Makes what the suite needs; returns why it cannot run here.
    prepare: fn() -> Result<Option<String>>,
    run: fn(&Subject) -> Result<()>,
}

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

const SUITES: [Suite; 19] = [
    Suite {
        name: "pjdfstest",
        limit: minutes(20),
        on_mount: true,
        prepare: pjdfstest::prepare,
        run: pjdfstest::run,
    },
    Suite {
        name: "fsx",
        limit: minutes(60),
        on_mount: true,
        prepare: fsx::prepare,
        run: fsx::run,
    },
    Suite {
        name: "apps",
        limit: minutes(30),
        on_mount: true,
        prepare: apps::prepare,
        run: apps::run,
    },
    Suite {
        name: "consistency",
        limit: minutes(60),
        on_mount: false,
        prepare: consistency::prepare,
        run: consistency::run,
    },
    Suite {
        name: "acl",
        limit: minutes(60),
        on_mount: false,
        prepare: acl::prepare,
        run: acl::run,
    },
    Suite {
        name: "acl-tests",
        limit: minutes(20),
        on_mount: true,
        prepare: acl_tests::prepare,
        run: acl_tests::run,
    },
    Suite {
        name: "smbtorture",
        limit: minutes(30),
        on_mount: false,
        prepare: smbtorture::prepare,
        run: smbtorture::run,
    },
    Suite {
        name: "kill9",
        limit: minutes(60),
        on_mount: false,
        prepare: kill9::prepare,
        run: kill9::run,
    },
    Suite {
        name: "store",
        limit: minutes(60),
        on_mount: false,
        prepare: store::prepare,
        run: store::run,
    },
    Suite {
        name: "verify",
        limit: minutes(180),
        on_mount: false,
        prepare: verify::prepare,
        run: verify::run,
    },
    Suite {
        name: "faults",
        limit: minutes(60),
        on_mount: false,
        prepare: faults::prepare,
        run: faults::run,
    },
    Suite {
        name: "recorders",
        limit: minutes(60),
        on_mount: false,
        prepare: recorders::prepare,
        run: recorders::run,
    },
    Suite {
        name: "report",
        limit: minutes(40),
        on_mount: false,
        prepare: report::prepare,
        run: report::run,
    },
    Suite {
        name: "powercut",
        limit: minutes(60),
        on_mount: false,
        prepare: powercut::prepare,
        run: powercut::run,
    },
    Suite {
        name: "boot",
        limit: minutes(60),
        on_mount: false,
        prepare: boot::prepare,
        run: boot::run,
    },
    Suite {
        name: "bucket",
        limit: minutes(30),
        on_mount: false,
        prepare: bucket::prepare,
        run: bucket::run,
    },
    Suite {
        name: "overlay",
        limit: minutes(120),
        on_mount: false,
        prepare: overlay::prepare,
        run: overlay::run,
    },
    Suite {
        name: "bench",
        limit: minutes(60),
        on_mount: false,
        prepare: bench::prepare,
        run: bench::run,
    },
    Suite {
        name: "fuzz",
        limit: minutes(60),
        on_mount: false,
        prepare: fuzz::prepare,
        run: fuzz::run,
    },
];

/// What a suite works with.
struct Subject {
    /// An empty directory on the file system that is judged.
    directory: PathBuf,
    /// A local directory for logs and acknowledgements.
    scratch: PathBuf,
    options: Options,
}

/// The command line.
#[derive(Clone)]
struct Options {
    mount: Option<PathBuf>,
    /// What a playground serves; one after the other without it.
    volume: Option<VolumeKind>,
    /// The first seed, if one was given; a failure names the one to begin with.
    seed: Option<u64>,
    seeds: u64,
    operations: u64,
    seconds: u64,
    /// How many requests are judged; the suite knows without it.
    cases: Option<u64>,
}

impl Options {
    fn take(args: &mut Args) -> Result<Self> {
        Ok(Self {
            mount: args.take_value("--mount")?,
            volume: args.take_value("--volume")?,
            seed: args.take_value("--seed")?,
            seeds: args.take_value("--seeds")?.unwrap_or(20),
            operations: args.take_value("--operations")?.unwrap_or(20_000),
            seconds: args.take_value("--seconds")?.unwrap_or(60),
            cases: args.take_value("--cases")?,
        })
    }

    /// The first seed of a suite that is the same each time.
    fn first_seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(mount) = &self.mount {
            words.push(format!("--mount={}", mount.display()));
        }
        if let Some(volume) = self.volume {
            words.push(format!("--volume={}", volume.name()));
        }
        words.extend(self.seed.map(|seed| format!("--seed={seed}")));
        words.push(format!("--seeds={}", self.seeds));
        words.push(format!("--operations={}", self.operations));
        words.push(format!("--seconds={}", self.seconds));
        words.extend(self.cases.map(|cases| format!("--cases={cases}")));
        words
    }
}

/// `cargo xtask deep [SUITE...]`
pub(crate) fn run(mut args: Args) -> Result<()> {
    let inside = args.take_value::<PathBuf>("--inside")?;
    let mut options = Options::take(&mut args)?;
    if let Some(mount) = &mut options.mount {
        *mount = mount
            .canonicalize()
            .with_context(|| mount.display().to_string())?;
    }
    let wanted = args.finish()?;
    if let Some(unknown) = wanted.iter().find(|name| suite(name).is_none()) {
        bail!(
            "no suite {unknown:?}; there are: {}",
            SUITES.map(|suite| suite.name).join(" ")
        );
    }
    if let Some(binary) = inside {
        let name = wanted.first().context("--inside needs a suite")?;
        return run_inside(suite(name).expect("checked above"), &binary, options);
    }
    if let Some(why) = sandbox::obstacle() {
        bail!("deep: {why}; run it as root");
    }
    let chosen = SUITES
        .iter()
        .filter(|suite| wanted.is_empty() || wanted.iter().any(|name| name == suite.name));
    run_all(chosen, &options)
}

fn suite(name: &str) -> Option<&'static Suite> {
    const ALL: &[Suite] = &SUITES;
    ALL.iter().find(|suite| suite.name == name)
}

fn run_all<'a>(suites: impl Iterator<Item = &'a Suite>, options: &Options) -> Result<()> {
    let binary = match options.mount {
        Some(_) => PathBuf::from("none"),
        None => workspace::build_azekura(true)?,
    };
    let mut rows = Vec::new();
    let mut failed = 0;
    for (suite, options) in suites.flat_map(|suite| runs(suite, options)) {
        let on = options.volume.map_or("", VolumeKind::name);
        println!("deep: {} {on}", suite.name);
        let started = Instant::now();
        let result = match (suite.prepare)()? {
            Some(why) => {
                skipped(suite.name, &why);
                format!("skipped: {why}")
            }
            None => {
                let outcome = run_apart(suite, &binary, &options)?;
                failed += usize::from(!outcome.success);
                if outcome.success {
                    "passed".to_owned()
                } else {
                    format!("FAILED: {}", outcome.end)
                }
            }
        };
        rows.push(format!(
            "{:<11} {on:<8} {:>7.0} s  {result}",
            suite.name,
            started.elapsed().as_secs_f64()
        ));
    }
    println!("\n{}", rows.join("\n"));
    if failed > 0 {
        bail!("deep: {failed} suites failed");
    }
    Ok(())
}

/// A suite that judges a directory runs once for each kind of volume that a playground serves. The
/// others have mounts of their own, of both kinds if none is named.
fn runs<'a>(suite: &'a Suite, options: &Options) -> Vec<(&'a Suite, Options)> {
    let with = |volume| Options {
        volume,
        ..options.clone()
    };
    match (suite.on_mount, &options.mount, options.volume) {
        (true, None, None) => VolumeKind::ALL.map(|kind| (suite, with(Some(kind)))).into(),
        (true, None, kind) => vec![(suite, with(kind))],
        (false, _, kind) => vec![(suite, with(kind))],
        (true, Some(_), _) => vec![(suite, with(None))],
    }
}

/// This program again, for one suite, where nothing can stay behind.
fn run_apart(suite: &Suite, binary: &Path, options: &Options) -> Result<process::Outcome> {
    let mut command = sandbox::command(Network::Shared, std::env::current_exe()?);
    command
        .args(["deep", suite.name])
        .arg(format!("--inside={}", binary.display()));
    process::stream(command.args(options.words()), suite.limit)
}

fn run_inside(suite: &Suite, binary: &Path, options: Options) -> Result<()> {
    let scratch = Scratch::new("deep")?;
    let local = scratch.directory("local")?;
    if !suite.on_mount {
        let subject = Subject {
            directory: local.clone(),
            scratch: local,
            options,
        };
        return (suite.run)(&subject);
    }
    let playground = match options.mount {
        Some(_) => None,
        None => {
            let volume = options.volume.unwrap_or(VolumeKind::Export);
            Some(Playground::start(binary, volume)?)
        }
    };
    let parent = match (&playground, &options.mount) {
        (Some(playground), _) => playground.mount().to_owned(),
        (None, Some(mount)) => mount.clone(),
        (None, None) => bail!("neither a mount nor a playground"),
    };
    // Dropped before the playground, which unmounts what it lies on.
    let directory = Scratch::within(&parent, suite.name)?;
    let subject = Subject {
        directory: directory.path().to_owned(),
        scratch: local,
        options,
    };
    let result = (suite.run)(&subject);
    drop(directory);
    match playground {
        Some(playground) => result.and(playground.stop()),
        None => result,
    }
}

/// Runs one of the product's end-to-end tests for longer than `cargo xtask ci` does, as a variable
/// of its environment says. The names of those on a parallel volume say so.
fn end_to_end(
    test: &str,
    settings: &[(&str, String)],
    volume: Option<VolumeKind>,
    limit: Duration,
) -> Result<()> {
    // Of the whole workspace: with the features that `cargo xtask ci` has compiled.
    let arguments = ["test", "--locked", "--workspace", "--test", test];
    let mut command = workspace::cargo(&arguments);
    command.args(["--", "--nocapture"]);
    command.envs(settings.iter().map(|(variable, value)| (variable, value)));
    match volume {
        Some(VolumeKind::Export) => command.args(["--skip", "parallel"]),
        Some(VolumeKind::Parallel) => command.arg("parallel"),
        None => &mut command,
    };
    process::stream(&mut command, limit)?.check(test)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_way_inside() {
        let line = "fsx --mount /tmp --volume parallel --seed 5 --seeds 3 --operations 7 \
                    --seconds 9 --cases 4";
        let mut args = Args::new(line.split(' ').map(str::to_owned).collect());
        let options = Options::take(&mut args).unwrap();
        let mut again = Args::new(options.words());
        let inside = Options::take(&mut again).unwrap();
        assert_eq!(inside.words(), options.words());
        assert_eq!((inside.seed, inside.seeds), (Some(5), 3));
        assert_eq!((inside.operations, inside.seconds), (7, 9));
        assert_eq!(inside.cases, Some(4));
        assert_eq!(inside.mount, Some(PathBuf::from("/tmp")));
        assert_eq!(inside.volume, Some(VolumeKind::Parallel));
        assert_eq!(args.finish().unwrap(), ["fsx"]);
    }

    #[test]
    fn a_mistyped_suite_is_named() {
        let error = run(Args::new(vec!["fxs".to_owned()])).unwrap_err();
        assert!(error.to_string().contains("fxs"));
    }
}
