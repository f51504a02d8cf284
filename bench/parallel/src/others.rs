//! Users who take what they get: half of them write, half of them read, with no break and past the
//! page cache.

use crate::data::{CALL_BYTES, open_direct};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// Length of each user's file.
pub(crate) const FILE_BYTES: u64 = 64 << 20;
/// Writers make durable what they wrote after so many calls.
const CALLS_DURABLE: u64 = 16;

fn path(directory: &Path, user: usize) -> PathBuf {
    directory.join(format!("greedy-{user}"))
}

/// Makes their files.
pub(crate) fn prepare(directory: &Path, users: usize) -> Result<()> {
    for user in 0..users {
        crate::data::write(&path(directory, user), user as u64, FILE_BYTES)?;
    }
    Ok(())
}

/// The process of all of them: until killed.
pub(crate) fn take(directory: &Path, users: usize) -> Result<()> {
    let files = (0..users).map(|user| open_direct(&path(directory, user)));
    let files = files.collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let users: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(user, file)| scope.spawn(move || take_one(file, user as u64)))
            .collect();
        for user in users {
            let Ok(outcome) = user.join() else {
                bail!("a user panicked");
            };
            outcome?;
        }
        Ok(())
    })
}

fn take_one(file: &File, user: u64) -> Result<()> {
    let mut buffer = vec![0x5a; CALL_BYTES as usize];
    for call in 0_u64.. {
        let place = figures::spread(user << 32 | call) % (FILE_BYTES / CALL_BYTES);
        let offset = place * CALL_BYTES;
        if user.is_multiple_of(2) {
            file.read_exact_at(&mut buffer, offset).context("reading")?;
            continue;
        }
        crate::data::fill(&mut buffer, user, offset);
        file.write_all_at(&buffer, offset).context("writing")?;
        if call % CALLS_DURABLE == 0 {
            file.sync_data().context("making it durable")?;
        }
    }
    Ok(())
}

/// Their process, ended when dropped.
pub(crate) struct Others(Child);

impl Others {
    /// They stand for other machines, whose processors are not the server's.
    pub(crate) fn start(directory: &Path, users: usize) -> Result<Self> {
        let program = std::env::current_exe()?;
        let child = Command::new("nice")
            .args(["-n", "10"])
            .arg(program)
            .args(["--azekura", "none", "--users", &users.to_string()])
            .arg("--greedy")
            .arg(directory)
            .stdin(Stdio::null())
            .spawn()
            .context("starting other users")?;
        Ok(Self(child))
    }

    /// Ends them; an error if they had ended before.
    pub(crate) fn end(mut self) -> Result<()> {
        if let Some(status) = self.0.try_wait()? {
            bail!("the other users had ended before: {status}");
        }
        Ok(())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        match self.0.kill() {
            Err(error) if error.kind() != ErrorKind::InvalidInput => {}
            _ => drop(self.0.wait()),
        }
    }
}
