//! What it means for whom that a file's truth changes: from a POSIX ACL to a rich one, or from one
//! list to another. It is written down when that happens, and shown before.

use crate::rich::limits::plain;
use crate::{Caller, PosixAcl, PosixFile, PosixWho, RichAcl, Rights, Target, Who, bits};
use base::Principal;
use std::collections::{BTreeMap, BTreeSet};

/// What is the truth about a file.
#[derive(Clone, Copy, Debug)]
pub enum Truth<'a> {
    /// Its mode and POSIX ACL.
    Posix(PosixFile<'a>),
    /// Its rich ACL.
    Rich(&'a RichAcl),
}

/// What somebody gains and loses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Who: the owner, in no group; a user, in no group; who is in this group alone; or anybody
    /// else ([`Who::Everyone`]).
    pub who: Who,
    /// Rights that he has only now.
    pub gained: Rights,
    /// Rights that he had only before.
    pub lost: Rights,
}

/// Two groups whose members may do at once, as soon as the view becomes the truth, what the kernel
/// allows them only in two requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widening {
    /// The groups: [`Who::OwningGroup`] or [`Who::Group`]; one of them twice if it has two entries.
    pub groups: [Who; 2],
    /// What is allowed at once, of [`bits`].
    pub bits: u8,
}

impl Truth<'_> {
    /// All rights that a caller has, each by itself.
    #[must_use]
    pub fn rights_of(&self, caller: &Caller<'_>, target: &Target) -> Rights {
        let each = (0..u32::BITS).filter_map(|bit| Rights::from_bits(1 << bit));
        let had = each.filter(|right| match self {
            Self::Posix(file) => file.allows_rights(caller, target.is_directory, *right),
            Self::Rich(acl) => acl.allows(caller, target, *right),
        });
        had.fold(Rights::NONE, |all, right| all | right)
    }

    /// Everybody who has an entry.
    fn named(&self, target: &Target, all: &mut BTreeSet<Who>) {
        match self {
            Self::Posix(file) => {
                let entries = file.access.into_iter().flat_map(PosixAcl::entries);
                all.extend(entries.filter_map(|entry| match entry.who {
                    PosixWho::User(uid) => Some(plain(&Who::User(uid), target).clone()),
                    PosixWho::Group(gid) => Some(plain(&Who::Group(gid), target).clone()),
                    _ => None,
                }));
            }
            Self::Rich(acl) => {
                let effective = acl.aces().iter().filter(|ace| ace.is_effective());
                all.extend(effective.map(|ace| plain(&ace.who, target).clone()));
            }
        }
        all.retain(|who| !who.is_unknown());
        all.extend([Who::Owner, Who::OwningGroup, Who::Everyone]);
    }
}

/// For everybody who has an entry before or after, and for who has none: what he gains and loses.
/// Who is in several groups gains and loses no more rights than these, each by itself; what he may
/// do at once is said by [`widenings`].
#[must_use]
pub fn changes(before: &Truth<'_>, after: &Truth<'_>, target: &Target) -> Vec<Change> {
    let mut everybody = BTreeSet::new();
    before.named(target, &mut everybody);
    after.named(target, &mut everybody);
    let stranger = stranger(target, &everybody);
    let change = |who: Who| {
        let principal = match who {
            Who::Owner => Principal::alone(target.uid, stranger.gid),
            Who::User(uid) => Principal::alone(uid, stranger.gid),
            Who::OwningGroup => Principal::alone(stranger.uid, target.gid),
            Who::Group(gid) => Principal::alone(stranger.uid, gid),
            _ => stranger.clone(),
        };
        let caller = Caller::new(&principal);
        let [had, has] = [before, after].map(|truth| truth.rights_of(&caller, target));
        Change {
            who,
            gained: has - had,
            lost: had - has,
        }
    };
    let all = everybody.iter().cloned().map(change);
    all.filter(|change| !(change.gained | change.lost).is_empty())
        .collect()
}

/// Numbers of a user and of a group that nothing speaks of.
fn stranger(target: &Target, everybody: &BTreeSet<Who>) -> Principal {
    let free = |taken: &dyn Fn(u32) -> bool| {
        let mut numbers = (0..u32::MAX).rev();
        numbers
            .find(|number| !taken(*number))
            .expect("a list is shorter than all numbers")
    };
    let uid = free(&|uid| uid == target.uid || everybody.contains(&Who::User(uid)));
    let gid = free(&|gid| gid == target.gid || everybody.contains(&Who::Group(gid)));
    Principal::alone(uid, gid)
}

/// The pairs of groups whose members could do more at once if the view of a POSIX ACL were the
/// truth, unless a third group of theirs allows it anyway. There is no other difference between the
/// two, and who is in more groups gains no more than his pairs do together.
pub fn widenings(file: &PosixFile<'_>) -> impl Iterator<Item = Widening> {
    let groups: Vec<_> = requests_of_groups(file).into_iter().collect();
    (0..groups.len()).flat_map(move |second| {
        let (two, behind) = &groups[second];
        let pairs = groups[..=second].iter().filter_map(|(one, before)| {
            let at_once = before.bits | behind.bits;
            let gets_wider = match one == two {
                true => before.requests >> at_once & 1 == 0,
                // What one of them has alone is said of that one alone.
                false => at_once != before.bits && at_once != behind.bits,
            };
            gets_wider.then(|| Widening {
                groups: [one.clone(), two.clone()],
                bits: at_once,
            })
        });
        pairs.collect::<Vec<_>>()
    })
}

/// What a group's entries allow.
#[derive(Clone, Copy, Default)]
struct Requests {
    /// Each bit by itself.
    bits: u8,
    /// A bit for each of the eight requests that one of them allows.
    requests: u8,
}

fn requests_of_groups(file: &PosixFile<'_>) -> BTreeMap<Who, Requests> {
    let hidden = file.mode & 0o070 == 0;
    let acl = file.access.filter(|_| !hidden);
    let mask = acl.and_then(PosixAcl::mask).unwrap_or(bits::ALL);
    let mut groups: BTreeMap<Who, Requests> = BTreeMap::new();
    for entry in acl.into_iter().flat_map(PosixAcl::entries) {
        let who = match entry.who {
            PosixWho::OwningGroup => Who::OwningGroup,
            PosixWho::Group(gid) if gid == file.gid => Who::OwningGroup,
            PosixWho::Group(gid) => Who::Group(gid),
            _ => continue,
        };
        let allowed = entry.bits & mask;
        let within = (0..=bits::ALL).filter(|wanted| wanted & !allowed == 0);
        let group = groups.entry(who).or_default();
        group.bits |= allowed;
        group.requests |= within.fold(0, |all, wanted| all | 1 << wanted);
    }
    groups
}
