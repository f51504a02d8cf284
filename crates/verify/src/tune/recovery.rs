//! The recovery rate: files are written and closed, nobody asks for them to be durable, and power
//! is lost some seconds later.
//!
//! It is the paper's table 5 on a device in memory: what the device has been given by the moment
//! of the loss is there, as on a disk without a cache of its own, and everything else was in the
//! machine's memory. The file system is mounted as after a crash, and the content of each file is
//! compared, block by block: a file of the right length that has zeros has not been recovered.
//! That something is missing is no fault of a file system: nothing was promised.

use crate::actor::{Actor, ActorError, Answer, Device, Request};
use crate::crash::{CrashError, Stage, Target};
use crate::oracle::{Entry, EntryKind};
use crate::speed::Cell;
use crate::workload::{Step, content};
use sim::Image;
use std::thread;
use std::time::{Duration, Instant};

/// In what pieces contents are compared: a page.
const BLOCK_BYTES: usize = 4096;
/// How often somebody who waits for the next loss of power is asked whether it is still wanted.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// How many files.
    pub files: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// When power is lost, after the last of them is closed: from the shortest on.
    pub waits: Vec<Duration>,
}

/// What was there after one loss of power.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// How long after the last write.
    pub wait: Duration,
    /// Share of the bytes, 0 to 1, that were there and right.
    pub bytes: f64,
    /// Files that were there, whole and right.
    pub whole_files: u64,
    /// Whether the file system could be mounted at all.
    pub is_mountable: bool,
}

/// One repeat: the same writes, cut at several moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// In the order of their waits.
    pub cuts: Vec<Cut>,
}

impl Recovered {
    /// The mean over all moments.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let sum: f64 = self.cuts.iter().map(|cut| cut.bytes).sum();
        sum / self.cuts.len().max(1) as f64
    }
}

fn path(number: u64) -> String {
    format!("file{number}")
}

/// What every file of a repeat is made from: no two are alike.
fn tag(repeat: u64, number: u64) -> u64 {
    ((repeat + 1) << 32) | number
}

/// Writes, loses power at each of the moments, and looks what is there. The parameters of the
/// kernel are set by whoever calls.
///
/// # Errors
/// [`CrashError`] if it cannot go on; [`ActorError::Interrupted`] if it is not wanted any more.
pub fn recover(
    target: Target,
    stage: &mut Stage<'_>,
    cell: &Cell,
    written: &Written,
    repeat: u64,
    is_wanted: &mut dyn FnMut() -> bool,
) -> Result<Recovered, CrashError> {
    let mount = target.mount_as(&cell.options(target));
    stage.medium.load(Image::new(target.device_bytes()));
    let actor = &mut *stage.actor;
    actor.must(&Request::Tool(target.make()))?;
    actor.must(&Request::Mount(mount.clone()))?;
    settle(actor)?;
    for number in 0..written.files {
        write(actor, number, written.bytes, tag(repeat, number))?;
    }
    let started = Instant::now();
    let mut images = Vec::new();
    for wait in &written.waits {
        while let Some(left) = wait.checked_sub(started.elapsed()) {
            if !is_wanted() {
                return Err(ActorError::Interrupted.into());
            }
            thread::sleep(left.min(ASKED_EVERY));
        }
        images.push((*wait, stage.medium.image()));
    }
    actor.must(&Request::Unmount)?;
    let mut cuts = Vec::new();
    for (wait, image) in images {
        stage.medium.load(image);
        let attempt = Request::Try {
            device: Device::Recorded,
            repair: target.repair(),
            mount: mount.clone(),
            databases: Vec::new(),
        };
        let cut = match actor.ask(&attempt)? {
            Answer::Found(found) => judge(&found, wait, written, repeat),
            Answer::Unmountable(_) => Cut {
                wait,
                bytes: 0.0,
                whole_files: 0,
                is_mountable: false,
            },
            Answer::Failed(why) => return Err(ActorError::Failed(why).into()),
            Answer::Done => return Err(ActorError::Garbled.into()),
        };
        cuts.push(cut);
    }
    Ok(Recovered { cuts })
}

/// Has the kernel look at the device now. It would do so for the first time when the flush time of
/// the cell before has gone by, which was asked for when something there became dirty; a sync that
/// has pages to write ends that.
fn settle(actor: &mut Actor) -> Result<(), ActorError> {
    write_to(actor, "settled".to_owned(), BLOCK_BYTES as u64, 0)?;
    actor.must(&Request::Run(Step::Sync))
}

fn write(actor: &mut Actor, number: u64, len: u64, tag: u64) -> Result<(), ActorError> {
    write_to(actor, path(number), len, tag)
}

fn write_to(actor: &mut Actor, path: String, len: u64, tag: u64) -> Result<(), ActorError> {
    actor.must(&Request::Run(Step::Create { path: path.clone() }))?;
    actor.must(&Request::Run(Step::Write {
        path,
        offset: 0,
        len,
        tag,
    }))
}

/// What of the files is among what was found.
fn judge(found: &[Entry], wait: Duration, written: &Written, repeat: u64) -> Cut {
    let (mut right, mut whole_files) = (0, 0);
    for number in 0..written.files {
        let path = path(number);
        let Some(entry) = found.iter().find(|entry| entry.path == path) else {
            continue;
        };
        let EntryKind::File(is) = &entry.kind else {
            continue;
        };
        let should = content(tag(repeat, number), written.bytes);
        let blocks = should.chunks(BLOCK_BYTES).zip(is.chunks(BLOCK_BYTES));
        right += blocks
            .filter(|(should, is)| should == is)
            .map(|(should, _)| should.len() as u64)
            .sum::<u64>();
        whole_files += u64::from(*is == should);
    }
    let all = (written.files * written.bytes).max(1);
    Cut {
        wait,
        bytes: right as f64 / all as f64,
        whole_files,
        is_mountable: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Written {
        Written {
            files: 4,
            bytes: 2 * BLOCK_BYTES as u64,
            waits: vec![Duration::ZERO],
        }
    }

    fn entry(number: u64, bytes: Vec<u8>) -> Entry {
        Entry {
            path: path(number),
            kind: EntryKind::File(bytes),
        }
    }

    #[test]
    fn only_what_has_the_right_content_is_recovered() {
        let all = |number| content(tag(3, number), written().bytes);
        let mut half = all(1);
        half[BLOCK_BYTES..].fill(0);
        let found = [
            entry(0, all(0)),
            entry(1, half),
            entry(2, vec![0; 2 * BLOCK_BYTES]),
            // Of another repeat.
            entry(3, content(tag(2, 3), written().bytes)),
        ];
        let cut = judge(&found, Duration::ZERO, &written(), 3);
        assert_eq!((cut.whole_files, cut.bytes), (1, 3.0 / 8.0));
        let nothing = judge(&[], Duration::ZERO, &written(), 3);
        assert_eq!((nothing.whole_files, nothing.bytes), (0, 0.0));
        let shorter = [entry(0, all(0)[..BLOCK_BYTES + 100].to_vec())];
        assert_eq!(judge(&shorter, Duration::ZERO, &written(), 3).bytes, 0.125);
    }

    #[test]
    fn a_rate_is_the_mean_of_its_moments() {
        let cut = |bytes| Cut {
            wait: Duration::ZERO,
            bytes,
            whole_files: 0,
            is_mountable: true,
        };
        let recovered = Recovered {
            cuts: vec![cut(0.0), cut(0.5), cut(1.0)],
        };
        assert_eq!(recovered.rate(), 0.5);
        assert_eq!(Recovered::default().rate(), 0.0);
    }
}
