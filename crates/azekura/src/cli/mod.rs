//! The commands, one file each.
//!
//! Every reading command takes `--json`, every changing command `--dry-run`. Under the names
//! `mount.azekura` and `umount.azekura` (also with `fuse.` before the type) the program takes the
//! arguments that mount(8) and umount(8) give to their helpers, for lines in fstab.

mod acl;
mod completions;
mod cp;
mod credential;
mod demo;
mod disk;
mod doctor;
mod join;
mod login;
mod ls;
mod man;
mod mount;
mod mount_helper;
mod reserve;
mod server;
mod status;
mod store;
mod sync;
mod tickets;
mod top;
mod umount;
mod verify;
mod volume;
mod write_back;

pub(crate) use server::Signals;

use crate::config::Config;
use crate::errors::Result;
use crate::logging;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::Path;

/// A file system for networks with distance: serve a directory, mount it elsewhere, at the speed of
/// the line.
#[derive(Debug, Parser)]
#[command(
    name = "azekura",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  azekura demo                                     see it work
  azekura server --data ./srv --listen 127.0.0.1:7700 --init
  azekura volume create 127.0.0.1:7700/photos --export ./photos
  azekura mount 127.0.0.1:7700/photos mnt/photos
  azekura umount mnt/photos
  azekura disk publish base.img --to ./www/images --name base:1

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused with what would fit instead. Errors carry a
code with a page in docs/errors/."
)]
struct Arguments {
    /// Say more about what happens; twice for details (RUST_LOG goes before it)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Server(server::Server),
    #[command(subcommand)]
    Volume(volume::Volume),
    Mount(mount::Mount),
    Umount(umount::Umount),
    Cp(cp::Cp),
    Ls(ls::Ls),
    Sync(sync::Sync),
    Top(top::Top),
    Status(status::Status),
    #[command(subcommand)]
    Store(store::Store),
    #[command(subcommand)]
    Reserve(reserve::Reserve),
    #[command(subcommand)]
    Disk(disk::Disk),
    #[command(subcommand)]
    Acl(acl::Acl),
    #[command(subcommand)]
    Verify(verify::Verify),
    Doctor(doctor::Doctor),
    Demo(demo::Demo),
    Login(login::Login),
    #[command(subcommand)]
    Join(join::Join),
    #[command(subcommand)]
    Credential(credential::Credential),
    MountHelper(mount_helper::MountHelper),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Runs the command that `arguments` describe.
///
/// # Errors
/// What the user is to be told. Wrong usage ends the process with exit code 2.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if let Some(command) = helper_command(arguments.first()) {
        arguments.insert(1, command.into());
        // For the usage: `mount.azekura mount-helper` is no command.
        arguments[0] = env!("CARGO_BIN_NAME").into();
    }
    let Arguments { verbose, command } = Arguments::parse_from(arguments);
    match command {
        // A mount in the background logs to a file and says so itself.
        Command::Mount(_) | Command::MountHelper(_) => {}
        Command::Disk(ref disk) if disk.has_own_log() => {}
        Command::Cp(_) => logging::to_stderr_besides_losses(verbose),
        Command::Server(_) => logging::to_stderr(verbose),
        _ => logging::to_stderr_besides_caches(verbose),
    }
    match command {
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
        Command::Store(command) => command.run(),
        Command::Verify(command) => command.run(),
        command => with_config(command, &Config::load()?, verbose),
    }
}

