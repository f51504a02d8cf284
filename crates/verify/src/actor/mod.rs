//! The process that touches the file system under judgement, seen from the run.
//!
//! It is asked and answers over its standard input and output, one message at a time: a length of
//! four bytes, little-endian, then postcard. When its input ends, whatever the reason, it takes off
//! what it mounted and attached and ends ([`serve()`]). So nothing stays behind as long as one of
//! the two processes can still do something; what is left if both are killed at once is found by
//! [`stale()`] at the next start.

mod look;
mod loops;
mod options;
mod serve;
mod stale;

pub use look::look;
pub use loops::Loop;
pub use options::check_mount_options;
pub use serve::{Kernel, Underneath, output, serve};
pub use stale::{RUN_PREFIX, RunLock, Stale, lock_run, loops_of, share_run, stale};

use crate::oracle::Entry;
use crate::workload::Step;
use base::limits::{VERIFY_END_TIME_MAX, VERIFY_MESSAGE_BYTES_MAX, VERIFY_STEP_TIME_MAX};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Which of its devices an actor is to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// The one whose writes are recorded.
    #[default]
    Recorded,
    /// The one for crash states of whose recovery nothing is recorded.
    States,
}

/// What an actor is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Make a loop device of a file.
    Attach {
        /// The file.
        file: PathBuf,
        /// The run's directory, which is in use until it has ended. What it mounts is there.
        directory: PathBuf,
    },
    /// Make another loop device of a file, for crash states.
    AttachStates {
        /// The file.
        file: PathBuf,
    },
    /// Say whether a file has this length: by it another program shows the device.
    Shows {
        /// The file.
        file: PathBuf,
        /// The length.
        len_bytes: u64,
    },
    /// Forget what the page cache has of the file in which another program shows the device.
    Forget {
        /// The file.
        file: PathBuf,
    },
    /// Run a tool on the device: `{}` among its arguments stands for it.
    Tool(Tool),
    /// Mount the device.
    Mount(MountAs),
    /// Unmount it.
    Unmount,
    /// Do a step in it.
    Run(Step),
    /// Repair, mount, look, unmount.
    Try {
        /// On which device.
        device: Device,
        /// Tools that are to run before it is mounted.
        repair: Vec<Tool>,
        /// How to mount.
        mount: MountAs,
        /// Databases, which are looked at as such.
        databases: Vec<String>,
    },
}

/// A program of the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub program: String,
    /// Its arguments; `{}` stands for the device.
    pub arguments: Vec<String>,
    /// The highest exit code that is no failure.
    pub code_max: i32,
}

/// How to mount a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountAs {
    /// The type of the file system.
    pub fs_type: String,
    /// Options as of mount(8), with commas between.
    pub options: String,
}

/// What an actor answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// It could not be done; in words.
    Failed(String),
    /// A try: what was found.
    Found(Vec<Entry>),
    /// A try: it cannot be mounted, or not be repaired; in words.
    Unmountable(String),
}

/// Why an actor is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum ActorError {
    /// It could not be started, or the pipe to it broke.
    #[error("the process that uses the file system: {0}")]
    Io(#[from] io::Error),
    /// It takes longer than anything may.
    #[error("the file system has not answered for {} s", .0.as_secs())]
    Silent(Duration),
    /// It has ended.
    #[error("the process that uses the file system has ended")]
    Ended,
    /// It said something else than an answer.
    #[error("the process that uses the file system does not answer as one")]
    Garbled,
    /// It answered that something could not be done that must be possible.
    #[error("{0}")]
    Failed(String),
    /// Who asked does not want to wait any more.
    #[error("interrupted")]
    Interrupted,
}

/// How often somebody who waits for an answer is asked whether it is still wanted.
const ASKED_EVERY: Duration = Duration::from_millis(50);
/// How long one that is killed may take to end: what it has mounted is written back and taken off.
const KILLED_TIME_MAX: Duration = Duration::from_secs(5);

/// An actor that runs, and what it answers. Dropping it lets it clean up.
#[derive(Debug)]
pub struct Actor<A = Answer> {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Result<A, ActorError>>,
    /// How long it may take to clean up.
    end_time_max: Duration,
}

