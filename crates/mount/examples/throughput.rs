//! How fast the FUSE channel itself is: a file of zeros that costs nothing to make is read through
//! the page cache and past it, and written. Root can try several sizes of read-ahead.
//!
//! ```text
//! cargo run --release --package mount --example throughput
//! ```

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use base::{FileKind, Timestamp};
use mount::kernel::{
    Attr, AttrFlags, Entry, Errno, FOpenFlags, Fh, Forget, Handler, InitFlags, MountOptions,
    NodeId, Opened, Operation, Replier, Request, Session, Unique, Wishes,
};
use std::error::Error;
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCK_BYTES: usize = 1 << 20;
const FILE_BYTES: u64 = 2 << 30;
const THREADS: usize = 2;
const NAMES: [&[u8]; 2] = [b"cached", b"direct"];

struct Zeros {
    block: Vec<u8>,
}

impl Zeros {
    fn attr(node: NodeId) -> Attr {
        let root = node == NodeId::ROOT;
        let time = Timestamp::default();
        Attr {
            ino: node.0,
            size: if root { 0 } else { FILE_BYTES },
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            kind: if root {
                FileKind::Directory
            } else {
                FileKind::File
            },
            mode: 0o755,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_bytes: 0,
            flags: AttrFlags::empty(),
        }
    }
}

impl Handler for Zeros {
    fn handle(&self, request: Request, replier: Replier) {
        let valid = Duration::from_secs(60);
        match request.operation {
            Operation::Lookup { name } => match NAMES.iter().position(|known| *known == name) {
                Some(found) => {
                    let node = NodeId(2 + found as u64);
                    let attr = Self::attr(node);
                    let entry = Entry {
                        node,
                        generation: 0,
                        entry_valid: valid,
                        attr_valid: valid,
                        attr,
                    };
                    replier.entry(&entry)
                }
                None => replier.error(Errno::NOENT),
            },
            Operation::GetAttr { .. } | Operation::SetAttr(_) => {
                replier.attr(&Self::attr(request.node), valid)
            }
            Operation::Open { .. } => {
                let direct = request.node == NodeId(3);
                let flags = if direct {
                    FOpenFlags::DIRECT_IO
                } else {
                    FOpenFlags::empty()
                };
                replier.opened(&Opened::new(Fh(0), flags))
            }
            Operation::Read(read) => {
                let left = FILE_BYTES
                    .saturating_sub(read.offset)
                    .min(u64::from(read.size));
                let len = usize::try_from(left).expect("a megabyte fits");
                replier.data_slices(&[IoSlice::new(&self.block[..len])])
            }
            Operation::Write(write) => {
                replier.written(u32::try_from(write.data.len()).expect("a megabyte fits"))
            }
            Operation::Flush { .. } | Operation::Release(_) => replier.done(),
            _ => replier.error(Errno::NOSYS),
        };
    }

    fn forget(&self, _: &[Forget]) {}

    fn interrupt(&self, _: Unique) {}
}

/// Processor seconds of all threads of this process so far, user and system.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::try_from(clock)?.as_secs_f64())
}

fn measure(
    what: &str,
    mut step: impl FnMut() -> std::io::Result<u64>,
) -> Result<(), Box<dyn Error>> {
    let (start, processor) = (Instant::now(), processor_seconds()?);
    let mut bytes = 0;
    loop {
        match step()? {
            0 => break,
            len => bytes += len,
        }
    }
    let gigabytes = bytes as f64 / 1e9;
    let rate = gigabytes / start.elapsed().as_secs_f64();
    let cost = (processor_seconds()? - processor) / gigabytes;
    println!("{what:28} {rate:6.2} GB/s  {cost:6.3} processor s/GB");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let wishes = Wishes {
        flags: InitFlags::ASYNC_READ | InitFlags::PARALLEL_DIROPS,
        ..Wishes::default()
    };
    let session = Session::mount(directory.path(), &MountOptions::default(), &wishes)?;
    let point = session.mount_point().clone();
    println!("FUSE 7.{}", session.agreement().minor);
    let handler = Arc::new(Zeros {
        block: vec![0; BLOCK_BYTES],
    });
    let run = std::thread::spawn(move || session.run(THREADS, handler));
    let mut buffer = vec![0; BLOCK_BYTES];
    for (name, readahead) in [
        ("cached", 128 << 10),
        ("cached", 1 << 20),
        ("direct", 128 << 10),
    ] {
        if let Err(error) = point.set_readahead(readahead) {
            println!("read-ahead stays: {error}");
        }
        let mut file = File::open(point.path().join(name))?;
        let what = format!("read, {name}, {} KiB ahead", readahead >> 10);
        measure(&what, || file.read(&mut buffer).map(|len| len as u64))?;
    }
    for name in ["cached", "direct"] {
        let mut file = File::options().write(true).open(point.path().join(name))?;
        let what = format!("write, {name}");
        let mut left = FILE_BYTES / BLOCK_BYTES as u64;
        measure(&what, || {
            if left == 0 {
                return Ok(0);
            }
            left -= 1;
            file.write(&buffer).map(|len| len as u64)
        })?;
    }
    point.unmount(false)?;
    run.join().expect("the session does not panic")?;
    Ok(())
}
