//! Names: create, make, link, remove. The order of the questions is the kernel's.

use super::hold::{OpenInode, OpenOptions};
use super::judge::{self, EXECUTE, WRITE};
use super::layout::Layout;
use super::record::{Chore, Content, Done, Inode, Place};
use super::rich::Heir;
use super::tree::{Namespace, check_target};
use super::turn::Turn;
use super::work::{Stop, Work, layout};
use acl::Target;
use base::limits::NAMESPACE_LINKS_MAX;
use base::{Access, FileKind, FsError, Handle, Name, Node, Principal};

/// How a file is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Permission bits before the umask.
    pub mode: u16,
    /// The caller's umask; a default ACL of the directory takes its place.
    pub umask: u16,
    /// Fail if the name is there already.
    pub exclusive: bool,
    /// How the file is opened. A new one is open for this whatever its mode allows.
    pub open: OpenOptions,
    /// The only file that is there already and may be cut to nothing, if `open` says so: the stores
    /// are to be ready for that first.
    pub cuts: Option<Handle>,
    /// Where a new file is to lie, if not as usual: its number is put in.
    pub layout: Option<Layout>,
}

/// An opened file that may be new.
#[derive(Debug)]
pub struct Created {
    /// The file.
    pub node: Node,
    /// Open as asked.
    pub file: OpenInode,
    /// Whether this call made it.
    pub created: bool,
}

/// What is made.
struct Making {
    kind: FileKind,
    mode: u16,
    umask: u16,
    content: Content,
}

impl Namespace {
    /// Opens the file `name` in `parent`, which is made if it is not there.
    ///
    /// # Errors
    /// [`FsError::Exists`] if it is and `exclusive` is set; [`FsError::Loop`] for a symbolic link,
    /// which is never followed; [`FsError::WouldBlock`] if another file than `cuts` would be cut,
    /// and nothing is changed; else as [`Namespace::open_file`] and as the kernel judges.
    pub fn create(
        &self,
        turn: &Turn,
        who: &Principal,
        parent: &Handle,
        name: &Name,
        how: &Create,
    ) -> Result<Created, FsError> {
        let (node, number, created) = self.change(turn, |work| {
            if let Some((node, number)) = work.made_before()? {
                work.hold(number);
                return Ok((node, number, true));
            }
            let directory = work.directory(parent)?;
            work.search(&directory, who)?;
            if let Some((number, _)) = work.child(directory.number, name)? {
                if how.exclusive {
                    return Err(FsError::Exists.into());
                }
                let inode = work.inode(number)?;
                if how.open.truncate && how.cuts != Some(work.node(&inode).handle) {
                    return Err(FsError::WouldBlock.into());
                }
                let inode = work.open(inode, who, how.open)?;
                return Ok((work.node(&inode), number, false));
            }
            let making = self.file(how.mode, how.umask, how.layout.as_ref());
            let inode = work.make_in(directory, name, who, making)?;
            work.hold(inode.number);
            Ok((work.node(&inode), inode.number, true))
        })?;
        Ok(Created {
            node,
            file: OpenInode::new(&self.core, number, how.open),
            created,
        })
    }

