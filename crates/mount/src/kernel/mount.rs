//! Attaching the device to a directory, and taking it off again.
//!
//! Root mounts by mount(2). Others ask `fusermount3`, which is set-uid root, judges whether they
//! may, and hands the mounted device back.
//!
//! A mount is recognised by its device number in `/proc/self/mountinfo`, never by asking it: one
//! whose server does not answer would not answer that either. The same number names its directory
//! under `/sys/fs/fuse/connections`, where it can be aborted.

use super::device::Device;
use super::fusermount;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What `mount` and `df` show as the source, such as `server:7700/volume`.
    pub fs_name: String,
    /// The type is `fuse.` and this.
    pub subtype: String,
    /// Users other than the one who mounts may enter. Needs `user_allow_other` in `/etc/fuse.conf`
    /// when that one is not root.
    pub allow_other: bool,
    /// The kernel judges by owner and mode before it asks.
    pub default_permissions: bool,
    /// No change.
    pub read_only: bool,
    /// Set-id bits count. Root only.
    pub suid: bool,
    /// Device files work. Root only.
    pub dev: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Largest read in bytes; `None` leaves it to the agreement at the start.
    pub max_read_bytes: Option<u32>,
    /// Who mounts.
    pub method: MountMethod,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            fs_name: "fuse".to_owned(),
            subtype: "fuse".to_owned(),
            allow_other: false,
            default_permissions: false,
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            max_read_bytes: None,
            method: MountMethod::Automatic,
        }
    }
}

/// Who mounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MountMethod {
    /// This process if it may, else the helper.
    #[default]
    Automatic,
    /// This process, by mount(2).
    Direct,
    /// `fusermount3`.
    Helper,
}

