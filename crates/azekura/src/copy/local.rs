//! A tree of this machine, entered through one descriptor and never past a symbolic link.
//!
//! File I/O blocks, so every operation runs on a thread for such work.

use super::acls::{Kept, NFS4};
use super::{ACLS, Meta, Settings, Xattr};
use crate::errors::{Code, Context, Failure, Result, plain_io};
use base::limits::{XATTR_BYTES_MAX, XATTR_LIST_BYTES_MAX};
use base::{Extent, FileKind, Name, Timestamp};
use bytes::Bytes;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, ResolveFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct LocalTree {
    root: Arc<OwnedFd>,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct LocalFile(Arc<fs::File>);

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(Failure::new(
            Code::Internal,
            format!("a thread ended: {error}"),
        )),
    }
}

fn meta_of(stat: &Stat) -> Meta {
    let time = |seconds, nanos| Timestamp {
        seconds,
        nanos: u32::try_from(nanos).unwrap_or(0),
    };
    let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => FileKind::Directory,
        rustix::fs::FileType::Symlink => FileKind::Symlink,
        rustix::fs::FileType::Fifo => FileKind::Fifo,
        rustix::fs::FileType::Socket => FileKind::Socket,
        rustix::fs::FileType::CharacterDevice => FileKind::CharDevice,
        rustix::fs::FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::File,
    };
    Meta {
        kind,
        mode: (stat.st_mode & 0o7777) as u16,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        stored: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
        links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed: time(stat.st_ctime, stat.st_ctime_nsec),
        identity: (stat.st_dev, stat.st_ino),
    }
}

/// The system's answer in the words and codes of file operations.
fn failed(errno: Errno) -> Failure {
    let code = match errno {
        Errno::NOENT => Code::FileNotFound,
        Errno::ACCESS | Errno::PERM => Code::FileDenied,
        Errno::NOSPC | Errno::DQUOT => Code::NoSpace,
        _ => Code::FileFailed,
    };
    // ELOOP is how the kernel says that a link was in the way, where none is to be followed.
    let failure = match errno {
        Errno::LOOP => Failure::new(code, "a symbolic link is in the way, which is not followed"),
        _ => Failure::new(code, plain_io(&errno.into())),
    };
    match errno {
        Errno::LOOP => failure.hint("symbolic links within a copied tree are not followed"),
        Errno::ACCESS | Errno::PERM => failure.hint("look at owner and mode on this machine"),
        _ => failure,
    }
}

