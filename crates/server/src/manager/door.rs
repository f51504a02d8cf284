//! What comes from a connection: who asks, about which volume.

use super::answers::failure;
use super::desk::{Asker, Place};
use crate::core::Core;
use base::{StoreId, VolumeId};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use wire::message::{
    CredentialKind, Refusal, Reply, ReserveError, ReserveReply, ReserveRequest, VolumeKind,
};

/// Of objects that belong to no volume.
pub(super) const NO_VOLUME: VolumeId = VolumeId([0; 16]);

/// Answers whoever a credential of this kind speaks for.
pub(crate) async fn answer(
    core: &Arc<Core>,
    kind: CredentialKind,
    uid: u32,
    mut request: ReserveRequest,
) -> Reply {
    // A ticket speaks for itself.
    let is_renewal = matches!(request, ReserveRequest::Renew { .. });
    if matches!(kind, CredentialKind::User { uid: own } if own != uid && !is_renewal) {
        return Reply::Refused(Refusal::ForeignUser);
    }
    let who = Asker {
        is_admin: kind.is_admin(),
        uid,
    };
    let reply = match enter(core, who, &mut request).await {
        Ok(place) => core.manager.ask(who, place, request).await,
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
        ReserveRequest::List { .. }
        | ReserveRequest::Limits
        | ReserveRequest::SetLimits { .. }
        | ReserveRequest::Renew { .. } => "",
    }
}

/// The volume that is asked about. What is new of an export is made a question about the device
/// that the export is.
async fn enter(
    core: &Arc<Core>,
    who: Asker,
    request: &mut ReserveRequest,
) -> Result<Place, Box<ReserveReply>> {
    let (place, path) = find(core, volume_name(request))?;
    let volume = place.volume;
    let ReserveRequest::Create { terms, .. } = request else {
        return Ok(place);
    };
    let unreservable = |why: String| Box::new(failure(ReserveError::Unreservable, why));
    let Some(path) = path else {
        let is_export = |store: &StoreId| core.storage.export(*store).is_some();
        if let Some(export) = terms.stores.iter().find(|store| is_export(store)) {
            let why = format!("{export} is an exported directory, and no store");
            return Err(unreservable(why));
        }
        return Ok(place);
    };
    if terms.space_bytes > 0 {
        let why = "of an export only rates can be reserved, and no space";
        return Err(unreservable(why.to_owned()));
    }
    if !terms.stores.is_empty() {
        let why = "the files of an export lie in no store";
        return Err(unreservable(why.to_owned()));
    }
    // Whoever may not reserve has nothing measured, either.
    let known = core.storage.export_of(volume);
    let device = match known {
        Some(known) => known,
        None if !core.manager.may_reserve(who).await => return Ok(place),
        None => {
            let core = core.clone();
            let measured = tokio::task::spawn_blocking(move || {
                let device = core.storage.measured_export(volume, &path);
                let begun = core.manager.begin(core.data.path(), &core.cluster);
                (device, begun)
            });
            let (device, begun) = measured
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
            begun.map_err(|error| {
                let why = error.to_string();
                Box::new(failure(ReserveError::Unavailable, why))
            })?;
            device.map_err(|error| unreservable(error.to_string()))?
        }
    };
    terms.stores = vec![device.id];
    Ok(place)
}

/// The volume of this name, and what is exported as it.
fn find(core: &Core, name: &str) -> Result<(Place, Option<PathBuf>), Box<ReserveReply>> {
    if name.is_empty() {
        return Ok((NO_VOLUME.into(), None));
    }
    let known = core
        .volumes
        .summaries()
        .into_iter()
        .find(|volume| volume.name == name);
    let Some(known) = known else {
        let why = format!("there is no volume {name:?}");
        return Err(Box::new(failure(ReserveError::NoVolume, why)));
    };
    Ok(match known.kind {
        VolumeKind::Export { path, .. } => (known.id.into(), Some(PathBuf::from(path))),
        VolumeKind::Parallel { .. } => {
            let (volume, among) = (known.id, stores_of(core, known.id));
            (Place { volume, among }, None)
        }
    })
}

/// The stores in which the files of a parallel volume can lie: of others, what is reserved for it
/// could not be used. None if it is not served here at the moment.
fn stores_of(core: &Core, volume: VolumeId) -> Option<Arc<BTreeSet<StoreId>>> {
    let served = core.volumes.list();
    let volume = served.iter().find(|served| served.id == volume)?;
    let targets = volume.tree.parallel()?.names.targets();
    let stores = targets.values().map(|target| target.store);
    Some(Arc::new(stores.collect()))
}
