//! A program that does random things to the names, and notes what it was answered.

use crate::history::{
    Action, Attributes, CLIENTS, NAMES, Operation, Outcome, Renaming, Slot, Text,
};
use crate::random::Random;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::{self, Errno};
use std::path::{Path, PathBuf};
use std::time::Instant;

const XATTR: &str = "user.note";
/// What attributes can be set to: all allow root everything, and set-id bits would come and go.
const MODES: [u16; 8] = [0o600, 0o640, 0o604, 0o644, 0o700, 0o740, 0o704, 0o744];
const SIZES: [usize; 5] = [0, 3, 6, 9, 12];
/// More is never in a file: appends are few between truncations.
const READ_BYTES_MAX: usize = 4096;

pub(crate) fn spelled(name: Slot) -> String {
    format!("name{name}")
}

/// One thread on one machine.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) client: usize,
    pub(crate) random: Random,
    /// The directory, as this machine has it.
    pub(crate) directory: PathBuf,
    /// Makes each text unlike any other.
    pub(crate) texts: u32,
}

impl Actor {
    /// Does so many operations.
    pub(crate) fn work(&mut self, count: usize) -> Vec<Operation> {
        (0..count).map(|_| self.operate()).collect()
    }

    fn operate(&mut self) -> Operation {
        let action = self.choose();
        let mut marks = vec![Instant::now()];
        let outcome = match act(&self.directory, &action, &mut marks) {
            Ok(outcome) => outcome,
            Err(Errno::NOENT) if marks.len() == 1 => Outcome::NotFound,
            Err(Errno::EXIST) if marks.len() == 1 => Outcome::Exists,
            Err(Errno::STALE) if marks.len() == 1 => Outcome::Stale,
            Err(error) => Outcome::Failed(error.to_string()),
        };
        marks.push(Instant::now());
        Operation {
            client: self.client,
            action,
            outcome,
            marks,
        }
    }

    fn choose(&mut self) -> Action {
        let name = self.random.below(NAMES as u64) as Slot;
        let from = name;
        let to = self.random.below(NAMES as u64) as Slot;
        let mode = MODES[self.random.below(MODES.len() as u64) as usize];
        let text = self.text();
        match self.random.below(32) {
            0..=3 => Action::Create { name, mode },
            4 => Action::Unlink { name },
            5 | 6 => Action::Rename {
                from,
                to,
                renaming: Renaming::Replace,
            },
            7 => Action::Rename {
                from,
                to,
                renaming: Renaming::NoReplace,
            },
            8 => Action::Rename {
                from,
                to,
                renaming: Renaming::Exchange,
            },
            9 | 10 => Action::Link { from, to },
            11 | 12 => Action::Chmod { name, mode },
            13 => {
                let size = SIZES[self.random.below(SIZES.len() as u64) as usize];
                Action::Truncate { name, size }
            }
            14 => {
                let value = self.random.below(256) as u8;
                Action::SetXattr { name, value }
            }
            15 | 16 => Action::GetXattr { name },
            17..=20 => Action::Stat { name },
            21..=24 => Action::Read { name },
            25 | 26 => {
                let empty = self.random.below(2) == 0;
                Action::Overwrite { name, empty, text }
            }
            27 | 28 => Action::Append { name, text },
            _ => Action::List,
        }
    }

    fn text(&mut self) -> Text {
        self.texts += 1;
        let mut text = [self.random.below(256) as u8; 6];
        text[..4].copy_from_slice(&(self.texts * CLIENTS as u32).to_le_bytes());
        text[5] = self.client as u8;
        text
    }
}

