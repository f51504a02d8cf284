//! What is asked of a server as a whole, and of the manager.

use super::{Call, CallError, Transport};
use wire::message::{
    AdminReply, AdminRequest, ClusterReply, ClusterRequest, Reply, Request, ReserveReply,
    ReserveRequest,
};

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
