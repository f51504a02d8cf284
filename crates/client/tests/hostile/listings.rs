//! Directories without end and without sense.

use crate::alone;
use crate::memory::Measured;
use crate::peer::{
    END_TIME_MAX, Lies, Peer, Said, attributes, file, listed, look, name, results, root,
};
use base::limits::{DIRECTORY_ENTRIES_MAX, LISTINGS_BYTES_MAX};
use base::{FileKind, FsError, Handle, Name, Principal};
use bytes::Bytes;
use client::cache::{NODES_IDLE_MAX, NodeId};
use client::volume::Volume;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use wire::message::{DirectoryEntry, Entry, Lease, Step, StepReply};

/// What a mount may hold beside its listings: the nodes that it keeps, twice while their table
/// grows, and what is on its way.
const NODES_BYTES_MAX: usize = 600 << 20;

/// Answers every request for a page by `page`, which is told the cookie.
fn paged(page: impl Fn(u64) -> StepReply + Send + Sync + 'static) -> Lies {
    let lie = move |asked: &crate::peer::Asked, said: &mut Said| {
        if matches!(asked.steps(), [Step::Attach { .. }, ..]) {
            return;
        }
        let pages = asked.steps().iter().map(|step| match step {
            Step::ReadDirectory { cookie, .. } => Some(page(*cookie)),
            _ => None,
        });
        for (result, page) in said.results().iter_mut().zip(pages) {
            if let Some(page) = page {
                *result = Ok(page);
            }
        }
    };
    Lies {
        answer: results(lie),
        ..Lies::default()
    }
}

fn page(entries: Vec<DirectoryEntry>, end: bool, lease: Lease) -> StepReply {
    StepReply::Directory {
        entries,
        end,
        lease,
    }
}

/// Of 250 bytes, made at once: padding goes character by character.
fn long_name(n: u64) -> Name {
    name(&["0".repeat(230), format!("{n:020}")].concat())
}

/// Lists the root: of what is bounded, half a gigabyte comes, beside other tests.
async fn list(volume: &Volume) -> Result<usize, FsError> {
    let who = Principal::root();
    let listed = timeout(END_TIME_MAX * 10, volume.list(&who, NodeId::ROOT));
    listed.await.expect("an end").map(|entries| entries.len())
}

