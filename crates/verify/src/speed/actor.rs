//! What the process that acts is asked for, and its loop.
//!
//! It is a process of its own for the same reason as that of a crash run: when its input ends,
//! whatever the run died of, it stops the program that measures and takes everything back. While
//! a program measures it listens for that end.

use super::keeper::{Ground, Keeper};
use super::machine::Ticks;
use super::tunable::Setting;
use super::work::Job;
use crate::actor::{ActorError, MountAs, Tool, receive, send};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// What it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Whether it can be asked for anything.
    Begin,
    /// Make a file of this length in this directory, and a loop device of it.
    Attach {
        /// Where.
        scratch: PathBuf,
        /// How long.
        len_bytes: u64,
    },
    /// Use this block device, of which the user has said that it may be destroyed.
    Take(PathBuf),
    /// Run a tool on the device.
    Tool(Tool),
    /// Mount the device.
    Mount(MountAs),
    /// Make a directory to work in: in this one, or where the device is mounted.
    Enter(Option<PathBuf>),
    /// Set these parameters, and no others.
    Tune(Vec<Setting>),
    /// Give what is run so much memory.
    Bound(u64),
    /// Write what is in memory of files, and forget it.
    Forget,
    /// Run a program in the directory.
    Run(Job),
    /// Remove what is in the directory.
    Clear,
    /// Take everything back but the device.
    Reset,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// It could not be done; in words.
    Failed(String),
    /// Another run measures on this machine.
    Busy,
    /// A program has ended well.
    Ran(Ran),
}

/// A program that has ended well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// What it printed.
    pub said: String,
    /// How long it ran.
    pub time: Duration,
    /// Processor time that it took in its own code.
    pub user: Duration,
    /// And in the kernel.
    pub system: Duration,
    /// What the processors did meanwhile.
    pub ticks: Ticks,
}

/// Why it does nothing.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// Another run measures on this machine.
    Busy,
    /// Something of the machine; in words.
    Failed(String),
}

/// Does what `requests` ask for until they end, and then takes everything back.
///
/// # Errors
/// [`ActorError`] if the other side speaks another language or is gone in the middle.
pub fn serve(
    requests: impl Read + Send + 'static,
    answers: &mut impl Write,
    ground: Result<Ground, Refusal>,
) -> Result<(), ActorError> {
    let requests = listen(requests)?;
    let mut keeper = match ground {
        Ok(ground) => Keeper::new(ground).map_err(|error| Refusal::Failed(error.to_string())),
        Err(refusal) => Err(refusal),
    };
    while let Ok(request) = requests.recv() {
        let request = request?;
        let answer = match &mut keeper {
            Ok(keeper) => match keeper.answer(request, &requests) {
                Some(answer) => answer,
                // The run is gone, and its program was stopped.
                None => return Ok(()),
            },
            Err(Refusal::Busy) => Answer::Busy,
            Err(Refusal::Failed(why)) => Answer::Failed(why.clone()),
        };
        send(answers, &answer)?;
    }
    Ok(())
}

/// Requests as they come, from a thread: the end of the input is noticed whenever it comes.
fn listen(
    mut requests: impl Read + Send + 'static,
) -> Result<Receiver<Result<Request, ActorError>>, ActorError> {
    let (sender, receiver) = channel();
    thread::Builder::new()
        .name("verify-requests".to_owned())
        .spawn(move || {
            loop {
                let request = match receive(&mut requests) {
                    Err(ActorError::Ended) => return,
                    request => request,
                };
                let is_end = request.is_err();
                if sender.send(request).is_err() || is_end {
                    return;
                }
            }
        })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn asked(requests: &[Request], ground: Result<Ground, Refusal>) -> Vec<Answer> {
        let mut input = Vec::new();
        for request in requests {
            send(&mut input, request).unwrap();
        }
        let mut output = Vec::new();
        serve(Cursor::new(input), &mut output, ground).unwrap();
        let mut output = output.as_slice();
        std::iter::from_fn(|| receive(&mut output).ok()).collect()
    }

    #[test]
    fn who_may_not_begin_does_nothing() {
        let all = [Request::Begin, Request::Forget];
        assert_eq!(
            asked(&all, Err(Refusal::Busy)),
            [Answer::Busy, Answer::Busy]
        );
        let failed = Answer::Failed("no room".to_owned());
        let answers = asked(&all[..1], Err(Refusal::Failed("no room".to_owned())));
        assert_eq!(answers, [failed]);
    }
}
