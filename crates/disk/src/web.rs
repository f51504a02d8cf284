//! A repository over plain HTTP, for whoever has no web server beside it.
//!
//! Only files that a repository has are given, whole or in a range, and only to who asks with GET
//! or HEAD: no listings, no locks, nothing that a link points to. What never changes may be kept by
//! caches for ever. There is neither a password nor encryption; what is read is verified by whoever
//! reads it.
//!
//! Every connection has a limit of time, of the length of its head and of how many there are; of a
//! file a few pieces are in memory.

use crate::name::FileName;
use base::limits::{
    DISK_WEB_CONNECTION_TIME_MAX, DISK_WEB_CONNECTIONS_MAX, DISK_WEB_HEAD_TIME_MAX,
};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap,
    RANGE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

/// What a file is read in.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that wait for the line.
const PIECES_WAITING: usize = 2;
/// A request's head; names have a few hundred bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Directories of a repository whose files are given, and whether these never change.
const GIVEN: [(&str, bool); 6] = [
    (crate::name::CHUNKS, true),
    ("indexes", true),
    ("versions", true),
    ("packs", true),
    ("tags", false),
    ("trainings", false),
];

/// Gives the files of the repository in a directory to whoever connects, for ever.
///
/// # Errors
/// If the directory cannot be opened.
pub async fn serve(listener: TcpListener, directory: &Path) -> io::Result<Infallible> {
    let root = Arc::new(File::open(directory)?);
    let permits = Arc::new(Semaphore::new(DISK_WEB_CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, or somebody who has gone: others may have better luck.
                tracing::debug!(%error, "nobody was let in");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                continue;
            }
        };
        let root = Arc::clone(&root);
        tokio::spawn(async move {
            let over = tokio::time::timeout(DISK_WEB_CONNECTION_TIME_MAX, talk(stream, root)).await;
            if over.is_err() {
                tracing::debug!("a connection was given up");
            }
            drop(permit);
        });
    }
}

async fn talk(stream: TcpStream, root: Arc<File>) {
    // Small answers do not wait for more.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let root = Arc::clone(&root);
        async move { Ok::<_, Infallible>(answer(root, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(DISK_WEB_HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection has ended");
    }
}

async fn answer(root: Arc<File>, request: Request<Incoming>) -> Response<Pieces> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = status(StatusCode::METHOD_NOT_ALLOWED);
        let allowed = hyper::header::HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    let Some((name, is_immutable)) = given(request.uri().path()) else {
        return status(StatusCode::NOT_FOUND);
    };
    let opened = tokio::task::spawn_blocking(move || open(&root, &name)).await;
    let (file, length) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            return status(StatusCode::FORBIDDEN);
        }
        Ok(Err(error)) if is_missing(&error) => return status(StatusCode::NOT_FOUND),
        _ => return status(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let wanted = match range(request.headers(), length) {
        Wanted::Whole => None,
        Wanted::Part(range) => Some(range),
        Wanted::Nothing => {
            let mut response = status(StatusCode::RANGE_NOT_SATISFIABLE);
            set(&mut response, CONTENT_RANGE, &format!("bytes */{length}"));
            return response;
        }
    };
    let part = wanted.clone().unwrap_or(0..length);
    let body = match *request.method() {
        Method::HEAD => Pieces::none(),
        _ => Pieces::of(file, part.clone()),
    };
    let mut response = Response::new(body);
    set(
        &mut response,
        CONTENT_LENGTH,
        &(part.end - part.start).to_string(),
    );
    set(&mut response, ACCEPT_RANGES, "bytes");
    set(&mut response, CONTENT_TYPE, "application/octet-stream");
    let kept = match is_immutable {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    set(&mut response, CACHE_CONTROL, kept);
    if wanted.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let said = format!("bytes {}-{}/{length}", part.start, part.end - 1);
        set(&mut response, CONTENT_RANGE, &said);
    }
    response
}

fn status(status: StatusCode) -> Response<Pieces> {
    let mut response = Response::new(Pieces::none());
    *response.status_mut() = status;
    set(&mut response, CONTENT_LENGTH, "0");
    response
}

fn set(response: &mut Response<Pieces>, name: hyper::header::HeaderName, value: &str) {
    let value = value.parse().expect("digits and words");
    response.headers_mut().insert(name, value);
}

/// The file of a request's path, if it is one that is given, and whether it never changes.
fn given(path: &str) -> Option<(FileName, bool)> {
    let name = FileName::new(path.strip_prefix('/')?).ok()?;
    let is_immutable = match name.as_str().split_once('/') {
        Some((directory, _)) => GIVEN.iter().find(|(given, _)| *given == directory)?.1,
        None if name.as_str().ends_with(".caibx") => false,
        None => return None,
    };
    Some((name, is_immutable))
}

/// Opens a file below the root, and through no link.
fn open(root: &File, name: &FileName) -> io::Result<(File, u64)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = File::from(openat2(root, name.as_str(), flags, Mode::empty(), resolve)?);
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata.len())),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    is_link || matches!(error.kind(), NotFound | NotADirectory)
}

