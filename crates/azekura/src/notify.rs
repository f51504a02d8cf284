//! Telling a service manager that the server is ready, or stopping (sd_notify(3)).

use crate::config;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says `state`, such as `READY=1`, to whoever started the server, if he asked for it.
pub(crate) fn tell(state: &str) {
    if let Some(Err(error)) = config::notify_socket().map(|socket| send(&socket, state)) {
        tracing::warn!(%error, state, "cannot tell the service manager");
    }
}

fn send(socket: &std::ffi::OsStr, state: &str) -> io::Result<()> {
    // A leading @ stands for the NUL of an abstract name.
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state.as_bytes(), &address)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_hears_it_by_path_and_by_abstract_name() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("socket");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        send(path.as_os_str(), "READY=1").expect("somebody listens");
        let name = format!("azekura-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("short");
        let hidden = UnixDatagram::bind_addr(&address).expect("a socket");
        send(format!("@{name}").as_ref(), "STOPPING=1").expect("somebody listens");
        for (socket, expected) in [(manager, "READY=1"), (hidden, "STOPPING=1")] {
            let mut buffer = [0; 64];
            let len = socket.recv(&mut buffer).expect("it was sent");
            assert_eq!(&buffer[..len], expected.as_bytes());
        }
    }
}
