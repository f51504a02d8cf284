//! A network namespace without a name.
//!
//! It lives as long as this value or a process inside it: whatever happens to the program that
//! made it, the kernel removes it, so nothing has to be cleaned up after a crash. Programs are
//! started inside by `setns` alone, so they keep the mounts of their starter (unlike
//! `ip netns exec`) and FUSE mounts made inside are visible outside.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{LinkError, sys};

/// Kernel settings of a namespace's TCP. `None` leaves what the kernel gives new namespaces.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpTuning {
    /// Ceiling of the self-tuned send and receive buffers, in bytes.
    pub buffer_bytes_max: Option<u64>,
    /// Whether a connection starts without what earlier ones learnt about the path, so that runs
    /// do not depend on those before them.
    pub forgets_paths: bool,
}

/// An open network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// Makes a namespace whose only interface is a raised loopback.
    ///
    /// # Errors
    /// [`LinkError::Io`], with `EPERM` when the caller may not.
    pub fn new(tuning: TcpTuning) -> Result<Self, LinkError> {
        let made = std::thread::spawn(move || {
            sys::unshare_network()?;
            sys::raise_interface("lo", None, 0, 0)?;
            tune(tuning)?;
            File::open("/proc/thread-self/ns/net")
        });
        let file = made.join().expect("the closure does not panic");
        Ok(Self {
            file: file.map_err(|error| LinkError::io("making a namespace", error))?,
        })
    }

    /// A path that `nsenter --net=PATH` takes, valid while this value lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// A command that will run inside and die with the thread that starts it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        sys::start_inside(&mut command, Some(self.file.as_raw_fd()));
        command
    }

    /// Runs a closure on a new thread inside and returns what it returned.
    ///
    /// # Errors
    /// [`LinkError::Io`] when the thread cannot enter.
    ///
    /// # Panics
    /// When the closure panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LinkError> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&self.file),
                    Some(LinkNameSpaceType::Network),
                )?;
                Ok::<T, std::io::Error>(work())
            });
            match inside.join() {
                Ok(result) => result.map_err(|error| LinkError::io("entering a namespace", error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Makes a TUN interface with offload inside and returns its device.
    pub(crate) fn make_tun(&self, name: &str, address: Ipv4Addr) -> Result<File, LinkError> {
        self.run(|| {
            let options = rustix::fs::OFlags::RDWR
                | rustix::fs::OFlags::NONBLOCK
                | rustix::fs::OFlags::CLOEXEC;
            let device = rustix::fs::open("/dev/net/tun", options, rustix::fs::Mode::empty())?;
            let device = File::from(device);
            sys::make_tun(&device, name)?;
            sys::raise_interface(name, Some(address), MTU_BYTES, DEVICE_QUEUE_PACKETS)?;
            Ok::<File, std::io::Error>(device)
        })?
        .map_err(|error| LinkError::io("making a TUN device", error))
    }
}

/// Ethernet's packet size.
const MTU_BYTES: u16 = 1500;
/// The device's own queue before the link's: long, so that only the link decides what is dropped.
const DEVICE_QUEUE_PACKETS: u32 = 10_000;

/// Settings of the namespace of the calling thread. IPv6 is switched off because its router and
/// address discovery would be counted as traffic of the system under test.
fn tune(tuning: TcpTuning) -> std::io::Result<()> {
    let ipv6 = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
    if std::path::Path::new(ipv6).exists() {
        std::fs::write(ipv6, "1")?;
    }
    if tuning.forgets_paths {
        std::fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")?;
    }
    if let Some(bytes) = tuning.buffer_bytes_max {
        std::fs::write(
            "/proc/sys/net/ipv4/tcp_rmem",
            format!("4096 131072 {bytes}"),
        )?;
        std::fs::write("/proc/sys/net/ipv4/tcp_wmem", format!("4096 16384 {bytes}"))?;
    }
    Ok(())
}
