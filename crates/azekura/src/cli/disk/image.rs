//! What is published: a raw image or block device, or something that qemu-img makes one of.

use crate::errors::{Code, Context, Failure, Result, plain_io};
use crate::output;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// How formats other than raw begin, with their names for qemu-img.
const FORMATS: [(&[u8], &str); 4] = [
    (b"QFI\xfb", "qcow2"),
    (b"KDMV", "vmdk"),
    (b"vhdxfile", "vhdx"),
    (b"conectix", "vpc"),
];

/// A raw image, also one that goes with this process.
#[derive(Debug)]
pub(super) struct RawImage {
    path: PathBuf,
    _converted: Option<File>,
}

impl RawImage {
    /// The image at `path`. One that has to be converted needs as much room in `directory` as it
    /// has data.
    ///
    /// # Errors
    /// [`Code::ImageFormat`] if it can be neither read nor converted.
    pub(super) fn open(path: &Path, directory: &Path) -> Result<Self> {
        let shown = output::plain(&path.to_string_lossy());
        let mut beginning = Vec::new();
        let file = File::open(path).context(&shown)?;
        if file.metadata().context(&shown)?.is_dir() {
            let message = format!("{shown} is a directory and no image");
            return Err(Failure::new(Code::ImageFormat, message)
                .hint("mkfs.ext4 -d DIRECTORY IMAGE SIZE makes an image of one"));
        }
        let read = file.take(8).read_to_end(&mut beginning);
        read.context(&shown)?;
        let format = FORMATS
            .iter()
            .find(|(magic, _)| beginning.starts_with(magic));
        match format {
            None => Ok(Self {
                path: path.to_owned(),
                _converted: None,
            }),
            Some((_, format)) => Self::convert(path, format, directory),
        }
    }

    /// Where it can be read, by this process.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn convert(path: &Path, format: &str, directory: &Path) -> Result<Self> {
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
            format,
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
fn check(path: &Path, format: &str) -> Result<()> {
    let shown = output::plain(&path.to_string_lossy());
    let mut command = Command::new("qemu-img");
    command.args(["check", "-f", format, "--"]).arg(path);
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

/// The length of the disk in an image, in bytes.
fn virtual_bytes(path: &Path, format: &str) -> Result<u64> {
    let shown = output::plain(&path.to_string_lossy());
    let mut command = Command::new("qemu-img");
    command.args(["info", "--output=json", "-f", format, "--"]);
    let said = run(command.arg(path), &shown)?;
    let info: Option<serde_json::Value> = serde_json::from_slice(&said).ok();
    let length = info
        .as_ref()
        .and_then(|info| info.get("virtual-size")?.as_u64());
    length.ok_or_else(|| {
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
