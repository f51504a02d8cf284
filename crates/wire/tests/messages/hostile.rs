//! What a hostile peer can do with bytes: nothing but be refused, in little memory.
//!
//! The allocator of this program counts, per thread, what is in use and what was the most. Every
//! decoding is measured.

use crate::counting::most_allocated;
use crate::generate::generated;
use crate::{part, samples};
use base::limits::{
    ACL_COST_POINTS_MAX, ADMIN_TEXT_BYTES_MAX, BACKGROUND_WORKERS_MAX, COMPOUND_STEPS_MAX,
    CREDENTIALS_PER_REPLY_MAX, DIRECTORY_ENTRIES_MAX, FRAME_BODY_BYTES_MAX, GROUPS_MAX,
    OBJECT_ATTRIBUTES_MAX, OBJECTS_PER_PAGE_MAX, RESERVE_LIST_MAX, RESERVE_NAME_BYTES_MAX,
    RESERVE_OFFERS_MAX, RESERVE_SLICES_MAX, RESERVE_USERS_MAX, SERVER_STORES_MAX, SESSIONS_MAX,
    STRAGGLERS_MAX, TICKET_BYTES_MAX, TICKET_RECORD_PAGE_MAX, VOLUMES_MAX,
};
use proptest::prelude::*;
use sim::Random;
use wire::frame::{HEADER_BYTES, Header};
use wire::message::{
    Body, Farewell, Hello, Notice, Proof, Reply, Request, Welcome, decode, encode,
};

/// Bounded lists, full of the smallest elements: 4,096 attributes of small files are the most.
const LISTS_BYTES_MAX: usize = 1 << 20;
/// Memory per byte of body where only the body bounds a list: a caller's groups, one byte on the
/// line and four in memory, and half of it twice while the list grows.
const GROWTH_MAX: usize = 9;
/// As `GROWTH_MAX`, for the lists of administration, which a client reads of the server that it
/// trusts: a worker of a status has three bytes on the line and 56 in memory.
const ADMIN_GROWTH_MAX: usize = 50;

/// Decodes as everything that a frame's body can be.
fn decode_as_anything(body: &[u8]) {
    fn measured<T: Body>(body: &[u8], growth_max: usize) {
        let (bytes, _) = most_allocated(|| decode::<T>(body));
        let max = LISTS_BYTES_MAX + body.len() * growth_max;
        let name = std::any::type_name::<T>();
        assert!(
            bytes <= max,
            "{name}: {bytes} bytes for {} of body",
            body.len()
        );
    }
    measured::<Request>(body, GROWTH_MAX);
    measured::<Reply>(body, ADMIN_GROWTH_MAX);
    measured::<Notice>(body, GROWTH_MAX);
    measured::<Hello>(body, GROWTH_MAX);
    measured::<Welcome>(body, GROWTH_MAX);
    measured::<Proof>(body, GROWTH_MAX);
    measured::<Farewell>(body, GROWTH_MAX);
}

/// Encodings of real messages, to be damaged.
fn encodings() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    for (_, samples) in samples::all() {
        bodies.extend(samples.into_iter().map(|(_, bytes)| bytes));
    }
    for seed in 0..100 {
        bodies.push(encode(&generated::<Request>(seed)).to_vec());
        bodies.push(encode(&generated::<Reply>(seed)).to_vec());
    }
    bodies
}

#[test]
fn truncated_bodies_are_refused_at_every_byte() {
    fn refused<T: Body>(value: &T) {
        let body = encode(value);
        for len in 0..body.len() {
            assert!(
                decode::<T>(&body[..len]).is_err(),
                "{len} of {}",
                body.len()
            );
            decode_as_anything(&body[..len]);
        }
    }
    for seed in 0..60 {
        refused(&generated::<Request>(seed));
        refused(&generated::<Reply>(seed));
        refused(&generated::<Notice>(seed));
        refused(&generated::<Hello>(seed));
        refused(&generated::<Welcome>(seed));
        refused(&generated::<Proof>(seed));
    }
}

#[test]
fn flipped_bits_do_no_harm() {
    for body in encodings() {
        // Long bodies are flipped here and there: what matters is every kind of field.
        let stride = (body.len() * 8 / 512).max(1);
        for bit in (0..body.len() * 8).step_by(stride) {
            let mut bad = body.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            decode_as_anything(&bad);
        }
    }
}

#[test]
fn announced_lengths_are_not_believed() {
    // The largest number that postcard's varints can say.
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    for body in encodings() {
        for at in 0..body.len().min(400) {
            let bad = [&body[..at], &huge, &body[at + 1..]].concat();
            decode_as_anything(&bad);
        }
    }
}

/// `prefix`, then `count` as a varint, then `element` so many times.
fn list(prefix: &[u8], count: usize, element: &[u8]) -> Vec<u8> {
    [prefix, &part(&(count as u64)), &element.repeat(count)].concat()
}

