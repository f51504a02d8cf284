//! Users who write as much as they can.
//!
//! Each is a process of its own. A file that is open in this one is flushed by every program that
//! another test starts, when what it has inherited is closed; and the flush waits for all that was
//! written.

use crate::common::text;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const MIB: usize = 1 << 20;
/// The file that such a process writes, and how far in MiB.
const PATH: &str = "AZEKURA_GREEDY_PATH";
const LENGTH: &str = "AZEKURA_GREEDY_MIB";

/// Writes and reads as fast as it gets, until it is dropped.
pub(crate) struct Greedy(Child);

impl Greedy {
    /// In the first `mib` MiB of a file, over and over.
    pub(crate) fn start(path: &Path, mib: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "greedy::it_writes_until_it_is_killed"]);
        command.env(PATH, text(path)).env(LENGTH, mib.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Ends it, which must not have ended by itself.
    pub(crate) fn stop(mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "it gave up");
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does so if somebody named a file.
#[test]
fn it_writes_until_it_is_killed() {
    let (Some(path), Some(mib)) = (std::env::var_os(PATH), std::env::var_os(LENGTH)) else {
        return;
    };
    let length = text(Path::new(&mib)).parse::<u64>().unwrap() * MIB as u64;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.open(path).unwrap();
    let mut data = vec![0xaa; MIB];
    for at in (0..).step_by(MIB) {
        file.write_all_at(&data, at % length).unwrap();
        if at.is_multiple_of(4 * MIB as u64) {
            file.read_exact_at(&mut data, at % length).unwrap();
        }
    }
}
