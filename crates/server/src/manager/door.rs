//! What comes from a connection: who asks, about which volume.

use super::desk::{Asker, failure};
use crate::core::Core;
use base::VolumeId;
use std::sync::Arc;
use wire::message::{
    CredentialKind, Refusal, Reply, ReserveError, ReserveReply, ReserveRequest, VolumeKind,
};

/// Of objects that belong to no volume.
const NO_VOLUME: VolumeId = VolumeId([0; 16]);

/// Answers whoever a credential of this kind speaks for.
pub(crate) async fn answer(
    core: &Arc<Core>,
    kind: CredentialKind,
    uid: u32,
    request: ReserveRequest,
) -> Reply {
    if matches!(kind, CredentialKind::User { uid: own } if own != uid) {
        return Reply::Refused(Refusal::ForeignUser);
    }
    let who = Asker {
        is_admin: kind == CredentialKind::Admin,
        uid,
    };
    let is_new = matches!(request, ReserveRequest::Create { .. });
    let reply = match volume(core, volume_name(&request), is_new) {
        Ok(volume) => core.manager.ask(who, volume, request).await,
        Err(refused) => *refused,
    };
    Reply::Reserve(Box::new(reply))
}

fn volume_name(request: &ReserveRequest) -> &str {
    match request {
        ReserveRequest::Create { volume, .. } => volume,
        ReserveRequest::Show(which)
        | ReserveRequest::Extend { which, .. }
        | ReserveRequest::Release { which, .. }
        | ReserveRequest::Cancel { which, .. }
        | ReserveRequest::Report { which, .. } => &which.volume,
        ReserveRequest::List { .. } | ReserveRequest::Limits | ReserveRequest::SetLimits { .. } => {
            ""
        }
    }
}

/// The volume of this name, if something of it can be reserved.
fn volume(core: &Core, name: &str, is_new: bool) -> Result<VolumeId, Box<ReserveReply>> {
    if name.is_empty() {
        return Ok(NO_VOLUME);
    }
    let known = core
        .volumes
        .summaries()
        .into_iter()
        .find(|volume| volume.name == name);
    let Some(known) = known else {
        let why = format!("there is no volume {name:?}");
        return Err(Box::new(failure(ReserveError::NotFound, why)));
    };
    match known.kind {
        // A promise about stores would be none about a directory beside them.
        VolumeKind::Export { .. } if is_new => {
            let why = format!("volume {name:?} is an export: its files lie on no store");
            Err(Box::new(failure(ReserveError::Unreservable, why)))
        }
        VolumeKind::Export { .. } | VolumeKind::Parallel { .. } => Ok(known.id),
    }
}
