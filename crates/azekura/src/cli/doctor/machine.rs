//! What this machine has: kernel, FUSE, rights, settings, buffers.

use super::Check;
use crate::config::{Config, find_program};
use base::limits::CONNECTIONS_MAX;
use base::{ByteSize, Rate};
use rustix::process::Resource;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

/// Oldest kernel with openat2(2), without which a copy or an export would have to trust paths.
const KERNEL_MIN: (u32, u32) = (5, 6);
/// Newest thing that is used where it is there: with FUSE's epochs the kernel may keep names.
const KERNEL_GOOD: (u32, u32) = (6, 16);
/// A clock before this is not set: certificates would not be valid yet. 2026-01-01.
const CLOCK_MIN_SECONDS: u64 = 1_767_225_600;
/// What the buffers of TCP should carry: one gigabit per second over 100 ms.
const LINE_BYTES: u64 = 125_000_000 / 10;
/// Descriptors that a mount needs for its connections and threads, or a small server: what Linux
/// gives every process unless told otherwise.
const DESCRIPTORS_MIN: u64 = 1024;
/// Descriptors that a server may need for the files and connections of many.
const DESCRIPTORS_SERVER: u64 = 65_536;

/// All checks of this machine.
pub(super) fn checks(config: &Config) -> Vec<Check> {
    let root = rustix::process::geteuid().is_root();
    vec![
        Check::good("version", format!("azekura {}", env!("CARGO_PKG_VERSION"))),
        kernel(),
        fuse_device(),
        fusermount(root),
        allow_other(root),
        serving(root),
        clock(),
        descriptors(),
        buffers(),
        congestion(),
        directory(config),
    ]
}

