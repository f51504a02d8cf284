//! `mount.azekura` and `mount.fuse.azekura`: what mount(8) calls for lines in fstab.

use super::mount::{OptionError, Options, Plan};
use crate::address::VolumeAddress;
use crate::config::Config;
use crate::errors::{Code, Failure, Result};
use crate::logging;
use std::path::PathBuf;

/// What mount(8) makes of "the mount failed".
const MOUNT_FAILED: u8 = 32;

/// How a source is written.
const SOURCE: &str = "a source is HOST:PORT/VOLUME, never without the port; in fstab: \
                      far.example:7700/genomes /mnt/g azekura ro,_netdev,nofail 0 0";

/// Mount for mount(8), with its arguments
///
/// Link this program to /sbin/mount.azekura, and mount(8) and fstab know the type azekura. Link it
/// to /sbin/umount.azekura and /sbin/umount.fuse.azekura too, and umount(8) waits for what is
/// unwritten.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mount -t azekura far.example:7700/genomes /mnt/g -o ro")]
pub(super) struct MountHelper {
    /// HOST:PORT/VOLUME
    #[arg(value_name = "SOURCE")]
    source: String,
    /// An existing directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Options as in fstab
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Do not fail for options that do not exist
    #[arg(short)]
    sloppy: bool,
    /// Only check
    #[arg(short, long = "dry-run")]
    fake: bool,
    /// No line in mtab, which does not exist any more
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    /// Type; ours is the only one
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    kind: Option<String>,
    /// A namespace, into which the caller has gone already
    #[arg(short = 'N', hide = true, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

impl MountHelper {
    pub(super) fn run(self, config: &Config, verbose: u8) -> Result<()> {
        logging::to_stderr(verbose);
        self.mount(config, verbose)
            .map_err(|failure| failure.exit(MOUNT_FAILED))
    }

    fn mount(self, config: &Config, verbose: u8) -> Result<()> {
        // The type may stand before the source, as in `fuse.azekura#far:7700/lab`.
        let source = self.source.rsplit('#').next().unwrap_or_default();
        let volume: VolumeAddress = source
            .parse()
            .map_err(|error| Failure::new(Code::Invalid, format!("{error}")).hint(SOURCE))?;
        let plan = Plan {
            volume,
            directory: self.directory,
            options: read_options(&self.options, self.sloppy)?,
            blocking: None,
            verbose,
        };
        if self.fake {
            return plan.prepared().map(drop);
        }
        plan.start(config)
    }
}

fn read_options(texts: &[String], sloppy: bool) -> Result<Options> {
    // One text, so that a later word replaces an earlier one.
    let mut words: Vec<&str> = texts.iter().flat_map(|text| text.split(',')).collect();
    if sloppy {
        // A second mount on top is not what a remount asks for, also of those who forgive much.
        words.retain(|word| !matches!(word.parse::<Options>(), Err(error) if error.is_forgiven()));
    }
    let options: Result<Options, OptionError> = words.join(",").parse();
    options.map_err(|error| {
        let failure = Failure::new(Code::MountOption, error.to_string());
        match error {
            OptionError::Remount => failure.hint(
                "the mount stays as it is; azekura umount waits for what is unwritten before it \
                 takes one off",
            ),
            _ => failure,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sloppiness_forgives_unknown_options_only() {
        let texts = ["rw,compress=9".to_owned(), "ro".to_owned()];
        let failure = read_options(&texts, false).expect_err("compress is not ours");
        assert_eq!(failure.code(), Code::MountOption);
        let options = read_options(&texts, true).expect("forgiven");
        assert!(options.read_only);
        let remount = ["remount,ro".to_owned()];
        for sloppy in [false, true] {
            let failure = read_options(&remount, sloppy).expect_err("a mount stays as it is");
            assert!(failure.message().contains("mount it again"), "{failure}");
        }
    }
}
