//! The file that shows the device of a run: its mount, and the thread that answers.
//!
//! The kernel lets the thread go when nobody uses the file any more. Whoever uses it may never be
//! done with that, be it a loop device of an actor that hangs or another program, so at the end the
//! connection is broken if need be: then whoever still waits has an error, and the run ends.

use crate::errors::{Context, Result};
use ::verify::Recorder;
use mount::disk::{DiskConfig, DiskMount};
use mount::kernel::MountPoint;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How often somebody who waits looks.
const LOOKED_EVERY: Duration = Duration::from_millis(2);
/// Of a connection that is broken the kernel lets everybody go at once.
pub(super) const BROKEN_TIME_MAX: Duration = Duration::from_secs(5);

/// See the module's head.
pub(super) struct Served {
    point: MountPoint,
    thread: JoinHandle<()>,
    file: PathBuf,
}

impl Served {
    /// Shows what is recorded as a file with this name in this directory.
    pub(super) fn new(recorder: Arc<Recorder>, directory: &Path, name: &str) -> Result<Self> {
        std::fs::create_dir(directory).context(directory.display())?;
        // Loop devices read and write in the kernel's name.
        let config = DiskConfig {
            source: "azekura-verify".to_owned(),
            allow_other: true,
            read_only: false,
        };
        let files = DiskMount::direct(recorder, directory, &config, name)?;
        let point = files.mount_point().clone();
        let thread = std::thread::Builder::new()
            .name("verify-device".to_owned())
            .spawn(move || {
                if let Err(error) = files.run() {
                    tracing::error!(%error, "the device is not served any more");
                }
            })
            .context("a thread")?;
        Ok(Self {
            point,
            thread,
            file: directory.join(name),
        })
    }

    /// The file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Takes it off, and waits so long for those who still use it; they are not waited for if it is
    /// known that they will not be done.
    pub(super) fn end(self, is_free: bool, time: Duration) {
        if !is_free {
            // As long as it is mounted: where the kernel does not list its connections, they can be
            // broken by their mount alone.
            self.break_off();
        }
        if let Err(error) = self.point.unmount(true) {
            tracing::warn!(%error, "the device of the crash run stays mounted");
            self.break_off();
        }
        if !self.ends_within(time) {
            self.break_off();
            // If it does not end now, it ends with the process.
            self.ends_within(BROKEN_TIME_MAX);
        }
    }

    fn break_off(&self) {
        if let Err(error) = self.point.abort() {
            tracing::warn!(%error, "the device of the crash run is still in use");
        }
    }

    fn ends_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while !self.thread.is_finished() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(LOOKED_EVERY);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::verify::Medium;
    use std::fs::File;
    use std::process::{Command, Stdio};

    /// A device that is served, and a program that has its file open.
    fn in_use(directory: &Path) -> Option<(Arc<Recorder>, Served, std::process::Child)> {
        let recorder = Arc::new(Recorder::new(Arc::new(Medium::new(1 << 20))));
        let served = Served::new(recorder.clone(), &directory.join("device"), "name").ok()?;
        let file = File::open(served.file()).unwrap();
        let mut user = Command::new("sleep");
        let user = user.arg("60").stdin(Stdio::from(file)).spawn().unwrap();
        Some((recorder, served, user))
    }

    /// Whether nobody has it but who asks.
    fn is_let_go(recorder: &Arc<Recorder>) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(recorder) > 1 && Instant::now() < deadline {
            sleep(LOOKED_EVERY);
        }
        Arc::strong_count(recorder) == 1
    }

    #[test]
    fn whoever_uses_a_file_for_ever_is_not_waited_for() {
        for is_free in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let Some((recorder, served, mut user)) = in_use(directory.path()) else {
                println!("skipped: nothing can be mounted here");
                return;
            };
            let begun = Instant::now();
            served.end(is_free, Duration::from_millis(100));
            let took = begun.elapsed();
            // What is in use although it should not be can be broken where connections are listed.
            let is_broken = is_free || is_let_go(&recorder);
            user.kill().unwrap();
            user.wait().unwrap();
            assert!(took < 2 * BROKEN_TIME_MAX && is_broken, "{took:?}");
            assert!(is_let_go(&recorder), "it is served although nobody uses it");
        }
    }
}
