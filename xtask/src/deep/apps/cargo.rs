//! cargo: a small crate built and tested with its target directory on the subject. Compilers map
//! files, rename them into place, lock and run what they have just written.

use super::{Place, STEP_LIMIT};
use crate::process;
use anyhow::{Result, ensure};
use std::fs;
use std::process::Command;

const MANIFEST: &str = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
const LIBRARY: &str = "pub fn sum(numbers: &[u64]) -> u64 {\n    numbers.iter().sum()\n}\n\n\
    #[test]\nfn sums() {\n    assert_eq!(sum(&[1, 2, 3]), 6);\n}\n";
const PROGRAM: &str = "fn main() {\n    println!(\"{}\", small::sum(&[20, 22]));\n}\n";

pub(crate) fn run(place: &Place) -> Result<String> {
    let package = place.directory.join("small");
    fs::create_dir_all(package.join("src"))?;
    fs::write(package.join("Cargo.toml"), MANIFEST)?;
    fs::write(package.join("src/lib.rs"), LIBRARY)?;
    fs::write(package.join("src/main.rs"), PROGRAM)?;
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command
            .arg("--offline")
            .args(arguments)
            .current_dir(&package);
        command.env_remove("CARGO_TARGET_DIR");
        process::check(&mut command, STEP_LIMIT)
    };
    let tested = cargo(&["test"])?;
    ensure!(tested.contains("1 passed"), "{tested}");
    let said = cargo(&["run", "--quiet", "--release"])?;
    ensure!(said.trim() == "42", "the program says {said:?}");
    // The second build must find everything fresh, which hangs on the times of files.
    let again = cargo(&["build", "--release", "--verbose"])?;
    ensure!(again.contains("Fresh small"), "{again}");
    Ok("test, release build, run, and nothing to do the second time".to_owned())
}
