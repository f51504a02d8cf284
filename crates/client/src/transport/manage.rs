//! What is asked of a server as a whole, and of the manager.

use super::{Call, CallError, Transport};
use base::Principal;
use wire::message::{
    AdminReply, AdminRequest, ClusterReply, ClusterRequest, CredentialKind, Reply, Request,
    ReserveReply, ReserveRequest,
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
        let pending = self.submit(&Request::Admin(request), Call::metadata());
        match pending.response().await?.reply {
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
        let pending = self.submit(&Request::Cluster(request), Call::metadata());
        match pending.response().await?.reply {
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
        let pending = self.submit(&Request::Reserve { uid, request }, Call::metadata());
        match pending.response().await?.reply {
            Reply::Reserve(reply) => Ok(*reply),
            _ => Err(CallError::Protocol),
        }
    }
}
