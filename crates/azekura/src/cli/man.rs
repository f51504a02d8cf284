//! `azekura man DIR`.

use crate::errors::{Context, Result};
use crate::output;
use std::path::PathBuf;

/// Write the manual pages, one per command, into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura man /usr/local/share/man/man1")]
pub(super) struct Man {
    /// Made if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub(super) fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.directory).context(self.directory.display())?;
        let definition = super::definition();
        clap_mangen::generate_to(definition, &self.directory).context(self.directory.display())?;
        let directory = self.directory.to_string_lossy();
        output::note(format_args!(
            "manual pages are in {}",
            directory.escape_debug()
        ));
        Ok(())
    }
}