    fn file<'a>(
        &'a self,
        mode: u16,
        umask: u16,
        wanted: Option<&'a Layout>,
    ) -> impl Fn(u64) -> Making + 'a {
        move |number| {
            let layout = match wanted {
                Some(layout) => layout.clone().with_number(number),
                None => self.layout(number),
            };
            Making {
                kind: FileKind::File,
                mode,
                umask,
                content: Content::File(0, layout),
            }
        }
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`FsError::Exists`]; else as the kernel judges.
    pub fn make_directory(
        &self,
        turn: &Turn,
        who: &Principal,
        parent: &Handle,
        name: &Name,
        mode: u16,
        umask: u16,
    ) -> Result<Node, FsError> {
        let kind = FileKind::Directory;
        self.make(turn, who, (parent, name), kind, |_| {
            Ok(Making {
                kind,
                mode,
                umask,
                content: Content::Directory(0),
            })
        })
    }

    /// Makes an inode of any kind but directory and symbolic link. Devices are for root only; the
    /// character device 0 is for everybody, as in Linux.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for the two kinds that have a method of their own; else as the kernel
    /// judges.
    #[expect(
        clippy::too_many_arguments,
        reason = "mknod(2) with its context has as many"
    )]
    pub fn make_node(
        &self,
        turn: &Turn,
        who: &Principal,
        parent: &Handle,
        name: &Name,
        kind: FileKind,
        mode: u16,
        umask: u16,
        device: u64,
    ) -> Result<Node, FsError> {
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(FsError::Invalid);
        }
        let file = self.file(mode, umask, None);
        self.make(turn, who, (parent, name), kind, |number| {
            let content = match kind {
                FileKind::File => return Ok(file(number)),
                FileKind::CharDevice if device == 0 => Content::Device(0),
                FileKind::CharDevice | FileKind::BlockDevice if judge::is_root(who) => {
                    Content::Device(device)
                }
                FileKind::CharDevice | FileKind::BlockDevice => return Err(FsError::NotPermitted),
                _ => Content::Nothing,
            };
            Ok(Making {
                kind,
                mode,
                umask,
                content,
            })
        })
    }

    /// Makes a symbolic link. The target is never looked at.
    ///
    /// # Errors
    /// [`FsError::NameTooLong`], [`FsError::Invalid`] for a target with a NUL,
    /// [`FsError::NotFound`] for an empty one; else as the kernel judges.
    pub fn make_symlink(
        &self,
        turn: &Turn,
        who: &Principal,
        parent: &Handle,
        name: &Name,
        target: &[u8],
    ) -> Result<Node, FsError> {
        check_target(target)?;
        let kind = FileKind::Symlink;
        self.make(turn, who, (parent, name), kind, |_| {
            Ok(Making {
                kind,
                mode: 0o777,
                umask: 0,
                content: Content::Link(target.to_vec()),
            })
        })
    }

    fn make(
        &self,
        turn: &Turn,
        who: &Principal,
        (parent, name): (&Handle, &Name),
        kind: FileKind,
        making: impl Fn(u64) -> Result<Making, FsError>,
    ) -> Result<Node, FsError> {
        self.change(turn, |work| {
            if let Some((node, _)) = work.made_before()? {
                return Ok(node);
            }
            let directory = work.directory(parent)?;
            work.search(&directory, who)?;
            if work.child(directory.number, name)?.is_some() {
                return Err(FsError::Exists.into());
            }
            work.may_add(&directory, who, kind)?;
            let what = making(work.next_number())?;
            let inode = work.make_in(directory, name, who, move |_| what)?;
            Ok(work.node(&inode))
        })
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// [`FsError::NotPermitted`] for directories, and for files of others that the caller may not
    /// read and write; else as the kernel judges.
    pub fn link(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        parent: &Handle,
        name: &Name,
    ) -> Result<Node, FsError> {
        self.change(turn, |work| {
            if let Some((node, _)) = work.made_before()? {
                return Ok(node);
            }
            let mut inode = work.find(handle)?;
            let mut directory = work.directory(parent)?;
            work.search(&directory, who)?;
            if work.child(directory.number, name)?.is_some() {
                return Err(FsError::Exists.into());
            }
            work.may_link(&inode, who)?;
            work.may_add(&directory, who, inode.kind)?;
            if inode.is_directory() {
                return Err(FsError::NotPermitted.into());
            }
            if inode.links == 0 {
                return Err(FsError::NotFound.into());
            }
            if inode.links >= NAMESPACE_LINKS_MAX {
                return Err(FsError::TooManyLinks.into());
            }
            inode.links += 1;
            inode.changed = work.now();
            let target = Some((inode.number, inode.kind));
            // It lies by itself from now on, and its first name leads there.
            if let Place::At(at, first) = work.place(inode.number)? {
                work.name(at, &first, target);
            }
            work.name(directory.number, name, target);
            work.count(&mut directory, 1);
            work.put(directory)?;
            let node = work.node(&inode);
            work.done(Done::Made(inode.number));
            work.put_at(inode, Place::Here)?;
            Ok(node)
        })
    }

    /// Takes a name from an inode that is not a directory. Returns that inode as it is afterwards;
    /// `None` if that was done by an earlier copy of the request.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`]; else as the kernel judges.
    pub fn unlink(
        &self,
        turn: &Turn,
        who: &Principal,
        parent: &Handle,
        name: &Name,
    ) -> Result<Option<Node>, FsError> {
        self.remove(turn, who, parent, name, false)
    }

    /// Removes an empty directory. Returns it as [`Namespace::unlink`] does.
    ///
    /// # Errors
    /// [`FsError::NotEmpty`], [`FsError::NotDirectory`]; else as the kernel judges.
    pub fn remove_directory(
        &self,
        turn: &Turn,
        who: &Principal,
        parent: &Handle,
        name: &Name,
    ) -> Result<Option<Node>, FsError> {
        self.remove(turn, who, parent, name, true)
    }

    fn remove(
        &self,
        turn: &Turn,
        who: &Principal,
        parent: &Handle,
        name: &Name,
        as_directory: bool,
    ) -> Result<Option<Node>, FsError> {
        self.change(turn, |work| {
            if work.done_before().is_some() {
                return Ok(None);
            }
            let mut directory = work.directory(parent)?;
            work.search(&directory, who)?;
            let found = work.child(directory.number, name)?;
            let (number, _) = found.ok_or(FsError::NotFound)?;
            let victim = work.inode(number)?;
            work.may_remove(&directory, &victim, who, as_directory)?;
            if matches!(victim.content, Content::Directory(names) if names > 0) {
                return Err(FsError::NotEmpty.into());
            }
            work.name(directory.number, name, None);
            work.count(&mut directory, -1);
            if as_directory {
                directory.links -= 1;
            }
            work.put(directory)?;
            let victim = work.unname(victim)?;
            work.done(Done::Removed);
            Ok(Some(work.node(&victim)))
        })
    }
}

