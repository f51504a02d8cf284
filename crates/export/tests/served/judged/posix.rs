//! Random POSIX ACLs on real file systems, random users, every request: what the kernel answers to
//! a thread that is that user altogether is what `acl` decides, by the ACL and by its view.
//!
//! A round is some files and directories with an ACL each and some users; every user makes every
//! request to all of them: so a request costs an open and little else, and a million take a minute
//! or two. How many cases there are on each file system, and from which seed, a variable of the
//! environment can say (`AZEKURA_ACL_CASES=400000:7`).
//!
//! Rules that are known to be wrong are held against the same answers, and have to be found out.

use super::answer;
use crate::common::{LocalUser, Mounted, ext4, is_root};
use acl::{Caller, PosixAcl, PosixEntry, PosixFile, PosixWho, RichAcl, Rights, Target, bits};
use base::{FsError, Principal};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CASES: &str = "AZEKURA_ACL_CASES";
const CASES_DEFAULT: u64 = 10_000;
const FILES: usize = 96;
const USERS: usize = 16;
const ATTRIBUTE: &str = "system.posix_acl_access";
/// Users and groups who own, are named and ask: few, so that they meet.
const UIDS: [u32; 5] = [2001, 2002, 2003, 2004, 4_000_000_000];
const GIDS: [u32; 6] = [3001, 3002, 3003, 3004, 3005, 0];

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Permission bits, none and all more often than others.
    fn permissions(&mut self) -> u8 {
        self.of(&[0, 0, 7, 7, 0, 1, 2, 3, 4, 5, 6, 7])
    }
}

/// A file or directory as the kernel has it.
struct Subject {
    path: PathBuf,
    is_directory: bool,
    uid: u32,
    gid: u32,
    mode: u16,
    access: Option<PosixAcl>,
}

impl Subject {
    fn file(&self) -> PosixFile<'_> {
        PosixFile {
            uid: self.uid,
            gid: self.gid,
            mode: self.mode,
            access: self.access.as_ref(),
        }
    }
}

/// A list; as often as not one that many users and groups are in, or twice.
fn random_list(random: &mut Random) -> PosixAcl {
    let mut entries = vec![(PosixWho::Owner, random.permissions())];
    let (users, groups) = (random.of(&[0, 0, 1, 2, 4]), random.of(&[0, 1, 2, 3, 6]));
    entries.extend((0..users).map(|_| (PosixWho::User(random.of(&UIDS)), random.permissions())));
    entries.push((PosixWho::OwningGroup, random.permissions()));
    entries.extend((0..groups).map(|_| (PosixWho::Group(random.of(&GIDS)), random.permissions())));
    if users + groups > 0 || random.below(4) == 0 {
        let some = random.permissions();
        entries.push((PosixWho::Mask, random.of(&[7, 7, 7, 0, some])));
    }
    entries.push((PosixWho::Others, random.permissions()));
    let entry = |(who, bits)| PosixEntry { who, bits };
    PosixAcl::new(entries.into_iter().map(entry).collect()).expect("in order")
}

fn random_user(random: &mut Random) -> Principal {
    let groups = (0..random.of(&[0, 1, 2, 2, 3, 5])).map(|_| random.of(&GIDS));
    let groups = groups.collect();
    Principal::new(random.of(&UIDS), random.of(&GIDS), groups)
}