/// Does it; notes when each call but the last returned.
fn act(directory: &Path, action: &Action, marks: &mut Vec<Instant>) -> io::Result<Outcome> {
    let path = |name: Slot| directory.join(spelled(name));
    match action {
        Action::Create { name, mode } => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            fs::open(path(*name), flags, Mode::from_raw_mode((*mode).into()))?;
        }
        Action::Unlink { name } => fs::unlink(path(*name))?,
        Action::Rename { from, to, renaming } => {
            let flags = match renaming {
                Renaming::Replace => RenameFlags::empty(),
                Renaming::NoReplace => RenameFlags::NOREPLACE,
                Renaming::Exchange => RenameFlags::EXCHANGE,
            };
            fs::renameat_with(CWD, path(*from), CWD, path(*to), flags)?;
        }
        Action::Link { from, to } => {
            fs::linkat(CWD, path(*from), CWD, path(*to), AtFlags::empty())?;
        }
        Action::Chmod { name, mode } => {
            fs::chmod(path(*name), Mode::from_raw_mode((*mode).into()))?;
        }
        Action::Truncate { name, size } => truncate(&path(*name), *size)?,
        Action::SetXattr { name, value } => {
            fs::setxattr(path(*name), XATTR, &[*value], XattrFlags::empty())?;
        }
        Action::GetXattr { name } => return get_xattr(&path(*name)),
        Action::Stat { name } => {
            let stat = fs::stat(path(*name))?;
            return Ok(Outcome::Attributes(Attributes {
                mode: (stat.st_mode & 0o7777) as u16,
                links: u8::try_from(stat.st_nlink).unwrap_or(u8::MAX),
                size: usize::try_from(stat.st_size).unwrap_or(usize::MAX),
            }));
        }
        Action::Read { name } => {
            let file = fs::open(path(*name), OFlags::RDONLY, Mode::empty())?;
            let mut bytes = vec![0; READ_BYTES_MAX];
            let count = io::read(&file, &mut bytes)?;
            bytes.truncate(count);
            return Ok(Outcome::Bytes(bytes));
        }
        Action::Overwrite { name, empty, text } => {
            let flags = if *empty {
                OFlags::WRONLY | OFlags::TRUNC
            } else {
                OFlags::WRONLY
            };
            write(&path(*name), flags, text, marks)?;
        }
        Action::Append { name, text } => {
            write(&path(*name), OFlags::WRONLY | OFlags::APPEND, text, marks)?;
        }
        Action::List => return list(directory),
    }
    Ok(Outcome::Done)
}

/// `truncate(2)`, which is one call, unlike opening first.
fn truncate(path: &Path, size: usize) -> io::Result<()> {
    nix::unistd::truncate(path, size as i64).map_err(|error| Errno::from_raw_os_error(error as i32))
}

fn get_xattr(path: &Path) -> io::Result<Outcome> {
    let mut value = [0_u8; 1];
    match fs::getxattr(path, XATTR, &mut value) {
        Ok(1) => Ok(Outcome::Xattr(Some(value[0]))),
        Ok(_) => Err(Errno::RANGE),
        Err(Errno::NODATA) => Ok(Outcome::Xattr(None)),
        Err(error) => Err(error),
    }
}

fn write(path: &Path, flags: OFlags, text: &Text, marks: &mut Vec<Instant>) -> io::Result<()> {
    let file = fs::open(path, flags, Mode::empty())?;
    marks.push(Instant::now());
    let count = io::write(&file, text)?;
    if count != text.len() {
        return Err(Errno::IO);
    }
    marks.push(Instant::now());
    // Not by dropping it: `close` reports what became of the write.
    nix::unistd::close(file).map_err(|error| Errno::from_raw_os_error(error as i32))
}

fn list(directory: &Path) -> io::Result<Outcome> {
    let mut names = [false; NAMES];
    let file = fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    for entry in fs::Dir::new(file)? {
        let entry = entry?;
        let found =
            (0..NAMES).find(|name| spelled(*name).as_bytes() == entry.file_name().to_bytes());
        match found {
            Some(name) if names[name] => return Ok(Outcome::Failed("listed twice".to_owned())),
            Some(name) => names[name] = true,
            None if entry.file_name().to_bytes().starts_with(b".") => {}
            None => return Ok(Outcome::Failed(format!("listed {:?}", entry.file_name()))),
        }
    }
    Ok(Outcome::Names(names))
}
