//! Options as mount(8) and fstab write them: words separated by commas.

use crate::config::Span;
use std::path::PathBuf;
use std::str::FromStr;

/// What the words say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Options {
    pub(in crate::cli) read_only: bool,
    pub(in crate::cli) allow_other: bool,
    pub(in crate::cli) suid: bool,
    pub(in crate::cli) dev: bool,
    pub(in crate::cli) no_exec: bool,
    pub(in crate::cli) plain: bool,
    pub(in crate::cli) timeout: Option<Span>,
    pub(in crate::cli) log: Option<PathBuf>,
    /// What a reservation has given.
    pub(in crate::cli) ticket: Option<PathBuf>,
}

/// Words that mean something to mount(8), to the init system or to other file systems, and nothing
/// to us. `default_permissions` is always in force; access times are the server's.
const OTHERS: [&str; 23] = [
    "defaults",
    "default_permissions",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "async",
    "loud",
];
/// Beginnings of such words.
const OTHERS_PREFIXES: [&str; 5] = ["x-", "X-", "comment=", "uhelper=", "helper="];

/// A word that no part of the system knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::cli) enum OptionError {
    #[error("there is no mount option {0:?}")]
    Unknown(String),
    #[error("a volume cannot be remounted: unmount it, and mount it again with other options")]
    Remount,
    #[error("{option}: {why}")]
    Value { option: &'static str, why: String },
}

impl OptionError {
    /// Whether a mount that is to forgive unknown words can pass over it.
    pub(in crate::cli) fn is_forgiven(&self) -> bool {
        !matches!(self, Self::Remount)
    }
}

impl Options {
    /// Adds what `more` says; switches that are on stay on, later values replace earlier ones.
    pub(in crate::cli) fn merge(&mut self, more: Self) {
        self.read_only |= more.read_only;
        self.allow_other |= more.allow_other;
        self.suid |= more.suid;
        self.dev |= more.dev;
        self.no_exec |= more.no_exec;
        self.plain |= more.plain;
        self.timeout = more.timeout.or(self.timeout);
        self.log = more.log.or(self.log.take());
        self.ticket = more.ticket.or(self.ticket.take());
    }

    /// Reads one word.
    fn apply(&mut self, word: &str) -> Result<(), OptionError> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match (name, value) {
            ("ro", "") => self.read_only = true,
            ("rw", "") => self.read_only = false,
            ("allow_other", "") => self.allow_other = true,
            ("suid", "") => self.suid = true,
            ("nosuid", "") => self.suid = false,
            ("dev", "") => self.dev = true,
            ("nodev", "") => self.dev = false,
            ("exec", "") => self.no_exec = false,
            ("noexec", "") => self.no_exec = true,
            ("plain", "") => self.plain = true,
            ("remount", "") => return Err(OptionError::Remount),
            ("timeout", value) => {
                let wrong = |why| OptionError::Value {
                    option: "timeout",
                    why,
                };
                self.timeout = Some(value.parse().map_err(wrong)?);
            }
            ("ticket", value) if !value.is_empty() => self.ticket = Some(PathBuf::from(value)),
            ("log", value) if !value.is_empty() => self.log = Some(PathBuf::from(value)),
            _ if OTHERS.contains(&word) => {}
            _ if OTHERS_PREFIXES
                .iter()
                .any(|prefix| word.starts_with(prefix)) => {}
            _ => return Err(OptionError::Unknown(word.to_owned())),
        }
        Ok(())
    }
}

impl FromStr for Options {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            options.apply(word)?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_of_fstab_is_read() {
        let text = "ro,nosuid,nodev,allow_other,_netdev,nofail,timeout=10s,\
                    x-systemd.automount,x-systemd.requires=network-online.target,log=/var/log/x,\
                    ticket=/etc/run42.json";
        let expected = Options {
            read_only: true,
            allow_other: true,
            timeout: Some(Span(Duration::from_secs(10))),
            log: Some(PathBuf::from("/var/log/x")),
            ticket: Some(PathBuf::from("/etc/run42.json")),
            ..Options::default()
        };
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!("defaults".parse(), Ok(Options::default()));
        assert_eq!("".parse(), Ok(Options::default()));
    }

    #[test]
    fn later_words_go_before_earlier_ones() {
        let options: Options = "ro,suid,rw,nosuid,noexec".parse().expect("known words");
        assert!(!options.read_only && !options.suid && options.no_exec);
    }

    #[test]
    fn unknown_words_are_named() {
        let error = "ro,compress=9".parse::<Options>().expect_err("not ours");
        assert_eq!(error.to_string(), "there is no mount option \"compress=9\"");
        let error = "remount,ro".parse::<Options>().expect_err("not possible");
        assert_eq!(error, OptionError::Remount);
        for bad in ["timeout=soon", "ro=1", "log=", "ticket=", "allow-other"] {
            assert!(bad.parse::<Options>().is_err(), "{bad}");
        }
    }
}
