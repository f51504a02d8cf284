//! For whom a request is carried out.
//!
//! A machine's or an administrator's credential speaks for everybody: its client has judged who the
//! caller is, groups included. A user's credential speaks for one uid, and nothing else that its
//! client says about itself is believed: groups come from this machine's own user database. Who is
//! not in it has no groups but the one that means "nobody's".

use base::Principal;
use nix::unistd::{Uid, User, getgrouplist};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::message::{CredentialKind, Refusal};

/// How long a user's groups are remembered. The database may be a directory service behind a line.
const GROUPS_TIME: Duration = Duration::from_secs(60);
/// Users whose groups are remembered.
const USERS_MAX: usize = 4096;
/// The kernel's group for "none that can be shown here" (`/proc/sys/kernel/overflowgid`).
const NOBODYS_GROUP: u32 = 65534;

/// Decides for whom the server acts.
#[derive(Default)]
pub(crate) struct Judge {
    users: Mutex<HashMap<u32, (Instant, Principal)>>,
}

impl Judge {
    /// The identity under which a request runs. May ask the user database; not for async code.
    ///
    /// # Errors
    /// [`Refusal::ForeignUser`].
    pub(crate) fn judge(
        &self,
        kind: CredentialKind,
        claimed: Principal,
    ) -> Result<Principal, Refusal> {
        match kind {
            // Equal groups in another order are the same caller to everything that compares.
            CredentialKind::Admin | CredentialKind::Host => Ok(Principal::new(
                claimed.uid,
                claimed.gid,
                claimed.groups.into_vec(),
            )),
            CredentialKind::Server | CredentialKind::Manager { .. } => Err(Refusal::Forbidden),
            CredentialKind::User { uid } if uid != claimed.uid => Err(Refusal::ForeignUser),
            CredentialKind::User { uid } => {
                let known = self.user(uid);
                // newgrp(1): the caller may choose among the groups that it has.
                let gid = if known.is_member(claimed.gid) {
                    claimed.gid
                } else {
                    known.gid
                };
                Ok(Principal { gid, ..known })
            }
        }
    }

    fn user(&self, uid: u32) -> Principal {
        let lock = || self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, user)) = lock().get(&uid)
            && since.elapsed() < GROUPS_TIME
        {
            return user.clone();
        }
        let user = look_up(uid).unwrap_or_else(|| Principal::alone(uid, NOBODYS_GROUP));
        let mut users = lock();
        if users.len() >= USERS_MAX {
            users.clear();
        }
        users.insert(uid, (Instant::now(), user.clone()));
        user
    }
}

fn look_up(uid: u32) -> Option<Principal> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    let name = CString::new(user.name).ok()?;
    let groups = getgrouplist(&name, user.gid).ok()?;
    Some(Principal::new(
        uid,
        user.gid.as_raw(),
        groups.iter().map(|g| g.as_raw()).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(kind: CredentialKind, claimed: Principal) -> Result<Principal, Refusal> {
        Judge::default().judge(kind, claimed)
    }

    #[test]
    fn a_machine_speaks_for_everybody() {
        let claimed = Principal::new(1234, 5, vec![9, 7, 7]);
        for kind in [CredentialKind::Host, CredentialKind::Admin] {
            assert_eq!(judge(kind, claimed.clone()), Ok(claimed.clone()));
        }
    }

    #[test]
    fn a_user_speaks_for_himself_and_does_not_choose_his_groups() {
        let kind = CredentialKind::User { uid: 1234 };
        for uid in [0, 1233, u32::MAX] {
            assert_eq!(
                judge(kind, Principal::alone(uid, 5)),
                Err(Refusal::ForeignUser)
            );
        }
        // Nobody has this number here; root's and other groups are not granted on his word.
        let kind = CredentialKind::User { uid: 3_999_999_999 };
        let claimed = Principal::new(3_999_999_999, 0, vec![0, 4, 27]);
        let nobody = Principal::alone(3_999_999_999, NOBODYS_GROUP);
        assert_eq!(judge(kind, claimed), Ok(nobody));
    }

    #[test]
    fn a_users_groups_come_from_this_machines_database() {
        // root is in every database, with group 0.
        let kind = CredentialKind::User { uid: 0 };
        let user = judge(kind, Principal::new(0, 54321, vec![54322])).unwrap();
        assert!(user.is_member(0) && !user.is_member(54321) && !user.is_member(54322));
    }
}
