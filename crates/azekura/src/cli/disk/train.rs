//! `azekura disk train`.

use super::place::At;
use super::recording;
use super::target::Target;
use super::{now, with_bar};
use crate::config::Config;
use crate::errors::{Code, Failure, Result};
use crate::output;
use ::disk::{DiskError, HowToTrain, Profile, Source, Tag, Training, TrainingReport, Trust};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Prepare a version for what is done with it, so that it comes in few requests
///
/// What was read of a disk in a run (`serve` or `attach` with --record FILE) becomes a profile of
/// the version, several runs become one. Chunks are cut along what the profiles touch, and those of
/// each profile are put into one file. The version stays what it is; names, disks in use and other
/// programs see no difference but the time. Without anything to do, says which profiles there are.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk serve ./www/images base:2 --nbd unix:disk.sock --record boot.profile
  azekura disk train base:2 boot.profile --at ./www/images
  azekura disk train base:3 --from base:2          # the next version, the same profiles
  azekura disk train base:2                        # which there are")]
pub(in crate::cli) struct Train {
    /// IMAGE:LABEL
    #[arg(value_name = "NAME")]
    name: Tag,
    /// What was recorded, one file for each run
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The profile's name [default: that of each file]
    #[arg(long = "as", value_name = "PROFILE", requires = "files")]
    profile: Option<String>,
    /// Only what at least so many runs have needed
    #[arg(long, value_name = "N", default_value_t = 1, requires = "files")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    common: u16,
    /// Without the runs that a profile of the same name has already
    #[arg(long, requires = "files")]
    replace: bool,
    /// Take the profiles of another version of the image: a name or a version
    #[arg(long, value_name = "VERSION")]
    from: Option<Target>,
    /// Drop this profile; several times for several
    #[arg(long, value_name = "PROFILE")]
    forget: Vec<String>,
    /// Leave chunks as they are; only put those of each profile into one file
    #[arg(long)]
    no_cut: bool,
    #[command(flatten)]
    at: At,
    /// Level of compression of new chunks, 1 to 19
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,
    /// Count what would be new, without writing anything
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Train {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let place = self.at.place(config)?;
        let mut keys = self.at.keys(config, &place)?;
        let is_question = self.files.is_empty() && self.from.is_none() && self.forget.is_empty();
        let runtime = super::runtime()?;
        if is_question {
            let source = place.source(&runtime, &self.at.way)?;
            let known = keys.believing(|trust| profiles_of(&*source, &self.target(), trust))?;
            return self.print_known(&known);
        }
        let repository = place.repository(&runtime, &self.at.way)?;
        let source = repository.source();
        let target = self.target();
        let (version, _) = keys.believing(|trust| target.manifest(source, trust))?;
        let trust = keys.trust()?;
        let known = profiles_of(source, &target, &trust)?;
        self.check_forgotten(&known)?;
        let mut profiles = match &self.from {
            Some(other) => profiles_of(source, other, &trust)?,
            None => Vec::new(),
        };
        for new in self.recorded()? {
            let mut before = known.iter().chain(&profiles);
            let before = before.rfind(|profile| profile.name() == new.name());
            let merged = match before.filter(|_| !self.replace) {
                Some(before) => before.merged(&new),
                None => new,
            };
            let merged = merged.common(self.common);
            profiles.retain(|profile| profile.name() != merged.name());
            profiles.push(merged);
        }
        let how = HowToTrain {
            cut: !self.no_cut,
            forget: self.forget.clone(),
            level: self.level,
            trust,
            dry_run: self.dry_run,
            ..HowToTrain::new(now())
        };
        let key = keys.own()?;
        let report = with_bar("training", |progress| {
            ::disk::train(&repository, version, &profiles, &how, &key, progress)
        })?;
        self.print(&report)
    }

    fn target(&self) -> Target {
        Target::Name(self.name.clone())
    }

    fn check_forgotten(&self, known: &[Profile]) -> Result<()> {
        let is_known = |name: &String| known.iter().any(|profile| profile.name() == name);
        match self.forget.iter().find(|name| !is_known(name)) {
            Some(unknown) => Err(DiskError::NoProfile(unknown.clone()).into()),
            None => Ok(()),
        }
    }

    /// What the files hold, the runs of one name together.
    fn recorded(&self) -> Result<Vec<Profile>> {
        let mut profiles: Vec<Profile> = Vec::new();
        for path in &self.files {
            let mut one = recording::read(path)?;
            if let Some(name) = &self.profile {
                one = one.renamed(name)?;
            }
            match profiles.iter_mut().find(|known| known.name() == one.name()) {
                Some(known) => *known = known.merged(&one),
                None => profiles.push(one),
            }
        }
        let is_empty = |profile: &&Profile| profile.common(self.common).touches().is_empty();
        if let Some(empty) = profiles.iter().find(is_empty) {
            let message = format!("nothing was read in the runs of {}", empty.name());
            return Err(Failure::new(Code::DiskInvalid, message)
                .hint("record a run in which the disk is used; --common N leaves out much"));
        }
        Ok(profiles)
    }

    fn print_known(&self, known: &[Profile]) -> Result<()> {
        if self.json {
            let profiles: Vec<Value> = known.iter().map(to_json).collect();
            return output::json(&json!({
                "name": self.name.to_string(),
                "profiles": profiles,
            }));
        }
        if known.is_empty() {
            return output::line(format_args!("{} was not trained", self.name));
        }
        let row = |profile: &Profile| {
            [
                profile.name().to_owned(),
                profile.runs().to_string(),
                output::size(profile.hot().bytes()),
            ]
        };
        let rows: Vec<_> = known.iter().map(row).collect();
        output::write(&output::table(["PROFILE", "RUNS", "READ"], &rows))
    }

    fn print(&self, report: &TrainingReport) -> Result<()> {
        if self.json {
            return output::json(&json!({
                "name": self.name.to_string(),
                "profiles": report.profiles,
                "chunks": report.chunks,
                "cut_chunks": report.cut_chunks,
                "new_chunks": report.new_chunks,
                "new_bytes": report.new_bytes,
                "pack_bytes": report.pack_bytes,
                "dry_run": self.dry_run,
            }));
        }
        let verb = if self.dry_run { "would be" } else { "is" };
        let profiles = match report.profiles.is_empty() {
            true => "nothing".to_owned(),
            false => report.profiles.join(", "),
        };
        output::line(format_args!(
            "{} {verb} trained for {profiles}\n{} cut; new: {}, {} as they are stored; {} of packs",
            self.name,
            output::count(report.cut_chunks, "chunk"),
            output::count(report.new_chunks, "chunk"),
            output::size(report.new_bytes),
            output::size(report.pack_bytes),
        ))
    }
}

/// The profiles of a version.
fn profiles_of(
    source: &dyn Source,
    target: &Target,
    trust: &Trust,
) -> Result<Vec<Profile>, DiskError> {
    let (version, _) = target.manifest(source, trust)?;
    match Training::find(source, version, trust)? {
        Some(training) => training.profiles(source),
        None => Ok(Vec::new()),
    }
}

fn to_json(profile: &Profile) -> Value {
    json!({
        "name": profile.name(),
        "runs": profile.runs(),
        "read_bytes": profile.hot().bytes(),
    })
}
