//! `azekura disk publish`.

use super::image::{Format, RawImage};
use super::keys::Keys;
use super::place::{Place, Way, remember};
use super::{now, runtime, with_bar};
use crate::config::Config;
use crate::errors::{Context, Result};
use crate::output;
use ::disk::publish::CHUNK_BYTES;
use ::disk::{Digest, DiskError, Published, Publishing, Repository, SigningKey, Tag};
use base::ByteSize;
use base::limits::DISK_NOTE_BYTES_MAX;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Publish an image: its chunks that are new, an index, and a name that points to it
///
/// A raw image, a block device, or another format that qemu-img reads. Holes and repeated chunks
/// cost nothing; what the repository has already is not written again. The name may be there: it
/// then points to the new version, and `disk log` shows the ones before. Casync and desync read the
/// result: NAME is IMAGE@LABEL.caibx for them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk publish base.img --to ./www/images --name base:1
  azekura disk publish base.img --to ./www/images --name base:2 --dry-run   # how much is new
  azekura disk publish base.img --to s3://bucket/images --name base:1")]
pub(in crate::cli) struct Publish {
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The repository: a directory, HOST:PORT/VOLUME:/PATH or s3://BUCKET/PREFIX; made if it is not
    /// there
    #[arg(long, value_name = "REPOSITORY")]
    to: Place,
    /// IMAGE:LABEL
    #[arg(long)]
    name: Tag,
    #[command(flatten)]
    how: How,
    /// Format of the image [default: as it begins; block devices are raw]
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<Format>,
    /// Length of chunks: 64KiB, 128KiB, 256KiB or 512KiB. The versions of an image have chunks in
    /// common only if they have the same
    #[arg(long, value_name = "SIZE", default_value = "256KiB")]
    chunk_size: ByteSize,
    /// By what chunks are named: sha512-256, or sha256, which is faster on some processors
    #[arg(long, value_name = "DIGEST", default_value = "sha512-256", value_parser = digest)]
    digest: Digest,
    #[command(flatten)]
    way: Way,
}

/// How what is new is stored
#[derive(Debug, clap::Args)]
pub(super) struct How {
    /// What there is to say about this version
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = note)]
    note: String,
    /// Level of compression, 1 to 19: more takes longer and stores less
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,
    /// Threads that compress [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Count what would be new, without writing anything
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn digest(text: &str) -> Result<Digest, String> {
    match text {
        "sha512-256" => Ok(Digest::Sha512Half),
        "sha256" => Ok(Digest::Sha256),
        _ => Err("either sha512-256 or sha256".to_owned()),
    }
}

fn note(text: &str) -> Result<String, String> {
    match text.len() {
        0..=DISK_NOTE_BYTES_MAX => Ok(text.to_owned()),
        _ => Err(format!("at most {DISK_NOTE_BYTES_MAX} bytes")),
    }
}

impl How {
    /// As the library takes it.
    pub(super) fn publishing(&self, name: Tag, keys: &Keys<'_>) -> Result<Publishing> {
        let usual = Publishing::new(name, now());
        Ok(Publishing {
            level: self.level,
            workers: self.threads.map_or(usual.workers, usize::from),
            note: self.note.clone(),
            trust: keys.trust()?,
            dry_run: self.dry_run,
            ..usual
        })
    }

    /// Prints what was published.
    pub(super) fn print(&self, name: &Tag, published: &Published) -> Result<()> {
        if self.json {
            return output::json(&to_json(name, published));
        }
        output::line(page(name, published))
    }
}

impl Publish {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let chunk_bytes = u32::try_from(self.chunk_size.0).unwrap_or(u32::MAX);
        if !CHUNK_BYTES.contains(&chunk_bytes) {
            return Err(DiskError::ChunkBytes(chunk_bytes).into());
        }
        let place = self.to.clone().absolute()?;
        // Looked at before anything is made.
        std::fs::metadata(&self.image).context(output::plain(&self.image.to_string_lossy()))?;
        // What is not there yet is made elsewhere if nothing is to be written.
        let scratch = self.how.dry_run.then(tempfile::tempdir).transpose();
        let scratch = scratch.context("a temporary directory")?;
        let runtime = runtime()?;
        let to = match (&scratch, place.local()?) {
            (Some(scratch), Some(path)) if Repository::open(&path).is_err() => {
                Place::Directory(scratch.path().to_owned())
            }
            _ => place.clone(),
        };
        let repository = to.made(&runtime, &self.way)?;
        let aside = match &to {
            Place::Directory(path) => path.clone(),
            _ => std::env::temp_dir(),
        };
        let image = RawImage::open(&self.image, self.format, &aside)?;
        let keys = Keys::of(config, &place, &self.way)?;
        let how = Publishing {
            chunk_bytes,
            digest: self.digest,
            ..self.how.publishing(self.name.clone(), &keys)?
        };
        let key = match &scratch {
            Some(scratch) if !config.disk_key().exists() => {
                SigningKey::open_or_create(&scratch.path().join("key"))?
            }
            _ => keys.own()?,
        };
        let published = with_bar("publishing", |progress| {
            ::disk::publish(&repository, image.path(), &how, &key, progress)
        })?;
        if !self.how.dry_run {
            remember(config, &place);
        }
        self.how.print(&self.name, &published)
    }
}

fn to_json(name: &Tag, published: &Published) -> Value {
    json!({
        "name": name.to_string(),
        "version": published.version.map(|version| version.to_string()),
        "image_bytes": published.image_bytes,
        "hole_bytes": published.hole_bytes,
        "chunks": published.chunks,
        "new_chunks": published.new_chunks,
        "new_bytes": published.new_bytes,
    })
}

fn page(name: &Tag, published: &Published) -> String {
    let verb = match published.version {
        Some(version) => format!("is version {version}"),
        None => "would be published".to_owned(),
    };
    format!(
        "{name} {verb}\n{} in {}; new: {}, {} as they are stored",
        output::size(published.image_bytes),
        output::count(published.chunks, "chunk"),
        output::count(published.new_chunks, "chunk"),
        output::size(published.new_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::disk::VersionId;
    use expect_test::expect;

    #[test]
    fn what_was_published_is_told_with_what_was_new() {
        let name: Tag = "base:2".parse().expect("a name");
        let mut published = Published {
            version: Some(VersionId([0xab; 32])),
            image_bytes: 1 << 30,
            chunks: 4096,
            new_chunks: 1,
            new_bytes: 70_000,
            hole_bytes: 0,
        };
        expect![[r#"
            base:2 is version abababababababababababababababababababababababababababababababab
            1.0 GiB in 4096 chunks; new: 1 chunk, 68.4 KiB as they are stored"#]]
        .assert_eq(&page(&name, &published));
        assert_eq!(to_json(&name, &published)["new_bytes"], json!(70_000));
        published.version = None;
        assert!(page(&name, &published).starts_with("base:2 would be published\n"));
        assert_eq!(to_json(&name, &published)["version"], Value::Null);
    }
}
