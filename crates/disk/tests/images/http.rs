//! Web servers as they are: without ranges, slow, cut off, wrong, flapping.

use crate::server::{Answer, Asked, Server};
use base::Extent;
use bytes::Bytes;
use disk::chunk::Packer;
use disk::source::{FetchError, Part, Refusal, SourceError, Wanted, fetch_chunk};
use disk::{ChunkId, ChunkSpec, Damage, Digest, FileName, Http, HttpOptions, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Short times, so that a test that waits for them is short.
fn options() -> HttpOptions {
    HttpOptions {
        connect_time: Duration::from_secs(5),
        pause_time: Duration::from_millis(10),
        silence_time: Duration::from_millis(200),
        try_time: Duration::from_millis(400),
        ..HttpOptions::default()
    }
}

static TURNS: AtomicUsize = AtomicUsize::new(0);

fn read(url: &str, wanted: Wanted) -> Result<Bytes, Refusal> {
    let runtime = runtime();
    let source = Http::new(url, &options(), runtime.handle().clone()).unwrap();
    let file = FileName::new("d/file").unwrap();
    // In turn on a thread that waits and on one that does not.
    let read = if TURNS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
        source.read_now(&file, wanted.part)
    } else {
        runtime.block_on(source.read(&file, wanted))
    };
    read.map_err(|error: SourceError| error.refusal)
}

const TEXT: &[u8] = b"0123456789";