/// Why a directory could not be mounted on.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory cannot be used.
    #[error("cannot use {path} as a mount point: {source}")]
    Path {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is a mount whose process has ended. It must be unmounted first.
    #[error("{path} is a mount whose process has ended; unmount it first")]
    Stale {
        /// The directory.
        path: PathBuf,
    },
    /// A name has a byte that cannot be handed to the kernel.
    #[error("an option of the mount contains a NUL byte")]
    Nul,
    /// The device cannot be opened: no FUSE in this kernel, or no right to it.
    #[error("cannot open /dev/fuse: {0}")]
    Device(Errno),
    /// The kernel refused.
    #[error("cannot mount on {path}: {errno}")]
    Refused {
        /// The directory.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// `fusermount3` could not be run or refused; what it said.
    #[error("fusermount3: {0}")]
    Helper(String),
    /// It was mounted, but is not in the list of mounts.
    #[error("{path} was mounted, but is not in the list of mounts")]
    Lost {
        /// The directory.
        path: PathBuf,
    },
}

/// Why a mount could not be taken off.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Files are open on it, or it is somebody's working directory.
    #[error("{path} is in use")]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot unmount {path}: {errno}")]
    Refused {
        /// The directory.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// `fusermount3` could not be run or refused; what it said.
    #[error("fusermount3: {0}")]
    Helper(String),
    /// The list of mounts or the list of connections cannot be used.
    #[error("{path}: {source}")]
    System {
        /// The list.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Where a mount is. Cheap to clone; holding it does not keep the mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    path: PathBuf,
    connection: u32,
}

impl MountPoint {
    /// The directory, absolute and without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The mount's number under `/sys/fs/fuse/connections`, also the minor number of its device.
    #[must_use]
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// Whether it is still mounted there.
    ///
    /// # Errors
    /// Of reading the list of mounts.
    pub fn is_mounted(&self) -> io::Result<bool> {
        Ok(mounts()?.iter().any(|mount| self.is(mount)))
    }

    /// Takes the mount off: [`Session::run`](super::Session::run) ends once nothing uses it any
    /// more. With `detach` it leaves the tree at once and ends when the last file is closed;
    /// without, files in use are an error. A mount that is gone already is no error.
    ///
    /// # Errors
    /// [`UnmountError`] tells use from refusal.
    pub fn unmount(&self, detach: bool) -> Result<(), UnmountError> {
        let mounted = self.is_mounted().map_err(|source| UnmountError::System {
            path: PathBuf::from(MOUNTS),
            source,
        })?;
        if !mounted {
            return Ok(());
        }
        let flags = if detach {
            UnmountFlags::DETACH
        } else {
            UnmountFlags::empty()
        };
        match rustix::mount::unmount(&self.path, flags | UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(Errno::PERM) => fusermount::unmount(&self.path, detach),
            Err(Errno::BUSY) => Err(UnmountError::Busy {
                path: self.path.clone(),
            }),
            Err(errno) => Err(UnmountError::Refused {
                path: self.path.clone(),
                errno,
            }),
        }
    }

    /// Breaks the connection: whoever waits for an answer gets an error at once, and so does all
    /// that follows. This ends what [`MountPoint::unmount`] would wait for.
    ///
    /// The kernel's list of connections does it for the user who mounted. Where that list is not
    /// mounted, root can force it, which takes the mount off as well.
    ///
    /// # Errors
    /// [`UnmountError::System`] if neither is possible; [`UnmountError::Refused`] for root.
    pub fn abort(&self) -> Result<(), UnmountError> {
        let path = self.control("abort");
        let Err(source) = fs::write(&path, "1") else {
            return Ok(());
        };
        let mounted = self.is_mounted().unwrap_or(false);
        if source.kind() != io::ErrorKind::NotFound || !mounted {
            return Err(UnmountError::System { path, source });
        }
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        rustix::mount::unmount(&self.path, flags).map_err(|errno| UnmountError::Refused {
            path: self.path.clone(),
            errno,
        })
    }

    /// Requests that wait for an answer or to be read, if the kernel tells.
    #[must_use]
    pub fn requests_waiting(&self) -> Option<u64> {
        fs::read_to_string(self.control("waiting"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Has the kernel read ahead up to `bytes` into its page cache, also beyond the 128 KiB that it
    /// offers at the start. Root only.
    ///
    /// # Errors
    /// Of writing the kernel's setting.
    pub fn set_readahead(&self, bytes: u32) -> io::Result<()> {
        let path = format!("/sys/class/bdi/0:{}/read_ahead_kb", self.connection);
        fs::write(path, (bytes / 1024).to_string())
    }

    fn control(&self, file: &str) -> PathBuf {
        PathBuf::from(format!(
            "/sys/fs/fuse/connections/{}/{file}",
            self.connection
        ))
    }

    fn is(&self, mount: &Mounted) -> bool {
        mount.minor == self.connection && mount.path == self.path
    }
}

/// Mounts on `path` as `options` say.
pub(crate) fn mount(
    path: &Path,
    options: &MountOptions,
) -> Result<(Device, MountPoint), MountError> {
    let bad = |source: io::Error| match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTCONN) => MountError::Stale {
            path: path.to_owned(),
        },
        _ => MountError::Path {
            path: path.to_owned(),
            source,
        },
    };
    let path = fs::canonicalize(path).map_err(bad)?;
    let root_mode = fs::metadata(&path).map_err(bad)?.mode() & 0o170_000;
    let device = match options.method {
        MountMethod::Direct => direct(&path, root_mode, options)?,
        MountMethod::Helper => fusermount::mount(&path, options)?,
        MountMethod::Automatic if !rustix::process::geteuid().is_root() => {
            fusermount::mount(&path, options)?
        }
        // Root within a container may lack the right; there may be a helper for that.
        MountMethod::Automatic => match direct(&path, root_mode, options) {
            Err(MountError::Refused {
                errno: Errno::PERM, ..
            }) => fusermount::mount(&path, options)?,
            result => result?,
        },
    };
    // The last one of the list lies on top.
    let listed = mounts().map_err(|source| MountError::Path {
        path: PathBuf::from(MOUNTS),
        source,
    })?;
    let found = listed.iter().rev().find(|mount| mount.path == path);
    let Some(connection) = found.map(|mount| mount.minor) else {
        return Err(MountError::Lost { path });
    };
    Ok((device, MountPoint { path, connection }))
}

fn direct(path: &Path, root_mode: u32, options: &MountOptions) -> Result<Device, MountError> {
    let device = Device::open().map_err(MountError::Device)?;
    let mut data = format!(
        "fd={},rootmode={root_mode:o},user_id={},group_id={}",
        device.as_fd().as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    if let Some(bytes) = options.max_read_bytes {
        data.push_str(&format!(",max_read={bytes}"));
    }
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (!options.suid, MountFlags::NOSUID),
        (!options.dev, MountFlags::NODEV),
        (!options.exec, MountFlags::NOEXEC),
    ];
    let flags = flags
        .iter()
        .filter(|(set, _)| *set)
        .map(|(_, flag)| *flag)
        .collect();
    let text = |text: &str| CString::new(text).map_err(|_| MountError::Nul);
    let kind = text(&format!("fuse.{}", options.subtype))?;
    let data = text(&data)?;
    rustix::mount::mount(text(&options.fs_name)?, path, kind, flags, data.as_c_str()).map_err(
        |errno| MountError::Refused {
            path: path.to_owned(),
            errno,
        },
    )?;
    Ok(device)
}

/// This process's list of mounts.
const MOUNTS: &str = "/proc/self/mountinfo";

/// One mount of this machine that has no block device below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The mount's own number, which the kernel also tells of each open file (`mnt_id`).
    pub id: u32,
    /// Its device number, and of a FUSE file system also that of its connection.
    pub minor: u32,
    /// Where it is.
    pub path: PathBuf,
    /// The type of its file system.
    pub fs_type: Vec<u8>,
    /// What is mounted, in the words of its file system.
    pub source: Vec<u8>,
}

/// The mounts that this process sees, without those of block devices. One that lies upon another
/// comes after it. The list is the kernel's; no mount is asked.
///
/// # Errors
/// Of reading the list.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    let list = fs::read(MOUNTS)?;
    // A line of another shape is of no mount of ours.
    Ok(list
        .split(|byte| *byte == b'\n')
        .filter_map(parse_mount)
        .collect())
}

/// Parses "36 35 0:98 /root /mount/point options more - type source options" (proc(5)); mounts
/// without a device of their own have major number 0.
fn parse_mount(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(fields.nth(1)?).ok()?;
    let minor = device.strip_prefix("0:")?.parse().ok()?;
    let path = unescape(fields.nth(1)?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    Some(Mounted {
        id,
        minor,
        path: PathBuf::from(std::ffi::OsStr::from_bytes(&path)),
        fs_type: unescape(rest.next()?),
        source: unescape(rest.next()?),
    })
}

/// Blanks, line ends and backslashes are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\');
        let byte = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match byte.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &tail[3..];
            }
            None => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list_of_mounts() {
        let line = b"36 35 0:98 / /mnt/a\\040b\\134c rw,noatime shared:1 - fuse.x srv:1/v rw";
        let mounted = Mounted {
            id: 36,
            minor: 98,
            path: PathBuf::from("/mnt/a b\\c"),
            fs_type: b"fuse.x".to_vec(),
            source: b"srv:1/v".to_vec(),
        };
        assert_eq!(parse_mount(line), Some(mounted));
        assert_eq!(parse_mount(b"36 35 8:1 / / rw - ext4 /dev/sda1 rw"), None);
        assert_eq!(parse_mount(b""), None);
        assert_eq!(unescape(b"\\04"), b"\\04");
    }

    #[test]
    fn a_mount_point_that_is_not_there_is_named() {
        let error = mount(Path::new("/no/such/directory"), &MountOptions::default()).unwrap_err();
        assert!(error.to_string().contains("/no/such/directory"), "{error}");
    }

    #[test]
    fn what_is_not_mounted_is_unmounted_already() {
        let nowhere = MountPoint {
            path: PathBuf::from("/"),
            connection: u32::MAX,
        };
        assert!(!nowhere.is_mounted().unwrap());
        nowhere.unmount(false).unwrap();
        assert!(matches!(nowhere.abort(), Err(UnmountError::System { .. })));
        assert_eq!(nowhere.requests_waiting(), None);
    }
}