impl<A: DeserializeOwned + Send + 'static> Actor<A> {
    /// Starts `command`, which must serve requests on its standard input.
    ///
    /// # Errors
    /// Of starting it.
    pub fn start(command: &mut Command) -> Result<Self, ActorError> {
        use std::os::unix::process::CommandExt;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the run, which then lets the actor clean up.
            .process_group(0)
            .spawn()?;
        let requests = child.stdin.take();
        let mut answers_out = child.stdout.take().expect("it was piped");
        let (sender, answers) = sync_channel(1);
        thread::Builder::new()
            .name("verify-answers".to_owned())
            .spawn(move || {
                loop {
                    let answer = receive(&mut answers_out);
                    let is_end = answer.is_err();
                    if sender.send(answer).is_err() || is_end {
                        return;
                    }
                }
            })?;
        Ok(Self {
            child,
            requests,
            answers,
            end_time_max: VERIFY_END_TIME_MAX,
        })
    }

    /// Gives it so long to clean up at its end.
    pub fn end_within(&mut self, time: Duration) {
        self.end_time_max = time;
    }

    /// Asks for something and waits for the answer, at most for `limit`, and only while it is
    /// wanted.
    ///
    /// # Errors
    /// [`ActorError`], after which it is of no use.
    pub fn ask_while(
        &mut self,
        request: &impl Serialize,
        limit: Duration,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<A, ActorError> {
        let requests = self.requests.as_mut().ok_or(ActorError::Ended)?;
        send(requests, request)?;
        let deadline = Instant::now() + limit;
        loop {
            match self.answers.recv_timeout(ASKED_EVERY) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err(ActorError::Ended),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Err(ActorError::Silent(limit));
                }
                Err(RecvTimeoutError::Timeout) if !is_wanted() => {
                    return Err(ActorError::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Actor {
    /// Asks for something and waits for the answer.
    ///
    /// # Errors
    /// [`ActorError`], after which it is of no use.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ActorError> {
        self.ask_while(request, VERIFY_STEP_TIME_MAX, &mut || true)
    }

    /// Asks for something that must be possible.
    ///
    /// # Errors
    /// [`ActorError`]; [`ActorError::Failed`] if it is not possible.
    pub fn must(&mut self, request: &Request) -> Result<(), ActorError> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            Answer::Failed(why) => Err(ActorError::Failed(why)),
            _ => Err(ActorError::Garbled),
        }
    }
}

impl<A> Actor<A> {
    /// Whether it ends in this time.
    fn ends_within(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

impl<A> Drop for Actor<A> {
    fn drop(&mut self) {
        // The end of its input lets it clean up and end.
        self.requests = None;
        if !self.ends_within(self.end_time_max) {
            // It cannot be helped; what it leaves is for the run to take away, or for the next one.
            let _ = self.child.kill();
            let _ = self.ends_within(KILLED_TIME_MAX);
        }
    }
}

/// Sends one message.
pub(crate) fn send(out: &mut impl Write, message: &impl Serialize) -> Result<(), ActorError> {
    let body = postcard::to_stdvec(message).map_err(|_| ActorError::Garbled)?;
    if body.len() > VERIFY_MESSAGE_BYTES_MAX {
        return Err(ActorError::Garbled);
    }
    let len = u32::try_from(body.len()).map_err(|_| ActorError::Garbled)?;
    out.write_all(&len.to_le_bytes())?;
    out.write_all(&body)?;
    out.flush()?;
    Ok(())
}

/// Receives one message.
pub(crate) fn receive<M: DeserializeOwned>(input: &mut impl Read) -> Result<M, ActorError> {
    let mut len = [0; 4];
    match input.read_exact(&mut len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(ActorError::Ended);
        }
        outcome => outcome?,
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > VERIFY_MESSAGE_BYTES_MAX {
        return Err(ActorError::Garbled);
    }
    // As much memory as really comes.
    let mut body = Vec::new();
    input.take(len as u64).read_to_end(&mut body)?;
    if body.len() < len {
        return Err(ActorError::Ended);
    }
    postcard::from_bytes(&body).map_err(|_| ActorError::Garbled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::EntryKind;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let request = Request::Run(Step::Sync);
        let mut bytes = Vec::new();
        send(&mut bytes, &request).unwrap();
        send(&mut bytes, &Request::Unmount).unwrap();
        let mut input = bytes.as_slice();
        assert_eq!(receive::<Request>(&mut input).unwrap(), request);
        assert_eq!(receive::<Request>(&mut input).unwrap(), Request::Unmount);
        let end = receive::<Request>(&mut input).unwrap_err();
        assert!(matches!(end, ActorError::Ended));
    }

    #[test]
    fn contents_travel_as_bytes() {
        let entry = |kind| Entry {
            path: "A/foo".into(),
            kind,
        };
        let content = vec![0xff; 1000];
        let found = vec![
            entry(EntryKind::File(content)),
            entry(EntryKind::Unreadable("why".into())),
        ];
        let mut bytes = Vec::new();
        send(&mut bytes, &Answer::Found(found.clone())).unwrap();
        assert!(bytes.len() < 1050, "{}", bytes.len());
        let answer = receive::<Answer>(&mut bytes.as_slice()).unwrap();
        assert_eq!(answer, Answer::Found(found));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let too_long = u32::MAX.to_le_bytes();
        let error = receive::<Request>(&mut too_long.as_slice()).unwrap_err();
        assert!(matches!(error, ActorError::Garbled));
        let cut = [3, 0, 0, 0, 1];
        let error = receive::<Request>(&mut cut.as_slice()).unwrap_err();
        assert!(matches!(error, ActorError::Ended));
        let garbled = [1, 0, 0, 0, 99];
        let error = receive::<Request>(&mut garbled.as_slice()).unwrap_err();
        assert!(matches!(error, ActorError::Garbled));
    }

    #[test]
    fn an_actor_that_ends_is_noticed() {
        let mut actor: Actor = Actor::start(&mut Command::new("true")).unwrap();
        let outcome = actor.ask(&Request::Unmount);
        assert!(outcome.is_err(), "{outcome:?}");
    }

    #[test]
    fn who_does_not_want_to_wait_any_more_does_not() {
        let mut silent = Command::new("sleep");
        let mut actor: Actor = Actor::start(silent.arg("60")).unwrap();
        // It does not read, and so does not notice the end of its input.
        actor.end_within(Duration::from_millis(1));
        let mut asked = 0;
        let outcome = actor.ask_while(&Request::Unmount, VERIFY_STEP_TIME_MAX, &mut || {
            asked += 1;
            asked < 3
        });
        assert!(matches!(outcome, Err(ActorError::Interrupted)));
        let outcome = actor.ask_while(&Request::Unmount, Duration::from_millis(1), &mut || true);
        assert!(matches!(outcome, Err(ActorError::Silent(_))));
    }
}
