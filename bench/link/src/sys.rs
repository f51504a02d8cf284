//! The few system calls that have no safe wrapper: TUN and interface requests, the real-time
//! scheduling class, signal waiting, and what a child does between fork and exec.

#![expect(
    unsafe_code,
    reason = "device requests, real-time class and fork hooks have no safe API"
)]

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// From linux/if_tun.h: `_IOW('T', 202, int)`, `_IOW('T', 208, unsigned int)`.
const TUNSETIFF: libc::c_ulong = 0x4004_54CA;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54D0;
/// TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6, TUN_F_TSO_ECN.
const OFFLOADS: libc::c_ulong = 1 | 2 | 4 | 8;
const IFF_VNET_HDR: libc::c_short = 0x4000;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: ifreq is plain data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name_max = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..name_max].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes the open TUN clone device `file` the interface `name`, with checksum and TCP offload.
pub(crate) fn make_tun(file: &File, name: &str) -> io::Result<()> {
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short | IFF_VNET_HDR;
    // SAFETY: both requests take what is passed: a pointer to an ifreq that outlives the call,
    // and an integer.
    unsafe {
        check(libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &request))?;
        check(libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD as _, OFFLOADS))?;
    }
    Ok(())
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let inet = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: both are 16 bytes of plain data; the kernel reads the family to tell them apart.
    unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(inet) }
}

/// Gives the interface an address with a /24 network, an MTU and a device queue, and raises it.
/// `None` as address only raises it (loopback).
pub(crate) fn raise_interface(
    name: &str,
    address: Option<Ipv4Addr>,
    mtu_bytes: u16,
    queue_packets: u32,
) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let set = |request: libc::c_ulong, fill: &dyn Fn(&mut libc::ifreq)| -> io::Result<()> {
        let mut argument = interface_request(name);
        fill(&mut argument);
        // SAFETY: every request used here reads one ifreq, which outlives the call.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &argument) })?;
        Ok(())
    };
    if let Some(address) = address {
        let netmask = Ipv4Addr::new(255, 255, 255, 0);
        set(libc::SIOCSIFADDR, &|r| {
            r.ifr_ifru.ifru_addr = socket_address(address)
        })?;
        set(libc::SIOCSIFNETMASK, &|r| {
            r.ifr_ifru.ifru_netmask = socket_address(netmask)
        })?;
        set(libc::SIOCSIFMTU, &|r| {
            r.ifr_ifru.ifru_mtu = i32::from(mtu_bytes)
        })?;
        set(libc::SIOCSIFTXQLEN, &|r| {
            r.ifr_ifru.ifru_metric = queue_packets as i32
        })?;
    }
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    set(libc::SIOCSIFFLAGS, &|r| r.ifr_ifru.ifru_flags = up)
}

/// Moves the calling thread into a new, empty network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: no memory is involved; only the calling thread's namespace changes.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// Moves the caller into new mount and process namespaces. The caller itself keeps its process
/// namespace; its next children are born into the new one.
///
/// # Errors
/// What the kernel answers, as `EPERM` without the right.
pub fn unshare_mounts_and_processes() -> io::Result<()> {
    // SAFETY: no memory is involved; the caller is single-threaded as the kernel demands.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWPID) }).map(drop)
}

/// Puts the calling thread into the real-time class (first in, first out).
pub(crate) fn become_real_time(priority: i32) -> io::Result<()> {
    // SAFETY: sched_param is plain data; the call reads it and changes the calling thread only.
    check(unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = priority;
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters)
    })
    .map(drop)
}

/// The number of SIGCHLD, as [`wait_signal`] returns it.
pub const CHILD_ENDED: i32 = libc::SIGCHLD;

/// Signals that end a program politely, and the one that tells of a child's end.
const AWAITED: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD];

fn awaited_set() -> libc::sigset_t {
    // SAFETY: the set is initialised by sigemptyset before use; the signal numbers are valid.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in AWAITED {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Keeps the ending signals and SIGCHLD for [`wait_signal`]; threads started later inherit this.
///
/// # Errors
/// What the kernel answers.
pub fn hold_signals() -> io::Result<()> {
    let set = awaited_set();
    // SAFETY: the set is valid for the length of the call; the old mask is not wanted.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits for one of the held signals and returns its number.
///
/// # Errors
/// What the kernel answers.
pub fn wait_signal() -> io::Result<i32> {
    let set = awaited_set();
    let mut signal = 0;
    // SAFETY: both pointers are valid for the length of the call.
    match unsafe { libc::sigwait(&set, &mut signal) } {
        0 => Ok(signal),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Makes a command start in the network namespace behind `namespace` (if any), with signals as a
/// fresh program expects them, and die when the thread that started it does.
pub fn start_inside(command: &mut Command, namespace: Option<RawFd>) {
    let hook = move || {
        // SAFETY: only async-signal-safe system calls between fork and exec: they allocate
        // nothing and take no lock.
        unsafe {
            if let Some(namespace) = namespace {
                check(libc::setns(namespace, libc::CLONE_NEWNET))?;
            }
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            check(libc::sigprocmask(
                libc::SIG_SETMASK,
                &none,
                std::ptr::null_mut(),
            ))?;
        }
        Ok(())
    };
    // SAFETY: the hook keeps to the rule for code between fork and exec, as argued inside it.
    unsafe {
        command.pre_exec(hook);
    }
}
