//! `azekura completions SHELL`.

use crate::errors::Result;
use crate::output;
use clap_complete::Shell;

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura completions bash > \
                        ~/.local/share/bash-completion/completions/azekura")]
pub(super) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::definition(), "azekura", &mut script);
        output::write(&String::from_utf8_lossy(&script))
    }
}