/// Makes a file or directory anew, with a list, and sees that the kernel has it as it is meant.
fn prepare(top: &Path, number: usize, random: &mut Random) -> Subject {
    let path = top.join(format!("s{number}"));
    let is_directory = number.is_multiple_of(3);
    if is_directory {
        let _ = fs::create_dir(&path);
        let _ = fs::write(path.join("inside"), "");
    } else if !path.exists() {
        fs::write(&path, "").expect("room");
    }
    let (uid, gid) = (random.of(&UIDS), random.of(&GIDS));
    chown(&path, Some(uid), Some(gid)).expect("root may");
    let list = random_list(random);
    rustix::fs::setxattr(&path, ATTRIBUTE, &list.to_xattr(), XattrFlags::empty())
        .expect("the list is valid");
    // Some are changed once more by who knows nothing of lists.
    if random.below(3) == 0 {
        let mode = random.bits() as u32 & 0o777;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("root may");
    }
    let stat = fs::metadata(&path).expect("it is there");
    let mode = (stat.mode() & 0o777) as u16;
    let mut value = [0; 4096];
    let access = match rustix::fs::getxattr(&path, ATTRIBUTE, &mut value) {
        Ok(length) => PosixAcl::from_xattr(&value[..length]).expect("valid"),
        Err(Errno::NODATA) => None,
        Err(error) => panic!("{error}"),
    };
    // What the kernel keeps is the list, with the mode's bits where those are the same.
    match &access {
        Some(kept) => assert_eq!(*kept, list.with_mode(mode), "{number}"),
        None => assert!(list.mode().1, "{list:?} is no mode"),
    }
    Subject {
        path,
        is_directory,
        uid,
        gid,
        mode,
        access,
    }
}

/// What the kernel says to the thread that asks; asked for by doing it, where that changes nothing.
fn ask(subject: &Subject, wanted: u8) -> Result<(), Errno> {
    let open = |flags| {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::open(&subject.path, flags, Mode::empty()).map(drop)
    };
    let bit = |bit, access| {
        if wanted & bit != 0 {
            access
        } else {
            Access::empty()
        }
    };
    match (subject.is_directory, wanted) {
        (_, bits::READ) => open(OFlags::RDONLY),
        (false, bits::WRITE) => open(OFlags::WRONLY),
        (false, 6) => open(OFlags::RDWR),
        (true, bits::EXECUTE) => rustix::fs::lstat(subject.path.join("inside")).map(drop),
        _ => {
            let access = bit(bits::READ, Access::READ_OK)
                | bit(bits::WRITE, Access::WRITE_OK)
                | bit(bits::EXECUTE, Access::EXEC_OK);
            rustix::fs::accessat(CWD, &subject.path, access, AtFlags::EACCESS)
        }
    }
}

/// Every request to every subject: a bit for each that is allowed.
fn ask_all(subjects: &[Subject]) -> Vec<u8> {
    let allowed = |subject: &Subject| {
        (1..8_u8).fold(0, |all, wanted| match ask(subject, wanted) {
            Ok(()) => all | 1 << wanted,
            Err(errno) => {
                assert_eq!(answer(errno), FsError::AccessDenied, "{:?}", subject.path);
                all
            }
        })
    };
    subjects.iter().map(allowed).collect()
}

