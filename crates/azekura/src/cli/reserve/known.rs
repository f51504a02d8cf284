//! What else a server says that explains an answer: limits, sizes of units, names of volumes.
//!
//! All of it is asked for beside the answer, over the same connection, and what is not told is left
//! out of the explanation.

use base::{StoreId, TicketId, VolumeId};
use client::transport::{Call, Transport};
use wire::message::{
    AdminReply, AdminRequest, ClusterReply, ClusterRequest, ObjectReply, ObjectRequest, Reply,
    ReservationSummary, ReserveLimits, ReserveName, ReserveReply, ReserveRequest, ReserveShort,
    Scarce, StoreSummary,
};

/// What servers keep of each device for users without a reservation, whatever the limit is, and the
/// same for their own work.
pub(super) const FLOOR_PPM: u32 = 50_000;
/// All of a device, in millionths.
const WHOLE_PPM: u32 = 1_000_000;
/// How many pages of reservations are looked through for where one of a name is.
const HINT_PAGES_MAX: usize = 4;

type Result<T> = std::result::Result<T, crate::errors::Failure>;

/// What can be reserved of each device, in millionths.
pub(super) fn reservable_ppm(limits: &ReserveLimits) -> u32 {
    let kept = limits.unreserved_ppm.saturating_add(limits.background_ppm);
    WHOLE_PPM.saturating_sub(kept.max(2 * FLOOR_PPM))
}

/// What explains a refusal.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// What can be reserved of each device, if limits say less than servers do.
    pub(super) limited_ppm: Option<u32>,
    /// Bytes of one allocation unit of the store that is short of space.
    pub(super) unit_bytes: Option<u64>,
}

impl Known {
    /// Asks what explains that this is short.
    pub(super) async fn of(transport: &Transport, uid: u32, short: ReserveShort) -> Self {
        let mut known = Self::default();
        match short.what {
            Scarce::Device(_) => {
                if let Ok(ReserveReply::Limits(limits)) =
                    transport.reserve(uid, ReserveRequest::Limits).await
                {
                    let reservable = reservable_ppm(&limits);
                    let is_limited = reservable < WHOLE_PPM - 2 * FLOOR_PPM;
                    known.limited_ppm = is_limited.then_some(reservable);
                }
            }
            Scarce::Space(store) => {
                let all = stores(transport).await;
                known.unit_bytes = unit_of(&all, store);
            }
            Scarce::Network(_) | Scarce::Stores => {}
        }
        known
    }
}

fn unit_of(stores: &[StoreSummary], store: StoreId) -> Option<u64> {
    let one = stores.iter().find(|one| one.store == store)?;
    Some(one.au_bytes).filter(|bytes| *bytes > 0)
}

/// The stores of all servers, as far as this user may see them.
pub(super) async fn stores(transport: &Transport) -> Vec<StoreSummary> {
    let own = transport.submit_object(ObjectRequest::Stores, Call::metadata());
    let mut all = match own.response().await.map(|answer| answer.reply) {
        Ok(Reply::Object(ObjectReply::Stores(stores))) => stores,
        _ => Vec::new(),
    };
    let servers = transport.cluster_request(ClusterRequest::Servers).await;
    let Ok(ClusterReply::Servers(servers)) = servers else {
        return all;
    };
    for server in servers.iter().filter(|server| !server.is_here) {
        let request = ClusterRequest::Stores {
            server: server.server,
        };
        if let Ok(ClusterReply::Stores(more)) = transport.cluster_request(request).await {
            all.extend(more);
        }
    }
    all
}

/// What volumes are called.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<(VolumeId, String)>);

impl Names {
    pub(super) async fn ask(transport: &Transport) -> Self {
        let list = match transport.admin(AdminRequest::Status).await {
            Ok(AdminReply::Status(status)) => status.volumes,
            _ => Vec::new(),
        };
        Self(list.into_iter().map(|one| (one.id, one.name)).collect())
    }