#[test]
fn lists_beyond_their_bound_are_refused_and_lists_at_it_are_read() {
    // A compound for user 0 without groups that settles nothing; a step of two bytes.
    let compound = [1, 0, 0, 0, 0, 0];
    let close = [8, 0];
    let steps = |count| list(&compound, count, &close);
    assert!(decode::<Request>(&steps(COMPOUND_STEPS_MAX)).is_ok());
    assert!(decode::<Request>(&steps(COMPOUND_STEPS_MAX + 1)).is_err());
    // One result: contents, all left out.
    let contents = |count| [list(&[1, 1, 0, 12], count, &[0]), vec![0]].concat();
    assert!(decode::<Reply>(&contents(DIRECTORY_ENTRIES_MAX)).is_ok());
    assert!(decode::<Reply>(&contents(DIRECTORY_ENTRIES_MAX + 1)).is_err());
    // Leases given back.
    let leases = |count| list(&[2], count, &[1, 0xaa]);
    assert!(decode::<Request>(&leases(4096)).is_ok());
    assert!(decode::<Request>(&leases(4097)).is_err());
    // Requests that are not settled.
    let except = |count| [list(&compound[..5], count, &[1]), vec![1, 8, 0]].concat();
    assert!(decode::<Request>(&except(STRAGGLERS_MAX)).is_ok());
    assert!(decode::<Request>(&except(STRAGGLERS_MAX + 1)).is_err());
    // Groups of a caller who asks for one step.
    let groups = |count| [list(&[1, 0, 0], count, &[0]), vec![0, 0, 1, 8, 0]].concat();
    assert!(decode::<Request>(&groups(GROUPS_MAX)).is_ok());
    assert!(decode::<Request>(&groups(GROUPS_MAX + 1)).is_err());
}

#[test]
fn what_is_said_of_objects_is_bounded_too() {
    // A batch for a store without a ticket that settles nothing; commits.
    let head = [&[9, 4][..], &[0; 16], &[0, 0, 0]].concat();
    let commits = |count| decode::<Request>(&list(&head, count, &[12])).is_ok();
    assert!(commits(COMPOUND_STEPS_MAX) && !commits(COMPOUND_STEPS_MAX + 1));
    let ticket = |count| decode::<Request>(&list(&[9, 1, 0], count, &[7])).is_ok();
    assert!(ticket(TICKET_BYTES_MAX) && !ticket(TICKET_BYTES_MAX + 1));
    let reads = |body: Vec<u8>| decode::<Reply>(&body).is_ok();
    let stores = |count| reads(list(&[5, 1], count, &[0; 41]));
    assert!(stores(SERVER_STORES_MAX) && !stores(SERVER_STORES_MAX + 1));
    let seconds = |count| reads([list(&[5, 3], count, &[0; 5]), vec![0; 3]].concat());
    assert!(seconds(TICKET_RECORD_PAGE_MAX) && !seconds(TICKET_RECORD_PAGE_MAX + 1));
    // One result of one kind.
    let results = |kind| [&[5, 4][..], &[0; 16], &[1, 0, kind]].concat();
    let objects = |count| reads([list(&results(5), count, &[0; 19]), vec![0; 2]].concat());
    assert!(objects(OBJECTS_PER_PAGE_MAX) && !objects(OBJECTS_PER_PAGE_MAX + 1));
    let attributes = |count| reads([list(&results(3), count, &[0, 0]), vec![0]].concat());
    assert!(attributes(OBJECT_ATTRIBUTES_MAX) && !attributes(OBJECT_ATTRIBUTES_MAX + 1));
}

#[test]
fn what_administrators_are_answered_is_bounded_too() {
    let reads = |body: Vec<u8>| decode::<Reply>(&body).is_ok();
    let volumes = |count| list(&[2, 2], count, &[0; 21]);
    assert!(reads(volumes(VOLUMES_MAX)) && !reads(volumes(VOLUMES_MAX + 1)));
    let credentials = |count| [list(&[2, 4], count, &[0; 5]), vec![0]].concat();
    let most = CREDENTIALS_PER_REPLY_MAX;
    assert!(reads(credentials(most)) && !reads(credentials(most + 1)));
    let failed = |count| list(&[2, 5, 0], count, b"x");
    assert!(reads(failed(ADMIN_TEXT_BYTES_MAX)) && !reads(failed(ADMIN_TEXT_BYTES_MAX + 1)));
    // Version, cluster, boot, seconds; then the three lists of a status.
    let status = |before: usize, count, bytes: usize, after: usize| {
        let head = [&[2, 1, 0][..], &vec![0; 33 + before]].concat();
        [list(&head, count, &vec![0; bytes]), vec![0; after]].concat()
    };
    let volumes = |count| status(0, count, 21, 2);
    assert!(reads(volumes(VOLUMES_MAX)) && !reads(volumes(VOLUMES_MAX + 1)));
    let sessions = |count| status(1, count, 11, 1);
    assert!(reads(sessions(SESSIONS_MAX)) && !reads(sessions(SESSIONS_MAX + 1)));
    let (workers, most) = (|count| status(2, count, 3, 0), BACKGROUND_WORKERS_MAX);
    assert!(reads(workers(most)) && !reads(workers(most + 1)));
    // Policy, eleven figures, and what is measured, before the points.
    let views = [&[2, 7, 0][..], &[0; 11], &[1, 0, 0, 0]].concat();
    let points = |count| [list(&views, count, &[0; 6]), vec![0]].concat();
    assert!(reads(points(ACL_COST_POINTS_MAX)) && !reads(points(ACL_COST_POINTS_MAX + 1)));
}

