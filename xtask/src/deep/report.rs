//! The report of a quick profile in a browser: nothing is fetched, the console says nothing, and
//! every table and chart has something in it. `cargo xtask ci` does the same with a smaller report,
//! where there is a browser.

use super::Subject;
use crate::process;
use crate::tools;
use crate::workspace;
use anyhow::Result;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(35 * 60);
/// The tests of the product; with the variable, a browser must be there.
const TEST: &str = "report::";
const REQUIRED: (&str, &str) = ("AZEKURA_BROWSER_REQUIRED", "1");

pub(crate) fn prepare() -> Result<Option<String>> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = names.iter().any(|name| tools::find(name).is_some());
    Ok((!is_there).then(|| "chromium is not installed".to_owned()))
}

pub(crate) fn run(_: &Subject) -> Result<()> {
    // Of the whole workspace: with the features that `cargo xtask ci` has compiled.
    let arguments = ["test", "--locked", "--workspace", "--test", "e2e", TEST];
    let mut command = workspace::cargo(&arguments);
    command.args(["--", "--nocapture", "--test-threads=1"]);
    command.env(REQUIRED.0, REQUIRED.1);
    process::stream(&mut command, LIMIT)?.check("reports")?;
    Ok(())
}
