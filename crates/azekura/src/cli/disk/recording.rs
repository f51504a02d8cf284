//! What was read of a disk in one run, as a file: a profile that no version has yet.
//!
//! It is named after its file: `boot.profile` is of `boot`, until `train --as` says otherwise.

use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use ::disk::{DiskError, Profile, Trace};
use base::limits::DISK_PROFILE_FILE_BYTES_MAX;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// What precedes what is a profile.
const HEAD_BYTES: u64 = 16;

fn shown(path: &Path) -> String {
    output::plain(&path.to_string_lossy())
}

fn name_of(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// A path where something can be recorded, from whichever directory it is looked at: told before
/// the run, and not after it.
///
/// # Errors
/// [`Code::Local`] if there is something already, or no directory; [`Code::DiskInvalid`] if no
/// profile can be called so.
pub(super) fn checked(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).context(shown(path))?;
    Profile::new(&name_of(&path), &Trace::new(0))?;
    if path.symlink_metadata().is_ok() {
        let message = format!("{} is there already", shown(&path));
        return Err(Failure::new(Code::Local, message)
            .hint("another file for each run: azekura disk train takes several"));
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::metadata(directory).context(shown(directory))?;
    Ok(path)
}

/// Writes down what was read, whole or not at all.
///
/// # Errors
/// Of the file.
pub(super) fn write(path: &Path, trace: &Trace) -> Result<()> {
    let profile = Profile::new(&name_of(path), trace)?;
    if trace.is_full() {
        tracing::warn!("more was read than a profile can have; what came first is in it");
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let put = || -> io::Result<()> {
        let mut file = File::create_new(&beside)?;
        file.write_all(&profile.to_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    put()
        .inspect_err(|_| {
            // The first error is the one to tell.
            let _ = fs::remove_file(&beside);
        })
        .context(shown(path))
}

/// Reads what was written down.
///
/// # Errors
/// Of the file; [`Code::DiskDamaged`].
pub(super) fn read(path: &Path) -> Result<Profile> {
    let mut bytes = Vec::new();
    let bytes_max = DISK_PROFILE_FILE_BYTES_MAX + HEAD_BYTES;
    let file = File::open(path).context(shown(path))?;
    // One byte more than there may be is one too many, and is noticed.
    let mut some = file.take(bytes_max + 1);
    some.read_to_end(&mut bytes).context(shown(path))?;
    Profile::from_bytes(&bytes).map_err(|damage| {
        let place = shown(path);
        DiskError::Damaged { place, damage }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Extent;
    use std::time::Duration;

    #[test]
    fn a_run_is_written_down_once_and_read_under_its_name() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = checked(&scratch.path().join("boot.profile")).expect("free");
        let mut trace = Trace::new(1 << 20);
        trace.on_read(Duration::from_millis(3), Extent::new(8192, 100));
        write(&path, &trace).expect("written");
        let profile = read(&path).expect("a profile");
        assert_eq!((profile.name(), profile.runs()), ("boot", 1));
        assert_eq!(profile.touches()[0].extent, Extent::new(8192, 4096));
        let failure = checked(&path).expect_err("it is there");
        assert_eq!(failure.code(), Code::Local);
        for bad in ["no name", "a@b", ".."] {
            assert!(checked(&scratch.path().join(bad)).is_err(), "{bad}");
        }
        assert!(checked(&scratch.path().join("no/directory")).is_err());
        assert_eq!(fs::read_dir(scratch.path()).expect("there").count(), 1);
    }

    #[test]
    fn a_file_that_is_none_is_refused_whatever_its_length() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("boot.profile");
        for bytes in [&b""[..], b"AZKDPROF", &[0; 5000]] {
            fs::write(&path, bytes).expect("written");
            let failure = read(&path).expect_err("no profile");
            assert_eq!(failure.code(), Code::DiskDamaged, "{failure}");
        }
        let file = File::create(&path).expect("made");
        file.set_len(DISK_PROFILE_FILE_BYTES_MAX + HEAD_BYTES + 1)
            .expect("sparse");
        assert!(read(&path).is_err());
    }
}