#[test]
fn what_is_said_of_reservations_is_bounded_too() {
    let reads = |body: Vec<u8>| decode::<Reply>(&body).is_ok();
    // Identity, name, volume and ten numbers of a summary, then its slices.
    let summary = [&[0; 16][..], &[0], &[0; 16], &[0; 12]].concat();
    let slices = |count| {
        [
            list(&[&[6, 1][..], &summary].concat(), count, &[0; 35]),
            vec![0; 2],
        ]
    };
    let slices = |count| reads(slices(count).concat());
    assert!(slices(RESERVE_SLICES_MAX) && !slices(RESERVE_SLICES_MAX + 1));
    let whole = [&summary[..], &[0]].concat();
    let all = |count| reads([list(&[6, 2], count, &whole), vec![0]].concat());
    assert!(all(RESERVE_LIST_MAX) && !all(RESERVE_LIST_MAX + 1));
    let tickets = |count| reads(list(&[&[6, 1][..], &whole, &[0]].concat(), count, &[0; 17]));
    assert!(tickets(RESERVE_SLICES_MAX) && !tickets(RESERVE_SLICES_MAX + 1));
    let refused = [&[6, 3, 3][..], &[0; 3]].concat();
    let offers = |count| reads(list(&refused, count, &[0; 5]));
    assert!(offers(RESERVE_OFFERS_MAX) && !offers(RESERVE_OFFERS_MAX + 1));
    let head = [&[6, 4][..], &whole, &[0; 4]].concat();
    let seconds = |count| reads(list(&head, count, &[0; 5]));
    assert!(seconds(TICKET_RECORD_PAGE_MAX) && !seconds(TICKET_RECORD_PAGE_MAX + 1));
    let users =
        |count| decode::<Request>(&[list(&[10, 0, 8, 0, 0, 0], count, &[0]), vec![0]].concat());
    assert!(users(RESERVE_USERS_MAX).is_ok() && users(RESERVE_USERS_MAX + 1).is_err());
    let name = |count| decode::<Request>(&list(&[10, 0, 2, 0], count, b"x")).is_ok();
    assert!(name(RESERVE_NAME_BYTES_MAX) && !name(RESERVE_NAME_BYTES_MAX + 1));
}

#[test]
fn the_largest_lists_of_the_smallest_elements_stay_within_their_bound() {
    let full = |prefix: &[u8], element: &[u8]| {
        let count = (FRAME_BODY_BYTES_MAX - 64) / element.len();
        decode_as_anything(&list(prefix, count, element));
    };
    full(&[1, 0, 0], &[0]); // the groups of a caller
    full(&[1, 0, 0, 0, 0], &[8, 0]); // steps
    full(&[1, 0, 0, 0, 0, 1, 23], &[1, 0xaa]); // handles to fetch
    full(&[2], &[1, 0xaa]); // leases
    full(&[1], &[0, 0]); // results
    full(&[1, 1, 0, 12], &[0]); // contents
    full(&[0, 0], &[1, 0xaa, 0]); // recalls
    full(&[&[9, 4][..], &[0; 16], &[0, 0, 0]].concat(), &[12]); // steps of objects
    full(&[5, 1], &[0; 38]); // stores
    full(&[5, 3], &[0; 5]); // seconds of a ticket
    full(&[&[5, 4][..], &[0; 16], &[1, 0, 5]].concat(), &[0; 19]); // objects
    full(&[&[6, 2][..]].concat(), &[0; 46]); // reservations
    full(&[2, 2], &[0; 21]); // volumes
    full(&[2, 4], &[0; 5]); // credentials
    let status = |zeros: usize| [&[2, 1, 0][..], &vec![0; zeros]].concat();
    full(&status(33), &[0; 21]); // volumes
    full(&status(34), &[0; 11]); // sessions
    full(&status(35), &[0; 3]); // workers
}

#[test]
fn headers_of_any_bytes_cost_no_memory() {
    let mut random = Random::new(1);
    for _ in 0..200_000 {
        let mut bytes = [0; HEADER_BYTES];
        bytes
            .iter_mut()
            .for_each(|byte| *byte = random.next_u64() as u8);
        if random.chance(0.9) {
            bytes[..4].copy_from_slice(b"AZK1");
            bytes[4] %= 9;
            bytes[5] %= 6;
            bytes[6] %= 4;
            bytes[7] = 0;
        }
        let (allocated, header) = most_allocated(|| Header::decode(&bytes));
        assert_eq!(allocated, 0);
        if let Ok(header) = header {
            assert!(header.body_bytes() <= FRAME_BODY_BYTES_MAX);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn random_bodies_are_read_or_refused(
        start in prop::collection::vec(0u8..40, 0..12),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        decode_as_anything(&[start, rest].concat());
    }
}
