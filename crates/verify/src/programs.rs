//! Programs of the system that are for administrators: losetup, mkfs, fsck and their like. They lie
//! in directories that may be in no path of a user, also of one who has become root.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

const DIRECTORIES: [&str; 5] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin"];

/// A program that is also looked for where those for administrators are.
#[must_use]
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    find_all(&mut command);
    command
}

/// Has a command, and whatever it starts, be looked for there as well, behind everything else.
pub fn find_all(command: &mut Command) {
    command.env("PATH", path(std::env::var_os("PATH")));
}

fn path(own: Option<OsString>) -> OsString {
    // An empty part would be the directory of whoever looks.
    let mut path = own.filter(|own| !own.is_empty()).unwrap_or_default();
    for directory in DIRECTORIES {
        if !path.is_empty() {
            path.push(":");
        }
        path.push(directory);
    }
    path
}

/// Whether there is such a program where those for administrators are.
pub(crate) fn is_installed(program: &str) -> bool {
    let mut places = DIRECTORIES
        .iter()
        .map(|place| Path::new(place).join(program));
    places.any(|place| place.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_found_behind_what_the_user_has() {
        let all = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin";
        assert_eq!(path(None), all);
        assert_eq!(path(Some(OsString::new())), all);
        assert_eq!(path(Some("/opt/bin".into())), *format!("/opt/bin:{all}"));
        assert!(is_installed("sh") && !is_installed("no-such-tool"));
        assert!(command("sh").args(["-c", "exit 0"]).status().is_ok());
        let has = command("sh").args(["-c", "echo $PATH"]).output().unwrap();
        let has = String::from_utf8(has.stdout).unwrap();
        assert!(has.trim_end().ends_with(all), "{has}");
    }
}
