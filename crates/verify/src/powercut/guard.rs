//! The process that removes what a run has made, when the run ends, whatever it dies of.
//!
//! Guests die with the run by themselves; the images of their disks do not. If this process is
//! killed as well, the next run finds its notes.

use crate::actor::{ActorError, receive, send};
use crate::speed::{Ground, Notes, Undo, remove};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How often a directory is removed in which tools of the run may still be writing.
const TRIES: u32 = 50;
const TRIED_EVERY: Duration = Duration::from_millis(100);

/// The directory that was made for the run, or why there is none.
pub type Made = Result<PathBuf, String>;

/// Makes a directory within the one that `requests` name, says so, and removes it when they end.
///
/// # Errors
/// [`ActorError`] if the other side speaks another language.
pub fn serve(
    requests: &mut impl Read,
    answers: &mut impl Write,
    ground: Result<Ground, String>,
) -> Result<(), ActorError> {
    let scratch: PathBuf = receive(requests)?;
    let made = ground.and_then(|ground| {
        let made = make(&ground.directory, &scratch);
        made.map(|(notes, path)| (ground, notes, path))
            .map_err(|error| format!("{}: {error}", scratch.display()))
    });
    let answer: Made = match &made {
        Ok((_, _, path)) => Ok(path.clone()),
        Err(why) => Err(why.clone()),
    };
    let sent = send(answers, &answer);
    // Nothing more is asked for: this waits for the end.
    while sent.is_ok() && receive::<PathBuf>(requests).is_ok() {}
    if let Ok((ground, notes, path)) = made {
        clean_up(&ground.directory, notes, &path);
    }
    sent
}

fn make(directory: &Path, scratch: &Path) -> std::io::Result<(Notes, PathBuf)> {
    let mut notes = Notes::begin(directory)?;
    let name = directory.file_name().unwrap_or_default();
    // By this name it is known to be the run's.
    let mut path = scratch.join(name);
    if path == directory {
        path = path.join(name);
    }
    notes.take(Undo::Tree(path.clone()))?;
    fs::create_dir(&path)?;
    Ok((notes, path))
}

fn clean_up(directory: &Path, mut notes: Notes, path: &Path) {
    for _ in 0..TRIES {
        match fs::remove_dir_all(path) {
            Err(_) if path.exists() => thread::sleep(TRIED_EVERY),
            _ => break,
        }
    }
    // Without its notes nobody could try again.
    if notes.undo().is_empty() {
        remove(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_has_made_is_gone_when_it_is() {
        let parent = std::env::temp_dir().join(format!("guard-{}", std::process::id()));
        let directory = parent.join("azekura-verify-x1");
        fs::create_dir_all(&directory).unwrap();
        for scratch in [parent.clone(), parent.join("scratch")] {
            fs::create_dir_all(&directory).unwrap();
            fs::create_dir_all(&scratch).unwrap();
            let mut input = Vec::new();
            send(&mut input, &scratch).unwrap();
            let mut output = Vec::new();
            let ground = Ground {
                directory: directory.clone(),
                locks: Vec::new(),
            };
            serve(&mut input.as_slice(), &mut output, Ok(ground)).unwrap();
            let made = receive::<Made>(&mut output.as_slice()).unwrap().unwrap();
            assert!(made.starts_with(&scratch) && !made.exists(), "{made:?}");
            assert!(!directory.exists());
        }
        fs::remove_dir_all(&parent).unwrap();
    }
}
