//! What comes from a connection about servers.

use crate::core::Core;
use std::sync::{Arc, PoisonError};
use wire::message::{ClusterReply, ClusterRequest, CredentialKind, Refusal, Reply};

/// Answers whoever has this credential. Blocks: what is new is written down.
pub(crate) fn answer(
    core: &Arc<Core>,
    kind: CredentialKind,
    serial: &str,
    request: ClusterRequest,
) -> Reply {
    let forbidden = Reply::Refused(Refusal::Forbidden);
    let failed = |why: String| {
        let why = crate::admin::cut(why, base::limits::STORE_TEXT_BYTES_MAX);
        Reply::Cluster(ClusterReply::Failed(why))
    };
    match request {
        ClusterRequest::Servers => Reply::Cluster(ClusterReply::Servers(core.cluster.summaries())),
        ClusterRequest::Managers => {
            let managers = core.lead.as_ref().map(|lead| lead.roll.summaries());
            Reply::Cluster(ClusterReply::Managers(managers.unwrap_or_default()))
        }
        ClusterRequest::Register(registration) => {
            let members = core.members.as_ref();
            let Some(members) = members.filter(|_| kind == CredentialKind::Server) else {
                return forbidden;
            };
            let registered = {
                let mut members = members.lock().unwrap_or_else(PoisonError::into_inner);
                members.register(serial, registration)
            };
            match registered {
                Ok(Some(member)) => {
                    let server = member.server;
                    tracing::info!(%server, "a storage server has made itself known");
                    core.cluster.know(member);
                }
                Ok(None) => {}
                Err(error) => return failed(error.to_string()),
            }
            let credentials = core.registry().credential_changes();
            Reply::Cluster(ClusterReply::Registered { credentials })
        }
        ClusterRequest::Stores { .. } if !kind.is_admin() => forbidden,
        ClusterRequest::Stores { server } => match core.cluster.stores_of(server) {
            Some(stores) => Reply::Cluster(ClusterReply::Stores(stores)),
            None => failed(format!("there is no storage server {server}")),
        },
    }
}