fn with_config(command: Command, config: &Config, verbose: u8) -> Result<()> {
    match command {
        Command::Server(command) => command.run(config),
        Command::Volume(command) => command.run(config),
        Command::Mount(command) => command.run(config, verbose),
        Command::MountHelper(command) => command.run(config, verbose),
        Command::Umount(command) => command.run(),
        Command::Cp(command) => command.run(config),
        Command::Ls(command) => command.run(config),
        Command::Sync(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Status(command) => command.run(config),
        Command::Reserve(command) => command.run(config),
        Command::Disk(command) => command.run(config, verbose),
        Command::Acl(command) => command.run(config),
        Command::Doctor(command) => command.run(config),
        Command::Demo(command) => command.run(),
        Command::Login(command) => command.run(config),
        Command::Join(command) => command.run(config),
        Command::Credential(command) => command.run(config),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
        Command::Store(command) => command.run(),
        Command::Verify(command) => command.run(),
    }
}

/// The command that is meant when mount(8) or umount(8) calls us as its helper.
fn helper_command(program: Option<&OsString>) -> Option<&'static str> {
    match Path::new(program?).file_name()?.to_str()? {
        "mount.azekura" | "mount.fuse.azekura" => Some("mount-helper"),
        "umount.azekura" | "umount.fuse.azekura" => Some("umount"),
        _ => None,
    }
}

/// The whole command line, for completions and manual pages.
fn definition() -> clap::Command {
    Arguments::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        definition().debug_assert();
    }

    #[test]
    fn helpers_are_known_by_their_names() {
        let command = |name: &str| helper_command(Some(&name.into()));
        assert_eq!(command("/sbin/mount.azekura"), Some("mount-helper"));
        assert_eq!(command("mount.fuse.azekura"), Some("mount-helper"));
        assert_eq!(command("/sbin/umount.fuse.azekura"), Some("umount"));
        assert_eq!(command("/usr/bin/azekura"), None);
        assert_eq!(helper_command(None), None);
    }

    /// What changes something.
    const CHANGING: [&[&str]; 36] = [
        &["server"],
        &["volume", "create"],
        &["volume", "delete"],
        &["mount"],
        &["umount"],
        &["cp"],
        &["login"],
        &["join", "create"],
        &["credential", "revoke"],
        &["store", "format"],
        &["reserve", "create"],
        &["reserve", "split"],
        &["reserve", "extend"],
        &["reserve", "release"],
        &["reserve", "cancel"],
        &["reserve", "limits"],
        &["disk", "publish"],
        &["disk", "tag"],
        &["disk", "check"],
        &["disk", "gc"],
        &["disk", "export"],
        &["disk", "serve"],
        &["disk", "attach"],
        &["disk", "detach"],
        &["disk", "commit"],
        &["disk", "reset"],
        &["disk", "train"],
        &["disk", "prefetch"],
        &["acl", "enable"],
        &["acl", "disable"],
        &["acl", "set"],
        &["acl", "plan"],
        &["acl", "rollback"],
        &["acl", "convert"],
        &["acl", "compact"],
        &["verify", "run"],
    ];
    /// What reads.
    const READING: [&[&str]; 35] = [
        &["volume", "list"],
        &["volume", "show"],
        &["ls"],
        &["top"],
        &["status"],
        &["doctor"],
        &["credential", "list"],
        &["demo"],
        &["store", "show"],
        &["store", "check"],
        &["reserve", "when"],
        &["reserve", "list"],
        &["reserve", "show"],
        &["reserve", "report"],
        &["reserve", "limits"],
        &["reserve", "split"],
        &["disk", "log"],
        &["disk", "diff"],
        &["disk", "check"],
        &["disk", "list"],
        &["disk", "train"],
        &["disk", "map"],
        &["disk", "prefetch"],
        &["acl", "status"],
        &["acl", "get"],
        &["acl", "explain"],
        &["acl", "plan"],
        &["acl", "calibrate"],
        &["acl", "convert"],
        &["acl", "compact"],
        &["verify", "crash"],
        &["verify", "speed"],
        &["verify", "tune"],
        &["verify", "run"],
        &["verify", "report"],
    ];

    /// What changes something can be tried without changing it, and what reads can be read by
    /// programs.
    #[test]
    fn changing_commands_have_dry_run_and_reading_commands_json() {
        let definition = definition();
        let has = |path: &[&str], flag: &str| {
            let command = path.iter().fold(&definition, |command, name| {
                command
                    .find_subcommand(name)
                    .expect("a command of the list")
            });
            command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(flag))
        };
        for path in CHANGING {
            assert!(has(path, "dry-run"), "{path:?}");
        }
        for path in READING {
            assert!(has(path, "json"), "{path:?}");
        }
    }
}
