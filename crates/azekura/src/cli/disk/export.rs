//! `azekura disk export`.

use super::opened::{Ahead, CacheArgs, Writing, open};
use super::overlay::OverlayArgs;
use super::place::{At, Image};
use super::runtime;
use crate::config::Config;
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use crate::progress::Progress;
use ::disk::Tag;
use base::{BlockDevice, DeviceError, Extent};
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Read at once: chunks of one piece are on their way together.
const PIECE_BYTES: u64 = 4 << 20;
/// Pieces that are read at once.
const WORKERS: usize = 4;

/// Write an image back into a raw file, with holes where it has zeros
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura disk export base:2 base.img --at ./www/images")]
pub(in crate::cli) struct Export {
    /// IMAGE:LABEL
    #[arg(value_name = "NAME")]
    name: Tag,
    /// A new file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    at: At,
    /// With what was written onto the disk here
    #[arg(long)]
    written: bool,
    #[command(flatten)]
    overlay: OverlayArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Replace a file that is there
    #[arg(long)]
    overwrite: bool,
    /// Only say what would be written
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Export {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let image = Image {
            place: self.at.place(config)?,
            name: self.name.clone(),
            way: self.at.way.clone(),
        };
        let shown = output::plain(&self.file.to_string_lossy());
        if self.file.symlink_metadata().is_ok() && !self.overwrite {
            let message = format!("{shown} is there already");
            return Err(Failure::new(Code::Local, message)
                .hint("choose another name, or replace it with --overwrite"));
        }
        let runtime = runtime()?;
        let overlay = match self.written || self.overlay.is_named() {
            true => Some(self.overlay.place(config, &image)?),
            false => None,
        };
        let writing = overlay.as_ref().map_or(Writing::No, Writing::IntoFound);
        let ahead = Ahead::default();
        let opened = open(config, &runtime, &image, &self.cache, writing, ahead)?;
        let len_bytes = opened.index.image_bytes();
        let mut data_bytes = 0;
        if !self.dry_run {
            let beside = beside(&self.file);
            let written = write(&*opened.device(), len_bytes, &beside)
                .and_then(|bytes| {
                    fs::rename(&beside, &self.file).context(&shown)?;
                    Ok(bytes)
                })
                .inspect_err(|_| {
                    // The first error is the one to tell.
                    let _ = fs::remove_file(&beside);
                });
            data_bytes = written?;
        }
        opened.finish()?;
        if self.json {
            return output::json(&json!({
                "name": self.name.to_string(),
                "version": opened.version.to_string(),
                "image_bytes": len_bytes,
                "data_bytes": data_bytes,
            }));
        }
        let size = output::size(len_bytes);
        if self.dry_run {
            return output::line(format_args!("{size} would be written to {shown}"));
        }
        output::line(format_args!(
            "{shown}: {size}, {} of data",
            output::size(data_bytes)
        ))
    }
}

/// A name in the same directory.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

/// Writes the device into a new file, durably; how many bytes of it are data.
fn write(device: &dyn BlockDevice, len_bytes: u64, path: &Path) -> Result<u64> {
    let file = File::create_new(path).context(path.display())?;
    file.set_len(len_bytes).context(path.display())?;
    let bar = Progress::bytes("exporting", len_bytes);
    let (next, done, data) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let error: Mutex<Option<Failure>> = Mutex::new(None);
    let work = || {
        let mut buffer = vec![0; PIECE_BYTES as usize];
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let all = Extent::new(0, len_bytes);
            let piece = Extent::new(number * PIECE_BYTES, PIECE_BYTES).intersection(all);
            let is_over = error.lock().map_or(true, |error| error.is_some());
            if piece.is_empty() || is_over {
                return;
            }
            match copy(device, piece, &mut buffer, &file, path) {
                Ok(bytes) => data.fetch_add(bytes, Ordering::Relaxed),
                Err(failure) => {
                    if let Ok(mut error) = error.lock() {
                        error.get_or_insert(failure);
                    }
                    return;
                }
            };
            bar.set(done.fetch_add(piece.len, Ordering::Relaxed) + piece.len);
        }
    };
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(work);
        }
    });
    bar.finish();
    if let Some(failure) = error.into_inner().unwrap_or_default() {
        return Err(failure);
    }
    file.sync_all().context(path.display())?;
    Ok(data.into_inner())
}

/// Copies what is not zeros of a piece; how many bytes that were.
fn copy(
    device: &dyn BlockDevice,
    piece: Extent,
    buffer: &mut [u8],
    file: &File,
    path: &Path,
) -> Result<u64> {
    let unreadable = |error: DeviceError| Failure::from(error);
    let holes = device.holes(piece).map_err(unreadable)?;
    if holes.covers(piece) {
        return Ok(0);
    }
    let buffer = &mut buffer[..piece.len as usize];
    device.read_at(piece.offset, buffer).map_err(unreadable)?;
    let mut bytes = 0;
    for data in holes.missing(piece) {
        let start = (data.offset - piece.offset) as usize;
        let from = &buffer[start..start + data.len as usize];
        file.write_all_at(from, data.offset)
            .context(path.display())?;
        bytes += data.len;
    }
    Ok(bytes)
}
