//! What is asked of a server as a whole, and of the manager.

use super::{Call, CallError, Transport};
use base::Principal;
use wire::message::{
    AdminReply, AdminRequest, ClusterReply, ClusterRequest, CredentialKind, Reply, Request,
    ReserveReply, ReserveRequest, decode, encode,
};

/// The kernel's group for "none that can be shown here" (`/proc/sys/kernel/overflowgid`).
const NOBODYS_GROUP: u32 = 65534;

/// See [`Transport::own`].
pub(super) fn own_principal(kind: CredentialKind) -> Principal {
    match kind {
        CredentialKind::Admin
        | CredentialKind::Host
        | CredentialKind::Server
        | CredentialKind::Manager { .. } => Principal::root(),
        // The server knows which groups the user has there, and takes the first of them instead.
        CredentialKind::User { uid } => Principal::alone(uid, NOBODYS_GROUP),
    }
}

impl Transport {
    /// Administers the server.
    ///
    /// # Errors
    /// That of the way there; what the server thinks of it is in the reply.
    pub async fn admin(&self, request: AdminRequest) -> Result<AdminReply, CallError> {
        match self.asked(&Request::Admin(request)).await? {
            Reply::Admin(reply) => Ok(reply),
            _ => Err(CallError::Protocol),
        }
    }

    /// Asks the manager about the servers of the cluster.
    ///
    /// # Errors
    /// That of the way there; what the manager thinks of it is in the reply.
    pub async fn cluster_request(
        &self,
        request: ClusterRequest,
    ) -> Result<ClusterReply, CallError> {
        match self.asked(&Request::Cluster(request)).await? {
            Reply::Cluster(reply) => Ok(reply),
            _ => Err(CallError::Protocol),
        }
    }

    /// Asks the manager for a user of this machine.
    ///
    /// # Errors
    /// That of the way there; what the manager thinks of it is in the reply.
    pub async fn reserve(
        &self,
        uid: u32,
        request: ReserveRequest,
    ) -> Result<ReserveReply, CallError> {
        match self.asked(&Request::Reserve { uid, request }).await? {
            Reply::Reserve(reply) => Ok(*reply),
            _ => Err(CallError::Protocol),
        }
    }

    /// Asks, if the request can be read: servers enforce bounds while they read, and end the
    /// connection of whoever breaks one, whereupon it would be sent again and again.
    async fn asked(&self, request: &Request) -> Result<Reply, CallError> {
        check_bounds(request)?;
        let pending = self.submit(request, Call::metadata());
        Ok(pending.response().await?.reply)
    }
}

/// # Errors
/// [`CallError::TooLong`].
fn check_bounds(request: &Request) -> Result<(), CallError> {
    let read = decode::<Request>(&encode(request));
    read.map(drop).map_err(|_| CallError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::message::ReserveName;

    #[test]
    fn what_no_server_could_read_is_not_sent() {
        let show = |len| Request::Reserve {
            uid: 0,
            request: ReserveRequest::Show(ReserveName {
                volume: "lab".to_owned(),
                name: "n".repeat(len),
            }),
        };
        assert_eq!(check_bounds(&show(63)), Ok(()));
        assert_eq!(check_bounds(&show(64)), Err(CallError::TooLong));
        let delete = |len| {
            Request::Admin(AdminRequest::VolumeDelete {
                name: "v".repeat(len),
                dry_run: true,
            })
        };
        assert_eq!(check_bounds(&delete(255)), Ok(()));
        assert_eq!(check_bounds(&delete(256)), Err(CallError::TooLong));
    }
}
