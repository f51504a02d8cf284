//! `azekura disk serve`.

use super::place::Image;
use super::process::{How, Plan};
use crate::cli::Signals;
use crate::config::Config;
use crate::errors::{Code, Failure, Result, listen_failure, plain_io};
use crate::output;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use wire::nbd::{Export, Listener, Server};

/// Serve a disk to programs and virtual machines over NBD; returns when it is ready
///
/// Only what is read is fetched, every chunk once, and verified before a byte of it is given out.
/// There is neither encryption nor a password: whoever reaches the socket has the disk. It ends
/// with `azekura disk detach`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk serve http://far.example/images base:2 --nbd unix:disk.sock --writable
  azekura disk serve ./www/images base:2 --nbd 127.0.0.1:10809
  qemu-system-x86_64 -drive file=nbd:unix:disk.sock,format=raw,if=virtio ...")]
pub(in crate::cli) struct Serve {
    #[command(flatten)]
    image: Image,
    /// Where to listen: unix:PATH or HOST:PORT with the number of a host; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    nbd: NbdAddress,
    #[command(flatten)]
    how: How,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NbdAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for NbdAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let text = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        text.parse().map(Self::Tcp).map_err(|_| {
            "either unix:PATH, or HOST:PORT such as 127.0.0.1:10809 or [::1]:10809".to_owned()
        })
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl NbdAddress {
    fn absolute(self) -> Result<Self> {
        match self {
            Self::Tcp(_) => Ok(self),
            Self::Unix(path) => std::path::absolute(&path)
                .map(Self::Unix)
                .map_err(|error| Failure::local(path.display(), error)),
        }
    }

    /// Must be called within a runtime.
    fn listen(&self) -> Result<Listener> {
        match self {
            Self::Tcp(address) => {
                Listener::tcp(*address).map_err(|error| listen_failure(*address, &error))
            }
            Self::Unix(path) => Listener::unix(path).map_err(|error| {
                let message = format!("cannot listen on {self}: {}", plain_io(&error));
                let failure = Failure::new(Code::Listen, message);
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        failure.hint("somebody serves there, or the path is something else")
                    }
                    io::ErrorKind::InvalidInput => {
                        failure.hint("the path of a socket has at most 107 bytes, made absolute")
                    }
                    _ => failure.hint("is the directory there, and may this user write to it?"),
                }
            }),
        }
    }
}

impl Serve {
    pub(super) fn is_reporting(&self) -> bool {
        self.how.is_reporting()
    }

    pub(super) fn run(self, config: &Config, verbose: u8) -> Result<()> {
        let address = self.nbd.absolute()?;
        if let NbdAddress::Tcp(tcp) = &address
            && !tcp.ip().is_loopback()
            && !self.how.is_reporting()
        {
            output::note(format_args!("whoever reaches {tcp} has this disk"));
        }
        let plan = Plan {
            command: vec!["serve".into(), format!("--nbd={address}").into()],
            place: address.to_string(),
            done: "served at",
            ..Plan::new(config, self.image, self.how, verbose)?
        };
        plan.go(config, &|runtime, opened, ready| {
            let (listener, mut signals) = runtime
                .block_on(async { Ok::<_, Failure>((address.listen()?, Signals::new()?)) })?;
            let image = &plan.image;
            let server = Server::new(Export {
                name: image.name.to_string(),
                description: format!("{} of {}", image.name, image.place),
                device: opened.device(),
                is_read_only: opened.overlay.is_none(),
            });
            let running = plan.running(opened, "nbd", listener.address());
            tracing::info!(at = running.place, name = running.name, "serving");
            ready(running)?;
            runtime.block_on(server.run(listener, signals.wait()));
            tracing::info!("ended");
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_at_numbers_and_paths() {
        let shown = |text: &str| {
            text.parse::<NbdAddress>()
                .map(|address| address.to_string())
        };
        for good in [
            "127.0.0.1:10809",
            "[::1]:0",
            "unix:disk.sock",
            "unix:/run/a b",
        ] {
            assert_eq!(shown(good).as_deref(), Ok(good));
        }
        assert_eq!(shown("localhost:1").as_deref(), Ok("127.0.0.1:1"));
        for bad in ["", "unix:", "10809", "far.example:10809", "127.0.0.1:99999"] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }
}
