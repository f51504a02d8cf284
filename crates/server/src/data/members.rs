//! Storage servers that have joined, as the manager knows them: the list `servers`.

use super::list::{Line, Lists};
use super::{DataError, from_hex, to_hex};
use base::ServerId;
use base::limits::{SERVER_ADDRESSES_MAX, SERVERS_MAX};
use base::ticket::TicketKey;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use wire::message::{Registration, SharedKey};

/// A server that has joined.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) server: ServerId,
    /// Of its credential.
    pub(crate) serial: String,
    pub(crate) label: String,
    /// As it said last; none if it has never said anything.
    pub(crate) registration: Option<Registration>,
}

impl Member {
    /// Tickets for it are issued under this key.
    pub(crate) fn key(&self) -> Option<TicketKey> {
        let registration = self.registration.as_ref()?;
        Some(TicketKey::new(registration.key_id, registration.key.0))
    }
}

#[derive(Serialize, Deserialize)]
struct MemberEntry {
    id: String,
    serial: String,
    label: String,
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    epoch: u64,
    key_id: Option<u32>,
    key: Option<String>,
}

impl Line for MemberEntry {
    const LIST: &'static str = "servers";
    const LINE: &'static str = "server";
    const MAY_BE_MISSING: bool = true;
    fn name(&self) -> String {
        self.id.clone()
    }
}

impl MemberEntry {
    fn of(member: &Member) -> Self {
        let known = member.registration.as_ref();
        Self {
            id: to_hex(&member.server.0),
            serial: member.serial.clone(),
            label: member.label.clone(),
            addresses: known.map_or_else(Vec::new, |known| known.addresses.clone()),
            epoch: known.map_or(0, |known| known.epoch),
            key_id: known.map(|known| known.key_id),
            key: known.map(|known| to_hex(&known.key.0)),
        }
    }

    fn member(self) -> Option<Member> {
        let registration = match (self.key_id, self.key) {
            (Some(key_id), Some(key)) => Some(Registration {
                addresses: self.addresses,
                epoch: self.epoch,
                key_id,
                key: SharedKey(from_hex(&key)?),
            }),
            (None, None) => None,
            _ => return None,
        };
        Some(Member {
            server: ServerId(from_hex(&self.id)?),
            serial: self.serial,
            label: self.label,
            registration,
        })
    }
}

/// Why a server is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemberError {
    /// The identity is another one's.
    #[error("there is a server of this identity already")]
    Exists,
    /// The credential is nobody's who joined.
    #[error("no server with this credential has joined")]
    Unknown,
    /// A bound is reached.
    #[error("a cluster has {SERVERS_MAX} storage servers at most")]
    Limit,
    /// What it says makes no sense.
    #[error("a server has 1 to {SERVER_ADDRESSES_MAX} addresses")]
    Addresses,
    /// The disk's.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// See the module's head.
pub(crate) struct Members {
    lists: Lists,
    list: Vec<Member>,
}

impl Members {
    /// Reads the list; nobody has joined if there is none. Blocks; not within a task.
    pub(crate) fn open(lists: Lists) -> Result<Self, DataError> {
        let entries: Vec<MemberEntry> = lists.read()?;
        let damaged = || DataError::Damaged {
            path: PathBuf::from("servers.toml"),
            why: "a value has the wrong form".to_owned(),
        };
        let list = entries.into_iter();
        let list = list.map(|entry| entry.member().ok_or_else(damaged));
        Ok(Self {
            list: list.collect::<Result<_, _>>()?,
            lists,
        })
    }

    pub(crate) fn list(&self) -> &[Member] {
        &self.list
    }

    /// Whether one more may join under this identity.
    ///
    /// # Errors
    /// [`MemberError`].
    pub(crate) fn check(&self, server: ServerId) -> Result<(), MemberError> {
        if self.list.iter().any(|member| member.server == server) {
            return Err(MemberError::Exists);
        }
        match self.list.len() < SERVERS_MAX {
            true => Ok(()),
            false => Err(MemberError::Limit),
        }
    }

    /// A server has joined. Durable when it returns.
    ///
    /// # Errors
    /// [`MemberError`].
    pub(crate) fn add(
        &mut self,
        server: ServerId,
        serial: &str,
        label: &str,
    ) -> Result<(), MemberError> {
        self.check(server)?;
        self.list.push(Member {
            server,
            serial: serial.to_owned(),
            label: label.to_owned(),
            registration: None,
        });
        self.save().inspect_err(|_| {
            self.list.pop();
        })
    }

    /// The server with this credential says how it is reached; what is new is durable when it
    /// returns. None if nothing is.
    ///
    /// # Errors
    /// [`MemberError`].
    pub(crate) fn register(
        &mut self,
        serial: &str,
        registration: Registration,
    ) -> Result<Option<Member>, MemberError> {
        if registration.addresses.is_empty() {
            return Err(MemberError::Addresses);
        }
        let known = self.list.iter_mut().find(|member| member.serial == serial);
        let known = known.ok_or(MemberError::Unknown)?;
        if known.registration.as_ref() == Some(&registration) {
            return Ok(None);
        }
        let before = known.registration.replace(registration);
        let (after, server) = (known.clone(), known.server);
        if let Err(error) = self.save() {
            let known = self.list.iter_mut().find(|member| member.server == server);
            known.expect("it was just there").registration = before;
            return Err(error);
        }
        Ok(Some(after))
    }

    fn save(&self) -> Result<(), MemberError> {
        Ok(self.lists.write(self.list.iter().map(MemberEntry::of))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_joined_is_known_in_the_next_run_and_by_his_credential_alone() {
        let directory = tempfile::tempdir().unwrap();
        let lists = Lists::Directory(directory.path().to_owned());
        let open = || Members::open(lists.clone()).unwrap();
        let (one, two) = (ServerId([1; 16]), ServerId([2; 16]));
        let mut members = open();
        members.add(one, "0a", "disks").unwrap();
        members.add(two, "0b", "more").unwrap();
        let again = members.add(one, "0c", "thief");
        assert!(matches!(again, Err(MemberError::Exists)));
        let registration = Registration {
            addresses: vec!["disks:7700".to_owned()],
            epoch: 3,
            key_id: 1,
            key: SharedKey([7; 32]),
        };
        let known = members.register("0a", registration.clone()).unwrap();
        assert_eq!(known.unwrap().server, one);
        assert!(
            members
                .register("0a", registration.clone())
                .unwrap()
                .is_none()
        );
        let stranger = members.register("0c", registration.clone());
        assert!(matches!(stranger, Err(MemberError::Unknown)));
        let members = open();
        let [first, second] = members.list() else {
            panic!("two have joined");
        };
        assert_eq!(first.registration.as_ref(), Some(&registration));
        assert!(second.registration.is_none() && second.key().is_none());
        let shown = format!("{first:?}");
        assert!(shown.contains("key: SharedKey(..)"), "{shown}");
    }
}