fn unavailable(refusal: &Refusal) -> &str {
    match refusal {
        Refusal::Unavailable { reason, tries: 4 } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_and_parts_are_read_from_servers_with_and_without_ranges() {
    for knows_ranges in [true, false] {
        let server = Server::new(move |asked: &Asked| {
            assert_eq!(asked.path, "/images/d/file");
            match asked.range {
                Some((first, last)) if knows_ranges && last < 10 => Answer {
                    status: 206,
                    headers: format!("Content-Range: bytes {first}-{last}/10\r\n"),
                    ..Answer::body(&TEXT[first as usize..=last as usize])
                },
                Some(_) if knows_ranges => Answer::status(416),
                _ => Answer::body(TEXT),
            }
        });
        for end in ["images", "images/"] {
            let url = server.url() + end;
            let extent = |offset, len| read(&url, Wanted::extent(Extent::new(offset, len)));
            assert_eq!(read(&url, Wanted::whole(10)).unwrap(), TEXT);
            assert_eq!(extent(0, 10).unwrap(), TEXT);
            assert_eq!(extent(3, 4).unwrap(), "3456");
            assert_eq!(extent(9, 1).unwrap(), "9");
            assert_eq!(extent(9, 0).unwrap(), "");
            let beyond = Extent::new(9, 2);
            assert_eq!(extent(9, 2), Err(Refusal::TooShort(beyond)));
            let too_long = Refusal::TooLong { bytes_max: 9 };
            assert_eq!(read(&url, Wanted::whole(9)), Err(too_long));
        }
    }
}

#[test]
fn a_server_that_sends_another_range_is_not_believed() {
    let server = Server::new(|_: &Asked| Answer {
        status: 206,
        headers: "Content-Range: bytes 0-3/10\r\n".into(),
        ..Answer::body("0123")
    });
    let refusal = read(&server.url(), Wanted::extent(Extent::new(3, 4))).unwrap_err();
    assert_eq!(unavailable(&refusal), "the server sends another range");
}

#[test]
fn what_can_get_better_is_tried_again_and_what_cannot_is_not() {
    for (status, tries, refusal) in [
        (404, 1, Some(Refusal::NotFound)),
        (410, 1, Some(Refusal::NotFound)),
        (403, 1, Some(Refusal::Status(403))),
        (500, 3, None),
        (503, 3, None),
        (429, 3, None),
    ] {
        let server = Server::new(move |asked: &Asked| {
            if asked.before < 2 {
                Answer::status(status)
            } else {
                Answer::body(TEXT)
            }
        });
        let found = read(&server.url(), Wanted::whole(10));
        assert_eq!(found.err(), refusal, "{status}");
        assert_eq!(server.requests(), tries, "{status}");
    }
    let server = Server::new(|_: &Asked| Answer::status(503));
    let refusal = read(&server.url(), Wanted::whole(10)).unwrap_err();
    assert_eq!(unavailable(&refusal), "the server answers with status 503");
    assert_eq!(server.requests(), 4);
}

#[test]
fn answers_that_break_off_are_asked_for_again() {
    let server = Server::new(|asked: &Asked| Answer {
        cut_at: (asked.before < 2).then_some(4),
        ..Answer::body(TEXT)
    });
    assert_eq!(read(&server.url(), Wanted::whole(10)).unwrap(), TEXT);
    assert_eq!(server.requests(), 3);
}

#[test]
fn silence_and_trickles_end() {
    let silent = Server::new(|_: &Asked| Answer {
        is_silent: true,
        ..Answer::body(TEXT)
    });
    // One byte every 100 ms is no silence, and still not in time.
    let trickling = Server::new(|_: &Asked| Answer {
        pause: Duration::from_millis(100),
        ..Answer::body(TEXT)
    });
    std::thread::scope(|scope| {
        for server in [silent, trickling] {
            scope.spawn(move || {
                let started = Instant::now();
                let refusal = read(&server.url(), Wanted::whole(10)).unwrap_err();
                assert_eq!(unavailable(&refusal), "no answer in time");
                // Four tries of 0.4 s, on a busy machine.
                assert!(started.elapsed() < Duration::from_secs(5), "{refusal}");
            });
        }
    });
}

#[test]
fn what_may_be_long_has_longer_to_come() {
    let behaviour = Box::new(|_: &Asked| Answer::body(TEXT));
    let server = Server::start(behaviour, Duration::from_millis(600), None);
    let (runtime, file) = (runtime(), FileName::new("d/file").unwrap());
    let patient = HttpOptions {
        silence_time: Duration::from_secs(20),
        ..options()
    };
    let source = Http::new(&server.url(), &patient, runtime.handle().clone()).unwrap();
    let read = |bytes_max| source.read_now(&file, Part::Whole { bytes_max });
    // A try has 0.4 s, and for 60 MiB more than those of a slow line a quarter of an hour.
    let refusal = read(1 << 20).unwrap_err().refusal;
    assert_eq!(unavailable(&refusal), "no answer in time");
    assert_eq!(read(64 << 20).unwrap(), TEXT);
}

#[test]
fn nobody_there_is_an_error_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let refusal = read(&format!("http://{address}/"), Wanted::whole(10)).unwrap_err();
    assert!(unavailable(&refusal).contains("refused"), "{refusal}");
}

#[test]
fn an_endless_body_takes_no_more_memory_than_was_wanted() {
    // Nobody says how long it will be.
    let piece = [b"1000\r\n".as_slice(), &[7; 4096], b"\r\n"].concat();
    let server = Server::new(move |_: &Asked| Answer {
        headers: "Transfer-Encoding: chunked\r\n".into(),
        ..Answer::body(piece.repeat(1000))
    });
    let too_long = Refusal::TooLong { bytes_max: 100 };
    assert_eq!(read(&server.url(), Wanted::whole(100)), Err(too_long));
    let extent = Extent::new(1000, 10);
    assert_eq!(
        read(&server.url(), Wanted::extent(extent)).unwrap(),
        vec![7; 10]
    );
}

#[test]
fn redirections_are_followed_a_few_times() {
    let target = Server::new(|_: &Asked| Answer::body(TEXT));
    let moved = |to: String| {
        Server::new(move |_: &Asked| Answer {
            headers: format!("Location: {to}\r\n"),
            ..Answer::status(302)
        })
    };
    let once = moved(target.url() + "elsewhere");
    assert_eq!(read(&once.url(), Wanted::whole(10)).unwrap(), TEXT);
    assert_eq!(target.counts()["/elsewhere"], 1);
    let around = moved("/around".into());
    let refusal = read(&around.url(), Wanted::whole(10)).unwrap_err();
    assert!(matches!(refusal, Refusal::Address(_)), "{refusal}");
    assert!(around.requests() <= 7, "{}", around.requests());
}

#[test]
fn a_proxy_is_asked_if_one_is_named() {
    let proxy = Server::new(|asked: &Asked| Answer::body(asked.path.clone()));
    let options = HttpOptions {
        proxy: Some(proxy.url()),
        ..options()
    };
    let runtime = runtime();
    let source = Http::new(
        "http://images.example/x",
        &options,
        runtime.handle().clone(),
    )
    .unwrap();
    let file = FileName::new("file").unwrap();
    let read = runtime.block_on(source.read(&file, Wanted::whole(100)));
    assert_eq!(read.unwrap(), "http://images.example/x/file");
}

#[test]
fn addresses_that_cannot_be_read_from_are_said() {
    let runtime = runtime();
    let open = |url| Http::new(url, &options(), runtime.handle().clone());
    for url in ["ftp://a/", "images", "http://", "/a", "http:/\0/"] {
        assert!(open(url).is_err(), "{url}");
    }
    let source = open("http://aya:secret@images.example/").unwrap();
    assert!(!source.place().contains("secret"), "{}", source.place());
    assert!(!format!("{source:?}").contains("secret"));
}

#[test]
fn no_more_requests_than_allowed_are_under_way() {
    let delay = Duration::from_millis(20);
    let server = Server::start(Box::new(|_: &Asked| Answer::body(TEXT)), delay, None);
    let options = HttpOptions {
        in_flight_max: 5,
        ..HttpOptions::default()
    };
    let runtime = runtime();
    let source = Http::new(&server.url(), &options, runtime.handle().clone()).unwrap();
    let reads: Vec<_> = (0..30)
        .map(|number| {
            let source = source.clone();
            let file = FileName::new(&format!("f{number}")).unwrap();
            runtime.spawn(async move { source.read(&file, Wanted::whole(10)).await })
        })
        .collect();
    for read in reads {
        assert_eq!(runtime.block_on(read).unwrap().unwrap(), TEXT);
    }
    assert_eq!(server.requests(), 30);
    assert_eq!(server.in_flight_most(), 5);
}

#[test]
fn over_tls_only_servers_with_a_certificate_that_is_believed_are_read() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.der().to_vec();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.clone().into()],
            rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()),
        );
    let server = Server::start(
        Box::new(|_: &Asked| Answer::body(TEXT)),
        Duration::ZERO,
        Some(Arc::new(config.unwrap())),
    );
    let url = server.url().replace("http:", "https:");
    let file = FileName::new("file").unwrap();
    let read = |authorities| {
        let options = HttpOptions {
            authorities,
            ..options()
        };
        let runtime = runtime();
        let source = Http::new(&url, &options, runtime.handle().clone()).unwrap();
        runtime.block_on(source.read(&file, Wanted::whole(10)))
    };
    assert_eq!(read(vec![certificate]).unwrap(), TEXT);
    let refusal = read(vec![]).unwrap_err().refusal;
    assert!(unavailable(&refusal).contains("certificate"), "{refusal}");
}