#[test]
fn a_listing_without_end_ends_with_an_error_in_bounded_memory() {
    // Long names and nothing else: what a listing holds.
    let only_names = |cookie: u64| {
        let entry = |n: u64| listed(long_name(cookie + n), cookie + n, None);
        page((1..=3000).map(entry).collect(), false, Lease::None)
    };
    // Inodes, and leases on all of them: what a table of nodes holds.
    let nodes = |cookie: u64| {
        let entry = |n: u64| {
            let n = cookie + n;
            let mut entry = file();
            entry.handle = Handle::new(&[[0x11; 120].as_slice(), &n.to_le_bytes()].concat())?;
            (entry.attributes.inode, entry.lease) = (n, Lease::Read);
            Some(listed(long_name(n), n, Some(entry)))
        };
        page(
            (1..=2000).filter_map(entry).collect(),
            false,
            Lease::Exclusive,
        )
    };
    alone(async move {
        let makers: [fn(u64) -> StepReply; 2] = [only_names, nodes];
        for make in makers {
            let peer = Peer::start(paged(make)).await;
            let volume = peer.volume().await;
            let measured = Measured::begin();
            assert_eq!(list(&volume).await, Err(FsError::Overflow));
            let most = measured.most_bytes();
            let bound = LISTINGS_BYTES_MAX as usize + NODES_BYTES_MAX;
            assert!(most <= bound, "{most} bytes, more than {bound}");
            // What the listing held becomes free, and the mount goes on.
            let deadline = Instant::now() + END_TIME_MAX;
            while measured.bytes() > NODES_BYTES_MAX / 3 * 2 {
                assert!(Instant::now() < deadline, "{} bytes", measured.bytes());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(look(&volume).await.unwrap().is_some());
        }
    });
}

/// What `docs/semantics.md` (T5) says of inodes that nobody uses.
const IDLE_BYTES_MAX: usize = 300 << 20;

#[test]
fn inodes_that_nobody_uses_are_forgotten_in_time() {
    const FILES: u64 = NODES_IDLE_MAX as u64 / 2 * 3;
    let files = |cookie: u64| {
        let entry = |n: u64| {
            let mut entry = file();
            entry.handle = Handle::new(&[[0x11; 56].as_slice(), &n.to_le_bytes()].concat())?;
            (entry.attributes.inode, entry.lease) = (n, Lease::Read);
            Some(listed(name(&format!("a usual name, {n}")), n, Some(entry)))
        };
        let end = (cookie + 2000).min(FILES);
        let entries = (cookie + 1..=end).filter_map(entry).collect();
        page(entries, end == FILES, Lease::Read)
    };
    alone(async move {
        let peer = Peer::start(paged(files)).await;
        let volume = peer.volume().await;
        let measured = Measured::begin();
        assert_eq!(list(&volume).await, Ok(FILES as usize));
        let (nodes, _) = volume.cache_size();
        assert!(nodes <= NODES_IDLE_MAX, "{nodes} inodes");
        assert!(nodes > NODES_IDLE_MAX / 2, "only {nodes} inodes");
        let deadline = Instant::now() + END_TIME_MAX;
        while measured.bytes() > IDLE_BYTES_MAX {
            assert!(Instant::now() < deadline, "{} bytes", measured.bytes());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_listing_that_comes_back_to_where_it_was_ends_with_an_error() {
    let at = |cookies: &[u64]| {
        let entry = |cookie: &u64| listed(name(&format!("n{cookie}")), *cookie, Some(file()));
        cookies.iter().map(entry).collect()
    };
    let makers: [Box<dyn Fn(u64) -> StepReply + Send + Sync>; 4] = [
        // Round and round.
        Box::new(move |cookie| page(at(&[cookie + 1, (cookie + 2) % 12]), false, Lease::Read)),
        // It stays where it is.
        Box::new(move |cookie| page(at(&[cookie + 1, cookie]), false, Lease::Read)),
        // Nothing, and more to come.
        Box::new(|_| page(Vec::new(), false, Lease::Read)),
        // More than was asked for.
        Box::new(move |cookie| {
            let many: Vec<u64> = (1..=DIRECTORY_ENTRIES_MAX as u64 + 1).collect();
            let many = many.iter().map(|n| listed(name("n"), cookie + n, None));
            page(many.collect(), true, Lease::None)
        }),
    ];
    alone(async move {
        for make in makers {
            let peer = Peer::start(paged(make)).await;
            let volume = peer.volume().await;
            assert_eq!(list(&volume).await, Err(FsError::Io));
        }
    });
}

#[test]
fn what_is_no_name_is_not_believed() {
    const PLACE: &[u8] = b"\x0aplaceplace";
    let bad: [&[u8]; 7] = [
        b"\x01.",
        b"\x02..",
        b"\x00",
        b"\x0a/etc/passw",
        b"\x0a../../../x",
        b"\x0aplace\0lace",
        &[[0x80, 0x02].as_slice(), &[b'x'; 256]].concat(),
    ];
    alone(async move {
        for bad in bad {
            let bad = bad.to_vec();
            let lies = Lies {
                answer: Box::new(move |asked, mut said| {
                    // Also in the first listing, which comes with the root.
                    let listing = asked
                        .steps()
                        .iter()
                        .position(|step| matches!(step, Step::ReadDirectory { .. }));
                    if let Some(at) = listing {
                        let entries = vec![listed(name("placeplace"), 1, Some(file()))];
                        said.results()[at] = Ok(page(entries, true, Lease::Read));
                    }
                    let mut frame = said.frame(asked.id);
                    if listing.is_some() {
                        frame.body = replaced(&frame.body, PLACE, &bad);
                    }
                    vec![frame]
                }),
                ..Lies::default()
            };
            let peer = Peer::start(lies).await;
            let transport = peer.connect().await.unwrap();
            assert!(Volume::attach(transport, "v").await.is_err());
        }
    });
}

fn replaced(body: &[u8], from: &[u8], to: &[u8]) -> Bytes {
    let mut places = body.windows(from.len()).enumerate();
    let (at, _) = places.find(|(_, part)| *part == from).expect("the name");
    [&body[..at], to, &body[at + from.len()..]].concat().into()
}

#[test]
fn one_entry_at_a_time_keeps_nobody_else_waiting() {
    // Each page takes almost as long as any call may, and there is always one more.
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let lies = paged(move |cookie| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        let entries = vec![listed(name(&format!("n{cookie}")), cookie + 1, None)];
        page(entries, false, Lease::None)
    });
    alone(async move {
        let peer = Peer::start(lies).await;
        let volume = peer.volume().await;
        let who = Principal::root();
        let first = volume.list_open(&who, NodeId::ROOT);
        let first = timeout(END_TIME_MAX, first).await.unwrap().unwrap();
        let second = volume.list_open(&who, NodeId::ROOT);
        let second = timeout(END_TIME_MAX, second)
            .await
            .expect("an answer")
            .unwrap();
        assert_eq!(
            (first.at(0), second.at(0)),
            (Some(Ok(true)), Some(Ok(true)))
        );
        assert!(count.load(Ordering::Relaxed) > 2, "the first one goes on");
    });
}

#[test]
fn an_entry_that_is_the_root_or_listed_twice_harms_nobody() {
    let twice = |_| {
        let loops = Entry {
            attributes: attributes(FileKind::Directory, 2),
            ..root()
        };
        let entries = vec![
            listed(name("root"), 1, Some(loops.clone())),
            listed(name("same"), 2, Some(file())),
            listed(name("same"), 3, Some(loops)),
            listed(Name::new([0xff; 255]).unwrap(), 4, Some(file())),
        ];
        page(entries, true, Lease::Read)
    };
    alone(async move {
        let peer = Peer::start(paged(twice)).await;
        let volume = peer.volume().await;
        assert_eq!(list(&volume).await, Ok(4));
        assert_eq!(list(&volume).await, Ok(4));
    });
}