impl Work<'_> {
    /// The inode that an earlier copy of this request made, as it is now.
    fn made_before(&self) -> Result<Option<(Node, u64)>, Stop> {
        let Some(Done::Made(number)) = self.done_before() else {
            return Ok(None);
        };
        Ok(Some((self.node(&self.inode(number)?), number)))
    }

    /// Makes something new in a directory in which the name is free.
    fn make_in(
        &mut self,
        mut directory: Inode,
        name: &Name,
        who: &Principal,
        making: impl FnOnce(u64) -> Making,
    ) -> Result<Inode, Stop> {
        let number = self.number()?;
        let Making {
            kind,
            mode,
            umask,
            content,
        } = making(number);
        self.may_add(&directory, who, kind)?;
        let (gid, mut mode) = judge::born(&directory, who, kind, mode);
        let is_directory = kind == FileKind::Directory;
        let target = Target {
            uid: who.uid,
            gid,
            is_directory,
        };
        let heir = self.heir(&directory, &target, kind, (mode, umask))?;
        let (mut access, mut default) = (None, None);
        match (&heir, &directory.default) {
            _ if kind == FileKind::Symlink => {}
            // What its mode and ACL say follows from the list.
            (Heir::List(_), _) => {}
            (Heir::Nothing, _) | (_, None) => mode &= !(umask & 0o777),
            (Heir::NotRich, Some(acl)) => {
                let inherited;
                (inherited, mode) = acl.inherited(mode);
                access = inherited.map(Box::new);
                default = directory.default.clone().filter(|_| is_directory);
            }
        }
        let now = self.now();
        let mut inode = Inode {
            number,
            generation: self.rules.generation,
            kind,
            mode,
            links: if is_directory { 2 } else { 1 },
            uid: who.uid,
            gid,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            has_xattrs: false,
            access,
            default,
            rich: None,
            content,
            space: None,
            appends: None,
        };
        if let Heir::List(list) = heir {
            self.write_truth(&mut inode, &list, None)?;
        }
        self.name(directory.number, name, Some((number, kind)));
        self.make(inode.clone(), Place::At(directory.number, name.clone()));
        self.count(&mut directory, 1);
        directory.links += u32::from(is_directory);
        self.put(directory)?;
        self.done(Done::Made(number));
        Ok(inode)
    }

    /// The names of a directory have changed, and so many more are there.
    pub(super) fn count(&mut self, directory: &mut Inode, more: i64) {
        let now = self.now();
        directory.modified = now;
        directory.changed = now;
        if let Content::Directory(names) = &mut directory.content {
            *names = names.saturating_add_signed(more);
        }
    }

    /// An inode has lost a name. If it was the last, the inode is gone, or waits until nobody holds
    /// it any more.
    pub(super) fn unname(&mut self, mut victim: Inode) -> Result<Inode, Stop> {
        victim.changed = self.now();
        victim.links = match victim.is_directory() {
            true => 0,
            false => victim.links - 1,
        };
        let is_held = self.state.holders.contains_key(&victim.number);
        if victim.links > 0 {
            let place = self.place(victim.number)?;
            self.put_at(victim.clone(), place)?;
        } else if is_held {
            self.orphan(victim.number, true);
            self.put_at(victim.clone(), Place::Here)?;
        } else {
            self.bury(&victim)?;
        }
        Ok(victim)
    }

    /// An inode is no more, and stores need not keep what it had.
    pub(super) fn bury(&mut self, inode: &Inode) -> Result<(), Stop> {
        if let Some(layout) = layout(inode).filter(|layout| !layout.columns.0.is_empty()) {
            self.chore(Chore::Delete(layout.clone()));
        }
        self.remove(inode)
    }

    /// Judges an open and carries out what it does to the file.
    pub(super) fn open(
        &mut self,
        mut inode: Inode,
        who: &Principal,
        options: OpenOptions,
    ) -> Result<Inode, Stop> {
        match inode.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(FsError::IsDirectory.into()),
            FileKind::Symlink => return Err(FsError::Loop.into()),
            _ => return Err(FsError::NoSuchAddress.into()),
        }
        let wanted = match options.access {
            Access::Read => judge::READ,
            Access::Write => WRITE,
            Access::ReadWrite => judge::READ | WRITE,
            Access::Execute => EXECUTE,
        };
        let truncates = options.truncate && options.access != Access::Execute;
        let wanted = wanted | if truncates { WRITE } else { 0 };
        let rights = acl::rights_to_open(options.access, truncates, options.append);
        self.judge(&inode, who, rights, wanted)?;
        if truncates {
            self.resize(&mut inode, who, 0)?;
            self.put(inode.clone())?;
        }
        self.hold(inode.number);
        Ok(inode)
    }
}