/// A way to decide.
type Rule = fn(&Subject, &Caller<'_>, u8) -> bool;

fn by_list(subject: &Subject, caller: &Caller<'_>, wanted: u8) -> bool {
    subject.file().allows(caller, wanted)
}

fn by_view(subject: &Subject, caller: &Caller<'_>, wanted: u8) -> bool {
    let view = RichAcl::view(&subject.file(), None, subject.is_directory);
    let target = Target {
        uid: subject.uid,
        gid: subject.gid,
        is_directory: subject.is_directory,
    };
    let of = |bit, rights| {
        if wanted & bit != 0 {
            rights
        } else {
            Rights::NONE
        }
    };
    let rights = of(bits::READ, Rights::READ_DATA)
        | of(bits::WRITE, Rights::WRITE_DATA | Rights::APPEND_DATA)
        | of(bits::EXECUTE, Rights::EXECUTE);
    view.allows(caller, &target, rights)
}

/// Wrong: a right from one group, another from another (every NFSv4 list).
fn by_bits(subject: &Subject, caller: &Caller<'_>, wanted: u8) -> bool {
    let asked = [bits::READ, bits::WRITE, bits::EXECUTE].into_iter();
    let mut asked = asked.filter(|bit| wanted & bit != 0);
    asked.all(|bit| subject.file().allows(caller, bit))
}

/// Wrong: an empty mask as the draft has it.
fn by_draft(subject: &Subject, caller: &Caller<'_>, wanted: u8) -> bool {
    let mut file = subject.file();
    if file.access.is_some() {
        file.mode |= 0o070;
    }
    file.allows(caller, wanted)
}

const RULES: [(Rule, &str); 4] = [
    (by_list, "acl"),
    (by_view, "its view"),
    (by_bits, "bit by bit"),
    (by_draft, "as in the draft"),
];

/// How many cases there were, how many were allowed, and the differences of each rule, the first
/// of them told.
#[derive(Default)]
struct Judged {
    cases: u64,
    allowed: u64,
    differences: [u64; RULES.len()],
    first: Option<String>,
}

impl Judged {
    fn compare(&mut self, who: &Principal, subjects: &[Subject], answers: &[u8]) {
        let caller = Caller::new(who);
        for (subject, answer) in subjects.iter().zip(answers) {
            for wanted in 1..8_u8 {
                let is_allowed = answer >> wanted & 1 == 1;
                self.cases += 1;
                self.allowed += u64::from(is_allowed);
                for (index, (rule, name)) in RULES.iter().enumerate() {
                    if rule(subject, &caller, wanted) == is_allowed {
                        continue;
                    }
                    self.differences[index] += 1;
                    if index < 2 && self.first.is_none() {
                        let file = subject.file();
                        self.first = Some(format!(
                            "{name} is against the kernel ({is_allowed}): {who:?} wants {wanted} \
                             of {file:?}, a directory: {}",
                            subject.is_directory
                        ));
                    }
                }
            }
        }
    }
}

fn judge(top: &Path, cases: u64, seed: u64) -> Judged {
    let mut random = Random(seed);
    let mut judged = Judged::default();
    while judged.cases < cases {
        let subjects: Vec<_> = (0..FILES)
            .map(|number| prepare(top, number, &mut random))
            .collect();
        let subjects = Arc::new(subjects);
        for _ in 0..USERS {
            let user = LocalUser::new(random_user(&mut random));
            let asked = subjects.clone();
            let answers = user.run(move || ask_all(&asked));
            judged.compare(&user.principal, &subjects, &answers);
        }
    }
    judged
}

/// Cases on each file system, and the seed.
fn wanted() -> (u64, u64) {
    let Ok(text) = std::env::var(CASES) else {
        return (CASES_DEFAULT, 1);
    };
    let (cases, seed) = text.split_once(':').unwrap_or((&text, "1"));
    (cases.parse().expect(CASES), seed.parse().expect(CASES))
}

#[test]
fn random_lists_are_judged_as_by_the_kernel_on_each_file_system() {
    if !is_root() {
        return;
    }
    let (cases, seed) = wanted();
    let image = |mkfs, name| (name, Mounted::image(mkfs, &["-q"], 512 << 20, "noatime"));
    let places = [
        ("ext4", ext4()),
        image("mkfs.xfs", "xfs"),
        image("mkfs.btrfs", "btrfs"),
    ];
    for (name, mounted) in places {
        let Some(mounted) = mounted else { continue };
        let Judged {
            cases,
            allowed,
            differences: [ours, views, bits, draft],
            first,
        } = judge(&mounted.path, cases, seed);
        eprintln!("{name}: {allowed} allowed of {cases} requests");
        eprintln!("{name}: wrong rules are found out {bits} and {draft} times");
        let first = first.unwrap_or_default();
        assert_eq!((ours, views), (0, 0), "{name}: {first}");
        assert!(bits > 0 && draft > 0, "{name}: wrong rules pass");
        assert!(
            allowed * 10 > cases && allowed * 10 < cases * 9,
            "one-sided: {allowed} of {cases}"
        );
    }
}
