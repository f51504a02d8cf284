//! Whose word counts: the key of this user, keys that were named, and the first one met.
//!
//! What a repository says is signed. As with the keys of hosts in SSH, the first key that is met in
//! a repository is believed and remembered, one line for each in `known_disks`, and another one
//! later is refused; who wants to be sure from the beginning says `--key`.

use super::place::{Place, Way};
use crate::config::Config;
use crate::errors::{Context, Result};
use crate::output;
use ::disk::{DiskError, PublicKey, SigningKey, Trust};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

/// Keys of one repository, as far as they are known.
pub(super) struct Keys<'a> {
    config: &'a Config,
    place: String,
    known: Vec<PublicKey>,
}

impl<'a> Keys<'a> {
    /// Those of a repository; keys that were named are remembered.
    ///
    /// # Errors
    /// Of the file where they are kept.
    pub(super) fn of(config: &'a Config, place: &Place, way: &Way) -> Result<Self> {
        let place = place.to_string();
        let path = config.known_disks();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.context(path.display())?,
        };
        let mut keys = Self {
            config,
            known: known(&text, &place),
            place,
        };
        for key in &way.keys {
            if !keys.known.contains(key) {
                keys.remember(*key)?;
            }
        }
        Ok(keys)
    }

    /// The key with which this user signs; made if there is none.
    ///
    /// # Errors
    /// Of the file where it is kept.
    pub(super) fn own(&self) -> Result<SigningKey> {
        self.config.make_directory()?;
        Ok(SigningKey::open_or_create(&self.config.disk_key())?)
    }

    /// Whose records are believed.
    ///
    /// # Errors
    /// Of the file with one's own key.
    pub(super) fn trust(&self) -> Result<Trust> {
        let mut keys = self.known.clone();
        if self.config.disk_key().exists() {
            keys.push(self.own()?.public());
        }
        Ok(Trust::Keys(keys))
    }

    /// Does what reads records. If nobody of the repository is known yet, the first one is believed
    /// from now on; also if that is this user, so that nobody comes after him unseen.
    ///
    /// # Errors
    /// Those of the work.
    pub(super) fn believing<T>(
        &mut self,
        work: impl Fn(&Trust) -> Result<T, DiskError>,
    ) -> Result<T> {
        let trust = match self.known.is_empty() {
            true => Trust::Keys(Vec::new()),
            false => self.trust()?,
        };
        match work(&trust) {
            Err(DiskError::Untrusted { key, .. }) if self.known.is_empty() => {
                let is_own = self.config.disk_key().exists() && self.own()?.public() == key;
                self.remember(key)?;
                if !is_own {
                    output::note(format_args!(
                        "{} is signed by {key}, who is believed from now on",
                        self.place
                    ));
                }
                Ok(work(&self.trust()?)?)
            }
            outcome => Ok(outcome?),
        }
    }

    fn remember(&mut self, key: PublicKey) -> Result<()> {
        self.config.make_directory()?;
        let path = self.config.known_disks();
        // One write of a line, so that two processes do not mix theirs.
        let line = format!("{key} {}\n", self.place);
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.context(path.display())?;
        self.known.push(key);
        Ok(())
    }
}

/// The keys that a file names for a repository. Lines of another form are left to their author.
fn known(text: &str, place: &str) -> Vec<PublicKey> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter(|(_, of)| *of == place)
        .filter_map(|(key, _)| key.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_repository() {
        let (one, other) = ("11".repeat(32), "ab".repeat(32));
        let text = format!("# a remark\n{one} http://a\n{other} http://b c\nxy http://a\n");
        let keys = |place| {
            let keys = known(&text, place);
            keys.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(keys("http://a"), [one]);
        assert_eq!(keys("http://b c"), [other]);
        assert!(keys("http://b").is_empty());
    }
}
