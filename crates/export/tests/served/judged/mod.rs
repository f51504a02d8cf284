//! Each operation through the export and by a local user, on two equal trees: same answer, same
//! tree afterwards.
//!
//! A case is a directory, a file in it, a user and an operation. The local side is a thread that is
//! that user altogether ([`LocalUser`]) and names things by path; the served side walks by handle
//! and name as the same user. Neither knows what the right answer is: the kernel gives it.

mod attributes;
mod files;
mod names;
mod posix;
mod tree;

use crate::common::{LocalUser, Mounted, Served, ext4, is_root, name, shell};
use base::{FsError, Handle, Principal};
use rustix::io::Errno;
use std::path::Path;
use tree::{copy, describe};

const ALICE: u32 = 2001;
const BOB: u32 = 2002;
const STAFF: u32 = 3001;
const OTHERS: u32 = 3005;

fn users() -> Vec<Principal> {
    vec![
        Principal::root(),
        Principal::new(ALICE, 3011, vec![STAFF]),
        Principal::new(BOB, STAFF, vec![OTHERS, 3012]),
        Principal::alone(2003, 3013),
        // Uid 0 has root's rights whatever its groups; gid 0 alone has none.
        Principal::new(0, STAFF, vec![OTHERS]),
        Principal::alone(2004, 0),
    ]
}

/// Shell lines that make the directory `d` (owner alice, group staff) in which a case happens.
const DIRECTORIES: &[&str] = &[
    "chmod 755 d",
    "chmod 770 d",
    "chmod 1777 d",
    "chmod 2775 d",
    "chmod 777 d; setfacl -d -m u::rwx,g::rx,o::-,u:2002:rw,m::rwx d",
    "chmod 700 d; setfacl -m u:2003:rwx d",
    "chmod 333 d",
    "chmod 555 d",
    "chmod 3777 d; chown 2003:3005 d",
];

/// Shell lines that make the file `d/f`, the directory `d/s` and the link `d/l`.
const FILES: &[&str] = &[
    "chmod 644 f",
    "chmod 4755 f",
    "chmod 2755 f; chown 2002:3001 f; chmod 2755 f",
    "chmod 2745 f",
    "chmod 6777 f",
    "chmod 0 f; chown 0:0 f",
    "chmod 600 f; setfacl -m u:2002:rw,g:3013:r f",
    "chmod 460 f; chown 2003:3005 f",
    "chmod 6711 f; chown 2002:3005 f; chmod 6711 f",
];

/// What an operation said beside success: data, names.
type Outcome = Result<String, FsError>;

#[derive(Clone, Copy, Debug)]
enum Op {
    Name(names::Op),
    File(files::Op),
    Attribute(attributes::Op),
}

impl Op {
    fn all() -> Vec<Self> {
        let names = names::Op::all().into_iter().map(Self::Name);
        let files = files::Op::all().into_iter().map(Self::File);
        let attributes = attributes::Op::all().into_iter().map(Self::Attribute);
        names.chain(files).chain(attributes).collect()
    }

    /// As a local process does it, below `base`.
    fn locally(self, base: &Path) -> Outcome {
        match self {
            Self::Name(op) => op.locally(base),
            Self::File(op) => op.locally(base),
            Self::Attribute(op) => op.locally(base),
        }
        .map_err(answer)
    }

    /// Through the export.
    fn served(self, side: &Side<'_>) -> Outcome {
        match self {
            Self::Name(op) => op.served(side),
            Self::File(op) => op.served(side),
            Self::Attribute(op) => op.served(side),
        }
    }
}

/// Where and for whom an operation is served.
struct Side<'a> {
    tree: &'a Served,
    who: &'a Principal,
    base: Handle,
    directory: Handle,
}

impl<'a> Side<'a> {
    fn new(tree: &'a Served, top: &str, who: &'a Principal) -> Result<Self, FsError> {
        let base = tree.find(top).handle;
        let directory = tree
            .export
            .lookup(&tree.worker, who, &base, &name("d"))?
            .handle;
        Ok(Self {
            tree,
            who,
            base,
            directory,
        })
    }

    fn lookup(&self, parent: &Handle, part: &str) -> Result<Handle, FsError> {
        let Served { export, worker, .. } = self.tree;
        Ok(export.lookup(worker, self.who, parent, &name(part))?.handle)
    }

    fn file(&self) -> Result<Handle, FsError> {
        self.lookup(&self.directory, "f")
    }
}

/// An answer without more to say than success.
fn done<T, E>(result: Result<T, E>) -> Result<String, E> {
    result.map(|_| String::new())
}

fn sorted(names: impl Iterator<Item = Vec<u8>>) -> String {
    let mut names: Vec<_> = names
        .map(|n| String::from_utf8_lossy(&n).into_owned())
        .collect();
    names.sort();
    names.join(" ")
}

/// The numbers that occur here, written down a second time so that the export's table is not its
/// own judge.
fn answer(errno: Errno) -> FsError {
    match errno {
        Errno::PERM => FsError::NotPermitted,
        Errno::ACCESS => FsError::AccessDenied,
        Errno::NOENT => FsError::NotFound,
        Errno::EXIST => FsError::Exists,
        Errno::NOTDIR => FsError::NotDirectory,
        Errno::ISDIR => FsError::IsDirectory,
        Errno::NOTEMPTY => FsError::NotEmpty,
        Errno::BADF => FsError::BadOpen,
        Errno::INVAL => FsError::Invalid,
        Errno::NODATA => FsError::NoData,
        Errno::OPNOTSUPP => FsError::NotSupported,
        Errno::FBIG => FsError::FileTooLarge,
        Errno::LOOP => FsError::Loop,
        other => panic!("not expected here: {other:?}"),
    }
}

