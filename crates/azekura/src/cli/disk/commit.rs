//! `azekura disk commit`.

use super::keys::Keys;
use super::opened::{Ahead, CacheArgs, Writing, open};
use super::overlay::OverlayArgs;
use super::place::{Image, Place, remember};
use super::publish::How;
use super::{runtime, with_bar};
use crate::config::Config;
use crate::errors::Result;
use ::disk::{Tag, Trust};

/// Publish what was written onto a disk as the next version
///
/// Takes time for what has changed, whatever the size of the disk: only its chunks are read, and
/// those that are new are stored. The disk must not be in use. What was written stays where it is,
/// over its old version; `azekura disk reset` throws it away.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  azekura disk commit http://far.example/images base:2 --to ./www/images --name base:3")]
pub(in crate::cli) struct Commit {
    #[command(flatten)]
    image: Image,
    /// The repository that has the disk's version: a directory, HOST:PORT/VOLUME:/PATH or
    /// s3://BUCKET/PREFIX [default: where the disk is from]
    #[arg(long, value_name = "REPOSITORY")]
    to: Option<Place>,
    /// IMAGE:LABEL
    #[arg(long)]
    name: Tag,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    overlay: OverlayArgs,
    #[command(flatten)]
    cache: CacheArgs,
}

impl Commit {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let image = self.image.absolute()?;
        let to = match &self.to {
            Some(place) => place.clone().absolute()?,
            None => image.place.clone(),
        };
        let runtime = runtime()?;
        let repository = to.repository(&runtime, &image.way)?;
        let overlay = self.overlay.place(config, &image)?;
        let writing = Writing::IntoFound(&overlay);
        let ahead = Ahead::default();
        let opened = open(config, &runtime, &image, &self.cache, writing, ahead)?;
        let overlay = opened.overlay.as_ref().expect("it is there, or an error");
        let keys = Keys::of(config, &to, &image.way)?;
        let mut how = self.how.publishing(self.name.clone(), &keys)?;
        // Who is believed where the disk is from is believed where it is kept.
        let from = Keys::of(config, &image.place, &image.way)?.trust()?;
        if let (Trust::Keys(keys), Trust::Keys(more)) = (&mut how.trust, from) {
            keys.extend(more);
        }
        let key = keys.own()?;
        let published = with_bar("committing", |progress| {
            ::disk::commit(&repository, overlay, &how, &key, progress)
        })?;
        opened.finish()?;
        if !self.how.dry_run {
            remember(config, &to);
        }
        self.how.print(&self.name, &published)
    }
}
