//! Who asks, with groups that are found quickly.

use base::Principal;

const FILTER_BITS: usize = 4096;
const WORD_BITS: usize = 64;

/// A principal, prepared for long ACLs: made once for each request, or kept with a session.
///
/// A thousand entries against five hundred groups would be a thousand searches. A set of bits that
/// names no group which is not there answers most of them, and a search only the rest.
#[derive(Clone, Debug)]
pub struct Caller<'a> {
    who: &'a Principal,
    filter: [u64; FILTER_BITS / WORD_BITS],
}

impl<'a> Caller<'a> {
    /// Goes through the groups once.
    #[must_use]
    pub fn new(who: &'a Principal) -> Self {
        let mut filter = [0; FILTER_BITS / WORD_BITS];
        for gid in who.groups.iter().chain([&who.gid]) {
            let (word, bit) = place(*gid);
            filter[word] |= bit;
        }
        Self { who, filter }
    }

    /// The user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.who.uid
    }

    /// Whether the caller is in a group.
    #[must_use]
    pub fn is_member(&self, gid: u32) -> bool {
        let (word, bit) = place(gid);
        self.filter[word] & bit != 0 && self.who.is_member(gid)
    }
}

/// Where the bit of a group is. Numbers of groups are mostly neighbours, which do not collide.
fn place(gid: u32) -> (usize, u64) {
    let index = (gid ^ gid >> 12) as usize % FILTER_BITS;
    (index / WORD_BITS, 1 << (index % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn membership_is_that_of_the_principal(
            groups in prop::collection::vec(prop_oneof![0..50_u32, any::<u32>()], 0..40),
            gid in 0..50_u32,
            asked in prop::collection::vec(prop_oneof![0..60_u32, any::<u32>()], 1..40),
        ) {
            let who = Principal::new(7, gid, groups.clone());
            let caller = Caller::new(&who);
            for gid in asked.into_iter().chain(groups) {
                prop_assert_eq!(caller.is_member(gid), who.is_member(gid));
            }
        }
    }
}
