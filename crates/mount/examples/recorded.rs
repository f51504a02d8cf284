//! A device in memory that is recorded, as a file: for measuring what recording costs.
//!
//! ```text
//! cargo run --release --package mount --example recorded -- MOUNTPOINT MEBIBYTES [plain]
//! fio --name=w --filename=MOUNTPOINT/disk --size=512M --rw=write --bs=1M --ioengine=libaio \
//!     --iodepth=16
//! ```
//!
//! With `plain` nothing is recorded. It stays in the foreground until unmounted. A log holds 1 GiB;
//! then the device is full.

use mount::disk::{DiskConfig, DiskMount};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use verify::{Medium, Recorder};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [point, mebibytes, more @ ..] = arguments.as_slice() else {
        return Err("usage: recorded MOUNTPOINT MEBIBYTES [plain]".into());
    };
    let len_bytes = mebibytes.parse::<u64>()? << 20;
    let recorder = Arc::new(Recorder::new(Arc::new(Medium::new(len_bytes))));
    if more.is_empty() {
        recorder.start();
    }
    let config = DiskConfig {
        source: "recorded".to_owned(),
        allow_other: true,
        read_only: false,
    };
    DiskMount::direct(recorder, Path::new(point), &config, "disk")?.run()?;
    Ok(())
}
