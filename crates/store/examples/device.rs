//! Measures a device. The lines are for comparing runs and for setting beside fio's:
//!
//! * `device ring PATH read|write SECONDS`: sequential requests of 1 MiB, four under way, through
//!   the ring; MiB/s.
//! * `device calibrate PATH SEED`: the chosen unit, the time it took and the best rates.
//!
//! **What is measured is overwritten.**

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use base::Extent;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use store::device::{
    AlignedBuffer, Calibration, DeviceOptions, Direction, FileDevice, Queue, Request, Ring,
    calibrate,
};

const SIZE: usize = 1 << 20;
const DEPTH: usize = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["ring", path, direction, seconds] => {
            let seconds = seconds.parse().expect("SECONDS is a number");
            println!("{:.0}", stream(&open(path), direction == "write", seconds));
        }
        ["calibrate", path, seed] => {
            measure(&open(path), seed.parse().expect("SEED is a number"));
        }
        _ => println!("device ring PATH read|write SECONDS | device calibrate PATH SEED"),
    }
}

fn open(path: &str) -> Ring {
    let device = FileDevice::open(Path::new(path), DeviceOptions::default());
    let device = Arc::new(device.expect("PATH is a device that can be opened"));
    Ring::new(device, 16 << 20).expect("the kernel has io_uring")
}

/// MiB/s of sequential requests, from the beginning and again.
fn stream(queue: &Ring, is_write: bool, seconds: f64) -> f64 {
    let (sender, answers) = mpsc::channel();
    let mut buffers = vec![AlignedBuffer::from(&[0x5a; SIZE][..]); DEPTH];
    let end = queue.device().len_bytes() / SIZE as u64;
    let (begin, time) = (Instant::now(), Duration::from_secs_f64(seconds));
    let (mut next, mut under_way) = (0, 0);
    loop {
        let is_over = begin.elapsed() >= time;
        while !is_over && let Some(buffer) = buffers.pop() {
            let offset = next % end * SIZE as u64;
            let request = match is_write {
                true => Request::Write { offset, buffer },
                false => Request::Read { offset, buffer },
            };
            let sender = sender.clone();
            let tell = Box::new(move |done| drop(sender.send(done)));
            queue.submit(request, tell).expect("the device works");
            (next, under_way) = (next + 1, under_way + 1);
        }
        if under_way == 0 {
            break;
        }
        let done = answers.recv().expect("the queue answers");
        done.result.expect("the device works");
        buffers.extend(done.request.into_buffer());
        under_way -= 1;
    }
    next as f64 / begin.elapsed().as_secs_f64()
}

fn measure(queue: &Ring, seed: u64) {
    let region = Extent::new(0, queue.device().len_bytes());
    let begin = Instant::now();
    let calibration = Calibration {
        seed,
        ..Calibration::new(region)
    };
    let capability = calibrate(queue, &calibration, &mut |_, _| ControlFlow::Continue(()));
    let capability = capability.expect("the device works");
    let best = |direction| capability.best_bytes_per_second(direction) >> 20;
    println!(
        "unit {} KiB, {} cells in {:.1} s, best read {} MiB/s, write {} MiB/s",
        capability.allocation_unit_bytes >> 10,
        capability.rates.len(),
        begin.elapsed().as_secs_f64(),
        best(Direction::Read),
        best(Direction::Write),
    );
}
