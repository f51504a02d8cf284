//! What is published: a raw image or block device, or something that qemu-img makes one of.

use crate::errors::{Code, Context, Failure, Result, plain_io};
use crate::output;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Formats of images, by their names for qemu-img.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// The disk itself
    Raw,
    Qcow2,
    Vmdk,
    Vhdx,
    Vpc,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vhdx => "vhdx",
            Self::Vpc => "vpc",
        }
    }
}

/// How formats other than raw begin.
const MAGICS: [(&[u8], Format); 4] = [
    (b"QFI\xfb", Format::Qcow2),
    (b"KDMV", Format::Vmdk),
    (b"vhdxfile", Format::Vhdx),
    (b"conectix", Format::Vpc),
];

/// A raw image, also one that goes with this process.
#[derive(Debug)]
pub(super) struct RawImage {
    path: PathBuf,
    _converted: Option<File>,
}

impl RawImage {
    /// The image at `path`, in this format or the one that it seems to have. One that has to be
    /// converted needs as much room in `directory` as it has data.
    ///
    /// A guest writes what it likes at the beginning of its raw disk, also that it is the upper
    /// part of a file of the host; so nobody's other files are published because an image names
    /// them, unless its format was said.
    ///
    /// # Errors
    /// [`Code::ImageFormat`] if it can be neither read nor converted.
    pub(super) fn open(path: &Path, format: Option<Format>, directory: &Path) -> Result<Self> {
        let shown = output::plain(&path.to_string_lossy());
        let mut beginning = Vec::new();
        let file = File::open(path).context(&shown)?;
        let kind = file.metadata().context(&shown)?.file_type();
        if kind.is_dir() {
            let message = format!("{shown} is a directory and no image");
            return Err(Failure::new(Code::ImageFormat, message)
                .hint("mkfs.ext4 -d DIRECTORY IMAGE SIZE makes an image of one"));
        }
        let read = file.take(8).read_to_end(&mut beginning);
        read.context(&shown)?;
        let found = MAGICS
            .iter()
            .find(|(magic, _)| beginning.starts_with(magic) && !kind.is_block_device());
        let found = found.map_or(Format::Raw, |(_, format)| *format);
        match (format, found) {
            (Some(Format::Raw), _) | (None, Format::Raw) => Ok(Self {
                path: path.to_owned(),
                _converted: None,
            }),
            (Some(format), _) => Self::convert(path, format, directory),
            (None, format) => {
                refuse_others(path, format)?;
                Self::convert(path, format, directory)
            }
        }
    }

    /// Where it can be read, by this process.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn convert(path: &Path, format: Format, directory: &Path) -> Result<Self> {
        let shown = output::plain(&path.to_string_lossy());
        check(path, format)?;
        let length = virtual_bytes(path, format)?;
        // Without a name, so that it goes with this process in whatever way.
        let file = tempfile::tempfile_in(directory).context(directory.display())?;
        file.set_len(length).context(directory.display())?;
        let raw = PathBuf::from(format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            file.as_raw_fd()
        ));
        let mut command = Command::new("qemu-img");
        command.args([
            "convert",
            "-n",
            "--target-is-zero",
            "-f",
            format.name(),
            "-O",
            "raw",
        ]);
        run(command.arg("--").arg(path).arg(&raw), &shown)?;
        Ok(Self {
            path: raw,
            _converted: Some(file),
        })
    }
}

/// Whether everything is there that the image names: what is beyond the end of a file that was cut
/// would be read as zeros.
fn check(path: &Path, format: Format) -> Result<()> {
    let shown = output::plain(&path.to_string_lossy());
    let mut command = Command::new("qemu-img");
    command.args(["check", "-f", format.name(), "--"]).arg(path);
    let output = spawned(&mut command, &shown)?;
    // 3: clusters that nothing uses; 63: nothing can be checked in this format.
    if let Some(0 | 3 | 63) = output.status.code() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("qemu-img check finds errors");
    let message = format!("{shown} is damaged or was cut: {}", output::plain(said));
    Err(Failure::new(Code::ImageFormat, message)
        .hint("qemu-img check says more; copy or download the image again"))
}

/// Refuses an image that is only a part of what it would be published as, the rest lying in another
/// file of this machine.
fn refuse_others(path: &Path, format: Format) -> Result<()> {
    let info = info(path, format)?;
    let backing = info.get("backing-filename");
    let data = info.pointer("/format-specific/data/data-file");
    // Those of a VMDK, of which one that says so lies in other files.
    let extents = info.pointer("/format-specific/data/extents");
    let extents = extents.and_then(serde_json::Value::as_array);
    let extents = extents.into_iter().flatten();
    let names = extents.filter_map(|extent| extent.get("filename"));
    let others = backing.into_iter().chain(data).chain(names);
    let mut others = others.filter_map(serde_json::Value::as_str);
    let own = path.to_string_lossy();
    let Some(other) = others.find(|other| **other != *own) else {
        return Ok(());
    };
    let shown = output::plain(&own);
    let message = format!(
        "{shown} says that a part of it lies in {}, which would be published with it",
        output::plain(other)
    );
    Err(Failure::new(Code::ImageFormat, message).hint(format!(
        "--format {} publishes both; --format raw the bytes as they are, as of a guest's disk",
        format.name()
    )))
}

/// What qemu-img knows of an image, without looking at what that names.
fn info(path: &Path, format: Format) -> Result<serde_json::Value> {
    let shown = output::plain(&path.to_string_lossy());
    let mut command = Command::new("qemu-img");
    command.args(["info", "--output=json", "-f", format.name(), "--"]);
    let said = run(command.arg(path), &shown)?;
    serde_json::from_slice(&said).map_err(|error| {
        let message = format!("{shown}: what qemu-img says of it cannot be read: {error}");
        Failure::new(Code::ImageFormat, message)
    })
}

/// The length of the disk in an image, in bytes.
fn virtual_bytes(path: &Path, format: Format) -> Result<u64> {
    let length = info(path, format)?
        .get("virtual-size")
        .and_then(serde_json::Value::as_u64);
    length.ok_or_else(|| {
        let shown = output::plain(&path.to_string_lossy());
        let message = format!("{shown}: qemu-img says nothing about its size");
        Failure::new(Code::ImageFormat, message)
    })
}

fn run(command: &mut Command, shown: &str) -> Result<Vec<u8>> {
    let output = spawned(command, shown)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = output::plain(said.trim());
    Err(Failure::new(Code::ImageFormat, format!("{shown}: {said}")))
}

fn spawned(command: &mut Command, shown: &str) -> Result<Output> {
    command.stdin(Stdio::null()).output().map_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return Failure::local("qemu-img", plain_io(&error));
        }
        let message = format!("{shown} is no raw image, and there is no qemu-img here");
        Failure::new(Code::ImageFormat, message)
            .hint("install qemu-utils, or convert it elsewhere: qemu-img convert -O raw")
    })
}