    /// The name; none for no volume and for one that is not known.
    pub(super) fn name(&self, volume: VolumeId) -> Option<&str> {
        let named = self.0.iter().find(|(id, _)| *id == volume);
        named.map(|(_, name)| name.as_str())
    }

    /// The volume with a name.
    pub(super) fn volume(&self, name: &str) -> Option<VolumeId> {
        let named = self.0.iter().find(|(_, one)| one == name);
        named.map(|(id, _)| *id)
    }
}

/// All reservations that this user sees.
///
/// # Errors
/// The answer that was something else.
pub(super) async fn all(transport: &Transport, uid: u32) -> Result<Vec<ReservationSummary>> {
    pages(usize::MAX, async |after| page(transport, uid, after).await).await
}

async fn page(
    transport: &Transport,
    uid: u32,
    after: Option<TicketId>,
) -> Result<(Vec<ReservationSummary>, bool)> {
    let reply = transport.reserve(uid, ReserveRequest::List { after });
    match reply.await? {
        ReserveReply::Reservations { list, more } => Ok((list, more)),
        ReserveReply::Failed { code, message } => Err(super::remedy::failure(code, message)),
        _ => Err(client::transport::CallError::Protocol.into()),
    }
}

/// Some pages of a list: each with whether there are more.
async fn pages(
    pages_max: usize,
    ask: impl AsyncFn(Option<TicketId>) -> Result<(Vec<ReservationSummary>, bool)>,
) -> Result<Vec<ReservationSummary>> {
    let mut all: Vec<ReservationSummary> = Vec::new();
    for _ in 0..pages_max {
        let (list, more) = ask(all.last().map(|last| last.id)).await?;
        let is_last = !more || list.is_empty();
        all.extend(list);
        if is_last {
            break;
        }
    }
    Ok(all)
}

/// Where reservations of this name are, if not where they were looked for: names of volumes, an
/// empty one for none.
pub(super) async fn elsewhere(transport: &Transport, uid: u32, which: &ReserveName) -> Vec<String> {
    // It is only a hint: the ledger may have a million reservations.
    let some = pages(HINT_PAGES_MAX, async |after| {
        page(transport, uid, after).await
    });
    let all = some.await.unwrap_or_default();
    let names = Names::ask(transport).await;
    let same = all.iter().filter(|one| one.name == which.name);
    let places = same.filter_map(|one| match one.volume {
        VolumeId(id) if id == [0; 16] => Some(String::new()),
        volume => names.name(volume).map(str::to_owned),
    });
    let mut places: Vec<String> = places.collect();
    places.sort();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use wire::message::ReserveState;

    fn summary(number: u8) -> ReservationSummary {
        ReservationSummary {
            id: TicketId([number; 16]),
            name: "run".to_owned(),
            volume: VolumeId([7; 16]),
            holder: 0,
            state: ReserveState::Active,
            read_bytes_per_second: 0,
            write_bytes_per_second: 1,
            burst_millis: 0,
            space_bytes: 0,
            start_secs: 0,
            end_secs: 1,
            every_secs: 0,
            count: 1,
            lifetime_secs: 0,
            released_secs: None,
            slices: Vec::new(),
        }
    }

    #[test]
    fn a_hint_looks_through_a_few_pages() {
        let asked = Cell::new(0_u8);
        let read = |pages_max| {
            asked.set(0);
            let page = async |after: Option<TicketId>| {
                let number = after.map_or(0, |after| after.0[0]) + 1;
                asked.set(asked.get() + 1);
                Ok((vec![summary(number)], number < 9))
            };
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let read = runtime.unwrap().block_on(pages(pages_max, page));
            (asked.get(), read.unwrap().len())
        };
        assert_eq!(read(HINT_PAGES_MAX), (4, 4));
        assert_eq!(read(usize::MAX), (9, 9));
    }
}
