//! Addresses and settings, and files at a real server of S3.

use super::*;
use crate::source::{Part, Refusal, Source};
use base::Extent;
use bytes::Bytes;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Instant;
use tempfile::TempDir;
use tokio::runtime::Runtime;

fn bucket(url: &str, settings: &[(&str, &str)]) -> Result<Bucket, BadAddress> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let settings = settings.iter();
    let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let options = BucketOptions {
        settings: settings.collect(),
        ..BucketOptions::default()
    };
    Bucket::new(url, &options, runtime.unwrap().handle().clone())
}

#[test]
fn addresses_name_a_bucket_and_a_path_in_it() {
    let path = |url| {
        let bucket = bucket(url, &[]).unwrap();
        let file = FileName::new("tags/a@1.azt").unwrap();
        bucket.shared.path_of(&file).to_string()
    };
    assert_eq!(path("s3://b"), "tags/a@1.azt");
    assert_eq!(path("s3://b/"), "tags/a@1.azt");
    assert_eq!(path("s3://b/x/y/"), "x/y/tags/a@1.azt");
    for bad in [
        "s3://",
        "s3:///x",
        "http://b",
        "s3://b/x//y",
        "s3://b/x/../y",
    ] {
        assert!(bucket(bad, &[]).is_err(), "{bad}");
    }
}

#[test]
fn no_password_is_shown() {
    for bad in [
        "http://me:secret@b/x",
        "s3://me:se/cret@b/x//y",
        "s3://me:secret@/",
    ] {
        let said = bucket(bad, &[]).unwrap_err().to_string();
        assert!(!said.contains("cret"), "{said}");
    }
    let plain = bucket("http://a@b", &[]).unwrap_err().to_string();
    assert!(plain.contains("http://a@b"), "{plain}");
}

#[test]
fn settings_are_those_of_the_environment() {
    let known = |name: &str| settings(&[(name.to_owned(), "x".to_owned())]).len();
    for name in ["AWS_ENDPOINT_URL", "AWS_REGION", "aws_session_token"] {
        assert_eq!(known(name), 1, "{name}");
    }
    for name in ["AWS_PAGER", "AWS_BUCKET", "REGION", "PATH"] {
        assert_eq!(known(name), 0, "{name}");
    }
    assert!(bucket("s3://b", &[]).unwrap().shared.is_conditional);
    let without = bucket("s3://b", &[("AWS_CONDITIONAL_PUT", "disabled")]);
    assert!(!without.unwrap().shared.is_conditional);
    assert!(bucket("s3://b", &[("AWS_CONDITIONAL_PUT", "perhaps")]).is_err());
}

/// A server with one object that knows conditions, for so many requests.
struct OneObject {
    object: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<std::io::Result<()>>,
    url: String,
}

impl OneObject {
    fn start(object: &[u8], requests: usize) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let object = Arc::new(Mutex::new(object.to_owned()));
        let served = Arc::clone(&object);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().take(requests) {
                Self::serve(BufReader::new(stream?), &served)?;
            }
            Ok(())
        });
        Ok(Self {
            object,
            thread,
            url,
        })
    }

    fn serve(mut stream: BufReader<TcpStream>, object: &Mutex<Vec<u8>>) -> std::io::Result<()> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.read_line(&mut head)?;
        }
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body)?;
        let mut object = object
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let (status, length) = match head.starts_with("put") {
            true if head.contains("if-none-match") => (412, 0),
            true => {
                *object = body;
                (200, 0)
            }
            false => (200, object.len()),
        };
        let date = "Last-Modified: Tue, 01 Dec 2026 10:00:00 GMT";
        let answer = format!("HTTP/1.1 {status} X\r\nETag: \"1\"\r\n{date}\r\n");
        let end = format!("Content-Length: {length}\r\nConnection: close\r\n\r\n");
        stream.get_mut().write_all((answer + &end).as_bytes())
    }
}

