//! What goes on beside everything: the format's version, the lease of the slots, compaction.

use super::Shared;
use super::call::{once, patiently};
use crate::embedded::META_FORMAT_VERSION;
use crate::{MetaError, space};
use base::limits::{META_HISTORY_TIME, META_SLOT_TIME};
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use std::sync::Arc;
use tokio::time::sleep;
use tracing::warn;

const FORMAT: &[u8] = b"f";
/// What stands before the number of the version.
const FORMAT_TEXT: &str = "azekura meta ";

/// Writes the version of the format if nothing is there, or finds one that we know.
pub(super) async fn check_format(client: &Client, prefix: &[u8]) -> Result<(), MetaError> {
    let key = [prefix, FORMAT].concat();
    let ours = format!("{FORMAT_TEXT}{META_FORMAT_VERSION}");
    let beginning = Txn::new()
        .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
        .and_then([TxnOp::put(key.clone(), ours, None)])
        .or_else([TxnOp::get(key, None)]);
    let answer = patiently(|| {
        let (mut client, beginning) = (client.kv_client(), beginning.clone());
        async move { client.txn(beginning).await }
    })
    .await?;
    if answer.succeeded() {
        return Ok(());
    }
    let told = answer.op_responses();
    let found = match told.first() {
        Some(TxnOpResponse::Get(found)) => found.kvs().first(),
        _ => None,
    };
    let text = found.map_or_else(String::new, |found| {
        String::from_utf8_lossy(found.value()).into_owned()
    });
    let version = text.strip_prefix(FORMAT_TEXT);
    match version.and_then(|version| version.parse().ok()) {
        Some(META_FORMAT_VERSION) => Ok(()),
        Some(found) => Err(MetaError::Newer {
            found,
            known: META_FORMAT_VERSION,
        }),
        None => Err(MetaError::Foreign(format!(
            "there is {text:?} where the version of the format should be"
        ))),
    }
}

/// Keeps the slots of this engine, for as long as it is open.
pub(super) async fn keep_slots(shared: Arc<Shared>) {
    loop {
        sleep(META_SLOT_TIME / 10).await;
        if let Err(error) = shared.slots.renew(&shared.client).await {
            warn!(%error, "the slots of a metadata engine were not renewed");
        }
    }
}

/// Lets the cluster forget what is older than `META_HISTORY_TIME`. Other engines of the cluster do
/// the same; whoever comes second finds it done.
pub(super) async fn compact(shared: Arc<Shared>) {
    loop {
        let now = shared.get(&space::seat("")).await;
        sleep(META_HISTORY_TIME).await;
        let Ok((_, revision)) = now else {
            continue;
        };
        let mut client = shared.client.kv_client();
        if let Err(trouble) = once(client.compact(revision.0.cast_signed(), None)).await {
            tracing::debug!(?trouble, "the history of the cluster was not compacted");
        }
    }
}