fn fetch(server: &Server, spec: ChunkSpec) -> Result<Bytes, FetchError> {
    let runtime = runtime();
    let source = Http::new(&server.url(), &options(), runtime.handle().clone()).unwrap();
    let fetched = runtime.block_on(fetch_chunk(&source, spec));
    fetched.map(|fetched| fetched.bytes)
}

#[test]
fn a_chunk_is_served_only_if_its_bytes_are_those_that_its_name_says() {
    let bytes = vec![7; 100_000];
    let spec = ChunkSpec {
        id: Digest::Sha512Half.id_of(&bytes),
        digest: Digest::Sha512Half,
        len_bytes: 100_000,
    };
    let pack = |bytes: &[u8]| Packer::new(3).unwrap().pack(bytes).unwrap();
    let good = pack(&bytes);
    let path = format!("/{}", FileName::of_chunk(&spec.id));
    let mut flipped = bytes.clone();
    flipped[77_777] ^= 1;
    let wrongs = [
        (pack(&flipped), Damage::Digest),
        (pack(&bytes[1..]), Damage::ChunkShort(99_999)),
        (pack(&vec![7; 100_001]), Damage::Frame),
        (good[..good.len() - 1].to_vec(), Damage::Frame),
        (Vec::new(), Damage::Frame),
        (b"<html>not found</html>".to_vec(), Damage::Frame),
    ];
    for (wrong, damage) in wrongs {
        // A cache on the way has something wrong; the server behind it has not.
        let (first, then, file) = (wrong.clone(), good.clone(), path.clone());
        let healed = Server::new(move |asked: &Asked| {
            assert_eq!(asked.path, file);
            let past_caches = asked.headers.contains("cache-control: no-cache");
            assert_eq!(past_caches, asked.before > 0);
            Answer::body(if past_caches {
                then.clone()
            } else {
                first.clone()
            })
        });
        assert_eq!(fetch(&healed, spec).unwrap(), bytes);
        assert_eq!(healed.requests(), 2);
        let broken = Server::new(move |_: &Asked| Answer::body(wrong.clone()));
        match fetch(&broken, spec) {
            Err(FetchError::Damaged { damage: found, .. }) => assert_eq!(found, damage),
            other => panic!("{other:?}"),
        }
        assert_eq!(broken.requests(), 4);
    }
    // What is longer than the chunk can be is not even read.
    let long = Server::new(|_: &Asked| Answer::body(vec![0; 200_000]));
    assert!(matches!(fetch(&long, spec), Err(FetchError::Source(_))));
    let other = ChunkSpec {
        id: ChunkId([1; 32]),
        ..spec
    };
    let missing = Server::files(std::env::temp_dir().join("nothing"), Duration::ZERO);
    assert!(matches!(fetch(&missing, other), Err(FetchError::Source(_))));
}
