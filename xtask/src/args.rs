//! Command-line arguments.
//!
//! A caller takes what it knows and then calls [`Args::finish`], which refuses what is left: a
//! mistyped option is an error, never ignored.

use anyhow::{Context, Result, bail};
use std::str::FromStr;

/// The arguments not yet taken.
pub(crate) struct Args(Vec<String>);

impl Args {
    pub(crate) fn new(words: Vec<String>) -> Self {
        Self(words)
    }

    /// Takes the first argument, whatever it looks like.
    pub(crate) fn take_word(&mut self) -> Option<String> {
        if self.0.is_empty() {
            None
        } else {
            Some(self.0.remove(0))
        }
    }

    /// Takes `--name` if it is there.
    pub(crate) fn take_flag(&mut self, name: &str) -> bool {
        let position = self.0.iter().position(|word| word == name);
        position.map(|at| self.0.remove(at)).is_some()
    }

    /// Takes `--name VALUE` or `--name=VALUE`.
    pub(crate) fn take_value<T>(&mut self, name: &str) -> Result<Option<T>>
    where
        T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
    {
        let text = if let Some(at) = self.0.iter().position(|word| word == name) {
            self.0.remove(at);
            if at == self.0.len() {
                bail!("{name} needs a value");
            }
            self.0.remove(at)
        } else {
            let prefix = format!("{name}=");
            let Some(at) = self.0.iter().position(|word| word.starts_with(&prefix)) else {
                return Ok(None);
            };
            self.0.remove(at)[prefix.len()..].to_owned()
        };
        let value = text.parse().with_context(|| format!("{name} {text:?}"))?;
        Ok(Some(value))
    }

    /// Everything that is left, as it stands: for a program called in turn.
    pub(crate) fn take_rest(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }

    /// The words that are left; an option among them is one that nobody knows.
    pub(crate) fn finish(self) -> Result<Vec<String>> {
        match self.0.iter().find(|word| word.starts_with('-')) {
            Some(option) => bail!("unknown option {option}"),
            None => Ok(self.0),
        }
    }

    /// For commands that take no words.
    pub(crate) fn finish_empty(self) -> Result<()> {
        match self.finish()?.first() {
            Some(word) => bail!("unexpected argument {word:?}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_stand_anywhere_and_in_two_forms() {
        let mut args = args("fsx --seeds 3 --operations=50 --fast apps");
        assert_eq!(args.take_value("--seeds").unwrap(), Some(3_u32));
        assert_eq!(args.take_value("--operations").unwrap(), Some(50_u64));
        assert_eq!(args.take_value::<u32>("--seconds").unwrap(), None);
        assert!(args.take_flag("--fast"));
        assert!(!args.take_flag("--fast"));
        assert_eq!(args.finish().unwrap(), ["fsx", "apps"]);
    }

    #[test]
    fn a_mistake_is_named() {
        assert!(
            args("--sedes 3")
                .finish()
                .unwrap_err()
                .to_string()
                .contains("--sedes")
        );
        assert!(args("--seeds").take_value::<u32>("--seeds").is_err());
        assert!(args("--seeds many").take_value::<u32>("--seeds").is_err());
        assert!(args("word").finish_empty().is_err());
    }
}