/// One tree per side, made once for each directory and file; a case runs on copies.
struct Sides<'a> {
    tree: &'a Served,
    root: LocalUser,
    locals: Vec<LocalUser>,
    sets: usize,
    cases: usize,
    differences: Vec<String>,
    /// How many cases ended in each answer, to see that the table is worth something.
    refused: usize,
}

impl Sides<'_> {
    fn compare_all(&mut self, directory: &str, file: &str) {
        self.sets += 1;
        let set = format!("set{}", self.sets);
        let top = self.tree.path.join(&set);
        shell(&format!(
            "mkdir -p {0}/model && cd {0}/model && mkdir d e && chmod 777 e && cd d \
             && mkdir s && ln -s ../f l && printf text > f && chown 2001:3001 f s . \
             && setfattr -n user.there -v yes f && {file}; cd .. && {directory}",
            top.display()
        ));
        let cases = Op::all().len() * self.locals.len();
        self.root.run(move || {
            for case in 0..cases {
                copy(&top.join("model"), &top.join(format!("l{case}")));
                copy(&top.join("model"), &top.join(format!("s{case}")));
            }
        });
        let mut case = 0;
        for user in 0..self.locals.len() {
            for op in Op::all() {
                let sides = [format!("{set}/l{case}"), format!("{set}/s{case}")];
                self.compare(op, user, sides, &format!("{directory} / {file}"));
                case += 1;
            }
        }
    }

    fn compare(&mut self, op: Op, user: usize, [local, served_top]: [String; 2], setup: &str) {
        let (local_path, served_path) =
            (self.tree.path.join(local), self.tree.path.join(&served_top));
        let base = local_path.clone();
        let who = self.locals[user].principal.clone();
        let local = self.locals[user].run(move || op.locally(&base));
        let through = Side::new(self.tree, &served_top, &who).and_then(|side| op.served(&side));
        self.cases += 1;
        self.refused += usize::from(local.is_err());
        // The test's own thread is whoever the worker acted for last.
        let describe_both = move || (describe(&local_path), describe(&served_path));
        let (a, b) = self.root.run(describe_both);
        if local != through || a != b {
            let trees: Vec<_> = a.iter().zip(&b).filter(|(a, b)| a != b).collect();
            self.differences.push(format!(
                "{setup}: {op:?} as {}:{}: locally {local:?}, served {through:?}, {trees:#?}",
                who.uid, who.gid
            ));
        }
    }
}

fn compare_on(tree: &Served, tables: &[(&[&str], &[&str])]) {
    // Threads take after the one that starts them, so these start before it acts for anybody.
    let locals = users().into_iter().map(LocalUser::new).collect();
    let root = LocalUser::new(Principal::root());
    let mut sides = Sides {
        tree,
        root,
        locals,
        sets: 0,
        cases: 0,
        differences: Vec::new(),
        refused: 0,
    };
    for (directories, files) in tables {
        for directory in *directories {
            files
                .iter()
                .for_each(|file| sides.compare_all(directory, file));
        }
    }
    let shown = sides
        .differences
        .iter()
        .take(20)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    let Sides { cases, refused, .. } = sides;
    eprintln!("{cases} cases, {refused} refused");
    assert!(
        sides.differences.is_empty(),
        "{} of {cases}:\n{shown}",
        sides.differences.len()
    );
    assert!(
        refused * 10 > cases && refused * 10 < cases * 9,
        "one-sided table: {refused}"
    );
}

#[test]
fn every_operation_is_judged_as_locally_on_ext4() {
    if !is_root() {
        return;
    }
    // Every directory with one file, every file in one directory: the pairs that interact.
    let tables = [
        (DIRECTORIES, &FILES[..1]),
        (&DIRECTORIES[2..3], &FILES[1..]),
    ];
    let Some(mounted) = ext4() else { return };
    compare_on(&Served::at(&mounted.path), &tables);
}

/// Turning rich ACLs on changes no decision.
#[test]
fn while_the_truth_is_posix_the_kernel_judges_with_rich_acls_on() {
    if !is_root() {
        return;
    }
    let Some(mounted) = ext4() else { return };
    let tree = Served::at(&mounted.path);
    tree.export.set_rich(true);
    compare_on(&tree, &[(&DIRECTORIES[4..5], &FILES[6..7])]);
    assert_eq!(tree.export.rich_figures().judged, 0);
}

#[test]
fn every_operation_is_judged_as_locally_on_xfs() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::image("mkfs.xfs", &["-q"], 512 << 20, "noatime") else {
        return;
    };
    compare_on(
        &Served::at(&mounted.path),
        &[(&DIRECTORIES[3..4], &FILES[2..3])],
    );
}

#[test]
fn every_operation_is_judged_as_locally_on_tmpfs() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::tmpfs(256 << 20) else {
        return;
    };
    let tree = Served::at(&mounted.path);
    compare_on(&tree, &[(&DIRECTORIES[4..5], &FILES[4..7])]);
}
