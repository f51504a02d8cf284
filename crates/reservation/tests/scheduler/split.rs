//! Tickets as their holders split them, at the scheduler of the server that they are shown to.

use crate::world::{SECOND, shape};
use base::ticket::{
    Class, Grant, Head, Operations, Place, Slice, Terms, Ticket, TicketKey, verify,
};
use base::{ClusterId, ServerId, StoreId, TicketId, Time, VolumeId};
use reservation::scheduler::{self, Rejection, Scheduler, TicketTerms, UserKey};
use std::collections::BTreeMap;
use std::time::Duration;

const START: u64 = 1_800_000_000;
const PLACE: Place = Place {
    cluster: ClusterId([1; 16]),
    server: ServerId([2; 16]),
};

/// What a server does with a ticket that it is shown: it opens its whole lineage.
struct Server {
    scheduler: Scheduler<()>,
    opened: BTreeMap<Vec<TicketId>, scheduler::TicketKey>,
}

impl Server {
    fn show(&mut self, ticket: &Ticket) -> Result<scheduler::TicketKey, Rejection> {
        let now = Time::from_secs(START + 1);
        let (bytes, key) = (ticket.to_bytes(), key());
        let grant = verify(&bytes, &[key], &PLACE, now, Duration::ZERO, |_, _| false);
        let Grant { head, lineage } = grant.expect("each part is within its parent");
        let (mut path, mut parent) = (Vec::new(), None);
        for (id, terms) in lineage {
            path.push(id);
            let next = scheduler::TicketKey(self.opened.len() as u64);
            let terms = TicketTerms {
                holder: UserKey(head.holder),
                share_ppm: terms.slices[0].share_ppm,
                burst: Duration::from_millis(terms.burst_millis.into()),
                start: Time::from_secs(terms.start_secs),
                end: Time::from_secs(terms.end_secs),
                parent,
            };
            if !self.opened.contains_key(&path) {
                self.scheduler.open_ticket(now, next, &terms)?;
                self.opened.insert(path.clone(), next);
            }
            parent = Some(self.opened[&path]);
        }
        Ok(parent.expect("a ticket has terms"))
    }
}

fn key() -> TicketKey {
    TicketKey::new(1, [3; 32])
}

fn ticket(share_ppm: u32) -> Ticket {
    let head = Head {
        class: Class::Standard,
        cluster: PLACE.cluster,
        server: PLACE.server,
        id: TicketId([4; 16]),
        epoch: 1,
        holder: 1000,
        volume: VolumeId([5; 16]),
        key_id: 1,
    };
    let slice = Slice {
        device: StoreId([6; 16]),
        share_ppm,
        stripe_unit_bytes: 1 << 20,
        au_budget: 100,
    };
    let terms = Terms {
        operations: Operations::WRITE,
        burst_millis: 10,
        start_secs: START,
        end_secs: START + 60,
        lifetime_end_secs: START + 600,
        slices: vec![slice],
        path: Vec::new(),
    };
    Ticket::issue(&key(), &head, &terms)
}

fn id(number: u8) -> TicketId {
    TicketId([number; 16])
}

fn server() -> Server {
    let now = Time::from_nanos(START * SECOND);
    Server {
        scheduler: Scheduler::new(now, &shape(50_000, 50_000)),
        opened: BTreeMap::new(),
    }
}

#[test]
fn siblings_that_were_given_too_much_are_refused_at_the_server() {
    let (mut server, whole) = (server(), ticket(600_000));
    // A holder who gives everything to each of two workers.
    let [one, other] = [1, 2].map(|number| whole.narrow(id(number), whole.terms()).unwrap());
    assert!(server.show(&one).is_ok());
    let refused = Err(Rejection::Oversplit { room_ppm: 0 });
    assert_eq!(server.show(&other), refused);
    // The same part shown again is the same account, and its own parts are within it.
    assert_eq!(server.show(&one), server.show(&one));
    let mut half = whole.terms().clone();
    half.slices[0].share_ppm = 300_000;
    for (number, is_room) in [(3, true), (4, true), (5, false)] {
        let part = one.narrow(id(number), &half).unwrap();
        assert_eq!(server.show(&part).is_ok(), is_room, "{number}");
    }
    assert_eq!(server.show(&other), refused);
}

#[test]
fn equal_parts_of_equal_parts_all_have_room() {
    let (mut server, whole) = (server(), ticket(777_777));
    let parts = whole.split(&[1, 2, 3].map(id)).unwrap();
    for part in &parts {
        for worker in part.split(&[7, 8, 9, 10].map(id)).unwrap() {
            server.show(&worker).unwrap();
        }
    }
    let open = server
        .opened
        .values()
        .map(|key| server.scheduler.room_ppm(*key).unwrap());
    assert_eq!(
        open.sum::<u32>(),
        777_777,
        "nothing is lost and nothing is there twice"
    );
}
