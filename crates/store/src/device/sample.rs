//! One short measurement: as many requests as wanted under way, all the time, for a moment.

use super::{AlignedBuffer, Done, Queue, Request};
use base::limits::DEVICE_TIME_MAX;
use base::{DeviceError, Extent};
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// What is kept under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) size_bytes: u32,
    pub(super) depth: u32,
    pub(super) write_percent: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    /// From the first request to the last answer.
    pub(super) busy: Duration,
    /// The flush after it; none if nothing was written.
    pub(super) flush: Duration,
}

/// Draws numbers; good enough for places on a disk and for bytes that no device can compress.
/// SplitMix64: Steele, Lea and Flood, OOPSLA 2014.
#[derive(Clone, Debug)]
pub(super) struct Places(u64);

impl Places {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Runs `load` for `time` at places of `region`, each a multiple of the size: an allocation unit is
/// read and written at such places, and on a disk with arms the way there is part of the cost.
/// `buffers` are `depth` ones of `size_bytes` with something in them.
pub(super) fn sample(
    queue: &dyn Queue,
    region: Extent,
    load: Load,
    time: Duration,
    mut buffers: Vec<AlignedBuffer>,
    places: &mut Places,
) -> Result<Sample, DeviceError> {
    let (sender, answers) = mpsc::channel();
    let mut sample = Sample::default();
    let begin = Instant::now();
    let mut under_way = 0;
    loop {
        let is_over = begin.elapsed() >= time;
        while !is_over && let Some(buffer) = buffers.pop() {
            submit(queue, region, load, buffer, places, &sender)?;
            under_way += 1;
        }
        if under_way == 0 {
            break;
        }
        let (buffer, is_write) = answer(&answers)?;
        under_way -= 1;
        let counted = if is_write {
            &mut sample.written_bytes
        } else {
            &mut sample.read_bytes
        };
        *counted += buffer.len() as u64;
        buffers.push(buffer);
    }
    sample.busy = begin.elapsed();
    if load.write_percent > 0 {
        let begin = Instant::now();
        queue.start(Request::Flush)?.wait()?;
        sample.flush = begin.elapsed();
    }
    Ok(sample)
}

fn submit(
    queue: &dyn Queue,
    region: Extent,
    load: Load,
    buffer: AlignedBuffer,
    places: &mut Places,
    sender: &Sender<Done>,
) -> Result<(), DeviceError> {
    let size = u64::from(load.size_bytes);
    let offset = region.offset + places.below(region.len / size) * size;
    let request = match places.below(100) < u64::from(load.write_percent) {
        true => Request::Write { offset, buffer },
        false => Request::Read { offset, buffer },
    };
    let sender = sender.clone();
    // Nobody listens any more after an error; then nobody wants to know.
    queue.submit(request, Box::new(move |done| drop(sender.send(done))))
}

fn answer(answers: &Receiver<Done>) -> Result<(AlignedBuffer, bool), DeviceError> {
    let Ok(done) = answers.recv_timeout(DEVICE_TIME_MAX) else {
        return Err(Request::Flush.failed_as(io::ErrorKind::TimedOut));
    };
    done.result?;
    let is_write = matches!(done.request, Request::Write { .. });
    Ok((
        done.request
            .into_buffer()
            .expect("reads and writes have one"),
        is_write,
    ))
}
