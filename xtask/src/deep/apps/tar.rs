//! tar: a tree of everything that a directory can hold, unpacked on the subject and compared.

use super::{Place, STEP_LIMIT};
use crate::deep::seed::Seed;
use crate::process;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const FILES: u64 = 500;

pub(crate) fn run(place: &Place) -> Result<String> {
    let tree = place.local.join("tree");
    make_tree(&tree)?;
    let archive = place.local.join("tree.tar");
    let keep = [
        "--acls",
        "--xattrs",
        "--xattrs-include=*",
        "--numeric-owner",
    ];
    let tar = |action: &str, directory: &Path| {
        let mut command = Command::new("tar");
        command.args(keep).arg(action).arg("--file").arg(&archive);
        command.arg("--directory").arg(directory);
        command
    };
    process::check(tar("--create", &tree).args(["--sparse", "."]), STEP_LIMIT)?;
    process::check(
        tar("--extract", &place.directory).arg("--same-permissions"),
        STEP_LIMIT,
    )?;
    // Contents, sizes, modes, owners, times and links; exit status 1 if anything differs.
    process::check(&mut tar("--compare", &place.directory), STEP_LIMIT)?;
    // What tar does not compare: attributes and ACLs.
    for program in [
        &["getfacl", "-R", "-n", "."][..],
        &["getfattr", "-R", "-h", "-d", "-m", "user", "."],
    ] {
        let list = |directory: &Path| {
            let mut command = Command::new(program[0]);
            process::check(
                command.args(&program[1..]).current_dir(directory),
                STEP_LIMIT,
            )
        };
        let (there, here) = (sorted(&list(&tree)?), sorted(&list(&place.directory)?));
        anyhow::ensure!(there == here, "{} differs", program[0]);
    }
    let entries = process::check(&mut tar("--list", &place.directory), STEP_LIMIT)?
        .lines()
        .count();
    process::check(
        Command::new("rm").arg("-r").arg(&place.directory),
        STEP_LIMIT,
    )?;
    Ok(format!("{entries} entries unpacked, compared, removed"))
}

/// Directories may list their entries in another order.
fn sorted(listing: &str) -> Vec<String> {
    let mut blocks: Vec<String> = listing.split("\n\n").map(str::to_owned).collect();
    blocks.sort();
    blocks
}

/// Files of many sizes and modes, then one of each kind.
fn make_tree(tree: &Path) -> Result<()> {
    let mut seed = Seed::new(3);
    std::fs::create_dir(tree)?;
    for number in 0..FILES {
        let directory = tree.join(format!("d{}/e{}", seed.between(0, 8), seed.between(0, 8)));
        std::fs::create_dir_all(&directory)?;
        let path = directory.join(format!("file {number} \u{e9}\n"));
        // As many small files as large ones.
        let magnitude = seed.between(1, 18);
        let size = seed.between(0, 1 << magnitude) as usize;
        std::fs::write(&path, seed.bytes(size))?;
        let mode = 0o400 | seed.between(0, 0o1000) as u32;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    }
    const REST: &str = "set -e\n\
        echo one > one; ln one two; ln -s one link; ln -s /nowhere/at/all dangling\n\
        mkfifo pipe; truncate -s 3M sparse; printf end >> sparse\n\
        chmod 4755 one; mkdir -m 2775 shared; mkdir -m 1777 sticky; touch -d '1999-12-31' old\n\
        chown 1234:5678 old; setfattr -n user.note -v text old\n\
        setfacl -m u:1234:rwx,g:5678:r-x shared; setfacl -d -m g:5678:rwx shared\n\
        touch \"$(printf '%0255d' 1)\"\n";
    process::check(
        Command::new("sh").args(["-c", REST]).current_dir(tree),
        STEP_LIMIT,
    )?;
    Ok(())
}