fn kernel() -> Check {
    let name = "kernel";
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    match parse_release(&release) {
        Some(version) if version < KERNEL_MIN => {
            Check::failed(name, release, "Linux 5.6 or newer is needed")
        }
        Some(version) if version < KERNEL_GOOD => {
            let advice =
                "it works; with Linux 6.16 or newer a mount need not ask for each name again";
            Check::warning(name, release, advice)
        }
        Some(_) => Check::good(name, release),
        None => Check::warning(
            name,
            release,
            "this version is unknown; Linux 5.6 is needed",
        ),
    }
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn fuse_device() -> Check {
    let name = "/dev/fuse";
    match fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
    {
        Ok(_) => Check::good(name, "can be opened"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Check::failed(
            name,
            "does not exist",
            "modprobe fuse; in a container, pass the device in (--device /dev/fuse)",
        ),
        Err(error) => {
            let why = crate::errors::plain_io(&error);
            Check::failed(
                name,
                why,
                "its mode should be 0666; in a container, allow the device",
            )
        }
    }
}

fn fusermount(root: bool) -> Check {
    let name = "fusermount3";
    let advice = "install it: apt-get install fuse3";
    match find_program(name) {
        None if root => Check::good(name, "missing, and not needed by root"),
        None => Check::failed(name, "missing; users other than root mount by it", advice),
        Some(path) => {
            let mode = fs::metadata(&path).map_or(0, |metadata| metadata.permissions().mode());
            let shown = path.display().to_string();
            if root || mode & 0o4000 != 0 {
                Check::good(name, shown)
            } else {
                let found = format!("{shown} is not set-uid root, so it cannot mount");
                Check::failed(name, found, advice)
            }
        }
    }
}

fn allow_other(root: bool) -> Check {
    let name = "user_allow_other";
    let text = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    let is_set = text.lines().any(|line| line.trim() == name);
    match (is_set, root) {
        (true, _) => Check::good(name, "set in /etc/fuse.conf"),
        (false, true) => Check::good(name, "not set; root does not need it for --allow-other"),
        (false, false) => Check::warning(
            name,
            "not set, so --allow-other is refused",
            "if others shall use your mounts, root adds the line to /etc/fuse.conf",
        ),
    }
}

/// A server acts for each caller, finds files by handle and listens to the kernel for changes.
fn serving(root: bool) -> Check {
    const NEEDED: [(u32, &str); 9] = [
        (0, "CAP_CHOWN"),
        (1, "CAP_DAC_OVERRIDE"),
        (2, "CAP_DAC_READ_SEARCH"),
        (3, "CAP_FOWNER"),
        (4, "CAP_FSETID"),
        (6, "CAP_SETGID"),
        (7, "CAP_SETUID"),
        (21, "CAP_SYS_ADMIN"),
        (27, "CAP_MKNOD"),
    ];
    let name = "serving";
    if !root {
        return Check::skipped(
            name,
            "a server runs as root; doctor as root looks whether it can",
        );
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    let Some(set) = set else {
        return Check::skipped(name, "the system does not tell the rights of root");
    };
    let lacking: Vec<&str> = NEEDED
        .iter()
        .filter(|(number, _)| set & (1 << number) == 0)
        .map(|(_, right)| *right)
        .collect();
    if lacking.is_empty() {
        return Check::good(name, "root has all rights that a server needs");
    }
    let found = format!("root lacks {} here", lacking.join(", "));
    Check::warning(name, found, "to serve in a container, add them (--cap-add)")
}

fn clock() -> Check {
    let name = "clock";
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let shown = crate::output::moment(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    if now.as_secs() < CLOCK_MIN_SECONDS {
        let advice = "set it (timedatectl set-ntp true): certificates are not valid yet";
        return Check::failed(name, shown, advice);
    }
    Check::good(name, shown)
}

fn descriptors() -> Check {
    let name = "open files";
    let advice = "for a busy server, raise LimitNOFILE= or ulimit -Hn to 65536 or more";
    match rustix::process::getrlimit(Resource::Nofile).maximum {
        Some(maximum) if maximum < DESCRIPTORS_MIN => {
            Check::warning(name, format!("at most {maximum}"), advice)
        }
        // No fault: most machines are clients, and whether a server is busy is not seen here.
        Some(maximum) if maximum < DESCRIPTORS_SERVER => {
            Check::good(name, format!("up to {maximum}; {advice}"))
        }
        Some(maximum) => Check::good(name, format!("up to {maximum}")),
        None => Check::good(name, "no limit"),
    }
}

/// Linux grows the buffers of a connection up to a maximum; their sum over all connections bounds
/// what can be under way, and so the rate at a distance. Half of a receive buffer is for data.
fn buffers() -> Check {
    let name = "TCP buffers";
    let maximum = |what: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{what}")).ok()?;
        text.split_ascii_whitespace().nth(2)?.parse().ok()
    };
    let (Some(receive), Some(send)) = (maximum("tcp_rmem"), maximum("tcp_wmem")) else {
        return Check::good(name, "the system does not tell");
    };
    let bulk = CONNECTIONS_MAX as u64 - 1;
    let carried = (receive / 2).min(send).saturating_mul(bulk);
    let at_distance = Rate(carried.saturating_mul(10));
    let found = format!(
        "receive {}, send {}: up to {at_distance} over 100 ms",
        ByteSize(receive),
        ByteSize(send)
    );
    if carried < LINE_BYTES {
        let advice = "for fast far lines: sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456' \
                      net.ipv4.tcp_wmem='4096 16384 4194304'";
        return Check::warning(name, found, advice);
    }
    Check::good(name, found)
}

fn congestion() -> Check {
    let name = "TCP BBR";
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = fs::read_to_string(path).unwrap_or_default();
    let available = available.trim();
    if available.split_ascii_whitespace().any(|word| word == "bbr") {
        return Check::good(name, "available");
    }
    let advice = "modprobe tcp_bbr: without it, single lost packets slow far lines down";
    Check::warning(
        name,
        format!("not available (there is {available})"),
        advice,
    )
}

fn directory(config: &Config) -> Check {
    let name = "configuration";
    let path = config.directory();
    let shown = path.display().to_string();
    match fs::metadata(path.join("clusters")) {
        Err(_) => Check::good(name, format!("{shown}, no credential kept")),
        Ok(metadata) if metadata.permissions().mode() & 0o077 == 0 => Check::good(name, shown),
        Ok(_) => {
            let advice = format!("chmod 700 {shown} {shown}/clusters");
            Check::warning(name, format!("{shown} is open to other users"), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(parse_release("6.18.2-custom"), Some((6, 18)));
        assert_eq!(parse_release("5.10.0-28-amd64"), Some((5, 10)));
        assert_eq!(parse_release("unknown"), None);
        assert!(parse_release("6.18").expect("a version") > KERNEL_GOOD);
        assert!(parse_release("5.4.0").expect("a version") < KERNEL_MIN);
    }
}
