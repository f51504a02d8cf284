//! A small world: three users, three groups, and what the kernel's rule says about them, told as
//! sets and not as a walk.

use acl::{PosixAcl, PosixEntry, PosixWho};
use base::Principal;

pub(crate) const OWNER: u32 = 1;
pub(crate) const NAMED: u32 = 2;
pub(crate) const OTHER: u32 = 3;
pub(crate) const USERS: [u32; 3] = [OWNER, NAMED, OTHER];
pub(crate) const OWNING_GROUP: u32 = 10;
pub(crate) const GROUPS: [u32; 3] = [OWNING_GROUP, 11, 12];

/// Everybody there is: each user in each set of groups.
pub(crate) fn principals() -> Vec<Principal> {
    let sets = (0..8_usize).map(|set| {
        let members = (0..3).filter(move |group| set >> group & 1 == 1);
        members.map(|group| GROUPS[group]).collect::<Vec<_>>()
    });
    let sets: Vec<_> = sets.collect();
    let users = USERS.iter().flat_map(|uid| {
        let of_sets = sets.iter();
        of_sets.map(|groups| match groups.split_first() {
            // The primary group counts as the others do.
            Some((first, rest)) => Principal::new(*uid, *first, rest.to_vec()),
            None => Principal::new(*uid, 99, Vec::new()),
        })
    });
    users.collect()
}

/// The kernel's rule: which of the eight requests are allowed, as a bit for each.
pub(crate) fn kernel(
    entries: &[(PosixWho, u8)],
    mode: u16,
    owner: u32,
    group: u32,
    who: &Principal,
) -> u8 {
    let of = |bits: u16| requests_within((bits & 7) as u8);
    if who.uid == owner {
        return of(mode >> 6);
    }
    if mode & 0o070 == 0 || entries.is_empty() {
        return of(if who.is_member(group) {
            mode >> 3
        } else {
            mode
        });
    }
    let masks = entries.iter().filter(|(who, _)| *who == PosixWho::Mask);
    let mask = masks.map(|(_, bits)| *bits).next().unwrap_or(7);
    let own = entries
        .iter()
        .find(|(entry, _)| *entry == PosixWho::User(who.uid));
    if let Some((_, bits)) = own {
        return requests_within(bits & mask);
    }
    let of_groups = entries.iter().filter(|(entry, _)| match entry {
        PosixWho::OwningGroup => who.is_member(group),
        PosixWho::Group(gid) => who.is_member(*gid),
        _ => false,
    });
    match of_groups.clone().next() {
        Some(_) => of_groups.fold(0, |all, (_, bits)| all | requests_within(bits & mask)),
        None => {
            let others = entries.iter().find(|(who, _)| *who == PosixWho::Others);
            requests_within(others.expect("every ACL has others").1)
        }
    }
}

/// A bit for each request that asks for nothing beyond `allowed`.
pub(crate) fn requests_within(allowed: u8) -> u8 {
    (0..8).fold(0, |set, wanted: u8| {
        set | u8::from(wanted & !allowed == 0) << wanted
    })
}

/// The ACL of an owner, a named user, the owning group, two groups, a mask and others, from three
/// bits for each, in this order from the low bits on.
pub(crate) fn seven(bits: u32) -> Vec<(PosixWho, u8)> {
    let kinds = [
        PosixWho::Owner,
        PosixWho::User(NAMED),
        PosixWho::OwningGroup,
        PosixWho::Group(GROUPS[1]),
        PosixWho::Group(GROUPS[2]),
        PosixWho::Mask,
        PosixWho::Others,
    ];
    let bits = |index: usize| (bits >> (3 * index) & 7) as u8;
    let entries = kinds.iter().enumerate();
    entries.map(|(index, who)| (*who, bits(index))).collect()
}

pub(crate) fn acl(entries: &[(PosixWho, u8)]) -> PosixAcl {
    let entries = entries.iter().map(|(who, bits)| PosixEntry {
        who: *who,
        bits: *bits,
    });
    PosixAcl::new(entries.collect()).expect("entries in order")
}
