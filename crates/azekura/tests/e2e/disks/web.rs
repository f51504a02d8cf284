//! A plain web server of a directory, which counts what it is asked for. It knows nothing of disks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Its threads end with the process.
pub(crate) struct Web {
    port: u16,
    counts: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Web {
    pub(crate) fn of(directory: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let web = Self {
            port: listener.local_addr().unwrap().port(),
            counts: Arc::default(),
        };
        let (directory, counts) = (directory.to_owned(), Arc::clone(&web.counts));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (directory, counts) = (directory.clone(), Arc::clone(&counts));
                // Whoever goes in the middle of a sentence has gone.
                std::thread::spawn(move || serve(&stream, &directory, &counts));
            }
        });
        web
    }

    /// The URL of what lies in the directory under this name.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }

    /// How often a file was asked for.
    pub(crate) fn count(&self, path: &str) -> u64 {
        self.counts.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    /// How often each chunk was asked for.
    pub(crate) fn chunk_counts(&self) -> Vec<u64> {
        let counts = self.counts.lock().unwrap();
        let chunks = counts.iter().filter(|(path, _)| path.ends_with(".cacnk"));
        chunks.map(|(_, count)| *count).collect()
    }
}

fn serve(
    stream: &TcpStream,
    directory: &Path,
    counts: &Mutex<BTreeMap<String, u64>>,
) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    loop {
        let request = lines.next()?.ok()?;
        // Nothing of the headers matters here.
        while !lines.next()?.ok()?.is_empty() {}
        let path = request.split(' ').nth(1)?.to_owned();
        let found = std::fs::read(directory.join(&path[1..]));
        *counts.lock().unwrap().entry(path).or_default() += 1;
        let (status, body) = match found {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", Vec::new()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        (&mut &*stream)
            .write_all(&[head.as_bytes(), &body].concat())
            .ok()?;
    }
}
