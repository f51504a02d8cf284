//! Asking `fusermount3` to mount and unmount for users who may not do so themselves.
//!
//! It hands the mounted device back over a socket whose number the environment tells it. The socket
//! is its standard input: that is the one descriptor that a child inherits without unsafe code.

use super::device::Device;
use super::mount::{MountError, MountOptions, UnmountError};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = "fusermount3";

/// Mounts on `path` and returns the device.
pub(crate) fn mount(path: &Path, options: &MountOptions) -> Result<Device, MountError> {
    let failed = |why: &dyn std::fmt::Display| MountError::Helper(why.to_string());
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| failed(&errno))?;
    let output = Command::new(PROGRAM)
        .arg("-o")
        .arg(option_list(options))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .output()
        .map_err(|error| failed(&error))?;
    if !output.status.success() {
        // It opens the device with the rights of the user, as this process would.
        return Err(match Device::open() {
            Err(errno) => MountError::Device(errno),
            Ok(_) => MountError::Helper(said(&output)),
        });
    }
    match receive(ours.as_fd()) {
        Ok(Some(fd)) => Ok(Device::from_fd(fd)),
        Ok(None) => Err(failed(&"it sent no descriptor")),
        Err(errno) => Err(failed(&errno)),
    }
}

/// Unmounts `path`.
pub(crate) fn unmount(path: &Path, detach: bool) -> Result<(), UnmountError> {
    let mut command = Command::new(PROGRAM);
    command.arg("-u");
    if detach {
        command.arg("-z");
    }
    let output = command.arg("--").arg(path).stdin(Stdio::null()).output();
    let output = output.map_err(|error| UnmountError::Helper(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = said(&output);
    // Its exit status is the same for every failure.
    if said.contains("busy") {
        return Err(UnmountError::Busy {
            path: path.to_owned(),
        });
    }
    Err(UnmountError::Helper(said))
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text
        .trim()
        .trim_start_matches(PROGRAM)
        .trim_start_matches([':', ' ']);
    if text.is_empty() {
        format!("it ended with {}", output.status)
    } else {
        text.to_owned()
    }
}

fn option_list(options: &MountOptions) -> String {
    let mut list = vec![
        format!("fsname={}", escape(&options.fs_name)),
        format!("subtype={}", escape(&options.subtype)),
        if options.read_only { "ro" } else { "rw" }.to_owned(),
    ];
    if let Some(bytes) = options.max_read_bytes {
        list.push(format!("max_read={bytes}"));
    }
    let words = [
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
        (!options.exec, "noexec"),
        // Without these two the helper takes the safe side; only root may ask otherwise.
        (options.suid, "suid"),
        (options.dev, "dev"),
    ];
    list.extend(
        words
            .iter()
            .filter(|(set, _)| *set)
            .map(|(_, word)| (*word).to_owned()),
    );
    list.join(",")
}

/// The helper splits its options at commas and takes a backslash as an escape.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn receive(socket: impl AsFd) -> Result<Option<OwnedFd>, rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_as_the_helper_reads_them() {
        let options = MountOptions {
            fs_name: "srv:7700/a,b\\c".to_owned(),
            subtype: "azekura".to_owned(),
            allow_other: true,
            read_only: true,
            exec: false,
            max_read_bytes: Some(131_072),
            ..MountOptions::default()
        };
        assert_eq!(
            option_list(&options),
            "fsname=srv:7700/a\\,b\\\\c,subtype=azekura,ro,max_read=131072,allow_other,noexec"
        );
        let options = MountOptions {
            suid: true,
            dev: true,
            ..MountOptions::default()
        };
        assert_eq!(
            option_list(&options),
            "fsname=fuse,subtype=fuse,rw,suid,dev"
        );
    }
}
