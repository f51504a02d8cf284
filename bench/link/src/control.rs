//! The control socket: one command per line in, one line of JSON out.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::settings::Command;
use crate::{Link, LinkError};

/// A silent client is let go after this time; the next one waits so long at most.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// No command is longer.
const LINE_BYTES_MAX: u64 = 256;

/// Serves commands on a Unix socket at `path` until the process ends. One client at a time.
///
/// # Errors
/// [`LinkError::Io`] when the socket cannot be made.
pub fn serve(link: Arc<Link>, path: &Path) -> Result<(), LinkError> {
    let listener =
        UnixListener::bind(path).map_err(|error| LinkError::io("making the socket", error))?;
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A client that breaks off is its own business.
            let _ = answer(&link, client);
        }
    });
    Ok(())
}

fn answer(link: &Link, client: UnixStream) -> std::io::Result<()> {
    client.set_read_timeout(Some(SILENCE_MAX))?;
    client.set_write_timeout(Some(SILENCE_MAX))?;
    let mut to_client = client.try_clone()?;
    let mut from_client = BufReader::new(client);
    loop {
        let mut line = String::new();
        let len = std::io::Read::take(&mut from_client, LINE_BYTES_MAX).read_line(&mut line)?;
        if len == 0 {
            return Ok(());
        }
        let reply = match line.parse::<Command>() {
            Ok(command) => {
                link.apply(&command);
                serde_json::json!({
                    "settings": link.settings(),
                    "counters": link.counters(),
                    "real_time": link.is_real_time(),
                })
            }
            Err(error) => serde_json::json!({ "error": error.to_string() }),
        };
        writeln!(to_client, "{reply}")?;
    }
}

/// Sends one command to the link behind `path` and returns its line of JSON.
///
/// # Errors
/// [`LinkError::Io`] when nobody answers there.
pub fn ask(path: &Path, command: &str) -> Result<String, LinkError> {
    let exchange = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        writeln!(stream, "{command}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    exchange().map_err(|error| LinkError::io("talking to the link", error))
}