#[test]
fn an_object_of_another_length_is_put_over() {
    let server = OneObject::start(b"", 5).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let settings = [
        ("AWS_ENDPOINT_URL", server.url.as_str()),
        ("AWS_ACCESS_KEY_ID", "someone"),
        ("AWS_SECRET_ACCESS_KEY", "a secret"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = BucketOptions {
        settings: settings.into(),
        ..BucketOptions::default()
    };
    let bucket = Bucket::new("s3://bucket", &options, runtime.handle().clone()).unwrap();
    let chunk = file("default.castr/abcd/abcd.cacnk");
    for (put, there) in [("first", "first"), ("other", "first")] {
        bucket.put_immutable(&chunk, put.into()).unwrap();
        assert_eq!(*server.object.lock().unwrap(), there.as_bytes());
    }
    server.thread.join().unwrap().unwrap();
}

/// A real server of S3, if there is one here: `cargo xtask deep bucket` builds it.
struct Server {
    child: Child,
    /// Its threads serve sockets.
    _runtime: Runtime,
    _root: TempDir,
    bucket: Bucket,
}

impl Server {
    fn start() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bucket")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let started = Command::new("s3s-fs")
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", "someone", "--secret-key", "a secret"])
            .arg(root.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = started else {
            println!("skipped: there is no s3s-fs here");
            return None;
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let settings = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_ACCESS_KEY_ID", "someone".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "a secret".to_owned()),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        let options = BucketOptions {
            settings: settings.into(),
            ..BucketOptions::default()
        };
        let bucket = Bucket::new("s3://bucket/images", &options, runtime.handle().clone()).unwrap();
        let server = Self {
            child,
            _runtime: runtime,
            _root: root,
            bucket,
        };
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "the server does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    fn read(&self, name: &str) -> Bytes {
        let part = Part::Whole { bytes_max: 1 << 30 };
        self.bucket.read_now(&file(name), part).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn file(name: &str) -> FileName {
    FileName::new(name).unwrap()
}

#[test]
fn what_was_changed_by_others_is_not_put_over() {
    let Some(server) = Server::start() else {
        return;
    };
    let (bucket, tag) = (&server.bucket, file("tags/a@1.azt"));
    let before = bucket.stamp(&tag).unwrap();
    assert!(bucket.put_if(&tag, before.clone(), "one".into()).unwrap());
    // Who has seen nothing there comes too late, and so does who has seen the first.
    assert!(!bucket.put_if(&tag, before, "other".into()).unwrap());
    let first = bucket.stamp(&tag).unwrap();
    assert!(bucket.put_if(&tag, first.clone(), "two".into()).unwrap());
    assert!(!bucket.put_if(&tag, first, "late".into()).unwrap());
    assert_eq!(server.read("tags/a@1.azt"), "two");
    assert_eq!(bucket.names_in("tags").unwrap(), ["a@1.azt"]);
    let chunk = file("default.castr/abcd/abcd.cacnk");
    assert!(!bucket.has(&chunk).unwrap());
    bucket.put_immutable(&chunk, "first".into()).unwrap();
    bucket.put_immutable(&chunk, "other".into()).unwrap();
    assert_eq!(server.read(chunk.as_str()), "first");
    assert!(bucket.has(&chunk).unwrap());
    bucket.remove(&tag).unwrap();
    bucket.remove(&tag).unwrap();
    assert_eq!(bucket.names_in("tags").unwrap(), [""; 0]);
}

#[test]
fn files_are_read_whole_and_in_part_and_long_ones_are_put_in_pieces() {
    let Some(server) = Server::start() else {
        return;
    };
    let long: Vec<u8> = (0..13_000_000_u32).map(|at| (at % 251) as u8).collect();
    let name = file("packs/abcd.azp");
    let mut upload = Upload::new(&server.bucket, &name);
    for piece in long.chunks(700_001) {
        upload.write_all(piece).unwrap();
    }
    upload.finish().unwrap();
    assert!(server.read("packs/abcd.azp") == long);
    // One that is given up is not there.
    let given_up = file("packs/given-up.azp");
    let mut upload = Upload::new(&server.bucket, &given_up);
    upload.write_all(&long).unwrap();
    drop(upload);
    assert!(!server.bucket.has(&given_up).unwrap());
    let read = |part| {
        let read = server.bucket.read_now(&name, part);
        read.map_err(|error| error.refusal)
    };
    let extent = |offset, len| Part::Extent(Extent::new(offset, len));
    assert!(read(extent(6_000_000, 100)).unwrap() == long[6_000_000..6_000_100]);
    assert_eq!(read(extent(5, 0)).unwrap(), "");
    for (offset, len) in [(12_999_999, 2), (13_000_000, 1), (20_000_000, 10)] {
        let too_short = Refusal::TooShort(Extent::new(offset, len));
        assert_eq!(read(extent(offset, len)), Err(too_short));
    }
    let too_long = Refusal::TooLong { bytes_max: 99 };
    assert_eq!(read(Part::Whole { bytes_max: 99 }), Err(too_long));
    let missing = server.bucket.read_now(&file("tags/x@1.azt"), extent(0, 1));
    assert_eq!(missing.unwrap_err().refusal, Refusal::NotFound);
}