impl LocalTree {
    /// Enters `root`, which may be reached through links: the user named it.
    pub(super) async fn open(root: &Path) -> Result<Self> {
        let root = root.to_owned();
        blocking(move || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(&root, flags, Mode::empty());
            let opened = opened.map_err(|errno| failed(errno).during(root.display()))?;
            Ok(Self {
                root: Arc::new(opened),
            })
        })
        .await
    }

    fn open_at(&self, path: &Path, flags: OFlags, mode: u16) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode.into());
        rustix::fs::openat2(&self.root, path, flags, mode, resolve)
    }

    /// The directory that holds `path`, to work on its last component.
    fn open_parent(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let parent = path.parent().unwrap_or(Path::new(""));
        self.open_at(parent, OFlags::PATH | OFlags::DIRECTORY, 0)
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T> {
        let this = self.clone();
        blocking(move || work(&this).map_err(failed)).await
    }

    pub(super) async fn meta(&self, path: PathBuf) -> Result<Option<Meta>> {
        self.run(move |tree| match tree.open_at(&path, OFlags::PATH, 0) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            // The last component is a link, which openat2 does not open even as itself.
            Err(Errno::LOOP) => {
                let parent = tree.open_parent(&path)?;
                let name = path.file_name().ok_or(Errno::LOOP)?;
                let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(Some(meta_of(&stat)))
            }
            Err(errno) => Err(errno),
            Ok(opened) => Ok(Some(meta_of(&rustix::fs::fstat(opened)?))),
        })
        .await
    }

    pub(super) async fn list(&self, path: PathBuf) -> Result<Vec<(Name, Meta)>> {
        self.run(move |tree| {
            let opened = tree.open_at(&path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
            let mut entries = Vec::new();
            for entry in rustix::fs::Dir::read_from(&opened)? {
                let entry = entry?;
                // "." and ".." are no names; nothing else that a kernel lists is refused.
                let Ok(name) = Name::new(entry.file_name().to_bytes()) else {
                    continue;
                };
                let stat = rustix::fs::statat(&opened, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW);
                match stat {
                    Ok(stat) => entries.push((name, meta_of(&stat))),
                    // It is gone since it was listed.
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Ok(entries)
        })
        .await
    }

    pub(super) async fn make_directory(&self, path: PathBuf, mode: u16) -> Result<()> {
        self.run(move |tree| {
            let parent = tree.open_parent(&path)?;
            let name = path.file_name().ok_or(Errno::INVAL)?;
            match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode.into())) {
                Err(Errno::EXIST) => tree
                    .open_at(&path, OFlags::PATH | OFlags::DIRECTORY, 0)
                    .map(drop),
                outcome => outcome,
            }
        })
        .await
    }

    pub(super) async fn open_file(&self, path: PathBuf) -> Result<LocalFile> {
        // A pipe that takes the place of a file must not make us wait for a writer.
        self.run(move |tree| {
            tree.open_at(&path, OFlags::RDONLY | OFlags::NONBLOCK, 0)
                .map(file)
        })
        .await
    }

    pub(super) async fn create_file(&self, path: PathBuf, mode: u16) -> Result<LocalFile> {
        self.run(move |tree| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
            tree.open_at(&path, flags, mode & 0o777).map(file)
        })
        .await
    }

    pub(super) async fn read_link(&self, path: PathBuf) -> Result<Vec<u8>> {
        self.run(move |tree| {
            let parent = tree.open_parent(&path)?;
            let name = path.file_name().ok_or(Errno::INVAL)?;
            Ok(rustix::fs::readlinkat(parent, name, Vec::new())?.into_bytes())
        })
        .await
    }

    pub(super) async fn make_link(&self, path: PathBuf, leads_to: Vec<u8>) -> Result<()> {
        self.run(move |tree| {
            let parent = tree.open_parent(&path)?;
            let name = path.file_name().ok_or(Errno::INVAL)?;
            match rustix::fs::symlinkat(leads_to.as_slice(), &parent, name) {
                Err(Errno::EXIST) => {
                    let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    if meta_of(&stat).kind != FileKind::Symlink {
                        return Err(Errno::EXIST);
                    }
                    rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
                    rustix::fs::symlinkat(leads_to.as_slice(), &parent, name)
                }
                outcome => outcome,
            }
        })
        .await
    }

    pub(super) async fn touch(&self, path: PathBuf, meta: Meta) -> Result<()> {
        self.run(move |tree| {
            let opened = tree.open_at(&path, OFlags::WRONLY | OFlags::NONBLOCK, 0)?;
            rustix::fs::futimens(opened, &times_of(&meta))
        })
        .await
    }

    pub(super) async fn set_link_meta(&self, path: PathBuf, meta: Meta) -> Result<()> {
        self.run(move |tree| {
            let parent = tree.open_parent(&path)?;
            let name = path.file_name().ok_or(Errno::INVAL)?;
            let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
            let itself = AtFlags::SYMLINK_NOFOLLOW;
            match rustix::fs::chownat(&parent, name, Some(uid), Some(gid), itself) {
                // As cp -p: who may not give files away keeps them.
                Err(Errno::PERM) | Ok(()) => {}
                Err(errno) => return Err(errno),
            }
            rustix::fs::utimensat(&parent, name, &times_of(&meta), itself)
        })
        .await
    }

    pub(super) async fn hard_link(&self, from: PathBuf, to: PathBuf) -> Result<()> {
        self.run(move |tree| {
            let (old, new) = (tree.open_parent(&from)?, tree.open_parent(&to)?);
            let old_name = from.file_name().ok_or(Errno::INVAL)?;
            let name = to.file_name().ok_or(Errno::INVAL)?;
            let link = || rustix::fs::linkat(&old, old_name, &new, name, AtFlags::empty());
            match link() {
                Err(Errno::EXIST) => {
                    let there = rustix::fs::statat(&new, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    if meta_of(&there).kind != FileKind::File {
                        return Err(Errno::EXIST);
                    }
                    rustix::fs::unlinkat(&new, name, AtFlags::empty())?;
                    link()
                }
                outcome => outcome,
            }
        })
        .await
    }

    pub(super) async fn xattrs(&self, path: PathBuf, settings: Settings) -> Result<Vec<Xattr>> {
        self.run(move |tree| read_xattrs(&tree.open_at(&path, OFlags::RDONLY, 0)?, settings))
            .await
    }

    pub(super) async fn set_xattrs(&self, path: PathBuf, kept: Kept) -> Result<bool> {
        self.run(move |tree| {
            let opened = tree.open_at(&path, OFlags::RDONLY, 0)?;
            clear(&opened, &kept)?;
            write_xattrs(&opened, &kept)
        })
        .await
    }

    pub(super) async fn set_meta(&self, path: PathBuf, meta: Meta, preserve: bool) -> Result<()> {
        self.run(move |tree| {
            let opened = tree.open_at(&path, OFlags::RDONLY, 0)?;
            apply(&opened, &meta, preserve)
        })
        .await
    }
}

