//! A recorded run, done again on an image behind a server.

use crate::server::Server;
use crate::trace::Step;
use anyhow::{Context, Result};
use base::BlockDevice;
use disk::{Cache, Fetcher, Foresight, Http, HttpOptions, ImageDevice, Manifest, Source};
use disk::{TagRecord, Trained, Trust};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How an image is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Nothing is foreseen.
    Demand,
    /// Reads from front to back are.
    Sequential,
    /// The profile is, in the cut index, with its pack.
    Trained,
}

impl How {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Sequential => "untrained",
            Self::Trained => "trained",
        }
    }
}

/// What a run has cost.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) chunk_kib: u32,
    pub(crate) how: &'static str,
    pub(crate) rtt_ms: u64,
    pub(crate) seconds: f64,
    pub(crate) wait_seconds: f64,
    pub(crate) waits: u64,
    pub(crate) requests: u64,
    pub(crate) in_flight_most: usize,
    pub(crate) wire_bytes: u64,
    pub(crate) inflated_bytes: u64,
    pub(crate) touched_bytes: u64,
    pub(crate) fill_rate: f64,
    /// Chunks that were fetched ahead and never read.
    pub(crate) unread_chunks: u64,
}

/// Where the image is, and who has signed it.
pub(crate) struct Published<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) trust: &'a Trust,
    pub(crate) chunk_kib: u32,
    /// By which it is trained.
    pub(crate) profile: &'a str,
}

impl Published<'_> {
    /// Does a run with an empty cache.
    pub(crate) fn run(&self, how: How, rtt: Duration, steps: &[Step], pace: bool) -> Result<Row> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let server = Server::new(self.directory, rtt)?;
        let cache = tempfile::tempdir()?;
        let opened = Cache::open(cache.path(), 8 << 30)?;
        let handle = runtime.handle().clone();
        let http = Http::new(&server.url(), &HttpOptions::default(), handle.clone())?;
        let source: Arc<dyn Source> = Arc::new(http);
        let fetcher = Fetcher::new(handle, Some(opened), 64 << 20);
        let tag = "image:1".parse()?;
        let version = TagRecord::read(&*source, &tag, self.trust)?.version();
        let manifest = Manifest::read(&*source, version, self.trust)?;
        let image = match how {
            How::Trained => Trained::open(&*source, version, &manifest, self.trust)?,
            How::Demand | How::Sequential => Trained {
                index: Arc::new(manifest.read_index(&*source)?),
                packs: Vec::new(),
            },
        };
        let before = server.counts.requests.load(Ordering::SeqCst);
        let bytes_before = server.counts.bytes.load(Ordering::SeqCst);
        // The pack's front is part of what the run costs.
        let begun = Instant::now();
        let foresight = match how {
            How::Demand => Foresight::default(),
            How::Sequential => image.foresight(&*source, Vec::new()),
            How::Trained => image.foresight(&*source, vec![self.profile.to_owned()]),
        };
        let attached = begun.elapsed();
        let device = ImageDevice::new(image.index, Arc::clone(&source), fetcher.clone());
        let device = device.foreseen(foresight);
        replay(&device, steps, pace)?;
        let seconds = begun.elapsed();
        let (uses, ahead) = (device.uses(), device.ahead_counts());
        fetcher.finish(Duration::from_secs(60));
        Ok(Row {
            chunk_kib: self.chunk_kib,
            how: how.name(),
            rtt_ms: rtt.as_millis() as u64,
            seconds: seconds.as_secs_f64(),
            wait_seconds: (uses.wait_time + attached).as_secs_f64(),
            waits: uses.waits + u64::from(how == How::Trained),
            requests: server.counts.requests.load(Ordering::SeqCst) - before,
            in_flight_most: server.counts.in_flight_most.load(Ordering::SeqCst),
            wire_bytes: server.counts.bytes.load(Ordering::SeqCst) - bytes_before,
            inflated_bytes: uses.inflated_bytes,
            touched_bytes: uses.touched_bytes,
            fill_rate: uses.fill_rate().unwrap_or(0.0),
            unread_chunks: ahead.chunks - ahead.used_chunks,
        })
    }
}

fn replay(device: &ImageDevice, steps: &[Step], pace: bool) -> Result<()> {
    let mut buffer = Vec::new();
    for step in steps {
        if pace {
            std::thread::sleep(step.think);
        }
        buffer.resize(step.extent.len as usize, 0);
        let read = device.read_at(step.extent.offset, &mut buffer);
        read.with_context(|| format!("reading {}", step.extent))?;
    }
    Ok(())
}