/// Which part of a file a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part(Range<u64>),
    Nothing,
}

/// One range of bytes; what is not that is not heeded, as the standard allows (RFC 9110, 14.2).
fn range(headers: &HeaderMap, length: u64) -> Wanted {
    let said = headers.get(RANGE).and_then(|range| range.to_str().ok());
    let said = said.and_then(|range| range.strip_prefix("bytes="));
    let Some((first, last)) = said.and_then(|range| range.split_once('-')) else {
        return Wanted::Whole;
    };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(length),
        (Ok(first), Err(_)) if last.is_empty() => first..length,
        (Err(_), Ok(last)) if first.is_empty() => length.saturating_sub(last)..length,
        _ => return Wanted::Whole,
    };
    match range.is_empty() {
        true => Wanted::Nothing,
        false => Wanted::Part(range),
    }
}

/// A part of a file, piece by piece.
struct Pieces(Option<mpsc::Receiver<io::Result<Bytes>>>);

impl Pieces {
    const fn none() -> Self {
        Self(None)
    }

    fn of(file: File, mut part: Range<u64>) -> Self {
        let (sender, receiver) = mpsc::channel(PIECES_WAITING);
        tokio::task::spawn_blocking(move || {
            while !part.is_empty() {
                let len = (part.end - part.start).min(PIECE_BYTES as u64);
                let mut piece = vec![0; len as usize];
                let read = file.read_exact_at(&mut piece, part.start);
                part.start += len;
                let is_over = read.is_err();
                // Whoever has gone does not want the rest.
                if sender.blocking_send(read.map(|()| piece.into())).is_err() || is_over {
                    return;
                }
            }
        });
        Self(Some(receiver))
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(receiver) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let polled = receiver.poll_recv(context);
        polled.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_a_repository_gives_are_given() {
        let is_given = |path| given(path).map(|(_, is_immutable)| is_immutable);
        assert_eq!(is_given("/default.castr/abcd/abcd.cacnk"), Some(true));
        assert_eq!(is_given("/tags/base@1.azt"), Some(false));
        assert_eq!(is_given("/base@1.caibx"), Some(false));
        for path in [
            "/",
            "",
            "tags/a@1.azt",
            "/lock",
            "/tags.lock",
            "/tmp/x",
            "/../tags/x",
            "/tags/../lock",
            "/tags/%2e%2e/lock",
            "/other/x",
        ] {
            assert_eq!(is_given(path), None, "{path}");
        }
    }

    #[test]
    fn ranges_are_parts_or_nothing_and_what_is_odd_is_everything() {
        let wanted = |said: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, said.parse().unwrap());
            range(&headers, 10)
        };
        for (said, part) in [
            ("bytes=0-0", 0..1),
            ("bytes=3-", 3..10),
            ("bytes=-4", 6..10),
        ] {
            assert_eq!(wanted(said), Wanted::Part(part), "{said}");
        }
        assert_eq!(wanted("bytes=5-99"), Wanted::Part(5..10));
        assert_eq!(wanted("bytes=-99"), Wanted::Part(0..10));
        for said in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            assert_eq!(wanted(said), Wanted::Nothing, "{said}");
        }
        for said in [
            "bytes=4-3",
            "lines=1-2",
            "bytes=1-2,4-5",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
        ] {
            assert_eq!(wanted(said), Wanted::Whole, "{said}");
        }
        assert_eq!(range(&HeaderMap::new(), 10), Wanted::Whole);
    }
}