/// What lies between two positions, if anything.
pub(super) fn rest(from: u64, end: u64) -> Option<Extent> {
    (from < end).then(|| Extent::between(from, end))
}

fn file(opened: OwnedFd) -> LocalFile {
    LocalFile(Arc::new(fs::File::from(opened)))
}

fn times_of(meta: &Meta) -> Timestamps {
    let spec = |time: Timestamp| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanos.into(),
    };
    Timestamps {
        last_access: spec(meta.accessed),
        last_modification: spec(meta.modified),
    }
}

/// Owner before mode, for a change of owner takes set-id bits away; times last.
fn apply(opened: impl AsFd, meta: &Meta, preserve: bool) -> Result<(), Errno> {
    if preserve {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        match rustix::fs::fchown(&opened, Some(uid), Some(gid)) {
            // As cp -p: who may not give files away keeps them.
            Err(Errno::PERM) | Ok(()) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::fchmod(&opened, Mode::from_raw_mode(meta.mode.into()))?;
    if preserve {
        rustix::fs::futimens(&opened, &times_of(meta))?;
    }
    Ok(())
}

fn xattr_names(opened: impl AsFd) -> Result<Vec<u8>, Errno> {
    let mut names = vec![0; XATTR_LIST_BYTES_MAX];
    match rustix::fs::flistxattr(&opened, names.as_mut_slice()) {
        Ok(len) => names.truncate(len),
        Err(Errno::OPNOTSUPP) => names.clear(),
        Err(errno) => return Err(errno),
    }
    Ok(names)
}

fn read_xattrs(opened: impl AsFd, settings: Settings) -> Result<Vec<Xattr>, Errno> {
    let names = xattr_names(&opened)?;
    let mut xattrs = Vec::new();
    let names = names.split(|byte| *byte == 0);
    for name in names.filter(|name| settings.keeps(name)) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        match rustix::fs::fgetxattr(&opened, name, value.as_mut_slice()) {
            Ok(len) => value.truncate(len),
            // It is gone since it was listed.
            Err(Errno::NODATA) => continue,
            Err(errno) => return Err(errno),
        }
        xattrs.push((name.to_vec(), value));
    }
    Ok(xattrs)
}

/// Takes away what would be in the way of a POSIX ACL; see [`super::acls`].
fn clear(opened: impl AsFd, kept: &Kept) -> Result<(), Errno> {
    if !kept.acls {
        return Ok(());
    }
    let names = xattr_names(&opened)?;
    for name in kept.in_the_way(names.split(|byte| *byte == 0)) {
        match rustix::fs::fremovexattr(&opened, name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Whether a rich ACL, if there is one, has been taken.
fn write_xattrs(opened: impl AsFd, kept: &Kept) -> Result<bool, Errno> {
    let mut has_rich = false;
    if let Some(value) = kept.rich() {
        match rustix::fs::fsetxattr(&opened, NFS4, value, XattrFlags::empty()) {
            Ok(()) => has_rich = true,
            Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    for (name, value) in kept.others(has_rich) {
        let name = name.as_slice();
        match rustix::fs::fsetxattr(&opened, name, value, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP | Errno::PERM) if !ACLS.contains(&name) => {}
            outcome => outcome?,
        }
    }
    Ok(has_rich)
}

impl LocalFile {
    pub(super) async fn next_data(&self, offset: u64, end: u64) -> Result<Option<Extent>> {
        let file = Arc::clone(&self.0);
        blocking(move || {
            let data = match rustix::fs::seek(&*file, SeekFrom::Data(offset)) {
                Ok(data) => data,
                Err(Errno::NXIO) => return Ok(None),
                Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(rest(offset, end)),
                Err(errno) => return Err(failed(errno)),
            };
            let hole = rustix::fs::seek(&*file, SeekFrom::Hole(data)).map_err(failed)?;
            Ok(rest(data, hole.min(end)))
        })
        .await
    }

    pub(super) async fn set_size(&self, size: u64) -> Result<()> {
        let file = Arc::clone(&self.0);
        blocking(move || rustix::fs::ftruncate(&*file, size).map_err(failed)).await
    }

    pub(super) async fn xattrs(&self, settings: Settings) -> Result<Vec<Xattr>> {
        let file = Arc::clone(&self.0);
        blocking(move || read_xattrs(&*file, settings).map_err(failed)).await
    }

    pub(super) async fn meta(&self) -> Result<Meta> {
        let file = Arc::clone(&self.0);
        blocking(move || {
            rustix::fs::fstat(&*file)
                .map(|stat| meta_of(&stat))
                .map_err(failed)
        })
        .await
    }

    pub(super) async fn read(&self, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        let file = Arc::clone(&self.0);
        blocking(move || {
            let mut buffer = vec![0; len as usize];
            let read = file.read_at(&mut buffer, offset).context("reading")?;
            buffer.truncate(read);
            Ok(if read == 0 {
                Vec::new()
            } else {
                vec![buffer.into()]
            })
        })
        .await
    }

    pub(super) async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let file = Arc::clone(&self.0);
        blocking(move || {
            file.write_all_at(&data, offset).map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                failed(errno)
            })
        })
        .await
    }

    pub(super) async fn finish(&self, meta: Option<Meta>, kept: Kept) -> Result<(u64, bool)> {
        let file = Arc::clone(&self.0);
        blocking(move || {
            clear(&*file, &kept).map_err(failed)?;
            if let Some(meta) = meta {
                apply(&*file, &meta, true).map_err(failed)?;
            }
            // A change of owner has taken capabilities away, so they come after it.
            let has_rich = write_xattrs(&*file, &kept).map_err(failed)?;
            rustix::fs::fstat(&*file)
                .map(|stat| (meta_of(&stat).size, has_rich))
                .map_err(failed)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        crate::connect::runtime().expect("threads").block_on(work)
    }

    #[test]
    fn a_link_in_the_tree_leads_nowhere() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (tree, outside) = (scratch.path().join("tree"), scratch.path().join("outside"));
        fs::create_dir(&tree).expect("room on the disk");
        fs::create_dir(&outside).expect("room on the disk");
        std::os::unix::fs::symlink(&outside, tree.join("x")).expect("room on the disk");
        std::os::unix::fs::symlink(outside.join("f"), tree.join("f")).expect("room on the disk");
        run(async {
            let local = LocalTree::open(&tree).await.expect("it is there");
            assert!(local.create_file("x/passwd".into(), 0o644).await.is_err());
            assert!(local.create_file("f".into(), 0o644).await.is_err());
            assert!(local.make_directory("x/d".into(), 0o755).await.is_err());
            assert!(local.make_directory("x".into(), 0o755).await.is_err());
            assert!(local.make_link("x/l".into(), b"y".to_vec()).await.is_err());
            assert!(local.create_file("../up".into(), 0o644).await.is_err());
            let meta = local
                .meta("x".into())
                .await
                .expect("readable")
                .expect("it is there");
            assert_eq!(meta.kind, FileKind::Symlink);
        });
        assert_eq!(fs::read_dir(&outside).expect("it is there").count(), 0);
        assert_eq!(
            fs::read_dir(scratch.path()).expect("it is there").count(),
            2
        );
    }

    #[test]
    fn links_are_replaced_and_files_are_not() {
        let scratch = tempfile::tempdir().expect("a directory");
        fs::write(scratch.path().join("file"), "x").expect("room on the disk");
        run(async {
            let local = LocalTree::open(scratch.path()).await.expect("it is there");
            for leads_to in [b"a", b"b"] {
                local
                    .make_link("l".into(), leads_to.to_vec())
                    .await
                    .expect("free or a link");
            }
            assert_eq!(local.read_link("l".into()).await.expect("a link"), b"b");
            assert!(local.make_link("file".into(), b"a".to_vec()).await.is_err());
        });
    }
}
