//! Where what was written onto a disk lies; `azekura disk rollback` and `reset`.

use super::keys::Keys;
use super::place::Image;
use super::runtime;
use super::target::{Target, short};
use crate::config::Config;
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use ::disk::{DiskError, Manifest, Source, Trust, VersionId, overlay};
use std::path::{Path, PathBuf};

/// The file in an overlay's directory.
const FILE: &str = "overlay";

/// Where what is written lies
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct OverlayArgs {
    /// Directory on this machine for what is written onto the disk
    /// [default: one for each disk in ~/.local/state/azekura/disks]
    #[arg(long, value_name = "DIR")]
    overlay: Option<PathBuf>,
}

/// The directory of an overlay; it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(PathBuf);

impl OverlayArgs {
    /// Whether the user has named one.
    pub(super) fn is_named(&self) -> bool {
        self.overlay.is_some()
    }

    /// The directory for a disk, whose repository is absolute. Makes it.
    ///
    /// # Errors
    /// Of making it.
    pub(super) fn place(&self, config: &Config, image: &Image) -> Result<Place> {
        let path = match &self.overlay {
            Some(path) => {
                std::fs::create_dir_all(path).context(path.display())?;
                path.canonicalize().context(path.display())?
            }
            None => {
                let name = &image.name;
                let digest = image.place.digest();
                let of_disk = format!("written/{}@{}-{digest}", name.image(), name.label());
                config.disks(&of_disk)?
            }
        };
        Ok(Place(path))
    }
}

impl Place {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }

    /// For what needs something that was written.
    pub(super) fn nothing_there(&self, image: &Image) -> Failure {
        let path = output::plain(&self.0.to_string_lossy());
        let message = format!(
            "nothing was written onto {}: {path} has no overlay",
            image.name
        );
        Failure::new(Code::NoOverlay, message)
    }
}

/// Throw away what was written onto a disk, and go back to an earlier version
///
/// At once, whatever its size. The disk must not be in use. What the repository's names point to
/// stays as it is: `azekura disk tag` changes that.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  azekura disk rollback http://far.example/images base:3 --to base:2")]
pub(in crate::cli) struct Rollback {
    #[command(flatten)]
    image: Image,
    #[command(flatten)]
    overlay: OverlayArgs,
    /// A name or a version [default: the one from which the disk's version was made]
    #[arg(long, value_name = "VERSION")]
    to: Option<Target>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

/// Throw away what was written onto a disk
///
/// At once, whatever its size. The disk must not be in use. It is then the version to which its
/// name points.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura disk reset http://far.example/images base:2")]
pub(in crate::cli) struct Reset {
    #[command(flatten)]
    image: Image,
    #[command(flatten)]
    overlay: OverlayArgs,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Rollback {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let place = &self.overlay;
        anew(
            config,
            self.image,
            place,
            self.dry_run,
            |source, name, over, trust| {
                if let Some(target) = &self.to {
                    return target.manifest(source, trust).map(Some);
                }
                let (newest, mut manifest) = Target::Name(name.clone()).manifest(source, trust)?;
                if let Some(over) = over.filter(|over| *over != newest) {
                    manifest = Manifest::read(source, over, trust)?;
                }
                let parent = manifest.parents.first();
                let read = |parent: &VersionId| {
                    let manifest = Manifest::read(source, *parent, trust)?;
                    Ok((*parent, manifest))
                };
                parent.map(read).transpose()
            },
        )
    }
}

impl Reset {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        anew(
            config,
            self.image,
            &self.overlay,
            self.dry_run,
            |source, name, _, trust| Target::Name(name.clone()).manifest(source, trust).map(Some),
        )
    }
}

/// A version with what it is; none if there is none.
type Chosen = Result<Option<(VersionId, Manifest)>, DiskError>;

/// Makes an empty overlay over the version that `choose` says, which is told what there is now.
fn anew(
    config: &Config,
    image: Image,
    args: &OverlayArgs,
    dry_run: bool,
    choose: impl Fn(&dyn Source, &::disk::Tag, Option<VersionId>, &Trust) -> Chosen,
) -> Result<()> {
    let image = image.absolute()?;
    let place = args.place(config, &image)?;
    let file = place.file();
    let over = match file.exists() {
        true => match overlay::is_over(&file) {
            Ok((version, _)) => Some(version),
            // It is thrown away.
            Err(DiskError::Damaged { .. }) => None,
            Err(error) => return Err(error.into()),
        },
        false => None,
    };
    let runtime = runtime()?;
    let source = image.place.source(&runtime, &image.way)?;
    let mut keys = Keys::of(config, &image.place, &image.way)?;
    let chosen = keys.believing(|trust| choose(&*source, &image.name, over, trust));
    let name = &image.name;
    let (version, manifest) = chosen?.ok_or_else(|| {
        let message = format!("{name} was made from no earlier version");
        Failure::new(Code::DiskNotFound, message).hint("--to names the version")
    })?;
    // What was written is thrown away for a version that can be read, or not at all.
    manifest.read_index(&*source)?;
    let shown = short(version);
    if dry_run {
        return output::line(format_args!(
            "{name} would be version {shown}, with nothing written"
        ));
    }
    // As the device of an image: whole sectors.
    let len_bytes = manifest.image_bytes.next_multiple_of(512);
    overlay::create(&file, len_bytes, version)?;
    output::line(format_args!(
        "{name} is version {shown} here, with nothing written onto it"
    ))
}
